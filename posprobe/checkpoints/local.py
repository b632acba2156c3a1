"""Checkpoints on disk: which files of a folder hold the weights, and how each is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from posprobe.checkpoints import safetensors
from posprobe.checkpoints.base import Checkpoint, ShardedTensors, TensorInfo
from posprobe.errors import InvalidCheckpoint, UnknownReference

#: The names that libraries save under, best first: lazy formats before pickles.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.npz",
)
#: Longest configuration or shard index that is read, in bytes; real indices reach 10 MB.
MAX_JSON = 64 * 1024 * 1024
#: Where checkpoints are looked for below a folder that is none, and how many are named.
_LEVELS, MOST_FOLDERS, MOST_FILES, MOST_NAMED = 2, 1000, 1000, 20
_FORMATS = (".safetensors", ".bin", ".pt", ".pth", ".npz", ".npy")


def choose_weights(files: Iterable[str], where: str) -> str:
    """Pick the file that holds the weights out of a folder's or repository's file names.

    Raises
    ------
    InvalidCheckpoint
        If there is none, or several and nothing tells them apart.
    """
    names = sorted(files)
    for known in WEIGHTS:
        if known in names:
            return known
    for suffix in _FORMATS:
        found = [
            n for n in names if n.endswith(suffix) and "/" not in n and "training_args" not in n
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidCheckpoint(
                f"{where}: it holds several weight files: {', '.join(found[:8])}. Name the one you "
                "mean by its path (of a repository: download it first)."
            )
    raise InvalidCheckpoint(
        f"{where}: it holds no weights in a format that can be read "
        f"({', '.join(WEIGHTS[:2])}, pytorch_model.bin, .pt, .npz, .npy); "
        f"it has {', '.join(names[:8]) or 'no files'}. TensorFlow, Flax and ONNX weights must be "
        "converted first."
    )


def open_local(path: Path) -> Checkpoint:
    """Open a checkpoint folder or a single weight file.

    Raises
    ------
    UnknownReference
        If the path does not exist or cannot be read.
    InvalidCheckpoint
        If it is no checkpoint, or a damaged one.
    """
    try:
        path = path.expanduser()
        if path.is_dir():
            entries = list(path.iterdir())
            files = [entry.name for entry in entries if entry.is_file()]
            if not any(name.endswith((*_FORMATS, ".index.json")) for name in files):
                _refuse_shelf(path, entries)
            return _open_file(path / choose_weights(files, str(path)), path)
        return _open_file(path, path)
    except RuntimeError as error:  # ~USER, and there is no such user
        raise UnknownReference(f"{path}: no such file ({error}). Check the path.") from error
    except FileNotFoundError as error:
        raise UnknownReference(
            f"{error.filename or path}: no such file. Check the path; an index that names missing "
            "shards needs them all."
        ) from error
    except PermissionError as error:
        raise UnknownReference(
            f"{error.filename or path}: you may not read it. Check its permissions."
        ) from error
    except OSError as error:
        raise InvalidCheckpoint(
            f"{error.filename or path}: it cannot be read ({error.strerror or error})."
        ) from error


def _refuse_shelf(path: Path, entries: Iterable[Path]) -> None:
    """Refuse a folder without weights that has checkpoints below it, and name them.

    Raises
    ------
    InvalidCheckpoint
        If there are any, one or two levels below.
    """
    found: list[str] = []
    waiting = [(entry, 1) for entry in sorted(entries) if entry.is_dir()][:MOST_FOLDERS]
    for number, (folder, level) in enumerate(waiting):  # it grows
        if number == MOST_FOLDERS or len(found) > MOST_NAMED:
            break
        try:
            inside = sorted(islice(folder.iterdir(), MOST_FILES))
        except OSError:
            continue
        if any(entry.name.endswith(_FORMATS) and entry.is_file() for entry in inside):
            found.append(str(folder))
        elif level < _LEVELS:
            waiting += [(entry, level + 1) for entry in inside if entry.is_dir()]
    if found:
        more = ", and more" if len(found) > MOST_NAMED else ""
        raise InvalidCheckpoint(
            f"{path}: it is no checkpoint but holds some. Name the one that you mean: "
            f"{', '.join(found[:MOST_NAMED])}{more}."
        )


def _open_file(path: Path, location: Path) -> Checkpoint:
    where = str(location.resolve())
    name = path.name
    shards: dict[str, str] = {}
    if name.endswith(".index.json"):
        shards = read_index(read_small(path), name)
    paths = [path.parent / shard for shard in sorted(set(shards.values()))] or [path]
    config = _config(path.parent)
    for part in paths:
        refuse_pipe(part)
        part.open("rb").close()  # the formats' own readers would call a missing file damaged
    match paths[0].suffix:
        case ".safetensors":
            return _open_safetensors(paths, where, config, shards)
        case ".bin" | ".pt" | ".pth":
            from posprobe.checkpoints.torchfile import open_torch

            return open_torch(paths, where, config, shards)
        case ".npy":
            from posprobe.checkpoints.numpyfile import open_npy

            return replace(open_npy(path), config=config)
        case ".csv":
            from posprobe.checkpoints.csvfile import open_csv

            return replace(open_csv(path), config=config)
        case ".npz":
            from posprobe.checkpoints.numpyfile import open_npz

            return replace(open_npz(path), config=config)
        case suffix:
            raise InvalidCheckpoint(
                f"{name}: {suffix or 'a file without suffix'} is no checkpoint format. Known are "
                f"{', '.join(_FORMATS)}, .csv and a folder that holds weights."
            )


def refuse_pipe(path: Path) -> None:
    """Refuse what is there and is no file: opening a named pipe waits for ever.

    Raises
    ------
    InvalidCheckpoint
        If it is a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():
        raise InvalidCheckpoint(
            f"{path}: it is no regular file but a folder, a pipe or a device. Put the file itself "
            "there."
        )


