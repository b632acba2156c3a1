"""A bundle is written whole or not at all, killed whenever, and only where nothing of others is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
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
from made_bundles import BUNDLE_FILES, MAIN_COMMAND, tree
from made_replacements import (
    bundles,
    content,
    count_steps,
    kill,
    needs_fork,
    no_exchange,
    place,
    report_after,
    run_in_child,
    stop_at,
)  # fmt: skip
from made_tables import walk

import posprobe as pp
from posprobe.cli import main
from posprobe.errors import OutputError
from posprobe.report import (
    check_bundle_folder,
    default_folder,
    files as moves,
    read_bundle,
    render_bundle,
    write_bundle,
)
from posprobe.report.files import FORWARD_SCHEMA, list_foreign_files

#: Fixtures that pytest finds by name.
__all__ = ["bundles", "place"]

pytestmark = needs_fork


class OneFigure:
    """What is written of an analysis, with the first of its figures."""

    def __init__(self, analysis: Any) -> None:
        self.to_dict, self.arrays, self.given = (
            analysis.to_dict,
            analysis.arrays,
            analysis,
        )

    def figures(self) -> dict[str, Any]:
        return dict(list(self.given.figures().items())[:1])


@pytest.mark.parametrize("exchanges", [True, False], ids=["exchange", "two renames"])
def test_a_kill_at_any_step_loses_no_bundle_and_the_next_run_cleans_up(
    exchanges: bool,
    bundles: tuple[Path, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not exchanges:
        monkeypatch.setattr(moves, "exchange_paths", no_exchange)
    old_bundle, new_bundle = bundles[0], OneFigure(bundles[1])
    fresh = write_bundle(new_bundle, tmp_path / "new")
    complete_states = [tree(old_bundle / "bundle"), tree(fresh)]
    for number in range(1, 100):
        place = Path(shutil.copytree(old_bundle, tmp_path / f"{number}"))

        def job(place: Path = place, number: int = number) -> None:
            stop_at(number, kill(signal.SIGKILL))
            write_bundle(new_bundle, place / "bundle")

        ended = run_in_child(job)
        assert ended in (0, -signal.SIGKILL)
        if exchanges and sys.platform == "linux":
            assert tree(place / "bundle") in complete_states
        check_bundle_folder(place / "bundle")  # what the next run does first
        assert [path.name for path in place.iterdir()] == ["bundle"]
        assert tree(place / "bundle") in complete_states
        if not ended:
            break
    else:
        pytest.fail("the run never got to its end")


COMMANDS = {
    "analyze": [
        "analyze",
        "sinusoidal:12x4",
        "--only",
        "norms",
        "--out",
        "bundle",
        "--quiet",
    ],
    "extract": ["extract", "sinusoidal:12x4", "-o", "t.npz"],
    "figure": ["figure", "norms", "sinusoidal:12x4", "-o", "f.svg"],
    "report": ["report", "bundle"],
}


def command_line(folder: Path, *arguments: str) -> None:
    os.chdir(folder)
    sys.argv = ["posprobe", *arguments]
    main()


def run(name: str, folder: Path) -> None:
    command_line(folder, *COMMANDS[name])


def imported_since(modules_before: set[str]) -> str:
    return " ".join(sys.modules.keys() - modules_before)


@pytest.fixture(scope="module")
def imported(bundles: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import here what the commands import, or each of many processes would."""
    for name in COMMANDS:
        place = shutil.copytree(bundles[0], tmp_path_factory.mktemp(name) / "place")
        new_modules = report_after(
            partial(run, name, place), partial(imported_since, set(sys.modules))
        )
        for module in new_modules.split():
            with suppress(ImportError):  # made by a library as it runs
                import_module(module)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", COMMANDS)
