"""Find the rows at which the level of a table changes: its mean row, abruptly and for good.

A change of level is sought as the largest distance between the mean of some rows and that of as
many rows after them. It is a change if tables of the same process without it hardly ever have one
as large. The draws have the powers of the table after the change is taken out, so that random walks
and smooth curves, whose means differ as well, set their own limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.limits import MIN_SIDE_ROWS
from posprobe.analyses.breaks.row_series import RowSeries
from posprobe.analyses.extremes import gumbel_p
from posprobe.analyses.linear import leading_coordinates
from posprobe.arrays import Floats

#: Rows of which means are compared, on either side. Means of 8 rows are too few: one row of a
#: heavy-tailed process decides them. A shift by one standard deviation of the noise in each of 32
#: columns is found by means of 16 in 20 of 20 tables of 64 rows.
MEAN_WIDTHS = (16, 32)
#: A table has at least three times the rows of a mean, so that most of its means are far from the
#: change.
MIN_WIDTHS_PER_TABLE = 3
#: Smallest share of the variance of the rows that a change of level explains.
MIN_LEVEL_SHARE = 0.02
#: Smallest ratio of the distance to the typical one. Smaller ones are not tested, which saves most
#: tables the draws.
MIN_DISTANCE_RATIO = 1.5
#: Smallest share of the change that the means of `MIN_SIDE_ROWS` rows have: the rest of a table
#: that changes gradually is a slope.
MIN_ABRUPT_SHARE = 0.5
#: The process without a change has one as large with at most this probability, anywhere in a table.
#: At this level, 2 of 981 tables of processes without a change were given one.
MAX_LEVEL_CHANGE_P = 0.005
#: Draws of the process without a change; their largest distances follow Gumbel's law.
N_LEVEL_DRAWS = 49
#: Directions of the columns in which draws are made, the leading ones: a bound of their cost.
MAX_DRAWN_DIRECTIONS = 64
#: Rows around a change whose powers the draws have. Longer tables have as many more chances.
MAX_DRAWN_ROWS = 2048


@dataclass(frozen=True)
class LevelChange:
    """A change of the mean row.

    Parameters
    ----------
    left_row
        Last row before the change.
    width
        Rows of each mean.
    distance, typical_distance
        Distance of the means on both sides, and the median of such distances in the table.
    """

    left_row: int
    width: int
    distance: float
    typical_distance: float


def find_level_changes(
    series: RowSeries, outlier_rows: set[int], left_rows: set[int]
) -> list[LevelChange]:
    """Find the changes of level between the seams that are known.

    Parameters
    ----------
    series
        Series of the rows.
    outlier_rows
        Outlier rows, which no mean includes.
    left_rows
        Left row of each seam that is known.
    """
    n = len(series.rows)
    regular_rows = np.array(
        [row for row in range(n) if row not in outlier_rows], dtype=int
    )
    unit = float(np.abs(series.rows).max(initial=0.0)) or 1.0
    rows = series.rows[regular_rows] / unit
    changes = []
    edges = [0, *sorted(left_row + 1 for left_row in left_rows), n]
    stretches = list(pairwise(np.searchsorted(regular_rows, edges).tolist()))
    while stretches:
        start, stop = stretches.pop()
        change = _find_level_change(rows[start:stop])
        if change is None:
            continue
        right = start + change.left_row + 1
        # Beside an outlier row the change is after it, as the last row of a block is the odd one.
        left_row = int(regular_rows[right]) - 1
        if series.can_change[left_row]:
            distances = unit * change.distance, unit * change.typical_distance
            changes.append(LevelChange(left_row, change.width, *distances))
        stretches += [(start, right), (right, stop)]
    return changes


def _find_level_change(rows: Floats) -> LevelChange | None:
    """Return the most certain change of level in rows ``[m, d]``, if any."""
    rows = rows - rows.mean(axis=0)
    widths = [w for w in MEAN_WIDTHS if len(rows) >= MIN_WIDTHS_PER_TABLE * w]
    changes = [
        change for width in widths if (change := _largest_change(rows, width)) is not None
    ]
    if not changes:
        return None
    change = max(changes, key=lambda change: change.distance**2 * change.width)
    middle = min(max(change.left_row, MAX_DRAWN_ROWS // 2), len(rows))
    first = max(middle - MAX_DRAWN_ROWS // 2, 0)
    near_rows = rows[first : first + MAX_DRAWN_ROWS]
    p = _chance_of_change(near_rows, change.left_row - first, change.width)
    return change if p * len(rows) / len(near_rows) <= MAX_LEVEL_CHANGE_P else None


def _largest_change(rows: Floats, width: int) -> LevelChange | None:
    """Return the largest change between means of so many rows, if it is abrupt."""
    even_distances = _even_distances(rows, width)
    largest = int(np.argmax(even_distances))
    jumps = _mean_differences(rows, width)
    distances = np.linalg.norm(jumps, axis=1)
    distance = float(distances[largest])
    left_row = largest + width - 1
    n_before, n = left_row + 1, len(rows)
    explained = distance**2 * n_before * (n - n_before) / n
    near_rows = rows[n_before - MIN_SIDE_ROWS : n_before + MIN_SIDE_ROWS]
    near_jump = _mean_differences(near_rows, MIN_SIDE_ROWS)[0]
    is_abrupt = near_jump @ jumps[largest] >= MIN_ABRUPT_SHARE * distance**2
    is_large = explained >= MIN_LEVEL_SHARE * np.square(rows).sum()
    ratio = even_distances[largest] / max(np.median(even_distances), 1e-300)
    if not (is_abrupt and is_large and ratio > MIN_DISTANCE_RATIO):
        return None
    return LevelChange(left_row, width, distance, float(np.median(distances)))


def _chance_of_change(rows: Floats, left_row: int, width: int) -> float:
    """Return the probability that the process without a change has one as large anywhere."""
    points = leading_coordinates(rows, MAX_DRAWN_DIRECTIONS)
    log_distance = np.log(_even_distances(points, width).max())
    before, after = points[: left_row + 1], points[left_row + 1 :]
    jump = after[:width].mean(axis=0) - before[-width:].mean(axis=0)
    draws = _draw_alike(np.concatenate([before, after - jump]))
    null_log_distances = np.log([_even_distances(draw, width).max() for draw in draws])
    return len(MEAN_WIDTHS) * gumbel_p(float(log_distance), null_log_distances)


def _draw_alike(points: Floats) -> Iterator[Floats]:
    """Yield `N_LEVEL_DRAWS` tables ``[m, r]`` with the power of this one at each frequency.

    Frequencies are those of the cosine transform, in which walks and stationary processes have
    nearly independent coefficients. Powers are means over neighbouring frequencies, more of them
    where frequencies are high. Columns keep their sizes.
    """
    from scipy.fft import dct, idct

    n = len(points)
    power = np.square(dct(points, axis=0, norm="ortho")).sum(axis=1)
    power[0] = 0.0
    sums = np.append(0.0, np.cumsum(power))
    frequency = np.arange(n)
    reach = frequency // 4
    low = np.maximum(frequency - reach, 1)
    high = np.minimum(frequency + reach + 1, n)
    mean_power = np.maximum(sums[high] - sums[low], 0.0) / np.maximum(high - low, 1)
    mean_power[0] = 0.0
    sizes = np.linalg.norm(points - points.mean(axis=0), axis=0)
    amplitude = np.sqrt(mean_power)[:, None] * (sizes / np.linalg.norm(sizes))
    rng = np.random.default_rng(n)
    for _ in range(N_LEVEL_DRAWS):
        noise = rng.standard_normal(points.shape)
        yield idct(amplitude * noise, axis=0, norm="ortho")


def _even_distances(points: NDArray[np.floating[Any]], width: int) -> Floats:
    """Return distances of neighbouring means, as in rows that vary evenly, ``[m - 2w + 1]``.

    Where steps between rows are longer than elsewhere, distances are divided by as much, because
    means of more variable rows are further apart.
    """
    distances = np.linalg.norm(_mean_differences(points, width), axis=1)
    squared_steps = np.square(np.diff(points, axis=0)).sum(axis=1)
    n_steps = 2 * width - 1
    steps = np.sqrt(np.convolve(squared_steps, np.full(n_steps, 1 / n_steps), "valid"))
    return np.asarray(distances / np.maximum(steps / max(np.median(steps), 1e-300), 1.0))


def _mean_differences(points: NDArray[np.floating[Any]], width: int) -> Floats:
    """Return the mean of so many rows less that of as many before them, ``[m - 2w + 1, d]``."""
    sums = np.cumsum(points, axis=0, dtype=np.float64)
    sums = np.concatenate([np.zeros((1, points.shape[1])), sums])
    means = (sums[width:] - sums[:-width]) / width
    return np.asarray(means[width:] - means[:-width])
