"""HDF5 and Flax files: damaged, nested, leading elsewhere, or unpacking to more than fits.

h5py and msgpack read the same bytes, where a file is read at all: numbers are theirs.
"""

from __future__ import annotations

import io
import random
import zipfile
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case

TENSOR = "wpe/embedding"


def make(rng: random.Random) -> Case:
    """Make one file and read a tensor of it."""
    return build.pick(rng, (2, _sound), (6, _damaged), (2, _hdf5), (3, _flax))(rng)


def _case(name: str, content: bytes, what: str, expected: Any = "any", *, read: bool) -> Case:
    return Case(
        what,
        ("extract", name, "--tensor", TENSOR, "-o", "out.npy"),
        {name: content},
        read=(name, TENSOR) if read else None,
        outputs=("out.npy",),
        expected=expected,
    )


def _hdf5_file(rng: random.Random, fill: Any = None) -> bytes:
    import h5py

    stream = io.BytesIO()
    options = rng.choice(({}, {"compression": "gzip"}, {"chunks": (4, 2), "shuffle": True}))
    with h5py.File(stream, "w") as file:
        if fill:
            fill(file)
        values = build.table(rng, 8, 4).astype(rng.choice(("<f4", "<f8", "<f2", ">f4")))
        file.create_dataset(TENSOR, data=values, **options)
        file["other/embeddings:0"] = np.zeros((2, 2), "<f4")
    return stream.getvalue()


def _flax_file(rng: random.Random, **others: Any) -> bytes:
    import msgpack

    values = build.table(rng, 8, 4).astype(rng.choice(("<f4", "<f8", "<f2")))
    stored = msgpack.packb(((8, 4), values.dtype.name, values.tobytes()))
    tree = {"step": 3, **others, "wpe": {"embedding": msgpack.ExtType(1, stored)}}
    return bytes(msgpack.packb(tree))


def _keras(content: bytes, packing: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        archive.writestr(zipfile.ZipInfo("model.weights.h5"), content, packing)
    return stream.getvalue()


def _any_file(rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(("a.h5", "a.keras", "a.msgpack"))
    if kind == "a.msgpack":
        return kind, _flax_file(rng)
    content = _hdf5_file(rng)
    packing = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    return kind, content if kind == "a.h5" else _keras(content, packing)


def _sound(rng: random.Random) -> Case:
    name, content = _any_file(rng)
    return _case(name, content, "sound", "accepted", read=True)


def _damaged(rng: random.Random) -> Case:
    name, content = _any_file(rng)
    what, content = build.damage(rng, content)
    # Of a file of Flax posprobe looks at the names alone, and passes over what msgpack refuses.
    return _case(name, content, what, read=name == "a.h5")


def _hdf5(rng: random.Random) -> Case:
    import h5py

    def outside(file: Any) -> None:
        file["link"] = h5py.ExternalLink("/etc/passwd", "/")

    def elsewhere(file: Any) -> None:
        file.create_dataset("raw", (4, 4), "f4", external=[("/etc/passwd", 0, 64)])

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((4, 4), "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", shape=(4, 4))
        file.create_virtual_dataset("virtual", layout)

    def deep(file: Any) -> None:
        file.create_group("/".join("g" * 100))

    kind = rng.choice((outside, elsewhere, virtual, deep))
    return _case("a.h5", _hdf5_file(rng, kind), kind.__name__, "error", read=False)


def _flax(rng: random.Random) -> Case:
    import msgpack

    sound = _flax_file(rng)
    kind = rng.choice(("more", "deep", "long", "lists", "announced", "shape", "extension"))
    match kind:
        case "more":
            content = sound + sound
        case "deep":
            content = b"\x81\xa1x" * 5000 + sound
        case "long":
            content = _flax_file(rng, **{"x" * 5000: 1})
        case "lists":
            content = b"\xdd" + bytes([rng.randrange(128, 256)] * 4) + sound
        case "announced":
            content = rng.choice((b"\xdb", b"\xc6", b"\xc9", b"\xdf")) + b"\x7f" * 5
        case "shape":
            shape = rng.choice(([2**40, 4], [-8, -4], ["8", 4], [8.0, 4.0], 8, [[8], 4], [4, 4]))
            stored = msgpack.packb((shape, "float32", bytes(128)))
            content = msgpack.packb({"wpe": {"embedding": msgpack.ExtType(1, stored)}})
        case _:
            content = msgpack.packb({"wpe": {"embedding": msgpack.ExtType(1, rng.randbytes(40))}})
    return _case("a.msgpack", content, kind, "error", read=False)


WARM: tuple[tuple[str, ...], ...] = ()


def prepare() -> None:
    """Import what every case needs."""
    import h5py
    import msgpack

    assert h5py.version
    assert msgpack.version
