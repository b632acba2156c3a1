"""Relative positions: their tensors, and the values of these by offset.

``relative.toml`` has one rule for each way in which architectures store them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe import settings
from posprobe.arrays import quotient
from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.data import read_data
from posprobe.encodings import (
    continuous_bias,
    deberta_buckets,
    log_spaced_offsets,
    t5_buckets,
)
from posprobe.errors import InvalidCheckpoint, NoPositionTable, UsageError
from posprobe.families.configurations import (
    ConfigSection,
    apply_layer_norm,
    dotted_name,
    find_norm_tensor,
    find_section,
    list_sections,
)
from posprobe.families.rows import build_source
from posprobe.layouts import Grid, Sequence
from posprobe.schemes import POSITION_UNIT, RelativeBias

Kind: TypeAlias = Literal[
    "buckets",
    "window",
    "log window",
    "mirrored window",
    "two axes",
    "distances",
    "log buckets",
    "prompt buckets",
    "projected",
]


@dataclass(frozen=True)
class RelativeRule:
    """A way to store relative positions.

    Parameters
    ----------
    kind
        Way in which the numbers are found for a distance.
    tensors
        Endings of the names that belong together; the first one identifies the rule.
    description
        Description for people.
    backwards
        Whether offsets are query minus key.
    size_keys, sizes
        Keys of the number of buckets and of the largest distance in a configuration, and the values
        of both where it has none; 0 buckets for as many as the table has.
    heads_first
        Whether a table of buckets is stored as ``[heads, buckets]``.
    unit, page_units
        Unit of distances between buckets of places on a page, and number of these units on a page.
    """

    kind: Kind
    tensors: tuple[str, ...]
    description: str
    backwards: bool = False
    size_keys: tuple[str, str] = (
        "relative_attention_num_buckets",
        "relative_attention_max_distance",
    )
    sizes: tuple[int, int] = (0, 128)
    heads_first: bool = False
    unit: str = ""
    page_units: int = 0


@cache
def load_relative_rules() -> tuple[RelativeRule, ...]:
    """Read ``relative.toml``, once."""
    return tuple(
        RelativeRule(**entry) for entry in read_data("families/relative.toml")["rules"]
    )


#: Modules that are stored and not used: in UDOP's decoder, whose layers have their own bias, and in
#: T5 between decoder and encoder, whose positions have no offset.
UNUSED_MODULES = ("decoder.relative_bias.", "EncDecAttention.relative_attention_bias.")


@dataclass(frozen=True)
class Relative:
    """One relative encoding: its rule and its tensors, in the order of the rule."""

    rule: RelativeRule
    tensors: tuple[TensorInfo, ...]

    @property
    def prefix(self) -> str:
        """Name of the module that holds it."""
        return (
            dotted_name(self.tensors[0].name)
            .removesuffix(self.rule.tensors[0])
            .rstrip(".")
        )


def find_relative(checkpoint: Checkpoint) -> Iterator[Relative]:
    """List the relative encodings of a checkpoint, layer by layer."""
    by_ending: dict[str, list[RelativeRule]] = {}
    for rule in load_relative_rules():
        by_ending.setdefault(rule.tensors[0].rpartition(".")[2], []).append(rule)
    for name in sorted(checkpoint.tensors, key=_natural_key):
        dotted = dotted_name(name)
        for rule in by_ending.get(dotted.rpartition(".")[2], ()):
            first_ending = rule.tensors[0]
            if not f".{dotted}".endswith(f".{first_ending}") or any(
                name in dotted for name in UNUSED_MODULES
            ):
                continue
            module = dotted.removesuffix(first_ending)
            names = [name, *(module + ending for ending in rule.tensors[1:])]
            stored_tensors = tuple(
                checkpoint.tensors[n] for n in names if n in checkpoint.tensors
            )
            if len(stored_tensors) == len(names) or rule.kind == "projected":
                yield Relative(rule, stored_tensors)
            break


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts layer 2 before layer 10, for numbers of any length."""
    return [
        (len(word.lstrip("0")), word.lstrip("0")) if word.isdecimal() else (-1, word)
        for word in re.split(r"[._/]", name)
    ]


