"""Training runs in a sweep: which rows are steps of one, what changes when, and what is drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_cli import Cli, CommandRun, cli

import posprobe as pp
from posprobe.analyses.breaks.history import AnswerHistory, SeamHistory
from posprobe.relations.fingerprints import MAX_RELATED_DISTANCE, fingerprint, likeness
from posprobe.studies.series import Series
from posprobe.sweeps import search

__all__ = ["cli"]

SERIES_FOLDER = Path(__file__).parents[1] / "data" / "series"
QUICK: dict[str, Any] = {"jobs": 1}
STEPS = (0, 10, 20, 40, 80, 160)


def save_run(folder: Path, seed: int = 0) -> Path:
    """Save tables that turn from noise into the sinusoid: by how much is known."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(seed).normal(size=(48, 16)) / np.sqrt(2)
    wave = pp.sinusoidal(48, 16).values
    for step in STEPS:
        np.save(folder / f"step-{step}.npy", noise + step / 10 * wave)
    return folder


def made(**parts: Any) -> Series:
    empty: dict[str, Any] = {key: {} for key in ("numbers", "sinusoid")}
    start = {
        "name": "x",
        "steps": (0, 1, 2, 3),
        "path": {},
        "answers": {},
        "seams": (None,) * 4,
    }
    return Series(**{**start, **empty, **parts})


def test_steps_are_in_order_and_the_way_is_that_of_the_tables(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "mine")
    sweep = pp.sweep(str(folder), only=["sinusoid", "similarity"], **QUICK).run()
    (run,) = pp.series(sweep.folder)
    assert (run.name, run.steps) == ("mine", STEPS)
    tables = [np.load(folder / f"step-{step}.npy") for step in STEPS]
    for name, other in (("first", tables[0]), ("last", tables[-1])):
        exact = [
            np.linalg.norm(table - other) / np.linalg.norm(other) for table in tables
        ]
        assert run.path[name] == pytest.approx(exact, rel=2e-3, abs=1e-3)
    rows = {row["reference"]: row for row in sweep.to_arrow().to_pylist()}
    step_rows = [rows[str(folder / f"step-{step}.npy")] for step in STEPS]
    assert run.path["sinusoid"] == tuple(1 - row["sinusoid.cka"] for row in step_rows)
    key = "similarity.centered.neighbour_mean"
    assert run.numbers[key] == tuple(row[key] for row in step_rows)
    assert run.sinusoid[key] == tuple(row[f"{key}.sinusoid"] for row in step_rows)
    # Order comes out of noise.
    assert abs(run.numbers[key][0] or 0) < 0.2 < 0.6 < (run.numbers[key][-1] or 0)
    # Its steps are one lineage.
    assert set(sweep.to_arrow()["lineage"].to_pylist()) == {str(folder / "step-0.npy")}
    page = (sweep.folder / "atlas.html").read_text(encoding="utf-8")
    assert "Training run: mine" in page
    assert page.count("<td>step-0.npy</td>") == len(STEPS)
    assert page.count("data:image/svg") == 1


def test_lists_name_runs_and_steps(tmp_path: Path) -> None:
    tables = {}
    for k in range(8):
        tables[k] = str(tmp_path / f"table{k}.npy")
        np.save(tables[k], np.random.default_rng(k).normal(size=(12, 4)))
    references: list[dict[str, Any]] = [
        {"reference": tables[k], "run": "ab"[k % 2], "step": step}
        for k, step in enumerate((30, 1, 20, 2, 10, 3, 10))
    ]
    references.append({"reference": tables[7], "run": "a"})  # it has no step
    sweep = pp.sweep(references, only=["norms"], nulls=0, **QUICK).run()
    runs_by_name = {run.name: run for run in pp.series(sweep.folder)}
    assert {name: run.steps for name, run in runs_by_name.items()} == {
        "a": (10, 20, 30),
        "b": (1, 2, 3),
    }
    assert not runs_by_name["a"].answers
    # Without three steps there is no run, nor of encodings without a table.
    short_sweep = pp.sweep([tables[0], tables[1]], only=["norms"], nulls=0, **QUICK).run()
    assert pp.series(short_sweep.folder) == ()


