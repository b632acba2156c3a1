"""Local cache of what was read from the Hub, and limits that processes share.

The cache holds headers, configurations and single tensors. Every entry belongs to one commit, so it
never goes stale; only the commit of a branch can, and that is requested again unless the user is
offline. An entry contains its key (repository, commit, file, tensor, shape, dtype …) and a digest
of everything. An entry that cannot be written, has another key or does not match its digest counts
as missing: the cache may never fail an analysis.

Processes that read at the same time share a folder. A request holds the lock of one of a few files,
which limits their number; locks end with their process. Another file holds the time before which no
process makes a request; a process that a server tells to wait moves it later.
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

#: Length in bytes of the digest at the beginning of an entry.
_DIGEST_BYTES = hashlib.sha256().digest_size
_log = logging.getLogger("posprobe")


def load(*key: str) -> bytes | None:
    """Return the content stored under a key, or None without a sound entry.

    Parameters
    ----------
    key
        Repository, commit, file and tensor with shape, dtype and byte range, or fewer of them; any
        texts are valid.
    """
    try:
        path = _cache_path(key)
        with open_regular(path) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s cannot be read (%s)", "/".join(key), error)
        return None
    stored_digest, payload = content[:_DIGEST_BYTES], memoryview(content)[_DIGEST_BYTES:]
    key_text = _encode_key(key)
    if (
        hashlib.sha256(payload).digest() != stored_digest
        or bytes(payload[: len(key_text)]) != key_text
    ):
        _log.debug("cache: %s is damaged or another's and is read again", "/".join(key))
        return None
    return bytes(payload[len(key_text) :])


def store(data: bytes, *key: str) -> None:
    """Store ``data`` under a key; the entry becomes visible only when it is complete."""
    temporary = None
    try:
        path = _cache_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=".", delete=False
        ) as stream:
            temporary = Path(stream.name)
            key_text = _encode_key(key)
            stream.write(hashlib.sha256(key_text + data).digest())
            stream.write(key_text)
            stream.write(data)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s was not stored (%s)", "/".join(key), error)
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def drop(*key: str) -> None:
    """Remove the entry of a key."""
    with suppress(OSError, RuntimeError):
        _cache_path(key).unlink(missing_ok=True)


def _encode_key(key: tuple[str, ...]) -> bytes:
    """Return a key as the bytes that stand before the content of its entry."""
    text = json.dumps(key).encode()
    return len(text).to_bytes(4, "little") + text


def _cache_path(key: tuple[str, ...]) -> Path:
    posprobe_cache, xdg_cache = (
        os.environ.get("POSPROBE_CACHE"),
        os.environ.get("XDG_CACHE_HOME"),
    )
    if posprobe_cache:
        root = Path(posprobe_cache).expanduser()
    else:
        root = (Path(xdg_cache) if xdg_cache else Path.home() / ".cache") / "posprobe"
    return root.joinpath(*map(_file_name, key))


def _file_name(text: str) -> str:
    """Return a unique file name for any text, also on file systems that ignore case."""
    prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60].strip("-")
    return f"{prefix}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


#: Interval in seconds between two attempts to acquire a lock.
LOCK_POLL_SECONDS = 0.02
#: Longest wait in seconds that a server may ask of processes that share requests; limits on
#: requests apply for some minutes.
MAX_SHARED_WAIT_SECONDS = 900.0


@dataclass(frozen=True)
class SharedRequests:
    """A limit on requests that several processes and threads share.

    Parameters
    ----------
    folder
        Folder of the locks, on a local disk.
    count
        Largest number of simultaneous requests.
    """

    folder: Path
    count: int

    def wait_for_slot(self, pause: Callable[[float], None]) -> BaseFileLock:
        """Wait until a request may be made; releasing the lock ends it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Processes begin with different files, so that they seldom compete for one.
        first_slot = (os.getpid() + time.monotonic_ns()) % self.count
        while True:
            while (wait := self._earliest_time() - time.time()) > 0:
                pause(wait)
            for number in range(self.count):
                path = self.folder / f"request-{(first_slot + number) % self.count}"
                lock = FileLock(
                    path, thread_local=False
                )  # the request's thread releases it
                with suppress(Timeout):
                    lock.acquire(blocking=False)
                    if self._earliest_time() <= time.time():
                        return lock
                    lock.release()  # another process was told to wait in the meantime
                    break
            else:
                time.sleep(LOCK_POLL_SECONDS)

    def delay_requests(self, seconds: float) -> None:
        """Keep all processes from beginning a request within the next ``seconds``."""
        until_time = time.time() + min(seconds, MAX_SHARED_WAIT_SECONDS)
        if until_time <= self._earliest_time():
            return
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".until-")
        with open(handle, "w") as file:  # noqa: PTH123 - a handle
            file.write(f"{until_time:.3f}")
        Path(name).replace(self.folder / "until")

    def _earliest_time(self) -> float:
        try:
            until_time = float((self.folder / "until").read_text())
        except (OSError, ValueError):
            return 0.0
        # A clock that was set back must not stop all processes.
        return until_time if until_time < time.time() + MAX_SHARED_WAIT_SECONDS else 0.0


#: Limit that requests of this thread share with others; None without one.
shared_requests: ContextVar[SharedRequests | None] = ContextVar("sharing", default=None)
#: Bytes of tensors read from disk, and of anything read from the Hub, since it was set to 0.
bytes_read: ContextVar[int] = ContextVar("bytes_read", default=0)


def count_bytes(n_bytes: int) -> None:
    """Add to `bytes_read`."""
    bytes_read.set(bytes_read.get() + n_bytes)
