"""Run a rotary model, check its rotations, and sum over contexts what its heads do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.attention_window import (
    MIN_WINDOW_DISTANCES,
    sequence_window,
)
from posprobe.analyses.models.rotary_heads import (
    LayerRotation,
    RotarySums,
    build_rotary_use,
)
from posprobe.analyses.models.rotary_use import (
    LayerUse,
    Origin,
    PairOrder,
    Reason,
    RotaryUse,
    RotatedColumns,
)
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.attention_inputs import (
    AttentionInputs,
    find_visible_keys,
    observe_checked_inputs,
    promote_half,
    run_observed,
)
from posprobe.forward.contexts import sum_over_contexts
from posprobe.forward.models import import_package
from posprobe.forward.running import find_body, is_timm

if TYPE_CHECKING:
    import torch


def is_rotary(model: Any) -> bool:
    """Tell whether a model of transformers rotates queries and keys, for text."""
    return not is_timm(model) and any(map(_is_ladder, getattr(model, "modules", list)()))


def has_image_rotation(model: Any) -> bool:
    """Tell whether a model rotates queries and keys along rows and columns of an image."""
    names = [type(module).__name__ for module in getattr(model, "modules", list)()]
    return any("Rope" in name or "Rotary" in name for name in names)


def _is_ladder(module: Any) -> bool:
    return type(module).__name__.endswith("RotaryEmbedding")


def declared_context(model: Any) -> int | None:
    """Return the context length that the configuration declares; None if it declares none."""
    config: Any = getattr(model, "config", None)
    declared = getattr(config, "max_position_embeddings", None)
    return declared if isinstance(declared, int) and declared > 0 else None


def frequency_buffers(model: Any) -> dict[str, torch.Tensor]:
    """Return the buffers that hold the frequencies of a model's rotations, by name."""
    return {
        name: buffer
        for name, buffer in model.named_buffers()
        if name.endswith("inv_freq")
        and "original" not in name
        and buffer.device.type != "meta"
    }


def current_ladders(model: Any) -> list[NDArray[np.float64]]:
    """Return the frequencies with which a model ran last, in radians per position, each once.

    They depend on the length of contexts where a rule of scaling does.
    """
    buffers = frequency_buffers(model).values()
    ladders = [buffer.detach().double().cpu().numpy() for buffer in buffers]
    # GPT-J and CodeGen keep cosines of the usual frequencies, of so many columns.
    if columns := getattr(find_body(model).config, "rotary_dim", None):
        ladders.append(10_000.0 ** (-np.arange(0, columns, 2) / columns))
    return [
        ladder
        for index, ladder in enumerate(ladders)
        if not any(np.array_equal(ladder, previous) for previous in ladders[:index])
    ]


#: Positions by which the shift check moves contexts: no multiple of any usual period.
CHECK_SHIFT_POSITIONS = 37
#: The shift check compares no more positions of a context. At later ones the rounding of angles in
#: float32 exceeds the residual of a wrong base.
MAX_COMPARED_POSITIONS = 64
#: A candidate below this residual of the shift check is right, by dtype. Other ladders and pair
#: orders leave at least three times as much.
MAX_SHIFT_RESIDUALS = {
    "float64": 1e-5,
    "float32": 1e-5,
    "float16": 5e-3,
    "bfloat16": 2.5e-2,
}
#: Shorter contexts have too few distances.
MIN_CONTEXT_TOKENS = 32


@dataclass(frozen=True, eq=False)
class ObservedLayer:
    """Rotation of a layer, and the window of queries in which it is measured.

    Parameters
    ----------
    rotation
        Rotation with the distances at which each query of the window is measured.
    first_query, stop_query
        First query of the window, and the one after its last.
    """

    rotation: LayerRotation
    first_query: int
    stop_query: int


def build_unmeasured_layer(
    number: int, reason: Reason, residual: float | None = None
) -> LayerUse:
    """Return the record of a layer that cannot be measured."""
    return LayerUse(
        layer=number,
        ignores=None,
        reason=reason,
        window=0,
        both_sides=False,
        ladder=np.zeros(0),
        pairs=None,
        columns=None,
        shift_check=residual,
    )


