"""Hidden states of a running model, averaged over contexts as they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posprobe.analyses.mean_decomposition import MeanDecomposition, mean_decomposition
from posprobe.analyses.moments import Moments, is_finite, moments
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.failing import overflowed, refuse_overflow
from posprobe.forward.models import required
from posprobe.forward.states import HookPoint, find_hook_points, positions_of, visit
from posprobe.forward.streaming import stream
from posprobe.layouts import Layout, cut

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
    does not grow with their number. Sums are up to three times ``(6 t + d) * d`` numbers per layer
    while they are joined. A batch that does not fit into the device's memory is halved, and so are
    those after it; how contexts are grouped changes results by rounding only. Interrupted with
    Ctrl-C, what was added up is returned and the result says so.

    Parameters
    ----------
    model
        A model of transformers or timm, such as `load_model` builds.
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

    Examples
    --------
    This needs the extra `models`. What positions add at layer 1 is a table like any other:

    >>> import posprobe as pp
    >>> model = pp.load_model("sample:digits-vit", device="cpu")
    >>> states = pp.decompose(model, pp.random_images((1, 8, 8), count=8))
    >>> table = states.table(1)
    >>> len(table), table.dim
    (64, 48)
    """
    title = name or type(model).__name__
    points: list[Sequence[HookPoint]] = []

    def refuse(number: int, state: torch.Tensor, done: int) -> None:
        if layers is None or number in layers:
            refuse_overflow(model, state, f"the hidden states at layer {number}", title, done)

    def measure(
        batch: torch.Tensor, sums: Mapping[int, Moments]
    ) -> tuple[tuple[Layout, int], dict[int, Moments]]:
        if not points:
            points.append(find_hook_points(model, batch, "hidden_states"))
        views: list[tuple[Layout, int]] = []
        found: dict[int, Moments] = {}

        def look(number: int, state: torch.Tensor) -> None:
            if layers is not None and number not in layers:
                return
            if len(state) != len(batch):
                raise UsageError(
                    f"{title}: it packs {len(batch)} contexts into {len(state)} sequences, which "
                    "is not supported."
                )
            tokens = state.shape[1]
            whole = positions_of(model, batch, tokens)
            first, stop, layout = cut(whole, positions or slice(None), title)
            inside = slice(tokens - whole.size + first, tokens - whole.size + stop)
            views[:] = [(layout, first)]
            found[number] = moments(state[:, inside], sums.get(number))

        count = visit(model, batch, points[0], "hidden_states", look)
        check_layers(layers, count, title)
        # One question for all layers, since a GPU has to be waited for.
        flags = [is_finite(sums).to(batch.device) for sums in found.values()]
        if not bool(required("torch").stack(flags).all()):
            done = next(iter(sums.values())).contexts if sums else 0
            visit(model, batch, points[0], "hidden_states", lambda n, part: refuse(n, part, done))
            raise overflowed(model, "sums of the hidden states", title, done)
        return views[0], found

    (layout, start), sums, stopped = stream(model, batches, measure, title)
    return mean_decomposition(sums, layout=layout, start=start, name=title, stopped=stopped)


def check_layers(layers: Sequence[int] | None, count: int, title: str) -> None:
    """Refuse layers that a model with so many hidden states does not have.

    Raises
    ------
    UsageError
        If one is not among them, or none is named.
    """
    if layers is not None and (not layers or not all(0 <= layer < count for layer in layers)):
        raise UsageError(f"{title}: layers {list(layers)}: choose some of 0 to {count - 1}.")
