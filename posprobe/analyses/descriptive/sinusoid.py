"""A learned table against the sinusoid of its shape.

Distances to the sinusoid, the share of the table that its ladder of frequencies spans, how many
freely chosen sinusoids the table amounts to, and the base of the ladder that resembles it most. All
of them are functions of the table's Gram matrix alone, so no rotation of the table changes them,
and neither does the position at which its first row stands.

Warning: smooth tables are near sinusoids without being made of any. A random walk reaches a CKA of
0.85 with the sinusoid, 0.99 of it lies within a wide ladder's span, and three sinusoids explain 0.9
of it. Only a comparison with such nulls says more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np

from posprobe.analyses.descriptive.closeness import (
    Cloud,
    closeness,
    prepare_cloud,
    unbiased_hsic,
)
from posprobe.analyses.descriptive.matching_pursuit import Sinusoids, choose_sinusoids
from posprobe.analyses.descriptive.pca import PCA
from posprobe.analyses.facts import Number
from posprobe.analyses.result import FLOAT64_EPS, HIDDEN, JsonType, Result, centring_error
from posprobe.arrays import Array, Floats, Positions, positions
from posprobe.encodings.tables import frequencies, sincos2d
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Natural, Reasons, Share, limits
from posprobe.tables import PositionTable

#: Directions in which the ladder varies less than this, as a share of its widest, do not count: it
#: is ten times the rounding of float32.
LADDER_CONDITION = 1e-6


@dataclass(frozen=True, eq=False)
class Ladder:
    """The centred sinusoid of one shape, as a span and as a table.

    Parameters
    ----------
    directions
        ``[n, k]`` orthonormal, orthogonal to the constant: every direction in which the sinusoid
        varies by more than rounding.
    deviations
        ``[k]``: by how much it varies, falling.
    """

    directions: Floats
    deviations: Floats

    @cached_property
    def rank(self) -> int:
        """Number of directions in which it varies by more than `LADDER_CONDITION` of its widest."""
        return int(
            np.count_nonzero(self.deviations > LADDER_CONDITION * self.deviations[0])
        )

    @property
    def basis(self) -> Floats:
        """``[n, r]``: those directions."""
        return self.directions[:, : self.rank]

    @property
    def singular(self) -> Floats:
        """``[r]``: of those directions."""
        return self.deviations[: self.rank]

    @cached_property
    def cloud(self) -> Cloud:
        """The sinusoid, ready for comparisons."""
        scores = self.basis * self.singular
        return Cloud(scores, (scores, self.singular))

    @property
    def white_share(self) -> float:
        """Share of white noise that as many directions explain."""
        return self.rank / (len(self.basis) - 1)

    @property
    def spans_all(self) -> bool:
        """Whether every table of this length lies in the span, so that its share says nothing."""
        return self.rank >= len(self.basis) - 1

    def share(self, table: Cloud) -> float:
        """Return the share of a table's variance that lies in the span."""
        return float(np.square(self.basis.T @ table.points).sum() / table.total)


