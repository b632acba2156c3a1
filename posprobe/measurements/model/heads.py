"""What each head's weights make of two positions."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.head_logits import NO_PEAK, HeadsByLayer
from posprobe.measurements.base import Drawing, Finding
from posprobe.measurements.model.base import ModelMeasurement
from posprobe.measurements.model.sentences import (
    frequent_offsets,
    note_sentences,
    percent,
    percent_with_error,
    preferred,
    preferred_table,
)
from posprobe.page import Table, columns
from posprobe.text import Block, cell

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
    which = f"The {LISTED} sharpest of {total} heads" if total > LISTED else f"All {total} heads"
    return Table(
        f"{which}, by attention at the offset that they prefer.",
        columns(
            "layer.head", "prefers", "=attention there", "=equal logits", "=offset share",
            "=key share",
        ),
        rows,
    )  # fmt: skip


def _findings(document: Block) -> Iterator[Finding]:
    block = document["heads"]
    layers = block["layers"]
    direct = " (above layer 0 along the direct path alone)" if len(layers) > 1 else ""
    some = any(name != NO_PEAK for layer in layers for name in layer["peak_name"])
    smooth = (
        " Positions that change smoothly make neighbouring offsets alike, so that a near one is no "
        "surprise by itself."
    )
    yield Finding(
        f"By weights alone{direct}, {preferred(block, layers[0])}.{smooth if some else ''}",
        tuple(f"heads.layers.{place}.peak" for place in range(len(layers))),
    )
    place, head = max(
        ((p, h) for p, layer in enumerate(layers) for h in range(layer["heads"])),
        key=lambda pair: layers[pair[0]]["attention"][pair[1]] or 0.0,
    )
    layer = layers[place]
    if layer["attention"][head] is None:
        return
    if layer["attention"][head] > 2 * layer["uniform"][head]:
        paid, even = percent(layer["attention"][head], 0), percent(layer["uniform"][head])
        yield Finding(
            f"The sharpest by its weights is head {head} of layer {layer['layer']}: with positions "
            f"as its only input it pays {paid} of its attention at its preferred offset, "
            f"{layer['peak_name'][head]} (equal logits: {even}).",
            (f"heads.layers.{place}.attention", f"heads.layers.{place}.uniform"),
        )


def _no_peaks(result: HeadsByLayer) -> str:
    some = any(layer.has_peak.any() for layer in result.layers.values())
    return "" if some else "no head prefers an offset"


HEADS = ModelMeasurement[HeadsByLayer](
    name="heads",
    title="Heads by their weights",
    shows="What each head's queries and keys make of two positions, before any content: the "
    "position-to-position part of its logits.",
    reading="One row, or one tile, per head: red is preferred. Offsets run from the query to the "
    "key, so that -1 is the previous token. Rows are centred and scaled one by one. The attention "
    "of a head is what the softmax of these logits alone would pay at the offset that it prefers, "
    "to be compared with what equal logits would pay there. Offset share says how much of the "
    "interaction depends on the offset alone, key share how much of the logits is the same for "
    "every query. A head whose logits are the same at every offset prefers none. Heads count from "
    "0.",
    limits="Attention to content. Above layer 0 positions reach a head through the layers below as "
    "well, which are left out here.",
    source="Wennberg & Henter 2021 (TISA); Ke et al. 2021 (TUPE), equation 6.",
    compute=lambda given: forward.measure_heads(
        given.reference, rows=given.positions, revision=given.revision, offline=given.offline
    ),
    record=HeadsByLayer,
    drawings=(
        Drawing("heads", lambda b: f"Logits of every head by offset. {frequent_offsets(b)}"),
        Drawing(
            "peaks",
            lambda b: f"How many heads prefer each offset. {frequent_offsets(b)}",
            lacks=_no_peaks,
        ),
    ),
    facts=note_sentences,
    tables=lambda document: (
        preferred_table(document["heads"], "by their weights"),
        _sharpest(document["heads"]),
    ),
    findings=_findings,
    from_weights=True,
)
