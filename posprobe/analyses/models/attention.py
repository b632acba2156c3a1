"""What attention does with distance, measured: means over contexts, locality and symmetry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.similarity import by_displacement
from posprobe.analyses.models.head_logits import Peaked, Peaks, nearest_peak
from posprobe.analyses.result import HIDDEN, Part, Result, Stored, WithGaps, centring_error
from posprobe.arrays import Array, Sums, namespace, quotient, to_numpy
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Natural, Reasons, limits

#: Mean attention to later tokens up to which they are hidden: masks leave exactly 0, or the
#: exponential of a large negative number.
UNSEEN = 1e-9


@dataclass(frozen=True, eq=False)
class LayerAttention(Peaked):
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

    curves: Annotated[NDArray[np.float64], Stored()]
    peak: Annotated[Peaks, "The offset at which the mean is farthest above uniform attention."]
    has_peak: NDArray[np.bool_]
    first: WithGaps
    special: WithGaps
    locality: WithGaps
    symmetry: WithGaps
    translation_invariance: float | None


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

    layers: Annotated[Mapping[int, LayerAttention], limits(minItems=1), Part()]
    contexts: Natural
    layout: Layout
    name: Annotated[str, HIDDEN]
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def causal(self) -> Annotated[bool, "Whether no head looks at later positions."]:
        """Whether no head of any layer looks at later positions of a sequence."""
        n = self.layout.size
        return not isinstance(self.layout, Grid) and all(
            np.nanmax(layer.curves[:, n:], initial=0.0) < UNSEEN for layer in self.layers.values()
        )

    @property
    def uniform_first(self) -> Annotated[float | None, "What uniform attention would pay it."]:
        """What uniform attention would pay the first position; None on a grid."""
        n = self.layout.size
        if isinstance(self.layout, Grid) or n == 1:
            return None
        return float(np.mean(1 / np.arange(2, n + 1))) if self.causal else 1 / n

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        why = {}
        if not all(layer.has_peak.all() for layer in self.layers.values()):
            why["peak"] = "a head prefers no offset"
        if isinstance(self.layout, Grid):
            lacking = ("first", "locality", "symmetry")
            return why | dict.fromkeys(lacking, "patches are not on a line")
        if any(np.isnan(layer.symmetry).any() for layer in self.layers.values()):
            why["symmetry"] = "a head attends to nothing on either side"
        if any(layer.translation_invariance is None for layer in self.layers.values()):
            why["translation_invariance"] = "attention is the same everywhere"
        return why


@dataclass(frozen=True, eq=False)
class AttentionSums(Sums):
    """Sums over contexts of one layer's attention.

    ``curves`` is ``[heads, 2 h - 1, 2 w - 1]``, of the pairs at each offset; ``mean`` ``[n, n]``,
    averaged over heads; ``first``, ``special``, ``locality``, ``symmetry`` and ``symmetric`` (the
    number of contexts in which that is defined) are ``[heads]``; ``rounding`` is the relative
    error of a weight.
    """

    contexts: int
    rounding: float
    curves: NDArray[np.float64]
    mean: Array
    first: Array
    special: Array
    locality: Array
    symmetry: Array
    symmetric: Array


def attention_sums(weights: Array, layout: Layout) -> AttentionSums:
    """Add up a layer's attention over some contexts; no matrix of a single head is kept.

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
    if weights.ndim != 4 or 0 in weights.shape or not n <= weights.shape[2] == weights.shape[3]:
        raise InvalidTable(
            f"attention of shape {list(weights.shape)}: [contexts, heads, m, m] is expected, with "
            f"m at least {n}."
        )
    xp = namespace(weights)
    eps = float(xp.finfo(weights.dtype).eps)
    on_mps = getattr(weights.device, "type", "") == "mps"
    wide = xp.float32 if on_mps else xp.float64
    if weights.dtype != wide:
        weights = xp.astype(weights, xp.float32)
    before = weights.shape[2] - n
    special = xp.sum(weights[:, :, before:, :before], axis=(0, 2, 3)) / n
    weights = weights[:, :, before:, before:]
    total = xp.sum(weights, axis=0)
    if not bool(xp.isfinite(xp.sum(total) + xp.sum(special))):
        raise InvalidTable("the attention holds NaN or infinity. Run the model in float32.")
    even = symmetry(weights)
    known = ~xp.isnan(even)
    height, width = layout.height, layout.width
    others = total[:, 1:, 0]
    kept = xp.asarray(_keys(layout), dtype=total.dtype, device=weights.device)
    return AttentionSums(
        weights.shape[0],
        weights.shape[0] * eps,
        by_displacement(total * kept, height, width, xp),
        *(
            xp.astype(part, wide)
            for part in (
                xp.mean(total, axis=0),
                xp.sum(others, axis=1) / max(n - 1, 1),
                special,
                xp.sum(locality(weights), axis=0),
                xp.sum(xp.where(known, even, xp.zeros_like(even)), axis=0),
                xp.sum(xp.astype(known, weights.dtype), axis=0),
            )
        ),
    )


