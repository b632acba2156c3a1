"""What the heads of a rotary model make of distance: sums over contexts, and tests.

The unrotated complex pair and ``Re(c e^{jwD})`` are those of RoFormer (Su et al. 2021), usage is
after Barbero et al. 2024 (2410.06205), offset pairs after Jonasson 2025 (2503.01832). The balanced
window, distance share, moved attention, curve share and the answers are this project's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.decide import discovery_bar
from posprobe.analyses.facts import Number, Verdict
from posprobe.analyses.result import HIDDEN, As, Result, Stored, WithGaps
from posprobe.schema import TWO, Count, Natural, Reasons, Share, Size, limits

#: Fewest contexts of which a head is judged: of fewer, random signs cannot reach a p of 0.01.
MIN_CONTEXTS = 12
#: Share of the attention that moves when distance is hidden: a layer whose heads all stay below the
#: first ignores position, one in which any reaches the second does not. Trained heads have 0.23 at
#: least, random weights 0.013 at most.
STILL, MOVES = 0.05, 0.1

#: How columns make pairs: column i with i + P, or 2 i with 2 i + 1; none where nothing turns.
Pairs: TypeAlias = Literal["halves", "neighbours", "none"]
#: Which columns of a head turn.
Columns: TypeAlias = Literal["first", "last", "all", "none"]
#: What contexts are: windows of a text, token ids of a file, sampled from the model itself, random,
#: or given by whoever called.
Origin: TypeAlias = Literal["text", "tokens", "sampled", "random", "given"]
#: Why a layer was not measured, or whether it ignores position and why that is known.
Reason: TypeAlias = Literal[
    "still", "moves", "between", "flat", "no_rotation", "no_pairing", "not_finite", "other_keys",
    "short_window",
]  # fmt: skip


@dataclass(frozen=True)
class OffsetPair:
    """A large, nearly constant pair that makes less than a turn within the contexts.

    Parameters
    ----------
    pair
        Its number, from 0.
    angle
        Of its mean product, radians.
    slope
        Of its part of the predicted curve at distance 0, nats per token.
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
        Of random signs of contexts; None with too few contexts.
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
    interval: Annotated[tuple[float, float] | None, TWO]
    variance: Size
    spread: float | None
    range: Size
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
    query_norm: Annotated[NDArray[np.float64], As(list[Size])]
    key_norm: Annotated[NDArray[np.float64], As(list[Size])]
    offset: OffsetPair | None
    product: Annotated[NDArray[np.complex128], HIDDEN]
    measured: Annotated[NDArray[np.float64], HIDDEN]
    predicted: Annotated[NDArray[np.float64], HIDDEN]

    @property
    def by_content(self) -> Annotated[bool, "Whether distance acts through content alone."]:
        """Whether distance moves its attention though distance alone explains next to nothing."""
        return self.answer == "no" and self.moved >= MOVES

    @property
    def means_explain(
        self,
    ) -> Annotated[bool | None, "Whether mean queries and keys explain the curve; null without."]:
        """Whether mean queries and keys explain the curve; None unless the answer is yes."""
        if self.answer != "yes" or self.r2 is None:
            return None
        return self.r2 >= 0.9  # nine tenths of the curve's square


