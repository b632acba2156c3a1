"""Find changes of the length of steps, place changes at a row, and find untrained rows.

Stretches of a table that were trained on more or on fewer examples differ in the length of their
steps though no step between them is long. A single change of level is compared with a smooth trend
of the logarithm of the steps. It is a change only if it describes the steps better, and by more
than in resampled residuals of the trend (circular blocks, Politis & Romano 1992).

A change of level is found from up to 32 rows on each side, whose difference hardly falls a few rows
away from it. It is placed at the nearby row that explains the single rows best.

Rows that look as they were initialised (independent, Gaussian, of one variance) begin where
training saw no more positions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.limits import MIN_SIDE_ROWS, WINDOW_ROWS, robust_level
from posprobe.analyses.breaks.row_series import RowSeries
from posprobe.analyses.linear import offset_sums, robust_sd, slow_cosines
from posprobe.analyses.resampling import count_p_value
from posprobe.arrays import Floats

#: A change of norms is placed by single rows if both levels are this many robust deviations apart.
#: With a limit half way between them, a row is then on the wrong side once in six.
MIN_LEVEL_GAP = 2.0
#: The deviation of a level is at least this share of the difference of both levels. Equal values
#: would have a deviation of 0.
MIN_GAP_SHARE = 1e-3


def place_level_change(values: Floats, crossing: int, left_row: int) -> int:
    """Place a change of level, found after row ``left_row``, where single values change.

    The cost of a value is its negative log likelihood on its side of the change, of Laplace's
    distribution about the median.

    Parameters
    ----------
    values
        ``[n]`` or ``[n - 1]``, series in which the change was found.
    crossing
        Number of values that cross the change: 1 if values belong to pairs of rows, else 0.
    left_row
        Last row before the change, approximately.

    Returns
    -------
    int
        The last row before the change, at most `MIN_SIDE_ROWS` rows away.
    """
    levels = _levels_around(values, crossing, left_row)
    return _most_likely_row(values, crossing, left_row, *levels) if levels else left_row


def place_norm_change(series: RowSeries, left_row: int) -> int:
    """Place a change where rows abruptly change their distance from the mean row, if they do.

    The row is only changed in a table whose neighbours are not alike: a step belongs to two rows,
    which may be on either side of the change, and a norm belongs to one row.

    Parameters
    ----------
    series
        Row series of the table.
    left_row
        Last row before the change, found from steps.

    Returns
    -------
    int
        The last row before the change, at most `MIN_SIDE_ROWS` rows away.
    """
    norms = np.linalg.norm(series.rows, axis=1)
    levels = None if series.is_smooth else _levels_around(norms, 0, left_row)
    if levels is None:
        return left_row
    (before, left_spread), (after, right_spread) = levels
    difference = abs(after - before)
    row = _most_likely_row(norms, 0, left_row, *levels)
    is_abrupt = abs(norms[row + 1] - norms[row]) >= difference / 2
    has_clear_levels = difference > MIN_LEVEL_GAP * max(left_spread, right_spread)
    return row if is_abrupt and has_clear_levels else left_row


def _candidate_rows(n: int, left_row: int) -> NDArray[np.intp]:
    """Return the rows near ``left_row`` that are `MIN_SIDE_ROWS` rows away from both ends."""
    first_row = max(left_row - MIN_SIDE_ROWS, MIN_SIDE_ROWS - 1)
    last_row = max(min(left_row + MIN_SIDE_ROWS, n - MIN_SIDE_ROWS - 1), first_row)
    return np.arange(first_row, last_row + 1)


#: Median and robust deviation of one side.
_Level = tuple[float, float]


def _levels_around(
    values: Floats, crossing: int, left_row: int
) -> tuple[_Level, _Level] | None:
    """Return the levels before and after with their deviations; None if they are equal."""
    before = values[: left_row + 1 - crossing][-WINDOW_ROWS - MIN_SIDE_ROWS :]
    after = values[left_row + 1 :][: WINDOW_ROWS + MIN_SIDE_ROWS]
    # The change may be up to `MIN_SIDE_ROWS` rows away from where it was found.
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
    """Return the last row before a change that makes all values near it most likely."""
    candidates = _candidate_rows(len(values) + crossing, left_row)
    cost_before, cost_after = (
        np.nan_to_num(np.abs(values - level) / spread) + np.log(spread)
        for level, spread in (before, after)
    )
    # The pair that crosses belongs to the larger level, and costs nothing if it exceeds that level.
    larger_level, spread = max(before, after)
    shortfall = np.maximum(larger_level - values, 0.0)
    crossing_cost = np.nan_to_num(shortfall / spread) + np.log(spread)
    first_row = max(int(candidates[0]) - MIN_SIDE_ROWS, 0)
    stop = int(candidates[-1]) + MIN_SIDE_ROWS
    costs = [
        cost_before[first_row : row + 1 - crossing].sum()
        + crossing_cost[row : row + crossing].sum()
        + cost_after[row + 1 : stop].sum()
        for row in candidates.tolist()
    ]
    return int(candidates[np.argmin(costs)])


#: A change has at least this many steps on either side. The median of as many is known to a third
#: of their deviation.
MIN_SIDE_STEPS = 16
#: A smooth trend over the table is described by this many cosines, the constant among them: by two
#: waves along the table.
N_TREND_COSINES = 5
#: A change of level is described together with this many cosines, the constant and the slowest.
#: With the change and its place, both descriptions have four or five numbers.
N_LOCAL_COSINES = 2
#: With this many resampled tables the smallest p-value, 1 / 100, is below the level.
N_STEP_DRAWS = 99
#: A change is significant up to this p-value, as for every answer.
MAX_STEP_CHANGE_P = 0.02
#: The logarithm of the ratio of the misfits of a trend and of a change: a change explains at least
#: a tenth of the variance more. None of 240 trends, random walks and tables of noise is a change.
MIN_STEP_LOG_GAIN = 0.1
#: A change is at least this many robust standard deviations of the steps on one side, so that five
#: of six single steps are on the right side.
MIN_STEP_DEVIATIONS = 2.0
#: A change is at least this factor, however even the steps are.
MIN_STEP_RATIO = 1.2
#: The nearest steps on either side show at least this share of the change. Of a gradual change they
#: show less than half.
MIN_LOCAL_CHANGE_SHARE = 0.5
#: This many steps on either side are the nearest ones.
N_LOCAL_STEPS = 5
#: Single steps are clipped at this distance from the median, in robust standard deviations: the
#: customary bound of outliers (Iglewicz & Hoaglin 1993).
MAX_STEP_DEVIATIONS = 3.5


def find_step_changes(steps: Floats) -> list[tuple[int, float]]:
    """Find the rows at which steps change their length abruptly and for good.

    Parameters
    ----------
    steps
        ``[n - 1]``, distance of rows i and i + 1.

    Returns
    -------
    list
        First row after each change, and the factor by which the median step changes there.
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
        # Several changes can look like a trend, and a shorter range has fewer of them.
        for begin, end in ((start, stop), (start, stop - third), (start + third, stop)):
            change = _find_step_change(log_steps[begin:end])
            if change is None:
                continue
            index, ratio = change
            change_row = begin + index
            # A long step between short ones and long ones leads from one side to the other.
            changes.append((change_row + (ratio > 1), ratio))
            pending += [(start, change_row), (change_row, stop)]
            break
    return sorted(changes)


