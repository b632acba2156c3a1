"""Opening of files whose name or content comes from others."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, max_bytes: int | None = None) -> BinaryIO:
    """Open a regular file for reading; a pipe would block, and a device may never end.

    Parameters
    ----------
    path
        Path of the file, or of a link to it.
    max_bytes
        Size limit in bytes; None if the caller reads no more than it needs.

    Raises
    ------
    OSError
        If it cannot be opened, is not a regular file, or is longer.
    """
    # Windows opens no named pipe that nobody serves, but would translate line ends.
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, os.O_RDONLY | flags)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        message = "not a regular file but a folder, a pipe or a device"
    elif max_bytes is not None and status.st_size > max_bytes:
        message = f"it has {status.st_size} bytes, and at most {max_bytes} are read"
    else:
        return open(handle, "rb")  # noqa: PTH123 - a handle
    os.close(handle)
    raise OSError(errno.EINVAL, message, str(path))
