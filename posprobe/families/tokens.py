"""Embeddings that positions are added to: sampled token rows, or projected white-noise patches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.data import read_data
from posprobe.drawable import Displayable
from posprobe.errors import PosprobeError, UsageError
from posprobe.families.configurations import find_section, list_sections
from posprobe.families.read import open_reference
from posprobe.reference import parse_reference
from posprobe.tables import PositionTable, table as as_table

Kind: TypeAlias = Literal["token", "white-noise patch"]

#: Size of a sample of token rows in numbers, unless more rows are requested: 1 MB in F32, 341 rows
#: of width 768.
SAMPLE_NUMBERS = 2**18
#: Number of runs of consecutive rows in a sample: on the Hub each is one request. Vocabularies are
#: ordered, so runs count for more than rows: 8 give the mean norm of MiniLM's tokens to 3 %, 16 to
#: 1.5 %.
N_SAMPLE_RUNS = 16
#: Smallest number of white-noise patches that are drawn.
MIN_SAMPLED_PATCHES = 512
#: Largest number of pixels or values of the patches: 512 MB in float64.
MAX_PATCH_NUMBERS = 2**26

#: Largest usable magnitude; the squares of larger numbers overflow.
MAX_TOKEN_MAGNITUDE = 1e140
_UNUSABLE_NUMBERS = "NaN, infinity or numbers of their size"

_TOKEN_KEYS = read_data("families/configurations.toml")["tokens"]
_TOKEN_TENSORS: Mapping[str, tuple[str, ...]] = _TOKEN_KEYS["embeddings"]
_PATCH_PROJECTIONS = _TOKEN_KEYS["projections"]


@dataclass(frozen=True, eq=False)
class TokenSample(Displayable):
    """Vectors that a model adds its positions to, with the way they were sampled.

    Parameters
    ----------
    values
        ``[k, d]``, vectors with ``factor`` applied.
    kind
        Type of vectors: ``token`` for rows of the token embeddings, ``white-noise patch`` for the
        projection of independent pixels with mean 0 and variance 1.
    tensor
        Tensor of the token embeddings, or of the projection's weight.
    blocks
        Stored rows of tokens that were sampled, as ``(first, one past the last)``.
    seed
        Seed of the choice of rows, or of the pixels.
    factor
        Factor by which the model multiplies the stored rows before it adds positions.
    error
        Relative standard error of the mean norm of ``values`` as an estimate of that of all rows; 0
        if all rows were read.
    note
        Source of the factor, and remarks for the reader.
    """

    values: NDArray[np.floating[Any]] = field(repr=False)
    kind: Kind
    tensor: TensorInfo = field(repr=False)
    blocks: tuple[tuple[int, int], ...] = field(repr=False)
    seed: int
    factor: float
    error: float
    note: str

    def summary(self) -> dict[str, Any]:
        """Return the provenance of the vectors for ``analysis.json``."""
        return {
            "kind": self.kind,
            "tensor": self.tensor.name,
            "shape": list(self.tensor.shape),
            "dtype": self.tensor.dtype,
            "sampled": len(self.values),
            "blocks": [list(block) for block in self.blocks],
            "seed": self.seed,
            "factor": self.factor,
            "standard_error": self.error,
            "note": self.note,
        }


def load_tokens(
    table: PositionTable | str | PathLike[str],
    *,
    rows: int | None = None,
    seed: int = 0,
    offline: bool = False,
) -> TokenSample:
    """Sample the token or patch embeddings that a table's positions are added to.

    Rows are read by range; from a Hub repository this takes about twenty requests and, unless more
    rows are requested, a megabyte.

    Parameters
    ----------
    table
        Table as `load` returned it, or a reference.
    rows
        Minimum number of vectors, or all that there are (for patches, up to `MAX_PATCH_NUMBERS`
        numbers). Directions need several times the width of the table.
    seed
        Random seed.
    offline
        Use local files only.

    Raises
    ------
    UsageError
        If the checkpoint holds no such embeddings, or they cannot be read; the message says why.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.load("sample:digits-vit")
    >>> tokens = pp.load_tokens(table)
    >>> tokens.kind, tokens.values.shape[1] == table.dim
    ('white-noise patch', True)
    """
    table = as_table(table)
    source = table.source
    if source.tensor is None:
        raise UsageError(f"{table.name}: a formula has no tokens. Name a checkpoint.")
    if rows is not None and rows < 1:
        raise UsageError(f"rows={rows}: it must be at least 1.")
    parsed = parse_reference(source.reference)
    checkpoint = open_reference(
        replace(parsed, revision=source.revision), offline=offline
    )
    try:  # callers can still analyse the positions without tokens
        return sample_tokens(
            checkpoint, checkpoint.tensors[source.tensor], seed, rows=rows
        )
    except PosprobeError as error:
        raise UsageError(f"{table.name}: {error}") from error


def sample_tokens(
    checkpoint: Checkpoint,
    position_tensor: TensorInfo,
    seed: int = 0,
    *,
    rows: int | None = None,
) -> TokenSample:
    """Sample the embeddings that a checkpoint adds a table of positions to.

    Token embeddings are read in `N_SAMPLE_RUNS` runs of consecutive rows, equally spaced from a
    random first one, since vocabularies are ordered (special tokens and characters first, then by
    frequency). They have `SAMPLE_NUMBERS` numbers in all, or the requested number of rows. A small
    matrix is read whole. The standard error is that of systematic samples, from the differences of
    successive runs' means (Wolter, Introduction to Variance Estimation, 2007, section 8.2,
    estimator v2).

    For patches a checkpoint has a projection of pixels and no rows: ``e = W x + b``. For pixels
    that are independent with mean 0 and variance 1 the squared norm has mean ``|W|² + |b|²``
    (``E[x xᵀ] = I``); `MIN_SAMPLED_PATCHES` of them are drawn, or more on request. Pixels of a
    photograph are not independent: neighbours are nearly equal, and filters that add them up return
    longer vectors. The note also states the norm for the opposite case, patches of one colour.

    Parameters
    ----------
    checkpoint
        Checkpoint of the model.
    position_tensor
        Table of positions as stored.
    seed
        Seed of the choice of rows, or of the pixels.
    rows
        Minimum number of vectors; all of them if there are fewer.

    Raises
    ------
    UsageError
        If the checkpoint holds no such embeddings, or they have another form.
    PosprobeError
        If the embeddings cannot be read.
    """
    token_tensor = _find_token_tensor(checkpoint, position_tensor.name)
    if token_tensor is None:
        raise UsageError(
            f"beside {position_tensor.name} stands no table of token "
            "embeddings and no projection of patches by a name that is "
            "known"
        )
    sample = (
        _sample_patches if token_tensor.endswith(_PATCH_PROJECTIONS) else _sample_rows
    )
    return sample(
        checkpoint, position_tensor, checkpoint.tensors[token_tensor], seed, rows or 0
    )


def _find_token_tensor(checkpoint: Checkpoint, position_name: str) -> str | None:
    """Find the nearest tensor that the table's rows are added to, searching modules outwards."""
    for position_ending, endings in _TOKEN_TENSORS.items():
        if not f".{position_name}".endswith(f".{position_ending}"):
            continue
        for module in _iter_modules(position_name.removesuffix(position_ending)):
            for ending in endings:
                if module + ending in checkpoint.tensors:
                    return module + ending
    return None


