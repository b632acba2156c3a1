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
    MIN_SIDE_ROWS,
    WINDOW_ROWS,
    RowSeries,
    robust_level,
)
from posprobe.analyses.linear import offset_sums, robust_sd, slow_cosines
from posprobe.arrays import Floats

#: Robust deviations between two levels of norms from which single rows tell their side: half way
#: between them a row is then on the wrong side once in six.
MIN_LEVEL_GAP = 2.0


#: Least deviation of a level, as a share of the distance of both: of equal values it is 0.
MIN_GAP_SHARE = 1e-3


def place_level_change(values: Floats, crossing: int, left_row: int) -> int:
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
        The last row before it, at most `MIN_SIDE_ROWS` rows away.
    """
    levels = _levels_around(values, crossing, left_row)
    return _most_likely_row(values, crossing, left_row, *levels) if levels else left_row


def place_norm_change(series: RowSeries, left_row: int) -> int:
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
        The last row before it, at most `MIN_SIDE_ROWS` rows away.
    """
    norms = np.linalg.norm(series.rows, axis=1)
    levels = None if series.is_smooth else _levels_around(norms, 0, left_row)
    if levels is None:
        return left_row
    (before, left_spread), (after, right_spread) = levels
    difference = abs(after - before)
    row = _most_likely_row(norms, 0, left_row, *levels)
    is_abrupt = abs(norms[row + 1] - norms[row]) >= difference / 2
    return (
        row
        if is_abrupt and difference > MIN_LEVEL_GAP * max(left_spread, right_spread)
        else left_row
    )


def _candidate_rows(n: int, left_row: int) -> NDArray[np.intp]:
    """Return the last rows before a change that are looked at, `MIN_SIDE_ROWS` rows from both ends."""
    first_row = max(left_row - MIN_SIDE_ROWS, MIN_SIDE_ROWS - 1)
    return np.arange(
        first_row, max(min(left_row + MIN_SIDE_ROWS, n - MIN_SIDE_ROWS - 1), first_row) + 1
    )


_Level = tuple[float, float]


def _levels_around(values: Floats, crossing: int, left_row: int) -> tuple[_Level, _Level] | None:
    """Return both levels with their deviations, or None where they are one."""
    before = values[: left_row + 1 - crossing][-WINDOW_ROWS - MIN_SIDE_ROWS :]
    after = values[left_row + 1 :][: WINDOW_ROWS + MIN_SIDE_ROWS]
    # The change may be within `MIN_SIDE_ROWS` of where it was found.
    if len(before) >= 2 * MIN_SIDE_ROWS:
        before = before[:-MIN_SIDE_ROWS]
    if len(after) >= 2 * MIN_SIDE_ROWS:
        after = after[MIN_SIDE_ROWS:]
    (low, left_spread), (high, right_spread) = robust_level(before), robust_level(after)
    difference = abs(high - low)
    if not difference > 0:
        return None
    min_spread = MIN_GAP_SHARE * difference
    return (low, max(left_spread, min_spread)), (high, max(right_spread, min_spread))


def _most_likely_row(
    values: Floats, crossing: int, left_row: int, before: _Level, after: _Level
) -> int:
    candidates = _candidate_rows(len(values) + crossing, left_row)
    cost_before, cost_after = (
        np.nan_to_num(np.abs(values - level) / spread) + np.log(spread)
        for level, spread in (before, after)
    )
    # The pair that crosses counts as one of those further apart, unless it is further apart still.
    larger_level, spread = max(before, after)
    log_excess = np.nan_to_num(np.maximum(larger_level - values, 0.0) / spread) + np.log(spread)
    first_row = max(int(candidates[0]) - MIN_SIDE_ROWS, 0)
    stop = int(candidates[-1]) + MIN_SIDE_ROWS
    costs = [
        cost_before[first_row : row + 1 - crossing].sum()
        + log_excess[row : row + crossing].sum()
        + cost_after[row + 1 : stop].sum()
        for row in candidates.tolist()
    ]
    return int(candidates[np.argmin(costs)])


