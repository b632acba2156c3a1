"""NumPy files: ``.npy`` holds one array, ``.npz`` several by name."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from posprobe.checkpoints.base import MAX_UNPACKED, Checkpoint, TensorInfo
from posprobe.checkpoints.safetensors import map_file
from posprobe.errors import InvalidCheckpoint


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
        raise _damaged(path, error) from error
    info = TensorInfo(path.stem, array.shape, _dtype_name(array.dtype), path.name)
    if array.flags.c_contiguous and array.dtype.newbyteorder("<") == array.dtype:
        # Rows lie in the file as they are read, so that some can be had alone.
        data, begin = map_file(path), array.offset
        info = replace(info, start=begin, stop=begin + array.nbytes)
        return Checkpoint(str(path), {path.stem: info}, lambda part: data[part.start : part.stop])
    return Checkpoint(str(path), {path.stem: info}, lambda _: _bytes(array))


def open_npz(path: Path) -> Checkpoint:
    """Open a ``.npz`` archive; only the array that is read is unpacked.

    Raises
    ------
    InvalidCheckpoint
        If the archive is damaged or holds Python objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(set(members)) < len(members):
                twice = Counter(members).most_common(1)[0][0]
                raise ValueError(f"{twice[:80]!r} is in the archive twice")
            tensors = {
                member.removesuffix(".npy"): _member(archive, member, path.name)
                for member in members
            }
    except Exception as error:
        raise _damaged(path, error) from error
    if not tensors:
        raise InvalidCheckpoint(f"{path.name}: the archive holds no arrays.")

    def fetch(info: TensorInfo) -> memoryview[int]:
        try:
            # NumPy's own reader prefers a member of the bare name, which is no array.
            with zipfile.ZipFile(path) as archive:
                member = archive.getinfo(f"{info.name}.npy")
                packed = member.compress_type != zipfile.ZIP_STORED
                if packed and member.file_size > MAX_UNPACKED:
                    raise ValueError(
                        f"{info.name} unpacks to {member.file_size} bytes; up to {MAX_UNPACKED} "
                        "are unpacked"
                    )
                with archive.open(member) as stream:
                    return _bytes(npy.read_array(stream, allow_pickle=False))
        except Exception as error:
            raise _damaged(path, error) from error

    return Checkpoint(str(path), tensors, fetch)


def _member(archive: zipfile.ZipFile, member: str, file: str) -> TensorInfo:
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        size = archive.getinfo(member).file_size - stream.tell()
    if min(shape, default=0) < 0 or (
        not dtype.hasobject and math.prod(shape) * dtype.itemsize != size
    ):
        raise ValueError(f"{member}: {size} bytes for an array of shape {list(shape)}, {dtype}")
    return TensorInfo(member.removesuffix(".npy"), shape, _dtype_name(dtype), file)


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    """Name a dtype as safetensors does, where it has a name for it."""
    if dtype.kind in "fiu":
        return f"{dtype.kind.upper()}{8 * dtype.itemsize}"
    return "BOOL" if dtype.kind == "b" else str(dtype)


def _bytes(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> memoryview[int]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return memoryview(little.reshape(-1).view(np.uint8).data)


def _damaged(path: Path, error: Exception) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{path.name}: NumPy cannot read it ({error}). "
        "Save the array again with numpy.save, without Python objects."
    )
