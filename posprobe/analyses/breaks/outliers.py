"""Values that stand out from their neighbours and from the tail of the whole, and odd rows.

On a grid: patches that do not belong to the patches around them, and a table with others in their
place.
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

#: Values on each side that a step, cosine or norm is compared with: many enough for a deviation,
#: and few beside the parts of a table.
WINDOW = 32
#: Fewest such values; nearer to an end, only the other side is compared. Of fewer a median absolute
#: deviation is off by half. A power of two.
MIN_SIDE = 8
#: Chance that Gaussian noise raises an alarm of one kind anywhere in a table. Low, as the tails of
#: real series are heavier.
FALSE_ALARM = 0.001
#: The same for a tail as heavy as the table's own, lower as its heaviness is estimated ...
TAIL_ALARM = 1e-4
#: ... from these quantiles, between the middle, which is no tail, and the last tenth, which special
#: rows may be ...
TAIL = (0.6, 0.9)
#: ... of the largest of so many neighbouring values: a special row is in two steps, and a few are
#: neighbours.
RUN = 4
#: Fewest such runs beyond the upper quantile: those of a short table's two ends must not set it.
TAIL_SAFETY_FACTOR = 3
#: Chance that a tail as heavy as the table's own leaves such a gap below its largest few values;
#: how many are looked at, and fewest runs of which the tail is known well enough.
GAP_ALARM = 1e-3
LARGEST = 3
GAP_RUNS = 24
#: Ratio to the usual value from which a departure matters at all: a quarter, which shows in a
#: figure.
EXCESS = 1.25
#: Independent values that a median absolute deviation makes of one: its efficiency on Gaussians
#: (Hampel 1974).
EFFICIENCY = 0.37
#: Ratio of the norms of neighbouring rows that matters: a random walk from 0 begins with 1.41.
NORM_RATIO = 1.5
#: Ratio to the usual of the distance, 1 - cosine, of a row from all others: half as far again, as
#: of norms.
MIN_DIRECTION_RATIO = 1.5


@dataclass(frozen=True)
class Side:
    """Level and robust deviation of the values before, or after, each value of a series."""

    median: Floats
    deviation: Floats
    count: NDArray[np.int64]


def stands_out(values: Floats) -> NDArray[np.bool_]:
    """Where values exceed what is usual on each side that has enough of them.

    Usual is the median of up to `WINDOW` values, exceeded by the factor `EXCESS` and by as many
    robust deviations as noise reaches anywhere with probability `FALSE_ALARM`.

    Parameters
    ----------
    values
        ``[n]``; NaN is never out.

    Returns
    -------
    ndarray
        ``[n]``.
    """
    result = np.isfinite(values)
    compared = np.zeros(len(values), dtype=bool)
    for side in sides(values):
        has_values = side.count >= MIN_SIDE
        with np.errstate(invalid="ignore"):
            exceeds = (
                values - side.median > deviations(side.count, len(values)) * side.deviation
            ) & (values > EXCESS * side.median)
        result &= exceeds | ~has_values
        compared |= has_values
    return result & compared


def beyond_tail(values: Floats, typical: Floats, *, gap: bool = False) -> NDArray[np.bool_]:
    """Where the ratio of two series is outside what its own distribution makes likely.

    Parameters
    ----------
    values, typical
        ``[n]``, not negative.
    gap
        Whether values are outside, too, that a wide gap parts from all others.

    Notes
    -----
    Of every `RUN` values the largest ratio is taken, since special rows are neighbours and would
    count more than once. Two quantiles of their logarithms, `TAIL`, set a tail that falls like a
    power of the ratio, whatever the largest tenth are. Of values with heavy tails some are always
    far out, and belong to the rest all the same. In such a tail the gaps between the largest
    logarithms are independent and exponential, the k-th of mean ``1 / k`` of the first's
    (Renyi 1953).
    """
    ratio, largest = _ratios(values, typical)
    if largest.size < 2:
        return np.ones(len(values), dtype=bool)
    tail = _tail(largest)
    limit = tail.beyond(TAIL_ALARM)
    if gap and largest.size >= GAP_RUNS:
        top = largest[: -LARGEST - 2 : -1]
        wide = np.flatnonzero(
            -np.diff(top) * np.arange(1, LARGEST + 1) > tail.scale * np.log(LARGEST / GAP_ALARM)
        )
        if wide.size:
            limit = min(limit, float(top[wide[-1] : wide[-1] + 2].mean()))
    return np.asarray((ratio > limit) | np.isposinf(ratio))


def largest_ratio(values: Floats, typical: Floats) -> tuple[float, tuple[float, float]] | None:
    """Return the largest ratio of two series, and what it is by chance in a tail like its own.

    Parameters
    ----------
    values, typical
        Values and typical values, as for `beyond_tail`.

    Returns
    -------
    tuple
        The ratio, and the 5th and 95th percentile of the largest of so many; None where ratios are
        too few, or one is infinite.
    """
    _, largest = _ratios(values, typical)
    if largest.size < GAP_RUNS or not typical[values > 0].all():
        return None
    tail = _tail(largest)
    # Runs beyond a limit are Poisson: none is with the probability exp(-expected).
    low, high = (math.exp(tail.beyond(-math.log(share))) for share in (0.05, 0.95))
    return math.exp(largest[-1]), (low, high)


@dataclass(frozen=True)
class _Tail:
    """A tail of logarithms that falls exponentially from ``start``, where ``upper`` runs lie."""

    start: float
    scale: float
    upper: float

    def beyond(self, expected: float) -> float:
        """Return the logarithm beyond which so many runs are expected."""
        return self.start + self.scale * math.log(max(self.upper / expected, 1.0))


def _tail(largest: Floats) -> _Tail:
    lower, upper = TAIL
    inner = max(min(upper, 1 - (TAIL_SAFETY_FACTOR + 0.5) / largest.size), lower + 0.1)
    start, *deep = np.quantile(largest, (lower, upper, inner))
    log_survival = np.log((1 - lower) / (1 - np.array([upper, inner])))
    scale = float(((np.array(deep) - start) / log_survival).min())
    return _Tail(float(start), scale, (1 - lower) * largest.size)


def _ratios(values: Floats, typical: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of the ratios, and in order the largest finite one of every `RUN`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(values) - np.log(typical)
    finite_ratio = np.where(np.isfinite(ratio), ratio, -np.inf)
    largest = np.maximum.reduceat(finite_ratio, np.arange(0, len(finite_ratio), RUN))
    return ratio, np.sort(largest[np.isfinite(largest)])


def usual_values(values: Floats) -> Floats:
    """Return the larger of the medians before and after, or the one that there is."""
    before, after = sides(values)
    return np.asarray(np.fmax(before.median, after.median))


def sides(values: Floats) -> tuple[Side, Side]:
    """Describe up to `WINDOW` values before and after each; NaN below `MIN_SIDE` of them."""
    padding = np.full(WINDOW, np.nan)
    padded = np.concatenate([padding, values, padding])
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)
    return _side(windows[: len(values)]), _side(windows[WINDOW + 1 :])


def _side(windows: Floats) -> Side:
    count = np.isfinite(windows).sum(axis=1)
    median = _quantiles(windows, count, 0.5)
    spread = SD_PER_MAD * _quantiles(np.abs(windows - median[:, None]), count, 0.5)
    # Where a few columns dominate, steps have a long tail upwards that the middle half hides.
    upwards = SD_PER_MAD * (_quantiles(windows, count, 0.75) - median)
    return Side(median, np.fmax(spread, upwards), count)


def _quantiles(windows: Floats, count: NDArray[np.int64], share: float) -> Floats:
    """Return a quantile of each row's ``count`` finite values; NaN below `MIN_SIDE` of them."""
    ordered = np.sort(windows, axis=1)  # NaN comes last
    row = np.arange(len(windows))
    place = np.maximum(count - 1, 0) * share
    low, high = np.floor(place).astype(int), np.ceil(place).astype(int)
    value = ordered[row, low] + (place - low) * (ordered[row, high] - ordered[row, low])
    return np.asarray(np.where(count >= MIN_SIDE, value, np.nan))


