"""The GGUF format of llama.cpp: settings and the places of all tensors, then their bytes.

The header is parsed here rather than by the gguf package: the same parser serves files on disk and
byte ranges from the Hub, it steps over vocabularies, and sizes that a file cannot hold end it at
once. The package turns quantised blocks into numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posprobe.checkpoints.base import Checkpoint, TensorInfo
from posprobe.checkpoints.files import Files, LocalFiles
from posprobe.checkpoints.ggml import dequantise, place_tensor
from posprobe.errors import InvalidCheckpoint

MAGIC = b"GGUF"
#: No header is longer: the largest vocabularies, with their merges, take a tenth of it.
MAX_HEADER = 100_000_000
#: Longest list of numbers that is kept of the settings; a vocabulary's scores are longer.
_MOST_KEPT = 4096
_MOST_DIMENSIONS, _MOST_ENTRIES = 8, 100_000
#: Kinds of settings by their number: how Python's struct calls them. 8 is text, 9 an array.
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9

Read = Callable[[int, int], "bytes | memoryview[int]"]


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file, memory-mapped.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """
    return read_gguf(LocalFiles(path), path.name)


def read_gguf(files: Files, name: str) -> Checkpoint:
    """Read the header of a GGUF file; ``files`` gives its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """

    def read(start: int, stop: int) -> bytes | memoryview[int]:
        return files.read(name, start, stop)

    tensors, config = parse_header(read, files.size(name), name)
    return Checkpoint(
        name, tensors, lambda info: read(info.start, info.stop), config, dequantise=dequantise
    )


def parse_header(read: Read, size: int, file: str) -> tuple[dict[str, TensorInfo], dict[str, Any]]:
    """Parse the header of a GGUF file.

    Parameters
    ----------
    read
        ``read(start, stop)`` returns those bytes of the file.
    size
        Length of the file in bytes.
    file
        Its name, for messages and for the entries.

    Returns
    -------
    tuple
        The tensors by name, and the settings as they are called there.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """
    cursor = _Cursor(read, size, file)
    if cursor.take(4) != MAGIC:
        raise InvalidCheckpoint(f"{file}: not a GGUF file. Download it again.")
    version = cursor.number("I")
    if version not in (2, 3):
        swapped = " It may have been written on a big-endian machine."
        raise InvalidCheckpoint(
            f"{file}: GGUF version {version}; only versions 2 and 3 are read."
            f"{swapped if version > 2**16 else ''} Convert the model again with llama.cpp."
        )
    tensor_count, setting_count = cursor.number("Q"), cursor.number("Q")
    # The shortest entries: an empty name, a kind and one byte; an empty name and no sizes.
    too_many = max(tensor_count, setting_count) > _MOST_ENTRIES
    if too_many or 13 * setting_count + 24 * tensor_count > size:
        raise cursor.damaged(f"{setting_count} settings and {tensor_count} tensors are announced")
    settings: dict[str, Any] = {}
    for _ in range(setting_count):
        key = cursor.text()
        if key in settings:
            raise cursor.damaged(f"the setting {key[:80]!r} stands there twice")
        settings[key] = cursor.value(cursor.number("I"))
    entries = [cursor.entry() for _ in range(tensor_count)]
    alignment = settings.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
        raise cursor.damaged(f"the alignment {alignment} is not a power of two")
    begin = -(-cursor.place // alignment) * alignment
    tensors = _placed(entries, begin, cursor)
    factors = {
        name: list(struct.unpack(f"<{math.prod(info.shape)}f", read(info.start, info.stop)))
        for name, info in tensors.items()
        if name in ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
        and info.dtype == "F32"
        and math.prod(info.shape) <= _MOST_KEPT
    }
    # What divides frequencies is a setting that is stored as a tensor.
    return tensors, {**settings, **factors}


@dataclass(frozen=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def _placed(entries: list[_Entry], begin: int, cursor: _Cursor) -> dict[str, TensorInfo]:
    """Give every tensor its place; none may reach into another or beyond the file."""
    tensors: dict[str, TensorInfo] = {}
    end = begin
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.name in tensors:
            raise cursor.damaged(f"the tensor {entry.name[:80]!r} stands there twice")
        start = begin + entry.offset
        info = place_tensor(entry.name, entry.shape, entry.kind, cursor.file, start)
        if start < end or info.stop > cursor.size:
            raise cursor.damaged(
                f"tensor {entry.name[:80]!r}, shape {list(entry.shape)}, would be the bytes "
                f"{start} to {info.stop}, and the one before it ends at {end}"
            )
        end = info.stop
        tensors[entry.name] = info
    return {entry.name: tensors[entry.name] for entry in entries}


@dataclass
class _Cursor:
    """A place in a header, which moves on as it is read."""

    read: Read
    size: int
    file: str
    place: int = 0

    def damaged(self, what: str) -> InvalidCheckpoint:
        return InvalidCheckpoint(
            f"{self.file}: {what}, in a GGUF file of {self.size} bytes. It is truncated or "
            "damaged: download it again."
        )

    def skip(self, count: int) -> int:
        """Move on, and return where that was from."""
        start = self.place
        if count > self.size - start:
            raise self.damaged(f"the header needs {count} bytes from byte {start} on")
        if start + count > MAX_HEADER:
            raise self.damaged(f"the header is longer than {MAX_HEADER} bytes")
        self.place += count
        return start

    def take(self, count: int) -> bytes:
        start = self.skip(count)
        return bytes(self.read(start, self.place))

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        content = self.take(self.number("Q"))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise self.damaged(f"the text {content[:40]!r} is not UTF-8") from None

    def value(self, kind: int) -> Any:
        """Read a setting; of long arrays and of arrays of texts nothing is kept."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            raise self.damaged(f"a setting is of the kind {kind}, which does not exist")
        item, count = self.number("I"), self.number("Q")
        if item == _TEXT:
            if 8 * count > self.size:
                raise self.damaged(f"{count} texts are announced")
            for _ in range(count):
                self.skip(self.number("Q"))
            return None
        if item not in _SCALARS:
            raise self.damaged(f"an array is of the kind {item}, which is not read")
        code = _SCALARS[item]
        width = struct.calcsize(f"<{code}")
        if count > _MOST_KEPT:
            self.skip(count * width)
            return None
        return list(struct.unpack(f"<{count}{code}", self.take(count * width)))

    def entry(self) -> _Entry:
        name, dimensions = self.text(), self.number("I")
        if dimensions > _MOST_DIMENSIONS:
            raise self.damaged(f"tensor {name[:80]!r} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))
        kind, offset = self.number("I"), self.number("Q")
        return _Entry(name, shape[::-1], kind, offset)  # the fastest axis stands first
