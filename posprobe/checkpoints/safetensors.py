"""The safetensors format: a JSON header that gives every tensor's place, then raw bytes.

The header is parsed here rather than by the safetensors package since the same parser serves files
on disk and byte ranges from the Hub, and since the package's NumPy side cannot hold bfloat16.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable
from pathlib import Path

from posprobe.checkpoints.base import FLOATS, TensorInfo
from posprobe.errors import InvalidCheckpoint

#: The safetensors package refuses longer headers as well.
MAX_HEADER = 100_000_000

_BITS = {
    **{name: 8 * int(code[-1]) for name, code in FLOATS.items()},
    "I64": 64, "U64": 64, "I32": 32, "U32": 32, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8,
    "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


def parse_header(
    read: Callable[[int, int], bytes | memoryview[int]], size: int, file: str
) -> dict[str, TensorInfo]:
    """Parse the header of a safetensors file.

    Parameters
    ----------
    read
        ``read(start, stop)`` returns those bytes of the file.
    size
        Length of the file in bytes.
    file
        Its name, for messages and for the entries.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """
    if size < 8:
        raise InvalidCheckpoint(
            f"{file}: {size} bytes are no safetensors file, which starts with an 8-byte length. "
            "Download it again."
        )
    length = int.from_bytes(read(0, 8), "little")
    if length > min(size - 8, MAX_HEADER):
        raise InvalidCheckpoint(
            f"{file}: the header claims {length} bytes in a file of {size}. It is truncated or no "
            "safetensors file: download it again."
        )
    try:
        header = json.loads(bytes(read(8, 8 + length)))
    except (ValueError, RecursionError) as error:
        raise InvalidCheckpoint(
            f"{file}: the safetensors header is no JSON ({error}). Download the file again."
        ) from error
    if not isinstance(header, dict):
        raise InvalidCheckpoint(f"{file}: the safetensors header is no JSON object.")
    begin = end = 8 + length
    tensors = {
        name: _entry(name, entry, begin, size, file)
        for name, entry in header.items()
        if name != "__metadata__"
    }
    for info in sorted(tensors.values(), key=lambda info: (info.start, info.stop)):
        if info.start != end:
            raise InvalidCheckpoint(
                f"{file}: tensor {info.name!r} starts at byte {info.start} and the one before it "
                f"ends at {end}. The file is damaged: download it again."
            )
        end = info.stop
    if end != size:
        raise InvalidCheckpoint(
            f"{file}: its tensors end at byte {end} of a file of {size}. "
            "The file is damaged: download it again."
        )
    return tensors


def _entry(name: str, entry: object, begin: int, size: int, file: str) -> TensorInfo:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(stop)]}:
            pass
        case _:
            raise InvalidCheckpoint(
                f"{file}: tensor {name!r} has no valid entry in the safetensors header."
            )
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise InvalidCheckpoint(f"{file}: tensor {name!r} has the impossible shape {shape}.")
    if type(start) is not int or type(stop) is not int or not 0 <= start <= stop:
        raise InvalidCheckpoint(
            f"{file}: tensor {name!r} has the impossible place {[start, stop]} in the file."
        )
    if stop > size - begin:
        raise InvalidCheckpoint(
            f"{file}: tensor {name!r} ends at byte {begin + stop} of a file of {size}. "
            "The file is truncated: download it again."
        )
    bits = _BITS.get(dtype)
    if bits is not None and stop - start != math.prod(shape) * bits // 8:
        raise InvalidCheckpoint(
            f"{file}: tensor {name!r}, shape {shape} {dtype}, does not fit its {stop - start} "
            "bytes. The file is damaged: download it again."
        )
    return TensorInfo(name, tuple(shape), dtype, file, begin + start, begin + stop)


def map_file(path: Path) -> memoryview[int]:
    """Map a file into memory; an empty file gives an empty view."""
    with path.open("rb") as stream:
        if path.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