@pytest.mark.parametrize(
    ("reference", "commit", "resolved", "expected"),
    [
        ("a/checkpoint-400", None, "/runs/a/checkpoint-400", ("/runs/a", 400)),
        ("a/step-7.safetensors#x", None, "/v2/step-7.safetensors", ("/v2", 7)),
        ("o/model@step3000", "abc", "o/model", ("o/model", 3000)),
        ("o/model@step3000#decoder", "abc", "o/model", ("o/model", 3000)),
        ("o/model-v2", "abc", "o/model-v2", ("o/model-v2", None)),
        ("a/final-2", None, "/runs/a/final-2", ("/runs/a", None)),
    ],
)
def test_steps_and_runs_are_read_off_references(
    reference: str, commit: str | None, resolved: str, expected: tuple[str, int | None]
) -> None:
    row = {"reference": reference, "commit": commit, "resolved": resolved}
    assert (search._split_reference(row)[0], search._row_step(row)) == expected


def test_a_change_names_the_steps_around_it() -> None:
    answers = {
        "order": ("no", "no", "yes", "yes"), "smooth": ("no", "cannot tell", "no", "yes"),
        "rotations": ("yes",) * 4, "seams": (None, None, "no", None),
    }  # fmt: skip
    assert made(answers=answers).history == (
        AnswerHistory("order", "no", 1, "yes", 2, last=False, earlier=0),
        AnswerHistory("smooth", "no", 2, "yes", 3, last=True, earlier=2),
    )


