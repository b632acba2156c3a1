"""Locks of folders that end with their process, on every system."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

try:
    import fcntl
except ImportError:  # Windows has no locks of folders
    fcntl = None  # type: ignore[assignment]

#: Name of the file that is locked in place of its folder where folders cannot be locked.
LOCK_FILE_NAME = ".posprobe.lock"


def lock_folder(
    folder: Path, *, waits: bool = False, is_own: bool = False
) -> Callable[[], None]:
    """Lock a folder, and return the function that releases it.

    Where the system locks no folders, a file in it is locked, which is removed with the lock.

    Parameters
    ----------
    folder
        Folder, and no link to one.
    waits
        Whether to wait for a process that holds the lock.
    is_own
        Whether to refuse another user's folder, where the system knows users.

    Raises
    ------
    BlockingIOError
        If another process holds the lock.
    OSError
        If the folder is gone or none, is another user's, or its disk has no locks.
    """
    lock = _lock_file if fcntl is None else _lock_descriptor
    status, release = lock(folder, waits=waits)
    try:
        current = folder.lstat()
        is_foreign = is_own and hasattr(os, "getuid") and current.st_uid != os.getuid()
        if is_foreign or not os.path.samestat(status, current):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(folder))
    except BaseException:
        release()
        raise
    return release


def _lock_descriptor(
    folder: Path, *, waits: bool
) -> tuple[os.stat_result, Callable[[], None]]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        return os.fstat(descriptor), partial(os.close, descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _lock_file(folder: Path, *, waits: bool) -> tuple[os.stat_result, Callable[[], None]]:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    lock = FileLock(folder / LOCK_FILE_NAME, timeout=-1 if waits else 0)
    try:
        lock.acquire()
    except Timeout as error:
        message = os.strerror(errno.EAGAIN)
        raise BlockingIOError(errno.EAGAIN, message, str(folder)) from error
    except NotImplementedError as error:
        raise OSError(errno.ENOTSUP, "the disk has no locks", str(folder)) from error

    def release() -> None:
        lock.release()
        with suppress(OSError):
            (folder / LOCK_FILE_NAME).unlink()

    return status, release
