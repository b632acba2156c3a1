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

#: Length below which an exponential kernel is as good as noise, in positions: of its correlation
#: with the next row, exp(-1 / .9), a tenth of the variance would show.
MAX_NOISE_LENGTH_POSITIONS = 0.9
#: The same of kernels of alternating sign. Of 0.4 of the variance that alternates in noise, 0.38 to
#: 0.49 is told in 128 rows (12 tables; up to 0.72 where all lengths count as alternating).
MAX_ALTERNATING_NOISE_POSITIONS = 0.6
#: Steps of the multiplicative update, and most of Fisher scoring after it, which ends by itself
#: sooner.
N_UPDATES = 100
MAX_SCORINGS = 8
#: Log likelihood that a step of scoring gains at least: a hundredth of what any decision looks at.
MIN_SCORING_GAIN = 0.01
#: Least mean power of a bin beside the mean of all, which keeps exact tables finite: beyond what
#: float32 rounds to, 1e-14, and below any tail that matters.
POWER_FLOOR = 1e-9
#: Independent columns of a bin without power: so few that it weighs nothing in a fit, and none is
#: divided by.
EMPTY_BIN_COLUMNS = 1e-6
#: Bins that stand alone, 20 turns, and the relative width of the bands beyond, over which a power
#: that falls with the square of the frequency changes by a tenth.
N_SINGLE_BINS = 40
RELATIVE_BAND_WIDTH = 0.05
#: Bins of which a local median is taken, so that one line, three bins wide, does not move it, and
#: how far above it a row counts when columns are counted: one strong wave would otherwise hide all
#: others.
MEDIAN_BINS = 9
MAX_ROW_MEDIAN_RATIO = 3.0
#: Most that a weight grows to: beyond, a component fits nothing.
MAX_COMPONENT_WEIGHT = 1e6


@dataclass(frozen=True, eq=False)
class Power:
    """A table in the cosine basis.

    Parameters
    ----------
    rows
        Number of rows.
    waves
        ``[n - 1, d]``: its coefficients, but for the mean row.
    share
        ``[n - 1]``: their squares, which add up to 1.
    columns
        ``[n - 1]``: independent columns in each bin.
    total
        Sum of squares of the centred table.
    """

    rows: int
    waves: Floats
    share: Floats
    columns: Floats
    total: float


def cosine_power(points: Floats) -> Power:
    """Transform centred rows ``[n, d]``, not all zero."""
    from scipy.fft import dct

    waves = dct(points, axis=0, norm="ortho")[1:]
    squares = np.square(waves).sum(axis=1)
    total = float(squares.sum())
    # Empty bins are those of a symmetry, or of rounding: they tell nothing of the others.
    columns = np.where(
        squares > POWER_FLOOR * squares.mean(), _columns(waves, squares), EMPTY_BIN_COLUMNS
    )
    return Power(len(points), waves, squares / total, columns, total)


