"""Checkpoints on the Hub, read without downloading them: headers by range, then single tensors.

What is already on this machine is used from here: files in the Hub's local cache, memory-mapped,
and what earlier runs read. Only repositories without a format that can be read in parts are
downloaded whole, into the Hub's local cache. Why requests are not those of `huggingface_hub`'s own
file system stands in `posprobe.checkpoints.transfer`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from huggingface_hub import constants, hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import LocalEntryNotFoundError

from posprobe.checkpoints import hub_local, transfer
from posprobe.checkpoints.checkpoint import Checkpoint
from posprobe.checkpoints.files import map_file
from posprobe.checkpoints.hub_local import count_bytes
from posprobe.checkpoints.local import INDEX, choose_weights, open_model, open_models
from posprobe.errors import InvalidCheckpoint, UnknownReference, Unreachable, explain_errors
from posprobe.progress import hide_stages
from posprobe.reference import did_you_mean

#: Bytes of a file that are asked for at first: the whole header of most models (GPT-2's has 14 kB),
#: and little waste. Elsewhere it is asked for so many at least, and at most beyond what is needed.
FIRST_READ_BYTES, _MIN_READ_BYTES, _READ_AHEAD_BYTES = 2**15, 2**14, 2**23
#: A file of which more pieces than these would be asked for is downloaded, after saying so.
_MOST_PIECES = 1000
#: Longest file that is read whole by range; a longer one is downloaded, after saying so.
_MAX_WHOLE_FILE_BYTES = 2**24

_log = logging.getLogger("posprobe")


@dataclass(frozen=True)
class _Begun:
    """A file of which something was read: of which version it is, and pieces by their place."""

    version: transfer.Version
    size: int
    pieces: list[tuple[int, bytearray]]


@dataclass(frozen=True)
class RemoteFiles:
    """The files of one commit of a repository, which are called ``listed``.

    A header's length is often known only once it was read: what is read from one place on is asked
    for in pieces that double.
    """

    repo_id: str
    commit: str
    listed: tuple[str, ...]
    offline: bool
    maps: dict[str, memoryview[int] | None] = field(default_factory=dict)
    begun: dict[str, _Begun] = field(default_factory=dict)

    def names(self, folder: str) -> list[str]:
        """Name the files in and below a folder, which ends in a slash or is empty."""
        return [file.removeprefix(folder) for file in self.listed if file.startswith(folder)]

    def told(self, file: str) -> str:
        """Return what messages call a file."""
        return f"{self.repo_id}/{file}"

    def has(self, file: str) -> bool:
        """Tell whether there is such a file."""
        return file in self.listed

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        mapped = self._mapped(file)
        return self._begin(file).size if mapped is None else len(mapped)

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        if (mapped := self._mapped(file)) is not None:
            return mapped[start:stop]
        begun = self._begin(file, 0 if start else stop)
        stop = min(stop, begun.size)
        if start >= stop:
            return b""
        if (start == 0 and stop == begun.size > _MAX_WHOLE_FILE_BYTES) or len(
            begun.pieces
        ) > _MOST_PIECES:
            whole_file = self.maps[file] = map_file(self.path(file))
            return whole_file[start:stop]
        for begin, data in begun.pieces:
            end = begin + len(data)
            if begin <= start <= end < stop <= end + _READ_AHEAD_BYTES:
                read_stop = min(max(stop, end + len(data)), end + _READ_AHEAD_BYTES, begun.size)
                data += self._piece(file, end, read_stop)
            if begin <= start and stop <= begin + len(data):
                return bytes(data[start - begin : stop - begin])
        if stop - start >= _MIN_READ_BYTES:
            return self._piece(file, start, stop)
        begin = start - start % _MIN_READ_BYTES
        data = bytearray(
            self._piece(file, begin, min(max(begin + _MIN_READ_BYTES, stop), begun.size))
        )
        begun.pieces.append((begin, data))
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

    def path(self, file: str) -> Path:
        """Fetch a file whole into the Hub's local cache, after saying how large it is.

        Raises
        ------
        UnknownReference, Unreachable
            As `patiently`; also if what came is not what the Hub announced.
        """
        if (path := self._cached(file)) is not None:
            return path
        if self.offline:
            raise self._not_here(file)
        # Asking for the size also meets refusals and limits under our own patience: the client's
        # download waits as long as a server tells it to.
        size = self.size(file) / 1e6
        _log.warning(
            "%s: cannot be read in parts and must be downloaded whole: %.1f MB",
            self.told(file),
            size,
        )
        return _download(self.repo_id, self.commit, file)

    def _cached(self, file: str) -> Path | None:
        """Find a file in the Hub's local cache, if it is there and may be read."""
        path = try_to_load_from_cache(self.repo_id, file, revision=self.commit)
        is_cached = isinstance(path, str) and Path(path).is_file() and os.access(path, os.R_OK)
        return Path(path) if is_cached and isinstance(path, str) else None

    def _not_here(self, file: str) -> Unreachable:
        return Unreachable(
            f"{self.told(file)}: not in the local cache. Run once without --offline and "
            f"HF_HUB_OFFLINE, or run `hf download {self.repo_id} {file} --revision {self.commit}`."
        )

    def _mapped(self, file: str) -> memoryview[int] | None:
        if file not in self.maps:
            path = self._cached(file)
            self.maps[file] = None if path is None else map_file(path)
        return self.maps[file]

    def _begin(self, file: str, min_bytes: int = 0) -> _Begun:
        """Read the beginning of a file, or so many bytes, and of which version of it they are.

        Kept are the length of the file and its ETag, in a line of JSON, and those bytes.
        """
        if file in self.begun:
            return self.begun[file]
        key = (self.repo_id, self.commit, file, "begun")
        stored = hub_local.load(*key)
        if stored is not None:
            header, _, data = stored.partition(b"\n")
            size, etag = json.loads(header)
            version = transfer.Version(etag, size)
        else:
            data, version = self._remote(file, 0, max(min_bytes, FIRST_READ_BYTES), None)
            if version.size is None:
                raise Unreachable(
                    f"{self.told(file)}: the server does not say how long the file is. Fetch it "
                    f"with `hf download {self.repo_id} {file}`; it is then read from there."
                )
            size = version.size
            hub_local.store(json.dumps([size, version.etag]).encode() + b"\n" + data, *key)
        self.begun[file] = _Begun(version, size, [(0, bytearray(data))])
        return self.begun[file]

    def _piece(self, file: str, start: int, stop: int) -> bytes:
        version = self._begin(file).version
        cache_key = (self.repo_id, self.commit, file)
        key = (*cache_key, "bytes", f"{start}-{stop} of {version}")
        data = hub_local.load(*key)
        if data is None:
            try:
                data, _ = self._remote(file, start, stop, version)
            except transfer.Replaced:
                hub_local.drop(*cache_key, "begun")
                raise
            hub_local.store(data, *key)
        return data

    def _remote(
        self, file: str, start: int, stop: int, version: transfer.Version | None
    ) -> tuple[bytes, transfer.Version]:
        if self.offline:
            raise self._not_here(file)
        if not self.has(file):
            raise InvalidCheckpoint(
                f"{self.told(file)}: it is not in the repository. Choose another revision."
            )
        file_key = self.repo_id, self.commit, file
        data, found_version = transfer.read_range(*file_key, start, stop, version)
        count_bytes(len(data))
        return data, found_version


