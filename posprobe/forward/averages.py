"""Averages over contexts: hidden states, and attention by offset and distance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from posprobe.analyses.models.attention import (
    AttentionByOffset,
    AttentionSums,
    attention_by_offset,
    sum_attention,
)
from posprobe.analyses.models.states import (
    MeanDecomposition,
    Moments,
    build_decomposition,
    has_finite_sums,
    sum_moments,
)
from posprobe.arrays import Array
from posprobe.errors import InvalidTable, UsageError, explain_errors
from posprobe.forward.contexts import sum_over_contexts
from posprobe.forward.models import import_package, silence_transformers
from posprobe.forward.running import (
    HookPoint,
    check_finite,
    find_hook_points,
    find_layout,
    is_timm,
    layer_numbers,
    observe_hook_points,
    run_body,
    visit_tensors,
)
from posprobe.layouts import Layout, slice_layout

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

    Contexts are run batch by batch and summed on the device of the model, so that memory does not
    grow with their number. Sums are up to three times ``(6 t + d) * d`` numbers per layer while
    they are joined. The batch size changes results only by rounding. After Ctrl-C, the result
    covers the contexts until then and says so.

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
    observer = StateObserver(model, name or type(model).__name__, positions, layers)

    def measure(
        batch: torch.Tensor, n_previous: int, sums: Mapping[int, Moments]
    ) -> dict[int, Moments]:
        with observer.observe(batch, n_previous, sums) as moments:
            if observer.has_hooks:
                run_body(model, batch)
        return moments

    return observer.build(*sum_over_contexts(model, batches, measure, observer.title))


class StateObserver:
    """Sums the hidden states of a model while batches run.

    Parameters
    ----------
    model, title
        The model, and its name for messages.
    positions, layers
        Same as for `decompose`.
    """

    def __init__(
        self,
        model: Any,
        title: str,
        positions: slice | None = None,
        layers: Sequence[int] | None = None,
    ) -> None:
        self.model, self.title = model, title
        self._positions, self._layers = positions or slice(None), layers
        self._points: Sequence[HookPoint] | None = None
        self._layout: tuple[Layout, int] | None = None

    @property
    def has_hooks(self) -> bool:
        """Whether states are seen in the one run of the block; it runs the model itself if not."""
        return bool(self._points)

    @contextmanager
    def observe(
        self, batch: torch.Tensor, n_previous: int, sums: Mapping[int, Moments]
    ) -> Iterator[dict[int, Moments]]:
        """Sum the states of a batch by layer; with `has_hooks`, the block runs it exactly once.

        Parameters
        ----------
        batch
            Contexts.
        n_previous, sums
            Contexts before them, and the sums of those.
        """
        if self._points is None:
            self._points = find_hook_points(self.model, batch, "hidden_states")
        moments: dict[int, Moments] = {}
        n_seen: set[int] = set()

        def add_moments(layer: int, state: torch.Tensor) -> None:
            n_seen.add(layer)
            if self._layers is None or layer in self._layers:
                kept_state = self._select_positions(batch, layer, state, n_previous)
                moments[layer] = sum_moments(kept_state, sums.get(layer))

        if self._points:
            with observe_hook_points(self._points, add_moments):
                yield moments
        else:
            yield moments
            visit_tensors(self.model, batch, (), "hidden_states", add_moments)
        check_layers(self._layers, len(n_seen), self.title)

    def _select_positions(
        self, batch: torch.Tensor, layer: int, state: torch.Tensor, n_previous: int
    ) -> torch.Tensor:
        """Return the states of the positions, and refuse those that are not finite."""
        title = self.title
        if len(state) != len(batch):
            raise UsageError(
                f"{title}: it packs contexts into sequences, which is not supported."
            )
        tokens = state.shape[1]
        full_layout = find_layout(self.model, batch, tokens)
        first_position, stop_position, layout = slice_layout(
            full_layout, self._positions, title
        )
        self._layout = layout, first_position
        subject = f"the hidden states at layer {layer}"
        check_finite(self.model, state, subject, title, n_previous)
        n_before = tokens - full_layout.size
        return state[:, n_before + first_position : n_before + stop_position]

    def build(
        self, sums: Mapping[int, Moments], is_interrupted: bool
    ) -> MeanDecomposition:
        """Split the states into a mean, what positions add, and what contexts add.

        Raises
        ------
        InvalidTable
            If sums leave the range of numbers.
        """
        if self._layout is None or not all(
            bool(has_finite_sums(layer_sums)) for layer_sums in sums.values()
        ):
            raise InvalidTable(
                f"{self.title}: sums of its hidden states leave the range of "
                "numbers. Run it in float64: `dtype='float64'`."
            )
        layout, start = self._layout
        return build_decomposition(
            sums,
            layout=layout,
            start=start,
            name=self.title,
            is_interrupted=is_interrupted,
        )


def check_layers(layers: Sequence[int] | None, count: int, title: str) -> None:
    """Refuse layers that are not among the ``count`` hidden states of a model.

    Raises
    ------
    UsageError
        If a layer does not exist, or the list is empty.
    """
    if layers is not None and (
        not layers or not all(0 <= layer < count for layer in layers)
    ):
        raise UsageError(
            f"{title}: layers {list(layers)}: choose some of 0 to {count - 1}."
        )


def attend(
    model: Any,
    batches: Iterable[Array],
    *,
    layers: Sequence[int] | None = None,
    name: str | None = None,
) -> AttentionByOffset:
    """Measure the mean attention at each offset, for every layer and head.

    Each layer's attention is reduced as soon as it is computed, to one ``[n, n]`` matrix per layer,
    the mean over heads. Attention to tokens that are not positions, such as CLS of an image model,
    is counted separately, and the remaining attention is not scaled up. Layers without attention
    have no number.

    With contexts of one word repeated (`posprobe.forward.contexts.repeated_tokens`) the first layer
    depends on positions alone: the identical-word probing of Wang et al. 2021 (ICLR).

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
    attention_layers: list[int] = []
    layouts: list[Layout] = []

    def measure(
        batch: torch.Tensor, n_previous: int, _: object
    ) -> dict[int, AttentionSums]:
        if not points:
            points.append(find_hook_points(model, batch, "attentions"))
            attention_layers[:] = find_attention_layers(model, points[0])
        batch_sums: dict[int, AttentionSums] = {}

        def add_attention(index: int, weights: torch.Tensor) -> None:
            layer = attention_layers[index] if points[0] else index
            if layers is not None and layer not in layers:
                return
            if len(weights) != len(batch) or weights.shape[2:] != weights.shape[-1:] * 2:
                raise UsageError(
                    f"{title}: its attention is not from every token to every token."
                )
            layouts[:] = [find_layout(model, batch, weights.shape[-1])]
            check_finite(
                model, weights, f"the attention at layer {layer}", title, n_previous
            )
            batch_sums[layer] = sum_attention(weights, layouts[0])

        visit_tensors(model, batch, points[0], "attentions", add_attention)
        if not set(layers or batch_sums) <= set(batch_sums):
            layer_list = ", ".join(map(str, attention_layers))
            raise UsageError(
                f"{title}: some layers show none; those that do are {layer_list}."
            )
        return batch_sums

    with use_stepwise_attention(model, title):
        sums, is_interrupted = sum_over_contexts(model, batches, measure, title)
    return attention_by_offset(
        sums, layout=layouts[0], name=title, is_interrupted=is_interrupted
    )