def save_seam_run(folder: Path) -> Path:
    """Save a walk in which a seam at 64 is planted from step 20 on, and at 96 from 20 to 40."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(128, 16)), axis=0)
    for step in STEPS:
        table = walk + 0.01 * step * rng.normal(size=(128, 16))
        table[64:] += 40.0 * (step >= 20)
        table[96:] += 40.0 * (20 <= step <= 40)
        np.save(folder / f"step-{step}.npy", table)
    return folder


def test_a_planted_seam_has_its_row_and_step(tmp_path: Path) -> None:
    folder = save_seam_run(tmp_path / "mine")
    sweep = pp.sweep(str(folder), only=["norms"], nulls=0, **QUICK).run()
    # Other measurements look for seams with the verdict only, which was not asked for.
    assert pp.series(sweep.folder)[0].seams == (None,) * len(STEPS)
    sweep = pp.sweep(str(folder), only=["seams"], nulls=0, **QUICK).run()
    (run,) = pp.series(sweep.folder)
    assert run.seams == ([], [], [64, 96], [64, 96], [64], [64])
    assert run.history == (
        SeamHistory(63, 20, 0, None, None, earlier=0, step=20, last=False),
        SeamHistory(95, 20, 0, None, 80, earlier=0, step=80, last=False),
    )
    changes = run.changes
    assert len(changes) == 2
    assert all(text in run.figure().caption for text in changes)
    page = (sweep.folder / "atlas.html").read_text(encoding="utf-8")
    assert all(text in page for text in changes)
    rows = (sweep.folder / "sweep.csv").read_text(encoding="utf-8").splitlines()
    assert sum(",64 96," in row for row in rows) == 2


def moving(
    left_row: int, step: int, *, appears: int | None = None, moves: int = 0,
    last_move: tuple[int, int] | None = None, gone: int | None = None, earlier: int = 0,
) -> SeamHistory:  # fmt: skip
    """A seam in a run whose last step is 3."""
    return SeamHistory(
        left_row, appears, moves, last_move, gone, earlier, step, last=step == 3
    )


@pytest.mark.parametrize(
    ("seams", "expected"),
    [
        # Nothing changes, or a seam shows at one step alone.
        (([8], [8], [8], [8]), ()),
        (([], [8], [], []), ()),
        ((None, [8], [8], None), ()),
        (([], [], [], [8]), (moving(7, 3, appears=3),)),
        (([8], [8], [], []), (moving(7, 2, gone=2),)),
        (([8], [8], [8], []), (moving(7, 3, gone=3),)),
        (([8], [8], [10], [10]), (moving(7, 2, moves=1, last_move=(2, 9)),)),
        (([8], [8], [9], [11]), (moving(7, 3, moves=2, last_move=(3, 10)),)),
        (([8], [], [8], [8]), (moving(7, 2, appears=2, earlier=1),)),
        # Two seams near each other are two, each with the nearest one of the step before.
        (
            ([8, 11], [8, 11], [7, 11], [7, 11]),
            (moving(7, 2, moves=1, last_move=(2, 6)),),
        ),
        # Further apart than a few rows it is another seam.
        (([8], [8], [20], [20]), (moving(7, 2, gone=2), moving(19, 2, appears=2))),
    ],
)
def test_seams_are_followed_from_step_to_step(
    seams: tuple[list[int] | None, ...], expected: tuple[SeamHistory, ...]
) -> None:
    assert made(seams=seams).history == expected


def test_the_command_draws_a_run(cli: Cli, tmp_path: Path) -> None:
    save_run(tmp_path / "runs" / "a")
    save_run(tmp_path / "runs" / "b", seed=1)
    sweep_folder = tmp_path / "s"
    pp.sweep(
        str(tmp_path / "runs"), only=["norms"], nulls=0, out=sweep_folder, **QUICK
    ).run()
    target = tmp_path / "run.svg"

    def run(*words: str) -> CommandRun:
        return cli("figure", "series", *words, "-o", str(target), "--quiet")

    ambiguous = run(str(sweep_folder))
    assert ambiguous.code == 2
    assert (
        f"choose one of its training runs: {sweep_folder}#a, {sweep_folder}#b"
        in ambiguous.err
    )
    assert run(f"{sweep_folder}#b", "--columns", "2").code == 2
    assert run(str(tmp_path)).code == 3
    completed = run(f"{sweep_folder}#b")
    assert completed.code == 0
    assert completed.out.startswith("b: ")
    assert "6 steps of training, 0 to 160." in completed.out
    svg = target.read_text(encoding="utf-8")
    assert "distance from the last" in svg
    # Ticks are whole numbers, since no text here is a formula.
    assert re.search(r">\s*100\s*<", svg)
    assert "math" not in svg


def test_a_figure_of_a_run_fits_a_column_and_asks_as_its_caption_does(
    tmp_path: Path,
) -> None:
    save_run(tmp_path / "a")
    sweep = pp.sweep(str(tmp_path / "a"), nulls=0, **QUICK).run()
    (run,) = pp.series(sweep.folder)
    figure = pp.paper_figure("series", run)
    assert figure.figure.get_figheight() < 4.5
    labels = [label.get_text() for label in figure.figure.axes[-1].get_yticklabels()]
    assert "Order matters?" in labels
    assert "a: its position table [48 × 16] at 6 steps" in figure.caption
    assert "step-0" in figure.source
    assert "step-160" in figure.source
    assert "step-160.npy" not in figure.caption


def test_order_emerges_from_noise_in_a_real_training() -> None:
    name = "help-gpt2"
    sweep = pp.sweep(str(SERIES_FOLDER / name), only=["similarity", "pca"], **QUICK).run()
    (run,) = pp.series(sweep.folder)
    assert (run.name, len(run.steps), run.steps[0], run.steps[-1]) == (name, 24, 0, 1000)
    assert sweep.to_arrow()["positions"].to_pylist() == [80] * 24
    neighbour_means = run.numbers["similarity.centered.neighbour_mean"]
    noise = pp.analyze(
        pp.load(f"{SERIES_FOLDER / name}/step-0.safetensors"),
        only=["similarity"],
        nulls=5,
    )
    band = noise.nulls["numbers"]["similarity.centered.neighbour_mean"]["gaussian"]
    is_noise_like = [
        band["p5"] - 0.03 < (value or 0) < band["p95"] + 0.03 for value in neighbour_means
    ]
    # As random rows at first, and from some step on never again.
    assert is_noise_like[:3] == [True] * 3
    assert is_noise_like == sorted(is_noise_like, reverse=True)
    assert (neighbour_means[-1] or 0) > 0.5
    dimensions = run.numbers["pca.participation_ratio"]
    assert (dimensions[-1] or 0) < 0.3 * (dimensions[0] or 0)
    # Step by step nearer to the last table, and further from the first.
    last, first = (np.array(run.path[name], dtype=float) for name in ("last", "first"))
    assert (np.diff(last) < 0.02).all()
    assert (np.diff(first) > -0.02).all()
    first_row, *_, last_row = sweep.to_arrow()["lineage"].to_pylist()
    assert first_row == last_row


def test_a_training_from_another_start_has_the_structure_and_is_unrelated() -> None:
    steps = sorted((SERIES_FOLDER / "help-gpt2").glob("*.safetensors"))
    (other_path,) = (SERIES_FOLDER / "help-gpt2-seed-1").glob("*.safetensors")
    other_table = pp.load(str(other_path))
    assert (pp.similarity(other_table).centered.neighbour_mean or 0) > 0.8
    print_of_theirs = fingerprint(other_table)
    assert len(steps) == 24
    for step in steps:
        assert not likeness(print_of_theirs, fingerprint(pp.load(str(step)))).related
    # The same start is seen, though the sample was trained six times as long.
    digits = pp.load(str(SERIES_FOLDER / "digits-vit" / "step-1000.safetensors"))
    match = pp.nearest(digits).matches[0]
    assert (match.name, match.likeness.related) == ("digits-vit", True)
    assert (match.likeness.distance or 0) > MAX_RELATED_DISTANCE
