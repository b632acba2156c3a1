"""Attention budget: shares of distance, place and content in the variance of attention logits.

The logits of a query over the keys of a window, less their mean, vary with the keys and with the
context. Their mean over contexts splits into orthogonal parts: a curve by distance, what a key
gets wherever it is looked at from, and the rest of position. What varies between contexts is
content. The window, the shares and their errors are this project's own; the nearest prior work
splits the energies of queries and keys of one family (BFD, arXiv 2601.05328).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Number, Verdict, summarise_result
from posprobe.analyses.models.attention_window import AttentionWindow, WindowProblem
from posprobe.analyses.models.rotary_heads import (
    N_SIGN_DRAWS,
    judge_preference,
    max_preference_p,
)
from posprobe.analyses.models.rotary_use import MIN_HEAD_CONTEXTS
from posprobe.analyses.models.shares import (
    draw_signs,
    interval_factor,
    jackknife_share_error,
    mean_power,
    sign_p,
    signed_powers,
)
from posprobe.analyses.resampling import rank_p_value
from posprobe.analyses.result import (
    HIDDEN,
    Result,
    StoredArray,
    record_numbers,
)
from posprobe.arrays import Floats, Sums
from posprobe.drawable import Card
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Natural, Reasons, Share, limits
from posprobe.text import format_percent

#: Contexts below which standard errors mean nothing.
MIN_BUDGET_CONTEXTS = 8
#: A head with a larger share of attention that is 0 in the model's precision is not measured: the
#: logarithms of these cells are lost.
MAX_LOST_SHARE = 1e-3
#: Position decides most of a head's logits above this share of their variance.
MIN_MAIN_SHARE = 0.5
#: Singular values below this share of the largest belong to directions that the indicators of keys
#: do not span.
MIN_SINGULAR_SHARE = 1e-9

#: Origin of the logits: computed from queries and keys, or the logarithm of attention.
LogitSource: TypeAlias = Literal["queries and keys", "attention"]
#: Reason why a layer was not measured.
BudgetProblem: TypeAlias = (
    WindowProblem | Literal["not_finite", "looks_ahead", "underflow", "shape"]
)


@dataclass(frozen=True, eq=False)
class HeadBudget:
    """What decides where one head looks.

    Parameters
    ----------
    layer, head
        From 0.
    distance
        Share of the variance of a query's logits that a curve by distance explains. Unbiased, so
        that it can be slightly negative.
    key
        Share that the place of the key explains, wherever it is looked at from.
    other
        Share of the rest of position: what this query does with this key.
    content
        Share that varies between contexts. The four add up to 1.
    error
        Jackknife standard error of ``distance + key + other``; None with too few contexts.
    moved
        Share of attention within the window that moves without the part of position, 0 to 1.
    spread
        Standard deviation of the curve by distance, nats.
    preferred
        Displacement with the largest mean logit, query minus key: one number of tokens, or rows and
        columns of patches. None unless ``prefers`` is yes.
    prefers
        Whether the head prefers a distance.
    p
        P-value of the curve under random signs of contexts; None with too few contexts.
    first
        Mean attention to the first token; None for images, and where no query sees it.
    lost
        Share of the window's attention that is 0 in the model's precision.
    """

    layer: Count
    head: Count
    distance: float
    key: float
    other: float
    content: float
    error: float | None
    moved: Share
    spread: float
    preferred: tuple[int, ...] | int | None
    prefers: Verdict
    p: float | None
    first: float | None
    lost: Share

    @property
    def position(self) -> float:
        """Share of distance, place of the key and other position together."""
        return self.distance + self.key + self.other


@dataclass(frozen=True)
class LostHead:
    """A head of a measured layer of which too many logits are lost.

    Parameters
    ----------
    layer, head
        From 0.
    lost
        Share of the window's attention that is 0 in the model's precision.
    """

    layer: Count
    head: Count
    lost: Share


@dataclass(frozen=True)
class LayerWindow:
    """The window of one layer, or why it was not measured.

    Parameters
    ----------
    layer
        Number of the layer in the model, from 0.
    window
        Distances of a query on one side; 0 where the layer was not measured.
    problem
        Why it was not measured; None where it was.
    """

    layer: Count
    window: Count
    problem: str | None


@dataclass(frozen=True)
class ChanceShares:
    """Mean shares over heads after random signs of contexts, which leave content alone.

    Parameters
    ----------
    position, place
        5 and 95 % of the shares of all position, and of position beyond distance.
    position_p, place_p
        Share of the draws that reach the measured shares.
    draws
        Number of draws.
    """

    position: tuple[float, float]
    place: tuple[float, float]
    position_p: float
    place_p: float
    draws: Natural


@dataclass(frozen=True, eq=False, repr=False)
class AttentionBudget(Result):
    """What decides where the heads of a model look: distance, place or content.

    Parameters
    ----------
    heads
        Results of all heads that were measured.
    lost_heads
        Heads of these layers that were not measured: means over heads leave them out.
    layers
        Windows of all layers.
    contexts
        Number of contexts.
    tokens
        Tokens, or patches, of a context.
    both_sides
        Whether later keys are looked at.
    layout
        Layout of the tokens or patches.
    source
        Origin of the logits.
    by_chance
        Shares by chance; None with too few contexts.
    uniform_first
        Mean attention to the first token if all visible keys got the same; None for images, and
        where no query sees it.
    curves
        ``[heads, displacements]``: mean logit by displacement, less its mean, nats; NaN outside the
        window of a layer.
    displacements
        ``[displacements, axes]``: query minus key.
    name
        Name of the model.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    """

    figures: ClassVar[str] = "attention_budget.plot_attention_budget"

    heads: tuple[HeadBudget, ...]
    lost_heads: tuple[LostHead, ...]
    layers: Annotated[tuple[LayerWindow, ...], limits(minItems=1)]
    contexts: Natural
    tokens: Natural
    both_sides: bool
    layout: Layout
    source: LogitSource
    by_chance: ChanceShares | None
    uniform_first: Share | None
    curves: Annotated[NDArray[np.float64], StoredArray("attention_curves")]
    displacements: Annotated[NDArray[np.int64], HIDDEN]
    name: Annotated[str, HIDDEN]
    stopped: Annotated[bool, HIDDEN] = False

    def _card(self) -> Card:
        unit = "patches" if isinstance(self.layout, Grid) else "tokens"
        facts: dict[str, object] = {
            "contexts": f"{self.contexts} of {self.tokens} {unit}"
        }
        for key, number, _ in record_numbers(type(self)):
            value = getattr(self, key)
            # The estimate of a zero share can be slightly negative.
            if isinstance(value, float):
                facts[number.label] = (
                    f"{format_percent(max(value, 0.0))} ({number.meaning})"
                )
        facts["heads that position decides"] = f"{self.most} of {len(self.heads)}"
        text = summarise_result("attention_budget", self)
        return Card(self.name, facts, text, pictures=self._pictures())

    def _mean(self, name: str) -> float | None:
        values = [getattr(head, name) for head in self.heads]
        return float(np.mean(values)) if values else None

    @property
    def distance(
        self,
    ) -> Annotated[float | None, Number("distance", "share of logits, mean over heads")]:
        """Mean share of distance over heads."""
        return self._mean("distance")

    @property
    def key(
        self,
    ) -> Annotated[
        float | None, Number("place of the key", "share of logits, mean over heads")
    ]:
        """Mean share of the place of the key over heads."""
        return self._mean("key")

    @property
    def other(
        self,
    ) -> Annotated[
        float | None, Number("other position", "share of logits, mean over heads")
    ]:
        """Mean share of other position over heads."""
        return self._mean("other")

    @property
    def content(
        self,
    ) -> Annotated[float | None, Number("content", "share of logits, mean over heads")]:
        """Mean share of content over heads."""
        return self._mean("content")

    @property
    def moved(
        self,
    ) -> Annotated[
        float | None, Number("moved attention", "mean over heads, without position")
    ]:
        """Mean share of attention that moves without position."""
        return self._mean("moved")

    @property
    def most(
        self,
    ) -> Annotated[
        Count, Number("heads that position decides", "share above one half", form="d")
    ]:
        """Number of heads of whose logits position decides more than half."""
        return sum(head.position > MIN_MAIN_SHARE for head in self.heads)

    @property
    def window(self) -> Annotated[Count, "Distances of a query on one side, at most."]:
        """Largest number of distances on one side."""
        return max(layer.window for layer in self.layers)

    @property
    def preferred_counts(
        self,
    ) -> tuple[tuple[tuple[int, ...] | int, int], ...]:
        """Preferred displacements with their number of heads, most frequent first."""
        counts = Counter(
            head.preferred for head in self.heads if head.preferred is not None
        )
        return tuple(counts.most_common())

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        reasons: dict[str, str] = {}
        if not self.heads:
            names = ("distance", "key", "other", "content", "moved")
            reasons |= dict.fromkeys(names, "no layer could be measured")
        if self.by_chance is None:
            reasons["by_chance"] = f"it needs {MIN_HEAD_CONTEXTS} contexts"
        if isinstance(self.layout, Grid):
            reasons["uniform_first"] = reasons["first"] = "patches have no first token"
        if any(head.preferred is None for head in self.heads):
            reasons["preferred"] = "a head prefers no distance"
        if any(head.error is None for head in self.heads):
            reasons["error"] = (
                f"it needs {MIN_BUDGET_CONTEXTS} contexts, and other logits than 0"
            )
        if any(head.p is None for head in self.heads):
            reasons["p"] = f"it needs {MIN_HEAD_CONTEXTS} contexts"
        if any(head.first is None for head in self.heads):
            reasons.setdefault("first", "no query of the window sees the first token")
        if self.uniform_first is None:
            reasons.setdefault("uniform_first", "no query sees the first token")
        if any(layer.problem is None for layer in self.layers):
            reasons["problem"] = "the layer was measured"
        return reasons


@dataclass(frozen=True, eq=False)
class LogitSums(Sums):
    """Logits of one layer's window; ``+`` joins those of different contexts.

    Parameters
    ----------
    logits
        ``[b, heads, q, n]`` of each batch: by query and displacement. They are not joined, which
        would take the memory of all of them once more.
    first
        ``[contexts, heads]``: mean attention of these queries to the first token.
    lost
        ``[contexts, heads]``: share of attention that is 0 in the model's precision.
    window
        Queries and keys.
    uniform_first
        Attention of these queries to the first token if all visible keys got the same; 0 where
        none sees it.
    """

    context_axes: ClassVar[Mapping[str, int]] = {"first": 0, "lost": 0}
    shared_fields: ClassVar[tuple[str, ...]] = ("window", "uniform_first")

    logits: tuple[NDArray[np.floating], ...]
    first: Floats
    lost: Floats
    window: AttentionWindow
    uniform_first: float

    @property
    def contexts(self) -> int:
        """Number of contexts."""
        return len(self.first)

    def head_logits(self, head: int) -> Floats:
        """Return the logits of one head in all contexts, less their mean, ``[c, q, n]``."""
        batches = [batch[:, head] for batch in self.logits]
        logits = np.concatenate(batches).astype(np.float64)
        logits -= logits.mean(axis=2, keepdims=True)
        return logits


@dataclass(frozen=True, eq=False)
class PlaceProjection:
    """Least squares on the places of keys, with means over keys and over queries removed.

    Parameters
    ----------
    places
        ``[q, n]``: number of each key's place, from 0.
    basis
        ``[places, rank]``: maps sums by place to coordinates whose squared norm is that of the
        projection.
    """

    places: NDArray[np.intp]
    basis: Floats

    def sum_by_place(self, centred: Floats) -> Floats:
        """Sum logits ``[c, q, n]`` without both means by place, ``[c, places]``."""
        n_places = len(self.basis)
        sums: Floats = np.stack(
            [
                np.bincount(self.places.ravel(), row.ravel(), minlength=n_places)
                for row in centred
            ]
        )
        return sums

    def coordinates(self, centred: Floats) -> Floats:
        """Return the coordinates of the projection, ``[c, rank]``."""
        coordinates: Floats = self.sum_by_place(centred) @ self.basis
        return coordinates

    def project(self, centred: Floats) -> Floats:
        """Return the projection of one mean ``[q, n]`` without both means."""
        by_place = self.basis @ self.coordinates(centred[None])[0]
        projected: Floats = remove_means(by_place[self.places][None])[0]
        return projected


def place_projection(window: AttentionWindow) -> PlaceProjection:
    """Build the projection on the places of a window's keys."""
    numbers, places = np.unique(window.keys, return_inverse=True)
    places = places.reshape(window.keys.shape)
    n_queries, n_keys = window.keys.shape
    by_query = np.zeros((len(numbers), n_queries))
    by_displacement = np.zeros((len(numbers), n_keys))
    query_index, displacement_index = np.indices(places.shape)
    np.add.at(by_query, (places, query_index), 1.0)
    np.add.at(by_displacement, (places, displacement_index), 1.0)
    counts = by_query.sum(axis=1)
    # Inner products of the indicators without both means.
    products = (
        np.diag(counts)
        - by_query @ by_query.T / n_keys
        - by_displacement @ by_displacement.T / n_queries
        + np.outer(counts, counts) / (n_queries * n_keys)
    )
    values, vectors = np.linalg.eigh(products)
    is_spanned = values > MIN_SINGULAR_SHARE * values.max()
    basis = vectors[:, is_spanned] / np.sqrt(values[is_spanned])
    return PlaceProjection(places, basis)


