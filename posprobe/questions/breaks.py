"""Whether single rows are outliers, and whether a table has seams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from posprobe.analyses.breaks.limits import largest_ratio, typical_values
from posprobe.analyses.breaks.seams import MIN_BLURRED_STEPS, Seams
from posprobe.analyses.composition.shared_planes import SharedPlanes
from posprobe.analyses.facts import Answer, Cause, Verdict
from posprobe.analyses.view import View
from posprobe.layouts import Grid
from posprobe.questions.rank_tests import AskTable

#: Fewest rows of a table about which the answer can be no: with fewer, planted seams and outlier
#: rows are missed more often than one time in twenty.
MIN_BREAK_ROWS = 64


@dataclass(frozen=True)
class SpecialRows:
    """Rows, or patches, that are unlike those around them.

    Parameters
    ----------
    rows
        Number of rows that were searched.
    positions
        Positions of the outlier rows, zero rows excluded; patches count row by row.
    zeros
        Positions of rows that hold only zeros.
    causes
        Properties in which the first outlier row differs.
    width
        Width of the grid in patches; None on a line.
    largest, chance
        Longest step over the typical steps around it, and the 5th and 95th percentile of the
        longest by chance, drawn from a tail like that of the other steps; None on a grid, and with
        few rows.
    replaced
        Whether other questions use the mean of the neighbours instead of these patches.
    undefined
        Reason why rows were not searched; empty where they were.
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
        """Whether the longest step is longer than 95 % of the longest steps by chance."""
        return self.chance is not None and (self.largest or 0.0) > self.chance[1]

    @property
    def value(self) -> list[int] | None:
        """Positions of all outlier rows."""
        return None if self.undefined else sorted((*self.positions, *self.zeros))


@dataclass(frozen=True)
class Breaks:
    """Seams: pairs of neighbouring positions with a break between them.

    Parameters
    ----------
    rows
        Number of rows that were searched.
    pairs
        Positions before and after each seam.
    causes
        Causes of the seams, one each.
    undefined
        Reason why seams were not searched; empty where they were.
    same
        Stretches that rotate in the planes of the longest one, from another answer.
    """

    rows: int
    pairs: tuple[tuple[int, int], ...] = ()
    causes: tuple[Cause, ...] = ()
    undefined: str = ""
    same: tuple[SharedPlanes, ...] = ()

    @property
    def value(self) -> list[list[int]] | None:
        """Pairs of positions."""
        return None if self.undefined else [list(pair) for pair in self.pairs]


def ask_special_rows(view: View) -> Answer | None:
    """Ask whether single rows, or patches, of a whole table are unlike those around them."""
    if (seams := view.seams) is None:
        return None
    zero_rows = [outlier.row for outlier in seams.special if not seams.norms[outlier.row]]
    nonzero_outliers = [
        outlier for outlier in seams.special if outlier.row not in zero_rows
    ]
    grid_width = view.layout.width if isinstance(view.layout, Grid) else None
    longest_step = None if grid_width else _longest_step(seams)
    facts = SpecialRows(
        rows=len(seams.norms),
        positions=tuple(view.start + outlier.row for outlier in nonzero_outliers),
        zeros=tuple(view.start + outlier for outlier in zero_rows),
        causes=nonzero_outliers[0].causes if nonzero_outliers else (),
        width=grid_width,
        largest=longest_step and longest_step[0],
        chance=longest_step and longest_step[1],
        replaced=bool(view.replaced_patches),
        undefined=seams.no_special,
    )
    answer, reason = _judge_findings(facts, has_findings=bool(seams.special))
    if facts.width is not None and reason != "undefined":
        reason = f"patch_{reason}"
    return Answer("special_rows", answer, reason, facts, keys=("seams.special",))


def _longest_step(seams: Seams) -> tuple[float, tuple[float, float]] | None:
    """Return the longest step outside seams over the typical steps, and its range by chance."""
    steps = seams.steps.copy()
    margin = MIN_BLURRED_STEPS // 2
    for left_row, _ in seams.between:
        steps[max(left_row - margin, 0) : left_row + margin + 1] = np.nan
    return largest_ratio(steps, typical_values(steps))


def ask_seams(view: View) -> Answer | None:
    """Ask whether a whole table breaks into stretches that differ."""
    if (seams := view.seams) is None:
        return None
    pairs = tuple(
        (view.start + left, view.start + right) for left, right in seams.between
    )
    facts = Breaks(len(seams.norms), pairs, seams.reasons, seams.undefined)
    answer, reason = _judge_findings(facts, has_findings=bool(pairs))
    return Answer("seams", answer, reason, facts, keys=("seams.between", "seams.reasons"))


def _judge_findings(
    facts: SpecialRows | Breaks, *, has_findings: bool
) -> tuple[Verdict, str]:
    """Return the verdict and its reason; no needs enough rows to notice seams and outliers."""
    if facts.undefined:
        return "cannot tell", "undefined"
    if has_findings:
        return "yes", "found"
    if facts.rows < MIN_BREAK_ROWS:
        return "cannot tell", "few"
    if isinstance(facts, SpecialRows) and facts.doubtful:
        return "cannot tell", "longest"
    return "no", "none"


#: Questions by name, in the order of the page.
BREAK_QUESTIONS: Mapping[str, AskTable] = {
    "special_rows": ask_special_rows,
    "seams": ask_seams,
}
