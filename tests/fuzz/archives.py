"""PyTorch archives, zip and legacy: pickles that would run, members that lie, odd tensors.

PyTorch reads the same bytes with ``weights_only=True``, unmapped: what it refuses must be refused,
and numbers are its.
"""

from __future__ import annotations

import io
import pickle
import random
import re
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fuzz import build
from fuzz.arrays import Evil
from fuzz.case import Case

TENSOR = "wpe.weight"


def make(rng: random.Random) -> Case:
    """Make one archive and read a tensor of it."""
    return build.pick(
        rng,
        (2, _sound),
        (4, _damaged),
        (4, _members),
        (3, _evil),
        (3, _odd),
        (2, _content),
        (1, _shards),
        (1, _huge),
    )(rng)


def _case(content: bytes, what: str, expected: Any = "any", *, read: bool = True) -> Case:
    return Case(
        what,
        ("extract", "t.bin", "--tensor", TENSOR, "-o", "out.npy"),
        {"t.bin": content},
        read=("t.bin", TENSOR) if read else None,
        outputs=("out.npy",),
        expected=expected,
    )


def _saved(state: Any, *, legacy: bool = False) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(state, stream, _use_new_zipfile_serialization=not legacy)
    if not legacy:
        return stream.getvalue()
    # The old layout names a storage by its address, which a seed does not make again.
    names: dict[bytes, bytes] = {}

    def named(found: re.Match[bytes]) -> bytes:
        return b"X\x0e\0\0\0" + names.setdefault(found[1], b"%014d" % (10**13 + len(names)))

    return re.sub(rb"X[\x0a-\x14]\0\0\0(\d{10,20})", named, stream.getvalue())


def _state(rng: random.Random) -> dict[str, Any]:
    import torch

    kinds = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
    state = {TENSOR: torch.from_numpy(build.table(rng, 8, 4)).to(rng.choice(kinds))}
    for number in range(rng.choice((0, 1, 2))):
        state[f"h.{number}.w"] = torch.from_numpy(build.table(rng))
    return OrderedDict(state) if rng.random() < 0.5 else state


def _sound(rng: random.Random) -> Case:
    return _case(_saved(_state(rng), legacy=rng.random() < 0.4), "sound", "accepted")


def _damaged(rng: random.Random) -> Case:
    legacy = rng.random() < 0.4
    what, content = build.damage(rng, _saved(_state(rng), legacy=legacy))
    return _case(content, f"{'legacy' if legacy else 'zip'}: {what}")


def _members(rng: random.Random) -> Case:
    """Pack the members again, in ways that readers of archives disagree about."""
    source = zipfile.ZipFile(io.BytesIO(_saved(_state(rng))))
    kind = rng.choice(
        (
            "deflated",
            "one deflated",
            "twice",
            "order",
            "prefix",
            "missing",
            "size",
            "extra",
            "names",
            "unaligned",
            "byteorder",
            "version",
            "root",
            "appended",
            "bomb",
            "comment",
            "encrypted",
        )
    )
    stream = io.BytesIO(b"")
    chosen = rng.choice([name for name in source.namelist() if "/data/" in name])
    with warnings.catch_warnings(), build.Archive(stream, "w") as archive:
        warnings.simplefilter("ignore")
        names = source.namelist()
        if kind == "order":
            rng.shuffle(names)
        for name in names:
            content = source.read(name)
            method = 8 if kind == "deflated" or (kind == "one deflated" and name == chosen) else 0
            if kind == "missing" and name == chosen:
                continue
            if kind == "size" and name == chosen:
                content = rng.choice((content[:-4], content + bytes(4), b"", content[:1]))
            if kind == "byteorder" and name.endswith("byteorder"):
                content = rng.choice((b"big", b"", b"x", b"little\n"))
            if kind == "version" and name.endswith("version"):
                content = rng.choice((b"99999999999999999999\n", b"", b"x", b"-1\n", b"1\n"))
            if kind == "root":
                name = name.replace("archive/", rng.choice(("", "a/b/", "../")))
            if kind == "bomb" and name == chosen:
                content, method = bytes(48 * 2**20), 8
            archive.writestr(name, content, method)
            if kind == "twice" and name == chosen:
                archive.writestr(name, rng.randbytes(len(content)))
        if kind == "extra":
            archive.writestr("archive/data/99", bytes(64))
        elif kind == "names":
            archive.writestr(rng.choice(("\x1b[2J", "../../x", "/x", "archive/data.pkl\0")), b"x")
        elif kind == "comment":
            archive.comment = b"PK\x05\x06" * 5
    content = stream.getvalue()
    if kind == "prefix":
        content = rng.randbytes(rng.choice((1, 4, 64))) + content
    elif kind == "appended":
        content += rng.randbytes(rng.choice((1, 22, 100)))
    elif kind == "unaligned":
        content = content.replace(b"FB", b"FC", 3)
    elif kind == "encrypted":
        made = bytearray(content)
        made[content.find(b"PK\x01\x02") + 8] |= 1
        content = bytes(made)
    return _case(content, f"members: {kind}")


