"""A table as a layer's attention sees it: rows with content, LayerNorm, projections, and heads.

``architectures.toml`` names the tensors between table and attention for some architectures. Models
that have these names but compute in another way are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from posprobe import settings
from posprobe.checkpoints import Checkpoint
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families.architectures import LayerRule, has_model_type, load_registry
from posprobe.families.configurations import (
    apply_layer_norm,
    find_norm_tensor,
    find_section,
    list_sections,
)
from posprobe.families.projections import ProjectionNames, read_projections
from posprobe.families.read import load, open_reference
from posprobe.families.tokens import sample_tokens
from posprobe.layouts import check_no_video
from posprobe.reference import parse_reference
from posprobe.tables import PositionTable

_Weight: TypeAlias = NDArray[np.floating[Any]]


def find_rule(
    checkpoint: Checkpoint, position_name: str, config: Mapping[str, Any]
) -> LayerRule:
    """Return the only rule whose tensors the checkpoint has."""
    model_type = config.get("model_type")
    rules = load_registry().layers
    matching_rules = [
        rule
        for rule in rules
        if (model_type is None or has_model_type(rule, model_type))
        and _has_layers(checkpoint, rule.find_module(position_name), rule)
    ]
    if len(matching_rules) == 1:
        _check_variants(checkpoint, config)
        return matching_rules[0]
    known_types = ", ".join(
        sorted({known_type for rule in rules for known_type in rule.model_types})
    )
    reason = (
        "is not known"
        if not matching_rules
        else "differs between architectures of these names"
    )
    raise UsageError(
        f"{checkpoint.location}: how its heads read {position_name} "
        f"{reason} (model_type {model_type}), or their weights are missing. "
        f"Known are {known_types} and timm's ViT."
    )


def _has_layers(checkpoint: Checkpoint, module: str | None, rule: LayerRule) -> bool:
    """Tell whether a checkpoint has the query weight and norm of layer 0 by a rule."""
    if (
        module is None
        or f"{module}{rule.query.format(0)}.weight" not in checkpoint.tensors
    ):
        return False
    norm = module + rule.norm.format(0)
    return not rule.norm or find_norm_tensor(checkpoint, norm, "weight") is not None


def _check_variants(checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    """Refuse variants with a known architecture's names that compute in another way."""
    groups = (config.get("num_hidden_groups", 1), config.get("inner_group_num", 1))
    if groups != (1, 1):
        raise UsageError(
            f"{checkpoint.location}: its layers share {groups[0]} groups of "
            f"{groups[1]} sets of weights, which is not supported: all must "
            "share one set."
        )
    if re.search(r"_rpn(_|$)", name := str(config.get("architecture", ""))):
        raise UsageError(
            f"{checkpoint.location}: {name} normalises after its attention, which is not supported."
        )


def count_layers(
    checkpoint: Checkpoint, module: str, rule: LayerRule, config: Mapping[str, Any]
) -> int:
    """Count the layers by their query weights, or by the configuration if they share one set."""
    if rule.shared:
        return (
            settings.read_integer(
                config, "num_hidden_layers", maximum=settings.MAX_CONFIG_LAYERS
            )
            or 1
        )
    n_layers = 1
    while f"{module}{rule.query.format(n_layers)}.weight" in checkpoint.tensors:
        n_layers += 1
    return n_layers


def resolve_name(checkpoint: Checkpoint, module: str, pattern: str) -> str:
    """Return the full name of a module in a rule; empty if this model does not have it."""
    name = module + pattern.removesuffix("?")
    exists = not pattern.endswith("?") or find_norm_tensor(checkpoint, name, "weight")
    return name if pattern and exists else ""


def find_epsilon(
    checkpoint: Checkpoint, rule: LayerRule, module: str, config: Mapping[str, Any]
) -> float:
    """Return the constant that a model's LayerNorms add to variances."""
    for key in ("layer_norm_eps", "layer_norm_epsilon"):
        if (value := settings.read_number(config, key)) is not None:
            return value
    # In timm only CLIP's models normalise before the first layer, and they use 1e-5 throughout.
    is_clip = rule.first_norm == "norm_pre?" and resolve_name(
        checkpoint, module, rule.first_norm
    )
    return 1e-5 if is_clip else rule.eps