@lru_cache(maxsize=4)
def decompose_ladder(n: int, d: int) -> Ladder:
    """Decompose the centred sinusoid of ``n`` positions and even width ``d``.

    Seen from the middle of the table, cosines are even and sines odd, so that the two halves of
    the decomposition have half the length each.
    """
    angles = np.outer(
        np.arange(n // 2, n) - (n - 1) / 2, frequencies(d)
    )  # from the middle on
    weight = np.full(
        (len(angles), 1), np.sqrt(2.0)
    )  # each row stands for its mirror image too
    if n % 2:
        weight[0] = 1.0
    cosines = np.cos(angles)
    cosines = cosines - (weight**2 * cosines).sum(axis=0) / n
    halves = [
        np.linalg.svd(weight * half, full_matrices=False)
        for half in (cosines, np.sin(angles))
    ]
    singular = np.concatenate([half[1] for half in halves])
    blocks = []
    for sign, (u, _, _) in zip((1, -1), halves, strict=True):
        upper = u / weight
        blocks.append(np.concatenate([sign * upper[n % 2 :][::-1], upper]))
    basis = np.concatenate(blocks, axis=1)
    order = np.argsort(-singular, kind="stable")
    order = order[singular[order] > FLOAT64_EPS * singular[order[0]]]
    ordered_basis, values = basis[:, order], singular[order]
    for array in (ordered_basis, values):
        array.flags.writeable = False  # the next caller gets the same
    return Ladder(ordered_basis, values)


#: Bases between which the best is sought: models use 100 to 1e6, and beyond either end the lines
#: hardly move.
BASE_SEARCH_RANGE = (10.0, 1e7)
#: Rows that the search looks at: more make its peaks narrower than its grid.
MAX_BASE_ROWS = 512
#: Bases whose misfit exceeds the best by no more than this share fit as well: noise moves the
#: misfit by a twentieth.
MISFIT_TOLERANCE = 0.05
#: A base is undefined where bases that fit as well are further apart than this factor: a base is
#: known to one digit or not at all.
MAX_SIMILAR_BASE_RATIO = 2.0
#: A base is undefined unless lines half way between its own have so many times the misfit: of 100
#: walks, smooth curves and tables of noise the most is 1.005, of 25 sinusoids in noise of half
#: their variance the least 1.37.
MIN_BASE_CONTRAST = 1.1
#: A base is undefined where its misfit is this many times that of its lines after each has moved by
#: up to half a step alone; the bound is that of the contrast.
MAX_UNEVEN_GAIN = 1.1
#: Tables that resemble the sinusoid more than this skip the test of their lines, as their misfit is
#: rounding.
CERTAIN_CKA = 0.99
#: Fewest lines of a ladder whose base is sought: a few match any table by chance, and a base moves
#: sixteen of them together.
MIN_BASE_LADDER_LINES = 16


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
        Lowest and highest base that fit as well: whose misfit ``1 - cka²`` is within
        `MISFIT_TOLERANCE`.
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
        At least four positions; the first `MAX_BASE_ROWS` are used.
    d
        Even width of the sinusoids.
    """
    if len(table) > MAX_BASE_ROWS:
        table = prepare_cloud(table.points[:MAX_BASE_ROWS])
    n = len(table)
    if d < 2 * MIN_BASE_LADDER_LINES:
        return _no_base(
            n, f"a ladder of fewer than {MIN_BASE_LADDER_LINES} lines resembles anything"
        )
    table_power = unbiased_hsic(table.squared_gram, table.power, table.power)
    if table.total == 0 or table_power <= centring_error(table.squared_gram, n):
        return _no_base(n, "all rows are equal, or equally far apart")
    # Inner products with a Toeplitz matrix see only the sums along the diagonals.
    spectrum = np.square(np.abs(np.fft.rfft(table.points, 2 * n, axis=0))).sum(axis=1)
    sums = np.fft.irfft(spectrum, 2 * n)[:n] * np.where(np.arange(n) > 0, 2.0, 1.0)

    def resemblance(kernels: _Kernels) -> Floats:
        cross = unbiased_hsic(kernels.lags @ sums, kernels.power, table.power)
        varies = kernels.own > 0
        return np.where(
            varies, cross / np.sqrt(table_power * np.where(varies, kernels.own, 1.0)), 0.0
        )

    bases, kernels = _base_grid(n, d)
    curve = resemblance(kernels)
    base, best = _refine_base(resemblance, n, d, bases, curve)
    min_misfit = float(_misfit(best))
    similar_bases = np.append(
        bases[_misfit(curve) <= (1 + MISFIT_TOLERANCE) * min_misfit], base
    )
    similar = float(similar_bases.min()), float(similar_bases.max())
    # A smooth table resembles as much a ladder whose lines lie between those of this one.
    base_array = np.array([base])
    off_grid_resemblance = max(
        float(resemblance(_shifted_kernels(n, d, base_array, half))[0])
        for half in (-0.5, 0.5)
    )
    contrast = float(_misfit(off_grid_resemblance)) / min_misfit
    reason = ""
    if best <= 0 or similar[1] > MAX_SIMILAR_BASE_RATIO * similar[0]:
        reason = f"flat: bases from {similar[0]:.3g} to {similar[1]:.3g} fit as well"
    elif contrast < MIN_BASE_CONTRAST:
        reason = f"no ladder: lines between those of base {base:.3g} fit as well"
    elif best < CERTAIN_CKA and _uneven_gain(resemblance, n, d, base) > MAX_UNEVEN_GAIN:
        reason = f"no ladder: lines spaced less evenly than those of base {base:.3g} fit better"
    elif not BASE_SEARCH_RANGE[0] < base < BASE_SEARCH_RANGE[1]:
        reason = f"no base between {BASE_SEARCH_RANGE[0]:g} and {BASE_SEARCH_RANGE[1]:g} fits best"
    return BaseFit(
        bases, curve, None if reason else base, best, similar, contrast, n, reason
    )


def _refine_base(
    resemblance: Callable[[_Kernels], Floats],
    n: int,
    d: int,
    bases: Floats,
    curve: Floats,
) -> tuple[float, float]:
    """Return the best base near the top of a curve, and its resemblance."""
    top = int(np.argmax(curve))
    low, high = (
        np.log(bases[max(top - 1, 0)]),
        np.log(bases[min(top + 1, len(bases) - 1)]),
    )
    base, best = float(bases[top]), float(curve[top])
    for _ in range(6):  # each round narrows the bracket to a quarter
        nearby = np.exp(np.linspace(low, high, 9))
        nearby_resemblance = resemblance(_shifted_kernels(n, d, nearby))
        k = int(np.argmax(nearby_resemblance))
        if nearby_resemblance[k] > best:
            base, best = float(nearby[k]), float(nearby_resemblance[k])
        low, high = np.log(nearby[max(k - 1, 0)]), np.log(nearby[min(k + 1, 8)])
    return base, best


def _no_base(n: int, reason: str) -> BaseFit:
    return BaseFit(np.zeros(0), np.zeros(0), None, None, None, None, n, reason)


def _uneven_gain(
    resemblance: Callable[[_Kernels], Floats], n: int, d: int, base: float
) -> float:
    """Return how many times less misfit is left where lines move each by itself, one by one.

    The lines of a table that is a ladder, in however much noise, are best where they are; of
    frequencies at random, some ladder hits a few.
    """
    lines = frequencies(d, base=base)
    place = np.arange(n)
    lags = np.cos(np.outer(place, lines)).sum(axis=1)
    start_resemblance = best = float(resemblance(_kernels_from_lags(lags[None]))[0])
    moves = base ** (
        np.array([-1.0, -0.5, 0.5, 1.0]) / d
    )  # of half a step, and of a quarter
    for line in lines[lines > 2 * np.pi / n]:
        moved_lags = lags - np.cos(line * place) + np.cos(np.outer(line * moves, place))
        resemblances = resemblance(_kernels_from_lags(moved_lags))
        if resemblances.max() > best:
            best, lags = (
                float(resemblances.max()),
                moved_lags[int(np.argmax(resemblances))],
            )
    return float(_misfit(start_resemblance) / _misfit(best))


def _misfit(cka: Floats | float) -> Floats:
    """Return ``1 - cka²``, kept above 0 so that misfits have a ratio."""
    return np.asarray(1 - np.square(np.maximum(cka, 0)) + 1e-12)


@dataclass(frozen=True, eq=False)
class _Kernels:
    """Sinusoids of several bases: ``[b, n]`` inner product by lag and centred row powers."""

    lags: Floats
    power: Floats
    own: Floats  # [b]: unbiased HSIC of each with itself


@lru_cache(maxsize=4)
def _base_grid(n: int, d: int) -> tuple[Floats, _Kernels]:
    # The lines of a ladder move with the logarithm of log(base), the faster the longer the table.
    low, high = np.log(np.log(BASE_SEARCH_RANGE))
    count = round((high - low) * max(n, 128) / 8.5) + 1
    bases = np.exp(np.exp(np.linspace(low, high, count)))
    return bases, _shifted_kernels(n, d, bases)


def _shifted_kernels(n: int, d: int, bases: Floats, shift: float = 0.0) -> _Kernels:
    """Prepare sinusoids whose lines are moved by ``shift`` of the way to the next faster one."""
    block = 32
    begin = np.arange(0, n, block)
    lags = np.empty((len(bases), n))
    for k, base in enumerate(bases):
        omega = frequencies(d, base=float(base)) * base ** (2 * shift / d)
        coarse, fine = np.outer(begin, omega), np.outer(np.arange(block), omega)
        waves = np.cos(coarse) @ np.cos(fine).T - np.sin(coarse) @ np.sin(fine).T
        lags[k] = waves.ravel()[:n]
    return _kernels_from_lags(lags)


def _kernels_from_lags(lags: Floats) -> _Kernels:
    """Prepare Toeplitz kernels ``[b, n]`` by their values at each lag."""
    n = lags.shape[1]
    sums = np.cumsum(lags, axis=1)
    row = (sums + sums[:, ::-1] - lags[:, :1]) / n
    mean = row.mean(axis=1, keepdims=True)
    power = lags[:, :1] - 2 * row + mean
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0) * np.arange(n, 0, -1)
    squared = (
        np.square(lags) @ pairs
        - 2 * n * np.square(row).sum(axis=1)
        + (n * mean[:, 0]) ** 2
    )
    return _Kernels(lags, power, unbiased_hsic(squared, power, power))


#: Fewest positions of a table that is compared with a sinusoid: its ladder spans nearly every
#: shorter table.
MIN_SINUSOID_POSITIONS = 8

#: Numbers that are undefined together.
DISTANCE_KEYS = (
    "reference",
    "cka",
    "cka_biased",
    "procrustes",
    "subspace_overlap",
    "subspace_rank",
    "subspace_chance",
)
LADDER_SPAN_KEYS = ("ladder_share", "ladder_rank", "ladder_white_share")
SINUSOID_KEYS = ("sinusoids", "sinusoids_for_90")
BASE_KEYS = ("base", "base_cka", "base_contrast", "base_rows")


@dataclass(frozen=True)
class FittedSinusoid:
    """One more freely chosen sinusoid."""

    period: Annotated[float, "Positions."]
    share: Annotated[float, "Of the variance, with those before it."]
    best_share: Annotated[float, "What so many directions of any shape explain."]


def _list_sinusoids(fit: SinusoidFit) -> list[FittedSinusoid] | None:
    if (lines := fit.sinusoids) is None:
        return None
    numbers = zip(lines.periods, lines.share, fit.best_share, strict=True)
    return [FittedSinusoid(*entry) for entry in numbers]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SinusoidFit(Result):
    """A table beside the sinusoid of its shape; on a grid, beside the 2-D sin-cos.

    Parameters
    ----------
    layout
        Layout of the positions.
    points
        Points to which waves are fitted, on first use; None where none are.
    width
        Columns of the table.
    missing
        Reason for each distance and each number of the ladder that is None.
    reference
        The formula compared with.
    cka, cka_biased, procrustes, subspace_overlap
        Distances to the reference, see `posprobe.analyses.descriptive.closeness`.
    subspace_rank
        Leading directions compared.
    subspace_chance
        Overlap of unrelated directions.
    ladder_share
        Share of the variance within the span of the sinusoid's columns. A wide ladder spans nearly
        every wave slower than its fastest, of 6.3 positions, so that any smooth table scores high.
    ladder_rank
        Dimensions of that span: directions in which the sinusoid varies by more than
        `posprobe.analyses.descriptive.sinusoid.LADDER_CONDITION` of its widest.
    ladder_white_share
        Share of white noise that as many directions explain.
    """

    figures: ClassVar[str] = "fits.plot_sinusoid"

    layout: Annotated[Layout, HIDDEN]
    points: Annotated[Cloud | None, HIDDEN]
    width: Annotated[int, HIDDEN]
    missing: Annotated[Mapping[str, str], HIDDEN]
    reference: Annotated[str | None, "The formula compared with."] = None
    cka: Annotated[
        float | None,
        Number("CKA with the sinusoid", "debiased; 1 is a rotated copy", compared=True),
    ] = None
    cka_biased: Share | None = None
    procrustes: Annotated[
        float | None,
        limits(minimum=0, maximum=1.4142136),
        Number("Procrustes distance", "0 is a rotated copy, 1.41 the maximum"),
    ] = None
    subspace_overlap: Annotated[
        Share | None, Number("subspace overlap", "1 is complete")
    ] = None
    subspace_rank: Annotated[Natural | None, "Leading directions compared."] = None
    subspace_chance: Annotated[Share | None, "Overlap of unrelated directions."] = None
    ladder_share: Annotated[
        Share | None,
        Number(
            "explained by the sinusoid",
            "share of the variance at its frequencies",
            compared=True,
        ),
    ] = None
    ladder_rank: Annotated[Count | None, "Dimensions of that span."] = None
    ladder_white_share: Annotated[
        float | None,
        Number("explained, white noise", "what as many waves explain of noise"),
    ] = None

    @cached_property
    def sinusoids(
        self,
    ) -> Annotated[
        Sinusoids | None, JsonType(list[FittedSinusoid] | None, _list_sinusoids)
    ]:
        """The best 1, 2, 3 … freely chosen sinusoids; None where undefined."""
        return None if self.points is None else choose_sinusoids(self.points)

    @property
    def best_share(self) -> Floats:
        """``[k]``: share that the best directions of any shape explain, two for each sinusoid.

        An upper bound on what sinusoids can.
        """
        if self.points is None or self.sinusoids is None:
            return np.zeros(0)
        return _best_share(self.points, len(self.sinusoids.share))

    @cached_property
    def base(
        self,
    ) -> Annotated[
        BaseFit | None,
        JsonType(float | None, lambda fit: fit.base and fit.base.base),
        Number("base", "of the geometric series of wavelengths that fits best"),
    ]:
        """The search for the ladder's base; None where undefined."""
        return (
            None
            if self.points is None or self.width % 2
            else fit_base(self.points, self.width)
        )

    @property
    def undefined(self) -> Reasons:
        """Reason for each number that is None."""
        reasons = dict(self.missing)
        if (lines := self.sinusoids) is not None and lines.enough is None:
            reasons["sinusoids_for_90"] = (
                f"{len(lines.share)} sinusoids explain {lines.share[-1]:.2f}"
                if lines.share.size
                else "no sinusoid was found"
            )
        if self.base is not None and self.base.undefined:
            unknown = BASE_KEYS[:3] if self.base.best is None else BASE_KEYS[:1]
            reasons |= dict.fromkeys(unknown, self.base.undefined)
        return reasons

    @property
    def sinusoids_for_90(
        self,
    ) -> Annotated[
        Natural | None,
        Number("sinusoids for 90 %", "of the variance, freely chosen", form="d"),
    ]:
        """How many explain as much."""
        return self.sinusoids.enough if self.sinusoids else None

    @property
    def base_cka(self) -> Annotated[float | None, ""]:
        """The highest CKA that a base has."""
        return self.base.best if self.base else None

    @property
    def base_contrast(self) -> Annotated[float | None, ""]:
        """Of that base, see `BaseFit`."""
        return self.base.contrast if self.base else None

    @property
    def base_rows(self) -> Annotated[Natural | None, ""]:
        """Rows that were compared for it."""
        return self.base.rows if self.base else None


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

    Examples
    --------
    >>> import posprobe as pp
    >>> fit = pp.analyses.against_sinusoid(pp.sinusoidal(64, 16))
    >>> print(f"{fit.cka:.2f}")
    1.00
    >>> print(f"{fit.ladder_share:.2f}")
    1.00
    """
    inputs = positions(table)
    n, d = inputs.values.shape
    points = prepare_cloud(inputs, decomposition=decomposition)
    missing: dict[str, str] = {}
    numbers: dict[str, Any] = {}
    if n < MIN_SINUSOID_POSITIONS or points.total == 0:
        reason = "all rows are equal"
        if n < MIN_SINUSOID_POSITIONS:
            reason = f"fewer than {MIN_SINUSOID_POSITIONS} positions"
        keys = (*DISTANCE_KEYS, *LADDER_SPAN_KEYS, *SINUSOID_KEYS, *BASE_KEYS)
        missing = dict.fromkeys(keys, reason)
        return SinusoidFit(layout=inputs.layout, points=None, width=d, missing=missing)
    if isinstance(inputs.layout, Grid):
        reason = "one ladder of frequencies does not describe a grid"
        missing = dict.fromkeys((*LADDER_SPAN_KEYS, *SINUSOID_KEYS, *BASE_KEYS), reason)
        if d % 4:
            reason = (
                f"the 2-D sin-cos has no table of width {d}, which is no multiple of 4"
            )
            missing |= dict.fromkeys(DISTANCE_KEYS, reason)
        else:
            height, width = inputs.layout.height, inputs.layout.width
            reference = f"sincos2d:{height}x{width}x{d}"
            numbers = _measure_distances(
                points, _grid_cloud(height, width, d), reference, missing
            )
    elif d % 2:
        reason = f"the sinusoid has no table of odd width {d}"
        missing = dict.fromkeys((*DISTANCE_KEYS, *LADDER_SPAN_KEYS, *BASE_KEYS), reason)
    else:
        ladder = decompose_ladder(n, d)
        numbers = _measure_distances(points, ladder.cloud, f"sinusoidal:{n}x{d}", missing)
        numbers |= {"ladder_rank": ladder.rank, "ladder_white_share": ladder.white_share}
        if ladder.spans_all:
            missing["ladder_share"] = "the ladder spans every table of this length"
        else:
            numbers["ladder_share"] = ladder.share(points)
    return SinusoidFit(
        layout=inputs.layout,
        points=None if isinstance(inputs.layout, Grid) else points,
        width=d,
        missing=missing,
        **numbers,
    )


@lru_cache(maxsize=4)
def _grid_cloud(height: int, width: int, d: int) -> Cloud:
    return prepare_cloud(sincos2d(height, width, d))


def _best_share(points: Cloud, count: int) -> Floats:
    """Return the share that the best 2, 4, 6 … directions of any shape explain: ``[count]``."""
    share = np.cumsum(points.principal[1] ** 2) / points.total
    last_columns = np.minimum(2 * np.arange(1, count + 1), len(share)) - 1
    return np.asarray(np.minimum(share[last_columns], 1.0))


def _measure_distances(
    points: Cloud, formula: Cloud, name: str, missing: dict[str, str]
) -> dict[str, Any]:
    """Return the distances of a table to a formula; reasons for lacking ones join the others."""
    formula_closeness = closeness(points, formula)
    rank = formula_closeness.subspace_rank or None
    missing |= formula_closeness.undefined
    if reason := formula_closeness.undefined.get("subspace_overlap"):
        missing |= dict.fromkeys(("subspace_rank", "subspace_chance"), reason)
    return {
        "reference": name,
        "cka": formula_closeness.cka,
        "cka_biased": formula_closeness.cka_biased,
        "procrustes": formula_closeness.procrustes,
        "subspace_overlap": formula_closeness.subspace_overlap,
        "subspace_rank": rank,
        "subspace_chance": rank and rank / (len(points) - 1),
    }
