"""The additive model of a grid: codes of rows and columns, smooth and rough surfaces, noise.

It is `posprobe.analyses.composition.mixture` with the two-dimensional cosine transform. A row code
has power at column frequency 0 alone, a column code at row frequency 0; a surface everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.dictionary import (
    MAX_NOISE_LENGTH_POSITIONS,
    KernelShape,
    covariance,
)
from posprobe.analyses.composition.mixture import (
    EMPTY_BIN_COLUMNS,
    POWER_FLOOR,
    fit_weights,
    floor_power,
    log_likelihood,
    update_weights,
)
from posprobe.analyses.resampling import count_p_value
from posprobe.arrays import Floats

#: Ratio of the lengths of neighbouring kernels. With a coarser one, surfaces of two patches are not
#: fully explained.
SURFACE_LENGTH_RATIO = 1.25
#: Steps of that ratio between lengths of surfaces that are longer along one axis than along the
#: other: every pair of fine lengths would be four times as many components.
UNEQUAL_LENGTH_STEP = 2
#: On a shorter side, a surface that is long along one axis and a code look the same.
MIN_RESOLVED_SIDE_PATCHES = 8
#: Longest surfaces that are longer along one axis, in sides of the grid. Where there are enough
#: patches they leave room for codes, which are surfaces of infinite length along one axis.
MAX_UNEQUAL_LENGTH_SIDES = 0.5
#: The same limit on grids with a side below `MIN_RESOLVED_SIDE_PATCHES`. On 7 x 7 patches, codes
#: with 60 % of the variance are found in 10 of 10 tables, and none in 15 surfaces of lengths up to
#: 3 and 7 patches along the axes. With 4 sides none is found, with 1 side in 5 of the 15 surfaces.
MAX_UNEQUAL_LENGTH_SIDES_ON_SMALL_GRIDS = 1.5
#: Shortest length of a surface, in patches.
MIN_SURFACE_LENGTH_PATCHES = 0.8
#: Frequencies on each axis that are bands of their own: all of a side of 16 patches.
N_SINGLE_FREQUENCIES = 16
#: Width of a band over its first frequency: a power that falls with the square of the frequency
#: changes by a third over it.
RELATIVE_GRID_BAND_WIDTH = 0.15
#: Steps of the update by which the table, and tables drawn without codes, are fitted alike. Their
#: gains are compared, so that both lack the same convergence.
N_GRID_UPDATES = 60
#: Families in the order in which they may leave, with the log likelihood that each holds at least.
#: A code that is not there holds 2.7 at most in 168 surfaces and tables of noise of 14 x 14
#: patches. Smooth kernels are more numerous.
MIN_GRID_FAMILY_GAINS = {
    "rows": 5.0,
    "columns": 5.0,
    "alternating": 5.0,
    "smooth": 10.0,
    "rough": 5.0,
}
#: Draws of grids without codes: so many that the smallest p-value passes alone among the questions.
N_GRID_DRAWS = 199
#: Number of these draws' stream of random numbers beside those of the questions of a view.
GRID_SEED_STREAM = 6


@dataclass(frozen=True)
class SurfaceShape:
    """A stationary kernel on a grid.

    Parameters
    ----------
    family
        Family that it belongs to.
    kind
        Kind of `mixture.covariance`, at the straight distance; or ``blocks``, exponential in the
        sum of both displacements, or ``long``, normal with a length for each axis.
    down_length, right_length
        Length along each axis, in patches; 0 for noise.
    """

    family: str
    kind: str
    down_length: float
    right_length: float

    def __call__(self, y: Floats, x: Floats) -> Floats:
        """Return the covariance at displacements of any shape."""
        if self.kind == "blocks":
            return np.asarray(np.exp(-(y + x) / self.down_length))
        if self.kind == "long":
            square = np.square(y / self.down_length) + np.square(x / self.right_length)
            return np.asarray(np.exp(-0.5 * square))
        shape = KernelShape(self.family, self.kind, self.down_length)
        return covariance(shape, np.asarray(np.hypot(y, x), dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of a grid's transform in bands, with the power of each component there.

    Parameters
    ----------
    band
        ``[h * w - 1]``: band of each bin.
    size
        ``[b]``: number of bins in each band.
    family
        ``[m]``: family of each component.
    power
        ``[b, m]``: mean power of each component, 1 in all bins together.
    surfaces
        Stationary components, which are the first ones.
    scale
        ``[m]``: covariance of a patch with itself that such power has.
    """

    band: NDArray[np.intp]
    size: NDArray[np.intp]
    family: NDArray[np.str_]
    power: Floats
    surfaces: tuple[SurfaceShape, ...]
    scale: Floats

    def mean(self, values: Floats) -> Floats:
        """Return the mean of ``[h * w - 1]`` in each band."""
        return np.asarray(np.bincount(self.band, values) / self.size)


