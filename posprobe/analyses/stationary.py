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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import Floats
from posprobe.analyses.transforms import fast_length, total_power, transforms
from posprobe.layouts import Grid, Layout

#: Lengths of each family of kernels.
LENGTHS = 9
#: Distances to which the kernel is fitted, in equal steps of their logarithm.
DISTANCES = 48
#: Longest side of a grid whose patches are all fitted.
GRID_SIDE = 16
#: Leading directions of the columns that a draw keeps.
DIRECTIONS = 24
#: Share of the variance in the weakest directions that draws of a process do without.
TAIL = 1e-3
#: A squared exponential kernel halves at so many of its lengths: the root of 2 ln 2.
HALF = 1.18
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
    return np.asarray(np.fft.ifft(total_power(points, fast_length(2 * n))).real[:n])


def half_length(points: Floats) -> float:
    """Return the distance at which the mean inner product of rows halves, from that of neighbours.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    """
    n = len(points)
    mean = offset_sums(points) / np.arange(n, 0, -1)
    if mean[1] <= 0:
        return 0.0
    below = np.flatnonzero(mean[1:] <= mean[1] / 2)
    if not len(below):
        return float(n - 1)
    k = int(below[0]) + 1
    return float(k - 1 + (mean[k - 1] - mean[1] / 2) / (mean[k - 1] - mean[k]))


def fit_kernel(points: Floats) -> Kernel:
    """Fit a falling kernel to a sequence.

    Non-negative least squares between the offset means of the centred Gram matrix and those that
    each kernel has once its rows are centred too, by the number of pairs.

    Parameters
    ----------
    points
        ``[n, r]``, centred.
    """
    return fit_offsets(offset_sums(points))


def fit_offsets(sums: Floats) -> Kernel:
    """Fit a falling kernel to a sequence of which the `offset_sums` are known: ``[n]``."""
    shared = _sequence_design(len(sums))
    return _fit(sums[shared.offsets], shared.sums, shared.lengths, shared.pairs)


