"""Record the position ids that each rotary layer of a model receives."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from posprobe.analyses.models.positions import PositionIds
from posprobe.errors import UsageError
from posprobe.forward.models import evaluation_mode, import_package, unwrap_model
from posprobe.forward.running import explain_model_errors, layer_numbers


def positions_of(model: Any, inputs: Any) -> PositionIds:
    """Record the position ids that each rotary layer received for a prompt.

    Parameters
    ----------
    model
        Rotary model of transformers.
    inputs
        Token ids ``[b, t]``, or a mapping of the model's inputs, as a processor returns it. The
        first of a batch is recorded.

    Raises
    ------
    UsageError
        If no layer received position ids.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> from transformers import LlamaConfig, LlamaModel
    >>> config = LlamaConfig(
    ...     hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    ...     vocab_size=50,
    ... )
    >>> pp.positions_of(LlamaModel(config), [[5, 6, 7]]).ids.tolist()
    [[[0, 1, 2]]]
    """
    pt = import_package("torch")
    model = unwrap_model(model)
    ids_by_cosines: dict[int, Any] = {}
    ids_by_layer: dict[int, Any] = {}
    kept_cosines: list[Any] = []
    numbers = layer_numbers(model)

    def record_rotation(_: Any, args: Any, options: Any, output: Any) -> None:
        ids = options.get("position_ids", args[1] if len(args) > 1 else None)
        cosines = output[0] if isinstance(output, tuple | list) else output
        # A tensor that is kept alive keeps its identity to itself.
        kept_cosines.append(cosines)
        ids_by_cosines[id(cosines)] = ids

    def record_layer(module: Any, _: Any, options: Any) -> None:
        cosines = options.get("position_embeddings")
        cosines = cosines[0] if isinstance(cosines, tuple | list) else cosines
        ids = ids_by_cosines.get(id(cosines), options.get("position_ids"))
        if ids is not None and getattr(ids, "ndim", 0) >= 1:
            ids_by_layer[numbers[module]] = ids

    with evaluation_mode(model) as device, ExitStack() as hooks:
        for module in model.modules():
            if type(module).__name__.endswith("RotaryEmbedding"):
                hook = module.register_forward_hook(record_rotation, with_kwargs=True)
                hooks.enter_context(hook)
            if module in numbers and "Attention" in type(module).__name__:
                hook = module.register_forward_pre_hook(record_layer, with_kwargs=True)
                hooks.enter_context(hook)
        with explain_model_errors(model):
            if isinstance(inputs, Mapping):
                model(
                    **{
                        name: value.to(device) if pt.is_tensor(value) else value
                        for name, value in inputs.items()
                    }
                )
            else:
                model(input_ids=pt.as_tensor(inputs, device=device))
    if not ids_by_layer:
        raise UsageError(
            f"{type(model).__name__}: no layer receives position ids. It must be a rotary "
            "model of transformers."
        )
    arrays = [_as_axes(ids) for _, ids in sorted(ids_by_layer.items())]
    n_axes = max(len(array) for array in arrays)
    ids = np.stack([np.broadcast_to(a, (n_axes, a.shape[1])) for a in arrays])
    return PositionIds(ids, tuple(sorted(ids_by_layer)), type(model).__name__)


def _as_axes(ids: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return ids ``[t]``, ``[b, t]`` or ``[axes, b, t]`` of the first of a batch, by axis."""
    array = ids.detach().cpu().numpy().astype(np.int64)
    if array.ndim == 3:
        return np.asarray(array[:, 0])
    return np.asarray(array.reshape(-1, array.shape[-1])[:1])
