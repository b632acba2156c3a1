"""HDF5 and Flax files: damaged, nested, leading elsewhere, or unpacking to more than fits.

h5py and msgpack read the same bytes, where a file is read at all: numbers are theirs.
"""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
import zlib
from typing import Any

import numpy as np

from fuzz import build
from fuzz.arrays import compared
from fuzz.case import Case

TENSOR = "wpe/embedding"


def make(rng: random.Random) -> Case:
    """Make one file and read a tensor of it."""
    return build.pick(
        rng,
        (2, _sound),
        (6, _damaged),
        (2, _hdf5),
        (3, _datasets),
        (2, _archives),
        (3, _layers),
        (3, _flax),
        (2, _pieces),
    )(rng)


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


def _datasets(rng: random.Random) -> Case:
    """Let the table be a dataset that is no table, is linked oddly, or unpacks to too much."""
    import h5py

    values = build.table(rng, 8, 4)
    kind = rng.choice(
        ("object", "text", "compound", "reference", "complex", "scalar", "null", "bool", "3d",
         "filled", "chunks", "long", "bomb", "cycle", "soft", "dangling", "hard", "type", "names",
         "attributes", "filter", "half", "empty")
    )  # fmt: skip
    stream = io.BytesIO()
    expected = "error" if kind in ("object", "text", "compound", "complex") else "any"
    with h5py.File(stream, "w") as file:
        file["other"] = values
        match kind:
            case "object":
                file.create_dataset(TENSOR, (8,), h5py.vlen_dtype("f4"))[0] = values[0]
            case "text":
                file[TENSOR] = np.full((8, 4), b"abc")
            case "compound":
                file[TENSOR] = np.zeros((8, 4), [("a", "<f4"), ("b", "<f4")])
            case "reference":
                file[TENSOR] = file["other"].ref
            case "complex":
                file[TENSOR] = values.astype("c8")
            case "scalar":
                file[TENSOR] = values[0, 0]
            case "null":
                file[TENSOR] = h5py.Empty("f4")
            case "bool":
                file[TENSOR] = values > 0
            case "3d":
                file[TENSOR] = values[None] if rng.random() < 0.5 else values.reshape(2, 4, 4)
            case "filled":
                shape = rng.choice(((2**12, 2**10), (2**16, 2**16), (2**40, 4)))
                file.create_dataset(TENSOR, shape, "f4", chunks=(64, 4), fillvalue=0.5)
            case "chunks":
                chunks = rng.choice(((1, 1), (2**13, 2**12)))
                file.create_dataset(TENSOR, (2**13, 2**12), "f4", chunks=chunks)
            case "long":  # nothing of it was ever written
                file.create_dataset(TENSOR, rng.choice(((2**20, 2**12), (2**59, 1))), "f4")
            case "bomb":  # a chunk of 128 bytes that unpacks to a gigabyte
                made = file.create_dataset(TENSOR, (8, 4), "f4", chunks=(8, 4), compression="gzip")
                made.id.write_direct_chunk((0, 0), _zeros(rng.choice((1, 20, 1000, 1100))))
            case "cycle":
                file["wpe/loop"] = file["/"]
                file["loop"] = file["wpe"]
                file[TENSOR] = values
            case "soft":
                file["real"] = values
                file[TENSOR] = h5py.SoftLink(rng.choice(("/real", "/wpe", "/wpe/embedding", "..")))
            case "dangling":
                file[TENSOR] = values
                file["x"] = h5py.SoftLink("/y")
                file["y"] = h5py.SoftLink("/x")
            case "hard":
                file[TENSOR] = file["other"]
            case "type":
                file[TENSOR] = np.dtype("<f4")
            case "names":
                bad = rng.choice(build.HOSTILE).encode("utf-8", "replace").replace(b"\0", b"")
                file.create_group("wpe/" + "x/" * rng.choice((1, 80)))
                file[bad.decode() or "y"] = values
                file[TENSOR] = values
            case "attributes":
                file[TENSOR] = values
                file[TENSOR].attrs["a"] = "\x1b[2J" * 100
                file.attrs["layer_names"] = [b"\x1b[2J"] * 3
            case "filter":
                filters = rng.choice(({"scaleoffset": 2}, {"fletcher32": True},
                                      {"compression": "lzf"}, {"compression": "szip"}))  # fmt: skip
                if filters.get("compression") != "szip" or h5py.h5z.filter_avail(4):
                    file.create_dataset(TENSOR, data=values, **filters)
            case "half":
                file.create_dataset(TENSOR, (8, 4), "f4", chunks=(4, 4), fillvalue=2.0)[:4] = (
                    values[:4]
                )
            case _:
                file.create_dataset(TENSOR, rng.choice(((0, 4), (8, 0))), "f4")
    read = kind not in ("reference", "null", "soft", "type", "bomb", "filled", "chunks", "long")
    if kind == "names" and rng.random() < 0.5:
        return Case("dataset: names", ("inspect", "a.h5"), {"a.h5": stream.getvalue()})
    return _case("a.h5", stream.getvalue(), f"dataset: {kind}", expected, read=read)


