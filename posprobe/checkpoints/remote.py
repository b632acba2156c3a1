"""The files of a repository of the Hub, read by range for formats that need only parts of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from posprobe.checkpoints import cache
from posprobe.checkpoints.ranges import Replaced, Version
from posprobe.checkpoints.safetensors import map_file
from posprobe.errors import InvalidCheckpoint

#: Bytes that are asked for at first of a file on the Hub, and at most beyond what is needed.
_FIRST, _AHEAD = 2**16, 2**23
#: Longest file that is read whole by range; a longer one is downloaded, after saying so.
_WHOLE = 2**24


@dataclass(frozen=True)
class RemoteFiles:
    """The files of one commit of a repository, of which only what is asked for is read, and kept.

    A header's length is often known only once it was read: what is read from the beginning of a
    file on is asked for in pieces that double.

    Parameters
    ----------
    key
        Repository and commit, under which the cache keeps what is read.
    names
        The files in it.
    local
        Returns where a file is on this machine, if it is.
    remote
        Reads a range of a file of a known version.
    download
        Fetches a file whole, after saying how large it is.
    """

    key: tuple[str, str]
    names: frozenset[str]
    local: Callable[[str], Path | None]
    remote: Callable[[str, int, int, Version | None], tuple[bytes, Version]]
    download: Callable[[str], Path]
    maps: dict[str, memoryview[int]] = field(default_factory=dict)
    heads: dict[str, bytearray] = field(default_factory=dict)
    versions: dict[str, Version] = field(default_factory=dict)

    def has(self, file: str) -> bool:
        """Tell whether there is such a file."""
        return file in self.names

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        if (mapped := self._mapped(file)) is not None:
            return len(mapped)
        return self._version(file).size or 0

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        if (mapped := self._mapped(file)) is not None:
            return mapped[start:stop]
        size = self.size(file)
        stop = min(stop, size)
        if start == 0 and stop == size > _WHOLE:
            self.maps[file] = map_file(self.download(file))
            return self.maps[file]
        head = self.heads.setdefault(file, bytearray())
        if start <= len(head) < stop <= len(head) + _AHEAD:
            more = min(max(stop, 2 * len(head), _FIRST), len(head) + _AHEAD, size)
            head += self._piece(file, len(head), more)
        if stop <= len(head):
            return bytes(head[start:stop])
        return self._piece(file, start, stop) if start < stop else b""

    def _mapped(self, file: str) -> memoryview[int] | None:
        if file not in self.maps and (path := self.local(file)) is not None:
            self.maps[file] = map_file(path)
        return self.maps.get(file)

    def _version(self, file: str) -> Version:
        """Return which version of a file is read: its length, 8 bytes, and its ETag are stored."""
        if file not in self.names:
            raise InvalidCheckpoint(
                f"{self.key[0]}: the checkpoint needs {file}, which is not in the repository. "
                "Choose another revision."
            )
        if file not in self.versions:
            stored = cache.load(*self.key, file, "version")
            if stored is not None:
                etag = stored[8:].decode(errors="replace")
                self.versions[file] = Version(etag, int.from_bytes(stored[:8], "little"))
            else:
                _, found = self.remote(file, 0, 1, None)
                if found.size is None:
                    raise InvalidCheckpoint(
                        f"{self.key[0]}/{file}: the server does not say how long it is. Fetch it "
                        f"with `hf download {self.key[0]} {file}`; it is then read from there."
                    )
                about = found.size.to_bytes(8, "little") + found.etag.encode(errors="replace")
                cache.store(about, *self.key, file, "version")
                self.versions[file] = found
        return self.versions[file]

    def _piece(self, file: str, start: int, stop: int) -> bytes:
        version = self._version(file)
        key = (*self.key, file, "bytes", f"{start}-{stop} of {version}")
        data = cache.load(*key)
        if data is None:
            try:
                data, _ = self.remote(file, start, stop, version)
            except Replaced:
                cache.drop(*self.key, file, "version")
                raise
            cache.store(data, *key)
        return data
