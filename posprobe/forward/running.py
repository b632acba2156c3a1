"""A model at work: tensors seen as they appear, how its tokens lie, and what it fails at."""

from __future__ import annotations

import inspect
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidTable, PosprobeError, UsageError, first_line
from posprobe.layouts import Grid, Layout, Sequence as Line

if TYPE_CHECKING:
    import torch
    from torch import nn


logger = logging.getLogger("posprobe")

#: What the states are called that a model returns.
LAST = "the last hidden states"


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of PyTorch or Python means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        sign in text
        for sign in ("out of memory", "not enough memory", "can't allocate memory", "alloc_failed")
    )


def refuse_overflow(
    model: Any, numbers: torch.Tensor, what: str, title: str, done: int = 0
) -> None:
    """Refuse numbers that a model computed for a batch of contexts where one is not finite.

    Parameters
    ----------
    model
        Model whose states these are.
    numbers
        ``[b, ...]``.
    what
        They are called, such as "the hidden states at layer 3".
    title
        Name of the model, for messages.
    done
        Contexts that were run before these.

    Raises
    ------
    InvalidTable
        Naming the first such context, and what to do.
    """
    whole = numbers.isfinite().flatten(1).all(dim=1)
    if bool(whole.all()):
        return
    if not is_sound(model):
        why = "Its weights hold such numbers too: the checkpoint is damaged. Use a sound copy."
    elif next(model.parameters()).element_size() < 4:
        why = "It overflowed. Run it in float32: --dtype float32."
    else:
        why = "It overflowed, in float32 or wider. Use other contexts, or a sound copy."
    context = done + int((~whole).nonzero()[0]) + 1
    raise InvalidTable(f"{title}: {what} hold NaN or infinity in context {context}. {why}")


def is_sound(model: Any) -> bool:
    """Tell whether all weights of a model that are in memory are finite."""
    parameters = [part for part in model.parameters() if part.device.type != "meta"]
    return all(bool(part.isfinite().all()) for part in parameters)


@contextmanager
def running(model: Any) -> Iterator[None]:
    """Tell what a model's own code fails at as what it is: no fault of ours, and nothing measured.

    Raises
    ------
    UsageError
        If it does not take such input, or fails otherwise; what ran out of memory can be tried
        again with less, and stays as it is.
    """
    name = type(model).__name__
    try:
        yield
    except PosprobeError:
        raise
    except (TypeError, ValueError, IndexError, AssertionError) as error:
        raise UsageError(f"{name}: it does not take such input ({error}).") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UsageError(
            f"{name}: its own code fails ({type(error).__name__}: {first_line(error)}). Its "
            "configuration may not fit the installed library."
        ) from error


#: Parts of a model that can be run by themselves, and how transformers reaches them.
PARTS: Mapping[str, str] = {
    "encoder": "get_encoder", "decoder": "get_decoder", "text": "text_model",
    "vision": "vision_model",
}  # fmt: skip

#: What a model of transformers computes at each layer and can be asked to return.
Kind: TypeAlias = Literal["hidden_states", "attentions"]


@dataclass(frozen=True)
class HookPoint:
    """Where in a forward pass a tensor can be seen.

    Parameters
    ----------
    module
        Module that takes or returns it.
    call
        Number of the module's call, from 0: ALBERT calls one layer many times.
    key
        Key of the positional or named input, or of the part of the output; None where that is the
        tensor itself.
    returned
        Whether it is returned, not taken.
    """

    module: nn.Module
    call: int
    key: int | str | None
    returned: bool


def layer_numbers(model: Any) -> dict[nn.Module, int]:
    """Return the number of the layer that each module is in; those outside of layers have none."""
    places = {
        module: re.search(r"(?:^|\.)(\d+)(?:\.|$)", path) for path, module in model.named_modules()
    }
    return {module: int(place[1]) for module, place in places.items() if place}


