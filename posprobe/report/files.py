"""Files of bundles: written whole or not at all, and read back without trust in their origin.

New files are made in a hidden folder beside their target, which is named after a digest of the
target's name and locked while its process lives. A killed process holds no lock: the next process
that writes to the target finishes complete files and removes the rest. A page ends with a comment
that lists every file of its bundle with size and checksum, so that files which posprobe did not
write are never replaced.
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
from posprobe.locks import lock_folder
from posprobe.opening import open_regular
from posprobe.progress import defer_signals

#: Names of the hidden folders in which files are made.
SCRATCH_PATTERN = re.compile(r"\.posprobe-[0-9a-f]{12}-\w{8}", re.ASCII)
#: Flag of `renameat2` on Linux and `renamex_np` on macOS that exchanges two paths in one step.
_RENAME_EXCHANGE = 2
#: File descriptor by which `renameat2` resolves relative paths in the working directory.
_AT_FDCWD = -100
#: A folder is moved to its target this often where other processes write there too.
_MAX_REPLACE_TRIES = 100


@contextmanager
def write_atomically(*targets: Path) -> Iterator[Path]:
    """Yield a folder for files with the names of ``targets``, and move them there at the end.

    All targets lie in one folder. An error before all of them are complete leaves the old files or
    none.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    with open_scratch_folder(targets[0]) as folder:
        incomplete, complete = folder / "making", folder / "ready"
        incomplete.mkdir()
        yield incomplete
        with defer_signals():
            incomplete.replace(complete)
            for target in targets:
                (complete / target.name).replace(target)


