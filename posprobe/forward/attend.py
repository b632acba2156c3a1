"""Attention of a running model by offset, reduced layer by layer as it appears."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from posprobe.analyses.attention_by_offset import (
    AttentionByOffset,
    AttentionSums,
    attention_by_offset,
    attention_sums,
)
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.states import hooks, is_timm, positions_of, run
from posprobe.forward.streaming import stream
from posprobe.table import Layout

if TYPE_CHECKING:
    import torch
    from torch import nn


def attend(model: Any, batches: Iterable[Array], *, name: str | None = None) -> AttentionByOffset:
    """Measure the mean attention at each offset, for every layer and head.

    Each layer's attention is reduced when it is computed and then given up; what is kept is one
    ``[n, n]`` matrix per layer, the mean over heads. Attention to tokens that are no positions,
    such as CLS of an image model, is counted apart, and what remains is not scaled up.

    With contexts of one word repeated (`posprobe.forward.contexts.repeated_tokens`) the first layer
    sees positions alone: the identical-word probing of Wang et al. 2021 (ICLR).

    Parameters
    ----------
    model, batches, name
        As for `decompose`.

    Raises
    ------
    UsageError
        If the model computes no attention that can be seen, or as for `decompose`.
    """
    title = name or type(model).__name__

    def measure(
        batch: torch.Tensor, _: Mapping[int, AttentionSums]
    ) -> tuple[Layout, dict[int, AttentionSums]]:
        found: dict[int, AttentionSums] = {}
        layouts: list[Layout] = []
        last: list[object] = []

        def look(_: nn.Module, inputs: Any, output: Any) -> None:
            weights = inputs[0] if is_timm(model) else _weights(output)
            # A module and the one around it hand on the same tensor.
            if weights is None or any(weights is seen for seen in last):
                return
            last[:] = [weights]
            layout = positions_of(model, batch, weights.shape[-1])
            layouts[:] = [layout]
            found[len(found)] = attention_sums(weights, layout)

        with hooks(_attention_modules(model), look):
            if is_timm(model):
                model.forward_features(batch)
            else:
                run(model, batch)
        if not found:
            raise UsageError(f"{title}: it shows no attention weights.")
        return layouts[0], found

    with _eager(model, title):
        layout, sums, notes = stream(model, batches, measure, title)
    return attention_by_offset(sums, layout=layout, name=title, notes=notes)


def _weights(output: Any) -> Any:
    """Return the attention weights among what a module returned, None where there are none."""
    for part in output[1:] if isinstance(output, tuple) else ():
        if getattr(part, "ndim", 0) == 4 and part.shape[2] == part.shape[3]:
            return part
    return None


def _attention_modules(model: Any) -> list[nn.Module]:
    if is_timm(model):
        return [block.attn.attn_drop for block in model.blocks]
    return [module for module in model.modules() if "attention" in type(module).__name__.lower()]


@contextmanager
def _eager(model: Any, title: str) -> Iterator[None]:
    """Have attention computed step by step, so that its weights exist."""
    if is_timm(model):
        fused = [block.attn.fused_attn for block in model.blocks]
        try:
            for block in model.blocks:
                block.attn.fused_attn = False
            yield
        finally:
            for block, before in zip(model.blocks, fused, strict=True):
                block.attn.fused_attn = before
        return
    if not hasattr(model, "set_attn_implementation"):
        raise UsageError(
            f"{title}: it is no model of transformers and no vision transformer of timm."
        )
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
    except ValueError as error:
        raise UsageError(f"{title}: it cannot show its attention ({error}).") from error
    try:
        yield
    finally:
        model.set_attn_implementation(before)
