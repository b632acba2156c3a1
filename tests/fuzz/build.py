"""Sound files, and the ways to damage them that all classes share."""

from __future__ import annotations

import io
import json
import random
import re
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

    def writestr(self, name: Any, *arguments: Any) -> None:
        """Write a member, of the year 1980."""
        info = zipfile.ZipInfo(name)
        info.compress_type = self.compression
        super().writestr(info, *arguments)


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
WRONG_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, -5, 2**31, 2**63, 10**30, 10**400, 1.5, -0.0, 1e300, 1e-300,
    float("nan"), float("inf"), float("-inf"), "", "7", "true", [], [1], [[]], {}, {"a": 1}, [None],
    "x" * 500, {"": {"": {}}}, [10**18] * 3, 1_000_000_000, 999_999_999_999, "1e5", [0], [-1, 2],
)  # fmt: skip
#: What may stand where a plain file should.
SPECIAL = (
    "fifo",
    "link /dev/zero",
    "folder",
    "sparse 9999999999",
    "absent",
    "link nowhere",
)
#: Counts, lengths and places that no small file has, of 64 bits; numbers as a header writes them.
HUGE = (2**16, 2**31, 2**40, 2**62, 2**63, 2**64 - 1)
_DIGITS = (
    b"0", b"1", b"-1", b"00", b"1e400", b"1.0", b"true", b"'4'", b"NaN", b"2**2", b"4294967296",
    b"9" * 20, b"9" * 5000,
)  # fmt: skip


def table(rng: random.Random, rows: int = 0, width: int = 0) -> NDArray[np.float32]:
    """Draw a small table of plain numbers."""
    shape = rows or rng.choice((2, 3, 8, 16, 17)), width or rng.choice((1, 2, 4, 8))
    return (
        np.random.default_rng(rng.getrandbits(32))
        .standard_normal(shape)
        .astype(np.float32)
    )


def safetensors(tensors: Mapping[str, NDArray[Any]], metadata: Any = None) -> bytes:
    """Write a safetensors file by hand, so that names may be anything."""
    header, data = entries(tensors)
    if metadata is not None:
        header["__metadata__"] = metadata
    return framed(json.dumps(header).encode(), data)


def entries(tensors: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], bytes]:
    """Return the header's entries, and the bytes that they point to."""
    names = {
        "float32": "F32",
        "float64": "F64",
        "float16": "F16",
        "int64": "I64",
        "uint8": "U8",
    }
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
            *3 * (("a number replaced", _other_number(rng, content)),),
            *2 * (("a text replaced", _other_text(rng, content)),),
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


