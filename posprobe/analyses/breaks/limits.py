"""Limits of neighbouring values, and of the tail of all, that an outlier or a break exceeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.linear import SD_PER_MAD, robust_sd
from posprobe.arrays import Floats

#: A step, cosine or norm is compared with up to this many values on each side. They are enough for
#: a deviation, and few beside the stretches of a table.
WINDOW_ROWS = 32
#: A side with fewer values is not compared, because a median absolute deviation of fewer is off by
#: half. A power of two.
MIN_SIDE_ROWS = 8
#: Gaussian noise exceeds a limit anywhere in a table with this probability. It is low because the
#: tails of real series are heavier.
MAX_FALSE_ALARM_P = 0.001
#: A tail as heavy as that of the table exceeds a limit with this probability. It is lower because
#: the weight of the tail is estimated.
MAX_TAIL_P = 1e-4
#: The tail is fitted to these quantiles. They lie between the middle of the distribution, which is
#: no tail, and its last tenth, which may be outlier rows.
TAIL_QUANTILES = (0.6, 0.9)
#: The tail describes the largest of this many neighbouring values, because an outlier row makes two
#: long steps, and a few outlier rows are neighbours.
TAIL_RUN_VALUES = 4
#: At least this many runs lie beyond the upper quantile: the two ends of a short table alone must
#: not set it.
MIN_RUNS_BEYOND_TAIL = 3
#: A tail as heavy as that of the table has a wide gap among its largest values with this
#: probability.
MAX_GAP_P = 1e-3
#: Gaps are tested below this many of the largest values.
N_LARGEST_GAPS = 3
#: Gaps are tested if there are at least this many runs, so that the tail is well known.
MIN_GAP_RUNS = 24
#: A value must exceed the typical one by this factor: by a quarter, which is visible in a figure.
MIN_EXCESS_RATIO = 1.25
#: A median absolute deviation uses this share of independent values: its efficiency on Gaussians
#: (Hampel 1974).
MAD_EFFICIENCY = 0.37


@dataclass(frozen=True)
class SideLevels:
    """Median, robust deviation and number of the values on one side of each value of a series."""

    median: Floats
    deviation: Floats
    count: NDArray[np.int64]


def exceeds_sides(values: Floats) -> NDArray[np.bool_]:
    """Tell which values exceed the median of each side that has enough values.

    The median of up to `WINDOW_ROWS` values must be exceeded by the factor `MIN_EXCESS_RATIO`, and
    by as many robust deviations as noise reaches anywhere with probability `MAX_FALSE_ALARM_P`.

    Parameters
    ----------
    values
        ``[n]``; NaN never exceeds.

    Returns
    -------
    ndarray
        ``[n]``, whether a value exceeds both sides.
    """
    exceeds_all = np.isfinite(values)
    is_compared = np.zeros(len(values), dtype=bool)
    for side in side_levels(values):
        has_values = side.count >= MIN_SIDE_ROWS
        with np.errstate(invalid="ignore"):
            limits = noise_limits(side.count, len(values)) * side.deviation
            exceeds = (values - side.median > limits) & (
                values > MIN_EXCESS_RATIO * side.median
            )
        exceeds_all &= exceeds | ~has_values
        is_compared |= has_values
    return exceeds_all & is_compared


def is_beyond_tail(
    values: Floats, typical: Floats, *, check_gaps: bool = False
) -> NDArray[np.bool_]:
    """Tell which ratios of two series are improbable in the tail of their own distribution.

    Parameters
    ----------
    values, typical
        ``[n]``, not negative.
    check_gaps
        Whether to include values that a wide gap separates from all others.

    Notes
    -----
    The largest ratio of every `TAIL_RUN_VALUES` values is taken, because outlier rows are
    neighbours and would count more than once. Two quantiles of their logarithms, `TAIL_QUANTILES`,
    set a tail that falls like a power of the ratio, whatever the largest tenth are. Of values with
    heavy tails some are always extreme without being outliers. In such a tail the gaps between the
    largest logarithms are independent and exponential, the k-th of mean ``1 / k`` of the first's
    (Renyi 1953).
    """
    log_ratios, largest_log_ratios = _log_ratios(values, typical)
    if largest_log_ratios.size < 2:
        return np.ones(len(values), dtype=bool)
    tail = _fit_tail(largest_log_ratios)
    log_limit = tail.log_limit(MAX_TAIL_P)
    if check_gaps and largest_log_ratios.size >= MIN_GAP_RUNS:
        top_log_ratios = largest_log_ratios[: -N_LARGEST_GAPS - 2 : -1]
        scaled_gaps = -np.diff(top_log_ratios) * np.arange(1, N_LARGEST_GAPS + 1)
        min_gap = tail.scale * np.log(N_LARGEST_GAPS / MAX_GAP_P)
        wide_gaps = np.flatnonzero(scaled_gaps > min_gap)
        if wide_gaps.size:
            lowest_gap = wide_gaps[-1]
            gap_middle = float(top_log_ratios[lowest_gap : lowest_gap + 2].mean())
            log_limit = min(log_limit, gap_middle)
    return np.asarray((log_ratios > log_limit) | np.isposinf(log_ratios))


def largest_ratio(
    values: Floats, typical: Floats
) -> tuple[float, tuple[float, float]] | None:
    """Return the largest ratio of two series, and its range by chance in a tail like its own.

    Parameters
    ----------
    values, typical
        Values and typical values, as for `is_beyond_tail`.

    Returns
    -------
    tuple
        The ratio, and the 5th and 95th percentile of the largest of as many; None if ratios are
        too few, or one is infinite.
    """
    _, largest_log_ratios = _log_ratios(values, typical)
    if largest_log_ratios.size < MIN_GAP_RUNS or not typical[values > 0].all():
        return None
    tail = _fit_tail(largest_log_ratios)
    # The number of runs beyond a limit has a Poisson distribution: it is 0 with the probability
    # exp(-expected).
    low, high = (
        math.exp(tail.log_limit(-math.log(probability))) for probability in (0.05, 0.95)
    )
    return math.exp(largest_log_ratios[-1]), (low, high)


@dataclass(frozen=True)
class _Tail:
    """A tail of logarithms that falls exponentially from ``start``, with ``n_runs`` beyond it."""

    start: float
    scale: float
    n_runs: float

    def log_limit(self, expected: float) -> float:
        """Return the logarithm beyond which this number of runs is expected."""
        return self.start + self.scale * math.log(max(self.n_runs / expected, 1.0))


def _fit_tail(largest_log_ratios: Floats) -> _Tail:
    """Fit an exponential tail to the quantiles of the largest logarithms."""
    lower, upper = TAIL_QUANTILES
    inner_upper = max(
        min(upper, 1 - (MIN_RUNS_BEYOND_TAIL + 0.5) / largest_log_ratios.size),
        lower + 0.1,
    )
    start, *upper_values = np.quantile(largest_log_ratios, (lower, upper, inner_upper))
    log_survival = np.log((1 - lower) / (1 - np.array([upper, inner_upper])))
    scale = float(((np.array(upper_values) - start) / log_survival).min())
    return _Tail(float(start), scale, (1 - lower) * largest_log_ratios.size)


def _log_ratios(values: Floats, typical: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of the ratios, and the largest finite one of each run, sorted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratios = np.log(values) - np.log(typical)
    finite_log_ratios = np.where(np.isfinite(log_ratios), log_ratios, -np.inf)
    run_starts = np.arange(0, len(log_ratios), TAIL_RUN_VALUES)
    largest_log_ratios = np.maximum.reduceat(finite_log_ratios, run_starts)
    return log_ratios, np.sort(largest_log_ratios[np.isfinite(largest_log_ratios)])


def typical_values(values: Floats) -> Floats:
    """Return the larger of the medians before and after, or the one that is defined."""
    before, after = side_levels(values)
    return np.asarray(np.fmax(before.median, after.median))


def side_levels(values: Floats) -> tuple[SideLevels, SideLevels]:
    """Describe up to `WINDOW_ROWS` values before and after each; NaN below `MIN_SIDE_ROWS`."""
    padding = np.full(WINDOW_ROWS, np.nan)
    padded = np.concatenate([padding, values, padding])
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW_ROWS)
    return _window_levels(windows[: len(values)]), _window_levels(
        windows[WINDOW_ROWS + 1 :]
    )


def _window_levels(windows: Floats) -> SideLevels:
    count = np.isfinite(windows).sum(axis=1)
    median = _quantiles(windows, count, 0.5)
    spread = SD_PER_MAD * _quantiles(np.abs(windows - median[:, None]), count, 0.5)
    # Where a few columns dominate, steps have a long upper tail that the middle half hides.
    upper_spread = SD_PER_MAD * (_quantiles(windows, count, 0.75) - median)
    return SideLevels(median, np.fmax(spread, upper_spread), count)


def _quantiles(windows: Floats, count: NDArray[np.int64], probability: float) -> Floats:
    """Return a quantile of each row's ``count`` finite values; NaN below `MIN_SIDE_ROWS`."""
    sorted_windows = np.sort(windows, axis=1)  # NaN comes last
    row = np.arange(len(windows))
    rank = np.maximum(count - 1, 0) * probability
    low_rank, high_rank = np.floor(rank).astype(int), np.ceil(rank).astype(int)
    low, high = sorted_windows[row, low_rank], sorted_windows[row, high_rank]
    quantiles = low + (rank - low_rank) * (high - low)
    return np.asarray(np.where(count >= MIN_SIDE_ROWS, quantiles, np.nan))


def robust_level(values: Floats) -> tuple[float, float]:
    """Return median and robust standard deviation; NaN below `MIN_SIDE_ROWS` values."""
    finite_values = values[np.isfinite(values)]
    if len(finite_values) < MIN_SIDE_ROWS:
        return np.nan, np.nan
    median = np.median(finite_values)
    return float(median), robust_sd(finite_values)


def noise_limits(counts: NDArray[np.integer[Any]], n_tests: int) -> Floats:
    """Return the deviations that noise exceeds in any test with probability `MAX_FALSE_ALARM_P`.

    They are quantiles of Student's distribution, because a deviation is estimated from few values.
    """
    from scipy.special import stdtrit

    limits = -stdtrit(MAD_EFFICIENCY * np.maximum(counts, 1), MAX_FALSE_ALARM_P / n_tests)
    return np.asarray(limits, dtype=np.float64)
