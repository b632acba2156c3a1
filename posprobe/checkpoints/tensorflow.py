"""TensorFlow's checkpoints, read without TensorFlow: ``NAME.index`` and ``NAME.data-*``.

The index is a sorted table in LevelDB's format (``table_format.md`` of LevelDB) from names to
entries with each tensor's type, shape and byte range in the data (``tensor_bundle.proto`` of
TensorFlow); the data are plain. TensorFlow is the only maintained package that reads them, and two
hundred lines are a small price for not depending on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from posprobe.checkpoints.checkpoint import Checkpoint, TensorInfo, damaged_error
from posprobe.checkpoints.files import Files, MalformedMessage, iter_fields, read_varint
from posprobe.checkpoints.local import read_json
from posprobe.errors import InvalidCheckpoint, explain_errors

#: Last bytes of every table.
_TABLE_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
#: Length in bytes of the footer at the end of a table.
_FOOTER_BYTES = 48
#: Longest index in bytes; an entry has about a hundred bytes.
MAX_INDEX_BYTES = 16 * 1024 * 1024
#: Largest number of entries, one per tensor; shared prefixes could pack millions into an index.
_MAX_INDEX_ENTRIES = 100_000
#: Largest number of dimensions of a tensor: NumPy 1 has no more.
_MAX_BUNDLE_DIMENSIONS = 32
#: Longest name of a tensor in bytes; those of models have about a hundred.
_MAX_KEY_BYTES = 1000
#: Longest description of a tensor in bytes; dtype, shape and place take less than a hundred.
_MAX_ENTRY_BYTES = 2**16
#: Type and bytes per number, by the number of the type in ``types.proto``.
_TENSORFLOW_TYPES = {
    1: ("F32", 4),
    2: ("F64", 8),
    14: ("BF16", 2),
    19: ("F16", 2),
    3: ("I32", 4),
    4: ("U8", 1),
    5: ("I16", 2),
    6: ("I8", 1),
    9: ("I64", 8),
    10: ("BOOL", 1),
    17: ("U16", 2),
    22: ("U32", 4),
    23: ("U64", 8),
}
#: Suffix of TensorFlow 2 behind the name of a variable in a saved object.
_VARIABLE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
#: Name of the configuration in BERT's releases.
_BERT_CONFIG = "bert_config.json"


def read_tensorflow(files: Files, index: str) -> Checkpoint:
    """Read the index of a checkpoint; ``files`` gives its bytes and those of the data.

    Raises
    ------
    InvalidCheckpoint
        If the index is damaged, or claims what the data do not hold.
    """
    n_bytes = files.size(index)
    if not _FOOTER_BYTES <= n_bytes <= MAX_INDEX_BYTES:
        raise damaged_error(
            f"{index}: {n_bytes} bytes are not the index of a TensorFlow checkpoint"
        )
    content = bytes(files.read(index, 0, n_bytes))
    subject = f"{index}: not a valid index of a TensorFlow checkpoint"
    with explain_errors(
        InvalidCheckpoint,
        subject,
        "Download it again.",
        MalformedMessage,
        UnicodeDecodeError,
    ):
        entries = dict(_iter_table(content))
        header = Message(entries.pop(b"", b""))
        shards = header.get_number(1)
        if header.get_number(2):
            raise MalformedMessage(
                "it was written for machines that count bytes the other way round"
            )
        infos = (_read_entry(key, value, index, shards) for key, value in entries.items())
        tensors = {info.name: info for info in infos if info is not None}

    config = read_json(files, _BERT_CONFIG) if files.has(_BERT_CONFIG) else {}
    return Checkpoint(
        index,
        tensors,
        lambda info: files.exactly(info.file, info.start, info.stop),
        config,
    )


def _read_entry(key: bytes, value: bytes, index: str, shards: int) -> TensorInfo | None:
    """Read a ``BundleEntryProto``; None for texts and the slices of a tensor."""
    entry = Message(value)
    type_number = entry.get_number(1)
    if type_number not in _TENSORFLOW_TYPES or key.startswith(b"\0"):
        return None
    name = key.decode().removesuffix(_VARIABLE_SUFFIX)
    axes = [
        axis for shape in entry.get_contents(2) for axis in Message(shape).get_contents(2)
    ]
    shape = [Message(axis).get_number(1) for axis in axes]
    shard, start, length = (entry.get_number(number) for number in (3, 4, 5))
    dtype, number_bytes = _TENSORFLOW_TYPES[type_number]
    file = f"{index.removesuffix('.index')}.data-{shard:05d}-of-{shards:05d}"
    if len(shape) > _MAX_BUNDLE_DIMENSIONS or shard >= shards:
        raise MalformedMessage(f"the entry {name[:80]!r} has no sound shape or file")
    if entry.get_contents(7):
        return TensorInfo(name, tuple(shape), "slices", file)
    if math.prod(shape) * number_bytes != length:
        raise MalformedMessage(
            f"{name[:80]!r}, shape {shape} {dtype}, does not fit its {length} bytes"
        )
    return TensorInfo(name, tuple(shape), dtype, file, start, start + length)


def _iter_table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a sorted table."""
    if content[-8:] != _TABLE_MAGIC:
        raise MalformedMessage("it does not end as such a table does")
    footer = content[-_FOOTER_BYTES:]
    _, offset = read_varint(footer, 0)
    _, offset = read_varint(footer, offset)
    start, offset = read_varint(footer, offset)
    block_bytes, _ = read_varint(footer, offset)
    block_end, n_entries, last_key = 0, 0, b""
    for _, handle in _iter_block(content, start, block_bytes):
        start, offset = read_varint(handle, 0)
        block_bytes, _ = read_varint(handle, offset)
        if start < block_end:  # overlapping blocks could make a short file read endlessly
            raise MalformedMessage("its blocks overlap")
        block_end = start + block_bytes
        for key, value in _iter_block(content, start, block_bytes):
            n_entries += 1
            if n_entries > _MAX_INDEX_ENTRIES or (key <= last_key and n_entries > 1):
                raise MalformedMessage(
                    f"its entry {n_entries} is out of order, or one too many"
                )
            last_key = key
            yield key, value


