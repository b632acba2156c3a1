"""Observing the attention of every layer: queries, keys, values, masks, biases and outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import UsageError
from posprobe.forward.averages import use_stepwise_attention
from posprobe.forward.contexts import shifted_positions
from posprobe.forward.models import import_package
from posprobe.forward.running import find_body, layer_numbers, run_body

if TYPE_CHECKING:
    import torch


#: Name under which an attention function is registered while its inputs are observed.
ATTENTION_NAME = "posprobe_rotary"


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """Inputs of one layer's attention for a batch, and its output.

    Parameters
    ----------
    query, key
        ``[b, heads, t, d]`` and ``[b, groups, t, d]``, rotated.
    mask
        Additive or boolean mask; None if every key is visible.
    scale
        Factor of the dot products.
    cap
        Cap of the logits; None without one.
    bias
        Bias that is added to the logits beside the mask, ``[1 or b, heads, t, t]``; None without.
    value, output
        ``[b, groups, t, d]``, and ``[b, t, heads, d]`` as it is returned; None where neither is
        needed.
    weights
        ``[b, heads, t, t]``, attention of the keys; None where it is fused.
    """

    query: torch.Tensor
    key: torch.Tensor
    mask: torch.Tensor | None
    scale: float
    cap: float | None
    bias: torch.Tensor | None = None
    value: torch.Tensor | None = None
    output: torch.Tensor | None = None
    weights: torch.Tensor | None = None


#: Largest change of the outputs, over their norm, that rounding in single precision explains.
MAX_ROUNDING_CHANGE = 1e-4


@contextmanager
def observe_attention(
    model: Any, handle: Callable[[int, AttentionInputs], None], title: str
) -> Iterator[None]:
    """Pass on the inputs of each layer's attention, which then runs unchanged."""
    transformers = import_package("transformers")
    masks = transformers.masking_utils
    interface = transformers.AttentionInterface
    mask_interface = transformers.AttentionMaskInterface
    numbers, is_fused = layer_numbers(model), has_fused_attention(model)

    def attend(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        *extra: Any,
        **options: Any,
    ) -> Any:
        # Fused attention has no cap, no sinks and no bias.
        extras = (options.get(name) for name in ("softcap", "s_aux", "position_bias"))
        if is_fused and all(extra_input is None for extra_input in extras):
            # As in the model itself, a purely causal mask is passed as a flag and not added.
            is_causal = getattr(module, "is_causal", False) and _is_causal_mask(
                attention_mask
            )
            fused_mask = None if is_causal else attention_mask
            result = interface()["sdpa"](
                module, query, key, value, fused_mask, *extra, **options
            )
        else:
            eager_attention = _eager_attention(module, title)
            result = eager_attention(
                module, query, key, value, attention_mask, *extra, **options
            )
        # Cross-attention has another number of keys, and no distances.
        if module in numbers and query.shape[2] == key.shape[2] and query.shape[2] > 1:
            scale = _read_scale(query, extra, options)
            added = attention_mask, scale, options.get("softcap")
            bias = options.get("position_bias")
            inputs = AttentionInputs(query, key, *added, bias, value, *result[:2])
            handle(numbers[module], inputs)
        return result

    interface.register(ATTENTION_NAME, attend)
    # Without a mask function of that name transformers would pass no mask.
    mask_interface.register(ATTENTION_NAME, masks.eager_mask)
    try:
        with use_stepwise_attention(model, title, ATTENTION_NAME):
            yield
    finally:
        # The registry has no public method that removes a name.
        interface._global_mapping.pop(ATTENTION_NAME, None)
        mask_interface._global_mapping.pop(ATTENTION_NAME, None)


def _read_scale(
    query: torch.Tensor, extra: tuple[Any, ...], options: Mapping[str, Any]
) -> float:
    """Return the factor of the dot products: the declared one, or that of the width."""
    declared_scale = options.get("scaling", extra[0] if extra else None)
    return query.shape[-1] ** -0.5 if declared_scale is None else float(declared_scale)


