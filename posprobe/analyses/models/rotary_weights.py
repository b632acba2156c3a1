"""Rotary pairs from the weights of queries and keys alone, without a run or a text.

Norms of pairs are those of Barbero et al. 2024 (2410.06205), of weights in place of vectors. The
self-match curve is this project's own. Neither shows what the heads of the running model do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.rotating_layers import LayerRotation, find_contradictions
from posprobe.analyses.result import (
    HIDDEN,
    NEWER,
    JsonType,
    Result,
    StoredArray,
    WithGaps,
)
from posprobe.number_types import Count, Natural, NonNegative, Reasons, Share, limits

#: Pair order of the rows of a head: row i with i + P, 2 i with 2 i + 1, and either of them
#: reordered once more, as by a converter that is run twice.
WeightPairOrder: TypeAlias = Literal[
    "halves", "neighbours", "halves_again", "neighbours_again"
]
#: An answer needs at least this margin between the scores of the two best pair orders. Of 1,050
#: random weights and 60 small models that do not rotate all layers, none gets an answer.
MIN_SCORE_MARGIN = 2.0
#: The margin must also be so many standard deviations of it under chance.
MIN_MARGIN_DEVIATIONS = 3.0
#: Correlations contradict an answer if they favour another pair order by this margin.
MIN_CONTRADICTION = 5.0
#: Bootstrap draws of heads, from which a share of 95 % is known to 1.3 %.
N_HEAD_DRAWS = 300
#: The same pair order must be best in at least this share of the draws.
MIN_WIN_SHARE = 0.95


@dataclass(frozen=True)
class ReadingScore:
    """How well one reading fits.

    Parameters
    ----------
    reading
        Pair order that is scored.
    apart
        Squared mean difference of log sizes of a pair's members over its squared error, mean over
        pairs: about 1 where they are members of one pair.
    correlation
        Correlation of both sizes over heads, mean over pairs: negative only for members of one
        pair.
    score
        Lowest where a reading fits: ``(apart - 1) / 2``. The correlation decides nothing, because
        sizes of pairs may vary together over heads; it may contradict.
    """

    reading: WeightPairOrder
    apart: NonNegative
    correlation: float
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class PairLayout(Result):
    """How rows of queries and keys make pairs, as far as the weights tell.

    Parameters
    ----------
    answer
        The reading that fits, None where it cannot be told.
    heads
        Number of heads of queries and keys, in all layers that were read.
    margin
        Score of the second best reading less that of the best.
    wins
        Share of draws of heads in which the best reading is the best.
    readings
        Scores of all pair orders that were compared, best first.
    """

    answer: WeightPairOrder | None
    heads: Natural
    margin: NonNegative
    wins: Share
    readings: Annotated[
        tuple[ReadingScore, ...], JsonType(list[ReadingScore]), limits(minItems=1)
    ]


def list_row_pairs(pair_order: WeightPairOrder, rotated: int) -> NDArray[np.intp]:
    """Return the rows of each pair, ``[pairs, 2]``, of ``rotated`` rows of a head."""
    rows = np.arange(rotated)
    halves, neighbours = rows.reshape(2, -1).T, rows.reshape(-1, 2)
    if pair_order == "halves":
        return halves
    if pair_order == "neighbours":
        return neighbours
    # Reordering neighbours into halves moves row order[i] to row i, so row r came from argsort[r].
    order = neighbours.T.ravel()
    return (
        np.argsort(order)[halves] if pair_order == "halves_again" else order[neighbours]
    )


def pair_layout(sizes: NDArray[np.float64]) -> PairLayout | None:
    """Find the pair order of a head's rows from their norms.

    Parameters
    ----------
    sizes
        ``[heads, rotated]``: norms of the rows of W_Q and W_K times the gain before them, heads of
        queries and of keys of all layers.

    Returns
    -------
    PairLayout
        None where fewer than two pairs or four heads leave nothing to compare, or a row is 0.

    Examples
    --------
    Pairs whose members, half a head apart, share a size of their own:

    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> angle = draw.uniform(0, np.pi / 2, (40, 8))
    >>> sizes = np.concatenate([np.cos(angle), np.sin(angle)], axis=1) * np.tile(range(1, 9), 2)
    >>> pair_layout(sizes).answer
    'halves'
    """
    heads, rotated = sizes.shape
    if heads < 4 or rotated < 4 or not (np.isfinite(sizes).all() and sizes.min() > 0):
        return None
    logs = np.log(sizes)
    logs = logs - logs.mean(axis=1, keepdims=True)
    scored = _score_pair_orders(logs)
    readings = tuple(entry for entry, _ in scored)
    margin = readings[1].score - readings[0].score
    wins = float(np.mean(np.argmin([scores for _, scores in scored], axis=0) == 0))
    # Without pairs, (chi2 - 1) / 2 has variance 1 / (2 P), and heads * correlation / 2 has variance
    # heads / (4 P). A margin is the difference of two such scores.
    chance, contradiction_chance = math.sqrt(2 / rotated), math.sqrt(heads / rotated)
    contradiction = (
        heads
        / 2
        * (readings[0].correlation - min(reading.correlation for reading in readings))
    )
    is_contradicted = contradiction >= max(
        MIN_CONTRADICTION, MIN_MARGIN_DEVIATIONS * contradiction_chance
    )
    is_certain = (
        margin >= max(MIN_SCORE_MARGIN, MIN_MARGIN_DEVIATIONS * chance)
        and wins >= MIN_WIN_SHARE
        and not is_contradicted
    )
    return PairLayout(
        readings[0].reading if is_certain else None, heads, margin, wins, readings
    )


def _score_pair_orders(
    logs: NDArray[np.float64],
) -> list[tuple[ReadingScore, NDArray[np.float64]]]:
    """Return all pair orders, best first, each with its scores in draws of heads.

    Parameters
    ----------
    logs
        ``[heads, rotated]``: log sizes, less the mean of their head.
    """
    heads, rotated = logs.shape
    head_counts = np.random.default_rng(0).multinomial(
        heads, np.full(heads, 1 / heads), N_HEAD_DRAWS
    )
    unit_counts = np.ones((1, heads))
    scored: list[tuple[ReadingScore, NDArray[np.float64]]] = []
    compared_pairs = set()
    for pair_order in get_args(WeightPairOrder):
        pairs = list_row_pairs(pair_order, rotated)
        # With 8 rows, reordering once more and reordering back give the same pairs.
        if (pair_set := frozenset(map(frozenset, pairs.tolist()))) in compared_pairs:
            continue
        compared_pairs.add(pair_set)
        (separation,), (correlation,) = _fit_pairs(logs[:, pairs], unit_counts)
        score = (separation - 1) / 2
        drawn_separation, _ = _fit_pairs(logs[:, pairs], head_counts)
        scores = (drawn_separation - 1) / 2
        scored.append(
            (
                ReadingScore(
                    pair_order, float(separation), float(correlation), float(score)
                ),
                scores,
            )
        )
    scored.sort(key=lambda entry: entry[0].score)
    return scored


def _fit_pairs(
    members: NDArray[np.float64], counts: NDArray[np.float64] | NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both terms of the score, ``[draws]`` each, for heads with these counts.

    Parameters
    ----------
    members
        ``[heads, pairs, 2]``: log sizes.
    counts
        ``[draws, heads]``.
    """
    heads = len(members)
    first, second = members[:, :, 0], members[:, :, 1]

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return counts @ values / heads

    means = mean(first), mean(second)
    spread = [
        mean(sizes**2) - size_mean**2
        for sizes, size_mean in zip((first, second), means, strict=True)
    ]
    common = mean(first * second) - means[0] * means[1]
    difference = spread[0] + spread[1] - 2 * common
    tiny = np.finfo(np.float64).tiny
    separation = heads * (means[0] - means[1]) ** 2 / np.maximum(difference, tiny)
    correlation = common / np.sqrt(np.maximum(spread[0] * spread[1], tiny))
    unbiased = (heads - 1) / heads
    return unbiased * separation.mean(axis=1), unbiased * correlation.mean(axis=1)


