"""What each head of a rotary model makes of distance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from posprobe import forward
from posprobe.analyses.rotary_use import Origin, RotaryUse
from posprobe.arrays import Array
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import LabelledRow, ModelInputs, ModelMeasurement
from posprobe.report.narrator import rotary
from posprobe.text import Block, cell

#: Tokens of a context that the model samples itself: the distance share grows with the length.
LENGTH = 256
#: Numbers of heads whose median is listed, and what it is called.
MEDIANS = {
    "share": "distance share, median over heads",
    "spread": "spread (nats), median over heads",
    "moved": "moved attention, median over heads",
}


def _needs(given: ModelInputs) -> str:
    text = not given.takes_images and forward.is_rotary(given.model)
    return "" if text else rotary.NEEDS_ROTARY


def _contexts(given: ModelInputs) -> tuple[Iterator[Array], Origin]:
    """Return what the model is run on: drawn tokens only where it cannot write its own."""
    asked = given.contexts
    if not asked.is_random:
        return given.batches("rotary use"), "text" if asked.text else "tokens"
    if asked.tokens == "random" or not forward.generates(given.model):
        return given.batches("rotary use"), "random"
    stated = getattr(given.model.config, "max_position_embeddings", LENGTH)
    length = asked.length or min(LENGTH, stated)
    sampled = forward.sampled_tokens(
        given.model, length, given.few, seed=given.seed, batch_size=asked.batch_size
    )
    return sampled, "sampled"


def _compute(given: ModelInputs) -> RotaryUse:
    contexts, source = _contexts(given)
    return forward.rotary_use(given.model, contexts, source=source, name=given.reference)


def _rows(document: Block) -> Iterator[LabelledRow]:
    block = document["rotary_use"]
    heads: dict[int, list[Block]] = {layer["layer"]: [] for layer in block["layers"]}
    for head in block["heads"]:
        heads[head["layer"]].append(head)
    for key, label in MEDIANS.items():
        yield (
            label,
            {
                layer: cell(_median([head[key] for head in own if head[key] is not None]), ".2g")
                for layer, own in heads.items()
            },
        )
    yield "preferred distances (heads)", {k: rotary.peaks(own) for k, own in heads.items()}
    yield "heads: yes / no / cannot tell", {k: rotary.counts(own) for k, own in heads.items()}
    yield "position", {each["layer"]: rotary.REASONS[each["reason"]] for each in block["layers"]}
    yield (
        "shift check, residual",
        {each["layer"]: cell(each["shift_check"], ".1e") for each in block["layers"]},
    )


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


ROTARY_USE = ModelMeasurement[RotaryUse](
    name="rotary_use",
    title="Rotary use",
    compute=_compute,
    record=RotaryUse,
    drawings=(
        Drawing("rotary_curves"),
        Drawing("rotary_usage"),
    ),
    needs=_needs,
    head=forward.is_rotary,
    rows=_rows,
)
