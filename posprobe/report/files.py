"""Files of bundles: written whole or not at all, and read back as what others may have made.

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
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from numpy.lib import format as npy
from numpy.typing import NDArray

from posprobe.errors import InvalidCheckpoint, OutputError, UnknownReference, UsageError
from posprobe.opening import open_regular
from posprobe.progress import defer_signals

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
        with defer_signals():
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
        with defer_signals():
            place, lock = _made(target)
        yield place
    finally:
        with defer_signals():
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
            leftovers = [Path(entry) for entry in entries if entry.name.startswith(_prefix(target))]
    except OSError:
        return
    for place in leftovers:
        with suppress(OSError), defer_signals():
            lock = _locked(place)
            try:
                _finish(place, target)
            finally:
                os.close(lock)


def _finish(place: Path, target: Path) -> None:
    """Move complete files to their places, or an old folder back to its own; remove the rest."""
    for file in (place / "ready").iterdir() if (place / "ready").is_dir() else ():
        file.replace(target.parent / file.name)
    old_folder = place / "old"
    if old_folder.is_dir() and not there(target):
        old_folder.rename(target)
    shutil.rmtree(place, ignore_errors=True)


def put_in_place(new_folder: Path, target: Path, check: Callable[[Path], None]) -> None:
    """Put a folder where another or none stands.

    In one step where the system can exchange two folders; else the old one stands beside its place
    for a moment, from where `recover` takes it back.

    Parameters
    ----------
    new_folder
        Folder below one of `scratch`.
    target
        Final path; whatever stands there is removed.
    check
        Raises where what stood there must not be lost; it is then back in its place.

    Raises
    ------
    OSError
        If the folder cannot be moved.
    """
    with defer_signals():
        for tries_left in reversed(range(_TRIES)):
            try:
                if not there(target):
                    new_folder.rename(target)
                elif exchange(new_folder, target):
                    try:
                        check(new_folder)
                    except BaseException:
                        exchange(new_folder, target)
                        raise
                else:
                    _replace(new_folder, target, check)
            except OSError as error:
                # Another process may put a folder there, or take it away, at any time.
                if not tries_left or error.errno not in (
                    errno.EEXIST,
                    errno.ENOTEMPTY,
                    errno.ENOENT,
                ):
                    raise
            else:
                return


def _replace(new_folder: Path, target: Path, check: Callable[[Path], None]) -> None:
    old_folder = new_folder.parent / "old"
    shutil.rmtree(old_folder, ignore_errors=True)
    target.rename(old_folder)
    try:
        check(old_folder)
        new_folder.rename(target)
    except BaseException:
        if not there(target):
            old_folder.rename(target)
        raise


def exchange(a: Path, b: Path) -> bool:
    """Exchange two paths in one step; False where the system or the disk cannot."""
    import ctypes

    try:
        library = ctypes.CDLL(None, use_errno=True)
        first, second = os.fsencode(a), os.fsencode(b)
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
    return os.path.lexists(path)


def folder_there(path: Path) -> bool:
    """Tell whether a path names a folder; an impossible name does not."""
    return os.path.isdir(path)  # noqa: PTH112 - `Path.is_dir` raises at such a name


def file_path(path: Path, suffixes: Sequence[str], *, any_case: bool = False) -> Path:
    """Return where a file goes.

    Raises
    ------
    UsageError
        If the suffix is none of these.
    OutputError
        If there is no such folder, or a folder of that name.
    """
    path = expanded(path)
    if (path.suffix.lower() if any_case else path.suffix) not in suffixes:
        *other_suffixes, last_suffix = suffixes
        raise UsageError(
            f"{path}: the suffix must be {', '.join(other_suffixes)} or {last_suffix}."
        )
    if not folder_there(path.parent):
        raise OutputError(f"{path}: no folder {path.parent}. Create it first.")
    if folder_there(path):
        raise OutputError(f"{path}: it is a folder. Choose another name.")
    return path


@contextmanager
def written(*targets: Path) -> Iterator[Path]:
    """Give a folder to write files in that go to ``targets``, all of them or none.

    Raises
    ------
    OutputError
        If one cannot be written.
    """
    try:
        with whole_files(*targets) as place:
            yield place
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{targets[0]}: it cannot be written ({getattr(error, 'strerror', None) or error}). "
            "Choose another place."
        ) from error


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
        status = os.fstat(opened)
        if status.st_uid != os.getuid() or not os.path.samestat(status, place.lstat()):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(place))
    except BaseException:
        os.close(opened)
        raise
    return opened


PAGE = "report.html"
#: Bytes at the end of a file that its checksum is of: all of a drawing, and of arrays the directory
#: of the archive, which holds a checksum of each.
TAIL = 2**20
#: Bytes that a page or a document may have to be read, and all drawings together.
LARGEST = 2**26
#: Bytes that an array may have.
_LARGEST_ARRAY = 2**30

_BEGIN = "<!-- posprobe wrote "
_LIST = re.compile(rf"{_BEGIN}(\{{[^<>]*\}}) -->\n\Z", re.ASCII)
_NAME = re.compile(r"analysis\.json|arrays\.npz|figures/[\w-]+\.(?:pdf|png|svg)", re.ASCII)

#: Of a file that posprobe wrote, its size and checksum.
Written: TypeAlias = dict[str, int | str]


def seal(page: str, files: Mapping[str, Written]) -> str:
    """End a page with the list of the files that were written with it."""
    content = page.encode()
    checksums = dict(sorted(files.items())) | {PAGE: _written(content)}
    return f"{page}{_BEGIN}{json.dumps(checksums, separators=(',', ':'))} -->\n"


def _listed(page: str) -> dict[str, Any] | None:
    """Return what a page lists; None where posprobe did not write it, or it changed since."""
    list_match = _LIST.search(page, max(page.rfind(_BEGIN), 0))
    if not list_match:
        return None
    try:
        checksums: dict[str, Any] = json.loads(list_match[1])
        content = page[: list_match.start()].encode("utf-8", "surrogateescape")
    except (ValueError, RecursionError):
        return None
    return checksums if checksums.pop(PAGE, None) == _written(content) else None


def write_page(target: Path, page: str) -> None:
    """Write a page whole or not at all.

    Raises
    ------
    OutputError
        If it cannot be written; an older one is then left as it was.
    """
    with written(target) as place:
        (place / target.name).write_text(page, encoding="utf-8")


def files_in(folder: Path) -> dict[str, Written]:
    """List the files of a bundle but for its page, as they are now."""
    return {
        name: entry
        for name, path in _entries(folder)
        if _NAME.fullmatch(name) and (entry := _stored(path))
    }


def own_files(folder: Path) -> dict[str, Written] | None:
    """Return the files of a bundle that are as its page lists them; None if it is not posprobe's.

    Raises
    ------
    FileNotFoundError
        If there is no page.
    InvalidCheckpoint
        If it is no file.
    """
    page = read_regular(folder / PAGE).decode("utf-8", "surrogateescape")
    if (folder / PAGE).is_symlink() or (checksums := _listed(page)) is None:
        return None
    # The list may come from elsewhere: nothing of it but names of sound files is taken over.
    return {name: entry for name, entry in files_in(folder).items() if checksums.get(name) == entry}


def foreign_in(folder: Path) -> list[str]:
    """Name what in a folder posprobe did not write there, or what was changed since.

    Raises
    ------
    OSError
        If the folder cannot be looked into.
    """
    sealed_names = None
    with suppress(FileNotFoundError, InvalidCheckpoint):
        sealed_names = own_files(folder)
    own_names = () if sealed_names is None else (PAGE, *sealed_names)
    return sorted(name for name, _ in _entries(folder) if name not in own_names)


def read_regular(path: Path, max_bytes: int = LARGEST) -> bytes:
    """Read a file of a bundle, which may come from elsewhere.

    Raises
    ------
    FileNotFoundError
        If there is none.
    InvalidCheckpoint
        If it is not a regular file, has more than ``max_bytes`` bytes, or cannot be read.
    """
    try:
        with open_regular(path, max_bytes) as file:
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


#: Of the six kinds of bundle.
ANALYSIS: Final = "posprobe.analysis/2"
COMPARISON: Final = "posprobe.comparison/2"
KERNELS: Final = "posprobe.kernels/2"
FORWARD: Final = "posprobe.forward/2"
RESIZING: Final = "posprobe.resizing/1"
CHECK: Final = "posprobe.check/1"
SCHEMAS = (ANALYSIS, COMPARISON, KERNELS, FORWARD, RESIZING, CHECK)
#: Of version 1, which still become pages.
EARLIER = (
    "posprobe.analysis/1",
    "posprobe.comparison/1",
    "posprobe.kernels/1",
    "posprobe.forward/1",
)
#: What helps where a bundle is damaged.
REPEAT_ADVICE = "Analyse the table again."
#: Arrays of which the page of a table is drawn.
_PAGE_ARRAYS = (
    "similarity_centered",
    "norms",
    "pca_scores",
    "rotation_paths",
    "budget_spectrum",
)


def read_bundle(folder: Path) -> dict[str, Any]:
    """Read a bundle's ``analysis.json``.

    Raises
    ------
    UnknownReference
        If the folder is not a bundle.
    InvalidCheckpoint
        If the file is damaged or of another version.
    """
    path = expanded(folder) / "analysis.json"
    with _sound(path, REPEAT_ADVICE):
        try:
            document = json.loads(read_regular(path))
        except FileNotFoundError as error:
            raise UnknownReference(
                f"{folder}: not a report: it has no analysis.json. "
                "`posprobe analyze REF --out DIR` makes one."
            ) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in (*SCHEMAS, *EARLIER):
        raise InvalidCheckpoint(
            f"{path}: its schema is {schema!r:.80} and one of {', '.join(SCHEMAS)} is needed. "
            f"{REPEAT_ADVICE}"
        )
    return dict(document)


def stored_drawings(folder: Path, advice: str) -> dict[str, str]:
    """Read a bundle's drawings, by name.

    Parameters
    ----------
    folder
        ``figures`` of a bundle.
    advice
        Advice for the case that the folder is damaged.

    Raises
    ------
    InvalidCheckpoint
        If one is not a drawing, or if together they are too large.
    """
    drawings: dict[str, str] = {}
    room = LARGEST
    for path in sorted(folder.glob("*.svg")):
        with _sound(path, advice):
            drawings[path.stem] = read_regular(path, room).decode("utf-8")
            room -= len(drawings[path.stem])
            if "<svg" not in drawings[path.stem]:
                raise InvalidCheckpoint(f"{path}: not a drawing.")
    return drawings


@contextmanager
def _sound(path: Path, advice: str) -> Iterator[None]:
    """Say of what is damaged what helps."""
    try:
        yield
    except (InvalidCheckpoint, FileNotFoundError) as error:
        raise InvalidCheckpoint(f"{error} {advice}") from error
    except (
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InvalidCheckpoint(f"{path}: it cannot be read ({error}). {advice}") from error


def stored_arrays(
    path: Path, advice: str, names: Sequence[str] = _PAGE_ARRAYS
) -> dict[str, NDArray[Any]]:
    """Read arrays of a bundle, those of which the page of a table is drawn where none are named.

    Raises
    ------
    InvalidCheckpoint
        If the archive is gone or damaged, or holds something else under their names.
    """
    arrays = {}
    with _sound(path, advice):
        if not path.is_file():
            problem = "it is not a file" if path.exists() else "the bundle has lost its arrays"
            raise InvalidCheckpoint(f"{path}: {problem}.")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            for name in names:
                if member := members.get(f"{name}.npy"):
                    arrays[name] = _floats(archive, member)
    return arrays


def _floats(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array of floats; what is packed may be much longer."""
    if member.file_size > _LARGEST_ARRAY:
        raise ValueError(f"{member.filename} has {member.file_size} bytes")
    with archive.open(member) as stream:
        array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
    if array.dtype.kind != "f":
        raise ValueError(f"{member.filename} is not an array of numbers")
    return array
