"""The page of a table, from its document alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from posprobe.formatting import Block, cell, show
from posprobe.measurements import TABLE, compared_numbers
from posprobe.page import Cell, Column, Fact, Page, Picture, Section, Table, columns


def table_page(document: Block) -> Page:
    """Lay out the page of a table: what can be said, the numbers behind it, each measurement."""
    table = document["table"]
    measured = [m.section(document) for m in TABLE.values() if m.name in document]
    verdict = _verdict(document)
    if not any(section.tables for section in verdict):
        # Nothing that was measured has a band: the numbers themselves are the answer.
        measured = [
            replace(part, tables=tuple(replace(table, brief=True) for table in part.tables))
            for part in measured
        ]
    return Page(
        title=table["name"],
        subject="what it has learned about position",
        lead=_lead(table),
        notes=tuple(f"{note}." for note in table["notes"]),
        sections=(*verdict, *measured, _table_itself(table)),
        provenance=(*_source(table), *versions(document["environment"])),
    )


_DRAWN = (
    (
        "In the drawings a line marks the table, a triangle the sinusoid, and bars the null models "
        "(5 to 95 % of the draws) from top to bottom in the order of the columns."
    ),
)


def _lead(table: Block) -> str:
    layout, (first, stop) = table["layout"], table["rows"]
    text = f"{'A learned' if table['kind'] == 'learned' else 'A fixed'} table of "
    text += f"{table['positions']} positions"
    if layout["type"] == "grid":
        text += f", a grid of {layout['height']} × {layout['width']}"
    text += f", each a vector of {table['dim']} numbers."
    if (first, stop) != (0, table["positions"]):
        text += f" Positions {first} to {stop - 1} of the whole."
    return text


def _verdict(document: Block) -> tuple[Section, ...]:
    nulls = document.get("nulls")
    bullets = tuple(finding["text"] for finding in document.get("findings", ()))
    compared = compared_table(nulls) if nulls else None
    if not nulls or compared is None:
        return (Section("verdict", "Findings", bullets=bullets),) if bullets else ()
    if not nulls["draws"]:
        bullets += ("No null model was drawn, so nothing is claimed of the numbers below.",)
    elif not bullets:
        bullets = ("No number lies outside the bands of all null models.",)
    return (
        Section(
            "verdict",
            "Compared with the sinusoid and the null models",
            bullets=bullets,
            paragraphs=_DRAWN if nulls["draws"] else (),
            tables=(compared,),
            terms=nulls["models"] if nulls["draws"] else None,
        ),
    )


def compared_table(nulls: Block) -> Table | None:
    """Tabulate numbers beside those of the sinusoid and of the null models.

    Parameters
    ----------
    nulls
        The block of a document; its models are those that it names.

    Returns
    -------
    Table or None
        None where no number is defined.
    """
    numbers, models = nulls["numbers"], tuple(nulls["models"]) if nulls["draws"] else ()
    rows = []
    for key, number in compared_numbers().items():
        entry = numbers.get(key)
        if not entry or entry["value"] is None:
            continue
        bands = {name: entry.get(name) for name in models}
        marks = {"value": entry["value"], "sinusoid": entry["sinusoid"], "bands": bands}
        drawn = (Cell("", marks=marks),) if models else ()
        rows.append(
            (
                Cell(number.label, note=number.meaning),
                show(entry["value"]),
                cell(entry["sinusoid"]),
                *drawn,
                *map(_band, bands.values()),
            )
        )
    caption = "Each number, and the same number of the sinusoid of this shape"
    if models:
        caption += f" and of null models (median of {nulls['draws']} draws)"
    headings = (
        *columns("number", "=table", "=sinusoid"),
        *(columns("drawn") if models else ()),
        *(Column(name, numeric=True) for name in models),
    )
    if not rows:
        return None
    return Table(f"{caption}.", headings, tuple(rows), stacked=True, brief=True)


def _band(band: Mapping[str, float] | None) -> Cell:
    if band is None:
        return Cell("–")
    low, middle, high = (brief(band[key]) for key in ("p5", "p50", "p95"))
    return Cell(middle, note="" if low == high else f"{low} to {high}")


def brief(value: float) -> str:
    """Format a number of a band: two digits, and nothing for what is nearly nothing."""
    if abs(value) < 0.005:
        return "0"
    return f"{value:.3g}" if 0.95 < abs(value) < 1.05 or abs(value) >= 10 else f"{value:.2g}"


def _table_itself(table: Block) -> Section:
    alt = (
        f"Heat map of the table {table['name']}: {table['positions']} positions across, "
        f"{table['dim']} dimensions down."
    )
    return Section(
        "the-table",
        "The table itself",
        paragraphs=(
            (
                "The numbers of the table, positions from left to right, clipped at the 99th "
                "percentile of the absolute values."
            ),
        ),
        pictures=(Picture("table", alt),),
    )


def _source(table: Block) -> tuple[Fact, ...]:
    left_out = "; ".join(f"row {row['row']}: {row['reason']}" for row in table["dropped_rows"])
    special = "; ".join(f"row {row['row']}: {row['token']}" for row in table["prefix_rows"])
    family = (Fact("family", table["family"]),) if table["family"] else ()
    return (
        *origin(table["source"]),
        *tensor(table["source"]),
        *family,
        Fact("rows left out", left_out or "none"),
        Fact("rows of special tokens", special or "none"),
    )


def origin(source: Block) -> tuple[Fact, ...]:
    """Say what was asked for and what it led to."""
    found = {"reference": "reference", "resolved": "resolved to", "revision": "revision"}
    return tuple(
        Fact(label, str(source[key]), code=True) for key, label in found.items() if source[key]
    )


def tensor(source: Block, whose: str = "") -> tuple[Fact, ...]:
    """Say where the numbers are stored, and how."""
    facts = []
    if source["file"]:
        facts.append(Fact(f"{whose}file", source["file"], code=True))
    if source["tensor"]:
        facts.append(Fact(f"{whose}tensor", source["tensor"], code=True))
        shape = " × ".join(map(str, source["shape"] or ()))
        stored = ", ".join(part for part in (shape, source["dtype"]) if part)
        if stored:
            facts.append(Fact(f"{whose}stored as", stored))
    if source["sha256"]:
        facts.append(Fact(f"{whose}sha256 of its bytes", source["sha256"], code=True))
    return tuple(facts)


def versions(environment: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Say what the numbers were made with."""
    return tuple(
        Fact(name, str(value), code=name == "command")
        for name, value in environment.items()
        if value is not None
    )
