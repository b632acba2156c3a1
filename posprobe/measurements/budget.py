"""What a table is made of, and the clock that its rotations read."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.budget import Budget
from posprobe.analyses.clock import Clock, clock_of
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.report.narrator.captions import CAPTIONS

BUDGET = Measurement[TableInputs, Budget](
    name="budget",
    title="Variance budget",
    compute=lambda given: analyses.budget(
        given.positions, breaks=given.seams, models=given.models, patches=given.patches
    ),
    record=Budget,
    drawings=(
        Drawing(
            "budget",
            draws="what the variance is made of, a bar per table",
            caption=CAPTIONS["budget"],
            lacks=undefined,
            several=True,
        ),
    ),
)

CLOCK = Measurement[TableInputs, Clock](
    name="clock",
    title="Rotations and their clock",
    compute=lambda given: clock_of(
        given.seen.turning,
        given.seen.points,
        given.table.layout,
        given.table.start + given.stretch.first,
    ),
    record=Clock,
    drawings=(
        Drawing(
            "clock",
            draws="circles of the rotations, and the speed of their clock",
            caption=CAPTIONS["clock"],
            lacks=undefined,
        ),
    ),
    needs=lambda given: (
        "a sequence: patches lie on a grid" if isinstance(given.table.layout, Grid) else ""
    ),
)