def remove_means(logits: Floats) -> Floats:
    """Remove the mean over displacements, then that over queries, from ``[c, q, n]``."""
    centred: Floats = logits - logits.mean(axis=2, keepdims=True)
    centred -= centred.mean(axis=1, keepdims=True)
    return centred


@dataclass(frozen=True, eq=False)
class HeadProducts:
    """Products of two contexts, ``[c, c]``, of a head's logits and of two parts of them.

    All are means over queries and displacements.
    """

    total: Floats
    distance: Floats
    key: Floats


def _head_products(logits: Floats, projection: PlaceProjection) -> HeadProducts:
    """Compute the products of contexts from one head's centred logits ``[c, q, n]``."""
    n_queries, n_keys = logits.shape[1:]
    flat = logits.reshape(len(logits), -1)
    curves = logits.mean(axis=1)
    coordinates = projection.coordinates(logits - curves[:, None])
    n_cells = n_queries * n_keys
    return HeadProducts(
        flat @ flat.T / n_cells,
        curves @ curves.T / n_keys,
        coordinates @ coordinates.T / n_cells,
    )


def _position_part(
    logits: Floats, products: HeadProducts, projection: PlaceProjection
) -> Floats:
    """Return what position adds to logits ``[c, q, n]``, without the noise in its size, ``[q, n]``.

    Each part of the mean over contexts is scaled to the norm that is estimated without bias.
    """
    mean = logits.mean(axis=0)
    distance_part = np.broadcast_to(mean.mean(axis=0), mean.shape)
    key_part = projection.project(mean - distance_part)
    other_part = mean - distance_part - key_part
    powers = _part_powers(products)
    return np.asarray(
        sum(
            part * math.sqrt(max(power, 0.0) / size)
            for part, power in zip(
                (distance_part, key_part, other_part), powers, strict=True
            )
            if (size := float(np.mean(part**2))) > 0
        )
    )


