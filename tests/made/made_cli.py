"""The command line run in this process, and what tests hold it to."""

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
class Done:
    code: int
    out: str
    err: str


class Cli(Protocol):
    def __call__(self, *arguments: str) -> Done:
        """Run the command line in this process."""


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Cli]:
    """Run ``posprobe`` in an empty folder; loggers and environment are restored afterwards."""
    logger = logging.getLogger("posprobe")
    state = logger.handlers[:], logger.level, logger.propagate
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["posprobe", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, printed.out, printed.err)

    yield run
    logger.handlers[:], logger.level, logger.propagate = state


def left_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def assert_one_clear_error(done: Done, code: int) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert "a bug" not in done.err
    assert done.err.count("posprobe: ") == 1
    assert done.err.startswith("posprobe: ")
    # A sentence that says what to do: it ends, and it is more than the name of an exception.
    assert len(done.err.split()) >= 8
