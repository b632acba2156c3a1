"""Gram matrices, cosines and power in the precision of the table: for surrogates."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]

#: Rows beyond which SciPy transforms: two to four times as fast, once it is imported.
LONG = 8192
#: Power of the mean row over that of the rest from which subtraction would leave too few digits.
LARGE_MEAN = 100


def grams(values: Floats, table: Floats) -> tuple[Floats, Floats]:
    """Return the Gram matrices ``[n, n]`` of the rows as they are, and centred (``table``)."""
    gram = values @ values.T
    mean = values.mean(axis=0, dtype=np.float64)
    if len(values) * np.dot(mean, mean) > LARGE_MEAN * np.vdot(table, table):
        return gram, table @ table.T
    along = gram.mean(axis=1)
    centered: Floats = gram - along[:, None] - along[None, :] + along.mean()
    return gram, centered


def squared_norm(gram: Floats) -> float:
    """Return the squared Frobenius norm."""
    flat = gram.ravel()
    return float(np.dot(flat, flat))


def cosines(gram: Floats, rows: Floats, error: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the cosines of the rows of a Gram matrix, and which rows have a direction.

    Parameters
    ----------
    gram
        ``[n, n]``.
    rows
        ``[n, d]``, whose lengths are more exact than the diagonal.
    error
        Size up to which their entries are rounding. A row of nothing else has no direction; its
        cosines are 0.
    """
    eps = np.finfo(gram.dtype).eps
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    there = np.asarray(length > error * rows.shape[1] ** 0.5)
    inverse = np.divide(1, length, out=np.zeros_like(length), where=there)
    cosine: Floats = gram * inverse[:, None]
    cosine *= inverse[None, :]
    np.fill_diagonal(cosine, there)
    # Rounding must not order cosines that are equal to 1.
    np.clip(cosine, 32 * eps - 1, 1 - 32 * eps, out=cosine)
    return cosine, there


def total_power(points: Floats, length: int) -> NDArray[np.float64]:
    """Return the power at each frequency, summed over columns: ``[length]``.

    Two columns are transformed at once, as the real and the imaginary part of one: their powers add
    up, and what they have in common cancels between a frequency and its negative.

    Parameters
    ----------
    points
        ``[n, d]``.
    length
        Of the transform, which pads the columns with zeros; at least n.
    """
    if points.shape[1] % 2:
        points = np.pad(points, ((0, 0), (0, 1)))
    paired = np.ascontiguousarray(points).view(np.result_type(points.dtype, np.complex64))
    waves = transforms(len(points)).fft(paired, length, axis=0).view(points.dtype)
    power = np.einsum("ij,ij->i", waves, waves).astype(np.float64)
    return np.asarray(power + np.roll(power[::-1], 1)) / 2


def transforms(rows: int) -> Any:
    """Return the module of the Fourier transforms of so many rows: NumPy's, or SciPy's."""
    if rows <= LONG:
        return np.fft
    import scipy.fft

    return scipy.fft


@lru_cache(maxsize=16)
def fast_length(least: int) -> int:
    """Return the least length of a transform, no shorter, that has no prime factor above 5."""
    odds = [int(3**threes * 5**fives) for threes in range(16) for fives in range(12)]
    return min(odd << max(-(-least // odd) - 1, 0).bit_length() for odd in odds)
