"""Stores of sweeps, fingerprints, saved runs, dumps; TensorFlow's indexes and links of HDF5."""

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
from fuzz.arrays import saved
from fuzz.case import Case
from fuzz.formats import hdf5, weights

DATA = Path(__file__).parents[1] / "data"
REFERENCES = ("sinusoidal:16x4", "rotary:16x4")


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
    kind = rng.choice(("damaged", "mutated", "value", "special", "gone"))
    if kind == "value":
        place = rng.choice([name for name in sorted(files) if "/parts/" in name])
        part = json.loads(files[place])
        row = part["rows"][0]
        row[rng.choice(sorted(row))] = rng.choice((*build.WRONG, rng.choice(build.HOSTILE)))
        files[place] = build.dumps(part)
    elif kind == "mutated" and place.endswith(".json"):
        files[place] = build.dumps(build.mutated(rng, json.loads(files[place])))
    elif kind == "special":
        del files[place]
        special[place] = rng.choice(build.SPECIAL)
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
    kind, content = rng.choice(
        (
            ("damaged", build.damage(rng, line + b"\n")[1]),
            ("mutated", build.dumps(build.altered(rng, json.loads(line), (1, 2, 5))) + b"\n"),
            ("long", rng.choice((b"[" * 2**21, b'{"a":"' + b"x" * 2**21, bytes(2**21)))),
            ("many", (line + b"\n") * 500),
            ("special", b""),
        )
    )
    place, special = "s/fingerprints.jsonl", {}
    if kind == "special":
        special[place] = rng.choice(build.SPECIAL)
    argv = ("nearest", "sinusoidal:16x4", "--in", "s")
    return Case(f"fingerprints: {kind}", argv, {} if special else {place: content}, special)


# --- saved runs of rotary models ---------------------------------------------------------------


@functools.cache
def _run() -> dict[str, bytes]:
    """The data of a run, made once of random numbers."""
    from made_forward import rotary_of, saved_run

    with tempfile.TemporaryDirectory() as name:
        folder = saved_run(Path(name, "a"), {"rotary_use": rotary_of()})
        return {f"a/{path.name}": path.read_bytes() for path in folder.iterdir()}


def _edited(rng: random.Random) -> Case:
    """Edit a run, and compare it with a sound one, or make a row of a table of it."""
    files = dict(_run()) | {name.replace("a/", "b/"): file for name, file in _run().items()}
    document, arrays = json.loads(files["a/analysis.json"]), "a/arrays.npz"
    use = document["rotary_use"]
    part = rng.choice((use, use, rng.choice(use["heads"]), rng.choice(use["layers"]), document))
    kind = rng.choice(("sound", "mutated", "mutated", "number", "damaged", "curves"))
    if kind == "mutated":
        changed = build.mutated(rng, part)
        part.clear()
        part.update(changed if isinstance(changed, dict) else {"x": changed})
    elif kind == "number":
        key = rng.choice([key for key, value in part.items() if isinstance(value, int)] or ["x"])
        part[key] = rng.choice((-1, 0, 1, 7, 10**9, 2**70, 10**400, 1.5, float("nan"), True, "1"))
    elif kind == "damaged":
        files[arrays] = build.damage(rng, files[arrays])[1]
    elif kind == "curves":
        with np.load(io.BytesIO(files[arrays])) as archive:
            held = {name: archive[name] for name in archive}
        curves = held["rotary_measured"]
        odd = np.where(curves == curves[0, 0, 3], rng.choice((np.nan, np.inf)), curves)
        held["rotary_measured"] = rng.choice(
            (odd, curves * 1e200, curves * 0, curves[0], curves[..., :5], curves[:, :0],
             curves.astype(rng.choice(("c16", "i8", "f4", ">f8", "f2"))))
        )  # fmt: skip
        members = ((f"{name}.npy", saved(values)) for name, values in held.items())
        files[arrays] = build.archive(*members)
    files["a/analysis.json"] = build.dumps(document)
    words: tuple[str, ...] = rng.choice(
        (
            ("compare", "a", "b", "--out", "o"),
            ("compare", "a", "rotary:64x16", "--out", "o"),
            ("sweep", "a", "b", "--engine", "threads", "--jobs", "1", "--out", "o"),
            ("table", "a"),
        )
    )
    expected: Any = "accepted" if kind == "sound" else "any"
    return Case(f"a run: {kind}", words, files, outputs=("o",), expected=expected)


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
    content = build.archive(*((f"{each}.npy", saved(values)) for each, values in chosen.items()))
    if kind == "damaged":
        content = build.damage(rng, content)[1]
    elif kind == "special":
        special["d.npz"] = rng.choice(build.SPECIAL)
    words = rng.choice((("d.npz", "rotary:16x4"), ("rotary:16x4", "d.npz"), ("d.npz", "d.npz")))
    files = {} if special else {"d.npz": content}
    out = rng.choice(((), ("--out", "o")))
    return Case(f"a dump: {kind} {name}", ("check", *words, *out), files, special, outputs=out[1:])


