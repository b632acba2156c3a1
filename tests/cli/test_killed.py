"""Killed at any moment, on a full disk, two at once: the old result whole or the new one whole."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bundles import tree
from made_models import gpt2
from made_replacements import child, needs_fork

import posprobe as pp
from posprobe.cli import main
from posprobe.errors import OutputError
from posprobe.report.files import foreign_in

pytestmark = [needs_fork, pytest.mark.slow, pytest.mark.timeout(600)]
MOMENTS = 40


def rows_of(place: Path) -> object:
    """What a sweep's table says, which its other files must say too."""
    table = pp.read_sweep(place / "out")
    names = table["reference"].to_pylist()
    with (place / "out" / "sweep.csv").open(encoding="utf-8") as lines:
        assert len(lines.readlines()) == len(names) + 1
    return sorted(names)


def copied(place: Path) -> object:
    return tree(place / "out") if (place / "out").exists() else None


def bundled(place: Path) -> object:
    assert foreign_in(place / "out") == []
    return None


@dataclass(frozen=True)
class Command:
    """A command, one to make what lies there before, and what is whole of its result."""

    words: str
    before: str
    state: Callable[[Path], object]


SWEEP = "sweep {} --engine threads --jobs 1 --nulls 0 --quiet --out out"
FORWARD = "forward model --contexts 2 --length {} --only states --nulls 0 --device cpu --out out"
CHECK = "check sinusoidal:{0} sinusoidal:{0} --quiet --out out"
COMMANDS = {
    "sweep": Command(
        SWEEP.format("sinusoidal:16x8 rotary:64x16 alibi:64x4 sinusoidal:16x4"),
        SWEEP.format("sinusoidal:16x8"),
        rows_of,
    ),
    "resize": Command("resize model --to 24 --how linear --into out --quiet", "", copied),
    "forward": Command(FORWARD.format(8), FORWARD.format(4), bundled),
    "check": Command(CHECK.format("16x8"), CHECK.format("16x4"), bundled),
}


def run(words: str, place: Path) -> None:
    torch.set_num_threads(1)  # threads of a pool do not come along to a fork
    os.chdir(place)
    sys.argv = ["posprobe", *words.split()]
    main()


@pytest.fixture(scope="module", params=COMMANDS)
def command(request: pytest.FixtureRequest) -> Command:
    return COMMANDS[request.param]


@pytest.fixture(scope="module")
def given(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and beside it what the command replaces."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("given")
    gpt2().save_pretrained(place / "model")
    if command.before:
        assert child(lambda: run(command.before, place)) == 0
    # What is imported once need not be in every fork.
    here, argv = Path.cwd(), sys.argv
    warm = Path(shutil.copytree(place, tmp_path_factory.mktemp("warm") / "place"))
    with suppress(SystemExit):
        run(command.words, warm)
    os.chdir(here)
    sys.argv = argv
    return place


def leftovers(place: Path) -> list[str]:
    return [path.name for path in place.rglob(".posprobe-*")]


def test_killed_at_any_moment_the_result_is_whole_and_going_on_works(
    command: Command, given: Path, tmp_path: Path
) -> None:
    whole = Path(shutil.copytree(given, tmp_path / "whole"))
    begun = time.monotonic()
    assert child(lambda: run(command.words, whole)) == 0
    lasts = time.monotonic() - begun
    states = [command.state(given), command.state(whole)]
    rng, ended = np.random.default_rng(0), []
    for moment in range(MOMENTS):
        place = Path(shutil.copytree(given, tmp_path / str(moment)))
        pid = os.fork()
        if not pid:
            try:
                with Path(os.devnull).open("w") as nowhere:
                    sys.stdout = sys.stderr = nowhere
                    run(command.words, place)
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0, lasts))
        os.kill(pid, signal.SIGKILL)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if tree(place) == tree(given):
            shutil.rmtree(place)
            continue  # nothing was written: to go on is to begin
        found = command.state(place)
        assert found in states
        # A copy that is there already is refused.
        done = command.state is copied and found is not None
        assert child(lambda place=place: run(command.words, place)) == (2 if done else 0)  # type: ignore[misc]
        assert command.state(place) == states[1]
        assert done or not leftovers(place)
        shutil.rmtree(place)
    assert -signal.SIGKILL in ended


@pytest.mark.parametrize("nth", range(5))
def test_killed_before_its_scratch_is_removed_going_on_removes_it(
    command: Command, given: Path, tmp_path: Path, nth: int
) -> None:
    place = Path(shutil.copytree(given, tmp_path / "place"))
    remove, calls = shutil.rmtree, 0

    def killed(path: Path, **options: Any) -> None:
        nonlocal calls
        if Path(path).name.startswith(".posprobe-"):
            calls += 1
            if calls > nth:
                os.kill(os.getpid(), signal.SIGKILL)
        remove(path, **options)

    def job() -> None:
        shutil.rmtree = killed  # type: ignore[assignment]
        run(command.words, place)

    ended = child(job)
    assert ended in (0, -signal.SIGKILL)
    found = command.state(place)
    done = command.state is copied and found is not None
    assert child(lambda: run(command.words, place)) == (2 if done else 0)
    assert done or not leftovers(place)


@pytest.mark.parametrize("room", [0, 1000, 5000, 20_000])
def test_a_full_disk_leaves_what_was_there(
    command: Command, given: Path, tmp_path: Path, room: int
) -> None:
    place = Path(shutil.copytree(given, tmp_path / "place"))

    def job() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        run(command.words, place)

    before = command.state(place)
    code = child(job)
    assert code in ((0, OutputError.exit_code) if room else (OutputError.exit_code,))
    if code:
        assert command.state(place) == before
        assert child(lambda: run(command.words, place)) == 0
        assert not leftovers(place)


def test_two_at_once_end_with_one_whole_result(
    command: Command, given: Path, tmp_path: Path
) -> None:
    whole = Path(shutil.copytree(given, tmp_path / "whole"))
    assert child(lambda: run(command.words, whole)) == 0
    place = Path(shutil.copytree(given, tmp_path / "place"))
    pids = []
    for _ in range(2):
        pid = os.fork()
        if not pid:
            os._exit(child(lambda: run(command.words, place)) & 255)
        pids.append(pid)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    assert codes in ([0, 0], [0, OutputError.exit_code])
    assert command.state(place) == command.state(whole)
    assert not leftovers(place)
