"""What hidden states owe to position: means over contexts, and the table as attention sees it.

The decomposition ``h = mean + pos_t + ctx_c + rest`` of Song & Zhong 2023 (arXiv 2310.04861).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import HIDDEN, As, Part, Result, Stored
from posprobe.arrays import Array, Sums, map_in_parallel, namespace, to_numpy
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Natural, Reasons, Share, Text, limits
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: Hidden states of a layer whose products ``[d, d]`` are added up: enough to know the largest
#: variance to a percent or so, and few beside those of a long run, in which they would cost more
#: than all other sums.
PRODUCTS = 2**15
#: Columns whose products are formed at a time: half of a large matrix is saved, as it is symmetric.
BLOCK = 256
#: Means with flipped signs that stand for the sampling noise: Walsh functions, which are balanced
#: from 8 contexts on with so many; the largest of four lies above the noise in four of five runs.
FLIPS = 4


@dataclass(frozen=True, eq=False)
class Moments(Sums):
    """Sums over contexts of one layer's hidden states.

    Their size does not depend on the number of contexts. Every state is taken relative to a fixed
    ``origin``, so that a large common mean costs no digits.

    Parameters
    ----------
    contexts
        Number of contexts.
    origin
        ``[d]``.
    within, within_squares
        ``[t, d]``: of each state less the mean of its context, and of the square of that.
    context, context_squares
        ``[d]`` and a number: of the means of contexts less the origin, and of their squared norm.
    flipped
        ``[FLIPS, t, d]``: of each state less the mean of its context, with the signs of `flips`.
    first
        Number of leading contexts whose products are in ``gram``.
    first_context, gram
        Sums over these leading contexts: ``[d]``, as ``context``, and ``[d, d]``, the products of a
        state, less the origin, with itself, on the diagonal and above (the rest is symmetric). None
        without any, because adding zeros to such a matrix takes time.
    eps
        Machine epsilon of the floats in which a batch is added up.
    """

    shared_fields: ClassVar[tuple[str, ...]] = ("origin", "eps")

    contexts: int
    origin: Array
    within: Array
    within_squares: Array
    context: Array
    context_squares: Array
    flipped: Array
    first: int
    first_context: Array
    gram: Array | None
    eps: float


def moments(states: Array, before: Moments | None = None) -> Moments:
    """Add up the hidden states of one layer over some contexts.

    Each batch is added up in float32, or in float64 where states are that, and batches in float64
    (on MPS in float32).

    Parameters
    ----------
    states
        ``[c, t, d]``: contexts, positions, width; NumPy or torch, of any float type.
    before
        Moments to which the result will be added, and whose origin it shares; None for the first
        batch.

    Raises
    ------
    InvalidTable
        If the shape is another.
    """
    if states.ndim != 3 or 0 in states.shape:
        raise InvalidTable(
            f"hidden states of shape {list(states.shape)}: [contexts, positions, width] are needed."
        )
    xp = namespace(states)
    count, t, d = states.shape
    wide = xp.float32 if getattr(states.device, "type", "") == "mps" else xp.float64
    if states.dtype != wide:
        states = xp.astype(states, xp.float32)
    origin = xp.mean(states, axis=(0, 1)) if before is None else before.origin
    states = states - xp.astype(origin, states.dtype)
    means = xp.mean(states, axis=1)
    within = states - means[:, None, :]
    signs = flips(0 if before is None else before.contexts, count)
    flipped = xp.matmul(
        xp.asarray(signs, dtype=states.dtype, device=states.device),
        xp.reshape(within, (count, t * d)),
    )
    # As many contexts as hold the states wanted, however contexts are grouped.
    needed = -(-PRODUCTS // t)
    first = max(0, min(count, needed - (0 if before is None else before.first)))
    gram = _products(xp.reshape(states[:first], (-1, d)), xp) if first else None
    if before is None:  # whatever is added to these sums becomes as wide
        gram = xp.astype(gram, wide)
    return Moments(
        contexts=count,
        origin=xp.astype(origin, wide),
        within=xp.astype(xp.sum(within, axis=0), wide),
        within_squares=xp.astype(xp.sum(within * within, axis=0), wide),
        context=xp.astype(xp.sum(means, axis=0), wide),
        context_squares=xp.astype(xp.sum(means**2), wide),
        flipped=xp.reshape(flipped, (FLIPS, t, d)),
        first=first,
        first_context=xp.astype(xp.sum(means[:first], axis=0), wide),
        gram=gram,
        eps=float(xp.finfo(states.dtype).eps),
    )


def _products(rows: Array, xp: ModuleType) -> Array:
    """Multiply ``[n, d]`` with itself: ``[d, d]``, of which blocks below the diagonal stay 0."""
    d = rows.shape[1]
    found = xp.zeros((d, d), dtype=rows.dtype, device=rows.device)
    for begin in range(0, d, BLOCK):
        block = slice(begin, begin + BLOCK)
        found[block, begin:] = xp.matmul(rows[:, block].T, rows[:, begin:])
    return found


def flips(start: int, count: int) -> NDArray[np.float64]:
    """Return the signs of contexts by their number: ``[FLIPS, count]``, Walsh functions.

    They change after every context, every second, every fourth … from ``start`` on, so that a
    context has the same signs however it is grouped.
    """
    number = np.arange(start, start + count)
    odd = (number >> np.arange(FLIPS)[:, None] & 1).astype(np.float64)
    signs: NDArray[np.float64] = 1.0 - 2.0 * odd
    return signs


def is_finite(sums: Moments) -> Array:
    """Tell, as an array of no dimensions, whether all states that were added up are finite."""
    xp = namespace(sums.within_squares)
    return xp.isfinite(xp.sum(sums.within_squares) + sums.context_squares)


#: What a direction must exceed the largest of the means with flipped signs by. With 64 contexts of
#: strongly correlated noise one run in twenty counts one direction too many.
MARGIN = 1.1
#: Share of sampling noise from which nothing is said of the structure of what positions add: more
#: is noise than is not.
NOISY = 0.5
#: Below this width the largest eigenvalue is found by reducing the whole matrix, which takes a few
#: milliseconds there and grows with the cube.
SMALL = 256
#: Headline numbers that only a sequence has.
_ON_A_LINE = ("shift.skill", "sinusoid.ladder_share")


@dataclass(frozen=True)
class Shares:
    """Shares of the variance, which add up to 1."""

    position: Share
    context: Share
    rest: Share


# What annotations call sees the names of its module; a lambda inside of one does not.
def _shares(layer: LayerMeans) -> Shares | None:
    return Shares(**layer.shares) if layer.shares else None


def _error_norms(layer: LayerMeans) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(layer.error, axis=1))


@dataclass(frozen=True, eq=False)
class LayerMeans:
    """The decomposition of one layer's hidden states.

    Parameters
    ----------
    mean
        ``[d]``: over contexts and positions.
    pos
        ``[t, d]``: what each position adds to it, on average over contexts.
    error
        ``[t, d]``: standard error of ``pos``, from the spread over contexts; NaN for one context.
    stable_rank
        Stable rank of ``pos``: sum of squared singular values over the largest; None where ``pos``
        is 0.
    rank
        Singular values of ``pos`` above what sampling noise reaches: a tenth more than the largest
        of ``FLIPS`` means of the same contexts with signs that leave the noise as it is and cancel
        what positions add (Hong, Sheng & Dobriban 2020, arXiv 2012.02985). With more contexts
        weaker directions stand out. None for one context, and where ``pos`` is 0.
    noise_share
        Share of ``pos`` that is sampling noise: the sum of its squared errors over that of its
        squares; None for one context, and where ``pos`` is 0.
    relative_norm
        Largest singular value of ``pos``, repeated for every context, over that of all states less
        their mean, as in Song & Zhong's code. The latter is of the first contexts that hold
        ``PRODUCTS`` states, or of all where there are fewer.
    shares
        Shares of the states' variance: ``position``, ``context`` and ``rest``; they add up to 1.
    noise_draws
        Shares of ``position`` by sampling noise alone: one for each of the means with flipped
        signs.
    analyses
        Headline numbers of the table ``pos``, keyed as in `posprobe.measurements.compared_numbers`;
        None where a number is undefined. Empty where they were not measured.
    """

    mean: Annotated[NDArray[np.float64], Stored("mean", lambda layer: layer.mean.astype("f4"))]
    pos: Annotated[NDArray[np.float64], Stored("pos", lambda layer: layer.pos.astype("f4"))]
    error: Annotated[NDArray[np.float64], Stored("error", _error_norms)]
    stable_rank: float | None
    rank: Annotated[
        Count | None, "Directions of what positions add that stand above sampling noise."
    ]
    noise_share: Annotated[Share | None, "Share of what positions add that is sampling noise."]
    relative_norm: float | None
    shares: Annotated[Mapping[str, float] | None, As(Shares | None, _shares)]
    analyses: Annotated[
        Mapping[str, float | None],
        As(dict[str, float | None]),
        "Headline numbers of the table that positions add at this layer, by their key path.",
    ] = field(default_factory=dict)
    noise_draws: Annotated[tuple[float, ...], HIDDEN] = ()

    @property
    def relative_norm_frobenius(self) -> Annotated[float | None, ""]:
        """The same by all singular values: the root of the share of positions."""
        return math.sqrt(self.shares["position"]) if self.shares else None

    @property
    def is_noisy(self) -> bool:
        """Whether more than half of ``pos`` is noise, or, with one context, nothing is known."""
        return self.noise_share is None or self.noise_share > NOISY


@dataclass(frozen=True, eq=False, repr=False)
class MeanDecomposition(Result):
    """What positions add to the hidden states of a model, layer by layer.

    Parameters
    ----------
    layers
        Results by number of the layer: 0 is what enters the first layer.
    contexts
        Number of averaged contexts.
    layout, start
        Layout and first of the positions.
    name
        Name of the model.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    baselines
        The headline numbers of the ``sinusoid`` of that shape and, as ``p5``, ``p50`` and ``p95``,
        of random walks (``walk``), with their ``draws`` and ``seed``; empty where they were not
        measured.
    """

    figures: ClassVar[str] = "states.plot_states"

    layers: Annotated[Mapping[int, LayerMeans], limits(minItems=1), Part()]
    contexts: Natural
    layout: Layout
    start: Count
    name: Annotated[str, HIDDEN]
    stopped: Annotated[bool, HIDDEN] = False
    baselines: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict)

    def table(self, layer: int) -> PositionTable:
        """Return what positions add at a layer as a table, so that every analysis applies to it.

        Raises
        ------
        UsageError
            If that layer was not measured.
        """
        if layer not in self.layers:
            known = ", ".join(map(str, self.layers))
            raise UsageError(f"{self.name}: layer {layer} was not measured. Choose from {known}.")
        return PositionTable(
            self.layers[layer].pos,
            self.layout,
            name=f"{self.name}, layer {layer}",
            source=Source(self.name, f"mean over {self.contexts} contexts at layer {layer}"),
            start=self.start,
            notes=("measured: mean over contexts less the mean over positions",),
        )

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None at some layers."""
        flat = [n for n, layer in self.layers.items() if layer.shares is None]
        alike = [n for n, layer in self.layers.items() if layer.stable_rank is None]
        undefined = {}
        if flat:
            undefined["relative_norm"] = f"all hidden states are equal at the layers {flat}"
        if alike:
            undefined["stable_rank"] = f"positions add nothing at the layers {alike}"
        if self.contexts == 1:
            undefined["rank"] = undefined["noise_share"] = "one context has no sampling error"
        elif alike:
            undefined["rank"] = undefined["noise_share"] = undefined["stable_rank"]
        return undefined | self._lacking()

    def _lacking(self) -> dict[str, str]:
        """Say at which layers a headline number is undefined, and why."""
        where: dict[str, list[int]] = {}
        for number, layer in self.layers.items():
            for key, value in layer.analyses.items():
                if value is None:
                    where.setdefault(key, []).append(number)
        return {
            key: "patches are not on a line"
            if isinstance(self.layout, Grid) and key in _ON_A_LINE
            else f"too few positions, or positions add nothing, at the layers {layers}"
            for key, layers in where.items()
        }


