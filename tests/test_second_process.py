"""Drawing in two processes: each task is done once, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import posprobe as pp

two_processes = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="there is a second process on Linux alone, and where there are two cores",
)


def program(body: str) -> list[str]:
    """Return a command that may be copied: the process that runs the tests has other threads."""
    begin = """
        import os, time
        from pathlib import Path
        from posprobe.second_process import allowed, share
        with allowed():
    """
    body = textwrap.indent(textwrap.dedent(body), "    ")
    return [sys.executable, "-c", textwrap.dedent(begin) + body]


@two_processes
def test_two_processes_do_each_task_once(tmp_path: Path) -> None:
    body = f"""
        def work(name):
            with open({str(tmp_path)!r} + f"/{{name}}-{{os.getpid()}}", "x"):
                pass
            # The first is done alone; then each waits until the other process has one, too.
            while name != "a" and len(os.listdir({str(tmp_path)!r})) < 3:
                time.sleep(0.01)

        told = []
        share(work, "abcdefg", told.append)
        print(os.getpid(), sum(told))
    """
    done = subprocess.run(program(body), capture_output=True, text=True, check=True, timeout=60)
    parent, told = done.stdout.split()
    by = dict(path.name.split("-") for path in tmp_path.iterdir())
    assert sorted(by) == list("abcdefg")
    assert len(list(tmp_path.iterdir())) == int(told) == 7
    assert len(set(by.values())) == 2
    assert parent in by.values()


@two_processes
def test_what_the_second_process_could_not_do_is_done_by_the_first(tmp_path: Path) -> None:
    body = f"""
        parent = os.getpid()

        def work(name):
            if os.getpid() != parent:
                Path({str(tmp_path)!r}, "tried").touch()
                raise ValueError(name)
            while name != "a" and not os.path.exists({str(tmp_path / "tried")!r}):
                time.sleep(0.01)
            Path({str(tmp_path)!r}, name).touch()

        share(work, "abc", lambda _: None)
    """
    done = subprocess.run(program(body), capture_output=True, text=True, check=True, timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "tried"]
    assert not done.stderr


@two_processes
def test_what_fails_in_both_fails() -> None:
    body = """
        def work(name):
            if name == "a":
                raise ValueError("it is " + name)

        share(work, "b" + "a" * 9, print)
    """
    done = subprocess.run(program(body), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("ValueError: it is a") == 1


@two_processes
def test_a_process_that_imported_pytorch_is_not_copied() -> None:
    body = """
        import sys
        sys.modules["torch"] = sys
        share(lambda _: print(os.getpid()), range(9), lambda _: None)
    """
    done = subprocess.run(program(body), capture_output=True, text=True, check=True, timeout=60)
    assert len(set(done.stdout.split())) == 1


def test_other_programs_are_not_copied() -> None:
    body = """
        import os, time
        from posprobe.cli import main
        from posprobe.second_process import share

        def work(_):
            time.sleep(0.05)
            print(os.getpid())

        try:
            main()
        except SystemExit:
            share(work, range(9), lambda _: None)
    """
    # An earlier command in the same process, as in a notebook, permits nothing afterwards.
    probe = [sys.executable, "-c", textwrap.dedent(body), "samples"]
    done = subprocess.run(probe, capture_output=True, text=True, check=True, timeout=60)
    assert len(set(done.stdout.split()[-9:])) == 1


@two_processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_both_end_together(tmp_path: Path, number: signal.Signals) -> None:
    body = f"""
        parent = os.getpid()

        def work(task):
            Path({str(tmp_path)!r}, f"{{task}}-{{os.getpid()}}").touch()
            if task:
                os.write(1, b"begun\\n")
                time.sleep(60 if os.getpid() == parent else 3)

        share(work, range(40), lambda _: None)
    """
    # What an interrupted process says of itself is no concern here.
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(program(body), stdout=pipe, stderr=quiet) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"begun\n"] * 2
        process.send_signal(number)
        # The pipe ends when nobody holds it any more: at once, or after what is under way.
        process.stdout.read()
    assert len(list(tmp_path.iterdir())) == 3


@two_processes
def test_figures_are_the_same_drawn_by_one_process_or_two(tmp_path: Path) -> None:
    probe = "from posprobe.cli import main; main()"
    asked = ["analyze", "sinusoidal:32x16", "--figures", "all", "--out"]
    command = [sys.executable, "-c", probe, *asked]
    subprocess.run([*command, str(tmp_path / "two")], check=True, capture_output=True, timeout=120)
    pp.analyze(pp.load("sinusoidal:32x16")).save(tmp_path / "one", every=True)
    figures = sorted((tmp_path / "one" / "figures").iterdir())
    assert len(figures) > 12
    for path in figures:
        assert path.read_bytes() == (tmp_path / "two" / "figures" / path.name).read_bytes()
