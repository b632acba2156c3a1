"""Ways to fill in rows that are missing from a curve: what each assumes is all that it can bridge.

Each takes the known rows of a curve ``[n, r]`` at positions 0 to n - 1 and returns the missing.
They stand for what a table may be: straight between neighbours, smooth (a Gaussian process), a few
rotations (sinusoids), the published ladder of rotations, one linear map from each row to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.gram import fast_length
from posprobe.analyses.ladder import ladder
from posprobe.analyses.toeplitz import toeplitz_inverse
from posprobe.encodings.sinusoidal import frequencies

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

#: Most rows by which a kernel's length and noise are fitted, in so many runs along the table.
FITTED, RUNS = 144, 6
#: Halvings of the step, in the logarithm, between length scales that are tried.
REFINED = 5
#: Smallest share of noise in a kernel: below, its matrix cannot be inverted in double precision.
LEAST_NOISE = 1e-8
#: The same for the ladder, which is fitted without its matrix.
LEAST_RIDGE = 1e-13
#: Most components by which frequencies are chosen; amplitudes are each component's own.
FITTING = 16
#: Most sinusoids.
MOST_SINUSOIDS = 8
#: Grid steps per cycle in the table, or a little more, at which frequencies are tried before they
#: are refined.
OVERSAMPLING = 2
#: Share of the variance that the shift operator acts on, and its largest rank.
SHIFT_SHARE, SHIFT_RANK = 0.98, 32


def _matern12(x: Floats) -> Floats:
    return np.asarray(np.exp(-x))


def _matern32(x: Floats) -> Floats:
    return np.asarray((1 + np.sqrt(3) * x) * np.exp(-np.sqrt(3) * x))


def _rbf(x: Floats) -> Floats:
    return np.asarray(np.exp(-(x**2) / 2))


#: Correlation of two rows by their distance in length scales.
KERNELS = {"matern12": _matern12, "matern32": _matern32, "rbf": _rbf}


def linear(curve: Floats, missing: Mask) -> Floats:
    """Interpolate between the nearest known rows; beyond the ends, repeat the last one.

    Parameters
    ----------
    curve
        ``[n, r]``.
    missing
        ``[n]``: rows to predict; two others at least are known.

    Returns
    -------
    ndarray
        ``[m, r]``.
    """
    known, wanted = np.flatnonzero(~missing), np.flatnonzero(missing)
    after = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    left, right = known[after - 1], known[after]
    share = np.clip((wanted - left) / (right - left), 0.0, 1.0)[:, None]
    return np.asarray((1 - share) * curve[left] + share * curve[right])


@dataclass(frozen=True, eq=False)
class Smooth:
    """A Gaussian process over position, its kernel fitted and inverted once for all gaps.

    All columns share the kernel. Rows that are missing follow from blocks of the inverse (Rasmussen
    & Williams 2006, section 5.4.2, for single rows): no gap needs a factorisation of its own.

    Parameters
    ----------
    length_scale
        In positions; None for a kernel without one.
    noise
        Variance of the noise over that of the whole.
    likelihood
        Log marginal likelihood per value of the rows that the kernel was fitted to, the curve's
        scale left free; comparable between kernels.
    inverse
        ``[n, n]`` of the kernel's matrix.
    weights, level
        ``[n, r]`` and ``[n]``: the inverse times the curve, and times 1.
    """

    length_scale: float | None
    noise: float
    likelihood: float
    inverse: Floats
    weights: Floats
    level: Floats

    def predict(self, curve: Floats, missing: Mask) -> Floats:
        """Return the mean of the missing rows given the others: ``[m, r]``."""
        rows = np.flatnonzero(missing)
        mean = curve[~missing].mean(axis=0)
        weights = self.weights[rows] - self.level[rows, None] * mean
        block = self.inverse[np.ix_(rows, rows)]
        return np.asarray(curve[rows] - np.linalg.solve(block, weights))


def smooth(curve: Floats, kernel: str) -> Smooth:
    """Fit a kernel's length scale and noise by maximum marginal likelihood.

    Parameters
    ----------
    curve
        ``[n, r]``, of mean 0.
    kernel
        A key of `KERNELS`.
    """
    n = len(curve)
    rows = _fitted_rows(n)
    apart = np.abs(rows[:, None] - rows[None, :]).astype(np.float64)
    known = curve[rows]
    shape = KERNELS[kernel]

    def along(length: float) -> tuple[float, float]:
        return _best_noise(shape(apart / length), known, LEAST_NOISE)

    lengths = np.geomspace(0.5, 2.0 * n, max(4, int(0.8 * np.log2(n))))
    found = [along(length) for length in lengths]
    best = int(np.argmax([score for score, _ in found]))
    (score, noise), length = found[best], float(lengths[best])
    factor = float(lengths[1] / lengths[0])
    for _ in range(REFINED):
        factor = factor**0.5
        for trial in (length / factor, length * factor):
            fit = along(trial)
            if fit[0] > score:
                (score, noise), length = fit, trial
                break
    first = (1 - noise) * shape(np.arange(n) / length)
    first[0] += noise
    inverse = toeplitz_inverse(first)
    return Smooth(length, noise, score, inverse, inverse @ curve, inverse.sum(axis=1))


@dataclass(frozen=True, eq=False)
class FixedLadder:
    """Ridge regression on the columns of the sinusoid of some width, whose frequencies are fixed.

    Parameters
    ----------
    basis, strength
        ``[n, k]`` and ``[k]``: the constant, and the centred sinusoid's left singular vectors and
        values.
    noise
        Variance of the noise over that of the whole, fitted like a kernel's: the sinusoid's is the
        mean cosine of its angles.
    """

    basis: Floats
    strength: Floats
    noise: float

    def predict(self, curve: Floats, missing: Mask) -> Floats:
        """Return the missing rows: ``[m, r]``."""
        k, r = self.basis.shape[1], curve.shape[1]
        mean = curve[~missing].mean(axis=0)
        # Known rows, and below them the penalty, so that nothing small is squared.
        stacked = np.zeros((np.count_nonzero(~missing) + k, k + r))
        stacked[:-k, :k], stacked[:-k, k:] = self.basis[~missing], curve[~missing] - mean
        stacked[-k:, :k] = np.diag(np.sqrt(self.noise / (1 - self.noise)) / self.strength)
        triangle: Floats = np.linalg.qr(stacked, mode="r")  # type: ignore[assignment]
        weights = np.linalg.solve(triangle[:k, :k], triangle[:k, k:])
        return np.asarray(self.basis[missing] @ weights + mean)


def fixed_ladder(curve: Floats, width: int) -> FixedLadder:
    """Fit the noise of a regression on the sinusoid.

    Parameters
    ----------
    curve
        ``[n, r]``, of mean 0.
    width
        Of the sinusoid; of an odd one, one more.
    """
    n, even = len(curve), width + width % 2
    rows = _fitted_rows(n)
    apart = np.abs(rows[:, None] - rows[None, :])
    kernel = np.cos(np.outer(np.arange(n), frequencies(even))).mean(axis=1)
    _, noise = _best_noise(kernel[apart], curve[rows], LEAST_RIDGE)
    waves = ladder(n, even)
    # Its columns are centred over all rows, so that a constant is needed, which costs nothing.
    constant = np.full((n, 1), n**-0.5)
    strength = np.concatenate([[1e6 * waves.singular[0]], waves.singular]) / (even / 2) ** 0.5
    return FixedLadder(np.concatenate([constant, waves.basis], axis=1), strength, noise)


def _fitted_rows(n: int) -> Rows:
    """Choose runs of neighbouring rows all along the table: near and far pairs in few rows."""
    if n <= FITTED:
        return np.arange(n)
    run = FITTED // RUNS
    starts = np.linspace(0, n - run, RUNS).astype(np.intp)[: RUNS // 2]
    first = (starts[:, None] + np.arange(run)[None, :]).ravel()
    return np.unique(np.concatenate([first, n - 1 - first]))  # its own mirror image


def _best_noise(kernel: Floats, known: Floats, least: float) -> tuple[float, float]:
    """Return the largest likelihood over the share of noise, and that share.

    One eigendecomposition serves all shares.
    """
    shares = np.concatenate([np.geomspace(least, 0.9, 30), [0.99, 0.9999]])
    values, power = [], []
    for block, part in zip(_parity_blocks(kernel), _parity_parts(known), strict=True):
        found, vectors = np.linalg.eigh(block)
        values.append(np.maximum(found, 0.0))
        power.append(np.square(vectors.T @ part).sum(axis=1) / known.shape[1])
    spectrum = (1 - shares)[:, None] * np.concatenate(values) + shares[:, None]
    scale = np.maximum((np.concatenate(power) / spectrum).mean(axis=1), np.finfo(float).tiny)
    score = -0.5 * (np.log(scale) + np.log(spectrum).mean(axis=1))
    best = int(np.argmax(score))
    return float(score[best]), float(shares[best])


def _parity_blocks(matrix: Floats) -> tuple[Floats, Floats]:
    """Split a matrix that is its own mirror image into its blocks on even and on odd vectors."""
    half, middle = len(matrix) // 2, len(matrix) % 2
    near, far = matrix[:half, :half], matrix[:half, ::-1][:, :half]
    even = np.empty((half + middle, half + middle))
    even[:half, :half] = near + far
    if middle:
        even[:half, half] = even[half, :half] = np.sqrt(2) * matrix[:half, half]
        even[half, half] = matrix[half, half]
    return even, near - far


def _parity_parts(columns: Floats) -> tuple[Floats, Floats]:
    half, middle = len(columns) // 2, len(columns) % 2
    upper, lower = columns[:half], columns[::-1][:half]
    even = np.concatenate([(upper + lower) / np.sqrt(2), columns[half : half + middle]])
    return even, (upper - lower) / np.sqrt(2)


def sinusoids(curve: Floats, missing: Mask) -> list[Floats]:
    """Fit 1, 2, 3 … sinusoids of common frequencies to the known rows, and predict the others.

    Each has its own sine and cosine amplitude in every column. The next is the one that explains
    most on a grid of frequencies, beside those that are there (orthogonal matching pursuit); then
    all frequencies are refined together by variable projection (Golub & Pereyra 1973, with
    Kaufman's 1975 Jacobian). Frequencies lie between half a cycle in the table and the Nyquist
    frequency, at least one cycle in the table apart.

    Parameters
    ----------
    curve
        ``[n, r]``, the columns with the most variance first.
    missing
        ``[n]``: rows to predict.

    Returns
    -------
    list
        For each number of sinusoids ``[m, r]``; as many as `MOST_SINUSOIDS`, and at most a sixth
        of the known rows.
    """
    n = len(curve)
    known = np.flatnonzero(~missing)
    wanted = np.flatnonzero(missing)
    target = np.zeros((n, min(FITTING, curve.shape[1])))
    target[known] = curve[known, :FITTING]
    search = _Search.start(target, known)
    fit = _Fit.to(np.zeros(0), target, known)
    found: list[Floats] = []
    for _ in range(min(MOST_SINUSOIDS, len(known) // 6)):
        new = search.best(fit.chosen)
        if new is None:
            break
        fit = _refined(_Fit.to(np.append(fit.chosen, new), target, known), target, known)
        search = search.beside(fit.basis)
        amplitudes = np.linalg.solve(fit.triangle, fit.basis.T @ curve[known])
        found.append(fit.waves[wanted] @ amplitudes)
    return found


@dataclass(frozen=True, eq=False)
class _Search:
    """Transforms on the grid of frequencies: of the known rows, and of the waves beside them."""

    known: Rows
    n: int
    target: Floats  # [known, columns]
    grid: Floats  # cycles per position
    transform: NDArray[np.complex128]  # [grid, columns]
    doubled: NDArray[np.complex128]  # [grid]: sum of exp(-2 i w t) over the known rows
    residual: NDArray[np.complex128]
    length: Floats
    skew: NDArray[np.complex128]

    @classmethod
    def start(cls, target: Floats, known: Rows) -> _Search:
        n = len(target)
        size = OVERSAMPLING * fast_length(n)
        index = np.arange(OVERSAMPLING // 2, size // 2 - OVERSAMPLING // 2 + 1)
        transform = np.fft.rfft(target, size, axis=0)[index]
        there = np.zeros(n)
        there[known] = 1.0
        doubled = np.fft.fft(there, size)[2 * index % size]
        grid = np.clip(index / size, 0.5 / n, 0.5 - 0.5 / n)
        made = cls(
            known, n, target[known], grid, transform, doubled, transform, np.zeros(0), doubled
        )
        return made.beside(np.full((len(known), 1), len(known) ** -0.5))

    def beside(self, basis: Floats) -> _Search:
        """Return the search for what is left beside an orthonormal basis."""
        spread = np.zeros((self.n, basis.shape[1]))
        spread[self.known] = basis
        taken = np.fft.rfft(spread, OVERSAMPLING * fast_length(self.n), axis=0)
        taken = taken[OVERSAMPLING // 2 :][: len(self.grid)]
        return replace(
            self,
            residual=self.transform - taken @ (basis.T @ self.target),
            length=len(self.known) - np.square(np.abs(taken)).sum(axis=1),
            skew=self.doubled - np.square(taken).sum(axis=1),
        )

    def best(self, chosen: Floats) -> float | None:
        """Return the frequency whose cosine and sine explain most of what is left."""
        # Of cosine and minus sine, beside the basis: the Gram matrix and its inverse's form.
        cosine, sine = self.residual.real, self.residual.imag
        cc, ss = (self.length + self.skew.real) / 2, (self.length - self.skew.real) / 2
        cs = self.skew.imag / 2
        room = cc * ss - cs**2
        form = (
            ss * np.square(cosine).sum(axis=1)
            + cc * np.square(sine).sum(axis=1)
            - 2 * cs * (cosine * sine).sum(axis=1)
        )
        gain = np.full(len(self.grid), -np.inf)
        np.divide(form, room, out=gain, where=room > 1e-4 * len(self.known) ** 2)
        near = np.abs(self.grid[:, None] - chosen[None, :]) < (1 - 1e-9) / self.n
        gain[near.any(axis=1)] = -np.inf
        best = int(np.argmax(gain)) if gain.size else 0
        return float(self.grid[best]) if gain.size and np.isfinite(gain[best]) else None


@dataclass(frozen=True, eq=False)
class _Fit:
    """The known rows regressed on sinusoids: all rows' waves, and a basis of the known rows'."""

    chosen: Floats  # cycles per position
    waves: Floats  # [n, 1 + 2 k]: the constant, cosines, sines
    basis: Floats  # [known, 1 + 2 k]
    triangle: Floats
    along: Floats  # [1 + 2 k, columns]

    @classmethod
    def to(cls, chosen: Floats, target: Floats, known: Rows) -> _Fit:
        n = len(target)
        angles = 2 * np.pi * np.outer(np.arange(n) - (n - 1) / 2, chosen)
        waves = np.concatenate([np.ones((n, 1)), np.cos(angles), np.sin(angles)], axis=1)
        basis, triangle = np.linalg.qr(waves[known])
        return cls(chosen, waves, basis, triangle, basis.T @ target[known])


def _refined(fit: _Fit, target: Floats, known: Rows) -> _Fit:
    """Move all frequencies by one Gauss-Newton step if that explains more."""
    k, n = len(fit.chosen), len(target)
    amplitudes = np.linalg.solve(fit.triangle, fit.along)[1:]
    time = 2 * np.pi * (known - (n - 1) / 2)[:, None]
    cosines, sines = fit.waves[known, 1 : 1 + k], fit.waves[known, 1 + k :]
    slopes = time * np.concatenate([-sines, cosines], axis=1)
    slopes -= fit.basis @ (fit.basis.T @ slopes)
    pull = ((slopes.T @ target[known]) * amplitudes).sum(axis=1).reshape(2, k).sum(axis=0)
    curvature = (slopes.T @ slopes) * (amplitudes @ amplitudes.T)
    hessian = curvature.reshape(2, k, 2, k).sum(axis=(0, 2))
    diagonal = np.diagonal(hessian)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    damped = hessian / np.outer(scale, scale) + 1e-3 * np.eye(k)
    step = np.clip(np.linalg.solve(damped, pull / scale) / scale, -0.5 / n, 0.5 / n)
    moved = np.clip(fit.chosen + step, 0.5 / n, 0.5 - 0.5 / n)
    if k > 1 and np.diff(np.sort(moved)).min() * n < 1 - 1e-9:
        return fit
    trial = _Fit.to(moved, target, known)
    return trial if np.square(trial.along).sum() > np.square(fit.along).sum() else fit


def shift(curve: Floats, missing: Mask) -> Floats:
    """Carry on with the linear map from each row to the next, from both sides of every gap.

    The maps onwards and back are fitted to neighbouring rows that are both known, about the known
    rows' mean, in the leading columns of `SHIFT_SHARE` of the variance. Moduli above 1 are set to
    1, so that nothing explodes; what both sides predict is mixed by distance.

    Parameters
    ----------
    curve
        ``[n, r]``, the columns with the most variance first.
    missing
        ``[n]``: rows to predict.

    Returns
    -------
    ndarray
        ``[m, r]``.
    """
    n = len(curve)
    known = ~missing
    mean = curve[known].mean(axis=0)
    power = np.cumsum(np.square(curve[known] - mean).sum(axis=0))
    enough = int(np.argmax(power >= SHIFT_SHARE * power[-1])) + 1
    rank = max(1, min(enough, SHIFT_RANK, int(known.sum()) // 8))
    leading = curve[:, :rank] - mean[:rank]
    left = np.flatnonzero(known[:-1] & known[1:])
    result = np.zeros_like(curve)
    if left.size:
        onwards = _Map.fitted(leading[left], leading[left + 1])
        back = _Map.fitted(leading[left + 1], leading[left])
        edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]]).astype(int)))
        for first, stop in edges.reshape(-1, 2):
            steps = np.arange(1, stop - first + 1)
            weight = (1 - steps / (stop - first + 1))[:, None]
            if first == 0:
                result[:stop, :rank] = back.carried(leading[stop], steps[::-1])
            elif stop == n:
                result[first:, :rank] = onwards.carried(leading[first - 1], steps)
            else:
                result[first:stop, :rank] = weight * onwards.carried(leading[first - 1], steps)
                result[first:stop, :rank] += (1 - weight) * back.carried(leading[stop], steps[::-1])
    return np.asarray(result[missing] + mean)


@dataclass(frozen=True, eq=False)
class _Map:
    eigenvalues: NDArray[np.complex128]
    vectors: NDArray[np.complex128]
    inverse: NDArray[np.complex128]

    @classmethod
    def fitted(cls, before: Floats, after: Floats) -> _Map:
        operator = np.linalg.lstsq(before, after, rcond=1e-6)[0]
        values, vectors = np.linalg.eig(operator)
        bounded = values / np.maximum(np.abs(values), 1.0)
        return cls(bounded.astype(complex), vectors, np.linalg.pinv(vectors, rcond=1e-12))

    def carried(self, row: Floats, steps: NDArray[np.integer[Any]]) -> Floats:
        """Apply the map so many times to a row: ``[steps, r]``."""
        modes = row @ self.vectors
        return np.asarray(((self.eigenvalues ** steps[:, None] * modes) @ self.inverse).real)
