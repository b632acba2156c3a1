"""Record of the heads of a rotary model that ran, and matches of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Number, Verdict
from posprobe.analyses.result import HIDDEN, JsonType, Result, StoredArray, WithGaps
from posprobe.number_types import (
    PAIR_LIMITS,
    Count,
    Natural,
    NonNegative,
    Reasons,
    Share,
    limits,
)

#: With fewer contexts heads have no answer, because random signs cannot reach a p of 0.01.
MIN_HEAD_CONTEXTS = 12


#: A layer ignores position if hiding distance moves less than this share of the attention of all
#: its heads. Random weights reach 0.035 at most.
MAX_STILL_ATTENTION = 0.05
#: A layer uses position if hiding distance moves this share of the attention of any head. Trained
#: heads have 0.23 at least.
MIN_MOVED_ATTENTION = 0.1


#: Pair order of columns: column i with i + P, or 2 i with 2 i + 1; "none" without rotation.
PairOrder: TypeAlias = Literal["halves", "neighbours", "none"]


#: Columns of a head that turn.
RotatedColumns: TypeAlias = Literal["first", "last", "all", "none"]


#: Origin of contexts: the user's text, token ids or pictures; Python's documentation; photographs
#: of scikit-learn; samples of the model itself; random tokens or pixels; or the caller's own.
Origin: TypeAlias = Literal[
    "text",
    "tokens",
    "pictures",
    "documentation",
    "photographs",
    "sampled",
    "random",
    "given",
]


#: Reason why a layer was not measured, or for the answer whether it ignores position.
Reason: TypeAlias = Literal[
    "still",
    "moves",
    "between",
    "flat",
    "no_rotation",
    "no_pairing",
    "not_finite",
    "other_keys",
    "short_window",
]


@dataclass(frozen=True)
class OffsetPair:
    """A large, nearly constant pair that makes less than a turn within the contexts.

    Parameters
    ----------
    pair
        Number of the pair, from 0.
    angle
        Angle of its mean product, radians.
    slope
        Slope of its part of the predicted curve at distance 0, nats per token.
    """

    pair: Count
    angle: float
    slope: float


@dataclass(frozen=True, eq=False)
class HeadUse:
    """What one head makes of distance.

    Parameters
    ----------
    layer, head
        From 0.
    share
        Distance share: variance of the measured curve over the mean variance of a query's logits;
        None where these are all equal, or there is one context.
    interval
        95 % interval of the share: jackknife over contexts, Student's t.
    variance
        Mean variance of a query's logits over distance, squared nats.
    spread
        Standard deviation of the measured curve, nats.
    range
        Largest less smallest value of the measured curve, nats.
    peak
        Preferred distance, query minus key; None unless the answer is yes.
    r, r2
        Correlation of measured and predicted curve, and 1 less the squared error over the squared
        measured curve, both centred; None of a constant curve.
    moved
        Share of attention that moves when distance is hidden.
    capped
        Share of logits above half of the model's cap; None without a cap.
    p
        P-value under random signs of contexts; None with too few contexts.
    answer
        Whether the head has a preferred distance.
    usage, mean_part, curve_share
        ``[frequencies]``: strength of each pair as a share of the head's; how constant it is, 0 to
        1; share of the measured curve that its mean product explains.
    query_norm, key_norm
        ``[frequencies]``: root mean square norm of each pair, the two factors of usage.
    product
        ``[frequencies]``, complex: scale times mean query times conjugated mean key.
    offset
        The strongest offset pair, if any.
    measured, predicted
        ``[n]``: both curves by distance, nats.
    """

    layer: Count
    head: Count
    share: float | None
    interval: Annotated[tuple[float, float] | None, PAIR_LIMITS]
    variance: NonNegative
    spread: float | None
    range: NonNegative
    peak: int | None
    r: float | None
    r2: float | None
    moved: Share
    capped: Share | None
    p: float | None
    answer: Verdict
    usage: WithGaps
    mean_part: WithGaps
    curve_share: WithGaps
    query_norm: Annotated[NDArray[np.float64], JsonType(list[NonNegative])]
    key_norm: Annotated[NDArray[np.float64], JsonType(list[NonNegative])]
    offset: OffsetPair | None
    product: Annotated[NDArray[np.complex128], HIDDEN]
    measured: Annotated[NDArray[np.float64], HIDDEN]
    predicted: Annotated[NDArray[np.float64], HIDDEN]

    @property
    def by_content(
        self,
    ) -> Annotated[bool, "Whether distance acts through content alone."]:
        """Whether distance moves attention, though it explains next to nothing alone."""
        return self.answer == "no" and self.moved >= MIN_MOVED_ATTENTION

    @property
    def means_explain(
        self,
    ) -> Annotated[
        bool | None, "Whether mean queries and keys explain the curve; null without."
    ]:
        """Whether mean queries and keys explain the curve; None unless the answer is yes."""
        if self.answer != "yes" or self.r2 is None:
            return None
        return self.r2 >= 0.9  # R2 of nine tenths of the curve's power


@dataclass(frozen=True, eq=False)
class LayerUse:
    """One attention layer.

    Parameters
    ----------
    layer
        Number of the layer in the model, from 0.
    ignores
        Whether it ignores position; None where it was not measured.
    reason
        Why that is so, or why it was not measured.
    window
        Distances that each query is looked at with, on one side; 0 where not measured.
    both_sides
        Whether later keys are seen.
    ladder
        ``[pairs]``: frequencies, radians per position; a last 0 stands for columns that do not
        turn.
    pairs, columns
        Order of the pairs, and the columns that turn.
    shift_check
        The residual of the best candidate; None where it is not finite.
    """

    layer: Count
    ignores: Verdict | None
    reason: Reason
    window: Count
    both_sides: bool
    ladder: Annotated[NDArray[np.float64], JsonType(list[float])]
    pairs: PairOrder | None
    columns: RotatedColumns | None
    shift_check: float | None


@dataclass(frozen=True)
class Summary:
    """All heads together.

    Parameters
    ----------
    share, least, most
        Median, smallest and largest distance share of the heads; None where none has one.
    yes, no, open
        Heads with a preferred distance, without, and of which it cannot be told.
    moved
        Median share of attention that moves when distance is hidden; None without heads.
    never
        Mean share of usage in pairs that make no full turn within ``positions``.
    never_in_contexts
        Mean share of usage in pairs that make no full turn within the contexts of the run.
    positions
        The context that the configuration states, or that of the run.
    """

    share: Annotated[float | None, Number("distance share", "median over heads")]
    least: Annotated[float | None, Number("least distance share", "of any head")]
    most: Annotated[float | None, Number("largest distance share", "of any head")]
    yes: Annotated[Count, Number("heads that prefer a distance", "answer yes", form="d")]
    no: Annotated[Count, Number("heads that prefer none", "answer no", form="d")]
    open: Annotated[
        Count, Number("heads of which it cannot be told", "neither", form="d")
    ]
    moved: Annotated[
        float | None, Number("moved attention", "median, distance being hidden")
    ]
    never: Annotated[
        float | None,
        Number("usage in pairs that never turn", "within the stated context"),
    ]
    never_in_contexts: Annotated[
        float | None,
        Number("usage in pairs that do not turn here", "within these contexts"),
    ]
    positions: Natural


@dataclass(frozen=True, eq=False, repr=False)
class RotaryUse(Result):
    """What each head of a rotary model makes of distance, on some contexts.

    Parameters
    ----------
    contexts, length
        Number of contexts, and tokens of each: the distance share depends on both the length and
        the text.
    source
        Kind of the contexts.
    positions
        The context that the configuration states, or that of the run.
    heads
        Results of the heads of the measured layers, in their order.
    layers
        All layers whose attention was seen.
    name
        Name of the model.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    """

    figures: ClassVar[str] = "rotary_use.plot_rotary_use"

    contexts: Natural
    length: Natural
    source: Origin
    positions: Natural
    heads: tuple[HeadUse, ...]
    layers: Annotated[tuple[LayerUse, ...], limits(minItems=1)]
    name: Annotated[str, HIDDEN]
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def summary(self) -> Annotated[Summary, ""]:
        """All heads together."""
        shares = [head.share for head in self.heads if head.share is not None]
        answers = [head.answer for head in self.heads]
        has_heads = bool(self.heads)
        return Summary(
            share=float(np.median(shares)) if shares else None,
            least=min(shares, default=None),
            most=max(shares, default=None),
            yes=answers.count("yes"),
            no=answers.count("no"),
            open=answers.count("cannot tell"),
            moved=float(np.median([head.moved for head in self.heads]))
            if has_heads
            else None,
            never=self._never_turning_share(self.positions) if has_heads else None,
            never_in_contexts=self._never_turning_share(self.length)
            if has_heads
            else None,
            positions=self.positions,
        )

    def _never_turning_share(self, positions: int) -> float:
        ladders = {layer.layer: layer.ladder for layer in self.layers}
        return float(
            np.mean(
                [
                    np.nansum(head.usage[ladders[head.layer] * positions < 2 * np.pi])
                    for head in self.heads
                ]
            )
        )

    @property
    def rotary_measured(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("rotary_measured")]:
        """``[layers, heads, n]``: measured curves, nats; NaN where there is none."""
        return self._stack_heads("measured")

    @property
    def rotary_predicted(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("rotary_predicted")]:
        """``[layers, heads, n]``: predicted curves, nats."""
        return self._stack_heads("predicted")

    @property
    def rotary_usage(self) -> Annotated[NDArray[np.float64], StoredArray("rotary_usage")]:
        """``[layers, heads, frequencies]``: shares of each head's usage."""
        return self._stack_heads("usage")

    @property
    def rotary_mean_part(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("rotary_mean_part")]:
        """``[layers, heads, frequencies]``: how constant each pair is."""
        return self._stack_heads("mean_part")

    @property
    def rotary_curve_share(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("rotary_curve_share")]:
        """``[layers, heads, frequencies]``: shares of the measured curves."""
        return self._stack_heads("curve_share")

    @property
    def rotary_c(self) -> Annotated[NDArray[np.float64], StoredArray("rotary_c")]:
        """``[layers, heads, frequencies, 2]``: mean products, real and imaginary part."""
        return np.stack(
            [self._stack_heads("product").real, self._stack_heads("product").imag],
            axis=-1,
        )

    def _stack_heads(self, name: str) -> NDArray[Any]:
        """Stack one array of every head; layers that were not measured are NaN."""
        arrays = {(head.layer, head.head): getattr(head, name) for head in self.heads}
        n_heads = max((head for _, head in arrays), default=-1) + 1
        n_values = max((len(array) for array in arrays.values()), default=0)
        dtype = np.complex128 if name == "product" else np.float64
        stacked = np.full((len(self.layers), n_heads, n_values), np.nan, dtype=dtype)
        rows = {layer.layer: row for row, layer in enumerate(self.layers)}
        for (layer, head), array in arrays.items():
            stacked[rows[layer], head, : len(array)] = array
        return stacked

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        if not self.heads:
            return {"summary": "no layer could be measured"}
        is_too_few = self.contexts < MIN_HEAD_CONTEXTS
        return {"p": f"it needs {MIN_HEAD_CONTEXTS} contexts"} if is_too_few else {}