def final_states(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Run a model and return its last hidden states ``[b, tokens, d]``.

    Those of transformers are often behind a final LayerNorm; for vision transformers of timm they
    are what the last block passes on.

    Raises
    ------
    UsageError
        If the model returns none.
    """
    found: list[Any] = []
    if is_timm(model):
        with model.blocks[-1].register_forward_hook(lambda _, __, output: found.append(output)):
            output_of(model, batch)
    else:
        found = [getattr(output_of(model, batch), "last_hidden_state", None)]
    if not found or getattr(found[0], "ndim", 0) != 3:
        raise UsageError(f"{type(model).__name__}: it returns no hidden states, one per token.")
    final: torch.Tensor = found[0]
    return final


def find_hook_points(model: Any, batch: torch.Tensor, kind: Kind) -> Sequence[HookPoint]:
    """Find where a model's hidden states or attention appear, by a run on a single context.

    For models of transformers these are what they return on request: of ``hidden_states`` what
    enters the first layer and what leaves each, of which the last is often behind a final
    LayerNorm; of ``attentions`` the weights of each layer, after the softmax. For vision
    transformers of timm they are what the blocks take and pass on, and what their dropout of
    attention takes.

    Parameters
    ----------
    model
        Model of transformers or timm; for attention, one that computes it step by step.
    batch
        ``[b, t]`` token ids or ``[b, channels, h, w]`` pixels, on the model's device.
    kind
        Kind of tensor to look for.

    Returns
    -------
    Sequence
        One hook point for each; empty where no module takes or returns one of them as it is in the
        end, so that `visit` has to keep all of them until the end of each batch.

    Raises
    ------
    UsageError
        If the model returns none, or hidden states of several shapes.
    """
    if is_timm(model):
        return _timm_hook_points(model, kind)
    # Weak, so that the run takes no more memory than what it returns.
    seen: list[tuple[ReferenceType[Any], HookPoint]] = []
    with _watched(list(model.modules()), lambda point, part: seen.append((ref(part), point))):
        wanted = _returned(model, batch[:1], kind)
    by_id: dict[int, HookPoint] = {}
    for part, point in seen:
        # What is returned is final; what is taken may be written over.
        if part() is not None and (point.returned or id(part()) not in by_id):
            by_id[id(part())] = point
    points = [by_id[id(tensor)] for tensor in wanted if id(tensor) in by_id]
    found: dict[int, torch.Tensor] = {}
    if len(points) == len(wanted):
        # A copy, since a model may write to what a module returned.
        visit(model, batch[:1], points, kind, lambda n, part: found.__setitem__(n, part.clone()))
    if len(found) == len(wanted) and all(wanted[n].equal(part) for n, part in found.items()):
        return points
    logger.info("The %s are kept until the end of each batch.", kind.replace("_", " "))
    return []


def _timm_hook_points(model: Any, kind: Kind) -> Sequence[HookPoint]:
    if kind == "hidden_states":
        first = HookPoint(model.blocks[0], 0, 0, returned=False)
        return [first, *(HookPoint(block, 0, None, returned=True) for block in model.blocks)]
    heads = [getattr(block, "attn", None) for block in model.blocks]
    if not all(hasattr(part, "attn_drop") and hasattr(part, "fused_attn") for part in heads):
        raise UsageError(f"{type(model).__name__}: it shows no attention weights.")
    return [HookPoint(block.attn.attn_drop, 0, 0, returned=False) for block in model.blocks]


def visit(
    model: Any,
    batch: torch.Tensor,
    points: Sequence[HookPoint],
    kind: Kind,
    look: Callable[[int, torch.Tensor], None],
) -> int:
    """Run a model, show each tensor of a kind as soon as it is there, and return how many came.

    Parameters
    ----------
    model, batch, kind
        Same as for `find_hook_points`.
    points
        Result of `find_hook_points`.
    look
        Called with the number of the tensor, from 0, and the tensor. Where the model goes on with
        it, it must not be written to.
    """
    if not points:
        tensors = _returned(model, batch, kind)
        for number, part in enumerate(tensors):
            look(number, part)
        return len(tensors)
    came: set[int] = set()

    def note(number: int, part: torch.Tensor) -> None:
        came.add(number)
        look(number, part)

    with seen_at(points, note):
        output_of(model, batch)
    return len(came)


@contextmanager
def seen_at(
    points: Sequence[HookPoint], look: Callable[[int, torch.Tensor], None]
) -> Iterator[None]:
    """Show each tensor of some hook points, as `visit` does, of whatever is run in the block."""
    numbers = {point: number for number, point in enumerate(points)}

    def show(point: HookPoint, part: Any) -> None:
        if point in numbers:
            look(numbers[point], part)

    with _watched(list(dict.fromkeys(point.module for point in points)), show):
        yield


@contextmanager
def _watched(modules: list[nn.Module], show: Callable[[HookPoint, Any], None]) -> Iterator[None]:
    """Show every tensor of 3 or 4 axes that modules take and return; stop whatever happens."""
    calls: Counter[nn.Module] = Counter()

    def each(module: nn.Module, parts: Mapping[Any, Any], *, returned: bool) -> None:
        for key, part in parts.items():
            if getattr(part, "ndim", 0) in (3, 4):
                show(HookPoint(module, calls[module], key, returned), part)

    def before(module: nn.Module, given: tuple[object, ...], named: dict[str, object]) -> None:
        each(module, dict(enumerate(given)) | named, returned=False)

    def after(module: nn.Module, _: object, output: object) -> None:
        each(module, _parts(output), returned=True)
        calls[module] += 1

    with ExitStack() as watching:
        for module in modules:
            watching.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
            watching.enter_context(module.register_forward_hook(after))
        yield


def positions_of(model: Any, batch: torch.Tensor, tokens: int) -> Layout:
    """Return how the positions of a batch are arranged; rows of special tokens come before them.

    Parameters
    ----------
    model, batch
        Same as for `find_hook_points`.
    tokens
        Number of hidden states of a layer.

    Raises
    ------
    UsageError
        If the patches cannot be told from the other tokens.
    """
    if batch.ndim == 2:
        return Line(tokens)
    size = getattr(getattr(model, "config", None), "patch_size", None)
    if is_timm(model):
        size = model.patch_embed.patch_size
    if size is None:
        raise UsageError(f"{type(model).__name__}: it does not say how large its patches are.")
    if getattr(getattr(model, "config", None), "num_detection_tokens", 0):
        raise UsageError(
            f"{type(model).__name__}: its last tokens are those of detections, not patches."
        )
    height, width = (size, size) if isinstance(size, int) else size
    grid = Grid(batch.shape[2] // height, batch.shape[3] // width)
    if not 0 < grid.size <= tokens:
        raise UsageError(f"{type(model).__name__}: {tokens} tokens hold no {grid} of patches.")
    return grid


def squared_norms(before: torch.Tensor, after: torch.Tensor) -> NDArray[np.float64]:
    """Return the squared norm of hidden states and that of their change."""
    first = wide(before)
    return np.array([float((part**2).sum()) for part in (first, after.to(first.dtype) - first)])


def wide(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers in double precision, or the widest that their device has."""
    return numbers.float() if numbers.device.type == "mps" else numbers.double()


def image_shape(model: Any) -> tuple[int, int, int] | None:
    """Return channels, height and width of the images that a model takes, None for text."""
    if is_timm(model):
        height, width = model.patch_embed.img_size
        # A hybrid has convolutions before its patches.
        first = next(part for part in model.patch_embed.parameters() if part.ndim == 4)
        return first.shape[1], height, width
    config: Any = getattr(model, "config", None)
    size = getattr(config, "image_size", None)
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    return config.num_channels, height, width


def is_timm(model: Any) -> bool:
    """Tell whether a model is a vision transformer of timm: blocks over patches."""
    patches = getattr(model, "patch_embed", None)
    return (
        hasattr(model, "forward_features")
        and hasattr(model, "blocks")
        and getattr(patches, "img_size", None) is not None
        and hasattr(patches, "patch_size")
    )


def _parts(output: object) -> Mapping[Any, object]:
    """Name the parts of what a module returned; None names a part that is the whole."""
    if isinstance(output, tuple | list):
        return dict(enumerate(output))
    return dict(output) if isinstance(output, Mapping) else {None: output}


def body_of(model: Any) -> Any:
    """Return a model of transformers without its head for a task."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    # Of some whole models the "base" is a part.
    whole = type(model).__name__ in MODEL_MAPPING_NAMES.values()
    return model if whole else getattr(model, "base_model", model)


def parts_of(model: Any) -> dict[str, Any]:
    """Return the parts of a model that take tokens or pixels by themselves, by name."""
    found = {}
    for name, attribute in PARTS.items():
        part = getattr(model, attribute, None)
        part = part() if attribute.startswith("get_") and part is not None else part
        takes = () if part is None else inspect.signature(part.forward).parameters
        if part is not model and {"input_ids", "pixel_values"} & set(takes):
            found[name] = part
    return found


def output_of(model: Any, batch: torch.Tensor, **options: Any) -> Any:
    """Run a model without its head for a task.

    Raises
    ------
    UsageError
        If it is of neither library, or does not take such input.
    """
    name = type(model).__name__
    if is_timm(model):
        with running(model):
            return model.forward_features(batch)
    if not hasattr(model, "config"):
        raise UsageError(
            f"{name}: neither a model of transformers nor a vision transformer of timm."
        )
    body = body_of(model)
    if hasattr(body, "encoder") and hasattr(body, "decoder"):
        parts = parts_of(body)
        ways = " or ".join(f"REF#{part} (in Python model.{PARTS[part]}())" for part in parts)
        known = (
            f"Name one of them: {ways}." if ways else "Neither takes tokens or pixels by itself."
        )
        raise UsageError(f"{name}: it has an encoder and a decoder. {known}")
    if hasattr(body.config, "use_cache"):
        options["use_cache"] = False
    with running(model):
        return body(**{"pixel_values" if batch.ndim == 4 else "input_ids": batch}, **options)


def _returned(model: Any, batch: torch.Tensor, kind: Kind) -> list[torch.Tensor]:
    """Return all hidden states, or all attention, of a model of transformers."""
    name = type(model).__name__
    output = output_of(model, batch, **{f"output_{kind}": True})
    tensors = [part for part in getattr(output, kind, None) or () if part is not None]
    if not tensors:
        what = "hidden states" if kind == "hidden_states" else "attention weights"
        raise UsageError(f"{name}: it shows no {what}.")
    shapes = {tuple(part.shape) for part in tensors}
    if kind == "hidden_states" and (len(shapes) != 1 or len(next(iter(shapes))) != 3):
        raise UsageError(
            f"{name}: its hidden states, of shapes {sorted(map(list, shapes))}, are not one vector "
            "per token at every layer."
        )
    return tensors
