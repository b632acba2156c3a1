"""Run a model and record what it does with position: rotations, windows and sinks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.models.rotations import (
    ObservedRotation,
    RunningLayer,
    RunPlan,
    TurnedVectors,
    spread_positions,
)
from posprobe.arrays import Floats
from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.checkpoints.checkpoint import DTYPE_NAMES
from posprobe.errors import UsageError
from posprobe.forward.attention_inputs import (
    AttentionInputs,
    observe_attention,
    promote_half,
)
from posprobe.forward.contexts import (
    context_length,
    position_tables,
    random_tokens,
    shifted_positions,
)
from posprobe.forward.models import evaluation_mode, import_package
from posprobe.forward.running import find_body, run_body

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("posprobe")

#: Tokens of a context whose positions are moved. No usual head has as many columns or heads.
N_LIVE_TOKENS = 61
#: Contexts at a time: their vectors span the columns of a head.
N_LIVE_CONTEXTS = 2
#: One axis of positions is moved alone by so many: slow pairs must turn visibly.
AXIS_SHIFTS = (0, 1, 8, 64, 512)
#: A layer is compared at positions at which the lengths of its vectors are the same up to this
#: share: there its inputs are the same.
MIN_LENGTH_CHANGE = 1e-3
#: Rounding changes lengths by at most so many unit roundoffs of the layer's precision.
LENGTH_ROUNDOFFS = 8
#: A sink takes more than this share of the attention.
MIN_SINK_SHARE = 1e-3
#: Rounding takes at most so many unit roundoffs: one of each weight, and those of the outputs.
SINK_ROUNDOFFS = 4
#: Squared norm of outputs below which nothing can be told of their scale.
MIN_OUTPUT_POWER = 1e-30
#: Columns changed by a rotation differ from before by more than this share of their size.
MIN_COLUMN_CHANGE = 1e-5
#: A regathered query differs from its columns by at most this share.
MAX_REGATHERING_ERROR = 0.02
#: Functions of a modelling file that rotate queries and keys have names that start so.
ROTATING_FUNCTIONS = ("apply_rotary", "apply_multimodal_rotary", "apply_rope")


@dataclass(frozen=True, eq=False)
class _LayerRun:
    """Queries and keys of a layer in one run, and a query or key before and after it turned."""

    query: Floats
    key: Floats
    before: Floats | None
    after: Floats | None
    roundoff: float


def observe_model(model: Any, plan: RunPlan, title: str) -> dict[int, RunningLayer]:
    """Run a model on random tokens at several positions, and record what each layer does.

    Parameters
    ----------
    model
        Text model of transformers.
    plan
        Positions to run.
    title
        Name of the model, for messages.

    Raises
    ------
    UsageError
        If it is no model of transformers, does not take position ids, or its layers do not hand
        queries and keys to the attention interface of transformers.
    """
    with evaluation_mode(model) as device:
        config = find_body(model).config.get_text_config()

        def draw_batch(length: int, count: int) -> torch.Tensor:
            tokens = next(random_tokens(config, length, count))
            batch: torch.Tensor = import_package("torch").as_tensor(tokens, device=device)
            return batch

        batch = draw_batch(N_LIVE_TOKENS, N_LIVE_CONTEXTS)
        near_shifts = spread_positions(plan.near_last)
        near = [_run_layers(model, batch, (shift,), title) for shift in near_shifts]
        if not near[0]:
            raise UsageError(
                f"{title}: the layers of {type(model).__name__} do not use the "
                "attention interface of transformers, so their queries and "
                "keys cannot be seen."
            )
        layers = {
            number: RunningLayer(number, _measure_sides(near, number, near_shifts, None))
            for number in near[0]
        }
        for number, axes in _run_along_axes(model, batch, config, title).items():
            layers[number] = replace(layers[number], axes=axes)
        if plan.far_last is not None:
            for number, far_rotations in _run_far(model, batch, plan, title).items():
                layers[number] = replace(layers[number], far_rotations=far_rotations)
        if plan.window_context:
            long_batch = draw_batch(plan.window_context, 1)
            for number, (window, window_context, has_sinks) in _run_long(
                model, long_batch, title
            ).items():
                layers[number] = replace(
                    layers[number],
                    window=window,
                    window_context=window_context,
                    has_sinks=has_sinks,
                )
    return layers


def _run_layers(
    model: Any, batch: torch.Tensor, shifts: Sequence[int], title: str
) -> dict[int, _LayerRun]:
    """Run a batch at shifted positions, one shift for each axis; return its layers."""
    runs: dict[int, _LayerRun] = {}
    samples: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add_layer(number: int, inputs: AttentionInputs) -> None:
        before, after = samples[-1] if samples else (None, None)
        samples.clear()
        runs[number] = _LayerRun(
            _to_array(inputs.query),
            _to_array(inputs.key),
            None if before is None else _to_array(before),
            None if after is None else _to_array(after),
            _unit_roundoff(inputs.query),
        )

    position_ids = [shifted_positions(model, batch, shift) for shift in shifts]
    ids = position_ids[0]
    if len(position_ids) > 1:
        ids = import_package("torch").stack(position_ids)
    with (
        observe_attention(model, add_layer, title),
        _observe_rotations(model, lambda *tensors: samples.append(tensors)),
    ):
        run_body(model, batch, position_ids=ids)
    return runs


def _unit_roundoff(tensor: torch.Tensor) -> float:
    return float(import_package("torch").finfo(tensor.dtype).eps) / 2


def _to_array(tensor: torch.Tensor) -> Floats:
    return np.asarray(promote_half(tensor.detach()).cpu().numpy())


@contextmanager
def _observe_rotations(
    model: Any, handle: Callable[[torch.Tensor, torch.Tensor], None]
) -> Iterator[None]:
    """Pass on what the modelling files' functions of rotation take and return."""

    def observe(rotate: Callable[..., Any]) -> Callable[..., Any]:
        def rotate_observed(*args: Any, **options: Any) -> Any:
            output = rotate(*args, **options)
            before = args[0] if args else next(iter(options.values()))
            after = output[0] if isinstance(output, tuple | list) else output
            if getattr(before, "ndim", 0) == 4 and before.shape == after.shape:
                handle(before, after)
            return output

        return rotate_observed

    files = {sys.modules.get(type(module).__module__) for module in model.modules()}
    with ExitStack() as cleanup:
        for file in files:
            for name, function in list(vars(file).items()) if file else ():
                if name.startswith(ROTATING_FUNCTIONS) and callable(function):
                    cleanup.callback(setattr, file, name, function)
                    setattr(file, name, observe(function))
        yield


