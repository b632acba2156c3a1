"""A table as a sum of random processes: its power by frequency, and the fit of components to it.

The rows of a centred table ``[n, d]`` are transformed by the orthonormal DCT-II. A component with
covariance K over positions puts the power ``f_k' K f_k`` into bin k, whatever its columns are. The
powers of all components add up, and that of a bin is nearly gamma distributed around the sum, with
half as many degrees of freedom as it has independent columns (Whittle 1953). Powers are scaled to
add up to 1 over the bins from 1 on, so that weights are shares of the variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from posprobe.analyses.composition.dictionary import Components
from posprobe.arrays import Floats

#: Steps of the multiplicative update.
N_UPDATES = 100
#: Steps of Fisher scoring after the update, which usually end by themselves sooner.
MAX_SCORINGS = 8
#: Scoring ends when a step gains less log likelihood: a hundredth of what any decision needs.
MIN_SCORING_GAIN = 0.01
#: Mean power of a bin, over the mean of all, that keeps exact tables finite: above the rounding of
#: float32, 1e-14, and below any tail that matters.
POWER_FLOOR = 1e-9
#: Independent columns of a bin without power: so few that it weighs nothing in a fit, yet no number
#: is divided by 0.
EMPTY_BIN_COLUMNS = 1e-6
#: The first bins, of up to 20 turns, are bands of their own.
N_SINGLE_BINS = 40
#: Width of a band over its first bin: a power that falls with the square of the frequency changes
#: by a tenth over it.
RELATIVE_BAND_WIDTH = 0.05
#: Bins of a local median, which one line, three bins wide, does not move.
MEDIAN_BINS = 9
#: Columns are counted in rows that are cut at this multiple of the local median, as one strong wave
#: would otherwise hide all others.
MAX_ROW_MEDIAN_RATIO = 3.0
#: Weights grow no further: the component then fits nothing.
MAX_COMPONENT_WEIGHT = 1e6


@dataclass(frozen=True, eq=False)
class Power:
    """A table in the cosine basis.

    Parameters
    ----------
    n_rows
        Number of rows.
    coefficients
        ``[n - 1, d]``: cosine transform of the table, without the mean row.
    share
        ``[n - 1]``: squares of the coefficients, summed over columns; 1 in all.
    columns
        ``[n - 1]``: number of independent columns in each bin.
    total
        Sum of squares of the centred table.
    """

    n_rows: int
    coefficients: Floats
    share: Floats
    columns: Floats
    total: float


def cosine_power(points: Floats) -> Power:
    """Transform centred rows ``[n, d]``, not all zero."""
    from scipy.fft import dct

    coefficients = dct(points, axis=0, norm="ortho")[1:]
    squares = np.square(coefficients).sum(axis=1)
    total = float(squares.sum())
    # Bins are empty by a symmetry or by rounding, and say nothing about the others.
    has_power = squares > POWER_FLOOR * squares.mean()
    columns = np.where(
        has_power, _count_columns(coefficients, squares), EMPTY_BIN_COLUMNS
    )
    return Power(len(points), coefficients, squares / total, columns, total)


def _count_columns(coefficients: Floats, squares: Floats) -> Floats:
    """Count the independent columns around each bin.

    Pairs of bins 3 to 8 apart, which no single wave leaks into, give the number: the squares of
    their norms over those of their inner products.
    """
    count, d = coefficients.shape
    norms = np.sqrt(squares)
    median = _local_median(norms)
    cut = np.minimum(norms, MAX_ROW_MEDIAN_RATIO * median) / np.maximum(norms, 1e-300)
    rows = coefficients * cut[:, None] / np.maximum(median, 1e-300)[:, None]
    row_squares = np.square(rows).sum(axis=1)
    norm_products, inner_products = np.zeros((2, count))
    for lag in range(3, 9):
        if lag >= count:
            break
        middle = np.arange(count - lag) + lag // 2
        norm_products[middle] += row_squares[:-lag] * row_squares[lag:]
        inner_products[middle] += np.square(
            np.einsum("ij,ij->i", rows[:-lag], rows[lag:])
        )
    bins = np.arange(count)
    reach = np.maximum(6, bins // 4)
    low, high = np.maximum(bins - reach, 0), np.minimum(bins + reach + 1, count)
    norm_sums, inner_sums = (
        np.append(0.0, np.cumsum(products))
        for products in (norm_products, inner_products)
    )
    inner_sum = np.maximum(inner_sums[high] - inner_sums[low], 1e-300)
    ratio = (norm_sums[high] - norm_sums[low]) / inner_sum
    return np.asarray(np.clip(ratio, 1.0, d))


def _local_median(values: Floats) -> Floats:
    """Return the median of ``[k]`` over `MEDIAN_BINS` neighbours, fewer at the ends."""
    padded = np.pad(values, MEDIAN_BINS // 2, constant_values=np.nan)
    return np.asarray(np.nanmedian(sliding_window_view(padded, MEDIAN_BINS), axis=1))


@dataclass(frozen=True, eq=False)
class Bands:
    """Neighbouring bins that are fitted as one.

    Parameters
    ----------
    first_bins
        ``[b]``: first bin of each band, counted from 0.
    sizes
        ``[b]``: number of bins in each band.
    """

    first_bins: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @classmethod
    def split_bins(
        cls, n_bins: int, narrow_ranges: Sequence[tuple[float, float]] = ()
    ) -> Bands:
        """Split so many bins into bands.

        Parameters
        ----------
        n_bins
            Number of bins.
        narrow_ranges
            Middle and reach of ranges whose bins are bands of their own.
        """
        is_first = np.zeros(n_bins, dtype=bool)
        is_first[:N_SINGLE_BINS] = True
        edge = float(min(N_SINGLE_BINS, n_bins))
        while edge < n_bins:
            is_first[int(edge)] = True
            edge += max(RELATIVE_BAND_WIDTH * edge, 1.0)
        for middle, reach in narrow_ranges:
            is_first[max(int(middle - reach), 0) : int(middle + reach) + 2] = True
        first_bins = np.flatnonzero(is_first)
        return cls(first_bins, np.diff(np.append(first_bins, n_bins)))

    def mean(self, values: Floats, axis: int = -1) -> Floats:
        """Return the mean in each band along an axis."""
        shape = [1] * values.ndim
        shape[axis] = -1
        sums = np.add.reduceat(values, self.first_bins, axis=axis)
        return np.asarray(sums / self.sizes.reshape(shape))


@dataclass(frozen=True, eq=False)
class Fit:
    """Components with weights.

    Parameters
    ----------
    components
        Components of a table, waves among them.
    weights
        ``[m]``: shares of the variance, as far as the fit is right.
    """

    components: Components
    weights: Floats

    @property
    def mean(self) -> Floats:
        """``[n - 1]``: the mean power of each bin."""
        return floor_power(self.components.power @ self.weights)


def floor_power(mean: Floats) -> Floats:
    """Keep mean powers ``[..., k]`` above next to nothing."""
    return np.asarray(
        np.maximum(mean, POWER_FLOOR * mean.mean(axis=-1, keepdims=True) + 1e-300)
    )


def fit_components(
    power: Floats,
    columns: Floats,
    components: Components,
    bands: Bands,
    start: Floats,
) -> Fit:
    """Fit the weights of components to a power spectrum.

    Parameters
    ----------
    power
        ``[n - 1]``: power of each bin.
    columns
        ``[n - 1]``: number of independent columns in each bin.
    components
        Components to fit, ``m`` of them.
    bands
        Groups of bins that are fitted as one.
    start
        ``[m]``: weights to begin with.
    """
    degrees = bands.mean(columns) * bands.sizes
    design = bands.mean(components.power, 0)
    return Fit(components, fit_weights(bands.mean(power), degrees, design, start))


def fit_weights(
    observed: Floats, degrees: Floats, design: Floats, start: Floats
) -> Floats:
    """Return the weights ``[m]`` that make a spectrum most likely, by the gamma likelihood.

    Multiplicative updates come first, each of which raises the likelihood (Févotte, Bertin &
    Durrieu 2009, with weights for the degrees of freedom), then Fisher scoring by non-negative
    least squares.

    Parameters
    ----------
    observed, degrees
        ``[b]``: mean power of each band, and its degrees of freedom.
    design
        ``[b, m]``: mean power of each component.
    start
        ``[m]``: weights to begin with.
    """
    from scipy.optimize import nnls

    weights = np.maximum(start, 1e-12)
    weights = update_weights(
        observed[None], degrees[None], design, weights[None], N_UPDATES
    )[0]
    current = log_likelihood(observed, degrees, floor_power(design @ weights))
    for _ in range(MAX_SCORINGS):
        mean = floor_power(design @ weights)
        precision = np.sqrt(degrees) / mean
        target = nnls(design * precision[:, None], observed * precision)[0]
        candidates = [
            weights + step * (target - weights) for step in (1.0, 0.5, 0.25, 0.1)
        ]
        means = [floor_power(design @ candidate) for candidate in candidates]
        log_likelihoods = [log_likelihood(observed, degrees, mean) for mean in means]
        best = int(np.argmax(log_likelihoods))
        if log_likelihoods[best] <= current + MIN_SCORING_GAIN:
            break
        weights, current = candidates[best], log_likelihoods[best]
    return np.asarray(weights)


def update_weights(
    observed: Floats,
    degrees: Floats,
    design: Floats,
    weights: Floats,
    steps: int,
    pulls: Floats | float = 0.0,
) -> Floats:
    """Update the weights ``[r, m]`` of several spectra ``[r, b]`` at once.

    ``pulls`` ``[r, m]`` raise weights: twice the log likelihood that a unit of each adds.
    """
    for _ in range(steps):
        mean = floor_power(weights @ design.T)
        precision = degrees / mean
        slope = np.maximum(precision @ design, 1e-100)
        updated = weights * ((precision * observed / mean) @ design + pulls) / slope
        weights = np.minimum(updated, MAX_COMPONENT_WEIGHT)
    return weights


def log_likelihood(observed: Floats, degrees: Floats, mean: Floats) -> float:
    """Return the log likelihood of a spectrum ``[b]``, up to what its own values decide."""
    return float(-0.5 * (degrees * (np.log(mean) + observed / mean)).sum())
