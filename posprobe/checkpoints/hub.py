"""Checkpoints on the Hub, read without downloading them: headers by range, then single tensors.

What is already on this machine is used from here: files in the Hub's local cache, memory-mapped,
and what earlier runs read (`posprobe.checkpoints.cache`). Only repositories without a format that
can be read in parts are downloaded whole, into the Hub's local cache.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import LocalEntryNotFoundError

from posprobe.checkpoints import cache, ranges, transfer
from posprobe.checkpoints.base import Checkpoint, ShardedTensors, TensorInfo
from posprobe.checkpoints.local import (
    MAX_JSON,
    choose_weights,
    gathered,
    is_weights,
    open_files,
    parse_json,
    read_index,
    require,
)
from posprobe.checkpoints.pipeline import INDEX, joined, listed_models
from posprobe.checkpoints.remote import RemoteFiles
from posprobe.checkpoints.safetensors import map_file, parse_header
from posprobe.checkpoints.shared import count_bytes
from posprobe.errors import InvalidCheckpoint, UnknownReference, Unreachable
from posprobe.progress import aside
from posprobe.readers import MAGIC, load_opener, needs_start, reader_of
from posprobe.reference import did_you_mean

#: Bytes asked for at first: the whole header of most models (GPT-2's has 14 kB), and little waste.
HEADER_GUESS = 32 * 1024

_log = logging.getLogger("posprobe")


@dataclass(frozen=True)
class _Repo:
    """One commit of a repository; ``files`` are the names in it."""

    id: str
    commit: str
    files: tuple[str, ...]
    offline: bool


@dataclass(frozen=True, eq=False)
class _Header:
    """What the header of a file says, and of which version of the file it is."""

    tensors: Mapping[str, TensorInfo]
    version: ranges.Version


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
    if not (offline or constants.HF_HUB_OFFLINE):
        return _open(_resolve(repo_id, revision), part)
    missing: Unreachable | None = None
    for repo in _known_offline(repo_id, revision):
        try:
            return _open(repo, part)
        except Unreachable as error:
            missing = missing or error
    raise missing or _nothing_here(repo_id)


def commit_of(repo_id: str, revision: str | None, *, offline: bool) -> str:
    """Return the commit that a revision is now; offline, what it was when it was last asked for.

    Parameters and errors are those of `open_hub`.
    """
    if not (offline or constants.HF_HUB_OFFLINE):
        return _resolve(repo_id, revision).commit
    for repo in _known_offline(repo_id, revision):
        return repo.commit
    raise _nothing_here(repo_id)


def _open(repo: _Repo, part: str | None) -> Checkpoint:
    if INDEX not in repo.files:
        return _open_model(repo, "")
    index = parse_json(_whole(repo, INDEX), f"{repo.id}/{INDEX}")
    places = (PurePosixPath(file) for file in repo.files)
    folders = {str(place.parent) for place in places if is_weights(place.name)}
    found = listed_models(index, folders, repo.id)
    models = {
        name: _open_model(repo, f"{name}/") for name in found if part not in found or name == part
    }
    return joined(models, index, repo.id, repo.commit)


def _open_model(repo: _Repo, folder: str) -> Checkpoint:
    """Open the model in a folder of a repository; ``folder`` ends in a slash, or is empty."""
    names = [file.removeprefix(folder) for file in repo.files if file.startswith(folder)]
    own = choose_weights(names, f"{repo.id}/{folder}".rstrip("/"))
    file = folder + own
    config: dict[str, Any] = {}
    if (stated := f"{folder}config.json") in repo.files:
        config = parse_json(_whole(repo, stated), f"{repo.id}/{stated}")
    shards: dict[str, str] = {}
    if file.endswith(".index.json"):
        index = read_index(_whole(repo, file), f"{repo.id}/{file}")
        shards = {name: folder + shard for name, shard in index.items()}
    parts = sorted(set(shards.values())) or [file]
    files = _files(repo)
    start = bytes(files.read(parts[0], 0, MAGIC)) if needs_start(PurePosixPath(file).name) else b""
    reader = reader_of(parts[0], start)
    if reader is None or reader.name == "safetensors":
        return _open_safetensors(repo, file, shards, config)
    require(reader, f"{repo.id}/{file}")  # better known before a download than after it
    if reader.ranged:
        opener = functools.partial(load_opener(reader.ranged), files)
        whole = gathered(functools.cache(opener), parts, repo.id, config, shards, repo.commit)
        return replace(whole, format=reader.name)
    paths = _download(repo, parts)
    own_shards = {name: PurePosixPath(shard).name for name, shard in shards.items()}
    return open_files(paths, repo.id, config, own_shards, repo.commit)


def _files(repo: _Repo) -> RemoteFiles:
    """Give the files of a commit to readers that need only parts of them."""
    return RemoteFiles(
        (repo.id, repo.commit),
        frozenset(repo.files),
        functools.partial(_local, repo),
        functools.partial(_remote, repo),
        lambda file: _download(repo, [file])[0],
    )


# --- which commit, which files ---------------------------------------------------------------


def _resolve(repo_id: str, revision: str | None) -> _Repo:
    """Ask the Hub which commit a revision is, and which files it has."""
    if revision is not None and transfer.COMMIT.fullmatch(revision):
        known = _stored_files(repo_id, revision)
        if known is not None:  # a commit never changes
            return _Repo(repo_id, revision, known, offline=False)
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
    cache.store(json.dumps(files).encode(), repo_id, commit, "files")
    cache.store(commit.encode(), repo_id, "revision", revision or "")
    return _Repo(repo_id, commit, files, offline=False)


def _known_offline(repo_id: str, revision: str | None) -> Iterator[_Repo]:
    """Yield what a revision meant when it was last asked for: by us, then by the Hub's client."""
    commit = revision or ""
    if not transfer.COMMIT.fullmatch(commit):
        commit = (cache.load(repo_id, "revision", commit) or b"").decode("ascii", "replace")
    files = _stored_files(repo_id, commit)
    if files is not None:
        yield _Repo(repo_id, commit, files, offline=True)
    snapshot = _snapshot(repo_id, revision or constants.DEFAULT_REVISION)
    if snapshot is not None:
        yield snapshot


