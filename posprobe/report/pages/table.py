"""The page of a table."""

from __future__ import annotations

from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, columns
from posprobe.report import overview
from posprobe.report.pages.parts import origin, tensor, versions
from posprobe.text import Block, between, cell, lookup, show
from posprobe.words import REPLACED, claim
from posprobe.words.captions import baselines_caption
from posprobe.words.lines import key, lines, size


def table_page(document: Block) -> Page:
    """Lay out the page of a table."""
    table, verdict = document["table"], document.get("verdict")
    notes = [f"{note}." for note in table["notes"]]
    if verdict and verdict.get("replaced"):
        notes.append(REPLACED)
    return Page(
        title=table["name"],
        subject="what it has learned about position",
        lead=size(table),
        headline=verdict["summary"] if verdict else "",
        notes=tuple(notes),
        pictures=tuple(map(Picture, overview.NAMES)),
        evidence=_evidence(verdict, grid=table["layout"]["type"] == "grid") if verdict else (),
        key=key(document) if verdict else "",
        numbers=_numbers(document),
        provenance=(*_source(document), *versions(document["environment"])),
    )


def _evidence(verdict: Block, *, grid: bool) -> tuple[Evidence, ...]:
    claims = {answer["question"]: claim(answer) for answer in verdict["answers"]}
    return tuple(
        Evidence((line,), sentences=(claims[line.name],)) for line in lines(verdict, grid=grid)
    )


def _numbers(document: Block) -> Table:
    """Tabulate every number with those of the sinusoid and, where asked for, of baselines."""
    nulls = document.get("nulls") or {"numbers": {}, "models": {}, "draws": 0}
    models = tuple(nulls["models"]) if nulls["draws"] else ()
    rows: list[Row] = []
    for name, measurement in TABLE_MEASUREMENTS.items():
        for path, number in measurement.numbers.items():
            value = lookup(document, f"{name}.{path}")
            if value is None or value == []:
                continue
            baselines = nulls["numbers"].get(f"{name}.{path}") or {}
            band_values = (baselines.get(model) for model in models)
            bands = (between(band.values()) if band else "–" for band in band_values)
            sinusoid = cell(baselines.get("sinusoid"))
            rows.append((number.label, show(value, number.form), sinusoid, *bands))
    headings = columns("number", "=this table", "=sinusoid", *(f"={name}" for name in models))
    caption = baselines_caption(nulls["draws"] if models else 0)
    return Table(f"{caption}.", headings, tuple(rows))


def _source(document: Block) -> tuple[Fact, ...]:
    table, verdict = document["table"], document.get("verdict", {})
    left_out = "; ".join(f"row {row['row']}: {row['reason']}" for row in table["dropped_rows"])
    special = "; ".join(f"row {row['row']}: {row['token']}" for row in table["prefix_rows"])
    facts = {
        "family": table["family"],
        "rows left out": left_out,
        "rows kept apart": special,
        "answers": verdict.get("based_on"),
    }
    return (
        *origin(table["source"]),
        *tensor(table["source"]),
        *(Fact(label, text) for label, text in facts.items() if text),
    )
