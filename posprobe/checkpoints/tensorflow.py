"""TensorFlow's checkpoints, read without TensorFlow: ``NAME.index`` and ``NAME.data-*``.

The index is a sorted table in LevelDB's format (``table_format.md`` of LevelDB) from names to
entries that give each tensor's type, shape and place in the data (``tensor_bundle.proto`` of
TensorFlow); the data are plain. No package that is kept up reads them but TensorFlow itself, for
which two hundred lines are a small price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from posprobe.checkpoints.checkpoint import Checkpoint, TensorInfo, damaged
from posprobe.checkpoints.files import Damaged, Files, places, varint
from posprobe.checkpoints.local import read_json
from posprobe.errors import InvalidCheckpoint, explain_errors

#: The last bytes of every table, and how long the footer is that they end.
_MAGIC, _FOOTER = 0xDB4775248B80FB57.to_bytes(8, "little"), 48
#: No index is longer: an entry has about a hundred bytes.
MAX_INDEX = 16 * 1024 * 1024
_MOST_ENTRIES, _MOST_DIMENSIONS = 100_000, 32
_LONGEST_NAME, _LONGEST_ENTRY = 1000, 2**16
#: Types by their number in ``types.proto``, and bytes of a number.
_TYPES = {
    1: ("F32", 4), 2: ("F64", 8), 14: ("BF16", 2), 19: ("F16", 2), 3: ("I32", 4), 4: ("U8", 1),
    5: ("I16", 2), 6: ("I8", 1), 9: ("I64", 8), 10: ("BOOL", 1), 17: ("U16", 2), 22: ("U32", 4),
    23: ("U64", 8),
}  # fmt: skip
#: What TensorFlow 2 puts behind the name of a variable in an object that it saves.
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
#: What BERT's releases call their configuration.
_BERT_CONFIG = "bert_config.json"


def read_tensorflow(files: Files, index: str) -> Checkpoint:
    """Read the index of a checkpoint; ``files`` gives its bytes and those of the data.

    Raises
    ------
    InvalidCheckpoint
        If the index is damaged, or claims what the data do not hold.
    """
    size = files.size(index)
    if not _FOOTER <= size <= MAX_INDEX:
        raise damaged(f"{index}: {size} bytes are not the index of a TensorFlow checkpoint")
    content = bytes(files.read(index, 0, size))
    subject = f"{index}: not a valid index of a TensorFlow checkpoint"
    with explain_errors(
        InvalidCheckpoint, subject, "Download it again.", Damaged, UnicodeDecodeError
    ):
        entries = dict(_table(content))
        header = Message(entries.pop(b"", b""))
        shards = header.number(1)
        if header.number(2):
            raise Damaged("it was written for machines that count bytes the other way round")
        entries_found = (_entry(key, value, index, shards) for key, value in entries.items())
        tensors = {info.name: info for info in entries_found if info is not None}

    config = read_json(files, _BERT_CONFIG) if files.has(_BERT_CONFIG) else {}
    return Checkpoint(
        index, tensors, lambda info: files.exactly(info.file, info.start, info.stop), config
    )


def _entry(key: bytes, value: bytes, index: str, shards: int) -> TensorInfo | None:
    """Read a ``BundleEntryProto``; None for texts and the slices of a tensor."""
    entry = Message(value)
    kind = entry.number(1)
    if kind not in _TYPES or key.startswith(b"\0"):
        return None
    name = key.decode().removesuffix(_VALUE)
    axes = [axis for shape in entry.contents(2) for axis in Message(shape).contents(2)]
    shape = [Message(axis).number(1) for axis in axes]
    shard, start, length = (entry.number(number) for number in (3, 4, 5))
    dtype, width = _TYPES[kind]
    file = f"{index.removesuffix('.index')}.data-{shard:05d}-of-{shards:05d}"
    if len(shape) > _MOST_DIMENSIONS or shard >= shards:
        raise Damaged(f"the entry {name[:80]!r} has no sound shape or file")
    if entry.contents(7):
        return TensorInfo(name, tuple(shape), "slices", file)
    if math.prod(shape) * width != length:
        raise Damaged(f"{name[:80]!r}, shape {shape} {dtype}, does not fit its {length} bytes")
    return TensorInfo(name, tuple(shape), dtype, file, start, start + length)


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a sorted table."""
    if content[-8:] != _MAGIC:
        raise Damaged("it does not end as such a table does")
    footer = content[-_FOOTER:]
    _, place = varint(footer, 0)
    _, place = varint(footer, place)
    start, place = varint(footer, place)
    size, _ = varint(footer, place)
    end, count, last_key = 0, 0, b""
    for _, handle in _block(content, start, size):
        start, place = varint(handle, 0)
        size, _ = varint(handle, place)
        if start < end:  # a block that is read twice could be read a million times
            raise Damaged("its blocks overlap")
        end = start + size
        for key, value in _block(content, start, size):
            count += 1
            if count > _MOST_ENTRIES or (key <= last_key and count > 1):
                raise Damaged(f"its entry {count} is out of order, or one too many")
            last_key = key
            yield key, value


def _block(content: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a block, whose keys leave out what they share with the one before."""
    if not 4 <= size <= len(content) - _FOOTER - start - 5:
        raise Damaged(f"it has no block of {size} bytes at byte {start}")
    block = content[start : start + size]
    if content[start + size]:
        raise Damaged("its blocks are compressed, which TensorFlow never does")
    restarts = int.from_bytes(block[-4:], "little")
    stop = size - 4 - 4 * restarts
    if stop < 0:
        raise Damaged(f"a block of {size} bytes has {restarts} places to start at")
    place, key = 0, b""
    while place < stop:
        shared, place = varint(block, place)
        n_new, place = varint(block, place)
        length, place = varint(block, place)
        too_long = shared + n_new > _LONGEST_NAME or length > _LONGEST_ENTRY
        if shared > len(key) or too_long or place + n_new + length > stop:
            raise Damaged("an entry reaches beyond its block, or has too long a name")
        key = key[:shared] + block[place : place + n_new]
        yield key, block[place + n_new : place + n_new + length]
        place += n_new + length


@dataclass(frozen=True)
class Message:
    """The fields of a small message; of one that is there several times the last counts.

    Parameters
    ----------
    data
        The whole message.

    Raises
    ------
    Damaged
        As `places`.
    """

    data: bytes
    fields: list[tuple[int, int, int, int]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", list(places(self.data, 0, len(self.data))))

    def number(self, number: int) -> int:
        """Return a number, 0 where the field is missing."""
        starts = [begin for n, kind, begin, _ in self.fields if n == number and kind == 0]
        return varint(self.data, starts[-1])[0] if starts else 0

    def contents(self, number: int) -> list[bytes]:
        """Return the bytes of every field of this number: texts, messages and the like."""
        return [self.data[b:e] for n, kind, b, e in self.fields if n == number and kind == 2]
