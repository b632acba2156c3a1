"""What a model's hidden states owe to position: means over contexts.

The decomposition ``h = mean + pos_t + ctx_c + rest`` of Song & Zhong 2023 (arXiv 2310.04861), from
sums that are added up as contexts come in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import Result
from posprobe.arrays import Array, namespace, to_numpy
from posprobe.errors import InvalidTable, UsageError
from posprobe.table import Layout, PositionTable, Source, describe_layout


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over contexts of one layer's hidden states; ``+`` joins those of different contexts.

    Their size does not depend on the number of contexts. Every state is taken relative to a fixed
    ``origin``, so that a large common mean costs no digits.

    Parameters
    ----------
    contexts
        How many there are.
    origin
        ``[d]``.
    within, within_squares
        ``[t, d]``: of each state less the mean of its context, and of the square of that.
    context, context_squares
        ``[d]`` and a number: of the means of contexts less the origin, and of their squared norm.
    gram
        ``[d, d]``: of the products of a state, less the origin, with itself.
    """

    contexts: int
    origin: Array
    within: Array
    within_squares: Array
    context: Array
    context_squares: Array
    gram: Array

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.contexts + other.contexts,
            self.origin,
            self.within + other.within,
            self.within_squares + other.within_squares,
            self.context + other.context,
            self.context_squares + other.context_squares,
            self.gram + other.gram,
        )


def moments(states: Array, origin: Array | None = None) -> Moments:
    """Add up the hidden states of one layer over some contexts.

    Parameters
    ----------
    states
        ``[c, t, d]``: contexts, positions, width; NumPy or torch, of any float type. Sums are
        float64, on MPS float32.
    origin
        ``[d]``, as returned in the moments that these will be added to; the mean where None.

    Raises
    ------
    InvalidTable
        If the shape is another, or a state is not finite.
    """
    if states.ndim != 3 or 0 in states.shape:
        raise InvalidTable(
            f"hidden states of shape {list(states.shape)}: [contexts, positions, width] are needed."
        )
    xp = namespace(states)
    on_mps = getattr(states.device, "type", "") == "mps"
    states = xp.astype(states, xp.float32 if on_mps else xp.float64)
    if not bool(xp.all(xp.isfinite(states))):
        raise InvalidTable(
            "the hidden states hold NaN or infinity: the model overflowed. Run it in float32."
        )
    if origin is None:
        origin = xp.mean(states, axis=(0, 1))
    states = states - origin
    means = xp.mean(states, axis=1)
    within = states - means[:, None, :]
    flat = xp.reshape(states, (-1, states.shape[2]))
    return Moments(
        contexts=states.shape[0],
        origin=origin,
        within=xp.sum(within, axis=0),
        within_squares=xp.sum(within**2, axis=0),
        context=xp.sum(means, axis=0),
        context_squares=xp.sum(means**2),
        gram=xp.matmul(flat.T, flat),
    )


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
        Of ``pos``: sum of squared singular values over the largest; None where ``pos`` is 0.
    relative_norm
        Largest singular value of ``pos``, repeated for every context, over that of all states less
        their mean: the definition in Song & Zhong's code, which samples contexts for the latter.
    shares
        Of the states' variance: ``position``, ``context`` and ``rest``; they add up to 1.
    """

    mean: NDArray[np.float64]
    pos: NDArray[np.float64]
    error: NDArray[np.float64]
    stable_rank: float | None
    relative_norm: float | None
    shares: Mapping[str, float] | None


@dataclass(frozen=True, eq=False)
class MeanDecomposition(Result):
    """What positions add to the hidden states of a model, layer by layer.

    Parameters
    ----------
    layers
        By number: 0 is what enters the first layer.
    contexts
        How many were averaged.
    layout, start
        Of the positions.
    name
        Of the model.
    notes
        What a reader must know, such as that the run was stopped early.
    """

    layers: Mapping[int, LayerMeans]
    contexts: int
    layout: Layout
    start: int
    name: str
    notes: tuple[str, ...] = ()

    def table(self, layer: int) -> PositionTable:
        """Return what positions add at a layer as a table, so that every analysis applies to it.

        Raises
        ------
        UsageError
            If that layer was not measured.
        """
        if layer not in self.layers:
            known = ", ".join(map(str, self.layers))
            raise UsageError(f"{self.name}: layer {layer} was not measured. There are {known}.")
        return PositionTable(
            self.layers[layer].pos,
            self.layout,
            name=f"{self.name}, layer {layer}",
            source=Source(self.name, f"mean over {self.contexts} contexts at layer {layer}"),
            start=self.start,
            notes=("measured: mean over contexts less the mean over positions", *self.notes),
        )

    def summary(self) -> dict[str, Any]:
        """Return the numbers of every layer."""
        flat = [n for n, layer in self.layers.items() if layer.shares is None]
        alike = [n for n, layer in self.layers.items() if layer.stable_rank is None]
        undefined = {}
        if flat:
            undefined["relative_norm"] = f"all hidden states are equal at the layers {flat}"
        if alike:
            undefined["stable_rank"] = f"positions add nothing at the layers {alike}"
        return {
            "contexts": self.contexts,
            "layout": describe_layout(self.layout),
            "start": self.start,
            "layers": [
                {
                    "layer": number,
                    "stable_rank": layer.stable_rank,
                    "relative_norm": layer.relative_norm,
                    "relative_norm_frobenius": math.sqrt(layer.shares["position"])
                    if layer.shares
                    else None,
                    "shares": dict(layer.shares) if layer.shares else None,
                }
                for number, layer in self.layers.items()
            ],
            "undefined": undefined,
        }


def mean_decomposition(
    sums: Mapping[int, Moments],
    *,
    layout: Layout,
    start: int = 0,
    name: str = "model",
    notes: Sequence[str] = (),
) -> MeanDecomposition:
    """Turn sums over contexts into the decomposition.

    Parameters
    ----------
    sums
        By layer, as `moments` makes them, all of the same contexts.
    layout, start, name, notes
        As in `MeanDecomposition`.

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
    return MeanDecomposition(
        layers={number: _layer(found) for number, found in sums.items()},
        contexts=next(iter(sums.values())).contexts,
        layout=layout,
        start=start,
        name=name,
        notes=tuple(notes),
    )


