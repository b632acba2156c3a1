"""What in a folder posprobe wrote: a page ends with a list of the files that were written with it.

The list stands in the last line of ``report.html``, a comment, and names every file of the bundle
with its size and checksum; that of the page is of all above the line.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

from posprobe.errors import InvalidCheckpoint, OutputError
from posprobe.opening import open_regular
from posprobe.report.files import SCRATCH, whole_files

PAGE = "report.html"
#: Bytes at the end of a file that its checksum is of: all of a drawing, and of arrays the directory
#: of the archive, which holds a checksum of each.
TAIL = 2**20
#: Bytes that a page or a document may have to be read, and a drawing.
LARGEST = 2**26

_BEGIN = "<!-- posprobe wrote "
_LIST = re.compile(rf"{_BEGIN}(\{{[^<>]*\}}) -->\n\Z", re.ASCII)
_NAME = re.compile(r"analysis\.json|arrays\.npz|figures/[\w-]+\.(?:pdf|png|svg)", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Written(TypedDict):
    """A file that posprobe wrote."""

    bytes: int
    sha256: str


def seal(page: str, files: Mapping[str, Written] | None = None) -> str:
    """End a page with the list of the files that were written with it."""
    content = page.encode()
    listed = dict(sorted((files or {}).items())) | {PAGE: _written(content)}
    return f"{page}{_BEGIN}{json.dumps(listed, separators=(',', ':'))} -->\n"


def unsealed(page: str) -> tuple[bool, dict[str, Written]]:
    """Tell whether a page is one that posprobe wrote, unchanged, and what it lists.

    Returns
    -------
    bool
        False as well where the page was changed since.
    dict
        By name; empty where it is not.
    """
    found = _LIST.search(page, max(page.rfind(_BEGIN), 0))
    if not found:
        return False, {}
    try:
        listed = json.loads(found[1])
        own = listed.pop(PAGE) == _written(page[: found.start()].encode("utf-8", "surrogatepass"))
    except (ValueError, LookupError, RecursionError):
        return False, {}
    # A bundle may come from elsewhere: nothing but names, sizes and checksums is taken over.
    return own, {
        name: {"bytes": entry["bytes"], "sha256": entry["sha256"]}
        for name, entry in listed.items()
        if _NAME.fullmatch(name)
        and isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("sha256"), str)
        and _DIGEST.fullmatch(entry["sha256"])
    }


def write_page(target: Path, page: str) -> None:
    """Write a page whole or not at all.

    Raises
    ------
    OutputError
        If it cannot be written; an older one is then left as it was.
    """
    try:
        with whole_files(target) as place:
            (place / target.name).write_text(page, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{target}: it cannot be written ({error.strerror or error}). Make room or fix the "
            "folder's permissions."
        ) from error


def files_in(folder: Path) -> dict[str, Written]:
    """List the files of a bundle but for its page, as they are now."""
    return {
        name: entry
        for name, path in _entries(folder)
        if _NAME.fullmatch(name) and (entry := _stored(path))
    }


def foreign_in(folder: Path) -> list[str]:
    """Name what in a folder posprobe did not write there, or what was changed since.

    Raises
    ------
    OSError
        If the folder cannot be looked into.
    """
    try:
        page = read_regular(folder / PAGE).decode("utf-8")
        own, known = unsealed(page)
    except (FileNotFoundError, InvalidCheckpoint, ValueError):
        own, known = False, {}
    return sorted(
        name
        for name, path in _entries(folder)
        if not (
            (own and not path.is_symlink())
            if name == PAGE
            else name in known and _stored(path) == known[name]
        )
    )


def read_regular(path: Path, most: int = LARGEST) -> bytes:
    """Read a file of a bundle, which may come from elsewhere.

    Raises
    ------
    FileNotFoundError
        If there is none.
    InvalidCheckpoint
        If it is not a regular file, has more than ``most`` bytes, or cannot be read.
    """
    try:
        with open_regular(path, most) as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidCheckpoint(f"{path}: it cannot be read ({error.strerror}).") from error


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Give everything in a folder and in its ``figures``, by name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == "figures" and entry.is_dir(follow_symlinks=False):
                with os.scandir(entry) as figures:
                    yield from ((f"figures/{figure.name}", Path(figure)) for figure in figures)
            elif not (SCRATCH.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)):
                yield entry.name, Path(entry)


def _stored(path: Path) -> Written | None:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL, 0))
            return {"bytes": size, "sha256": hashlib.sha256(file.read()).hexdigest()}
    except OSError:
        return None


def _written(content: bytes) -> Written:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