def level_of(values: Floats) -> tuple[float, float]:
    """Return median and robust standard deviation; NaN below `MIN_SIDE` values."""
    finite = values[np.isfinite(values)]
    if len(finite) < MIN_SIDE:
        return np.nan, np.nan
    median = np.median(finite)
    return float(median), robust_sd(finite)


def deviations(count: NDArray[np.integer[Any]], tests: int) -> Floats:
    """Deviations that noise exceeds in any of so many tests with probability `FALSE_ALARM`."""
    from scipy.special import stdtrit

    limits = -stdtrit(EFFICIENCY * np.maximum(count, 1), FALSE_ALARM / tests)
    return np.asarray(limits, dtype=np.float64)


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
        long_steps = [
            np.median(np.linalg.norm(rows[k:] - rows[:-k], axis=1)) for k in (3, MIN_SIDE)
        ]
        return bool(np.median(self.steps) < max(long_steps) / 2**0.5)

    @property
    def may_change(self) -> NDArray[np.bool_]:
        """``[n - 1]``: whether one row can differ from the next without being a mere long step.

        Where neighbours are alike, nothing changes without a step: one of a few long steps, as
        heavy tails have them, is no change. Where they are not, steps say nothing.
        """
        return self.torn if self.smooth else np.ones_like(self.torn)


