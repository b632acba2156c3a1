"""What each head's weights make of two positions."""

from __future__ import annotations

from posprobe import forward
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.forward.streaming import has_table
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.attention import preferred_table
from posprobe.measurements.model.base import ModelMeasurement
from posprobe.number_format import Block, cell, percent_with_error
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, LACKS, note_sentences, sharpest
from posprobe.report.narrator.rotary import NEEDS_ADDED

#: Heads that the table lists; the JSON has all.
LISTED = 32


def _sharpest(block: Block) -> Table:
    heads = [
        (layer["attention"][head], layer, head)
        for layer in block["layers"]
        for head in range(layer["heads"])
    ]
    heads.sort(key=lambda entry: -(entry[0] or 0.0))
    rows = tuple(
        (
            f"{layer['layer']}.{head}", layer["peak_name"][head],
            percent_with_error(attention, None), percent_with_error(layer["uniform"][head], None),
            cell(layer["offset_share"][head]), cell(layer["key_share"][head]),
        )
        for attention, layer, head in heads[:LISTED]
    )  # fmt: skip
    total = len(heads)
    return Table(
        sharpest(total, LISTED),
        columns(
            "layer.head", "prefers", "=attention there", "=equal logits", "=offset share",
            "=key share",
        ),
        rows,
    )  # fmt: skip


HEADS = ModelMeasurement[HeadsByLayer](
    name="heads",
    compute=lambda given: forward.measure_heads(
        given.reference, rows=given.positions, revision=given.revision, offline=given.offline
    ),
    record=HeadsByLayer,
    drawings=(
        Drawing("heads", ALTS["heads"]),
        Drawing("peaks", ALTS["peaks"], lacks=LACKS["peaks"]),
    ),
    facts=note_sentences,
    tables=lambda document: (
        preferred_table(document["heads"], "by their weights", document["heads"]["layers"][0]),
        _sharpest(document["heads"]),
    ),
    # A model that rotates queries and keys adds no rows whose logits weights alone would give.
    needs=lambda given: (
        NEEDS_ADDED if forward.is_rotary(given.model) and not has_table(given.model) else ""
    ),
    from_weights=True,
)
