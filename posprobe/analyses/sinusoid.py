"""A learned table against the sinusoid of its shape.

Distances to the sinusoid, the share of the table that its ladder of frequencies spans, how many
freely chosen sinusoids the table amounts to, and the base of the ladder that resembles it most. All
of them are functions of the table's Gram matrix alone, so no rotation of the table changes them,
and neither does the position at which its first row stands.

Warning: smooth tables are near sinusoids without being made of any. A random walk reaches a CKA of
0.85 with the sinusoid, 0.99 of it lies within a wide ladder's span, and three sinusoids explain 0.9
of it. Only a comparison with such nulls says more.

The frequencies are chosen by orthogonal matching pursuit (Pati et al. 1993) and refined together by
variable projection (Golub & Pereyra 1973, with Kaufman's 1975 Jacobian).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import (
    Closeness,
    Cloud,
    Floats,
    closeness,
    cloud,
    unbiased,
)
from posprobe.analyses.pca import PCA
from posprobe.analyses.result import Result
from posprobe.arrays import Array, Positions, positions
from posprobe.encodings.sinusoidal import frequencies, sincos2d
from posprobe.table import Grid, Layout, PositionTable

#: Fewest positions that are set against a sinusoid.
MIN_LENGTH = 8
#: Directions in which the ladder varies less than this, as a share of its widest, do not count.
LADDER_CONDITION = 1e-6
#: Most sinusoids that are chosen.
MOST_SINUSOIDS = 16
#: Rounding of a frequency, in cycles in the table.
SLIGHT = 1e-9
#: Share of the variance for which the number of sinusoids is reported.
ENOUGH = 0.90
#: Unexplained share at which no further sinusoid is sought.
EXPLAINED = 1e-3
#: Grid steps per cycle in the table at which frequencies are tried before they are refined.
OVERSAMPLING = 4
#: Steps that refine all frequencies after each choice, unless the share gained is below `GAIN`.
STEPS = 2
GAIN = 1e-4
#: Bases between which the best is sought.
BASES = (10.0, 1e7)
#: Rows that the search for the base looks at: more make its peaks narrower than its grid.
BASE_ROWS = 512
#: Bases whose misfit is this much above the best fit as well.
SLACK = 0.05
#: A base is undefined where bases that fit as well are further apart than this factor.
FLAT = 2.0
#: A base is undefined unless lines half way between its own have so many times the misfit.
CONTRAST = 1.1
#: Fewest lines of a ladder whose base is sought: a few fall upon something in any table.
MIN_LINES = 16


@dataclass(frozen=True, eq=False)
class Ladder:
    """The centred sinusoid of one shape, as a span and as a table.

    Parameters
    ----------
    basis
        ``[n, r]`` orthonormal, orthogonal to the constant: every direction in which the sinusoid
        varies by more than `LADDER_CONDITION` of its widest.
    singular
        ``[r]``, falling.
    """

    basis: Floats
    singular: Floats

    @property
    def rank(self) -> int:
        """Number of directions that the ladder spans."""
        return len(self.singular)

    @property
    def white_share(self) -> float:
        """Share of white noise that as many directions explain."""
        return self.rank / (len(self.basis) - 1)

    @property
    def spans_all(self) -> bool:
        """Whether every table of this length lies in the span, so that its share says nothing."""
        return self.rank >= len(self.basis) - 1

    @cached_property
    def cloud(self) -> Cloud:
        """The sinusoid, ready for comparisons."""
        return Cloud(self.basis * self.singular, self.basis, self.singular)

    @cached_property
    def projector(self) -> Floats:
        """``[n, n]``: projection onto the span."""
        return self.basis @ self.basis.T

    def share(self, table: Cloud) -> float:
        """Return the share of a table's variance that lies in the span."""
        if table.has_gram and len(table) <= 2 * table.points.shape[1]:
            return float(np.vdot(self.projector, table.gram) / table.total)
        return float(np.square(self.basis.T @ table.points).sum() / table.total)

    @cached_property
    def _single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.cloud.gram.astype(np.float32), self.projector.astype(np.float32)

    def from_gram(self, gram: NDArray[np.floating[Any]]) -> tuple[float | None, float | None]:
        """Return the debiased CKA and the span's share of a table known by its Gram matrix.

        Three passes over the matrix: all that a surrogate costs once it has a Gram matrix.

        Parameters
        ----------
        gram
            ``[n, n]`` of the centred rows, float32 or float64.

        Returns
        -------
        tuple
            None for a number that is undefined.
        """
        power = np.diagonal(gram).astype(np.float64)
        squared = float(np.vdot(gram, gram))
        if squared <= 0:
            return None, None
        single = gram.dtype == np.float32
        reference, projector = self._single if single else (self.cloud.gram, self.projector)
        own = unbiased(squared, power, power)
        other = unbiased(self.cloud.squared_gram, self.cloud.power, self.cloud.power)
        cross = unbiased(float(np.vdot(reference, gram)), self.cloud.power, power)
        share = None if self.spans_all else float(np.vdot(projector, gram) / power.sum())
        # Off the diagonal, nothing but rounding tells the positions apart.
        rounding = len(gram) * float(np.finfo(gram.dtype).eps) * squared
        return float(cross / np.sqrt(own * other)) if own > rounding else None, share


