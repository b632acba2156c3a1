"""A bundle is replaced whole or not at all, by whoever, killed whenever."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from made_bundles import MEMBERS, tree
from made_replacements import (
    bundles,
    child,
    content,
    kill,
    needs_fork,
    no_exchange,
    place,
    steps_of,
    stop_at,
    told_after,
)  # fmt: skip

from posprobe.cli import main
from posprobe.report import check_place, files as moves, read_bundle, write_bundle
from posprobe.report.files import foreign_in

__all__ = ["bundles", "place"]

pytestmark = needs_fork


class OneFigure:
    """What is written of an analysis, with the first of its figures."""

    def __init__(self, given: Any) -> None:
        self.to_dict, self.arrays, self.given = given.to_dict, given.arrays, given

    def figures(self) -> dict[str, Any]:
        return dict(list(self.given.figures().items())[:1])


@pytest.mark.parametrize("exchanges", [True, False], ids=["exchange", "two renames"])
def test_a_kill_at_any_step_loses_no_bundle_and_the_next_run_cleans_up(
    exchanges: bool, bundles: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(moves, "exchange", no_exchange)
    given, new = bundles[0], OneFigure(bundles[1])
    fresh = write_bundle(new, tmp_path / "new")
    whole = [tree(given / "bundle"), tree(fresh)]
    for number in range(1, 100):
        place = Path(shutil.copytree(given, tmp_path / f"{number}"))

        def job(place: Path = place, number: int = number) -> None:
            stop_at(number, kill(signal.SIGKILL))
            write_bundle(new, place / "bundle")

        ended = child(job)
        assert ended in (0, -signal.SIGKILL)
        if exchanges and sys.platform == "linux":
            assert tree(place / "bundle") in whole
        check_place(place / "bundle")  # what the next run does first
        assert [path.name for path in place.iterdir()] == ["bundle"]
        assert tree(place / "bundle") in whole
        if not ended:
            break
    else:
        pytest.fail("the run never got to its end")


COMMANDS = {
    "analyze": ["analyze", "sinusoidal:12x4", "--only", "norms", "--out", "bundle"],
    "extract": ["extract", "sinusoidal:12x4", "-o", "t.npz"],
    "figure": ["figure", "norms", "sinusoidal:12x4", "-o", "f.svg"],
    "report": ["report", "bundle"],
}
QUIET = {"analyze": ["--nulls", "0", "--quiet"]}


def run(name: str, folder: Path) -> None:
    os.chdir(folder)
    sys.argv = ["posprobe", *COMMANDS[name], *QUIET.get(name, [])]
    main()


def imported_since(before: set[str]) -> str:
    return " ".join(sys.modules.keys() - before)


@pytest.fixture(scope="module")
def imported(bundles: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import here what the commands import, or each of many processes would."""
    for name in COMMANDS:
        place = shutil.copytree(bundles[0], tmp_path_factory.mktemp(name) / "place")
        new = told_after(partial(run, name, place), partial(imported_since, set(sys.modules)))
        for module in new.split():
            with suppress(ImportError):  # made by a library as it runs
                import_module(module)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", COMMANDS)
def test_signals_at_any_step_end_with_their_code_and_leave_nothing(
    name: str, bundles: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    given = Path(shutil.copytree(bundles[0], tmp_path / "given"))
    before = tree(given)
    done = Path(shutil.copytree(given, tmp_path / "done" / "place"))
    counted = Path(shutil.copytree(given, tmp_path / "counted"))
    assert child(lambda: run(name, done)) == 0
    after = tree(done)
    steps = steps_of(lambda: run(name, counted))
    for number in range(1, steps + 1):
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if (number + sign) % 3:
                continue  # every step by one of them
            place = Path(shutil.copytree(given, tmp_path / f"{sign}-{number}" / "place"))

            def job(place: Path = place, number: int = number, sign: int = sign) -> None:
                stop_at(number, kill(sign))
                run(name, place)

            code = child(job)
            if sign == signal.SIGKILL:
                assert code == -9
                assert child(lambda place=place: run(name, place)) == 0  # type: ignore[misc]
                assert tree(place) == after
            else:
                assert code == 128 + sign
                assert tree(place) in (before, after)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_at_any_write_leaves_the_old_files(
    name: str, bundles: tuple[Path, Any], tmp_path: Path
) -> None:
    given = Path(shutil.copytree(bundles[0], tmp_path / "given"))
    before = tree(given)
    ended = []
    for room in (0, 100, 1000, 3000, 10_000, 30_000, 60_000):
        place = Path(shutil.copytree(given, tmp_path / f"{room}"))

        def job(place: Path = place, room: int = room) -> None:
            import resource

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            run(name, place)

        ended.append(child(job))
        if ended[-1]:
            assert tree(place) == before
    assert ended[0] == 2
    assert set(ended) <= {0, 2}


def test_two_writers_at_once_end_with_one_whole_bundle(
    bundles: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, new = bundles
    for exchanges in (True, False):
        if not exchanges:
            monkeypatch.setattr(moves, "exchange", no_exchange)
        place = Path(shutil.copytree(given, tmp_path / str(exchanges)))
        pids = []
        for _ in range(3):
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    for _ in range(2):
                        new.save(place / "bundle")
                    code = 0
                finally:
                    os._exit(code)
            pids.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
        assert [path.name for path in place.iterdir()] == ["bundle"]
        assert foreign_in(place / "bundle") == []
        assert read_bundle(place / "bundle") == new.to_dict()


def test_a_bundle_that_another_process_replaces_meanwhile_is_looked_into_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def look(folder: Path) -> list[str]:
        seen.append(folder)
        if len(seen) > 1:
            return foreign_in(folder)
        raise FileNotFoundError(errno.ENOENT, "gone for a moment")

    monkeypatch.setattr("posprobe.report.bundle.foreign_in", look)
    check_place(place / "bundle")
    assert len(seen) == 2


def test_scratch_of_a_run_that_is_at_work_is_left_alone(place: Path) -> None:
    with moves.scratch(place / "bundle") as theirs:
        check_place(place / "bundle")
        assert theirs.is_dir()
    assert not theirs.exists()


def test_a_link_that_poses_as_scratch_is_not_followed(place: Path) -> None:
    precious = place / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("years")
    link = place / f"{moves._prefix(place / 'bundle')}abcdefgh"
    link.symlink_to(precious)
    check_place(place / "bundle")
    assert (precious / "thesis").read_text() == "years"


@pytest.mark.parametrize("letters", [200, 240, 246, 255])
def test_a_name_of_any_legal_length_is_taken(letters: int, tmp_path: Path) -> None:
    folder = content(0).save(tmp_path / ("x" * letters))
    assert {path.name for path in folder.iterdir()} == MEMBERS
    content(0).save(folder)


def test_a_thread_may_save_a_bundle(tmp_path: Path) -> None:
    failed: list[Exception] = []

    def save() -> None:
        try:
            content(0).save(tmp_path / "b")
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    assert failed == []


def test_a_disk_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    folder = content(0).save(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert foreign_in(folder) == []
