"""Half of the drawing in a second process: the same files, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from posprobe.second_process import allowed, share

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="there is a second process on Linux alone, and where there are two cores",
)


def test_a_command_shares_what_leaves_files(tmp_path: Path) -> None:
    def work(name: str) -> None:
        (tmp_path / name).write_text(str(os.getpid()))

    told: list[int] = []
    token = allowed.set(True)
    try:
        share(work, ["a", "b", "c"], told.append)
    finally:
        allowed.reset(token)
    by = {name: int((tmp_path / name).read_text()) for name in "abc"}
    assert by["a"] == by["c"] == os.getpid() != by["b"]
    assert sum(told) == 3


def test_other_programs_are_not_copied(tmp_path: Path) -> None:
    def work(name: str) -> None:
        (tmp_path / name).write_text(str(os.getpid()))

    share(work, "ab", print)
    assert {path.read_text() for path in tmp_path.iterdir()} == {str(os.getpid())}


def test_what_fails_in_the_second_process_fails_in_the_first() -> None:
    def work(name: str) -> None:
        if name == "b":
            raise ValueError(name)

    token = allowed.set(True)
    try:
        with pytest.raises(ValueError, match="b"):
            share(work, ["a", "b"], print)
    finally:
        allowed.reset(token)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_both_end_together(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import os, time
from pathlib import Path
from posprobe.second_process import allowed, share

def work(task):
    Path({str(tmp_path)!r}, f"{{task}}-{{os.getpid()}}").touch()
    os.write(1, b"begun\\n")
    time.sleep(3 if task % 2 else 60)

allowed.set(True)
share(work, range(40), print)
"""
    # What an interrupted process says of itself is no concern here.
    command = [sys.executable, "-c", code]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdout=pipe, stderr=quiet) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"begun\n"] * 2
        process.send_signal(number)
        # The pipe ends when nobody holds it any more: at once, or after what is under way.
        process.stdout.read()
    assert len(list(tmp_path.iterdir())) == 2