def _evil(rng: random.Random) -> Case:
    """Put pickles that run into every place of a file."""
    import torch

    kind = rng.choice(
        ("whole", "value", "beside", "raw", "zip", "global", "attribute", "legacy tail")
    )
    state: Any = _state(rng)
    if kind == "whole":
        content = _saved(Evil(), legacy=rng.random() < 0.5)
    elif kind == "value":
        state["x"] = Evil()
        content = _saved(state, legacy=rng.random() < 0.5)
    elif kind == "beside":
        content = _saved({"model": state, "args": Evil()}, legacy=rng.random() < 0.5)
    elif kind == "raw":
        content = pickle.dumps(Evil(), protocol=rng.choice((0, 2, 4)))
    elif kind == "zip":
        stream = io.BytesIO()
        with build.Archive(stream, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Evil(), protocol=2))
            archive.writestr("archive/version", b"3\n")
        content = stream.getvalue()
    elif kind == "global":
        words = rng.choice(
            (
                "posix\nmkdir",
                "os\nmkdir",
                "builtins\neval",
                "torch\nload",
                "argparse\nFileType",
                "argparse\n_sys",
                "argparse\nNamespace",
                "numpy\nload",
                "posprobe.cli\nmain",
            )
        )
        raw = f"c{words}\n(S'canary'\ntR.".encode()
        content = raw
        if rng.random() < 0.6:
            stream = io.BytesIO()
            with build.Archive(stream, "w") as archive:
                archive.writestr("archive/data.pkl", b"\x80\x02" + raw)
                archive.writestr("archive/version", b"3\n")
            content = stream.getvalue()
    elif kind == "attribute":
        layer = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.ones_(layer.bias)
        content = _saved(layer)
    else:
        content = _saved(state, legacy=True) + pickle.dumps(Evil())
    return _case(
        content, f"a pickle that runs: {kind}", "any" if kind == "legacy tail" else "error"
    )


def _odd(rng: random.Random) -> Case:
    """Save tensors that are not what they look like."""
    import torch

    nn: Any = torch.nn
    values = torch.from_numpy(build.table(rng, 8, 4))
    kind = rng.choice(
        (
            "expand",
            "transpose",
            "slice",
            "sparse",
            "csr",
            "complex",
            "meta",
            "parameter",
            "scalar",
            "empty",
            "bool",
            "quantised",
            "conj",
            "shared",
            "3d",
            "f8",
            "subclass",
        )
    )
    make_it: dict[str, Callable[[], Any]] = {
        "expand": lambda: values[:1].expand(8, 4),
        "transpose": lambda: values.T,
        "slice": lambda: values[::2, 1:3],
        "sparse": lambda: values.to_sparse(),
        "csr": lambda: values.to_sparse_csr(),
        "complex": lambda: values.to(torch.complex64),
        "meta": lambda: values.to("meta"),
        "parameter": lambda: torch.nn.Parameter(values),
        "scalar": lambda: values[0, 0],
        "empty": lambda: values[:0],
        "bool": lambda: values > 0,
        "quantised": lambda: torch.quantize_per_tensor(values, 0.1, 0, torch.qint8),
        "conj": lambda: values.to(torch.complex64).conj(),
        "shared": lambda: values,
        "3d": lambda: values[None],
        "f8": lambda: values.to(torch.float8_e4m3fn),
        "subclass": lambda: nn.Buffer(values),
    }
    tensor = make_it[kind]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = _saved({TENSOR: tensor, "other": tensor}, legacy=rng.random() < 0.3)
    numbers = kind not in ("complex", "conj", "meta", "quantised")
    return _case(content, f"a tensor, {kind}", read=numbers)


