"""Running a model: observing its tensors, the layout of its tokens, and its errors."""

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

#: Name in messages of the states that a model returns.
LAST_STATES = "the last hidden states"


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of PyTorch or Python means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        sign in text
        for sign in (
            "out of memory",
            "not enough memory",
            "can't allocate memory",
            "alloc_failed",
        )
    )


def check_finite(
    model: Any, numbers: torch.Tensor, subject: str, title: str, n_previous: int = 0
) -> None:
    """Refuse numbers that a model computed for a batch of contexts if one is not finite.

    Parameters
    ----------
    model
        Model whose states these are.
    numbers
        ``[b, ...]``.
    subject
        They are called, such as "the hidden states at layer 3".
    title
        Name of the model, for messages.
    n_previous
        Contexts that were run before these.

    Raises
    ------
    InvalidTable
        Naming the first such context, and what to do.
    """
    is_finite = numbers.isfinite().flatten(1).all(dim=1)
    if bool(is_finite.all()):
        return
    if not has_finite_weights(model):
        advice = "Its weights hold such numbers too: the checkpoint is damaged. Use a sound copy."
    elif next(model.parameters()).element_size() < 4:
        advice = "It overflowed. Run it in float32: `dtype='float32'`."
    else:
        advice = (
            "It overflowed, in float32 or wider. Use other contexts, or a sound copy."
        )
    context = n_previous + int((~is_finite).nonzero()[0]) + 1
    raise InvalidTable(
        f"{title}: {subject} hold NaN or infinity in context {context}. {advice}"
    )


def has_finite_weights(model: Any) -> bool:
    """Tell whether all weights of a model that are in memory are finite."""
    parameters = [
        parameter for parameter in model.parameters() if parameter.device.type != "meta"
    ]
    return all(bool(parameter.isfinite().all()) for parameter in parameters)


@contextmanager
def explain_model_errors(model: Any) -> Iterator[None]:
    """Raise errors of a model's own code as errors of the model, not of this package.

    Raises
    ------
    UsageError
        If the model does not take such input, or fails otherwise. Errors for lack of memory stay
        as they are, because the caller can retry with less.
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
            f"{name}: its own code fails ({type(error).__name__}: "
            f"{first_line(error)}). Its configuration may not fit the "
            "installed library."
        ) from error


#: Attribute of a model of transformers that holds or returns each part that runs by itself.
SUBMODEL_ATTRIBUTES: Mapping[str, str] = {
    "encoder": "get_encoder",
    "decoder": "get_decoder",
    "text": "text_model",
    "vision": "vision_model",
}

#: Tensors that a model of transformers computes at each layer and returns on request.
TensorKind: TypeAlias = Literal["hidden_states", "attentions"]


@dataclass(frozen=True)
class HookPoint:
    """A point in a forward pass at which a tensor can be observed.

    Parameters
    ----------
    module
        Module that takes or returns it.
    call
        Number of the module's call, from 0: ALBERT calls one layer many times.
    key
        Key of the positional or named input, or of the part of the output; None where that is the
        tensor itself.
    is_output
        Whether it is returned, not taken.
    """

    module: nn.Module
    call: int
    key: int | str | None
    is_output: bool


def layer_numbers(model: Any) -> dict[nn.Module, int]:
    """Return the layer number of each module inside a layer."""
    matches = {
        module: re.search(r"(?:^|\.)(\d+)(?:\.|$)", path)
        for path, module in model.named_modules()
    }
    return {
        module: int(number_match[1])
        for module, number_match in matches.items()
        if number_match
    }


def compute_final_states(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Run a model and return its last hidden states ``[b, tokens, d]``.

    Those of transformers have often passed a final LayerNorm; those of vision transformers of timm
    are the output of the last block.

    Raises
    ------
    UsageError
        If the model returns none.
    """
    outputs: list[Any] = []
    if is_timm(model):
        with model.blocks[-1].register_forward_hook(
            lambda _, __, output: outputs.append(output)
        ):
            run_body(model, batch)
    else:
        outputs = [getattr(run_body(model, batch), "last_hidden_state", None)]
    if not outputs or getattr(outputs[0], "ndim", 0) != 3:
        raise UsageError(
            f"{type(model).__name__}: it returns no hidden states, one per token."
        )
    final: torch.Tensor = outputs[0]
    return final