def _iter_modules(inner: str) -> Iterator[str]:
    """Yield a module and the modules around it: ``a.b.``, ``a.`` and the model itself."""
    names = inner.split(".")[:-1]
    for depth in range(len(names), -1, -1):
        yield "".join(f"{name}." for name in names[:depth])


def _sample_rows(
    checkpoint: Checkpoint,
    position_tensor: TensorInfo,
    info: TensorInfo,
    seed: int,
    min_rows: int,
) -> TokenSample:
    width = position_tensor.shape[-1]
    if len(info.shape) != 2 or info.shape[1] != width:
        raise UsageError(
            f"{info.name}, shape {list(info.shape)}, is not as wide as the "
            f"positions ({width}): a projection lies between them"
        )
    blocks = _choose_blocks(*info.shape, seed, min_rows)
    if not blocks:
        raise UsageError(f"{info.name}, shape {list(info.shape)}, has no rows")
    rows = np.concatenate([np.arange(*block) for block in blocks])
    stored = _widen_usable(checkpoint.read_rows(info.name, rows))
    if stored is None:
        raise UsageError(
            f"{info.name}: rows among the {len(rows)} sampled hold {_UNUSABLE_NUMBERS}"
        )
    factor, note = _find_factor(checkpoint, position_tensor, width)
    norms = np.linalg.norm(stored, axis=1)
    run_ends = np.cumsum([stop - start for start, stop in blocks])[:-1]
    means = np.array([run.mean() for run in np.split(norms, run_ends)])
    error = 0.0
    if len(means) > 1 and norms.any():
        squared = float((np.diff(means) ** 2).sum()) / (2 * (len(means) - 1) * len(means))
        error = math.sqrt(squared) / float(norms.mean())
    return TokenSample(factor * stored, "token", info, blocks, seed, factor, error, note)