def _columns(waves: Floats, squares: Floats) -> Floats:
    """Count the independent columns around each bin.

    From pairs of bins 3 to 8 apart, which no one wave leaks into: the squares of their norms beside
    those of their inner products.
    """
    count, d = waves.shape
    size = np.sqrt(squares)
    middle = local_median(size, MEDIAN_BINS)
    cut = np.minimum(size, MAX_ROW_MEDIAN_RATIO * middle) / np.maximum(size, 1e-300)
    rows = waves * cut[:, None] / np.maximum(middle, 1e-300)[:, None]
    norms = np.square(rows).sum(axis=1)
    both, inner = np.zeros((2, count))
    for apart in range(3, 9):
        if apart >= count:
            break
        place = np.arange(count - apart) + apart // 2
        both[place] += norms[:-apart] * norms[apart:]
        inner[place] += np.square(np.einsum("ij,ij->i", rows[:-apart], rows[apart:]))
    bins = np.arange(count)
    reach = np.maximum(6, bins // 4)
    low, high = np.maximum(bins - reach, 0), np.minimum(bins + reach + 1, count)
    both, inner = (np.append(0.0, np.cumsum(each)) for each in (both, inner))
    ratio = (both[high] - both[low]) / np.maximum(inner[high] - inner[low], 1e-300)
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
        Of each.
    power
        ``[n - 1, m]``: in each bin, 1 in all.
    covariance
        ``[n, m]``: by offset, of a power of 1; zeros of what is not stationary.
    """

    family: tuple[str, ...]
    power: Floats
    covariance: Floats

    def of(self, *families: str) -> NDArray[np.bool_]:
        """Tell which belong to any of the families."""
        return np.isin(self.family, families)


def joined(parts: Sequence[Components]) -> Components:
    """Take components together, in order."""
    return Components(
        tuple(name for part in parts for name in part.family),
        np.hstack([part.power for part in parts]),
        np.hstack([part.covariance for part in parts]),
    )


def stationary(family: Sequence[str], covariance: Floats) -> Components:
    """Return stationary components from covariances by offset ``[n, m]``.

    ``f_k' K f_k`` of a Toeplitz K is the sum over offsets s of ``c(s)`` times ``((n - s) cos(k pi s
    / n) - sin(k pi s / n) / sin(k pi / n)) / n``, twice for s > 0.
    """
    n = len(covariance)
    place = np.arange(n)[:, None]
    even = np.fft.rfft((n - place) * covariance, 2 * n, axis=0)[1:n].real
    odd = -np.fft.rfft(covariance, 2 * n, axis=0)[1:n].imag
    sine = np.sin(np.pi * np.arange(1, n) / n)[:, None]
    power = 2 * (even - odd / sine) / n - covariance[0]
    power = np.maximum(power, 0.0)
    whole = power.sum(axis=0)
    return Components(tuple(family), power / whole, covariance / whole)


@dataclass(frozen=True)
class KernelShape:
    """A kernel without a period (Rasmussen & Williams 2006, section 4.2).

    Parameters
    ----------
    family
        That it belongs to in this many rows.
    kind
        ``exponential``, ``matern`` of order 3/2, or ``normal``.
    length
        In positions; 0 of noise.
    """

    family: str
    kind: str
    length: float


def covariance(kernel: KernelShape, distance: Floats) -> Floats:
    """Return the covariance that a kernel has at distances, 1 at none."""
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
    fine = np.geomspace(0.8, 2 * n, int(np.log(2.5 * n) / np.log(1.25)) + 1)
    # Of short ones, steps of 1.6 are too coarse for a spectrum as steep as theirs.
    wide = np.geomspace(4.0, 2 * n, int(np.log(n / 2) / np.log(1.6)) + 1)
    coarse = np.append(np.geomspace(1.28, 4.0, 6)[:-1], wide)
    roughly = np.where(
        fine < MAX_NOISE_LENGTH_POSITIONS, "noise", np.where(fine > n / 2, "walk", "rough")
    )
    smoothly = np.where(coarse > n / 3, "slow", "smooth")
    return (
        KernelShape("noise", "exponential", 0.0),
        *map(KernelShape, roughly.tolist(), ["exponential"] * len(fine), fine.tolist()),
        *map(KernelShape, smoothly.tolist(), ["matern"] * len(coarse), coarse.tolist()),
        *map(KernelShape, smoothly.tolist(), ["normal"] * len(coarse), coarse.tolist()),
    )


@lru_cache(maxsize=4)
def dictionary(n: int) -> Components:
    """Return the components without a period that a table of so many rows may have.

    The first two are the random walk and the straight line, which are not stationary.
    """
    lag = np.arange(n, dtype=np.float64)
    signs = np.append(np.geomspace(0.5, 12.0, 8), np.inf)
    bins = np.arange(1, n)
    walk = 1 / np.square(np.sin(np.pi * bins / (2 * n)))
    # The transform of a ramp has odd bins alone.
    ramp = np.where(bins % 2, np.square(np.cos(np.pi * bins / (2 * n)) * walk), 0.0)
    unsteady = np.stack([walk / walk.sum(), ramp / ramp.sum()], axis=1)
    shapes = kernels(n)
    return joined([
        Components(("walk", "line"), unsteady, np.zeros((n, 2))),
        stationary(
            [each.family for each in shapes],
            np.stack([covariance(each, lag) for each in shapes], axis=1),
        ),
        stationary(
            np.where(signs < MAX_ALTERNATING_NOISE_POSITIONS, "noise", "alternating").tolist(),
            ((1 - 2 * (lag % 2)) * np.exp(-lag / signs[:, None])).T,
        ),
    ])  # fmt: skip


@dataclass(frozen=True, eq=False)
class Bands:
    """Neighbouring bins that are fitted as one.

    Parameters
    ----------
    first
        ``[b]``: the first bin of each, counted from 0.
    size
        ``[b]``: how many bins.
    """

    first: NDArray[np.intp]
    size: NDArray[np.intp]

    @classmethod
    def of(cls, bins: int, apart: Sequence[tuple[float, float]] = ()) -> Bands:
        """Return bands of so many bins.

        Parameters
        ----------
        bins
            How many there are.
        apart
            Bins that stand alone: around which, and how far.
        """
        edge = np.zeros(bins, dtype=bool)
        edge[:N_SINGLE_BINS] = True
        at = float(min(N_SINGLE_BINS, bins))
        while at < bins:
            edge[int(at)] = True
            at += max(RELATIVE_BAND_WIDTH * at, 1.0)
        for middle, reach in apart:
            edge[max(int(middle - reach), 0) : int(middle + reach) + 2] = True
        first = np.flatnonzero(edge)
        return cls(first, np.diff(np.append(first, bins)))

    def mean(self, values: Floats, axis: int = -1) -> Floats:
        """Return the mean in each band along an axis."""
        shape = [1] * values.ndim
        shape[axis] = -1
        return np.asarray(np.add.reduceat(values, self.first, axis=axis) / self.size.reshape(shape))


@dataclass(frozen=True, eq=False)
class Fit:
    """Components with weights.

    Parameters
    ----------
    components
        Of a table, waves among them.
    weights
        ``[m]``: shares of the variance, as far as the fit is right.
    """

    components: Components
    weights: Floats

    @property
    def mean(self) -> Floats:
        """``[n - 1]``: the mean power of each bin."""
        return floored(self.components.power @ self.weights)


def floored(mean: Floats) -> Floats:
    """Keep mean powers ``[..., k]`` above next to nothing."""
    return np.asarray(np.maximum(mean, POWER_FLOOR * mean.mean(axis=-1, keepdims=True) + 1e-300))


def fit(
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
        ``[n - 1]``.
    columns
        ``[n - 1]``: independent ones.
    components
        ``m`` of them.
    bands
        In which bins are taken together.
    start
        ``[m]``: weights to begin with.
    """
    free = bands.mean(columns) * bands.size
    return Fit(
        components, weighted(bands.mean(power), free, bands.mean(components.power, 0), start)
    )


