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
from pathlib import Path

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
    digest, rest = content[:_DIGEST], memoryview(content)[_DIGEST:]
    said = _says(key)
    if hashlib.sha256(rest).digest() != digest or bytes(rest[: len(said)]) != said:
        _log.debug("cache: %s is damaged or another's and is read again", "/".join(key))
        return None
    return bytes(rest[len(said) :])


def store(data: bytes, *key: str) -> None:
    """Keep ``data`` under a key, whole or not at all."""
    temporary = None
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as stream:
            temporary = Path(stream.name)
            said = _says(key)
            stream.write(hashlib.sha256(said + data).digest())
            stream.write(said)
            stream.write(data)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s was not stored (%s)", "/".join(key), error)
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def drop(*key: str) -> None:
    """Forget what was stored under a key."""
    try:
        _path(key).unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s cannot be removed (%s)", "/".join(key), error)


def _says(key: tuple[str, ...]) -> bytes:
    """Write what an entry is, which stands before its content."""
    text = json.dumps(key).encode()
    return len(text).to_bytes(4, "little") + text


def _path(key: tuple[str, ...]) -> Path:
    own, shared = os.environ.get("POSPROBE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        root = Path(own).expanduser()
    else:
        root = (Path(shared) if shared else Path.home() / ".cache") / "posprobe"
    return root.joinpath(*map(_safe, key))


def _safe(text: str) -> str:
    """Make any text one file name that no other text shares, whatever the file system folds."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60].strip("-")
    return f"{readable}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
