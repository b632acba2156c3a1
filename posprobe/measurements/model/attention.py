"""Attention by offset, measured over contexts."""

from __future__ import annotations

from collections.abc import Sequence

from posprobe import forward
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelMeasurement
from posprobe.measurements.model.sentences import FOLLOWS, by_layer, preferred_table
from posprobe.page import Table, columns
from posprobe.text import Block, cell, fine_percent

#: Numbers of a head that the table averages, and what their columns are called.
COLUMNS = {
    "first": "to the first",
    "special": "to no position",
    "locality": "locality",
    "symmetry": "symmetry",
}


def _means(block: Block) -> Table:
    # Where there are no such tokens, and no line, there is no such column.
    shown = {
        key: label
        for key, label in COLUMNS.items()
        if any(value for layer in block["layers"] for value in layer[key])
    }
    rows = tuple(
        (
            str(layer["layer"]),
            *(_mean(layer[key]) for key in shown), cell(layer["translation_invariance"]),
        )
        for layer in block["layers"]
    )  # fmt: skip
    uniform = block["uniform_first"]
    even = "" if uniform is None else f" Uniform attention pays the first {fine_percent(uniform)}."
    headings = ("layer", *(f"={label}" for label in shown.values()))
    return Table(f"Means over heads.{even}", columns(*headings, "=invariance"), rows)


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return cell(sum(known) / len(known) if known else None)


def _none_receives(result: AttentionByOffset) -> str:
    from posprobe.figures.model_attention import receivers

    return "" if receivers(result) else "there is no first position and no special token"


ATTENTION = ModelMeasurement[AttentionByOffset](
    name="attention",
    title="Attention as measured",
    shows="The mean attention that each head pays at each offset, over the contexts.",
    reading="One row, or one tile, per head, on one logarithmic range that begins at a tenth of "
    "uniform attention; grey is never met. Of text the first token is left out as a key, since "
    "many heads pay it much wherever they are: see the second figure. Locality is 1 for attention "
    "to oneself, and weighs a key by 2 to the minus distance. Symmetry is 1 where either side gets "
    "the same. Invariance is the share of variance that the offset explains. A head prefers no "
    "offset where none gets more than uniform attention would give it. Heads count from 0.",
    limits=FOLLOWS + "A head that follows content can look local where content repeats; a mean "
    "hides heads that attend to different offsets in turn. Attention is not the flow of "
    "information: much of it goes to tokens where it does nothing.",
    source="Offset means as in Wennberg & Henter 2021; locality and symmetry: Chen et al. 2023, "
    "the latter without their scaling, by which a constant row is symmetric.",
    compute=lambda given: forward.attend(
        given.model, given.batches("attention"), name=given.reference
    ),
    record=AttentionByOffset,
    drawings=(
        Drawing("attention", lambda _: "Mean attention of every head by offset."),
        Drawing(
            "first",
            by_layer(
                "What each head pays the first position ({}) and tokens that are no positions "
                "({}), by layer.",
                "first", "special",
            ),
            lacks=_none_receives,
        ),
    ),
    tables=lambda document: (
        preferred_table(
            document["attention"], "in measured attention", document["attention"]
        ),
        _means(document["attention"]),
    ),
)  # fmt: skip
