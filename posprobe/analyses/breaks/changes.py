"""Where a table changes: how far it moves from row to row, and at which row exactly.

Parts of a table that were trained on more or on fewer examples differ in the length of their steps
though no step between them is long. A single change of level is held against a smooth trend of the
step's logarithm: only where it describes the steps better, and by more than it does in resampled
residuals of the trend (circular blocks, Politis & Romano 1992), there is a change.

A change is found by levels of up to 32 rows on each side, whose difference hardly falls a few rows
away from it. Where it is, single rows tell: of the places near by, the one is taken that explains
them best.

Rows that look as they were initialised (independent, Gaussian, all alike) begin where training saw
no more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.outliers import (
    MIN_SIDE,
    WINDOW,
    Series,
    level_of,
)
from posprobe.analyses.linear import offset_sums, robust_sd, slow_cosines
from posprobe.arrays import Floats

#: Robust deviations between two levels of norms from which single rows tell their side: half way
#: between them a row is then on the wrong side once in six.
MIN_LEVEL_GAP = 2.0


#: Least deviation of a level, as a share of the distance of both: of equal values it is 0.
MIN_GAP_SHARE = 1e-3


def by_level(values: Floats, crossing: int, left_row: int) -> int:
    """Place a change of level, found after row ``left_row``, where single values change.

    Each value costs what it is improbable on its side of the place, of Laplace's distribution about
    the median.

    Parameters
    ----------
    values
        ``[n]`` or ``[n - 1]``: the series in which it was found.
    crossing
        1 where values belong to pairs of rows, of which one crosses, and 0 where to rows.
    left_row
        Last row before the change.

    Returns
    -------
    int
        The last row before it, at most `MIN_SIDE` rows away.
    """
    levels = _both_levels(values, crossing, left_row)
    return _nearest(values, crossing, left_row, *levels) if levels else left_row


def by_norm(series: Series, left_row: int) -> int:
    """Place a change where rows change their distance from the mean row, if they do so at once.

    Only where neighbours are unlike each other: a step belongs to two rows, of which such a table
    has one on either side, and its norms to one.

    Parameters
    ----------
    series
        Row series of the table.
    left_row
        Last row before the change, as steps have it.

    Returns
    -------
    int
        The last row before it, at most `MIN_SIDE` rows away.
    """
    norms = np.linalg.norm(series.rows, axis=1)
    levels = None if series.smooth else _both_levels(norms, 0, left_row)
    if levels is None:
        return left_row
    (before, left_spread), (after, right_spread) = levels
    difference = abs(after - before)
    place = _nearest(norms, 0, left_row, *levels)
    at_once = abs(norms[place + 1] - norms[place]) >= difference / 2
    return (
        place
        if at_once and difference > MIN_LEVEL_GAP * max(left_spread, right_spread)
        else left_row
    )


def _places(n: int, left_row: int) -> NDArray[np.intp]:
    """Return the last rows before a change that are looked at, `MIN_SIDE` rows from both ends."""
    first_place = max(left_row - MIN_SIDE, MIN_SIDE - 1)
    return np.arange(first_place, max(min(left_row + MIN_SIDE, n - MIN_SIDE - 1), first_place) + 1)


_Level = tuple[float, float]


def _both_levels(values: Floats, crossing: int, left_row: int) -> tuple[_Level, _Level] | None:
    """Return both levels with their deviations, or None where they are one."""
    before = values[: left_row + 1 - crossing][-WINDOW - MIN_SIDE :]
    after = values[left_row + 1 :][: WINDOW + MIN_SIDE]
    # The change may be within `MIN_SIDE` of where it was found.
    if len(before) >= 2 * MIN_SIDE:
        before = before[:-MIN_SIDE]
    if len(after) >= 2 * MIN_SIDE:
        after = after[MIN_SIDE:]
    (low, left_spread), (high, right_spread) = level_of(before), level_of(after)
    difference = abs(high - low)
    if not difference > 0:
        return None
    min_spread = MIN_GAP_SHARE * difference
    return (low, max(left_spread, min_spread)), (high, max(right_spread, min_spread))


def _nearest(values: Floats, crossing: int, left_row: int, before: _Level, after: _Level) -> int:
    places = _places(len(values) + crossing, left_row)
    cost_before, cost_after = (
        np.nan_to_num(np.abs(values - level) / spread) + np.log(spread)
        for level, spread in (before, after)
    )
    # The pair that crosses counts as one of those further apart, unless it is further apart still.
    longer, spread = max(before, after)
    log_excess = np.nan_to_num(np.maximum(longer - values, 0.0) / spread) + np.log(spread)
    first_row = max(int(places[0]) - MIN_SIDE, 0)
    stop = int(places[-1]) + MIN_SIDE
    cost = [
        cost_before[first_row : place + 1 - crossing].sum()
        + log_excess[place : place + crossing].sum()
        + cost_after[place + 1 : stop].sum()
        for place in places.tolist()
    ]
    return int(places[np.argmin(cost)])


#: Fewest steps on either side of a change: of so many a median is known to a third of their
#: deviation.
SIDE = 16


#: Cosines that describe a smooth trend over the table, the constant among them: two waves along it.
TREND = 5


#: Those that remain beside a change of level, the constant and the slowest: with the change and its
#: place both descriptions have four numbers or five.
N_LOCAL_COSINES = 2


#: Resampled tables: the least p-value, 1 / 100, is below the level.
DRAWS = 99


#: Share of them that may come as far, as of every answer (`cached.LEVEL`).
LEVEL = 0.02


#: Least logarithm of the ratio of what a trend and what a change leave unexplained: a tenth of the
#: variance. Of 240 trends, walks and tables of noise none is called a change.
GAIN = 0.1


#: Least change, in robust standard deviations of the steps within a part: five of six single steps
#: then tell their part ...
DEVIATIONS = 2.0


#: ... and as a factor: less is no other pace, however even the steps are.
FACTOR = 1.2


#: Share of a change that the nearest so many steps on either side must show: of a gradual one they
#: show less than half.
AT_ONCE, LOCAL_STEPS = 0.5, 5


#: Distance from the median, in robust standard deviations, at which single steps are cut: the usual
#: bound of outliers (Iglewicz & Hoaglin 1993).
CUT = 3.5


def pace_changes(steps: Floats) -> list[tuple[int, float]]:
    """Find the rows at which steps change their length at once and for good.

    Parameters
    ----------
    steps
        ``[n - 1]``: distance of rows i and i + 1.

    Returns
    -------
    list
        Rows with which another part begins, and the factor by which the median step changes there.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(steps)
    if not np.isfinite(logs).all():
        return []
    changes: list[tuple[int, float]] = []
    parts = [(0, len(logs))]
    while parts:
        start, stop = parts.pop()
        third = (stop - start) // 3
        # Several changes at once can pass for a trend: fewer are in a part of the part.
        for begin, end in ((start, stop), (start, stop - third), (start + third, stop)):
            change = _change_of_pace(logs[begin:end])
            if change is not None:
                change_row = begin + change[0]
                # A long step between short ones and long ones leads from one part to the other.
                changes.append((change_row + (change[1] > 1), change[1]))
                parts += [(start, change_row), (change_row, stop)]
                break
    return sorted(changes)


