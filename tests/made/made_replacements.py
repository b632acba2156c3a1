"""A bundle in its place, another to replace it, and jobs in processes of their own."""

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

#: Everything that changes a folder, by which moments are counted.
STEPS = ("mkdir", "rename", "replace", "rmdir", "unlink")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def content(seed: int) -> Any:
    return pp.analyze(as_table(walk(12, 4, seed)), only=["norms"], nulls=0)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with a bundle, and what another one is made of."""
    place = tmp_path_factory.mktemp("place")
    content(0).save(place / "bundle")
    return place, content(1)


@pytest.fixture
def place(bundles: tuple[Path, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundles[0], tmp_path / "place"))


def child(job: Callable[[], None]) -> int:
    """Run a job in a process of its own and return how it ended, as `subprocess` says it."""
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


# Fault injection: what stops a process at its k-th step, in a process of its own.


def stop_at(step: int, stop: Callable[[], None]) -> list[int]:
    """Let this process be stopped at its step number ``step``; the list counts them."""
    count = [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **named: Any) -> Any:
            count[0] += 1
            if count[0] == step:
                stop()
            return call(*given, **named)

        return counting

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    moves.exchange = counted(moves.exchange)
    return count


def kill(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def told_after(job: Callable[[], None], tell: Callable[[], str]) -> str:
    """Run a job in a process of its own and return what that tells at its end."""
    ours, theirs = os.pipe()

    def telling() -> None:
        try:
            job()
        finally:
            os.write(theirs, tell().encode())

    assert child(telling) == 0
    os.close(theirs)
    with os.fdopen(ours) as told:
        return told.read()


def steps_of(job: Callable[[], None]) -> int:
    """Count the steps of a job."""
    counts = []

    def counted() -> None:
        counts.append(stop_at(-1, lambda: None))
        job()

    return int(told_after(counted, lambda: str(counts[0][0])))
