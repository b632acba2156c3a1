"""Every question about a table, of its longest stretch and of other long parts."""

from __future__ import annotations

from posprobe.analyses.decide import decide
from posprobe.analyses.facts import Answer, Part, Verdicts
from posprobe.analyses.views import View
from posprobe.layouts import Grid
from posprobe.measurements import TableInputs
from posprobe.questions import GRID, SEQUENCE, corrections


def verdicts(inputs: TableInputs) -> Verdicts:
    """Ask every question about a table, given what was measured of it."""
    grid = isinstance(inputs.table.layout, Grid)
    stretch, start, seen = inputs.stretch, inputs.table.start, inputs.seen
    answers = _answers(seen)
    seams = inputs.seams
    within = seams.untrained_interval
    return Verdicts(
        answers, start + stretch.first, start + stretch.stop, stretch.whole, stretch.reasons,
        parts=tuple(
            Part(start + first, start + stop, _answers(part)) for first, stop, part in inputs.parts
        ),
        replaced=tuple(start + row for row in inputs.replaced),
        copies=None if grid else corrections.copies_of(answers, seen),
        equal=tuple((first + start, last + start) for first, last in seams.equal),
        budget=inputs.result("budget"),
        untrained=None if seams.untrained is None else start + seams.untrained,
        untrained_interval=within and (start + within[0], start + within[1]),
    )  # fmt: skip


def _answers(seen: View) -> dict[str, Answer]:
    """Ask and settle; a part of a table is not asked what is asked of the whole alone."""
    grid = isinstance(seen.layout, Grid)
    questions = [
        each for each in (GRID if grid else SEQUENCE) if each.parts or seen.breaks is not None
    ]
    corrected = corrections.GRID if grid else corrections.SEQUENCE
    return decide([each.ask(seen) for each in questions], corrected, seen)
