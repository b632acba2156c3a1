"""Attention by offset, measured over contexts: mean curves, locality and symmetry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.similarity import sum_by_displacement
from posprobe.analyses.result import (
    HIDDEN,
    JsonType,
    NumberSuffixes,
    Result,
    StoredArray,
    WithGaps,
    centring_error,
)
from posprobe.arrays import Array, Sums, namespace, quotient, to_float64
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Layout
from posprobe.number_types import PAIR_LIMITS, Count, Natural, Reasons, limits

#: Later tokens with at most this mean attention count as masked. Masks leave exactly 0, or the
#: exponential of a large negative number.
MAX_HIDDEN_ATTENTION = 1e-9
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


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Attention of one layer's heads between positions, averaged over contexts.

    Parameters
    ----------
    curves
        ``[heads, 2 n - 1]``, or ``[heads, 2 h - 1, 2 w - 1]`` on a grid: mean attention at each
        offset, key minus query. In a sequence the first position is left out as a key: what many
        heads pay to it, wherever they are, is no preference for far offsets. The offset that it
        alone has is NaN.
    peak
        ``[heads, 1 or 2]``: offset at which the mean is farthest above that of uniform attention,
        among those that at least half of the positions have. Uniform causal attention by itself
        pays most to the same token. 0 where ``has_peak`` is not.
    has_peak
        ``[heads]``: whether a head prefers an offset. It does not where none of these is above
        uniform attention by more than rounding: where attention is even, and where it goes to what
        is no offset, such as the first position or CLS.
    first
        ``[heads]``: mean attention that the other positions pay to the first; NaN on a grid.
    special
        ``[heads]``: mean attention that positions pay to tokens that are none, such as CLS of an
        image model: what is missing in the curves.
    locality
        ``[heads]``, 0 to 1: mean of ``sum_j M_ij 2^-|i - j|`` over queries (Chen et al. 2023); NaN
        on a grid.
    symmetry
        ``[heads]``, 0 to 1: share of the attention to either side that the other side matches, see
        `symmetry`; NaN on a grid and where no attention leaves its own position.
    translation_invariance
        Share of the variance of the mean over heads, off the diagonal, that the offset explains;
        None where there is none. Causal attention leaves out later keys.
    """

    curves: Annotated[NDArray[np.float64], StoredArray()]
    peak: Annotated[
        Peaks, "The offset at which the mean is farthest above uniform attention."
    ]
    has_peak: NDArray[np.bool_]
    first: WithGaps
    special: WithGaps
    locality: WithGaps
    symmetry: WithGaps
    translation_invariance: float | None

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
class AttentionByOffset(Result):
    """Attention by offset, layer by layer.

    Parameters
    ----------
    layers
        Results by number of the layer, from 0.
    contexts
        Number of averaged contexts.
    layout
        Layout of the positions.
    name
        Name of the model.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    """

    figures: ClassVar[str] = "heads.plot_attention"

    layers: Annotated[Mapping[int, LayerAttention], limits(minItems=1), NumberSuffixes()]
    contexts: Natural
    layout: Layout
    name: Annotated[str, HIDDEN]
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def causal(self) -> Annotated[bool, "Whether no head looks at later positions."]:
        """Whether no head of any layer attends to later positions of a sequence."""
        n = self.layout.size
        return not isinstance(self.layout, Grid) and all(
            np.nanmax(layer.curves[:, n:], initial=0.0) < MAX_HIDDEN_ATTENTION
            for layer in self.layers.values()
        )

    @property
    def uniform_first(
        self,
    ) -> Annotated[float | None, "What uniform attention would pay it."]:
        """Uniform attention to the first position; None on a grid."""
        n = self.layout.size
        if isinstance(self.layout, Grid) or n == 1:
            return None
        return float(np.mean(1 / np.arange(2, n + 1))) if self.causal else 1 / n

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        reasons = {}
        if not all(layer.has_peak.all() for layer in self.layers.values()):
            reasons["peak"] = "a head prefers no offset"
        if isinstance(self.layout, Grid):
            sequence_keys = ("first", "locality", "symmetry")
            return reasons | dict.fromkeys(sequence_keys, "patches are not on a line")
        if any(np.isnan(layer.symmetry).any() for layer in self.layers.values()):
            reasons["symmetry"] = "a head attends to nothing on either side"
        if any(layer.translation_invariance is None for layer in self.layers.values()):
            reasons["translation_invariance"] = "attention is the same everywhere"
        return reasons


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