def _snapshot(repo_id: str, revision: str) -> _Repo | None:
    """Find a revision with weights in the Hub's local cache, whose layout is documented."""
    folder = Path(constants.HF_HUB_CACHE, "--".join(["models", *repo_id.split("/")]))
    try:
        commit = revision
        if not transfer.COMMIT.fullmatch(commit):
            commit = (folder / "refs" / revision).read_text().strip()
        if not transfer.COMMIT.fullmatch(commit):
            return None
        top = folder / "snapshots" / commit
        files = sorted(str(p.relative_to(top).as_posix()) for p in top.rglob("*") if p.is_file())
        if INDEX not in files:
            choose_weights(files, repo_id)
    except (OSError, ValueError, InvalidCheckpoint):  # not there, or its configuration alone
        return None
    return _Repo(repo_id, commit, tuple(files), offline=True)


def _stored_files(repo_id: str, commit: str) -> tuple[str, ...] | None:
    stored = cache.load(repo_id, commit, "files")
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


# --- reading parts of files ------------------------------------------------------------------


def _open_safetensors(
    repo: _Repo, file: str, shards: Mapping[str, str], config: Mapping[str, Any]
) -> Checkpoint:
    header = functools.cache(functools.partial(_header, repo))

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        return _fetch(repo, info, header(info.file).version)

    tensors = (
        ShardedTensors(shards, lambda shard: header(shard).tensors)
        if shards
        else header(file).tensors
    )
    return Checkpoint(repo.id, tensors, fetch, config, repo.commit, format="safetensors")


def _header(repo: _Repo, file: str) -> _Header:
    try:
        return _read_header(repo, file)
    except InvalidCheckpoint as error:  # its message begins with the file
        raise InvalidCheckpoint(f"{repo.id}/{error}") from error


def _read_header(repo: _Repo, file: str) -> _Header:
    """Read the header of a safetensors file.

    It is stored behind the length of the file, 8 bytes, and its ETag, 2 bytes of length and itself.
    """
    path = _local(repo, file)
    if path is not None:
        data = map_file(path)
        tensors = parse_header(lambda start, stop: data[start:stop], len(data), file)
        return _Header(tensors, ranges.Version())
    stored = cache.load(repo.id, repo.commit, file, "header")
    if stored is not None:
        size, begin = (
            int.from_bytes(stored[:8], "little"),
            10 + int.from_bytes(stored[8:10], "little"),
        )
        known = stored[begin:]
        tensors = parse_header(lambda start, stop: known[start:stop], size, file)
        etag = stored[10:begin].decode(errors="replace")
        return _Header(tensors, ranges.Version(etag, size))
    start_of_file, version = _remote(repo, file, 0, HEADER_GUESS)
    length = version.size
    if length is None:
        raise Unreachable(
            f"{repo.id}/{file}: the server does not say how long the file is. Fetch it with "
            f"`hf download {repo.id} {file}`; it is then read from there."
        )
    got = bytearray(start_of_file)

    def read(start: int, stop: int) -> bytes:
        # The parser asks for the rest only once the length that is claimed is plausible.
        if stop > len(got):
            got.extend(_remote(repo, file, len(got), stop, version)[0])
        return bytes(got[start:stop])

    tensors = parse_header(read, length, file)
    end = 8 + int.from_bytes(got[:8], "little")
    tag = version.etag.encode(errors="replace")
    about = length.to_bytes(8, "little") + len(tag).to_bytes(2, "little") + tag
    cache.store(about + got[:end], repo.id, repo.commit, file, "header")
    return _Header(tensors, version)