@dataclass(frozen=True, eq=False)
class GridModel:
    """The terms of a table of patches.

    Parameters
    ----------
    shares
        Share of each family: ``rows``, ``columns``, ``smooth``, ``rough``, ``alternating`` and
        ``noise``. They add up to 1.
    p
        Share of the tables drawn without codes that gain as much by them.
    null_draws
        ``[draws]``: for each of these tables, the share of codes with which this one would gain as
        much; their own share where it gains nothing by codes.
    """

    shares: dict[str, float]
    p: float
    null_draws: Floats


def fit_grid(
    points: NDArray[np.floating[Any]], height: int, width: int, seed: int
) -> GridModel:
    """Fit the model to a table of patches.

    Parameters
    ----------
    points
        ``[h * w, d]``, not all equal.
    height, width
        Sides of the grid, in patches.
    seed
        Seed of the tables that are drawn from the fit without codes.
    """
    coefficients, power = _cosine_transform(points, height, width)
    bins = _grid_bins(height, width)
    observed = bins.mean(power / power.sum())
    degrees = bins.mean(_count_grid_columns(coefficients, height, width)) * bins.size
    retained = np.ones(len(bins.family), dtype=bool)
    start = np.full(len(retained), 1 / len(retained))
    weights, current = _fit_selected(bins, observed, degrees, retained, start)
    for family, min_gain in MIN_GRID_FAMILY_GAINS.items():
        remaining = retained & (bins.family != family)
        fewer_weights, reduced = _fit_selected(
            bins, observed, degrees, remaining, weights
        )
        if current - reduced < min_gain:
            retained, weights, current = remaining, fewer_weights, reduced
    mean = floor_power(bins.power @ weights)
    component_shares = (observed / mean * bins.size) @ (bins.power * weights)
    families = dict.fromkeys(["rows", "columns", *bins.family.tolist()])
    shares = {
        name: float(component_shares[bins.family == name].sum()) for name in families
    }
    rng = np.random.default_rng([seed, GRID_SEED_STREAM])
    share = shares["rows"] + shares["columns"]
    p, null_draws = _codes_p(bins, observed, degrees, weights, share, rng, N_GRID_DRAWS)
    return GridModel(shares, p, null_draws)


def fit_surface(points: NDArray[np.floating[Any]], height: int, width: int) -> Floats:
    """Fit a stationary surface to a table of patches.

    Parameters
    ----------
    points
        ``[h * w, d]``, centred.
    height, width
        Sides of the grid, in patches.

    Returns
    -------
    NDArray
        ``[h, w]``: the covariance by displacement, summed over columns.
    """
    bins, total = _grid_bins(height, width), np.zeros((height, width))
    if not points.any():
        return total
    count = len(bins.surfaces)
    coefficients, power = _cosine_transform(points, height, width)
    # Empty bins, as of a table without codes, say nothing about the others.
    has_power = power > POWER_FLOOR * power.mean()
    column_counts = _count_grid_columns(coefficients, height, width)
    degrees = bins.mean(np.where(has_power, column_counts, EMPTY_BIN_COLUMNS)) * bins.size
    observed, start = bins.mean(power / power.sum()), np.full(count, 1 / count)
    weights = fit_weights(observed, degrees, bins.power[:, :count], start) * power.sum()
    y, x = np.indices((height, width)).astype(np.float64)
    for k in np.flatnonzero(weights):
        total += weights[k] * bins.scale[k] * bins.surfaces[k](y, x)
    return total


def _cosine_transform(
    points: NDArray[np.floating[Any]], height: int, width: int
) -> tuple[Floats, Floats]:
    """Return the cosine transform ``[h * w - 1, d]``, without the mean row, and its power."""
    from scipy.fft import dctn

    patches = np.asarray(points, dtype=np.float64).reshape(height, width, -1)
    coefficients = dctn(patches - patches.mean(axis=(0, 1)), axes=(0, 1), norm="ortho")
    coefficients = coefficients.reshape(height * width, -1)[1:]
    return coefficients, np.square(coefficients).sum(axis=1)