def weighted(observed: Floats, free: Floats, design: Floats, start: Floats) -> Floats:
    """Return the weights ``[m]`` that make a spectrum most likely, by the gamma likelihood.

    Multiplicative updates, of which each raises the likelihood (Févotte, Bertin & Durrieu 2009,
    with weights for the degrees of freedom), then Fisher scoring by non-negative least squares.

    Parameters
    ----------
    observed, free
        ``[b]``: mean power of each band, and its degrees of freedom.
    design
        ``[b, m]``: mean power of each component.
    start
        ``[m]``: weights to begin with.
    """
    from scipy.optimize import nnls

    weights = np.maximum(start, 1e-12)
    weights = updated(observed[None], free[None], design, weights[None], N_UPDATES)[0]
    at = likelihood(observed, free, floored(design @ weights))
    for _ in range(MAX_SCORINGS):
        mean = floored(design @ weights)
        by = np.sqrt(free) / mean
        aim = nnls(design * by[:, None], observed * by)[0]
        tried = [weights + step * (aim - weights) for step in (1.0, 0.5, 0.25, 0.1)]
        found = [likelihood(observed, free, floored(design @ each)) for each in tried]
        best = int(np.argmax(found))
        if found[best] <= at + MIN_SCORING_GAIN:
            break
        weights, at = tried[best], found[best]
    return np.asarray(weights)


