"""The files of a repository of the Hub, of which only what is asked for comes, and is kept.

Why that is not `huggingface_hub`'s own file system stands in `posprobe.checkpoints.transfer`.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import LocalEntryNotFoundError

from posprobe.checkpoints import cache, transfer
from posprobe.checkpoints.files import map_file
from posprobe.checkpoints.shared import count_bytes
from posprobe.errors import InvalidCheckpoint, Unreachable
from posprobe.progress import aside

#: Bytes of a file that are asked for at first: the whole header of most models (GPT-2's has 14 kB),
#: and little waste. Elsewhere it is asked for so many at least, and at most beyond what is needed.
FIRST, _LEAST, _AHEAD = 2**15, 2**14, 2**23
#: A file of which more pieces than these would be asked for is downloaded, after saying so.
_MOST_PIECES = 1000
#: Longest file that is read whole by range; a longer one is downloaded, after saying so.
_WHOLE = 2**24

_log = logging.getLogger("posprobe")


@dataclass(frozen=True)
class Repo:
    """One commit of a repository; ``files`` are the names in it."""

    id: str
    commit: str
    files: tuple[str, ...]
    offline: bool

    def local(self, file: str) -> Path | None:
        """Find a file in the Hub's local cache, if it is there and may be read."""
        path = try_to_load_from_cache(self.id, file, revision=self.commit)
        there = isinstance(path, str) and Path(path).is_file() and os.access(path, os.R_OK)
        return Path(path) if there and isinstance(path, str) else None

    def not_here(self, file: str) -> Unreachable:
        """Say that a file is not on this machine, and that nothing may be asked for."""
        return Unreachable(
            f"{self.id}/{file}: not in the local cache. Run once without --offline and "
            "HF_HUB_OFFLINE, or fetch the file with "
            f"`hf download {self.id} {file} --revision {self.commit}`."
        )


@dataclass(frozen=True)
class _Begun:
    """A file of which something was read: of which version it is, and pieces by their place."""

    version: transfer.Version
    size: int
    pieces: list[tuple[int, bytearray]]