class BreakRecord:
    """Seams by their left row, and special rows, with their causes."""

    def __init__(self) -> None:
        self.between: dict[int, Cause] = {}
        self.special: dict[int, list[Cause]] = {}

    def seam(self, left_row: int, cause: Cause) -> None:
        """Add a seam unless there is one close by: a change is seen in more than one way."""
        if all(abs(left_row - known_left) >= MIN_SIDE for known_left in self.between):
            self.between[left_row] = cause

    def row(self, row: int, kind: str, *numbers: float) -> None:
        """Add a cause for which a row is special; numbers are infinite where the usual is 0."""
        cause = Cause(kind, tuple(map(float, numbers)))
        if np.isinf(numbers).any():
            cause = Cause("among_equal", of="patches" if kind == "patch_far" else "rows")
        self.special.setdefault(row, []).append(cause)

    def add(self, part: BreakRecord, offset: int) -> None:
        """Add what was found in a part that begins with row ``offset``."""
        for left_row, cause in sorted(part.between.items()):
            self.seam(offset + left_row, cause)
        for row, causes in part.special.items():
            self.special.setdefault(offset + row, []).extend(causes)


def zero_rows(series: Series) -> BreakRecord:
    """Return the rows of zeros as special."""
    breaks = BreakRecord()
    for row in np.flatnonzero(series.norms == 0).tolist():
        breaks.row(row, "zero")
    return breaks


def odd_norms(series: Series, breaks: BreakRecord) -> None:
    """Look for norms that depart from both neighbours' to the same side, or up to an end."""
    norms = series.norms
    n = len(norms)
    change = np.diff(norms)
    jumps = np.maximum(norms[1:], norms[:-1]) > NORM_RATIO * np.minimum(norms[1:], norms[:-1])
    for side in sides(np.abs(change)):
        # Changes scatter about 0, so the median of their sizes is their deviation already.
        limit = deviations(side.count, 2 * n) * SD_PER_MAD * side.median
        jumps &= (np.abs(change) > limit) | (side.count < MIN_SIDE)
    typical = usual_values(norms)
    is_far = np.maximum(norms, typical) > NORM_RATIO * np.minimum(norms, typical)
    odd_norm = beyond_tail(norms, typical) | beyond_tail(typical, norms)
    jumps &= odd_norm[1:] | odd_norm[:-1]
    jumps &= series.may_change
    turning = change[:-1] * change[1:] < 0
    peaks = {pair + 1 for pair in np.flatnonzero(jumps[:-1] & jumps[1:] & turning).tolist()}
    odd = set(peaks)
    for pair in np.flatnonzero(jumps).tolist():
        if {pair, pair + 1} & peaks:
            continue
        for end in (slice(0, pair + 1), slice(pair + 1, n)):
            if len(norms[end]) < MIN_SIDE and is_far[end].all():
                odd.update(range(n)[end])
    for row in sorted(odd):
        breaks.row(row, "norm", norms[row], typical[row])


def odd_directions(series: Series, breaks: BreakRecord) -> None:
    """Look for rows that are less like all the others than the rows around them are."""
    likeness, may_change = series.likeness, series.may_change
    angle_distance = 1 - likeness
    typical = usual_values(angle_distance)
    odd = (
        stands_out(angle_distance)
        & beyond_tail(angle_distance, typical, gap=True)
        & (angle_distance > MIN_DIRECTION_RATIO * typical)
    )
    odd &= np.append(may_change, False) | np.append(False, may_change) | _off_the_path(series.rows)
    for row in np.flatnonzero(odd).tolist():
        breaks.row(row, "direction", likeness[row], 1 - typical[row])


