"""NumPy files: ``.npy`` holds one array, ``.npz`` several by name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from posprobe.checkpoints.base import FLOATS, Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint

_DAMAGED = (OSError, ValueError, EOFError, SyntaxError, zipfile.BadZipFile)


def open_npy(path: Path) -> Checkpoint:
    """Open a ``.npy`` file, memory-mapped; the tensor is named after the file.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds Python objects.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _DAMAGED as error:
        raise _damaged(path, error) from error
    info = TensorInfo(path.stem, array.shape, _dtype_name(array.dtype), path.name)
    return Checkpoint(str(path.resolve()), {path.stem: info}, lambda _: _bytes(array))


def open_npz(path: Path) -> Checkpoint:
    """Open a ``.npz`` archive; only the array that is read is unpacked.

    Raises
    ------
    InvalidCheckpoint
        If the archive is damaged or holds Python objects.
    """
    tensors = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if not member.endswith(".npy"):
                    continue
                with archive.open(member) as stream:
                    version = npy.read_magic(stream)
                    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                    shape, _, dtype = read(stream)
                name = member.removesuffix(".npy")
                tensors[name] = TensorInfo(name, shape, _dtype_name(dtype), path.name)
    except (*_DAMAGED, NotImplementedError, RuntimeError) as error:
        raise _damaged(path, error) from error
    if not tensors:
        raise InvalidCheckpoint(f"{path.name}: the archive holds no arrays.")

    def fetch(info: TensorInfo) -> memoryview[int]:
        try:
            with np.load(path, allow_pickle=False) as archive:
                return _bytes(archive[info.name])
        except (*_DAMAGED, zipfile.LargeZipFile) as error:
            raise _damaged(path, error) from error

    return Checkpoint(str(path.resolve()), tensors, fetch)


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    names = {np.dtype(code): name for name, code in FLOATS.items() if name != "BF16"}
    return names.get(dtype.newbyteorder("<"), str(dtype))


def _bytes(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> memoryview[int]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return memoryview(little.reshape(-1).view(np.uint8).data)


def _damaged(path: Path, error: Exception) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{path.name}: NumPy cannot read it ({error}). "
        "Save the array again with numpy.save, without Python objects."
    )
