"""The same contexts at later positions."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.experiments import PhaseShift
from posprobe.forward.states import body_of
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import WHOLE, LabelledRow, ModelMeasurement, only_text
from posprobe.text import Block, cell


def _shift_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["shift"]
    for place, at in enumerate(block["shifts"]):
        yield (
            f"change of the last states, first position {at}",
            {WHOLE: cell(block["change"][place])},
        )
        if block["loss"] is not None:
            yield f"loss (nats), first position {at}", {WHOLE: cell(block["loss"][place])}


SHIFT = ModelMeasurement[PhaseShift](
    name="shift",
    title="Shifted positions",
    compute=lambda given: forward.phase_shift(
        # A loss of random tokens says nothing.
        body_of(given.model) if given.is_random else given.model,
        given.batches("shifted positions", given.few, room=True),
        mask_token=given.mask_token, seed=given.seed, name=given.reference,
    ),
    record=PhaseShift,
    drawings=(Drawing("shift"),),
    needs=only_text,
    rows=_shift_rows,
)  # fmt: skip
