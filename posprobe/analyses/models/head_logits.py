"""Position-to-position part of each head's attention logits, from the weights alone.

The position-to-position part of the logits, ``P W_Q W_Kᵀ Pᵀ / sqrt(d_h)``: Wennberg & Henter 2021
(TISA) draw it, and Ke et al. 2021 (TUPE) single it out among the four terms of the logits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.similarity import sum_by_displacement
from posprobe.analyses.result import (
    JsonType,
    NumberSuffixes,
    Result,
    StoredArray,
    WithGaps,
    centring_error,
)
from posprobe.arrays import Array, Positions, namespace, positions, quotient
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout
from posprobe.number_types import PAIR_LIMITS, Count, Natural, Reasons, Text, limits
from posprobe.tables import PositionTable

#: Tables of more positions are refused: the n x n logits of one head take 2 GiB at this limit.
MAX_LOGIT_POSITIONS = 16_384
#: Name of the peak of a head that prefers no offset.
NO_PEAK = "none"


def list_peaks(layer: Any) -> list[int | list[int] | None]:
    """Return each head's peak for JSON: a number, two on a grid, or None."""
    return [
        None if not has_peak else row if len(row) > 1 else row[0]
        for row, has_peak in zip(
            layer.peak.tolist(), layer.has_peak.tolist(), strict=True
        )
    ]


#: Preferred offsets of heads, with their form in JSON.
Peaks: TypeAlias = Annotated[
    NDArray[np.int64],
    JsonType(list[int | Annotated[list[int], PAIR_LIMITS] | None], list_peaks),
]


class Peaked:
    """The preferred offsets of the heads of one layer, in words."""

    peak: Peaks
    has_peak: NDArray[np.bool_]

    @property
    def peak_name(
        self,
    ) -> Annotated[list[str], "The same in words; none where there is none."]:
        """The peaks in words, head by head; `NO_PEAK` where a head has none."""
        return [
            peak_name(row) if has_peak else NO_PEAK
            for row, has_peak in zip(
                self.peak.tolist(), self.has_peak.tolist(), strict=True
            )
        ]

    @property
    def without_peak(self) -> Annotated[Count, "How many heads prefer no offset."]:
        """How many heads prefer none."""
        return int((~self.has_peak).sum())


@dataclass(frozen=True, eq=False, repr=False)
class HeadLogits(Peaked, Result):
    """What each head's logits owe to the positions of query and key.

    Logits split exactly into a constant, a term for each query, a term for each key and the
    interaction of both. The first two change no attention. Biases are in the key terms and never
    in the interaction.

    Parameters
    ----------
    curves
        ``[heads, 2 n - 1]``, or ``[heads, 2 h - 1, 2 w - 1]`` on a grid: mean interaction of the
        pairs at each offset, key minus query; logits. Far offsets are means of few pairs. Offsets
        that causal attention never meets are NaN.
    offset_share
        ``[heads]``: share of the interaction's variance, over the pairs that attention meets, that
        the offset explains; NaN for a head without interaction.
    key_share
        ``[heads]``: share of the variance of a query's logits, over all keys, that is the same for
        every query; NaN where all keys are alike.
    peak
        ``[heads, 1 or 2]``: offset of the largest mean interaction among those that at least half
        of the positions have. -1 attends to the previous token, 1 to the next. 0 where
        ``has_peak`` is not.
    has_peak
        ``[heads]``: whether a head prefers an offset. It does not where all these means are equal,
        but for rounding.
    attention
        ``[heads]``: mean attention at the peak, the softmax of the whole logits over the positions;
        NaN without one.
    uniform
        ``[heads]``: what equal logits would give there; NaN without a peak.
    layout
        Layout of the positions.
    causal
        Whether queries see no later keys.
    """

    figures: ClassVar[str] = "heads.plot_logits"

    curves: Annotated[NDArray[np.float64], StoredArray("logits")]
    offset_share: WithGaps
    key_share: WithGaps
    peak: Annotated[
        Peaks, "The offset with the largest mean; null where all have the same."
    ]
    has_peak: NDArray[np.bool_]
    attention: WithGaps
    uniform: WithGaps
    layout: Layout
    causal: bool

    @property
    def heads(self) -> Annotated[Natural, ""]:
        """Number of heads."""
        return len(self.peak)

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        undefined = {}
        if np.isnan(self.offset_share).any():
            undefined["offset_share"] = (
                "a head's logits do not depend on query and key together"
            )
        if np.isnan(self.key_share).any():
            undefined["key_share"] = "a head's logits are the same for all keys"
        if not self.has_peak.all():
            undefined |= dict.fromkeys(
                ("peak", "attention", "uniform"), "a head prefers no offset"
            )
        return undefined