def _fetch(repo: _Repo, info: TensorInfo, version: ranges.Version) -> bytes | memoryview[int]:
    """Read a tensor's bytes from the version of the file that its header was read from."""
    path = _local(repo, info.file)
    if path is not None:
        return map_file(path)[info.start : info.stop]
    if info.start == info.stop:
        return b""
    what = f"{info.dtype} {list(info.shape)}, bytes {info.start}-{info.stop} of {version}"
    key = (repo.id, repo.commit, info.file, "tensor", info.name, what)
    data = cache.load(*key)
    if data is None:
        try:
            data, _ = _remote(repo, info.file, info.start, info.stop, version)
        except ranges.Replaced:
            cache.drop(repo.id, repo.commit, info.file, "header")
            raise
        if len(data) == info.stop - info.start:
            cache.store(data, *key)
    return data


def _whole(repo: _Repo, file: str) -> bytes:
    """Read a small file."""
    path = _local(repo, file)
    if path is not None:
        return path.read_bytes()
    data = cache.load(repo.id, repo.commit, file, "whole")
    if data is None:
        data, version = _remote(repo, file, 0, MAX_JSON)
        if version.size is None or version.size > len(data):
            raise InvalidCheckpoint(
                f"{repo.id}/{file}: it is longer than {MAX_JSON} bytes, which no configuration or "
                "shard index is. The repository is broken: choose another revision."
            )
        cache.store(data, repo.id, repo.commit, file, "whole")
    return data


def _local(repo: _Repo, file: str) -> Path | None:
    """Find a file of this commit in the Hub's local cache, if it is there and may be read."""
    path = try_to_load_from_cache(repo.id, file, revision=repo.commit)
    there = isinstance(path, str) and Path(path).is_file() and os.access(path, os.R_OK)
    return Path(path) if there and isinstance(path, str) else None


def _remote(
    repo: _Repo, file: str, start: int, stop: int, version: ranges.Version | None = None
) -> tuple[bytes, ranges.Version]:
    if repo.offline:
        raise _not_here(repo, file)
    data, found = ranges.read_range(repo.id, repo.commit, file, start, stop, version)
    count_bytes(len(data))
    return data, found


def _nothing_here(repo_id: str) -> Unreachable:
    return Unreachable(
        f"{repo_id}: not in the local cache. Run once without --offline and HF_HUB_OFFLINE."
        f"{did_you_mean(repo_id, _cached())}"
    )


def _cached() -> list[str]:
    """Name the models in the Hub's local cache."""
    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]


def _not_here(repo: _Repo, file: str) -> Unreachable:
    return Unreachable(
        f"{repo.id}/{file}: not in the local cache. Run once without --offline and "
        "HF_HUB_OFFLINE, or fetch the file with "
        f"`hf download {repo.id} {file} --revision {repo.commit}`."
    )


# --- whole downloads -------------------------------------------------------------------------


def _download(repo: _Repo, files: Iterable[str]) -> list[Path]:
    """Fetch files whole into the Hub's local cache, after saying how large they are."""
    found = {file: _local(repo, file) for file in files}
    missing = [file for file, path in found.items() if path is None]
    if missing and repo.offline:
        raise _not_here(repo, missing[0])
    if missing:
        # One byte tells the size. It also meets refusals and limits under our own patience: the
        # client's download waits as long as a server tells it to.
        sizes = [_remote(repo, file, 0, 1)[1].size for file in missing]
        known = [size for size in sizes if size is not None]
        _log.warning(
            "%s: %s cannot be read in parts and must be downloaded whole: %s",
            repo.id,
            missing[0] if len(missing) == 1 else f"{len(missing)} files",
            f"{sum(known) / 1e6:.1f} MB" if len(known) == len(missing) else "of unknown size",
        )
    return [path or _download_one(repo, file) for file, path in found.items()]


def _download_one(repo: _Repo, file: str) -> Path:
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
