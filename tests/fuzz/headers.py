"""Safetensors: headers that lie about lengths, names, types, shapes and places; shards.

The safetensors package reads the same bytes: what it refuses must be refused, and numbers are its.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case

FILE = "t.safetensors"
TENSOR = "wpe.weight"


def _case(subject: str, content: bytes, expected: str = "any", **options: Any) -> Case:
    return build.extract(subject, {FILE: content}, TENSOR, expected=expected, **options)


def _tensors(rng: random.Random) -> dict[str, np.ndarray]:
    tensors = {TENSOR: build.table(rng).astype(rng.choice(("f4", "f4", "f8", "f2")))}
    for number in range(rng.choice((0, 1, 3))):
        tensors[f"h.{number}.w"] = build.table(rng)
    return tensors


def _sound(rng: random.Random) -> Case:
    header, data = build.entries(_tensors(rng))
    header |= rng.choice(({}, {"__metadata__": {}}, {"__metadata__": {"format": "pt"}}))
    # The header may be padded with spaces.
    content = build.framed(json.dumps(header).encode() + b" " * rng.randrange(16), data)
    return _case("sound", content, "accepted")


def _damaged(rng: random.Random) -> Case:
    return _case(*build.damage(rng, build.safetensors(_tensors(rng))))


def _entry(rng: random.Random) -> Case:
    """Change one field of one entry, to what may be another's or to nonsense."""
    header, data = build.entries(_tensors(rng))
    entry = header[rng.choice(sorted(header))]
    start, stop = entry["data_offsets"]
    rows, width = entry["shape"]
    odd: dict[str, tuple[Any, ...]] = {
        "dtype": ("F32 ", "f32", "F8_E4M3", "BF16", "F16", "F64", "I32", "BOOL", "F4", "F32\0"),
        "shape": ([width, rows], [rows, width, 1], [-1, -1], [0], [2**32, 2**32], [2**64], [],
                  [len(data) // 4], [float(rows), 2.0], [True, True], [0, 10**18]),
        "data_offsets": ([stop, start], [start - 4, stop - 4], [start, stop + 4], [start], [0, 0],
                         [start + 4, stop + 4], [start, stop, stop], [0, 2**64], [start, True]),
        "extra": build.WRONG_VALUES,
    }  # fmt: skip
    field = rng.choice((*odd, "any", "any"))
    if field in odd:
        entry[field] = rng.choice(odd[field])
    else:
        header = build.altered(rng, {"__metadata__": {"a": "b"}, **header}, (1,))
    return _case(f"{field} of an entry", build.framed(build.dumps(header), data))


def _text(rng: random.Random) -> Case:
    """Write the header's JSON in ways that parsers disagree about."""
    header, data = build.entries(_tensors(rng))
    text = json.dumps(header)
    raw = text.encode()
    repeated_key = rng.choice(
        ('"dtype": "F32"', '"shape": [2, 2]', '"data_offsets": [0, 16]')
    )
    number = rng.choice(("00", "0.0", "-0", "0e0", "1E-400"))
    letter = rng.choice(("\\u0077", "\\ud800", "\\x77", "\\u0000"))
    byte = rng.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\0"))
    header_text = rng.choice(
        (
            rng.choice((b"\xef\xbb\xbf", b" ", b"\n", b"\0", b"[", b"/* */")) + raw,
            raw + rng.choice((b"\0", b"}", b" {}", b",", b"\n", b"\xff", b"  \t")),
            text.replace('{"dtype"', f'{{{repeated_key}, "dtype"', 1).encode(),
            f"{text[:-1]}, {text[1:]}".encode(),
            text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32"))),
            (text[:-1] + ', "__metadata__": NaN}').encode(),
            b'{"a":' * rng.choice((200, 100_000)),
            raw.replace(b"wpe", byte),
            text.replace("[0,", f"[{number},").encode(),
            text.replace("w", letter).encode(),
        )
    )
    return _case("header text", build.framed(header_text, data))


def _layout(rng: random.Random) -> Case:
    """Put tensors in other orders, over each other, with holes and with trailing bytes."""
    header, data = build.entries({name: build.table(rng) for name in (TENSOR, "b", "c")})
    kind = rng.choice(("order", "overlap", "hole", "tail", "empty"))
    match kind:
        case "order":
            header = dict(sorted(header.items(), key=lambda _: rng.random()))
        case "overlap":
            header[rng.choice("bd")] = dict(header[rng.choice((TENSOR, "c"))])
        case "hole":
            for name in ("b", "c"):
                header[name]["data_offsets"] = [
                    offset + 8 for offset in header[name]["data_offsets"]
                ]
            data += bytes(8)
        case "tail":
            data += rng.randbytes(rng.choice((1, 4, 100)))
        case _:
            header["d"] = {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]}
    return _case(f"layout: {kind}", build.framed(build.dumps(header), data))


def _shards(rng: random.Random) -> Case:
    """Let an index disagree with its shards."""
    right_rows, wrong_rows = build.table(rng, 8, 4), build.table(rng, 8, 4)
    first, second = rng.sample([f"model-0000{n}-of-00002.safetensors" for n in (1, 2)], 2)
    index = "m/model.safetensors.index.json"
    tensors = {first: {TENSOR: right_rows}, second: {"b": wrong_rows}}
    weight_map: dict[str, object] = {TENSOR: first, "b": second}
    kind = rng.choice(("sound", "both", "other", "outside", "spoiled", "spoiled"))
    if kind == "both":
        tensors[second][TENSOR] = wrong_rows
    elif kind == "other":
        tensors = {
            first: {"a": right_rows},
            second: {TENSOR: wrong_rows, "b": wrong_rows},
        }
    elif kind == "outside":
        weight_map["b"] = rng.choice(
            ("../x.safetensors", "/etc/passwd", "a/b.safetensors", ".safetensors",
             "x\0.safetensors", "model.safetensors.index.json", "~/x.safetensors",
             "\u202e.safetensors", "n" * 300 + ".safetensors", second.upper())
        )  # fmt: skip
    files = {f"m/{name}": build.safetensors(stored) for name, stored in tensors.items()}
    files[index] = build.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    special: dict[str, str] = {}
    if kind == "spoiled":
        kind, files, special = build.spoiled(
            rng, files, rng.choice((index, f"m/{second}"))
        )
    return build.extract(
        f"shards: {kind}", files, TENSOR, "m", special=special,
        read=(f"m/{first}", TENSOR) if kind in ("sound", "both") else None,
        expected="accepted" if kind == "sound" else "any",
    )  # fmt: skip


def _names(rng: random.Random) -> Case:
    """Give tensors names that searches by pattern find hard, or numbers too long to count by."""
    part = rng.choice(
        ("emb_pos", "pos_emb", ".layers.0", "_pos", "layer.1.", "aB", "/pe")
    )
    name = part * rng.choice((50, 1000, 4000)) + rng.choice(("", "!", ".weight"))
    if rng.random() < 0.4:
        name = (
            f"h.{'9' * rng.choice((20, 5000))}.attn.bias.{rng.choice(('weight', 'wpe'))}"
        )
    tensors = {
        name: build.table(rng),
        "relative_attention_bias.weight": build.table(rng, 32, 4),
    }
    return _case("names of tensors", build.safetensors(tensors), look=True)


def _sparse(rng: random.Random) -> Case:
    """Take a few rows of a table that is larger than memory."""
    rows, width = rng.choice(((2**20, 1024), (2**16, 2**14), (2**28, 4)))
    entry = {
        "dtype": "F32",
        "shape": [rows, width],
        "data_offsets": [0, 4 * rows * width],
    }
    head = build.framed(json.dumps({TENSOR: entry}).encode(), b"")
    arguments = rng.choice((("--tensor", TENSOR, "--rows", "0:16"), ("--rows", "4:9")))
    argv = rng.choice((("inspect", FILE), ("extract", FILE, *arguments, "-o", "out.npy")))
    return Case(
        "a sparse file of 4 GB", argv, {FILE: head},
        {FILE: f"sparse {len(head) + 4 * rows * width}"}, outputs=("out.npy",), expected="accepted",
    )  # fmt: skip


make = build.one_of(
    (2, _sound), (4, _damaged), (6, _entry), (4, _text), (2, _layout), (2, _shards), (1, _names),
    (1, _sparse),
)  # fmt: skip