def _choose_blocks(
    rows: int, width: int, seed: int, min_rows: int = 0
) -> tuple[tuple[int, int], ...]:
    """Choose the stored rows: all of a small matrix, else equally spaced runs, the first random."""
    length = max(
        1,
        SAMPLE_NUMBERS // (N_SAMPLE_RUNS * max(1, width)),
        -(-min_rows // N_SAMPLE_RUNS),
    )
    if rows <= N_SAMPLE_RUNS * length:
        return ((0, rows),) if rows else ()
    spacing = rows / N_SAMPLE_RUNS
    first_start = float(np.random.default_rng(seed).uniform(0, spacing))
    starts = [int(first_start + run * spacing) for run in range(N_SAMPLE_RUNS)]
    overhang = starts[-1] + length - rows
    # A run beyond the end continues at the beginning, so that all rows are equally likely.
    wrapped = [(0, overhang)] if overhang > 0 else []
    return (*wrapped, *((start, min(start + length, rows)) for start in starts))


def _find_factor(
    checkpoint: Checkpoint, position_tensor: TensorInfo, width: int
) -> tuple[float, str]:
    """Find the factor of token embeddings in the model, and a note about it."""
    config = find_section(position_tensor.name, list_sections(checkpoint.config)).config
    model_type = config.get("model_type")
    factor = math.sqrt(width)
    if model_type == "esm" and config.get("token_dropout"):
        # Unmasked input is scaled by the share that is not masked in training, 1 - 0.15 * 0.8.
        return (
            0.88,
            "token_dropout is true: ESM multiplies token embeddings by 1 - 0.15 * 0.8",
        )
    # Whisper in transformers computes this factor and does not use it.
    if model_type != "whisper":
        for key, scaled in (
            ("scale_embedding", True),
            ("rescale_embeddings", True),  # BigBird
            ("no_scale_embedding", False),  # fairseq
        ):
            if config.get(key) is scaled:
                config_text = str(scaled).lower()
                return (
                    factor,
                    f"{key} is {config_text}: token embeddings are multiplied by sqrt({width})",
                )
    return 1.0, "token embeddings are added as stored"


def _sample_patches(
    checkpoint: Checkpoint,
    position_tensor: TensorInfo,
    info: TensorInfo,
    seed: int,
    min_rows: int,
) -> TokenSample:
    width = position_tensor.shape[-1]
    if len(info.shape) != 4 or info.shape[1] not in (1, 3) or info.shape[0] != width:
        raise UsageError(
            f"{info.name}, shape {list(info.shape)}: no projection of grey "
            f"or colour patches to the positions' width of {width}"
        )
    name = info.name.removesuffix("weight") + "bias"
    weight = _widen_usable(checkpoint.read(info.name).values)
    bias = _widen_usable(
        checkpoint.read(name).values if name in checkpoint.tensors else np.zeros(width)
    )
    if weight is None or bias is None:
        raise UsageError(f"{info.name}: it or its bias holds {_UNUSABLE_NUMBERS}")
    if bias.shape != (width,):
        raise UsageError(
            f"{name}, shape {list(bias.shape)}: no bias of a projection to width {width}"
        )
    flat_weight = weight.reshape(width, -1)
    n_patches = max(
        MIN_SAMPLED_PATCHES, min(min_rows, MAX_PATCH_NUMBERS // max(flat_weight.shape))
    )
    pixels = np.random.default_rng(seed).standard_normal(
        (n_patches, flat_weight.shape[1])
    )
    white_norm = math.hypot(float(np.linalg.norm(weight)), float(np.linalg.norm(bias)))
    plain_norm = math.hypot(
        float(np.linalg.norm(weight.sum(axis=(2, 3)))), float(np.linalg.norm(bias))
    )
    note = (
        "no token embeddings: the projection of pixels drawn independently "
        "with mean 0 and variance 1, root-mean-square norm "
        f"{white_norm:.4g}. Pixels of images are not independent: patches "
        f"of one colour drawn in the same way have {plain_norm:.4g}"
    )
    patch_values = pixels @ flat_weight.T + bias
    norms = np.linalg.norm(patch_values, axis=1)
    error = (
        float(norms.std() / norms.mean()) / math.sqrt(n_patches) if norms.any() else 0.0
    )
    return TokenSample(
        patch_values, "white-noise patch", info, (), seed, 1.0, error, note
    )


def _widen_usable(stored: NDArray[np.floating[Any]]) -> NDArray[np.float64] | None:
    """Convert to float64; None for numbers whose squares overflow."""
    if not np.isfinite(stored).all():  # before the cast, which warns about some NaNs
        return None
    values = stored.astype(np.float64)
    return values if (np.abs(values) < MAX_TOKEN_MAGNITUDE).all() else None
