"""Measure each head of a rotary model from sums over contexts; decide if it prefers a distance.

The unrotated complex pair and ``Re(c e^{jwD})`` are those of RoFormer (Su et al. 2021), usage is
after Barbero et al. 2024 (2410.06205), offset pairs after Jonasson 2025 (2503.01832). The balanced
window, distance share, moved attention, curve share and the answers are this project's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Verdict, max_discovery_p
from posprobe.analyses.models.rotary_use import (
    MAX_STILL_ATTENTION,
    MIN_HEAD_CONTEXTS,
    MIN_MOVED_ATTENTION,
    HeadUse,
    LayerUse,
    OffsetPair,
    Origin,
    PairOrder,
    Reason,
    RotaryUse,
    RotatedColumns,
)
from posprobe.analyses.models.shares import (
    draw_signs,
    interval_factor,
    jackknife_share_error,
    mean_power,
    sign_p,
)
from posprobe.arrays import Sums, quotient

#: Draws of random signs. The smallest p is 0.001.
N_SIGN_DRAWS = 999
#: A head has a preferred distance only if distance explains at least this share of its logits.
#: Random weights reach 0.033 at the lower end of the interval (`tools/rotary_calibration.py`).
MIN_DISTANCE_SHARE = 0.05
#: Distance must also move the logits by so many nats, nearly three times what random weights of
#: small models reach (0.036). 1.0 billion random weights reach 0.19, but lack the share.
MIN_SPREAD_NATS = 0.1
#: Largest p-value under random signs of contexts. One in a hundred heads without a preference
#: passes, before the false discovery rate over all heads is controlled.
MAX_SIGN_P = 0.01
#: Below this variance of a query's logits, in squared nats, attention is uniform at all distances:
#: a tenth of a nat either way changes a weight by a tenth.
MAX_FLAT_VARIANCE = 0.01
#: An offset pair has at least so many times a uniform share of the usage, which Jonasson 2025 calls
#: large.
MIN_OFFSET_USAGE_RATIO = 2.0
#: An offset pair has at least this mean part, which Jonasson 2025 calls nearly constant.
MIN_OFFSET_MEAN_PART = 0.8


@dataclass(frozen=True, eq=False)
class LayerRotation:
    """Rotation of one layer's queries and keys, and the distances at which it is measured.

    Parameters
    ----------
    frequencies
        ``[pairs]``, radians per position.
    pairs
        Order in which columns make pairs.
    columns
        Indices of the columns that turn.
    residual
        Residual of the shift check: norm of the change of unrotated queries and keys over theirs
        when positions start 37 later; 0 except for rounding where frequencies, pairs and columns
        are right.
    distances
        ``[n]``, query minus key, each seen once by each query.
    scale
        Factor of the dot products.
    """

    frequencies: NDArray[np.float64]
    pairs: PairOrder
    columns: RotatedColumns
    residual: float
    distances: NDArray[np.int64]
    scale: float

    @property
    def ladder(self) -> NDArray[np.float64]:
        """``[frequencies]``: with a last 0 for all columns that do not turn, if there are any."""
        return (
            self.frequencies
            if self.columns == "all"
            else np.append(self.frequencies, 0.0)
        )


@dataclass(frozen=True, eq=False)
class RotarySums(Sums):
    """Sums over contexts of one layer's window; ``+`` joins those of different contexts.

    Parameters
    ----------
    curves
        ``[contexts, heads, n]``: the mean logit at each distance.
    variance, moved_attention, capped_share
        ``[contexts, heads]``: mean variance of a query's logits over distance, mean attention that
        moves when distance is hidden, and share of logits above half of the model's cap.
    query, key
        ``[heads, pairs]``, complex: sums of the unrotated pairs over queries or keys and contexts.
    fixed_query, fixed_key
        ``[heads, columns]``: the same of columns that do not turn.
    query_power, key_power
        ``[heads, frequencies]``: sums of squared norms.
    queries, keys
        Numbers of vectors in these sums.
    """

    context_axes: ClassVar = {
        "curves": 0,
        "variance": 0,
        "moved_attention": 0,
        "capped_share": 0,
    }

    curves: NDArray[np.float64]
    variance: NDArray[np.float64]
    moved_attention: NDArray[np.float64]
    capped_share: NDArray[np.float64]
    query: NDArray[np.complex128]
    key: NDArray[np.complex128]
    fixed_query: NDArray[np.float64]
    fixed_key: NDArray[np.float64]
    query_power: NDArray[np.float64]
    key_power: NDArray[np.float64]
    queries: int
    keys: int

    @property
    def contexts(self) -> int:
        """Number of contexts in the sums."""
        return len(self.curves)


def measure_rotary_heads(
    layer: int, sums: RotarySums, rotation: LayerRotation, *, length: int
) -> list[HeadUse]:
    """Compute the numbers of a layer's heads from sums, with answers left open.

    Parameters
    ----------
    layer
        Number of the layer.
    sums, rotation
        Sums over all contexts, and rotation of the layer's queries and keys.
    length
        Tokens of a context.
    """
    contexts, n_heads, n_distances = sums.curves.shape
    measured = sums.curves.mean(axis=0)
    product = _mean_products(sums, rotation)
    turns = np.exp(1j * np.outer(rotation.ladder, rotation.distances))
    parts = (product[:, :, None] * turns).real
    norms = [
        np.sqrt(sums.query_power / sums.queries),
        np.sqrt(sums.key_power / sums.keys),
    ]
    usage, mean_part = _pair_shares(product, rotation.scale * norms[0] * norms[1])
    centred = measured - measured.mean(axis=1, keepdims=True)
    centred_parts = parts - parts.mean(axis=2, keepdims=True)
    curve_share = _curve_shares(centred, centred_parts)
    predicted = parts.sum(axis=1)
    capped = sums.capped_share.mean(axis=0)
    head_uses = []
    signs = draw_signs(contexts, N_SIGN_DRAWS)
    for head in range(n_heads):
        curves = sums.curves[:, head] - sums.curves[:, head].mean(axis=1, keepdims=True)
        products = curves @ curves.T / n_distances
        share, interval, variance = _distance_share(products, sums.variance[:, head])
        r, r2 = _measure_agreement(centred[head], centred_parts[head].sum(axis=0))
        pair_numbers = product[head], usage[head], mean_part[head]
        head_uses.append(
            HeadUse(
                layer=layer,
                head=head,
                share=share,
                interval=interval,
                variance=float(sums.variance[:, head].mean()),
                spread=None if variance is None else math.sqrt(max(variance, 0.0)),
                range=float(np.ptp(measured[head])),
                peak=int(rotation.distances[np.argmax(measured[head])]),
                r=r,
                r2=r2,
                moved=float(sums.moved_attention[:, head].mean()),
                capped=float(capped[head]) if np.isfinite(capped[head]) else None,
                p=sign_p(products, signs) if contexts >= MIN_HEAD_CONTEXTS else None,
                answer="cannot tell",
                usage=usage[head],
                mean_part=mean_part[head],
                curve_share=curve_share[head],
                query_norm=norms[0][head],
                key_norm=norms[1][head],
                offset=_find_offset_pair(rotation, *pair_numbers, length),
                product=product[head],
                measured=measured[head],
                predicted=predicted[head],
            )
        )
    return head_uses


def _mean_products(sums: RotarySums, rotation: LayerRotation) -> NDArray[np.complex128]:
    """Return scale times mean query times conjugated mean key of each pair, ``[heads, pairs]``."""
    products = (
        rotation.scale * (sums.query / sums.queries) * np.conj(sums.key / sums.keys)
    )
    if rotation.columns == "all":
        return np.asarray(products)
    fixed_columns = (sums.fixed_query / sums.queries) * (sums.fixed_key / sums.keys)
    fixed_products = rotation.scale * np.sum(fixed_columns, axis=1)
    return np.concatenate([products, fixed_products[:, None]], axis=1)


def _pair_shares(
    product: NDArray[np.complex128], strength: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the usage and the mean part of each pair, both ``[heads, pairs]``."""
    usage = quotient(strength, strength.sum(axis=1, keepdims=True))
    return usage, quotient(np.abs(product), strength)


