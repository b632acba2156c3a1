"""A bundle is replaced whole or not at all, by whoever, killed whenever; and only a bundle is."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tables import as_table, walk

import posprobe as pp
from posprobe.cli import main
from posprobe.errors import InvalidCheckpoint, OutputError
from posprobe.report import check_place, read_bundle, render_bundle, write_bundle
from posprobe.report import files as moves
from posprobe.report.own import foreign_in

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

MEMBERS = {"analysis.json", "arrays.npz", "figures", "report.html"}
#: Everything that changes a folder, by which moments are counted.
STEPS = ("mkdir", "rename", "replace", "rmdir", "unlink")


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


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


class OneFigure:
    """What is written of an analysis, with the first of its figures."""

    def __init__(self, given: Any) -> None:
        self.to_dict, self.arrays, self.given = given.to_dict, given.arrays, given

    def figures(self) -> dict[str, Any]:
        return dict(list(self.given.figures().items())[:1])


def no_exchange(*_: object) -> bool:
    return False


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
    "compare": ["compare", "sinusoidal:12x4", "sinusoidal:12x4,base=9", "--out", "bundle"],
    "extract": ["extract", "sinusoidal:12x4", "-o", "t.npz"],
    "figure": ["figure", "norms", "sinusoidal:12x4", "-o", "f.svg"],
    "report": ["report", "bundle"],
    "index": ["report", "."],
}
QUIET = {"analyze": ["--nulls", "0", "--quiet"], "figure": ["--nulls", "0"]}
QUIET["compare"] = ["--only", "norms", *QUIET["analyze"]]


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
    if name == "index":
        assert child(lambda: run("index", given)) == 0
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


# A file of the user, saved while figures are drawn.


class Slow:
    """What is written, while somebody saves a file into the folder."""

    def __init__(self, given: Any, save: Callable[[], object]) -> None:
        self.to_dict, self.arrays, self.save, self.given = given.to_dict, given.arrays, save, given

    def figures(self) -> dict[str, Any]:
        self.save()
        made: dict[str, Any] = self.given.figures()
        return made


@pytest.mark.parametrize("exchanges", [True, False], ids=["exchange", "two renames"])
@pytest.mark.parametrize("name", ["notes.txt", "figures/notes.txt", "figures/norms.svg"])
def test_a_file_saved_while_figures_are_drawn_is_not_lost(
    name: str,
    exchanges: bool,
    place: Path,
    bundles: tuple[Path, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not exchanges:
        monkeypatch.setattr(moves, "exchange", no_exchange)
    before = tree(place)
    slow = Slow(bundles[1], lambda: (place / "bundle" / name).write_text("mine"))
    with pytest.raises(OutputError, match=rf"bundle: it holds {name}"):
        write_bundle(slow, place / "bundle")
    assert tree(place) == before | {f"bundle/{name}": b"mine"}


# A bundle knows its own.


def own_figures(folder: Path) -> None:
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "fig1.pdf").write_bytes(b"mine")


def own_page(folder: Path) -> None:
    folder.mkdir()
    (folder / "report.html").write_text("<h1>Mine</h1>")


def own_document(folder: Path) -> None:
    folder.mkdir()
    (folder / "analysis.json").write_text("{}")


def own_arrays(folder: Path) -> None:
    folder.mkdir()
    np.savez(folder / "arrays.npz", mine=np.ones(3))


def added_figure(folder: Path) -> None:
    content(0).save(folder)
    (folder / "figures" / "mine.svg").write_text("<svg></svg>")


def added_in_a_folder(folder: Path) -> None:
    content(0).save(folder)
    (folder / "figures" / "drafts").mkdir()
    (folder / "figures" / "drafts" / "a").write_text("mine")


def changed_drawing(folder: Path) -> None:
    content(0).save(folder)
    with (folder / "figures" / "norms.svg").open("a") as file:
        file.write("<!-- mine -->")


def changed_page(folder: Path) -> None:
    content(0).save(folder)
    page = folder / "report.html"
    page.write_text(page.read_text().replace("</h1>", ", my notes</h1>"))


def changed_arrays(folder: Path) -> None:
    content(0).save(folder)
    with np.load(folder / "arrays.npz") as arrays:
        np.savez(folder / "arrays.npz", **(dict(arrays) | {"norms": arrays["norms"] + 1}))


def linked_page(folder: Path) -> None:
    content(0).save(folder)
    (folder / "report.html").rename(folder.parent / "elsewhere.html")
    (folder / "report.html").symlink_to(folder.parent / "elsewhere.html")


@pytest.mark.parametrize(
    "make",
    [
        own_figures, own_page, own_document, own_arrays, added_figure, added_in_a_folder,
        changed_drawing, changed_page, changed_arrays, linked_page,
    ],
)  # fmt: skip
def test_what_posprobe_did_not_write_is_refused_before_the_work_and_kept(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "paper")
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"paper: it holds .*would be lost.*--out DIR"):
        check_place(tmp_path / "paper")
    with pytest.raises(OutputError, match="would be lost"):
        content(1).save(tmp_path / "paper")
    assert tree(tmp_path) == before


def test_commands_refuse_before_they_read_anything(tmp_path: Path) -> None:
    own_figures(tmp_path / "paper")
    before = tree(tmp_path)
    # The reference does not exist, which would be another code.
    for command in (["analyze", "./none"], ["compare", "./none", "./none"], ["forward", "./none"]):
        code = child(lambda command=command: command_line(tmp_path, *command, "--out", "paper"))  # type: ignore[misc]
        assert code == 2
    assert tree(tmp_path) == before


def command_line(folder: Path, *arguments: str) -> None:
    os.chdir(folder)
    sys.argv = ["posprobe", *arguments]
    main()


@pytest.mark.parametrize("make", [added_figure, changed_drawing, changed_arrays])
def test_report_takes_nothing_of_the_user_over(make: Callable[[Path], None], place: Path) -> None:
    make(place / "own")
    foreign = foreign_in(place / "own")
    assert foreign
    with suppress(InvalidCheckpoint):  # a drawing that holds more than a drawing
        render_bundle(place / "own")
    assert foreign_in(place / "own") == foreign


def test_report_does_not_replace_a_page_that_was_changed(tmp_path: Path) -> None:
    changed_page(tmp_path / "b")
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"report\.html: .*changed since"):
        render_bundle(tmp_path / "b")
    assert tree(tmp_path) == before


def test_a_bundle_without_its_page_can_be_replaced_after_report(place: Path) -> None:
    (place / "bundle" / "report.html").unlink()
    with pytest.raises(OutputError, match="posprobe report"):
        check_place(place / "bundle")
    render_bundle(place / "bundle")
    check_place(place / "bundle")


def test_a_page_is_written_through_no_link(place: Path) -> None:
    precious = place / "precious.txt"
    precious.write_text("years")
    for folder, name in ((place / "bundle", "report.html"), (place, "index.html")):
        (folder / f".{name}.part").symlink_to(precious)
        (folder / name).unlink(missing_ok=True)
        if name == "index.html":
            child(lambda: command_line(place, "report", "."))
        else:
            render_bundle(folder)
        assert (folder / name).is_file()
        assert precious.read_text() == "years"


def test_a_caption_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    caption = tmp_path / "fig.caption.txt"
    caption.write_text("Mine.")
    made = pp.paper_figure("norms", pp.sinusoidal(12, 4), nulls=0)
    with pytest.raises(OutputError, match=r"fig\.caption\.txt: posprobe did not write"):
        made.save(tmp_path / "fig.pdf")
    code = child(lambda: command_line(tmp_path, "figure", "norms", "./none.npy", "-o", "fig.pdf"))
    assert code == 2  # before the reference is read
    assert tree(tmp_path) == {"fig.caption.txt": b"Mine."}


def test_a_figure_replaces_its_own_caption_in_every_format(tmp_path: Path) -> None:
    one = pp.paper_figure("norms", pp.sinusoidal(12, 4), nulls=0)
    two = pp.paper_figure("norms", pp.sinusoidal(14, 4), nulls=0)
    for suffix in (".pdf", ".svg", ".png", ".pdf"):
        beside = one.save(tmp_path / f"fig{suffix}")
        assert beside.read_text() == one.caption
    for suffix in (".png", ".pdf", ".svg"):
        beside = two.save(tmp_path / f"fig{suffix}")
        assert beside.read_text() == two.caption
    beside.write_text(two.caption + "edited")
    with pytest.raises(OutputError, match="changed since"):
        one.save(tmp_path / "fig.pdf")


def test_two_checkpoints_of_one_name_get_folders_of_their_own(tmp_path: Path) -> None:
    for folder, seed in (("a", 0), ("b", 1)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "model.npy", walk(12, 4, seed))
    options = ["--tensor", "model", "--only", "norms", "--nulls", "0", "--quiet"]
    for folder in ("a", "b", "b"):
        assert (
            child(
                lambda folder=folder: command_line(  # type: ignore[misc]
                    tmp_path, "analyze", f"{folder}/model.npy", *options
                )
            )
            == 0
        )
    made = sorted((tmp_path / "reports").iterdir())
    assert len(made) == 2
    assert made[1].name == f"{made[0].name}-2"
    read = [read_bundle(path)["table"]["source"]["resolved"] for path in made]
    assert read == [str(tmp_path / folder / "model.npy") for folder in ("a", "b")]


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
