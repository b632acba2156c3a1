"""HDF5 and Flax files: damaged, nested, leading elsewhere, or unpacking to more than fits.

h5py and msgpack read the same bytes, where a file is read at all: numbers are theirs.
"""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case

TENSOR = "wpe/embedding"


def _case(
    name: str, content: bytes, subject: str, expected: Any = "any", *, read: bool
) -> Case:
    options: dict[str, Any] = {} if read else {"read": None}
    return build.extract(subject, {name: content}, TENSOR, expected=expected, **options)


def hdf5(fill: Callable[[Any], object]) -> bytes:
    """Write what a function puts into a file."""
    import h5py

    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        fill(file)
    return stream.getvalue()


def weights(tensors: dict[str, Any]) -> bytes:
    """Write tensors as HDF5."""
    return hdf5(lambda file: file.update(tensors))


def _hdf5_file(rng: random.Random) -> bytes:
    values = build.table(rng, 8, 4).astype(rng.choice(("<f4", "<f8", "<f2", ">f4")))
    options = rng.choice(
        ({}, {"compression": "gzip"}, {"chunks": (4, 2), "shuffle": True})
    )

    def fill(file: Any) -> None:
        file.create_dataset(TENSOR, data=values, **options)
        file["other/embeddings:0"] = np.zeros((2, 2), "<f4")

    return hdf5(fill)


def _flax_file(rng: random.Random) -> bytes:
    """Write an array as Flax does: its shape, the name of its type, its bytes."""
    import msgpack

    values = build.table(rng, 8, 4).astype(rng.choice(("<f4", "<f8", "<f2")))
    parts = msgpack.packb(((8, 4), values.dtype.name, values.tobytes()))
    return bytes(
        msgpack.packb({"step": 3, "wpe": {"embedding": msgpack.ExtType(1, parts)}})
    )