@dataclass(frozen=True, eq=False, repr=False)
class HeadsByLayer(Result):
    """What every layer's heads make of positions by their weights alone.

    Parameters
    ----------
    layers
        Results by number of the layer, from 0. Where all layers share their weights, the first
        stands for all.
    notes
        Description in words of the rows that meet the weights.
    """

    figures: ClassVar[str] = "heads.plot_logits"

    layers: Annotated[Mapping[int, HeadLogits], limits(minItems=1), NumberSuffixes()]
    notes: Annotated[tuple[str, ...], JsonType(list[Text])] = ()

    @property
    def heads(self) -> Annotated[Natural, ""]:
        """How many there are in all layers."""
        return sum(layer.heads for layer in self.layers.values())

    @property
    def peaks(
        self,
    ) -> Annotated[dict[str, Natural], "How many heads prefer which offset, in words."]:
        """By the name of the offset, the most frequent first."""
        names = Counter(
            name for layer in self.layers.values() for name in layer.peak_name
        )
        return {name: count for name, count in names.most_common() if name != NO_PEAK}

    @property
    def without_peak(self) -> Annotated[Count, "How many heads prefer no offset."]:
        """How many heads prefer none."""
        return sum(layer.without_peak for layer in self.layers.values())


def peak_name(offset: Sequence[int]) -> str:
    """Return an offset from the query to the key in words.

    Parameters
    ----------
    offset
        ``[1]``, or ``[rows, columns]`` on a grid, key minus query.
    """
    if len(offset) == 1:
        (step,) = offset
        names = {0: "same token", -1: "previous token", 1: "next token"}
        return names.get(step, f"{abs(step)} tokens {'before' if step < 0 else 'after'}")
    row_step, column_step = offset
    rows = _format_steps(row_step, "row", "up", "down")
    columns = _format_steps(column_step, "column", "left", "right")
    if row_step and column_step:
        return f"{rows}, {columns}"
    if abs(row_step) > 1 or abs(column_step) > 1:
        return f"same column, {rows}" if row_step else f"same row, {columns}"
    return rows or columns or "same patch"


def _format_steps(count: int, unit: str, back: str, forward: str) -> str:
    steps = f"one {unit}" if abs(count) == 1 else f"{abs(count)} {unit}s"
    return f"{steps} {back if count < 0 else forward}" if count else ""


def head_logits(
    rows: PositionTable | Positions | Array,
    w_q: Array,
    w_k: Array,
    b_q: Array | None = None,
    b_k: Array | None = None,
    *,
    heads: int,
    scale: float | None = None,
    causal: bool = False,
) -> HeadLogits:
    """Measure the attention logits between positions, one head in memory at a time.

    Parameters
    ----------
    rows
        ``[n, d]``: each position as it enters the projections, so after the LayerNorm that stands
        before them. `posprobe.families.load_heads` makes them out of a checkpoint.
    w_q, w_k
        ``[d, heads * d_h]``: ``q = x W_Q + b_Q``, heads side by side. A linear layer of torch
        stores the transpose.
    b_q, b_k
        ``[heads * d_h]``, or None for none.
    heads
        Number of heads.
    scale
        Factor of the dot products; ``1 / sqrt(d_h)`` where None.
    causal
        Whether queries see no later keys.

    Raises
    ------
    InvalidTable
        If the rows are not ``[n, d]`` and finite, or more than `MAX_LOGIT_POSITIONS`.
    UsageError
        If the weights do not fit the rows or the heads, or hold NaN or infinity.

    Examples
    --------
    A head whose projections are the identity prefers the row that is most like its own, at
    distance 0:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> rows = pp.sinusoidal(16, 4).values
    >>> logits = pp.analyses.head_logits(rows, np.eye(4), np.eye(4), heads=1)
    >>> logits.curves.shape
    (1, 31)
    >>> int(logits.curves[0].argmax()) - 15
    0
    """
    table_positions = positions(rows)
    n, width = table_positions.values.shape
    if n > MAX_LOGIT_POSITIONS:
        raise InvalidTable(
            f"{n} positions: the logits of one head would take "
            f"{8 * n * n / 2**30:.0f} GiB. Keep up to {MAX_LOGIT_POSITIONS} "
            "with --rows A:B."
        )
    head_dim = _check_weights(width, heads, w_q=w_q, w_k=w_k, b_q=b_q, b_k=b_k)
    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    numbers = []
    for head in range(heads):
        columns = slice(head * head_dim, (head + 1) * head_dim)
        q, k = (
            _project_rows(table_positions.values, weights, biases, columns)
            for weights, biases in ((w_q, b_q), (w_k, b_k))
        )
        logits = factor * table_positions.xp.matmul(q, k.T)
        numbers.append(_measure_head(logits, table_positions.layout, causal=causal))
    stacked = {
        name: np.array([head_numbers[name] for head_numbers in numbers])
        for name in numbers[0]
    }
    return HeadLogits(**stacked, layout=table_positions.layout, causal=causal)


