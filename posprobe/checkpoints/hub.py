"""Checkpoints on the Hub, read without downloading them: headers by range, then single tensors.

Local copies come first: memory-mapped files of the Hub's local cache, and ranges that earlier runs
have read. Only repositories without a format that can be read in parts are downloaded whole, into
the Hub's local cache. `posprobe.checkpoints.transfer` says why the requests do not use the file
system of `huggingface_hub`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from huggingface_hub import (
    constants,
    hf_hub_download,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import LocalEntryNotFoundError

from posprobe.checkpoints import hub_local, transfer
from posprobe.checkpoints.checkpoint import Checkpoint
from posprobe.checkpoints.files import FormerNames, map_file
from posprobe.checkpoints.hub_local import count_bytes
from posprobe.checkpoints.local import (
    MODEL_INDEX,
    choose_weights,
    open_model,
    open_models,
)
from posprobe.errors import (
    InvalidCheckpoint,
    UnknownReference,
    Unreachable,
    explain_errors,
)
from posprobe.progress import hide_stages
from posprobe.reference import did_you_mean

#: Length in bytes of the first request for a file: it holds the header of most models (GPT-2's has
#: 14 kB) with little waste.
FIRST_READ_BYTES = 2**15
#: Shortest later request in bytes.
_MIN_READ_BYTES = 2**14
#: Largest number of bytes that are requested beyond those that are needed.
_READ_AHEAD_BYTES = 2**23
#: Largest number of ranges of one file; beyond it the file is downloaded, with a warning.
_MAX_CHUNKS_PER_FILE = 1000
#: Longest file in bytes that is read whole by range; a longer one is downloaded, with a warning.
_MAX_WHOLE_FILE_BYTES = 2**24

_log = logging.getLogger("posprobe")


@dataclass(frozen=True)
class _StartedFile:
    """A file that was read in part: its version, size, and ranges by their first byte."""

    version: transfer.Version
    size: int
    chunks: list[tuple[int, bytearray]]


@dataclass(frozen=True)
class RemoteFiles(FormerNames):
    """The files of one commit of a repository, named ``file_names``.

    The length of a header is often unknown until it is read, so successive requests from one offset
    on double in length.
    """

    repo_id: str
    commit: str
    file_names: tuple[str, ...]
    offline: bool
    maps: dict[str, memoryview[int] | None] = field(default_factory=dict)
    started_files: dict[str, _StartedFile] = field(default_factory=dict)

    def names(self, folder: str) -> list[str]:
        """Name the files in and below a folder, which ends in a slash or is empty."""
        return [
            file.removeprefix(folder)
            for file in self.file_names
            if file.startswith(folder)
        ]

    def display_name(self, file: str) -> str:
        """Return the name of a file in messages."""
        return f"{self.repo_id}/{file}"

    def has(self, file: str) -> bool:
        """Tell whether there is such a file."""
        return file in self.file_names

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        mapped = self._map(file)
        return self._read_start(file).size if mapped is None else len(mapped)

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        if (mapped := self._map(file)) is not None:
            return mapped[start:stop]
        started = self._read_start(file, 0 if start else stop)
        stop = min(stop, started.size)
        if start >= stop:
            return b""
        if (start == 0 and stop == started.size > _MAX_WHOLE_FILE_BYTES) or len(
            started.chunks
        ) > _MAX_CHUNKS_PER_FILE:
            content = self.maps[file] = map_file(self.path(file))
            return content[start:stop]
        for chunk_start, chunk in started.chunks:
            chunk_stop = chunk_start + len(chunk)
            if (
                chunk_start
                <= start
                <= chunk_stop
                < stop
                <= chunk_stop + _READ_AHEAD_BYTES
            ):
                read_stop = min(
                    max(stop, chunk_stop + len(chunk)),
                    chunk_stop + _READ_AHEAD_BYTES,
                    started.size,
                )
                chunk += self._read_range(file, chunk_stop, read_stop)
            if chunk_start <= start and stop <= chunk_start + len(chunk):
                return bytes(chunk[start - chunk_start : stop - chunk_start])
        if stop - start >= _MIN_READ_BYTES:
            return self._read_range(file, start, stop)
        chunk_start = start - start % _MIN_READ_BYTES
        chunk = bytearray(
            self._read_range(
                file,
                chunk_start,
                min(max(chunk_start + _MIN_READ_BYTES, stop), started.size),
            )
        )
        started.chunks.append((chunk_start, chunk))
        return bytes(chunk[start - chunk_start : stop - chunk_start])

    def exactly(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, without reading ahead."""
        if (mapped := self._map(file)) is not None:
            return mapped[start:stop]
        if start == stop:
            return b""
        for chunk_start, chunk in self._read_start(file).chunks:
            if chunk_start <= start and stop <= chunk_start + len(chunk):
                return bytes(chunk[start - chunk_start : stop - chunk_start])
        return self._read_range(file, start, stop)

    def path(self, file: str) -> Path:
        """Download a file into the Hub's local cache, with a warning that states its size.

        Raises
        ------
        UnknownReference, Unreachable
            As `request_patiently`; also if the download is not the file that the Hub announced.
        """
        if (path := self._find_cached(file)) is not None:
            return path
        if self.offline:
            raise self._not_cached_error(file)
        # The request for the size meets refusals and limits with bounded waits; the client's own
        # download waits as long as a server tells it to.
        size = self.size(file) / 1e6
        _log.warning(
            "%s: cannot be read in parts and must be downloaded whole: %.1f MB",
            self.display_name(file),
            size,
        )
        return _download(self.repo_id, self.commit, file)

    def _find_cached(self, file: str) -> Path | None:
        """Return the path of a readable file in the Hub's local cache, or None."""
        path = try_to_load_from_cache(self.repo_id, file, revision=self.commit)
        is_cached = (
            isinstance(path, str) and Path(path).is_file() and os.access(path, os.R_OK)
        )
        return Path(path) if is_cached and isinstance(path, str) else None

    def _not_cached_error(self, file: str) -> Unreachable:
        return Unreachable(
            f"{self.display_name(file)}: not in the local cache. Run once "
            "without `offline` and HF_HUB_OFFLINE, or run `hf download "
            f"{self.repo_id} {file} --revision {self.commit}`."
        )

    def _map(self, file: str) -> memoryview[int] | None:
        if file not in self.maps:
            path = self._find_cached(file)
            self.maps[file] = None if path is None else map_file(path)
        return self.maps[file]

    def _read_start(self, file: str, min_bytes: int = 0) -> _StartedFile:
        """Read at least ``min_bytes`` bytes from the beginning of a file, and its version.

        The cache entry is a line of JSON with the file's length and ETag, and then those bytes.
        """
        if file in self.started_files:
            return self.started_files[file]
        cache_key = (self.repo_id, self.commit, file, "begun")
        cached = hub_local.load(*cache_key)
        if cached is not None:
            header, _, content = cached.partition(b"\n")
            size, etag = json.loads(header)
            version = transfer.Version(etag, size)
        else:
            content, version = self._request_range(
                file, 0, max(min_bytes, FIRST_READ_BYTES), None
            )
            if version.size is None:
                raise Unreachable(
                    f"{self.display_name(file)}: the server does not say "
                    "how long the file is. Fetch it with `hf download "
                    f"{self.repo_id} {file}`; it is then read from there."
                )
            size = version.size
            hub_local.store(
                json.dumps([size, version.etag]).encode() + b"\n" + content, *cache_key
            )
        self.started_files[file] = _StartedFile(version, size, [(0, bytearray(content))])
        return self.started_files[file]

    def _read_range(self, file: str, start: int, stop: int) -> bytes:
        version = self._read_start(file).version
        file_key = (self.repo_id, self.commit, file)
        range_key = (*file_key, "bytes", f"{start}-{stop} of {version}")
        content = hub_local.load(*range_key)
        if content is None:
            try:
                content, _ = self._request_range(file, start, stop, version)
            except transfer.ReplacedFile:
                hub_local.drop(*file_key, "begun")
                raise
            hub_local.store(content, *range_key)
        return content

    def _request_range(
        self, file: str, start: int, stop: int, version: transfer.Version | None
    ) -> tuple[bytes, transfer.Version]:
        if self.offline:
            raise self._not_cached_error(file)
        if not self.has(file):
            raise InvalidCheckpoint(
                f"{self.display_name(file)}: it is not in the repository. Choose another revision."
            )
        file_key = self.repo_id, self.commit, file
        content, found_version = transfer.read_range(*file_key, start, stop, version)
        count_bytes(len(content))
        return content, found_version