def prepare_layers(
    model: Any, batch: torch.Tensor, title: str
) -> tuple[dict[int, ObservedLayer], dict[int, LayerUse]]:
    """Check that observing changes nothing, and find the rotation of each layer.

    Returns
    -------
    tuple
        The layers that can be measured, and the records of the others, by number.
    """
    length, limit = batch.shape[1], declared_context(model)
    if length < MIN_CONTEXT_TOKENS:
        raise UsageError(
            f"{title}: contexts of {length} tokens are too short to tell "
            f"distances apart: use {MIN_CONTEXT_TOKENS} or more (`length`)."
        )
    if limit and length > limit:
        raise UsageError(
            f"{title}: contexts of {length} tokens are longer than the "
            f"{limit} positions of the model. Use shorter ones (`length`)."
        )
    layer_inputs = observe_checked_inputs(model, batch, title)
    ladders = current_ladders(model)
    shifted_runs = _run_at_shift(model, batch, ladders, title)
    layers: dict[int, ObservedLayer] = {}
    unmeasured: dict[int, LayerUse] = {}
    for number, inputs in sorted(layer_inputs.items()):
        observed = _observe_layer(inputs, shifted_runs[number], ladders, length)
        if isinstance(observed, ObservedLayer):
            layers[number] = observed
        else:
            unmeasured[number] = build_unmeasured_layer(number, *observed)
    if not layers:
        reasons = sorted({REASON_MESSAGES[layer.reason] for layer in unmeasured.values()})
        raise UsageError(f"{title}: no layer can be measured: {', '.join(reasons)}.")
    return layers, unmeasured


#: Message by reason for a layer that cannot be measured.
REASON_MESSAGES: Mapping[str, str] = {
    "no_pairing": "no rotation that is known explains its queries and keys",
    "not_finite": "its queries or keys hold NaN or infinity",
    "other_keys": "which keys it sees does not depend on distance alone",
    "short_window": f"it sees fewer than {MIN_WINDOW_DISTANCES} distances",
}

#: Queries, then keys, ``[b, heads, t, d]`` of the same tokens at positions from 0 and from
#: `CHECK_SHIFT_POSITIONS`.
_ShiftedRuns = Sequence[tuple["torch.Tensor", "torch.Tensor"]]


def _run_at_shift(
    model: Any, batch: torch.Tensor, ladders: Sequence[NDArray[np.float64]], title: str
) -> dict[int, _ShiftedRuns]:
    """Run the same tokens at first and at later positions, and return the queries and keys.

    Only the first tokens run, unless frequencies depend on the length of the context.
    """
    max_length = batch.shape[1]
    if (limit := declared_context(model)) is not None:
        max_length = max(min(max_length, limit - CHECK_SHIFT_POSITIONS), 2)
    first_inputs: dict[int, AttentionInputs] = {}
    later_inputs: dict[int, AttentionInputs] = {}
    for tokens in (
        batch[:, : min(MAX_COMPARED_POSITIONS, max_length)],
        batch[:, :max_length],
    ):
        run_observed(model, tokens, first_inputs.__setitem__, title, 0)
        run_observed(
            model, tokens, later_inputs.__setitem__, title, CHECK_SHIFT_POSITIONS
        )
        run_ladders = current_ladders(model)
        if len(run_ladders) == len(ladders) and all(
            map(np.array_equal, run_ladders, ladders)
        ):
            break
    are_equal = [
        bool((first_inputs[n].query == later_inputs[n].query).all()) for n in later_inputs
    ]
    if all(are_equal):
        raise UsageError(
            f"{title}: its queries do not change when positions start "
            "later, so its rotation cannot be checked."
        )
    return {
        number: [
            (first_inputs[number].query, later_inputs[number].query),
            (first_inputs[number].key, later_inputs[number].key),
        ]
        for number in first_inputs
    }


def _observe_layer(
    inputs: AttentionInputs,
    shifted_runs: _ShiftedRuns,
    ladders: Sequence[NDArray[np.float64]],
    length: int,
) -> ObservedLayer | tuple[Reason, float | None]:
    """Find the rotation and the window of a layer, or why it cannot be measured."""
    if not all(bool(tensor.isfinite().all()) for tensor in (inputs.query, inputs.key)):
        return "not_finite", None
    dtype = str(inputs.query.dtype).removeprefix("torch.")
    best_rotation = min(
        (
            replace(candidate, residual=_shift_residual(candidate, shifted_runs))
            for candidate in _candidate_rotations(
                ladders, inputs.query.shape[-1], inputs.scale
            )
        ),
        key=lambda candidate: candidate.residual,
    )
    if not best_rotation.residual < MAX_SHIFT_RESIDUALS[dtype]:
        return "no_pairing", best_rotation.residual
    window = sequence_window(find_visible_keys(inputs.mask, length), length)
    if isinstance(window, str):
        return window, best_rotation.residual
    distances, queries = window.displacements[:, 0], window.queries
    return ObservedLayer(
        replace(best_rotation, distances=distances), int(queries[0]), int(queries[-1]) + 1
    )


