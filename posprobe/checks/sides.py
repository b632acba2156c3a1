"""Read one of two copies of a model: its encodings, or the dump of an engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path

import numpy as np

from posprobe.analyses.models.positions import PositionIds
from posprobe.checkpoints import Checkpoint, open_local
from posprobe.checkpoints.checkpoint import FLOAT_DTYPES
from posprobe.errors import InvalidCheckpoint, NoPositionTable, UsageError
from posprobe.families import find_encodings, open_reference, read_table
from posprobe.families.configurations import ConfigSection, list_sections
from posprobe.families.find import pick_encodings
from posprobe.families.projections import RotaryWeights, find_rotary_weights
from posprobe.families.read import build_scheme, is_formula, load_any
from posprobe.families.rotary import find_rotating_layers, read_rotary_specs
from posprobe.progress import stage
from posprobe.reference import Reference, name_source_in_errors, parse_reference
from posprobe.relations.dumps import DUMP_ARRAYS, Dump, is_dump, read_dump
from posprobe.schemes import Encoding, Rotary, RotarySpec
from posprobe.tables import PositionTable

#: Name of the part of a model that reads text, and start of the names of its encodings.
TEXT_PART = "text"
#: An array of a dump has at most this many numbers: 128 MiB as float64.
MAX_DUMP_NUMBERS = 2**24
#: Integer and boolean dtypes that are allowed in a dump, by their name in safetensors.
_DUMP_INTEGER_DTYPES = {"I32": "<i4", "I64": "<i8", "BOOL": "?"}


@dataclass(frozen=True, eq=False)
class Side:
    """One copy of a model as it was read: its encodings by kind and name, or a dump."""

    name: str
    encodings: Mapping[str, Mapping[str, Encoding]]
    checkpoint: Checkpoint | None = None
    dump: Dump | None = None
    weights: RotaryWeights | None = None
    unread_schemes: tuple[str, ...] = ()
    reference: Reference | None = None

    @property
    def declares_pairs(self) -> bool:
        """Whether the architecture determines which rows are pairs."""
        return self.dump is None and (self.weights is None or self.weights.declared)

    @property
    def rotary_schemes(self) -> tuple[Rotary, ...]:
        """The rotary encodings: several if types of layers have ladders of their own."""
        encodings = self.encodings.get("rotary", {}).values()
        return tuple(encoding for encoding in encodings if isinstance(encoding, Rotary))

    @property
    def text_rotaries(self) -> tuple[Rotary, ...]:
        """The rotary encodings along a sequence: those of the text where parts have their own."""
        along = [rotary for rotary in self.rotary_schemes if rotary.axes == 1]
        of_text = [r for r in along if r.name.partition("-")[0] == TEXT_PART]
        return tuple(of_text or along)


def open_side(copy: str | PathLike[str] | Encoding, *, offline: bool) -> Side:
    """Read the encodings of a copy, or an engine's dump, with the errors of `posprobe.load`."""
    if not isinstance(copy, str | PathLike | Encoding):
        raise UsageError(
            f"check: {type(copy).__name__} is no copy. Give a reference, a loaded table or "
            "scheme, a record of `positions_of`, or what runs as the second."
        )
    if not isinstance(copy, str | PathLike):
        return Side(copy.name, {_encoding_kind(copy): {"": copy}})
    parsed = parse_reference(copy)
    if is_formula(parsed):
        loaded = load_any(parsed.text)
        return open_side(
            loaded[0] if isinstance(loaded, tuple) else loaded, offline=offline
        )
    with name_source_in_errors(parsed.source), stage(f"Reading {parsed.text}"):
        if parsed.is_path and parsed.source.endswith(".npz"):
            archive = open_local(Path(parsed.source))
            if is_dump(archive.tensors):
                return Side(parsed.text, {}, dump=_read_dump_arrays(archive))
        return _checkpoint_side(parsed, open_reference(parsed, offline=offline))


def _checkpoint_side(parsed: Reference, checkpoint: Checkpoint) -> Side:
    stored_encodings = pick_encodings(checkpoint, find_encodings(checkpoint), parsed)
    encodings: dict[str, dict[str, Encoding]] = {}
    weights = None
    unread_schemes = []
    for stored_encoding in stored_encodings:
        try:
            encoding: Encoding = (
                build_scheme(
                    checkpoint,
                    stored_encoding,
                    stored_encoding.name or parsed.source,
                    parsed.text,
                )
                if stored_encoding.rule is None
                else read_table(checkpoint, stored_encoding, parsed)
            )
        except NoPositionTable:
            unread_schemes.append(stored_encoding.scheme)
            continue
        encodings.setdefault(_encoding_kind(encoding), {})[stored_encoding.name] = (
            encoding
        )
        if weights is None and isinstance(stored_encoding.spec, RotarySpec):
            # Layers of all types are compared together, because they differ in their ladder alone.
            weights = find_rotary_weights(
                checkpoint, stored_encoding.spec, all_kinds=True
            )
    return Side(
        parsed.text,
        encodings,
        checkpoint,
        weights=weights,
        unread_schemes=tuple(unread_schemes),
        reference=parsed,
    )


