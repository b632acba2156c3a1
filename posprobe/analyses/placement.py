"""Where exactly a table changes, near the place at which a change was found.

A change is found by levels of up to 32 rows on each side, whose difference hardly falls a few rows
away from it. Where it is, single rows tell: of the places near by, the one is taken that explains
them best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.outliers import MIN_SIDE, WINDOW, Floats, level_of
from posprobe.analyses.special_rows import Series

#: Robust deviations between two levels of norms from which single rows tell their side.
APART = 2.0
#: Least deviation of a level, as a share of the distance of both: of equal values it is 0.
LEAST = 1e-3


def by_level(values: Floats, crossing: int, left: int) -> int:
    """Place a change of level, found after row ``left``, where single values change.

    Each value costs what it is improbable on its side of the place, of Laplace's distribution about
    the median.

    Parameters
    ----------
    values
        ``[n]`` or ``[n - 1]``: the series in which it was found.
    crossing
        1 where values belong to pairs of rows, of which one crosses, and 0 where to rows.
    left
        Last row before the change.

    Returns
    -------
    int
        The last row before it, at most `MIN_SIDE` rows away.
    """
    levels = _both_levels(values, crossing, left)
    return _nearest(values, crossing, left, *levels) if levels else left


def by_norm(series: Series, left: int) -> int:
    """Place a change where rows change their distance from the mean row, if they do so at once.

    Only where neighbours are unlike each other: a step belongs to two rows, of which such a table
    has one on either side, and its norms to one.

    Parameters
    ----------
    series
        Of the table.
    left
        Last row before the change, as steps have it.

    Returns
    -------
    int
        The last row before it, at most `MIN_SIDE` rows away.
    """
    norms = np.linalg.norm(series.rows, axis=1)
    levels = None if series.smooth else _both_levels(norms, 0, left)
    if levels is None:
        return left
    (before, left_spread), (after, right_spread) = levels
    apart = abs(after - before)
    place = _nearest(norms, 0, left, *levels)
    at_once = abs(norms[place + 1] - norms[place]) >= apart / 2
    return place if at_once and apart > APART * max(left_spread, right_spread) else left


def _places(n: int, left: int) -> NDArray[np.intp]:
    """Return the last rows before a change that are looked at, `MIN_SIDE` rows from both ends."""
    first = max(left - MIN_SIDE, MIN_SIDE - 1)
    return np.arange(first, max(min(left + MIN_SIDE, n - MIN_SIDE - 1), first) + 1)


_Level = tuple[float, float]


def _both_levels(values: Floats, crossing: int, left: int) -> tuple[_Level, _Level] | None:
    """Return both levels with their deviations, or None where they are one."""
    before = values[: left + 1 - crossing][-WINDOW - MIN_SIDE :]
    after = values[left + 1 :][: WINDOW + MIN_SIDE]
    # The change may be within `MIN_SIDE` of where it was found.
    if len(before) >= 2 * MIN_SIDE:
        before = before[:-MIN_SIDE]
    if len(after) >= 2 * MIN_SIDE:
        after = after[MIN_SIDE:]
    (low, left_spread), (high, right_spread) = level_of(before), level_of(after)
    apart = abs(high - low)
    if not apart > 0:
        return None
    least = LEAST * apart
    return (low, max(left_spread, least)), (high, max(right_spread, least))


def _nearest(values: Floats, crossing: int, left: int, before: _Level, after: _Level) -> int:
    places = _places(len(values) + crossing, left)
    cost_before, cost_after = (
        np.nan_to_num(np.abs(values - level) / spread) + np.log(spread)
        for level, spread in (before, after)
    )
    # The pair that crosses counts as one of those further apart, unless it is further apart still.
    longer, spread = max(before, after)
    beyond = np.nan_to_num(np.maximum(longer - values, 0.0) / spread) + np.log(spread)
    first = max(int(places[0]) - MIN_SIDE, 0)
    stop = int(places[-1]) + MIN_SIDE
    cost = [
        cost_before[first : place + 1 - crossing].sum()
        + beyond[place : place + crossing].sum()
        + cost_after[place + 1 : stop].sum()
        for place in places.tolist()
    ]
    return int(places[np.argmin(cost)])
