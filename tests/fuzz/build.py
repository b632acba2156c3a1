"""Sound files, and the ways to damage them that all classes share."""

from __future__ import annotations

import io
import json
import random
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fuzz.case import Case

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
    "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b[31mred", "a\rb", "\x08\x08\x08", "\x9b31m",
    "\u202ecod.py", "\u2066x\u2069", "\u200f", "a\nposprobe: all is well", "\u2028", "\x00",
    "\x7f", "\x85", "<script>FOREIGN</script>", "<h1>FOREIGN</h1>",
    '"><img src=x onerror=alert(1)>', "{{7*7}}", "x" * 3000, "\ud800", "\udcff", "\ufeff",
    "e\u0301" * 50, "😀", "%s%n", "$(touch canary)", "../../x", "a/b", "&#27;[2J", "\U000e0041",
    "\u061c", "-->", "]]>", "\\u001b[2J",
)  # fmt: skip
#: JSON values of wrong types and sizes; some of them `json` alone would not write.
WRONG: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, -5, 2**31, 2**63, 10**30, 10**400, 1.5, -0.0, 1e300, 1e-300,
    float("nan"), float("inf"), float("-inf"), "", "7", "true", [], [1], [[]], {}, {"a": 1}, [None],
    "x" * 500, {"": {"": {}}}, [10**18] * 3, 1_000_000_000, 999_999_999_999, "1e5", [0], [-1, 2],
)  # fmt: skip
#: What may stand where a plain file should.
SPECIAL = ("fifo", "link /dev/zero", "folder", "sparse 9999999999", "absent", "link nowhere")
#: Counts, lengths and places that no small file has, of 64 bits.
HUGE = (2**16, 2**31, 2**40, 2**62, 2**63, 2**64 - 1)


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
    place = rng.randrange(len(content) or 1)
    end, half = place + rng.choice((1, 4, 64)), len(content) // 2
    flipped, edge = bytearray(content), bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 4, 32)) if content else 0):
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    edge[place % 64 : place % 64 + 1] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80"))
    return rng.choice(
        (
            ("bits flipped", bytes(flipped)),
            ("cut short", content[:place]),
            ("bytes inserted", content[:place] + rng.randbytes(8) + content[place:]),
            ("zeros", content[:place] + bytes(len(content[place:end])) + content[end:]),
            ("twice", content + content),
            ("halves swapped", content[half:] + content[:half]),
            ("bytes appended", content + rng.randbytes(rng.choice((1, 7, 512)))),
            ("empty", b""),
            ("a byte near the start set", bytes(edge)),
        )
    )


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
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value).encode("utf-8", "surrogatepass")
    finally:
        sys.set_int_max_str_digits(limit)


def altered(rng: random.Random, value: dict[str, Any], times: tuple[int, ...]) -> dict[str, Any]:
    """Mutate an object several times, and leave it one."""
    for _ in range(rng.choice(times)):
        changed = mutated(rng, value)
        value = changed if isinstance(changed, dict) else {"x": changed}
    return value


def pick(rng: random.Random, *weighted: tuple[int, T]) -> T:
    """Choose by weight."""
    return rng.choices([value for _, value in weighted], [weight for weight, _ in weighted])[0]


def one_of(*makers: tuple[int, Callable[[random.Random], Case]]) -> Callable[[random.Random], Case]:
    """Make a case in one of several ways, chosen by weight."""
    return lambda rng: pick(rng, *makers)(rng)


def extract(
    what: str,
    files: Mapping[str, bytes],
    tensor: str,
    of: str = "",
    *,
    expected: Any = "any",
    look: bool = False,
    **more: Any,
) -> Case:
    """Read a tensor of the first file, as its package does, or list what it holds, to ``look``.

    ``of`` is the reference where it is not that file, and ``more`` says more of the case.
    """
    file = next(iter(files))
    of = of or file
    argv = ("inspect", of) if look else ("extract", of, "--tensor", tensor, "-o", "out.npy")
    given = {"read": None if look else (file, tensor), "outputs": ("out.npy",), **more}
    return Case(what, argv, files, expected=expected, **given)


def archive(*members: tuple[Any, ...], packing: int = 0) -> bytes:
    """Pack members: name, content, and how that is packed where otherwise than the rest."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), Archive(stream, "w", packing) as made:
        warnings.simplefilter("ignore")  # of names that are there already
        for member in members:
            made.writestr(*member)
    return stream.getvalue()


def listed(content: bytes, at: int, change: Callable[[int], int]) -> bytes:
    """Change a byte of the first entry of an archive's directory."""
    made = bytearray(content)
    place = made.find(b"PK\x01\x02") + at
    made[place] = change(made[place])
    return bytes(made)