def _check_weights(width: int, heads: int, **weights: Array | None) -> int:
    """Check weights against the rows and each other; return the width of a head."""
    shapes = {name: tuple(w.shape) for name, w in weights.items() if w is not None}
    columns = shapes["w_q"][-1] if shapes["w_q"] else 0
    expected_shapes = {
        "w_q": (width, columns),
        "w_k": (width, columns),
        "b_q": (columns,),
        "b_k": (columns,),
    }
    is_mismatched = any(shape != expected_shapes[name] for name, shape in shapes.items())
    if is_mismatched or heads < 1 or columns < 1 or columns % heads:
        shape_list = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise UsageError(
            f"{shape_list} and {heads} heads: rows of width {width} need "
            f"w_q and w_k of [{width}, heads * d_h] and biases of [heads * "
            "d_h]. A linear layer stores the transpose; keys that several "
            "queries share must be repeated."
        )
    for name, array in weights.items():
        if array is not None and not bool(
            namespace(array).all(namespace(array).isfinite(array))
        ):
            raise UsageError(f"{name} holds NaN or infinity: the checkpoint is damaged.")
    return columns // heads


def _project_rows(
    values: Array, weights: Array, biases: Array | None, columns: slice
) -> Array:
    """Return the queries, or the keys, of the head that has these columns of the weights."""
    projected = namespace(values).matmul(
        values, _match_array(weights[:, columns], values)
    )
    if biases is not None:
        projected = projected + _match_array(biases[columns], values)
    return projected


def _match_array(array: Array, reference: Array) -> Array:
    """Convert an array to the library, dtype and device of another."""
    xp = namespace(reference)
    if isinstance(array, np.ndarray):
        return xp.asarray(
            array.astype(np.float64), dtype=reference.dtype, device=reference.device
        )
    return xp.astype(array, reference.dtype)


def _measure_head(logits: Array, layout: Layout, *, causal: bool) -> dict[str, Any]:
    """Return the fields of `HeadLogits` for one head's logits ``[n, n]``, queries first."""
    xp = namespace(logits)
    n = logits.shape[0]
    is_grid = isinstance(layout, Grid)
    height, width = layout.height, layout.width
    by_key = xp.mean(logits, axis=0)
    interaction = logits - by_key - xp.mean(logits, axis=1)[:, None] + xp.mean(by_key)
    rounding = centring_error(
        float(xp.max(xp.abs(logits))), n * n, float(xp.finfo(logits.dtype).eps)
    )
    interaction = interaction * float(bool(xp.max(xp.abs(interaction)) > rounding))
    visible = xp.ones_like(logits)
    if causal:
        visible = xp.tril(visible)
    count = np.rint(sum_by_displacement(visible, height, width, xp))
    total = sum_by_displacement(interaction * visible, height, width, xp)
    squares = sum_by_displacement(interaction**2 * visible, height, width, xp)
    mean = quotient(total, count)
    spread = squares.sum() - total.sum() ** 2 / count.sum()
    explained = np.nansum(total * mean) - total.sum() ** 2 / count.sum()
    interaction_power = float(xp.sum(interaction**2)) / n
    key_power = float(xp.sum((by_key - xp.mean(by_key)) ** 2))
    power = key_power + interaction_power
    tiny = rounding**2 * n
    shifted_logits = logits - xp.max(logits, axis=1, keepdims=True)
    weights = xp.exp(xp.where(visible > 0, shifted_logits, -math.inf))
    peak_index = find_nearest_peak(mean, count, n)
    common = mean[count >= n / 2]
    has_peak = bool(np.ptp(common) > rounding)
    attention, uniform = (
        _mean_weight(key_weights, layout, peak_index, count) if has_peak else math.nan
        for key_weights in (weights, visible)
    )
    peak = np.array([peak_index[0] - height + 1, peak_index[1] - width + 1]) * has_peak
    return {
        "curves": mean if is_grid else mean[0],
        "offset_share": float(explained / spread) if spread > tiny else math.nan,
        "key_share": key_power / power if power > tiny else math.nan,
        "peak": peak if is_grid else peak[1:],
        "has_peak": has_peak,
        "attention": attention,
        "uniform": uniform,
    }


def _mean_weight(
    key_weights: Array,
    layout: Layout,
    offset: tuple[int, ...],
    count: NDArray[np.float64],
) -> float:
    """Return the mean over queries of the share that the key at an offset has of all keys."""
    xp = namespace(key_weights)
    shares = key_weights / xp.sum(key_weights, axis=1, keepdims=True)
    sums = sum_by_displacement(shares, layout.height, layout.width, xp)
    return float(sums[offset] / count[offset])


def find_nearest_peak(
    mean: NDArray[np.float64], count: NDArray[np.float64], n: int
) -> tuple[int, ...]:
    """Find the largest mean at offsets that half the positions have; among equals the nearest."""
    middle = np.array(mean.shape) // 2
    distances = sum(
        np.abs(axis) for axis in np.indices(mean.shape) - middle.reshape(-1, 1, 1)
    )
    candidates = np.argwhere(count >= n / 2)
    candidates = candidates[np.argsort(distances[tuple(candidates.T)], kind="stable")]
    row, column = candidates[np.argmax(mean[tuple(candidates.T)])].tolist()
    return row, column
