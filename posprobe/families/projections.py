"""Query and key projections: their tensors, their division into heads, and the gain before them.

Rotary models are read by the names below, models with a table by their rules in `layers`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.checkpoints import Checkpoint
from posprobe.checkpoints.checkpoint import FLOAT_DTYPES
from posprobe.data import read_data
from posprobe.errors import InvalidCheckpoint
from posprobe.families.configurations import ConfigSection, find_section, list_sections
from posprobe.families.find import StoredEncoding, find_encodings, pick_encodings
from posprobe.families.read import open_reference
from posprobe.families.rotary import (
    find_rotating_layers,
    read_head_count,
    read_logit_scale,
    read_rotary_specs,
)
from posprobe.reference import Reference, name_source_in_errors, parse_reference
from posprobe.schemes import RotarySpec
from posprobe.settings import contradiction_error

#: Arrangement of a weight that holds queries, keys and values: one after the other, as rows or as
#: columns, or in groups of the queries that share a key, that key and its value. Empty for separate
#: weights.
Fused: TypeAlias = Literal["", "rows", "columns", "groups"]

#: What a layer has beside the weights of its queries and keys.
VectorName: TypeAlias = Literal["biases", "norms", "norm_shifts"]
#: Names of the parameters of a norm of queries or keys.
NORM_VECTOR_NAMES: Mapping[str, VectorName] = {"weight": "norms", "bias": "norm_shifts"}

#: Ranges of heads of queries, and of keys.
HeadRanges: TypeAlias = tuple[range, range]

#: Name of the query weight of a layer: prefix, number of the layer, module and name.
_QUERY_NAME = re.compile(
    r"(?P<before>(?:.*\.)?)(?P<layer>\d+)\.(?P<module>(?:(?:self_attn|attention|attn"
    r"|self_attention)\.)?)(?P<name>self\.query|q_proj|wq|attn_q|to_q|qkv_proj|Wqkv|c_attn|qkv"
    r"|attn_qkv|query_key_value|wqkv)\.weight"
)
_PROJECTION_NAMES = read_data("families/configurations.toml")["projections"]


@dataclass(frozen=True)
class ProjectionNames:
    """Names of the tensors that a layer projects queries and keys with.

    Parameters
    ----------
    query, key
        Names without ``.weight``; equal where one tensor holds both.
    fused
        Way in which queries and keys share a tensor.
    layer
        Number of the layer.
    prefix
        Prefix of the layer's other tensors.
    module
        Prefix of its attention's tensors, after ``prefix``.
    """

    query: str
    key: str
    fused: Fused = ""
    layer: int = 0
    prefix: str = ""
    module: str = ""


@dataclass(frozen=True, eq=False)
class Projections:
    """Query and key projections of one layer.

    Parameters
    ----------
    layer
        Number of the layer.
    query, key
        ``[heads, head_dim, width]``, weights; queries of a group share a key.
    query_bias, key_bias
        ``[heads, head_dim]``, biases; None without them.
    gain, shift
        ``[width]``, factor and summand of the norm before attention; None without them.
    """

    layer: int
    query: NDArray[np.floating[Any]] = field(repr=False)
    key: NDArray[np.floating[Any]] = field(repr=False)
    query_bias: NDArray[np.floating[Any]] | None = field(repr=False, default=None)
    key_bias: NDArray[np.floating[Any]] | None = field(repr=False, default=None)
    gain: NDArray[np.floating[Any]] | None = field(repr=False, default=None)
    shift: NDArray[np.floating[Any]] | None = field(repr=False, default=None)

    def with_gain(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return both weights with the gain multiplied in, in float64."""
        gain = np.float64(1.0) if self.gain is None else self.gain.astype(np.float64)
        return self.query.astype(np.float64) * gain, self.key.astype(np.float64) * gain

    @property
    def biases(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """``[heads, head_dim]``, part of every query and of every key that no token changes.

        These are the biases plus the projection of the norm's shift; None without both.
        """
        biases = []
        for weight, bias in ((self.query, self.query_bias), (self.key, self.key_bias)):
            if bias is None and self.shift is None:
                return None
            shift = 0.0 if self.shift is None else self.shift.astype(np.float64)
            bias_values = 0.0 if bias is None else bias.astype(np.float64)
            biases.append((weight.astype(np.float64) * shift).sum(axis=2) + bias_values)
        return biases[0], biases[1]

    @property
    def row_norms(self) -> NDArray[np.float64]:
        """``[heads, head_dim]``: norms of the rows with their gain, queries' heads first."""
        return np.concatenate(
            [np.linalg.norm(projection, axis=2) for projection in self.with_gain()]
        )


@dataclass(frozen=True, eq=False)
class RotaryWeights:
    """The layers that one rotary encoding turns, with access to their weights.

    Parameters
    ----------
    checkpoint
        Open checkpoint; weights are read layer by layer.
    layers
        Names of the projections by number of the layer.
    head_dim
        Width of a head.
    rotated
        Number of leading rows of a head that make pairs; some pairs may have frequency 0.
    config
        Section of the configuration that describes the layers.
    scale
        Factor of the products of queries and keys, in addition to that of the scaling rule.
    normed
        Whether queries and keys are normalised, so that weights do not determine their lengths.
    declared
        Whether the configuration names an architecture, which determines the order of pairs.
    unrotated
        Names of the projections of layers that the configuration says do not rotate.
    """

    checkpoint: Checkpoint
    layers: Mapping[int, ProjectionNames]
    head_dim: int
    rotated: int
    config: Mapping[str, Any]
    scale: float
    normed: bool
    declared: bool
    unrotated: Mapping[int, ProjectionNames] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Number of bytes that reading the layers' weights takes."""
        n_bytes = 0.0
        for names in self.layers.values():
            try:
                heads, keys = count_heads(
                    self.checkpoint, names, self.head_dim, self.config
                )
            except InvalidCheckpoint:
                continue  # reading the layer raises the error
            used_share = (heads + keys) / (heads + 2 * keys) if names.fused else 1.0
            for name in dict.fromkeys((names.query, names.key)):
                info = self.checkpoint.tensors[f"{name}.weight"]
                stored_bytes = math.prod(info.shape) * int(
                    FLOAT_DTYPES.get(info.dtype, "4")[-1]
                )
                n_bytes += used_share * ((info.stop - info.start) or stored_bytes)
        return round(n_bytes)

    def select_layers(self, layers: Iterable[int] | None) -> RotaryWeights:
        """Return the weights of some layers; of all layers for None."""
        if layers is None:
            return self
        kept_layers = {k: self.layers[k] for k in layers if k in self.layers}
        return replace(self, layers=kept_layers, unrotated={})

    def iter_blocks(self, layer: int, max_numbers: int) -> Iterator[HeadRanges]:
        """Yield all heads of a layer in blocks of at most ``max_numbers`` numbers of queries.

        Queries of a group come with its key, which is repeated if they need several blocks.

        Raises
        ------
        InvalidCheckpoint
            If the weights do not divide into heads.
        """
        names = self.layers[layer]
        heads, keys = count_heads(self.checkpoint, names, self.head_dim, self.config)
        width = self.checkpoint.tensors[f"{names.query}.weight"].shape[1]
        max_queries = max(max_numbers // (self.head_dim * width), 1)
        group_size, remainder = divmod(heads, keys)
        if remainder or not group_size:
            yield range(heads), range(keys)
            return
        groups = max(max_queries // group_size, 1)
        for first_key in range(0, keys, groups):
            key_range = range(first_key, min(first_key + groups, keys))
            queries = range(first_key * group_size, key_range.stop * group_size)
            for start in queries[::max_queries]:
                yield range(start, min(start + max_queries, queries.stop)), key_range

    def row_norms(self, layer: int, max_numbers: int) -> NDArray[np.float64]:
        """Return `Projections.row_norms` of a layer, queries' heads first, read in blocks.

        Parameters
        ----------
        layer, max_numbers
            Same as for `iter_blocks`.
        """
        query_norms, key_norms = {}, {}
        for heads in self.iter_blocks(layer, max_numbers):
            norms = self.read(layer, heads).row_norms
            query_norms[heads[0].start] = norms[: len(heads[0])]
            key_norms[heads[1].start] = norms[len(heads[0]) :]
        return np.concatenate([*query_norms.values(), *key_norms.values()])

    def read(
        self,
        layer: int,
        selected_heads: HeadRanges | None = None,
        head_rows: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> Projections:
        """Read the weights of a layer, or only those of ``selected_heads``, without biases.

        Parameters
        ----------
        layer
            Number of the layer.
        selected_heads
            Heads of queries and of keys that are read; all for None.
        head_rows
            Rows of each head of queries, and of keys, that are read; all for None.

        Raises
        ------
        InvalidCheckpoint
            If the weights do not divide into heads.
        InvalidTable
            If the weights are not floats.
        """
        names = self.layers[layer]
        heads, keys = count_heads(self.checkpoint, names, self.head_dim, self.config)
        query, key = read_projections(
            self.checkpoint,
            names,
            heads=heads,
            keys=keys,
            head_dim=self.head_dim,
            selected_heads=selected_heads,
            head_rows=head_rows,
        )
        n_head_rows = [self.head_dim] * 2 if head_rows is None else [*map(len, head_rows)]
        biases: tuple[Any, Any] = (None, None)
        if f"{names.query}.bias" in self.checkpoint.tensors and selected_heads is None:
            biases = read_projections(
                self.checkpoint,
                names,
                heads=heads,
                keys=keys,
                head_dim=self.head_dim,
                parameter="bias",
            )
        query_bias, key_bias = (
            None if bias is None else bias.reshape(-1, self.head_dim) for bias in biases
        )
        return Projections(
            layer=layer,
            query=query.reshape(-1, n_head_rows[0], query.shape[1]),
            key=key.reshape(-1, n_head_rows[1], key.shape[1]),
            query_bias=query_bias,
            key_bias=key_bias,
            gain=self.read_gain(layer),
            shift=self._read_norm(names, "bias") if selected_heads is None else None,
        )

    def read_gain(self, layer: int) -> NDArray[np.floating[Any]] | None:
        """Read the gain of the norm before a layer's attention, ``[width]``; None without it."""
        return self._read_norm(self.layers[layer], "weight")

    def _read_norm(
        self, names: ProjectionNames, parameter: Literal["weight", "bias"]
    ) -> NDArray[np.floating[Any]] | None:
        """Read the gain or shift of the norm before attention; None without it."""
        if self.config.get("prenorm") is False:
            return None
        norm_names = (
            f"{names.prefix}{norm}.{parameter}" for norm in _PROJECTION_NAMES["norms"]
        )
        name = next(
            (name for name in norm_names if name in self.checkpoint.tensors), None
        )
        if name is None:
            return None
        values = self.checkpoint.read(name).values
        return values + 1 if self._adds_one and parameter == "weight" else values

    @property
    def _adds_one(self) -> bool:
        """Whether norms multiply by the stored gain plus 1."""
        return (
            self.config.get("model_type") in _PROJECTION_NAMES["gain_plus_one"]
            and self.checkpoint.format != "GGUF"
        )

    def read_vectors(
        self, layer: int
    ) -> tuple[dict[VectorName, Floats], dict[VectorName, Floats]]:
        """Read the biases and norms of a layer's queries, and of its keys.

        A bias is ``[heads * head_dim]``. A norm has a number for each of these rows, or for each
        row of a head.

        Parameters
        ----------
        layer
            Number of the layer.

        Raises
        ------
        InvalidCheckpoint
            If the weights do not divide into heads.
        InvalidTable
            If they are not floats.
        """
        names, tensors = self.layers[layer], self.checkpoint.tensors
        sides: tuple[dict[VectorName, Floats], dict[VectorName, Floats]] = ({}, {})
        if f"{names.query}.bias" in tensors and f"{names.key}.bias" in tensors:
            heads, keys = count_heads(self.checkpoint, names, self.head_dim, self.config)
            biases = read_projections(
                self.checkpoint,
                names,
                heads=heads,
                keys=keys,
                head_dim=self.head_dim,
                parameter="bias",
            )
            for vectors, bias in zip(sides, biases, strict=True):
                vectors["biases"] = bias.astype(np.float64).ravel()
        prefix = f"{names.prefix}{names.module}"
        for norm_names in _PROJECTION_NAMES["key_norms"].items():
            for vectors, norm_name in zip(sides, norm_names, strict=True):
                for parameter, vector_name in NORM_VECTOR_NAMES.items():
                    name = f"{prefix}{norm_name}.{parameter}"
                    if name in tensors:
                        values = self.checkpoint.read(name).values.astype(np.float64)
                        added = 1.0 if self._adds_one and parameter == "weight" else 0.0
                        vectors[vector_name] = values.ravel() + added
        return sides


def find_projections(checkpoint: Checkpoint) -> dict[int, list[ProjectionNames]]:
    """Return the names of the query and key projections of every layer, without reading them."""
    by_layer: dict[int, list[ProjectionNames]] = {}
    types = {section.model_type for section in list_sections(checkpoint.config)}
    keys = _PROJECTION_NAMES["keys"]
    for name in checkpoint.tensors:
        match = _QUERY_NAME.fullmatch(name)
        if not match:
            continue
        is_separate = match["name"] in keys
        if not is_separate and types.intersection(_PROJECTION_NAMES["other_split"]):
            continue
        prefix = f"{match['before']}{match['layer']}."
        query = f"{prefix}{match['module']}{match['name']}"
        key, fused = query, _find_fused(match["name"], types)
        if is_separate:
            key, fused = f"{prefix}{match['module']}{keys[match['name']]}", ""
        if f"{key}.weight" in checkpoint.tensors:
            layer = int(match["layer"])
            names = ProjectionNames(query, key, fused, layer, prefix, match["module"])
            by_layer.setdefault(layer, []).append(names)
    return by_layer


def _find_fused(name: str, types: Container[str | None]) -> Fused:
    """Return the arrangement of a weight that holds queries, keys and values."""
    is_grouped = name in _PROJECTION_NAMES["grouped"]
    if is_grouped and not any(
        model_type in types for model_type in _PROJECTION_NAMES["not_grouped"]
    ):
        return "groups"
    return "rows"


def find_rotary_weights(
    checkpoint: Checkpoint, spec: RotarySpec, *, all_kinds: bool = False
) -> RotaryWeights:
    """Find the layers that an encoding turns; none if no weight has a known name.

    Parameters
    ----------
    checkpoint, spec
        Checkpoint, and rotary scheme as found by `find_encodings`.
    all_kinds
        Whether to include layers of other encodings of the same section.
    """
    sections = list_sections(checkpoint.config)
    section = next(
        (section for section in sections if _has_spec(section, spec)), sections[0]
    )
    layers: dict[int, ProjectionNames] = {}
    for layer, candidates in sorted(find_projections(checkpoint).items()):
        for names in candidates:
            if find_section(names.query, sections) == section:
                layers.setdefault(layer, names)
    layer_kind = "" if all_kinds else spec.layers
    rotating = find_rotating_layers(section, max(layers, default=-1) + 1, layer_kind)
    any_rotating = find_rotating_layers(section, max(layers, default=-1) + 1)
    unrotated = {k: names for k, names in layers.items() if k not in any_rotating}
    layers = {layer: names for layer, names in layers.items() if layer in rotating}
    return RotaryWeights(
        checkpoint=checkpoint,
        layers=layers,
        unrotated=unrotated,
        head_dim=spec.head_dim,
        rotated=2 * spec.axes * len(spec.ladder()[0]),
        config=section.config,
        scale=(read_logit_scale(section, spec.head_dim) or 1.0)
        / math.sqrt(spec.head_dim),
        normed=any(map(section.config.get, _PROJECTION_NAMES["query_norm_keys"]))
        or _has_query_norms(checkpoint, layers),
        declared=any(section.model_type for section in sections),
    )


def _has_spec(section: ConfigSection, spec: RotarySpec) -> bool:
    try:
        return spec in read_rotary_specs(section)
    except InvalidCheckpoint:
        return False


def _has_query_norms(
    checkpoint: Checkpoint, layers: Mapping[int, ProjectionNames]
) -> bool:
    return any(
        f"{names.prefix}{names.module}{name}.weight" in checkpoint.tensors
        for names in layers.values()
        for name in _PROJECTION_NAMES["key_norms"]
    )


def open_rotary_weights(
    reference: str, *, revision: str | None = None, offline: bool = False
) -> list[RotaryWeights]:
    """Find the query and key weights of every rotary encoding that `load_schemes` gives.

    Parameters and errors are those of `load_schemes`; the names and shapes of tensors are read.
    """
    parsed = parse_reference(reference)
    with name_source_in_errors(parsed.source):
        checkpoint = open_reference(parsed, revision=revision, offline=offline)
        return [
            find_rotary_weights(model_checkpoint, encoding.spec)
            for model_checkpoint, encoding in _iter_encodings(checkpoint, parsed)
            if isinstance(encoding.spec, RotarySpec)
        ]


def _iter_encodings(
    checkpoint: Checkpoint, parsed: Reference
) -> Iterator[tuple[Checkpoint, StoredEncoding]]:
    encodings = pick_encodings(checkpoint, find_encodings(checkpoint), parsed)
    for encoding in encodings:
        folder = next(
            (folder for folder in checkpoint.models if encoding.name.startswith(folder)),
            None,
        )
        yield checkpoint if folder is None else checkpoint.models[folder], encoding


def count_heads(
    checkpoint: Checkpoint,
    names: ProjectionNames,
    head_dim: int,
    config: Mapping[str, Any],
) -> tuple[int, int]:
    """Count the heads of queries and of keys.

    Raises
    ------
    InvalidCheckpoint
        If the weights do not divide into heads.
    """
    infos = [checkpoint.tensors[f"{name}.weight"] for name in (names.query, names.key)]
    for info in infos:
        if len(info.shape) != 2 or info.shape[0] % head_dim:
            raise contradiction_error(info.subject, f"that heads are {head_dim} wide")
    head_counts = [info.shape[0] // head_dim for info in infos]
    if not names.fused:
        return head_counts[0], head_counts[1]
    heads = read_head_count(ConfigSection("", config)) or 0
    keys, remainder = divmod(head_counts[0] - heads, 2)
    if remainder or heads < 1 or keys < 1 or heads % keys:
        raise InvalidCheckpoint(
            f"{infos[0].subject}: {head_counts[0]} heads {head_dim} wide are "
            f"not {heads} of queries and as many of keys as of values. "
            "State num_attention_heads in config.json."
        )
    return heads, keys


def read_projections(
    checkpoint: Checkpoint,
    names: ProjectionNames,
    *,
    heads: int,
    keys: int,
    head_dim: int,
    parameter: Literal["weight", "bias"] = "weight",
    selected_heads: HeadRanges | None = None,
    head_rows: tuple[Sequence[int], Sequence[int]] | None = None,
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Read the rows of the query and key projections, head after head.

    Parameters
    ----------
    checkpoint, names
        Open checkpoint, and names of the tensors.
    heads, keys
        Number of heads of queries, and of keys.
    head_dim
        Number of rows of a head.
    parameter
        ``weight`` ``[heads * head_dim, width]`` or ``bias`` ``[heads * head_dim]``.
    selected_heads
        Heads that are read; all for None.
    head_rows
        Rows of each head of queries, and of keys, that are read; all for None.
    """
    query_name, key_name = (f"{name}.{parameter}" for name in (names.query, names.key))
    query_range, key_range = selected_heads or (range(heads), range(keys))
    query_heads, key_heads = np.array(query_range, np.intp), np.array(key_range, np.intp)
    group_size = heads // keys
    if names.fused == "groups":
        head_index = np.arange(keys * (group_size + 2)).reshape(keys, -1)
        key_heads = head_index[key_heads, group_size]
        query_heads = head_index[:, :group_size].ravel()[query_heads]
    elif names.fused:
        key_heads = heads + key_heads
    query, key = (
        (head_order[:, None] * head_dim + np.array(rows, np.intp)).ravel()
        for head_order, rows in zip(
            (query_heads, key_heads), head_rows or [range(head_dim)] * 2, strict=True
        )
    )
    if not names.fused:
        return checkpoint.read_rows(query_name, query), checkpoint.read_rows(
            key_name, key
        )
    if parameter == "bias" or names.fused == "columns":
        fused = checkpoint.read(query_name).values.T  # a bias has one axis
        return fused[query], fused[key]
    row_numbers = np.sort(
        np.concatenate([query, key])
    )  # neighbouring rows are one request
    rows = checkpoint.read_rows(query_name, row_numbers)
    return rows[np.searchsorted(row_numbers, query)], rows[
        np.searchsorted(row_numbers, key)
    ]