def _find_step_change(log_steps: Floats) -> tuple[int, float] | None:
    """Return the index of the best change and the ratio of the medians; None if it is no change."""
    n = len(log_steps)
    if n < 2 * MIN_SIDE_STEPS:
        return None
    median = np.median(log_steps)
    max_deviation = MAX_STEP_DEVIATIONS * robust_sd(log_steps)
    clipped = np.clip(log_steps, median - max_deviation, median + max_deviation)
    trend, local_cosines = (
        slow_cosines(n, N_TREND_COSINES),
        slow_cosines(n, N_LOCAL_COSINES),
    )
    gain, change_index = _fit_change(clipped, trend, local_cosines)
    before, after = log_steps[:change_index], log_steps[change_index:]
    left_median, right_median = np.median(before), np.median(after)
    deviations = np.abs(np.concatenate([before - left_median, after - right_median]))
    spread = robust_sd(deviations, 0.0)
    jump = float(right_median - left_median)
    min_jump = max(MIN_STEP_DEVIATIONS * spread, math.log(MIN_STEP_RATIO))
    if gain < MIN_STEP_LOG_GAIN or abs(jump) < min_jump:
        return None
    local_jump = float(
        np.median(after[:N_LOCAL_STEPS]) - np.median(before[-N_LOCAL_STEPS:])
    )
    if local_jump / jump < MIN_LOCAL_CHANGE_SHARE:
        return None
    fitted_trend = trend @ (trend.T @ clipped)
    residual = clipped - fitted_trend
    rng = np.random.default_rng(0)
    block_length = min(
        max(4, round(math.sqrt(n)), 4 * _correlation_length(residual)), n // 4
    )
    n_reached = 0
    for _ in range(N_STEP_DRAWS):
        starts = rng.integers(0, n, -(-n // block_length))
        resampled = (starts[:, None] + np.arange(block_length)).ravel()[:n] % n
        null_gain, _ = _fit_change(
            fitted_trend + residual[resampled], trend, local_cosines
        )
        n_reached += null_gain >= gain
    p_value = count_p_value(n_reached, N_STEP_DRAWS)
    return (change_index, math.exp(jump)) if p_value <= MAX_STEP_CHANGE_P else None


def _correlation_length(residual: Floats) -> int:
    """Return the smallest lag at which the autocorrelation is below 0.2."""
    power = max(float(residual @ residual), np.finfo(np.float64).tiny)
    correlations = offset_sums(residual[:, None]) / power
    return int(np.argmax(correlations < 0.2))


def _fit_change(
    log_steps: Floats, trend: Floats, local_cosines: Floats
) -> tuple[float, int]:
    """Return the log ratio of the misfits of a trend and of the best change, and its index."""
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


#: Fewer rows are not tested. Of 512 numbers or more a variance is known to a tenth.
MIN_UNTRAINED_ROWS = 32
#: Tables with fewer columns are not tested.
MIN_UNTRAINED_COLUMNS = 16
#: Each of three numbers may differ from that of independent Gaussian rows by this many standard
#: errors. Bisection, with some ten tests, then goes wrong in two of a thousand tables.
MAX_UNTRAINED_DEVIATION = 4.0
#: The mean product of neighbouring trained rows is above this many standard errors, which chance
#: never reaches.
MIN_TRAINED_DEVIATION = 6.0
#: Variances of squares may be lower by this share in addition, as those of numbers that were
#: truncated at two deviations are. Many initialisers do so.
MAX_TRUNCATION_SHARE = 0.5
#: Training ends within this many rows of the first row that looks untrained.
END_WINDOW_ROWS = 64
#: Training fades out over these numbers of rows: up to twice the window.
FADE_OUT_ROWS = np.geomspace(1, 2 * END_WINDOW_ROWS, 15)
#: This many sizes of the trained component are tried, a fifth apart.
N_TRAINED_SIZES = 24
#: The trained component varies from row to row by this share of its size.
TRAINED_SIZE_SPREAD = 0.5
#: The interval holds the ends whose log likelihood is within this of the best: 487 of 497 planted
#: ends, sharp and gradual.
MAX_LOG_LIKELIHOOD_LOSS = 6.0


def find_untrained_rows(rows: NDArray[np.floating[Any]]) -> tuple[int, int, int] | None:
    """Return the first row from which on all look untrained, after rows that do not.

    Parameters
    ----------
    rows
        ``[n, d]``, rows of the table.

    Returns
    -------
    tuple or None
        The row, and the first and last row that it may be.
    """
    n = len(rows)
    if n < 2 * MIN_UNTRAINED_ROWS or not _is_untrained(rows[n - MIN_UNTRAINED_ROWS :]):
        return None
    high = bisect_left(
        range(n - MIN_UNTRAINED_ROWS), True, key=lambda start: _is_untrained(rows[start:])
    )
    if high < MIN_UNTRAINED_ROWS:
        return None
    # In a table that drifts slowly, the rows just before do not look trained either.
    preceding = _standardise(rows[high - MIN_UNTRAINED_ROWS : high])
    if preceding is None or _neighbour_product(preceding) <= MIN_TRAINED_DEVIATION:
        return None
    return _locate_training_end(np.asarray(rows, dtype=np.float64), high)


def _locate_training_end(rows: Floats, first_untrained: int) -> tuple[int, int, int]:
    """Return the most likely end of training, and the first and last row that it may be.

    The size of the trained component falls to zero along a straight line. Products of neighbouring
    rows have its square as their mean, in standard deviations of those of untrained rows.

    Parameters
    ----------
    rows
        ``[n, d]``, rows of the table.
    first_untrained
        First row from which on the trained component is too small to be found in any one row.
    """
    n, d = rows.shape
    untrained_rows = rows[-max(MIN_UNTRAINED_ROWS, (n - first_untrained) // 2) :]
    first_end = max(first_untrained - END_WINDOW_ROWS, 0)
    last_end = min(first_untrained + END_WINDOW_ROWS, n - MIN_UNTRAINED_ROWS // 2)
    centred_rows = rows[first_end : last_end + 1] - untrained_rows.mean(axis=0)
    product_deviation = untrained_rows.var(axis=0, ddof=1).mean() * np.sqrt(d)
    correlations = (centred_rows[:-1] * centred_rows[1:]).sum(axis=1) / product_deviation
    ends = np.arange(first_end + 1, last_end + 1)
    rows_to_end = ends[:, None, None] - np.arange(first_end, last_end + 1)
    amplitude = np.clip(
        rows_to_end / FADE_OUT_ROWS[:, None], 0, 1
    )  # [ends, fade outs, rows]
    left_amplitude, right_amplitude = amplitude[..., :-1], amplitude[..., 1:]
    product = left_amplitude * right_amplitude
    cross_variance = (np.square(left_amplitude) + np.square(right_amplitude)) / np.sqrt(d)
    log_likelihoods = np.full(len(ends), -np.inf)
    for size in np.geomspace(1, 2 * max(correlations.max(), 2.0), N_TRAINED_SIZES):
        mean = size * product
        variance = 1 + size * cross_variance + np.square(TRAINED_SIZE_SPREAD * mean)
        deviance = np.log(variance) + np.square(correlations - mean) / variance
        log_likelihood = -0.5 * deviance.sum(axis=-1)
        log_likelihoods = np.maximum(log_likelihoods, log_likelihood.max(axis=1))
    plausible_ends = ends[
        log_likelihoods >= log_likelihoods.max() - MAX_LOG_LIKELIHOOD_LOSS
    ]
    return (
        int(ends[log_likelihoods.argmax()]),
        int(plausible_ends[0]),
        int(plausible_ends[-1]),
    )


def _is_untrained(rows: NDArray[np.floating[Any]]) -> bool:
    """Tell whether rows ``[n, d]`` look like independent Gaussian rows of one variance.

    For those the mean product of neighbours is 0, and the mean square of k numbers has a variance
    of 2 / k, along rows and along columns.
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
    """Return the mean product of neighbouring rows, in standard errors of independent rows.

    Two rows that are centred on the mean of n rows have a product of -1 / (n - 1) for each column.
    """
    n, d = values.shape
    return float(((values[:-1] * values[1:]).sum() + d) / np.sqrt((n - 1) * d))