def _part_powers(products: HeadProducts) -> tuple[float, float, float]:
    """Return the unbiased squared norms of distance, place of the key and other position."""
    total, distance, key = map(
        mean_power, (products.total, products.distance, products.key)
    )
    return distance, key, total - distance - key


def _softmax(logits: NDArray[np.floating]) -> NDArray[np.floating]:
    weights: NDArray[np.floating] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _measure_moved_attention(logits: Floats, part: Floats | float) -> float:
    """Return the share of attention that moves without a part, mean over contexts and queries."""
    # Single precision is enough for a mean of changes, and takes half of the time.
    narrow_logits = logits.astype(np.float32)
    narrow_part = np.asarray(part, dtype=np.float32)
    changes = np.abs(_softmax(narrow_logits) - _softmax(narrow_logits - narrow_part))
    return float(changes.sum(axis=-1).mean() / 2)


@dataclass(frozen=True, eq=False)
class _MeasuredHead:
    """A head with its curve, its 95 % interval, and its shares by chance, ``[draws]``."""

    budget: HeadBudget
    curve: Floats
    interval: tuple[float, float] | None
    position_draws: Floats
    place_draws: Floats


def _measure_head(
    layer: int,
    head: int,
    sums: LogitSums,
    projection: PlaceProjection,
    signs: NDArray[np.float64],
) -> _MeasuredHead:
    """Measure one head from its logits in all contexts."""
    logits = sums.head_logits(head)
    products = _head_products(logits, projection)
    variances = np.diag(products.total)
    variance = float(variances.mean())
    distance, key, other = _part_powers(products)
    has_errors = len(logits) >= MIN_BUDGET_CONTEXTS and variance > 0
    part = _position_part(logits, products, projection)
    interval = None
    if has_errors:
        half = interval_factor(len(logits)) * jackknife_share_error(
            products.distance, variances
        )
        interval = distance / variance - half, distance / variance + half
    draws = np.stack(
        [signed_powers(p, signs) for p in (products.total, products.distance)]
    ) / (variance or 1.0)
    curve = logits.mean(axis=(0, 1))
    shares = [part_power / (variance or 1.0) for part_power in (distance, key, other)]
    budget = HeadBudget(
        layer=layer,
        head=head,
        distance=shares[0],
        key=shares[1],
        other=shares[2],
        content=1 - sum(shares),
        error=jackknife_share_error(products.total, variances) if has_errors else None,
        moved=_measure_moved_attention(logits, part),
        spread=math.sqrt(max(distance, 0.0)),
        preferred=None,
        prefers="cannot tell",
        p=sign_p(products.distance, signs) if len(logits) >= MIN_HEAD_CONTEXTS else None,
        first=float(sums.first[:, head].mean()) if sums.uniform_first else None,
        lost=float(sums.lost[:, head].mean()),
    )
    return _MeasuredHead(budget, curve, interval, draws[0], draws[0] - draws[1])