def _candidate_rotations(
    ladders: Sequence[NDArray[np.float64]], width: int, scale: float
) -> Iterator[LayerRotation]:
    """Yield no rotation, and all rotations of a head of this width by the model's ladders."""
    no_distances = np.zeros(0, dtype=np.int64)
    yield LayerRotation(np.zeros(0), "none", "none", 0.0, no_distances, scale)
    pair_orders: tuple[PairOrder, PairOrder] = ("halves", "neighbours")
    column_choices: tuple[RotatedColumns, RotatedColumns] = ("first", "last")
    for ladder, pairs in product(ladders, pair_orders):
        if 2 * len(ladder) == width:
            yield LayerRotation(ladder, pairs, "all", 0.0, no_distances, scale)
        elif 0 < 2 * len(ladder) < width:
            for columns in column_choices:
                yield LayerRotation(ladder, pairs, columns, 0.0, no_distances, scale)


def _shift_residual(rotation: LayerRotation, shifted_runs: _ShiftedRuns) -> float:
    """Return the relative change of unrotated queries or keys by the shift, the larger of both."""
    residuals = []
    for tensors in shifted_runs:
        first_tensor, later_tensor = (
            promote_half(tensor)[:, :, :MAX_COMPARED_POSITIONS] for tensor in tensors
        )
        first_columns = unrotate(first_tensor, rotation, 0)
        later_columns = unrotate(later_tensor, rotation, CHECK_SHIFT_POSITIONS)
        change = sum(
            _power(a - b) for a, b in zip(first_columns, later_columns, strict=True)
        )
        size = sum(map(_power, first_columns))
        residuals.append((change / size) ** 0.5 if size else 0.0)
    return max(residuals)


def _power(tensor: torch.Tensor) -> float:
    return float(tensor.abs().double().square().sum())