@dataclass(frozen=True, eq=False)
class _Design:
    """What all sequences of one length share, or all grids of one shape."""

    atoms: Floats  # [n, a]: every kernel by offset, or by distance
    offsets: NDArray[np.intp]  # [k] that are fitted
    sums: Floats  # [k, a]: sums over those offsets of the centred kernels
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
    # Every so many patches of a large grid: the matrix of all kernels would not fit.
    every = -(-max(height, width) // GRID_SIDE)
    cells = points.reshape(height, width, -1)[::every, ::every]
    points = cells.reshape(-1, cells.shape[-1])
    points = points - points.mean(axis=0)
    shared = _grid_design(height, width, every)
    sums = np.bincount(shared.offsets, weights=(points @ points.T).ravel())
    return _fit(np.asarray(sums, np.float64), shared.sums, shared.lengths, shared.pairs)


@lru_cache(maxsize=8)
def _grid_design(height: int, width: int, every: int) -> _Design:
    """Return what all grids of a shape share; ``offsets`` are the ring of each pair ``[m * m]``."""
    lengths = _lengths(max(height, width))
    distance = grid_distances(-(-height // every), -(-width // every)) * every
    member = np.unique(np.round(distance).astype(int), return_inverse=True)[1].ravel()
    values, place = np.unique(distance, return_inverse=True)
    by_value = atoms(values, lengths)
    table = by_value[place.reshape(distance.shape)]
    mean = table.mean(axis=0)
    centred = (table - mean[None] - mean[:, None] + mean.mean(axis=0)).reshape(len(member), -1)
    summed = [np.bincount(member, weights=each) for each in centred.T]
    sums = np.asarray(np.stack(summed, axis=1), dtype=np.float64)
    return _Design(by_value, member, sums, lengths, np.bincount(member).astype(np.float64))


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
        together hold less than `TAIL` of the variance.
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
        fft = transforms(self.amplitude.size)
        rows = fft.ifftn(waves, axes=axes, norm="ortho")[kept].view(np.float32)
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
        Of the positions.
    """
    mean = values.mean(axis=0)
    points = values - mean
    n, d = points.shape
    if np.abs(points).max(initial=0.0) <= 1e-12 * n * np.abs(values).max(initial=0.0):
        points = np.zeros_like(points)
    if isinstance(layout, Grid):
        kernel = fit_grid_kernel(points, layout.height, layout.width)
        sides: tuple[int, ...] = (layout.height, layout.width)
    else:
        kernel = fit_kernel(points)
        sides = (n,)
    away = [np.minimum(np.arange(2 * size), 2 * size - np.arange(2 * size)) for size in sides]
    distance = np.sqrt(np.square(np.stack(np.meshgrid(*away, indexing="ij"))).sum(axis=0))
    covariance = kernel(distance)
    covariance /= max(float(covariance.ravel()[0]), np.finfo(np.float64).tiny)
    spectrum = np.maximum(np.fft.fftn(covariance).real, 0.0)
    # Draws are centred, and so was the table: their variances around the mean are to be the same.
    covariance = np.fft.ifftn(spectrum).real
    pairs = np.ones(())
    for size, apart in zip(sides, away, strict=True):
        pairs = np.multiply.outer(pairs, np.maximum(size - apart, 0))
    around = float(covariance.ravel()[0] - (pairs * covariance).sum() / n**2)
    if n <= d:
        variance, left = np.linalg.eigh(points @ points.T)
        columns = np.sqrt(np.maximum(variance, 0.0))
        directions = points.T @ left / np.where(columns > 1e-12, columns, np.inf)
    else:
        variance, directions = np.linalg.eigh(points.T @ points)
        # Their signs are arbitrary: so a table and its negative have the same draws.
        directions *= np.where(directions.T @ mean < 0, -1.0, 1.0)
        columns = np.sqrt(np.maximum(variance, 0.0))
    kept = np.cumsum(variance) > TAIL * variance.sum()  # they rise
    columns, directions = columns[kept], directions[:, kept]
    scale = 1 / np.sqrt(n * around) if around > 1e-12 else 0.0
    along = directions.T @ mean
    rest = float(np.linalg.norm(mean - directions @ along))
    columns, along = columns * scale, np.asarray(along)
    if len(columns) < d:  # the part of the mean that no principal direction has
        columns, along = np.append(columns, 0.0), np.append(along, rest)
    return Process(np.sqrt(spectrum), columns, along)


def grid_distances(height: int, width: int) -> Floats:
    """Return the distances between all patches, ``[h * w, h * w]``."""
    cells = np.stack(np.divmod(np.arange(height * width), width), axis=1).astype(np.float64)
    square = np.square(cells[:, None] - cells[None]).sum(axis=-1)
    return np.asarray(np.sqrt(square))


def _lengths(n: int) -> Floats:
    return np.geomspace(0.7, max(2.0 * n, 2.0), LENGTHS)


def _fit(sums: Floats, design: Floats, lengths: Floats, count: Floats) -> Kernel:
    scale = float(np.abs(sums).max()) or 1.0
    by = 1 / np.sqrt(np.maximum(count, 1.0))
    size = np.linalg.norm(design * by[:, None], axis=0)
    there = size > 1e-9 * size.max()  # centring leaves nothing of the constant
    matrix = design[:, there] * by[:, None] / size[there]
    weights = np.zeros(design.shape[1])
    weights[there] = non_negative(matrix, sums * by / scale) / size[there] * scale
    return Kernel(weights, lengths)


def non_negative(matrix: Floats, target: Floats) -> Floats:
    """Solve least squares with coefficients that are not negative.

    Lawson & Hanson (1974, chapter 23), on the products alone: SciPy's, on the matrix, takes three
    times as long.
    """
    gram, along = matrix.T @ matrix, matrix.T @ target
    count = len(along)
    gram = gram + 1e-12 * np.eye(count)
    solution = np.zeros(count)
    active = np.zeros(count, dtype=bool)
    for _ in range(3 * count):
        gain = np.where(active, -np.inf, along - gram @ solution)
        k = int(np.argmax(gain))
        if gain[k] <= 1e-10:
            break
        active[k] = True
        while True:
            chosen = np.flatnonzero(active)
            trial = np.linalg.solve(gram[np.ix_(chosen, chosen)], along[chosen])
            if (trial > 0).all():
                solution[:] = 0.0
                solution[chosen] = trial
                break
            now, negative = solution[chosen], trial <= 0
            step = (now[negative] / (now[negative] - trial[negative] + 1e-300)).min()
            solution[chosen] = now + step * (trial - now)
            active[chosen[negative & (solution[chosen] <= 1e-14)]] = False
            if active[k] and solution[k] <= 0 and not (trial > 0).any():
                active[k] = False
            if not active.any():
                return solution
            solution[~active] = 0.0
    return solution


def root(covariance: Floats) -> Floats:
    """Return a matrix whose product with white noise has the covariance: ``[n, n]``."""
    jitter = 1e-9 * float(np.trace(covariance)) / len(covariance) + np.finfo(np.float64).tiny
    try:
        return np.asarray(
            np.linalg.cholesky(covariance + jitter * np.eye(len(covariance))), np.float64
        )
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