def _measure_sides(
    runs: Sequence[dict[int, _LayerRun]],
    number: int,
    shifts: Sequence[int],
    length: int | None,
) -> dict[str, ObservedRotation]:
    """Return the rotations of a layer's queries and keys; none if their inputs differ."""
    layer_runs = [run[number] for run in runs]
    roundoff = layer_runs[0].roundoff
    max_change = max(MIN_LENGTH_CHANGE, LENGTH_ROUNDOFFS * roundoff)
    factor, is_regathered = _measure_factor(layer_runs[0], is_first=shifts[0] == 0)
    rotations = {}
    for side in ("query", "key"):
        vectors = np.stack([getattr(run, side) for run in layer_runs]).astype(np.float64)
        vectors = vectors.reshape(len(vectors), -1, vectors.shape[-1])
        lengths = np.linalg.norm(vectors, axis=-1)
        changes = np.linalg.norm(lengths - lengths[0], axis=1)
        is_same = changes <= max_change * np.linalg.norm(lengths[0])
        if is_same.sum() < 2 or not np.isfinite(vectors).all():
            return {}
        relative_shifts = np.array(shifts)[is_same] - shifts[0]
        samples = TurnedVectors(vectors[is_same], relative_shifts, roundoff)
        rotations[{"query": "queries", "key": "keys"}[side]] = ObservedRotation(
            samples, length, factor, is_regathered
        )
    return rotations


def _measure_factor(run: _LayerRun, *, is_first: bool) -> tuple[float | None, bool]:
    """Return the factor on cosines, and whether neighbours are put as halves before they turn."""
    if run.before is None or run.after is None:
        return None, False
    token_axis = run.before.shape.index(N_LIVE_TOKENS)
    # The last token is turned most, so that only columns that never turn stay.
    before, after = (
        np.moveaxis(values, token_axis, 0).astype(np.float64)
        for values in (run.before, run.after)
    )
    width = before.shape[-1]
    change = np.abs(after[-1] - before[-1]).reshape(-1, width).max(axis=0)
    size = np.abs(before[-1]).reshape(-1, width).max(axis=0)
    is_changed = change > MIN_COLUMN_CHANGE * size
    if not is_changed.any():
        return 1.0, False
    power_before, power_after = (
        float((values[..., is_changed] ** 2).sum()) for values in (before, after)
    )
    factor = (power_after / power_before) ** 0.5 if power_before else 1.0
    neighbours = [*range(0, width, 2), *range(1, width, 2)]
    regathered = factor * before[0][..., neighbours]
    error = np.linalg.norm(after[0] - regathered)
    plain_error = np.linalg.norm(after[0] - factor * before[0])
    limit = MAX_REGATHERING_ERROR * np.linalg.norm(after[0])
    return factor, bool(is_first and error <= limit < plain_error)


def _run_along_axes(
    model: Any, batch: torch.Tensor, config: Any, title: str
) -> dict[int, tuple[TurnedVectors, ...]]:
    """Move one axis of positions at a time, in models whose positions have several."""
    parameters = getattr(config, "rope_parameters", None) or {}
    sections = parameters.get("mrope_section") or ()
    axes: dict[int, tuple[TurnedVectors, ...]] = {}
    for axis in range(len(sections)):
        runs = [
            _run_layers(
                model, batch, [shift * (k == axis) for k in range(len(sections))], title
            )
            for shift in AXIS_SHIFTS
        ]
        for number in runs[0]:
            rotations = _measure_sides(runs, number, AXIS_SHIFTS, None)
            if rotations:
                axes[number] = (*axes.get(number, ()), rotations["queries"].samples)
    return axes


