"""The longest stretch of a table without a seam and without a special row.

A few odd rows decide numbers that are about the rest: GPT-2's first row alone moves its first
component's share by twenty points. What is measured of a table is therefore measured on such a
stretch as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from posprobe.analyses.facts import Cause
from posprobe.analyses.sequences.seams import Seams

#: Fewest rows of a stretch: of fewer, nothing can be told.
LEAST = 8
#: Fewest rows of another part that is looked at by itself, and most such parts.
PART, MOST_PARTS = 32, 3


@dataclass(frozen=True)
class Stretch:
    """The longest run of rows without a seam and without a special row.

    Parameters
    ----------
    first, stop
        Its rows, counted from the table's first; ``stop`` is one past the last.
    whole
        Whether these are all rows.
    reasons
        What ends it on either side (``seam`` and ``special``, which name positions), or why all
        rows are taken.
    """

    first: int
    stop: int
    whole: bool
    reasons: tuple[Cause, ...]

    @property
    def rows(self) -> slice:
        """The rows as a slice of the table."""
        return slice(self.first, self.stop)


def runs(found: Seams) -> list[tuple[int, int]]:
    """Return every run of rows without a seam and without a special row: its first, and the stop.

    Parameters
    ----------
    found
        The table's seams.
    """
    special = {row.row for row in found.special}
    seams = {right for _, right in found.between}
    starts = sorted({0, len(found.norms), *special, *(row + 1 for row in special), *seams})
    return [(first, stop) for first, stop in pairwise(starts) if first not in special]


def trained(found: Seams) -> list[tuple[int, int]]:
    """Return the runs without those of rows that look untrained."""
    end = len(found.norms) if found.untrained is None else found.untrained
    return [run for run in runs(found) if run[0] < end]


def all_equal(found: Seams, run: tuple[int, int]) -> bool:
    """Whether a run, its first row and the stop, is a stretch of equal rows."""
    return (run[0], run[1] - 1) in found.equal


def stretch(found: Seams) -> Stretch:
    """Return the longest run of rows without a seam and without a special row.

    Parameters
    ----------
    found
        The table's seams. Where they are undefined, on a grid or in a short table, and where no run
        of `LEAST` rows is left, all rows are taken. Of runs of one length the first is.
    """
    n = len(found.norms)
    if found.undefined:
        return Stretch(0, n, True, (Cause("undefined", of=found.undefined),))
    special = {row.row: row.causes for row in found.special}
    seam = {right: cause for (_, right), cause in zip(found.between, found.reasons, strict=True)}
    whole = trained(found)
    if not whole:
        return Stretch(0, n, True, (Cause("all_special"),))
    first, stop = max(whole, key=lambda run: run[1] - run[0])
    different = [run for run in whole if run[1] - run[0] >= LEAST and not all_equal(found, run)]
    if different:
        first, stop = max(different, key=lambda run: run[1] - run[0])
    if stop - first < LEAST:
        return Stretch(0, n, True, (Cause("no_run", (LEAST,)),))
    if (first, stop) == (0, n):
        return Stretch(0, n, True, (Cause("no_break"),))
    reasons = [
        Cause("seam", (found.start + row - 1, found.start + row), causes=(seam[row],))
        for row in (first, stop)
        if row in seam
    ]
    reasons += [
        Cause("special", (found.start + row,), causes=special[row])
        for row in (first - 1, stop)
        if row in special
    ]
    return Stretch(first, stop, False, tuple(reasons))


def long_runs(found: Seams) -> tuple[tuple[int, int], ...]:
    """Return the runs that are looked at: the longest, and other long ones, in order.

    Parameters
    ----------
    found
        The table's seams.
    """
    longest = stretch(found)
    if longest.whole:
        return ((longest.first, longest.stop),)
    own = (longest.first, longest.stop)
    others = [run for run in trained(found) if run != own and run[1] - run[0] >= PART]
    others = [run for run in others if not all_equal(found, run)]
    return tuple(sorted([own, *sorted(others, key=lambda run: run[0] - run[1])[:MOST_PARTS]]))
