"""Power spectra drawn from a fit of the mixture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.mixture import Fit
from posprobe.analyses.linear import toeplitz
from posprobe.arrays import Floats

#: Columns of a draw: a power of 64 is known to a fifth, and more look alike.
MAX_DRAWN_COLUMNS = 64
#: Bins whose correlation is exact, as its root costs their cube; neighbours beyond are hardly
#: correlated.
MAX_CORRELATED_BINS = 384
#: From this participation on columns have equal sizes. Fewer have geometric sizes, as few columns
#: are unequal in trained tables.
MIN_EQUAL_COLUMNS = 12.0
#: Shares of noise that are added until a correlation has a root: rounding leaves small eigenvalues
#: of smooth kernels below 0.
JITTERS = (1e-6, 1e-4, 1e-2)


def _column_sizes(columns: Floats, width: int) -> NDArray[np.float32]:
    """Return the variances of columns in each bin, ``[k, width]``, 1 in all."""
    index = np.arange(width)
    ratio = (columns - 1) / (columns + 1)
    geometric = np.power(ratio[:, None], index)
    equal = index < np.round(columns)[:, None]
    sizes = np.where(columns[:, None] < MIN_EQUAL_COLUMNS, geometric, equal)
    return np.asarray(sizes / sizes.sum(axis=1, keepdims=True), dtype=np.float32)


def draw_powers(
    fit: Fit, columns: Floats, count: int, rng: np.random.Generator
) -> Floats:
    """Draw the power spectra of tables that a fit describes: ``[count, n - 1]``, 1 in all.

    The first bins are correlated as the fit's covariance has it, the others independent.

    Parameters
    ----------
    fit
        Fit that the tables follow.
    columns
        ``[n - 1]``: number of independent columns in each bin.
    count
        Number of spectra.
    rng
        Generator of the draws.
    """
    mean = fit.mean
    factor = _correlation_root(fit)
    width = int(min(max(np.ceil(columns.max()), 1), MAX_DRAWN_COLUMNS))
    sizes = _column_sizes(columns, width)
    spectra = np.empty((count, len(mean)))
    for k in range(count):
        white = rng.standard_normal((len(mean), width), dtype=np.float32)
        white[: len(factor)] = factor @ white[: len(factor)]
        spectra[k] = (np.square(white) * sizes).sum(axis=1)
    spectra *= mean
    return np.asarray(spectra / spectra.sum(axis=1, keepdims=True))


def _correlation_root(fit: Fit) -> NDArray[np.float32]:
    """Return a root of the correlation of the first bins of a fit: ``[e, e]``."""
    from scipy.fft import dct

    mean = fit.mean
    n_bins = min(len(mean), MAX_CORRELATED_BINS)
    bins = slice(1, n_bins + 1)
    offsets = fit.components.covariance @ fit.weights
    transformed_rows = dct(toeplitz(offsets), axis=0, norm="ortho")[bins]
    covariance = dct(transformed_rows, axis=1, norm="ortho")[:, bins]
    # What is not stationary is a walk, with independent bins, or a ramp, which is taken for one.
    nonstationary_power = mean[:n_bins] - np.diag(covariance)
    covariance[np.diag_indices(n_bins)] += np.maximum(nonstationary_power, 0.0)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = covariance / np.outer(deviation, deviation)
    identity = np.eye(n_bins)
    for jitter in JITTERS:
        try:
            factor = np.linalg.cholesky((correlation + jitter * identity) / (1 + jitter))
        except np.linalg.LinAlgError:
            continue
        return factor.astype(np.float32)
    return identity.astype(np.float32)