def mean_decomposition(
    sums: Mapping[int, Moments],
    *,
    layout: Layout,
    start: int = 0,
    name: str = "model",
    stopped: bool = False,
) -> MeanDecomposition:
    """Turn sums over contexts into the decomposition.

    Parameters
    ----------
    sums
        Results of `moments` by layer, all of the same contexts.
    layout, start, name, stopped
        Fields of `MeanDecomposition`.

    Raises
    ------
    UsageError
        If there are no sums, or the positions do not fill the layout.
    """
    if not sums:
        raise UsageError("there are no hidden states to decompose.")
    for number, found in sums.items():
        if found.within.shape[0] != layout.size:
            raise UsageError(
                f"layer {number}: {found.within.shape[0]} positions do not fill a {layout}."
            )
    numbers = sorted(sums)
    layers = map_in_parallel(_layer, [sums[number] for number in numbers], np)
    contexts = next(iter(sums.values())).contexts
    by_number = dict(zip(numbers, layers, strict=True))
    return MeanDecomposition(by_number, contexts, layout, start, name, stopped)


def _layer(sums: Moments) -> LayerMeans:
    c, first = sums.contexts, sums.first
    origin, within, squares, context, first_context, gram = (
        to_numpy(array).astype(np.float64)
        for array in (
            sums.origin, sums.within, sums.within_squares, sums.context, sums.first_context,
            sums.gram,
        )
    )  # fmt: skip
    t = len(within)
    pos = within / c
    error = np.full_like(pos, np.nan)
    if c > 1:
        error = np.sqrt(np.maximum(squares / c - pos**2, 0.0) / (c - 1))
    away = context / c
    context_squares = float(sums.context_squares)
    by_position = c * float((pos**2).sum())
    by_context = t * max(context_squares - c * float(away @ away), 0.0)
    inside = float(squares.sum())
    total = inside + by_context
    gram = np.triu(gram) + np.triu(gram, 1).T
    centred = gram - t / first * np.outer(first_context, first_context)
    square = pos @ pos.T if t < len(origin) else pos.T @ pos
    powers = np.linalg.eigvalsh(square)
    spectral = float(powers[-1])
    # What centring leaves of equal states is rounding.
    scale = inside + t * context_squares + c * t * float(origin @ origin)
    rounding = (16 * sums.eps) ** 2 * scale
    varies, moves = total > rounding, by_position > rounding
    rest = max(inside - by_position, 0.0)
    parts = {"position": by_position, "context": by_context, "rest": rest}
    rank = None
    draws: tuple[float, ...] = ()
    if moves and c > 1:
        noise, power = _noise(sums, pos)
        draws = tuple((power / total).tolist()) if varies else ()
        # Squares of singular values are known to the rounding of the largest.
        least = max((MARGIN * noise) ** 2, rounding / c, 1e-13 * spectral)
        rank = int(np.count_nonzero(powers > least))
    return LayerMeans(
        mean=origin + away,
        pos=pos,
        error=error,
        stable_rank=float(np.trace(square)) / spectral if moves else None,
        rank=rank,
        noise_share=None if rank is None else min(1.0, c * float((error**2).sum()) / by_position),
        relative_norm=math.sqrt(first * spectral / _largest(centred)) if varies else None,
        shares={name: part / total for name, part in parts.items()} if varies else None,
        noise_draws=draws,
    )


