"""NumPy files: headers of arrays that lie, objects that would run, archives with odd members.

NumPy reads the same bytes, objects forbidden: what it refuses must be refused, and numbers are its.
"""

from __future__ import annotations

import io
import pickle
import random
import struct
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case


class Evil:
    """Unpickled, it leaves the canary."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        import os

        return os.mkdir, ("canary",)


def make(rng: random.Random) -> Case:
    """Make one file and read an array of it."""
    return build.pick(
        rng,
        (2, _sound),
        (3, _damaged),
        (4, _header),
        (2, _objects),
        (5, _archive),
        (1, _bomb),
    )(rng)


def _npy(content: bytes, what: str, expected: Any = "any") -> Case:
    return Case(
        what,
        ("extract", "a.npy", "-o", "out.npy"),
        {"a.npy": content},
        read=("a.npy", "a"),
        block=True,
        outputs=("out.npy",),
        expected=expected,
    )


def _npz(content: bytes, what: str, expected: Any = "any") -> Case:
    return Case(
        what,
        ("extract", "a.npz", "--tensor", "wpe", "-o", "out.npy"),
        {"a.npz": content},
        read=("a.npz", "wpe"),
        outputs=("out.npy",),
        expected=expected,
    )


def saved(values: Any, version: Any = None) -> bytes:
    """Return the bytes of a ``.npy`` file."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.lib.format.write_array(stream, np.asanyarray(values), version=version)
    return stream.getvalue()


def compared(case: Case, numbers: Any) -> Case:
    """Lay the numbers that must be read beside a case, where any must."""
    if numbers is None:
        return case
    files = {**case.files, "expected.npy": saved(numbers)}
    return replace(case, files=files, read=("expected.npy", "expected"))


def _values(rng: random.Random) -> Any:
    values = build.table(rng, rng.choice((2, 8, 16)), rng.choice((2, 4)))
    dtype = rng.choice(("<f4", "<f8", "<f2", ">f4", ">f8"))
    values = values.astype(dtype)
    return np.asfortranarray(values) if rng.random() < 0.3 else values


def _sound(rng: random.Random) -> Case:
    values = _values(rng)
    if rng.random() < 0.5:
        return _npy(saved(values, rng.choice((None, (1, 0), (2, 0), (3, 0)))), "sound", "accepted")
    stream = io.BytesIO()
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(stream, wpe=values, other=values)
    return _npz(stream.getvalue(), "sound archive", "accepted")


def _damaged(rng: random.Random) -> Case:
    if rng.random() < 0.5:
        what, content = build.damage(rng, saved(_values(rng)))
        return _npy(content, what)
    stream = io.BytesIO()
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(stream, wpe=_values(rng))
    what, content = build.damage(rng, stream.getvalue())
    return _npz(content, f"archive: {what}")


