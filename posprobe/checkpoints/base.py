"""What every checkpoint offers, whatever its format: named tensors, known before they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidCheckpoint, InvalidTable

#: Float formats that can be read, by their name in a safetensors header.
FLOATS: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's name, shape and dtype (safetensors' names: ``F32``, ``BF16``, ``I8`` …).

    ``file`` is the file of the checkpoint that holds it; ``start`` and ``stop`` are byte offsets
    in that file where the format has them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: str
    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's values and the sha256 of its stored bytes; bfloat16 is widened to float32."""

    info: TensorInfo
    values: NDArray[np.floating[Any]]
    sha256: str


Fetch: TypeAlias = Callable[[TensorInfo], "bytes | memoryview[int]"]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint opened lazily.

    Parameters
    ----------
    location
        Absolute path or Hub repository.
    tensors
        Every tensor by name; nothing but headers has been read.
    fetch
        Returns a tensor's stored bytes, little-endian, row-major.
    config
        The model's configuration, empty where there is none.
    revision
        Commit of a Hub repository.
    """

    location: str
    tensors: Mapping[str, TensorInfo]
    fetch: Fetch
    config: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None

    def read(self, name: str) -> StoredTensor:
        """Read one tensor of a float format.

        Raises
        ------
        InvalidTable
            If the tensor holds integers or quantised numbers.
        InvalidCheckpoint
            If fewer bytes are there than the header promises.
        """
        info = self.tensors[name]
        if info.dtype not in FLOATS:
            raise InvalidTable(
                f"{info.file}: tensor {name}, shape {list(info.shape)}, is stored as {info.dtype}: "
                "integer and quantised tensors are not analysed. Use the checkpoint in its "
                "original F32, F16 or BF16 format."
            )
        data = self.fetch(info)
        dtype = np.dtype(FLOATS[info.dtype])
        expected = dtype.itemsize * int(np.prod(info.shape, dtype=object))
        if len(data) != expected:
            raise InvalidCheckpoint(
                f"{info.file}: tensor {name}, shape {list(info.shape)} {info.dtype}, needs "
                f"{expected} bytes and has {len(data)}. The file is damaged: download it again."
            )
        raw = np.frombuffer(data, dtype=dtype).reshape(info.shape)
        values: NDArray[np.floating[Any]] = widen_bfloat16(raw) if info.dtype == "BF16" else raw
        return StoredTensor(info, values, hashlib.sha256(data).hexdigest())


def widen_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Turn bfloat16 bit patterns into float32, which holds each of them exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