def find_hook_points(
    model: Any, batch: torch.Tensor, kind: TensorKind
) -> Sequence[HookPoint]:
    """Find where a model's hidden states or attention appear, by a run on a single context.

    Models of transformers return these tensors on request: ``hidden_states`` are the input of the
    first layer and the output of each, the last often after a final LayerNorm; ``attentions`` are
    the weights of each layer, after the softmax. In vision transformers of timm they are the
    inputs and outputs of the blocks, and the inputs of their attention dropout.

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
        One hook point per tensor; empty if no module takes or returns one of them in its final
        form, so that `visit_tensors` has to keep all of them until the end of each batch.

    Raises
    ------
    UsageError
        If the model returns none, or hidden states of several shapes.
    """
    if is_timm(model):
        return _timm_hook_points(model, kind)
    # Weak references keep the memory of the run at that of its outputs.
    observed: list[tuple[ReferenceType[Any], HookPoint]] = []
    modules = list(model.modules())
    with _observe_modules(
        modules, lambda point, part: observed.append((ref(part), point))
    ):
        tensors = _run_for_tensors(model, batch[:1], kind)
    by_id: dict[int, HookPoint] = {}
    for reference, point in observed:
        # Outputs are final, whereas an input may still be overwritten.
        if reference() is not None and (point.is_output or id(reference()) not in by_id):
            by_id[id(reference())] = point
    points = [by_id[id(tensor)] for tensor in tensors if id(tensor) in by_id]
    copies: dict[int, torch.Tensor] = {}

    def copy(number: int, tensor: torch.Tensor) -> None:
        # A model may write to the output of a module, so the comparison needs a copy.
        copies[number] = tensor.clone()

    if len(points) == len(tensors):
        visit_tensors(model, batch[:1], points, kind, copy)
    is_complete = len(copies) == len(tensors)
    if is_complete and all(tensors[n].equal(tensor) for n, tensor in copies.items()):
        return points
    logger.info("The %s are kept until the end of each batch.", kind.replace("_", " "))
    return []


def _timm_hook_points(model: Any, kind: TensorKind) -> Sequence[HookPoint]:
    if kind == "hidden_states":
        first_point = HookPoint(model.blocks[0], 0, 0, is_output=False)
        return [
            first_point,
            *(HookPoint(block, 0, None, is_output=True) for block in model.blocks),
        ]
    attentions = [getattr(block, "attn", None) for block in model.blocks]
    if not all(
        hasattr(attention, "attn_drop") and hasattr(attention, "fused_attn")
        for attention in attentions
    ):
        raise UsageError(f"{type(model).__name__}: it shows no attention weights.")
    return [
        HookPoint(block.attn.attn_drop, 0, 0, is_output=False) for block in model.blocks
    ]


def visit_tensors(
    model: Any,
    batch: torch.Tensor,
    points: Sequence[HookPoint],
    kind: TensorKind,
    handle: Callable[[int, torch.Tensor], None],
) -> int:
    """Run a model, pass each tensor of a kind to a function, and return their number.

    Parameters
    ----------
    model, batch, kind
        Same as for `find_hook_points`.
    points
        Result of `find_hook_points`.
    handle
        Called with the number of the tensor, from 0, and the tensor. Where the model goes on with
        it, it must not be written to.
    """
    if not points:
        tensors = _run_for_tensors(model, batch, kind)
        for number, tensor in enumerate(tensors):
            handle(number, tensor)
        return len(tensors)
    visited: set[int] = set()

    def record(number: int, tensor: torch.Tensor) -> None:
        visited.add(number)
        handle(number, tensor)

    with observe_hook_points(points, record):
        run_body(model, batch)
    return len(visited)


@contextmanager
def observe_hook_points(
    points: Sequence[HookPoint], handle: Callable[[int, torch.Tensor], None]
) -> Iterator[None]:
    """Pass each tensor at some hook points to a function, in all runs within the block."""
    numbers = {point: number for number, point in enumerate(points)}

    def show(point: HookPoint, tensor: Any) -> None:
        if point in numbers:
            handle(numbers[point], tensor)

    with _observe_modules(list(dict.fromkeys(point.module for point in points)), show):
        yield


@contextmanager
def _observe_modules(
    modules: list[nn.Module], show: Callable[[HookPoint, Any], None]
) -> Iterator[None]:
    """Show every tensor of 3 or 4 axes that modules take or return within the block."""
    calls: Counter[nn.Module] = Counter()

    def show_parts(
        module: nn.Module, parts: Mapping[Any, Any], *, is_output: bool
    ) -> None:
        for key, tensor in parts.items():
            if getattr(tensor, "ndim", 0) in (3, 4):
                show(HookPoint(module, calls[module], key, is_output), tensor)

    def show_inputs(
        module: nn.Module, inputs: tuple[object, ...], keyword_inputs: dict[str, object]
    ) -> None:
        show_parts(module, dict(enumerate(inputs)) | keyword_inputs, is_output=False)

    def show_outputs(module: nn.Module, _: object, output: object) -> None:
        show_parts(module, _name_outputs(output), is_output=True)
        calls[module] += 1

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(
                module.register_forward_pre_hook(show_inputs, with_kwargs=True)
            )
            hooks.enter_context(module.register_forward_hook(show_outputs))
        yield