@dataclass(frozen=True)
class RemoteFiles:
    """The files of one commit of a repository.

    A header's length is often known only once it was read: what is read from one place on is asked
    for in pieces that double.
    """

    repo: Repo
    maps: dict[str, memoryview[int] | None] = field(default_factory=dict)
    begun: dict[str, _Begun] = field(default_factory=dict)

    def has(self, file: str) -> bool:
        """Tell whether there is such a file."""
        return file in self.repo.files

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        mapped = self._mapped(file)
        return self._begin(file).size if mapped is None else len(mapped)

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        if (mapped := self._mapped(file)) is not None:
            return mapped[start:stop]
        known = self._begin(file, 0 if start else stop)
        stop = min(stop, known.size)
        if start >= stop:
            return b""
        if (start == 0 and stop == known.size > _WHOLE) or len(known.pieces) > _MOST_PIECES:
            whole = self.maps[file] = map_file(download(self.repo, [file])[0])
            return whole[start:stop]
        for begin, data in known.pieces:
            end = begin + len(data)
            if begin <= start <= end < stop <= end + _AHEAD:
                more = min(max(stop, end + len(data)), end + _AHEAD, known.size)
                data += self._piece(file, end, more)
            if begin <= start and stop <= begin + len(data):
                return bytes(data[start - begin : stop - begin])
        if stop - start >= _LEAST:
            return self._piece(file, start, stop)
        begin = start - start % _LEAST
        data = bytearray(self._piece(file, begin, min(max(begin + _LEAST, stop), known.size)))
        known.pieces.append((begin, data))
        return bytes(data[start - begin : stop - begin])

    def exactly(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, and ask for no others."""
        if (mapped := self._mapped(file)) is not None:
            return mapped[start:stop]
        if start == stop:
            return b""
        for begin, data in self._begin(file).pieces:
            if begin <= start and stop <= begin + len(data):
                return bytes(data[start - begin : stop - begin])
        return self._piece(file, start, stop)

    def _mapped(self, file: str) -> memoryview[int] | None:
        if file not in self.maps:
            path = self.repo.local(file)
            self.maps[file] = None if path is None else map_file(path)
        return self.maps[file]

    def _begin(self, file: str, least: int = 0) -> _Begun:
        """Read the beginning of a file, or so many bytes, and of which version of it they are.

        Kept are the length of the file, 8 bytes, that of its ETag, 2 bytes, the ETag, and the rest.
        """
        if file in self.begun:
            return self.begun[file]
        key = (self.repo.id, self.repo.commit, file, "start")
        stored = cache.load(*key)
        if stored is not None:
            size, length = (int.from_bytes(part, "little") for part in (stored[:8], stored[8:10]))
            etag, data = stored[10 : 10 + length].decode(errors="replace"), stored[10 + length :]
            version = transfer.Version(etag, size)
        else:
            data, version = self._remote(file, 0, max(least, FIRST), None)
            if version.size is None:
                raise Unreachable(
                    f"{self.repo.id}/{file}: the server does not say how long the file is. Fetch "
                    f"it with `hf download {self.repo.id} {file}`; it is then read from there."
                )
            tag, size = version.etag.encode(errors="replace"), version.size
            about = size.to_bytes(8, "little") + len(tag).to_bytes(2, "little") + tag
            cache.store(about + data, *key)
        self.begun[file] = _Begun(version, size, [(0, bytearray(data))])
        return self.begun[file]

    def _piece(self, file: str, start: int, stop: int) -> bytes:
        version = self._begin(file).version
        where = (self.repo.id, self.repo.commit, file)
        key = (*where, "bytes", f"{start}-{stop} of {version}")
        data = cache.load(*key)
        if data is None:
            try:
                data, _ = self._remote(file, start, stop, version)
            except transfer.Replaced:
                cache.drop(*where, "start")
                raise
            cache.store(data, *key)
        return data

    def _remote(
        self, file: str, start: int, stop: int, version: transfer.Version | None
    ) -> tuple[bytes, transfer.Version]:
        if self.repo.offline:
            raise self.repo.not_here(file)
        if not self.has(file):
            raise InvalidCheckpoint(
                f"{self.repo.id}: the checkpoint needs {file}, which is not in the repository. "
                "Choose another revision."
            )
        where = self.repo.id, self.repo.commit, file
        data, found = transfer.read_range(*where, start, stop, version)
        count_bytes(len(data))
        return data, found


def download(repo: Repo, files: Iterable[str]) -> list[Path]:
    """Fetch files whole into the Hub's local cache, after saying how large they are.

    Raises
    ------
    UnknownReference, Unreachable
        As `patiently`; also if what came is not what the Hub announced.
    """
    found = {file: repo.local(file) for file in files}
    missing = [file for file, path in found.items() if path is None]
    if missing and repo.offline:
        raise repo.not_here(missing[0])
    if missing:
        # Asking for the size also meets refusals and limits under our own patience: the client's
        # download waits as long as a server tells it to.
        sizes = map(RemoteFiles(repo).size, missing)
        _log.warning(
            "%s: %s cannot be read in parts and must be downloaded whole: %.1f MB",
            repo.id,
            missing[0] if len(missing) == 1 else f"{len(missing)} files",
            sum(sizes) / 1e6,
        )
    return [path or _download_one(repo, file) for file, path in found.items()]


def _download_one(repo: Repo, file: str) -> Path:
    def attempt() -> str:
        try:
            return hf_hub_download(repo.id, file, revision=repo.commit, library_name="posprobe")
        except LocalEntryNotFoundError as error:
            raise error.__cause__ or error from None  # what kept the client from looking

    where = f"{repo.id}/{file}"
    try:
        # A long file takes long: the client gives up where nothing comes at all.
        # It shows by itself how far it is.
        with aside():
            path = Path(transfer.patiently(where, attempt, lambda _: False))
        _check(path, where)
        count_bytes(path.stat().st_size)
        return path
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Unreachable(
            f"{where}: the download failed ({reason}). Check the space left and the permissions of "
            f"the Hub's local cache (HF_HOME moves it), or try `hf download {repo.id} {file}`."
        ) from error


def _check(path: Path, where: str) -> None:
    """Compare a file that was downloaded with its checksum, where the Hub gives one.

    The client names what it keeps of a large file by its SHA-256, and compares lengths alone.
    """
    kept = path.resolve()
    if len(kept.name) != 64:
        return
    with kept.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != kept.name:
        kept.unlink()
        path.unlink(missing_ok=True)
        raise Unreachable(
            f"{where}: the download is not the file that the Hub announced (SHA-256 {found[:12]}…, "
            f"announced {kept.name[:12]}…) and was removed. Run it again; a proxy may change files."
        )
