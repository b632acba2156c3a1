"""Stores of sweeps, fingerprints, dumps of `check`; TensorFlow's indexes and links of HDF5."""

from __future__ import annotations

import functools
import io
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case

DATA = Path(__file__).parents[1] / "data"
REFERENCES = ("sinusoidal:16x4", "rotary:16x4")
_SPECIAL = ("fifo", "link /dev/zero", "folder", "sparse 9999999999", "absent", "link nowhere")


def make(rng: random.Random) -> Case:
    """Make one record and read it."""
    return build.pick(rng, (5, _store), (4, _prints), (5, _dump), (4, _index), (4, _links))(rng)


# --- sweeps ------------------------------------------------------------------------------------


@functools.cache
def _sweep() -> dict[str, bytes]:
    """The files of a small sweep, made once by a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        words = ["sweep", *REFERENCES, "--engine", "threads", "--jobs", "1", "--out", "s"]
        subprocess.run(
            [sys.executable, "-m", "posprobe", *words, "--nulls", "0", "--quiet"],
            cwd=name, check=True, capture_output=True,
        )  # fmt: skip
        found = [path for path in Path(name, "s").rglob("*") if path.is_file()]
        return {str(path.relative_to(name)): path.read_bytes() for path in sorted(found)}


def _store(rng: random.Random) -> Case:
    """Change a file of a sweep, and go on with it or make a table of it."""
    files, special = dict(_sweep()), {}
    place = rng.choice(sorted(files))
    kind = rng.choice(("damaged", "mutated", "special", "gone"))
    if kind == "mutated" and place.endswith(".json"):
        files[place] = build.dumps(build.mutated(rng, json.loads(files[place])))
    elif kind == "special":
        del files[place]
        special[place] = rng.choice(_SPECIAL)
    elif kind == "gone":
        del files[place]
    else:
        files[place] = build.damage(rng, files[place])[1]
    words = rng.choice(
        (
            ("sweep", *REFERENCES, "--engine", "threads", "--jobs", "1", "--out", "s", "--nulls",
             "0"),
            ("table", "s"),
            ("nearest", "sinusoidal:16x4", "--in", "s"),
        )
    )  # fmt: skip
    outputs = ("s",) if words[0] == "sweep" else ()
    return Case(f"a sweep: {kind} {Path(place).name}", words, files, special, outputs=outputs)


def _prints(rng: random.Random) -> Case:
    """Change the fingerprints of a sweep, and look a table up in them."""
    (line,) = _sweep()["s/fingerprints.jsonl"].splitlines()[:1]
    special = {}
    kind = rng.choice(("damaged", "mutated", "mutated", "long", "many", "special"))
    content = line + b"\n"
    if kind == "damaged":
        content = build.damage(rng, content)[1]
    elif kind == "mutated":
        known = json.loads(line)
        for _ in range(rng.choice((1, 2, 5))):
            known = build.mutated(rng, known)
        content = build.dumps(known) + b"\n"
    elif kind == "long":
        content = rng.choice((b"[" * 2**21, b'{"a":"' + b"x" * 2**21, bytes(2**21)))
    elif kind == "many":
        content *= 500
    else:
        special["s/fingerprints.jsonl"] = rng.choice(_SPECIAL)
    return Case(
        f"fingerprints: {kind}", ("nearest", "sinusoidal:16x4", "--in", "s"),
        {} if special else {"s/fingerprints.jsonl": content}, special,
    )  # fmt: skip


# --- dumps of engines --------------------------------------------------------------------------


def _dump(rng: random.Random) -> Case:
    """Dump cosines, sines or frequencies of which something cannot be."""
    angles = np.arange(16)[:, None] * 10_000.0 ** (-np.arange(2) / 2)
    whole: dict[str, Any] = {
        "cos": np.cos(angles), "sin": np.sin(angles), "inv_freq": angles[1],
        "q": np.ones((2, 4)), "q_rotated": np.ones((2, 4)), "position": np.array(3),
    }  # fmt: skip
    names = rng.choice((("inv_freq",), ("cos", "sin"))) + rng.choice(
        ((), (), ("q",), ("q", "q_rotated"), ("q", "q_rotated", "position"))
    )
    chosen = {name: whole[name] for name in names}
    name = rng.choice(sorted(chosen))
    kind = rng.choice(("sound", "damaged", "values", "shape", "dtype", "special"))
    special = {}
    if kind == "values":
        bad = rng.choice((np.nan, np.inf, 0.0, -1.0, 1e300, 1e-300))
        chosen[name] = np.full_like(np.asarray(chosen[name], np.float64), bad)
    elif kind == "shape":
        shape = rng.choice(((), (0,), (1,), (3, 0), (5,), (1, 1, 1, 2), (2**18, 4), (2, 8192)))
        chosen[name] = np.ones(shape)
    elif kind == "dtype":
        dtype = rng.choice(("f2", "i4", "?", "c8", "U3", ">f8", "O"))
        chosen[name] = np.asarray(chosen[name]).astype(dtype)
    stream = io.BytesIO()
    with build.Archive(stream, "w") as archive:
        for each, values in chosen.items():
            inner = io.BytesIO()
            np.save(inner, values)
            archive.writestr(f"{each}.npy", inner.getvalue())
    content = stream.getvalue()
    if kind == "damaged":
        content = build.damage(rng, content)[1]
    elif kind == "special":
        special["d.npz"] = rng.choice(_SPECIAL)
    words = rng.choice((("d.npz", "rotary:16x4"), ("rotary:16x4", "d.npz"), ("d.npz", "d.npz")))
    files = {} if special else {"d.npz": content}
    out = rng.choice(((), ("--out", "o")))
    return Case(f"a dump: {kind} {name}", ("check", *words, *out), files, special, outputs=out[1:])


# --- formats that lead elsewhere ---------------------------------------------------------------


def _index(rng: random.Random) -> Case:
    """Change an index of TensorFlow, or the data that it leads to."""
    folder = DATA / "tensorflow-bert"
    index, data = "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"
    files = {f"m/{name}": (folder / name).read_bytes() for name in (index, data)}
    special = {}
    place = f"m/{rng.choice((index, index, data))}"
    kind = rng.choice(("sound", "damaged", "damaged", "byte", "special"))
    if kind == "damaged":
        files[place] = build.damage(rng, files[place])[1]
    elif kind == "byte":
        made = bytearray(files[f"m/{index}"])
        made[rng.randrange(len(made))] = rng.choice((0, 127, 128, 255))
        files[f"m/{index}"] = bytes(made)
    elif kind == "special":
        del files[place]
        special[place] = rng.choice((*_SPECIAL, "link ../outside"))
        files["outside"] = (folder / data).read_bytes()
    argv = rng.choice((("inspect", "m"), ("extract", "m", "-o", "out.npy")))
    return Case(f"an index of TensorFlow: {kind}", argv, files, special, outputs=("out.npy",))


def _links(rng: random.Random) -> Case:
    """Let an HDF5 file lead to other files, to itself, or nowhere."""
    import h5py

    def filled(file: Any, *, link: bool) -> None:
        if not link:
            file["wpe/embedding"] = np.arange(32, dtype="f4").reshape(8, 4)
            return
        kind = rng.choice(("external", "soft", "cycle", "group", "virtual", "storage", "many"))
        if kind == "external":
            file["wpe/embedding"] = h5py.ExternalLink(
                rng.choice(("other.h5", "../other.h5", "/etc/passwd", "/dev/zero")), "wpe/embedding"
            )
        elif kind == "soft":
            file["wpe/embedding"] = h5py.SoftLink(rng.choice(("/nowhere", "/wpe/embedding", "..")))
        elif kind == "cycle":
            file.create_group("wpe")
            file["wpe/embedding"] = file["wpe"]
        elif kind == "group":
            group = file.create_group("wpe")
            for _ in range(rng.choice((5, 200, 2000))):
                group = group.create_group("embedding")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((8, 4), "f4")
            layout[:] = h5py.VirtualSource("other.h5", "wpe/embedding", (8, 4))
            file.create_virtual_dataset("wpe/embedding", layout)
        elif kind == "storage":
            file.create_dataset("wpe/embedding", (8, 4), "f4", external=[("/etc/passwd", 0, 128)])
        else:
            group = file.create_group("wpe")
            for number in range(3000):
                group[f"embedding{number}"] = h5py.SoftLink("/wpe")

    contents = []
    for link in (True, False):
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            filled(file, link=link)
        contents.append(stream.getvalue())
    content = contents[0]
    if rng.random() < 0.3:
        made = bytearray(content)
        at = rng.randrange(8, len(made) - 8)
        made[at : at + 8] = struct.pack("<Q", rng.choice((0, 8, 96, 2**40, 2**64 - 1)))
        content = bytes(made)
    argv = rng.choice(
        (("inspect", "a.h5"), ("extract", "a.h5", "--tensor", "wpe/embedding", "-o", "out.npy"))
    )
    return Case("links of HDF5", argv, {"a.h5": content, "other.h5": contents[1]},
                outputs=("out.npy",))  # fmt: skip


WARM = (("check", "rotary:8x4", "rotary:8x4"),)


def prepare() -> None:
    """Import what every case needs, and make the sweep."""
    import h5py
    from pyarrow import parquet

    import posprobe.sweeps.many

    assert h5py
    assert parquet
    assert posprobe.sweeps.many
    _sweep()
