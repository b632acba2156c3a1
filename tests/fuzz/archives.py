"""PyTorch archives, zip and legacy: pickles that would run, members that lie, odd tensors.

PyTorch reads the same bytes with ``weights_only=True``, unmapped: what it refuses must be refused,
and numbers are its.
"""

from __future__ import annotations

import argparse
import io
import pickle
import random
import re
import struct
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fuzz import build
from fuzz.arrays import Evil
from fuzz.case import Case

TENSOR = "wpe.weight"


def _case(content: bytes, subject: str, expected: Any = "any", **options: Any) -> Case:
    return build.extract(
        subject, {"t.bin": content}, TENSOR, expected=expected, **options
    )


def _saved(state: Any, *, legacy: bool = False) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(state, stream, _use_new_zipfile_serialization=not legacy)
    if not legacy:
        return stream.getvalue()
    # The old layout names a storage by its address, which a seed does not make again.
    names: dict[bytes, bytes] = {}

    def named(match_found: re.Match[bytes]) -> bytes:
        return b"X\x0e\0\0\0" + names.setdefault(
            match_found[1], b"%014d" % (10**13 + len(names))
        )

    return re.sub(rb"X[\x0a-\x14]\0\0\0(\d{10,20})", named, stream.getvalue())


def _state(rng: random.Random, *, legacy: bool = False) -> dict[str, Any]:
    """Draw tensors; one for the old layout, which orders them by their addresses."""
    import torch

    kinds = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
    state = {TENSOR: torch.from_numpy(build.table(rng, 8, 4)).to(rng.choice(kinds))}
    for number in range(0 if legacy else rng.choice((0, 1, 2))):
        state[f"h.{number}.w"] = torch.from_numpy(build.table(rng))
    return OrderedDict(state) if rng.random() < 0.5 else state


def _sound(rng: random.Random) -> Case:
    legacy = rng.random() < 0.4
    return _case(_saved(_state(rng, legacy=legacy), legacy=legacy), "sound", "accepted")


def _damaged(rng: random.Random) -> Case:
    legacy = rng.random() < 0.4
    subject, content = build.damage(
        rng, _saved(_state(rng, legacy=legacy), legacy=legacy)
    )
    return _case(content, f"{'legacy' if legacy else 'zip'}: {subject}")


def _members(rng: random.Random) -> Case:
    """Pack the members again, in ways that readers of archives disagree about."""
    sound = _saved(_state(rng))
    evil = ("archive/data/../data.pkl", pickle.dumps(Evil(), protocol=2))
    kind, content = build.repacked(rng, sound, evil)
    if rng.random() < 0.1:
        kind, content = "unaligned", sound.replace(b"FB", b"FC", 3)
    return _case(content, f"members: {kind}")


def zipped(code: bytes) -> bytes:
    """Put a pickle where PyTorch's archives have theirs."""
    return build.archive(("archive/data.pkl", code), ("archive/version", b"3\n"))


def _evil(rng: random.Random) -> Case:
    """Put pickles that run into every place of a file."""
    import torch

    state: Any = _state(rng, legacy=True)
    legacy = rng.random() < 0.5
    layer = torch.nn.Linear(2, 2)
    for parameter in layer.parameters():
        torch.nn.init.ones_(parameter)
    words = rng.choice(
        ("posix\nmkdir", "os\nmkdir", "builtins\neval", "torch\nload", "argparse\nFileType",
         "argparse\n_sys", "argparse\nNamespace", "numpy\nload", "posprobe.cli\nmain")
    )  # fmt: skip
    raw = f"c{words}\n(S'canary'\ntR.".encode()
    kind, content = rng.choice(
        (
            ("whole", _saved(Evil(), legacy=legacy)),
            ("value", _saved({**state, "x": Evil()}, legacy=legacy)),
            ("beside", _saved({"model": state, "args": Evil()}, legacy=legacy)),
            ("raw", pickle.dumps(Evil(), protocol=rng.choice((0, 2, 4)))),
            ("zip", zipped(pickle.dumps(Evil(), protocol=2))),
            ("global", raw),
            ("global in a zip", zipped(b"\x80\x02" + raw)),
            ("attribute", _saved(layer)),
            ("legacy tail", _saved(state, legacy=True) + pickle.dumps(Evil())),
        )
    )
    expected = "any" if kind == "legacy tail" else "error"
    return _case(content, f"a pickle that runs: {kind}", expected)


