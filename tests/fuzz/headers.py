"""Safetensors: headers that lie about lengths, names, types, shapes and places; shards.

The safetensors package reads the same bytes: what it refuses must be refused, and numbers are its.
"""

from __future__ import annotations

import json
import random

import numpy as np

from fuzz import build
from fuzz.case import Case

FILE, TENSOR = "t.safetensors", "wpe.weight"
EXTRACT = ("extract", FILE, "--tensor", TENSOR, "-o", "out.npy")


def make(rng: random.Random) -> Case:
    """Make one file and read a tensor of it."""
    return build.pick(
        rng,
        (2, _sound),
        (4, _damaged),
        (6, _entry),
        (4, _text),
        (2, _layout),
        (2, _shards),
        (1, _names),
        (1, _sparse),
    )(rng)


def case(what: str, content: bytes, *, expected: str = "any") -> Case:
    return Case(
        what,
        EXTRACT,
        {FILE: content},
        read=(FILE, TENSOR),
        outputs=("out.npy",),
        expected=expected,  # type: ignore[arg-type]
    )


def _tensors(rng: random.Random) -> dict[str, np.ndarray]:
    tensors = {TENSOR: build.table(rng)}
    if rng.random() < 0.3:
        tensors[TENSOR] = tensors[TENSOR].astype(rng.choice(("float64", "float16")))
    for number in range(rng.choice((0, 1, 3))):
        tensors[f"h.{number}.w"] = build.table(rng)
    return tensors


def _sound(rng: random.Random) -> Case:
    metadata = rng.choice((None, {"format": "pt"}, {}))
    content = build.safetensors(_tensors(rng), metadata)
    if rng.random() < 0.3:  # the header may be padded with spaces
        header, data = build.entries(_tensors(rng))
        content = build.framed(json.dumps(header).encode() + b" " * rng.randrange(16), data)
    return case("sound", content, expected="accepted")


def _damaged(rng: random.Random) -> Case:
    what, content = build.damage(rng, build.safetensors(_tensors(rng)))
    return case(what, content)


