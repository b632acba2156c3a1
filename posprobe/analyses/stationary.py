"""Smooth stationary processes: the kernel that fits a table best, and draws from it.

A table is set beside Gaussian tables whose rows are as alike as its own are at every distance, but
whose kernel is a non-negative mixture of kernels that only fall: Ornstein-Uhlenbeck, Matern 3/2 and
5/2, squared exponential (Rasmussen & Williams 2006, section 4.2), a constant and noise. Their
spectra fall with frequency too, so that no mixture has a line. The draws are matrix normal: the
kernel over positions times the table's covariance over columns. Everything here is unchanged when
the columns are rotated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import Floats

#: Lengths of each family of kernels.
LENGTHS = 9
#: Distances to which the kernel is fitted, in equal steps of their logarithm.
DISTANCES = 48
#: Leading directions of the columns that a draw keeps.
DIRECTIONS = 24
#: Steps of the block iteration for leading directions.
STEPS = 3


@dataclass(frozen=True, eq=False)
class Kernel:
    """A mixture of falling kernels.

    Parameters
    ----------
    weights
        ``[a]``, not negative: the constant, then `LENGTHS` lengths of each family, then noise.
    lengths
        ``[LENGTHS]``, in positions.
    """

    weights: Floats
    lengths: Floats

    def __call__(self, distance: Floats) -> Floats:
        """Return the covariance at distances of any shape, summed over columns."""
        values, place = np.unique(distance, return_inverse=True)
        found = atoms(values, self.lengths) @ self.weights
        return np.asarray(found[place.reshape(np.shape(distance))])

    def by_offset(self, n: int) -> Floats:
        """Return the covariance at offsets 0 to ``n - 1``, of a fit to ``n`` rows: ``[n]``."""
        return np.asarray(_sequence_design(n).atoms @ self.weights)


def atoms(distance: Floats, lengths: Floats) -> Floats:
    """Return every kernel of the mixture at the given distances: ``[..., a]``."""
    distance = np.asarray(distance, dtype=np.float64)
    ratio = distance[..., None] / lengths
    three, five = np.sqrt(3.0) * ratio, np.sqrt(5.0) * ratio
    families = (
        np.ones((*distance.shape, 1)),
        np.exp(-ratio),
        (1 + three) * np.exp(-three),
        (1 + five + five**2 / 3) * np.exp(-five),
        np.exp(-(ratio**2) / 2),
        (distance == 0)[..., None],
    )
    return np.concatenate(families, axis=-1)


def offset_sums(points: Floats) -> Floats:
    """Return the sums along the diagonals of the Gram matrix, ``[n]``, without forming it."""
    n = len(points)
    spectrum = np.square(np.abs(np.fft.rfft(points, 2 * n, axis=0))).sum(axis=1)
    return np.asarray(np.fft.irfft(spectrum, 2 * n)[:n])


def fit_kernel(points: Floats) -> Kernel:
    """Fit a falling kernel to a sequence.

    Non-negative least squares between the offset means of the centred Gram matrix and those that
    each kernel has once its rows are centred too, by the number of pairs.

    Parameters
    ----------
    points
        ``[n, r]``, centred.
    """
    n = len(points)
    shared = _sequence_design(n)
    return _fit(offset_sums(points)[shared.offsets], shared.sums, shared.lengths, shared.pairs)


@dataclass(frozen=True, eq=False)
class _Design:
    """What all sequences of one length share."""

    atoms: Floats  # [n, a]: every kernel by offset
    offsets: NDArray[np.intp]  # [k] that are fitted
    sums: Floats  # [k, a]: sums along those diagonals of the centred kernels
    lengths: Floats
    pairs: Floats  # [k]


@lru_cache(maxsize=8)
def _sequence_design(n: int) -> _Design:
    lengths = _lengths(n)
    offset = np.arange(n)
    table = atoms(offset.astype(np.float64), lengths)
    pairs = (n - offset).astype(np.float64)
    # Row means of the Toeplitz matrix, and what centring takes off each diagonal.
    running = np.cumsum(table, axis=0)
    row = (running + running[::-1] - table[0]) / n
    below = np.concatenate([np.zeros((1, row.shape[1])), np.cumsum(row, axis=0)])
    first, last = below[n - offset], below[n] - below[offset]
    sums = pairs[:, None] * (table + row.mean(axis=0)) - first - last
    chosen = np.unique(np.round(np.geomspace(1, max(n - 1, 1), DISTANCES)).astype(int))
    chosen = np.append(0, chosen[chosen < n])
    return _Design(table, chosen, sums[chosen], lengths, pairs[chosen])


def fit_grid_kernel(points: Floats, height: int, width: int) -> Kernel:
    """Fit a falling kernel of the distance between two patches to a table on a grid.

    Parameters
    ----------
    points
        ``[h * w, r]``, centred.
    height, width
        Of the grid.
    """
    distance = grid_distances(height, width)
    lengths = _lengths(max(height, width))
    rings, member = np.unique(np.round(distance).astype(int), return_inverse=True)
    member = member.reshape(distance.shape)
    count = np.bincount(member.ravel()).astype(np.float64)

    def sums(matrix: Floats) -> Floats:
        return np.bincount(member.ravel(), weights=matrix.ravel(), minlength=len(rings))

    values, place = np.unique(distance, return_inverse=True)
    table = atoms(values, lengths)[place.reshape(distance.shape)]
    mean = table.mean(axis=0)
    centred = table - mean[None] - mean[:, None] + mean.mean(axis=0)
    design = np.stack([sums(centred[..., k]) for k in range(table.shape[-1])], axis=1)
    return _fit(sums(points @ points.T), design, lengths, count)


def grid_distances(height: int, width: int) -> Floats:
    """Return the distances between all patches, ``[h * w, h * w]``."""
    cells = np.stack(np.divmod(np.arange(height * width), width), axis=1).astype(np.float64)
    square = np.square(cells[:, None] - cells[None]).sum(axis=-1)
    return np.asarray(np.sqrt(square))


def _lengths(n: int) -> Floats:
    return np.geomspace(0.7, max(2.0 * n, 2.0), LENGTHS)


def _fit(sums: Floats, design: Floats, lengths: Floats, count: Floats) -> Kernel:
    from scipy.optimize import nnls

    scale = float(np.abs(sums).max()) or 1.0
    by = 1 / np.sqrt(np.maximum(count, 1.0))
    size = np.linalg.norm(design * by[:, None], axis=0)
    there = size > 1e-9 * size.max()  # centring leaves nothing of the constant
    matrix = design[:, there] * by[:, None] / size[there]
    weights = np.zeros(design.shape[1])
    weights[there] = nnls(matrix, sums * by / scale)[0] / size[there] * scale
    return Kernel(weights, lengths)


def root(covariance: Floats) -> Floats:
    """Return a matrix whose product with white noise has the covariance: ``[n, n]``."""
    jitter = 1e-9 * float(np.trace(covariance)) / len(covariance) + np.finfo(np.float64).tiny
    try:
        return np.linalg.cholesky(covariance + jitter * np.eye(len(covariance)))
    except np.linalg.LinAlgError:  # rounding: smooth kernels have eigenvalues near 0
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def toeplitz(values: Floats) -> Floats:
    """Return the distances' matrix ``|i - j|`` taken through ``values`` ``[n]``."""
    index = np.arange(len(values))
    return np.asarray(values[np.abs(index[:, None] - index[None])])


def leading(points: Floats, rank: int = DIRECTIONS) -> Floats:
    """Return the points' coordinates along their leading directions: ``[n, r]``.

    A block iteration that begins with the same random rows whatever the columns' basis, so that
    rotating the columns changes no more than signs within equal directions.
    """
    n, d = points.shape
    rank = min(rank, n, d)
    if min(n, d) <= 4 * rank:
        left, singular, _ = np.linalg.svd(points, full_matrices=False)
        return np.asarray((left * singular)[:, :rank])
    block = np.random.default_rng(0).standard_normal((n, rank + 8))
    for _ in range(STEPS):
        basis, _ = np.linalg.qr(points.T @ block)
        block, _ = np.linalg.qr(points @ basis)
    left, singular, _ = np.linalg.svd(block.T @ points, full_matrices=False)
    return np.asarray(block @ (left * singular)[:, :rank])
