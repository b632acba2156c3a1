"""The small cache of what was read from the Hub: headers, configurations and single tensors.

Every entry belongs to one commit, so it never goes stale; only the commit of a branch can, and that
is asked anew unless the user is offline. An entry that cannot be written or does not match its own
checksum is simply not there: the cache may never fail an analysis.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size
_log = logging.getLogger("posprobe")


def load(*key: str) -> bytes | None:
    """Return what was stored under a key, or None where there is nothing sound.

    Parameters
    ----------
    key
        Repository, commit, file and tensor, or fewer of them. Any text will do.
    """
    try:
        content = _path(key).read_bytes()
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s cannot be read (%s)", "/".join(key), error)
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(data).digest() != digest:
        _log.debug("cache: %s is damaged and is read again", "/".join(key))
        return None
    return data


def store(data: bytes, *key: str) -> None:
    """Keep ``data`` under a key, whole or not at all."""
    temporary = None
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as stream:
            temporary = Path(stream.name)
            stream.write(hashlib.sha256(data).digest())
            stream.write(data)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        _log.debug("cache: %s was not stored (%s)", "/".join(key), error)
        if temporary is not None:
            temporary.unlink(missing_ok=True)


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