def _download(repo_id: str, commit: str, file: str) -> Path:
    def attempt() -> str:
        try:
            return hf_hub_download(repo_id, file, revision=commit, library_name="posprobe")
        except LocalEntryNotFoundError as error:
            raise error.__cause__ or error from None  # what kept the client from looking

    subject = f"{repo_id}/{file}"
    advice = (
        "Check the space left and the permissions of the Hub's local cache (HF_HOME moves it), or "
        f"try `hf download {repo_id} {file}`."
    )
    failed = f"{subject}: the download failed"
    with explain_errors(Unreachable, failed, advice, OSError, RuntimeError, ValueError):
        # A long file takes long: the client gives up where nothing comes at all.
        # It shows by itself how far it is.
        with hide_stages():
            path = Path(transfer.patiently(subject, attempt, lambda _: False))
        _check(path, subject)
        count_bytes(path.stat().st_size)
        return path


def _check(path: Path, subject: str) -> None:
    """Compare a file that was downloaded with its checksum, where the Hub gives one.

    The client names what it keeps of a large file by its SHA-256, and compares lengths alone.
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
            f"{subject}: the download is not the file that the Hub announced (SHA-256 "
            f"{digest[:12]}…, "
            f"announced {real_path.name[:12]}…) and was removed. Run it again; a proxy may "
            "change files."
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
    files = _resolved(repo_id, revision, offline=offline)
    if files.has(INDEX):
        return open_models(files, repo_id, files.commit, part)
    return open_model(files, "", repo_id, files.commit)


def commit_of(repo_id: str, revision: str | None, *, offline: bool) -> str:
    """Return the commit that a revision is now; offline, what it was when it was last asked for.

    Parameters and errors are those of `open_hub`.
    """
    return _resolved(repo_id, revision, offline=offline).commit


# --- which commit, which files ---------------------------------------------------------------


def _resolved(repo_id: str, revision: str | None, *, offline: bool) -> RemoteFiles:
    """Find which commit a revision is, and which files it has.

    Offline it is what it was when it was last asked for: by us, or by the client.
    """
    offline = offline or bool(constants.HF_HUB_OFFLINE)
    commit = revision or ""
    if not transfer.COMMIT.fullmatch(commit):
        commit = (hub_local.load(repo_id, "revision", commit) or b"").decode() if offline else ""
    stored = hub_local.load(repo_id, commit, "files") if commit else None
    if stored is not None:  # a commit never changes
        return RemoteFiles(repo_id, commit, tuple(json.loads(stored)), offline)
    if not offline:
        return _asked(repo_id, revision)
    snapshot = _snapshot(repo_id, revision or constants.DEFAULT_REVISION)
    if snapshot is None:
        raise Unreachable(
            f"{repo_id}: not in the local cache. Run once without --offline and HF_HUB_OFFLINE."
            f"{did_you_mean(repo_id, _cached())}"
        )
    return snapshot


def _asked(repo_id: str, revision: str | None) -> RemoteFiles:
    """Ask the Hub, and keep what it answers."""
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
    return RemoteFiles(repo_id, commit, files, offline=False)


def _snapshot(repo_id: str, revision: str) -> RemoteFiles | None:
    """Find a revision with weights in the Hub's local cache."""
    try:
        top = Path(snapshot_download(repo_id, revision=revision, local_files_only=True))
        files = sorted(str(p.relative_to(top).as_posix()) for p in top.rglob("*") if p.is_file())
        if INDEX not in files:
            choose_weights(files, repo_id)
    except (OSError, ValueError, InvalidCheckpoint):  # not there, or its configuration alone
        return None
    return RemoteFiles(repo_id, top.name, tuple(files), offline=True)


def _is_sound(name: object) -> bool:
    """Whether a server's file name is safe to ask for, to store under and to print."""
    return (
        isinstance(name, str)
        and name.isprintable()
        and "\\" not in name
        and not PurePosixPath(name).is_absolute()
        and ".." not in name.split("/")
    )


def _cached() -> list[str]:
    """Name the models in the Hub's local cache."""
    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
