"""What the heads of a rotary model make of distance: sums over contexts, and tests.

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

from posprobe.analyses.facts import Verdict, discovery_bar
from posprobe.analyses.models.rotary_use import (
    MIN_CONTEXTS,
    MOVES,
    STILL,
    Columns,
    HeadUse,
    LayerUse,
    OffsetPair,
    Origin,
    Pairs,
    Reason,
    RotaryUse,
)
from posprobe.arrays import Sums, quotient

#: Draws of random signs: the least p is 0.001.
DRAWS = 999
#: A head has a preferred distance where distance explains at least this share of its logits: random
#: weights reach 0.033 at the lower end of the interval (`tools/rotary_calibration.py`) ...
LEAST_SHARE = 0.05
#: ... and moves them by so many nats, nearly three times what random weights of small models reach
#: (0.036; with 1.0 billion of them 0.19, where the share is what they lack) ...
LEAST_SPREAD = 0.1
#: ... and random signs of contexts do so as rarely as this: of a hundred heads without a preference
#: one, before the rate over all heads is held.
LEVEL = 0.01
#: Variance of a query's logits below which attention is even, whatever the distance: a tenth of a
#: nat either way moves a weight by a tenth.
FLAT = 0.01
#: An offset pair holds at least twice an even share of the usage, with a mean part of 0.8: what
#: Jonasson 2025 calls large, and nearly constant.
TIMES = 2.0
STEADY = 0.8


@dataclass(frozen=True, eq=False)
class Turning:
    """How one layer turns queries and keys, and which of them are looked at.

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
class RotarySums(Sums):
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
        Numbers of vectors in these sums.
    """

    context_axes: ClassVar = {"curves": 0, "within": 0, "moved": 0, "capped": 0}

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
    usage = quotient(strength, strength.sum(axis=1, keepdims=True))
    mean_part = quotient(np.abs(product), strength)
    centred = measured - measured.mean(axis=1, keepdims=True)
    still = parts - parts.mean(axis=2, keepdims=True)
    total = np.mean(centred**2, axis=1)
    curve_share = quotient(np.einsum("hin,hn->hi", still, centred) / count, total[:, None])
    predicted = parts.sum(axis=1)
    capped = sums.capped.mean(axis=0)
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
                capped=float(capped[head]) if np.isfinite(capped[head]) else None,
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
        Sums and rotations by number of the layer, over all contexts.
    unmeasured
        Layers that could not be measured.
    length, source, name, stopped
        Fields of `RotaryUse`.
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