#: Layer and number of a head.
HeadIndex: TypeAlias = tuple[int, int]
#: Lower than any correlation, so that no head is matched with itself.
_UNREACHED_CORRELATION = -2.0


@dataclass(frozen=True)
class MatchedHead:
    """One head of each run.

    Parameters
    ----------
    first, second
        Layer and number.
    correlation
        Correlation of their measured curves over distance.
    """

    first: Annotated[tuple[Count, Count], PAIR_LIMITS]
    second: Annotated[tuple[Count, Count], PAIR_LIMITS]
    correlation: float


@dataclass(frozen=True)
class HeadMatch:
    """The heads of two runs, each with at most one of the other: largest sum of correlations.

    Parameters
    ----------
    heads
        Number of matched heads: as many as the run with fewer heads has.
    correlation
        Median over matched heads.
    same
        Heads that are matched with the head of their own layer and number; None where the runs
        have different heads.
    by_place
        Median correlation of heads of one layer and number; None where the runs have different
        heads.
    within
        Median ``correlation`` of the heads of one run matched with its other heads, the larger
        of both runs: curves that fall with distance are alike anyway. None with one head.
    matched
        Matched heads in the order of the first run.
    """

    heads: Natural
    correlation: float
    same: Count | None
    by_place: float | None
    within: float | None
    matched: tuple[MatchedHead, ...]