def header(text: str, data: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    """Write a header by hand."""
    raw = (text + "\n").encode("latin-1", "replace")
    size = struct.pack("<H" if version == (1, 0) else "<I", len(raw) & 0xFFFF)
    return b"\x93NUMPY" + bytes(version) + size + raw + data


def _header(rng: random.Random) -> Case:
    shape = rng.choice(
        (
            "(4, 4)",
            "(4, 4,)",
            "(-4, -4)",
            "(4,)",
            "()",
            "(2**2, 4)",
            "(4.0, 4.0)",
            "[4, 4]",
            "4",
            "(1, 4, 4)",
            "(3, 4, 4)",
            "(2, 4, 4)",
            "(True, 16)",
            "(0, 4)",
            "(4, 0)",
            "(10**30, 4)",
            "(4294967296, 4294967296)",
            "('4', '4')",
            "(4L, 4L)",
            "None",
            "(1, 1, 4, 4)",
            "(16, 1)",
        )
    )
    dtype = rng.choice(
        (
            "'<f4'",
            "'<f4'",
            "'<f4'",
            "'>f4'",
            "'|O'",
            "'<c8'",
            "'<i4'",
            "'<U4'",
            "'<M8[s]'",
            "'|V4'",
            "[('a', '<f4')]",
            "'<f16'",
            "'f4'",
            "'float32'",
            "'<f8'",
            "'<f2'",
            "'|b1'",
            "''",
            "None",
            "'<f400'",
            "('<f4', (2,))",
            "'<f4,<f4'",
            "__import__('os').mkdir('canary')",
        )
    )
    order = rng.choice(("False", "False", "True", "1", "None", "'yes'"))
    text = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}"
    kind = rng.choice(("", "", "", "extra", "missing", "python", "deep", "version"))
    version = (1, 0)
    if kind == "extra":
        text = text[:-1] + "'x': 1}"
    elif kind == "missing":
        text = "{'descr': '<f4'}"
    elif kind == "python":
        text = "__import__('os').mkdir('canary')"
    elif kind == "deep":
        text = "(" * 2000
    elif kind == "version":
        version = rng.choice(((2, 0), (3, 0), (4, 0), (0, 0), (255, 255)))
    items = {"'<f8'": 8, "'<f2'": 2, "'<f16'": 16, "'<c8'": 8}.get(dtype, 4)
    count = 48 if shape == "(3, 4, 4)" else 32 if shape == "(2, 4, 4)" else 16
    data = np.arange(count * items // 2, dtype="<u2").tobytes()
    return _npy(header(text, data, version), f"header: shape {shape}, dtype {dtype} {kind}")


def _objects(rng: random.Random) -> Case:
    evil = np.empty((2, 2), object)
    evil[:] = Evil()
    content = saved(evil)
    if rng.random() < 0.4:
        content = pickle.dumps(Evil())
    if rng.random() < 0.5:
        return _npy(content, "objects", "error")
    stream = io.BytesIO()
    with build.Archive(stream, "w") as archive:
        archive.writestr("wpe.npy", content)
    return _npz(stream.getvalue(), "objects in an archive", "error")


def _archive(rng: random.Random) -> Case:
    right, wrong = build.table(rng, 8, 4), build.table(rng, 8, 4)
    kind = rng.choice(
        (
            "twin",
            "twice",
            "outside",
            "deflated",
            "encrypted",
            "names",
            "directory",
            "comment",
            "many",
            "method",
            "crc",
            "size",
            "nested",
            "prefix",
            "object beside",
        )
    )
    stream = io.BytesIO()
    with warnings.catch_warnings(), build.Archive(stream, "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("wpe.npy", saved(right))
        if kind == "twin":
            archive.writestr("wpe", saved(wrong))
        elif kind == "twice":
            archive.writestr("wpe.npy", saved(wrong))
        elif kind == "outside":
            archive.writestr(rng.choice(("../x.npy", "/x.npy", "a/b.npy", "\\x.npy")), saved(wrong))
        elif kind == "deflated":
            archive.writestr("b.npy", saved(wrong), rng.choice((8, 12, 14)))
        elif kind == "names":
            archive.writestr(
                rng.choice(build.HOSTILE[:30]).encode("utf-8", "replace").decode() + ".npy",
                saved(wrong),
            )
        elif kind == "directory":
            archive.writestr("b.npy/", b"")
        elif kind == "comment":
            archive.comment = b"\x1b[2J" * 10
        elif kind == "many":
            for number in range(500):
                archive.writestr(f"b{number}.npy", saved(np.zeros((1, 1), "f4")))
        elif kind == "nested":
            archive.writestr("b.npy", stream.getvalue())
        elif kind == "object beside":
            archive.writestr("b.npy", saved(np.array([Evil()], object)))
    content = bytearray(stream.getvalue())
    place = content.find(b"PK\x01\x02")  # the directory's entry of the array
    if kind == "encrypted":
        content[place + 8] |= 1
    elif kind == "method":
        content[place + 10] = rng.choice((1, 9, 12, 14, 93, 99))
    elif kind == "crc":
        content[place + 16] ^= 255
    elif kind == "size":
        content[place + rng.choice((20, 24)) : place + 28] = struct.pack(
            "<I", rng.choice((0, 10, 2**31, 2**32 - 1))
        )
    elif kind == "prefix":
        content = bytearray(b"#!/bin/sh\n") + content
    if kind in ("names", "directory", "many", "outside", "comment") and rng.random() < 0.5:
        return Case(f"archive: {kind}", ("inspect", "a.npz"), {"a.npz": bytes(content)})
    return _npz(bytes(content), f"archive: {kind}")


def _bomb(rng: random.Random) -> Case:
    """A small archive of a huge array."""
    rows = rng.choice((2**12, 2**18))
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 1024), }}"
    stream = io.BytesIO()
    with (
        build.Archive(stream, "w", 8) as archive,
        archive.open("wpe.npy", "w", force_zip64=True) as out,
    ):
        out.write(header(text, b""))
        for _ in range(rows // 2**8 if rows < 2**18 else 16):
            out.write(bytes(2**20))
    content = stream.getvalue()
    if rows == 2**18:  # the directory tells what the header claims
        head = len(header(text, b""))
        content = content.replace(
            struct.pack("<I", head + 16 * 2**20), struct.pack("<I", head + 2**30)
        )
    return _npz(content, f"an array of {rows} x 1024 in {len(content)} bytes")


WARM: tuple[tuple[str, ...], ...] = ()
