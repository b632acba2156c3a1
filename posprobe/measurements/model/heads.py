"""What each head's weights make of two positions."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.forward.streaming import has_table
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.attention import preferred_offsets
from posprobe.measurements.model.base import LabelledRow, ModelMeasurement, by_layer
from posprobe.report.narrator.rotary import NEEDS_ADDED
from posprobe.text import Block, between

#: Numbers of a head of which the range is listed, and what it is called.
HEAD_RANGES = {
    "attention": "attention at the offset that a head prefers",
    "uniform": "the same with equal logits",
    "offset_share": "logits explained by offset",
    "key_share": "logits the same for every query",
}


def _head_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["heads"]
    yield preferred_offsets(block, "by their weights", block["layers"][0])
    for key, label in HEAD_RANGES.items():
        yield by_layer(block, label, key, between)


HEADS = ModelMeasurement[HeadsByLayer](
    name="heads",
    title="Heads by their weights",
    compute=lambda given: forward.measure_heads(
        given.reference, rows=given.positions, revision=given.revision, offline=given.offline
    ),
    record=HeadsByLayer,
    drawings=(
        Drawing("heads"),
        Drawing("peaks"),
    ),
    rows=_head_rows,
    # A model that rotates queries and keys adds no rows whose logits weights alone would give.
    needs=lambda given: (
        NEEDS_ADDED if forward.is_rotary(given.model) and not has_table(given.model) else ""
    ),
    from_weights=True,
)