def _off_the_path(rows: Floats) -> NDArray[np.bool_]:
    """Where a row is further from the middle of two rows around it than these are apart.

    Long steps of a walk lead away and not back, however heavy their tails.
    """
    is_off = np.zeros(len(rows), dtype=bool)
    for reach in (1, 2, 4):
        before, row, after = rows[: -2 * reach], rows[reach:-reach], rows[2 * reach :]
        distance = np.linalg.norm(row - (before + after) / 2, axis=1)
        is_off[reach:-reach] |= distance > np.linalg.norm(after - before, axis=1)
    is_off[:MIN_SIDE] = is_off[-MIN_SIDE:] = False  # compared with one side only
    return is_off


#: Fewest patches, and patches along a side, among which one can be told to be unlike the others:
#: with a patch on either side, and a quarter of sixteen around each.
MIN_PATCHES = 16
MIN_PATCHES_ALONG = 3
#: Ratio of a patch's distance from its neighbours to what is usual around it from which it matters:
#: of 240 tables of noise, heavy tails and smooth surfaces none has one, with the bounds that
#: follow.
MIN_PATCH_RATIO = 2.0
#: The same ratio to the largest of all patches that are not special.
MIN_PATCH_GAP = 1.5
#: Patches on each side of one that say what is usual there: 48, most of a grid of 7 x 7.
PATCH_NEIGHBOURHOOD = 3
#: Share of the largest distance below which patches are equal. Where most around one are copies of
#: each other, as those of some resized tables are, no distance is usual.
EQUAL = 1e-9
#: Largest share of patches that are special: what more of them have is usual. A register of ViTs
#: (Darcet et al. 2024) takes a few in a hundred.
MAX_OUTLIER_SHARE = 1 / 12
#: Chance that the tail of such ratios leaves so wide a gap, and the quantiles that set the tail.
PATCH_ALARM = 1e-3
PATCH_TAIL = (0.5, 0.9)


def no_special_patches(grid: Grid, *, equal: bool) -> str:
    """Return the reason why no special patches are looked for, or nothing; ``equal`` if all are."""
    if grid.size < MIN_PATCHES:
        return f"fewer than {MIN_PATCHES} patches"
    if min(grid.height, grid.width) < MIN_PATCHES_ALONG:
        return f"fewer than {MIN_PATCHES_ALONG} patches along a side"
    return "all patches are equal" if equal else ""


def special_patches(series: Series, grid: Grid) -> BreakRecord | None:
    """Find special patches; None where nothing is usual."""
    breaks = zero_rows(series)
    odd = odd_patches(series.rows, grid.height, grid.width)
    for row, times in (odd or {}).items():
        breaks.row(row, "patch_far", times)
    return None if odd is None and not breaks.special else breaks


def odd_patches(values: Floats, height: int, width: int) -> dict[int, float] | None:
    """Find the patches that are far from their neighbours.

    A patch's distance from its neighbours is the lower median of those from the two to four patches
    beside it, so that one odd neighbour does not count. What matters is its ratio to the median of
    such distances in the square of `PATCH_NEIGHBOURHOOD` patches on each side. Special are the
    patches above the lowest gap between the largest ratios that is too wide for their distribution:
    in a tail that falls like a power, the gaps between the largest logarithms are independent and
    exponential, the k-th of mean ``1 / k`` of the first's (Renyi 1953). It is at least
    `MIN_PATCH_GAP` wide, and what lies above it at least `MIN_PATCH_RATIO`. A patch that is far
    from special ones alone is not special. Where patches are copies of those around them, the few
    that are not are special.

    Parameters
    ----------
    values
        ``[height * width, d]``, row by row.
    height, width
        Height and width of the grid, three or more.

    Returns
    -------
    dict
        By row of the table, how many times the usual distance; infinite where the others are
        copies. None where so many are copies, and so many are not, that nothing is usual.
    """
    distance = _distance(values.reshape(height, width, -1))
    typical, equal = _around(distance), EQUAL * distance.max()
    if (typical <= equal).any():
        odd = np.flatnonzero(distance > equal).tolist()
        limit = dict.fromkeys(odd, equal)
        are_few = len(odd) <= MAX_OUTLIER_SHARE * len(values)
        return dict.fromkeys(_without_odd_beside(values, limit, width), np.inf) if are_few else None
    ratio = np.maximum(distance / typical, EQUAL).ravel()
    order = np.argsort(-ratio, kind="stable")
    logs = np.log(ratio[order])
    max_outliers = max(1, int(MAX_OUTLIER_SHARE * len(ratio)))
    low, high = np.quantile(logs, PATCH_TAIL)
    scale = (high - low) / np.log((1 - PATCH_TAIL[0]) / (1 - PATCH_TAIL[1]))
    gaps = logs[:max_outliers] - logs[1 : max_outliers + 1]
    wide = np.arange(1, max_outliers + 1) * gaps > scale * np.log(max_outliers / PATCH_ALARM)
    wide &= (gaps > np.log(MIN_PATCH_GAP)) & (logs[:max_outliers] > np.log(MIN_PATCH_RATIO))
    count = int(np.flatnonzero(wide)[-1]) + 1 if wide.any() else 0
    threshold = max(MIN_PATCH_RATIO, MIN_PATCH_GAP * float(ratio[order[count]]))
    limit = {row: threshold * float(typical.flat[row]) for row in sorted(order[:count].tolist())}
    return {row: float(ratio[row]) for row in _without_odd_beside(values, limit, width)}


