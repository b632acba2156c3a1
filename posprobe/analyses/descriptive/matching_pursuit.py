"""How many freely chosen sinusoids a table amounts to.

The frequencies are chosen by orthogonal matching pursuit (Pati et al. 1993) and refined together by
variable projection (Golub & Pereyra 1973, with Kaufman's 1975 Jacobian). All follows from the
table's Gram matrix alone, so that no rotation of the table changes it.

Warning: three sinusoids explain 0.9 of a random walk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.closeness import Cloud
from posprobe.arrays import Floats

#: Most sinusoids that are chosen. Their 32 directions hold most of any trained table.
MAX_SINUSOIDS = 16
#: Share of the variance for which the number of sinusoids is reported.
EXPLAINED_VARIANCE_SHARE = 0.90
#: No further sinusoid is sought where less of the variance is unexplained: a thousandth is rounding
#: of a stored table, or noise.
MIN_UNEXPLAINED_SHARE = 1e-3
#: Frequencies are tried at so many steps per cycle in the table before they are refined. Between
#: two of them a wave keeps 0.95 of its power.
GRID_STEPS_PER_CYCLE = 4
#: Steps that refine all frequencies after each choice, unless the share gained is below
#: `MIN_REFINING_GAIN`, which no digit shows: each next choice refines them again.
N_REFINING_STEPS = 2
MIN_REFINING_GAIN = 1e-4
#: Steps that `refine_until_settled` takes at most: gains double their digits with each.
MAX_SETTLING_STEPS = 60
#: Columns that are transformed at a time, which keeps the padded copy small.
COLUMNS_PER_TRANSFORM = 16
#: Rounding of a frequency, in cycles in the table.
FREQUENCY_ROUNDING_CYCLES = 1e-9


@dataclass(frozen=True, eq=False)
class Sinusoids:
    """How much of a table its best 1, 2, 3 … sinusoids explain.

    Parameters
    ----------
    share
        ``[k]``: share of the variance that the best fit with 1 to k sinusoids explains.
    frequencies
        For each number of sinusoids their frequencies in cycles per position, in the order in
        which they were chosen, refined together. A period longer than the table is a trend, not
        a wave that was seen to return.
    """

    share: Floats
    frequencies: tuple[Floats, ...]

    @property
    def enough(self) -> int | None:
        """How many explain `EXPLAINED_VARIANCE_SHARE` of the variance."""
        reached = np.flatnonzero(self.share >= EXPLAINED_VARIANCE_SHARE)
        return int(reached[0]) + 1 if reached.size else None

    @property
    def periods(self) -> Floats:
        """``[k]``: the period of each sinusoid in the order of choice, in positions.

        Those needed for `EXPLAINED_VARIANCE_SHARE` are as in the fit that reaches it, each later
        one as chosen.
        """
        settled = self.enough or len(self.share)
        lines = [self.frequencies[max(k, settled - 1)][k] for k in range(len(self.share))]
        return 1 / np.array(lines)


def choose_sinusoids(table: Cloud, max_sinusoids: int = MAX_SINUSOIDS) -> Sinusoids:
    """Choose the sinusoids that explain most of a table, one after the other.

    Each has its own sine and cosine amplitude in every dimension of the table. The next is the one
    that adds most on a grid of `GRID_STEPS_PER_CYCLE` steps per cycle in the table, beside what is
    there; then all frequencies are refined together. Frequencies lie between half a cycle in the
    table and the Nyquist frequency, and at least one cycle in the table apart, which is as close as
    the length can tell apart. It ends at ``max_sinusoids`` or n / 4 of them, or when less than
    `MIN_UNEXPLAINED_SHARE` is left.

    Parameters
    ----------
    table
        Not constant.
    max_sinusoids
        Maximum number of sinusoids.
    """
    n = len(table)
    frequencies = np.zeros(0)
    grid = np.arange(
        GRID_STEPS_PER_CYCLE // 2,
        GRID_STEPS_PER_CYCLE * n // 2 - GRID_STEPS_PER_CYCLE // 2 + 1,
    )
    power = _quadratic_forms(table.points, grid)
    fit = _fit_frequencies(table, frequencies)
    shares: list[float] = []
    frequencies_by_count: list[Floats] = []
    while len(shares) < min(max_sinusoids, n // 4):
        gain = _explained_gains(fit, power, grid, n)
        spacing = np.abs(
            grid[:, None] / (GRID_STEPS_PER_CYCLE * n) - fit.frequencies[None, :]
        )
        gain[(spacing < (1 - FREQUENCY_ROUNDING_CYCLES) / n).any(axis=1)] = -np.inf
        best = int(np.argmax(gain))
        if not np.isfinite(gain[best]):
            break
        start = np.append(fit.frequencies, grid[best] / (GRID_STEPS_PER_CYCLE * n))
        fit = _refine_fit(table, _fit_frequencies(table, start))
        shares.append(min(fit.explained / table.total, 1.0))
        frequencies_by_count.append(fit.frequencies)
        if shares[-1] > 1 - MIN_UNEXPLAINED_SHARE:
            break
    return Sinusoids(np.array(shares), tuple(frequencies_by_count))


@dataclass(frozen=True, eq=False)
class _Fit:
    """A table regressed on sinusoids: ``[n, 2k]`` waves, cosines first, and what follows."""

    frequencies: Floats
    basis: Floats
    triangle: Floats
    image: Floats  # the Gram matrix times the basis
    explained: float


def _fit_frequencies(table: Cloud, frequencies: Floats) -> _Fit:
    angles = 2 * np.pi * np.outer(_centred_positions(len(table)), frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    basis, triangle = np.linalg.qr(waves - waves.mean(axis=0))
    image = table.times(basis)
    return _Fit(frequencies, basis, triangle, image, float(np.vdot(basis, image)))


def refine_until_settled(table: Cloud, frequencies: Floats) -> Floats:
    """Refine frequencies together, in cycles per position, until no step gains any more."""
    return _refine_fit(
        table,
        _fit_frequencies(table, frequencies),
        steps=MAX_SETTLING_STEPS,
        min_gain=0.0,
    ).frequencies


def _refine_fit(
    table: Cloud,
    fit: _Fit,
    steps: int = N_REFINING_STEPS,
    min_gain: float = MIN_REFINING_GAIN,
) -> _Fit:
    """Move all frequencies to a local best: damped Gauss-Newton steps that only ever gain."""
    n = len(table)
    damping = 1e-3
    for _ in range(steps):
        step = np.clip(_gauss_newton_step(fit, damping), -0.5 / n, 0.5 / n)
        trial = _fit_frequencies(
            table, _keep_apart(fit.frequencies, fit.frequencies + step, n)
        )
        gain = trial.explained - fit.explained
        if gain > 0:
            fit, damping = trial, damping / 10
        else:
            damping *= 30
        if abs(gain) < min_gain * table.total:
            break
    return fit


def _keep_apart(old: Floats, new: Floats, n: int) -> Floats:
    """Return the new frequencies, but the old where the new would come too close."""
    new = np.clip(new, 0.5 / n, 0.5 - 0.5 / n)
    while True:
        order = np.argsort(new)
        close = np.flatnonzero(np.diff(new[order]) * n < 1 - FREQUENCY_ROUNDING_CYCLES)
        stay = np.union1d(order[close], order[close + 1])
        if not stay.size or np.array_equal(new[stay], old[stay]):
            return new
        new[stay] = old[stay]


def _gauss_newton_step(fit: _Fit, damping: float) -> Floats:
    """Return the Gauss-Newton step of variable projection, in cycles per position."""
    count = len(fit.frequencies)
    tau = _centred_positions(len(fit.basis))
    angles = 2 * np.pi * np.outer(tau, fit.frequencies)
    slopes = (
        2
        * np.pi
        * tau[:, None]
        * np.concatenate([-np.sin(angles), np.cos(angles)], axis=1)
    )
    slopes -= slopes.mean(axis=0)
    slopes -= fit.basis @ (fit.basis.T @ slopes)
    # Amplitudes A of the waves: A A', and the residual's image under A.
    images = np.linalg.solve(fit.triangle, fit.image.T)
    amplitudes = np.linalg.solve(fit.triangle, (images @ fit.basis).T)
    gradient = np.einsum("ij,ji->j", slopes, images).reshape(2, count).sum(axis=0)
    curvature = (slopes.T @ slopes) * amplitudes
    hessian = curvature.reshape(2, count, 2, count).sum(axis=(0, 2))
    diagonal = np.diagonal(hessian)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    damped = hessian / np.outer(scale, scale) + damping * np.eye(count)
    return np.asarray(np.linalg.solve(damped, gradient / scale) / scale)


def _centred_positions(n: int) -> Floats:
    """Return the positions seen from the middle of the table."""
    return np.arange(n, dtype=np.float64) - (n - 1) / 2


def _transform_columns(columns: Floats, grid: NDArray[np.intp]) -> NDArray[np.complex128]:
    """Return ``sum_t x_t exp(i w (t - middle))`` of each column at the grid's frequencies.

    The grid has no gaps.
    """
    from scipy.fft import rfft

    n = len(columns)
    size = GRID_STEPS_PER_CYCLE * n
    # One column after the other stays in the cache.
    waves = rfft(np.ascontiguousarray(columns.T), size, axis=1)
    waves = waves[:, grid[0] : grid[-1] + 1]
    np.conj(waves, out=waves)
    waves *= np.exp(-2j * np.pi * grid * ((n - 1) / 2) / size)
    return np.asarray(waves.T)


def _quadratic_forms(points: Floats, grid: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return ``w'Gw`` for the cosine and for the sine w of each frequency."""
    cosine, sine = np.zeros(len(grid)), np.zeros(len(grid))
    for start in range(0, points.shape[1], COLUMNS_PER_TRANSFORM):
        waves = _transform_columns(points[:, start : start + COLUMNS_PER_TRANSFORM], grid)
        cosine += np.square(waves.real).sum(axis=1)
        sine += np.square(waves.imag).sum(axis=1)
    return cosine, sine