def read_small(path: Path) -> bytes:
    """Read a configuration or a shard index.

    Raises
    ------
    InvalidCheckpoint
        If it is longer than `MAX_JSON`, or no regular file.
    """
    refuse_pipe(path)
    if path.stat().st_size > MAX_JSON:
        raise InvalidCheckpoint(
            f"{path}: it is longer than {MAX_JSON} bytes, which no configuration or shard index "
            "is. Download it again."
        )
    return path.read_bytes()


def _slice(data: memoryview[int], start: int, stop: int) -> memoryview[int]:
    return data[start:stop]


def _open_safetensors(
    paths: list[Path], where: str, config: Mapping[str, Any], shards: Mapping[str, str]
) -> Checkpoint:
    maps = {path.name: safetensors.map_file(path) for path in paths}
    headers = {
        name: safetensors.parse_header(partial(_slice, data), len(data), name)
        for name, data in maps.items()
    }
    tensors: Mapping[str, TensorInfo] = headers[paths[0].name]
    if shards:
        tensors = ShardedTensors(shards, headers.__getitem__)

    def fetch(info: TensorInfo) -> memoryview[int]:
        return maps[info.file][info.start : info.stop]

    return Checkpoint(where, tensors, fetch, config)


def read_index(content: bytes, name: str) -> dict[str, str]:
    """Parse a shard index: tensor name to file name.

    Raises
    ------
    InvalidCheckpoint
        If it is no index, or points outside its own folder.
    """
    match parse_json(content, name):
        case {"weight_map": dict(shards)} if shards:
            pass
        case _:
            raise InvalidCheckpoint(f"{name}: it has no weight_map. It is no shard index.")
    for shard in shards.values():
        sound = isinstance(shard, str) and shard.isprintable() and shard.endswith(_FORMATS)
        if not sound or Path(shard).name != shard:
            raise InvalidCheckpoint(f"{name}: the shard {shard!r} lies outside the checkpoint.")
    return shards


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises
    ------
    InvalidCheckpoint
        If the content is anything else.
    """
    try:
        value = json.loads(content)
        if b"\\u" in content:  # half of a character can be neither printed nor written: this raises
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidCheckpoint(
            f"{name}: it is no JSON ({error}). Mend it or download it again."
        ) from error
    if not isinstance(value, dict):
        raise InvalidCheckpoint(
            f"{name}: a JSON object was expected and a {type(value).__name__} came. "
            "Download it again."
        )
    return value


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    return parse_json(read_small(path), str(path)) if path.is_file() else {}
