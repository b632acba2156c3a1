"""Find outlier rows, by values that exceed their neighbours and the tail of their distribution.

On a grid, find the patches that do not belong to the patches around them, and replace them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Cause
from posprobe.analyses.linear import SD_PER_MAD, robust_sd
from posprobe.arrays import Array, Floats
from posprobe.layouts import Grid

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
#: Norms of neighbouring rows differ from this ratio on: a random walk from 0 begins with 1.41.
MIN_NORM_RATIO = 1.5
#: The distance, 1 - cosine, of an outlier row from all others is this multiple of the typical one:
#: half as far again, as for norms.
MIN_DIRECTION_RATIO = 1.5


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


@dataclass(frozen=True)
class RowSeries:
    """The series of a table's rows from which seams and outlier rows are found.

    Parameters
    ----------
    norms
        ``[n]``, norms of the rows as stored.
    mean_cosines
        ``[n]``, mean cosine of each row as stored with all others; NaN for a row of zeros.
    steps
        ``[n - 1]``, distances of neighbouring rows.
    chords
        ``[n - 1]``, distances of neighbouring centred directions.
    units
        ``[n, d]``, centred rows of length 1.
    rows
        ``[n, d]``, centred rows.
    """

    norms: Floats
    mean_cosines: Floats
    steps: Floats
    chords: Floats
    units: Floats
    rows: Floats

    @cached_property
    def has_long_step(self) -> NDArray[np.bool_]:
        """Whether a step is improbable in the tail of all steps, ``[n - 1]``."""
        return is_beyond_tail(self.steps, typical_values(self.steps))

    @cached_property
    def is_smooth(self) -> bool:
        """Whether rows are nearer to their neighbours than to rows a little further away.

        Two lags are compared, because rotations bring rows back after a period.
        """
        rows = self.rows
        distances = [
            np.median(np.linalg.norm(rows[lag:] - rows[:-lag], axis=1))
            for lag in (3, MIN_SIDE_ROWS)
        ]
        return bool(np.median(self.steps) < max(distances) / 2**0.5)

    @property
    def can_change(self) -> NDArray[np.bool_]:
        """Whether a table may change between a row and the next, ``[n - 1]``.

        Where neighbours are alike, nothing changes without a step that is improbable in the tail of
        all steps. Where they are not, steps say nothing.
        """
        return self.has_long_step if self.is_smooth else np.ones_like(self.has_long_step)


class BreakRecord:
    """Causes of the seams, by their left row, and of the outlier rows."""

    def __init__(self) -> None:
        self.seam_causes: dict[int, Cause] = {}
        self.outlier_causes: dict[int, list[Cause]] = {}

    def add_seam(self, left_row: int, cause: Cause) -> None:
        """Add a seam unless one is close, because one change can be found in several ways."""
        if all(
            abs(left_row - other_row) >= MIN_SIDE_ROWS for other_row in self.seam_causes
        ):
            self.seam_causes[left_row] = cause

    def add_outlier(self, row: int, reason: str, *numbers: float) -> None:
        """Add a cause of an outlier row; numbers are infinite where the typical value is 0."""
        cause = Cause(reason, tuple(map(float, numbers)))
        if np.isinf(numbers).any():
            cause = Cause(
                "among_equal", subject="patches" if reason == "patch_far" else "rows"
            )
        self.outlier_causes.setdefault(row, []).append(cause)

    def add_stretch(self, stretch_breaks: BreakRecord, first_row: int) -> None:
        """Add the seams and outlier rows of a stretch that begins with row ``first_row``."""
        for left_row, cause in sorted(stretch_breaks.seam_causes.items()):
            self.add_seam(first_row + left_row, cause)
        for row, causes in stretch_breaks.outlier_causes.items():
            self.outlier_causes.setdefault(first_row + row, []).extend(causes)


def find_zero_rows(series: RowSeries) -> BreakRecord:
    """Return the rows of zeros as outlier rows."""
    breaks = BreakRecord()
    for row in np.flatnonzero(series.norms == 0).tolist():
        breaks.add_outlier(row, "zero")
    return breaks


def add_norm_outliers(series: RowSeries, breaks: BreakRecord) -> None:
    """Add rows whose norm is above, or below, both neighbours', or that of all rows to an end."""
    norms = series.norms
    n = len(norms)
    norm_steps = np.diff(norms)
    is_jump = np.maximum(norms[1:], norms[:-1]) > MIN_NORM_RATIO * np.minimum(
        norms[1:], norms[:-1]
    )
    for side in side_levels(np.abs(norm_steps)):
        # Changes of norms scatter about 0, so the median of their sizes is their deviation.
        limit = noise_limits(side.count, 2 * n) * SD_PER_MAD * side.median
        is_jump &= (np.abs(norm_steps) > limit) | (side.count < MIN_SIDE_ROWS)
    typical = typical_values(norms)
    is_far = np.maximum(norms, typical) > MIN_NORM_RATIO * np.minimum(norms, typical)
    is_extreme = is_beyond_tail(norms, typical) | is_beyond_tail(typical, norms)
    is_jump &= is_extreme[1:] | is_extreme[:-1]
    is_jump &= series.can_change
    changes_sign = norm_steps[:-1] * norm_steps[1:] < 0
    is_peak = is_jump[:-1] & is_jump[1:] & changes_sign
    peaks = {pair + 1 for pair in np.flatnonzero(is_peak).tolist()}
    outlier_rows = set(peaks)
    for pair in np.flatnonzero(is_jump).tolist():
        if {pair, pair + 1} & peaks:
            continue
        for end in (slice(0, pair + 1), slice(pair + 1, n)):
            if len(norms[end]) < MIN_SIDE_ROWS and is_far[end].all():
                outlier_rows.update(range(n)[end])
    for row in sorted(outlier_rows):
        breaks.add_outlier(row, "norm", norms[row], typical[row])


