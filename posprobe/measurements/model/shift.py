"""The same contexts at later positions."""

from __future__ import annotations

import math

from posprobe import forward
from posprobe.analyses.experiments import PhaseShift
from posprobe.forward.states import body_of
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelMeasurement, only_text
from posprobe.number_format import Block, cell, show
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, TABLES


def _by_shift(document: Block) -> tuple[Table, ...]:
    block = document["shift"]
    headings = ["first position", "=relative change"]
    rows: list[tuple[str, ...]] = [
        (str(at), cell(change)) for at, change in zip(block["shifts"], block["change"], strict=True)
    ]
    if block["loss"] is not None:
        headings += ["=loss (nats)", "=perplexity"]
        rows = [
            (*row, cell(loss), show(math.exp(min(loss, 700.0))))
            for row, loss in zip(rows, block["loss"], strict=True)
        ]
    return (Table(TABLES["shift"](block), columns(*headings), tuple(rows)),)


SHIFT = ModelMeasurement[PhaseShift](
    name="shift",
    compute=lambda given: forward.phase_shift(
        # A loss of random tokens says nothing.
        body_of(given.model) if given.is_random else given.model,
        given.batches("shifted positions", given.few, room=True),
        mask_token=given.mask_token, seed=given.seed, name=given.reference,
    ),
    record=PhaseShift,
    drawings=(Drawing("shift", ALTS["shift"]),),
    needs=only_text,
    tables=_by_shift,
)  # fmt: skip
