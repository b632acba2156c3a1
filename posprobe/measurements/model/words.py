"""Attention of the first layer on one token, repeated."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.attention import HEAD_MEANS
from posprobe.measurements.model.base import (
    LabelledRow,
    ModelMeasurement,
    by_layer,
    mean_over_heads,
    only_text,
)
from posprobe.text import Block


def _word_rows(document: Block) -> Iterator[LabelledRow]:
    for key in ("first", "locality", "symmetry"):
        label = f"{HEAD_MEANS[key]}, one token repeated"
        yield by_layer(document["words"], label, key, mean_over_heads)


WORDS = ModelMeasurement[AttentionByOffset](
    name="words",
    title="One word repeated",
    compute=lambda given: forward.attend(
        given.model, given.batches("one word repeated", repeated=True), layers=[0],
        name=given.reference,
    ),
    record=AttentionByOffset,
    drawings=(Drawing("words"),),
    needs=only_text,
    rows=_word_rows,
)  # fmt: skip