@contextmanager
def open_scratch_folder(target: Path) -> Iterator[Path]:
    """Yield a new, locked folder beside ``target``, and remove it at the end.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    recover_leftovers(target)
    folder, release = None, None
    try:
        with defer_signals():
            folder, release = _make_scratch_folder(target)
        yield folder
    finally:
        with defer_signals():
            # If file descriptors ran out, releasing frees the one that the removal needs.
            if release is not None:
                release()
            if folder:
                _remove_folder(folder)


def _remove_folder(folder: Path) -> None:
    """Remove a locked folder, using one file descriptor at a time."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for path in (Path(parent, name) for name in (*files, *folders)):
            with suppress(OSError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    with suppress(OSError):
        folder.rmdir()


def recover_leftovers(target: Path) -> None:
    """Remove the folders that killed processes left beside ``target``, and restore it."""
    try:
        with os.scandir(target.parent) as entries:
            leftovers = [
                Path(entry)
                for entry in entries
                if entry.name.startswith(_scratch_prefix(target))
            ]
    except OSError:
        return
    for folder in leftovers:
        with suppress(OSError), defer_signals():
            release = lock_folder(folder, is_own=True)
            try:
                _finish_leftover(folder, target)
            finally:
                release()
            # Windows removes no folder in which a lock is held.
            shutil.rmtree(folder, ignore_errors=True)


def _finish_leftover(folder: Path, target: Path) -> None:
    """Move complete files to their targets, or an old folder back to its own."""
    for file in (folder / "ready").iterdir() if (folder / "ready").is_dir() else ():
        file.replace(target.parent / file.name)
    old_folder = folder / "old"
    if old_folder.is_dir() and not path_exists(target):
        old_folder.rename(target)


def replace_folder(new_folder: Path, target: Path, check: Callable[[Path], None]) -> None:
    """Move a folder to a target, which may be another folder.

    This is a single step where the system can exchange two folders. Elsewhere the old folder is
    moved aside for a moment, from where `recover_leftovers` can restore it.

    Parameters
    ----------
    new_folder
        Folder below one of `open_scratch_folder`.
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
        for tries_left in reversed(range(_MAX_REPLACE_TRIES)):
            try:
                if not path_exists(target):
                    new_folder.rename(target)
                elif exchange_paths(new_folder, target):
                    try:
                        check(new_folder)
                    except BaseException:
                        exchange_paths(new_folder, target)
                        raise
                else:
                    _replace_in_two_steps(new_folder, target, check)
            except OSError as error:
                # Another process may create or remove the target at any time.
                if not tries_left or error.errno not in (
                    errno.EEXIST,
                    errno.ENOTEMPTY,
                    errno.ENOENT,
                ):
                    raise
            else:
                return


def _replace_in_two_steps(
    new_folder: Path, target: Path, check: Callable[[Path], None]
) -> None:
    old_folder = new_folder.parent / "old"
    shutil.rmtree(old_folder, ignore_errors=True)
    target.rename(old_folder)
    try:
        check(old_folder)
        new_folder.rename(target)
    except BaseException:
        if not path_exists(target):
            old_folder.rename(target)
        raise


def exchange_paths(a: Path, b: Path) -> bool:
    """Exchange two paths in one step; return False where the system or the disk cannot."""
    import ctypes

    try:
        library = ctypes.CDLL(None, use_errno=True)
        encoded_a, encoded_b = os.fsencode(a), os.fsencode(b)
        if sys.platform == "darwin":
            error_code = library.renamex_np(encoded_a, encoded_b, _RENAME_EXCHANGE)
        else:
            error_code = library.renameat2(
                _AT_FDCWD, encoded_a, _AT_FDCWD, encoded_b, _RENAME_EXCHANGE
            )
    except (OSError, AttributeError, TypeError):
        return False
    return not error_code


def expand_user(path: Path) -> Path:
    """Replace a leading ``~``; ``~x`` stays as it is if there is no user x, as in shells."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def path_exists(path: Path) -> bool:
    """Return whether a path exists, be it a broken link; False for impossible names."""
    return os.path.lexists(path)


def folder_exists(path: Path) -> bool:
    """Return whether a path is a folder; False for impossible names."""
    return os.path.isdir(path)  # noqa: PTH112 - `Path.is_dir` raises at such a name


def resolve_file_path(
    path: Path, suffixes: Sequence[str], *, any_case: bool = False
) -> Path:
    """Return the expanded path of a file that is to be written.

    Raises
    ------
    UsageError
        If the suffix is none of these.
    OutputError
        If there is no such folder, or a folder of that name.
    """
    path = expand_user(path)
    if (path.suffix.lower() if any_case else path.suffix) not in suffixes:
        *other_suffixes, last_suffix = suffixes
        raise UsageError(
            f"{path}: the suffix must be {', '.join(other_suffixes)} or {last_suffix}."
        )
    if not folder_exists(path.parent):
        raise OutputError(f"{path}: no folder {path.parent}. Create it first.")
    if folder_exists(path):
        raise OutputError(f"{path}: it is a folder. Choose another name.")
    return path


@contextmanager
def write_files(*targets: Path) -> Iterator[Path]:
    """Yield a folder for files that become ``targets`` at the end, all of them or none.

    Raises
    ------
    OutputError
        If one cannot be written.
    """
    try:
        with write_atomically(*targets) as folder:
            yield folder
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{targets[0]}: it cannot be written "
            f"({getattr(error, 'strerror', None) or error}). Choose another "
            "place."
        ) from error


def _scratch_prefix(target: Path) -> str:
    # The digest is short, while the target's name may have the largest possible length.
    return f".posprobe-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]}-"


def _make_scratch_folder(target: Path) -> tuple[Path, Callable[[], None] | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_scratch_prefix(target), dir=target.parent))
        try:
            return folder, lock_folder(folder, is_own=True)
        except (BlockingIOError, FileNotFoundError):
            # Another process took the folder for a leftover, and removes it.
            continue
        except OSError:
            # The disk has no locks, so that no process takes a folder for a leftover.
            return folder, None


#: Name of the page in its bundle.
PAGE_NAME = "report.html"
#: The checksum of a file covers this many bytes at its end: all of a drawing, and the directory of
#: an archive of arrays, which holds a checksum of each array.
MAX_CHECKSUM_BYTES = 2**20
#: Larger pages and documents are refused, and so are drawings that exceed this size together.
MAX_DOCUMENT_BYTES = 2**26
#: Larger arrays are refused.
_MAX_ARRAY_BYTES = 2**30

