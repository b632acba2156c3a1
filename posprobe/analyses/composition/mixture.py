"""A table as a sum of random processes: what each puts into the cosine transform, and their fit.

The rows of a centred table ``[n, d]`` are transformed by the orthonormal DCT-II. A component with
covariance K over positions puts the power ``f_k' K f_k`` into bin k, whatever its columns are. The
powers of all components add up, and that of a bin is nearly gamma distributed around the sum, with
half as many degrees of freedom as it has independent columns (Whittle 1953). Powers are scaled to
add up to 1 over the bins from 1 on, so that weights are shares of the variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from posprobe.analyses.linear import toeplitz
from posprobe.arrays import Floats

#: An exponential kernel shorter than this is as good as noise: its correlation with the next row,
#: exp(-1 / .9), would show from a tenth of the variance on.
MAX_NOISE_LENGTH_POSITIONS = 0.9
#: The same limit for kernels of alternating sign. Where 0.4 of the variance alternates in noise,
#: 0.38 to 0.49 is found in 128 rows (12 tables; up to 0.72 where all lengths count as alternating).
MAX_ALTERNATING_NOISE_POSITIONS = 0.6
#: Shortest length of a smooth curve. A shorter one bends within a few rows, as moving averages of
#: four rows do.
MIN_SMOOTH_LENGTH_POSITIONS = 3.0
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
    median = local_median(norms, MEDIAN_BINS)
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


def local_median(values: Floats, width: int) -> Floats:
    """Return the median of ``[k]`` over so many neighbours, an odd number, fewer at the ends."""
    padded = np.pad(values, width // 2, constant_values=np.nan)
    return np.asarray(np.nanmedian(sliding_window_view(padded, width), axis=1))


@dataclass(frozen=True, eq=False)
class Components:
    """Components that a table may be made of.

    Parameters
    ----------
    family
        ``[m]``: family of each component.
    power
        ``[n - 1, m]``: power in each bin, 1 in all.
    covariance
        ``[n, m]``: covariance by offset for a power of 1; zeros where it is not stationary.
    """

    family: tuple[str, ...]
    power: Floats
    covariance: Floats

    def has_family(self, *families: str) -> NDArray[np.bool_]:
        """Return which components belong to any of the families: ``[m]``."""
        return np.isin(self.family, families)


def join_components(groups: Sequence[Components]) -> Components:
    """Join groups of components, in order."""
    return Components(
        tuple(family for group in groups for family in group.family),
        np.hstack([group.power for group in groups]),
        np.hstack([group.covariance for group in groups]),
    )


def stationary_components(family: Sequence[str], covariance: Floats) -> Components:
    """Return stationary components from covariances by offset ``[n, m]``.

    ``f_k' K f_k`` of a Toeplitz K is the sum over offsets s of ``c(s)`` times ``((n - s) cos(k pi s
    / n) - sin(k pi s / n) / sin(k pi / n)) / n``, twice for s > 0.
    """
    n = len(covariance)
    offset = np.arange(n)[:, None]
    cosine_sum = np.fft.rfft((n - offset) * covariance, 2 * n, axis=0)[1:n].real
    sine_sum = -np.fft.rfft(covariance, 2 * n, axis=0)[1:n].imag
    bin_sine = np.sin(np.pi * np.arange(1, n) / n)[:, None]
    power = 2 * (cosine_sum - sine_sum / bin_sine) / n - covariance[0]
    power = np.maximum(power, 0.0)
    total = power.sum(axis=0)
    return Components(tuple(family), power / total, covariance / total)


@dataclass(frozen=True)
class KernelShape:
    """A kernel without a period (Rasmussen & Williams 2006, section 4.2).

    Parameters
    ----------
    family
        Family that it belongs to in this many rows.
    kind
        ``exponential``, ``matern`` of order 3/2, or ``normal``.
    length
        Length in positions; 0 for noise.
    """

    family: str
    kind: str
    length: float


def covariance(kernel: KernelShape, distance: Floats) -> Floats:
    """Return the covariance that a kernel has at distances, 1 at distance 0."""
    if not kernel.length:
        return np.asarray(distance == 0, dtype=np.float64)
    ratio = distance / kernel.length
    if kernel.kind == "exponential":
        return np.asarray(np.exp(-ratio))
    if kernel.kind == "matern":
        return np.asarray((1 + np.sqrt(3) * ratio) * np.exp(-np.sqrt(3) * ratio))
    return np.asarray(np.exp(-0.5 * np.square(ratio)))


@lru_cache(maxsize=8)
def kernels(n: int) -> tuple[KernelShape, ...]:
    """Return the kernels without a period that a table of so many rows may have."""
    rough = np.geomspace(0.8, 2 * n, int(np.log(2.5 * n) / np.log(1.25)) + 1)
    # Steps of 1.6 are too coarse for short kernels, whose spectra are steep.
    long_lengths = np.geomspace(4.0, 2 * n, int(np.log(n / 2) / np.log(1.6)) + 1)
    smooth = np.append(np.geomspace(1.28, 4.0, 6)[:-1], long_lengths)
    rough_families = np.where(
        rough < MAX_NOISE_LENGTH_POSITIONS,
        "noise",
        np.where(rough > n / 2, "walk", "rough"),
    )
    is_short = smooth < MIN_SMOOTH_LENGTH_POSITIONS
    smooth_families = np.where(
        smooth > n / 3, "slow", np.where(is_short, "rough", "smooth")
    ).tolist()
    exponential = ["exponential"] * len(rough)
    matern, normal = ["matern"] * len(smooth), ["normal"] * len(smooth)
    return (
        KernelShape("noise", "exponential", 0.0),
        *map(KernelShape, rough_families.tolist(), exponential, rough.tolist()),
        *map(KernelShape, smooth_families, matern, smooth.tolist()),
        *map(KernelShape, smooth_families, normal, smooth.tolist()),
    )


@lru_cache(maxsize=4)
def dictionary(n: int) -> Components:
    """Return the components without a period that a table of so many rows may have.

    The first two are the random walk and the straight line, which are not stationary.
    """
    lag = np.arange(n, dtype=np.float64)
    bins = np.arange(1, n)
    walk = 1 / np.square(np.sin(np.pi * bins / (2 * n)))
    # The transform of a ramp has odd bins alone.
    ramp = np.where(bins % 2, np.square(np.cos(np.pi * bins / (2 * n)) * walk), 0.0)
    nonstationary_power = np.stack([walk / walk.sum(), ramp / ramp.sum()], axis=1)
    shapes = kernels(n)
    covariances = np.stack([covariance(shape, lag) for shape in shapes], axis=1)
    sign_lengths = np.append(np.geomspace(0.5, 12.0, 8), np.inf)
    is_noise = sign_lengths < MAX_ALTERNATING_NOISE_POSITIONS
    alternating = ((1 - 2 * (lag % 2)) * np.exp(-lag / sign_lengths[:, None])).T
    return join_components(
        [
            Components(("walk", "line"), nonstationary_power, np.zeros((n, 2))),
            stationary_components([shape.family for shape in shapes], covariances),
            stationary_components(
                np.where(is_noise, "noise", "alternating").tolist(), alternating
            ),
        ]
    )


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


def column_sizes(columns: Floats, width: int) -> NDArray[np.float32]:
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
    sizes = column_sizes(columns, width)
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
