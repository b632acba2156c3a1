"""What processes that read from one hub at the same time agree on: how many requests, and when.

A folder on this machine is all that they share. A request holds the lock of one of a few files, so
that there are never more at once; locks end with their process. The time before which nobody asks
again stands in another file, which whoever is told to wait puts off.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

#: Seconds between two looks whether a place is free.
LOOK = 0.02
#: Longest wait in seconds that a server may ask of all who share; a limit of requests is one of
#: some minutes.
PATIENCE = 900.0


@dataclass(frozen=True)
class Shared:
    """Requests that several processes and threads share.

    Parameters
    ----------
    folder
        Theirs, on a disk of this machine.
    count
        Requests at once.
    """

    folder: Path
    count: int

    def enter(self, pause: Callable[[float], None]) -> BaseFileLock:
        """Wait until a request may be made; it is over when the lock is released."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Everyone begins to look at another file, so that they seldom meet.
        first = (os.getpid() + time.monotonic_ns()) % self.count
        while True:
            while (wait := self._not_before() - time.time()) > 0:
                pause(wait)
            for number in range(self.count):
                path = self.folder / f"request-{(first + number) % self.count}"
                lock = FileLock(path, thread_local=False)  # the request's thread releases it
                with suppress(Timeout):
                    lock.acquire(blocking=False)
                    if self._not_before() <= time.time():
                        return lock
                    lock.release()  # somebody was told to wait in the meantime
                    break
            else:
                time.sleep(LOOK)

    def put_off(self, seconds: float) -> None:
        """Let nobody begin a request within the next ``seconds``."""
        then = time.time() + min(seconds, PATIENCE)
        if then <= self._not_before():
            return
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".until-")
        with open(handle, "w") as file:  # noqa: PTH123 - a handle
            file.write(f"{then:.3f}")
        Path(name).replace(self.folder / "until")

    def _not_before(self) -> float:
        try:
            then = float((self.folder / "until").read_text())
        except (OSError, ValueError):
            return 0.0
        # A clock that was set back must not stop everybody.
        return then if then < time.time() + PATIENCE else 0.0


#: Whom requests of this thread are shared with, if anybody.
sharing: ContextVar[Shared | None] = ContextVar("sharing", default=None)
#: Bytes of tensors read from disk, and of anything from a hub, since somebody set it to 0.
bytes_read: ContextVar[int] = ContextVar("bytes_read", default=0)


def count_bytes(number: int) -> None:
    """Add to `bytes_read`."""
    bytes_read.set(bytes_read.get() + number)
