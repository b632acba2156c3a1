"""The hidden states that a model computes for a batch, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from posprobe.errors import UsageError
from posprobe.table import Grid, Layout, Sequence

if TYPE_CHECKING:
    import torch
    from torch import nn


def hidden_states(model: Any, batch: torch.Tensor) -> list[torch.Tensor]:
    """Run a model and return its hidden states: what enters the first layer, what leaves each.

    For models of transformers these are its ``hidden_states``, of which the last is often behind a
    final LayerNorm; for timm's vision transformers what the blocks themselves pass on.

    Parameters
    ----------
    model
        Of transformers or timm.
    batch
        ``[b, t]`` token ids or ``[b, channels, h, w]`` pixels, on the model's device.

    Returns
    -------
    list
        One ``[b, tokens, d]`` per layer, and one more.

    Raises
    ------
    UsageError
        If the model returns no hidden states of one shape.
    """
    states = _of_blocks(model, batch) if is_timm(model) else _returned(model, batch)
    shapes = {tuple(state.shape) for state in states}
    if len(shapes) != 1 or len(next(iter(shapes))) != 3:
        raise UsageError(
            f"{type(model).__name__}: its hidden states have the shapes "
            f"{', '.join(str(list(shape)) for shape in sorted(shapes))}: one vector per token, the "
            "same tokens at every layer, is expected."
        )
    return states


def positions_of(model: Any, batch: torch.Tensor, tokens: int) -> Layout:
    """Return how the positions of a batch are arranged; rows of special tokens come before them.

    Parameters
    ----------
    model, batch
        As for `hidden_states`.
    tokens
        How many hidden states a layer has.

    Raises
    ------
    UsageError
        If the patches cannot be told from the other tokens.
    """
    if batch.ndim == 2:
        return Sequence(tokens)
    size = getattr(getattr(model, "config", None), "patch_size", None)
    if is_timm(model):
        size = model.patch_embed.patch_size
    if size is None:
        raise UsageError(f"{type(model).__name__}: it does not say how large its patches are.")
    height, width = (size, size) if isinstance(size, int) else size
    grid = Grid(batch.shape[2] // height, batch.shape[3] // width)
    if not 0 < grid.size <= tokens:
        raise UsageError(f"{type(model).__name__}: {tokens} tokens hold no {grid} of patches.")
    return grid


@contextmanager
def hooks(
    modules: list[nn.Module], look: Callable[[nn.Module, object, object], None]
) -> Iterator[None]:
    """Call ``look(module, inputs, output)`` after each module; remove hooks whatever happens."""
    handles = []
    try:
        for module in modules:
            handles.append(module.register_forward_hook(look))  # noqa: PERF401 - all must be removed
        yield
    finally:
        for handle in handles:
            handle.remove()


def run(model: Any, batch: torch.Tensor, **options: Any) -> Any:
    """Call a model of transformers without its head for a task."""
    body = getattr(model, "base_model", model)
    if batch.ndim == 4:
        return body(pixel_values=batch, **options)
    if hasattr(body.config, "use_cache"):
        options["use_cache"] = False
    return body(input_ids=batch, **options)


def image_shape(model: Any) -> tuple[int, int, int] | None:
    """Return channels, height and width of the images that a model takes, None for text."""
    if is_timm(model):
        height, width = model.patch_embed.img_size
        return model.patch_embed.proj.in_channels, height, width
    config: Any = getattr(model, "config", None)
    size = getattr(config, "image_size", None)
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    return config.num_channels, height, width


def is_timm(model: Any) -> bool:
    """Tell whether a model is a vision transformer of timm."""
    return hasattr(model, "forward_features") and hasattr(model, "blocks")


def _of_blocks(model: Any, batch: torch.Tensor) -> list[torch.Tensor]:
    states: list[Any] = []

    def look(_: nn.Module, inputs: Any, output: object) -> None:
        if not states:
            states.append(inputs[0])
        states.append(output)

    with hooks(list(model.blocks), look):
        model.forward_features(batch)
    return states


def _returned(model: Any, batch: torch.Tensor) -> list[torch.Tensor]:
    name = type(model).__name__
    if not hasattr(model, "config"):
        raise UsageError(
            f"{name}: it is no model of transformers and no vision transformer of timm."
        )
    body = getattr(model, "base_model", model)
    if hasattr(body, "encoder") and hasattr(body, "decoder"):
        raise UsageError(
            f"{name}: it has an encoder and a decoder. Pass one of them: model.get_encoder()."
        )
    try:
        output = run(model, batch, output_hidden_states=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: it does not take such input ({error}).") from error
    states = getattr(output, "hidden_states", None)
    if not states:
        raise UsageError(f"{name}: it returns no hidden states.")
    return list(states)
