"""The one way in which a file is opened that others may have named or made."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """Open a regular file for reading: a pipe would be waited for, and a device has no end.

    Parameters
    ----------
    path
        Of the file, or of a link to it.
    most
        Bytes that it may have; None where what reads it takes no more than it needs.

    Raises
    ------
    OSError
        If it cannot be opened, is not a regular file, or is longer.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        why = "not a regular file but a folder, a pipe or a device"
    elif most is not None and found.st_size > most:
        why = f"it has {found.st_size} bytes, and at most {most} are read"
    else:
        return open(handle, "rb")  # noqa: PTH123 - a handle
    os.close(handle)
    raise OSError(errno.EINVAL, why, str(path))
