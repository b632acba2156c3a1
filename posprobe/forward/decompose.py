"""Hidden states of a running model, averaged over contexts as they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posprobe.analyses.mean_decomposition import (
    MeanDecomposition,
    Moments,
    mean_decomposition,
    moments,
)
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.states import hidden_states, positions_of
from posprobe.forward.streaming import stream
from posprobe.table import Layout, cut

if TYPE_CHECKING:
    import torch


def decompose(
    model: Any,
    batches: Iterable[Array],
    *,
    positions: slice | None = None,
    layers: Sequence[int] | None = None,
    name: str | None = None,
) -> MeanDecomposition:
    """Measure what position adds to the hidden states of every layer (Song & Zhong 2023).

    Contexts are run batch by batch and added up where the model is; nothing else is kept, so memory
    does not grow with their number. It takes ``(t + d) * d`` numbers per layer. A batch that does
    not fit into the device's memory is halved, and so are those after it; how contexts are grouped
    changes results by rounding only. Interrupted with Ctrl-C, what was added up is returned and the
    result says so.

    Parameters
    ----------
    model
        Of transformers or timm, such as `load_model` builds.
    batches
        Token ids ``[b, t]`` or pixels ``[b, channels, h, w]``, NumPy or torch, all of one length or
        size and without padding.
    positions
        Which positions to look at: all where None; Song & Zhong take ``slice(1, 512)``. The model
        is run on whole contexts all the same. Tokens before the patches of an image are never
        among them.
    layers
        Which hidden states, 0 being what enters the first layer; all where None.
    name
        For the result; the class of the model where None.

    Raises
    ------
    UsageError
        If there are no contexts, they differ in length, positions or layers do not exist, a single
        context does not fit into memory, or the model returns no hidden states.
    InvalidTable
        If hidden states are not finite.
    """
    title = name or type(model).__name__

    def measure(
        batch: torch.Tensor, sums: Mapping[int, Moments]
    ) -> tuple[tuple[Layout, int], dict[int, Moments]]:
        states = hidden_states(model, batch)
        tokens = states[0].shape[1]
        whole = positions_of(model, batch, tokens)
        first, stop, layout = cut(whole, positions or slice(None), title)
        inside = slice(tokens - whole.size + first, tokens - whole.size + stop)
        return (layout, first), {
            number: moments(states[number][:, inside], sums[number].origin if sums else None)
            for number in _chosen(layers, len(states), title)
        }

    (layout, start), sums, notes = stream(model, batches, measure, title)
    return mean_decomposition(sums, layout=layout, start=start, name=title, notes=notes)


def _chosen(layers: Sequence[int] | None, count: int, title: str) -> list[int]:
    if layers is None:
        return list(range(count))
    if not layers or not all(0 <= layer < count for layer in layers):
        raise UsageError(f"{title}: layers {list(layers)}: choose some of 0 to {count - 1}.")
    return sorted(set(layers))
