"""The page of a table."""

from __future__ import annotations

from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, make_columns
from posprobe.report import overview
from posprobe.report.pages.parts import (
    number_cell,
    origin_facts,
    tensor_facts,
    version_facts,
)
from posprobe.text import Block, format_cell, format_range, format_value, lookup
from posprobe.words import REPLACED_PATCHES_NOTE, claim_sentence
from posprobe.words.captions import baselines_caption
from posprobe.words.lines import answers_key, describe_table, table_lines

#: Drawn where rotations share a clock, so that similarity depends on absolute position.
CLOCK_PICTURE = Picture(overview.CLOCK_DRAWING_NAME)


def table_page(document: Block) -> Page:
    """Build the page of a table."""
    table, verdict = document["table"], document.get("verdict")
    notes = [f"{note}." for note in table["notes"]]
    if verdict and verdict.get("replaced"):
        notes.append(REPLACED_PATCHES_NOTE)
    return Page(
        title=table["name"],
        subject="what it has learned about position",
        lead=describe_table(table),
        headline=verdict["summary"] if verdict else "",
        notes=tuple(notes),
        pictures=tuple(map(Picture, overview.DRAWING_NAMES)),
        evidence=_evidence(verdict, grid=table["layout"]["type"] == "grid")
        if verdict
        else (),
        key=answers_key(document) if verdict else "",
        numbers=_number_table(document),
        provenance=(*_source_facts(document), *version_facts(document["environment"])),
    )


def _evidence(verdict: Block, *, grid: bool) -> tuple[Evidence, ...]:
    claims = {answer["question"]: claim_sentence(answer) for answer in verdict["answers"]}
    return tuple(
        Evidence(
            (line,),
            sentences=(claims[line.name],),
            pictures=(CLOCK_PICTURE,) if line.name == "absolute_position" else (),
        )
        for line in table_lines(verdict, grid=grid)
    )


def _number_table(document: Block) -> Table:
    """Tabulate every number beside those of the sinusoid and, if drawn, of null models."""
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
            bands = (format_range(band.values()) if band else "–" for band in band_values)
            sinusoid = format_cell(baselines.get("sinusoid"))
            rows.append(
                (
                    number_cell(name, number, [document]),
                    format_value(value, number.form),
                    sinusoid,
                    *bands,
                )
            )
    headings = make_columns(
        "number", "=this table", "=sinusoid", *(f"={name}" for name in models)
    )
    caption = baselines_caption(nulls["draws"] if models else 0)
    return Table(f"{caption}.", headings, tuple(rows))


def _source_facts(document: Block) -> tuple[Fact, ...]:
    table, verdict = document["table"], document.get("verdict", {})
    dropped_rows = "; ".join(
        f"row {row['row']}: {row['reason']}" for row in table["dropped_rows"]
    )
    prefix_rows = "; ".join(
        f"row {row['row']}: {row['token']}" for row in table["prefix_rows"]
    )
    facts = {
        "family": table["family"],
        "rows left out": dropped_rows,
        "rows kept apart": prefix_rows,
        "answers": verdict.get("based_on"),
    }
    return (
        *origin_facts(table["source"]),
        *tensor_facts(table["source"]),
        *(Fact(label, text) for label, text in facts.items() if text),
    )