def _zeros(megabytes: int) -> bytes:
    """Compress so many zeros; the checksum at the end is missing."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * (megabytes - 1) + packer.flush()


def _archives(rng: random.Random) -> Case:
    """Pack the members of a Keras archive in ways that readers of archives disagree about."""
    content, other = _hdf5_file(rng), _hdf5_file(rng)
    kind = rng.choice(
        ("twice", "missing", "bomb", "size", "outside", "no HDF5", "pickle", "encrypted", "crc")
    )
    stream = io.BytesIO()
    with warnings.catch_warnings(), build.Archive(stream, "w") as archive:
        warnings.simplefilter("ignore")
        name = rng.choice(("../model.weights.h5", "/model.weights.h5", "x/model.weights.h5"))
        if kind == "bomb":
            content += bytes(8 * 2**20)
        elif kind == "no HDF5":
            content = b"PK\3\4" * 40
        if kind != "missing":
            archive.writestr(name if kind == "outside" else "model.weights.h5", content,
                             8 if kind == "bomb" else 0)  # fmt: skip
        if kind == "twice":
            archive.writestr("model.weights.h5", other)
        elif kind == "pickle":
            archive.writestr("config.json", b"cposix\nmkdir\n(S'canary'\ntR.")
    made = bytearray(stream.getvalue())
    place = made.find(b"PK\x01\x02")
    if kind == "size":
        made[place + 20 : place + 28] = struct.pack("<2I", *2 * [rng.choice((0, 96, 2**31))])
    elif kind == "encrypted":
        made[place + 8] |= 1
    elif kind == "crc":
        made[place + 16] ^= 255
    refused = kind in ("twice", "missing", "outside", "no HDF5", "size", "encrypted")
    expected = "error" if refused else "any"
    return _case("a.keras", bytes(made), f"archive: {kind}", expected, read=False)


def _layers(rng: random.Random) -> Case:
    """Let the configuration in a Keras archive be of wrong types and sizes, or deeply nested."""

    def layer(kind: str, name: str, **config: Any) -> dict[str, Any]:
        return {
            "module": "keras_hub.layers",
            "class_name": kind,
            "config": {"name": name, **config},
        }

    config: dict[str, Any] = {
        "module": "keras",
        "class_name": "Functional",
        "config": {
            "name": "functional",
            "layers": [
                layer("PositionEmbedding", "positions", sequence_length=8),
                layer("Patches", "patches", num_patches=8, inner=layer("Own", "own", maxlen=8)),
                layer("TokenAndPositionEmbedding", "both", vocabulary_size=9, sequence_length=8),
            ],
        },
    }
    kind = rng.choice(("sound", "mutated", "mutated", "damaged", "name", "deep", "many", "huge"))
    listed = config["config"]["layers"]
    match kind:
        case "mutated":
            for _ in range(rng.choice((1, 3))):
                changed = build.mutated(rng, config)
                config = changed if isinstance(changed, dict) else {"config": changed}
        case "name":
            bad = rng.choice(build.HOSTILE)
            listed.append(layer(bad, bad, sequence_length=8))
            listed[0]["config"]["name"] = bad
        case "deep":
            for _ in range(rng.choice((20, 200))):
                config = layer("Model", "m", layers=[config], inner=config if _ < 6 else None)
        case "many":
            listed += [layer("Own", "x", maxlen=8)] * 3000
        case "huge":
            listed[1]["config"]["num_patches"] = rng.choice((10**400, 2**63, True, 8.0, "8", -8))
    content = build.dumps(config)
    if kind == "damaged":
        _, content = build.damage(rng, content)
    import h5py

    weights = io.BytesIO()
    values = build.table(rng, 8, 4)
    with h5py.File(weights, "w") as file:
        for name in ("position_embedding/vars/0", "patches/own/vars/0", "patches/inner/vars/0"):
            file[f"layers/{name}"] = values
    stream = io.BytesIO()
    with build.Archive(stream, "w") as archive:
        archive.writestr("config.json", content, rng.choice((0, 8)))
        archive.writestr("model.weights.h5", weights.getvalue())
    argv = rng.choice((("inspect", "a.keras"), ("extract", "a.keras", "-o", "out.npy"),
                       ("inspect", "a.keras", "--json")))  # fmt: skip
    expected: Any = "accepted" if kind == "sound" and argv[0] == "inspect" else "any"
    return Case(
        f"layers: {kind}",
        argv,
        {"a.keras": stream.getvalue()},
        outputs=("out.npy",),
        expected=expected,
    )


def _pieces(rng: random.Random) -> Case:
    """Cut an array into pieces as Flax does, whose shapes or numbers do not fit."""
    import msgpack

    values = build.table(rng, 8, 4)
    kind = rng.choice(("sound", "shape", "chunks", "missing", "dtype", "order", "mark", "nested"))

    def piece(part: Any) -> Any:
        return msgpack.ExtType(1, msgpack.packb((part.shape, part.dtype.name, part.tobytes())))

    flat = values.reshape(-1)
    chunks: dict[Any, Any] = {"0": piece(flat[:20]), "1": piece(flat[20:])}
    shape: Any = {"0": 8, "1": 4}
    mark: Any = True
    expected = "error"
    match kind:
        case "sound":
            expected = "accepted"
        case "shape":
            shape = rng.choice(({"0": 8}, {"0": 8, "1": 5}, {"0": -8, "1": -4}, {}, [8, 4], 32,
                                {"0": 2**62, "1": 4}, {"0": "8", "1": "4"}, {"1": 8, "2": 4},
                                {"0": 32.0}, {"0": None, "1": 4}))  # fmt: skip
            expected = "any"
        case "chunks":
            odd: tuple[Any, ...] = (
                {}, {"0": piece(flat)[:1]}, {"0": 1, "1": 2}, [piece(flat)], 7, {"1": piece(flat)},
                {"0": piece(flat), "1": 7},
            )  # fmt: skip
            chunks = rng.choice(odd)
            expected = "any"
        case "missing":
            del chunks[rng.choice(("0", "1"))]
        case "dtype":
            chunks["1"] = piece(flat[20:].astype(rng.choice(("f8", "f2", "i4"))))
        case "order":
            chunks = dict(reversed(chunks.items()))
            expected = "accepted"
        case "mark":
            mark = rng.choice((False, None, 7, "yes", {}, []))
            expected = "any"
        case "nested":
            chunks["0"] = {
                "__msgpack_chunked_array__": True,
                "shape": shape,
                "chunks": dict(chunks),
            }
            expected = "any"
    tree = {"__msgpack_chunked_array__": mark, "shape": shape, "chunks": chunks}
    case = _case(
        "a.msgpack", msgpack.packb({"wpe": {"embedding": tree}}), f"pieces: {kind}", expected,
        read=False,
    )  # fmt: skip
    return compared(case, values if expected == "accepted" else None)


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

    import posprobe.checkpoints.hdf5file

    assert callable(posprobe.checkpoints.hdf5file.read_hdf5)
    assert h5py.version
    assert msgpack.version