def find_attention_layers(model: Any, points: Sequence[HookPoint]) -> list[int]:
    """Return the layer numbers of hook points; some layers of a hybrid have no attention."""
    layers_by_module = layer_numbers(model)
    numbers = [
        layers_by_module[point.module]
        for point in points
        if point.module in layers_by_module
    ]
    # A layer that is called many times, such as ALBERT's, is numbered by the order of calls.
    return numbers if len(set(numbers)) == len(points) else list(range(len(points)))


@contextmanager
def use_stepwise_attention(
    model: Any, title: str, implementation: str = "eager"
) -> Iterator[None]:
    """Compute attention step by step within the block, so that its weights exist.

    Parameters
    ----------
    model, title
        The model, and its name for messages.
    implementation
        Name of the attention function of transformers.
    """
    if is_timm(model):
        with ExitStack() as cleanup:
            for block in model.blocks:
                attention: Any = getattr(block, "attn", None)
                if hasattr(attention, "fused_attn"):
                    cleanup.callback(
                        setattr, attention, "fused_attn", attention.fused_attn
                    )
                    attention.fused_attn = False
            yield
        return
    if not hasattr(model, "set_attn_implementation"):
        raise UsageError(
            f"{title}: neither a model of transformers nor a vision transformer of timm."
        )
    key = "_attn_implementation"
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    with ExitStack() as cleanup:
        for config in configs.values():
            if hasattr(config, key):
                cleanup.callback(setattr, config, key, getattr(config, key))
        subject = f"{title}: it cannot show its attention"
        # Warnings about layers that ignore the setting are redundant: those show no attention.
        with (
            explain_errors(UsageError, subject, "", ValueError),
            silence_transformers(import_package("transformers")),
        ):
            model.set_attn_implementation(implementation)
        yield