def _iter_block(
    content: bytes, start: int, n_bytes: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a block, whose keys omit the prefix shared with the key before."""
    if not 4 <= n_bytes <= len(content) - _FOOTER_BYTES - start - 5:
        raise MalformedMessage(f"it has no block of {n_bytes} bytes at byte {start}")
    block = content[start : start + n_bytes]
    if content[start + n_bytes]:
        raise MalformedMessage("its blocks are compressed, which TensorFlow never does")
    restarts = int.from_bytes(block[-4:], "little")
    stop = n_bytes - 4 - 4 * restarts
    if stop < 0:
        raise MalformedMessage(
            f"a block of {n_bytes} bytes has {restarts} places to start at"
        )
    offset, key = 0, b""
    while offset < stop:
        n_shared, offset = read_varint(block, offset)
        n_new, offset = read_varint(block, offset)
        value_bytes, offset = read_varint(block, offset)
        too_long = n_shared + n_new > _MAX_KEY_BYTES or value_bytes > _MAX_ENTRY_BYTES
        if n_shared > len(key) or too_long or offset + n_new + value_bytes > stop:
            raise MalformedMessage(
                "an entry reaches beyond its block, or has too long a name"
            )
        key = key[:n_shared] + block[offset : offset + n_new]
        yield key, block[offset + n_new : offset + n_new + value_bytes]
        offset += n_new + value_bytes


@dataclass(frozen=True)
class Message:
    """The fields of a small message; the last one of several with one number counts.

    Parameters
    ----------
    data
        Bytes of the message.

    Raises
    ------
    MalformedMessage
        As `iter_fields`.
    """

    data: bytes
    fields: list[tuple[int, int, int, int]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "fields", list(iter_fields(self.data, 0, len(self.data)))
        )

    def get_number(self, wanted_number: int) -> int:
        """Return the number in a field, 0 without the field."""
        starts = [
            first_byte
            for field_number, wire_type, first_byte, _ in self.fields
            if field_number == wanted_number and wire_type == 0
        ]
        return read_varint(self.data, starts[-1])[0] if starts else 0

    def get_contents(self, wanted_number: int) -> list[bytes]:
        """Return the bytes of every field with this number: texts, messages and the like."""
        return [
            self.data[first_byte:stop]
            for field_number, wire_type, first_byte, stop in self.fields
            if field_number == wanted_number and wire_type == 2
        ]