def _eager_attention(module: Any, title: str) -> Callable[..., Any]:
    """Return the function that computes a module's attention step by step."""
    modeling = sys.modules[type(module).__module__]
    eager_attention: Callable[..., Any] | None = getattr(
        modeling, "eager_attention_forward", None
    )
    if eager_attention is None:
        raise UsageError(
            f"{title}: {type(module).__name__} has no step-by-step attention to go on "
            "with, so its queries and keys cannot be looked at."
        )
    return eager_attention


def _is_causal_mask(mask: torch.Tensor | None) -> bool:
    """Tell whether an additive mask ``[b, 1, t, t]`` hides later keys and no others."""
    if mask is None or mask.shape[-1] != mask.shape[-2]:
        return False
    pt = import_package("torch")
    is_earlier = pt.ones(mask.shape[-2:], dtype=pt.bool, device=mask.device).tril()
    return bool(((mask == 0) == is_earlier).all())


def has_fused_attention(model: Any) -> bool:
    """Tell whether a model uses PyTorch's fused attention, in single precision at least.

    It takes two thirds of the time of attention step by step, and rounds otherwise.
    """
    implementation = getattr(find_body(model).config, "_attn_implementation", None)
    return implementation == "sdpa" and next(model.parameters()).element_size() >= 4


def run_observed(
    model: Any,
    batch: torch.Tensor,
    handle: Callable[[int, AttentionInputs], None],
    title: str,
    shift: int | None = None,
) -> Any:
    """Run a model, pass on the inputs of its attention layers, and return its last states."""
    with observe_attention(model, handle, title):
        return run_shifted(model, batch, shift)


def run_shifted(model: Any, batch: torch.Tensor, shift: int | None = None) -> Any:
    """Run token ids ``[b, t]`` at positions that are ``shift`` later; return the last states."""
    options = (
        {} if shift is None else {"position_ids": shifted_positions(model, batch, shift)}
    )
    return run_body(model, batch, **options).last_hidden_state


def find_visible_keys(mask: torch.Tensor | None, length: int) -> NDArray[np.bool_] | None:
    """Return which keys each query sees, ``[length, length]``; None if it sees all.

    Masks are boolean, or added to the logits: hidden keys then have a number far below any bias.
    """
    if mask is None:
        return None
    pt = import_package("torch")
    is_visible = mask
    if mask.dtype != pt.bool:
        is_visible = mask > pt.finfo(mask.dtype).min / 2
    visible: NDArray[np.bool_] = is_visible[0, 0, :, -length:].cpu().numpy()
    return visible


def promote_half(value: torch.Tensor) -> torch.Tensor:
    """Return numbers of half precision as float32, others as they are."""
    return value.float() if value.element_size() < 4 else value


def observe_checked_inputs(
    model: Any, batch: torch.Tensor, title: str
) -> dict[int, AttentionInputs]:
    """Return each layer's attention inputs, and refuse a model whose outputs this changes."""
    pt = import_package("torch")
    layer_inputs: dict[int, AttentionInputs] = {}

    def add_inputs(number: int, inputs: AttentionInputs) -> None:
        if number in layer_inputs or len(inputs.query) != len(batch):
            raise UsageError(
                f"{title}: {type(model).__name__} calls the attention of layer {number} "
                "several times, or on parts of its input, so its queries and keys cannot "
                "be told apart."
            )
        layer_inputs[number] = inputs

    is_fused = has_fused_attention(model)
    with use_stepwise_attention(model, title, "sdpa" if is_fused else "eager"):
        plain_states = run_shifted(model, batch)
    observed_states = run_observed(model, batch, add_inputs, title)
    if not layer_inputs:
        raise UsageError(
            f"{title}: the layers of {type(model).__name__} do not use the "
            "attention interface of transformers, so their queries and "
            "keys cannot be seen."
        )
    difference = (plain_states - observed_states).nan_to_num()
    is_equal = (
        pt.equal(plain_states.isnan(), observed_states.isnan()) and not difference.any()
    )
    # Fused attention rounds differently with a mask, and a GPU adds up in another order.
    may_round = is_fused or plain_states.device.type != "cpu"
    max_change = MAX_ROUNDING_CHANGE * plain_states.nan_to_num().norm()
    if not (is_equal or (may_round and bool(difference.norm() <= max_change))):
        raise UsageError(
            f"{title}: outputs change when attention is looked at, by up to "
            f"{float(difference.abs().max()):.1e}, so it is not measured."
        )
    return layer_inputs
