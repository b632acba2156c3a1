"""The safetensors format: a JSON header that gives every tensor's place, then raw bytes.

The header is parsed here rather than by the safetensors package since the same parser serves files
on disk and byte ranges from the Hub, and since the package's NumPy side cannot hold bfloat16. What
the package refuses is refused here too: such a file is damaged, or made to be read in two ways.
"""

from __future__ import annotations

import json
import math
import mmap
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from posprobe.checkpoints.base import FLOATS, Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint

#: How a ZIP archive begins. Its first two bytes are also those of a header of 19,280 bytes.
ZIP = b"PK\x03\x04"
#: The safetensors package refuses longer headers as well.
MAX_HEADER = 100_000_000
#: Sizes are counted in unsigned 64-bit integers, and mappings nested no deeper.
_MOST, _DEPTH = 2**64 - 1, 127
#: Bytes that are copied at a time.
_PIECE = 2**23

_BITS = {
    **{name: 8 * int(code[-1]) for name, code in FLOATS.items()},
    "I64": 64, "U64": 64, "I32": 32, "U32": 32, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8,
    "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


def open_safetensors(path: Path) -> Checkpoint:
    """Open a safetensors file, memory-mapped.

    Raises
    ------
    InvalidCheckpoint
        If its header is damaged or claims what the file cannot hold.
    """
    data = map_file(path)
    tensors = parse_header(lambda start, stop: data[start:stop], len(data), path.name)
    return Checkpoint(str(path), tensors, lambda info: data[info.start : info.stop])


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
            f"{file}: {size} bytes are not a safetensors file, which starts with an 8-byte length. "
            "Download it again."
        )
    begun = bytes(read(0, 8))
    length = int.from_bytes(begun, "little")
    if length > min(size - 8, MAX_HEADER):
        if begun.startswith(ZIP):
            raise InvalidCheckpoint(
                f"{file}: not a safetensors file but begins as a ZIP archive, as PyTorch's "
                "files do. Rename it to what it is: .bin or .pt, .npz or .keras."
            )
        raise InvalidCheckpoint(
            f"{file}: the header claims {length} bytes in a file of {size}. It is truncated or no "
            "safetensors file: download it again."
        )
    header = _json(bytes(read(8, 8 + length)), file)
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


def replace_tensor(
    source: Path, target: Path, name: str, shape: tuple[int, ...], content: bytes
) -> None:
    """Copy a file with one tensor of another shape; every other byte of its data is as it was.

    The file is read in pieces, so that its size does not matter.

    Parameters
    ----------
    source
        A sound file.
    target
        Written over.
    name, shape, content
        Of the tensor, whose format stays.

    Raises
    ------
    OSError
        If a file cannot be read or written.
    """
    with source.open("rb") as old, target.open("wb") as new:
        length = int.from_bytes(old.read(8), "little")
        header = _json(old.read(length), source.name)
        start, stop = header[name]["data_offsets"]
        moved = len(content) - (stop - start)
        for other, entry in header.items():
            if other not in (name, "__metadata__") and entry["data_offsets"][0] >= stop:
                entry["data_offsets"] = [place + moved for place in entry["data_offsets"]]
        header[name] |= {"shape": list(shape), "data_offsets": [start, start + len(content)]}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        new.write(len(text).to_bytes(8, "little") + text)
        _copy(old, new, start)
        new.write(content)
        old.seek(8 + length + stop)
        _copy(old, new, source.stat().st_size - 8 - length - stop)


def _copy(old: BinaryIO, new: BinaryIO, count: int) -> None:
    while count > 0:
        piece = old.read(min(count, _PIECE))
        if not piece:
            raise OSError(f"{count} bytes are missing at its end")
        new.write(piece)
        count -= len(piece)


def _json(content: bytes, file: str) -> dict[str, Any]:
    """Parse a header as strictly as the safetensors package does: plain JSON in UTF-8."""
    # Numbers that Python reads more kindly are rare, and asking about each one takes long.
    odd = b"-0" in content or re.search(rb"[0-9]{300}", content)
    try:
        header = json.loads(
            content.decode(),
            object_pairs_hook=_no_duplicates,
            parse_int=_integer if odd else None,
            parse_float=_finite,
            parse_constant=_finite,
        )
        if _depth(header) > _DEPTH:
            raise ValueError(f"it is nested deeper than {_DEPTH} levels")
        if b"\\u" in content:  # half of a character is none: this raises
            json.dumps(header, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidCheckpoint(
            f"{file}: the safetensors header is not JSON ({str(error)[:200]}). "
            "Download the file again."
        ) from error
    if not isinstance(header, dict):
        raise InvalidCheckpoint(f"{file}: the safetensors header is not a JSON object.")
    metadata = header.get("__metadata__")
    texts = metadata.values() if isinstance(metadata, dict) else (None,)
    if metadata is not None and not all(isinstance(text, str) for text in texts):
        raise InvalidCheckpoint(
            f"{file}: __metadata__ in the safetensors header is not a mapping of texts. "
            "The file is damaged: download it again."
        )
    return header


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"it has {twice[:80]!r} twice")
    return found


def _integer(digits: str) -> int | float:
    """Read a whole number; ``-0`` is none to the package, nor is what no float can hold."""
    number = _finite(digits)
    return number if digits == "-0" else int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"it holds the number {digits[:20]}")
    return number


def _depth(header: object) -> int:
    """Count the levels of nesting."""
    depth, level = 0, [header]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [x for part in level for x in (part.values() if isinstance(part, dict) else part)]
    return depth


def _entry(name: str, entry: object, begin: int, size: int, file: str) -> TensorInfo:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(stop)]}:
            pass
        case _:
            raise InvalidCheckpoint(
                f"{file}: tensor {name!r} has no valid entry in the safetensors header."
            )
    if not all(type(extent) is int and 0 <= extent <= _MOST for extent in shape):
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
    if bits is None:
        raise InvalidCheckpoint(
            f"{file}: tensor {name!r} has the dtype {dtype[:40]!r}, which is unknown. "
            "The file is damaged or of a newer version of the format: download it again."
        )
    if 8 * (stop - start) != _bits_of(shape, bits):
        raise InvalidCheckpoint(
            f"{file}: tensor {name!r}, shape {shape} {dtype}, does not fit its {stop - start} "
            "bytes. The file is damaged: download it again."
        )
    return TensorInfo(name, tuple(shape), dtype, file, begin + start, begin + stop)


def _bits_of(shape: list[int], bits: int) -> int | None:
    """Bits that a tensor takes, None where counting them overflows."""
    for extent in shape:
        bits *= extent
        if bits > 8 * _MOST:
            return None
    return bits


def map_file(path: Path) -> memoryview[int]:
    """Map a file into memory; an empty file gives an empty view."""
    with path.open("rb") as stream:
        if path.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