def _fit_selected(
    bins: Bins,
    observed: Floats,
    degrees: Floats,
    selected: NDArray[np.bool_],
    start: Floats,
) -> tuple[Floats, float]:
    """Fit the selected components; return all weights ``[m]`` and the log likelihood."""
    weights = np.zeros(len(selected))
    selected_start = np.maximum(start[selected], 1e-9)
    weights[selected] = fit_weights(
        observed, degrees, bins.power[:, selected], selected_start
    )
    return weights, log_likelihood(observed, degrees, floor_power(bins.power @ weights))


def _codes_p(
    bins: Bins,
    observed: Floats,
    degrees: Floats,
    weights: Floats,
    share: float,
    rng: np.random.Generator,
    n_draws: int,
) -> tuple[float, Floats]:
    """Return how often tables without codes gain as much by them, and the shares for such gains."""
    is_code = np.isin(bins.family, ("rows", "columns"))
    start = np.maximum(weights, 1e-3)
    surface_weights, _ = _fit_selected(bins, observed, degrees, ~is_code, start)
    mean = floor_power(bins.power @ surface_weights)
    spectra = rng.gamma(degrees / 2, 2 / degrees, size=(n_draws, len(degrees))) * mean
    spectra = np.vstack([observed, spectra / (spectra @ bins.size)[:, None]])
    start = np.where(is_code, 1e-3, np.maximum(surface_weights, 1e-6))
    starts = np.tile(start, (n_draws + 1, 1))
    surface_power = bins.power[:, ~is_code]
    without_codes = update_weights(
        spectra, degrees, surface_power, starts[:, ~is_code], N_GRID_UPDATES
    )
    with_codes = update_weights(spectra, degrees, bins.power, starts, N_GRID_UPDATES)
    surface_means = floor_power(without_codes @ surface_power.T)
    means = floor_power(with_codes @ bins.power.T)
    gains = _log_likelihoods(spectra, degrees, means)
    gains = gains - _log_likelihoods(spectra, degrees, surface_means)
    code_shares = (
        (spectra / means * bins.size) @ bins.power[:, is_code] * with_codes[:, is_code]
    )
    p = count_p_value(int(np.sum(gains[1:] >= gains[0])), n_draws)
    null_shares = code_shares.sum(axis=1)
    if share > 0 and gains[0] > 0:
        # Near its maximum, a likelihood falls with the square of a share.
        null_shares = share * np.sqrt(np.maximum(gains / gains[0], 0.0))
    return p, np.asarray(null_shares[1:])


def _log_likelihoods(spectra: Floats, degrees: Floats, means: Floats) -> Floats:
    return np.asarray(-0.5 * (degrees * (np.log(means) + spectra / means)).sum(axis=1))


