"""The same contexts at later positions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.experiments import PhaseShift
from posprobe.measurements.base import Drawing, Finding
from posprobe.measurements.model.base import ModelMeasurement, only_text
from posprobe.measurements.model.sentences import random_contexts, rounding
from posprobe.page import Table, columns
from posprobe.text import Block, cell, show


def _alt(block: Block) -> str:
    loss = block["loss"]
    also = f", and loss from {show(loss[0])} to {show(loss[-1])} nats" if loss else ""
    most, last = show(max(block["change"])), block["shifts"][-1]
    return f"Relative change by shift, up to {most} at {last} positions{also}."


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
    caption = f"By shift, over {block['contexts']} contexts."
    return (Table(caption, columns(*headings), tuple(rows)),)


def _findings(document: Block) -> Iterator[Finding]:
    block = document["shift"]
    change, last = block["change"], block["shifts"][-1]
    still = max(change) < rounding(document)
    only = "that is rounding: where a text begins makes no difference" if still else ""
    yield Finding(
        f"Counting positions from {last} changes the last hidden states by {show(change[-1])} "
        f"times their norm{f'; {only}' if only else ''}.",
        ("shift.change", "shift.shifts"),
    )
    if block["loss"] is not None:
        loss, note = block["loss"], random_contexts(document)
        yield Finding(
            f"The loss of the {block['task']} is {show(loss[0])} nats at shift 0 and "
            f"{show(loss[-1])} at shift {last} (perplexity {math.exp(loss[0]):.3g} and "
            f"{math.exp(loss[-1]):.3g})" + (f"; {note}, whose loss says little." if note else "."),
            ("shift.loss",),
        )


SHIFT = ModelMeasurement[PhaseShift](
    name="shift",
    title="Shifted positions",
    shows="The same contexts with all positions counted from a later one.",
    reading="A model that knew distances alone would not change. The relative change is that of "
    "the last hidden states; the perplexity is the exponential of the loss.",
    limits="Late positions have met fewer and longer contexts in training, so a rise can be rarity "
    "as well as position.",
    source="Sinha et al. 2022 (The curious case of absolute position embeddings).",
    compute=lambda given: forward.phase_shift(
        given.model, given.batches("shifted positions", given.few, room=True),
        mask_token=given.mask_token, seed=given.seed, name=given.reference,
    ),
    record=PhaseShift,
    drawings=(Drawing("shift", _alt),),
    needs=only_text,
    tables=_by_shift,
    findings=_findings,
)  # fmt: skip