#: Begin of the comment that lists the files of a bundle at the end of its page.
_SEAL_PREFIX = "<!-- posprobe wrote "
#: The whole comment, with the list as JSON.
_SEAL_PATTERN = re.compile(rf"{_SEAL_PREFIX}(\{{[^<>]*\}}) -->\n\Z", re.ASCII)
#: Names of the files that a bundle may have besides its page.
_FILE_NAME_PATTERN = re.compile(
    r"analysis\.json|arrays\.npz|figures/[\w-]+\.(?:pdf|png|svg)", re.ASCII
)

#: Size and checksum of a file that posprobe wrote.
FileChecksum: TypeAlias = dict[str, int | str]


def seal_page(page: str, files: Mapping[str, FileChecksum]) -> str:
    """Append to a page the list of the files that were written with it."""
    content = page.encode()
    checksums = dict(sorted(files.items())) | {PAGE_NAME: _checksum_content(content)}
    return f"{page}{_SEAL_PREFIX}{json.dumps(checksums, separators=(',', ':'))} -->\n"


def _read_seal(page: str) -> dict[str, Any] | None:
    """Return the files that a page lists; None if it is foreign or changed since."""
    list_match = _SEAL_PATTERN.search(page, max(page.rfind(_SEAL_PREFIX), 0))
    if not list_match:
        return None
    try:
        checksums: dict[str, Any] = json.loads(list_match[1])
        content = page[: list_match.start()].encode("utf-8", "surrogateescape")
    except (ValueError, RecursionError):
        return None
    return (
        checksums
        if checksums.pop(PAGE_NAME, None) == _checksum_content(content)
        else None
    )


def write_page(target: Path, page: str) -> None:
    """Write a page whole or not at all.

    Raises
    ------
    OutputError
        If it cannot be written; an older one is then left as it was.
    """
    with write_files(target) as folder:
        (folder / target.name).write_text(page, encoding="utf-8")


def list_bundle_files(folder: Path) -> dict[str, FileChecksum]:
    """List the present files of a bundle except its page, with their checksums."""
    return {
        name: checksum
        for name, path in _walk_entries(folder)
        if _FILE_NAME_PATTERN.fullmatch(name) and (checksum := _checksum_file(path))
    }


def list_unchanged_files(folder: Path) -> dict[str, FileChecksum] | None:
    """Return the files of a bundle that are as its page lists them; None if the page is foreign.

    Raises
    ------
    FileNotFoundError
        If there is no page.
    InvalidCheckpoint
        If it is no file.
    """
    page = read_regular_file(folder / PAGE_NAME).decode("utf-8", "surrogateescape")
    if (folder / PAGE_NAME).is_symlink() or (checksums := _read_seal(page)) is None:
        return None
    # The list may be forged, so that only entries that agree with present files are returned.
    return {
        name: checksum
        for name, checksum in list_bundle_files(folder).items()
        if checksums.get(name) == checksum
    }


def list_foreign_files(folder: Path) -> list[str]:
    """List the names in a folder that posprobe did not write, or that changed since.

    Raises
    ------
    OSError
        If the folder cannot be looked into.
    """
    sealed_names = None
    with suppress(FileNotFoundError, InvalidCheckpoint):
        sealed_names = list_unchanged_files(folder)
    own_names = () if sealed_names is None else (PAGE_NAME, *sealed_names)
    return sorted(name for name, _ in _walk_entries(folder) if name not in own_names)


def read_regular_file(path: Path, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a file of a bundle, whose origin is not trusted.

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
        raise InvalidCheckpoint(
            f"{path}: it cannot be read ({error.strerror})."
        ) from error


def _walk_entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and paths of all entries of a folder and of its ``figures``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == "figures" and entry.is_dir(follow_symlinks=False):
                with os.scandir(entry) as figures:
                    yield from (
                        (f"figures/{figure.name}", Path(figure)) for figure in figures
                    )
            elif not (
                SCRATCH_PATTERN.fullmatch(entry.name)
                and entry.is_dir(follow_symlinks=False)
            ):
                yield entry.name, Path(entry)


def _checksum_file(path: Path) -> FileChecksum | None:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - MAX_CHECKSUM_BYTES, 0))
            return {"bytes": size, "sha256": hashlib.sha256(file.read()).hexdigest()}
    except OSError:
        return None


def _checksum_content(content: bytes) -> FileChecksum:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


