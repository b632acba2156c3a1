"""The weights that turn positions into attention logits, read by name, one layer at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints import Checkpoint
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families.parts import part_for, parts_of
from posprobe.families.read import load, open_reference
from posprobe.families.tokens import sample_tokens
from posprobe.reference import parse_reference
from posprobe.table import PositionTable

#: What stands at every position beside its encoding.
Content: TypeAlias = Literal["mean", "none"]


@dataclass(frozen=True)
class _Rule:
    """Where an architecture keeps what leads from its table to queries and keys.

    Names are relative to the module of the table, ``{}`` is the layer. ``fused`` says how one
    tensor holds queries, keys and values: below each other as linear layers store them, or side by
    side as GPT-2's Conv1D does. ``norm`` stands before the attention of each layer (pre-LN),
    ``first_norm`` between the sum of the embeddings and the first layer.
    """

    table: str
    query: str
    key: str = ""
    fused: Literal["", "rows", "columns"] = ""
    norm: str = ""
    first_norm: str = ""
    also: str = ""
    eps: float = 1e-12
    causal: bool = False
    model_types: tuple[str, ...] = ()


_BERT = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "data2vec-text")
_VIT = ("vit", "deit", "dinov2", "dinov2_with_registers")
_RULES = (
    _Rule(
        "embeddings.position_embeddings.weight", "encoder.layer.{}.attention.self.query",
        "encoder.layer.{}.attention.self.key", first_norm="embeddings.LayerNorm",
        also="embeddings.token_type_embeddings.weight", model_types=_BERT,
    ),
    _Rule(
        "wpe.weight", "h.{}.attn.c_attn", fused="columns", norm="h.{}.ln_1", eps=1e-5, causal=True,
        model_types=("gpt2",),
    ),
    *(
        _Rule(
            "embeddings.position_embeddings", f"{layer}.{query}", f"{layer}.{key}",
            norm=f"{layer}.{norm}", model_types=_VIT,
        )
        for layer, query, key in (
            ("encoder.layer.{}", "attention.attention.query", "attention.attention.key"),
            # as transformers names them from version 5 on, when it writes what it computes with
            ("layers.{}", "attention.q_proj", "attention.k_proj"),
        )
        for norm in ("layernorm_before", "norm1")
    ),
    _Rule(
        "pos_embed", "blocks.{}.attn.qkv", fused="rows", norm="blocks.{}.norm1",
        first_norm="norm_pre", eps=1e-6,
    ),
)  # fmt: skip

#: Numbers of heads of timm's models by their size, which their configuration does not state.
_TIMM_HEADS: Mapping[str, tuple[int, int]] = {
    "_tiny_": (192, 3), "_small_": (384, 6), "_base_": (768, 12), "_large_": (1024, 16),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """Positions as they enter one layer's attention, and its query and key weights.

    Parameters
    ----------
    table
        ``[n, d]``: the rows of the position table with the layer's content added and its LayerNorm
        applied; layout and provenance are the table's.
    content
        ``[d]``: what was added to every row, in the space of the table.
    w_q, w_k
        ``[d, heads * d_h]``: ``q = x W_Q + b_Q``, heads side by side.
    b_q, b_k
        ``[heads * d_h]``, or None where the layer has none.
    heads, layer, layers
        How many heads, which layer, and how many there are.
    scale
        What the model multiplies products of queries and keys by.
    causal
        Whether queries see no later keys.
    notes
        What was folded in, in words.
    """

    table: PositionTable
    content: NDArray[np.float64]
    w_q: NDArray[np.floating[Any]]
    w_k: NDArray[np.floating[Any]]
    b_q: NDArray[np.floating[Any]] | None
    b_k: NDArray[np.floating[Any]] | None
    heads: int
    layer: int
    layers: int
    scale: float
    causal: bool
    notes: tuple[str, ...]


def load_heads(
    reference: str,
    layer: int = 0,
    *,
    content: Content = "mean",
    heads: int | None = None,
    rows: slice | None = None,
    grid: tuple[int, int] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> LayerHeads:
    """Read what a layer's heads make of positions: no model is built.

    The rows that meet ``W_Q`` and ``W_K`` are those of an input whose content is the same at every
    position. With ``"mean"`` that is the mean of a sample of the token embeddings (and BERT's first
    token type), or, for images, the bias of the patch projection: an image whose pixels are 0 after
    normalisation, the mean grey. With ``"none"`` it is the zero vector, as if positions were alone.

    LayerNorm is applied to those rows, and is exact for them: in GPT-2 and ViT (pre-LN) the one
    before the layer's attention, in BERT (post-LN) the one after the embeddings. So at layer 0 the
    logits are those that the model itself computes for this input. Above it they follow the direct
    path, on which the layers below add nothing and normalise nothing. Other inputs have rows of
    another length, which the LayerNorm divides the position's part by.

    Parameters
    ----------
    reference
        As for `load`.
    layer
        Counted from 0.
    content
        What stands at every position.
    heads
        Number of heads, where the configuration does not state it.
    rows, grid, revision, offline
        As for `load`.

    Raises
    ------
    UsageError
        If the layer does not exist, the architecture is none of BERT, RoBERTa, ELECTRA, GPT-2, ViT,
        DeiT, DINOv2 or timm's ViT, or the number of heads is not known.
    InvalidCheckpoint
        If the weights do not fit the table.
    PosprobeError
        As for `load`.
    """
    if content not in ("mean", "none"):
        raise UsageError(f"content={content!r}: it is 'mean' or 'none'.")
    table = load(reference, rows=rows, grid=grid, revision=revision, offline=offline)
    position = table.source.tensor
    if position is None:
        raise UsageError(f"{reference}: a formula has no heads. Name a checkpoint.")
    parsed = replace(parse_reference(reference), revision=table.source.revision)
    checkpoint = open_reference(parsed, offline=offline)
    config = part_for(position, parts_of(checkpoint.config)).config
    rule, module = _rule(checkpoint, position, config, layer)
    w_q, w_k, b_q, b_k = _projections(checkpoint, rule, module, layer)
    where = f"{checkpoint.location}: layer {layer}"
    if len(w_q) != table.dim:
        raise InvalidCheckpoint(
            f"{where}: its weights take rows of width {len(w_q)} and the table has {table.dim}: a "
            "projection lies between them, which is not followed."
        )
    number = heads or _count_heads(checkpoint, config, table.dim)
    if w_q.shape[1] % number:
        raise UsageError(f"{where}: {w_q.shape[1]} columns do not divide into {number} heads.")
    added, notes = _content(checkpoint, position, module + rule.also, content, table.dim)
    values = table.values.astype(np.float64) + added
    eps = _epsilon(checkpoint, rule, module, config)
    for norm in (rule.first_norm, rule.norm.format(layer)):
        if norm and (parts := _norm(checkpoint, module + norm)) is not None:
            if any(part is not None and part.shape != (table.dim,) for part in parts):
                raise InvalidCheckpoint(f"{where}: {module}{norm} is not {table.dim} wide.")
            values = _layer_norm(values, *parts, eps)
            notes = (*notes, f"LayerNorm {module}{norm} is applied to the rows")
    if layer:
        notes = (*notes, f"direct path: the {layer} layers below are left out")
    scale = 1 / math.sqrt(w_q.shape[1] // number)
    if config.get("scale_attn_weights") is False:
        scale = 1.0
    if config.get("scale_attn_by_inverse_layer_idx"):
        scale /= layer + 1
    return LayerHeads(
        table=replace(table, values=values),
        content=added,
        w_q=w_q, w_k=w_k, b_q=b_q, b_k=b_k,
        heads=number, layer=layer, layers=_count_layers(checkpoint, position), scale=scale,
        causal=rule.causal or bool(config.get("is_decoder")),
        notes=notes,
    )  # fmt: skip


def _count_layers(checkpoint: Checkpoint, position: str) -> int:
    """Count the layers whose query weights stand beside a table of positions."""
    found = 0
    for rule in _RULES:
        if not f".{position}".endswith(f".{rule.table}"):
            continue
        module = position.removesuffix(rule.table)
        layer = 0
        while f"{module}{rule.query.format(layer)}.weight" in checkpoint.tensors:
            layer += 1
        found = max(found, layer)
    return found


def _rule(
    checkpoint: Checkpoint, position: str, config: Mapping[str, Any], layer: int
) -> tuple[_Rule, str]:
    """Find the rule whose tensors are there, and the module that they stand in."""
    kind = config.get("model_type")
    layers = _count_layers(checkpoint, position)
    for rule in _RULES:
        module = position.removesuffix(rule.table)
        there = (
            f".{position}".endswith(f".{rule.table}")
            and f"{module}{rule.query.format(layer)}.weight" in checkpoint.tensors
            and (not rule.norm or _norm_name(checkpoint, module + rule.norm.format(layer)))
        )
        if there and layer >= 0 and kind in (None, *rule.model_types):
            _refuse_more(checkpoint, module, layer)
            return rule, module
    if layers and not 0 <= layer < layers:
        raise UsageError(
            f"{checkpoint.location}: it has no layer {layer}. Choose one of 0 to {layers - 1}."
        )
    raise UsageError(
        f"{checkpoint.location}: how its heads read {position} is not known"
        + (f" (model_type {kind})" if kind else "")
        + ". Known are BERT, RoBERTa, ELECTRA, GPT-2, ViT, DeiT, DINOv2 and timm's ViT."
    )


def _refuse_more(checkpoint: Checkpoint, module: str, layer: int) -> None:
    """Refuse layers that do more to queries and keys than a product and a bias."""
    extra = [f"{module}blocks.{layer}.attn.q_norm.weight", f"{module}embeddings_project.weight"]
    for name in extra:
        if name in checkpoint.tensors:
            raise UsageError(
                f"{checkpoint.location}: {name} stands between positions and their logits, which "
                "is not followed."
            )


def _projections(
    checkpoint: Checkpoint, rule: _Rule, module: str, layer: int
) -> tuple[
    NDArray[np.floating[Any]],
    NDArray[np.floating[Any]],
    NDArray[np.floating[Any]] | None,
    NDArray[np.floating[Any]] | None,
]:
    """Read the query and key weights as ``[d, columns]`` and their biases."""
    query = module + rule.query.format(layer)
    if not rule.fused:
        key = module + rule.key.format(layer)
        w_q, w_k = (_matrix(checkpoint, f"{name}.weight").T for name in (query, key))
        b_q, b_k = (_vector(checkpoint, f"{name}.bias") for name in (query, key))
        return w_q, w_k, b_q, b_k
    stored = checkpoint.tensors[f"{query}.weight"]
    bias = _vector(checkpoint, f"{query}.bias")
    if len(stored.shape) != 2 or max(stored.shape) % 3:
        raise InvalidCheckpoint(
            f"{stored.file}: tensor {stored.name}, shape {list(stored.shape)}: queries, keys and "
            "values of one width are expected."
        )
    if rule.fused == "rows":
        third = stored.shape[0] // 3
        both = checkpoint.read_rows(stored.name, np.arange(2 * third)).T
    else:
        third = stored.shape[1] // 3
        both = checkpoint.read(stored.name).values
    b_q, b_k = (None, None) if bias is None else (bias[:third], bias[third : 2 * third])
    return both[:, :third], both[:, third : 2 * third], b_q, b_k


def _matrix(checkpoint: Checkpoint, name: str) -> NDArray[np.floating[Any]]:
    if name not in checkpoint.tensors:
        raise InvalidCheckpoint(f"{checkpoint.location}: the tensor {name} is missing.")
    values = checkpoint.read(name).values
    if values.ndim != 2:
        raise InvalidCheckpoint(
            f"{checkpoint.location}: tensor {name}, shape {list(values.shape)}, is no matrix."
        )
    return values


def _vector(checkpoint: Checkpoint, name: str) -> NDArray[np.floating[Any]] | None:
    return checkpoint.read(name).values if name in checkpoint.tensors else None


def _count_heads(checkpoint: Checkpoint, config: Mapping[str, Any], dim: int) -> int:
    arguments = config.get("model_args")
    stated = [config, arguments] if isinstance(arguments, Mapping) else [config]
    for place in stated:
        for key in ("num_attention_heads", "n_head", "num_heads"):
            if isinstance(place.get(key), int) and place[key] > 0:
                return int(place[key])
    name = str(config.get("architecture", ""))
    for size, (width, heads) in _TIMM_HEADS.items():
        if size in name and width == dim:
            return heads
    raise UsageError(
        f"{checkpoint.location}: its configuration does not say how many heads it has. "
        "State it: load_heads(..., heads=N)."
    )


def _content(
    checkpoint: Checkpoint, position: str, token_type: str, content: Content, dim: int
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return what stands at every position, and what that is in words."""
    if content == "none":
        return np.zeros(dim), ("positions are alone: nothing is added to them",)
    sample = sample_tokens(checkpoint, checkpoint.tensors[position])
    if isinstance(sample, str):
        raise UsageError(f"{checkpoint.location}: {sample}. Use content='none'.")
    if sample.kind == "token":
        added = sample.values.astype(np.float64).mean(axis=0)
        note = f"the mean of {len(sample.values)} rows of {sample.tensor.name} is added to each"
        if token_type in checkpoint.tensors:
            added = added + checkpoint.read_rows(token_type, [0])[0]
            note += f", and row 0 of {token_type}"
        return added, (note,)
    name = sample.tensor.name.removesuffix("weight") + "bias"
    bias = _vector(checkpoint, name)
    if bias is None:
        return np.zeros(dim), ("a grey patch is added to each: the projection has no bias",)
    return bias.astype(np.float64), (f"a grey patch is added to each: {name}",)


