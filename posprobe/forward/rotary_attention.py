"""Queries and keys of a running rotary model, seen where its layers hand them to attention."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import UsageError
from posprobe.forward.attend import step_by_step
from posprobe.forward.failing import running
from posprobe.forward.models import required
from posprobe.forward.states import body_of, is_timm
from posprobe.forward.streaming import first_position

if TYPE_CHECKING:
    import torch

#: Name under which attention is registered while it is looked at.
NAME = "posprobe_rotary"


@dataclass(frozen=True, eq=False)
class Handed:
    """What one layer hands to attention for a batch.

    Parameters
    ----------
    query, key
        ``[b, heads, t, d]`` and ``[b, groups, t, d]``, rotated.
    mask
        Additive or boolean; None where every key is seen.
    scale
        What dot products are multiplied by.
    cap
        What logits are capped at afterwards; None where they are not.
    """

    query: torch.Tensor
    key: torch.Tensor
    mask: torch.Tensor | None
    scale: float
    cap: float | None


def is_rotary(model: Any) -> bool:
    """Tell whether a model of transformers rotates queries and keys, for text."""
    return not is_timm(model) and any(map(_is_ladder, getattr(model, "modules", list)()))


def _is_ladder(module: Any) -> bool:
    return type(module).__name__.endswith("RotaryEmbedding")


def stated_context(model: Any) -> int | None:
    """Return the context that the configuration states, None where it states none."""
    config: Any = getattr(model, "config", None)
    found = getattr(config, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


@contextmanager
def _watched(model: Any, look: Callable[[int, Handed], None], title: str) -> Iterator[None]:
    """Show what each layer hands to attention; the layer's own attention goes on with it."""
    transformers = required("transformers")
    masks = transformers.masking_utils
    interface, mask_interface = transformers.AttentionInterface, transformers.AttentionMaskInterface
    numbers = _numbers(model)

    def attend(
        module: Any, query: Any, key: Any, value: Any, mask: Any, *more: Any, **named: Any
    ) -> Any:
        # Cross-attention has another number of keys, and no distance.
        if module in numbers and query.shape[2] == key.shape[2] and query.shape[2] > 1:
            scale = named.get("scaling", more[0] if more else None)
            cap = named.get("softcap")
            size = query.shape[-1] ** -0.5 if scale is None else float(scale)
            look(numbers[module], Handed(query, key, mask, size, cap))
        own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if own is None:
            raise UsageError(
                f"{title}: {type(module).__name__} has no step-by-step attention to go on with, "
                "so its queries and keys cannot be looked at."
            )
        return own(module, query, key, value, mask, *more, **named)

    interface.register(NAME, attend)
    # Without a mask function of that name the mask would be lost.
    mask_interface.register(NAME, masks.eager_mask)
    try:
        with step_by_step(model, title, NAME):
            yield
    finally:
        interface._global_mapping.pop(NAME, None)  # there is no public way back
        mask_interface._global_mapping.pop(NAME, None)


def _numbers(model: Any) -> dict[Any, int]:
    """Return the number of the layer that each module is in."""
    found = {}
    for path, module in model.named_modules():
        if place := re.search(r"(?:^|\.)(\d+)(?:\.|$)", path):
            found[module] = int(place[1])
    return found


def run_watched(
    model: Any,
    batch: torch.Tensor,
    look: Callable[[int, Handed], None],
    title: str,
    shift: int | None = None,
) -> Any:
    """Run a model, show what its layers hand to attention, and return its last hidden states."""
    with _watched(model, look, title):
        return last_states(model, batch, shift)


def last_states(model: Any, batch: torch.Tensor, shift: int | None = None) -> Any:
    """Run a batch of token ids ``[b, t]``, at positions so much later; return its last states."""
    body = body_of(model)
    options: dict[str, Any] = {}
    if hasattr(body.config, "use_cache"):
        options["use_cache"] = False
    if shift is not None:
        start = first_position(model) + shift
        places = required("torch").arange(start, start + batch.shape[1], device=batch.device)
        options["position_ids"] = places.expand(len(batch), -1)
    with running(model):
        found = body(input_ids=batch, **options)
    return found.last_hidden_state


@contextmanager
def ladders_seen(model: Any) -> Iterator[list[NDArray[np.float64]]]:
    """Collect the frequencies of every rotary embedding that is called, in radians per position."""
    pt = required("torch")
    found: list[NDArray[np.float64]] = []

    def note(module: Any, given: tuple[Any, ...], named: dict[str, Any], _: Any) -> None:
        # Cosines of a model in half precision are rounded; the module itself computes in float32.
        output = module.forward(
            *map(widened, given), **{key: widened(value) for key, value in named.items()}
        )
        ladder = _ladder(output, pt)
        if ladder is None and hasattr(module, "inv_freq"):
            ladder = module.inv_freq.detach().double().cpu().numpy()
        if ladder is not None and not any(np.array_equal(ladder, other) for other in found):
            found.append(ladder)

    handles = [
        module.register_forward_hook(note, with_kwargs=True)
        for module in model.modules()
        if _is_ladder(module)
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def widened(value: Any) -> Any:
    """Return numbers of half precision as float32, all else as it is."""
    wide = getattr(value, "is_floating_point", bool)
    return value.float() if wide() and value.element_size() < 4 else value


def _ladder(output: Any, pt: Any) -> NDArray[np.float64] | None:
    """Read frequencies off cosines and sines by position, or complex numbers; None of others."""
    if getattr(output, "is_complex", bool)():
        turned = output
    elif isinstance(output, tuple) and len(output) == 2 and output[0].shape == output[1].shape:
        turned = pt.complex(*(part.detach().double() for part in output))
    else:
        return None
    if turned.ndim < 2 or turned.shape[-2] < 2:
        return None
    # Of several axes any: text moves all alike.
    turned = turned.reshape(-1, *turned.shape[-2:])[0].to(pt.complex128)
    size = turned.abs()
    if not pt.allclose(size, size[:1].expand_as(size), rtol=1e-3):
        return None
    step: NDArray[np.float64] = (turned[1] * turned[0].conj()).angle().cpu().numpy()
    half = len(step) // 2
    for one, other in ((step[:half], step[half:]), (step[0::2], step[1::2])):
        # Cosines of both members of a pair, side by side or one half after the other.
        if len(step) % 2 == 0 and np.array_equal(one, other):
            return one
    return step
