"""Stationary processes: the kernel that fits a table best, and draws from it.

A table is compared with Gaussian tables whose rows are as similar as its own at every distance.
The kernel is the mixture of kernels without a period of the additive model, fitted by its
likelihood (`posprobe.analyses.composition.mixture` and `grid_model`); no such mixture has a line.
The draws are matrix normal: the kernel over positions times the table's covariance over columns.
Everything here is unchanged when the columns are rotated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.dictionary import (
    covariance,
    kernels,
    stationary_components,
)
from posprobe.analyses.composition.grid_model import fit_surface
from posprobe.analyses.composition.mixture import Bands, cosine_power, fit_weights
from posprobe.arrays import Floats
from posprobe.layouts import Grid, Layout

#: A squared exponential kernel falls to a half at this multiple of its length, sqrt(2 ln 2).
HALF_WIDTH_RATIO = 1.18
#: Draws of a process do without the weakest directions, which hold this share of the variance: half
#: of the columns and of the time, for a thousandth.
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
        """``[n_rows]``: the covariance at every offset, summed over columns."""
        weights, lag = self.weights * self.scale, np.arange(self.n_rows, dtype=np.float64)
        total = np.zeros(self.n_rows)
        for k in np.flatnonzero(weights):
            total += weights[k] * covariance(kernels(self.n_rows)[k], lag)
        return total

    @property
    def long_share(self) -> float:
        """Share of the variance whose kernels are as long as half the table."""
        lengths = np.array([kernel.length for kernel in kernels(self.n_rows)])
        is_long = lengths >= self.n_rows / 2
        return float(self.weights[is_long].sum() / max(self.weights.sum(), 1e-300))


@lru_cache(maxsize=8)
def _design(n: int) -> tuple[Bands, Floats, Floats]:
    """Return bands, each kernel's power in them ``[b, m]``, and its covariance at offset 0."""
    bands = Bands.split_bins(n - 1)
    lag = np.arange(n, dtype=np.float64)
    components = [
        stationary_components([""], covariance(kernel, lag)[:, None])
        for kernel in kernels(n)
    ]
    power = np.stack(
        [bands.mean(component.power[:, 0]) for component in components], axis=1
    )
    return (
        bands,
        power,
        np.array([component.covariance[0, 0] for component in components]),
    )


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
    degrees = bands.mean(power.columns) * bands.sizes
    start = np.full(len(scale), 1 / len(scale))
    weights = fit_weights(bands.mean(power.share), degrees, design, start)
    return Kernel(n, weights, scale * power.total)


@dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process like a table: a falling kernel, and the table's covariance of columns.

    Parameters
    ----------
    amplitude
        ``[2n]``, or ``[2h, 2w]``: root of the kernel's spectrum on twice the length, where it is
        periodic (circulant embedding: Dietrich & Newsam 1997). The spectrum is cut at 0, below
        which it falls for smooth kernels as long as the table.
    columns
        ``[r]``: standard deviations along the table's principal directions, without those that
        together hold less than `NEGLECTED_VARIANCE_SHARE` of the variance.
    mean
        ``[r]``: the mean row along these directions.
    """

    amplitude: Floats
    columns: Floats
    mean: Floats

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw a table ``[n, r]`` in the table's principal directions, rather than its columns."""
        shape, count = self.amplitude.shape, len(self.columns)
        axes = tuple(range(len(shape)))
        first_half = tuple(slice(size // 2) for size in shape)
        # Noise is drawn at each frequency; the real and the imaginary part of its transform are two
        # independent columns, and are neighbours in memory.
        white = rng.standard_normal((*shape, count + count % 2), dtype=np.float32)
        waves = white.view(np.complex64) * self.amplitude.astype(np.float32)[..., None]
        rows = np.fft.ifftn(waves, axes=axes, norm="ortho")[first_half].view(np.float32)
        rows = rows.reshape(-1, count + count % 2)[:, :count]
        table = (rows - rows.mean(axis=0)) * self.columns + self.mean
        return np.asarray(table, dtype=np.float32)


def fit_process(
    values: NDArray[np.floating[Any]], layout: Layout, offsets: Floats | None = None
) -> Process:
    """Fit a stationary process to a table, on a grid an isotropic one.

    Parameters
    ----------
    values
        ``[n, d]``.
    layout
        Layout of the positions.
    offsets
        ``[n]``: covariance of the rows of a sequence by offset, where it is known.
    """
    mean = values.mean(axis=0)
    points = values - mean
    n, d = points.shape
    if np.abs(points).max(initial=0.0) <= 1e-12 * n * np.abs(values).max(initial=0.0):
        points = np.zeros_like(points)
    amplitude, ring_variance = _embed_kernel(points, layout, offsets)
    variances, directions = _principal_directions(points, mean)
    deviations = np.sqrt(np.maximum(variances, 0.0))
    # The variances rise.
    is_retained = np.cumsum(variances) > NEGLECTED_VARIANCE_SHARE * variances.sum()
    deviations, directions = deviations[is_retained], directions[:, is_retained]
    scale = 1 / np.sqrt(n * ring_variance) if ring_variance > 1e-12 else 0.0
    projected_mean = np.asarray(directions.T @ mean)
    residual_norm = float(np.linalg.norm(mean - directions @ projected_mean))
    deviations = deviations * scale
    if len(deviations) < d:  # no principal direction has the residual of the mean
        deviations = np.append(deviations, 0.0)
        projected_mean = np.append(projected_mean, residual_norm)
    return Process(amplitude, deviations, projected_mean)


def _embed_kernel(
    points: Floats, layout: Layout, offsets: Floats | None
) -> tuple[Floats, float]:
    """Return the amplitude of `Process`, and the variance of its draws around their mean."""
    sides = (layout.height, layout.width) if isinstance(layout, Grid) else (len(points),)
    distances = [
        np.minimum(np.arange(2 * size), 2 * size - np.arange(2 * size)) for size in sides
    ]
    if len(sides) > 1:
        fitted = fit_surface(points, *sides)
    else:
        fitted = fit_kernel(points).by_offset if offsets is None else offsets
    indices = [
        np.minimum(distance, size - 1)
        for distance, size in zip(distances, sides, strict=True)
    ]
    ring = fitted[np.ix_(*indices)]
    ring /= max(float(ring.ravel()[0]), np.finfo(np.float64).tiny)
    spectrum = np.maximum(np.fft.fftn(ring).real, 0.0)
    # Draws are centred, as the table was, so that their variances around the mean agree.
    ring = np.fft.ifftn(spectrum).real
    pair_counts = np.ones(())
    for size, distance in zip(sides, distances, strict=True):
        pair_counts = np.multiply.outer(pair_counts, np.maximum(size - distance, 0))
    variance = float(ring.ravel()[0] - (pair_counts * ring).sum() / len(points) ** 2)
    return np.sqrt(spectrum), variance


def _principal_directions(points: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return the variances of principal directions, rising, and these ``[d, r]``."""
    n, d = points.shape
    if n <= d:
        variances, vectors = np.linalg.eigh(points @ points.T)
        deviations = np.sqrt(np.maximum(variances, 0.0))
        return variances, points.T @ vectors / np.where(
            deviations > 1e-12, deviations, np.inf
        )
    variances, directions = np.linalg.eigh(points.T @ points)
    # Their signs are arbitrary; these give a table and its negative the same draws.
    directions *= np.where(directions.T @ mean < 0, -1.0, 1.0)
    return variances, directions