def _answer_preferences(
    measured: Sequence[_MeasuredHead], windows: Mapping[int, AttentionWindow]
) -> tuple[HeadBudget, ...]:
    """Answer which heads prefer a distance, and name it."""
    max_p = max_preference_p([head.budget.p for head in measured])
    heads = []
    for head in measured:
        budget = head.budget
        prefers = judge_preference(budget.spread, head.interval, budget.p, max_p)
        if prefers == "yes" and budget.key > budget.distance:
            # The place of a key has a mean by distance as well, within a window.
            prefers = "cannot tell"
        preferred: tuple[int, ...] | int | None = None
        if prefers == "yes":
            displacements = windows[budget.layer].displacements
            place = displacements[int(np.argmax(head.curve))].tolist()
            preferred = place[0] if len(place) == 1 else tuple(place)
        heads.append(replace(budget, prefers=prefers, preferred=preferred))
    return tuple(heads)


def _chance_shares(
    measured: Sequence[_MeasuredHead], heads: Sequence[HeadBudget]
) -> ChanceShares:
    """Return the mean shares over heads by chance, and the p-values of the measured ones."""

    def summarise(draws: Floats, share: float) -> tuple[tuple[float, float], float]:
        low, high = np.quantile(draws, (0.05, 0.95)).tolist()
        return (low, high), rank_p_value(share, draws)

    position_draws = np.mean([head.position_draws for head in measured], axis=0)
    place_draws = np.mean([head.place_draws for head in measured], axis=0)
    position, position_p = summarise(
        position_draws, float(np.mean([head.position for head in heads]))
    )
    place, place_p = summarise(
        place_draws, float(np.mean([head.key + head.other for head in heads]))
    )
    return ChanceShares(position, place, position_p, place_p, len(position_draws))