#: Content that is added to the row of every position.
Content: TypeAlias = Literal["mean", "none"]


class Reading(TypedDict, total=False):
    """Options of `posprobe.load`, and the content that is added to the rows."""

    content: Content
    rows: slice | None
    grid: tuple[int, ...] | None
    revision: str | None
    offline: bool


@dataclass(frozen=True, eq=False)
class TableInModel:
    """A table in its model; tensors that all layers share have been read.

    Parameters
    ----------
    checkpoint
        Open checkpoint; the weights of a layer are read on demand.
    table
        ``[n, d]``, table as stored.
    config
        Section of the configuration that describes the table's module.
    rule, module
        Names of the architecture's tensors, and their prefix.
    layers
        Number of layers.
    eps
        Constant that the LayerNorms add to variances.
    content
        ``[d]``, vector that is added to every row.
    rows
        ``[n, D]``, rows at the input of the first layer; ``D`` is ``d`` unless a projection
        follows the embeddings.
    notes
        Operations on the rows, in words.
    """

    checkpoint: Checkpoint
    table: PositionTable
    config: Mapping[str, Any]
    rule: LayerRule
    module: str
    layers: int
    eps: float
    content: NDArray[np.float64]
    rows: NDArray[np.float64]
    notes: tuple[str, ...]


def effective_table(
    reference: str, layer: int = 0, **reading: Unpack[Reading]
) -> PositionTable:
    """Load a table as a layer's attention sees it, without building the model.

    These are the rows that ``W_Q`` and ``W_K`` multiply if the content is the same at every
    position. With ``"mean"`` the content is the mean of a sample of the token embeddings (and
    BERT's first token type), or, for images, the bias of the patch projection: an image whose
    pixels are 0 after normalisation, the mean grey. With ``"none"`` it is the zero vector.

    LayerNorm is applied to those rows, and is exact for them: in GPT-2 and ViT (pre-LN) the one
    before the layer's attention, in BERT (post-LN) the one after the embeddings; ALBERT and small
    ELECTRA project to their hidden width after that. At layer 0 these are the rows that the model
    itself computes for this input. At higher layers they follow the direct path, on which the
    layers below add nothing and normalise nothing. Other inputs have rows of another length, by
    which LayerNorm divides the contribution of the position.

    Parameters
    ----------
    reference
        Reference, as for `load`.
    layer
        Index of the layer, from 0.
    reading
        Options ``content``, the content of every position (default ``"mean"``), and ``rows``,
        ``grid``, ``revision`` and ``offline`` as for `load`.

    Returns
    -------
    PositionTable
        ``[n, D]`` in float64, ``D`` the width of the layer, without rows of special tokens. Layout
        and provenance are those of the stored table; the notes list the operations. The rows are
        inputs of the query and key projections and cannot be compared with token embeddings.

    Raises
    ------
    UsageError
        If the layer does not exist, or how the architecture reads its table is not known.
    InvalidCheckpoint
        If the weights do not fit the table.
    PosprobeError
        As for `load`.

    Examples
    --------
    The LayerNorm before the first layer's attention has been applied to these rows:

    >>> import posprobe as pp
    >>> stored = pp.load("sample:digits-vit")
    >>> seen = pp.families.effective_table("sample:digits-vit", layer=0)
    >>> len(seen) == len(stored), seen.dim
    (True, 48)
    """
    return table_at_layer(open_model(reference, **reading), layer)


