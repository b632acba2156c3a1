"""What needs every pair of rows, in tiles: an ``[n, n]`` matrix is never formed.

A tile is the product of two blocks of whole grid rows; a sequence is a grid of width 1. Cosines
are symmetric, so that only tiles on and above the diagonal are computed.
"""

from __future__ import annotations

from threading import local
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Array, in_parallel, to_numpy

#: Rows of a matrix whose diagonals are summed at a time.
BLOCK = 64
#: Rows of a tile: on NumPy it stays in a core's cache, on torch it must fill the whole device.
SIDE, TORCH_SIDE = 1024, 4096


def minimum_and_squares(
    units: Array, there: Array, height: int, width: int, xp: ModuleType
) -> tuple[float, NDArray[np.float64]]:
    """Return the smallest cosine, and the sum of squared cosines at each displacement.

    On NumPy the tiles are shared out among threads, as element-wise operations use one each; the
    order in which their sums are added is fixed, so that two runs give the same bits.

    Parameters
    ----------
    units
        ``[n, d]``: rows of length 1, or of zeros; their precision is that of the products.
    there
        ``[n]``: which rows have a direction. Pairs with another count in neither number.
    height, width
        Of the grid; a sequence has height 1.

    Returns
    -------
    tuple
        The minimum, a row with itself included, and ``[2h - 1, 2w - 1]``.
    """
    if width > height:  # narrow grid rows make small tiles
        turned = [_transposed(array, height, width, xp) for array in (units, there)]
        low, squares = minimum_and_squares(turned[0], turned[1], width, height, xp)
        return low, squares.T
    rows = max(1, (SIDE if xp is np else TORCH_SIDE) // width)
    blocks = [slice(i * width, (i + rows) * width) for i in range(0, height, rows)]
    whole = [bool(xp.all(there[block])) for block in blocks]

    own = local()

    def tile(pair: tuple[int, int]) -> tuple[float, NDArray[np.float64]]:
        one, other = (blocks[k] for k in pair)
        known = None
        if not all(whole[k] for k in pair):
            known = there[one][:, None] & there[other][None, :]
        if width == 1 and xp is np:
            return _line_tile(units[one], units[other], known, own)
        cosine = xp.matmul(units[one], units[other].T)
        heights = cosine.shape[0] // width, cosine.shape[1] // width
        squares = displacement_sums(cosine * cosine, heights, width, xp)
        if known is not None:
            cosine = xp.where(known, cosine, xp.inf)
        return float(xp.min(cosine)), to_numpy(squares).astype(np.float64)

    pairs = [(i, j) for i in range(len(blocks)) for j in range(i, len(blocks))]
    low, squares = np.inf, np.zeros((2 * height - 1, 2 * width - 1))
    for (i, j), (lowest, sums) in zip(pairs, in_parallel(tile, pairs, xp), strict=True):
        low = min(low, lowest)
        tall = min(rows, height - i * rows)
        first = height + (j - i) * rows - tall
        squares[first : first + len(sums)] += sums
        if j > i:  # the tile below the diagonal is this one, mirrored
            squares[::-1, ::-1][first : first + len(sums)] += sums
    return low, squares


def _line_tile(
    rows: NDArray[np.floating[Any]],
    others: NDArray[np.floating[Any]],
    known: NDArray[np.bool_] | None,
    own: local,
) -> tuple[float, NDArray[np.float64]]:
    """Return a tile's least known cosine, and sums of squares along diagonals: ``[m + n - 1, 1]``.

    As `_diagonal_sums` does it, but the product is written where its diagonals stand upright, into
    space that each thread keeps: most of the time would go into copies and fresh memory.
    """
    m, n = len(rows), len(others)
    blocks = -(-m // BLOCK)
    missing = blocks * BLOCK - m  # rows of zeros, which add nothing to sums of squares
    padded = np.concatenate([rows, np.zeros((missing, rows.shape[1]), rows.dtype)])
    upside_down = padded.reshape(blocks, BLOCK, -1)[:, ::-1].reshape(padded.shape)
    if not hasattr(own, "space") or len(own.space) < len(padded) * (n + BLOCK):
        own.space = np.empty(len(padded) * (n + BLOCK), rows.dtype)
    space = own.space[: len(padded) * (n + BLOCK)].reshape(len(padded), n + BLOCK)
    cosine = np.matmul(upside_down, others.T, out=space[:, :n])
    space[:, n:] = 0
    if known is None and not missing:
        low = cosine.min()
    else:
        upright = cosine.reshape(blocks, BLOCK, n)[:, ::-1].reshape(-1, n)[:m]
        low = upright.min(initial=np.inf, where=True if known is None else known)
    sheared = space.reshape(blocks, -1)[:, :-BLOCK].reshape(blocks, BLOCK, n + BLOCK - 1)
    sums = np.zeros(len(padded) + n - 1)
    for block, line in enumerate(np.einsum("bij,bij->bj", sheared, sheared)):
        first = len(padded) - (block + 1) * BLOCK
        sums[first : first + len(line)] += line
    return float(low), sums[missing:, None]


def _transposed(array: Array, height: int, width: int, xp: ModuleType) -> Array:
    cells = xp.reshape(array, (height, width, -1))
    return xp.reshape(xp.permute_dims(cells, (1, 0, 2)), array.shape)


def displacement_sums(
    matrices: Array, heights: tuple[int, int], width: int, xp: ModuleType
) -> Array:
    """Sum matrices over the pairs of cells at each displacement.

    Parameters
    ----------
    matrices
        ``[..., p * w, q * w]``: cells of p grid rows beside cells of q grid rows.
    heights, width
        p and q, and w; a sequence has height 1, and a part of one width 1.

    Returns
    -------
    Array
        ``[..., p + q - 1, 2w - 1]``; where p = q, no displacement is in the middle.
    """
    batch, (p, q) = matrices.shape[:-2], heights
    cells = xp.reshape(matrices, (-1, p, width, q, width))
    # The longer side first: it leaves least to the second pass.
    if width > max(p, q):
        along = _diagonal_sums(xp.permute_dims(cells, (0, 1, 3, 2, 4)), xp)
        sums = _diagonal_sums(xp.permute_dims(along, (0, 3, 1, 2)), xp)
        sums = xp.permute_dims(sums, (0, 2, 1))
    else:
        down = _diagonal_sums(xp.permute_dims(cells, (0, 2, 4, 1, 3)), xp)
        sums = _diagonal_sums(xp.permute_dims(down, (0, 3, 1, 2)), xp)
    return xp.reshape(sums, (*batch, p + q - 1, 2 * width - 1))


def _diagonal_sums(matrices: Array, xp: ModuleType) -> Array:
    """Sum matrices ``[..., m, n]`` along diagonals: ``[..., m + n - 1]``, from the lower left.

    Read with rows one element shorter, a block of rows that is padded by its height is sheared by
    one column per row, so that its diagonals stand upright. Blocks keep the padding small.
    """
    *batch, m, n = matrices.shape
    sums = xp.zeros((*batch, m + n - 1), dtype=matrices.dtype, device=matrices.device)
    for first in range(0, m, BLOCK):
        rows = xp.flip(matrices[..., first : first + BLOCK, :], axis=-2)
        height = rows.shape[-2]
        empty = xp.zeros((*batch, height, height), dtype=rows.dtype, device=rows.device)
        padded = xp.concat([rows, empty], axis=-1)
        sheared = xp.reshape(padded, (*batch, height * (n + height)))[..., :-height]
        upright = xp.reshape(sheared, (*batch, height, n + height - 1))
        begin = m - first - height
        sums[..., begin : begin + n + height - 1] += xp.sum(upright, axis=-2)
    return sums
