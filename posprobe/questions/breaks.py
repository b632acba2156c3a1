"""Whether single rows are outliers, and whether a table breaks into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from posprobe.analyses.breaks.outliers import largest_ratio, usual_values
from posprobe.analyses.breaks.seams import MIN_BLURRED_STEPS, Seams
from posprobe.analyses.composition.budget import SharedPlanes
from posprobe.analyses.facts import Answer, Cause, Verdict
from posprobe.analyses.view import View
from posprobe.layouts import Grid
from posprobe.questions.rank_tests import AskTable

#: Rows below which planted seams and special rows are missed more often than one time in twenty.
MIN_BREAK_ROWS = 64


@dataclass(frozen=True)
class SpecialRows:
    """Rows that do not belong to the rows around them, or patches.

    Parameters
    ----------
    rows
        Number of rows in which they were looked for.
    positions
        Positions of the outliers, zero rows excluded; patches count row by row.
    zeros
        Positions of rows that hold only zeros.
    causes
        Reasons why the first outlier is one.
    width
        Width of the grid; None on a line.
    largest, chance
        The longest step over what is usual around it, and the 5th and 95th percentile of the
        longest in a tail like that of the others; None on a grid, and of few rows.
    replaced
        Whether other questions see the mean of the neighbours in the place of these patches.
    undefined
        Why they were not looked for, or empty.
    """

    rows: int
    positions: tuple[int, ...] = ()
    zeros: tuple[int, ...] = ()
    causes: tuple[Cause, ...] = ()
    width: int | None = None
    largest: float | None = None
    chance: tuple[float, float] | None = None
    replaced: bool = False
    undefined: str = ""

    @property
    def doubtful(self) -> bool:
        """Whether the longest step is longer than 95 % of the longest by chance."""
        return self.chance is not None and (self.largest or 0.0) > self.chance[1]

    @property
    def value(self) -> list[int] | None:
        """Positions of all special rows."""
        return None if self.undefined else sorted((*self.positions, *self.zeros))


@dataclass(frozen=True)
class Breaks:
    """Seams: pairs of neighbouring positions with a break between them.

    Parameters
    ----------
    rows
        Number of rows in which they were looked for.
    pairs
        The positions before and after each.
    causes
        Cause of each break.
    undefined
        Why they were not looked for, or empty.
    same
        Parts that go round in the planes of the longest, as another answer shows.
    """

    rows: int
    pairs: tuple[tuple[int, int], ...] = ()
    causes: tuple[Cause, ...] = ()
    undefined: str = ""
    same: tuple[SharedPlanes, ...] = ()

    @property
    def value(self) -> list[list[int]] | None:
        """The pairs."""
        return None if self.undefined else [list(pair) for pair in self.pairs]


def ask_special_rows(view: View) -> Answer | None:
    """Ask of a whole table whether single rows, or patches, are unlike those around them."""
    if (seams := view.breaks) is None:
        return None
    zero_rows = [row.row for row in seams.special if not seams.norms[row.row]]
    nonzero_outliers = [row for row in seams.special if row.row not in zero_rows]
    grid_width = view.layout.width if isinstance(view.layout, Grid) else None
    longest_step = None if grid_width else _longest_step(seams)
    facts = SpecialRows(
        rows=len(seams.norms),
        positions=tuple(view.start + row.row for row in nonzero_outliers),
        zeros=tuple(view.start + row for row in zero_rows),
        causes=nonzero_outliers[0].causes if nonzero_outliers else (),
        width=grid_width,
        largest=longest_step and longest_step[0],
        chance=longest_step and longest_step[1],
        replaced=bool(view.replaced),
        undefined=seams.no_special,
    )
    answer, reason = _judge_findings(facts, has_findings=bool(seams.special))
    is_grid = facts.width is not None and reason != "undefined"
    reason = f"patch_{reason}" if is_grid else reason
    return Answer("special_rows", answer, reason, facts, keys=("seams.special",))


def _longest_step(seams: Seams) -> tuple[float, tuple[float, float]] | None:
    """Return the longest step that is no break, over the usual, and what it is by chance."""
    steps = seams.steps.copy()
    for left_row, _ in seams.between:
        steps[max(left_row - MIN_BLURRED_STEPS // 2, 0) : left_row + MIN_BLURRED_STEPS // 2 + 1] = (
            np.nan
        )
    return largest_ratio(steps, usual_values(steps))


def ask_seams(view: View) -> Answer | None:
    """Ask of a whole table whether it breaks into parts that differ."""
    if (seams := view.breaks) is None:
        return None
    start = view.start
    pairs = tuple((start + left, start + right) for left, right in seams.between)
    facts = Breaks(len(seams.norms), pairs, seams.reasons, seams.undefined)
    answer, reason = _judge_findings(facts, has_findings=bool(pairs))
    return Answer("seams", answer, reason, facts, keys=("seams.between", "seams.reasons"))


def _judge_findings(facts: SpecialRows | Breaks, *, has_findings: bool) -> tuple[Verdict, str]:
    """Return the answer and its reason: no needs rows enough to notice what there is."""
    if facts.undefined:
        return "cannot tell", "undefined"
    if has_findings:
        return "yes", "found"
    if facts.rows < MIN_BREAK_ROWS:
        return "cannot tell", "few"
    if isinstance(facts, SpecialRows) and facts.doubtful:
        return "cannot tell", "longest"
    return "no", "none"


#: By name, in the order of the page.
BREAK_QUESTIONS: Mapping[str, AskTable] = {"special_rows": ask_special_rows, "seams": ask_seams}
