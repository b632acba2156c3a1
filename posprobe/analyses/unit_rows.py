"""What the matrix of cosines says that can be had from its factors, the rows' directions alone.

``C = U U'`` with unit rows U ``[n, d]``. Sums of C along its diagonals are an autocorrelation
(Wiener-Khinchin), the sum of its squares is that of ``U' U``, and means over blocks are products of
means of rows. Each takes n d numbers where C has n².
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.rounding import centred
from posprobe.analyses.transforms import fast_length, total_power, transforms
from posprobe.arrays import Array, in_parallel, to_numpy

#: Offsets looked at by the monotone fraction.
WINDOW = 64
#: Side of a pooled matrix, in blocks.
POOLED_SIDE = 1024
#: Positions of a line whose neighbourhoods are multiplied at a time.
_LINE = 128
#: Columns of a line that are transformed at a time.
_TOGETHER = 16
#: Numbers of a grid that are transformed at a time.
_TRANSFORMED = 2**18
#: Rows whose lengths are measured at a time.
_MEASURED = 4096


def unit_rows(values: Array, xp: ModuleType, *, centered: bool) -> tuple[Array, Array]:
    """Scale rows to length 1.

    Parameters
    ----------
    values
        ``[n, d]``.
    centered
        Whether the mean row is subtracted first.

    Returns
    -------
    tuple
        ``[n, d]``, zeros for a row without direction, and ``[n]``: which rows have one.
    """
    units, error = centred(values, xp) if centered else (xp.asarray(values, copy=True), 0.0)
    return units, scale_rows(units, error, xp)


def scale_rows(rows: Array, error: float, xp: ModuleType) -> Array:
    """Scale rows to length 1 in place, or to 0 where entries below ``error`` leave no direction.

    A second array of this size would be a quarter of all memory that is needed.

    Returns
    -------
    Array
        ``[n]``: which rows have a direction.
    """
    blocks = range(0, len(rows), _MEASURED)
    length = xp.concat([xp.linalg.vector_norm(rows[i : i + _MEASURED], axis=1) for i in blocks])
    there = length > error * rows.shape[1] ** 0.5
    rows /= xp.where(there, length, 1.0)[:, None]
    rows *= xp.astype(there, rows.dtype)[:, None]
    return there


def autocorrelation(rows: Array, height: int, width: int, xp: ModuleType) -> NDArray[np.float64]:
    """Sum the inner products of rows over the pairs at each displacement.

    Parameters
    ----------
    rows
        ``[n, c]``, row by row of a grid.
    height, width
        Of the grid; a sequence has height 1.

    Returns
    -------
    NDArray
        ``[2h - 1, 2w - 1]``, no displacement in the middle.
    """
    # Twice the size, so that nothing wraps around.
    sizes = tuple(fast_length(2 * side - 1) for side in (height, width))
    on_line = xp is np and min(height, width) == 1
    columns = _TOGETHER if on_line else max(1, _TRANSFORMED // len(rows))
    fft = transforms(len(rows)) if xp is np else xp.fft

    def power(first: int) -> Array:
        if on_line:
            whole = total_power(np.ascontiguousarray(rows[:, first : first + columns]), max(sizes))
            return whole[: sizes[1] // 2 + 1] if height == 1 else whole[:, None]
        maps = xp.reshape(rows[:, first : first + columns], (height, width, -1))
        waves = fft.rfftn(maps, s=sizes, axes=(0, 1))
        real, imag = xp.real(waves), xp.imag(waves)
        return xp.sum(real * real + imag * imag, axis=-1)

    total = np.zeros((sizes[0], sizes[1] // 2 + 1))
    for part in in_parallel(power, range(0, rows.shape[1], columns), xp):
        total += to_numpy(part)
    around = np.fft.irfftn(total, s=sizes, axes=(0, 1))
    down, right = (np.arange(1 - side, side) for side in (height, width))
    return np.asarray(around[np.ix_(down, right)])


def sum_of_squares(rows: Array) -> float:
    """Return the sum of the squared inner products of all pairs of rows, each with itself too."""
    thin = rows if rows.shape[1] <= rows.shape[0] else rows.T
    gram = to_numpy(thin.T @ thin).astype(np.float64, copy=False)
    return float(np.vdot(gram, gram))


def falling_share(
    units: Array, there: Array, height: int, width: int, xp: ModuleType
) -> float | None:
    """Return the share of falling steps of the cosine, to the right and, on a grid, downwards.

    Parameters
    ----------
    units, there
        As `unit_rows` gives them.
    height, width
        Of the grid; a sequence has height 1.
    """
    cells, known = xp.reshape(units, (height, width, -1)), xp.reshape(there, (height, width))
    lines = [(cells[row], known[row]) for row in range(height)]
    if height > 1:
        lines += [(cells[:, column], known[:, column]) for column in range(width)]

    def count(part: tuple[int, int]) -> tuple[int, int]:
        profiles = _profiles(*lines[part[0]], part[1], xp)
        change = profiles[:, 1:] - profiles[:, :-1]
        # Rounding can order equal cosines either way; a fall must exceed it.
        chosen = change < -1e-12, ~xp.isnan(change)
        falling, steps = (int(xp.sum(xp.astype(which, xp.int64))) for which in chosen)
        return falling, steps

    parts = [
        (number, first)
        for number, (line, _) in enumerate(lines)
        for first in range(0, len(line) - _window(line) if _window(line) else 0, _LINE)
    ]
    counts = list(in_parallel(count, parts, xp))
    falling, steps = (sum(each[which] for each in counts) for which in (0, 1))
    return falling / steps if steps else None


def _window(line: Array) -> int:
    return min(WINDOW, len(line) // 2)


def _profiles(line: Array, defined: Array, first: int, xp: ModuleType) -> Array:
    """Return cosines of positions from ``first`` on with those after them: ``[k, window + 1]``.

    Every position that has the whole window takes part. Undefined cosines are NaN.
    """
    window = _window(line)
    count = min(_LINE, len(line) - window - first)
    near = slice(first, first + count + window)
    rows = xp.where(defined[near][:, None], line[near], xp.nan)
    # Rounding must not order cosines that are equal to 1.
    edge = 1 - 32 * float(xp.finfo(rows.dtype).eps)
    product = xp.clip(xp.matmul(rows[:count], rows.T), -edge, edge)
    # Read with rows one element longer, each begins at its own position.
    empty = xp.zeros((count,), dtype=product.dtype, device=product.device)
    flat = xp.concat([xp.reshape(product, (-1,)), empty])
    return xp.reshape(flat, (count, count + window + 1))[:, : window + 1]


def pooled_cosines(units: Array, there: Array, xp: ModuleType) -> tuple[NDArray[np.float64], int]:
    """Average the cosines in blocks so that at most `POOLED_SIDE` are left along a side.

    Parameters
    ----------
    units, there
        As `unit_rows` gives them.

    Returns
    -------
    tuple
        ``[m, m]``, NaN where no pair of a block has directions, and the side of a block in
        positions; the last block of a side may be shorter.
    """
    n = len(units)
    block = -(-n // POOLED_SIDE)
    begins = range(0, n, block)
    sums = xp.stack([xp.sum(units[first : first + block], axis=0) for first in begins])
    count = np.add.reduceat(to_numpy(there).astype(np.float64), list(begins))
    pairs = np.outer(count, count)
    matrix = np.full(pairs.shape, np.nan)
    np.divide(to_numpy(sums @ sums.T), pairs, out=matrix, where=pairs > 0)
    return np.clip(matrix, -1.0, 1.0), block
