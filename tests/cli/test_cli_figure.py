"""``posprobe figure``: a file and a caption, or one clear error and nothing written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from made_cli import Cli, cli
from made_tables import walk
from safetensors.numpy import save_file

from posprobe.figures.styles import venues

__all__ = ["cli"]

Figure: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def figure(cli: Cli) -> Figure:
    """Run ``posprobe figure`` and return the exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        completed = cli("figure", *arguments)
        return completed.code, completed.out, completed.err

    return run


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_figure_is_written_and_its_caption_printed(
    figure: Figure, tmp_path: Path
) -> None:
    code, stdout, err = figure(
        "profile", "sinusoidal:64x16", "-o", "f.pdf", "--venue", "icml"
    )
    assert code == 0, err
    assert names_in(tmp_path) == {"f.pdf", "f.caption.txt"}
    assert stdout == (tmp_path / "f.caption.txt").read_text(encoding="utf-8")
    assert "n = 64" in stdout
    assert "sinusoidal:64x16: fixed table" in err
    assert re.search(r"^Figure  f\.pdf \(3\.25 x [\d.]+ in\)$", err, re.MULTILINE)
    assert err.endswith("Caption f.caption.txt\n")
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+)", (tmp_path / "f.pdf").read_bytes())
    assert float(box) == pytest.approx(3.25 * 72, abs=0.01)


def test_quiet_prints_the_caption_alone(figure: Figure) -> None:
    code, stdout, err = figure("norms", "sinusoidal:64x16", "-o", "f.svg", "--quiet")
    assert (code, err) == (0, "")
    assert stdout.startswith("Euclidean norm")


def test_several_tables_and_a_formula_that_takes_the_first_ones_shape(
    figure: Figure, tmp_path: Path
) -> None:
    np.save(tmp_path / "walk.npy", walk(50, 8))
    refs = ("walk.npy", "sinusoidal")
    code, stdout, err = figure("comparison", *refs, "-o", "f.pdf", "--span", "page")
    assert code == 0, err
    assert "sinusoidal:50x8" in stdout
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+)", (tmp_path / "f.pdf").read_bytes())
    assert float(box) / 72 == pytest.approx(16 / 2.54, abs=1e-3)


def test_references_are_called_by_their_labels(figure: Figure, tmp_path: Path) -> None:
    np.save(tmp_path / "a=b.npy", walk(50, 8))
    refs = ("a=b.npy", "sinusoidal", "rotary:64x8,base=500")
    labels = ("--label", "a=b.npy=Ours = 1", "--label", "sinusoidal=sinusoid")
    code, stdout, err = figure("similarity", *refs[:2], *labels, "-o", "f.svg", "--raw")
    assert code == 0, err
    assert "Ours = 1: learned table" in stdout
    assert "sinusoid: fixed table" in stdout
    svg = (tmp_path / "f.svg").read_text(encoding="utf-8")
    assert ">Ours = 1<" in svg
    code, stdout, err = figure(
        "heads", refs[2], "--label", f"{refs[2]}=RoPE", "-o", "g.svg"
    )
    assert code == 0, err
    assert "RoPE: " in stdout
    for bad_label in ("b=Ours", "a=b.npy=", "a=b.npy"):
        code, _, err = figure(
            "similarity", "a=b.npy", "--label", bad_label, "-o", "h.svg"
        )
        assert code == 2
        assert "expected REF=LABEL" in err


def test_a_label_may_name_a_reference_as_the_output_does(
    figure: Figure, tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "t.npy", walk(50, 8))
    np.save(tmp_path / "one/u.npy", walk(50, 8))
    options = ("--label", "u.npy=Mine", "-o", "f.svg")
    code, stdout, err = figure("similarity", "one/t.npy", "one/u.npy", *options)
    assert code == 0, err
    assert "Mine: learned table" in stdout
    options = ("--label", "t.npy=Mine", "-o", "f.svg")  # the name of both
    code, _, err = figure("similarity", "one/t.npy", "two/t.npy", *options)
    assert (code, "expected REF=LABEL" in err) == (2, True)


@pytest.mark.parametrize(
    ("ref", "caption"), [("rotary:256x32", "rotary"), ("alibi:128x4", "4 heads")]
)
def test_encodings_without_a_table_are_drawn_as_heads(
    ref: str, caption: str, figure: Figure
) -> None:
    code, stdout, err = figure("heads", ref, "-o", "f.png", "--rows", "0:64")
    assert code == 0, err
    assert caption in stdout


def test_tensor_and_rows_are_those_of_the_other_commands(
    figure: Figure, tmp_path: Path
) -> None:
    save_file(
        {"odd.name": walk(40, 6).astype(np.float32)}, tmp_path / "model.safetensors"
    )
    code, stdout, err = figure(
        "table",
        "model.safetensors",
        "--tensor",
        "odd.name",
        "--rows",
        "5:30",
        "-o",
        "f.svg",
    )
    assert code == 0, err
    assert "positions 5 to 29" in stdout
    assert "odd.name (F32)" in stdout


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (
            ["pie", "sinusoidal:16x8", "-o", "f.pdf"],
            "Choose one of budget, clock, mosaic",
        ),
        (["profile", "sinusoidal:16x8", "-o", "f.gif"], ".pdf, .svg or .png"),
        (["profile", "sinusoidal:16x8", "-o", "no/f.pdf"], "no folder"),
        (
            ["profile", "sinusoidal:16x8", "-o", "f.pdf", "--venue", "mind"],
            "Choose one of acl",
        ),
        *(
            (
                ["series", "sweep", "-o", "f.pdf", *option],
                "series takes --venue and --span only",
            )
            for option in (["--seed", "1"], ["--grid", "2x2"])
        ),
        (
            [
                "profile",
                "sinusoidal:16x8",
                "sinusoidal:16x4",
                "-o",
                "f.pdf",
                "--tensor",
                "x",
            ],
            "one reference",
        ),
    ],
)
def test_an_impossible_figure_is_one_clear_error(
    arguments: list[str], phrase: str, figure: Figure, tmp_path: Path
) -> None:
    code, stdout, err = figure(*arguments, "--quiet")
    assert (code, stdout) == (2, "")
    assert err.startswith("posprobe: ")
    assert err.count("\n") == 1
    assert phrase in err
    assert names_in(tmp_path) == set()


def test_the_request_is_checked_before_anything_is_fetched(figure: Figure) -> None:
    code, _, err = figure("profile", "no/such-repository", "-o", "f.gif", "--offline")
    assert code == 2
    assert ".pdf, .svg or .png" in err


def test_the_help_names_every_venue() -> None:
    texts = json.loads((files("posprobe") / "cli/options.json").read_bytes())["figure"]
    venue_names = texts["venue"]["help"].partition(": ")[2].rstrip(".")
    assert re.split(r", | or ", venue_names) == list(venues())