def add_direction_outliers(series: RowSeries, breaks: BreakRecord) -> None:
    """Add rows whose mean cosine with all others is lower than that of the rows around them."""
    mean_cosines, can_change = series.mean_cosines, series.can_change
    cosine_distances = 1 - mean_cosines
    typical = typical_values(cosine_distances)
    is_outlier = (
        exceeds_sides(cosine_distances)
        & is_beyond_tail(cosine_distances, typical, check_gaps=True)
        & (cosine_distances > MIN_DIRECTION_RATIO * typical)
    )
    row_can_change = np.append(can_change, False) | np.append(False, can_change)
    is_outlier &= row_can_change | _is_off_path(series.rows)
    for row in np.flatnonzero(is_outlier).tolist():
        breaks.add_outlier(row, "direction", mean_cosines[row], 1 - typical[row])


def _is_off_path(rows: Floats) -> NDArray[np.bool_]:
    """Tell which rows are further from the middle of two rows around them than these are apart.

    Long steps of a random walk lead away and not back, however heavy their tails.
    """
    is_off = np.zeros(len(rows), dtype=bool)
    for lag in (1, 2, 4):
        before, middle, after = rows[: -2 * lag], rows[lag:-lag], rows[2 * lag :]
        distances = np.linalg.norm(middle - (before + after) / 2, axis=1)
        is_off[lag:-lag] |= distances > np.linalg.norm(after - before, axis=1)
    # Rows near an end are compared with one side only.
    is_off[:MIN_SIDE_ROWS] = is_off[-MIN_SIDE_ROWS:] = False
    return is_off


#: An outlier among fewer patches cannot be recognised: a quarter of sixteen lie around each.
MIN_PATCHES = 16
#: A patch needs a neighbour on either side.
MIN_PATCHES_ALONG = 3
#: An outlier patch is this multiple of the typical distance from its neighbours. With the bounds
#: that follow, none of 240 tables of noise, heavy tails and smooth surfaces has one.
MIN_PATCH_RATIO = 2.0
#: That multiple over the largest of all patches that are no outliers is at least this.
MIN_PATCH_GAP = 1.5
#: The typical distance is that of this many patches on each side: of 48, most of a grid of 7 x 7.
NEIGHBOURHOOD_PATCHES = 3
#: Patches are equal below this share of the largest distance. Where most patches around one are
#: copies of each other, as in some resized tables, there is no typical distance.
MAX_EQUAL_DISTANCE_SHARE = 1e-9
#: At most this share of the patches are outliers, because a property of more is typical. Registers
#: of ViTs (Darcet et al. 2024) take a few in a hundred.
MAX_OUTLIER_SHARE = 1 / 12
#: The tail of the ratios leaves as wide a gap with this probability.
MAX_PATCH_GAP_P = 1e-3
#: The tail of the ratios is fitted to these quantiles.
PATCH_TAIL_QUANTILES = (0.5, 0.9)


