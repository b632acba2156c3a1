"""Stages of long work: on a terminal each shows itself, elsewhere nobody hears of them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from posprobe import progress
from posprobe.progress import hide_stages, show_stages, stage


def on_a_terminal(folder: Path, *arguments: str) -> tuple[str, str]:
    """What a command writes to a terminal on stderr, and to stdout."""
    ours, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "posprobe", *arguments],
        stdout=subprocess.PIPE,
        stderr=terminal,
        cwd=folder,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "OMP_NUM_THREADS": "1"},
    )
    os.close(terminal)
    screen = b""
    while True:
        try:
            screen += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0, screen.decode()
    return screen.decode(), stdout.decode()


@pytest.mark.slow
def test_every_stage_is_shown_on_a_terminal(tmp_path: Path) -> None:
    command = ["analyze", "sinusoidal:32x8", "--only", "pca,norms", "--nulls", "2"]
    screen, stdout = on_a_terminal(tmp_path, *command, "--figures", "all")
    for name in (
        "Starting", "Reading sinusoidal:32x8", "sinusoidal:32x8: Principal components",
        "sinusoidal:32x8: Norms", "sinusoidal:32x8: null models", "0 of 8", "Writing the data",
        "Drawing figures", "Writing the page",
    ):  # fmt: skip
        assert name in screen
    # Results go elsewhere, and nothing of what was shown stays beside the last messages.
    assert "Starting" not in stdout
    assert "participation ratio" in stdout
    assert screen.rstrip().endswith("report.html")
    quiet, quiet_output = on_a_terminal(tmp_path, *command, "--quiet")
    assert quiet == ""
    assert quiet_output == stdout


def showing() -> list[str]:
    display = progress._display
    return [] if display is None else [task.description for task in display.tasks]


def test_stages_are_silent_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with show_stages(), stage("Reading", 3) as advance, hide_stages() as cleared:
        advance(2)
        assert not cleared
    assert capfd.readouterr() == ("", "")


def test_stages_end_with_their_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with stage("Unseen"):
        assert showing() == []
    begun = stage("Held by an error", 2)
    with show_stages():
        with stage("Outer"), stage("Inner"):
            assert showing() == ["Outer", "Inner"]
        assert showing() == []
        advance = begun.__enter__()
        advance(1)
    # An error that is told afterwards keeps the stage open: the lines are gone all the same.
    assert showing() == []
    begun.__exit__(None, None, None)
    assert progress._n_stages == 0
