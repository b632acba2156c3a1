"""Record what is found about some eighty references, and compare a later run with it.

A redesign must change no number that it does not name. Recorded are answers, values, nulls, p, rows
and every number and flag of every block, never texts; compared is to 1e-12. What is known to be
spelled otherwise in later documents is translated by `translated`.

    uv run --group test python tools/golden.py record golden.json.gz --jobs 2
    uv run --group test python tools/golden.py compare golden.json.gz --ignore '*.undefined.*'
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

import posprobe as pp

Floats: TypeAlias = NDArray[np.float64]
Rng: TypeAlias = np.random.Generator
Document: TypeAlias = dict[str, Any]

#: Keys of texts, of labels, and of what is different in every run.
TEXTS = frozenset({
    "caption", "citation", "command", "differs", "environment", "evidence", "findings", "models",
    "name", "note", "notes", "peak_name", "reason", "reasons", "schema", "sentence", "sentences",
    "source", "stated", "summary", "text", "title", "url", "where",
})  # fmt: skip
#: Keys under which a reason stands for each number that is not there: which ones, not why.
REASON_KEYS = frozenset({"undefined", "missing"})
#: Keys that a later document may leave out.
LEAVING = frozenset({"effect", "nulls"})
#: Stands for a value that one of two documents has not.
GONE = "(gone)"

# Planted tables on a line. Each is drawn from a generator seeded by its name.


def noise(rng: Rng, n: int = 128, d: int = 24) -> Floats:
    """Draw independent numbers."""
    return rng.standard_normal((n, d))


def heavy(rng: Rng, n: int = 128, d: int = 24) -> Floats:
    """Draw rows with heavy tails (Student's t with 2 degrees of freedom)."""
    return noise(rng, n, d) / np.sqrt(rng.chisquare(2, (n, 1)) / 2)


def walk(rng: Rng, n: int = 128, d: int = 24) -> Floats:
    """Draw a random walk."""
    return np.asarray(np.cumsum(noise(rng, n, d), axis=0))


def smoothing(n: int, length: float) -> Floats:
    """Return weights ``[n, n]`` that make independent rows smooth and keep their variance."""
    t = np.arange(n)
    weights = np.exp(-(((t[:, None] - t) / length) ** 2))
    return np.asarray(weights / np.linalg.norm(weights, axis=1, keepdims=True))


def smooth(rng: Rng, n: int = 128, d: int = 24, length: float = 8.0) -> Floats:
    """Draw independent columns that are smooth over ``length`` rows."""
    return smoothing(n, length) @ noise(rng, n, d)


def decaying(rng: Rng, n: int = 128, d: int = 24, correlation: float = 0.8) -> Floats:
    """Draw an Ornstein-Uhlenbeck process that keeps a share from row to row."""
    values = noise(rng, n, d)
    for t in range(1, n):
        values[t] = (
            correlation * values[t - 1] + math.sqrt(1 - correlation**2) * values[t]
        )
    return values


def plane(rng: Rng, d: int, directions: int = 2) -> Floats:
    """Draw ``[directions, d]`` orthonormal directions."""
    return np.asarray(np.linalg.qr(rng.standard_normal((d, directions)))[0].T)


def circles(rng: Rng, angles: Floats, d: int = 24) -> Floats:
    """Draw one circle per column of angles, all in planes of their own."""
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return np.asarray(waves @ plane(rng, d, waves.shape[1]))


def turning(rng: Rng, *periods: float, n: int = 128, spread: float = 0.1) -> Floats:
    """Draw circles of unit radius with these periods, in noise."""
    angles = 2 * np.pi * np.arange(n)[:, None] / np.array(periods)
    return circles(rng, angles) + spread * noise(rng, n)


def helix(rng: Rng, n: int = 128) -> Floats:
    """Draw a circle that moves on along a line."""
    line = np.outer(np.linspace(-2, 2, n), plane(rng, 24, 1)[0])
    return turning(rng, 24.0, n=n, spread=0.05) + line


def drifting(rng: Rng, n: int = 128) -> Floats:
    """Draw a circle whose pace doubles along the table."""
    t = np.arange(n) / n
    return circles(rng, 2 * np.pi * 6 * (t + t**2 / 2)[:, None]) + 0.1 * noise(rng, n)


def ladder(rng: Rng) -> Floats:
    """Draw a sinusoid in another basis, in noise."""
    return pp.sinusoidal(128, 24).values @ plane(rng, 24, 24) + 0.1 * noise(rng)


def line(rng: Rng, spread: float) -> Floats:
    """Draw a straight line in noise."""
    return np.outer(np.linspace(-5, 5, 128), plane(rng, 24, 1)[0]) + spread * noise(rng)


def shifted(
    rng: Rng, *, factor: float = 1.0, level: float = 0.0, first_row: int = 56
) -> Floats:
    """Draw a smooth curve that is scaled or moved from a row on."""
    values = smooth(rng, 144)
    values[first_row:] = factor * values[first_row:] + level * rng.standard_normal(24)
    return values


def special(rng: Rng, values: Floats, rows: list[int], factor: float) -> Floats:
    """Put rows of a table somewhere else, or at zero."""
    values[rows] = factor * noise(rng, len(rows))
    return values


LINES: Mapping[str, Callable[[Rng], Floats]] = {
    "noise": noise,
    "noise, heavy tails": heavy,
    "walk": walk,
    "walk, heavy tails": lambda rng: np.cumsum(heavy(rng), axis=0),
    "walk, few directions": lambda rng: walk(rng, d=4) @ plane(rng, 24, 4) + 0.1 * noise(rng),
    "decaying": decaying,
    "smooth": smooth,
    "smooth, slow": partial(smooth, length=40.0),
    "smooth, few directions": lambda rng: smooth(rng, d=3) @ plane(rng, 24, 3) + 0.1 * noise(rng),
    "1 rotation": lambda rng: turning(rng, 5.3),
    "2 rotations": lambda rng: turning(rng, 4.0, 16.0, spread=0.2),
    "3 rotations": lambda rng: turning(rng, 3.7, 10.9, 32.0),
    "rotations in a walk": lambda rng: turning(rng, 3.7, 10.9) + 0.1 * walk(rng),
    "rotation, changing pace": drifting,
    "period 2": lambda rng: turning(rng, 2.0),
    "40 rows": lambda rng: turning(rng, 5.3, 13.0, n=40),
    "ladder in noise": ladder,
    "helix": helix,
    "seam in norm": partial(shifted, factor=4.0),
    "seam in level": partial(shifted, level=6.0),
    "three parts": lambda rng: np.concatenate([turning(rng, 5.3, n=64), 4 * smooth(rng, 64),
                                               8 + noise(rng, 64)]),
    "special rows": lambda rng: special(rng, smooth(rng), [0, 70, 127], 8),
    "zero rows": lambda rng: special(rng, smooth(rng), [30, 31, 127], 0),
    "tiled": lambda rng: np.tile(walk(rng, 32), (4, 1)),
    "periodic in noise": lambda rng: np.tile(noise(rng, 16), (8, 1)) + 0.3 * noise(rng),
    "blocks": lambda rng: noise(rng, 16).repeat(8, axis=0),
    "blocks in noise": lambda rng: noise(rng, 8).repeat(16, axis=0) + 0.5 * noise(rng),
    "mirrored": lambda rng: np.concatenate([half := walk(rng, 64), half[::-1]]),
    "all equal": lambda rng: np.tile(noise(rng, 1), (96, 1)),
    "all but equal": lambda rng: noise(rng, 1) + 1e-9 * noise(rng),
    "equal part": lambda rng: np.concatenate([noise(rng, 88), np.tile(noise(rng, 1), (40, 1))]),
    "straight line": partial(line, spread=0.0),
    "line in noise": partial(line, spread=0.5),
    "growing norms": lambda rng: np.linspace(0.4, 2, 128)[:, None] * noise(rng),
    "growing curve": lambda rng: np.linspace(0.4, 2, 128)[:, None] * smooth(rng),
    "one-hot": lambda _: np.eye(64),
    "alternating": lambda rng: np.tile(noise(rng, 2), (48, 1)) + 0.01 * noise(rng, 96),
    "one column": lambda rng: smooth(rng, d=1),
    "two columns": lambda rng: walk(rng, d=2),
    "wide": lambda rng: smooth(rng, 48, 160),
    "few rows": lambda rng: walk(rng, 12, 8),
    "2 rows": lambda rng: noise(rng, 2, 8),
    "float16": lambda rng: np.asarray(turning(rng, 7.0), dtype=np.float16),
}  # fmt: skip

# Planted tables on a grid.


def codes(row_codes: Floats, column_codes: Floats, spread: float, rng: Rng) -> Floats:
    """Add a code of rows and one of columns, with noise."""
    values = (row_codes[:, None] + column_codes[None]).reshape(
        len(row_codes) * len(column_codes), -1
    )
    return np.asarray(values + spread * noise(rng, len(values), values.shape[1]))


def field(rng: Rng, height: int = 10, width: int = 10) -> Floats:
    """Draw independent columns that are smooth along both axes."""
    columns = smoothing(height, 2.5) @ noise(rng, height, width * 24)
    return np.concatenate(
        [smoothing(width, 2.5) @ column.reshape(width, 24) for column in columns]
    )


GRIDS: Mapping[str, tuple[tuple[int, int], Callable[[Rng], Floats]]] = {
    "grid of noise": ((10, 10), partial(noise, n=100)),
    "grid of codes": ((10, 10), lambda rng: codes(noise(rng, 10), noise(rng, 10), 0.5, rng)),
    "grid of smooth codes": (
        (8, 12), lambda rng: codes(walk(rng, 8), walk(rng, 12), 0.5, rng)
    ),
    "grid of rotating codes": (
        (12, 12), lambda rng: codes(turning(rng, 6.0, n=12), turning(rng, 4.0, n=12), 0.1, rng)
    ),
    "grid, smooth": ((10, 10), field),
    "grid, smooth and tall": ((20, 5), partial(field, height=20, width=5)),
    "grid with special patches": ((10, 10), lambda rng: special(rng, field(rng), [33, 99], 20)),
    "grid with zero patches": ((10, 10), lambda rng: special(rng, field(rng), [0, 45], 0)),
    "grid, a plane": ((8, 8), lambda rng: codes(line(rng, 0)[::16], line(rng, 0)[::16], 0.01, rng)),
    "grid, tiled": ((8, 8), lambda rng: np.tile(field(rng, 4, 8), (2, 1))),
    "grid, tiny": ((2, 3), partial(noise, n=6, d=8)),
    "grid, one row": ((1, 24), partial(walk, n=24)),
    "grid, constant": ((6, 6), lambda rng: np.tile(noise(rng, 1), (36, 1))),
}  # fmt: skip

FORMULAS = (
    "sinusoidal:96x32", "sinusoidal:128x64,base=100", "sincos2d:8x8x32", "sincos2d:6x10x48",
    "counting:64x8", "binary:64x8", "continuous-binary:64x8",
)  # fmt: skip
SCHEMES = ("rotary:2048x64", "rotary:4096x128,base=500000", "alibi:256x8", "t5:512x32")
REAL = ("gpt2", "deit_tiny_patch16_224")


def values_of(name: str) -> Floats:
    """Draw a planted table."""
    draw = LINES[name] if name in LINES else GRIDS[name][1]
    return draw(np.random.default_rng(crc32(name.encode())))


def planted(name: str) -> pp.PositionTable:
    """Draw a planted table with its layout."""
    return pp.table(
        values_of(name), grid=GRIDS[name][0] if name in GRIDS else None, name=name
    )


def analysis(table: pp.PositionTable, **options: Any) -> Document:
    """Analyse a table, without surrogates unless asked for."""
    return pp.analyze(table, **{"nulls": 0, "device": "cpu", **options}).to_dict()


# References without a table.


def scheme(kind: str) -> Any:
    """Make an encoding without a table: biases that fall with distance, turned pairs, slopes."""
    source = pp.sources.Source(reference=kind, resolved="made")
    rng = np.random.default_rng(crc32(kind.encode()))
    offsets = np.arange(-128, 129)
    y, x = np.mgrid[-6:7, -6:7]
    window = np.exp(-(x**2 + y**2) / 8) + 0.2 * rng.standard_normal((3, 13, 13))
    bucket = pp.encodings.t5_buckets(offsets, bidirectional=kind != "T5, causal")
    exact_bucket = np.minimum(bucket, bucket % 16) if kind == "T5" else bucket
    steps = (
        0.1 * rng.standard_normal((4, 32))[:, bucket]
        - 0.2 * np.arange(1, 5)[:, None] * exact_bucket
    )
    length = pp.layouts.Sequence(200)
    match kind:
        case "T5" | "T5, causal":
            return pp.schemes.RelativeBias(
                steps, length, kind, source, causal=kind != "T5"
            )
        case "Shaw":
            cosines = np.exp(-np.abs(offsets) / 30) * rng.uniform(0.8, 1, (4, 257))
            return pp.schemes.RelativeBias(
                cosines, length, kind, source, quantity="cosine"
            )
        case "Swin":
            return pp.schemes.RelativeBias(window, pp.layouts.Grid(7, 7), kind, source)
        case "BEiT":
            tokens = {"CLS to patches": rng.standard_normal(3)}
            return pp.schemes.RelativeBias(
                window, pp.layouts.Grid(7, 7), kind, source, special=tokens
            )
        case "noise by distance":
            return pp.schemes.RelativeBias(
                rng.standard_normal((4, 65)), length, kind, source
            )
        case "ALiBi":
            return pp.schemes.LinearBias(
                pp.encodings.alibi_slopes(8), kind, source, max_positions=300
            )
        case "rotary, yarn":
            rule: dict[str, Any] = {"rope_type": "yarn", "factor": 2.0}
            rule["original_max_position_embeddings"] = 2048
            return pp.schemes.Rotary(
                64, kind, source, scaling=rule, max_positions=4096, training_length=2048
            )
        case "rotary, part":
            return pp.schemes.Rotary(32, kind, source, partial=0.5, max_positions=512)
        case "rotary, 2-D":
            return pp.schemes.Rotary(
                64, kind, source, axes=2, base=100.0, max_positions=256
            )
        case _:
            return pp.schemes.Rotary(
                64, kind, source, max_positions=2048, training_length=2048
            )


KINDS = (
    "T5", "T5, causal", "Shaw", "Swin", "BEiT", "noise by distance", "ALiBi", "rotary, yarn",
    "rotary, part", "rotary, 2-D",
)  # fmt: skip


def model(measurement: str) -> Document:
    """Run a tiny GPT-2 with planted positions, or analyse its table beside its tokens."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    logs: Any = transformers.utils.logging
    logs.disable_progress_bar()
    config = transformers.GPT2Config(
        n_embd=24, n_layer=2, n_head=3, vocab_size=50, n_positions=32, initializer_range=0.3,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    gpt2 = transformers.GPT2LMHeadModel(config)
    planted = turning(np.random.default_rng(0), 4.0, 16.0, n=32)
    gpt2.transformer.wpe.weight.data = torch.from_numpy(planted).float()
    with TemporaryDirectory() as folder:
        gpt2.save_pretrained(folder)
        if measurement == "tokens":
            table = pp.load(folder)
            return analysis(table, tokens=pp.load_tokens(table))
        contexts = pp.Contexts(count=12, length=24)
        requested = None if measurement == "run" else (measurement,)
        run = pp.analyze_model(folder, contexts, only=requested, nulls=3, device="cpu")
        return run.to_dict()


def image_model() -> Document:
    """Run a bundled model on random pixels."""
    contexts = pp.Contexts(count=12)
    return pp.analyze_model(
        "sample:digits-vit", contexts, nulls=3, device="cpu"
    ).to_dict()


def resized(subject: Any, size: int | tuple[int, int]) -> Document:
    """Compare ways of resizing a table, or rules of scaling rotary positions."""
    from posprobe.studies.resizing import compare

    return compare(subject, to=size).to_dict()


def schemes(*records: Any) -> Document:
    """Analyse encodings without a table."""
    return pp.studies.analyze_schemes(*records).to_dict()


def tables(*names: str) -> Document:
    """Compare planted tables."""
    return dict(pp.compare(*map(planted, names), nulls=3, device="cpu").to_dict())


def kernels(*records: Any) -> Document:
    """Compare encodings of any kind."""
    return dict(pp.compare_kernels(*records).to_dict())


STUDIES: Mapping[str, Callable[[], Document]] = {
    "3 rotations, null tables": lambda: analysis(planted("3 rotations"), nulls=3),
    "grid of codes, null tables": lambda: analysis(planted("grid of codes"), nulls=3),
    "smooth, all analyses": lambda: analysis(planted("smooth"), only=("all",)),
    "grid, smooth, all analyses": lambda: analysis(
        planted("grid, smooth"), only=("all",)
    ),
    "three parts, all rows": lambda: analysis(planted("three parts"), all_rows=True),
    "several encodings": lambda: schemes(*map(scheme, ("T5", "rotary", "ALiBi"))),
    "three tables": lambda: tables("3 rotations", "walk", "40 rows"),
    "grids and a line": lambda: tables("grid, smooth", "grid of codes", "noise"),
    "two encodings": lambda: kernels(scheme("T5"), scheme("ALiBi")),
    "a table and an encoding": lambda: kernels(pp.sinusoidal(200, 32), scheme("rotary")),
    "two windows": lambda: kernels(scheme("Swin"), scheme("BEiT")),
    "longer": lambda: resized(planted("helix"), 192),
    "larger grid": lambda: resized(planted("grid of smooth codes"), (12, 18)),
    "longer rotations": lambda: resized((scheme("rotary"),), 8192),
    "tokens of a model": lambda: model("tokens"),
    "model": lambda: model("run"),
    "model, substitution": lambda: model("substitution"),
    "model of images": image_model,
}


def names_of(real: Path | None) -> list[str]:
    """Return the names of all references."""
    from posprobe.samples import tables as shipped

    loaded = [f"sample:{sample.name}" for sample in shipped()] + [*FORMULAS]
    loaded += [f"real:{name}" for name in REAL] if real else []
    return [*loaded, *LINES, *GRIDS, *SCHEMES, *KINDS, *STUDIES]


def document(name: str, real: Path | None) -> Document:
    """Make the document of a reference."""
    if name in STUDIES:
        return STUDIES[name]()
    if name in LINES or name in GRIDS:
        return analysis(planted(name))
    if name in KINDS:
        return schemes(scheme(name))
    if name in SCHEMES:
        return schemes(*pp.load_schemes(name))
    kind, _, place = name.partition(":")
    return analysis(pp.load(str((real or Path()) / place) if kind == "real" else name))


# Recording and comparing.


def kept(value: Any) -> Any:
    """Return what is recorded of a document: no texts; answers by their question."""
    if isinstance(value, dict):
        return {
            key: dict.fromkeys(entry, True)
            if key in REASON_KEYS and isinstance(entry, dict)
            else kept(entry)
            for key, entry in value.items()
            if key not in TEXTS
        }
    if isinstance(value, list):
        questions = [entry.get("question") for entry in value if isinstance(entry, dict)]
        if value and len(set(questions) - {None}) == len(value):
            answers = [
                {k: v for k, v in entry.items() if k != "question"} for entry in value
            ]
            return dict(zip(questions, map(kept, answers), strict=True))
        return [kept(entry) for entry in value]
    return value


def measured(name: str, real: Path | None) -> Document:
    """Return what is recorded of a reference, and the seconds that it took."""
    begin = time.perf_counter()
    recorded = kept(json.loads(json.dumps(document(name, real))))
    return {"seconds": round(time.perf_counter() - begin, 2), "document": recorded}


def run(
    names: list[str], real: Path | None, jobs: int
) -> Iterator[tuple[str, Future[Document]]]:
    """Measure references in other processes, each with one thread, so that sums have one order."""
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        started = {pool.submit(measured, name, real): name for name in names}
        for future in as_completed(started):
            yield started[future], future


def turned(value: Any) -> Any:
    """Turn an answer from yes to no and from no to yes, or those of several tables."""
    if isinstance(value, dict):
        return {key: turned(entry) for key, entry in value.items()}
    return (
        {"yes": "no", "no": "yes"}.get(value, value) if isinstance(value, str) else value
    )


def not_asked(old: Any, on_grid: bool) -> bool:
    """Tell whether this is the answer of a question that does not apply there."""
    if on_grid and isinstance(old, dict) and not old.get("value"):
        old = old.get("answer")
    return bool(old == "cannot tell")


def translated(old: Any, new: Any, on_grid: bool = False) -> Any:
    """Return what was recorded as the new document spells it, where its spelling is known.

    The question whether a table is stationary became the one whether it holds absolute positions;
    keys of `LEAVING` may be gone, and questions of lines on grids, which could not be told.
    """
    if isinstance(old, list) and isinstance(new, list):
        entries = [translated(*pair, on_grid) for pair in zip(old, new, strict=False)]
        return entries + old[len(entries) :]
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old
    if isinstance(old.get("table"), dict):
        on_grid = old["table"]["layout"]["type"] == "grid"
    if "stationary" in old and "absolute_position" in new:
        old = {**old, "absolute_position": turned(old["stationary"])}
        del old["stationary"]
    return {
        key: translated(value, new.get(key), on_grid)
        for key, value in old.items()
        if key in new or not (key in LEAVING or not_asked(value, on_grid))
    }


def differences(
    old: Any, new: Any, tolerance: float, path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the key paths at which two documents differ; what is new is ``GONE`` in the old one."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            pair = old.get(key, GONE), new.get(key, GONE)
            yield from differences(*pair, tolerance, f"{path}.{key}".lstrip("."))
    elif not same(old, new, tolerance):
        yield path, old, new


def same(old: Any, new: Any, tolerance: float) -> bool:
    """Tell whether two values are equal, numbers within a tolerance."""
    numbers = [type(number) in (int, float) for number in (old, new)]
    if not all(numbers):
        return type(old) is type(new) and bool(old == new)
    return math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance)


def chosen(options: argparse.Namespace) -> list[str]:
    """Return the names of the references that were asked for."""
    if options.real is None:
        print(f"Skipped without --real: {', '.join(REAL)}.")
    return [name for name in names_of(options.real) if matches(options.only, name)]


def matches(patterns: list[str], *names: str) -> bool:
    """Tell whether any of the names is like any of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def record(options: argparse.Namespace) -> int:
    """Record every reference in a file."""
    records = {
        name: future.result()
        for name, future in run(chosen(options), options.real, options.jobs)
    }
    options.file.write_bytes(
        gzip.compress(json.dumps(dict(sorted(records.items()))).encode(), mtime=0)
    )
    slow = sorted(records, key=lambda name: -records[name]["seconds"])
    total = sum(entry["seconds"] for entry in records.values())
    print(f"{len(records)} references in {total:.0f} s of work. The slowest:")
    print("\n".join(f"  {records[name]['seconds']:6.1f} s  {name}" for name in slow[:8]))
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print what differs from a file; 1 where anything does."""
    recorded = json.loads(gzip.decompress(options.file.read_bytes()))
    names = chosen(options)
    if unrecorded := sorted(set(names) - set(recorded)):
        print(f"Not recorded: {', '.join(unrecorded)}.")
    count = new_keys = ignored = 0
    for name, future in run(
        [n for n in names if n in recorded], options.real, options.jobs
    ):
        if error := future.exception():
            print(f"{name}: {type(error).__name__}: {error}")
            count += 1
            continue
        old, new = recorded[name]["document"], future.result()["document"]
        for path, old_value, new_value in differences(
            translated(old, new), new, options.tolerance
        ):
            if old_value is GONE:
                new_keys += 1
            elif matches(options.ignore, path, f"{name}:{path}"):
                ignored += 1
            else:
                count += 1
                old_text, new_text = (json.dumps(v)[:200] for v in (old_value, new_value))
                print(f"{name}: {path}: {old_text} -> {new_text}")
    print(f"{count} differences, {ignored} ignored, {new_keys} keys are new.")
    return int(count > 0)


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("file", type=Path, help="FILE.json.gz")
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="NAME", help="or patterns"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--real", type=Path, default=os.environ.get("POSPROBE_REAL"),
                        help=f"folder with {' and '.join(REAL)}; or $POSPROBE_REAL")  # fmt: skip
    parser.add_argument("--ignore", action="append", default=[], metavar="PATTERN",
                        help="key paths, or NAME:PATH, that may differ")  # fmt: skip
    parser.add_argument(
        "--tolerance", type=float, default=1e-12, help="relative and absolute"
    )
    options = parser.parse_args()
    return record(options) if options.command == "record" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
