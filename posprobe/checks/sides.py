"""One of two copies: the encodings that it has, or what an engine computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np

from posprobe.checkpoints import Checkpoint, open_local
from posprobe.checkpoints.checkpoint import FLOATS
from posprobe.errors import InvalidCheckpoint, NoPositionTable
from posprobe.families import find_encodings, open_reference, read_table
from posprobe.families.find import picked
from posprobe.families.projections import RotaryWeights, rotary_weights
from posprobe.families.read import build_scheme, is_formula, load_any
from posprobe.progress import stage
from posprobe.reference import Reference, name_source_in_errors, parse_reference
from posprobe.relations.dumps import NAMES, Dump, is_dump, read_dump
from posprobe.schemes import Rotary, RotarySpec, Scheme
from posprobe.tables import PositionTable

Encoding: TypeAlias = PositionTable | Scheme
#: Most numbers of an array of a dump: 128 MiB as float64.
MAX_DUMP_NUMBERS = 2**24
#: Whole numbers that a dump may have.
_INTEGER_DTYPES = {"I32": "<i4", "I64": "<i8", "BOOL": "?"}


@dataclass(frozen=True, eq=False)
class Side:
    """What was read of one copy: its encodings by kind and name."""

    name: str
    records: Mapping[str, Mapping[str, Encoding]]
    checkpoint: Checkpoint | None = None
    dump: Dump | None = None
    weights: RotaryWeights | None = None
    unread: tuple[str, ...] = ()

    @property
    def declared(self) -> bool:
        """Whether an architecture says which rows make pairs."""
        return self.dump is None and (self.weights is None or self.weights.declared)

    @property
    def rotary(self) -> tuple[Rotary, ...]:
        """Its rotary encodings: several where kinds of layers have ladders of their own."""
        rotary_records = self.records.get("rotary", {}).values()
        return tuple(record for record in rotary_records if isinstance(record, Rotary))


def open_side(copy: str | PathLike[str] | Encoding, *, offline: bool) -> Side:
    """Read the encodings of a copy, or an engine's dump; errors as of `posprobe.load`."""
    if not isinstance(copy, str | PathLike):
        return Side(copy.name, {_kind(copy): {"": copy}})
    parsed = parse_reference(copy)
    if is_formula(parsed):
        loaded = load_any(parsed.text)
        return open_side(loaded[0] if isinstance(loaded, tuple) else loaded, offline=offline)
    with name_source_in_errors(parsed.source), stage(f"Reading {parsed.text}"):
        if parsed.is_path and parsed.source.endswith(".npz"):
            archive = open_local(Path(parsed.source))
            if is_dump(archive.tensors):
                return Side(parsed.text, {}, dump=_read_dump(archive))
        return _of_checkpoint(parsed, open_reference(parsed, offline=offline))


def _of_checkpoint(parsed: Reference, checkpoint: Checkpoint) -> Side:
    encodings = picked(checkpoint, find_encodings(checkpoint), parsed)
    records: dict[str, dict[str, Encoding]] = {}
    weights = None
    unread = []
    for encoding in encodings:
        try:
            record: Encoding = (
                build_scheme(checkpoint, encoding, encoding.name or parsed.source, parsed.text)
                if encoding.rule is None
                else read_table(checkpoint, encoding, parsed)
            )
        except NoPositionTable:
            unread.append(encoding.scheme)
            continue
        records.setdefault(_kind(record), {})[encoding.name] = record
        if weights is None and isinstance(encoding.spec, RotarySpec):
            # Kinds of layers are compared together: they differ in their ladder alone.
            weights = rotary_weights(checkpoint, encoding.spec, every_kind=True)
    return Side(parsed.text, records, checkpoint, weights=weights, unread=tuple(unread))


def _read_dump(archive: Checkpoint) -> Dump:
    arrays = {}
    for name in NAMES.keys() & archive.tensors.keys():
        info = archive.tensors[name]
        if math.prod(info.shape) > MAX_DUMP_NUMBERS:
            raise InvalidCheckpoint(
                f"{info.file}: {name}, shape {list(info.shape)}, has more than "
                f"{MAX_DUMP_NUMBERS} numbers. "
                "Write fewer positions: a few thousand tell as much."
            )
        if info.dtype in _INTEGER_DTYPES:
            integers = np.frombuffer(archive.fetch(info), _INTEGER_DTYPES[info.dtype])
            arrays[name] = integers.astype(np.float64).reshape(info.shape)
        elif info.dtype in FLOATS:
            arrays[name] = archive.read(name).values.astype(np.float64)
        else:
            raise InvalidCheckpoint(
                f"{info.file}: {name} is stored as {info.dtype}. Write it as float32."
            )
    return read_dump(arrays, archive.location)


def _kind(record: Encoding) -> str:
    return "table" if isinstance(record, PositionTable) else record.scheme