def _noise(sums: Moments, pos: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return the largest singular value that noise reaches, and its power in each of the means.

    What positions add is in every context: where signs do not balance it is taken out, and with it
    as much of the noise.
    """
    c = sums.contexts
    balance = flips(0, c).sum(axis=1)
    noisy = (to_numpy(sums.flipped).astype(np.float64) - balance[:, None, None] * pos) / c
    left = 1 - np.square(balance / c)
    power = c * np.square(noisy).sum(axis=(1, 2))
    return max(math.sqrt(_spectral(one)) for one in noisy), power[left > 0] / left[left > 0]


def _largest(matrix: NDArray[np.float64]) -> float:
    """Return the largest eigenvalue of a symmetric matrix that has no negative ones."""
    from scipy.linalg import eigvalsh
    from scipy.sparse.linalg import eigsh

    if not matrix.any():
        return 0.0
    last = len(matrix) - 1
    if last < SMALL:
        return float(eigvalsh(matrix, subset_by_index=[last, last])[0])
    # Lanczos needs products alone; reducing the whole matrix would take minutes per model. The
    # start is fixed, so that results repeat.
    start = np.random.default_rng(0).standard_normal(len(matrix))
    return float(eigsh(matrix, k=1, which="LA", v0=start, return_eigenvectors=False)[0])


def _spectral(matrix: NDArray[np.float64]) -> float:
    """Return the square of a matrix's largest singular value."""
    t, d = matrix.shape
    return _largest(matrix @ matrix.T if t < d else matrix.T @ matrix)


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveTable(Result):
    """Headline numbers of a table before and after what stands between it and attention.

    Parameters
    ----------
    raw
        Numbers of the table as stored, keyed as in `posprobe.measurements.compared_numbers`; None
        where a number is undefined.
    effective
        The same of ``table``.
    notes
        Content that was added and normalisation that was applied.
    table
        The rows that enter the first layer's queries and keys, `posprobe.families.effective_table`.
    """

    figures: ClassVar[str] = "states.plot_effective"

    raw: Annotated[
        Mapping[str, float | None],
        As(dict[str, float | None]),
        "Headline numbers of the table as stored, by their key path in posprobe.analysis/1.",
    ]
    effective: Annotated[
        Mapping[str, float | None],
        As(dict[str, float | None], lambda found: {k: found.effective.get(k) for k in found.raw}),
        "The same of the rows that attention sees.",
    ]
    notes: Annotated[tuple[str, ...], As(list[Text])]
    table: Annotated[PositionTable, HIDDEN]

    @property
    def rows(self) -> Annotated[NDArray[np.floating[Any]], Stored("effective")]:
        """``[n, d]``: those of ``table``."""
        return self.table.values

    @property
    def positions(self) -> Annotated[Natural, ""]:
        """How many there are."""
        return len(self.table)

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None on either side."""
        why = "one of the two tables has too few positions, or rows that are too similar"
        sides = (self.raw, self.effective)
        return {key: why for key in self.raw if any(side.get(key) is None for side in sides)}
