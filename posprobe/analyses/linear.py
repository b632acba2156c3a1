"""Linear algebra of rows: sums by lag, roots of covariances, leading directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from posprobe.arrays import Floats

#: The standard deviation of a normal distribution over its median absolute deviation: 1 / 0.6745.
SD_PER_MAD = 1.4826
#: This many complex numbers are transformed at once: 2 MiB, which the cache of a core holds.
MAX_TRANSFORMED_NUMBERS = 2**17


def total_power(points: NDArray[np.floating[Any]], length: int) -> Floats:
    """Return the power at each frequency, summed over columns, ``[length]``.

    Two columns are transformed at once, as the real and the imaginary part of one. Their powers add
    up, and their cross spectrum cancels between a frequency and its negative.

    Parameters
    ----------
    points
        ``[n, d]``, rows of the table.
    length
        Length of the transform, which pads the columns with zeros; at least n.
    """
    from scipy.fft import fft

    if points.shape[1] % 2:
        points = np.pad(points, ((0, 0), (0, 1)))
    paired = np.ascontiguousarray(points).view(np.result_type(points.dtype, np.complex64))
    power = np.zeros(length)
    n_columns = max(1, MAX_TRANSFORMED_NUMBERS // length)
    for column in range(0, paired.shape[1], n_columns):
        transformed = fft(paired[:, column : column + n_columns], length, axis=0).view(
            points.dtype
        )
        power += np.einsum("ij,ij->i", transformed, transformed)
    return np.asarray(power + np.roll(power[::-1], 1)) / 2


#: A draw keeps this many leading directions of the columns: trained tables have nine tenths of
#: their variance in 3 (GPT-2) to 11 (MiniLM).
N_LEADING_DIRECTIONS = 24
#: After this many block iterations the twelve leading variances are exact to a thousandth for a
#: random walk, whose spectrum falls slowly.
N_BLOCK_ITERATIONS = 3


def robust_sd(values: Floats, centre: float | None = None) -> float:
    """Estimate the standard deviation of normal values robustly against outliers.

    Parameters
    ----------
    values
        ``[n]``, finite.
    centre
        Centre from which deviations are measured; the median where None.
    """
    middle = np.median(values) if centre is None else centre
    return float(SD_PER_MAD * np.median(np.abs(values - middle)))


#: Questions use at most this many first rows, so that those that need all pairs of rows take
#: seconds.
MAX_VIEW_ROWS = 2048


def scaled_points(values: NDArray[np.floating[Any]]) -> Floats:
    """Return rows less their mean, with mean squared norm 1; zeros for equal rows.

    Parameters
    ----------
    values
        ``[N, d]``, finite; at most the first `MAX_VIEW_ROWS` are returned.
    """
    points = np.asarray(values[:MAX_VIEW_ROWS], dtype=np.float64)
    points = points / (float(np.abs(points).max(initial=0.0)) or 1.0)
    points = points - points.mean(axis=0)
    rms_norm = float(np.sqrt(np.square(points).sum() / max(len(points), 1)))
    if np.abs(points).max(initial=0.0) <= 1e-12 * max(len(points), 1):
        return np.zeros_like(points)
    return np.asarray(points / rms_norm)


def offset_sums(points: Floats) -> Floats:
    """Return the sums along the diagonals of the Gram matrix, ``[n]``, without forming it."""
    from scipy.fft import ifft, next_fast_len

    n = len(points)
    return np.asarray(ifft(total_power(points, next_fast_len(2 * n, real=True))).real[:n])


def half_length(points: Floats) -> float:
    """Return the distance at which the mean inner product of rows halves, from that of neighbours.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    """
    return halving_distance(offset_sums(points) / np.arange(len(points), 0, -1))


def halving_distance(mean_products: Floats) -> float:
    """Return the distance at which mean inner products by distance halve from that at 1."""
    if mean_products[1] <= 0:
        return 0.0
    lags_below = np.flatnonzero(mean_products[1:] <= mean_products[1] / 2)
    if not len(lags_below):
        return float(len(mean_products) - 1)
    lag = int(lags_below[0]) + 1
    return float(
        lag
        - 1
        + (mean_products[lag - 1] - mean_products[1] / 2)
        / (mean_products[lag - 1] - mean_products[lag])
    )


def fit_line(x: Floats, y: Floats) -> tuple[float, float]:
    """Return slope and R² of a straight line; both are 0 if x or y does not vary."""
    x, y = x - x.mean(), y - y.mean()
    x_squares, y_squares = float(x @ x), float(y @ y)
    if x_squares == 0 or y_squares == 0:
        return 0.0, 0.0
    slope = float(x @ y) / x_squares
    return slope, min(slope**2 * x_squares / y_squares, 1.0)


def small_gram(points: Floats) -> Floats:
    """Return the inner products of rows ``[n, d]``, or of columns if there are fewer."""
    return points @ points.T if len(points) <= points.shape[1] else points.T @ points


def participation_ratio(points: Floats) -> float:
    """Return the participation ratio of centred points ``[n, d]``."""
    gram = small_gram(points)
    trace = np.trace(gram)
    # The square of the Gram matrix would overflow long before the table does.
    return float(1 / np.square(gram / trace).sum()) if trace > 0 else 0.0


def grid_distances(height: int, width: int) -> Floats:
    """Return the distances between all patches, ``[h * w, h * w]``."""
    return np.asarray(np.hypot(*grid_displacements(height, width)))


def grid_displacements(
    height: int, width: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return absolute differences of all patches in row and in column, ``[h * w, h * w]``."""
    patch_rows, patch_columns = np.divmod(np.arange(height * width), width)
    return np.abs(patch_rows[:, None] - patch_rows), np.abs(
        patch_columns[:, None] - patch_columns
    )