@dataclass(frozen=True, eq=False)
class LayerUse:
    """One attention layer.

    Parameters
    ----------
    layer
        Its number in the model, from 0.
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
        How columns make pairs, and which turn.
    shift_check
        The residual of the best candidate; None where it is not finite.
    """

    layer: Count
    ignores: Verdict | None
    reason: Reason
    window: Count
    both_sides: bool
    ladder: Annotated[NDArray[np.float64], As(list[float])]
    pairs: Pairs | None
    columns: Columns | None
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
        The same within the contexts of the run.
    positions
        The context that the configuration states, or that of the run.
    """

    share: Annotated[float | None, Number("distance share", "median over heads")]
    least: Annotated[float | None, Number("least distance share", "of any head")]
    most: Annotated[float | None, Number("largest distance share", "of any head")]
    yes: Annotated[Count, Number("heads that prefer a distance", "answer yes", form="d")]
    no: Annotated[Count, Number("heads that prefer none", "answer no", form="d")]
    open: Annotated[Count, Number("heads of which it cannot be told", "neither", form="d")]
    moved: Annotated[
        float | None, Number("moved attention", "median over heads, distance being hidden")
    ]
    never: Annotated[
        float | None,
        Number("usage in pairs that never turn", "mean over heads, within the stated context"),
    ]
    never_in_contexts: Annotated[
        float | None,
        Number("usage in pairs that do not turn here", "mean over heads, within these contexts"),
    ]
    positions: Natural


@dataclass(frozen=True, eq=False, repr=False)
class RotaryUse(Result):
    """What each head of a rotary model makes of distance, on some contexts.

    Parameters
    ----------
    contexts, length
        How many, and tokens of each: the distance share depends on both the length and the text.
    source
        What the contexts are.
    positions
        The context that the configuration states, or that of the run.
    heads
        Of the layers that were measured, in their order.
    layers
        All layers whose attention was seen.
    name
        Of the model.
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
        known = bool(self.heads)
        return Summary(
            share=float(np.median(shares)) if shares else None,
            least=min(shares, default=None),
            most=max(shares, default=None),
            yes=answers.count("yes"),
            no=answers.count("no"),
            open=answers.count("cannot tell"),
            moved=float(np.median([head.moved for head in self.heads])) if known else None,
            never=self._never(self.positions) if known else None,
            never_in_contexts=self._never(self.length) if known else None,
            positions=self.positions,
        )

    def _never(self, positions: int) -> float:
        ladders = {layer.layer: layer.ladder for layer in self.layers}
        return float(
            np.mean([
                np.nansum(head.usage[ladders[head.layer] * positions < 2 * np.pi])
                for head in self.heads
            ])
        )  # fmt: skip

    @property
    def rotary_measured(self) -> Annotated[NDArray[np.float64], Stored("rotary_measured")]:
        """``[layers, heads, n]``: measured curves, nats; NaN where there is none."""
        return self._stacked("measured")

    @property
    def rotary_predicted(self) -> Annotated[NDArray[np.float64], Stored("rotary_predicted")]:
        """``[layers, heads, n]``: predicted curves, nats."""
        return self._stacked("predicted")

    @property
    def rotary_usage(self) -> Annotated[NDArray[np.float64], Stored("rotary_usage")]:
        """``[layers, heads, frequencies]``: shares of each head's usage."""
        return self._stacked("usage")

    @property
    def rotary_mean_part(self) -> Annotated[NDArray[np.float64], Stored("rotary_mean_part")]:
        """``[layers, heads, frequencies]``: how constant each pair is."""
        return self._stacked("mean_part")

    @property
    def rotary_curve_share(self) -> Annotated[NDArray[np.float64], Stored("rotary_curve_share")]:
        """``[layers, heads, frequencies]``: shares of the measured curves."""
        return self._stacked("curve_share")

    @property
    def rotary_c(self) -> Annotated[NDArray[np.float64], Stored("rotary_c")]:
        """``[layers, heads, frequencies, 2]``: mean products, real and imaginary part."""
        return np.stack([self._stacked("product").real, self._stacked("product").imag], axis=-1)

    def _stacked(self, name: str) -> NDArray[Any]:
        """Stack one array of every head, of layers that were not measured NaN."""
        arrays = {(head.layer, head.head): getattr(head, name) for head in self.heads}
        across = max((head for _, head in arrays), default=-1) + 1
        deep = max((len(array) for array in arrays.values()), default=0)
        kind = np.complex128 if name == "product" else np.float64
        made = np.full((len(self.layers), across, deep), np.nan, dtype=kind)
        rows = {layer.layer: row for row, layer in enumerate(self.layers)}
        for (layer, head), array in arrays.items():
            made[rows[layer], head, : len(array)] = array
        return made

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        if not self.heads:
            return {"summary": "no layer could be measured"}
        few = self.contexts < MIN_CONTEXTS
        return {"p": f"it needs {MIN_CONTEXTS} contexts"} if few else {}


