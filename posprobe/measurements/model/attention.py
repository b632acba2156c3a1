"""Attention by offset, measured over contexts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from posprobe import forward
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import (
    LabelledRow,
    ModelMeasurement,
    by_layer,
    mean_over_heads,
)
from posprobe.text import Block

#: Numbers of a head of which the mean is listed, and what it is called.
HEAD_MEANS = {
    "first": "attention to the first position, mean over heads",
    "special": "attention to what is no position, mean over heads",
    "locality": "locality of attention, mean over heads",
    "symmetry": "symmetry of attention, mean over heads",
}


def even_choice(block: Block) -> float:
    """Return one over the number of offsets that at least half of the positions have."""
    layout = block["layout"]
    if layout["type"] == "sequence":
        half = int(layout["length"]) // 2
        # Of measured attention the first position is left out as a key.
        before = half - 1 if "uniform_first" in block else half
        return 1 / max(1, before + 1 if block["causal"] else before + 1 + half)
    height, width = int(layout["height"]), int(layout["width"])
    count = sum(
        2 * (height - abs(down)) * (width - abs(right)) >= height * width
        for down in range(1 - height, height)
        for right in range(1 - width, width)
    )
    return 1 / count


def preferred_offsets(block: Block, how: str, positions: Block) -> LabelledRow:
    """Return the offset that most heads of a layer prefer, and how many do.

    Parameters
    ----------
    block
        With ``layers``.
    how
        In what they prefer it.
    positions
        With the ``layout`` and whether heads are ``causal``: what an even choice is among.
    """
    even = len(block["layers"][0]["peak_name"]) * even_choice(positions)
    label = f"offset that most heads prefer, {how} (an even choice: {even:.2g})"
    return by_layer(block, label, "peak_name", _most_common)


def _most_common(names: Sequence[str]) -> str:
    name, count = Counter(names).most_common(1)[0]
    return f"{name} ({count} of {len(names)})"


def _attention_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["attention"]
    yield preferred_offsets(block, "measured", block)
    for key, label in HEAD_MEANS.items():
        # Where there are no such tokens, and no line, there is no such number.
        if any(value for layer in block["layers"] for value in layer[key]):
            yield by_layer(block, label, key, mean_over_heads)
    yield by_layer(block, "attention explained by offset", "translation_invariance")


ATTENTION = ModelMeasurement[AttentionByOffset](
    name="attention",
    title="Attention as measured",
    compute=lambda given: forward.attend(
        given.model, given.batches("attention"), name=given.reference
    ),
    record=AttentionByOffset,
    drawings=(
        Drawing("attention"),
        Drawing("first"),
    ),
    rows=_attention_rows,
)  # fmt: skip
