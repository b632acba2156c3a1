"""Attention of the first layer on one token, repeated."""

from __future__ import annotations

from posprobe import forward
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelMeasurement, only_text
from posprobe.number_format import Block, cell
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, TABLES


def _heads(document: Block) -> tuple[Table, ...]:
    block = document["words"]
    layer = block["layers"][0]
    rows = tuple(
        (str(head), name, *(cell(layer[key][head]) for key in ("first", "locality", "symmetry")))
        for head, name in enumerate(layer["peak_name"])
    )
    headings = columns("head", "prefers", "=to the first", "=locality", "=symmetry")
    return (Table(TABLES["words"](block), headings, rows),)


WORDS = ModelMeasurement[AttentionByOffset](
    name="words",
    compute=lambda given: forward.attend(
        given.model, given.batches("one word repeated", repeated=True), layers=[0],
        name=given.reference,
    ),
    record=AttentionByOffset,
    drawings=(Drawing("words", ALTS["words"]),),
    needs=only_text,
    tables=_heads,
)  # fmt: skip