#: Reason why weights say nothing: there are none, none has a known name, queries and keys are
#: products of two weights each (latent attention), pairs turn along several axes, the weights lie
#: on the Hub and were not requested, or they cannot be read.
Missing: TypeAlias = Literal[
    "no_weights", "no_names", "latent", "axes", "remote", "unreadable"
]


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """What the weights of one layer say.

    Parameters
    ----------
    layer
        Number of the layer, from 0.
    usage
        ``[frequencies]``: share of each pair in the strength of a head, mean over heads that
        have one; None where none has, or queries and keys are normalised, so that weights do not
        say how large they are.
    never
        Share of it in pairs that make no full turn within the stated context.
    bias_spread
        Standard deviation over distance of what biases alone, the norm's with them, add to every
        logit, nats: the largest of the heads. None without biases of both.
    heads
        ``[heads, frequencies]``: the usage of each head.
    self_match
        ``[heads, n]``: expected logit of a key with the same content by distance, content being
        alike in all directions; nats but for the size of that content.
    bias_curve
        ``[heads, n]``: what biases add to every logit by distance, nats.
    """

    layer: Count
    usage: Annotated[NDArray[np.float64] | None, JsonType(list[float | None] | None)]
    never: Share | None
    bias_spread: NonNegative | None
    heads: Annotated[NDArray[np.float64], HIDDEN]
    self_match: Annotated[NDArray[np.float64], HIDDEN]
    bias_curve: Annotated[NDArray[np.float64] | None, HIDDEN]


