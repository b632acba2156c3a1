"""Killed at any moment, on a full disk, two at once: the old result whole or the new one whole."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import torch
from made_bundles import tree
from made_models import gpt2
from made_replacements import count_steps, kill, needs_fork, run_in_child, stop_at
from made_workers import workers_in_this_process

import posprobe as pp
from posprobe.cli import main
from posprobe.errors import OutputError
from posprobe.report.files import list_foreign_files

pytestmark = [needs_fork, pytest.mark.slow, pytest.mark.timeout(600)]


State: TypeAlias = tuple[object, ...]


def swept(place: Path) -> State:
    """What the files of a sweep say, which are moved to their places one by one."""
    names = pp.read_sweep(place / "out")["reference"].to_pylist()
    return sorted(names), len(
        (place / "out" / "sweep.csv").read_text("utf-8").splitlines()
    )


def copied(place: Path) -> State:
    return (tree(place / "out") if (place / "out").exists() else None,)


def bundled(place: Path) -> State:
    assert list_foreign_files(place / "out") == []
    return ()


@dataclass(frozen=True)
class Command:
    """A command, one to make what lies before, what is whole of its result, and how many kills."""

    words: str
    before: str
    state: Callable[[Path], State]
    moments: int


SWEEP = "sweep {} --jobs 1 --nulls 0 --quiet --out out"
FORWARD = "forward model --contexts 2 --length {} --only states --nulls 0 --device cpu --out out"
CHECK = "check sinusoidal:{0} sinusoidal:{0} --quiet --out out"
COMMANDS = {
    "sweep": Command(
        SWEEP.format("sinusoidal:16x8 rotary:64x16 alibi:64x4 sinusoidal:16x4"),
        SWEEP.format("sinusoidal:16x8"),
        swept,
        15,
    ),
    "resize": Command(
        "resize model --to 24 --how linear --into out --quiet", "", copied, 15
    ),
    "forward": Command(FORWARD.format(8), FORWARD.format(4), bundled, 5),
    "check": Command(CHECK.format("16x8"), CHECK.format("16x4"), bundled, 5),
}


def run(words: str, place: Path) -> None:
    torch.set_num_threads(1)  # threads of a pool do not come along to a fork
    os.chdir(place)
    sys.argv = ["posprobe", *words.split()]
    with workers_in_this_process():
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
        assert run_in_child(lambda: run(command.before, place)) == 0
    # What is imported once need not be in every fork.
    folder, argv = Path.cwd(), sys.argv
    warm = Path(shutil.copytree(place, tmp_path_factory.mktemp("warm") / "place"))
    with suppress(SystemExit):
        run(command.words, warm)
    os.chdir(folder)
    sys.argv = argv
    return place


def leftovers(place: Path) -> list[str]:
    return [path.name for path in place.rglob(".posprobe-*")]


def test_killed_at_any_step_the_result_is_whole_and_going_on_works(
    command: Command, given: Path, tmp_path: Path
) -> None:
    complete = Path(shutil.copytree(given, tmp_path / "whole"))
    steps = count_steps(lambda: run(command.words, complete))
    states = [command.state(given), command.state(complete)]
    for step in {*np.linspace(1, steps, command.moments).round().astype(int).tolist()}:
        place = Path(shutil.copytree(given, tmp_path / str(step)))

        def job(place: Path = place, step: int = step) -> None:
            stop_at(step, kill(signal.SIGKILL))
            run(command.words, place)

        assert run_in_child(job) == -signal.SIGKILL
        state = command.state(place)
        for part, *valid_states in zip(state, *states, strict=True):
            assert part in valid_states
        # A copy that is there already is refused.
        is_unchanged = command.state is copied and state != (None,)
        code = run_in_child(partial(run, command.words, place))
        assert code == (2 if is_unchanged else 0)
        assert command.state(place) == states[1]
        assert is_unchanged or not leftovers(place)
        shutil.rmtree(place)


@pytest.mark.parametrize("room", [0, 20_000])
def test_a_full_disk_leaves_the_old_result(
    command: Command, given: Path, tmp_path: Path, room: int
) -> None:
    place = Path(shutil.copytree(given, tmp_path / "place"))

    def job() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        run(command.words, place)

    old_state = command.state(place)
    code = run_in_child(job)
    assert code in ((0, OutputError.exit_code) if room else (OutputError.exit_code,))
    if code:
        assert command.state(place) == old_state
        assert run_in_child(lambda: run(command.words, place)) == 0
        assert not leftovers(place)


def test_two_at_once_end_with_one_whole_result(
    command: Command, given: Path, tmp_path: Path
) -> None:
    complete = Path(shutil.copytree(given, tmp_path / "whole"))
    assert run_in_child(lambda: run(command.words, complete)) == 0
    place = Path(shutil.copytree(given, tmp_path / "place"))
    pids = []
    for _ in range(2):
        pid = os.fork()
        if not pid:
            os._exit(run_in_child(lambda: run(command.words, place)) & 255)
        pids.append(pid)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    assert codes in ([0, 0], [0, OutputError.exit_code])
    assert command.state(place) == command.state(complete)
    assert not leftovers(place)
