"""What a table is made of, and the clock that its rotations read."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.budget import Budget
from posprobe.analyses.clock import Clock, clock_of
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.number_format import Block
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import ALTS, CAPTIONS, named


def _parts(document: Block) -> tuple[Table, ...]:
    rows = tuple(
        (named(each["part"], each["period"]), f"{each['share']:.1%}")
        for each in document["budget"]["parts"] or ()
    )
    headings = columns("part", "=share of the sum of squares")
    return (Table("What the table is made of", headings, rows),) if rows else ()


BUDGET = Measurement[TableInputs, Budget](
    name="budget",
    compute=lambda given: analyses.budget(
        given.positions, breaks=given.seams, models=given.models, patches=given.patches
    ),
    record=Budget,
    drawings=(
        Drawing("budget", ALTS["budget"], CAPTIONS["budget"], lacks=undefined, several=True),
    ),
    tables=_parts,
)

CLOCK = Measurement[TableInputs, Clock](
    name="clock",
    compute=lambda given: clock_of(
        given.seen.turning,
        given.seen.points,
        given.table.layout,
        given.table.start + given.stretch.first,
    ),
    record=Clock,
    drawings=(Drawing("clock", ALTS["clock"], CAPTIONS["clock"], lacks=undefined),),
    needs=lambda given: "patches lie on a grid" if isinstance(given.table.layout, Grid) else "",
)
