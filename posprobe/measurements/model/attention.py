"""Attention by offset, measured over contexts."""

from __future__ import annotations

from collections.abc import Sequence

from posprobe import forward
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelMeasurement
from posprobe.measurements.model.sentences import by_layer, preferred_table
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