def _any_file(rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(("a.h5", "a.keras", "a.msgpack"))
    if kind == "a.msgpack":
        return kind, _flax_file(rng)
    content = _hdf5_file(rng)
    packed = build.archive(("model.weights.h5", content), packing=rng.choice((0, 8)))
    return kind, content if kind == "a.h5" else packed


def _sound(rng: random.Random) -> Case:
    return _case(*_any_file(rng), "sound", "accepted", read=True)


def _damaged(rng: random.Random) -> Case:
    name, content = _any_file(rng)
    subject, content = build.damage(rng, content)
    # Of a file of Flax posprobe looks at the names alone, and passes over what msgpack refuses.
    return _case(name, content, subject, read=name == "a.h5")


def _datasets(rng: random.Random) -> Case:
    """Let the table be a dataset that is no table, leads elsewhere, or unpacks to too much."""
    import h5py

    values = build.table(rng, 8, 4)
    bad = (
        rng.choice(build.HOSTILE).encode("utf-8", "replace").replace(b"\0", b"").decode()
    )
    place = rng.choice(("other.h5", "../other.h5", "/etc/passwd", "/dev/zero"))
    layout = h5py.VirtualLayout((8, 4), "f4")
    layout[:] = h5py.VirtualSource(place, TENSOR, (8, 4))
    soft = h5py.SoftLink(
        rng.choice(("/nowhere", "/wpe/embedding", "..", "/wpe", "/other"))
    )

    def put(value: Any) -> Callable[[Any], object]:
        return lambda file: file.update({TENSOR: value})

    def made(*shape: Any, **options: Any) -> Callable[[Any], Any]:
        return lambda file: file.create_dataset(TENSOR, *shape, **options)

    def bomb(file: Any) -> None:  # a chunk of 128 bytes that unpacks to a gigabyte
        packed = made((8, 4), "f4", chunks=(8, 4), compression="gzip")(file)
        packed.id.write_direct_chunk((0, 0), _zeros(rng.choice((1, 20, 1000, 1100))))

    def half(file: Any) -> None:
        made((8, 4), "f4", chunks=(4, 4), fillvalue=2.0)(file)[:4] = values[:4]

    def names(file: Any) -> None:
        file.create_group("wpe/" + "x/" * rng.choice((1, 80, 2000)))
        file.update({bad or "y": values, TENSOR: values})
        file[TENSOR].attrs["a"] = "\x1b[2J" * 100

    def cycle(file: Any) -> None:
        file[TENSOR] = file.create_group("wpe")

    filters = rng.choice(
        ({"scaleoffset": 2}, {"fletcher32": True}, {"compression": "lzf"})
    )
    large = rng.choice(((2**12, 2**10), (2**16, 2**16), (2**40, 4)))
    refused: dict[str, Callable[[Any], object]] = {
        "text": put(np.full((8, 4), b"abc")),
        "compound": put(np.zeros((8, 4), [("a", "<f4"), ("b", "<f4")])),
        "complex": put(values.astype("c8")),
        "object": lambda file: made((8,), h5py.vlen_dtype("f4"))(file).__setitem__(
            0, values[0]
        ),
        "elsewhere": put(h5py.ExternalLink(place, TENSOR)),
        "virtual": lambda file: file.create_virtual_dataset(TENSOR, layout),
        "storage": made((8, 4), "f4", external=[(place, 0, 128)]),
    }
    unread: dict[str, Callable[[Any], object]] = {
        "reference": lambda file: file.update({TENSOR: file["other"].ref}),
        "null": put(h5py.Empty("f4")),
        "type": put(np.dtype("<f4")),
        "soft": put(soft),
        "cycle": cycle,
        "many": lambda f: f.update(
            {f"{TENSOR}{n}": h5py.SoftLink("/x") for n in range(3000)}
        ),
        "bomb": bomb,
        "filled": made(large, "f4", chunks=(64, 4), fillvalue=0.5),
        "chunks": made((2**13, 2**12), "f4", chunks=rng.choice(((1, 1), (2**13, 2**12)))),
        "never written": made(rng.choice(((2**20, 2**12), (2**59, 1))), "f4"),
    }
    fills: dict[str, Callable[[Any], object]] = {
        "scalar": put(values[0, 0]),
        "bool": put(values > 0),
        "3d": put(rng.choice((values[None], values.reshape(2, 4, 4)))),
        "filter": made(data=values, **filters),
        "empty": made(rng.choice(((0, 4), (8, 0))), "f4"),
        "half": half,
        "names": names,
        **refused,
        **unread,
    }
    kind = rng.choice(list(fills))

    def fill(file: Any) -> None:
        file["other"] = values
        fills[kind](file)

    files = {"a.h5": hdf5(fill), "other.h5": weights({TENSOR: values})}
    options: dict[str, Any] = {"read": None} if kind in unread or kind in refused else {}
    return build.extract(
        f"dataset: {kind}", files, TENSOR, expected="error" if kind in refused else "any",
        look=kind not in refused and rng.random() < 0.2,
        **options,
    )  # fmt: skip


def _zeros(megabytes: int) -> bytes:
    """Compress so many zeros; the checksum at the end is missing."""
    packer = zlib.compressobj(9)
    first_file, second_file = (
        packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    return first_file + second_file * (megabytes - 1) + packer.flush()


def _archives(rng: random.Random) -> Case:
    """Let the members of a Keras archive be others."""
    evil = ("config.json", b"cposix\nmkdir\n(S'canary'\ntR.")
    content = build.archive(("model.weights.h5", _hdf5_file(rng)))
    kind, content = build.repacked(rng, content, evil)
    expected = "error" if kind in ("twice", "missing") else "any"
    return _case("a.keras", content, f"archive: {kind}", expected, read=False)


make = build.one_of((2, _sound), (6, _damaged), (5, _datasets), (2, _archives))
NEEDS = ("h5py", "msgpack")
