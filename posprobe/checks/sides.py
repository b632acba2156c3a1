"""What is read of one copy of a model, to be compared with another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np

from posprobe.checkpoint_analysis import load_any
from posprobe.checkpoints import Checkpoint, open_local
from posprobe.encodings import FORMULAS
from posprobe.errors import InvalidCheckpoint, NoPositionTable, UnknownReference
from posprobe.families import find_encodings, open_reference, read_table
from posprobe.families.build import build_scheme
from posprobe.families.find import called
from posprobe.families.projections import RotaryWeights, rotary_weights
from posprobe.families.rotary import RotarySpec
from posprobe.progress import stage
from posprobe.reference import named_in_errors, parse_reference
from posprobe.relations.dumps import NAMES, Dump, is_dump, read_dump
from posprobe.schemes import Scheme
from posprobe.tables import PositionTable

Record: TypeAlias = PositionTable | Scheme
#: Most numbers of an array of a dump: 128 MiB as float64.
MOST = 2**24


@dataclass(frozen=True, eq=False)
class Side:
    """What was read of one copy: its encodings by kind and name."""

    name: str
    records: Mapping[str, Mapping[str, Record]]
    checkpoint: Checkpoint | None = None
    dump: Dump | None = None
    weights: RotaryWeights | None = None
    declared: bool = True
    unread: tuple[str, ...] = field(default=())


def open_side(given: str | PathLike[str] | Record, *, offline: bool) -> Side:
    """Read the encodings of a copy, or an engine's dump; errors as of `posprobe.load`."""
    if not isinstance(given, str | PathLike):
        return Side(given.name, {_kind(given): {"": given}})
    parsed = parse_reference(given)
    source = parsed.source
    formula = (":" in source and not source.startswith("sample:")) or source in FORMULAS
    if formula and not parsed.is_path:
        loaded = load_any(parsed.text)
        first = loaded[0] if isinstance(loaded, tuple) else loaded
        return Side(parsed.text, {_kind(first): {"": first}})
    with named_in_errors(source), stage(f"Reading {parsed.text}"):
        if parsed.is_path and source.endswith(".npz"):
            archive = open_local(Path(source))
            if is_dump(archive.tensors):
                return Side(parsed.text, {}, dump=_read_dump(archive), declared=False)
        checkpoint = open_reference(parsed, offline=offline)
        found = find_encodings(checkpoint)
        if parsed.table and parsed.table not in checkpoint.models:
            found = called(checkpoint, found, parsed.table)
            if not found:
                raise UnknownReference(
                    f"{parsed.text}: it has no encoding of that name. `posprobe inspect {source}` "
                    "lists those that it has."
                )
        records: dict[str, dict[str, Record]] = {}
        weights = None
        unread = []
        for encoding in found:
            try:
                record: Record = (
                    build_scheme(checkpoint, encoding, encoding.name or source, parsed.text)
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
    return Side(
        parsed.text, records, checkpoint, weights=weights,
        declared=weights is None or weights.declared, unread=tuple(unread),
    )  # fmt: skip


def _read_dump(archive: Checkpoint) -> Dump:
    arrays = {}
    for name in NAMES.keys() & archive.tensors.keys():
        info = archive.tensors[name]
        if math.prod(info.shape) > MOST:
            raise InvalidCheckpoint(
                f"{info.file}: {name}, shape {list(info.shape)}, has more than {MOST} numbers. "
                "Write fewer positions: a few thousand tell as much."
            )
        if info.dtype in ("I32", "I64"):
            whole = np.frombuffer(archive.fetch(info), f"<i{int(info.dtype[1:]) // 8}")
            arrays[name] = whole.astype(np.float64).reshape(info.shape)
        else:
            arrays[name] = archive.read(name).values.astype(np.float64)
    return read_dump(arrays, archive.location)


def _kind(record: Record) -> str:
    return "table" if isinstance(record, PositionTable) else record.scheme
