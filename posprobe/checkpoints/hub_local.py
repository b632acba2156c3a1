"""What this machine keeps of the Hub, and what its processes agree on.

The cache holds headers, configurations and single tensors. Every entry belongs to one commit, so it
never goes stale; only the commit of a branch can, and that is asked anew unless the user is
offline. An entry says itself what it is (repository, commit, file, tensor, shape, dtype …) and has
a digest of all of that. One that cannot be written, says something else than what is looked for or
does not match its digest is simply not there: the cache may never fail an analysis.

Processes that read at the same time share a folder. A request holds the lock of one of a few files,
so that there are never more at once; locks end with their process. The time before which nobody
asks again stands in another file, which whoever is told to wait puts off.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from posprobe.opening import open_regular

_DIGEST = hashlib.sha256().digest_size
_log = logging.getLogger("posprobe")


def load(*key: str) -> bytes | None:
    """Return what was stored under a key, or None where there is nothing sound.

    Parameters
    ----------
    key
        Repository, commit, file and tensor with shape, dtype and place, or fewer of them. Any text
        will do.
    """
    try:
        path = _path(key)
        with open_regular(path) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s cannot be read (%s)", "/".join(key), error)
        return None
    digest, payload = content[:_DIGEST], memoryview(content)[_DIGEST:]
    key_text = _says(key)
    if hashlib.sha256(payload).digest() != digest or bytes(payload[: len(key_text)]) != key_text:
        _log.debug("cache: %s is damaged or another's and is read again", "/".join(key))
        return None
    return bytes(payload[len(key_text) :])


def store(data: bytes, *key: str) -> None:
    """Keep ``data`` under a key, whole or not at all."""
    temporary = None
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as stream:
            temporary = Path(stream.name)
            key_text = _says(key)
            stream.write(hashlib.sha256(key_text + data).digest())
            stream.write(key_text)
            stream.write(data)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s was not stored (%s)", "/".join(key), error)
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def drop(*key: str) -> None:
    """Forget what was stored under a key."""
    with suppress(OSError, RuntimeError):
        _path(key).unlink(missing_ok=True)


def _says(key: tuple[str, ...]) -> bytes:
    """Write what an entry is, which stands before its content."""
    text = json.dumps(key).encode()
    return len(text).to_bytes(4, "little") + text


def _path(key: tuple[str, ...]) -> Path:
    posprobe_cache, xdg_cache = os.environ.get("POSPROBE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if posprobe_cache:
        root = Path(posprobe_cache).expanduser()
    else:
        root = (Path(xdg_cache) if xdg_cache else Path.home() / ".cache") / "posprobe"
    return root.joinpath(*map(_safe, key))


def _safe(text: str) -> str:
    """Make any text one file name that no other text shares, whatever the file system folds."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60].strip("-")
    return f"{readable}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


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
        first_slot = (os.getpid() + time.monotonic_ns()) % self.count
        while True:
            while (wait := self._not_before() - time.time()) > 0:
                pause(wait)
            for number in range(self.count):
                path = self.folder / f"request-{(first_slot + number) % self.count}"
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
        until_time = time.time() + min(seconds, PATIENCE)
        if until_time <= self._not_before():
            return
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".until-")
        with open(handle, "w") as file:  # noqa: PTH123 - a handle
            file.write(f"{until_time:.3f}")
        Path(name).replace(self.folder / "until")

    def _not_before(self) -> float:
        try:
            until_time = float((self.folder / "until").read_text())
        except (OSError, ValueError):
            return 0.0
        # A clock that was set back must not stop everybody.
        return until_time if until_time < time.time() + PATIENCE else 0.0


#: Whom requests of this thread are shared with, if anybody.
sharing: ContextVar[Shared | None] = ContextVar("sharing", default=None)
#: Bytes of tensors read from disk, and of anything from a hub, since somebody set it to 0.
bytes_read: ContextVar[int] = ContextVar("bytes_read", default=0)


def count_bytes(number: int) -> None:
    """Add to `bytes_read`."""
    bytes_read.set(bytes_read.get() + number)
