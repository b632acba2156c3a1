"""Files and folders that are written whole: made beside their place, moved there when complete.

What is made lies in a hidden folder beside its place, named after a digest of its name and locked
while its process lives. A process that was killed holds no lock: whoever writes to the same place
next finishes what was complete and removes the rest. A page ends with a comment that lists every
file of its bundle with size and checksum: what in a folder posprobe did not write is not replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

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
            if place:
                shutil.rmtree(place, ignore_errors=True)
            if lock >= 0:
                os.close(lock)


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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back while a step is taken that must not stop halfway."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where signals never arrive
        return
    arrived: list[int] = []
    before = {}

    def note(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.getsignal(number)
            if before[number] is not None:  # else set by another language
                signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        for once in dict.fromkeys(arrived):
            signal.raise_signal(once)


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