def test_signals_at_any_step_end_with_their_code_and_leave_nothing(
    name: str, bundles: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    source = Path(shutil.copytree(bundles[0], tmp_path / "given"))
    files_before = tree(source)
    finished = Path(shutil.copytree(source, tmp_path / "done" / "place"))
    counting = Path(shutil.copytree(source, tmp_path / "counted"))
    assert run_in_child(lambda: run(name, finished)) == 0
    after = tree(finished)
    steps = count_steps(lambda: run(name, counting))
    for number in range(1, steps + 1):
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if (number + sign) % 3:
                continue  # every step by one of them
            place = Path(shutil.copytree(source, tmp_path / f"{sign}-{number}" / "place"))

            def job(place: Path = place, number: int = number, sign: int = sign) -> None:
                stop_at(number, kill(sign))
                run(name, place)

            code = run_in_child(job)
            if sign == signal.SIGKILL:
                assert code == -9
                assert run_in_child(lambda place=place: run(name, place)) == 0  # type: ignore[misc]
                assert tree(place) == after
            else:
                assert code == 128 + sign
                assert tree(place) in (files_before, after)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_at_any_write_leaves_the_old_files(
    name: str, bundles: tuple[Path, Any], tmp_path: Path
) -> None:
    source = Path(shutil.copytree(bundles[0], tmp_path / "given"))
    files_before = tree(source)
    ended = []
    for room in (0, 100, 1000, 3000, 10_000, 30_000, 60_000):
        place = Path(shutil.copytree(source, tmp_path / f"{room}"))

        def job(place: Path = place, room: int = room) -> None:
            import resource

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            run(name, place)

        ended.append(run_in_child(job))
        if ended[-1]:
            assert tree(place) == files_before
    assert ended[0] == 2
    assert set(ended) <= {0, 2}


def test_two_writers_at_once_end_with_one_whole_bundle(
    bundles: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_bundle, new_bundle = bundles
    for exchanges in (True, False):
        if not exchanges:
            monkeypatch.setattr(moves, "exchange_paths", no_exchange)
        place = Path(shutil.copytree(old_bundle, tmp_path / str(exchanges)))
        pids = []
        for _ in range(3):
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    for _ in range(2):
                        new_bundle.save(place / "bundle")
                    code = 0
                finally:
                    os._exit(code)
            pids.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
        assert [path.name for path in place.iterdir()] == ["bundle"]
        assert list_foreign_files(place / "bundle") == []
        assert read_bundle(place / "bundle") == new_bundle.to_dict()


def test_a_bundle_replaced_during_the_run_is_checked_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []

    def look(folder: Path) -> list[str]:
        reads.append(folder)
        if len(reads) > 1:
            return list_foreign_files(folder)
        raise FileNotFoundError(errno.ENOENT, "gone for a moment")

    monkeypatch.setattr("posprobe.report.bundle.list_foreign_files", look)
    check_bundle_folder(place / "bundle")
    assert len(reads) == 2


def test_scratch_of_a_run_that_is_at_work_is_left_alone(place: Path) -> None:
    with moves.open_scratch_folder(place / "bundle") as scratch_folder:
        check_bundle_folder(place / "bundle")
        assert scratch_folder.is_dir()
    assert not scratch_folder.exists()


def test_a_link_that_poses_as_scratch_is_not_followed(place: Path) -> None:
    precious = place / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("years")
    with moves.open_scratch_folder(place / "bundle") as scratch_folder:
        pass
    scratch_folder.symlink_to(precious)
    check_bundle_folder(place / "bundle")
    assert (precious / "thesis").read_text() == "years"


@pytest.mark.parametrize("letters", [200, 240, 246, 255])
def test_a_name_of_any_legal_length_is_taken(letters: int, tmp_path: Path) -> None:
    folder = content(0).save(tmp_path / ("x" * letters))
    assert {path.name for path in folder.iterdir()} == BUNDLE_FILES
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
    assert list_foreign_files(folder) == []


# Written whole or not at all.


class Broken:
    """An analysis one of whose figures fails after others are on disk, or does something else."""

    def __init__(self, analysis: Any, act: Callable[[], object]) -> None:
        self.to_dict, self.arrays, self.given, self.act = (
            analysis.to_dict,
            analysis.arrays,
            analysis,
            act,
        )

    def figures(self) -> dict[str, Any]:
        figures = self.given.figures()

        def last() -> Any:
            self.act()
            return figures["norms"]()

        return {**figures, "last": last}


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no font"), KeyboardInterrupt(), OSError(errno.EIO, "broken")],
    ids=repr,
)
@pytest.mark.parametrize("name", ["bundle", "new/bundle"])
def test_a_run_that_breaks_leaves_everything_byte_for_byte(
    error: BaseException, name: str, place: Path, bundles: tuple[Path, Any]
) -> None:
    files_before = tree(place)
    with pytest.raises(OutputError if isinstance(error, OSError) else type(error)):
        write_bundle(Broken(bundles[1], raising(error)), place / name, all_figures=True)
    assert tree(place) == files_before


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()], ids=repr
)
def test_a_failing_move_puts_the_old_bundle_back(
    error: BaseException, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "bundle"
    files_before, move = tree(place), Path.rename

    def fail_on_the_new_one(path: Path, target: Path) -> Path:
        if path.name == "bundle" and Path(target) == folder:
            raise error
        return move(path, target)

    monkeypatch.setattr(Path, "rename", fail_on_the_new_one)
    monkeypatch.setattr(moves, "exchange_paths", no_exchange)
    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        content(1).save(folder)
    assert tree(place) == files_before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    content(0).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == BUNDLE_FILES


def test_a_disk_of_its_own_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")
    with pytest.raises(OutputError, match=r"a mount point, .*a folder in it can"):
        check_bundle_folder(tmp_path / "volume")
    check_bundle_folder(tmp_path / "volume" / "bundle")


def test_the_folder_one_stands_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for spelling in (".", ""):
        with pytest.raises(OutputError, match=r"working directory .*cannot be replaced"):
            content(0).save(spelling)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "name", ["thesis.tex", "file", "file/bundle", "link", "dangling", f"new/{'x' * 300}"]
)
def test_a_place_that_cannot_be_taken_is_refused_and_left_alone(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    target = tmp_path if name == "thesis.tex" else tmp_path / name
    (tmp_path / "thesis.tex").write_text("years of work")
    files_before = tree(tmp_path)
    with pytest.raises(
        OutputError, match=r"Choose (a folder of its own|another place)"
    ) as refused:
        content(0).save(target)
    assert str(target) in str(refused.value)
    assert tree(tmp_path) == files_before


#: What a full disk, or one that is read-only, does to each command that writes.
WRITING = {
    "analyze": [
        "analyze",
        "sinusoidal:64x16",
        "--nulls",
        "0",
        "--out",
        "new/folder/bundle",
    ],
    "extract": ["extract", "sinusoidal:640x64", "-o", "table.safetensors"],
}
#: A limit on the size of files stands for the full disk where nothing may be mounted.
LIMITED = (
    "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
    "from posprobe.cli import main; main()"
)
MOUNTED = 'mount -t tmpfs -o {} none "$0" && cd "$0" && "$@"; c=$?; find .; exit $c'
#: A mount of one's own needs a namespace of one's own, which not every container grants.
NAMESPACES = (
    shutil.which("unshare") is not None
    and subprocess.run(
        ["unshare", "-rm", "true"], capture_output=True, check=False
    ).returncode
    == 0
)
DISKS = [("analyze", "size=48k"), ("analyze", "ro"), ("extract", "size=48k")]


@pytest.mark.parametrize(
    ("command", "disk"), DISKS if NAMESPACES else [("analyze", "limit")]
)
def test_a_full_or_read_only_disk_is_one_clear_error(
    command: str, disk: str, tmp_path: Path
) -> None:
    start = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        MOUNTED.format(disk),
        str(tmp_path),
        *MAIN_COMMAND,
    ]
    if disk == "limit":
        start = [sys.executable, "-B", "-c", LIMITED]
    completed = subprocess.run(
        [*start, *WRITING[command]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 2, completed.stderr
    assert "cannot be written" in completed.stderr
    assert "Choose another place" in completed.stderr
    for noise in ("Traceback", "Exception ignored", "Warning"):
        assert noise not in completed.stderr
    # Nothing is printed, and nothing is found on the disk.
    assert completed.stdout == ("" if disk == "limit" else ".\n")
    assert tree(tmp_path) == {}


# A file of the user, saved while figures are drawn.


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
        monkeypatch.setattr(moves, "exchange_paths", no_exchange)
    files_before = tree(place)
    slow = Broken(bundles[1], lambda: (place / "bundle" / name).write_text("mine"))
    with pytest.raises(OutputError, match=rf"bundle: it holds {name}"):
        write_bundle(slow, place / "bundle", all_figures=True)
    assert tree(place) == files_before | {f"bundle/{name}": b"mine"}


# A bundle knows its own.


def with_own(folder: Path, name: str) -> None:
    """Add a file to a folder, or to the end of one that is there."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("ab") as file:
        file.write(b"<!-- mine -->")


def changed_arrays(folder: Path, name: str) -> None:
    with np.load(folder / name) as arrays:
        np.savez(folder / name, **(dict(arrays) | {"norms": arrays["norms"] + 1}))


def linked(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere.html")
    (folder / name).symlink_to(folder.parent / "elsewhere.html")


#: Files that somebody added or changed, by name: in a folder of their own, or in a bundle.
NAMES = (
    "figures/mine.svg", "figures/drafts/a", "report.html", "analysis.json", "arrays.npz",
)  # fmt: skip
FOREIGN = [
    *((with_own, name, bundle) for name in NAMES for bundle in (False, True)),
    (changed_arrays, "arrays.npz", True),
    (linked, "report.html", True),
]


@pytest.mark.parametrize(("make", "name", "bundle"), FOREIGN)
def test_foreign_files_are_refused_before_the_work_and_kept(
    make: Callable[[Path, str], None], name: str, bundle: bool, tmp_path: Path
) -> None:
    if bundle:
        content(0).save(tmp_path / "paper")
    make(tmp_path / "paper", name)
    files_before = tree(tmp_path)
    with pytest.raises(
        OutputError, match=r"paper: it holds .*would be lost.*Choose a folder"
    ):
        check_bundle_folder(tmp_path / "paper")
    with pytest.raises(OutputError, match="would be lost"):
        content(1).save(tmp_path / "paper")
    assert tree(tmp_path) == files_before


def test_commands_refuse_before_they_read_anything(tmp_path: Path) -> None:
    with_own(tmp_path / "paper", "figures/mine.svg")
    files_before = tree(tmp_path)
    # The reference does not exist, which would be another code.
    for command in (
        ["analyze", "./none"],
        ["compare", "./none", "./none"],
        ["forward", "./none"],
    ):
        code = run_in_child(partial(command_line, tmp_path, *command, "--out", "paper"))
        assert code == 2
    assert tree(tmp_path) == files_before


@pytest.mark.parametrize("name", ["figures/mine.svg", "arrays.npz"])
def test_report_takes_over_no_user_files(name: str, place: Path) -> None:
    (changed_arrays if name == "arrays.npz" else with_own)(place / "bundle", name)
    render_bundle(place / "bundle")
    assert list_foreign_files(place / "bundle") == [name]


def test_a_bundle_without_its_page_can_be_replaced_after_report(place: Path) -> None:
    (place / "bundle" / "report.html").unlink()
    with pytest.raises(OutputError, match="posprobe report"):
        check_bundle_folder(place / "bundle")
    render_bundle(place / "bundle")
    check_bundle_folder(place / "bundle")
    # A list that is made anew does not take what lies there by then for posprobe's.
    (place / "bundle" / "report.html").unlink()
    with_own(place / "bundle", "figures/mine.svg")
    render_bundle(place / "bundle")
    assert list_foreign_files(place / "bundle") == ["figures/mine.svg"]


def test_a_page_is_written_through_no_link(place: Path) -> None:
    precious = place / "precious.txt"
    precious.write_text("years")
    (place / "bundle" / ".report.html.part").symlink_to(precious)
    (place / "bundle" / "report.html").unlink()
    assert render_bundle(place / "bundle").is_file()
    assert precious.read_text() == "years"


def test_a_caption_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    caption = tmp_path / "fig.caption.txt"
    caption.write_text("Mine.")
    figure = pp.paper_figure("norms", pp.sinusoidal(12, 4))
    with pytest.raises(OutputError, match=r"fig\.caption\.txt: posprobe did not write"):
        figure.save(tmp_path / "fig.pdf")
    code = run_in_child(
        lambda: command_line(tmp_path, "figure", "norms", "./none.npy", "-o", "fig.pdf")
    )
    assert code == 2  # before the reference is read
    assert tree(tmp_path) == {"fig.caption.txt": b"Mine."}


def test_a_figure_replaces_its_own_caption_in_every_format(tmp_path: Path) -> None:
    first_figure = pp.paper_figure("norms", pp.sinusoidal(12, 4))
    second_figure = pp.paper_figure("norms", pp.sinusoidal(14, 4))
    for suffix in (".pdf", ".svg", ".png", ".pdf"):
        caption_path = first_figure.save(tmp_path / f"fig{suffix}")
        assert caption_path.read_text() == first_figure.caption_text
    for suffix in (".png", ".pdf", ".svg"):
        caption_path = second_figure.save(tmp_path / f"fig{suffix}")
        assert caption_path.read_text() == second_figure.caption_text
    caption_path.write_text(second_figure.caption_text + "edited")
    with pytest.raises(OutputError, match="did not write this text"):
        first_figure.save(tmp_path / "fig.pdf")


def test_two_checkpoints_of_one_name_get_folders_of_their_own(tmp_path: Path) -> None:
    for folder, seed in (("a", 0), ("b", 1)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "model.npy", walk(12, 4, seed))
    options = ["--tensor", "model", "--only", "norms", "--nulls", "0", "--quiet"]
    for folder in ("a", "b", "b"):
        assert (
            run_in_child(
                lambda folder=folder: command_line(  # type: ignore[misc]
                    tmp_path, "analyze", f"{folder}/model.npy", *options
                )
            )
            == 0
        )
    folders = sorted((tmp_path / "reports").iterdir())
    assert len(folders) == 2
    assert folders[1].name == f"{folders[0].name}-2"
    read = [read_bundle(path)["table"]["source"]["resolved"] for path in folders]
    assert read == [str(tmp_path / folder / "model.npy") for folder in ("a", "b")]


def test_an_anonymous_run_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports" / "run").mkdir(parents=True)
    document = {"schema": FORWARD_SCHEMA, "name": ["a"]}
    (tmp_path / "reports" / "run" / "analysis.json").write_text(json.dumps(document))
    assert default_folder("run", {("a", None)}).name == "run-2"


def test_report_writes_over_no_link_to_nowhere(place: Path) -> None:
    page = place / "bundle" / "report.html"
    page.unlink()
    page.symlink_to("nowhere")
    with pytest.raises(OutputError, match=r"\.html: posprobe did not write it"):
        render_bundle(place / "bundle")
    assert page.is_symlink()


def test_a_page_without_its_list_of_files_is_not_posprobe_s_own(place: Path) -> None:
    # A formatter strips comments, and notes may quote how a page begins.
    page = place / "bundle" / "report.html"
    text = page.read_text(encoding="utf-8").rpartition("<!-- ")[0]
    page.write_text(f"{text}\n<p>My notes</p>\n", encoding="utf-8")
    files_before = tree(place)
    with pytest.raises(OutputError, match=r"\.html: .*changed since"):
        render_bundle(place / "bundle")
    assert tree(place) == files_before