#: Draws of random signs: the least p is 0.001.
DRAWS = 999
#: A head has a preferred distance where distance explains at least this share of its logits ...
LEAST_SHARE = 0.05
#: ... and moves them by so many nats, more than five times what random weights reach (0.017) ...
LEAST_SPREAD = 0.1
#: ... and random signs of contexts do so as rarely as this.
LEVEL = 0.01
#: Variance of a query's logits below which attention is even, whatever the distance.
FLAT = 0.01
#: An offset pair holds at least twice an even share of the usage, with a mean part of 0.8.
TIMES, STEADY = 2.0, 0.8


@dataclass(frozen=True, eq=False)
class Turning:
    """How one layer turns queries and keys, and which of them are looked at.

    Parameters
    ----------
    frequencies
        ``[pairs]``, radians per position.
    pairs
        How columns make pairs.
    columns
        Which columns turn.
    residual
        Of the shift check: norm of the change of unrotated queries and keys over theirs when
        positions start 37 later. 0 but for rounding where frequencies, pairs and columns are right.
    distances
        ``[n]``, query minus key, each seen once by each query.
    scale
        What dot products are multiplied by.
    """

    frequencies: NDArray[np.float64]
    pairs: Pairs
    columns: Columns
    residual: float
    distances: NDArray[np.int64]
    scale: float

    @property
    def ladder(self) -> NDArray[np.float64]:
        """``[frequencies]``: with a last 0 for all columns that do not turn, if there are any."""
        return self.frequencies if self.columns == "all" else np.append(self.frequencies, 0.0)


@dataclass(frozen=True, eq=False)
class RotarySums:
    """Sums over contexts of one layer's window; ``+`` joins those of different contexts.

    Parameters
    ----------
    curves
        ``[contexts, heads, n]``: the mean logit at each distance.
    within, moved, capped
        ``[contexts, heads]``: mean variance of a query's logits over distance, mean attention that
        moves when distance is hidden, and share of logits above half of the model's cap.
    query, key
        ``[heads, pairs]``, complex: sums of the unrotated pairs over queries or keys and contexts.
    rest_query, rest_key
        ``[heads, columns]``: the same of columns that do not turn.
    query_power, key_power
        ``[heads, frequencies]``: sums of squared norms.
    queries, keys
        How many vectors these sums are over.
    """

    curves: NDArray[np.float64]
    within: NDArray[np.float64]
    moved: NDArray[np.float64]
    capped: NDArray[np.float64]
    query: NDArray[np.complex128]
    key: NDArray[np.complex128]
    rest_query: NDArray[np.float64]
    rest_key: NDArray[np.float64]
    query_power: NDArray[np.float64]
    key_power: NDArray[np.float64]
    queries: int
    keys: int

    @property
    def contexts(self) -> int:
        """How many were added up."""
        return len(self.curves)

    def __add__(self, other: RotarySums) -> RotarySums:
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("curves", "within", "moved", "capped")
        }
        summed: dict[str, Any] = {
            name: getattr(self, name) + getattr(other, name)
            for name in (
                "query", "key", "rest_query", "rest_key", "query_power", "key_power", "queries",
                "keys",
            )
        }  # fmt: skip
        return RotarySums(**joined, **summed)


