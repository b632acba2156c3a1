"""The additive model of a grid: codes of rows and columns, smooth and rough surfaces, noise.

As `posprobe.analyses.composition.mixture` for sequences, with the two-dimensional cosine transform.
A row code has power at column frequency 0 alone, a column code at row frequency 0; a surface
everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.mixture import (
    EMPTY_BIN_COLUMNS,
    POWER_FLOOR,
    KernelShape,
    covariance,
    fit_weights,
    floor_power,
    log_likelihood,
    update_weights,
)
from posprobe.arrays import Floats

#: Ratio of the lengths of neighbouring kernels: coarser, surfaces of two patches leave a rest.
SURFACE_LENGTH_RATIO = 1.25
#: Steps of that between lengths of surfaces that are longer along one axis than along the other:
#: every pair of fine lengths would be four times as many components.
UNEQUAL_LENGTH_STEP = 2
#: Patches on a side below which a surface that is long along one axis and a code look the same.
MIN_RESOLVED_SIDE_PATCHES = 8
#: Longest such surfaces, in sides of the grid: where there are enough patches they leave room for
#: codes, which a surface of infinite length along one axis is.
MAX_UNEQUAL_LENGTH_SIDES = 0.5
MAX_UNEQUAL_LENGTH_SIDES_ON_SMALL_GRIDS = 4.0
#: Shortest length, in patches, and below which a surface is as good as noise: as of sequences
#: (`mixture.NOISE_LENGTH`).
MIN_SURFACE_LENGTH_PATCHES = 0.8
MAX_NOISE_LENGTH_PATCHES = 0.9
#: Bins on each side that stand alone, so that all of a side of 16 patches do, and the relative
#: width of bands beyond, over which a power that falls with the square of the frequency changes by
#: a third.
N_SINGLE_FREQUENCIES = 16
RELATIVE_GRID_BAND_WIDTH = 0.15
#: Steps of the update by which the table, and tables drawn without codes, are fitted alike: their
#: gains are compared, so that what is left to converge is left in both.
N_GRID_UPDATES = 60
#: Families in the order in which they may leave, with the log likelihood that each holds at least:
#: of 168 surfaces and tables of noise of 14 x 14 patches, the most that a code which is not there
#: holds is 2.7. Of smooth kernels there are more.
MIN_GRID_FAMILY_GAINS = {
    "rows": 5.0,
    "columns": 5.0,
    "alternating": 5.0,
    "smooth": 10.0,
    "rough": 5.0,
}


@dataclass(frozen=True)
class SurfaceShape:
    """A stationary kernel on a grid.

    Parameters
    ----------
    family
        That it belongs to.
    kind
        Kernel of `mixture.covariance` over the straight distance; ``blocks`` is exponential in the
        sum of both displacements, and ``long`` is normal with a length for each axis.
    down_length, right_length
        Its length along each axis, in patches; 0 of noise.
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
    """Bins of a grid's transform in bands, with what each component puts there.

    Parameters
    ----------
    band
        ``[h * w - 1]``: the band of each bin.
    size
        ``[b]``: bins in each.
    family
        ``[m]``: of each component.
    power
        ``[b, m]``: its mean power, 1 in all bins together.
    surfaces
        Shapes of the first components: those that are stationary.
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


#: Draws of grids without codes: so many that the smallest p-value stands alone among the questions.
N_GRID_DRAWS = 199
#: Number of these draws' stream of random numbers beside those of the questions of a view.
GRID_SEED_STREAM = 6


@dataclass(frozen=True, eq=False)
class GridModel:
    """What a table of patches is made of.

    Parameters
    ----------
    shares
        Shares by family: ``rows``, ``columns``, ``smooth``, ``rough``, ``alternating`` and
        ``noise``. They add up to 1.
    p
        Frequency with which a table drawn without codes gains as much by them.
    null_draws
        ``[draws]``: the share of codes in each.
    """

    shares: dict[str, float]
    p: float
    null_draws: Floats


def fit_grid(points: NDArray[np.floating[Any]], height: int, width: int, seed: int) -> GridModel:
    """Fit the model to a table of patches.

    Parameters
    ----------
    points
        ``[h * w, d]``, not all equal.
    height, width
        Height and width of the grid, in patches.
    seed
        Seed of the tables that are drawn from the fit without codes.
    """
    waves, power = _cosine_transform(points, height, width)
    bins = _grid_bins(height, width)
    observed = bins.mean(power / power.sum())
    free = bins.mean(_count_grid_columns(waves, height, width)) * bins.size
    kept = np.ones(len(bins.family), dtype=bool)
    weights, at = _fit_kept_components(
        bins, observed, free, kept, np.full(len(kept), 1 / len(kept))
    )
    for family, gain in MIN_GRID_FAMILY_GAINS.items():
        rest = kept & (bins.family != family)
        fewer, less = _fit_kept_components(bins, observed, free, rest, weights)
        if at - less < gain:
            kept, weights, at = rest, fewer, less
    held = (observed / floor_power(bins.power @ weights) * bins.size) @ (bins.power * weights)
    names = dict.fromkeys(["rows", "columns", *bins.family.tolist()])
    shares = {name: float(held[bins.family == name].sum()) for name in names}
    rng = np.random.default_rng([seed, GRID_SEED_STREAM])
    p, drawn = _codes_p(bins, observed, free, weights, rng, N_GRID_DRAWS)
    return GridModel(shares, p, drawn)


def fit_surface(points: NDArray[np.floating[Any]], height: int, width: int) -> Floats:
    """Fit a stationary surface to a table of patches.

    Parameters
    ----------
    points
        ``[h * w, d]``, centred.
    height, width
        Height and width of the grid, in patches.

    Returns
    -------
    NDArray
        ``[h, w]``: the covariance by displacement, summed over columns.
    """
    bins, found = _grid_bins(height, width), np.zeros((height, width))
    if not points.any():
        return found
    count = len(bins.surfaces)
    waves, power = _cosine_transform(points, height, width)
    # Empty bins, as of a table without codes, tell nothing of the others.
    there = power > POWER_FLOOR * power.mean()
    free = (
        bins.mean(np.where(there, _count_grid_columns(waves, height, width), EMPTY_BIN_COLUMNS))
        * bins.size
    )
    observed, start = bins.mean(power / power.sum()), np.full(count, 1 / count)
    weights = fit_weights(observed, free, bins.power[:, :count], start) * power.sum()
    y, x = np.indices((height, width)).astype(np.float64)
    for k in np.flatnonzero(weights):
        found += weights[k] * bins.scale[k] * bins.surfaces[k](y, x)
    return found


def _cosine_transform(
    points: NDArray[np.floating[Any]], height: int, width: int
) -> tuple[Floats, Floats]:
    """Return the cosine transform ``[h * w - 1, d]``, without the mean row, and its power."""
    from scipy.fft import dctn

    cells = np.asarray(points, dtype=np.float64).reshape(height, width, -1)
    waves = dctn(cells - cells.mean(axis=(0, 1)), axes=(0, 1), norm="ortho")
    waves = waves.reshape(height * width, -1)[1:]
    return waves, np.square(waves).sum(axis=1)


def _fit_kept_components(
    bins: Bins, observed: Floats, free: Floats, kept: NDArray[np.bool_], start: Floats
) -> tuple[Floats, float]:
    """Fit the components that are kept; return all weights ``[m]`` and the log likelihood."""
    weights = np.zeros(len(kept))
    weights[kept] = fit_weights(observed, free, bins.power[:, kept], np.maximum(start[kept], 1e-9))
    return weights, log_likelihood(observed, free, floor_power(bins.power @ weights))


def _codes_p(
    bins: Bins,
    observed: Floats,
    free: Floats,
    weights: Floats,
    rng: np.random.Generator,
    draws: int,
) -> tuple[float, Floats]:
    """Return how often tables without codes gain as much by them, and what codes hold there."""
    code = np.isin(bins.family, ("rows", "columns"))
    without, _ = _fit_kept_components(bins, observed, free, ~code, np.maximum(weights, 1e-3))
    mean = floor_power(bins.power @ without)
    spectra = rng.gamma(free / 2, 2 / free, size=(draws, len(free))) * mean
    spectra = np.vstack([observed, spectra / (spectra @ bins.size)[:, None]])
    start = np.where(code, 1e-3, np.maximum(without, 1e-6))
    start = np.tile(start, (draws + 1, 1))
    bare = update_weights(spectra, free, bins.power[:, ~code], start[:, ~code], N_GRID_UPDATES)
    full = update_weights(spectra, free, bins.power, start, N_GRID_UPDATES)
    means = floor_power(bare @ bins.power[:, ~code].T), floor_power(full @ bins.power.T)
    gain = [-0.5 * (free * (np.log(m) + spectra / m)).sum(axis=1) for m in means]
    gained = gain[1] - gain[0]
    held = (spectra / means[1] * bins.size) @ bins.power[:, code] * full[:, code]
    p = (1 + int(np.sum(gained[1:] >= gained[0]))) / (draws + 1)
    return p, np.asarray(held.sum(axis=1)[1:])


def _count_grid_columns(waves: Floats, height: int, width: int) -> Floats:
    """Count the independent columns of each bin ``[h * w - 1]``: those on either axis apart."""
    row, column = np.divmod(np.arange(1, height * width), width)
    found = np.empty(len(waves))
    for group in (row == 0, column == 0, (row > 0) & (column > 0)):
        # Bins of a large grid are thinned: a few hundred tell.
        chosen = waves[group][:: max(int(group.sum()) // 512, 1)]
        length = np.linalg.norm(chosen, axis=1, keepdims=True)
        unit = chosen / np.where(length > 0, length, 1.0)
        inner = np.square(unit @ unit.T)
        pairs, alike = len(inner) * (len(inner) - 1), inner.sum() - np.trace(inner)
        found[group] = np.clip(pairs / max(alike, 1e-300), 1.0, waves.shape[1]) if pairs else 1.0
    return found


@lru_cache(maxsize=4)
def _grid_bins(height: int, width: int) -> Bins:
    """Return the bands of a grid and every component that a table there may have."""
    down, right = _bin_transform(height), _bin_transform(width)
    y, x = np.indices((height, width)).astype(np.float64)
    surfaces = _surfaces(height, width)
    family = [each.family for each in surfaces]
    power = [down @ each(y, x) @ right.T for each in surfaces]
    for length in (0.5, 1.0, 2.0, 4.0, np.inf):
        signs = np.where((y + x) % 2, -1.0, 1.0)
        family.append("alternating")
        power.append(down @ (signs * np.exp(-np.hypot(y, x) / length)) @ right.T)
    for name, side, transform in (("rows", height, down), ("columns", width, right)):
        place, bin_ = np.arange(side), np.arange(1, side)
        ramp = np.zeros(side)  # its transform has odd bins alone
        angle = np.pi * bin_ / (2 * side)
        ramp[1:] = np.where(bin_ % 2, np.square(np.cos(angle) / np.square(np.sin(angle))), 0.0)
        along = [np.ones(side), ramp]
        for length in _lengths(2.0 * side):
            along.append(transform @ np.exp(-place / length))
            along.append(transform @ np.exp(-0.5 * (place / length) ** 2))
        for values in along:
            family.append(name)
            power.append(np.zeros((height, width)))
            if name == "rows":
                power[-1][:, 0] = values
            else:
                power[-1][0] = values
    every = np.maximum([each.ravel()[1:] for each in power], 0.0)
    there = every.sum(axis=1) > 0
    scale = 1 / every[there].sum(axis=1)
    every = every[there] * scale[:, None]
    pairs = _frequency_bands(height)[:, None] * (width + 1) + _frequency_bands(width)[None]
    band = np.unique(pairs.ravel()[1:], return_inverse=True)[1].ravel()
    size = np.bincount(band)
    means = np.stack([np.bincount(band, each) / size for each in every], axis=1)
    return Bins(band, size, np.array(family)[there], means, surfaces, scale)


def _surfaces(height: int, width: int) -> tuple[SurfaceShape, ...]:
    """Return every stationary kernel that a table on a grid may have."""
    found = [SurfaceShape("noise", "exponential", 0.0, 0.0)]
    for length in _lengths(2.0 * max(height, width)):
        noise = length < MAX_NOISE_LENGTH_PATCHES
        found += [
            SurfaceShape("noise" if noise else family, kind, length, length)
            for family, kind in (
                ("rough", "exponential"), ("rough", "blocks"), ("smooth", "matern"),
                ("smooth", "normal"),
            )
        ]  # fmt: skip
    reach = (
        MAX_UNEQUAL_LENGTH_SIDES
        if min(height, width) >= MIN_RESOLVED_SIDE_PATCHES
        else MAX_UNEQUAL_LENGTH_SIDES_ON_SMALL_GRIDS
    )
    found += [
        SurfaceShape("smooth", "long", long_down, long_right)
        for long_down in _lengths(reach * height)[2::UNEQUAL_LENGTH_STEP]
        for long_right in _lengths(reach * width)[2::UNEQUAL_LENGTH_STEP]
        if long_down != long_right
    ]
    return tuple(found)


def _lengths(longest: float) -> Floats:
    return np.asarray(
        MIN_SURFACE_LENGTH_PATCHES
        * SURFACE_LENGTH_RATIO
        ** np.arange(
            int(np.log(longest / MIN_SURFACE_LENGTH_PATCHES) / np.log(SURFACE_LENGTH_RATIO)) + 1
        )
    )


def _frequency_bands(size: int) -> NDArray[np.intp]:
    """Return the band of each frequency of a side: 0 apart, and wider ones from `N_SINGLE_FREQUENCIES` on."""
    edge = np.zeros(size, dtype=np.intp)
    at = 0.0
    while at < size:
        edge[int(at)] = 1
        at += 1.0 if at < N_SINGLE_FREQUENCIES else max(RELATIVE_GRID_BAND_WIDTH * at, 1.0)
    return np.cumsum(edge) - 1


def _bin_transform(size: int) -> Floats:
    """Return what a covariance at each offset puts into each bin: ``[size, size]``."""
    offset, bin_ = np.arange(size)[None], np.arange(1, size)[:, None]
    angle = np.pi * bin_ * offset / size
    rest = ((size - offset) * np.cos(angle) - np.sin(angle) / np.sin(np.pi * bin_ / size)) / size
    found = np.vstack([(size - offset) / size, rest])
    found[:, 1:] *= 2
    return np.asarray(found)
