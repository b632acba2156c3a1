"""Flax's ``.msgpack``: nested names, and arrays that are kept as they are in memory.

MessagePack is a dozen kinds of values, each with its length before it. They are walked here, since
readers of the format unpack a whole file: of an array only shape and format are looked at, and the
numbers are mapped. Nothing of it can name code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posprobe.checkpoints.base import FLOATS, Checkpoint, TensorInfo
from posprobe.checkpoints.files import Content, Files, View
from posprobe.errors import InvalidCheckpoint

#: Levels of names, values, and characters of a name that a file of weights has at most.
DEPTH, MOST, LONGEST = 64, 2_000_000, 1000
#: Flax's number for an array among MessagePack's extensions.
_ARRAY = 1
#: The key of an array that Flax cut into pieces, which it does from 1 GiB on.
_CHUNKED = "__msgpack_chunked_array__"
#: What training keeps beside the weights.
TRAINING = re.compile(r"^(?:opt_state|optimizer/state|state/param_states)/")
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


@dataclass(frozen=True)
class _Array:
    """An array's shape, Flax's name of its format, and where its bytes lie."""

    shape: tuple[int, ...]
    dtype: str
    start: int
    stop: int


def read_flax(files: Files, file: str) -> Checkpoint:
    """Read the names in what ``flax.serialization`` wrote, joined by slashes.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds no arrays.
    """
    data = View.of(files, file)
    try:
        found = dict(_walk(data, Path(file).stem))
        pieces = _joined(found)
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidCheckpoint(
            f"{file}: not a valid Flax file ({error}). Download it again."
        ) from error
    if not pieces:
        raise InvalidCheckpoint(f"{file}: contains no arrays. Pass the model's weights.")
    tensors = {
        name: TensorInfo(
            name, shape, DTYPES.get(dtype, dtype), file,
            *((parts[0].start, parts[0].stop) if len(parts) == 1 else ()),
        )
        for name, (shape, dtype, parts) in pieces.items()
    }  # fmt: skip

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            return files.exactly(file, info.start, info.stop)
        parts = pieces[info.name][2]
        return b"".join(files.exactly(file, part.start, part.stop) for part in parts)

    return Checkpoint(file, tensors, fetch)


def _walk(data: Content, root: str) -> Iterator[tuple[str, _Array | int | None]]:
    """Yield every array and number with the path of its names.

    Raises
    ------
    ValueError, IndexError
        If something is not what its length says, or there is more of it than in weights.
    """
    at, seen = 0, 0
    # Names so far, values to come, whether each has a name, the number of the next.
    open_ones: list[tuple[str, int, bool, int]] = [("", 1, False, -1)]
    while open_ones:
        above, left, named, number = open_ones.pop()
        if not left:
            continue
        seen += 1
        if len(open_ones) > DEPTH or seen > MOST:
            raise ValueError(f"more than {DEPTH} levels or {MOST} values")
        open_ones.append((above, left - 1, named, number + 1))
        name = str(number)
        if named:
            kind, size, at = _head(data, at)
            if kind == "int":
                name = str(size)
            elif kind == "text" and size <= LONGEST:
                name = bytes(_piece(data, at, size)).decode()
                at += size
            else:
                raise ValueError(f"a name of {size} bytes" if kind == "text" else "a name is none")
        place = f"{above}/{name}" if above else name if number >= 0 or named else ""
        if len(place) > LONGEST:
            raise ValueError(f"a name of more than {LONGEST} characters")
        kind, size, at = _head(data, at)
        if kind in ("map", "list"):
            if size > len(data) - at:
                raise ValueError(f"{size} values in {len(data) - at} bytes")
            open_ones.append((place, size, kind == "map", 0))
        elif kind == "int":
            yield place, size
        elif kind != "nothing":
            stop = _end(data, at, size)
            if kind == f"extension {_ARRAY}":
                yield place or root, _array(data, at, stop)
            at = stop
        elif place.endswith(_CHUNKED):
            yield place, None
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow its end")


def _array(data: Content, at: int, stop: int) -> _Array:
    """Read an array's shape and format: a list of the shape, the format's name, and the bytes."""
    kind, count, at = _head(data, at)
    kinds, rank, at = _head(data, at)
    if (kind, count, kinds) != ("list", 3, "list") or rank > 64:
        raise ValueError("an array has no shape")
    shape = []
    for _ in range(rank):
        kind, size, at = _head(data, at)
        if kind != "int" or size < 0:
            raise ValueError("an array has no shape")
        shape.append(size)
    kind, size, at = _head(data, at)
    if kind != "text" or size > 40:
        raise ValueError("an array has no format")
    dtype = bytes(_piece(data, at, size)).decode("ascii")
    kind, size, at = _head(data, at + size)
    known = DTYPES.get(dtype, dtype)
    if kind != "text" or at + size != stop:
        raise ValueError(f"an array of shape {shape} has no bytes")
    if known in FLOATS and size != math.prod(shape) * int(FLOATS[known][-1]):
        raise ValueError(f"{size} bytes for an array of shape {shape}, {dtype}")
    return _Array(tuple(shape), dtype, at, stop)


def _head(data: Content, at: int) -> tuple[str, int, int]:
    """Read a value's kind, its number or its length, and where what follows begins."""
    code = data[at]
    at += 1
    if code < 0x80 or code >= 0xE0:
        return "int", code if code < 0x80 else code - 256, at
    if code < 0xC0:
        if code < 0x90:
            return "map", code & 15, at
        return ("list", code & 15, at) if code < 0xA0 else ("text", code & 31, at)
    if 0xD4 <= code <= 0xD8:
        return f"extension {_piece(data, at, 1)[0]}", 1 << code - 0xD4, at + 1
    if code not in _HEADS:
        raise ValueError(f"byte {code} begins no value")
    kind, width = _HEADS[code]
    number = int.from_bytes(_piece(data, at, width), "big", signed=kind == "signed")
    at += width
    if kind == "extension":
        return f"extension {_piece(data, at, 1)[0]}", number, at + 1
    if kind == "float":
        return "nothing", 0, at
    return ("int" if kind == "signed" else kind), number, at