def rotary_heads(layer: int, sums: RotarySums, turning: Turning, *, length: int) -> list[HeadUse]:
    """Turn the sums of a layer into the numbers of its heads, answers left open.

    Parameters
    ----------
    layer
        Its number.
    sums, turning
        Over all contexts, and how the layer turns queries and keys.
    length
        Tokens of a context.
    """
    contexts, heads, count = sums.curves.shape
    measured = sums.curves.mean(axis=0)
    product = turning.scale * (sums.query / sums.queries) * np.conj(sums.key / sums.keys)
    if turning.columns != "all":
        rest = turning.scale * np.sum(
            (sums.rest_query / sums.queries) * (sums.rest_key / sums.keys), axis=1
        )
        product = np.concatenate([product, rest[:, None]], axis=1)
    turned = np.exp(1j * np.outer(turning.ladder, turning.distances))
    parts = (product[:, :, None] * turned).real
    norms = [np.sqrt(sums.query_power / sums.queries), np.sqrt(sums.key_power / sums.keys)]
    strength = turning.scale * norms[0] * norms[1]
    usage = _over(strength, strength.sum(axis=1, keepdims=True))
    mean_part = _over(np.abs(product), strength)
    centred = measured - measured.mean(axis=1, keepdims=True)
    still = parts - parts.mean(axis=2, keepdims=True)
    total = np.mean(centred**2, axis=1)
    curve_share = _over(np.einsum("hin,hn->hi", still, centred) / count, total[:, None])
    predicted = parts.sum(axis=1)
    made = []
    for head in range(heads):
        curves = sums.curves[:, head] - sums.curves[:, head].mean(axis=1, keepdims=True)
        share, interval, variance = _share(curves @ curves.T / count, sums.within[:, head])
        r, r2 = _agreement(centred[head], still[head].sum(axis=0))
        made.append(
            HeadUse(
                layer=layer,
                head=head,
                share=share,
                interval=interval,
                variance=float(sums.within[:, head].mean()),
                spread=None if variance is None else math.sqrt(max(variance, 0.0)),
                range=float(np.ptp(measured[head])),
                peak=int(turning.distances[np.argmax(measured[head])]),
                r=r,
                r2=r2,
                moved=float(sums.moved[:, head].mean()),
                capped=_known(float(sums.capped[:, head].mean())),
                p=_p_of_signs(curves) if contexts >= MIN_CONTEXTS else None,
                answer="cannot tell",
                usage=usage[head],
                mean_part=mean_part[head],
                curve_share=curve_share[head],
                query_norm=norms[0][head],
                key_norm=norms[1][head],
                offset=_offset(turning, product[head], usage[head], mean_part[head], length),
                product=product[head],
                measured=measured[head],
                predicted=predicted[head],
            )
        )
    return made


