"""Power and transforms in the precision of the table."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Rows beyond which SciPy transforms: two to four times as fast, once it is imported.
LONG = 8192


def total_power(points: NDArray[np.floating[Any]], length: int) -> NDArray[np.float64]:
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
