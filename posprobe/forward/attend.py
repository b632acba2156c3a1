"""Attention of a running model by offset, reduced layer by layer as it appears."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from posprobe.analyses.attention_by_offset import (
    AttentionByOffset,
    AttentionSums,
    attention_by_offset,
    attention_sums,
)
from posprobe.arrays import Array
from posprobe.errors import InvalidTable, UsageError
from posprobe.forward.failing import refuse_overflow
from posprobe.forward.states import HookPoint, find_hook_points, is_timm, positions_of, visit
from posprobe.forward.streaming import stream
from posprobe.layouts import Layout

if TYPE_CHECKING:
    import torch


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
        As for `decompose`.
    layers
        Which layers, from 0; all where None.

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

    def measure(
        batch: torch.Tensor, sums: Mapping[int, AttentionSums]
    ) -> tuple[Layout, dict[int, AttentionSums]]:
        if not points:
            points.append(find_hook_points(model, batch, "attentions"))
        found: dict[int, AttentionSums] = {}
        layouts: list[Layout] = []

        def look(order: int, weights: torch.Tensor) -> None:
            number = numbers[order] if numbers else order
            if layers is not None and number not in layers:
                return
            if len(weights) != len(batch) or weights.shape[2:] != weights.shape[-1:] * 2:
                raise UsageError(f"{title}: its attention is not from every token to every token.")
            layout = positions_of(model, batch, weights.shape[-1])
            layouts[:] = [layout]
            try:
                found[number] = attention_sums(weights, layout)
            except InvalidTable:
                done = next(iter(sums.values())).contexts if sums else 0
                refuse_overflow(model, weights, f"the attention at layer {number}", title, done)
                raise

        if not numbers:
            numbers[:] = _numbers(model, points[0])
        visit(model, batch, points[0], "attentions", look)
        if not set(layers or found) <= set(found):
            known = ", ".join(map(str, numbers))
            raise UsageError(
                f"{title}: some of the layers {list(layers or ())} show none; those that do "
                f"are {known}."
            )
        return layouts[0], found

    with step_by_step(model, title):
        layout, sums, stopped = stream(model, batches, measure, title)
    return attention_by_offset(sums, layout=layout, name=title, stopped=stopped)


def _numbers(model: Any, points: Sequence[HookPoint]) -> list[int]:
    """Return the numbers of layers in the model; in a hybrid some have no attention."""
    paths = {module: path for path, module in model.named_modules()}
    found = [re.search(r"\d+", paths[point.module]) for point in points]
    numbers = [int(match[0]) for match in found if match]
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
        try:
            model.set_attn_implementation(way)
        except ValueError as error:
            raise UsageError(f"{title}: it cannot show its attention ({error}).") from error
        yield