#: Fewest steps on either side of a change: of so many a median is known to a third of their
#: deviation.
MIN_SIDE_STEPS = 16


#: Cosines that describe a smooth trend over the table, the constant among them: two waves along it.
N_TREND_COSINES = 5


#: Those that remain beside a change of level, the constant and the slowest: with the change and its
#: place both descriptions have four numbers or five.
N_LOCAL_COSINES = 2


#: Resampled tables: the least p-value, 1 / 100, is below the level.
N_STEP_DRAWS = 99


#: Share of them that may come as far, as of every answer (`cached.LEVEL`).
MAX_STEP_CHANGE_P = 0.02


#: Least logarithm of the ratio of what a trend and what a change leave unexplained: a tenth of the
#: variance. Of 240 trends, walks and tables of noise none is called a change.
MIN_STEP_LOG_GAIN = 0.1


#: Least change, in robust standard deviations of the steps within a part: five of six single steps
#: then tell their part ...
MIN_STEP_DEVIATIONS = 2.0


#: ... and as a factor: less is no other pace, however even the steps are.
MIN_STEP_RATIO = 1.2


#: Share of a change that the nearest so many steps on either side must show: of a gradual one they
#: show less than half.
MIN_LOCAL_CHANGE_SHARE = 0.5
N_LOCAL_STEPS = 5


#: Distance from the median, in robust standard deviations, at which single steps are cut: the usual
#: bound of outliers (Iglewicz & Hoaglin 1993).
MAX_STEP_DEVIATIONS = 3.5


def find_step_changes(steps: Floats) -> list[tuple[int, float]]:
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
        log_steps = np.log(steps)
    if not np.isfinite(log_steps).all():
        return []
    changes: list[tuple[int, float]] = []
    pending = [(0, len(log_steps))]
    while pending:
        start, stop = pending.pop()
        third = (stop - start) // 3
        # Several changes at once can pass for a trend: fewer are in a part of the part.
        for begin, end in ((start, stop), (start, stop - third), (start + third, stop)):
            change = _find_step_change(log_steps[begin:end])
            if change is not None:
                change_row = begin + change[0]
                # A long step between short ones and long ones leads from one part to the other.
                changes.append((change_row + (change[1] > 1), change[1]))
                pending += [(start, change_row), (change_row, stop)]
                break
    return sorted(changes)