def open_positions(copy: object) -> PositionIds | None:
    """Return recorded position ids, or those of a dump with ``positions``; None of other copies.

    Raises
    ------
    InvalidCheckpoint
        If a dump has ``positions`` of another shape.
    """
    if isinstance(copy, PositionIds):
        return copy
    if not isinstance(copy, str | PathLike) or not str(copy).endswith(".npz"):
        return None
    parsed = parse_reference(copy)
    if not parsed.is_path:
        return None
    archive = open_local(Path(parsed.source))
    if "positions" not in archive.tensors:
        return None
    info = archive.tensors["positions"]
    if info.dtype not in _DUMP_INTEGER_DTYPES or not 1 <= len(info.shape) <= 3:
        raise InvalidCheckpoint(
            f"{archive.location}: positions of shape {list(info.shape)} and {info.dtype}. Write "
            "whole numbers [tokens], [axes, tokens] or [layers, axes, tokens]."
        )
    ids = np.frombuffer(archive.fetch(info), _DUMP_INTEGER_DTYPES[info.dtype])
    ids = ids.astype(np.int64).reshape((1,) * (3 - len(info.shape)) + info.shape)
    return PositionIds(ids, tuple(range(len(ids))), parsed.text)


def view_through_config(side: Side, checkpoint: Checkpoint) -> Side:
    """Return other weights as a copy that the configuration of ``side`` describes.

    Parameters
    ----------
    side
        Copy that was read from a checkpoint.
    checkpoint
        Weights, whose own configuration is ignored.
    """
    assert side.checkpoint is not None and side.reference is not None  # noqa: S101, PT018 - callers check this
    described = replace(checkpoint, config=side.checkpoint.config)
    return _checkpoint_side(side.reference, described)


def _read_dump_arrays(archive: Checkpoint) -> Dump:
    arrays = {}
    for name in DUMP_ARRAYS.keys() & archive.tensors.keys():
        info = archive.tensors[name]
        if math.prod(info.shape) > MAX_DUMP_NUMBERS:
            raise InvalidCheckpoint(
                f"{info.file}: {name}, shape {list(info.shape)}, has more "
                f"than {MAX_DUMP_NUMBERS} numbers. Write fewer positions: a "
                "few thousand tell as much."
            )
        if info.dtype in _DUMP_INTEGER_DTYPES:
            integers = np.frombuffer(
                archive.fetch(info), _DUMP_INTEGER_DTYPES[info.dtype]
            )
            arrays[name] = integers.astype(np.float64).reshape(info.shape)
        elif info.dtype in FLOAT_DTYPES:
            arrays[name] = archive.read(name).values.astype(np.float64)
        else:
            raise InvalidCheckpoint(
                f"{info.file}: {name} is stored as {info.dtype}. Write it as float32."
            )
    return read_dump(arrays, archive.location)


def _encoding_kind(encoding: Encoding) -> str:
    return "table" if isinstance(encoding, PositionTable) else encoding.scheme


def state_layers(side: Side, n_layers: int) -> dict[int, Rotary]:
    """Return the rotary encoding of each layer that a file says rotates, by number."""
    rotaries = side.text_rotaries
    if side.checkpoint is None:
        return dict.fromkeys(range(n_layers), rotaries[0]) if rotaries else {}
    expected: dict[int, Rotary] = {}
    for rotary in rotaries:
        section = _find_section(list_sections(side.checkpoint.config), rotary)
        layers = (
            range(n_layers)
            if section is None
            else find_rotating_layers(section, n_layers, rotary.layers)
        )
        for layer in layers:
            expected.setdefault(layer, rotary)
    return expected


def _find_section(
    sections: Sequence[ConfigSection], rotary: Rotary
) -> ConfigSection | None:
    """Return the section of a configuration that states an encoding."""
    names = [field.name for field in fields(RotarySpec)]
    for section in sections:
        try:
            specs = read_rotary_specs(section)
        except InvalidCheckpoint:
            continue
        for spec in specs:
            if all(getattr(spec, name) == getattr(rotary, name) for name in names):
                return section
    return None