def _explained_gains(
    fit: _Fit, power: tuple[Floats, Floats], grid: NDArray[np.intp], n: int
) -> Floats:
    """Return what one more sinusoid would explain, at each frequency of the grid.

    Seen from the middle of the table, cosines are even and sines odd, so neither meets the other:
    each adds ``w'Gw / w'w``, w being the wave less its projection on what is there.
    """
    ones = np.full((n, 1), n**-0.5)
    transforms = _transform_columns(np.concatenate([ones, fit.basis], axis=1), grid)
    image = _transform_columns(fit.image, grid)
    coordinates = fit.basis.T @ fit.image
    angle = 2 * np.pi * grid / (GRID_STEPS_PER_CYCLE * n)
    skew = np.sin(n * angle) / np.sin(angle)
    gain = np.zeros(len(grid))
    for projection, cross_product, own_product, length in (
        (transforms.real, image.real, power[0], (n + skew) / 2),
        (transforms.imag, image.imag, power[1], (n - skew) / 2),
    ):
        waves = projection[:, 1:]
        form = own_product + ((waves @ coordinates - 2 * cross_product) * waves).sum(
            axis=1
        )
        remaining_length = length - np.square(projection).sum(axis=1)
        is_independent = remaining_length > 5e-7 * n
        gain[is_independent] += form[is_independent] / remaining_length[is_independent]
    return gain