#: Largest distance for which values are evaluated.
_MAX_OFFSETS = 2**20
#: Longest side of a window.
_MAX_WINDOW = 64
#: Default biases of UDOP's configuration.
UDOP_BIASES = [{"type": "1d"}, {"type": "horizontal"}, {"type": "vertical"}]
FloatArray: TypeAlias = NDArray[np.float64]
#: Function that builds a scheme from values and layout; name and source are bound.
BuildBias: TypeAlias = Callable[..., RelativeBias]


def read_relative(
    checkpoint: Checkpoint, relative: Relative, name: str, reference: str
) -> RelativeBias:
    """Read a relative encoding's tensors and arrange them by offset, key minus query.

    Raises
    ------
    InvalidCheckpoint
        If the sizes do not fit the architecture.
    NoPositionTable
        If the offset enters through a sinusoid and projections, or through coordinates that are not
        stated, so that no values are stored by offset.
    """
    if relative.rule.kind == "projected":
        raise NoPositionTable(
            f"{checkpoint.location}: {relative.prefix} holds "
            f"{relative.rule.description} per distance. See sinusoidal:NxD."
        )
    main_tensor = relative.tensors[0]
    section = find_section(main_tensor.name, list_sections(checkpoint.config))
    _check_axes(relative)
    stored = [checkpoint.read(info.name) for info in relative.tensors]
    arrays = [tensor.values.astype(np.float64) for tensor in stored]
    if relative.rule.kind == "log buckets":
        arrays = [_normalise_vectors(checkpoint, relative, section, arrays[0])]
    source = build_source(checkpoint, reference, stored[0].info, stored[0].sha256)
    source = replace(source, tensor=", ".join(info.name for info in relative.tensors))
    build = partial(RelativeBias, name=name, family=section.model_type, source=source)
    return _lay_out(build, relative, section, arrays)


def _normalise_vectors(
    checkpoint: Checkpoint,
    relative: Relative,
    section: ConfigSection,
    vectors: FloatArray,
) -> FloatArray:
    """Apply DeBERTa v2's layer normalisation of the vectors (``norm_rel_ebd``)."""
    if "layer_norm" not in str(section.config.get("norm_rel_ebd", "none")):
        return vectors
    name = relative.tensors[0].name.removesuffix(relative.rule.tensors[0]) + "LayerNorm"
    gain = find_norm_tensor(checkpoint, name, "weight")
    if gain is not None and checkpoint.tensors[gain].shape != vectors.shape[1:]:
        norm_shape = list(checkpoint.tensors[gain].shape)
        raise InvalidCheckpoint(
            f"{relative.tensors[0].subject}: its LayerNorm {gain} has the shape "
            f"{norm_shape}. One of them belongs to another checkpoint."
        )
    return apply_layer_norm(
        checkpoint, vectors, name, section.read_number("layer_norm_eps") or 1e-7
    )


def _lay_out(
    build: BuildBias, relative: Relative, section: ConfigSection, arrays: list[FloatArray]
) -> RelativeBias:
    is_reversed = relative.rule.backwards
    subject = relative.tensors[0].subject
    match relative.rule.kind:
        case "buckets" | "prompt buckets":
            return _read_buckets(build, relative, section, arrays[0])
        case "window":
            return _read_window(build, arrays[0], section, subject)
        case "log window":
            return _read_log_window(build, arrays, section, subject)
        case "mirrored window":
            return _read_mirrored(build, arrays[0], subject)
        case "two axes":
            return _read_two_axes(build, arrays, subject, is_reversed=is_reversed)
        case "log buckets":
            return _read_log_buckets(build, arrays[0], section, subject)
    return _read_distances(build, arrays[0], section, subject, is_reversed=is_reversed)


#: Form in which each kind of table is stored, and the numbers of axes that can have it.
_STORED_FORMS: Mapping[Kind, tuple[str, tuple[int, ...]]] = {
    "buckets": ("[buckets, heads]", (2,)),
    "prompt buckets": ("[buckets, heads]", (2,)),
    # MaxViT keeps heads first, displacements on a grid.
    "window": ("[displacements, heads]", (2, 3)),
    "log window": ("[hidden, 2], the weight of a network's first layer,", (2,)),
    "mirrored window": (
        "[heads, h * h], biases by distance along rows and columns of a square window,",
        (2,),
    ),
    "two axes": ("[2h - 1, width of a head] with [2w - 1, width of a head]", (2,)),
    "distances": ("[distances, width]", (2, 3)),
    "log buckets": ("[2 * span, width]", (2,)),
}