def patch_refusal(grid: Grid, *, rows_equal: bool) -> str:
    """Return the reason why no outlier patches can be found, or an empty text."""
    if grid.size < MIN_PATCHES:
        return f"fewer than {MIN_PATCHES} patches"
    if min(grid.height, grid.width) < MIN_PATCHES_ALONG:
        return f"fewer than {MIN_PATCHES_ALONG} patches along a side"
    return "all patches are equal" if rows_equal else ""


def find_outlier_patches(series: RowSeries, grid: Grid) -> BreakRecord | None:
    """Find outlier patches; None if there is no typical distance of patches."""
    breaks = find_zero_rows(series)
    patch_ratios = outlier_patch_ratios(series.rows, grid.height, grid.width)
    for row, ratio in (patch_ratios or {}).items():
        breaks.add_outlier(row, "patch_far", ratio)
    return None if patch_ratios is None and not breaks.outlier_causes else breaks


def outlier_patch_ratios(
    values: Floats, height: int, width: int
) -> dict[int, float] | None:
    """Find the patches that are far from their neighbours.

    A patch's distance from its neighbours is the lower median of the distances from the two to four
    patches beside it, so that one outlier among them does not count. It is divided by the median of
    such distances in the square of `NEIGHBOURHOOD_PATCHES` patches on each side. Outliers are the
    patches above the lowest gap between the largest ratios that is too wide for their distribution:
    in a tail that falls like a power, the gaps between the largest logarithms are independent and
    exponential, the k-th of mean ``1 / k`` of the first's (Renyi 1953). The gap is at least
    `MIN_PATCH_GAP` wide, and the ratios above it are at least `MIN_PATCH_RATIO`. A patch that is
    far from outliers alone is none. Where patches are copies of those around them, the few that are
    not are outliers.

    Parameters
    ----------
    values
        ``[height * width, d]``, row by row.
    height, width
        Height and width of the grid, three or more.

    Returns
    -------
    dict
        Distance over the typical distance by row of the table; infinite if the other patches are
        copies. None if many patches are copies and many are not, so that no distance is typical.
    """
    distances = _neighbour_distances(values.reshape(height, width, -1))
    typical = _neighbourhood_medians(distances)
    max_equal_distance = MAX_EQUAL_DISTANCE_SHARE * distances.max()
    if (typical <= max_equal_distance).any():
        outlier_rows = np.flatnonzero(distances > max_equal_distance).tolist()
        if len(outlier_rows) > MAX_OUTLIER_SHARE * len(values):
            return None
        max_distances = dict.fromkeys(outlier_rows, max_equal_distance)
        return dict.fromkeys(_confirm_outliers(values, max_distances, width), np.inf)
    ratios = np.maximum(distances / typical, MAX_EQUAL_DISTANCE_SHARE).ravel()
    order = np.argsort(-ratios, kind="stable")
    log_ratios = np.log(ratios[order])
    max_outliers = max(1, int(MAX_OUTLIER_SHARE * len(ratios)))
    lower, upper = PATCH_TAIL_QUANTILES
    low, high = np.quantile(log_ratios, (lower, upper))
    scale = (high - low) / np.log((1 - lower) / (1 - upper))
    top_log_ratios = log_ratios[:max_outliers]
    gaps = top_log_ratios - log_ratios[1 : max_outliers + 1]
    scaled_gaps = np.arange(1, max_outliers + 1) * gaps
    is_wide = scaled_gaps > scale * np.log(max_outliers / MAX_PATCH_GAP_P)
    is_wide &= (gaps > np.log(MIN_PATCH_GAP)) & (top_log_ratios > np.log(MIN_PATCH_RATIO))
    n_outliers = int(np.flatnonzero(is_wide)[-1]) + 1 if is_wide.any() else 0
    threshold = max(MIN_PATCH_RATIO, MIN_PATCH_GAP * float(ratios[order[n_outliers]]))
    max_distances = {
        row: threshold * float(typical.flat[row])
        for row in sorted(order[:n_outliers].tolist())
    }
    return {
        row: float(ratios[row]) for row in _confirm_outliers(values, max_distances, width)
    }


