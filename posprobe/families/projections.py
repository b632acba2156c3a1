"""Weights that make queries and keys: where a layer keeps them, how they are split, and their gain.

One reader for all: of rotary models by the names below, of models with a table by their rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

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

#: How one weight holds both: queries, keys and values one after the other, as rows or as columns,
#: or group by group: the queries that share a key, that key and its value. Empty where it does not.
Fused: TypeAlias = Literal["", "rows", "columns", "groups"]

#: Some heads: of queries, and of keys.
HeadRanges: TypeAlias = tuple[range, range]

#: A weight of one layer: what stands before its number, the number, the module and the name.
_QUERY_NAME = re.compile(
    r"(?P<before>(?:.*\.)?)(?P<layer>\d+)\.(?P<module>(?:(?:self_attn|attention|attn"
    r"|self_attention)\.)?)(?P<name>self\.query|q_proj|wq|attn_q|to_q|qkv_proj|Wqkv|c_attn|qkv"
    r"|attn_qkv|query_key_value|wqkv)\.weight"
)
_PROJECTION_NAMES = read_data("families/configurations.toml")["projections"]


@dataclass(frozen=True)
class ProjectionNames:
    """Where a layer keeps the weights that make its queries and keys.

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
    """What makes queries and keys of one layer.

    Parameters
    ----------
    layer
        Its number.
    query, key
        ``[heads, head_dim, width]``; queries of a group share a key.
    query_bias, key_bias
        ``[heads, head_dim]``, None without.
    gain, shift
        ``[width]``: what the norm before attention multiplies with and adds, None without one.
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
        """``[heads, head_dim]``: what every query and every key holds, whatever the token.

        Their biases, and what the weights make of what the norm adds; None without either.
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
    """The layers that one rotary encoding turns, and how to read their weights.

    Parameters
    ----------
    checkpoint
        Open; weights are read layer by layer.
    layers
        Stored projections by number of the layer.
    head_dim
        Width of a head.
    config
        The part of the configuration that describes them.
    scale
        Factor of the products of queries and keys, in addition to that of the scaling rule.
    normed
        Whether queries and keys are normalised, so that weights do not say how large they are.
    declared
        Whether an architecture is named, and with it which rows make pairs.
    """

    checkpoint: Checkpoint
    layers: Mapping[int, ProjectionNames]
    head_dim: int
    config: Mapping[str, Any]
    scale: float
    normed: bool
    declared: bool

    @property
    def bytes(self) -> int:
        """How many are read of the layers' weights."""
        n_bytes = 0.0
        for names in self.layers.values():
            try:
                heads, keys = count_heads(self.checkpoint, names, self.head_dim, self.config)
            except InvalidCheckpoint:
                continue  # which is said when they are read
            used_share = (heads + keys) / (heads + 2 * keys) if names.fused else 1.0
            for name in dict.fromkeys((names.query, names.key)):
                info = self.checkpoint.tensors[f"{name}.weight"]
                stored_bytes = math.prod(info.shape) * int(FLOAT_DTYPES.get(info.dtype, "4")[-1])
                n_bytes += used_share * ((info.stop - info.start) or stored_bytes)
        return round(n_bytes)

    def select_layers(self, layers: Iterable[int] | None) -> RotaryWeights:
        """Return those of some layers; of all where None."""
        kept_layers = set(self.layers if layers is None else layers)
        return replace(
            self, layers={k: names for k, names in self.layers.items() if k in kept_layers}
        )

    def iter_blocks(self, layer: int, max_numbers: int) -> Iterator[HeadRanges]:
        """Yield all heads of a layer, at most so many numbers of queries at a time.

        Queries of a group come with its key, which comes again where they are too many.

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
        """Return what `Projections.row_sizes` has of a layer, queries' heads first, read in blocks.

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

    def read(self, layer: int, selected_heads: HeadRanges | None = None) -> Projections:
        """Read the weights of a layer; of ``selected_heads`` alone, without biases, where given.

        Raises
        ------
        InvalidCheckpoint
            If they do not divide into heads.
        InvalidTable
            If they are no floats.
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
        )
        biases: tuple[Any, Any] = (None, None)
        if f"{names.query}.bias" in self.checkpoint.tensors and selected_heads is None:
            biases = read_projections(
                self.checkpoint, names, heads=heads, keys=keys, head_dim=self.head_dim,
                parameter="bias",
            )  # fmt: skip
        query_bias, key_bias = (
            None if bias is None else bias.reshape(-1, self.head_dim) for bias in biases
        )
        return Projections(
            layer=layer,
            query=query.reshape(-1, self.head_dim, query.shape[1]),
            key=key.reshape(-1, self.head_dim, key.shape[1]),
            query_bias=query_bias,
            key_bias=key_bias,
            gain=self._read_norm(names, "weight"),
            shift=self._read_norm(names, "bias") if selected_heads is None else None,
        )

    def _read_norm(
        self, names: ProjectionNames, parameter: Literal["weight", "bias"]
    ) -> NDArray[np.floating[Any]] | None:
        """Read what the norm before attention multiplies with or adds; None without."""
        if self.config.get("prenorm") is False:
            return None
        norm_names = (f"{names.prefix}{norm}.{parameter}" for norm in _PROJECTION_NAMES["norms"])
        name = next((name for name in norm_names if name in self.checkpoint.tensors), None)
        if name is None:
            return None
        values = self.checkpoint.read(name).values
        adds_one = (
            self.config.get("model_type") in _PROJECTION_NAMES["one_more"]
            and self.checkpoint.format != "GGUF"
        )
        return values + 1 if adds_one and parameter == "weight" else values


def find_projections(checkpoint: Checkpoint) -> dict[int, list[ProjectionNames]]:
    """Return by layer where queries and keys are made, from names alone."""
    by_layer: dict[int, list[ProjectionNames]] = {}
    types = {section.model_type for section in list_sections(checkpoint.config)}
    keys = _PROJECTION_NAMES["keys"]
    for name in checkpoint.tensors:
        name_match = _QUERY_NAME.fullmatch(name)
        if not name_match or (
            name_match["name"] not in keys and types.intersection(_PROJECTION_NAMES["otherwise"])
        ):
            continue
        prefix, module, projection_name = (
            f"{name_match['before']}{name_match['layer']}.",
            name_match["module"],
            name_match["name"],
        )
        query, fused = f"{prefix}{module}{projection_name}", ""
        key = f"{prefix}{module}{keys[projection_name]}" if projection_name in keys else query
        if projection_name not in keys:
            grouped = projection_name in _PROJECTION_NAMES["grouped"] and not types.intersection(
                _PROJECTION_NAMES["not_grouped"]
            )
            fused = "groups" if grouped else "rows"
        if f"{key}.weight" in checkpoint.tensors:
            names = ProjectionNames(query, key, fused, int(name_match["layer"]), prefix, module)  # type: ignore[arg-type]
            by_layer.setdefault(names.layer, []).append(names)
    return by_layer


def find_rotary_weights(
    checkpoint: Checkpoint, spec: RotarySpec, *, all_kinds: bool = False
) -> RotaryWeights:
    """Find the layers that an encoding turns; none where no weight has a known name.

    Parameters
    ----------
    checkpoint, spec
        Checkpoint, and rotary scheme as found by `find_encodings`.
    all_kinds
        Those of other encodings of this part as well.
    """
    sections = list_sections(checkpoint.config)
    section = next((section for section in sections if _has_spec(section, spec)), sections[0])
    stored = {
        layer: section_projections[0]
        for layer, stored_layer in sorted(find_projections(checkpoint).items())
        if (
            section_projections := [
                stored for stored in stored_layer if find_section(stored.query, sections) == section
            ]
        )
    }
    layer_kind = "" if all_kinds else spec.layers
    rotating = find_rotating_layers(section, max(stored, default=-1) + 1, layer_kind)
    stored = {layer: stored for layer, stored in stored.items() if layer in rotating}
    return RotaryWeights(
        checkpoint=checkpoint,
        layers=stored,
        head_dim=spec.head_dim,
        config=section.config,
        scale=(read_logit_scale(section, spec.head_dim) or 1.0) / math.sqrt(spec.head_dim),
        normed=any(map(section.config.get, _PROJECTION_NAMES["normed"]))
        or _has_query_norms(checkpoint, stored),
        declared=any(section.model_type for section in sections),
    )


def _has_spec(section: ConfigSection, spec: RotarySpec) -> bool:
    try:
        return spec in read_rotary_specs(section)
    except InvalidCheckpoint:
        return False


def _has_query_norms(checkpoint: Checkpoint, layers: Mapping[int, ProjectionNames]) -> bool:
    return any(
        f"{names.prefix}{names.module}{name}.weight" in checkpoint.tensors
        for names in layers.values()
        for name in _PROJECTION_NAMES["query_norms"]
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
            (folder for folder in checkpoint.models if encoding.name.startswith(folder)), None
        )
        yield checkpoint if folder is None else checkpoint.models[folder], encoding


def count_heads(
    checkpoint: Checkpoint, names: ProjectionNames, head_dim: int, config: Mapping[str, Any]
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
    n_heads = [info.shape[0] // head_dim for info in infos]
    if not names.fused:
        return n_heads[0], n_heads[1]
    heads = read_head_count(ConfigSection("", config)) or 0
    keys, remainder = divmod(n_heads[0] - heads, 2)
    if remainder or heads < 1 or keys < 1 or heads % keys:
        raise InvalidCheckpoint(
            f"{infos[0].subject}: {n_heads[0]} heads {head_dim} wide are not {heads} of queries "
            "and as many of keys as of values. State num_attention_heads in config.json."
        )
    return heads, keys


def read_projections(
    checkpoint: Checkpoint,
    projection_names: ProjectionNames,
    *,
    heads: int,
    keys: int,
    head_dim: int,
    parameter: Literal["weight", "bias"] = "weight",
    selected_heads: HeadRanges | None = None,
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Read what makes queries and keys: rows of both, head after head.

    Parameters
    ----------
    checkpoint, projection_names
        Open, and where they are.
    heads, keys
        Number of heads of queries, and of keys.
    head_dim
        Rows of a head.
    parameter
        ``weight`` ``[heads * head_dim, width]`` or ``bias`` ``[heads * head_dim]``.
    selected_heads
        The only heads that are read.
    """
    tensor_names = [
        f"{name}.{parameter}" for name in (projection_names.query, projection_names.key)
    ]
    selected = [
        np.array(head_range, np.intp)
        for head_range in selected_heads or (range(heads), range(keys))
    ]
    head_range = heads // keys
    if not projection_names.fused:
        stored_order = selected
    elif projection_names.fused == "groups":
        head_index = np.arange(keys * (head_range + 2)).reshape(keys, -1)
        stored_order = [
            head_index[:, :head_range].ravel()[selected[0]],
            head_index[selected[1], head_range],
        ]
    else:
        stored_order = [selected[0], heads + selected[1]]
    query, key = (
        (head_order[:, None] * head_dim + np.arange(head_dim)).ravel()
        for head_order in stored_order
    )
    if not projection_names.fused:
        return checkpoint.read_rows(tensor_names[0], query), checkpoint.read_rows(
            tensor_names[1], key
        )
    if parameter == "bias" or projection_names.fused == "columns":
        fused = checkpoint.read(tensor_names[0]).values.T  # of a bias the same
        return fused[query], fused[key]
    row_numbers = np.sort(np.concatenate([query, key]))  # neighbours are one request
    selected_rows = checkpoint.read_rows(tensor_names[0], row_numbers)
    return selected_rows[np.searchsorted(row_numbers, query)], selected_rows[
        np.searchsorted(row_numbers, key)
    ]
