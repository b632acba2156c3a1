"""Surroundings: encodings, streams on a full disk, optimised Python, a display that is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = [sys.executable, "-m", "posprobe"]
PATCHES = ["analyze", "sincos2d:4x4x16", "--only", "norms", "--nulls", "0"]
ROWS = ["analyze", "sinusoidal:12x4", "--only", "norms", "--nulls", "0"]
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def run(
    *arguments: str, cwd: Path, python: str = "-B", **environment: str
) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if name not in ("LANG", "LC_ALL")}
    return subprocess.run(
        [MAIN[0], python, *MAIN[1:], *arguments],
        cwd=cwd,
        env=given | environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def test_an_encoding_that_lacks_letters_gets_escapes(tmp_path: Path) -> None:
    done = run("families", cwd=tmp_path, **ASCII)
    assert done.returncode == 0, done.stderr
    printed = run(*PATCHES, "--json", "--quiet", cwd=tmp_path, **ASCII)
    saved = (tmp_path / "reports" / "sincos2d-4x4x16" / "analysis.json").read_text("utf-8")
    assert json.loads(printed.stdout) == json.loads(saved)
    made = run("figure", "norms", "größe.npy", "-o", "f.pdf", cwd=tmp_path, **ASCII)
    assert made.returncode == 3
    assert "bug" not in made.stderr


def test_a_display_that_is_none_is_not_asked(tmp_path: Path) -> None:
    done = run(*ROWS, cwd=tmp_path, MPLBACKEND="nonsense")
    assert done.returncode == 0, done.stderr


def test_python_without_assertions_and_docstrings_does_the_same(tmp_path: Path) -> None:
    done = run(*ROWS, cwd=tmp_path, python="-OO")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("streams", ["stdout", "stderr"])
def test_streams_on_a_full_disk(streams: str, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        out, err = (full if streams == name else subprocess.PIPE
                    for name in ("stdout", "stderr"))  # fmt: skip
        done = subprocess.run(
            [*MAIN, *ROWS], cwd=tmp_path, stdout=out, stderr=err, text=True, check=False
        )
        failed = subprocess.run(
            [*MAIN, "analyze", "./none"], cwd=tmp_path, stdout=out, stderr=err, check=False
        )
    # Without talk the work is done; without room for the results it is not.
    assert done.returncode == (0 if streams == "stderr" else 2)
    assert failed.returncode == 3
    if streams == "stdout":
        assert "cannot be written (No space left on device)" in done.stderr
        assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", ["1", "2"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    command = f'"$@" {closed}>&-'
    done = subprocess.run(
        ["sh", "-c", command, "sh", *MAIN, *ROWS, "--out", "b"], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
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
import os, sys, posprobe.cli, posprobe.families
load = posprobe.families.load
def loaded(*given, **named):
    try:
        os.kill(os.getpid(), {int(sign)})
        while True: pass
    except BaseException:
        if {raised} is not None: raise {raised}
    return load(*given, **named)
posprobe.families.load = loaded
posprobe.cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *ROWS, "--out", "b"], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 128 + sign, done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"b"}
