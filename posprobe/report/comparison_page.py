"""The page of tables side by side, from its document alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from posprobe.measurements import compared_numbers
from posprobe.page import Evidence, Fact, Line, Page, Row, Table, columns
from posprobe.report.narrator import ASKS, claim, compare as narrator, pictures
from posprobe.report.narrator.lines import lines
from posprobe.report.table_page import versions
from posprobe.text import Block, cell, show

#: Numbers that a terminal prints unasked.
UNASKED = (
    "similarity.centered.neighbour_mean", "pca.participation_ratio", "pca.top3",
    "similarity.centered.translation_invariance",
)  # fmt: skip


def comparison_page(document: Block) -> Page:
    """Lay out the page of a comparison of tables."""
    tables = document["tables"]
    notes = [f"{table['label']}: {note}." for table in tables for note in table["table"]["notes"]]
    return Page(
        title=" · ".join(table["label"] for table in tables),
        subject="compared by position",
        lead=narrator.lead(tables),
        headline=narrator.headline(document["pairs"]),
        notes=(*narrator.rows_compared(document), *notes),
        pictures=pictures("tables", ("similarity", "variance")),
        subjects=tuple(table["label"] for table in tables),
        evidence=(*_pairs(document), *_answers(document), *_published(tables)),
        key=narrator.KEY,
        numbers=_numbers(tables),
        provenance=(
            *(fact for table in tables for fact in _source(table)),
            *versions(document["environment"]),
        ),
    )


def _pairs(document: Block) -> Iterator[Evidence]:
    for place, pair in enumerate(document["pairs"]):
        line = narrator.pair_line(pair, f"pair-{place}")
        drawn = () if place else pictures("tables", ("curves", "distances"))
        yield Evidence((line,), sentences=tuple(narrator.pair_sentences(pair)), pictures=drawn)


def _answers(document: Block) -> Iterator[Evidence]:
    """Yield every question that several tables answer, with the answer of each."""
    tables = document["tables"]
    blocks = [table.get("verdict") for table in tables]
    if not all(blocks):
        return
    grids = [table["table"]["layout"]["type"] == "grid" for table in tables]
    own = [
        {line.name: line for line in lines(block, grid=grid)}
        for block, grid in zip(blocks, grids, strict=True)
    ]
    said = [{each["question"]: claim(each) for each in block["answers"]} for block in blocks]
    for name, question in ASKS.items():
        if not any(name in found for found in own):
            continue
        none = Line(name, "", question)
        yield Evidence(
            tuple(replace(found.get(name, none), question=question) for found in own),
            sentences=tuple(
                f"{table['label']}: {texts[name]}"
                for table, found, texts in zip(tables, own, said, strict=True)
                if name in found
            ),
        )


def _numbers(tables: list[Block]) -> Table:
    rows: list[Row] = []
    unasked = []
    for key, number in compared_numbers().items():
        found = [table["nulls"]["numbers"].get(key) for table in tables]
        if any(entry and entry["value"] is not None for entry in found):
            unasked += [len(rows)] if key in UNASKED else []
            rows.append((number.label, *map(_beside_walk, found)))
    beside = ""
    if any(table["nulls"]["draws"] for table in tables):
        beside = " In brackets: median of random walks with the same steps, for sequences."
    headings = columns("number", *(f"={table['label']}" for table in tables))
    return Table(f"Numbers of each table.{beside}", headings, tuple(rows), unasked=tuple(unasked))


def _beside_walk(entry: Block | None) -> str:
    if not entry or entry["value"] is None:
        return "–"
    walk = entry.get("walk")
    return show(entry["value"]) + (f" ({show(walk['p50'])})" if walk else "")


def _published(tables: list[Block]) -> Iterator[Evidence]:
    said = tuple(
        f"{table['label']}: {value['quantity']} {show(value['value'])}, here "
        f"{cell(value['ours'])}. {narrator.citation(value)}"
        for table in tables
        for value in table["published"]
    )
    if said:
        yield Evidence(title="Published values", sentences=said)


def _source(table: Block) -> Iterator[Fact]:
    label, source = table["label"], table["table"]["source"]
    yield Fact(label, source["reference"])
    for key in ("tensor", "sha256"):
        if source[key]:
            yield Fact(f"{label}: {key}", source[key])