@lru_cache(maxsize=4)
def ladder(n: int, d: int) -> Ladder:
    """Decompose the centred sinusoid of ``n`` positions and even width ``d``.

    Seen from the middle of the table, cosines are even and sines odd, so that the two halves of
    the decomposition have half the length each.
    """
    angles = np.outer(_centred(n)[n // 2 :], frequencies(d))  # from the middle on
    weight = np.full((len(angles), 1), np.sqrt(2.0))  # each row stands for its mirror image too
    if n % 2:
        weight[0] = 1.0
    even = np.cos(angles)
    even = even - (weight**2 * even).sum(axis=0) / n
    halves = [np.linalg.svd(weight * half, full_matrices=False) for half in (even, np.sin(angles))]
    singular = np.concatenate([half[1] for half in halves])
    whole = []
    for sign, (left, _, _) in zip((1, -1), halves, strict=True):
        upper = left / weight
        whole.append(np.concatenate([sign * upper[n % 2 :][::-1], upper]))
    basis = np.concatenate(whole, axis=1)
    order = np.argsort(-singular, kind="stable")
    order = order[singular[order] > LADDER_CONDITION * singular[order[0]]]
    kept, values = basis[:, order], singular[order]
    for array in (kept, values):
        array.flags.writeable = False  # the next caller gets the same
    return Ladder(kept, values)


def ladder_basis(n: int, d: int) -> Floats:
    """Return an orthonormal basis ``[n, r]`` of the span of the centred sinusoid."""
    return ladder(n, d).basis


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
        """How many explain `ENOUGH` of the variance."""
        reached = np.flatnonzero(self.share >= ENOUGH)
        return int(reached[0]) + 1 if reached.size else None

    @property
    def periods(self) -> Floats:
        """``[k]``: the period of each sinusoid in the order of choice, in positions.

        Those needed for `ENOUGH` are as in the fit that reaches it, each later one as chosen.
        """
        settled = self.enough or len(self.share)
        lines = [self.frequencies[max(k, settled - 1)][k] for k in range(len(self.share))]
        return 1 / np.array(lines)


def choose_sinusoids(table: Cloud, most: int = MOST_SINUSOIDS) -> Sinusoids:
    """Choose the sinusoids that explain most of a table, one after the other.

    Each has its own sine and cosine amplitude in every dimension of the table. The next is the one
    that adds most on a grid of `OVERSAMPLING` steps per cycle in the table, beside what is there;
    then all frequencies are refined together. Frequencies lie between half a cycle in the table and
    the Nyquist frequency, and at least one cycle in the table apart, which is as close as the
    length can tell apart; there are at most n / 4.

    Parameters
    ----------
    table
        Not constant, with at least `MIN_LENGTH` positions.
    most
        Number of sinusoids at which to stop.
    """
    n = len(table)
    chosen = np.zeros(0)
    grid = np.arange(OVERSAMPLING // 2, OVERSAMPLING * n // 2 - OVERSAMPLING // 2 + 1)
    power = _own_forms(table.points, grid)
    fit = _Fit.at(table, chosen)
    shares: list[float] = []
    found: list[Floats] = []
    while len(shares) < min(most, n // 4):
        gain = _gain(fit, power, grid, n)
        apart = np.abs(grid[:, None] / (OVERSAMPLING * n) - fit.frequencies[None, :])
        gain[(apart < (1 - SLIGHT) / n).any(axis=1)] = -np.inf
        best = int(np.argmax(gain))
        if not np.isfinite(gain[best]):
            break
        start = np.append(fit.frequencies, grid[best] / (OVERSAMPLING * n))
        fit = _refined(table, _Fit.at(table, start))
        shares.append(min(fit.explained / table.total, 1.0))
        found.append(fit.frequencies)
        if shares[-1] > 1 - EXPLAINED:
            break
    return Sinusoids(np.array(shares), tuple(found))


@dataclass(frozen=True, eq=False)
class _Fit:
    """A table regressed on sinusoids: ``[n, 2k]`` waves, cosines first, and what follows."""

    frequencies: Floats
    basis: Floats
    triangle: Floats
    image: Floats  # the Gram matrix times the basis
    explained: float

    @classmethod
    def at(cls, table: Cloud, chosen: Floats) -> _Fit:
        angles = 2 * np.pi * np.outer(_centred(len(table)), chosen)
        waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        basis, triangle = np.linalg.qr(waves - waves.mean(axis=0))
        image = table.times(basis)
        return cls(chosen, basis, triangle, image, float(np.vdot(basis, image)))


def _refined(table: Cloud, fit: _Fit) -> _Fit:
    """Move all frequencies to a local best: damped Gauss-Newton steps that only ever gain."""
    n = len(table)
    damping = 1e-3
    for _ in range(STEPS):
        step = np.clip(_step(fit, damping), -0.5 / n, 0.5 / n)
        trial = _Fit.at(table, _kept_apart(fit.frequencies, fit.frequencies + step, n))
        gain = trial.explained - fit.explained
        if gain > 0:
            fit, damping = trial, damping / 10
        else:
            damping *= 30
        if abs(gain) < GAIN * table.total:
            break
    return fit


def _kept_apart(old: Floats, new: Floats, n: int) -> Floats:
    """Return the new frequencies, but the old where the new would come too close."""
    new = np.clip(new, 0.5 / n, 0.5 - 0.5 / n)
    while True:
        order = np.argsort(new)
        close = np.flatnonzero(np.diff(new[order]) * n < 1 - SLIGHT)
        stay = np.union1d(order[close], order[close + 1])
        if not stay.size or np.array_equal(new[stay], old[stay]):
            return new
        new[stay] = old[stay]


def _step(fit: _Fit, damping: float) -> Floats:
    """Return the Gauss-Newton step of variable projection, in cycles per position."""
    count = len(fit.frequencies)
    tau = _centred(len(fit.basis))
    angles = 2 * np.pi * np.outer(tau, fit.frequencies)
    slopes = 2 * np.pi * tau[:, None] * np.concatenate([-np.sin(angles), np.cos(angles)], axis=1)
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


def _centred(n: int) -> Floats:
    return np.arange(n, dtype=np.float64) - (n - 1) / 2


def _transform(columns: Floats, grid: NDArray[np.intp]) -> NDArray[np.complex128]:
    """Return ``sum_t x_t exp(i w (t - middle))`` of each column at the grid's frequencies."""
    n = len(columns)
    size = OVERSAMPLING * n
    turn = np.exp(-2j * np.pi * grid * ((n - 1) / 2) / size)
    return np.asarray(np.conj(np.fft.rfft(columns, size, axis=0)[grid]) * turn[:, None])


def _own_forms(points: Floats, grid: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return ``z*Gz`` and the real part of ``z'Gz`` for the complex wave z of each frequency."""
    plain = np.zeros(len(grid))
    turned = np.zeros(len(grid))
    for first in range(0, points.shape[1], 64):  # keeps the padded transforms small
        waves = _transform(points[:, first : first + 64], grid)
        plain += np.square(np.abs(waves)).sum(axis=1)
        turned += np.square(waves).sum(axis=1).real
    return plain, turned


def _gain(
    fit: _Fit,
    power: tuple[Floats, Floats],
    grid: NDArray[np.intp],
    n: int,
) -> Floats:
    """Return what one more sinusoid would explain, at each frequency of the grid.

    Seen from the middle of the table, cosines are even and sines odd, so neither meets the other:
    each adds ``w'Gw / w'w``, w being the wave less its projection on what is there. Both forms of
    both waves follow from those of the complex wave z, ``z*Gz`` and ``z'Gz``.
    """
    ones = np.full((n, 1), n**-0.5)
    taken = _transform(np.concatenate([ones, fit.basis], axis=1), grid)
    image = _transform(fit.image, grid)
    waves = taken[:, 1:]
    less = waves @ (fit.basis.T @ fit.image) - 2 * image
    plain = power[0] + (np.conj(less) * waves).sum(axis=1).real
    turned = power[1] + (less * waves).sum(axis=1).real
    angle = 2 * np.pi * grid / (OVERSAMPLING * n)
    length = n - np.square(np.abs(taken)).sum(axis=1)
    skew = np.sin(n * angle) / np.sin(angle) - np.square(taken).sum(axis=1).real
    gain = np.zeros(len(grid))
    for sign in (1, -1):  # cosine, sine
        rest = length + sign * skew
        new = rest > 1e-6 * n
        gain[new] += (plain + sign * turned)[new] / rest[new]
    return gain


@dataclass(frozen=True, eq=False)
class BaseFit:
    """How well sinusoids of other bases resemble a table.

    Parameters
    ----------
    bases, cka
        ``[b]``: bases tried, rising, and the table's debiased CKA with the sinusoid of its width
        and each base.
    base, best
        The best base, None where the curve does not single one out, and the highest CKA.
    similar
        Lowest and highest base that fit as well: whose misfit ``1 - cka²`` is within `SLACK`.
    contrast
        Misfit of the best base's ladder with its lines moved half way to their neighbours, over
        its own: how much the lines themselves matter, and not just the band that they fill.
    rows
        Number of rows compared, from the first.
    undefined
        Reason why there is no base, or empty.
    """

    bases: Floats
    cka: Floats
    base: float | None
    best: float | None
    similar: tuple[float, float] | None
    contrast: float | None
    rows: int
    undefined: str = ""


def fit_base(table: Cloud, d: int) -> BaseFit:
    """Find the base b whose ladder ``b^(-2i/d)`` resembles a table most.

    Least squares between the Gram matrices off the diagonal, up to scale, which is the debiased
    CKA. The span of a wide ladder hardly depends on its base; which lines it has does, so that
    only a table with the lines of one ladder singles out a base, and a merely smooth table leaves
    the curve flat: then the base is undefined.

    Parameters
    ----------
    table
        Not constant, with at least `MIN_LENGTH` positions; the first `BASE_ROWS` are used.
    d
        Even width of the sinusoids.
    """
    if len(table) > BASE_ROWS:
        table = cloud(table.points[:BASE_ROWS])
    n = len(table)
    if d < 2 * MIN_LINES:
        return _no_base(n, f"a ladder of fewer than {MIN_LINES} lines resembles anything")
    own = unbiased(table.squared_gram, table.power, table.power)
    if table.total == 0 or own <= 1e-12 * table.squared_gram:
        return _no_base(n, "all rows are equal, or equally far apart")
    # Inner products with a Toeplitz matrix see only the sums along the diagonals.
    spectrum = np.square(np.abs(np.fft.rfft(table.points, 2 * n, axis=0))).sum(axis=1)
    sums = np.fft.irfft(spectrum, 2 * n)[:n] * np.where(np.arange(n) > 0, 2.0, 1.0)

    def resemblance(kernels: _Kernels) -> Floats:
        cross = unbiased(kernels.lags @ sums, kernels.power, table.power)
        varies = kernels.own > 0
        return np.where(varies, cross / np.sqrt(own * np.where(varies, kernels.own, 1.0)), 0.0)

    bases, kernels = _base_grid(n, d)
    curve = resemblance(kernels)
    top = int(np.argmax(curve))
    low, high = np.log(bases[max(top - 1, 0)]), np.log(bases[min(top + 1, len(bases) - 1)])
    base, best = float(bases[top]), float(curve[top])
    for _ in range(6):  # each round narrows the bracket to a quarter
        nearby = np.exp(np.linspace(low, high, 9))
        around = resemblance(_kernels(n, d, nearby))
        k = int(np.argmax(around))
        if around[k] > best:
            base, best = float(nearby[k]), float(around[k])
        low, high = np.log(nearby[max(k - 1, 0)]), np.log(nearby[min(k + 1, 8)])
    misfit, least = (1 - np.square(np.maximum(value, 0)) + 1e-12 for value in (curve, best))
    alike = np.append(bases[misfit <= (1 + SLACK) * least], base)
    similar = float(alike.min()), float(alike.max())
    # A smooth table resembles as much a ladder whose lines lie between those of this one.
    there = np.array([base])
    between = max(float(resemblance(_kernels(n, d, there, half))[0]) for half in (-0.5, 0.5))
    contrast = float((1 - max(between, 0.0) ** 2 + 1e-12) / least)
    why = ""
    if best <= 0 or similar[1] > FLAT * similar[0]:
        why = f"flat: bases from {similar[0]:.3g} to {similar[1]:.3g} fit as well"
    elif contrast < CONTRAST:
        why = f"no ladder: lines between those of base {base:.3g} fit as well"
    elif not BASES[0] < base < BASES[1]:
        why = f"no base between {BASES[0]:g} and {BASES[1]:g} fits best"
    return BaseFit(bases, curve, None if why else base, best, similar, contrast, n, why)


def _no_base(n: int, why: str) -> BaseFit:
    return BaseFit(np.zeros(0), np.zeros(0), None, None, None, None, n, why)


@dataclass(frozen=True, eq=False)
class _Kernels:
    """Sinusoids of several bases: ``[b, n]`` inner product by lag and centred row powers."""

    lags: Floats
    power: Floats
    own: Floats  # [b]: unbiased HSIC of each with itself


@lru_cache(maxsize=4)
def _base_grid(n: int, d: int) -> tuple[Floats, _Kernels]:
    # The lines of a ladder move with the logarithm of log(base), the faster the longer the table.
    low, high = np.log(np.log(BASES))
    count = round((high - low) * max(n, 128) / 8.5) + 1
    bases = np.exp(np.exp(np.linspace(low, high, count)))
    return bases, _kernels(n, d, bases)


def _kernels(n: int, d: int, bases: Floats, shift: float = 0.0) -> _Kernels:
    """Prepare sinusoids whose lines are moved by ``shift`` of the way to the next faster one."""
    block = 32
    begin = np.arange(0, n, block)
    lags = np.empty((len(bases), n))
    for k, base in enumerate(bases):
        omega = frequencies(d, base=float(base)) * base ** (2 * shift / d)
        coarse, fine = np.outer(begin, omega), np.outer(np.arange(block), omega)
        waves = np.cos(coarse) @ np.cos(fine).T - np.sin(coarse) @ np.sin(fine).T
        lags[k] = waves.ravel()[:n]
    sums = np.cumsum(lags, axis=1)
    row = (sums + sums[:, ::-1] - lags[:, :1]) / n
    mean = row.mean(axis=1, keepdims=True)
    power = lags[:, :1] - 2 * row + mean
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0) * np.arange(n, 0, -1)
    squared = np.square(lags) @ pairs - 2 * n * np.square(row).sum(axis=1) + (n * mean[:, 0]) ** 2
    return _Kernels(lags, power, unbiased(squared, power, power))


@dataclass(frozen=True, eq=False)
class SinusoidFit(Result):
    """A table beside the sinusoid of its shape; on a grid, beside the 2-D sin-cos.

    Parameters
    ----------
    reference
        The formula compared with.
    cka, cka_biased, procrustes, subspace_overlap
        Distances to the reference, see `posprobe.analyses.closeness`.
    subspace_rank
        Leading directions compared.
    subspace_chance
        Overlap of unrelated directions.
    ladder_share
        Share of the variance within the span of the sinusoid's columns. A wide ladder spans nearly
        every wave slower than its fastest, of 6.3 positions, so that any smooth table scores high.
    ladder_rank
        Dimensions of that span: directions in which the sinusoid varies by more than
        `LADDER_CONDITION` of its widest.
    ladder_white_share
        What so many directions explain of white noise.
    sinusoids
        The best 1, 2, 3 … freely chosen sinusoids; None where undefined.
    best_share
        ``[k]``: share that the best directions of any shape explain, two for each sinusoid; an
        upper bound on what sinusoids can.
    base
        The search for the ladder's base; None where undefined.
    layout
        Of the positions.
    undefined
        Reason for each number that is None.
    """

    reference: str | None
    cka: float | None
    cka_biased: float | None
    procrustes: float | None
    subspace_overlap: float | None
    subspace_rank: int | None
    subspace_chance: float | None
    ladder_share: float | None
    ladder_rank: int | None
    ladder_white_share: float | None
    sinusoids: Sinusoids | None
    best_share: Floats
    base: BaseFit | None
    layout: Layout
    undefined: dict[str, str]

    def summary(self) -> dict[str, Any]:
        """Return the distances, the shares, the sinusoids and the base."""
        lines = self.sinusoids
        return {
            "reference": self.reference,
            "cka": self.cka,
            "cka_biased": self.cka_biased,
            "procrustes": self.procrustes,
            "subspace_overlap": self.subspace_overlap,
            "subspace_rank": self.subspace_rank,
            "subspace_chance": self.subspace_chance,
            "ladder_share": self.ladder_share,
            "ladder_rank": self.ladder_rank,
            "ladder_white_share": self.ladder_white_share,
            "sinusoids": None
            if lines is None
            else [
                {"period": float(period), "share": float(share), "best_share": float(best)}
                for period, share, best in zip(
                    lines.periods, lines.share, self.best_share, strict=True
                )
            ],
            "sinusoids_for_90": None if lines is None else lines.enough,
            "base": None if self.base is None else self.base.base,
            "base_cka": None if self.base is None else self.base.best,
            "base_contrast": None if self.base is None else self.base.contrast,
            "base_rows": None if self.base is None else self.base.rows,
            "undefined": dict(self.undefined),
        }


def against_sinusoid(
    table: PositionTable | Positions | Array, *, decomposition: PCA | None = None
) -> SinusoidFit:
    """Compare a table with the sinusoid of its shape.

    Parameters
    ----------
    table
        ``[n, d]``. The sinusoid has base 10 000 and exponents over d/2 (Vaswani et al. 2017); its
        order of columns does not matter. On a grid the 2-D sin-cos of the same shape takes its
        place, and what concerns one ladder of frequencies is undefined.
    decomposition
        The table's principal components, where they are known already: they save an SVD.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.
    """
    given = positions(table)
    n, d = given.values.shape
    layout = given.layout
    points = cloud(given, decomposition=decomposition)
    if n < MIN_LENGTH:
        return _made(layout, dict.fromkeys(_NUMBERS, f"fewer than {MIN_LENGTH} positions"))
    if points.total == 0:
        return _made(layout, dict.fromkeys(_NUMBERS, "all rows are equal"))
    if isinstance(layout, Grid):
        return _against_grid(points, layout, d)
    lines = choose_sinusoids(points)
    best = np.cumsum(points.directions[1] ** 2) / points.total
    last = np.minimum(2 * np.arange(1, len(lines.share) + 1), len(best)) - 1
    undefined = {}
    if lines.enough is None:
        undefined["sinusoids_for_90"] = (
            f"{len(lines.share)} sinusoids explain {lines.share[-1]:.2f}"
            if lines.share.size
            else "no sinusoid was found"
        )
    common: dict[str, Any] = {"sinusoids": lines, "best_share": np.minimum(best[last], 1.0)}
    if d % 2:
        why = f"the sinusoid has no table of odd width {d}"
        return _made(
            layout, dict.fromkeys((*_DISTANCES, *_LADDER, *_BASE), why) | undefined, common
        )
    rungs = ladder(n, d)
    if rungs.spans_all:
        undefined["ladder_share"] = "the ladder spans every table of this length"
    base = fit_base(points, d)
    if base.undefined:
        undefined["base"] = base.undefined
    if base.best is None:
        undefined["base_cka"] = undefined["base_contrast"] = base.undefined
    near = closeness(points, rungs.cloud)
    return _made(
        layout,
        undefined | near.undefined,
        common
        | _distances(near, n)
        | {
            "reference": f"sinusoidal:{n}x{d}",
            "ladder_share": None if rungs.spans_all else rungs.share(points),
            "ladder_rank": rungs.rank,
            "ladder_white_share": rungs.white_share,
            "base": base,
        },
    )


_DISTANCES = (
    "reference",
    "cka",
    "cka_biased",
    "procrustes",
    "subspace_overlap",
    "subspace_rank",
    "subspace_chance",
)
_LADDER = ("ladder_share", "ladder_rank", "ladder_white_share")
_LINES = ("sinusoids", "sinusoids_for_90")
_BASE = ("base", "base_cka", "base_contrast", "base_rows")
_NUMBERS = (*_DISTANCES, *_LADDER, *_LINES, *_BASE)


def _against_grid(points: Cloud, layout: Grid, d: int) -> SinusoidFit:
    undefined = dict.fromkeys(
        (*_LADDER, *_LINES, *_BASE), "one ladder of frequencies does not describe a grid"
    )
    if d % 4:
        why = f"the 2-D sin-cos has no table of width {d}, which is no multiple of 4"
        return _made(layout, undefined | dict.fromkeys(_DISTANCES, why))
    near = closeness(points, _grid_cloud(layout.height, layout.width, d))
    name = f"sincos2d:{layout.height}x{layout.width}x{d}"
    numbers = {"reference": name, **_distances(near, layout.size)}
    return _made(layout, undefined | near.undefined, numbers)


@lru_cache(maxsize=4)
def _grid_cloud(height: int, width: int, d: int) -> Cloud:
    return cloud(sincos2d(height, width, d))


def _distances(near: Closeness, n: int) -> dict[str, Any]:
    rank = near.subspace_rank or None
    return {
        "cka": near.cka,
        "cka_biased": near.cka_biased,
        "procrustes": near.procrustes,
        "subspace_overlap": near.subspace_overlap,
        "subspace_rank": rank,
        "subspace_chance": rank and rank / (n - 1),
    }


def _made(
    layout: Layout, undefined: dict[str, str], numbers: dict[str, Any] | None = None
) -> SinusoidFit:
    nothing: dict[str, Any] = dict.fromkeys((*_DISTANCES, *_LADDER, "sinusoids", "base"))
    found = nothing | {"best_share": np.zeros(0)} | (numbers or {})
    if found["subspace_overlap"] is None and "subspace_overlap" in undefined:
        for name in ("subspace_rank", "subspace_chance"):
            undefined = undefined | {name: undefined["subspace_overlap"]}
    return SinusoidFit(**found, layout=layout, undefined=undefined)