def _confirm_outliers(
    values: Floats, max_distances: Mapping[int, float], width: int
) -> list[int]:
    """Return the outliers that are further than their limit from patches that are none, too.

    A corner has two adjacent patches, and would be an outlier if both are. Then the diagonal
    neighbours are compared, with a limit that is as much longer, and so they are wherever all
    adjacent patches are outliers.
    """
    height = len(values) // width

    def regular(patches: list[int]) -> list[int]:
        return [patch for patch in patches if patch not in max_distances]

    confirmed_rows = []
    for row, adjacent_limit in max_distances.items():
        max_distance = adjacent_limit
        neighbours = regular(_adjacent_patches(row, height, width))
        if not neighbours:
            neighbours = regular(_diagonal_patches(row, height, width))
            max_distance = adjacent_limit * 2**0.5
        distances = np.sort(np.linalg.norm(values[neighbours] - values[row], axis=1))
        if not neighbours or distances[(len(neighbours) - 1) // 2] > max_distance:
            confirmed_rows.append(row)
    return confirmed_rows


def _neighbour_distances(patches: Floats) -> Floats:
    """Return each patch's distance from its neighbours, ``[height, width]``."""
    # One row of the grid at a time, because a copy of a large table would not fit into memory.
    row_steps = [
        np.linalg.norm(lower - upper, axis=1) for upper, lower in pairwise(patches)
    ]
    column_steps = [np.linalg.norm(np.diff(row, axis=0), axis=1) for row in patches]
    by_direction = np.full((*patches.shape[:2], 4), np.inf)
    by_direction[1:, :, 0], by_direction[:-1, :, 1] = row_steps, row_steps
    by_direction[:, 1:, 2], by_direction[:, :-1, 3] = column_steps, column_steps
    by_direction.sort(axis=2)
    lower_median = (np.isfinite(by_direction).sum(axis=2) - 1) // 2
    return np.asarray(
        np.take_along_axis(by_direction, lower_median[:, :, None], axis=2)[:, :, 0]
    )


def _neighbourhood_medians(distances: Floats) -> Floats:
    """Return the median of the values around each patch, without its own."""
    side = 2 * NEIGHBOURHOOD_PATCHES + 1
    padded = np.pad(distances, NEIGHBOURHOOD_PATCHES, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side))
    neighbours = windows.reshape(*distances.shape, side**2).copy()
    neighbours[:, :, side**2 // 2] = np.nan
    return np.asarray(np.nanmedian(neighbours, axis=2))


def replace_patches(
    values: Array, rows: Sequence[int], height: int, width: int, xp: ModuleType
) -> Array:
    """Replace some patches by the mean of their neighbours.

    Parameters
    ----------
    values
        ``[height * width, d]``; NumPy or torch.
    rows
        Outlier rows of the table. Neighbours among them do not count, unless all are.
    height, width
        Height and width of the grid.
    xp
        The values' namespace.
    """
    filled = xp.asarray(values, copy=True)
    for row in rows:
        neighbours = _adjacent_patches(row, height, width)
        regular = [neighbour for neighbour in neighbours if neighbour not in rows]
        sources = regular or neighbours
        filled[row] = xp.mean(xp.stack([values[source] for source in sources]), axis=0)
    return filled


def _adjacent_patches(row: int, height: int, width: int) -> list[int]:
    return _patches_at_steps(row, ((-1, 0), (1, 0), (0, -1), (0, 1)), height, width)


def _diagonal_patches(row: int, height: int, width: int) -> list[int]:
    return _patches_at_steps(row, ((-1, -1), (-1, 1), (1, -1), (1, 1)), height, width)


def _patches_at_steps(
    row: int, steps: Sequence[tuple[int, int]], height: int, width: int
) -> list[int]:
    """Return the rows of the patches at these steps ``(rows, columns)`` that lie on the grid."""
    patch_row, patch_column = divmod(row, width)
    targets = (
        (patch_row + row_step, patch_column + column_step)
        for row_step, column_step in steps
    )
    return [y * width + x for y, x in targets if 0 <= y < height and 0 <= x < width]