def updated(observed: Floats, free: Floats, design: Floats, weights: Floats, steps: int) -> Floats:
    """Update the weights ``[r, m]`` of several spectra ``[r, b]`` at once."""
    for _ in range(steps):
        mean = floored(weights @ design.T)
        each = free / mean
        slope = np.maximum(each @ design, 1e-100)
        weights = np.minimum(
            weights * ((each * observed / mean) @ design) / slope, MAX_COMPONENT_WEIGHT
        )
    return weights


def likelihood(observed: Floats, free: Floats, mean: Floats) -> float:
    """Return the log likelihood of a spectrum ``[b]``, up to what its own values decide."""
    return float(-0.5 * (free * (np.log(mean) + observed / mean)).sum())


#: Most columns of a draw (a power of 64 is known to a fifth, more look alike), most bins whose
#: correlation is exact (its root costs their cube; beyond, neighbours hardly hang together), and
#: the participation below which columns have geometric sizes rather than equal ones: few columns
#: are unequal in trained tables.
MAX_DRAWN_COLUMNS = 64
MAX_CORRELATED_BINS = 384
MIN_EQUAL_COLUMNS = 12.0
#: Shares of noise that are added until a correlation has a root: rounding leaves small eigenvalues
#: of smooth kernels below 0.
JITTERS = (1e-6, 1e-4, 1e-2)


def column_sizes(columns: Floats, width: int) -> NDArray[np.float32]:
    """Return the variances of columns in each bin, ``[k, width]``, 1 in all."""
    place = np.arange(width)
    ratio = (columns - 1) / (columns + 1)
    geometric = np.power(ratio[:, None], place)
    equal = place < np.round(columns)[:, None]
    sizes = np.where(columns[:, None] < MIN_EQUAL_COLUMNS, geometric, equal)
    return np.asarray(sizes / sizes.sum(axis=1, keepdims=True), dtype=np.float32)


def drawn_powers(found: Fit, columns: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Draw the power spectra of tables that a fit describes: ``[count, n - 1]``, 1 in all.

    The first bins are correlated as the fit's covariance has it, the others independent.

    Parameters
    ----------
    found
        The random part.
    columns
        ``[n - 1]``: independent ones.
    count, rng
        How many, and where their randomness comes from.
    """
    mean = found.mean
    factor = _correlation_root(found)
    width = int(min(max(np.ceil(columns.max()), 1), MAX_DRAWN_COLUMNS))
    sizes = column_sizes(columns, width)
    drawn = np.empty((count, len(mean)))
    for k in range(count):
        white = rng.standard_normal((len(mean), width), dtype=np.float32)
        white[: len(factor)] = factor @ white[: len(factor)]
        drawn[k] = (np.square(white) * sizes).sum(axis=1)
    drawn *= mean
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


def _correlation_root(found: Fit) -> NDArray[np.float32]:
    """Return a root of the correlation of the first bins of a fit: ``[e, e]``."""
    from scipy.fft import dct

    mean = found.mean
    exact = min(len(mean), MAX_CORRELATED_BINS)
    offsets = found.components.covariance @ found.weights
    spread = dct(dct(toeplitz(offsets), axis=0, norm="ortho")[1 : exact + 1], axis=1, norm="ortho")
    covariance = spread[:, 1 : exact + 1]
    # What is not stationary is a walk, of independent bins, or a ramp, taken for one.
    rest = mean[:exact] - np.diag(covariance)
    covariance[np.diag_indices(exact)] += np.maximum(rest, 0.0)
    size = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = covariance / np.outer(size, size)
    eye = np.eye(exact)
    for jitter in JITTERS:
        try:
            factor = np.linalg.cholesky((correlation + jitter * eye) / (1 + jitter))
        except np.linalg.LinAlgError:
            continue
        return factor.astype(np.float32)
    return eye.astype(np.float32)
