"""Patches that do not belong to the patches around them, and a table with others in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import ModuleType

import numpy as np

from posprobe.analyses.tables.outliers import Found, Series, zero_rows
from posprobe.arrays import Array, Floats
from posprobe.layouts import Grid

#: Fewest patches, and patches along a side, among which one can be told to be unlike the others.
MIN_PATCHES, MIN_PATCHES_ALONG = 16, 3
#: Ratio of a patch's distance from its neighbours to what is usual around it from which it matters.
FAR = 2.0
#: The same ratio to the largest of all patches that are not special.
APART = 1.5
#: Patches on each side of one that say what is usual there.
AROUND = 3
#: Share of the largest distance below which patches are equal. Where most around one are copies of
#: each other, as those of some resized tables are, no distance is usual.
EQUAL = 1e-9
#: Largest share of patches that are special: what more of them have is usual.
MOST = 1 / 12
#: Chance that the tail of such ratios leaves so wide a gap, and the quantiles that set the tail.
GAP_ALARM, TAIL = 1e-3, (0.5, 0.9)


def no_special_patches(grid: Grid, *, equal: bool) -> str:
    """Return the reason why no special patches are looked for, or nothing; ``equal`` if all are."""
    if grid.size < MIN_PATCHES:
        return f"fewer than {MIN_PATCHES} patches"
    if min(grid.height, grid.width) < MIN_PATCHES_ALONG:
        return f"fewer than {MIN_PATCHES_ALONG} patches along a side"
    return "all patches are equal" if equal else ""


def special_patches(series: Series, grid: Grid) -> Found | None:
    """Find special patches; None where nothing is usual."""
    found = zero_rows(series)
    odd = odd_patches(series.rows, grid.height, grid.width)
    for row, times in (odd or {}).items():
        found.row(row, "patch_far", times)
    return None if odd is None and not found.special else found


def odd_patches(values: Floats, height: int, width: int) -> dict[int, float] | None:
    """Find the patches that are far from their neighbours.

    A patch's distance from its neighbours is the lower median of those from the two to four patches
    beside it, so that one odd neighbour does not count. What matters is its ratio to the median of
    such distances in the square of `AROUND` patches on each side. Special are the patches above the
    lowest gap between the largest ratios that is too wide for their distribution: in a tail that
    falls like a power, the gaps between the largest logarithms are independent and exponential, the
    k-th of mean ``1 / k`` of the first's (Renyi 1953). It is at least `APART` wide, and what lies
    above it at least `FAR`. A patch that is far from special ones alone is not special. Where
    patches are copies of those around them, the few that are not are special.

    Parameters
    ----------
    values
        ``[height * width, d]``, row by row.
    height, width
        Of the grid, three or more.

    Returns
    -------
    dict
        By row of the table, how many times the usual distance; infinite where the others are
        copies. None where so many are copies, and so many are not, that nothing is usual.
    """
    distance = _distance(values.reshape(height, width, -1))
    usual, equal = _around(distance), EQUAL * distance.max()
    if (usual <= equal).any():
        odd = np.flatnonzero(distance > equal).tolist()
        limit = dict.fromkeys(odd, equal)
        few = len(odd) <= MOST * len(values)
        return dict.fromkeys(_without_odd_beside(values, limit, width), np.inf) if few else None
    ratio = np.maximum(distance / usual, EQUAL).ravel()
    order = np.argsort(-ratio, kind="stable")
    logs = np.log(ratio[order])
    most = max(1, int(MOST * len(ratio)))
    low, high = np.quantile(logs, TAIL)
    scale = (high - low) / np.log((1 - TAIL[0]) / (1 - TAIL[1]))
    gaps = logs[:most] - logs[1 : most + 1]
    wide = np.arange(1, most + 1) * gaps > scale * np.log(most / GAP_ALARM)
    wide &= (gaps > np.log(APART)) & (logs[:most] > np.log(FAR))
    count = int(np.flatnonzero(wide)[-1]) + 1 if wide.any() else 0
    least = max(FAR, APART * float(ratio[order[count]]))
    limit = {row: least * float(usual.flat[row]) for row in sorted(order[:count].tolist())}
    return {row: float(ratio[row]) for row in _without_odd_beside(values, limit, width)}


def _without_odd_beside(values: Floats, limit: Mapping[int, float], width: int) -> list[int]:
    """Return those of the odd patches that are further than a limit from patches not odd, too.

    A corner has two patches beside it: where both are odd, it would be as well. Its neighbour
    across the corner tells, as far as its distance is longer, and so do others where most beside a
    patch are odd.
    """
    height = len(values) // width
    kept = []
    for row, far in limit.items():
        least, others = far, [place for place in _beside(row, height, width) if place not in limit]
        if not others:
            others = [place for place in _across(row, height, width) if place not in limit]
            least = far * 2**0.5
        apart = np.sort(np.linalg.norm(values[others] - values[row], axis=1))
        if not others or apart[(len(others) - 1) // 2] > least:
            kept.append(row)
    return kept


def _distance(patches: Floats) -> Floats:
    """Return each patch's distance from its neighbours: ``[height, width]``."""
    # Row by row, since a second copy of a large table would not fit beside it.
    down = [np.linalg.norm(lower - upper, axis=1) for upper, lower in pairwise(patches)]
    across = [np.linalg.norm(np.diff(row, axis=0), axis=1) for row in patches]
    each = np.full((*patches.shape[:2], 4), np.inf)
    each[1:, :, 0], each[:-1, :, 1] = down, down
    each[:, 1:, 2], each[:, :-1, 3] = across, across
    each.sort(axis=2)
    lower = (np.isfinite(each).sum(axis=2) - 1) // 2
    return np.asarray(np.take_along_axis(each, lower[:, :, None], axis=2)[:, :, 0])


def _around(distance: Floats) -> Floats:
    """Return the median of the values around each, without its own."""
    side = 2 * AROUND + 1
    padded = np.pad(distance, AROUND, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side))
    others = windows.reshape(*distance.shape, side**2).copy()
    others[:, :, side**2 // 2] = np.nan
    return np.asarray(np.nanmedian(others, axis=2))


def without(values: Array, rows: Sequence[int], height: int, width: int, xp: ModuleType) -> Array:
    """Put the mean of the neighbours in the place of some patches.

    Parameters
    ----------
    values
        ``[height * width, d]``; NumPy or torch.
    rows
        Of the table. Neighbours that are among them do not count, but where all are.
    height, width
        Of the grid.
    xp
        The values' namespace.
    """
    filled = xp.asarray(values, copy=True)
    for row in rows:
        beside = _beside(row, height, width)
        others = [place for place in beside if place not in rows] or beside
        filled[row] = xp.mean(xp.stack([values[place] for place in others]), axis=0)
    return filled


def _beside(row: int, height: int, width: int) -> list[int]:
    return _at(row, ((-1, 0), (1, 0), (0, -1), (0, 1)), height, width)


def _across(row: int, height: int, width: int) -> list[int]:
    return _at(row, ((-1, -1), (-1, 1), (1, -1), (1, 1)), height, width)


def _at(row: int, moves: Sequence[tuple[int, int]], height: int, width: int) -> list[int]:
    y, x = divmod(row, width)
    places = ((y + down, x + right) for down, right in moves)
    return [a * width + b for a, b in places if 0 <= a < height and 0 <= b < width]
