"""Find the stretches of a table without seams and outlier rows.

A few outlier rows decide numbers that describe the other rows: GPT-2's first row alone moves the
share of the first component by twenty points. A table is therefore also measured on its longest
stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from posprobe.analyses.breaks.seams import Seams
from posprobe.analyses.facts import Cause

#: The longest stretch has at least as many rows as a level is computed of (`MIN_SIDE_ROWS`).
MIN_STRETCH_ROWS = 8
#: Another stretch is examined from this many rows on: those of the smallest calibrated tables.
MIN_OTHER_STRETCH_ROWS = 32
#: At most this many other stretches are examined, so that a page can describe all of them.
MAX_OTHER_STRETCHES = 3


@dataclass(frozen=True)
class Stretch:
    """The longest stretch of rows without a seam and without an outlier row.

    Parameters
    ----------
    first, stop
        First row in the table, and one past the last.
    is_whole
        Whether the stretch is all rows.
    reasons
        Causes that end the stretch on either side (``seam`` and ``special``, which name positions),
        or the reason why it is all rows.
    """

    first: int
    stop: int
    is_whole: bool
    reasons: tuple[Cause, ...]

    @property
    def rows(self) -> slice:
        """The rows as a slice of the table."""
        return slice(self.first, self.stop)


def all_stretches(seams: Seams) -> list[tuple[int, int]]:
    """Return first row and stop of every stretch without a seam and without an outlier row.

    Parameters
    ----------
    seams
        Seams of the table.
    """
    outlier_rows = {outlier.row for outlier in seams.special}
    rows_after_outliers = {row + 1 for row in outlier_rows}
    right_rows = {right_row for _, right_row in seams.between}
    edges = sorted(
        {0, len(seams.norms)} | outlier_rows | rows_after_outliers | right_rows
    )
    return [(start, stop) for start, stop in pairwise(edges) if start not in outlier_rows]


def trained_stretches(seams: Seams) -> list[tuple[int, int]]:
    """Return all stretches but those of rows that look untrained."""
    first_untrained = len(seams.norms) if seams.untrained is None else seams.untrained
    return [
        (start, stop) for start, stop in all_stretches(seams) if start < first_untrained
    ]


def is_equal_stretch(seams: Seams, stretch: tuple[int, int]) -> bool:
    """Tell whether a stretch, its first row and the stop, is one of equal rows."""
    start, stop = stretch
    return (start, stop - 1) in seams.equal


def _length(stretch: tuple[int, int]) -> int:
    start, stop = stretch
    return stop - start


def find_stretch(seams: Seams) -> Stretch:
    """Return the longest stretch of rows without a seam and without an outlier row.

    All rows are taken if seams are undefined, on a grid or in a short table, and if no stretch of
    `MIN_STRETCH_ROWS` rows is left. The first of several longest stretches is taken.

    Parameters
    ----------
    seams
        Seams of the table.
    """
    n = len(seams.norms)
    if seams.undefined:
        return Stretch(0, n, True, (Cause("undefined", subject=seams.undefined),))
    outlier_causes = {row.row: row.causes for row in seams.special}
    seam_causes = {
        right_row: cause
        for (_, right_row), cause in zip(seams.between, seams.reasons, strict=True)
    }
    stretches = trained_stretches(seams)
    if not stretches:
        return Stretch(0, n, True, (Cause("all_special"),))
    varied_stretches = [
        stretch
        for stretch in stretches
        if _length(stretch) >= MIN_STRETCH_ROWS and not is_equal_stretch(seams, stretch)
    ]
    start, stop = max(varied_stretches or stretches, key=_length)
    if stop - start < MIN_STRETCH_ROWS:
        return Stretch(0, n, True, (Cause("no_run", (MIN_STRETCH_ROWS,)),))
    if (start, stop) == (0, n):
        return Stretch(0, n, True, (Cause("no_break"),))
    reasons = [
        Cause(
            "seam", (seams.start + row - 1, seams.start + row), causes=(seam_causes[row],)
        )
        for row in (start, stop)
        if row in seam_causes
    ]
    reasons += [
        Cause("special", (seams.start + row,), causes=outlier_causes[row])
        for row in (start - 1, stop)
        if row in outlier_causes
    ]
    return Stretch(start, stop, False, tuple(reasons))


def long_stretches(seams: Seams) -> tuple[tuple[int, int], ...]:
    """Return first row and stop of the stretches that are examined, in order.

    They are the longest stretch and the longest of the others.

    Parameters
    ----------
    seams
        Seams of the table.
    """
    longest_stretch = find_stretch(seams)
    bounds = (longest_stretch.first, longest_stretch.stop)
    if longest_stretch.is_whole:
        return (bounds,)
    other_stretches = [
        stretch
        for stretch in trained_stretches(seams)
        if stretch != bounds
        and _length(stretch) >= MIN_OTHER_STRETCH_ROWS
        and not is_equal_stretch(seams, stretch)
    ]
    other_stretches.sort(key=_length, reverse=True)
    return tuple(sorted([bounds, *other_stretches[:MAX_OTHER_STRETCHES]]))
