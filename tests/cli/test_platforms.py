"""Commands of the light install run where the system lacks what only POSIX has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import posprobe as pp
from posprobe.errors import UnknownReference
from posprobe.locks import LOCK_FILE_NAME, lock_folder
from posprobe.reference import parse_reference

#: Takes from a process what Windows does not have, before anything of posprobe is imported. What
#: the standard library does with folders' descriptors is decided by its sets at import.
WITHOUT_POSIX = """
import os, signal, sys
for name in ("O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "mkfifo", "getuid", "geteuid"):
    vars(os).pop(name, None)
for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
    functions.clear()
for name in ("pthread_sigmask", "SIGHUP", "SIGPIPE"):
    vars(signal).pop(name, None)
for name in ("fcntl", "resource", "termios", "grp"):
    sys.modules[name] = None
sys.path.insert(0, {root!r})
import posprobe.__main__
posprobe.__main__.main()
"""
ROOT = str(Path(pp.__file__).parent.parent)


def run(
    arguments: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX.format(root=ROOT), *arguments],
        cwd=folder,
        env={
            **os.environ,
            "POSPROBE_CACHE": str(folder / "cache"),
            **(environment or {}),
        },
        capture_output=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (["analyze", "sample:digits-vit", "--out", "bundle"], "bundle/report.html"),
        (["analyze", "rotary:64x16", "--out", "bundle"], "bundle/analysis.json"),
        (["compare", "t.npy", "sinusoidal", "--out", "pair"], "pair/report.html"),
        (["check", "t.npy", "t.npy", "--out", "check"], "check/analysis.json"),
        (["extract", "sample:digits-vit", "-o", "rows.npy"], "rows.npy"),
        (["figure", "similarity", "t.npy", "-o", "f.svg"], "f.svg"),
        (["nearest", "sample:digits-vit"], ""),
        (["table", "t.npy"], ""),
        (["inspect", "t.npy"], ""),
        (["list", "samples"], ""),
    ],
)
def test_light_commands_need_nothing_of_posix(
    arguments: list[str], written: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(24, 8)))
    result = run(arguments, tmp_path)
    assert result.returncode == 0, result.stderr.decode()
    assert (tmp_path / written).exists()
    hidden = [path.name for path in tmp_path.glob("**/.posprobe*")]
    assert hidden == []


def test_a_bundle_is_replaced_and_foreign_files_are_kept_without_posix(
    tmp_path: Path,
) -> None:
    arguments = ["analyze", "sinusoidal:16x8", "--out", "bundle"]
    for _ in range(2):
        assert run(arguments, tmp_path).returncode == 0
    (tmp_path / "bundle" / "mine.txt").write_text("mine", encoding="utf-8")
    result = run(arguments, tmp_path)
    assert result.returncode != 0
    assert b"Traceback" not in result.stderr
    assert (tmp_path / "bundle" / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_a_stream_of_another_encoding_gets_escapes_and_files_are_utf_8(
    tmp_path: Path,
) -> None:
    environment = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C",
    }  # fmt: skip
    arguments = ["analyze", "sample:digits-vit", "--out", "bundle"]
    result = run(arguments, tmp_path, environment)
    assert result.returncode == 0, result.stderr.decode("cp1252")
    assert "8 × 8 patches" in result.stdout.decode("cp1252")
    page = (tmp_path / "bundle" / "report.html").read_bytes().decode("utf-8")
    assert "8 × 8" in page
    document = (tmp_path / "bundle" / "analysis.json").read_bytes().decode("utf-8")
    assert json.loads(document)["table"]["name"] == "digits-vit"


@pytest.mark.parametrize(
    "reference",
    [
        r"C:\models\bert",
        "C:/models/bert",
        r"models\bert",
        r"\\server\share\bert",
        r"d:\bert#decoder",
        r"..\bert.safetensors",
    ],
)
def test_a_missing_path_of_windows_is_a_path_and_no_formula(reference: str) -> None:
    with pytest.raises(UnknownReference, match="no such file or folder"):
        parse_reference(reference)


def test_formulas_are_no_paths_of_windows() -> None:
    assert parse_reference("sinusoidal:16x8").source == "sinusoidal:16x8"
    assert parse_reference("rotary:64x16,base=500").source == "rotary:64x16,base=500"


@pytest.mark.parametrize("has_folder_locks", [hasattr(os, "O_DIRECTORY"), False])
def test_a_folder_has_one_lock_which_leaves_nothing(
    has_folder_locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_folder_locks:
        monkeypatch.setattr("posprobe.locks.fcntl", None)
    release = lock_folder(tmp_path, is_own=True)
    with pytest.raises(BlockingIOError):
        lock_folder(tmp_path)
    release()
    lock_folder(tmp_path)()
    assert not (tmp_path / LOCK_FILE_NAME).exists()
    try:
        (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    except OSError:  # Windows allows links to developers alone
        return
    for path in (tmp_path / "link", tmp_path / "gone"):
        with pytest.raises(OSError, match=r"\w"):
            lock_folder(path)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
