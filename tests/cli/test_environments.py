"""Surroundings: memory and files that run out, encodings, streams on a full disk, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from limits import Limits, posprobe
from made_cli import Cli, assert_one_clear_error, cli

from posprobe.errors import OUT_OF_MEMORY_EXIT_CODE, UsageError

__all__ = ["cli"]

MAIN = [sys.executable, "-m", "posprobe"]
PATCHES = ["analyze", "sincos2d:4x4x16", "--only", "norms", "--nulls", "0"]
ROWS = ["analyze", "sinusoidal:12x4", "--only", "norms", "--nulls", "0"]
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def run(
    *arguments: str, cwd: Path, python: str = "-B", **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LANG", "LC_ALL")
    }
    return subprocess.run(
        [MAIN[0], python, *MAIN[1:], *arguments],
        cwd=cwd,
        env=inherited | environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def test_an_encoding_that_lacks_letters_gets_escapes(tmp_path: Path) -> None:
    completed = run("families", cwd=tmp_path, **ASCII)
    assert completed.returncode == 0, completed.stderr
    printed = run(*PATCHES, "--json", "--quiet", cwd=tmp_path, **ASCII)
    saved = (tmp_path / "reports" / "sincos2d-4x4x16" / "analysis.json").read_text(
        "utf-8"
    )
    assert json.loads(printed.stdout) == json.loads(saved)
    figure_run = run("figure", "norms", "größe.npy", "-o", "f.pdf", cwd=tmp_path, **ASCII)
    assert figure_run.returncode == 3
    assert "bug" not in figure_run.stderr


def test_neither_a_display_nor_assertions_and_docstrings_are_needed(
    tmp_path: Path,
) -> None:
    completed = run(*ROWS, cwd=tmp_path, python="-OO", MPLBACKEND="nonsense")
    assert completed.returncode == 0, completed.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("streams", ["stdout", "stderr"])
def test_streams_on_a_full_disk(streams: str, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full_device:
        stdout, err = (full_device if streams == name else subprocess.PIPE
                    for name in ("stdout", "stderr"))  # fmt: skip
        completed = subprocess.run(
            [*MAIN, *ROWS],
            cwd=tmp_path,
            stdout=stdout,
            stderr=err,
            text=True,
            check=False,
        )
        if streams == "stderr":
            failed = subprocess.run(
                [*MAIN, "analyze", "./none"], cwd=tmp_path, stderr=err
            )
            assert failed.returncode == 3
    # Without talk the work is done; without room for the results it is not.
    assert completed.returncode == (0 if streams == "stderr" else 2)
    if streams == "stdout":
        assert "cannot be written (No space left on device)" in completed.stderr
        assert "Exception ignored" not in completed.stderr


@pytest.mark.parametrize("closed", ["1", "2"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    command = f'"$@" {closed}>&-'
    completed = subprocess.run(
        ["sh", "-c", command, "sh", *MAIN, *ROWS, "--out", "b"], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "b" / "report.html").exists()


@pytest.mark.parametrize(
    ("raised", "sign"),
    [
        ("KeyboardInterrupt", signal.SIGINT),
        ("ImportError('x')", signal.SIGTERM),
        ("None", signal.SIGINT),
    ],
)
def test_a_signal_ends_with_its_code_whatever_a_library_makes_of_it(
    raised: str, sign: signal.Signals, tmp_path: Path
) -> None:
    # A library at work turns the interrupt into an error of its own, or loses it in a callback.
    code = f"""
import os, posprobe.cli
from posprobe.families import read
load = read.load
def loaded(*given, **named):
    try:
        os.kill(os.getpid(), {int(sign)})
        while True: pass
    except BaseException:
        if {raised} is not None: raise {raised}
    return load(*given, **named)
read.load = loaded
posprobe.cli.main()
"""
    completed = subprocess.run(
        [sys.executable, "-c", code, *ROWS, "--out", "b"], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 128 + sign, completed.stderr
    assert "Traceback" not in completed.stderr
    assert "bug" not in completed.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"b"}


def test_too_many_rows_are_refused_before_conversion(
    tmp_path: Path,
) -> None:
    with (tmp_path / "t.npy").open("wb") as file:
        shape, width = (2**18, 512), 4  # 512 MiB, of which the file holds nothing
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + shape[0] * shape[1] * width)
    # As float64 the numbers would take 1 GiB; whether each is finite takes an eighth of one.
    completed = posprobe(
        "analyze", "t.npy", "--quiet", cwd=tmp_path, limits=Limits(memory=2**29)
    )
    assert_one_clear_error(completed, 4)
    assert "262144 positions" in completed.err


def test_out_of_memory_has_its_own_exit_code(tmp_path: Path) -> None:
    completed = posprobe(
        "analyze", "sinusoidal:20000x1000", "--quiet", cwd=tmp_path,
        limits=Limits(memory=300 * 2**20),
    )  # fmt: skip
    assert_one_clear_error(completed, OUT_OF_MEMORY_EXIT_CODE)
    assert "out of memory" in completed.err


@pytest.mark.parametrize("files", [5, 7])
def test_out_of_file_descriptors_no_file_is_left(files: int, tmp_path: Path) -> None:
    words = (
        "analyze",
        "sinusoidal:16x4",
        "--only",
        "norms",
        "--nulls",
        "0",
        "--out",
        "b",
    )
    completed = posprobe(*words, "--quiet", cwd=tmp_path, limits=Limits(files=files))
    remaining = [path.name for path in tmp_path.iterdir()]
    assert remaining == (["b"] if completed.code == 0 else [])


@pytest.mark.parametrize(
    "words", ["analyze sample:digits-vit --only norms", "sweep rotary:64x8"]
)
def test_a_working_directory_that_was_deleted_is_no_bug(
    words: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert_one_clear_error(cli(*words.split(), "--quiet"), UsageError.exit_code)
