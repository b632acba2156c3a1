"""A bundle is written whole or not at all, and only where nothing of others stands."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from made_bundles import MAIN, MEMBERS, small, tree

from posprobe.errors import OutputError
from posprobe.report import check_place, write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


#: A mount of one's own needs a namespace of one's own, which not every container grants.
NAMESPACES = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
)


class Broken:
    """An analysis one of whose figures fails after others are on disk."""

    def __init__(self, error: BaseException) -> None:
        self.analysis, self.error = small(), error

    def to_dict(self) -> dict[str, Any]:
        return self.analysis.to_dict()

    def arrays(self) -> dict[str, Any]:
        return self.analysis.arrays()

    def figures(self) -> dict[str, Callable[[], Figure]]:
        def fail() -> Figure:
            raise self.error

        return {**self.analysis.figures(), "broken": fail}


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no font"), MemoryError(), KeyboardInterrupt(), OSError(errno.EIO, "broken")],
    ids=lambda error: type(error).__name__,
)
def test_a_run_that_breaks_leaves_the_old_bundle_byte_for_byte(
    error: BaseException, tmp_path: Path
) -> None:
    folder = small().save(tmp_path / "bundle")
    before = tree(tmp_path)
    with pytest.raises(OutputError if isinstance(error, OSError) else type(error)):
        write_bundle(Broken(error), folder, every=True)
    assert tree(tmp_path) == before


def test_a_run_that_breaks_leaves_no_new_folders(tmp_path: Path) -> None:
    before = tree(tmp_path)
    with pytest.raises(RuntimeError, match="no font"):
        write_bundle(Broken(RuntimeError("no font")), tmp_path / "new" / "bundle", every=True)
    assert tree(tmp_path) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()], ids=repr)
def test_a_failing_move_puts_the_old_bundle_back(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small().save(tmp_path / "bundle")
    before, move = tree(tmp_path), Path.rename

    def fail_on_the_new_one(path: Path, target: Path) -> Path:
        if path.name == "bundle" and Path(target) == folder:
            raise error
        return move(path, target)

    monkeypatch.setattr(Path, "rename", fail_on_the_new_one)
    monkeypatch.setattr("posprobe.report.files.exchange", lambda *_: False)
    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        small().save(folder)
    assert tree(tmp_path) == before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    small().save(tmp_path)
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
    for place in (".", ""):
        with pytest.raises(OutputError, match=r"working directory .*cannot be replaced"):
            small().save(place)
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
        small().save(target)
    assert str(target) in str(refused.value)
    assert tree(tmp_path) == before


#: What a full disk, or one that is read-only, does to each command that writes.
WRITING = {
    "analyze": ["analyze", "sinusoidal:64x16", "--nulls", "0", "--out", "new/folder/bundle"],
    "extract safetensors": ["extract", "sinusoidal:640x64", "-o", "table.safetensors"],
}


@pytest.mark.parametrize("command", WRITING)
def test_a_full_disk_ends_in_one_clear_error_and_leaves_nothing(
    command: str, tmp_path: Path
) -> None:
    # A limit on the size of files stands for the full disk where nothing may be mounted.
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
        "from posprobe.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, *WRITING[command]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert_refused(done)
    assert done.stdout == ""
    assert tree(tmp_path) == {}


def assert_refused(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "Choose another place" in done.stderr
    for noise in ("Traceback", "Exception ignored", "Warning"):
        assert noise not in done.stderr


if NAMESPACES:

    @pytest.mark.parametrize("options", ["size=48k", "ro"], ids=["full", "read-only"])
    @pytest.mark.parametrize("command", ["analyze", "extract safetensors"])
    def test_a_disk_of_its_own_that_is_full_or_read_only(
        command: str, options: str, tmp_path: Path
    ) -> None:
        script = f'mount -t tmpfs -o {options} none "$0" && cd "$0" && "$@"; c=$?; find .; exit $c'
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script, str(tmp_path), *MAIN, *WRITING[command]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert_refused(done)
        assert done.stdout == ".\n"  # nothing is printed, and nothing is found on the disk
