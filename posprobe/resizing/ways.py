"""Ways along one axis: from n rows to m, each column by itself.

Two kinds must be told apart. A way that *stretches* spreads the old rows over the new range, so
that relative places are kept and every period grows with the table (position interpolation, Chen et
al. 2023). A way that *continues* keeps the old rows at their positions and adds others, so that
periods and distances are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import cloud
from posprobe.analyses.pursuit import choose_sinusoids, settled

Floats: TypeAlias = NDArray[np.float64]

#: Fewest rows to which sinusoids are fitted: two of them.
FEWEST_ROWS = 8


def linear(rows: Floats, size: int) -> Floats:
    """Lay straight lines between neighbouring rows; the first and the last row stay at the ends.

    Parameters
    ----------
    rows
        ``[n, k]``.
    size
        Rows wanted, m.

    Returns
    -------
    ndarray
        ``[m, k]``: row j from the place ``j (n - 1) / (m - 1)`` of the old ones.
    """
    places = np.linspace(0, len(rows) - 1, size)
    left = np.minimum(places.astype(np.intp), max(len(rows) - 2, 0))
    right = np.minimum(left + 1, len(rows) - 1)
    share = (places - left)[:, None]
    return np.asarray((1 - share) * rows[left] + share * rows[right])


def cubic(rows: Floats, size: int) -> Floats:
    """Lay a cubic spline through the rows (not-a-knot ends); see `linear` for the rest."""
    if len(rows) < 2:
        return linear(rows, size)
    from scipy.interpolate import CubicSpline

    places = np.linspace(0, len(rows) - 1, size)
    return np.asarray(CubicSpline(np.arange(len(rows)), rows, axis=0)(places))


def fourier(rows: Floats, size: int) -> Floats:
    """Lay a trigonometric polynomial through the rows, of period n: row j from the place ``j n/m``.

    Exact where a table repeats after its last row; where it does not, the jump from its last row to
    its first one rings at both ends. Fewer rows lose the frequencies that they cannot hold.
    """
    n = len(rows)
    waves = np.fft.rfft(rows, axis=0)[: size // 2 + 1]
    if n < size and n % 2 == 0:
        waves[-1] /= 2  # the fastest wave stands for itself and its mirror image, which now differ
    if size < n and size % 2 == 0:
        waves[-1] *= 2
    return np.asarray(np.fft.irfft(waves, size, axis=0) * (size / n))


def tile(rows: Floats, size: int) -> Floats:
    """Begin again with the first row after the last one."""
    return rows[np.arange(size) % len(rows)]


def repeat_last(rows: Floats, size: int) -> Floats:
    """Give every further position the last row."""
    return rows[np.minimum(np.arange(size), len(rows) - 1)]


def sinusoids(rows: Floats, size: int) -> Floats:
    """Continue with the sinusoids that the rows amount to; the old rows stay as they are.

    Their frequencies are those of `posprobe.analyses.pursuit`, refined together to the end, common
    to all columns; amplitudes and a constant are each column's own (least squares). Without a
    trend, so that what rose along the table is continued by half a wave.

    There must be `FEWEST_ROWS` rows.
    """
    n = len(rows)
    if size <= n:
        return rows[:size]
    table = cloud(rows)
    if not table.total:
        return repeat_last(rows, size)
    chosen = settled(table, choose_sinusoids(table).frequencies[-1])
    angles = 2 * np.pi * np.outer(np.arange(size) - (n - 1) / 2, chosen)
    waves = np.concatenate([np.ones((size, 1)), np.cos(angles), np.sin(angles)], axis=1)
    amplitudes = np.linalg.lstsq(waves[:n], rows, rcond=None)[0]
    return np.concatenate([rows, waves[n:] @ amplitudes])


Along: TypeAlias = Callable[[Floats, int], Floats]

#: Ways that spread the old rows over the new range, and ways that keep them and add others.
STRETCHING: Mapping[str, Along] = {"linear": linear, "cubic": cubic, "fourier": fourier}
CONTINUING: Mapping[str, Along] = {
    "tile": tile, "sinusoids": sinusoids, "repeat-last": repeat_last,
}  # fmt: skip
ALONG: Mapping[str, Along] = {**STRETCHING, **CONTINUING}


def along_both(cells: Floats, size: tuple[int, int], way: Along) -> Floats:
    """Apply a way along the rows of a grid, then along its columns.

    Parameters
    ----------
    cells
        ``[h, w, d]``.
    size
        Height and width wanted.

    Returns
    -------
    ndarray
        ``[height, width, d]``.
    """
    height, width = size
    down = way(cells.reshape(len(cells), -1), height).reshape(height, *cells.shape[1:])
    across = np.moveaxis(down, 1, 0)
    done = way(across.reshape(len(across), -1), width).reshape(width, height, -1)
    return np.moveaxis(done, 0, 1)