def _epsilon(checkpoint: Checkpoint, rule: _Rule, module: str, config: Mapping[str, Any]) -> float:
    for key in ("layer_norm_eps", "layer_norm_epsilon"):
        if key in config:
            return float(config[key])
    # Of timm's models only CLIP's normalise before the first layer, and they use 1e-5.
    is_clip = rule.first_norm == "norm_pre" and _norm_name(checkpoint, f"{module}norm_pre")
    return 1e-5 if is_clip else rule.eps


def _norm_name(checkpoint: Checkpoint, module: str) -> str | None:
    # Checkpoints converted from TensorFlow say gamma and beta.
    names = (f"{module}.weight", f"{module}.gamma")
    return next((name for name in names if name in checkpoint.tensors), None)


def _norm(
    checkpoint: Checkpoint, module: str
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]] | None] | None:
    """Read the scale and shift of a LayerNorm, None where there is none."""
    weight = _norm_name(checkpoint, module)
    if weight is None:
        return None
    end = ".beta" if weight.endswith(".gamma") else ".bias"
    return checkpoint.read(weight).values, _vector(checkpoint, module + end)


def _layer_norm(
    rows: NDArray[np.float64],
    weight: NDArray[np.floating[Any]],
    bias: NDArray[np.floating[Any]] | None,
    eps: float,
) -> NDArray[np.float64]:
    """Normalise each row to mean 0 and variance 1, then scale and shift (Ba et al. 2016)."""
    values = rows - rows.mean(axis=1, keepdims=True)
    values /= np.sqrt((values**2).mean(axis=1, keepdims=True) + eps)
    shifted: NDArray[np.float64] = values * weight + (0.0 if bias is None else bias)
    return shifted