def match_heads(
    curves: tuple[NDArray[np.float64], NDArray[np.float64]],
    indices: tuple[Sequence[HeadIndex], Sequence[HeadIndex]],
) -> HeadMatch:
    """Match the heads of two runs by their curves.

    Parameters
    ----------
    curves
        ``[heads, n]`` of each run, at the same distances.
    indices
        Layer and number of each head.

    Examples
    --------
    >>> import numpy as np
    >>> far = np.arange(32)
    >>> curves = np.stack([-far, np.cos(far), np.sin(far)])
    >>> match = match_heads((curves, curves[::-1]), ([(0, 0), (0, 1), (0, 2)],) * 2)
    >>> [pair.second for pair in match.matched], match.same
    ([(0, 2), (0, 1), (0, 0)], 1)
    """
    first, second = map(_normalise_curves, curves)
    correlations = first @ second.T
    rows, columns = _assign_heads(correlations)
    are_comparable = list(indices[0]) == list(indices[1])
    run_medians = [
        float(np.median(run_correlations[_assign_heads(run_correlations)]))
        for run_correlations in (
            unit @ unit.T + (_UNREACHED_CORRELATION - 1) * np.eye(len(unit))
            for unit in (first, second)
        )
        if len(run_correlations) > 1
    ]
    return HeadMatch(
        heads=len(rows),
        correlation=float(np.median(correlations[rows, columns])),
        same=int(np.sum(rows == columns)) if are_comparable else None,
        by_place=float(np.median(np.diag(correlations))) if are_comparable else None,
        within=max(run_medians, default=None),
        matched=tuple(
            MatchedHead(
                indices[0][row], indices[1][column], float(correlations[row, column])
            )
            for row, column in zip(rows, columns, strict=True)
        ),
    )


def _normalise_curves(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centre curves and scale them to unit length; constant curves become zeros."""
    centred = curves - curves.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    flat = size <= 1e-12 * np.abs(curves).max(axis=1, keepdims=True)
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, size))


def _assign_heads(
    correlation: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(correlation, maximize=True)
    return rows, columns