def _curve_shares(
    curves: NDArray[np.float64], parts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share of each measured curve that each pair explains, ``[heads, pairs]``.

    Parameters
    ----------
    curves, parts
        ``[heads, n]`` and ``[heads, pairs, n]``: measured curves, and parts of the predicted ones
        by pair, both centred.
    """
    power = np.mean(curves**2, axis=1)
    covariances = np.einsum("hin,hn->hi", parts, curves) / curves.shape[1]
    return quotient(covariances, power[:, None])


def _distance_share(
    products: NDArray[np.float64], variances: NDArray[np.float64]
) -> tuple[float | None, tuple[float, float] | None, float | None]:
    """Return the distance share, its 95 % interval, and the variance of the curve.

    Parameters
    ----------
    products
        ``[c, c]``: covariances over distance of the curves of two contexts.
    variances
        ``[c]``: mean variance of a query's logits.
    """
    n = len(products)
    if n < 2:
        return None, None, None
    variance = mean_power(products)
    if not variances.mean() > 0:
        return None, None, variance
    share = variance / float(variances.mean())
    if n < 3:
        return share, None, variance
    half = interval_factor(n) * jackknife_share_error(products, variances)
    return share, (share - half, share + half), variance


def _measure_agreement(
    measured: NDArray[np.float64], predicted: NDArray[np.float64]
) -> tuple[float | None, float | None]:
    """Return the correlation and R2 of two centred curves; None for constant curves."""
    measured_size, predicted_size = (
        float(measured @ measured),
        float(predicted @ predicted),
    )
    r = (
        float(measured @ predicted) / math.sqrt(measured_size * predicted_size)
        if measured_size and predicted_size
        else None
    )
    residual = measured - predicted
    return r, 1 - float(residual @ residual) / measured_size if measured_size else None


def _find_offset_pair(
    rotation: LayerRotation,
    product: NDArray[np.complex128],
    usage: NDArray[np.float64],
    mean_part: NDArray[np.float64],
    length: int,
) -> OffsetPair | None:
    ladder = rotation.ladder
    is_slow = (ladder > 0) & (ladder * length < 2 * np.pi)
    is_offset = (
        is_slow
        & (usage >= MIN_OFFSET_USAGE_RATIO / len(ladder))
        & (mean_part >= MIN_OFFSET_MEAN_PART)
    )
    if not is_offset.any():
        return None
    pair = int(np.argmax(np.where(is_offset, usage, -1)))
    angle = float(np.angle(product[pair]))
    slope = -abs(product[pair]) * ladder[pair] * math.sin(angle)
    return OffsetPair(pair, angle, float(slope))


def answer_heads(heads: Sequence[HeadUse]) -> tuple[HeadUse, ...]:
    """Answer for every head whether it has a preferred distance.

    Yes needs a share of 0.05 at the lower end of its interval, 0.1 nats, and a p-value of 0.01 that
    stands at a false discovery rate of 0.05 over all heads (Benjamini & Hochberg 1995). No needs a
    share below 0.05 at the upper end, or fewer nats.
    """
    level = max_preference_p([head.p for head in heads])
    answers = [
        judge_preference(head.spread, head.interval, head.p, level) for head in heads
    ]
    return tuple(
        replace(head, answer=answer, peak=head.peak if answer == "yes" else None)
        for head, answer in zip(heads, answers, strict=True)
    )


def max_preference_p(p_values: Sequence[float | None]) -> float:
    """Return the largest p-value of a yes over the heads of a run."""
    return min(max_discovery_p(p_values), MAX_SIGN_P)


def judge_preference(
    spread: float | None,
    interval: tuple[float, float] | None,
    p: float | None,
    max_p: float,
) -> Verdict:
    """Answer whether a head has a preferred distance.

    Parameters
    ----------
    spread
        Standard deviation of the head's curve over distance, nats; None where it is not known.
    interval
        Interval of 95 % of its distance share; None where it is not known.
    p
        P-value of the curve under random signs of contexts; None with too few contexts.
    max_p
        Largest p-value of a yes.
    """
    if p is None or spread is None:
        return "cannot tell"
    if spread < MIN_SPREAD_NATS:
        return "no"
    if interval is None:
        return "cannot tell"
    low, high = interval
    if high < MIN_DISTANCE_SHARE:
        return "no"
    return "yes" if low >= MIN_DISTANCE_SHARE and p <= max_p else "cannot tell"


def judge_position(
    rotation: LayerRotation, heads: Sequence[HeadUse]
) -> tuple[Verdict, Reason]:
    """Answer whether a layer ignores position, from its heads."""
    if rotation.columns == "none":
        return "yes", "no_rotation"
    moved_shares = [head.moved for head in heads]
    if max(moved_shares) >= MIN_MOVED_ATTENTION:
        return "no", "moves"
    if max(head.variance for head in heads) < MAX_FLAT_VARIANCE:
        return "cannot tell", "flat"
    return (
        ("yes", "still")
        if max(moved_shares) < MAX_STILL_ATTENTION
        else ("cannot tell", "between")
    )


def build_rotary_use(
    sums: Mapping[int, RotarySums],
    rotations: Mapping[int, LayerRotation],
    unmeasured: Mapping[int, LayerUse],
    *,
    length: int,
    positions: int | None,
    source: Origin,
    name: str,
    is_interrupted: bool = False,
) -> RotaryUse:
    """Build the result of a run from the sums of its layers.

    Parameters
    ----------
    sums, rotations
        Sums and rotations by number of the layer, over all contexts.
    unmeasured
        Layers that could not be measured.
    length, source, name, is_interrupted
        Fields of `RotaryUse`.
    positions
        The context that the configuration states, None where it states none.
    """
    heads = answer_heads(
        [
            head
            for number in sorted(sums)
            for head in measure_rotary_heads(
                number, sums[number], rotations[number], length=length
            )
        ]
    )
    layers = dict(unmeasured)
    for number in sums:
        rotation = rotations[number]
        layer_heads = [head for head in heads if head.layer == number]
        ignores, reason = judge_position(rotation, layer_heads)
        layers[number] = LayerUse(
            layer=number,
            ignores=ignores,
            reason=reason,
            window=int(rotation.distances.max()) + 1,
            both_sides=bool(rotation.distances[0] < 0),
            ladder=rotation.ladder,
            pairs=rotation.pairs,
            columns=rotation.columns,
            shift_check=rotation.residual,
        )
    contexts = next((layer_sums.contexts for layer_sums in sums.values()), 0)
    return RotaryUse(
        contexts=contexts,
        length=length,
        source=source,
        positions=positions or length,
        heads=heads,
        layers=tuple(layers[number] for number in sorted(layers)),
        name=name,
        stopped=is_interrupted,
    )
