"""Stationary processes: the kernel that fits a table best, and draws from it.

A table is set beside Gaussian tables whose rows are as alike as its own are at every distance.
The kernel is the mixture of kernels without a period of the additive model, fitted by its
likelihood (`mixture`, `grid_model` beside this module); no such mixture has a line. The draws are
matrix normal: the kernel over positions times the table's covariance over columns. Everything
here is unchanged when the columns are rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.grid_model import fit_surface
from posprobe.analyses.composition.mixture import (
    N_UPDATES,
    Bands,
    cosine_power,
    covariance,
    fit_weights,
    kernels,
    stationary_components,
    update_weights,
)
from posprobe.arrays import Floats
from posprobe.layouts import Grid, Layout

#: A squared exponential kernel halves at so many of its lengths: the root of 2 ln 2.
HALF_WIDTH_RATIO = 1.18
#: Share of the variance in the weakest directions that draws of a process do without: half of the
#: columns and of the time, for a thousandth.
NEGLECTED_VARIANCE_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Kernel:
    """A mixture of kernels without a period.

    Parameters
    ----------
    n_rows
        Number of rows that it was fitted to.
    weights
        ``[m]``: share of the variance that each of `mixture.kernels` has.
    scale
        ``[m]``: covariance of a row with itself where that share is 1.
    """

    n_rows: int
    weights: Floats
    scale: Floats

    @property
    def by_offset(self) -> Floats:
        """``[rows]``: the covariance at every offset, summed over columns."""
        return np.asarray(kernel_covariances([self])[0])

    @property
    def long_share(self) -> float:
        """Share of the variance whose kernels are as long as half the table."""
        long = np.array([each.length >= self.n_rows / 2 for each in kernels(self.n_rows)])
        return float(self.weights[long].sum() / max(self.weights.sum(), 1e-300))


def kernel_covariances(found: Sequence[Kernel]) -> Floats:
    """Return the covariances at every offset of kernels of equally many rows: ``[r, rows]``."""
    n = found[0].n_rows
    weights = np.array([each.weights * each.scale for each in found])
    lag, total = np.arange(n, dtype=np.float64), np.zeros((len(found), n))
    for k in np.flatnonzero(weights.any(axis=0)):
        total += weights[:, k, None] * covariance(kernels(n)[k], lag)
    return total


@lru_cache(maxsize=8)
def _design(n: int) -> tuple[Bands, Floats, Floats]:
    """Return bands, what each kernel puts into them ``[b, m]``, and its covariance at offset 0."""
    bands = Bands.split_bins(n - 1)
    lag = np.arange(n, dtype=np.float64)
    found = [stationary_components([""], covariance(each, lag)[:, None]) for each in kernels(n)]
    power = np.stack([bands.mean(each.power[:, 0]) for each in found], axis=1)
    return bands, power, np.array([each.covariance[0, 0] for each in found])


def fit_kernel(points: Floats) -> Kernel:
    """Fit a kernel to a sequence.

    Parameters
    ----------
    points
        ``[n, r]``, centred; two rows or more.
    """
    n = len(points)
    bands, design, scale = _design(n)
    if not points.any():
        return Kernel(n, np.zeros(len(scale)), scale)
    power = cosine_power(points)
    free = bands.mean(power.columns) * bands.sizes
    start = np.full(len(scale), 1 / len(scale))
    weights = fit_weights(bands.mean(power.share), free, design, start)
    return Kernel(n, weights, scale * power.total)


def fit_kernels(powers: Floats) -> list[Kernel]:
    """Fit a kernel to each of several tables of independent columns.

    Parameters
    ----------
    powers
        ``[r, n - 1]``: squares of the cosine transform of each, but for the mean row.
    """
    n = powers.shape[1] + 1
    bands, design, scale = _design(n)
    totals = powers.sum(axis=1)
    observed = bands.mean(powers / np.maximum(totals, 1e-300)[:, None])
    start = np.full((len(powers), len(scale)), 1 / len(scale))
    weights = update_weights(observed, bands.sizes.astype(np.float64), design, start, N_UPDATES)
    return [Kernel(n, w, scale * total) for w, total in zip(weights, totals, strict=True)]


@dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process like a table: a falling kernel, and the table's covariance of columns.

    Parameters
    ----------
    amplitude
        ``[2n]``, or ``[2h, 2w]``: root of the kernel's spectrum on twice the length, where it is
        periodic (circulant embedding: Dietrich & Newsam 1997). Below 0, which
        happens to smooth kernels as long as the table, the spectrum is cut.
    columns
        ``[r]``: standard deviations along the table's principal directions, but for those that
        together hold less than `NEGLECTED_VARIANCE_SHARE` of the variance.
    mean
        ``[r]``: the mean row along them.
    """

    amplitude: Floats
    columns: Floats
    mean: Floats

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw a table ``[n, r]`` in the table's principal directions, rather than its columns."""
        shape, count = self.amplitude.shape, len(self.columns)
        axes = tuple(range(len(shape)))
        kept = tuple(slice(size // 2) for size in shape)
        # Noise is drawn at each frequency; the real and the imaginary part of its transform are two
        # independent columns, and stand side by side in memory.
        white = rng.standard_normal((*shape, count + count % 2), dtype=np.float32)
        waves = white.view(np.complex64) * self.amplitude.astype(np.float32)[..., None]
        rows = np.fft.ifftn(waves, axes=axes, norm="ortho")[kept].view(np.float32)
        rows = rows.reshape(-1, count + count % 2)[:, :count]
        drawn = (rows - rows.mean(axis=0)) * self.columns + self.mean
        return np.asarray(drawn, dtype=np.float32)


def fit_process(values: NDArray[np.floating[Any]], layout: Layout) -> Process:
    """Fit a stationary process to a table, on a grid an isotropic one.

    Parameters
    ----------
    values
        ``[n, d]``.
    layout
        Layout of the positions.
    """
    mean = values.mean(axis=0)
    points = values - mean
    n, d = points.shape
    if np.abs(points).max(initial=0.0) <= 1e-12 * n * np.abs(values).max(initial=0.0):
        points = np.zeros_like(points)
    sides = (layout.height, layout.width) if isinstance(layout, Grid) else (n,)
    away = [np.minimum(np.arange(2 * size), 2 * size - np.arange(2 * size)) for size in sides]
    fitted = fit_surface(points, *sides) if len(sides) > 1 else fit_kernel(points).by_offset
    near = [np.minimum(each, size - 1) for each, size in zip(away, sides, strict=True)]
    around_ring = fitted[np.ix_(*near)]
    around_ring /= max(float(around_ring.ravel()[0]), np.finfo(np.float64).tiny)
    spectrum = np.maximum(np.fft.fftn(around_ring).real, 0.0)
    # Draws are centred, and so was the table: their variances around the mean are to be the same.
    around_ring = np.fft.ifftn(spectrum).real
    pairs = np.ones(())
    for size, apart in zip(sides, away, strict=True):
        pairs = np.multiply.outer(pairs, np.maximum(size - apart, 0))
    around = float(around_ring.ravel()[0] - (pairs * around_ring).sum() / n**2)
    if n <= d:
        variance, left = np.linalg.eigh(points @ points.T)
        columns = np.sqrt(np.maximum(variance, 0.0))
        directions = points.T @ left / np.where(columns > 1e-12, columns, np.inf)
    else:
        variance, directions = np.linalg.eigh(points.T @ points)
        # Their signs are arbitrary: so a table and its negative have the same draws.
        directions *= np.where(directions.T @ mean < 0, -1.0, 1.0)
        columns = np.sqrt(np.maximum(variance, 0.0))
    kept = np.cumsum(variance) > NEGLECTED_VARIANCE_SHARE * variance.sum()  # they rise
    columns, directions = columns[kept], directions[:, kept]
    scale = 1 / np.sqrt(n * around) if around > 1e-12 else 0.0
    along = directions.T @ mean
    rest = float(np.linalg.norm(mean - directions @ along))
    columns, along = columns * scale, np.asarray(along)
    if len(columns) < d:  # the part of the mean that no principal direction has
        columns, along = np.append(columns, 0.0), np.append(along, rest)
    return Process(np.sqrt(spectrum), columns, along)