def _over(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide, NaN where there is nothing to divide by."""
    bottom = np.broadcast_to(bottom, top.shape)
    found: NDArray[np.float64] = np.divide(
        top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0
    )
    return found


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _share(
    products: NDArray[np.float64], within: NDArray[np.float64]
) -> tuple[float | None, tuple[float, float] | None, float | None]:
    """Return the distance share, its 95 % interval, and the variance of the curve.

    Products of different contexts alone: noise within one would add to the variance.

    Parameters
    ----------
    products
        ``[c, c]``: covariances over distance of the curves of two contexts.
    within
        ``[c]``: mean variance of a query's logits.
    """
    n = len(products)
    if n < 2:
        return None, None, None
    own, rows = np.diag(products), products.sum(axis=1)
    variance = float((rows.sum() - own.sum()) / (n * (n - 1)))
    if not within.mean() > 0:
        return None, None, variance
    share = variance / float(within.mean())
    if n < 3:
        return share, None, variance
    # Each context left out: its row and its column go, and its own product comes back once.
    left = (rows.sum() - 2 * rows + own - (own.sum() - own)) / ((n - 1) * (n - 2))
    shares = left / ((within.sum() - within) / (n - 1))
    error = math.sqrt((n - 1) / n * float(np.sum((shares - shares.mean()) ** 2)))
    from scipy.stats import t

    half = float(t.ppf(0.975, n - 1)) * error
    return share, (share - half, share + half), variance


def _agreement(
    measured: NDArray[np.float64], predicted: NDArray[np.float64]
) -> tuple[float | None, float | None]:
    """Return correlation and R2 of two centred curves, None where they are constant."""
    size, other = float(measured @ measured), float(predicted @ predicted)
    r = float(measured @ predicted) / math.sqrt(size * other) if size and other else None
    gone = measured - predicted
    return r, 1 - float(gone @ gone) / size if size else None


def _p_of_signs(curves: NDArray[np.float64]) -> float:
    """Return how often curves of contexts with random signs add up to as large a one.

    Parameters
    ----------
    curves
        ``[c, n]``, centred. Signs are the same for every head and every run.
    """
    products = curves @ curves.T
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (DRAWS, len(curves)))
    drawn = np.einsum("dc,ce,de->d", signs, products, signs, optimize=True)
    found = products.sum()
    reached = np.sum(drawn >= found - 1e-9 * abs(found))  # equal but for rounding
    return float((1 + reached) / (DRAWS + 1))


def _offset(
    turning: Turning,
    product: NDArray[np.complex128],
    usage: NDArray[np.float64],
    mean_part: NDArray[np.float64],
    length: int,
) -> OffsetPair | None:
    turns = turning.ladder
    slow = (turns > 0) & (turns * length < 2 * np.pi)
    found = slow & (usage >= TIMES / len(turns)) & (mean_part >= STEADY)
    if not found.any():
        return None
    pair = int(np.argmax(np.where(found, usage, -1)))
    angle = float(np.angle(product[pair]))
    slope = -abs(product[pair]) * turns[pair] * math.sin(angle)
    return OffsetPair(pair, angle, float(slope))


def judged(heads: Sequence[HeadUse]) -> tuple[HeadUse, ...]:
    """Answer for every head whether it has a preferred distance.

    Yes needs a share of 0.05 at the lower end of its interval, 0.1 nats, and a p-value of 0.01 that
    stands at a false discovery rate of 0.05 over all heads (Benjamini & Hochberg 1995). No needs a
    share below 0.05 at the upper end, or fewer nats.
    """
    level = min(discovery_bar(head.p for head in heads), LEVEL)
    answers = [_answer(head, level) for head in heads]
    return tuple(
        replace(head, answer=answer, peak=head.peak if answer == "yes" else None)
        for head, answer in zip(heads, answers, strict=True)
    )


def _answer(head: HeadUse, level: float) -> Verdict:
    if head.p is None or head.spread is None:
        return "cannot tell"
    if head.spread < LEAST_SPREAD:
        return "no"
    if head.interval is None:
        return "cannot tell"
    low, high = head.interval
    if high < LEAST_SHARE:
        return "no"
    return "yes" if low >= LEAST_SHARE and head.p <= level else "cannot tell"


def ignores_position(turning: Turning, heads: Sequence[HeadUse]) -> tuple[Verdict, Reason]:
    """Answer whether a layer ignores position, from its heads."""
    if turning.columns == "none":
        return "yes", "no_rotation"
    moved = [head.moved for head in heads]
    if max(moved) >= MOVES:
        return "no", "moves"
    if max(head.variance for head in heads) < FLAT:
        return "cannot tell", "flat"
    return ("yes", "still") if max(moved) < STILL else ("cannot tell", "between")


def rotary_result(
    sums: Mapping[int, RotarySums],
    turnings: Mapping[int, Turning],
    unmeasured: Mapping[int, LayerUse],
    *,
    length: int,
    positions: int | None,
    source: Origin,
    name: str,
    stopped: bool = False,
) -> RotaryUse:
    """Put the layers of a run together.

    Parameters
    ----------
    sums, turnings
        By number of the layer, over all contexts.
    unmeasured
        Layers that could not be measured.
    length, source, name, stopped
        As in `RotaryUse`.
    positions
        The context that the configuration states, None where it states none.
    """
    heads = judged([
        head
        for number in sorted(sums)
        for head in rotary_heads(number, sums[number], turnings[number], length=length)
    ])  # fmt: skip
    layers = dict(unmeasured)
    for number in sums:
        turning = turnings[number]
        own = [head for head in heads if head.layer == number]
        ignores, reason = ignores_position(turning, own)
        layers[number] = LayerUse(
            layer=number,
            ignores=ignores,
            reason=reason,
            window=int(turning.distances.max()) + 1,
            both_sides=bool(turning.distances[0] < 0),
            ladder=turning.ladder,
            pairs=turning.pairs,
            columns=turning.columns,
            shift_check=turning.residual,
        )
    contexts = next((found.contexts for found in sums.values()), 0)
    return RotaryUse(
        contexts=contexts,
        length=length,
        source=source,
        positions=positions or length,
        heads=heads,
        layers=tuple(layers[number] for number in sorted(layers)),
        name=name,
        stopped=stopped,
    )