def _download(repo_id: str, commit: str, file: str) -> Path:
    def attempt() -> str:
        try:
            return hf_hub_download(
                repo_id, file, revision=commit, library_name="posprobe"
            )
        except LocalEntryNotFoundError as error:
            raise (
                error.__cause__ or error
            ) from None  # the failure behind the client's message

    subject = f"{repo_id}/{file}"
    advice = (
        "Check the space left and the permissions of the Hub's local cache "
        f"(HF_HOME moves it), or try `hf download {repo_id} {file}`."
    )
    message = f"{subject}: the download failed"
    with explain_errors(Unreachable, message, advice, OSError, RuntimeError, ValueError):
        # A long file takes long; the client itself gives up on a silent server, and it has a
        # progress bar of its own.
        with hide_stages():
            path = Path(transfer.request_patiently(subject, attempt, lambda _: False))
        _check_digest(path, subject)
        count_bytes(path.stat().st_size)
        return path


def _check_digest(path: Path, subject: str) -> None:
    """Compare a download with its SHA-256, which is the name of a large file in the cache.

    The client compares lengths only.
    """
    real_path = path.resolve()
    if len(real_path.name) != 64:
        return
    with real_path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != real_path.name:
        real_path.unlink()
        path.unlink(missing_ok=True)
        raise Unreachable(
            f"{subject}: the download is not the file that the Hub "
            f"announced (SHA-256 {digest[:12]}…, announced "
            f"{real_path.name[:12]}…) and was removed. Run it again; a "
            "proxy may change files."
        )


