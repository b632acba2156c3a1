"""NumPy files: ``.npy`` holds one array, ``.npz`` several by name."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from posprobe.checkpoints.base import FLOATS, MAX_UNPACKED, Checkpoint, TensorInfo
from posprobe.checkpoints.files import (
    Content,
    Files,
    LocalFiles,
    Stream,
    content_of,
    member_place,
)
from posprobe.checkpoints.safetensors import map_file
from posprobe.errors import InvalidCheckpoint, PosprobeError


def open_npy(path: Path) -> Checkpoint:
    """Open a ``.npy`` file, memory-mapped; the tensor is named after the file.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds Python objects.
    """
    try:
        array = npy.open_memmap(path, mode="r")
    except Exception as error:
        raise _damaged(path.name, error) from error
    info = TensorInfo(path.stem, array.shape, _dtype_name(array.dtype), path.name)
    if array.flags.c_contiguous and array.dtype.newbyteorder("<") == array.dtype:
        # Rows lie in the file as they are read, so that some can be had alone.
        data, begin = map_file(path), array.offset
        info = replace(info, start=begin, stop=begin + array.nbytes)
        return Checkpoint(str(path), {path.stem: info}, lambda part: data[part.start : part.stop])
    return Checkpoint(str(path), {path.stem: info}, lambda _: _bytes(array))


def open_npz(path: Path) -> Checkpoint:
    """Open a ``.npz`` archive, memory-mapped; errors are those of `read_npz`."""
    return read_npz(LocalFiles(path), path.name)


def read_npz(files: Files, name: str) -> Checkpoint:
    """Read the names in a ``.npz`` archive; of an array that is not compressed only its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the archive is damaged or holds Python objects.
    """
    data = content_of(files, name)
    try:
        with zipfile.ZipFile(Stream(data)) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            counts = Counter(member.filename for member in members)
            if len(counts) < len(members):
                raise ValueError(f"{counts.most_common(1)[0][0][:80]!r} is in the archive twice")
            found = [_member(archive, member, data, name) for member in members]
            tensors = {info.name: info for info, _ in found}
            # Of a member its checksum, and that of what stands before the array's bytes.
            sums = {
                info.name: (member.CRC, before)
                for member, (info, before) in zip(members, found, strict=True)
            }
    except PosprobeError:
        raise
    except Exception as error:
        raise _damaged(name, error) from error
    if not tensors:
        raise InvalidCheckpoint(f"{name}: the archive holds no arrays.")

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            piece = data[info.start : info.stop]
            whole, before = sums.get(info.name, (None, 0))  # some rows have no checksum
            if whole is not None and zlib.crc32(piece, before) != whole:
                raise _damaged(name, ValueError(f"{info.name} is not what its checksum says"))
            return piece
        try:
            # NumPy's own reader prefers a member of the bare name, which is not an array.
            with zipfile.ZipFile(Stream(data)) as archive:
                member = archive.getinfo(f"{info.name}.npy")
                packed = member.compress_type != zipfile.ZIP_STORED
                if packed and member.file_size > MAX_UNPACKED:
                    raise ValueError(
                        f"{info.name} unpacks to {member.file_size} bytes; up to {MAX_UNPACKED} "
                        "are unpacked"
                    )
                with archive.open(member) as stream:
                    return _bytes(npy.read_array(stream, allow_pickle=False))
        except PosprobeError:
            raise
        except Exception as error:
            raise _damaged(name, error) from error

    return Checkpoint(name, tensors, fetch)


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, data: Content, file: str
) -> tuple[TensorInfo, int]:
    """Describe an array, with its bytes where they lie in the file as they are in memory.

    Returns
    -------
    tuple
        That, and the checksum of what stands before those bytes.
    """
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, columns_first, dtype = read(stream)
        head = stream.tell()
    size = member.file_size - head
    if min(shape, default=0) < 0 or (
        not dtype.hasobject and math.prod(shape) * dtype.itemsize != size
    ):
        raise ValueError(
            f"{member.filename}: {size} bytes for an array of shape {list(shape)}, {dtype}"
        )
    info = TensorInfo(member.filename.removesuffix(".npy"), shape, _dtype_name(dtype), file)
    rows = not columns_first or len(shape) < 2
    as_it_is = member.compress_type == zipfile.ZIP_STORED and dtype == dtype.newbyteorder("<")
    if not (rows and as_it_is and size and info.dtype in FLOATS):
        return info, 0
    begin, stop = member_place(data, member)
    before = zlib.crc32(data[begin : begin + head])
    return replace(info, start=begin + head, stop=stop), before


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    """Name a dtype as safetensors does, where it has a name for it."""
    if dtype.kind in "fiu":
        return f"{dtype.kind.upper()}{8 * dtype.itemsize}"
    return "BOOL" if dtype.kind == "b" else str(dtype)


def _bytes(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> memoryview[int]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return memoryview(little.reshape(-1).view(np.uint8).data)


def _damaged(file: str, error: Exception) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{file}: NumPy cannot read it ({error}). "
        "Save the array again with numpy.save, without Python objects."
    )
