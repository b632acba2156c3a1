"""The files of a repository of the Hub, read by range for formats that need only parts of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from posprobe.checkpoints import cache
from posprobe.checkpoints.ranges import Replaced, Version
from posprobe.checkpoints.safetensors import map_file
from posprobe.errors import InvalidCheckpoint

#: Bytes that are asked for at least, from the beginning of a file on the Hub and elsewhere, and at
#: most beyond what is needed.
_FIRST, _LEAST, _AHEAD = 2**16, 2**14, 2**23
#: A file of which more pieces than these would be asked for is downloaded, after saying so.
_MOST_PIECES = 1000
#: Longest file that is read whole by range; a longer one is downloaded, after saying so.
_WHOLE = 2**24


@dataclass(frozen=True)
class RemoteFiles:
    """The files of one commit of a repository, of which only what is asked for is read, and kept.

    A header's length is often known only once it was read: what is read from one place on is asked
    for in pieces that double.

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
    maps: dict[str, memoryview[int] | None] = field(default_factory=dict)
    pieces: dict[str, list[tuple[int, bytearray]]] = field(default_factory=dict)
    versions: dict[str, Version] = field(default_factory=dict)

    def has(self, file: str) -> bool:
        """Tell whether there is such a file."""
        return file in self.names

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        if (mapped := self.mapped(file)) is not None:
            return len(mapped)
        return self._version(file).size or 0

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        if (mapped := self.mapped(file)) is not None:
            return mapped[start:stop]
        size = self.size(file)
        stop = min(stop, size)
        if start >= stop:
            return b""
        pieces = self.pieces.setdefault(file, [])
        if (start == 0 and stop == size > _WHOLE) or len(pieces) > _MOST_PIECES:
            whole = self.maps[file] = map_file(self.download(file))
            return whole[start:stop]
        near = [piece for piece in pieces if piece[0] <= start <= piece[0] + len(piece[1])]
        for begin, data in near:
            end = begin + len(data)
            if end < stop <= end + _AHEAD:
                more = min(max(stop, end + len(data)), end + _AHEAD, size)
                data += self._piece(file, end, more)
            if stop <= begin + len(data):
                return bytes(data[start - begin : stop - begin])
        if stop - start >= _LEAST and start:
            return self._piece(file, start, stop)
        begin = start - start % _LEAST
        least = begin + (_LEAST if begin else _FIRST)
        data = bytearray(self._piece(file, begin, min(max(least, stop), size)))
        pieces.append((begin, data))
        return bytes(data[start - begin : stop - begin])

    def mapped(self, file: str) -> memoryview[int] | None:
        """Return a file that is on this machine, mapped into memory."""
        if file not in self.maps:
            path = self.local(file)
            self.maps[file] = None if path is None else map_file(path)
        return self.maps[file]

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