def _content(rng: random.Random) -> Case:
    """Save other things than a dictionary of tensors."""
    import argparse

    import torch

    values = torch.from_numpy(build.table(rng, 8, 4))
    bad = rng.choice(build.HOSTILE)
    deep: Any = {TENSOR: values}
    for _ in range(50):
        deep = {"model": deep}
    cycle: Any = {TENSOR: values}
    cycle["model"] = cycle
    content = rng.choice(
        (
            values,
            {},
            [],
            None,
            7,
            "text",
            {TENSOR: [values]},
            {"model": {TENSOR: values}},
            [values, values],
            {1: values},
            {None: values},
            {(1, 2): values},
            {bad: values},
            {bad: {bad: {"wpe.weight": values}}},
            {TENSOR: values, "args": {bad: bad}},
            {TENSOR: values, "config": 7},
            {b"wpe": values},
            {TENSOR: values, "args": argparse.Namespace(max_positions=bad, arch=bad)},
            deep,
            cycle,
            {"module.wpe.weight": values, "module.b": values},
            {TENSOR: values, "config": {"model_type": [1]}},
            {TENSOR: values, "cfg": {"model": argparse.Namespace(max_positions=10**400)}},
            {1.5: values, True: values},
        )
    )
    argv = rng.choice(
        (
            ("inspect", "t.bin"),
            ("extract", "t.bin", "-o", "out.npy"),
            ("inspect", "t.bin", "--json"),
        )
    )
    return Case("content of an archive", argv, {"t.bin": _saved(content)}, outputs=("out.npy",))


def _shards(rng: random.Random) -> Case:
    """Let a tensor stand in two shards; the index names one."""
    import torch

    right, wrong = (torch.from_numpy(build.table(rng, 8, 4)) for _ in "ab")
    first, second = rng.sample(["pytorch_model-1.bin", "pytorch_model-2.bin"], 2)
    index = {"weight_map": {TENSOR: first, "b": second}}
    files = {
        f"m/{first}": _saved({TENSOR: right}),
        f"m/{second}": _saved({"b": wrong, TENSOR: wrong}),
        "m/pytorch_model.bin.index.json": build.dumps(index),
    }
    return Case(
        "a tensor in two shards",
        ("extract", "m", "--tensor", TENSOR, "-o", "out.npy"),
        files,
        read=(f"m/{first}", TENSOR),
        outputs=("out.npy",),
    )


def _huge(rng: random.Random) -> Case:
    """Claim more numbers than memory holds, in a few bytes."""
    import torch

    shape = rng.choice(((2**20, 2**12), (2**40, 4), (2**16, 2**16)))
    tensor = torch.zeros(1, 1).expand(*shape)
    argv = rng.choice(
        (
            ("inspect", "t.bin"),
            ("extract", "t.bin", "-o", "out.npy"),
            ("extract", "t.bin", "--rows", "0:4", "-o", "out.npy"),
        )
    )
    content = _saved({TENSOR: tensor})
    if rng.random() < 0.3:
        content = content.replace(struct.pack("<I", 2**20), struct.pack("<I", 2**30))
    return Case(f"a tensor of {shape} numbers", argv, {"t.bin": content}, outputs=("out.npy",))


WARM: tuple[tuple[str, ...], ...] = ()


def prepare() -> None:
    """Import what every case needs."""
    import torch

    torch.set_num_threads(1)
