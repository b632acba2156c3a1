"""The page of a table, from its document alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from posprobe.measurements import TABLE, TableMeasurement, compared_numbers
from posprobe.number_format import Block, cell, show
from posprobe.page import Cell, Column, Fact, Page, Picture, Row, Section, Table, columns
from posprobe.report.narrator import LEVELS, REPLACED, asks, chance, claim
from posprobe.report.narrator.captions import baselines_caption, lead


def table_page(document: Block) -> Page:
    """Lay out the page of a table: what can be said, the numbers behind it, each measurement."""
    table = document["table"]
    if "verdict" in document:
        return _answered(document)
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
        lead=lead(table),
        notes=tuple(f"{note}." for note in table["notes"]),
        sections=(*verdict, *measured, _table_itself(table)),
        provenance=(*_source(table), *versions(document["environment"])),
    )


#: Figures that carry the answers, shown first.
LEADING = {"sequence": ("similarity", "winding", "bridging"), "grid": ("mosaic", "axis_codes")}


def _answered(document: Block) -> Page:
    """Lay out the page of a table that has a verdict: the answer first, everything else folded."""
    table, told = document["table"], document["verdict"]
    there = [m for m in TABLE.values() if m.name in document]
    measured = [m.section(document) for m in there if not m.empty(document)]
    shown = LEADING[table["layout"]["type"]]
    pictures = {p.name: p for section in measured for p in section.pictures}
    folded = tuple(
        replace(
            section,
            notes=(),
            pictures=tuple(p for p in section.pictures if p.name not in shown),
            folded=True,
        )
        for section in measured
    )
    said = [told["based_on"]] if told.get("based_on") else []
    if told.get("replaced"):
        said.append(REPLACED)
    return Page(
        title=table["name"],
        subject="what it has learned about position",
        lead=lead(table),
        notes=tuple(f"{note}." for note in table["notes"]),
        sections=(
            Section(
                "verdict",
                "What this table has learned",
                bullets=(told["summary"],),
                paragraphs=tuple(said),
                pictures=tuple(pictures[name] for name in shown if name in pictures),
                tables=(answers_table(told),),
            ),
            *(replace(section, folded=True) for section in _verdict(document)),
            *folded,
            *_undefined(there, document),
            _table_itself(table),
        ),
        provenance=(*_source(table), *versions(document["environment"])),
    )


def _undefined(measured: Sequence[TableMeasurement], document: Block) -> tuple[Section, ...]:
    """Gather the measurements and numbers that such a table does not have, with the reasons."""
    reasons = {
        m.texts.title: tuple(dict.fromkeys(document[m.name]["undefined"].values()))
        if m.empty(document)
        else m.section(document).notes
        for m in measured
    }
    rows = tuple((title, "; ".join(found)) for title, found in reasons.items() if found)
    if not rows:
        return ()
    table = Table("What is not defined for this table", columns("measurement", "reason"), rows)
    return (Section("undefined", "Not defined for this table", tables=(table,), folded=True),)


def answers_table(
    told: Block, caption: str = LEVELS, questions: Mapping[str, str] | None = None
) -> Table:
    """Tabulate questions, answers, and the evidence for them beside what chance gives.

    Parameters
    ----------
    told
        The block ``verdict`` of a document; of version 1, what is asked of lines alone has an
        answer on grids, too, and is left out.
    caption
        What an answer means.
    questions
        In words, by name; those of tables where None.
    """
    words = asks() if questions is None else questions
    shown = [each for each in told["answers"] if each["question"] in words and claim(each)]
    # Exact answers leave nothing to chance.
    tested = any(answer["p"] is not None or answer.get("interval") for answer in shown)
    rows = tuple(
        (
            words[answer["question"]], answer["answer"], claim(answer),
            *([chance(answer)] if tested else ()),
        )
        for answer in shown
    )  # fmt: skip
    headings = columns("question", "answer", "evidence", *(["by chance"] if tested else ()))
    return Table(caption, headings, rows, stacked=True, brief=True)


def _verdict(document: Block) -> tuple[Section, ...]:
    nulls = document.get("nulls")
    bullets: tuple[str, ...] = ()
    if "verdict" not in document:
        bullets = tuple(finding["text"] for finding in document.get("findings", ()))
    keys = None
    if "verdict" in document:
        keys = {key for answer in document["verdict"]["answers"] for key in answer["keys"]}
    compared = compared_table(nulls, keys) if nulls else None
    if not nulls or compared is None:
        return (Section("verdict", "Findings", bullets=bullets),) if bullets else ()
    if not nulls["draws"]:
        bullets += ("No null model was drawn, so nothing is claimed of the numbers below.",)
    return (
        Section(
            "numbers",
            "Compared with the sinusoid and the null models",
            bullets=bullets,
            paragraphs=("Small type: 5 to 95 % of the draws.",) if nulls["draws"] else (),
            tables=(compared,),
            terms=nulls["models"] if nulls["draws"] else None,
        ),
    )


def compared_table(nulls: Block, keys: Collection[str] | None = None) -> Table | None:
    """Tabulate numbers beside those of the sinusoid and of the null models.

    Parameters
    ----------
    nulls
        The block of a document; its models are those that it names.
    keys
        Of the numbers behind the answers, which a terminal prints unasked; None for all.

    Returns
    -------
    Table or None
        None where no number is defined.
    """
    numbers, models = nulls["numbers"], tuple(nulls["models"]) if nulls["draws"] else ()
    rows: list[Row] = []
    shown = []
    for key, number in compared_numbers().items():
        entry = numbers.get(key)
        if not entry or entry["value"] is None:
            continue
        shown.append(key)
        rows.append(
            (
                Cell(number.label, note=number.meaning),
                show(entry["value"]),
                cell(entry["sinusoid"]),
                *(_band(entry.get(name)) for name in models),
            )
        )
    caption = baselines_caption(nulls["draws"] if models else 0)
    headings = (
        Column("number", notes=("meaning",)),
        *columns("=table", "=sinusoid"),
        *(Column(name, numeric=True, notes=("5 %", "95 %")) for name in models),
    )
    if not rows:
        return None
    # Behind an answer is what it names; without answers all numbers are the answer.
    behind = None if keys is None else tuple(k for k, key in enumerate(shown) if key in keys)
    return Table(
        f"{caption}.", headings, tuple(rows), stacked=True, brief=behind != (), brief_rows=behind
    )


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
    if source.get("format"):
        facts.append(Fact(f"{whose}file format", source["format"]))
    if source["tensor"]:
        facts.append(Fact(f"{whose}tensor", source["tensor"], code=True))
        shape = " × ".join(map(str, source["shape"] or ()))
        stored = ", ".join(filter(None, (shape, source["dtype"], quantised(source))))
        if stored:
            facts.append(Fact(f"{whose}stored as", stored))
    if source["sha256"]:
        facts.append(Fact(f"{whose}sha256 of its bytes", source["sha256"], code=True))
    return tuple(facts)


def quantised(source: Block) -> str:
    """Say how the stored numbers were rounded to few values; empty where they were not."""
    known = source.get("quantisation")
    if not known:
        return ""
    step = f" in steps of {known['step']:.3g}" if known["step"] else ""
    return f"dequantised from {known['name']}{step}"


def versions(environment: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Say what the numbers were made with."""
    return tuple(
        Fact(name, str(value), code=name == "command")
        for name, value in environment.items()
        if value is not None
    )