def _check_axes(relative: Relative) -> None:
    """Refuse a table that has another number of axes than its kind, or no numbers."""
    expected_shape, axis_counts = _STORED_FORMS[relative.rule.kind]
    # The other tensors of a network are its biases and its second layer.
    n_tables = 1 if relative.rule.kind == "log window" else len(relative.tensors)
    for info in relative.tensors[:n_tables]:
        fits = len(info.shape) in axis_counts and 0 not in info.shape
        if relative.rule.kind == "log buckets":
            fits = fits and info.shape[0] % 2 == 0
        if not fits:
            raise InvalidCheckpoint(
                f"{info.subject}: {expected_shape} is expected. If it was flattened or "
                "quantised, use the checkpoint from which it was made."
            )


def _check_shape(expected_shape: str, subject: str, *, fits: bool) -> None:
    if not fits:
        raise InvalidCheckpoint(f"{subject}: {expected_shape} is expected.")


def _read_buckets(
    build: BuildBias, relative: Relative, section: ConfigSection, table: FloatArray
) -> RelativeBias:
    rule, config, size_keys = relative.rule, section.config, relative.rule.size_keys
    subject, name = relative.tensors[0].subject, relative.tensors[0].name
    bias_arguments = config.get("relative_bias_args")
    if "relative_bias.biases." in name and bias_arguments not in (None, UDOP_BIASES):
        raise settings.wrong_value_error(
            "relative_bias_args", bias_arguments, str(UDOP_BIASES), section.path
        )
    if rule.heads_first:
        table = table.T
    buckets = _read_integer_or(config, size_keys[0], rule.sizes[0] or len(table))
    max_distance = _read_integer_or(config, size_keys[1], rule.sizes[1])
    if rule.kind == "prompt buckets":
        # The first half of the rows is for text, the other for prompts.
        table = table[:buckets]
    if len(table) != buckets:
        raise settings.contradiction_error(subject, f"{size_keys[0]} = {buckets}")
    heads = config.get("num_heads", config.get("num_attention_heads"))
    if type(heads) is int and heads != table.shape[1]:
        raise settings.contradiction_error(subject, f"{heads} heads")
    words = re.split(r"[._]", name)
    causal = bool({"decoder", "dec"} & set(words)) or bool(config.get("is_decoder"))
    offsets = np.arange(-max_distance, max_distance + 1)
    try:
        bucket = t5_buckets(
            offsets, buckets=buckets, max_distance=max_distance, bidirectional=not causal
        )
    except UsageError as error:
        raise InvalidCheckpoint(f"{subject}: {error}") from error
    max_length = _read_integer_or(
        config,
        "max_position_embeddings",
        _read_integer_or(config, "n_positions", 4 * max_distance),
    )
    # The number includes two rows of the absolute table that no position selects.
    reserved = 2 if section.model_type in ("mpnet", "layoutlmv3") else 0
    length = rule.page_units + 1 if rule.page_units else max(max_length - reserved, 1)
    notes = [f"{buckets} buckets, laid out for a largest distance of {max_distance}"]
    if rule.unit:
        notes.append(
            f"distances are between places on the page, in {rule.unit}, not tokens"
        )
    return build(
        values=table[bucket].T,
        layout=Sequence(length),
        causal=causal,
        unit=rule.unit or POSITION_UNIT,
        notes=tuple(notes),
    )


def _read_integer_or(config: Mapping[str, Any], key: str, default: int) -> int:
    if config.get(key) == -1:  # how some configurations write "not set"
        return default
    value = settings.read_integer(config, key, maximum=_MAX_OFFSETS)
    return default if value is None else value


def _read_window(
    build: BuildBias, table: FloatArray, section: ConfigSection, subject: str
) -> RelativeBias:
    if table.ndim == 3:
        table = table.reshape(len(table), -1).T
    grid, n_extra = _find_window(len(table), section)
    if grid is None or max(grid.height, grid.width) > _MAX_WINDOW:
        raise InvalidCheckpoint(
            f"{subject}: {len(table)} rows are not the (2h - 1)(2w - 1) "
            "displacements of a window, with or without three for the CLS "
            "token. State window_size in config.json."
        )
    special_biases: dict[str, FloatArray] = {}
    if n_extra:
        names = ("token to CLS", "CLS to token", "CLS to CLS")
        # The order of the three rows is CLS as query, CLS as key, both.
        special_biases = dict(
            zip((names[1], names[0], names[2]), table[-3:], strict=True)
        )
        table = table[:-3]
    by_displacement = table.T.reshape(-1, 2 * grid.height - 1, 2 * grid.width - 1)
    return build(
        values=by_displacement[:, ::-1, ::-1], layout=grid, special=special_biases
    )


