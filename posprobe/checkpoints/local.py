"""Checkpoints on disk: which files of a folder hold the weights, and how each is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from posprobe.checkpoints.base import (
    INDEX,
    Checkpoint,
    TensorInfo,
    gathered,
    joined,
    listed_models,
)
from posprobe.checkpoints.files import LocalFiles, refuse_link_out
from posprobe.errors import InvalidCheckpoint, MissingExtra, UnknownReference, explained, first_line
from posprobe.opening import open_regular
from posprobe.readers import (
    MAGIC,
    READERS,
    WEIGHTS,
    Reader,
    load_opener,
    reader_of,
    suffixes_of,
    tables,
)

#: Longest configuration or shard index that is read, in bytes; real indices reach 10 MB.
MAX_JSON = 64 * 1024 * 1024
#: Files that are looked at on each level below a folder that is none, and how many are named.
MOST_FILES, MOST_NAMED = 20_000, 20


def choose_weights(files: Iterable[str], where: str) -> str:
    """Pick the file that holds the weights out of a folder's or repository's file names.

    Raises
    ------
    InvalidCheckpoint
        If there is none, or several and nothing tells them apart.
    """
    names = sorted(files)
    for readers in tables():
        if (chosen := _choose(names, readers, where)) is not None:
            return chosen
    raise InvalidCheckpoint(
        f"{where}: contains no weights in a known format, but "
        f"{', '.join(names[:8]) or 'no files at all'}. Known are {known_formats()}."
    )


def _choose(names: list[str], readers: tuple[Reader, ...], where: str) -> str | None:
    for reader in readers:
        for known in reader.weights:
            if known in names:
                return known
    for suffix in suffixes_of(readers):
        found = [
            n for n in names if n.endswith(suffix) and "/" not in n and "training_args" not in n
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidCheckpoint(
                f"{where}: contains several weight files: {', '.join(found[:8])}. Give the path of "
                "one (for a repository, download it first)."
            )
    return None


def open_local(path: Path, part: str | None = None) -> Checkpoint:
    """Open a checkpoint folder or a single weight file.

    Parameters
    ----------
    path
        The folder or file.
    part
        Of a folder with several models, the only one to open, where one is called so.

    Raises
    ------
    UnknownReference
        If the path does not exist or cannot be read.
    InvalidCheckpoint
        If it is not a checkpoint, or a damaged one.
    """
    try:
        if path.is_dir():
            files = [entry.name for entry in path.iterdir() if entry.is_file()]
            if INDEX in files:
                return _open_models(path, part)
            if not any(map(is_weights, files)):
                _refuse_strange(path)
                _refuse_shelf(path)
                if config := _config(path / "config.json"):
                    # Rotary and linear positions are there: their tensors are none.
                    return Checkpoint(str(path.resolve()), {}, _nothing, config)
            return _open_file(path / choose_weights(files, str(path)), path)
        return _open_file(path, path)
    except OSError as error:
        where = error.filename or path
        if isinstance(error, PermissionError):
            why = "permission denied. Check that you may read it."
        elif isinstance(error, FileNotFoundError):
            why = "no such file. Check the path; an index that names missing shards needs them all."
        else:
            raise InvalidCheckpoint(f"{where}: it cannot be read ({first_line(error)}).") from error
        raise UnknownReference(f"{where}: {why}") from error


def _nothing(info: TensorInfo) -> bytes:
    raise KeyError(info.name)


def _open_models(path: Path, part: str | None) -> Checkpoint:
    """Open the models of a folder of diffusers, or one of them."""
    index = parse_json(read_small(path / INDEX), str(path / INDEX))
    inside = {
        entry.name: [file.name for file in entry.iterdir() if file.is_file()]
        for entry in path.iterdir()
        if entry.is_dir()
    }
    folders = (name for name, files in inside.items() if any(map(is_weights, files)))
    found = listed_models(index, folders, str(path))
    models = {
        name: _open_file(path / name / choose_weights(inside[name], str(path / name)), path / name)
        for name in found
        if part not in found or name == part
    }
    return joined(models, index, str(path.resolve()))


def is_weights(name: str) -> bool:
    """Tell whether a file of this name holds weights, or leads to them."""
    return name in WEIGHTS or name.endswith((*suffixes_of(READERS), ".index.json"))


def _refuse_strange(path: Path) -> None:
    """Refuse a folder without weights in which something lies that is neither file nor folder.

    Raises
    ------
    InvalidCheckpoint
        If there is any: it may stand in the place of the weights.
    """
    strange = sorted(
        each.name for each in path.iterdir() if not each.is_file() and not each.is_dir()
    )
    if strange:
        raise InvalidCheckpoint(
            f"{path}: contains no weights in a known format, but {', '.join(strange[:8])}: not a "
            "regular file, but a pipe, a device, or a link to nothing. Put the file itself there."
        )


def _refuse_shelf(path: Path) -> None:
    """Refuse a folder without weights that has checkpoints below it, and name them.

    Raises
    ------
    InvalidCheckpoint
        If there are any, one or two levels below.
    """
    looked = (islice(path.glob(level), MOST_FILES) for level in ("*/*", "*/*/*"))
    near, far = ({e.parent for e in each if is_weights(e.name) and e.is_file()} for each in looked)
    far = {folder for folder in far if folder.parent not in near}
    if found := [*map(str, sorted(near) + sorted(far))]:
        more = ", and more" if len(found) > MOST_NAMED else ""
        raise InvalidCheckpoint(
            f"{path}: contains several checkpoints. Choose one: "
            f"{', '.join(found[:MOST_NAMED])}{more}."
        )


def _open_file(path: Path, location: Path) -> Checkpoint:
    shards: dict[str, str] = {}
    if path != location:  # a path that the user named may be a link
        refuse_link_out(path, location)
    if path.name.endswith(".index.json"):
        shards = read_index(read_small(path), path.name)
    paths = [path.parent / shard for shard in sorted(set(shards.values()))] or [path]
    config = _config(path)
    for part in paths:
        if shards:
            refuse_link_out(part, path.parent)
        open_regular(part).close()  # the formats' own readers would call a missing file damaged
    return open_files(paths, str(location.resolve()), config, shards)


def open_files(
    paths: list[Path],
    location: str,
    config: Mapping[str, Any],
    shards: Mapping[str, str],
    revision: str | None = None,
) -> Checkpoint:
    """Open the files that together are one checkpoint, each with the reader of its format.

    Parameters
    ----------
    paths
        One file, or all that ``shards`` names.
    location, config, revision
        Of the checkpoint; what files say of a configuration counts where ``config`` is silent.
    shards
        The file of each tensor, where there are several files.

    Raises
    ------
    MissingExtra
        If a package is missing that reads the format.
    InvalidCheckpoint
        If a file is of no known format, or damaged.
    """
    opened = {path.name: _open_one(path) for path in paths}
    settings = {key: value for part in opened.values() for key, value in part.config.items()}
    return gathered(
        opened.__getitem__, [*opened], location, {**settings, **config}, shards, revision
    )


def _open_one(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        reader = reader_of(path.name, file.read(MAGIC))
    if reader is None:
        raise InvalidCheckpoint(
            f"{path.name}: {path.suffix or 'a file without suffix'} is not a checkpoint format. "
            f"Known are {known_formats()}, and a folder that holds weights."
        )
    require(reader, path.name)
    opened: Checkpoint = (
        load_opener(reader.opener)(path)
        if reader.opener
        else load_opener(reader.ranged)(LocalFiles(path), path.name)
    )
    return replace(opened, format=reader.name)


def require(reader: Reader, file: str) -> None:
    """Refuse a file whose reader needs a package that is not installed.

    Raises
    ------
    MissingExtra
        In one line that names what installs it.
    """
    for package in reader.packages:
        if find_spec(package) is None:
            extra = f"`uv sync --extra {reader.extra}`"
            raise MissingExtra(
                f"{file}: {reader.name} files are read with {package}, which is not installed. Run "
                + (extra if reader.extra else f"`pip install {package}`")
                + ", or use the checkpoint's safetensors file if it has one."
            )


def known_formats() -> str:
    """List the formats that can be read, with their suffixes."""
    return ", ".join(
        f"{reader.name} ({', '.join(reader.suffixes or reader.weights)})" for reader in READERS
    )


def read_small(path: Path) -> bytes:
    """Read a configuration or a shard index.

    Raises
    ------
    InvalidCheckpoint
        If it is longer than `MAX_JSON`, or no regular file.
    """
    try:
        with open_regular(path, MAX_JSON) as file:
            return file.read()
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise InvalidCheckpoint(
            f"{path}: it cannot be read ({error.strerror}). Download it again."
        ) from error


def read_index(content: bytes, name: str) -> dict[str, str]:
    """Parse a shard index: tensor name to file name.

    Raises
    ------
    InvalidCheckpoint
        If it is not an index, or points outside its own folder.
    """
    match parse_json(content, name):
        case {"weight_map": dict(shards)} if shards:
            pass
        case _:
            raise InvalidCheckpoint(f"{name}: it has no weight_map. It is not a shard index.")
    refuse_outside(shards.values(), name, suffixes_of(READERS))
    return shards


def refuse_outside(shards: Iterable[Any], index: str, suffixes: tuple[str, ...]) -> None:
    """Refuse an index that names anything but files of weights in its own folder.

    Raises
    ------
    InvalidCheckpoint
        If one of the shards is none.
    """
    for shard in shards:
        sound = isinstance(shard, str) and shard.isprintable() and shard.endswith(suffixes)
        if not sound or Path(shard).name != shard:
            raise InvalidCheckpoint(f"{index}: the shard {shard!r} lies outside the checkpoint.")


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises
    ------
    InvalidCheckpoint
        If the content is anything else.
    """
    what, advice = f"{name}: not valid JSON", "Fix it or download it again."
    with explained(InvalidCheckpoint, what, advice, ValueError, RecursionError):
        value = json.loads(content)
        if b"\\u" in content:  # half of a character can be neither printed nor written: this raises
            json.dumps(value, ensure_ascii=False).encode()
    if not isinstance(value, dict):
        raise InvalidCheckpoint(
            f"{name}: expected a JSON object, found a {type(value).__name__}. Download it again."
        )
    return value


def _config(weights: Path) -> dict[str, Any]:
    """Read the configuration beside a file of weights.

    Of models for browsers it lies above their folder ``onnx``.
    """
    above = weights.suffix == ".onnx" and weights.parent.name == "onnx"
    folders = [weights.parent.parent, weights.parent] if above else [weights.parent]
    paths = (folder / "config.json" for folder in folders)
    found: dict[str, Any] = {}
    for path in filter(Path.is_file, paths):
        refuse_link_out(path, path.parent)
        found |= parse_json(read_small(path), str(path))
    return found