def _odd(rng: random.Random) -> Case:
    """Save tensors that are not what they look like."""
    import torch

    nn: Any = torch.nn
    values = torch.from_numpy(build.table(rng, 8, 4))
    unknown: tuple[Callable[[], Any], ...] = (
        lambda: values.to(torch.complex64),
        lambda: values.to(torch.complex64).conj(),
        lambda: values.to("meta"),
        lambda: torch.quantize_per_tensor(values, 0.1, 0, torch.qint8),
    )
    contents: tuple[Callable[[], Any], ...] = (
        lambda: values[:1].expand(8, 4),
        lambda: values.T,
        lambda: values[::2, 1:3],
        values.to_sparse,
        values.to_sparse_csr,
        lambda: nn.Parameter(values),
        lambda: nn.Buffer(values),
        lambda: values[0, 0],
        lambda: values[:0],
        lambda: values > 0,
        lambda: values[None],
        lambda: values.to(torch.float8_e4m3fn),
    )
    number = rng.randrange(len(contents) + len(unknown))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = (contents + unknown)[number]()
        content = _saved({TENSOR: tensor, "other": tensor}, legacy=rng.random() < 0.3)
    options: dict[str, Any] = {} if number < len(contents) else {"read": None}
    return _case(content, f"a tensor, {number}", **options)


def _content(rng: random.Random) -> Case:
    """Save other things than a dictionary of tensors."""
    import torch

    values = torch.from_numpy(build.table(rng, 8, 4))
    bad = rng.choice(build.HOSTILE)
    deep: Any = {TENSOR: values}
    for _ in range(50):
        deep = {"model": deep}
    cycle: Any = {TENSOR: values}
    cycle["model"] = cycle
    arguments = argparse.Namespace(max_positions=rng.choice((bad, 10**400)), arch=bad)
    content = rng.choice(
        (
            values, {}, [], None, 7, "text", deep, cycle, [values, values], {1: values},
            {None: values}, {(1, 2): values}, {bad: values}, {b"wpe": values},
            {1.5: values, True: values}, {TENSOR: [values]}, {bad: {bad: {TENSOR: values}}},
            {"module.wpe.weight": values, "module.b": values}, {TENSOR: values, "args": {bad: bad}},
            {TENSOR: values, "args": arguments}, {TENSOR: values, "cfg": {"model": arguments}},
            {TENSOR: values, "config": rng.choice((7, {"model_type": [1]}))},
        )
    )  # fmt: skip
    argv = rng.choice(
        (("extract", "t.bin", "-o", "out.npy"), ("inspect", "t.bin", "--json"))
    )
    return Case(
        "content of an archive", argv, {"t.bin": _saved(content)}, outputs=("out.npy",)
    )


def _huge(rng: random.Random) -> Case:
    """Claim more numbers than memory holds, in a few bytes."""
    import torch

    shape = rng.choice(((2**20, 2**12), (2**40, 4), (2**16, 2**16)))
    content = _saved({TENSOR: torch.zeros(1, 1).expand(*shape)})
    if rng.random() < 0.3:
        content = content.replace(struct.pack("<I", 2**20), struct.pack("<I", 2**30))
    rows = rng.choice(((), ("--rows", "0:4")))
    argv = rng.choice(
        (("inspect", "t.bin"), ("extract", "t.bin", *rows, "-o", "out.npy"))
    )
    return Case(
        f"a tensor of {shape} numbers", argv, {"t.bin": content}, outputs=("out.npy",)
    )


make = build.one_of(
    (2, _sound),
    (4, _damaged),
    (4, _members),
    (3, _evil),
    (3, _odd),
    (2, _content),
    (1, _huge),
)
NEEDS = ("torch",)