# --- formats that lead elsewhere ---------------------------------------------------------------


def _index(rng: random.Random) -> Case:
    """Change an index of TensorFlow, or the data that it leads to."""
    folder = DATA / "tensorflow-bert"
    index, data = "m/bert_model.ckpt.index", "m/bert_model.ckpt.data-00000-of-00001"
    files = {name: (folder / name[2:]).read_bytes() for name in (index, data)}
    special = {}
    place = rng.choice((index, index, data))
    byte, at = rng.choice((b"\0", b"\x7f", b"\x80", b"\xff")), rng.randrange(len(files[index]))
    kind = rng.choice(("sound", "damaged", "damaged", "byte", "special"))
    if kind == "damaged":
        files[place] = build.damage(rng, files[place])[1]
    elif kind == "byte":
        files[index] = files[index][:at] + byte + files[index][at + 1 :]
    elif kind == "special":
        files["outside"] = files.pop(place)
        special[place] = rng.choice((*build.SPECIAL, "link ../outside"))
    argv = rng.choice((("inspect", "m"), ("extract", "m", "-o", "out.npy")))
    return Case(f"an index of TensorFlow: {kind}", argv, files, special, outputs=("out.npy",))


def _links(rng: random.Random) -> Case:
    """Let an HDF5 file lead to other files, to itself, or nowhere."""
    import h5py

    table, values = "wpe/embedding", np.arange(32, dtype="f4").reshape(8, 4)
    files = ("other.h5", "../other.h5", "/etc/passwd", "/dev/zero")
    layout = h5py.VirtualLayout((8, 4), "f4")
    layout[:] = h5py.VirtualSource(rng.choice(files), table, (8, 4))
    soft = h5py.SoftLink(rng.choice(("/nowhere", "/wpe/embedding", "..", "/wpe")))
    outside = [(rng.choice(files), 0, 128)]
    deep = "/".join(["wpe", *["embedding"] * rng.choice((5, 200, 2000))])

    def cycle(file: Any) -> None:
        group = file.create_group("wpe")
        group["embedding"] = group

    kind, fill = rng.choice(
        (
            ("external", lambda f: f.update({table: h5py.ExternalLink(rng.choice(files), table)})),
            ("soft", lambda f: f.update({table: soft})),
            ("cycle", cycle),
            ("deep", lambda f: f.create_group(deep)),
            ("virtual", lambda f: f.create_virtual_dataset(table, layout)),
            ("storage", lambda f: f.create_dataset(table, (8, 4), "f4", external=outside)),
            ("many", lambda f: f.update({f"{table}{n}": h5py.SoftLink("/x") for n in range(3000)})),
        )
    )
    content = hdf5(fill)
    if rng.random() < 0.3:
        at = rng.randrange(8, len(content) - 8)
        place = struct.pack("<Q", rng.choice((0, 8, 96, 2**40, 2**64 - 1)))
        content = content[:at] + place + content[at + 8 :]
    found = {"a.h5": content, "other.h5": weights({table: values})}
    look = rng.random() < 0.5
    return build.extract(f"links of HDF5: {kind}", found, table, look=look, read=None)


make = build.one_of((5, _store), (4, _prints), (5, _edited), (5, _dump), (4, _index), (4, _links))
WARM = (
    ("check", "rotary:8x4", "rotary:8x4"),
    ("compare", "rotary:8x4", "rotary:8x8", "--out", "compared"),
)
NEEDS = ("h5py", "joblib", "pandas", "pyarrow.parquet", "posprobe.sweeps.many")


def prepare() -> None:
    """Make the sweep and the run."""
    _sweep()
    _run()