@dataclass(frozen=True, eq=False, repr=False)
class WeightUse(Result):
    """What the weights of queries and keys alone say of a rotary model.

    Parameters
    ----------
    layers
        Layers that were read.
    layout
        Pair order as far as the weights tell; None where too few were read.
    pairs
        Pair order by which the numbers are taken: that of the architecture, else that of the
        weights.
    declared
        Whether the architecture says so.
    normed
        Whether queries and keys are normalised.
    ladder
        ``[pairs]``: radians per position; a last 0 stands for columns that do not turn.
    positions
        The stated context, None without one.
    missing
        Why nothing, or not everything, was read; None where all was.
    problem
        Content of the file in place of the weights, where that can be said.
    bytes
        Bytes to read for all layers.
    skipped
        Layers whose weights hold NaN or infinity, or could not be read.
    rotations
        Whether each layer rotates, as declared and by its weights; layers that are not to rotate
        are among them.
    """

    figures: ClassVar[str] = "rotary_use.plot_weights"

    layers: tuple[LayerWeights, ...]
    layout: PairLayout | None
    pairs: WeightPairOrder | None
    declared: bool
    normed: bool
    ladder: Annotated[NDArray[np.float64], JsonType(list[float])]
    positions: Natural | None
    missing: Missing | None = None
    problem: str = ""
    bytes: Count = 0
    skipped: Annotated[tuple[int, ...], JsonType(list[Count])] = ()
    rotations: Annotated[tuple[LayerRotation, ...], NEWER] = ()

    @property
    def contradictions(
        self,
    ) -> Annotated[
        tuple[int, ...],
        JsonType(list[Count]),
        NEWER,
        "Layers that rotate by their weights, and do not by the configuration.",
    ]:
        """Layers that rotate by their weights, and do not by the configuration."""
        return find_contradictions(self.rotations)

    @property
    def head_count(
        self,
    ) -> Annotated[Count, "Heads of queries in all layers that were read."]:
        """Heads of queries in all layers that were read."""
        return sum(len(layer.heads) for layer in self.layers)

    @property
    def usage(
        self,
    ) -> Annotated[WithGaps, "Share of each pair, mean over layers and heads."]:
        """``[frequencies]``: share of each pair in the strength of a head, mean over heads."""
        if not self.layers or self.normed:
            return np.zeros(0)
        mean_usage = _mean_usage(np.concatenate([layer.heads for layer in self.layers]))
        return np.zeros(0) if mean_usage is None else mean_usage

    @property
    def never(
        self,
    ) -> Annotated[Share | None, "Share in pairs that never turn, mean over heads."]:
        """Share of it in pairs that make no full turn within the stated context."""
        if not self.usage.size or self.positions is None:
            return None
        return float(self.usage[self.ladder * self.positions < 2 * np.pi].sum())

    @property
    def weights_usage(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("weights_usage")]:
        """``[layers, heads, frequencies]``: usage of each head, NaN where none is known."""
        return _stack_layers([layer.heads for layer in self.layers])

    @property
    def weights_self_match(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("weights_self_match")]:
        """``[layers, heads, n]``: self-match curves."""
        return _stack_layers([layer.self_match for layer in self.layers])

    @property
    def weights_bias_curve(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("weights_bias_curve")]:
        """``[layers, heads, n]``: curves of biases; no layers without biases."""
        curves = [
            layer.bias_curve for layer in self.layers if layer.bias_curve is not None
        ]
        return _stack_layers(curves)

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        if self.layers and self.normed:
            return {
                "usage": "queries and keys are normalised",
                "never": "no usage is known",
            }
        return (
            {}
            if self.never is not None
            else {"never": "no context or no weights are known"}
        )