# Schemas of the six kinds of bundle, as their documents state them.
ANALYSIS_SCHEMA: Final = "posprobe.analysis/2"
COMPARISON_SCHEMA: Final = "posprobe.comparison/2"
KERNELS_SCHEMA: Final = "posprobe.kernels/3"
FORWARD_SCHEMA: Final = "posprobe.forward/3"
RESIZING_SCHEMA: Final = "posprobe.resizing/1"
CHECK_SCHEMA: Final = "posprobe.check/1"
#: Schemas of all present bundles.
SCHEMAS = (
    ANALYSIS_SCHEMA,
    COMPARISON_SCHEMA,
    KERNELS_SCHEMA,
    FORWARD_SCHEMA,
    RESIZING_SCHEMA,
    CHECK_SCHEMA,
)
#: Schemas of all versions of runs.
RUN_SCHEMAS = ("posprobe.forward/1", "posprobe.forward/2", FORWARD_SCHEMA)
#: Schemas of earlier versions, whose bundles can still be rendered.
EARLIER_SCHEMAS = (
    "posprobe.analysis/1",
    "posprobe.comparison/1",
    "posprobe.kernels/1",
    "posprobe.kernels/2",
    "posprobe.forward/1",
    "posprobe.forward/2",
)
#: Advice in messages about a damaged bundle of a table.
REPEAT_ADVICE = "Analyse the table again."
#: Arrays from which the pages of a table and of a run are drawn.
PAGE_ARRAYS = (
    "similarity_centered",
    "norms",
    "pca_scores",
    "clock_lead",
    "rotation_paths",
    "budget_spectrum",
    "attention_curves",
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
    path = expand_user(folder) / "analysis.json"
    with _explain_damage(path, REPEAT_ADVICE):
        try:
            document = json.loads(read_regular_file(path))
        except FileNotFoundError as error:
            raise UnknownReference(
                f"{folder}: not a report: it has no analysis.json. "
                "Save an analysis there first."
            ) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in (*SCHEMAS, *EARLIER_SCHEMAS):
        raise InvalidCheckpoint(
            f"{path}: its schema is {schema!r:.80} and one of "
            f"{', '.join(SCHEMAS)} is needed. {REPEAT_ADVICE}"
        )
    return dict(document)


def read_drawings(folder: Path, advice: str) -> dict[str, str]:
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
    remaining_bytes = MAX_DOCUMENT_BYTES
    for path in sorted(folder.glob("*.svg")):
        with _explain_damage(path, advice):
            drawings[path.stem] = read_regular_file(path, remaining_bytes).decode("utf-8")
            remaining_bytes -= len(drawings[path.stem])
            if "<svg" not in drawings[path.stem]:
                raise InvalidCheckpoint(f"{path}: not a drawing.")
    return drawings


@contextmanager
def _explain_damage(path: Path, advice: str) -> Iterator[None]:
    """Turn errors while reading a file into errors that name it and end with advice."""
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
        raise InvalidCheckpoint(
            f"{path}: it cannot be read ({error}). {advice}"
        ) from error


def read_arrays(
    path: Path, advice: str, names: Sequence[str] = PAGE_ARRAYS
) -> dict[str, NDArray[Any]]:
    """Read arrays of a bundle, by default those from which the page of a table is drawn.

    Raises
    ------
    InvalidCheckpoint
        If the archive is gone or damaged, or holds something else under their names.
    """
    arrays = {}
    with _explain_damage(path, advice):
        if not path.is_file():
            problem = (
                "it is not a file" if path.exists() else "the bundle has lost its arrays"
            )
            raise InvalidCheckpoint(f"{path}: {problem}.")
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            for name in names:
                if member := members.get(f"{name}.npy"):
                    arrays[name] = _read_floats(archive, member)
    return arrays


def _read_floats(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array of floats, unless it is too large when unpacked."""
    if member.file_size > _MAX_ARRAY_BYTES:
        raise ValueError(f"{member.filename} has {member.file_size} bytes")
    with archive.open(member) as stream:
        array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
    if array.dtype.kind != "f":
        raise ValueError(f"{member.filename} is not an array of numbers")
    return array