def open_hub(
    repo_id: str, revision: str | None, *, offline: bool, model: str | None = None
) -> Checkpoint:
    """Open a model repository on the Hub.

    Parameters
    ----------
    repo_id
        ``NAME`` or ``OWNER/NAME``.
    revision
        Branch, tag or commit; None is the default branch.
    offline
        Whether to use only local copies. ``HF_HUB_OFFLINE`` has the same effect.
    model
        Name of the only model to open in a repository of several.

    Raises
    ------
    UnknownReference
        If the Hub knows no such repository or revision.
    Unreachable
        If the Hub refuses or fails, or if ``offline`` and a file is not in the local cache.
    InvalidCheckpoint
        If the repository holds no weights that can be read, or damaged ones.
    """
    files = _resolve(repo_id, revision, offline=offline)
    if files.has(MODEL_INDEX):
        return open_models(files, repo_id, files.commit, model)
    return open_model(files, "", repo_id, files.commit)


def resolve_commit(repo_id: str, revision: str | None, *, offline: bool) -> str:
    """Return the current commit of a revision; offline, the commit of the last request.

    Parameters and errors are those of `open_hub`.
    """
    return _resolve(repo_id, revision, offline=offline).commit


# --- commits and their files -----------------------------------------------------------------


def _resolve(repo_id: str, revision: str | None, *, offline: bool) -> RemoteFiles:
    """Find the commit of a revision and its files.

    Offline it is the commit of the last request, of this package or of the Hub's client.
    """
    offline = offline or bool(constants.HF_HUB_OFFLINE)
    commit = revision or ""
    if not transfer.COMMIT_PATTERN.fullmatch(commit):
        commit = (
            (hub_local.load(repo_id, "revision", commit) or b"").decode()
            if offline
            else ""
        )
    stored = hub_local.load(repo_id, commit, "files") if commit else None
    if stored is not None:  # a commit never changes
        return RemoteFiles(repo_id, commit, tuple(json.loads(stored)), offline)
    if not offline:
        return _ask_hub(repo_id, revision)
    snapshot = _find_snapshot(repo_id, revision or constants.DEFAULT_REVISION)
    if snapshot is None:
        raise Unreachable(
            f"{repo_id}: not in the local cache. Run once without `offline` "
            f"and HF_HUB_OFFLINE.{did_you_mean(repo_id, _cached_models())}"
        )
    return snapshot


def _ask_hub(repo_id: str, revision: str | None) -> RemoteFiles:
    """Request commit and files from the Hub, and store the answer."""
    try:
        info = transfer.model_info(repo_id, revision)
    except UnknownReference as error:
        error.args = (f"{error}{did_you_mean(repo_id, _cached_models())}",)
        raise
    except Unreachable as error:
        error.args = (f"{error}{did_you_mean(repo_id)}",)
        raise
    commit = str(info.sha)
    files = tuple(
        sorted(filter(_is_safe_name, (file.rfilename for file in info.siblings or ())))
    )
    hub_local.store(json.dumps(files).encode(), repo_id, commit, "files")
    hub_local.store(commit.encode(), repo_id, "revision", revision or "")
    return RemoteFiles(repo_id, commit, files, offline=False)


def _find_snapshot(repo_id: str, revision: str) -> RemoteFiles | None:
    """Find a revision with weights in the Hub's local cache."""
    try:
        folder = Path(
            snapshot_download(repo_id, revision=revision, local_files_only=True)
        )
        files = sorted(
            str(p.relative_to(folder).as_posix())
            for p in folder.rglob("*")
            if p.is_file()
        )
        if MODEL_INDEX not in files:
            choose_weights(files, repo_id)
    except (OSError, ValueError, InvalidCheckpoint):  # missing, or without weights
        return None
    return RemoteFiles(repo_id, folder.name, tuple(files), offline=True)


def _is_safe_name(name: object) -> bool:
    """Whether a server's file name is safe to request, to store under and to print."""
    return (
        isinstance(name, str)
        and name.isprintable()
        and "\\" not in name
        and not PurePosixPath(name).is_absolute()
        and ".." not in name.split("/")
    )


def _cached_models() -> list[str]:
    """Name the models in the Hub's local cache."""
    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
