"""Stores of sweeps, fingerprints, saved runs, dumps, and TensorFlow's indexes."""

from __future__ import annotations

import functools
import io
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import build
from fuzz.arrays import saved
from fuzz.case import Case

DATA = Path(__file__).parents[1] / "data"
REFERENCES = ("sinusoidal:16x4", "rotary:16x4")


# --- sweeps ------------------------------------------------------------------------------------


@functools.cache
def _sweep() -> dict[str, bytes]:
    """The files of a small sweep, made once by a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        words = ["sweep", *REFERENCES, "--jobs", "1", "--out", "s"]
        subprocess.run(
            [sys.executable, "-m", "posprobe", *words, "--nulls", "0", "--quiet"],
            cwd=name, check=True, capture_output=True,
        )  # fmt: skip
        files = [path for path in Path(name, "s").rglob("*") if path.is_file()]
        return {str(path.relative_to(name)): path.read_bytes() for path in sorted(files)}


def _store(rng: random.Random) -> Case:
    """Change a file of a sweep, and go on with it, make a table of it or look into it."""
    files, special = dict(_sweep()), dict[str, str]()
    place = rng.choice(sorted(files))
    kind = "value"
    if rng.random() < 0.2:
        place = rng.choice([name for name in sorted(files) if "/parts/" in name])
        part = json.loads(files[place])
        row = part["rows"][0]
        row[rng.choice(sorted(row))] = rng.choice(
            (*build.WRONG_VALUES, rng.choice(build.HOSTILE))
        )
        files[place] = build.dumps(part)
    else:
        kind, files, special = build.spoiled(rng, files, place)
    words = rng.choice(
        (
            ("sweep", *REFERENCES, "--jobs", "1", "--out", "s", "--nulls",
             "0"),
            ("table", "s"),
            ("nearest", "sinusoidal:16x4", "--in", "s"),
        )
    )  # fmt: skip
    outputs = ("s",) if words[0] == "sweep" else ()
    return Case(
        f"a sweep: {kind} {Path(place).name}", words, files, special, outputs=outputs
    )


def _prints(rng: random.Random) -> Case:
    """Change the fingerprints of a sweep, and look a table up in them."""
    place = "s/fingerprints.jsonl"
    (line,) = _sweep()[place].splitlines()[:1]
    long_content = rng.choice(
        ((line + b"\n") * 500, b"[" * 2**21, b'{"a":"' + b"x" * 2**21, bytes(2**21))
    )
    argv = ("nearest", "sinusoidal:16x4", "--in", "s")
    kind, files, special = "long", {place: long_content}, dict[str, str]()
    if rng.random() < 0.8:
        kind, files, special = build.spoiled(rng, {place: line + b"\n"}, place)
    return Case(f"fingerprints: {kind}", argv, files, special)


# --- saved runs of models ---------------------------------------------------------------


@functools.cache
def _run() -> dict[str, bytes]:
    """The data of a run, made once of random numbers."""
    from made_forward import save_run, text_budget

    with tempfile.TemporaryDirectory() as name:
        folder = save_run(Path(name, "a"), {"attention_budget": text_budget()})
        return {f"a/{path.name}": path.read_bytes() for path in folder.iterdir()}


def _edited(rng: random.Random) -> Case:
    """Edit a run, and compare it with a sound one, or make a row of a table of it."""
    files = dict(_run()) | {
        name.replace("a/", "b/"): file for name, file in _run().items()
    }
    document, arrays = json.loads(files["a/analysis.json"]), "a/arrays.npz"
    use = document["attention_budget"]
    part = rng.choice(
        (use, use, rng.choice(use["heads"]), rng.choice(use["layers"]), document)
    )
    kind = rng.choice(("sound", "mutated", "mutated", "number", "damaged", "curves"))
    if kind == "mutated":
        edited = build.mutated(rng, part)
        part.clear()
        part.update(edited if isinstance(edited, dict) else {"x": edited})
    elif kind == "number":
        key = rng.choice(
            [key for key, value in part.items() if isinstance(value, int)] or ["x"]
        )
        part[key] = rng.choice(
            (-1, 0, 1, 7, 10**9, 2**70, 10**400, 1.5, float("nan"), True, "1")
        )
    elif kind == "damaged":
        files[arrays] = build.damage(rng, files[arrays])[1]
    elif kind == "curves":
        with np.load(io.BytesIO(files[arrays])) as archive:
            stored_arrays = {name: archive[name] for name in archive}
        curves = stored_arrays["attention_curves"]
        odd = np.where(curves == curves[0, 3], rng.choice((np.nan, np.inf)), curves)
        stored_arrays["attention_curves"] = rng.choice(
            (odd, curves * 1e200, curves * 0, curves[0], curves[:, :5], curves[:, :0],
             curves.astype(rng.choice(("c16", "i8", "f4", ">f8", "f2"))))
        )  # fmt: skip
        members = (
            (f"{name}.npy", saved(values)) for name, values in stored_arrays.items()
        )
        files[arrays] = build.archive(*members)
    files["a/analysis.json"] = build.dumps(document)
    words: tuple[str, ...] = rng.choice(
        (
            ("compare", "a", "b", "--out", "o"),
            ("compare", "a", "rotary:64x16", "--out", "o"),
            ("sweep", "a", "b", "--jobs", "1", "--out", "o"),
            ("table", "a"),
            ("figure", "attention-budget", "a", "b", "-o", "o.svg"),
        )
    )
    expected: Any = "accepted" if kind == "sound" else "any"
    return Case(
        f"a run: {kind}",
        words,
        files,
        outputs=("o", "o.svg", "o.caption.txt"),
        expected=expected,
    )


# --- dumps of engines --------------------------------------------------------------------------


def _dump(rng: random.Random) -> Case:
    """Dump cosines, sines or frequencies of which something cannot be."""
    angles = np.arange(16)[:, None] * 10_000.0 ** (-np.arange(2) / 2)
    all_arrays: dict[str, Any] = {
        "cos": np.cos(angles), "sin": np.sin(angles), "inv_freq": angles[1],
        "q": np.ones((2, 4)), "q_rotated": np.ones((2, 4)), "position": np.array(3),
    }  # fmt: skip
    names = rng.choice((("inv_freq",), ("cos", "sin"))) + rng.choice(
        ((), (), ("q",), ("q", "q_rotated"), ("q", "q_rotated", "position"))
    )
    picked = {name: all_arrays[name] for name in names}
    name = rng.choice(sorted(picked))
    values = np.asarray(picked[name], np.float64)
    bad = rng.choice((np.nan, np.inf, 0.0, -1.0, 1e300, 1e-300))
    shape = rng.choice(
        ((), (0,), (1,), (3, 0), (5,), (1, 1, 1, 2), (2**18, 4), (2, 8192))
    )
    dtype = rng.choice(("f2", "i4", "?", "c8", "U3", ">f8", "O"))
    kind, picked[name] = rng.choice(
        (
            ("spoiled", values),
            ("values", np.full_like(values, bad)),
            ("shape", np.ones(shape)),
            ("dtype", values.astype(dtype)),
        )
    )
    members = ((f"{name}.npy", saved(array)) for name, array in picked.items())
    files, special = {"d.npz": build.archive(*members)}, dict[str, str]()
    if kind == "spoiled":
        kind, files, special = build.spoiled(rng, files, "d.npz")
    words = rng.choice(
        (("d.npz", "rotary:16x4"), ("rotary:16x4", "d.npz"), ("d.npz", "d.npz"))
    )
    output_words = rng.choice(((), ("--out", "o")))
    return Case(
        f"a dump: {kind} {name}",
        ("check", *words, *output_words),
        files,
        special,
        outputs=output_words[1:],
    )


# --- TensorFlow --------------------------------------------------------------------------------


def _index(rng: random.Random) -> Case:
    """Change an index of TensorFlow, or the data that it leads to."""
    folder = DATA / "tensorflow-bert"
    index, data = "m/bert_model.ckpt.index", "m/bert_model.ckpt.data-00000-of-00001"
    files = {name: (folder / name[2:]).read_bytes() for name in (index, data)}
    place = rng.choice((index, index, data))
    kind, files, special = build.spoiled(rng, files, place, outside=files[place])
    argv = rng.choice((("inspect", "m"), ("extract", "m", "-o", "out.npy")))
    return Case(
        f"an index of TensorFlow: {kind}", argv, files, special, outputs=("out.npy",)
    )


make = build.one_of((5, _store), (3, _prints), (5, _edited), (5, _dump), (4, _index))
WARM = (
    ("check", "rotary:8x4", "rotary:8x4"),
    ("compare", "rotary:8x4", "rotary:8x8", "--out", "compared"),
)
NEEDS = ("joblib", "pandas", "pyarrow.parquet")


def prepare() -> None:
    """Make the sweep and the run."""
    _sweep()
    _run()
