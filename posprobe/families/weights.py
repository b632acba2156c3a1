"""The weights that turn positions into attention logits, read by name, one layer at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe import settings
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families.effective import (
    Content,
    TableInModel,
    open_model,
    read_matrix,
    read_vector,
    table_at,
)
from posprobe.families.projections import Stored, read_pair
from posprobe.tables import PositionTable

#: Numbers of heads of timm's models by their size, which their configuration does not state.
_TIMM_HEADS: Mapping[str, tuple[int, int]] = {
    "_tiny_": (192, 3), "_small_": (384, 6), "_base_": (768, 12), "_large_": (1024, 16),
}  # fmt: skip
#: What stands beside queries and keys and leaves their product as it is; GPT-2 once stored its mask
#: as ``bias``, and CLIP's kin in timm normalise what comes out (``norm``).
_BESIDE = {
    "query", "key", "value", "dense", "LayerNorm", "output", "q_lin", "k_lin", "v_lin", "out_lin",
    "c_attn", "c_proj", "bias", "masked_bias", "q_proj", "k_proj", "v_proj", "o_proj", "out_proj",
    "qkv", "proj", "norm",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """Positions as they enter one layer's attention, and its query and key weights.

    Parameters
    ----------
    table
        ``[n, d]``: the rows that meet the weights, as `effective_table` gives them.
    content
        What was added to every row, ``[d]`` of the stored table.
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
    content: Content = "mean",
    heads: int | None = None,
    rows: slice | None = None,
    grid: tuple[int, int] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> LayerHeads:
    """Read what a layer's heads compute from positions, without building the model.

    The rows are those of `effective_table`. At layer 0 their logits are those that the model itself
    computes for an input whose content is the same at every position; above it they follow the
    direct path.

    Parameters
    ----------
    reference, layer, content, rows, grid, revision, offline
        As for `effective_table`.
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
    model = open_model(
        reference, content=content, rows=rows, grid=grid, revision=revision, offline=offline
    )
    return read_heads(model, layer, heads)


def read_heads(model: TableInModel, layer: int, heads: int | None = None) -> LayerHeads:
    """Read the query and key weights of one layer of an open model.

    Parameters
    ----------
    model
        From `open_model`.
    layer, heads
        As for `load_heads`, and so are the errors.
    """
    table = table_at(model, layer)
    where = f"{model.checkpoint.location}: layer {layer}"
    _refuse_more(model, layer)
    w_q, w_k, b_q, b_k = _projections(model, layer)
    if len(w_q) != table.dim:
        raise InvalidCheckpoint(
            f"{where}: its weights take rows of width {len(w_q)} and the table has {table.dim}: a "
            "projection lies between them, which is not supported."
        )
    number = _count_heads(model) if heads is None else heads
    if number < 1:
        raise UsageError(f"{where}: heads={number}: it must be at least 1.")
    if w_q.shape[1] % number:
        raise UsageError(f"{where}: {w_q.shape[1]} columns do not divide into {number} heads.")
    scale = 1 / math.sqrt(w_q.shape[1] // number)
    if model.config.get("scale_attn_weights") is False:
        scale = 1.0
    if model.config.get("scale_attn_by_inverse_layer_idx"):
        scale /= layer + 1
    return LayerHeads(
        table=table,
        content=model.content,
        w_q=w_q, w_k=w_k, b_q=b_q, b_k=b_k,
        heads=number, layer=layer, layers=model.layers, scale=scale,
        causal=model.rule.causal or bool(model.config.get("is_decoder")),
    )  # fmt: skip


def _refuse_more(model: TableInModel, layer: int) -> None:
    """Refuse layers that do more to queries and keys than a product and a bias."""
    inside = (model.module + model.rule.query.format(layer)).rpartition(".")[0] + "."
    for name in model.checkpoint.tensors:
        if name.startswith(inside) and name.removeprefix(inside).partition(".")[0] not in _BESIDE:
            raise UsageError(
                f"{model.checkpoint.location}: {name} stands between positions and their logits, "
                "which is not supported."
            )


def _projections(
    model: TableInModel, layer: int
) -> tuple[
    NDArray[np.floating[Any]],
    NDArray[np.floating[Any]],
    NDArray[np.floating[Any]] | None,
    NDArray[np.floating[Any]] | None,
]:
    """Read the query and key weights as ``[d, columns]`` and their biases."""
    checkpoint, rule = model.checkpoint, model.rule
    query, key = (model.module + name.format(layer) for name in (rule.query, rule.key))
    if not rule.fused:
        w_q, w_k = (read_matrix(checkpoint, f"{name}.weight").T for name in (query, key))
        b_q, b_k = (read_vector(checkpoint, f"{name}.bias") for name in (query, key))
        return w_q, w_k, b_q, b_k
    shape = checkpoint.tensors[f"{query}.weight"].shape
    if len(shape) != 2 or max(shape) % 3:
        raise InvalidCheckpoint(
            f"{checkpoint.tensors[f'{query}.weight'].where}: queries, keys and values of one width "
            "are expected."
        )
    third = shape[0 if rule.fused == "rows" else 1] // 3
    fused = Stored(query, query, rule.fused)
    w_q, w_k = read_pair(checkpoint, fused, heads=1, keys=1, head_dim=third)
    if f"{query}.bias" not in checkpoint.tensors:
        return w_q.T, w_k.T, None, None
    b_q, b_k = read_pair(checkpoint, fused, heads=1, keys=1, head_dim=third, what="bias")
    return w_q.T, w_k.T, b_q, b_k


def _count_heads(model: TableInModel) -> int:
    config = model.config
    arguments = config.get("model_args")
    stated = [config, arguments] if isinstance(arguments, Mapping) else [config]
    for place in stated:
        for key in model.rule.heads:
            if (heads := settings.whole(place, key, most=model.table.dim)) is not None:
                return heads
    name = str(config.get("architecture", ""))
    for size, (width, heads) in _TIMM_HEADS.items():
        if size in name and width == model.table.dim:
            return heads
    raise UsageError(
        f"{model.checkpoint.location}: its configuration does not say how many heads it has. "
        "State it: heads=N."
    )
