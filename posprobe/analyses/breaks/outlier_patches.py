"""Find the patches of a grid that do not belong to the patches around them, and replace them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import ModuleType

import numpy as np

from posprobe.analyses.breaks.outliers import find_zero_rows
from posprobe.analyses.breaks.row_series import BreakRecord, RowSeries
from posprobe.arrays import Array, Floats
from posprobe.layouts import Grid

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