def _mean_usage(heads: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the mean over heads that have a strength; None without any."""
    defined = heads[np.isfinite(heads).all(axis=1)]
    return np.asarray(defined.mean(axis=0)) if len(defined) else None


def _stack_layers(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Stack arrays of layers; missing heads and values are NaN."""
    n_heads = max(map(len, arrays), default=0)
    n_values = max((array.shape[1] for array in arrays), default=0)
    stacked = np.full((len(arrays), n_heads, n_values), np.nan)
    for row, array in enumerate(arrays):
        stacked[row, : len(array), : array.shape[1]] = array
    return stacked


def measure_layer_weights(
    layer: int,
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    biases: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    *,
    ladder: NDArray[np.float64],
    pair_order: WeightPairOrder,
    scale: float,
    distances: int,
    positions: int | None = None,
    normed: bool = False,
) -> LayerWeights:
    """Measure the pairs of one layer's weights.

    Parameters
    ----------
    layer
        Number of the layer.
    query, key
        ``[heads, head_dim, width]``: weights times the gain of the norm before them. Queries of a
        group share a key.
    biases
        ``[heads, head_dim]``: what every query and every key holds, None where either has nothing.
    ladder
        ``[pairs]``: radians per position; rows beyond these pairs do not turn.
    pair_order
        Pair order of the rows.
    scale
        Factor of the products of queries and keys.
    distances
        From 0, at which curves are taken.
    positions, normed
        Fields of `WeightUse`.

    Examples
    --------
    One head whose query weight is its key weight: a key like the query meets the kernel of the
    ladder.

    >>> import numpy as np
    >>> weight = np.eye(8)[None]
    >>> ladder = np.array([1, 0.1, 0.01, 0.001])
    >>> weights = measure_layer_weights(
    ...     0, weight, weight, None, ladder=ladder, pair_order="halves", scale=1.0, distances=4
    ... )
    >>> weights.self_match[0, 0].round(6), weights.usage
    (np.float64(8.0), array([0.25, 0.25, 0.25, 0.25]))
    """
    rows = list_row_pairs(pair_order, 2 * len(ladder))
    turns = np.exp(1j * np.outer(ladder, np.arange(distances)))
    group_size = len(query) // len(key)
    has_fixed = query.shape[1] > 2 * len(ladder)
    heads = [
        _measure_head(head_query, key[head // group_size], rows, turns)
        for head, head_query in enumerate(query)
    ]
    strengths = np.stack([head_strengths for head_strengths, _ in heads])
    self_matches = scale * np.stack([curve for _, curve in heads])
    sums = strengths.sum(axis=1, keepdims=True)
    usage = np.divide(
        strengths, sums, out=np.full_like(strengths, np.nan), where=sums > 0
    )
    if normed:
        usage[:] = self_matches[:] = np.nan
    bias_curve = None
    if biases is not None and not normed:
        query_pairs, key_pairs = (_complex_pairs(bias.T, rows) for bias in biases)
        products = query_pairs * np.repeat(key_pairs, group_size, axis=1).conj()
        bias_curve = scale * (products.T @ turns).real
    full_ladder = np.append(ladder, 0.0) if has_fixed else ladder
    mean_usage = _mean_usage(usage)
    never_share = None
    if mean_usage is not None and positions is not None:
        never_share = float(mean_usage[full_ladder * positions < 2 * np.pi].sum())
    return LayerWeights(
        layer=layer,
        usage=mean_usage,
        never=never_share,
        bias_spread=None if bias_curve is None else float(bias_curve.std(axis=1).max()),
        heads=usage,
        self_match=self_matches,
        bias_curve=bias_curve,
    )


def _measure_head(
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    rows: NDArray[np.intp],
    turns: NDArray[np.complex128],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the strength of each pair of a head, and its self-match curve before scaling."""
    n_rotated = rows.size
    query_pairs, key_pairs = _complex_pairs(query, rows), _complex_pairs(key, rows)
    strengths = np.linalg.norm(query_pairs, axis=1) * np.linalg.norm(key_pairs, axis=1)
    curve = ((query_pairs * key_pairs.conj()).sum(axis=1) @ turns).real
    if len(query) > n_rotated:
        # Columns that do not turn count as one more pair, and add a constant.
        fixed_query, fixed_key = query[n_rotated:], key[n_rotated:]
        fixed_strength = np.linalg.norm(fixed_query) * np.linalg.norm(fixed_key)
        strengths = np.append(strengths, fixed_strength)
        curve = curve + float(np.sum(fixed_query * fixed_key))
    return strengths, curve


def _complex_pairs(
    rows: NDArray[np.float64], pairs: NDArray[np.intp]
) -> NDArray[np.complex128]:
    """Return the rows of a head, the first axis, as complex numbers by pair."""
    complex_rows: NDArray[np.complex128] = rows[pairs[:, 0]] + 1j * rows[pairs[:, 1]]
    return complex_rows