def _layer(sums: Moments) -> LayerMeans:
    c = sums.contexts
    origin, within, squares, context, gram = (
        to_numpy(array).astype(np.float64)
        for array in (sums.origin, sums.within, sums.within_squares, sums.context, sums.gram)
    )
    t = len(within)
    pos = within / c
    error = np.full_like(pos, np.nan)
    if c > 1:
        error = np.sqrt(np.maximum(squares / c - pos**2, 0.0) / (c - 1))
    away = context / c
    centred = gram - c * t * np.outer(away, away)
    total = float(np.trace(centred))
    by_position = c * float((pos**2).sum())
    by_context = t * max(float(sums.context_squares) - c * float(away @ away), 0.0)
    singular = np.linalg.svd(pos, compute_uv=False)
    # What centring leaves of equal states is rounding.
    scale = float(np.trace(gram)) + c * t * float(origin @ origin)
    varies, moves = total > 1e-24 * scale, by_position > 1e-24 * scale
    rest = max(total - by_position - by_context, 0.0)
    return LayerMeans(
        mean=origin + away,
        pos=pos,
        error=error,
        stable_rank=float((singular**2).sum() / singular[0] ** 2) if moves else None,
        relative_norm=math.sqrt(c) * float(singular[0]) / math.sqrt(_largest(centred))
        if varies
        else None,
        shares={
            "position": by_position / total,
            "context": by_context / total,
            "rest": rest / total,
        }
        if varies
        else None,
    )


def _largest(matrix: NDArray[np.float64]) -> float:
    """Return the largest eigenvalue of a symmetric matrix that has no negative ones."""
    from scipy.linalg import eigvalsh

    last = len(matrix) - 1
    return float(eigvalsh(matrix, subset_by_index=[last, last])[0])