@dataclass(frozen=True, eq=False)
class AttentionSums(Sums):
    """Sums over contexts of one layer's attention.

    ``curves`` is ``[heads, 2 h - 1, 2 w - 1]``, of the pairs at each offset; ``mean`` ``[n, n]``,
    averaged over heads; ``first_position``, ``special``, ``locality``, ``symmetry`` and
    ``n_symmetric`` (the number of contexts in which symmetry is defined) are ``[heads]``;
    ``rounding`` is the relative error of a weight.
    """

    contexts: int
    rounding: float
    curves: NDArray[np.float64]
    mean: Array
    first_position: Array
    special: Array
    locality: Array
    symmetry: Array
    n_symmetric: Array


def sum_attention(weights: Array, layout: Layout) -> AttentionSums:
    """Sum a layer's attention over contexts, without keeping the matrices of single heads.

    Parameters
    ----------
    weights
        ``[c, heads, m, m]``, queries before keys; NumPy or torch. The last tokens are the positions
        and those before them special.
    layout
        Layout of the positions.

    Raises
    ------
    InvalidTable
        If the shape is another, or a weight is not finite.
    """
    n = layout.size
    if (
        weights.ndim != 4
        or 0 in weights.shape
        or not n <= weights.shape[2] == weights.shape[3]
    ):
        raise InvalidTable(
            f"attention of shape {list(weights.shape)}: [contexts, heads, "
            f"m, m] is expected, with m at least {n}."
        )
    xp = namespace(weights)
    eps = float(xp.finfo(weights.dtype).eps)
    on_mps = getattr(weights.device, "type", "") == "mps"
    wide = xp.float32 if on_mps else xp.float64
    if weights.dtype != wide:
        weights = xp.astype(weights, xp.float32)
    n_special = weights.shape[2] - n
    special = xp.sum(weights[:, :, n_special:, :n_special], axis=(0, 2, 3)) / n
    weights = weights[:, :, n_special:, n_special:]
    total = xp.sum(weights, axis=0)
    if not bool(xp.isfinite(xp.sum(total) + xp.sum(special))):
        raise InvalidTable(
            "the attention holds NaN or infinity. Run the model in float32."
        )
    symmetries = symmetry(weights)
    is_defined = ~xp.isnan(symmetries)
    height, width = layout.height, layout.width
    to_first = total[:, 1:, 0]
    is_counted = xp.asarray(
        _counted_pairs(layout), dtype=total.dtype, device=weights.device
    )
    defined_symmetries = xp.where(is_defined, symmetries, xp.zeros_like(symmetries))
    return AttentionSums(
        contexts=weights.shape[0],
        rounding=weights.shape[0] * eps,
        curves=sum_by_displacement(total * is_counted, height, width, xp),
        mean=xp.astype(xp.mean(total, axis=0), wide),
        first_position=xp.astype(xp.sum(to_first, axis=1) / max(n - 1, 1), wide),
        special=xp.astype(special, wide),
        locality=xp.astype(xp.sum(locality(weights), axis=0), wide),
        symmetry=xp.astype(xp.sum(defined_symmetries, axis=0), wide),
        n_symmetric=xp.astype(xp.sum(xp.astype(is_defined, weights.dtype), axis=0), wide),
    )


def _counted_pairs(layout: Layout) -> NDArray[np.float64]:
    """Return 1 for the pairs of query and key that curves count, and 0 for others: ``[n, n]``."""
    is_counted = np.ones((layout.size, layout.size))
    if not isinstance(layout, Grid) and layout.size > 1:
        is_counted[:, 0] = 0
    return is_counted