def slow_cosines(n: int, count: int) -> Floats:
    """Return the slowest waves of the orthonormal cosine transform (DCT-II), ``[n, count]``."""
    waves = np.cos(np.pi * np.outer(np.arange(n) + 0.5, np.arange(count)) / n)
    return np.asarray(waves / np.linalg.norm(waves, axis=0))


def covariance_root(covariance: Floats) -> Floats:
    """Return a matrix whose product with white noise has the covariance, ``[n, n]``."""
    jitter = (
        1e-9 * float(np.trace(covariance)) / len(covariance) + np.finfo(np.float64).tiny
    )
    try:
        return np.asarray(
            np.linalg.cholesky(covariance + jitter * np.eye(len(covariance))), np.float64
        )
    except np.linalg.LinAlgError:  # smooth kernels have eigenvalues that round below 0
        eigenvalues, eigenvectors = np.linalg.eigh(covariance)
        return np.asarray(eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0)))


def toeplitz(values: Floats) -> Floats:
    """Return the matrix with elements ``values[|i - j|]``, ``[n, n]``."""
    mirrored = np.concatenate([values[:0:-1], values])
    return np.array(sliding_window_view(mirrored, len(values))[::-1])


def leading_coordinates(points: Floats, rank: int = N_LEADING_DIRECTIONS) -> Floats:
    """Return the points' coordinates along their leading directions, ``[n, r]``.

    The block iteration begins with the same random rows whatever the basis of the columns, so that
    a rotation of the columns changes no more than signs within equal directions.
    """
    n, d = points.shape
    rank = min(rank, n, d)
    if min(n, d) <= 4 * rank:
        u, singular_values, _ = np.linalg.svd(points, full_matrices=False)
        return np.asarray((u * singular_values)[:, :rank])
    block = np.random.default_rng(0).standard_normal((n, rank + 8))
    for _ in range(N_BLOCK_ITERATIONS):
        basis, _ = np.linalg.qr(points.T @ block)
        block, _ = np.linalg.qr(points @ basis)
    u, singular_values, _ = np.linalg.svd(block.T @ points, full_matrices=False)
    return np.asarray(block @ (u * singular_values)[:, :rank])
