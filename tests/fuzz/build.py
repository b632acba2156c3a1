"""Sound files, and the ways to damage them that all classes share."""

from __future__ import annotations

import json
import random
import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Archive(zipfile.ZipFile):
    """An archive without the time of its making, so that a seed makes it again to the byte."""

    def writestr(self, name: Any, *given: Any) -> None:
        """Write a member, of the year 1980."""
        info = zipfile.ZipInfo(name)
        info.compress_type = self.compression
        super().writestr(info, *given)


#: Text that wants to be more than text on a terminal or page.
HOSTILE = (
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b[31mred",
    "a\rb",
    "\x08\x08\x08",
    "\x9b31m",
    "\u202ecod.py",
    "\u2066x\u2069",
    "\u200f",
    "a\nposprobe: all is well",
    "\u2028",
    "\x00",
    "\x7f",
    "\x85",
    "<script>FOREIGN</script>",
    "<h1>FOREIGN</h1>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "x" * 3000,
    "\ud800",
    "\udcff",
    "\ufeff",
    "e\u0301" * 50,
    "😀",
    "%s%n",
    "$(touch canary)",
    "../../x",
    "a/b",
    "&#27;[2J",
    "\U000e0041",
    "\u061c",
    "-->",
    "]]>",
    "\\u001b[2J",
)

#: JSON values of wrong types and sizes; the last are written by hand, as `json` would not.
WRONG: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    -5,
    2**31,
    2**63,
    10**30,
    10**400,
    1.5,
    -0.0,
    1e300,
    1e-300,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "7",
    "true",
    [],
    [1],
    [[]],
    {},
    {"a": 1},
    [None],
    "x" * 500,
    {"": {"": {}}},
    [10**18] * 3,
    1_000_000_000,
    999_999_999_999,
    "1e5",
    [0],
    [-1, 2],
)


def table(rng: random.Random, rows: int = 0, width: int = 0) -> NDArray[np.float32]:
    """Draw a small table of plain numbers."""
    shape = rows or rng.choice((2, 3, 8, 16, 17)), width or rng.choice((1, 2, 4, 8))
    return np.random.default_rng(rng.getrandbits(32)).standard_normal(shape).astype(np.float32)


def safetensors(tensors: Mapping[str, NDArray[Any]], metadata: Any = None) -> bytes:
    """Write a safetensors file by hand, so that names may be anything."""
    header, data = entries(tensors)
    if metadata is not None:
        header["__metadata__"] = metadata
    return framed(json.dumps(header).encode(), data)


def entries(tensors: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], bytes]:
    """Return the header's entries, and the bytes that they point to."""
    names = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "uint8": "U8"}
    header: dict[str, Any] = {}
    data = b""
    for name, values in tensors.items():
        content = np.ascontiguousarray(values).tobytes()
        header[name] = {
            "dtype": names[str(values.dtype)],
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    return header, data


def framed(header: bytes, data: bytes, length: int | None = None) -> bytes:
    """Put a header before data, with its length or another one."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def damage(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    """Damage bytes in one of the ways that disks, networks and people do."""
    made = bytearray(content)
    place = rng.randrange(len(made)) if made else 0
    match rng.choice(("flip", "cut", "insert", "zero", "double", "swap", "grow", "empty", "edge")):
        case "flip":
            for _ in range(rng.choice((1, 1, 1, 4, 32))):
                made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
            return "bits flipped", bytes(made)
        case "cut":
            return "cut short", bytes(made[:place])
        case "insert":
            return "bytes inserted", bytes(
                made[:place] + rng.randbytes(rng.choice((1, 8))) + made[place:]
            )
        case "zero":
            end = min(len(made), place + rng.choice((1, 4, 64)))
            made[place:end] = bytes(end - place)
            return "zeros", bytes(made)
        case "double":
            return "twice", bytes(made + made)
        case "swap":
            half = len(made) // 2
            return "halves swapped", bytes(made[half:] + made[:half])
        case "grow":
            return "bytes appended", bytes(made) + rng.randbytes(rng.choice((1, 7, 512)))
        case "empty":
            return "empty", b""
        case _:
            made[place % 64] = rng.choice((0, 255, 127, 128))
            return "a byte near the start set", bytes(made)


def mutated(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Replace one part of a JSON value by one of a wrong type or size."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.7):
        key = rng.choice(sorted(value))
        changed = dict(value)
        match rng.choice(("value", "value", "value", "drop", "key")):
            case "drop":
                del changed[key]
            case "key":
                changed[rng.choice(HOSTILE)] = changed.pop(key)
            case _:
                changed[key] = mutated(rng, value[key], depth + 1)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.6:
        changed_list = list(value)
        place = rng.randrange(len(value))
        changed_list[place] = mutated(rng, value[place], depth + 1)
        return changed_list
    return rng.choice((*WRONG, rng.choice(HOSTILE)))


def dumps(value: Any) -> bytes:
    """Write JSON, NaN, infinities and lone surrogates included."""
    import sys

    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value).encode("utf-8", "surrogatepass")
    finally:
        sys.set_int_max_str_digits(limit)


def pick(rng: random.Random, *weighted: tuple[int, T]) -> T:
    """Choose by weight."""
    weights: Sequence[int] = [weight for weight, _ in weighted]
    return rng.choices([value for _, value in weighted], weights)[0]