#: The kind that a first byte stands for, and how many bytes of a number or length follow.
_HEADS = {
    0xC0: ("nothing", 0), 0xC2: ("nothing", 0), 0xC3: ("nothing", 0),
    0xC4: ("text", 1), 0xC5: ("text", 2), 0xC6: ("text", 4),
    0xC7: ("extension", 1), 0xC8: ("extension", 2), 0xC9: ("extension", 4),
    0xCA: ("float", 4), 0xCB: ("float", 8),
    0xCC: ("int", 1), 0xCD: ("int", 2), 0xCE: ("int", 4), 0xCF: ("int", 8),
    0xD0: ("signed", 1), 0xD1: ("signed", 2), 0xD2: ("signed", 4), 0xD3: ("signed", 8),
    0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip


def _piece(data: Content, at: int, size: int) -> bytes | memoryview[int]:
    return data[at : _end(data, at, size)]


def _end(data: Content, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError(f"{size} bytes are announced and {len(data) - at} are left")
    return at + size


def _joined(
    found: dict[str, _Array | int | None],
) -> dict[str, tuple[tuple[int, ...], str, tuple[_Array, ...]]]:
    """Put the pieces of arrays together that Flax cut, and leave out what is not a weight."""
    joined: dict[str, tuple[tuple[int, ...], str, tuple[_Array, ...]]] = {}
    for mark in [name for name in found if name.endswith(f"/{_CHUNKED}")]:
        name = mark.removesuffix(f"/{_CHUNKED}")
        shape = tuple(int(size) for size in _numbered(found, f"{name}/shape"))
        parts = [part for part in _numbered(found, f"{name}/chunks") if isinstance(part, _Array)]
        count = sum(math.prod(part.shape) for part in parts)
        if not parts or count != math.prod(shape) or len({part.dtype for part in parts}) > 1:
            raise ValueError(f"{name!r}: pieces of {count} numbers for shape {list(shape)}")
        joined[name] = shape, parts[0].dtype, tuple(parts)
    cut = set(joined)
    for name, item in found.items():
        above = (name[: place.start()] for place in re.finditer("(?=/chunks/)", name))
        if isinstance(item, _Array) and not any(part in cut for part in above):
            joined[name] = item.shape, item.dtype, (item,)
    return {name: item for name, item in joined.items() if not TRAINING.match(name)}


def _numbered(found: dict[str, Any], place: str) -> list[Any]:
    """List what stands under a place as 0, 1, 2 …, as far as it goes."""
    items: list[Any] = []
    while f"{place}/{len(items)}" in found:
        items.append(found[f"{place}/{len(items)}"])
    return items
