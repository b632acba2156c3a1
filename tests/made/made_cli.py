"""The command line run in this process, and the form of its errors."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from posprobe.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class CommandRun:
    code: int
    out: str
    err: str


class Cli(Protocol):
    def __call__(self, *arguments: str) -> CommandRun:
        """Run the command line in this process."""


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Cli]:
    """Run ``posprobe`` in an empty folder; loggers and environment are restored afterwards."""
    logger = logging.getLogger("posprobe")
    logger_state = logger.handlers[:], logger.level, logger.propagate
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> CommandRun:
        monkeypatch.setattr(sys, "argv", ["posprobe", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return CommandRun(code or 0, printed.out, printed.err)

    yield run
    logger.handlers[:], logger.level, logger.propagate = logger_state


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def assert_one_clear_error(run: CommandRun, code: int) -> None:
    assert run.code == code, run.err
    assert run.out == ""
    assert "Traceback" not in run.err
    assert "a bug" not in run.err
    assert run.err.count("posprobe: ") == 1
    assert run.err.startswith("posprobe: ")
    # A sentence with advice is longer than the name of an exception.
    assert len(run.err.split()) >= 8