def _find_window(n_rows: int, section: ConfigSection) -> tuple[Grid | None, int]:
    """Find the window by the number of its displacements, and the number of other rows."""
    for n_extra in (0, 3):
        for window in _iter_stated_windows(section):
            if (2 * window.height - 1) * (2 * window.width - 1) == n_rows - n_extra:
                return window, n_extra
    for n_extra in (0, 3):
        span = math.isqrt(max(n_rows - n_extra, 0))
        if span % 2 and span * span == n_rows - n_extra:
            return Grid((span + 1) // 2, (span + 1) // 2), n_extra
    return None, 0


def _iter_stated_windows(section: ConfigSection) -> Iterator[Grid]:
    if window := settings.read_size(section.config, "window_size", maximum=_MAX_OFFSETS):
        yield Grid(*window)
    image = settings.read_size(section.config, "image_size", maximum=_MAX_OFFSETS)
    patch = settings.read_size(section.config, "patch_size", maximum=_MAX_OFFSETS)
    if image and patch and image[0] >= patch[0] and image[1] >= patch[1]:
        yield Grid(image[0] // patch[0], image[1] // patch[1])


def _read_log_window(
    build: BuildBias, arrays: list[FloatArray], section: ConfigSection, subject: str
) -> RelativeBias:
    first_weight, first_bias, second_weight = arrays
    fits = second_weight.ndim == 2 and first_weight.shape == (second_weight.shape[1], 2)
    expected_shape = (
        "a network from two coordinates to heads, its second layer not "
        f"{list(second_weight.shape)},"
    )
    _check_shape(
        expected_shape, subject, fits=fits and first_bias.shape == first_weight.shape[:1]
    )
    window, pretrained = _find_log_window(section, subject)
    offsets = log_spaced_offsets(window, window, pretrained=pretrained)
    by_displacement = continuous_bias(offsets, first_weight, first_bias, second_weight)[
        :, ::-1, ::-1
    ]
    note = f"computed from the network for a window of {window} x {window}"
    grid = Grid(window, window)
    return build(values=by_displacement, layout=grid, computed=True, notes=(note,))


def _find_log_window(
    section: ConfigSection, subject: str
) -> tuple[int, tuple[int, int] | None]:
    """Find the window of a stage: as configured, but no larger than its feature map."""
    config = section.config
    size = settings.read_size(config, "window_size", maximum=_MAX_OFFSETS)
    window_match = re.search(r"window([0-9]{1,6})", str(config.get("architecture", "")))
    window = size[0] if size else int(window_match[1]) if window_match else 0
    if not 1 <= window <= _MAX_WINDOW:
        raise InvalidCheckpoint(
            f"{subject}: the network can be asked for any window, and the configuration names "
            f'{window or "none"}. State a "window_size" up to {_MAX_WINDOW} in config.json.'
        )
    stage = re.search(r"layers[._]([0-9]{1,2})\.", subject)
    image = settings.read_size(config, "image_size", maximum=_MAX_OFFSETS)
    patch = settings.read_size(config, "patch_size", maximum=_MAX_OFFSETS)
    if stage and image and patch:
        window = min(window, max(image[0] // patch[0] // 2 ** int(stage[1]), 1))
    stages = config.get("pretrained_window_sizes")
    pretrained = None
    if isinstance(stages, list) and stage and int(stage[1]) < len(stages):
        side = stages[int(stage[1])]
        pretrained = (
            (side, side) if type(side) is int and 0 < side <= _MAX_OFFSETS else None
        )
    return window, pretrained


def _read_mirrored(build: BuildBias, table: FloatArray, subject: str) -> RelativeBias:
    side = math.isqrt(table.shape[1])
    expected_shape, _ = _STORED_FORMS["mirrored window"]
    _check_shape(expected_shape, subject, fits=side * side == table.shape[1])
    quarter = table.reshape(len(table), side, side)
    upper_half = np.concatenate([quarter[:, :0:-1], quarter], axis=1)
    full_table = np.concatenate([upper_half[:, :, :0:-1], upper_half], axis=2)
    note = "one number per distance along rows and columns: left and right share it"
    return build(values=full_table, layout=Grid(side, side), notes=(note,))


def _read_two_axes(
    build: BuildBias, arrays: list[FloatArray], subject: str, *, is_reversed: bool
) -> RelativeBias:
    fits = all(len(a) % 2 for a in arrays) and len({a.shape[1] for a in arrays}) == 1
    _check_shape(_STORED_FORMS["two axes"][0], subject, fits=fits)
    row_cosines, column_cosines = (
        _cosines(table[::-1] if is_reversed else table) for table in arrays
    )
    values = (row_cosines[:, None] + column_cosines[None, :]) / 2
    grid = Grid((len(row_cosines) + 1) // 2, (len(column_cosines) + 1) // 2)
    note = (
        "mean of the cosines along rows and along columns, with the vector of distance 0"
    )
    return build(values=values[None], layout=grid, quantity="cosine", notes=(note,))


def _cosines(vectors: FloatArray) -> FloatArray:
    """Return the cosine of every offset's vector with that of offset 0, the middle row."""
    centre = vectors[len(vectors) // 2]
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(centre)
    return quotient(vectors @ centre, norms, fill=0.0)


def _read_distances(
    build: BuildBias,
    table: FloatArray,
    section: ConfigSection,
    subject: str,
    *,
    is_reversed: bool,
) -> RelativeBias:
    table = table.reshape(-1, table.shape[-1])
    left_length = section.config.get("left_max_position_embeddings")
    notes: tuple[str, ...] = ()
    # BERT's table covers all offsets of the model; in others, offsets beyond the table occur.
    n_clipped = 0 if "distance_embedding" in subject and left_length is None else 1
    if (
        type(left_length) is int
        and 0 <= left_length < len(table)
        and "distance_embedding" in subject
    ):
        is_reversed = False  # wav2vec2-BERT counts key minus query, from -left to right
        max_distance = max(left_length, len(table) - left_length - 1)
        row_numbers = np.clip(
            np.arange(-max_distance, max_distance + 1) + left_length, 0, len(table) - 1
        )
        table = table[row_numbers]
        ahead = len(row_numbers) - 1 - max_distance
        notes = (f"distances beyond {left_length} back and {ahead} ahead are one",)
    elif "emb_rel_k" in subject:
        table = np.pad(table, ((1, 1), (0, 0)))  # VITS adds no vector beyond its window
    elif section.config.get("bias_symmetric") is True:
        table = np.concatenate([table[:0:-1], table])
    elif len(table) % 2 == 0:
        table = np.concatenate([table, table[-1:]])
    if "bias_values" in subject:
        return build(values=table.T, layout=Sequence(len(table) // 2 + 1 + n_clipped))
    cosines = _cosines(table[::-1] if is_reversed else table)
    if not cosines.any():
        raise InvalidCheckpoint(
            f"{subject}: the vector of distance 0 is zero: nothing to compare."
        )
    return build(
        values=cosines[None],
        layout=Sequence(len(table) // 2 + 1 + n_clipped),
        quantity="cosine",
        notes=(*notes, "cosines with the vector of distance 0"),
    )


def _read_log_buckets(
    build: BuildBias, table: FloatArray, section: ConfigSection, subject: str
) -> RelativeBias:
    config = section.config
    span = len(table) // 2
    max_length = _read_integer_or(config, "max_relative_positions", 0)
    max_length = max_length or _read_integer_or(config, "max_position_embeddings", span)
    buckets = _read_integer_or(config, "position_buckets", 0)
    offsets = np.arange(-max_length + 1, max_length)
    if buckets:
        if buckets != span:
            raise settings.contradiction_error(subject, f"position_buckets = {buckets}")
        row_numbers = deberta_buckets(-offsets, buckets=buckets, max_distance=max_length)
    else:
        row_numbers = -offsets
    table = table[np.clip(row_numbers + span, 0, 2 * span - 1)]
    return build(
        values=_cosines(table)[None],
        layout=Sequence(max_length),
        quantity="cosine",
        notes=("cosines with the vector of distance 0",),
    )
