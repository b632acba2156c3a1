"""Position-wise cosine similarity and what depends on the offset alone.

The matrix is figure 1 of Wang & Chen (EMNLP 2020); the three properties read off it are those of
Wang et al. (ICLR 2021). A sequence is treated as a grid of height 1, so that both layouts share one
definition: the offset of two positions is their displacement ``(rows, columns)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import Result
from posprobe.arrays import Array, Positions, positions, to_numpy
from posprobe.errors import InvalidTable
from posprobe.table import Layout, PositionTable, Sequence

#: Offsets looked at by the monotone fraction.
WINDOW = 64
#: Rows of a matrix whose diagonals are summed at a time.
BLOCK = 64
#: Largest table whose n x n matrix is formed.
MAX_ROWS = 16_384


@dataclass(frozen=True, eq=False)
class Cosine:
    """Cosines of all pairs of rows, and their dependence on the offset.

    Parameters
    ----------
    matrix
        ``[n, n]``; NaN in the row and column of a zero row.
    offset_mean, offset_std, offset_count
        Mean, standard deviation and number of pairs by displacement: ``[n]`` for the offsets 0 to
        n - 1 of a sequence, ``[2h - 1, 2w - 1]`` for a grid, no displacement in the middle. NaN
        where no pair is defined.
    neighbour_mean
        Mean over neighbouring positions (right and lower neighbours on a grid).
    far_mean
        Mean over pairs more than a quarter of the table (of the grid's diagonal) apart.
    minimum
        Smallest cosine.
    translation_invariance
        Share of the variance of the off-diagonal cosines that their offset explains (Toeplitz
        R², block Toeplitz on a grid). Smoothness alone scores high: a random walk reaches 0.9.
    monotone_fraction
        Share of steps along an axis, from offset m to m + 1 within the window, at which the cosine
        falls.
    undefined
        Reason for each number that is None.
    """

    matrix: NDArray[np.float64]
    offset_mean: NDArray[np.float64]
    offset_std: NDArray[np.float64]
    offset_count: NDArray[np.int64]
    neighbour_mean: float | None
    far_mean: float | None
    minimum: float | None
    translation_invariance: float | None
    monotone_fraction: float | None
    undefined: dict[str, str]

    def summary(self) -> dict[str, Any]:
        """Return the headline numbers and the offset profile."""
        profile = np.where(np.isnan(self.offset_mean), None, self.offset_mean)  # type: ignore[call-overload]
        return {
            "neighbour_mean": self.neighbour_mean,
            "far_mean": self.far_mean,
            "minimum": self.minimum,
            "translation_invariance": self.translation_invariance,
            "monotone_fraction": self.monotone_fraction,
            "offset_profile": profile.tolist(),
            "undefined": self.undefined,
        }


@dataclass(frozen=True, eq=False)
class Similarity(Result):
    """Cosine similarity of the rows as stored, and after subtracting the mean row.

    A shared mean row inflates every raw cosine; centring removes it, but forces the mean
    off-diagonal cosine to about -1/(n - 1) and breaks the exact invariance of a sinusoid.

    Parameters
    ----------
    raw, centered
        Cosines of the rows, and of the rows less their mean.
    layout
        Of the positions.
    start
        Position of row 0.
    zero_rows
        Rows without a direction; their cosines are NaN.
    """

    raw: Cosine
    centered: Cosine
    layout: Layout
    start: int
    zero_rows: tuple[int, ...]

    def summary(self) -> dict[str, Any]:
        """Return both variants' numbers."""
        return {
            "window": WINDOW,
            "zero_rows": list(self.zero_rows),
            "raw": self.raw.summary(),
            "centered": self.centered.summary(),
        }


def similarity(table: PositionTable | Positions | Array) -> Similarity:
    """Compute the cosine similarity of every pair of positions.

    Parameters
    ----------
    table
        ``[n, d]``.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or has more than `MAX_ROWS` rows.
    """
    given = positions(table)
    values, layout, xp = given.values, given.layout, given.xp
    n = values.shape[0]
    if n > MAX_ROWS:
        raise InvalidTable(
            f"{n} positions: the {n} x {n} similarity matrix would take "
            f"{8 * n * n / 2**30:.0f} GiB. Analyse up to {MAX_ROWS} positions with --rows A:B."
        )
    raw = _cosine(values, layout, xp)
    centered = _cosine(
        values - xp.mean(values, axis=0), layout, xp, scale=float(xp.max(xp.abs(values)))
    )
    return Similarity(
        raw,
        centered,
        layout,
        given.start,
        tuple(np.flatnonzero(np.isnan(np.diagonal(raw.matrix))).tolist()),
    )


def _cosine(values: Array, layout: Layout, xp: ModuleType, scale: float = 0.0) -> Cosine:
    length = xp.linalg.vector_norm(values, axis=1)
    # What centring leaves of equal rows is rounding, and has no direction.
    defined = length > 1e-13 * scale * values.shape[1] ** 0.5
    units = values / xp.where(defined, length, 1.0)[:, None]
    units = xp.where(defined[:, None], units, 0.0)
    # Rounding must not leave the domain of the arc cosine.
    matrix = xp.clip(xp.matmul(units, units.T), -1.0, 1.0)
    valid = xp.astype(defined, matrix.dtype)
    height, width = (
        (1, layout.length) if isinstance(layout, Sequence) else (layout.height, layout.width)
    )
    total = by_displacement(matrix, height, width, xp)
    squares = by_displacement(matrix**2, height, width, xp)
    count = by_displacement(valid[:, None] * valid[None, :], height, width, xp)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
        variance = np.where(count > 0, np.maximum(squares / count - mean**2, 0.0), np.nan)
    host = to_numpy(matrix).astype(np.float64, copy=True)
    missing = to_numpy(~defined)
    host[missing, :] = np.nan
    host[:, missing] = np.nan
    numbers, undefined = _numbers(host, total, squares, count, height, width)
    if not count.all():
        undefined["offset_profile"] = "no pair of rows with a direction is that far apart"
    if isinstance(layout, Sequence):
        mean, variance, count = (a[0, width - 1 :] for a in (mean, variance, count))
    return Cosine(
        host,
        mean,
        np.sqrt(variance),
        np.rint(count).astype(np.int64),
        **numbers,
        undefined=undefined,
    )


def by_displacement(matrix: Array, height: int, width: int, xp: ModuleType) -> NDArray[np.float64]:
    """Sum an ``[n, n]`` matrix over the pairs at each displacement: ``[2h - 1, 2w - 1]``."""
    blocks = xp.reshape(matrix, (height, width, height, width))
    by_rows = _diagonal_sums(xp.permute_dims(blocks, (1, 3, 0, 2)), xp)
    return to_numpy(_diagonal_sums(xp.permute_dims(by_rows, (2, 0, 1)), xp)).astype(np.float64)


def _diagonal_sums(matrices: Array, xp: ModuleType) -> Array:
    """Sum matrices ``[..., n, n]`` along diagonals: ``[..., 2n - 1]``, the main one in the middle.

    Read with rows one element shorter, a block of rows that is padded by its height is sheared by
    one column per row, so that its diagonals stand upright. Blocks keep the padding small.
    """
    *batch, n, _ = matrices.shape
    sums = xp.zeros((*batch, 2 * n - 1), dtype=matrices.dtype, device=matrices.device)
    for first in range(0, n, BLOCK):
        rows = xp.flip(matrices[..., first : first + BLOCK, :], axis=-2)
        height = rows.shape[-2]
        padded = xp.concat([rows, xp.zeros_like(rows[..., :height])], axis=-1)
        sheared = xp.reshape(padded, (*batch, height * (n + height)))[..., :-height]
        upright = xp.reshape(sheared, (*batch, height, n + height - 1))
        begin = n - first - height
        sums[..., begin : begin + n + height - 1] += xp.sum(upright, axis=-2)
    return sums


def _numbers(
    matrix: NDArray[np.float64],
    total: NDArray[np.float64],
    squares: NDArray[np.float64],
    count: NDArray[np.float64],
    height: int,
    width: int,
) -> tuple[dict[str, float | None], dict[str, str]]:
    pairs = ~np.eye(len(matrix), dtype=bool) & ~np.isnan(matrix)
    middle = squares[height - 1, width - 1]
    numbers = offset_numbers(total, count, float(squares.sum() - middle), height, width) | {
        "minimum": float(matrix[pairs].min()) if pairs.any() else None,
        "monotone_fraction": monotone_fraction(matrix, height, width),
    }
    reason = "no pair of rows with a direction is that far apart"
    undefined = {name: reason for name, value in numbers.items() if value is None}
    if "translation_invariance" in undefined and pairs.any():
        undefined["translation_invariance"] = "the cosines do not vary"
    return numbers, undefined


def offset_numbers(
    total: NDArray[np.float64],
    count: NDArray[np.float64],
    sum_of_squares: float,
    height: int,
    width: int,
) -> dict[str, float | None]:
    """Reduce sums by displacement to the numbers that they define; None where there is no pair.

    Parameters
    ----------
    total, count
        ``[2h - 1, 2w - 1]``: sum of the cosines and number of pairs at each displacement.
    sum_of_squares
        Of all off-diagonal cosines.
    height, width
        Of the grid; a sequence has height 1.
    """
    down, right = np.mgrid[1 - height : height, 1 - width : width]
    apart = np.hypot(down, right)
    quarter = np.hypot(height if height > 1 else 0, width if width > 1 else 0) / 4
    off = (apart > 0) & (count > 0)
    neighbours = off & (apart == 1)
    far = off & (apart > quarter) & ~neighbours
    invariance = None
    if np.count_nonzero(off) > 2:
        spread = sum_of_squares - total[off].sum() ** 2 / count[off].sum()
        within = sum_of_squares - (total[off] ** 2 / count[off]).sum()
        # Equal cosines differ by rounding only, and then nothing is there to explain.
        if spread > 1e-12 * sum_of_squares:
            invariance = float(1 - max(within, 0.0) / spread)
    return {
        "neighbour_mean": _ratio(total[neighbours].sum(), count[neighbours].sum()),
        "far_mean": _ratio(total[far].sum(), count[far].sum()),
        "translation_invariance": invariance,
    }


def _ratio(total: float, count: float) -> float | None:
    return float(total / count) if count else None


def monotone_fraction(matrix: NDArray[Any], height: int, width: int) -> float | None:
    """Return the share of falling steps, to the right and, on a grid, downwards."""
    cells = matrix.reshape(height, width, height, width)
    falling, steps = 0, 0
    for axis, extent in ((1, width), (0, height)):
        window = min(WINDOW, extent // 2)
        if window < 1 or extent < 2:
            continue
        lines = np.diagonal(cells, axis1=1 - axis, axis2=3 - axis)  # [i, j, line]
        begin = np.arange(extent - window)
        profiles = np.stack([lines[begin, begin + m] for m in range(window + 1)])
        change = np.diff(profiles, axis=0)
        # Rounding can order equal cosines either way; a fall must exceed it.
        falling += int(np.count_nonzero(change < -1e-12))
        steps += int(np.count_nonzero(~np.isnan(change)))
    return falling / steps if steps else None