def unrotate(
    tensor: torch.Tensor, rotation: LayerRotation, start: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Undo the rotation of queries or keys at the positions from ``start``.

    Returns
    -------
    tuple
        The rotated columns as complex ``[..., t, pairs]``, and the others ``[..., t, columns]``.
    """
    pt = import_package("torch")
    width, n_pairs = tensor.shape[-1], len(rotation.frequencies)
    first_column = width - 2 * n_pairs if rotation.columns == "last" else 0
    rotating = tensor[..., first_column : first_column + 2 * n_pairs]
    fixed = pt.cat(
        [tensor[..., :first_column], tensor[..., first_column + 2 * n_pairs :]], dim=-1
    )
    if rotation.pairs == "neighbours":
        real, imaginary = rotating[..., 0::2], rotating[..., 1::2]
    else:
        real, imaginary = rotating[..., :n_pairs], rotating[..., n_pairs:]
    positions = np.arange(start, start + tensor.shape[-2])
    inverse = np.exp(-1j * np.outer(positions, rotation.frequencies))
    pair = pt.complex(real.contiguous(), imaginary.contiguous())
    return pair * pt.as_tensor(inverse, dtype=pair.dtype, device=pair.device), fixed


#: Heads whose logits are in memory at a time: those of all heads of a large model would take more
#: memory than all sums.
MAX_HEADS_AT_ONCE = 4
#: Queries whose logits are in memory at a time, for the same reason.
MAX_QUERIES_AT_ONCE = 128


def rotary_use(
    model: Any,
    contexts: Iterable[Array],
    *,
    source: Origin = "given",
    name: str | None = None,
) -> RotaryUse:
    """Measure the effect of distance on each head of a rotary model, on some contexts.

    In contexts of T tokens, each query of a window is measured at the same distances, so that the
    variance of logits splits exactly: ``W = T // 2`` distances if keys come before queries (fewer
    in layers with a sliding window), ``T // 3`` on either side if both are visible. The first token
    is never a key. The distance share depends on T and on the text.

    Two checks precede the measurement. Observing the model must leave its outputs unchanged, and
    the frequencies, pairs and rotated columns of each layer must be those with which unrotated
    queries and keys stay the same when positions start 37 later. A layer without such a candidate
    is not measured, and the result says so.

    Unrotated pairs: Su et al. 2021; usage: Barbero et al. 2024 (2410.06205); offset pairs:
    Jonasson 2025 (2503.01832); window, distance share and moved attention are this package's own.

    Parameters
    ----------
    model
        Rotary language model of transformers.
    contexts
        Batches ``[b, t]`` of token ids, all as long, at least 32 tokens; 12 contexts or more for
        answers.
    source
        Kind of the contexts, for the record.
    name
        Name of the model, for messages.

    Returns
    -------
    RotaryUse
        By head: distance share (0 to 1), spread, range and curves (nats), preferred distance
        (tokens), usage and mean part of each pair, moved attention (0 to 1), and an answer.

    Raises
    ------
    UsageError
        If the model has no rotary embedding, its layers do not hand queries and keys to the
        attention interface of transformers, contexts are too short or longer than its context, or
        no layer can be measured.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> from transformers import LlamaConfig, LlamaModel
    >>> config = LlamaConfig(
    ...     hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    ...     vocab_size=50,
    ... )
    >>> model = LlamaModel(config).eval()
    >>> use = pp.rotary_use(model, pp.forward.random_tokens(config, length=32, count=4))
    >>> use.layers[0].pairs, use.layers[0].window, len(use.heads)
    ('halves', 16, 2)
    """
    title = name or type(model).__name__
    if not is_rotary(model):
        axes = " Along rows and columns of images they are not measured."
        raise UsageError(
            f"{title}: {type(model).__name__} has no rotary embedding of "
            "transformers that turns queries and keys by their place in a "
            f"text.{axes if has_image_rotation(model) else ''}"
        )
    layers: dict[int, ObservedLayer] = {}
    unmeasured: dict[int, LayerUse] = {}
    length = 0

    def measure(batch: torch.Tensor, *_: object) -> dict[int, RotarySums]:
        nonlocal layers, unmeasured, length
        if batch.ndim != 2:
            raise UsageError(f"{title}: rotations are measured on text, not on images.")
        if not length:
            layers, unmeasured = prepare_layers(model, batch[:1], title)
            length = batch.shape[1]
        batch_sums: dict[int, RotarySums] = {}

        def add_window(number: int, inputs: AttentionInputs) -> None:
            if number not in layers:
                return
            if bool(inputs.query.isfinite().all() and inputs.key.isfinite().all()):
                batch_sums[number] = sum_window(inputs, layers[number])
                return
            # A layer is measured on all contexts or not at all.
            del layers[number]
            unmeasured[number] = build_unmeasured_layer(number, "not_finite")

        run_observed(model, batch, add_window, title)
        return batch_sums

    sums, is_interrupted = sum_over_contexts(model, contexts, measure, title)
    return build_rotary_use(
        {number: layer_sums for number, layer_sums in sums.items() if number in layers},
        {number: layer.rotation for number, layer in layers.items()},
        unmeasured,
        length=length,
        positions=declared_context(model),
        source=source,
        name=title,
        is_interrupted=is_interrupted,
    )


def sum_window(inputs: AttentionInputs, layer: ObservedLayer) -> RotarySums:
    """Sum the window of a layer over the contexts of a batch, a few heads at a time.

    Logits are computed in the model's own precision, float32 at least; sums are float64 (float32
    on MPS).
    """
    first, last = int(layer.rotation.distances[0]), int(layer.rotation.distances[-1])
    context_sums = []
    for query, key in zip(
        promote_half(inputs.query), promote_half(inputs.key), strict=True
    ):
        heads = np.arange(len(query))
        shared = heads // (len(query) // len(key))
        group_sums = [
            _sum_head_window(
                query[head_group.tolist()],
                key[shared[head_group].tolist()],
                layer,
                inputs.cap,
            )
            for head_group in np.array_split(heads, -(-len(heads) // MAX_HEADS_AT_ONCE))
        ]
        sums = {
            name: np.concatenate([s[name] for s in group_sums]) for name in group_sums[0]
        }
        by_context = {name: sums.pop(name)[None] for name in RotarySums.context_axes}
        n_queries = layer.stop_query - layer.first_query
        n_keys = n_queries + last - first
        context_sums.append(
            RotarySums(**by_context, **sums, queries=n_queries, keys=n_keys)
        )
    return reduce(add, context_sums)


def _sum_head_window(
    query: torch.Tensor, key: torch.Tensor, layer: ObservedLayer, cap: float | None
) -> dict[str, NDArray[Any]]:
    """Sum the window of some heads, ``[heads, t, d]`` each, in one context."""
    pt = import_package("torch")
    rotation, first_query, stop_query = (
        layer.rotation,
        layer.first_query,
        layer.stop_query,
    )
    distances, n_queries = rotation.distances, stop_query - first_query
    first_key = first_query - int(distances[-1])
    window_query = query[:, first_query:stop_query]
    window_key = key[:, first_key : stop_query - int(distances[0])]
    pair_q, fixed_q = unrotate(window_query, rotation, first_query)
    pair_k, fixed_k = unrotate(window_key, rotation, first_key)
    mean_rotation = np.exp(1j * np.outer(rotation.frequencies, distances)).mean(axis=1)
    mean_pairs = pair_q * pt.as_tensor(
        mean_rotation, dtype=pair_q.dtype, device=pair_q.device
    )
    # The mean of each pair's rotation over the window hides the distance from the logits.
    hidden_tensors = (
        pt.cat([mean_pairs.real, mean_pairs.imag, fixed_q], dim=-1),
        pt.cat([pair_k.real, pair_k.imag, fixed_k], dim=-1),
    )
    wide = pt.float32 if query.device.type == "mps" else pt.float64

    def total(part: torch.Tensor) -> NDArray[np.float64]:
        return np.asarray(part.sum(dim=1, dtype=wide).cpu().double().numpy())

    chunks = []
    for start in range(0, n_queries, MAX_QUERIES_AT_ONCE):
        end = min(start + MAX_QUERIES_AT_ONCE, n_queries)
        products = (
            _products_by_distance(q[:, start:end], k[:, start : end + len(distances) - 1])
            for q, k in ((window_query, window_key), hidden_tensors)
        )
        logits, hidden_logits = (product * rotation.scale for product in products)
        chunks.append(tuple(map(total, _measure_logits(logits, hidden_logits, cap))))
    means = [sum(chunk_sums) / n_queries for chunk_sums in zip(*chunks, strict=True)]
    sums = dict(zip(RotarySums.context_axes, means, strict=True))
    # Products come with the farthest key first, whereas curves start at the smallest distance.
    sums["curves"] = sums["curves"][:, ::-1]
    for name, pair, fixed in (("query", pair_q, fixed_q), ("key", pair_k, fixed_k)):
        power = pair.real.square() + pair.imag.square()
        if rotation.columns != "all":
            power = pt.cat([power, fixed.square().sum(dim=-1, keepdim=True)], dim=-1)
        sums |= {
            name: total(pair.real) + 1j * total(pair.imag),
            f"fixed_{name}": total(fixed),
            f"{name}_power": total(power),
        }
    return sums


def _measure_logits(
    logits: torch.Tensor, hidden_logits: torch.Tensor, cap: float | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits ``[heads, q, n]``, their variance, moved attention and capped share.

    Parameters
    ----------
    logits, hidden_logits
        Logits as they are, and with distance hidden.
    cap
        Cap of the logits, None without one.
    """
    attention_change = logits.softmax(dim=-1).sub_(hidden_logits.softmax(dim=-1)).abs_()
    moved_attention = attention_change.sum(dim=-1) / 2
    capped_share = moved_attention * float("nan")
    if cap is not None:
        capped_share = (logits.abs() > cap / 2).to(moved_attention.dtype).mean(dim=-1)
    # PyTorch's own variance took a third of the whole time.
    variance = (logits - logits.mean(dim=-1, keepdim=True)).square_().mean(dim=-1)
    return logits, variance, moved_attention, capped_share


def _products_by_distance(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return the dot product of each query with its n keys, the farthest first.

    Parameters
    ----------
    query, key
        ``[heads, q, d]`` and ``[heads, q + n - 1, d]``: query i meets keys i to i + n - 1.
    """
    n_heads, n_queries, _ = query.shape
    n_keys = key.shape[1]
    products = query @ key.transpose(1, 2)
    # Each query's keys begin one column later. One more column per row aligns them.
    flat = import_package("torch").nn.functional.pad(
        products.reshape(n_heads, -1), (0, n_queries)
    )
    aligned: torch.Tensor = flat.reshape(n_heads, n_queries, n_keys + 1)
    return aligned[:, :, : n_keys - n_queries + 1]