def _change_of_pace(logs: Floats) -> tuple[int, float] | None:
    n = len(logs)
    if n < 2 * SIDE:
        return None
    all_logs, median = logs, np.median(logs)
    cut = CUT * robust_sd(logs)
    logs = np.clip(logs, median - cut, median + cut)
    trend, local_cosines = slow_cosines(n, TREND), slow_cosines(n, N_LOCAL_COSINES)
    gain, change_index = _gain(logs, trend, local_cosines)
    left_median, right_median = (
        np.median(all_logs[:change_index]),
        np.median(all_logs[change_index:]),
    )
    deviations = np.abs(
        np.concatenate(
            [all_logs[:change_index] - left_median, all_logs[change_index:] - right_median]
        )
    )
    spread = robust_sd(deviations, 0.0)
    jump = float(right_median - left_median)
    if gain < GAIN or abs(jump) < max(DEVIATIONS * spread, math.log(FACTOR)):
        return None
    local_jump = float(
        np.median(all_logs[change_index : change_index + LOCAL_STEPS])
        - np.median(all_logs[change_index - LOCAL_STEPS : change_index])
    )
    if local_jump / jump < AT_ONCE:
        return None
    smooth = trend @ (trend.T @ logs)
    residual = logs - smooth
    rng = np.random.default_rng(0)
    length = min(max(4, round(math.sqrt(n)), 4 * _memory(residual)), n // 4)
    reached = 0
    for _ in range(DRAWS):
        starts = rng.integers(0, n, -(-n // length))
        index = (starts[:, None] + np.arange(length)).ravel()[:n] % n
        reached += _gain(smooth + residual[index], trend, local_cosines)[0] >= gain
    return (change_index, math.exp(jump)) if (1 + reached) / (DRAWS + 1) <= LEVEL else None


def _memory(residual: Floats) -> int:
    """Return after how many values a series has forgotten itself: below a correlation of 0.2."""
    correlation = offset_sums(residual[:, None]) / max(
        float(residual @ residual), np.finfo(np.float64).tiny
    )
    return int(np.argmax(correlation < 0.2))


def _gain(logs: Floats, trend: Floats, local_cosines: Floats) -> tuple[float, int]:
    """Return the log ratio of what a trend and the best change leave, and where that is."""
    n = len(logs)
    total = float(logs @ logs)
    left_by_trend = total - float(np.square(logs @ trend).sum())
    residual = logs - local_cosines @ (local_cosines.T @ logs)
    sums_after = np.cumsum(residual[::-1])[::-1]
    waves = np.cumsum(local_cosines[::-1], axis=0)[::-1]
    power = np.arange(n, 0, -1) - np.square(waves).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(power > 1e-9, sums_after**2 / power, 0.0)
    explained[:SIDE] = explained[n - SIDE + 1 :] = -1.0
    index = int(np.argmax(explained))
    left_by_change = float(residual @ residual) - float(explained[index])
    tiny = 1e-12 * max(total, np.finfo(np.float64).tiny)
    return math.log(max(left_by_trend, tiny) / max(left_by_change, tiny)), index


#: Fewest rows that can be told, and fewest columns: of 512 numbers or more a variance is known to a
#: tenth.
ROWS, COLUMNS = 32, 16
#: Standard errors by which each of three numbers may differ from that of independent Gaussian rows,
#: so that bisection, which asks some ten times, goes wrong in two of a thousand tables, and by
#: which neighbours of trained rows are more alike, which chance never makes.
MAX_UNTRAINED_DEVIATION, RELATED = 4.0, 6.0
#: Share by which variances of squares may differ beyond that: of numbers cut at two deviations, as
#: many initialisers do, they are lower by as much.
TRUNCATED = 0.5
#: Rows on either side of the first that looks untrained among which training ends, and the paces at
#: which it fades out there: in up to twice as many rows.
END_WINDOW = 64
PACES = np.geomspace(1, 2 * END_WINDOW, 15)
#: Sizes of the trained part that are tried, a fifth apart, and their spread from row to row.
SIZES, SPREAD = 24, 0.5
#: Log likelihood by which ends fall short of the best that are left out: of 497 planted ends, sharp
#: and gradual, 487 are within.
MAX_LOG_LIKELIHOOD_LOSS = 6.0


def untrained_from(rows: NDArray[np.floating[Any]]) -> tuple[int, int, int] | None:
    """Return the row from which on all look untrained, after rows that do not, and its interval.

    Parameters
    ----------
    rows
        ``[n, d]``.

    Returns
    -------
    tuple or None
        The row, the least and the most that it may be, counted from 0.
    """
    n = len(rows)
    if n < 2 * ROWS or not _untrained(rows[n - ROWS :]):
        return None
    high = bisect_left(range(n - ROWS), True, key=lambda start: _untrained(rows[start:]))
    if high < ROWS:
        return None
    # The rows just before: where a table drifts slowly, they look as these do.
    trained = _standardised(rows[high - ROWS : high])
    if trained is None or _neighbours(trained) <= RELATED:
        return None
    return _end(np.asarray(rows, dtype=np.float64), high)


def _end(rows: Floats, first: int) -> tuple[int, int, int]:
    """Return the most likely end of the trained part, and the least and the most that it may be.

    The size of the trained part falls to zero along a straight line. Products of neighbouring rows
    have its square as their mean, in standard deviations of those of untrained rows.

    Parameters
    ----------
    rows
        ``[n, d]``.
    first
        Row from which on too little is trained to be seen in any one row.
    """
    n, d = rows.shape
    last = rows[-max(ROWS, (n - first) // 2) :]
    low, high = max(first - END_WINDOW, 0), min(first + END_WINDOW, n - ROWS // 2)
    centred_rows = rows[low : high + 1] - last.mean(axis=0)
    correlations = (centred_rows[:-1] * centred_rows[1:]).sum(axis=1) / (
        last.var(axis=0, ddof=1).mean() * np.sqrt(d)
    )
    ends = np.arange(low + 1, high + 1)
    n_untrained = ends[:, None, None] - np.arange(low, high + 1)
    faded = np.clip(n_untrained / PACES[:, None], 0, 1)  # [ends, paces, rows]
    product = faded[..., :-1] * faded[..., 1:]
    crossed = (np.square(faded[..., :-1]) + np.square(faded[..., 1:])) / np.sqrt(d)
    likelihood = np.full(len(ends), -np.inf)
    for size in np.geomspace(1, 2 * max(correlations.max(), 2.0), SIZES):
        mean = size * product
        variance = 1 + size * crossed + np.square(SPREAD * mean)
        log_likelihood = -0.5 * (np.log(variance) + np.square(correlations - mean) / variance).sum(
            axis=-1
        )
        likelihood = np.maximum(likelihood, log_likelihood.max(axis=1))
    plausible_ends = ends[likelihood >= likelihood.max() - MAX_LOG_LIKELIHOOD_LOSS]
    return int(ends[likelihood.argmax()]), int(plausible_ends[0]), int(plausible_ends[-1])


def _untrained(rows: NDArray[np.floating[Any]]) -> bool:
    """Tell whether rows ``[n, d]`` look like independent Gaussian ones of one variance.

    The mean product of neighbours is 0, and the mean square of k numbers has a variance of 2 / k:
    along rows and along columns.
    """
    n, d = rows.shape
    values = _standardised(rows)
    if values is None or d < COLUMNS:
        return False
    spread = [
        float(np.square(values).mean(axis=axis).var()) * k / 2 for axis, k in ((1, d), (0, n))
    ]
    errors = [MAX_UNTRAINED_DEVIATION * np.sqrt(2 / count) for count in (n, d)]
    is_typical = all(
        1 - TRUNCATED - error <= spread_value <= 1 + error
        for spread_value, error in zip(spread, errors, strict=True)
    )
    return is_typical and abs(_neighbours(values)) <= MAX_UNTRAINED_DEVIATION


def _standardised(rows: NDArray[np.floating[Any]]) -> Floats | None:
    values = np.asarray(rows, dtype=np.float64)
    values = values - values.mean(axis=0)
    size = float(np.square(values).mean())
    return values / np.sqrt(size) if size > 0 else None


def _neighbours(values: Floats) -> float:
    """Return the mean product of neighbouring rows, in standard errors of independent ones.

    Centred on the mean of n rows, two of them have a product of -1 / (n - 1) for each column.
    """
    n, d = values.shape
    return float(((values[:-1] * values[1:]).sum() + d) / np.sqrt((n - 1) * d))