def locality(weights: Array) -> Array:
    """Return the locality of attention, the mean over queries of ``sum_j M_ij 2^-|i - j|``.

    Chen et al. 2023 (EMNLP Findings). 1 is attention to oneself; uniform attention over 20
    positions has 0.14.

    Parameters
    ----------
    weights
        ``[..., n, n]``, rows that add up to 1.
    """
    xp = namespace(weights)
    index = xp.arange(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    decay = 2.0 ** -xp.abs(index[:, None] - index[None, :])
    return xp.sum(weights * decay, axis=(-2, -1)) / weights.shape[-1]


def symmetry(weights: Array) -> Array:
    """Return the symmetry of attention to both sides.

    It is ``1 - sum |left - right| / sum (left + right)``, the sums over all queries and distances
    that fit on both sides. Chen et al. 2023 (EMNLP
    Findings) scale the differences of each row to run from 0 to 1 first. A row whose differences
    are equal then counts as symmetric, so that their number is 0.82 for attention to the previous
    token alone, and the smallest difference counts as much as the largest possible one. Here that
    head has 0, and uniform attention 1.

    Parameters
    ----------
    weights
        ``[..., n, n]``.

    Returns
    -------
    Array
        ``[...]``; NaN where no attention leaves its own position on such pairs.
    """
    xp = namespace(weights)
    n = weights.shape[-1]
    query = np.arange(n)[:, None]
    distance = np.arange(1, (n - 1) // 2 + 1)[None, :]
    is_inside = (distance <= query) & (distance < n - query)
    flat = xp.reshape(weights, (*weights.shape[:-2], n * n))
    sides = ((n * query + query + sign * distance)[is_inside] for sign in (-1, 1))
    left, right = (
        xp.take(flat, xp.asarray(i, device=flat.device), axis=-1) for i in sides
    )
    difference = xp.sum(xp.abs(left - right), axis=-1)
    total = xp.sum(left + right, axis=-1)
    divisor = xp.where(total > 0, total, xp.ones_like(total))
    return xp.where(total > 0, 1 - difference / divisor, xp.full_like(total, math.nan))


def attention_by_offset(
    sums: Mapping[int, AttentionSums],
    *,
    layout: Layout,
    name: str = "model",
    is_interrupted: bool = False,
) -> AttentionByOffset:
    """Compute attention by offset from sums over contexts.

    Parameters
    ----------
    sums
        Results of `sum_attention` by layer, all of the same contexts.
    layout, name, is_interrupted
        Fields of `AttentionByOffset`.
    """
    layers = {
        layer: _measure_layer(layer_sums, layout) for layer, layer_sums in sums.items()
    }
    contexts = next(iter(sums.values())).contexts
    return AttentionByOffset(layers, contexts, layout, name, is_interrupted)


def _measure_layer(sums: AttentionSums, layout: Layout) -> LayerAttention:
    is_grid = isinstance(layout, Grid)
    n = layout.size
    height, width = layout.height, layout.width
    is_counted = _counted_pairs(layout)
    count = np.rint(sum_by_displacement(is_counted, height, width, np))
    curves = quotient(sums.curves, sums.contexts * count)
    uniform, visible = np.full((n, n), 1 / n), np.ones((n, n))
    if (
        not is_grid
        and n > 1
        and np.nanmax(curves[:, 0, n:], initial=0.0) < MAX_HIDDEN_ATTENTION
    ):
        uniform, visible = np.tri(n) / np.arange(1, n + 1)[:, None], np.tri(n)
    uniform_sums = sum_by_displacement(uniform * is_counted, height, width, np)
    uniform_level = np.divide(uniform_sums, np.maximum(count, 1))
    # Attention is float32 or less, so smaller differences are rounding errors and no preference.
    excess = np.round(curves - uniform_level, 7)
    visible_count = sum_by_displacement(visible * is_counted, height, width, np)
    peak_indices = [
        _find_nearest_peak(head_excess, visible_count, n) for head_excess in excess
    ]
    rounding = sums.rounding / sums.contexts * uniform_level
    head_peaks = zip(excess, peak_indices, strict=True)
    has_peak = np.array([curve[index] > rounding[index] for curve, index in head_peaks])
    peaks = (np.array(peak_indices) - [height - 1, width - 1]) * has_peak[:, None]
    unknown = np.full(len(curves), np.nan)

    mean = to_float64(sums.mean) / sums.contexts
    symmetries = quotient(to_float64(sums.symmetry), to_float64(sums.n_symmetric))
    return LayerAttention(
        curves=curves if is_grid else curves[:, 0],
        peak=peaks if is_grid else peaks[:, 1:],
        has_peak=has_peak,
        first=unknown
        if is_grid or n < 2
        else to_float64(sums.first_position) / sums.contexts,
        special=to_float64(sums.special) / sums.contexts,
        locality=unknown if is_grid else to_float64(sums.locality) / sums.contexts,
        symmetry=unknown if is_grid else symmetries,
        translation_invariance=_translation_invariance(mean, height, width),
    )


def _find_nearest_peak(
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


def _translation_invariance(
    matrix: NDArray[np.float64], height: int, width: int
) -> float | None:
    is_pair = ~np.eye(len(matrix), dtype=bool)
    if not np.triu(matrix, 1).any():
        is_pair = np.tri(len(matrix), k=-1, dtype=bool)
    if is_pair.sum() < 2:
        return None
    pair_mean = matrix[is_pair].mean()
    centred = np.where(is_pair, matrix - pair_mean, 0.0)
    count = sum_by_displacement(is_pair.astype(np.float64), height, width, np)
    total = sum_by_displacement(centred, height, width, np)
    spread = float((centred**2).sum())
    n_pairs = int(is_pair.sum())
    if spread <= centring_error(np.abs(matrix[is_pair]).max(), n_pairs) ** 2 * n_pairs:
        return None
    return float((total**2 / np.maximum(count, 1)).sum() / spread)