def find_layout(model: Any, batch: torch.Tensor, tokens: int) -> Layout:
    """Return the layout of a batch's positions, which special tokens precede.

    Parameters
    ----------
    model, batch
        Same as for `find_hook_points`.
    tokens
        Number of hidden states of a layer.

    Raises
    ------
    UsageError
        If patches and other tokens cannot be distinguished.
    """
    if batch.ndim < 4:
        return Line(tokens)
    size = getattr(getattr(model, "config", None), "patch_size", None)
    if is_timm(model):
        size = model.patch_embed.patch_size
    if size is None:
        raise UsageError(
            f"{type(model).__name__}: it does not say how large its patches are."
        )
    if getattr(getattr(model, "config", None), "num_detection_tokens", 0):
        raise UsageError(
            f"{type(model).__name__}: its last tokens are those of detections, not patches."
        )
    height, width = (size, size) if isinstance(size, int) else size
    grid = Grid(batch.shape[2] // height, batch.shape[3] // width)
    if not 0 < grid.size <= tokens:
        raise UsageError(
            f"{type(model).__name__}: {tokens} tokens hold no {grid} of patches."
        )
    return grid


def squared_norms(before: torch.Tensor, after: torch.Tensor) -> NDArray[np.float64]:
    """Return the squared norm of hidden states and that of their change."""
    wide_before = widen(before)
    return np.array(
        [
            float((states**2).sum())
            for states in (wide_before, after.to(wide_before.dtype) - wide_before)
        ]
    )


def widen(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers in double precision, or in single precision on MPS, which has no wider."""
    return numbers.float() if numbers.device.type == "mps" else numbers.double()


def image_shape(model: Any) -> tuple[int, int, int] | None:
    """Return channels, height and width of the images that a model takes; None for text."""
    if is_timm(model):
        height, width = model.patch_embed.img_size
        # A hybrid has other convolutions in its patch embedding, so the first kernel counts.
        projection = next(
            parameter
            for parameter in model.patch_embed.parameters()
            if parameter.ndim == 4
        )
        return projection.shape[1], height, width
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


def _name_outputs(output: object) -> Mapping[Any, object]:
    """Return the parts of a module's output by key; the key of an undivided output is None."""
    if isinstance(output, tuple | list):
        return dict(enumerate(output))
    return dict(output) if isinstance(output, Mapping) else {None: output}


def find_body(model: Any) -> Any:
    """Return a model of transformers without its head for a task."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    # The ``base_model`` of some models without a head is only a part of them.
    is_body = type(model).__name__ in MODEL_MAPPING_NAMES.values()
    return model if is_body else getattr(model, "base_model", model)


def find_submodels(model: Any) -> dict[str, Any]:
    """Return the parts of a model that run on tokens or pixels by themselves, by name."""
    submodels = {}
    for name, attribute in SUBMODEL_ATTRIBUTES.items():
        submodel = getattr(model, attribute, None)
        submodel = (
            submodel()
            if attribute.startswith("get_") and submodel is not None
            else submodel
        )
        parameters = (
            () if submodel is None else inspect.signature(submodel.forward).parameters
        )
        if submodel is not model and {"input_ids", "pixel_values"} & set(parameters):
            submodels[name] = submodel
    return submodels


#: Name of a model's input by its number of axes: token ids, features of sound, and pixels.
INPUT_NAMES = {2: "input_ids", 3: "input_features", 4: "pixel_values"}


def run_body(model: Any, batch: torch.Tensor, **options: Any) -> Any:
    """Run a model without its head for a task.

    Raises
    ------
    UsageError
        If the model is of neither library, or does not take such input.
    """
    name = type(model).__name__
    if is_timm(model):
        with explain_model_errors(model):
            return model.forward_features(batch)
    if not hasattr(model, "config"):
        raise UsageError(
            f"{name}: neither a model of transformers nor a vision transformer of timm."
        )
    body = find_body(model)
    if hasattr(body, "encoder") and hasattr(body, "decoder"):
        submodels = find_submodels(body)
        choices = " or ".join(
            f"REF#{submodel} (in Python model.{SUBMODEL_ATTRIBUTES[submodel]}())"
            for submodel in submodels
        )
        advice = (
            f"Name one of them: {choices}."
            if choices
            else "Neither takes tokens or pixels by itself."
        )
        raise UsageError(f"{name}: it has an encoder and a decoder. {advice}")
    if hasattr(body.config, "use_cache"):
        options["use_cache"] = False
    with explain_model_errors(model):
        return body(**{INPUT_NAMES[batch.ndim]: batch}, **options)


def _run_for_tensors(
    model: Any, batch: torch.Tensor, kind: TensorKind
) -> list[torch.Tensor]:
    """Run a model of transformers and return all its hidden states, or all attention."""
    name = type(model).__name__
    output = run_body(model, batch, **{f"output_{kind}": True})
    tensors = [
        tensor for tensor in getattr(output, kind, None) or () if tensor is not None
    ]
    if not tensors:
        subject = "hidden states" if kind == "hidden_states" else "attention weights"
        raise UsageError(f"{name}: it shows no {subject}.")
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if kind == "hidden_states" and (len(shapes) != 1 or len(next(iter(shapes))) != 3):
        raise UsageError(
            f"{name}: its hidden states, of shapes "
            f"{sorted(map(list, shapes))}, are not one vector per token at "
            "every layer."
        )
    return tensors