def open_model(
    reference: str, *, content: Content = "mean", offline: bool = False, **options: Any
) -> TableInModel:
    """Read a table and its content, and apply the modules before the first layer.

    Parameters and errors are those of `effective_table`.
    """
    if content not in ("mean", "none"):
        raise UsageError(f"content={content!r}: it is 'mean' or 'none'.")
    table = load(reference, offline=offline, **options)
    check_no_video(table.layout, table.name)
    position_name = table.source.tensor
    if position_name is None:
        raise UsageError(
            f"{reference}: a formula has no heads and no LayerNorm. Name a checkpoint."
        )
    parsed = replace(parse_reference(reference), revision=table.source.revision)
    checkpoint = open_reference(parsed, offline=offline)
    config = find_section(position_name, list_sections(checkpoint.config)).config
    rule = find_rule(checkpoint, position_name, config)
    module = rule.find_module(position_name) or ""
    eps = find_epsilon(checkpoint, rule, module, config)
    content_row, notes = _read_content(
        checkpoint, position_name, module + rule.token_type, content, table.dim
    )
    values = table.values.astype(np.float64) + content_row
    if name := resolve_name(checkpoint, module, rule.first_norm):
        values = apply_layer_norm(checkpoint, values, name, eps)
        notes = (*notes, f"LayerNorm {name} is applied to the rows")
    if name := resolve_name(checkpoint, module, rule.projection):
        values = _apply_projection(checkpoint, values, name)
        notes = (
            *notes,
            f"{name} projects the rows from width {table.dim} to {values.shape[1]}",
        )
    return TableInModel(
        checkpoint,
        table,
        config,
        rule,
        module,
        count_layers(checkpoint, module, rule, config),
        eps,
        content_row,
        values,
        notes,
    )


def table_at_layer(model: TableInModel, layer: int) -> PositionTable:
    """Return the table as the attention of a layer sees it.

    Raises
    ------
    UsageError
        If there is no such layer.
    InvalidCheckpoint
        If its LayerNorm is missing or does not fit.
    """
    if not 0 <= layer < model.layers:
        raise UsageError(
            f"{model.checkpoint.location}: no layer {layer}. Choose one of 0 to {model.layers - 1}."
        )
    values, notes = model.rows, model.notes
    # OPT-350m normalises after the attention instead.
    if model.rule.norm and model.config.get("do_layer_norm_before") is not False:
        name = model.module + model.rule.norm.format(layer)
        values = apply_layer_norm(model.checkpoint, values, name, model.eps)
        notes = (*notes, f"LayerNorm {name} is applied to the rows")
    if layer:
        notes = (*notes, f"direct path: the {layer} layers below are left out")
    return replace(
        model.table,
        values=values,
        name=f"{model.table.name}, as layer {layer} sees it",
        prefix=None,
        prefix_rows=(),
        notes=(*model.table.notes, *notes),
    )


