"""Position norms against token norms."""

from __future__ import annotations

from dataclasses import replace

from posprobe import analyses
from posprobe.analyses import Scale
from posprobe.measurements.base import Drawing, Measurement, TableInputs


def _compute(given: TableInputs) -> Scale:
    assert given.tokens is not None  # noqa: S101 - `needs` says so
    found = analyses.scale(given.positions, given.tokens.values)
    return replace(found, sample=given.tokens.summary())


SCALE = Measurement[TableInputs, Scale](
    name="scale",
    title="Scale of positions and tokens",
    compute=_compute,
    record=Scale,
    drawings=(Drawing("scale"),),
    needs=lambda given: (
        ""
        if given.tokens is not None
        else "the embeddings that positions are added to: tokens=load_tokens(table)"
    ),
)
