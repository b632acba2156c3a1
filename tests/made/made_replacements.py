"""A bundle, another to replace it, and jobs in child processes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_tables import as_table, walk

import posprobe as pp
from posprobe.report import files as moves

#: Functions of `os` that change a folder; their calls are counted as steps.
STEP_CALLS = ("mkdir", "rename", "replace", "rmdir", "unlink")
needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="this system does not fork"
)


def content(seed: int) -> Any:
    return pp.analyze(as_table(walk(12, 4, seed)), only=["norms"], nulls=0)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return a folder with a bundle, and an analysis for another one."""
    place = tmp_path_factory.mktemp("place")
    content(0).save(place / "bundle")
    return place, content(1)


@pytest.fixture
def place(bundles: tuple[Path, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundles[0], tmp_path / "place"))


def run_in_child(job: Callable[[], None]) -> int:
    """Run a job in a child process and return its exit code as `subprocess` does."""
    pid = os.fork()
    if not pid:
        code = 70
        try:
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
            signal.signal(signal.SIGINT, signal.default_int_handler)
            job()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 71
        except BaseException:  # noqa: BLE001 - the parent is told by a code
            code = 72
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def no_exchange(*_: object) -> bool:
    return False


# Fault injection: a child process is stopped at its k-th step.


def stop_at(step: int, stop: Callable[[], None]) -> list[int]:
    """Stop this process at step number ``step``, and return the step counter."""
    count = [0]

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == step:
                stop()
            return original(*args, **kwargs)

        return counting

    for name in STEP_CALLS:
        setattr(os, name, counted(getattr(os, name)))
    moves.exchange_paths = counted(moves.exchange_paths)
    return count


def kill(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def report_after(job: Callable[[], None], tell: Callable[[], str]) -> str:
    """Run a job in a child process and return the text that it reports at its end."""
    reader, writer = os.pipe()

    def telling() -> None:
        try:
            job()
        finally:
            os.write(writer, tell().encode())

    assert run_in_child(telling) == 0
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return pipe.read()


def count_steps(job: Callable[[], None]) -> int:
    """Count the steps of a job."""
    counts = []

    def counted() -> None:
        counts.append(stop_at(-1, lambda: None))
        job()

    return int(report_after(counted, lambda: str(counts[0][0])))
