"""Rows that do not belong to the rest by their norm or their direction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Cause
from posprobe.analyses.tables.outliers import (
    MIN_SIDE,
    beyond_tail,
    deviations,
    sides,
    stands_out,
    usual_values,
)
from posprobe.arrays import Floats

#: Ratio of the norms of neighbouring rows that matters: a random walk from 0 begins with 1.41.
NORM_RATIO = 1.5
#: Ratio to the usual of the distance, 1 - cosine, of a row from all others.
AWAY = 1.5


@dataclass(frozen=True)
class Series:
    """What seams and special rows are read off."""

    norms: Floats
    likeness: Floats  # mean cosine of each row as stored with all others; NaN of a zero row
    steps: Floats
    chords: Floats
    units: Floats
    rows: Floats

    @cached_property
    def torn(self) -> NDArray[np.bool_]:
        """``[n - 1]``: whether a step is outside what the steps' own distribution makes likely."""
        return beyond_tail(self.steps, usual_values(self.steps))

    @cached_property
    def smooth(self) -> bool:
        """Whether neighbours are alike: nearer to each other than to rows a little further away.

        At two distances, as rotations bring rows back after a period.
        """
        rows = self.rows
        far = [np.median(np.linalg.norm(rows[k:] - rows[:-k], axis=1)) for k in (3, MIN_SIDE)]
        return bool(np.median(self.steps) < max(far) / 2**0.5)

    @property
    def may_change(self) -> NDArray[np.bool_]:
        """``[n - 1]``: whether one row can differ from the next without being a mere long step.

        Where neighbours are alike, nothing changes without a step: one of a few long steps, as
        heavy tails have them, is no change. Where they are not, steps say nothing.
        """
        return self.torn if self.smooth else np.ones_like(self.torn)


class Found:
    """Seams by their left row, and special rows, with their causes."""

    def __init__(self) -> None:
        self.between: dict[int, Cause] = {}
        self.special: dict[int, list[Cause]] = {}

    def seam(self, left: int, cause: Cause) -> None:
        """Add a seam unless there is one close by: a change is seen in more than one way."""
        if all(abs(left - other) >= MIN_SIDE for other in self.between):
            self.between[left] = cause

    def row(self, row: int, kind: str, *numbers: float) -> None:
        """Add a cause for which a row is special; numbers are infinite where the usual is 0."""
        cause = Cause(kind, tuple(map(float, numbers)))
        if np.isinf(numbers).any():
            cause = Cause("among_equal", of="patches" if kind == "patch_far" else "rows")
        self.special.setdefault(row, []).append(cause)

    def add(self, part: Found, first: int) -> None:
        """Add what was found in a part that begins with row ``first``."""
        for left, cause in sorted(part.between.items()):
            self.seam(first + left, cause)
        for row, causes in part.special.items():
            self.special.setdefault(first + row, []).extend(causes)


def zero_rows(series: Series) -> Found:
    """Return the rows of zeros as special."""
    found = Found()
    for row in np.flatnonzero(series.norms == 0).tolist():
        found.row(row, "zero")
    return found


def odd_norms(series: Series, found: Found) -> None:
    """Look for norms that depart from both neighbours' to the same side, or up to an end."""
    norms = series.norms
    n = len(norms)
    change = np.diff(norms)
    jumps = np.maximum(norms[1:], norms[:-1]) > NORM_RATIO * np.minimum(norms[1:], norms[:-1])
    for side in sides(np.abs(change)):
        # Changes scatter about 0, so the median of their sizes is their deviation already.
        limit = deviations(side.count, 2 * n) * 1.4826 * side.median
        jumps &= (np.abs(change) > limit) | (side.count < MIN_SIDE)
    usual = usual_values(norms)
    apart = np.maximum(norms, usual) > NORM_RATIO * np.minimum(norms, usual)
    odd_norm = beyond_tail(norms, usual) | beyond_tail(usual, norms)
    jumps &= odd_norm[1:] | odd_norm[:-1]
    jumps &= series.may_change
    turning = change[:-1] * change[1:] < 0
    peaks = {pair + 1 for pair in np.flatnonzero(jumps[:-1] & jumps[1:] & turning).tolist()}
    odd = set(peaks)
    for pair in np.flatnonzero(jumps).tolist():
        if {pair, pair + 1} & peaks:
            continue
        for end in (slice(0, pair + 1), slice(pair + 1, n)):
            if len(norms[end]) < MIN_SIDE and apart[end].all():
                odd.update(range(n)[end])
    for row in sorted(odd):
        found.row(row, "norm", norms[row], usual[row])


def odd_directions(series: Series, found: Found) -> None:
    """Look for rows that are less like all the others than the rows around them are."""
    likeness, beside = series.likeness, series.may_change
    away = 1 - likeness
    usual = usual_values(away)
    odd = stands_out(away) & beyond_tail(away, usual, gap=True) & (away > AWAY * usual)
    odd &= np.append(beside, False) | np.append(False, beside) | _off_the_path(series.rows)
    for row in np.flatnonzero(odd).tolist():
        found.row(row, "direction", likeness[row], 1 - usual[row])


def _off_the_path(rows: Floats) -> NDArray[np.bool_]:
    """Where a row is further from the middle of two rows around it than these are apart.

    Long steps of a walk lead away and not back, however heavy their tails.
    """
    off = np.zeros(len(rows), dtype=bool)
    for far in (1, 2, 4):
        before, row, after = rows[: -2 * far], rows[far:-far], rows[2 * far :]
        away = np.linalg.norm(row - (before + after) / 2, axis=1)
        off[far:-far] |= away > np.linalg.norm(after - before, axis=1)
    off[:MIN_SIDE] = off[-MIN_SIDE:] = False  # compared with one side only
    return off
