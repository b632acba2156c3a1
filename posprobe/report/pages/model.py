"""The page of a run of a model."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe.measurements.model import MODEL_MEASUREMENTS
from posprobe.measurements.model.contexts import (
    MODEL_COLUMN,
    RANDOM_WALK_COLUMN,
    SINUSOID_COLUMN,
    LabelledRow,
)
from posprobe.page import Cell, Evidence, Fact, Page, Picture, Row, Table, make_columns
from posprobe.report.pages.parts import document_headline, version_facts
from posprobe.report.run_overview import RUN_DRAWING_NAMES
from posprobe.text import Block, format_value, lookup, shorten_reference
from posprobe.words import claim_sentence, define_number, describe_pictures, models


def forward_page(document: Block) -> Page:
    """Build the page of a run of a model: its answers and measurements."""
    measured_names = [
        name for name in MODEL_MEASUREMENTS if document.get(name) is not None
    ]
    drawings = {
        name: describe_pictures(
            "model",
            (drawing.name for drawing in MODEL_MEASUREMENTS[name].drawings),
            f"{MODEL_MEASUREMENTS[name].title}.",
        )
        for name in measured_names
    }
    return Page(
        title=shorten_reference(document["name"]),
        subject="what position does inside it",
        lead=models.describe_run(document),
        headline=document_headline(document),
        notes=tuple(models.run_notes(document)),
        pictures=tuple(map(Picture, RUN_DRAWING_NAMES)),
        evidence=tuple(_evidence(document, drawings)),
        key=models.RUN_KEY if document.get("verdict") else "",
        numbers=_number_table(document, measured_names),
        provenance=(
            Fact("reference", document["name"]),
            *version_facts(document["environment"]),
        ),
    )


def _evidence(
    document: Block, drawings: dict[str, tuple[Picture, ...]]
) -> Iterator[Evidence]:
    """Yield the answers with figures of their measurements, then measurements without answers."""
    other_pictures = dict(drawings)
    for answer in document.get("verdict", {}).get("answers", ()):
        # A figure stands beside the first answer that it shows.
        measurement = next((key.partition(".")[0] for key in answer["keys"]), "")
        yield Evidence(
            (models.run_line(answer),),
            sentences=(claim_sentence(answer),),
            pictures=other_pictures.pop(measurement, ()),
        )
    for name, picture_group in other_pictures.items():
        if picture_group:
            yield Evidence(title=MODEL_MEASUREMENTS[name].title, pictures=picture_group)


def _number_table(document: Block, measured_names: list[str]) -> Table:
    """Tabulate all numbers: of the whole model, of each layer, and of the baselines."""
    rows: list[LabelledRow] = [
        row for name in measured_names for row in _measurement_rows(document, name)
    ]
    used_columns = list(dict.fromkeys(column for _, texts in rows for column in texts))
    layers = sorted(column for column in used_columns if isinstance(column, int))
    baseline_columns = [
        column
        for column in (SINUSOID_COLUMN, RANDOM_WALK_COLUMN)
        if column in used_columns
    ]
    names = [
        column
        for column in used_columns
        if isinstance(column, str) and column not in baseline_columns
    ]
    order: list[int | str] = [*names, *layers, *baseline_columns]
    headings = [
        f"layer {column}" if isinstance(column, int) else column for column in order
    ]
    definitions = {
        number.label: define_number(number.label, number.meaning)
        for name in measured_names
        for number in MODEL_MEASUREMENTS[name].numbers.values()
    }
    table_rows: tuple[Row, ...] = tuple(
        (
            Cell(label, definition=definitions.get(label, "")),
            *(texts.get(column, "–") for column in order),
        )
        for label, texts in rows
    )
    return Table(
        "All numbers",
        make_columns("number", *(f"={head}" for head in headings)),
        table_rows,
    )


def _measurement_rows(document: Block, name: str) -> Iterator[LabelledRow]:
    measurement = MODEL_MEASUREMENTS[name]
    for key, number in measurement.numbers.items():
        yield (
            number.label,
            {MODEL_COLUMN: format_value(lookup(document[name], key), number.form)},
        )
    yield from measurement.rows(document)
