"""Files and folders that are written whole: made beside their place, moved there when complete.

What is made lies in a hidden folder beside its place, named after a digest of its name and locked
while its process lives. A process that was killed holds no lock: whoever writes to the same place
next finishes what was complete and removes the rest. A page ends with a comment that lists every
file of its bundle with size and checksum: what in a folder posprobe did not write is not replaced.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from posprobe.errors import InvalidCheckpoint, OutputError
from posprobe.interrupts import uninterrupted
from posprobe.opening import open_regular

#: How the folders are called in which something is made.
SCRATCH = re.compile(r"\.posprobe-[0-9a-f]{12}-\w{8}", re.ASCII)
#: Of `renameat2` on Linux and `renamex_np` on macOS: exchange two paths in one step.
_EXCHANGE = 2
_AT_FDCWD = -100
#: How often a folder is put in its place while other processes do the same.
_TRIES = 100


@contextmanager
def whole_files(*targets: Path) -> Iterator[Path]:
    """Give a folder to write files in that have the names of ``targets``, and move them there.

    All targets lie in one folder. What breaks before all of them are complete leaves the old files
    or none.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    with scratch(targets[0]) as place:
        making, ready = place / "making", place / "ready"
        making.mkdir()
        yield making
        with uninterrupted():
            making.replace(ready)
            for target in targets:
                (ready / target.name).replace(target)


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Give a new folder beside ``target`` that nobody else can write to, and remove it at the end.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    recover(target)
    place, lock = None, -1
    try:
        with uninterrupted():
            place, lock = _made(target)
        yield place
    finally:
        with uninterrupted():
            # Descriptors may have run out: this gives back the one that the removal needs.
            if lock >= 0:
                os.close(lock)
            if place:
                _remove(place)


def _remove(place: Path) -> None:
    """Remove a folder that nobody else writes to, with one descriptor at a time."""
    for parent, folders, files in os.walk(place, topdown=False):
        for path in (Path(parent, name) for name in (*files, *folders)):
            with suppress(OSError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    with suppress(OSError):
        place.rmdir()


def recover(target: Path) -> None:
    """Remove what killed processes left beside ``target``, and put back what it was."""
    try:
        with os.scandir(target.parent) as entries:
            left = [Path(entry) for entry in entries if entry.name.startswith(_prefix(target))]
    except OSError:
        return
    for place in left:
        with suppress(OSError), uninterrupted():
            lock = _locked(place)
            try:
                _finish(place, target)
            finally:
                os.close(lock)


def _finish(place: Path, target: Path) -> None:
    """Move complete files to their places, or an old folder back to its own; remove the rest."""
    for file in (place / "ready").iterdir() if (place / "ready").is_dir() else ():
        file.replace(target.parent / file.name)
    old = place / "old"
    if old.is_dir() and not there(target):
        old.rename(target)
    shutil.rmtree(place, ignore_errors=True)


def put_in_place(made: Path, target: Path, check: Callable[[Path], None]) -> None:
    """Put a folder where another or none stands.

    In one step where the system can exchange two folders; else the old one stands beside its place
    for a moment, from where `recover` takes it back.

    Parameters
    ----------
    made
        In a folder of `scratch`.
    target
        What stands there is removed.
    check
        Raises where what stood there must not be lost; it is then back in its place.

    Raises
    ------
    OSError
        If the folder cannot be moved.
    """
    with uninterrupted():
        for left in reversed(range(_TRIES)):
            try:
                if not there(target):
                    made.rename(target)
                elif exchange(made, target):
                    try:
                        check(made)
                    except BaseException:
                        exchange(made, target)
                        raise
                else:
                    _replace(made, target, check)
            except OSError as error:
                # Another process may put a folder there, or take it away, at any time.
                if not left or error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT):
                    raise
            else:
                return


def _replace(made: Path, target: Path, check: Callable[[Path], None]) -> None:
    old = made.parent / "old"
    shutil.rmtree(old, ignore_errors=True)
    target.rename(old)
    try:
        check(old)
        made.rename(target)
    except BaseException:
        if not there(target):
            old.rename(target)
        raise


def exchange(one: Path, two: Path) -> bool:
    """Exchange two paths in one step; False where the system or the disk cannot."""
    import ctypes

    try:
        library = ctypes.CDLL(None, use_errno=True)
        first, second = os.fsencode(one), os.fsencode(two)
        if sys.platform == "darwin":
            failed = library.renamex_np(first, second, _EXCHANGE)
        else:
            failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE)
    except (OSError, AttributeError, TypeError):
        return False
    return not failed


def expanded(path: Path) -> Path:
    """Replace a leading ``~``; ``~x`` without a user of that name is a name, as in shells."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def there(path: Path) -> bool:
    """Tell whether a path names anything, be it a broken link; an impossible name does not."""
    try:
        return path.is_symlink() or path.exists()
    except (OSError, ValueError):
        return False


def folder_there(path: Path) -> bool:
    """Tell whether a path names a folder; an impossible name does not."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _prefix(target: Path) -> str:
    # A name may be as long as a name can be: what is made of it must not be longer.
    return f".posprobe-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]}-"


def _made(target: Path) -> tuple[Path, int]:
    while True:
        place = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        try:
            return place, _locked(place)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process took it for one that was left, and removes it
        except OSError:
            return place, -1  # a disk without locks, on which nothing is taken for left


def _locked(place: Path) -> int:
    """Lock a folder of one's own that nobody has locked, and return what holds the lock.

    Raises
    ------
    OSError
        If it is gone, no such folder, another user's, or another process has it.
    """
    import fcntl

    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(opened)
        if found.st_uid != os.getuid() or not os.path.samestat(found, place.lstat()):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(place))
    except BaseException:
        os.close(opened)
        raise
    return opened


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