def _run_far(
    model: Any, batch: torch.Tensor, plan: RunPlan, title: str
) -> dict[int, dict[str, ObservedRotation]]:
    """Run beyond the trained length. The farthest run is the first: rules stay at its length."""
    assert plan.far_last is not None  # noqa: S101 - callers check this
    first_shift = plan.far_last + 1 - batch.shape[1]
    shifts = [first_shift - shift for shift in spread_positions(plan.far_reach)]
    runs = [_run_layers(model, batch, (shift,), title) for shift in shifts]
    length = plan.far_last + 1
    return {number: _measure_sides(runs, number, shifts, length) for number in runs[0]}


def _has_sinks(inputs: AttentionInputs) -> bool:
    """Tell whether a sink takes part of the attention, or of what attention returns."""
    weights, value, output = inputs.weights, inputs.value, inputs.output
    if weights is None or value is None or output is None:
        return False
    min_share = max(MIN_SINK_SHARE, SINK_ROUNDOFFS * _unit_roundoff(weights))
    if bool(weights.float().sum(dim=-1).min() < 1 - min_share):
        return True
    # Some models scale the output by what the sink leaves, with weights that add up to 1.
    shared_value = value.float().repeat_interleave(
        weights.shape[1] // value.shape[1], dim=1
    )
    expected = weights.float() @ shared_value
    scales = (output.float().transpose(1, 2) * expected).sum(dim=-1)
    scales = scales / expected.square().sum(dim=-1).clamp(min=MIN_OUTPUT_POWER)
    return bool(scales.median() < 1 - min_share)


def _run_long(
    model: Any, batch: torch.Tensor, title: str
) -> dict[int, tuple[int | None, int, bool]]:
    """Return the window of each layer, and whether a sink takes part of its attention."""
    windows: dict[int, tuple[int | None, int, bool]] = {}

    def add_layer(number: int, inputs: AttentionInputs) -> None:
        # Fused attention has no weights to show, and no sinks.
        has_sinks = _has_sinks(inputs)
        windows[number] = (*_find_window(inputs.mask, batch.shape[1]), has_sinks)

    with observe_attention(model, add_layer, title):
        run_body(model, batch)
    return windows


def _find_window(mask: torch.Tensor | None, length: int) -> tuple[int | None, int]:
    """Return the most keys up to its own position that a query sees, None if it sees all.

    Returns
    -------
    tuple
        The window, and the tokens in which it was seen: 0 if each query sees other distances.
    """
    if mask is None:
        return None, length
    is_visible = mask if mask.dtype == import_package("torch").bool else mask == 0
    visible = np.tril(is_visible[0, 0, :, -length:].cpu().numpy())
    counts = visible.sum(axis=1)
    nearest = np.tril(np.ones_like(visible)) & ~np.array(
        [np.arange(length) < row + 1 - count for row, count in enumerate(counts)]
    )
    if (counts == 0).any() or not np.array_equal(visible, nearest):
        return None, 0
    return None if counts[-1] == length else int(counts.max()), length


def view_weights(model: Any, title: str) -> Checkpoint:
    """Return the weights of a model in memory as a checkpoint without configuration."""
    pt = import_package("torch")
    state = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if str(tensor.dtype).removeprefix("torch.") in DTYPE_NAMES
        and tensor.device.type != "meta"
    }
    tensors = {
        name: TensorInfo(
            name,
            tuple(tensor.shape),
            DTYPE_NAMES[str(tensor.dtype).removeprefix("torch.")],
            title,
        )
        for name, tensor in state.items()
    }

    def fetch(info: TensorInfo) -> memoryview[int]:
        values = state[info.name].detach().cpu().contiguous().reshape(-1)
        return memoryview(values.view(pt.uint8).numpy().data)

    return Checkpoint(title, tensors, fetch, format="memory")


def record_added_rows(model: Any, max_rows: int, title: str) -> dict[str, Floats]:
    """Return the rows that a text model adds at its first positions, by the table's name.

    Parameters
    ----------
    model
        Text model of transformers.
    max_rows
        At most so many tokens are run.
    title
        Name of the model, for messages.
    """
    pt = import_package("torch")
    rows: dict[str, Floats] = {}

    def keep_rows(name: str, output: Any) -> None:
        if getattr(output, "ndim", 0) in (2, 3):
            rows[name] = _to_array(output.reshape(-1, *output.shape[-2:])[0]).astype(
                np.float64
            )

    tables = position_tables(model)
    if not tables:
        return rows
    with evaluation_mode(model) as device, ExitStack() as hooks:
        for path, module in tables.items():
            hooks.enter_context(
                module.register_forward_hook(
                    lambda _, __, output, path=path: keep_rows(f"{path}.weight", output)
                )
            )
        length = min(max_rows, context_length(model) or max_rows)
        config = find_body(model).config.get_text_config()
        tokens = next(random_tokens(config, length, 1))
        try:
            run_body(model, pt.as_tensor(tokens, device=device))
        except UsageError as error:
            logger.info("%s: its table is not run (%s).", title, error)
    return rows