def _find_step_change(log_steps: Floats) -> tuple[int, float] | None:
    n = len(log_steps)
    if n < 2 * MIN_SIDE_STEPS:
        return None
    uncut_steps, median = log_steps, np.median(log_steps)
    max_deviation = MAX_STEP_DEVIATIONS * robust_sd(log_steps)
    log_steps = np.clip(log_steps, median - max_deviation, median + max_deviation)
    trend, local_cosines = slow_cosines(n, N_TREND_COSINES), slow_cosines(n, N_LOCAL_COSINES)
    gain, change_index = _fit_change(log_steps, trend, local_cosines)
    left_median, right_median = (
        np.median(uncut_steps[:change_index]),
        np.median(uncut_steps[change_index:]),
    )
    deviations = np.abs(
        np.concatenate(
            [uncut_steps[:change_index] - left_median, uncut_steps[change_index:] - right_median]
        )
    )
    spread = robust_sd(deviations, 0.0)
    jump = float(right_median - left_median)
    if gain < MIN_STEP_LOG_GAIN or abs(jump) < max(
        MIN_STEP_DEVIATIONS * spread, math.log(MIN_STEP_RATIO)
    ):
        return None
    local_jump = float(
        np.median(uncut_steps[change_index : change_index + N_LOCAL_STEPS])
        - np.median(uncut_steps[change_index - N_LOCAL_STEPS : change_index])
    )
    if local_jump / jump < MIN_LOCAL_CHANGE_SHARE:
        return None
    fitted_trend = trend @ (trend.T @ log_steps)
    residual = log_steps - fitted_trend
    rng = np.random.default_rng(0)
    block_length = min(max(4, round(math.sqrt(n)), 4 * _correlation_length(residual)), n // 4)
    n_reached = 0
    for _ in range(N_STEP_DRAWS):
        starts = rng.integers(0, n, -(-n // block_length))
        resampled = (starts[:, None] + np.arange(block_length)).ravel()[:n] % n
        n_reached += (
            _fit_change(fitted_trend + residual[resampled], trend, local_cosines)[0] >= gain
        )
    return (
        (change_index, math.exp(jump))
        if (1 + n_reached) / (N_STEP_DRAWS + 1) <= MAX_STEP_CHANGE_P
        else None
    )


def _correlation_length(residual: Floats) -> int:
    """Return after how many values a series has forgotten itself: below a correlation of 0.2."""
    correlations = offset_sums(residual[:, None]) / max(
        float(residual @ residual), np.finfo(np.float64).tiny
    )
    return int(np.argmax(correlations < 0.2))


def _fit_change(log_steps: Floats, trend: Floats, local_cosines: Floats) -> tuple[float, int]:
    """Return the log ratio of what a trend and the best change leave, and where that is."""
    n = len(log_steps)
    total_power = float(log_steps @ log_steps)
    trend_misfit = total_power - float(np.square(log_steps @ trend).sum())
    residual = log_steps - local_cosines @ (local_cosines.T @ log_steps)
    sums_after = np.cumsum(residual[::-1])[::-1]
    cosine_sums = np.cumsum(local_cosines[::-1], axis=0)[::-1]
    free_power = np.arange(n, 0, -1) - np.square(cosine_sums).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(free_power > 1e-9, sums_after**2 / free_power, 0.0)
    explained[:MIN_SIDE_STEPS] = explained[n - MIN_SIDE_STEPS + 1 :] = -1.0
    index = int(np.argmax(explained))
    change_misfit = float(residual @ residual) - float(explained[index])
    min_misfit = 1e-12 * max(total_power, np.finfo(np.float64).tiny)
    return math.log(max(trend_misfit, min_misfit) / max(change_misfit, min_misfit)), index


#: Fewest rows that can be told, and fewest columns: of 512 numbers or more a variance is known to a
#: tenth.
MIN_UNTRAINED_ROWS = 32
MIN_UNTRAINED_COLUMNS = 16
#: Standard errors by which each of three numbers may differ from that of independent Gaussian rows,
#: so that bisection, which asks some ten times, goes wrong in two of a thousand tables, and by
#: which neighbours of trained rows are more alike, which chance never makes.
MAX_UNTRAINED_DEVIATION = 4.0
MIN_TRAINED_DEVIATION = 6.0
#: Share by which variances of squares may differ beyond that: of numbers cut at two deviations, as
#: many initialisers do, they are lower by as much.
MAX_TRUNCATION_SHARE = 0.5
#: Rows on either side of the first that looks untrained among which training ends, and the paces at
#: which it fades out there: in up to twice as many rows.
END_WINDOW_ROWS = 64
FADE_OUT_ROWS = np.geomspace(1, 2 * END_WINDOW_ROWS, 15)
#: Sizes of the trained part that are tried, a fifth apart, and their spread from row to row.
N_TRAINED_SIZES = 24
TRAINED_SIZE_SPREAD = 0.5
#: Log likelihood by which ends fall short of the best that are left out: of 497 planted ends, sharp
#: and gradual, 487 are within.
MAX_LOG_LIKELIHOOD_LOSS = 6.0


def find_untrained_rows(rows: NDArray[np.floating[Any]]) -> tuple[int, int, int] | None:
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
    if n < 2 * MIN_UNTRAINED_ROWS or not _is_untrained(rows[n - MIN_UNTRAINED_ROWS :]):
        return None
    high = bisect_left(
        range(n - MIN_UNTRAINED_ROWS), True, key=lambda start: _is_untrained(rows[start:])
    )
    if high < MIN_UNTRAINED_ROWS:
        return None
    # The rows just before: where a table drifts slowly, they look as these do.
    preceding = _standardise(rows[high - MIN_UNTRAINED_ROWS : high])
    if preceding is None or _neighbour_product(preceding) <= MIN_TRAINED_DEVIATION:
        return None
    return _locate_training_end(np.asarray(rows, dtype=np.float64), high)


def _locate_training_end(rows: Floats, first_untrained: int) -> tuple[int, int, int]:
    """Return the most likely end of the trained part, and the least and the most that it may be.

    The size of the trained part falls to zero along a straight line. Products of neighbouring rows
    have its square as their mean, in standard deviations of those of untrained rows.

    Parameters
    ----------
    rows
        ``[n, d]``.
    first_untrained
        Row from which on too little is trained to be seen in any one row.
    """
    n, d = rows.shape
    untrained_rows = rows[-max(MIN_UNTRAINED_ROWS, (n - first_untrained) // 2) :]
    first_end, last_end = (
        max(first_untrained - END_WINDOW_ROWS, 0),
        min(first_untrained + END_WINDOW_ROWS, n - MIN_UNTRAINED_ROWS // 2),
    )
    centred_rows = rows[first_end : last_end + 1] - untrained_rows.mean(axis=0)
    correlations = (centred_rows[:-1] * centred_rows[1:]).sum(axis=1) / (
        untrained_rows.var(axis=0, ddof=1).mean() * np.sqrt(d)
    )
    ends = np.arange(first_end + 1, last_end + 1)
    n_untrained = ends[:, None, None] - np.arange(first_end, last_end + 1)
    remaining_share = np.clip(n_untrained / FADE_OUT_ROWS[:, None], 0, 1)  # [ends, paces, rows]
    product = remaining_share[..., :-1] * remaining_share[..., 1:]
    cross_variance = (
        np.square(remaining_share[..., :-1]) + np.square(remaining_share[..., 1:])
    ) / np.sqrt(d)
    log_likelihoods = np.full(len(ends), -np.inf)
    for size in np.geomspace(1, 2 * max(correlations.max(), 2.0), N_TRAINED_SIZES):
        mean = size * product
        variance = 1 + size * cross_variance + np.square(TRAINED_SIZE_SPREAD * mean)
        log_likelihood = -0.5 * (np.log(variance) + np.square(correlations - mean) / variance).sum(
            axis=-1
        )
        log_likelihoods = np.maximum(log_likelihoods, log_likelihood.max(axis=1))
    plausible_ends = ends[log_likelihoods >= log_likelihoods.max() - MAX_LOG_LIKELIHOOD_LOSS]
    return int(ends[log_likelihoods.argmax()]), int(plausible_ends[0]), int(plausible_ends[-1])


def _is_untrained(rows: NDArray[np.floating[Any]]) -> bool:
    """Tell whether rows ``[n, d]`` look like independent Gaussian ones of one variance.

    The mean product of neighbours is 0, and the mean square of k numbers has a variance of 2 / k:
    along rows and along columns.
    """
    n, d = rows.shape
    values = _standardise(rows)
    if values is None or d < MIN_UNTRAINED_COLUMNS:
        return False
    spreads = [
        float(np.square(values).mean(axis=axis).var()) * count / 2
        for axis, count in ((1, d), (0, n))
    ]
    errors = [MAX_UNTRAINED_DEVIATION * np.sqrt(2 / size) for size in (n, d)]
    is_typical = all(
        1 - MAX_TRUNCATION_SHARE - error <= spread <= 1 + error
        for spread, error in zip(spreads, errors, strict=True)
    )
    return is_typical and abs(_neighbour_product(values)) <= MAX_UNTRAINED_DEVIATION


def _standardise(rows: NDArray[np.floating[Any]]) -> Floats | None:
    values = np.asarray(rows, dtype=np.float64)
    values = values - values.mean(axis=0)
    power = float(np.square(values).mean())
    return values / np.sqrt(power) if power > 0 else None


def _neighbour_product(values: Floats) -> float:
    """Return the mean product of neighbouring rows, in standard errors of independent ones.

    Centred on the mean of n rows, two of them have a product of -1 / (n - 1) for each column.
    """
    n, d = values.shape
    return float(((values[:-1] * values[1:]).sum() + d) / np.sqrt((n - 1) * d))