def _count_grid_columns(coefficients: Floats, height: int, width: int) -> Floats:
    """Count the independent columns of each bin ``[h * w - 1]``, those on either axis apart."""
    row, column = np.divmod(np.arange(1, height * width), width)
    counts = np.empty(len(coefficients))
    for group in (row == 0, column == 0, (row > 0) & (column > 0)):
        # Bins of a large grid are thinned: a few hundred suffice.
        sample = coefficients[group][:: max(int(group.sum()) // 512, 1)]
        length = np.linalg.norm(sample, axis=1, keepdims=True)
        unit = sample / np.where(length > 0, length, 1.0)
        squares = np.square(unit @ unit.T)
        n_pairs = len(squares) * (len(squares) - 1)
        similarity = max(squares.sum() - np.trace(squares), 1e-300)
        max_count = coefficients.shape[1]
        counts[group] = np.clip(n_pairs / similarity, 1.0, max_count) if n_pairs else 1.0
    return counts


@lru_cache(maxsize=4)
def _grid_bins(height: int, width: int) -> Bins:
    """Return the bands of a grid and every component that a table there may have."""
    down_transform, right_transform = _bin_transform(height), _bin_transform(width)
    y, x = np.indices((height, width)).astype(np.float64)
    surfaces = _surfaces(height, width)
    families = [surface.family for surface in surfaces]
    powers = [down_transform @ surface(y, x) @ right_transform.T for surface in surfaces]
    signs = np.where((y + x) % 2, -1.0, 1.0)
    for length in (0.5, 1.0, 2.0, 4.0, np.inf):
        families.append("alternating")
        alternating = signs * np.exp(-np.hypot(y, x) / length)
        powers.append(down_transform @ alternating @ right_transform.T)
    for code_power in _code_powers(height, down_transform):
        families.append("rows")
        powers.append(np.zeros((height, width)))
        powers[-1][:, 0] = code_power
    for code_power in _code_powers(width, right_transform):
        families.append("columns")
        powers.append(np.zeros((height, width)))
        powers[-1][0] = code_power
    bin_powers = np.maximum([power.ravel()[1:] for power in powers], 0.0)
    totals = bin_powers.sum(axis=1)
    has_power = totals > 0
    scale = 1 / totals[has_power]
    bin_powers = bin_powers[has_power] * scale[:, None]
    row_bands, column_bands = _frequency_bands(height), _frequency_bands(width)
    band_pairs = row_bands[:, None] * (width + 1) + column_bands[None]
    band = np.unique(band_pairs.ravel()[1:], return_inverse=True)[1].ravel()
    size = np.bincount(band)
    means = np.stack([np.bincount(band, power) / size for power in bin_powers], axis=1)
    return Bins(band, size, np.array(families)[has_power], means, surfaces, scale)


def _code_powers(side: int, transform: Floats) -> Iterator[Floats]:
    """Yield the power ``[side]`` of every code along an axis."""
    position, bins = np.arange(side), np.arange(1, side)
    angle = np.pi * bins / (2 * side)
    ramp = np.zeros(side)  # its transform has odd bins alone
    ramp[1:] = np.where(
        bins % 2, np.square(np.cos(angle) / np.square(np.sin(angle))), 0.0
    )
    yield np.ones(side)
    yield ramp
    for length in _lengths(2.0 * side):
        yield transform @ np.exp(-position / length)
        yield transform @ np.exp(-0.5 * (position / length) ** 2)


def _surfaces(height: int, width: int) -> tuple[SurfaceShape, ...]:
    """Return every stationary kernel that a table on a grid may have."""
    surfaces = [SurfaceShape("noise", "exponential", 0.0, 0.0)]
    kinds = (
        ("rough", "exponential"),
        ("rough", "blocks"),
        ("smooth", "matern"),
        ("smooth", "normal"),
    )
    for length in _lengths(2.0 * max(height, width)):
        is_noise = length < MAX_NOISE_LENGTH_POSITIONS
        surfaces += [
            SurfaceShape("noise" if is_noise else family, kind, length, length)
            for family, kind in kinds
        ]
    max_sides = MAX_UNEQUAL_LENGTH_SIDES
    if min(height, width) < MIN_RESOLVED_SIDE_PATCHES:
        max_sides = MAX_UNEQUAL_LENGTH_SIDES_ON_SMALL_GRIDS
    surfaces += [
        SurfaceShape("smooth", "long", down_length, right_length)
        for down_length in _lengths(max_sides * height)[2::UNEQUAL_LENGTH_STEP]
        for right_length in _lengths(max_sides * width)[2::UNEQUAL_LENGTH_STEP]
        if down_length != right_length
    ]
    return tuple(surfaces)


def _lengths(max_length: float) -> Floats:
    span = np.log(max_length / MIN_SURFACE_LENGTH_PATCHES)
    count = int(span / np.log(SURFACE_LENGTH_RATIO)) + 1
    return np.asarray(
        MIN_SURFACE_LENGTH_PATCHES * SURFACE_LENGTH_RATIO ** np.arange(count)
    )


def _frequency_bands(size: int) -> NDArray[np.intp]:
    """Return the band of each frequency of a side; bands widen from `N_SINGLE_FREQUENCIES` on."""
    is_first = np.zeros(size, dtype=np.intp)
    edge = 0.0
    while edge < size:
        is_first[int(edge)] = 1
        edge += (
            1.0
            if edge < N_SINGLE_FREQUENCIES
            else max(RELATIVE_GRID_BAND_WIDTH * edge, 1.0)
        )
    return np.cumsum(is_first) - 1


def _bin_transform(size: int) -> Floats:
    """Return the power that a covariance at each offset has in each bin: ``[size, size]``."""
    offset, bins = np.arange(size)[None], np.arange(1, size)[:, None]
    angle = np.pi * bins * offset / size
    cosine_sum = (size - offset) * np.cos(angle)
    powers = (cosine_sum - np.sin(angle) / np.sin(np.pi * bins / size)) / size
    transform = np.vstack([(size - offset) / size, powers])
    transform[:, 1:] *= 2
    return np.asarray(transform)