def _layer_windows(
    windows: Mapping[int, AttentionWindow], problems: Mapping[int, str]
) -> tuple[LayerWindow, ...]:
    """Return the window of every layer, or why it was not measured."""
    return tuple(
        LayerWindow(number, 0, problems[number])
        if number in problems
        else LayerWindow(number, windows[number].reach, None)
        for number in sorted({*windows, *problems})
    )


def _measure_layer(
    number: int, sums: LogitSums, signs: NDArray[np.float64]
) -> tuple[list[_MeasuredHead], list[LostHead]]:
    """Measure the heads of a layer, but for those of which too many logits are lost."""
    projection = place_projection(sums.window)
    shares = enumerate(sums.lost.mean(axis=0).tolist())
    lost_heads = [
        LostHead(number, head, share) for head, share in shares if share > MAX_LOST_SHARE
    ]
    lost_numbers = {head.head for head in lost_heads}
    measured = [
        _measure_head(number, head, sums, projection, signs)
        for head in range(sums.lost.shape[1])
        if head not in lost_numbers
    ]
    return measured, lost_heads


def build_attention_budget(
    sums: Mapping[int, LogitSums],
    problems: Mapping[int, str],
    *,
    layout: Layout,
    source: LogitSource,
    name: str,
    is_interrupted: bool = False,
) -> AttentionBudget:
    """Measure every head from the logits of all contexts.

    Parameters
    ----------
    sums
        Logits by number of the layer.
    problems
        Reasons by number of the layers that were not measured.
    layout, source, name, is_interrupted
        Fields of `AttentionBudget`.
    """
    contexts = next((layer.contexts for layer in sums.values()), 1)
    signs = draw_signs(contexts, N_SIGN_DRAWS)
    measured: list[_MeasuredHead] = []
    lost_heads: list[LostHead] = []
    for number in sorted(sums):
        layer_heads, layer_lost_heads = _measure_layer(number, sums[number], signs)
        measured += layer_heads
        lost_heads += layer_lost_heads
    measured_layers = {head.budget.layer for head in measured}
    all_problems = dict.fromkeys(sums.keys() - measured_layers, "underflow") | dict(
        problems
    )
    lost_heads = [head for head in lost_heads if head.layer in measured_layers]
    windows = {number: layer.window for number, layer in sums.items()}
    heads = _answer_preferences(measured, windows)
    if isinstance(layout, Grid):
        heads = tuple(replace(head, first=None) for head in heads)
    curves, displacements = _stack_curves(measured, windows)
    has_chance = contexts >= MIN_HEAD_CONTEXTS and bool(heads)
    return AttentionBudget(
        heads=heads,
        lost_heads=tuple(lost_heads),
        layers=_layer_windows(windows, all_problems),
        contexts=contexts,
        tokens=layout.size,
        both_sides=any(window.is_two_sided for window in windows.values()),
        layout=layout,
        source=source,
        by_chance=_chance_shares(measured, heads) if has_chance else None,
        uniform_first=_uniform_first(layout, sums.values()),
        curves=curves,
        displacements=displacements,
        name=name,
        stopped=is_interrupted,
    )


def _uniform_first(layout: Layout, layers: Iterable[LogitSums]) -> float | None:
    """Return the mean uniform attention to the first token over layers that see it."""
    shares = [layer.uniform_first for layer in layers if layer.uniform_first]
    return None if isinstance(layout, Grid) or not shares else float(np.mean(shares))


def _stack_curves(
    measured: Sequence[_MeasuredHead], windows: Mapping[int, AttentionWindow]
) -> tuple[Floats, NDArray[np.int64]]:
    """Stack curves over the displacements of all windows; NaN where a layer has none."""
    if not measured:
        return np.zeros((0, 0)), np.zeros((0, 1), dtype=np.int64)
    displacements = np.unique(
        np.concatenate([window.displacements for window in windows.values()]), axis=0
    )
    columns = {tuple(place): i for i, place in enumerate(displacements.tolist())}
    curves = np.full((len(measured), len(displacements)), np.nan)
    for row, head in zip(curves, measured, strict=True):
        places = windows[head.budget.layer].displacements.tolist()
        row[[columns[tuple(place)] for place in places]] = head.curve
    return curves, displacements
