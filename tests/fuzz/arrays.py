"""NumPy files: headers of arrays that lie, objects that would run, archives with odd members.

NumPy reads the same bytes, objects forbidden: what it refuses must be refused, and numbers are its.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case


class Evil:
    """Unpickled, it leaves the canary."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("canary",)


def _npy(content: bytes, subject: str, expected: Any = "any") -> Case:
    argv = ("extract", "a.npy", "-o", "out.npy")
    return Case(
        subject, argv, {"a.npy": content}, read=("a.npy", "a"), block=True, outputs=("out.npy",),
        expected=expected,
    )  # fmt: skip


def _npz(content: bytes, subject: str, expected: Any = "any", **options: Any) -> Case:
    return build.extract(subject, {"a.npz": content}, "wpe", expected=expected, **options)


def saved(values: Any, version: Any = None) -> bytes:
    """Return the bytes of a ``.npy`` file."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.lib.format.write_array(stream, np.asanyarray(values), version=version)
    return stream.getvalue()


def _values(rng: random.Random) -> Any:
    values = build.table(rng, rng.choice((2, 8, 16)), rng.choice((2, 4)))
    values = values.astype(rng.choice(("<f4", "<f8", "<f2", ">f4", ">f8")))
    return np.asfortranarray(values) if rng.random() < 0.3 else values


def _any_file(rng: random.Random) -> tuple[Callable[..., Case], bytes]:
    """Return a sound file, and the case that reads it."""
    values = _values(rng)
    if rng.random() < 0.5:
        return _npy, saved(values, rng.choice((None, (1, 0), (2, 0), (3, 0))))
    return _npz, build.archive(
        ("wpe.npy", saved(values)),
        ("other.npy", saved(values)),
        packing=rng.choice((0, 8)),
    )


def _sound(rng: random.Random) -> Case:
    case, content = _any_file(rng)
    return case(content, "sound", "accepted")


def _damaged(rng: random.Random) -> Case:
    case, content = _any_file(rng)
    subject, content = build.damage(rng, content)
    return case(content, subject)


def header(text: str, data: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    """Write a header by hand."""
    raw = (text + "\n").encode("latin-1", "replace")
    size = struct.pack("<H" if version == (1, 0) else "<I", len(raw) & 0xFFFF)
    return b"\x93NUMPY" + bytes(version) + size + raw + data


#: Texts of a header's shape and type.
_SHAPES = (
    "(4, 4)", "(4, 4,)", "(-4, -4)", "(4,)", "()", "(2**2, 4)", "(4.0, 4.0)", "[4, 4]", "4",
    "(1, 4, 4)", "(3, 4, 4)", "(2, 4, 4)", "(True, 16)", "(0, 4)", "(4, 0)", "(10**30, 4)",
    "(4294967296, 4294967296)", "('4', '4')", "(4L, 4L)", "None", "(1, 1, 4, 4)", "(16, 1)",
)  # fmt: skip
_TYPES = (
    "'<f4'", "'<f4'", "'<f4'", "'>f4'", "'|O'", "'<c8'", "'<i4'", "'<U4'", "'<M8[s]'", "'|V4'",
    "[('a', '<f4')]", "'<f16'", "'f4'", "'float32'", "'<f8'", "'<f2'", "'|b1'", "''", "None",
    "'<f400'", "('<f4', (2,))", "'<f4,<f4'", "__import__('os').mkdir('canary')",
)  # fmt: skip


def _header(rng: random.Random) -> Case:
    shape, dtype = rng.choice(_SHAPES), rng.choice(_TYPES)
    order = rng.choice(("False", "False", "True", "1", "None", "'yes'"))
    text = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}"
    hostile_headers = ("{'descr': '<f4'}", "__import__('os').mkdir('canary')", "(" * 2000)
    text = rng.choice((text, text, text, text[:-1] + "'x': 1}", *hostile_headers))
    version = rng.choice(
        ((1, 0), (1, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 0), (255, 255))
    )
    items = {"'<f8'": 8, "'<f2'": 2, "'<f16'": 16, "'<c8'": 8}.get(dtype, 4)
    count = 48 if shape == "(3, 4, 4)" else 32 if shape == "(2, 4, 4)" else 16
    data = np.arange(count * items // 2, dtype="<u2").tobytes()
    return _npy(header(text, data, version), f"header: {text[:60]}")


def _objects(rng: random.Random) -> Case:
    evil = np.empty((2, 2), object)
    evil[:] = Evil()
    content = rng.choice((saved(evil), pickle.dumps(Evil())))
    if rng.random() < 0.5:
        return _npy(content, "objects", "error")
    return _npz(build.archive(("wpe.npy", content)), "objects in an archive", "error")


def _archive(rng: random.Random) -> Case:
    """Let the members of an archive be others than an archive of arrays has."""
    sound = saved(build.table(rng, 8, 4))
    evil = ("b.npy", saved(np.array([Evil()], object)))
    content = build.archive(("wpe.npy", sound), *rng.choice(([], [("b.npy/", b"")])))
    kind, content = build.repacked(rng, content, evil)
    return _npz(content, f"archive: {kind}", look=rng.random() < 0.3)


def _bomb(rng: random.Random) -> Case:
    """A small archive of a huge array, all of which is there or as its directory claims."""
    rows = rng.choice((2**10, 2**18))
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 1024), }}"
    stored = header(text, bytes(4 * 2**20))
    content = build.archive(("wpe.npy", stored, 8))
    if rows == 2**18:
        claimed = len(stored) - 4 * 2**20 + 2**30
        content = content.replace(
            struct.pack("<I", len(stored)), struct.pack("<I", claimed)
        )
    return _npz(content, f"an array of {rows} x 1024 in {len(content)} bytes")


make = build.one_of(
    (2, _sound), (3, _damaged), (4, _header), (2, _objects), (5, _archive), (1, _bomb)
)
