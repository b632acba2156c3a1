"""What a layer's attention sees of a table: rows with content, LayerNorm, projections; heads.

Where architectures keep what leads there stands in ``layer_rules.toml``. What bears one of their
names and computes in another way is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints import Checkpoint
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families.layer_rules import (
    Rule,
    count_layers,
    epsilon,
    find_rule,
    full_name,
    norm_part,
)
from posprobe.families.parts import part_for, parts_of
from posprobe.families.read import load, open_reference
from posprobe.families.tokens import sample_tokens
from posprobe.reference import parse_reference
from posprobe.tables import PositionTable

#: What stands at every position beside its encoding.
Content: TypeAlias = Literal["mean", "none"]


@dataclass(frozen=True, eq=False)
class TableInModel:
    """A table beside the weights that its rows meet; what all layers share has been read.

    Parameters
    ----------
    checkpoint
        Open; the layers' weights are read when they are asked for.
    table
        ``[n, d]``, as stored.
    config
        The part of the configuration that describes the table's module.
    rule, module
        The architecture's names, and the prefix that they stand behind.
    layers
        How many there are.
    eps
        What the LayerNorms add to variances.
    content
        ``[d]``: what is added to every row.
    rows
        ``[n, D]``: the rows as they enter the first layer; ``D`` is ``d`` unless a projection
        follows the embeddings.
    notes
        What was done to them, in words.
    """

    checkpoint: Checkpoint
    table: PositionTable
    config: Mapping[str, Any]
    rule: Rule
    module: str
    layers: int
    eps: float
    content: NDArray[np.float64]
    rows: NDArray[np.float64]
    notes: tuple[str, ...]


def effective_table(
    reference: str,
    layer: int = 0,
    *,
    content: Content = "mean",
    rows: slice | None = None,
    grid: tuple[int, int] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> PositionTable:
    """Load a table as a layer's attention sees it, without building the model.

    These are the rows that meet ``W_Q`` and ``W_K`` where the content is the same at every
    position. With ``"mean"`` that is the mean of a sample of the token embeddings (and BERT's first
    token type), or, for images, the bias of the patch projection: an image whose pixels are 0 after
    normalisation, the mean grey. With ``"none"`` it is the zero vector, as if positions were alone.

    LayerNorm is applied to those rows, and is exact for them: in GPT-2 and ViT (pre-LN) the one
    before the layer's attention, in BERT (post-LN) the one after the embeddings; ALBERT and small
    ELECTRA project to their hidden width after that. So at layer 0 the rows are those that the
    model itself computes for this input. Above it they follow the direct path, on which the layers
    below add nothing and normalise nothing. Other inputs have rows of another length, which the
    LayerNorm divides the position's part by.

    Parameters
    ----------
    reference
        As for `load`.
    layer
        Counted from 0.
    content
        What stands at every position.
    rows, grid, revision, offline
        As for `load`.

    Returns
    -------
    PositionTable
        ``[n, D]`` in float64, ``D`` the width of the layer; layout and provenance are the stored
        table's, the notes say what was applied. Rows of special tokens are left out. They live
        where queries and keys are made, and are not to be held against token embeddings.

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
    model = open_model(
        reference, content=content, rows=rows, grid=grid, revision=revision, offline=offline
    )
    return table_at(model, layer)


def open_model(
    reference: str,
    *,
    content: Content,
    rows: slice | None,
    grid: tuple[int, int] | None,
    revision: str | None,
    offline: bool,
) -> TableInModel:
    """Read a table, the content beside it and what stands before the first layer.

    Parameters and errors are those of `effective_table`.
    """
    if content not in ("mean", "none"):
        raise UsageError(f"content={content!r}: it is 'mean' or 'none'.")
    table = load(reference, rows=rows, grid=grid, revision=revision, offline=offline)
    position = table.source.tensor
    if position is None:
        raise UsageError(
            f"{reference}: a formula has no heads and no LayerNorm. Name a checkpoint."
        )
    parsed = replace(parse_reference(reference), revision=table.source.revision)
    checkpoint = open_reference(parsed, offline=offline)
    config = part_for(position, parts_of(checkpoint.config)).config
    rule = find_rule(checkpoint, position, config)
    module = position.removesuffix(rule.table)
    eps = epsilon(checkpoint, rule, module, config)
    added, notes = _content(checkpoint, position, module + rule.token_type, content, table.dim)
    values = table.values.astype(np.float64) + added
    if name := full_name(checkpoint, module, rule.first_norm):
        values = _normalised(checkpoint, values, name, eps)
        notes = (*notes, f"LayerNorm {name} is applied to the rows")
    if name := full_name(checkpoint, module, rule.projection):
        values = _projected(checkpoint, values, name)
        notes = (*notes, f"{name} projects the rows from width {table.dim} to {values.shape[1]}")
    return TableInModel(
        checkpoint, table, config, rule, module, count_layers(checkpoint, module, rule, config),
        eps, added, values, notes,
    )  # fmt: skip


def table_at(model: TableInModel, layer: int) -> PositionTable:
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
            f"{model.checkpoint.location}: it has no layer {layer}. Choose one of 0 to "
            f"{model.layers - 1}."
        )
    values, notes = model.rows, model.notes
    # The release of OPT-350m normalises after the attention instead.
    if model.rule.norm and model.config.get("do_layer_norm_before") is not False:
        name = model.module + model.rule.norm.format(layer)
        values = _normalised(model.checkpoint, values, name, model.eps)
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
    bias = read_vector(checkpoint, name)
    if bias is None:
        return np.zeros(dim), ("a grey patch is added to each: the projection has no bias",)
    return bias.astype(np.float64), (f"a grey patch is added to each: {name}",)


def _normalised(
    checkpoint: Checkpoint, rows: NDArray[np.float64], name: str, eps: float
) -> NDArray[np.float64]:
    """Normalise each row to mean 0 and variance 1, then scale and shift (Ba et al. 2016)."""
    where = f"{checkpoint.location}: LayerNorm {name}"
    weight, bias = (norm_part(checkpoint, name, part) for part in ("weight", "bias"))
    if weight is None:
        raise InvalidCheckpoint(f"{where} is missing.")
    if bias is None:
        raise UsageError(
            f"{where} has no bias: it may divide by the root mean square alone (RMSNorm), which is "
            "not followed."
        )
    gain, shift = checkpoint.read(weight).values, checkpoint.read(bias).values
    if not gain.shape == shift.shape == rows.shape[1:]:
        raise InvalidCheckpoint(f"{where} is not {rows.shape[1]} wide.")
    values = rows - rows.mean(axis=1, keepdims=True)
    values /= np.sqrt((values**2).mean(axis=1, keepdims=True) + eps)
    shifted: NDArray[np.float64] = values * gain + shift
    return shifted


def _projected(checkpoint: Checkpoint, rows: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    weight, bias = (
        read_matrix(checkpoint, f"{name}.weight"),
        read_vector(checkpoint, f"{name}.bias"),
    )
    if weight.shape[1] != rows.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        raise InvalidCheckpoint(
            f"{checkpoint.location}: {name}, shape {list(weight.shape)}, takes no rows of width "
            f"{rows.shape[1]}."
        )
    return rows @ weight.T.astype(np.float64) + (0.0 if bias is None else bias)


def read_matrix(checkpoint: Checkpoint, name: str) -> NDArray[np.floating[Any]]:
    """Read a tensor of two dimensions.

    Raises
    ------
    InvalidCheckpoint
        If it is missing or has another number of dimensions.
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
    """Read a tensor, None where there is none."""
    return checkpoint.read(name).values if name in checkpoint.tensors else None