def _without_odd_beside(values: Floats, limit: Mapping[int, float], width: int) -> list[int]:
    """Return those of the odd patches that are further than a limit from patches not odd, too.

    A corner has two patches beside it: where both are odd, it would be as well. Its neighbour
    across the corner tells, as far as its distance is longer, and so do others where most beside a
    patch are odd.
    """
    height = len(values) // width
    kept_rows = []
    for row, patch_limit in limit.items():
        own_limit, neighbours = (
            patch_limit,
            [place for place in _beside(row, height, width) if place not in limit],
        )
        if not neighbours:
            neighbours = [place for place in _across(row, height, width) if place not in limit]
            own_limit = patch_limit * 2**0.5
        distances = np.sort(np.linalg.norm(values[neighbours] - values[row], axis=1))
        if not neighbours or distances[(len(neighbours) - 1) // 2] > own_limit:
            kept_rows.append(row)
    return kept_rows


def _distance(patches: Floats) -> Floats:
    """Return each patch's distance from its neighbours: ``[height, width]``."""
    # Row by row, since a second copy of a large table would not fit beside it.
    down = [np.linalg.norm(lower - upper, axis=1) for upper, lower in pairwise(patches)]
    column_steps = [np.linalg.norm(np.diff(row, axis=0), axis=1) for row in patches]
    by_direction = np.full((*patches.shape[:2], 4), np.inf)
    by_direction[1:, :, 0], by_direction[:-1, :, 1] = down, down
    by_direction[:, 1:, 2], by_direction[:, :-1, 3] = column_steps, column_steps
    by_direction.sort(axis=2)
    lower = (np.isfinite(by_direction).sum(axis=2) - 1) // 2
    return np.asarray(np.take_along_axis(by_direction, lower[:, :, None], axis=2)[:, :, 0])


def _around(distance: Floats) -> Floats:
    """Return the median of the values around each, without its own."""
    side = 2 * PATCH_NEIGHBOURHOOD + 1
    padded = np.pad(distance, PATCH_NEIGHBOURHOOD, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side))
    neighbours = windows.reshape(*distance.shape, side**2).copy()
    neighbours[:, :, side**2 // 2] = np.nan
    return np.asarray(np.nanmedian(neighbours, axis=2))


def without(values: Array, rows: Sequence[int], height: int, width: int, xp: ModuleType) -> Array:
    """Put the mean of the neighbours in the place of some patches.

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
        neighbours = _beside(row, height, width)
        replacements = [place for place in neighbours if place not in rows] or neighbours
        filled[row] = xp.mean(xp.stack([values[place] for place in replacements]), axis=0)
    return filled


def _beside(row: int, height: int, width: int) -> list[int]:
    return _at(row, ((-1, 0), (1, 0), (0, -1), (0, 1)), height, width)


def _across(row: int, height: int, width: int) -> list[int]:
    return _at(row, ((-1, -1), (-1, 1), (1, -1), (1, 1)), height, width)


def _at(row: int, moves: Sequence[tuple[int, int]], height: int, width: int) -> list[int]:
    y, x = divmod(row, width)
    places = ((y + row_step, x + column_step) for row_step, column_step in moves)
    return [a * width + b for a, b in places if 0 <= a < height and 0 <= b < width]
