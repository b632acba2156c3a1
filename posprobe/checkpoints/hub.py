"""Checkpoints on the Hub, read without downloading them: headers by range, then single tensors.

What is already on this machine is used from here: files in the Hub's local cache, memory-mapped,
and what earlier runs read. Only repositories without a format that can be read in parts are
downloaded whole, into the Hub's local cache. Why requests are not those of `huggingface_hub`'s own
file system stands in `posprobe.checkpoints.transfer`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import constants, hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import LocalEntryNotFoundError

from posprobe.checkpoints import hub_local, transfer
from posprobe.checkpoints.base import INDEX, Checkpoint, gathered, joined, listed_models
from posprobe.checkpoints.files import map_file
from posprobe.checkpoints.hub_local import count_bytes
from posprobe.checkpoints.local import (
    MAX_JSON,
    choose_weights,
    is_weights,
    open_files,
    parse_json,
    read_index,
    require,
)
from posprobe.errors import InvalidCheckpoint, UnknownReference, Unreachable, explained
from posprobe.progress import aside
from posprobe.readers import MAGIC, load_opener, needs_start, reader_of
from posprobe.reference import did_you_mean

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
            f"HF_HUB_OFFLINE, or run `hf download {self.id} {file} --revision {self.commit}`."
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

        Kept are the length of the file and its ETag, in a line of JSON, and those bytes.
        """
        if file in self.begun:
            return self.begun[file]
        key = (self.repo.id, self.repo.commit, file, "begun")
        stored = hub_local.load(*key)
        if stored is not None:
            about, _, data = stored.partition(b"\n")
            size, etag = json.loads(about)
            version = transfer.Version(etag, size)
        else:
            data, version = self._remote(file, 0, max(least, FIRST), None)
            if version.size is None:
                raise Unreachable(
                    f"{self.repo.id}/{file}: the server does not say how long the file is. Fetch "
                    f"it with `hf download {self.repo.id} {file}`; it is then read from there."
                )
            size = version.size
            hub_local.store(json.dumps([size, version.etag]).encode() + b"\n" + data, *key)
        self.begun[file] = _Begun(version, size, [(0, bytearray(data))])
        return self.begun[file]

    def _piece(self, file: str, start: int, stop: int) -> bytes:
        version = self._begin(file).version
        where = (self.repo.id, self.repo.commit, file)
        key = (*where, "bytes", f"{start}-{stop} of {version}")
        data = hub_local.load(*key)
        if data is None:
            try:
                data, _ = self._remote(file, start, stop, version)
            except transfer.Replaced:
                hub_local.drop(*where, "begun")
                raise
            hub_local.store(data, *key)
        return data

    def _remote(
        self, file: str, start: int, stop: int, version: transfer.Version | None
    ) -> tuple[bytes, transfer.Version]:
        if self.repo.offline:
            raise self.repo.not_here(file)
        if not self.has(file):
            raise InvalidCheckpoint(
                f"{self.repo.id}: {file} is not in the repository. Choose another revision."
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
    advice = (
        "Check the space left and the permissions of the Hub's local cache (HF_HOME moves it), or "
        f"try `hf download {repo.id} {file}`."
    )
    failed = f"{where}: the download failed"
    with explained(Unreachable, failed, advice, OSError, RuntimeError, ValueError):
        # A long file takes long: the client gives up where nothing comes at all.
        # It shows by itself how far it is.
        with aside():
            path = Path(transfer.patiently(where, attempt, lambda _: False))
        _check(path, where)
        count_bytes(path.stat().st_size)
        return path


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


def open_hub(
    repo_id: str, revision: str | None, *, offline: bool, part: str | None = None
) -> Checkpoint:
    """Open a model repository on the Hub.

    Parameters
    ----------
    repo_id
        ``NAME`` or ``OWNER/NAME``.
    revision
        Branch, tag or commit; None is the default branch.
    offline
        Use only what is on this machine. ``HF_HUB_OFFLINE`` asks for the same.
    part
        Of a repository with several models, the only one to open, where one is called so.

    Raises
    ------
    UnknownReference
        If the Hub knows no such repository or revision.
    Unreachable
        If the Hub refuses or does not deliver, or if offline and something is not here.
    InvalidCheckpoint
        If the repository holds no weights that can be read, or damaged ones.
    """
    missing: Unreachable | None = None
    for repo in _repos(repo_id, revision, offline=offline):
        try:
            return _open(repo, part)
        except Unreachable as error:
            missing = missing or error
    raise missing or _nothing_here(repo_id)


def commit_of(repo_id: str, revision: str | None, *, offline: bool) -> str:
    """Return the commit that a revision is now; offline, what it was when it was last asked for.

    Parameters and errors are those of `open_hub`.
    """
    for repo in _repos(repo_id, revision, offline=offline):
        return repo.commit
    raise _nothing_here(repo_id)


def _open(repo: Repo, part: str | None) -> Checkpoint:
    files = RemoteFiles(repo)
    if INDEX not in repo.files:
        return _open_model(files, "")
    index = _json(files, INDEX)
    places = (PurePosixPath(file) for file in repo.files)
    folders = {str(place.parent) for place in places if is_weights(place.name)}
    found = listed_models(index, folders, repo.id)
    models = {
        name: _open_model(files, f"{name}/") for name in found if part not in found or name == part
    }
    return joined(models, index, repo.id, repo.commit)


def _open_model(files: RemoteFiles, folder: str) -> Checkpoint:
    """Open the model in a folder of a repository; ``folder`` ends in a slash, or is empty."""
    repo = files.repo
    names = [file.removeprefix(folder) for file in repo.files if file.startswith(folder)]
    own = choose_weights(names, f"{repo.id}/{folder}".rstrip("/"))
    file = folder + own
    stated = f"{folder}config.json"
    config = _json(files, stated) if files.has(stated) else {}
    shards: dict[str, str] = {}
    if file.endswith(".index.json"):
        index = read_index(_whole(files, file), f"{repo.id}/{file}")
        shards = {name: folder + shard for name, shard in index.items()}
    parts = sorted(set(shards.values())) or [file]
    start = bytes(files.read(parts[0], 0, MAGIC)) if needs_start(PurePosixPath(file).name) else b""
    reader = reader_of(PurePosixPath(parts[0]).name, start)
    assert reader is not None  # noqa: S101 - weights are chosen by the names that readers know
    require(reader, f"{repo.id}/{file}")  # better known before a download than after it
    if not reader.ranged:
        paths = download(repo, parts)
        own_shards = {name: PurePosixPath(shard).name for name, shard in shards.items()}
        return open_files(paths, repo.id, config, own_shards, repo.commit)

    read = load_opener(reader.ranged)

    @functools.cache
    def opened(part: str) -> Checkpoint:
        if not (files.has(part) or repo.offline):
            raise UnknownReference(
                f"{repo.id}/{part}: the repository has no such file, which its shard index names. "
                "Choose another revision or tell its authors."
            )
        try:
            found: Checkpoint = read(files, part)
        except InvalidCheckpoint as error:
            if not str(error).startswith(part):
                raise
            raise InvalidCheckpoint(f"{repo.id}/{error}") from error
        return found

    whole = gathered(opened, parts, repo.id, config, shards, repo.commit)
    return replace(whole, format=reader.name)


def _json(files: RemoteFiles, file: str) -> dict[str, Any]:
    return parse_json(_whole(files, file), f"{files.repo.id}/{file}")


def _whole(files: RemoteFiles, file: str) -> bytes:
    """Read a small file."""
    data = bytes(files.read(file, 0, MAX_JSON))
    if files.size(file) > len(data):
        raise InvalidCheckpoint(
            f"{files.repo.id}/{file}: longer than {MAX_JSON} bytes. Choose another revision."
        )
    return data


# --- which commit, which files ---------------------------------------------------------------


def _resolve(repo_id: str, revision: str | None) -> Repo:
    """Ask the Hub which commit a revision is, and which files it has."""
    if revision is not None and transfer.COMMIT.fullmatch(revision):
        known = _stored_files(repo_id, revision)
        if known is not None:  # a commit never changes
            return Repo(repo_id, revision, known, offline=False)
    try:
        info = transfer.model_info(repo_id, revision)
    except UnknownReference as error:
        error.args = (f"{error}{did_you_mean(repo_id, _cached())}",)
        raise
    except Unreachable as error:
        error.args = (f"{error}{did_you_mean(repo_id)}",)
        raise
    commit = str(info.sha)
    files = tuple(sorted(filter(_is_sound, (file.rfilename for file in info.siblings or ()))))
    hub_local.store(json.dumps(files).encode(), repo_id, commit, "files")
    hub_local.store(commit.encode(), repo_id, "revision", revision or "")
    return Repo(repo_id, commit, files, offline=False)


def _repos(repo_id: str, revision: str | None, *, offline: bool) -> Iterator[Repo]:
    """Yield what a revision is; offline, what it was when last asked for: by us, by the client."""
    if not (offline or constants.HF_HUB_OFFLINE):
        yield _resolve(repo_id, revision)
        return
    commit = revision or ""
    if not transfer.COMMIT.fullmatch(commit):
        commit = (hub_local.load(repo_id, "revision", commit) or b"").decode("ascii", "replace")
    files = _stored_files(repo_id, commit)
    if files is not None:
        yield Repo(repo_id, commit, files, offline=True)
    snapshot = _snapshot(repo_id, revision or constants.DEFAULT_REVISION)
    if snapshot is not None:
        yield snapshot


def _snapshot(repo_id: str, revision: str) -> Repo | None:
    """Find a revision with weights in the Hub's local cache."""
    try:
        top = Path(snapshot_download(repo_id, revision=revision, local_files_only=True))
        files = sorted(str(p.relative_to(top).as_posix()) for p in top.rglob("*") if p.is_file())
        if INDEX not in files:
            choose_weights(files, repo_id)
    except (OSError, ValueError, InvalidCheckpoint):  # not there, or its configuration alone
        return None
    return Repo(repo_id, top.name, tuple(files), offline=True)


def _stored_files(repo_id: str, commit: str) -> tuple[str, ...] | None:
    stored = hub_local.load(repo_id, commit, "files")
    try:
        files = json.loads(stored or b"null")
    except (ValueError, RecursionError):
        return None
    sound = isinstance(files, list) and all(map(_is_sound, files))
    return tuple(files) if sound else None


def _is_sound(name: object) -> bool:
    """Whether a server's file name is safe to ask for, to store under and to print."""
    return (
        isinstance(name, str)
        and name.isprintable()
        and "\\" not in name
        and not PurePosixPath(name).is_absolute()
        and ".." not in name.split("/")
    )


def _nothing_here(repo_id: str) -> Unreachable:
    return Unreachable(
        f"{repo_id}: not in the local cache. Run once without --offline and HF_HUB_OFFLINE."
        f"{did_you_mean(repo_id, _cached())}"
    )


def _cached() -> list[str]:
    """Name the models in the Hub's local cache."""
    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
