"""Arrays as files: ``.npy`` holds one, ``.npz`` several by name, ``.csv`` one as text."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from posprobe.checkpoints.base import FLOATS, MAX_UNPACKED, Checkpoint, TensorInfo, parsing
from posprobe.checkpoints.files import Files, Stream, View, member_place
from posprobe.errors import InvalidCheckpoint


def read_npy(files: Files, name: str) -> Checkpoint:
    """Read the header of a ``.npy`` file; the tensor is named after the file.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds Python objects.
    """
    data = View.of(files, name)
    with _parsing(name):
        array = _Array.read(Stream(data))
        if array.dtype.hasobject or array.size > len(data) - array.head:
            raise ValueError(f"{len(data)} bytes for an array of {array}")
    info = array.info(Path(name).stem, name)
    if array.as_it_is:  # rows lie in the file as they are read, so that some can be had alone
        info = replace(info, start=array.head, stop=array.head + array.size)

    def fetch(part: TensorInfo) -> bytes | memoryview[int]:
        if array.as_it_is:
            return files.exactly(name, part.start, part.stop)
        return _bytes(npy.read_array(Stream(data), allow_pickle=False))

    return Checkpoint(name, {info.name: info}, fetch)


@dataclass(frozen=True)
class _Array:
    """What stands before an array's bytes, and how many bytes that takes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns_first: bool
    head: int

    @classmethod
    def read(cls, stream: Any) -> _Array:
        """Read it off an open file.

        Raises
        ------
        ValueError
            If it is none.
        """
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, columns_first, dtype = read(stream)
        if version > (3, 0) or min(shape, default=0) < 0:
            raise ValueError(f"version {version}, shape {list(shape)}")
        return cls(shape, dtype, columns_first, stream.tell())

    def __str__(self) -> str:
        return f"shape {list(self.shape)}, {self.dtype}"

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def as_it_is(self) -> bool:
        """Whether its bytes are those of the array in memory, row by row."""
        rows = not self.columns_first or len(self.shape) < 2
        return rows and self.dtype == self.dtype.newbyteorder("<")

    def info(self, name: str, file: str) -> TensorInfo:
        """Describe it."""
        return TensorInfo(name, self.shape, _dtype_name(self.dtype), file)


def read_npz(files: Files, name: str) -> Checkpoint:
    """Read the names in a ``.npz`` archive; of an array that is not compressed only its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the archive is damaged or holds Python objects.
    """
    data = View.of(files, name)
    with _parsing(name), zipfile.ZipFile(Stream(data)) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        counts = Counter(member.filename for member in members)
        if len(counts) < len(members):
            raise ValueError(f"{counts.most_common(1)[0][0][:80]!r} is in the archive twice")
        found = [_member(archive, member, data) for member in members]
        tensors = {info.name: info for info, _ in found}
        # Of a member its checksum, and that of what stands before the array's bytes.
        sums = {
            info.name: (member.CRC, before)
            for member, (info, before) in zip(members, found, strict=True)
        }
    if not tensors:
        raise InvalidCheckpoint(f"{name}: the archive holds no arrays.")

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        with _parsing(name):
            return unpacked(info)

    def unpacked(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            piece = files.exactly(name, info.start, info.stop)
            whole, before = sums.get(info.name, (None, 0))  # some rows have no checksum
            if whole is not None and zlib.crc32(piece, before) != whole:
                raise ValueError(f"{info.name} is not what its checksum says")
            return piece
        # NumPy's own reader prefers a member of the bare name, which is not an array.
        with zipfile.ZipFile(Stream(data)) as archive:
            member = archive.getinfo(f"{info.name}.npy")
            packed = member.compress_type != zipfile.ZIP_STORED
            if packed and member.file_size > MAX_UNPACKED:
                raise ValueError(
                    f"{info.name} unpacks to {member.file_size} bytes; up to {MAX_UNPACKED} are "
                    "unpacked"
                )
            with archive.open(member) as stream:
                return _bytes(npy.read_array(stream, allow_pickle=False))

    return Checkpoint(name, tensors, fetch)


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, data: View
) -> tuple[TensorInfo, int]:
    """Describe an array, with its bytes where they lie in the file as they are in memory.

    Returns
    -------
    tuple
        That, and the checksum of what stands before those bytes.
    """
    with archive.open(member) as stream:
        array = _Array.read(stream)
    size = member.file_size - array.head
    if not array.dtype.hasobject and array.size != size:
        raise ValueError(f"{member.filename}: {size} bytes for an array of {array}")
    info = array.info(member.filename.removesuffix(".npy"), data.file)
    stored = member.compress_type == zipfile.ZIP_STORED
    if not (stored and array.as_it_is and size and info.dtype in FLOATS):
        return info, 0
    begin, stop = member_place(data, member)
    before = zlib.crc32(data[begin : begin + array.head])
    return replace(info, start=begin + array.head, stop=stop), before


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    """Name a dtype as safetensors does, where it has a name for it."""
    if dtype.kind in "fiu":
        return f"{dtype.kind.upper()}{8 * dtype.itemsize}"
    return "BOOL" if dtype.kind == "b" else str(dtype)


def _bytes(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> memoryview[int]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return memoryview(little.reshape(-1).view(np.uint8).data)


def _parsing(file: str) -> AbstractContextManager[None]:
    return parsing(
        f"{file}: NumPy cannot read it",
        "Save the array again with numpy.save, without Python objects.",
    )