def _entry(rng: random.Random) -> Case:
    """Change one field of one entry."""
    header, data = build.entries(_tensors(rng))
    name = rng.choice(sorted(header))
    field = rng.choice(("dtype", "shape", "data_offsets", "extra", "missing", "metadata", "any"))
    entry = header[name]
    start, stop = entry["data_offsets"]
    if field == "dtype":
        entry["dtype"] = rng.choice(
            (
                "F32 ",
                "f32",
                "F8_E4M3",
                "BF16",
                "F16",
                "F64",
                "I32",
                "U16",
                "BOOL",
                "F4",
                "C64",
                "Q4",
                "",
                "float32",
                None,
                32,
                ["F32"],
                "I64\x00",
                "F32\u0000",
            )
        )
    elif field == "shape":
        entry["shape"] = rng.choice(
            (
                entry["shape"][::-1],
                [*entry["shape"], 1],
                [1, *entry["shape"]],
                [-1, -1],
                [0],
                [2**32, 2**32],
                [2**64],
                [],
                [len(data) // 4],
                [float(entry["shape"][0]), 2.0],
                [True, True],
                ["2", "2"],
                None,
                {"0": 2},
                [[2, 2]],
                [10**30],
                [0, 10**18],
            )
        )
    elif field == "data_offsets":
        entry["data_offsets"] = rng.choice(
            (
                [stop, start],
                [start - 4, stop - 4],
                [start, stop + 4],
                [start + 4, stop + 4],
                [start],
                [start, stop, stop],
                [0, 2**63],
                [0, 2**64],
                [0, 10**30],
                [-1, stop],
                [float(start), float(stop)],
                [start, True],
                ["0", str(stop)],
                None,
                {},
                [0, 0],
            )
        )
    elif field == "extra":
        entry[rng.choice(("note", "dtype ", "offset", ""))] = rng.choice(build.WRONG)
    elif field == "missing":
        del entry[rng.choice(sorted(entry))]
    elif field == "metadata":
        header["__metadata__"] = rng.choice(
            (*build.WRONG, {"a": 1}, {"a": None}, {"a": {"b": "c"}})
        )
    else:
        header[name] = rng.choice(build.WRONG)
    return case(f"{field} of an entry", build.framed(build.dumps(header), data))


def _text(rng: random.Random) -> Case:
    """Write the header's JSON in ways that parsers disagree about."""
    header, data = build.entries(_tensors(rng))
    text = json.dumps(header)
    kind = rng.choice(
        (
            "bom",
            "duplicate field",
            "duplicate tensor",
            "trailing",
            "leading",
            "utf-16",
            "comment",
            "single",
            "nan",
            "deep",
            "list",
            "bytes",
            "length",
            "zeros",
            "float",
            "big",
            "escape",
        )
    )
    raw = text.encode()
    length = None
    if kind == "bom":
        raw = b"\xef\xbb\xbf" + raw
    elif kind == "duplicate field":
        field = rng.choice(('"dtype": "F32"', '"shape": [2, 2]', '"data_offsets": [0, 16]'))
        raw = text.replace('{"dtype"', "{" + field + ', "dtype"', 1).encode()
    elif kind == "duplicate tensor":
        raw = (text[:-1] + ", " + text[1:]).encode()
    elif kind == "trailing":
        raw += rng.choice((b"\x00", b"}", b" {}", b",", b"\n", b"\xff", b"  \t"))
    elif kind == "leading":
        raw = rng.choice((b" ", b"\n", b"\x00", b"[")) + raw
    elif kind == "utf-16":
        raw = text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32")))
    elif kind == "comment":
        raw = b"/* */" + raw
    elif kind == "single":
        raw = text.replace('"', "'").encode()
    elif kind == "nan":
        raw = (text[:-1] + ', "__metadata__": NaN}').encode()
    elif kind == "deep":
        raw = b'{"a":' * rng.choice((200, 100_000))
    elif kind == "list":
        raw = b"[" + raw + b"]"
    elif kind == "bytes":
        raw = raw.replace(b"wpe", rng.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\x00")))
    elif kind == "length":
        length = rng.choice(
            (0, 1, len(raw) - 1, len(raw) + 1, 2**31, 2**63, 2**64 - 1, 100_000_001)
        )
    elif kind == "zeros":
        raw = text.replace("[0,", "[00,").encode()
    elif kind == "float":
        raw = text.replace("[0,", rng.choice(("[0.0,", "[-0,", "[0e0,", "[1E-400,"))).encode()
    elif kind == "big":
        raw = text.replace("[0,", "[" + "9" * rng.choice((20, 5000)) + ",").encode()
    else:
        raw = text.replace("wpe", rng.choice(("\\u0077pe", "\\ud800", "\\x77", "\\u0000"))).encode()
    return case(f"header text: {kind}", build.framed(raw, data, length))


def _layout(rng: random.Random) -> Case:
    """Put tensors in other orders, over each other, with holes and with trailing bytes."""
    header, data = build.entries(
        {TENSOR: build.table(rng), "b": build.table(rng), "c": build.table(rng)}
    )
    kind = rng.choice(("order", "overlap", "hole", "tail", "empty", "same"))
    if kind == "order":
        header = dict(sorted(header.items(), key=lambda _: rng.random()))
    elif kind == "overlap":
        header["b"]["data_offsets"] = header[TENSOR]["data_offsets"]
        header["b"]["shape"] = header[TENSOR]["shape"]
    elif kind == "hole":
        for name in ("b", "c"):
            header[name]["data_offsets"] = [part + 8 for part in header[name]["data_offsets"]]
        data += bytes(8)
    elif kind == "tail":
        data += rng.randbytes(rng.choice((1, 4, 100)))
    elif kind == "empty":
        header["d"] = {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]}
    else:
        header["d"] = dict(header["c"])
    return case(f"layout: {kind}", build.framed(build.dumps(header), data))


def _shards(rng: random.Random) -> Case:
    """Let an index disagree with its shards."""
    right, wrong = build.table(rng, 8, 4), build.table(rng, 8, 4)
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    rng.shuffle(names)
    first, second = names
    weight_map: dict[str, object] = {TENSOR: first, "b": second}
    tensors = {first: {TENSOR: right}, second: {"b": wrong}}
    kind = rng.choice(("sound", "both", "other", "missing", "outside", "type", "case", "damaged"))
    special = {}
    if kind == "both":
        tensors[second][TENSOR] = wrong
    elif kind == "other":
        tensors = {first: {"a": right}, second: {TENSOR: wrong, "b": wrong}}
    elif kind == "missing":
        special[second] = rng.choice(("absent", "folder", "fifo", "link /dev/zero"))
    elif kind == "outside":
        weight_map["b"] = rng.choice(
            (
                "../x.safetensors",
                "/etc/passwd",
                "a/b.safetensors",
                ".safetensors",
                "x\x00.safetensors",
                "model.safetensors.index.json",
                "~/x.safetensors",
                "\u202e.safetensors",
                "n" * 300 + ".safetensors",
            )
        )
    elif kind == "type":
        weight_map[rng.choice((TENSOR, "b"))] = rng.choice(build.WRONG)
    elif kind == "case":
        weight_map["b"] = second.upper()
    index: object = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    if kind == "damaged":
        index = build.mutated(rng, index)
    files = {f"m/{name}": build.safetensors(stored) for name, stored in tensors.items()}
    files["m/model.safetensors.index.json"] = build.dumps(index)
    whole = kind in ("sound", "both")
    return Case(
        f"shards: {kind}",
        ("extract", "m", "--tensor", TENSOR, "-o", "out.npy"),
        files,
        {f"m/{name}": how for name, how in special.items()},
        read=(f"m/{first}", TENSOR) if whole else None,
        outputs=("out.npy",),
        expected="accepted" if kind == "sound" else "any",
    )


def _names(rng: random.Random) -> Case:
    """Give tensors names that searches by pattern find hard, or numbers too long to count by."""
    part = rng.choice(
        ("emb_pos", "pos_emb", ".layers.0", "_pos", "layer.1.", "emb_pos.", "aB", "/pe")
    )
    name = part * rng.choice((50, 1000, 4000)) + rng.choice(("", "!", ".weight"))
    if rng.random() < 0.4:
        name = f"h.{'9' * rng.choice((20, 5000))}.attn.bias.{rng.choice(('weight', 'wpe'))}"
    tensors = {name: build.table(rng), "relative_attention_bias.weight": build.table(rng, 32, 4)}
    return Case(
        "names of tensors", (rng.choice(("inspect",)), FILE), {FILE: build.safetensors(tensors)}
    )


def _sparse(rng: random.Random) -> Case:
    """Take a few rows of a table that is larger than memory."""
    rows, width = rng.choice(((2**20, 1024), (2**16, 2**14), (2**28, 4))), None
    size = 4 * rows[0] * rows[1]
    header = {TENSOR: {"dtype": "F32", "shape": list(rows), "data_offsets": [0, size]}}
    head = build.framed(json.dumps(header).encode(), b"")
    argv = rng.choice(
        (
            (*EXTRACT, "--rows", "0:16"),
            ("inspect", FILE),
            ("extract", FILE, "--rows", "4:9", "-o", "out.npy"),
        )
    )
    return Case(
        "a sparse file of 4 GB",
        argv,
        {FILE: head},
        {FILE: f"sparse {len(head) + size}"},
        outputs=("out.npy",),
        expected="any" if width else "accepted",
    )


WARM: tuple[tuple[str, ...], ...] = ()