def _keys(layout: Layout) -> NDArray[np.float64]:
    """Return 1 for every pair that curves are made of, and 0 for the others: ``[n, n]``."""
    kept = np.ones((layout.size, layout.size))
    if not isinstance(layout, Grid) and layout.size > 1:
        kept[:, 0] = 0
    return kept


def locality(weights: Array) -> Array:
    """Return how near attention stays: the mean over queries of ``sum_j M_ij 2^-|i - j|``.

    Chen et al. 2023 (EMNLP Findings). 1 is attention to oneself; uniform attention over 20
    positions has 0.14.

    Parameters
    ----------
    weights
        ``[..., n, n]``, rows that add up to 1.
    """
    xp = namespace(weights)
    place = xp.arange(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    near = 2.0 ** -xp.abs(place[:, None] - place[None, :])
    return xp.sum(weights * near, axis=(-2, -1)) / weights.shape[-1]


def symmetry(weights: Array) -> Array:
    """Return how alike attention is to either side.

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
    place = np.arange(n)[:, None]
    distance = np.arange(1, (n - 1) // 2 + 1)[None, :]
    fits = (distance <= place) & (distance < n - place)
    flat = xp.reshape(weights, (*weights.shape[:-2], n * n))
    left, right = (
        xp.take(
            flat,
            xp.asarray((n * place + place + sign * distance)[fits], device=flat.device),
            axis=-1,
        )
        for sign in (-1, 1)
    )
    apart = xp.sum(xp.abs(left - right), axis=-1)
    both = xp.sum(left + right, axis=-1)
    filled = xp.where(both > 0, both, xp.ones_like(both))
    return xp.where(both > 0, 1 - apart / filled, xp.full_like(both, math.nan))


def attention_by_offset(
    sums: Mapping[int, AttentionSums],
    *,
    layout: Layout,
    name: str = "model",
    stopped: bool = False,
) -> AttentionByOffset:
    """Turn sums over contexts into attention by offset.

    Parameters
    ----------
    sums
        Results of `attention_sums` by layer, all of the same contexts.
    layout, name, stopped
        Fields of `AttentionByOffset`.
    """
    layers = {number: _layer(found, layout) for number, found in sums.items()}
    contexts = next(iter(sums.values())).contexts
    return AttentionByOffset(layers, contexts, layout, name, stopped)


def _layer(sums: AttentionSums, layout: Layout) -> LayerAttention:
    grid = isinstance(layout, Grid)
    n = layout.size
    height, width = layout.height, layout.width
    count = np.rint(by_displacement(_keys(layout), height, width, np))
    curves = quotient(sums.curves, sums.contexts * count)
    uniform, seen = np.full((n, n), 1 / n), np.ones((n, n))
    if not grid and n > 1 and np.nanmax(curves[:, 0, n:], initial=0.0) < UNSEEN:
        uniform, seen = np.tri(n) / np.arange(1, n + 1)[:, None], np.tri(n)
    level = np.divide(
        by_displacement(uniform * _keys(layout), height, width, np), np.maximum(count, 1)
    )
    # Attention is float32, or less: differences of its rounding are no preference.
    above = np.round(curves - level, 7)
    shown = by_displacement(seen * _keys(layout), height, width, np)
    places = [nearest_peak(each, shown, n) for each in above]
    has_peak = np.array([
        each[place] > sums.rounding / sums.contexts * level[place]
        for each, place in zip(above, places, strict=True)
    ])  # fmt: skip
    peaks = (np.array(places) - [height - 1, width - 1]) * has_peak[:, None]
    unknown = np.full(len(curves), np.nan)
    mean, first, special, near, even, symmetric = (
        to_numpy(part).astype(np.float64)
        for part in (
            sums.mean, sums.first, sums.special, sums.locality, sums.symmetry, sums.symmetric,
        )
    )  # fmt: skip
    return LayerAttention(
        curves=curves if grid else curves[:, 0],
        peak=peaks if grid else peaks[:, 1:],
        has_peak=has_peak,
        first=unknown if grid or n < 2 else first / sums.contexts,
        special=special / sums.contexts,
        locality=unknown if grid else near / sums.contexts,
        symmetry=unknown if grid else quotient(even, symmetric),
        translation_invariance=_invariance(mean / sums.contexts, height, width),
    )


def _invariance(matrix: NDArray[np.float64], height: int, width: int) -> float | None:
    pairs = ~np.eye(len(matrix), dtype=bool)
    if not np.triu(matrix, 1).any():
        pairs = np.tri(len(matrix), k=-1, dtype=bool)
    if pairs.sum() < 2:
        return None
    level = matrix[pairs].mean()
    rest = np.where(pairs, matrix - level, 0.0)
    count = by_displacement(pairs.astype(np.float64), height, width, np)
    total = by_displacement(rest, height, width, np)
    spread = float((rest**2).sum())
    count_of_pairs = int(pairs.sum())
    if spread <= centring_error(np.abs(matrix[pairs]).max(), count_of_pairs) ** 2 * count_of_pairs:
        return None
    return float((total**2 / np.maximum(count, 1)).sum() / spread)