def _other_number(rng: random.Random, content: bytes) -> bytes:
    """Replace what may be a count, length, place or kind by a number that no small file has."""
    digits = [*re.finditer(rb"\d+", content[:4000])]
    if digits and rng.random() < 0.4:
        digit = rng.choice(digits)
        return content[: digit.start()] + rng.choice(_DIGITS) + content[digit.end() :]
    dtype = np.dtype(rng.choice(("<u2", "<u4", "<u4", "<u8", ">u4")))
    if len(content) < dtype.itemsize:
        return content
    read: Any = np.ndarray(
        (len(content) - dtype.itemsize + 1,), dtype, content, strides=(1,)
    )
    places = np.flatnonzero((read > 0) & (read <= len(content)))
    if not places.size:
        return content
    # Numbers of headers come first.
    index = int(places[rng.randrange(rng.choice((1 + places.size // 8, places.size)))])
    number = rng.choice(
        (0, 1, 3, 99, int(read[index]) + 1, int(read[index]) - 1, -1, *HUGE)
    )
    packed = np.array(number % 2 ** (8 * dtype.itemsize), dtype).tobytes()
    return content[:index] + packed + content[index + dtype.itemsize :]


def _other_text(rng: random.Random, content: bytes) -> bytes:
    """Replace a name by a hostile one, mostly of its length, so that all else stays in place."""
    names = [*re.finditer(rb"[!-~]{2,80}", content[:20_000])]
    if not names:
        return content
    name = rng.choice(names)
    text = rng.choice(HOSTILE).encode("utf-8", "surrogatepass")
    if rng.random() < 0.8:
        text = (text * len(name[0]))[: len(name[0])]
    return content[: name.start()] + text + content[name.end() :]


def repacked(
    rng: random.Random, content: bytes, *evil: tuple[str, bytes]
) -> tuple[str, bytes]:
    """Pack an archive's members again, in ways that readers of archives disagree about.

    ``evil`` are members that may come to lie beside the others.
    """
    source = zipfile.ZipFile(io.BytesIO(content))
    members = {name: source.read(name) for name in source.namelist()}
    member = rng.choice(list(members))
    member_content, other_members = (
        members[member],
        [(n, c) for n, c in members.items() if n != member],
    )
    all_of = [*members.items()]
    odd = rng.choice(
        (
            b"",
            member_content[:-4],
            member_content + bytes(4),
            member_content[:1],
            b"big",
            b"-1\n",
            b"9" * 20,
        )
    )
    name = rng.choice(("../", "/", "a/b/", "\\", rng.choice(HOSTILE), "\0")) + member
    offset, change = rng.choice(
        (
            (8, lambda flags: flags | 1),  # encrypted
            (10, lambda _: rng.choice((1, 9, 12, 14, 93, 99))),  # how it is packed
            (16, lambda byte: byte ^ 255),  # its sum
            (
                rng.choice((20, 23, 24, 27)),
                lambda _: rng.choice((0, 10, 128, 255)),
            ),  # its sizes
        )
    )
    clean = rng.choice((name, member)).encode("utf-8", "replace").decode()
    return rng.choice(
        (
            ("deflated", archive(*all_of, packing=8)),
            (
                "one deflated",
                archive(
                    *other_members, (member, member_content, rng.choice((8, 12, 14)))
                ),
            ),
            ("twice", archive(*all_of, (member, rng.randbytes(len(member_content))))),
            (
                "twin",
                archive(*all_of, (member.rpartition(".")[0] or "x", member_content)),
            ),
            ("order", archive(*rng.sample(all_of, len(all_of)))),
            (
                "prefix",
                rng.choice((b"#!/bin/sh\n", bytes(1), bytes(64))) + archive(*all_of),
            ),
            ("missing", archive(*other_members)),
            ("another content", archive(*other_members, (member, odd))),
            ("renamed", archive(*other_members, (clean, member_content))),
            (
                "beside",
                archive(*all_of, (clean, rng.choice((b"x", member_content, content)))),
            ),
            ("evil beside", archive(*all_of, *evil)),
            ("many", archive(*all_of, *((f"b{number}", b"x") for number in range(200)))),
            ("appended", content + rng.randbytes(rng.choice((1, 22, 100)))),
            (
                "bomb",
                archive(*other_members, (member, member_content + bytes(8 * 2**20), 8)),
            ),
            *3 * (("directory", listed(archive(*all_of), offset, change)),),
        )
    )


def spoiled(
    rng: random.Random, files: Mapping[str, bytes], place: str, *, outside: bytes = b""
) -> tuple[str, dict[str, bytes], dict[str, str]]:
    """Damage or mutate a file, take it away, or put something else in its place.

    Return what was done, and the files and what is no plain file then. What lies ``outside`` is
    what a link that leads there would find.
    """
    spoiled_files, damage_kind = (
        dict(files),
        rng.choice(("damaged", "damaged", "mutated", "special", "gone")),
    )
    if damage_kind == "mutated":
        try:
            spoiled_files[place] = dumps(mutated(rng, json.loads(files[place])))
        except ValueError:
            damage_kind = "damaged"
    if damage_kind == "damaged":
        damage_kind, spoiled_files[place] = damage(rng, files[place])
    elif damage_kind in ("special", "gone"):
        del spoiled_files[place]
        spoiled_files["outside"] = outside
    link = "link " + "../" * place.count("/") + "outside"
    return (
        damage_kind,
        spoiled_files,
        {place: rng.choice((*SPECIAL, link))} if damage_kind == "special" else {},
    )


def mutated(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Replace one part of a JSON value by one of a wrong type or size."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.7):
        key = rng.choice(sorted(value))
        copy = dict(value)
        match rng.choice(("value", "value", "value", "drop", "key")):
            case "drop":
                del copy[key]
            case "key":
                copy[rng.choice(HOSTILE)] = copy.pop(key)
            case _:
                copy[key] = mutated(rng, value[key], depth + 1)
        return copy
    if isinstance(value, list) and value and rng.random() < 0.6:
        changed_list = list(value)
        place = rng.randrange(len(value))
        changed_list[place] = mutated(rng, value[place], depth + 1)
        return changed_list
    return rng.choice((*WRONG_VALUES, rng.choice(HOSTILE)))


def dumps(value: Any) -> bytes:
    """Write JSON, NaN, infinities and lone surrogates included."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value).encode("utf-8", "surrogatepass")
    finally:
        sys.set_int_max_str_digits(limit)


def altered(
    rng: random.Random, value: dict[str, Any], times: tuple[int, ...]
) -> dict[str, Any]:
    """Mutate an object several times, and leave it one."""
    for _ in range(rng.choice(times)):
        copy = mutated(rng, value)
        value = copy if isinstance(copy, dict) else {"x": copy}
    return value


def pick(rng: random.Random, *weighted: tuple[int, T]) -> T:
    """Choose by weight."""
    return rng.choices(
        [value for _, value in weighted], [weight for weight, _ in weighted]
    )[0]


def one_of(
    *makers: tuple[int, Callable[[random.Random], Case]],
) -> Callable[[random.Random], Case]:
    """Make a case in one of several ways, chosen by weight."""
    return lambda rng: pick(rng, *makers)(rng)


def extract(
    subject: str,
    files: Mapping[str, bytes],
    tensor: str,
    reference: str = "",
    *,
    expected: Any = "any",
    look: bool = False,
    **options: Any,
) -> Case:
    """Read a tensor of the first file, as its package does, or list what it holds, to ``look``.

    ``reference`` is the reference where it is not that file, and ``options`` says more of the case.
    """
    file = next(iter(files))
    reference = reference or file
    argv = (
        ("inspect", reference)
        if look
        else ("extract", reference, "--tensor", tensor, "-o", "out.npy")
    )
    case_options = {
        "read": None if look else (file, tensor),
        "outputs": ("out.npy",),
        **options,
    }
    return Case(subject, argv, files, expected=expected, **case_options)


def archive(*members: tuple[Any, ...], packing: int = 0) -> bytes:
    """Pack members: name, content, and how that is packed where otherwise than the rest."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), Archive(stream, "w", packing) as stream_archive:
        warnings.simplefilter("ignore")  # of names that are there already
        for member in members:
            stream_archive.writestr(*member)
    return stream.getvalue()


def listed(content: bytes, offset: int, change: Callable[[int], int]) -> bytes:
    """Change a byte of the first entry of an archive's directory."""
    edited = bytearray(content)
    place = edited.find(b"PK\x01\x02") + offset
    edited[place] = change(edited[place])
    return bytes(edited)