def _read_content(
    checkpoint: Checkpoint,
    position_name: str,
    token_type: str,
    content: Content,
    dim: int,
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the content of every position, and a note that describes it."""
    if content == "none":
        return np.zeros(dim), ("positions are alone: nothing is added to them",)
    sample = sample_tokens(checkpoint, checkpoint.tensors[position_name])
    if sample.kind == "token":
        mean_row = sample.values.astype(np.float64).mean(axis=0)
        note = f"the mean of {len(sample.values)} rows of {sample.tensor.name} is added to each"
        if token_type in checkpoint.tensors:
            mean_row = mean_row + checkpoint.read_rows(token_type, [0])[0]
            note += f", and row 0 of {token_type}"
        return mean_row, (note,)
    name = sample.tensor.name.removesuffix("weight") + "bias"
    patch_bias = read_vector(checkpoint, name)
    grey_patch = np.zeros(dim) if patch_bias is None else patch_bias.astype(np.float64)
    return grey_patch, (
        f"a grey patch is added to each: {name}{' (none)' if patch_bias is None else ''}",
    )


def _apply_projection(
    checkpoint: Checkpoint, rows: NDArray[np.float64], name: str
) -> NDArray[np.float64]:
    weight = read_matrix(checkpoint, f"{name}.weight")
    bias = read_vector(checkpoint, f"{name}.bias")
    if weight.shape[1] != rows.shape[1] or (
        bias is not None and bias.shape != weight.shape[:1]
    ):
        raise InvalidCheckpoint(
            f"{checkpoint.location}: {name}, shape {list(weight.shape)}, "
            f"takes no rows of width {rows.shape[1]}."
        )
    return rows @ weight.T.astype(np.float64) + (0.0 if bias is None else bias)


def read_matrix(checkpoint: Checkpoint, name: str) -> NDArray[np.floating[Any]]:
    """Read a tensor of two dimensions.

    Raises
    ------
    InvalidCheckpoint
        If the tensor is missing or has another number of dimensions.
    """
    if name not in checkpoint.tensors:
        raise InvalidCheckpoint(f"{checkpoint.location}: the tensor {name} is missing.")
    values = checkpoint.read(name).values
    if values.ndim != 2:
        raise InvalidCheckpoint(
            f"{checkpoint.location}: tensor {name}, shape {list(values.shape)}, is not a matrix."
        )
    return values


def read_vector(checkpoint: Checkpoint, name: str) -> NDArray[np.floating[Any]] | None:
    """Read a tensor; None if it is missing."""
    return checkpoint.read(name).values if name in checkpoint.tensors else None


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """Positions as they enter one layer's attention, and its query and key weights.

    Parameters
    ----------
    table
        ``[n, d]``, rows that the weights multiply, as `effective_table` returns them.
    content
        Vector that was added to every row, ``[d]`` of the stored table.
    w_q, w_k
        ``[d, heads * d_h]``, weights of ``q = x W_Q + b_Q``, heads side by side.
    b_q, b_k
        ``[heads * d_h]``, biases; None if the layer has none.
    heads, layer, layers
        Number of heads, number of the layer, and number of layers.
    scale
        Factor of the products of queries and keys in the model.
    causal
        Whether queries see no later keys.
    """

    table: PositionTable
    content: NDArray[np.float64] = field(repr=False)
    w_q: NDArray[np.floating[Any]] = field(repr=False)
    w_k: NDArray[np.floating[Any]] = field(repr=False)
    b_q: NDArray[np.floating[Any]] | None = field(repr=False)
    b_k: NDArray[np.floating[Any]] | None = field(repr=False)
    heads: int
    layer: int
    layers: int
    scale: float
    causal: bool


def load_heads(
    reference: str,
    layer: int = 0,
    *,
    heads: int | None = None,
    **reading: Unpack[Reading],
) -> LayerHeads:
    """Read what a layer's heads compute from positions, without building the model.

    The rows are those of `effective_table`. At layer 0 their logits are those that the model itself
    computes for an input whose content is the same at every position; above it they follow the
    direct path.

    Parameters
    ----------
    reference, layer, reading
        Same as for `effective_table`.
    heads
        Number of heads, where the configuration does not state it.

    Raises
    ------
    UsageError
        If the layer does not exist, how the architecture reads its table is not known, it does more
        to queries and keys than a product and a bias, or the number of heads is not known.
    InvalidCheckpoint
        If the weights do not fit the table.
    PosprobeError
        As for `load`.

    Examples
    --------
    One layer of a small vision transformer, without building it:

    >>> import posprobe as pp
    >>> layer = pp.families.load_heads("sample:digits-vit", layer=0)
    >>> layer.heads, layer.w_q.shape
    (4, (48, 48))
    >>> logits = pp.analyses.head_logits(
    ...     layer.table, layer.w_q, layer.w_k, layer.b_q, layer.b_k, heads=layer.heads
    ... )
    >>> logits.curves.shape
    (4, 15, 15)
    """
    return read_heads(open_model(reference, **reading), layer, heads)


def read_heads(model: TableInModel, layer: int, heads: int | None = None) -> LayerHeads:
    """Read the query and key weights of one layer of an open model.

    Parameters
    ----------
    model
        Model from `open_model`.
    layer, heads
        Same as for `load_heads`, with the same errors.
    """
    table = table_at_layer(model, layer)
    subject = f"{model.checkpoint.location}: layer {layer}"
    _check_attention_modules(model, layer)
    w_q, w_k, b_q, b_k = _read_projections(model, layer)
    if len(w_q) != table.dim:
        raise InvalidCheckpoint(
            f"{subject}: its weights take rows of width {len(w_q)}, not "
            f"{table.dim}: a projection lies between them, which is not "
            "supported."
        )
    n_heads = _count_heads(model) if heads is None else heads
    if n_heads < 1:
        raise UsageError(f"{subject}: heads={n_heads}: it must be at least 1.")
    if w_q.shape[1] % n_heads:
        raise UsageError(
            f"{subject}: {w_q.shape[1]} columns do not divide into {n_heads} heads."
        )
    scale = 1 / math.sqrt(w_q.shape[1] // n_heads)
    if model.config.get("scale_attn_weights") is False:
        scale = 1.0
    if model.config.get("scale_attn_by_inverse_layer_idx"):
        scale /= layer + 1
    return LayerHeads(
        table=table,
        content=model.content,
        w_q=w_q,
        w_k=w_k,
        b_q=b_q,
        b_k=b_k,
        heads=n_heads,
        layer=layer,
        layers=model.layers,
        scale=scale,
        causal=model.rule.causal or bool(model.config.get("is_decoder")),
    )


def _check_attention_modules(model: TableInModel, layer: int) -> None:
    """Refuse layers that do more to queries and keys than a product and a bias."""
    attention_module = (model.module + model.rule.query.format(layer)).rpartition(".")[
        0
    ] + "."
    for name in model.checkpoint.tensors:
        module = name.removeprefix(attention_module).partition(".")[0]
        if (
            name.startswith(attention_module)
            and module not in load_registry().attention_modules
        ):
            raise UsageError(
                f"{model.checkpoint.location}: {name} stands between "
                "positions and their logits, which is not supported."
            )


def _read_projections(
    model: TableInModel, layer: int
) -> tuple[_Weight, _Weight, _Weight | None, _Weight | None]:
    """Read the query and key weights as ``[d, columns]`` and their biases."""
    checkpoint, rule = model.checkpoint, model.rule
    query, key = (model.module + name.format(layer) for name in (rule.query, rule.key))
    if not rule.fused:
        w_q, w_k = (read_matrix(checkpoint, f"{name}.weight").T for name in (query, key))
        b_q, b_k = (read_vector(checkpoint, f"{name}.bias") for name in (query, key))
        return w_q, w_k, b_q, b_k
    shape = checkpoint.tensors[f"{query}.weight"].shape
    if len(shape) != 2 or max(shape) % 3:
        subject = checkpoint.tensors[f"{query}.weight"].subject
        raise InvalidCheckpoint(
            f"{subject}: queries, keys and values of one width are expected."
        )
    head_columns = shape[0 if rule.fused == "rows" else 1] // 3
    fused = ProjectionNames(query, query, rule.fused)
    w_q, w_k = read_projections(checkpoint, fused, heads=1, keys=1, head_dim=head_columns)
    if f"{query}.bias" not in checkpoint.tensors:
        return w_q.T, w_k.T, None, None
    b_q, b_k = read_projections(
        checkpoint, fused, heads=1, keys=1, head_dim=head_columns, parameter="bias"
    )
    return w_q.T, w_k.T, b_q, b_k


def _count_heads(model: TableInModel) -> int:
    config = model.config
    arguments = config.get("model_args")
    configs = [config, arguments] if isinstance(arguments, Mapping) else [config]
    for section in configs:
        for key in model.rule.heads:
            if (
                heads := settings.read_integer(section, key, maximum=model.table.dim)
            ) is not None:
                return heads
    name = str(config.get("architecture", ""))
    for size_name, (width, heads) in load_registry().timm_heads.items():
        if size_name in name and width == model.table.dim:
            return int(heads)
    raise UsageError(
        f"{model.checkpoint.location}: it does not say how many heads it has. State it: heads=N."
    )
