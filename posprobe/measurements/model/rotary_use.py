"""What each head of a rotary model makes of distance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from posprobe import forward
from posprobe.analyses.rotary_use import Origin, RotaryUse
from posprobe.arrays import Array
from posprobe.figures.common import spread
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelInputs, ModelMeasurement
from posprobe.number_format import Block, cell
from posprobe.page import Table, columns
from posprobe.report.narrator import rotary

#: Tokens of a context that the model samples itself: the distance share grows with the length.
LENGTH = 256
#: Layers that the terminal lists.
LISTED = 16


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


def _by_layer(document: Block) -> tuple[Table, ...]:
    block = document["rotary_use"]
    rows = []
    for layer in block["layers"]:
        heads = [head for head in block["heads"] if head["layer"] == layer["layer"]]
        medians = [
            _median([head[key] for head in heads if head[key] is not None])
            for key in ("share", "spread", "moved")
        ]
        rows.append((
            str(layer["layer"]), rotary.counts(heads), *(cell(value, ".2g") for value in medians),
            rotary.peaks(heads), rotary.REASONS[layer["reason"]],
        ))  # fmt: skip
    return (
        Table(
            rotary.table_caption(block), columns(*rotary.HEADINGS), tuple(rows), brief=True,
            brief_rows=tuple(spread(range(len(rows)), LISTED)),
        ),
    )  # fmt: skip


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


ROTARY_USE = ModelMeasurement[RotaryUse](
    name="rotary_use",
    compute=_compute,
    record=RotaryUse,
    drawings=(
        Drawing("rotary_curves", rotary.curves_alt, lacks=rotary.no_heads),
        Drawing("rotary_usage", rotary.usage_alt, lacks=rotary.no_heads),
    ),
    needs=_needs,
    head=forward.is_rotary,
    facts=rotary.checked,
    tables=_by_layer,
)  # fmt: skip
