"""The page of a run of a model."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe.measurements.model import MODEL
from posprobe.measurements.model.contexts import SINUSOID, WALKS, WHOLE, LabelledRow
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, columns
from posprobe.report.pages.parts import headline, versions
from posprobe.text import Block, lookup, show
from posprobe.words import claim, models, pictures

#: Figures that stand on the first screen, by what they are of: the first two that there are.
LEADING = {
    "rotary_curves": "rotary_use", "rotary_usage": "rotary_use", "layers": "states",
    "substitution": "substitution", "heads": "heads", "cosines": "states",
}  # fmt: skip


SHOWN = 2


def forward_page(document: Block) -> Page:
    """Lay out the page of a run of a model: the answers, and what was measured."""
    made = [name for name in MODEL if document.get(name) is not None]
    leading = [name for name, of in LEADING.items() if of in made][:SHOWN]
    drawings = {
        name: pictures(
            "model", (each.name for each in MODEL[name].drawings), f"{MODEL[name].title}."
        )
        for name in made
    }
    every = [picture for found in drawings.values() for picture in found]
    return Page(
        title=models.title(document["name"]),
        subject="what position does inside it",
        lead=models.run_of(document),
        headline=headline(document),
        notes=tuple(models.notes(document)),
        pictures=tuple(picture for picture in every if picture.name in leading),
        evidence=tuple(_evidence(document, drawings, leading)),
        key=models.KEY if document.get("verdict") else "",
        numbers=_numbers(document, made),
        provenance=(Fact("reference", document["name"]), *versions(document["environment"])),
    )


def _evidence(
    document: Block, drawings: dict[str, tuple[Picture, ...]], leading: list[str]
) -> Iterator[Evidence]:
    """Yield the answers with the figures of what they are of, and what answers nothing."""
    left = {
        name: tuple(each for each in found if each.name not in leading)
        for name, found in drawings.items()
    }
    for answer in document.get("verdict", {}).get("answers", ()):
        # A figure stands beside the first answer that it shows.
        of = next((key.partition(".")[0] for key in answer["keys"]), "")
        yield Evidence(
            (models.line(answer),), sentences=(claim(answer),), pictures=left.pop(of, ())
        )
    for name, found in left.items():
        if found:
            yield Evidence(title=MODEL[name].title, pictures=found)


def _numbers(document: Block, made: list[str]) -> Table:
    """Tabulate all numbers: what is of the whole model, of its layers, and stands beside them."""
    rows: list[LabelledRow] = [row for name in made for row in _rows(document, name)]
    found = list(dict.fromkeys(column for _, texts in rows for column in texts))
    layers = sorted(column for column in found if isinstance(column, int))
    beside = [column for column in (SINUSOID, WALKS) if column in found]
    names = [column for column in found if isinstance(column, str) and column not in beside]
    order: list[int | str] = [*names, *layers, *beside]
    heads = [f"layer {column}" if isinstance(column, int) else column for column in order]
    filled: tuple[Row, ...] = tuple(
        (label, *(texts.get(column, "–") for column in order)) for label, texts in rows
    )
    return Table("All numbers", columns("number", *(f"={head}" for head in heads)), filled)


def _rows(document: Block, name: str) -> Iterator[LabelledRow]:
    measurement = MODEL[name]
    for key, number in measurement.numbers.items():
        yield number.label, {WHOLE: show(lookup(document[name], key), number.form)}
    yield from measurement.rows(document)
