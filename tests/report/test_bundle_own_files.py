"""A bundle is written whole or not at all, and what posprobe did not write is kept."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_bundles import MAIN, MEMBERS, tree
from made_replacements import bundles, child, content, needs_fork, no_exchange, place
from made_tables import walk

import posprobe as pp
from posprobe.cli import main
from posprobe.errors import OutputError
from posprobe.report import (
    check_place,
    default_place,
    files as moves,
    read_bundle,
    render_bundle,
    write_bundle,
)
from posprobe.report.files import foreign_in

__all__ = ["bundles", "place"]

pytestmark = needs_fork


# Written whole or not at all.


class Broken:
    """An analysis one of whose figures fails after others are on disk, or does something else."""

    def __init__(self, given: Any, act: Callable[[], object]) -> None:
        self.to_dict, self.arrays, self.given, self.act = given.to_dict, given.arrays, given, act

    def figures(self) -> dict[str, Any]:
        made = self.given.figures()
        return {**made, "last": lambda: self.act() and made["norms"]()}


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    "error", [RuntimeError("no font"), KeyboardInterrupt(), OSError(errno.EIO, "broken")], ids=repr
)
@pytest.mark.parametrize("name", ["bundle", "new/bundle"])
def test_a_run_that_breaks_leaves_everything_byte_for_byte(
    error: BaseException, name: str, place: Path, bundles: tuple[Path, Any]
) -> None:
    before = tree(place)
    with pytest.raises(OutputError if isinstance(error, OSError) else type(error)):
        write_bundle(Broken(bundles[1], raising(error)), place / name, every=True)
    assert tree(place) == before


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()], ids=repr)
def test_a_failing_move_puts_the_old_bundle_back(
    error: BaseException, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "bundle"
    before, move = tree(place), Path.rename

    def fail_on_the_new_one(path: Path, target: Path) -> Path:
        if path.name == "bundle" and Path(target) == folder:
            raise error
        return move(path, target)

    monkeypatch.setattr(Path, "rename", fail_on_the_new_one)
    monkeypatch.setattr(moves, "exchange", no_exchange)
    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        content(1).save(folder)
    assert tree(place) == before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    content(0).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == MEMBERS


def test_a_disk_of_its_own_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")
    with pytest.raises(OutputError, match=r"a mount point, .*a folder in it can"):
        check_place(tmp_path / "volume")
    check_place(tmp_path / "volume" / "bundle")


def test_the_folder_one_stands_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for here in (".", ""):
        with pytest.raises(OutputError, match=r"working directory .*cannot be replaced"):
            content(0).save(here)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "name", ["thesis.tex", "file", "file/bundle", "link", "dangling", f"new/{'x' * 300}"]
)
def test_a_place_that_cannot_be_taken_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    target = tmp_path if name == "thesis.tex" else tmp_path / name
    (tmp_path / "thesis.tex").write_text("years of work")
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"--out DIR") as refused:
        content(0).save(target)
    assert str(target) in str(refused.value)
    assert tree(tmp_path) == before


#: What a full disk, or one that is read-only, does to each command that writes.
WRITING = {
    "analyze": ["analyze", "sinusoidal:64x16", "--nulls", "0", "--out", "new/folder/bundle"],
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
    and subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
)
DISKS = [("analyze", "limit")]
if NAMESPACES:
    DISKS += [("analyze", "size=48k"), ("analyze", "ro"), ("extract", "size=48k")]


@pytest.mark.parametrize(("command", "disk"), DISKS)
def test_a_disk_that_is_full_or_read_only_ends_in_one_clear_error_and_leaves_nothing(
    command: str, disk: str, tmp_path: Path
) -> None:
    start = ["unshare", "-rm", "sh", "-c", MOUNTED.format(disk), str(tmp_path), *MAIN]
    if disk == "limit":
        start = [sys.executable, "-B", "-c", LIMITED]
    done = subprocess.run(
        [*start, *WRITING[command]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "Choose another place" in done.stderr
    for noise in ("Traceback", "Exception ignored", "Warning"):
        assert noise not in done.stderr
    # Nothing is printed, and nothing is found on the disk.
    assert done.stdout == ("" if disk == "limit" else ".\n")
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
        monkeypatch.setattr(moves, "exchange", no_exchange)
    before = tree(place)
    slow = Broken(bundles[1], lambda: (place / "bundle" / name).write_text("mine"))
    with pytest.raises(OutputError, match=rf"bundle: it holds {name}"):
        write_bundle(slow, place / "bundle", every=True)
    assert tree(place) == before | {f"bundle/{name}": b"mine"}


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
def test_what_posprobe_did_not_write_is_refused_before_the_work_and_kept(
    make: Callable[[Path, str], None], name: str, bundle: bool, tmp_path: Path
) -> None:
    if bundle:
        content(0).save(tmp_path / "paper")
    make(tmp_path / "paper", name)
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"paper: it holds .*would be lost.*--out DIR"):
        check_place(tmp_path / "paper")
    with pytest.raises(OutputError, match="would be lost"):
        content(1).save(tmp_path / "paper")
    assert tree(tmp_path) == before


def test_commands_refuse_before_they_read_anything(tmp_path: Path) -> None:
    with_own(tmp_path / "paper", "figures/mine.svg")
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


@pytest.mark.parametrize("name", ["figures/mine.svg", "arrays.npz"])
def test_report_takes_nothing_of_the_user_over(name: str, place: Path) -> None:
    (changed_arrays if name == "arrays.npz" else with_own)(place / "bundle", name)
    render_bundle(place / "bundle")
    assert foreign_in(place / "bundle") == [name]


def test_a_bundle_without_its_page_can_be_replaced_after_report(place: Path) -> None:
    (place / "bundle" / "report.html").unlink()
    with pytest.raises(OutputError, match="posprobe report"):
        check_place(place / "bundle")
    render_bundle(place / "bundle")
    check_place(place / "bundle")


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
    made = pp.paper_figure("norms", pp.sinusoidal(12, 4))
    with pytest.raises(OutputError, match=r"fig\.caption\.txt: posprobe did not write"):
        made.save(tmp_path / "fig.pdf")
    code = child(lambda: command_line(tmp_path, "figure", "norms", "./none.npy", "-o", "fig.pdf"))
    assert code == 2  # before the reference is read
    assert tree(tmp_path) == {"fig.caption.txt": b"Mine."}


def test_a_figure_replaces_its_own_caption_in_every_format(tmp_path: Path) -> None:
    one = pp.paper_figure("norms", pp.sinusoidal(12, 4))
    two = pp.paper_figure("norms", pp.sinusoidal(14, 4))
    for suffix in (".pdf", ".svg", ".png", ".pdf"):
        beside = one.save(tmp_path / f"fig{suffix}")
        assert beside.read_text() == one.caption
    for suffix in (".png", ".pdf", ".svg"):
        beside = two.save(tmp_path / f"fig{suffix}")
        assert beside.read_text() == two.caption
    beside.write_text(two.caption + "edited")
    with pytest.raises(OutputError, match="did not write this text"):
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


def test_a_run_that_does_not_say_of_what_it_is_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports" / "run").mkdir(parents=True)
    document = {"schema": "posprobe.forward/2", "name": ["a"]}
    (tmp_path / "reports" / "run" / "analysis.json").write_text(json.dumps(document))
    assert default_place("run", {("a", None)}).name == "run-2"


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
    before = tree(place)
    with pytest.raises(OutputError, match=r"\.html: .*changed since"):
        render_bundle(place / "bundle")
    assert tree(place) == before
