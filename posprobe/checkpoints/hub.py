"""Checkpoints on the Hub, read without downloading them: headers by range, then single tensors.

What is already on this machine is used from here: files in the Hub's local cache, memory-mapped,
and what earlier runs read. Only repositories without a format that can be read in parts are
downloaded whole, into the Hub's local cache. Why requests are not those of `huggingface_hub`'s own
file system stands in `posprobe.checkpoints.transfer`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import constants, snapshot_download

from posprobe.checkpoints import cache, transfer
from posprobe.checkpoints.base import Checkpoint
from posprobe.checkpoints.local import (
    MAX_JSON,
    choose_weights,
    is_weights,
    open_files,
    parse_json,
    read_index,
    require,
)
from posprobe.checkpoints.pipeline import INDEX, gathered, joined, listed_models
from posprobe.checkpoints.remote import RemoteFiles, Repo, download
from posprobe.errors import InvalidCheckpoint, UnknownReference, Unreachable
from posprobe.readers import MAGIC, load_opener, needs_start, reader_of
from posprobe.reference import did_you_mean


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
            f"{files.repo.id}/{file}: it is longer than {MAX_JSON} bytes, which no configuration "
            "or shard index is. The repository is broken: choose another revision."
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
    cache.store(json.dumps(files).encode(), repo_id, commit, "files")
    cache.store(commit.encode(), repo_id, "revision", revision or "")
    return Repo(repo_id, commit, files, offline=False)


def _known_offline(repo_id: str, revision: str | None) -> Iterator[Repo]:
    """Yield what a revision meant when it was last asked for: by us, then by the Hub's client."""
    commit = revision or ""
    if not transfer.COMMIT.fullmatch(commit):
        commit = (cache.load(repo_id, "revision", commit) or b"").decode("ascii", "replace")
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


def _nothing_here(repo_id: str) -> Unreachable:
    return Unreachable(
        f"{repo_id}: not in the local cache. Run once without --offline and HF_HUB_OFFLINE."
        f"{did_you_mean(repo_id, _cached())}"
    )


def _cached() -> list[str]:
    """Name the models in the Hub's local cache."""
    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
