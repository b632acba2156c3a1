"""Averages over contexts: hidden states, attention by offset and distance, heads by weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from posprobe.analyses.models.attention import (
    AttentionByOffset,
    AttentionSums,
    attention_by_offset,
    attention_sums,
)
from posprobe.analyses.models.head_logits import HeadLogits, HeadsByLayer, head_logits
from posprobe.analyses.models.states import (
    MeanDecomposition,
    Moments,
    is_finite,
    mean_decomposition,
    moments,
)
from posprobe.arrays import Array
from posprobe.errors import InvalidTable, UsageError, explain_errors
from posprobe.families.layers import Reading, TableInModel, open_model, read_heads
from posprobe.forward.contexts import stream
from posprobe.forward.models import quietly, required
from posprobe.forward.running import (
    HookPoint,
    find_hook_points,
    is_timm,
    layer_numbers,
    positions_of,
    refuse_overflow,
    visit,
)
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
    while they are joined. How contexts are grouped changes results by rounding only. Interrupted
    with Ctrl-C, what was added up is returned and the result says so.

    Parameters
    ----------
    model
        A model of transformers or timm, such as `load_model` builds.
    batches
        Token ids ``[b, t]`` or pixels ``[b, channels, h, w]``, NumPy or torch, all of one length or
        size and without padding.
    positions
        Positions to look at: all where None; Song & Zhong take ``slice(1, 512)``. The model is run
        on whole contexts all the same. Tokens before the patches of an image are never among them.
    layers
        Numbers of the hidden states, 0 being what enters the first layer; all where None.
    name
        For the result; the class of the model where None.

    Raises
    ------
    UsageError
        If there are no contexts, they differ in length, positions or layers do not exist, a batch
        does not fit into memory, or the model returns no hidden states.
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
    views: list[tuple[Layout, int]] = []

    def measure(batch: torch.Tensor, done: int, sums: Mapping[int, Moments]) -> dict[int, Moments]:
        if not points:
            points.append(find_hook_points(model, batch, "hidden_states"))
        found: dict[int, Moments] = {}

        def look(number: int, state: torch.Tensor) -> None:
            if layers is not None and number not in layers:
                return
            if len(state) != len(batch):
                raise UsageError(
                    f"{title}: it packs contexts into sequences, which is not supported."
                )
            tokens = state.shape[1]
            whole = positions_of(model, batch, tokens)
            first, stop, layout = cut(whole, positions or slice(None), title)
            views[:] = [(layout, first)]
            refuse_overflow(model, state, f"the hidden states at layer {number}", title, done)
            inside = slice(tokens - whole.size + first, tokens - whole.size + stop)
            found[number] = moments(state[:, inside], sums.get(number))

        count = visit(model, batch, points[0], "hidden_states", look)
        check_layers(layers, count, title)
        return found

    sums, stopped = stream(model, batches, measure, title)
    if not all(bool(is_finite(part)) for part in sums.values()):
        raise InvalidTable(
            f"{title}: sums of its hidden states leave the range of numbers. Run it in float64: "
            "--dtype float64."
        )
    layout, start = views[0]
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


def attend(
    model: Any,
    batches: Iterable[Array],
    *,
    layers: Sequence[int] | None = None,
    name: str | None = None,
) -> AttentionByOffset:
    """Measure the mean attention at each offset, for every layer and head.

    Each layer's attention is reduced when it is computed and then given up; what is kept is one
    ``[n, n]`` matrix per layer, the mean over heads. Attention to tokens that are not positions,
    such as CLS of an image model, is counted apart, and what remains is not scaled up. Layers
    without attention have no number.

    With contexts of one word repeated (`posprobe.forward.contexts.repeated_tokens`) the first layer
    sees positions alone: the identical-word probing of Wang et al. 2021 (ICLR).

    Parameters
    ----------
    model, batches, name
        Same as for `decompose`.
    layers
        Numbers of the layers, from 0; all where None.

    Raises
    ------
    UsageError
        If the model shows no attention, a layer has none, or as for `decompose`.
    InvalidTable
        If attention is not finite.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> model = pp.load_model("sample:digits-vit", device="cpu")
    >>> attention = pp.attend(model, pp.random_images((1, 8, 8), count=8))
    >>> sorted(attention.layers)
    [0, 1]
    """
    title = name or type(model).__name__
    points: list[Sequence[HookPoint]] = []
    numbers: list[int] = []
    layouts: list[Layout] = []

    def measure(batch: torch.Tensor, done: int, _: object) -> dict[int, AttentionSums]:
        if not points:
            points.append(find_hook_points(model, batch, "attentions"))
            numbers[:] = _numbers(model, points[0])
        found: dict[int, AttentionSums] = {}

        def look(order: int, weights: torch.Tensor) -> None:
            number = numbers[order] if points[0] else order
            if layers is not None and number not in layers:
                return
            if len(weights) != len(batch) or weights.shape[2:] != weights.shape[-1:] * 2:
                raise UsageError(f"{title}: its attention is not from every token to every token.")
            layouts[:] = [positions_of(model, batch, weights.shape[-1])]
            refuse_overflow(model, weights, f"the attention at layer {number}", title, done)
            found[number] = attention_sums(weights, layouts[0])

        visit(model, batch, points[0], "attentions", look)
        if not set(layers or found) <= set(found):
            known = ", ".join(map(str, numbers))
            raise UsageError(f"{title}: some layers show none; those that do are {known}.")
        return found

    with step_by_step(model, title):
        sums, stopped = stream(model, batches, measure, title)
    return attention_by_offset(sums, layout=layouts[0], name=title, stopped=stopped)


def _numbers(model: Any, points: Sequence[HookPoint]) -> list[int]:
    """Return the numbers of layers in the model; in a hybrid some have no attention."""
    known = layer_numbers(model)
    numbers = [known[point.module] for point in points if point.module in known]
    # What is called many times, as ALBERT's layer is, goes by the order of calls.
    return numbers if len(set(numbers)) == len(points) else list(range(len(points)))


@contextmanager
def step_by_step(model: Any, title: str, way: str = "eager") -> Iterator[None]:
    """Have attention computed step by step, so that its weights exist.

    Parameters
    ----------
    model, title
        The model, and its name for messages.
    way
        Name of the attention function of transformers.
    """
    if is_timm(model):
        with ExitStack() as after:
            for block in model.blocks:
                part: Any = getattr(block, "attn", None)
                if hasattr(part, "fused_attn"):
                    after.callback(setattr, part, "fused_attn", part.fused_attn)
                    part.fused_attn = False
            yield
        return
    if not hasattr(model, "set_attn_implementation"):
        raise UsageError(
            f"{title}: neither a model of transformers nor a vision transformer of timm."
        )
    key = "_attn_implementation"
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    with ExitStack() as after:
        for config in configs.values():
            if hasattr(config, key):
                after.callback(setattr, config, key, getattr(config, key))
        what = f"{title}: it cannot show its attention"
        # What it warns of where layers ignore the setting is said once it is seen.
        with explain_errors(UsageError, what, "", ValueError), quietly(required("transformers")):
            model.set_attn_implementation(way)
        yield


def measure_heads(
    reference: str, *, heads: int | None = None, **reading: Unpack[Reading]
) -> HeadsByLayer:
    """Measure what the heads of every layer compute from positions, one layer at a time.

    The table and what stands beside it are read once, the weights of each layer when it is its
    turn; see `posprobe.families.effective_table` for the rows that meet them.

    Parameters
    ----------
    reference, heads, reading
        Same as for `posprobe.families.load_heads`.

    Raises
    ------
    PosprobeError
        As for `posprobe.families.load_heads`.

    Examples
    --------
    >>> import posprobe as pp
    >>> heads = pp.forward.measure_heads("sample:digits-vit")
    >>> sorted(heads.layers)
    [0, 1]
    >>> heads.layers[0].curves.shape
    (4, 15, 15)
    """
    model = open_model(reference, **reading)
    notes = model.notes
    if model.rule.norm:
        notes = (*notes, "the LayerNorm before each layer's attention is applied to the rows")
    if model.rule.shared:
        notes = (*notes, f"all {model.layers} layers share their weights: layer 0 stands for all")
    elif model.layers > 1:
        notes = (*notes, "above layer 0 rows follow the direct path: the layers below are left out")
    numbers = range(1 if model.rule.shared else model.layers)
    return HeadsByLayer({number: _measured(model, number, heads) for number in numbers}, notes)


def _measured(model: TableInModel, layer: int, heads: int | None) -> HeadLogits:
    found = read_heads(model, layer, heads)
    return head_logits(
        found.table, found.w_q, found.w_k, found.b_q, found.b_k,
        heads=found.heads, scale=found.scale, causal=found.causal,
    )  # fmt: skip
