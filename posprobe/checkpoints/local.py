"""Checkpoints of any format, on disk or elsewhere: which files are weights, how each is opened.

A folder or repository is one model, or one of diffusers, which lists several models in a file.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from posprobe.checkpoints.checkpoint import Checkpoint, gathered, joined
from posprobe.checkpoints.files import Files, LocalFiles, readable
from posprobe.errors import InvalidCheckpoint, MissingExtra, UnknownReference, explain_errors
from posprobe.opening import open_regular
from posprobe.readers import (
    MAGIC,
    READERS,
    WEIGHTS,
    Reader,
    load_opener,
    needs_start,
    reader_of,
    suffixes_of,
    tables,
)

#: The file that lists the models of a folder; more of them than any has, and characters of a name.
INDEX, _MOST_MODELS, _MAX_NAME_LETTERS = "model_index.json", 64, 100
#: Longest configuration or shard index that is read, in bytes; real indices reach 10 MB.
MAX_JSON = 64 * 1024 * 1024
#: Files that are looked at on each level below a folder that is none, and how many are named.
MOST_FILES, MOST_NAMED = 20_000, 20


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
    with readable(path):
        root, name = (path, "") if path.is_dir() else (path.parent, path.name)
        submodel = ""
        # Of models for browsers the configuration lies above.
        if (real := root.resolve()).name == "onnx" and not (root / INDEX).exists():
            root, submodel = real.parent, "onnx/"
        files = LocalFiles(root, f"{submodel}{name}" if name else "")
        location = str(path.resolve())
        if name:
            open_regular(path).close()
            return open_model(files, submodel, location, config_name=files.named)
        names = files.names(submodel)
        if INDEX in names:
            return open_models(files, location, part=part)
        if _chosen(names, str(path)) is None:
            _refuse_shelf(path)
            if config := _config(files, f"{submodel}config.json"):
                # Rotary and linear positions are there: their tensors are none.
                return Checkpoint(location, {}, lambda _: b"", config)
        return open_model(files, submodel, location)


def open_models(
    files: Files, location: str, revision: str | None = None, part: str | None = None
) -> Checkpoint:
    """Open the models that `INDEX` lists, or of them the one called ``part``.

    Raises
    ------
    PosprobeError
        As `open_model`; also if there is none, or there are too many.
    """
    index = read_json(files, INDEX)
    model_names = [name for name, value in index.items() if _is_model(files, name, value)]
    if not 0 < len(model_names) <= _MOST_MODELS:
        raise InvalidCheckpoint(
            f"{location}: its {INDEX} lists {len(model_names)} models whose folders hold weights. "
            "Download the whole folder again, or name the folder of one model."
        )
    models = {
        name: open_model(files, f"{name}/", location, revision)
        for name in model_names
        if part not in model_names or name == part
    }
    return joined(models, index, location, revision)


def _is_model(files: Files, name: str, value: Any) -> bool:
    """Tell whether an entry of the index, library and class by folder, is of one with weights."""
    is_model_entry = (
        isinstance(value, list) and len(name) <= _MAX_NAME_LETTERS and name.isprintable()
    )
    if not is_model_entry or name in (".", "..") or PurePosixPath(name).name != name:
        return False
    return any(is_weights(file) for file in files.names(f"{name}/") if "/" not in file)


def open_model(
    files: Files, folder: str, location: str, revision: str | None = None, config_name: str = ""
) -> Checkpoint:
    """Open the model in a folder; what its files hold is looked at when it is needed.

    Parameters
    ----------
    files
        Its bytes.
    folder
        Ends in a slash, or is empty.
    location, revision
        Of the checkpoint.
    config_name
        The file that holds the weights or lists their shards, where the user names it.

    Raises
    ------
    MissingExtra
        If a package is missing that reads the format.
    InvalidCheckpoint
        If there are no weights in a known format, or damaged ones.
    UnknownReference
        If a shard is missing, once it is needed.
    """
    subject = f"{location}/{folder}".rstrip("/")
    file = config_name or folder + choose_weights(files.names(folder), subject)
    shards = _shards(files, file) if file.endswith(".index.json") else {}
    parts = sorted(set(shards.values())) or [file]
    start = bytes(files.read(parts[0], 0, MAGIC)) if needs_start(_name(parts[0])) else b""
    reader = reader_of(_name(parts[0]), start)
    if reader is None:
        raise InvalidCheckpoint(
            f"{files.told(file)}: {PurePosixPath(file).suffix or 'a file without suffix'} is not a "
            f"checkpoint format. Known are {known_formats()}, and a folder that holds weights."
        )
    require(reader, files.told(file))  # better known before a download than after it
    config = _config(files, file)

    @functools.cache
    def opened(part: str) -> Checkpoint:
        if shards and not files.has(part):
            raise UnknownReference(
                f"{files.told(part)}: no such file, which its shard index names. Download the "
                "whole checkpoint, or choose another revision."
            )
        return _opened(reader, files, part)

    joined_checkpoint = gathered(opened, parts, location, config, shards, revision)
    return replace(joined_checkpoint, format=reader.name)


def _opened(reader: Reader, files: Files, file: str) -> Checkpoint:
    try:
        with readable(files.told(file)):
            checkpoint: Checkpoint = load_opener(reader.opener)(files, file)
            return checkpoint
    except InvalidCheckpoint as error:
        if not str(error).startswith(file):
            raise
        display_name = files.told(file)
        raise InvalidCheckpoint(f"{display_name}{str(error).removeprefix(file)}") from error


def _name(file: str) -> str:
    return PurePosixPath(file).name


def _shards(files: Files, index: str) -> dict[str, str]:
    """Read a shard index: tensor name to file."""
    folder = index.removesuffix(_name(index))
    match read_json(files, index):
        case {"weight_map": dict(shards)} if shards:
            refuse_outside(shards.values(), files.told(index), suffixes_of(READERS))
            return {name: folder + shard for name, shard in shards.items()}
    raise InvalidCheckpoint(f"{files.told(index)}: it has no weight_map. It is not a shard index.")


def _config(files: Files, weights: str) -> dict[str, Any]:
    """Read the configuration beside a file of weights, and above a folder ``onnx``."""
    folder = PurePosixPath(weights).parent
    parent_folders = [folder.parent] if folder.name == "onnx" and weights.endswith(".onnx") else []
    config_found: dict[str, Any] = {}
    for file in (str(parent / "config.json") for parent in (*parent_folders, folder)):
        if files.has(file):
            config_found |= read_json(files, file)
    return config_found


def choose_weights(files: Iterable[str], subject: str) -> str:
    """Pick the file that holds the weights out of a folder's or repository's file names.

    Raises
    ------
    InvalidCheckpoint
        If there is none, or several and nothing tells them apart.
    """
    names = sorted(files)
    weights_file = _chosen(names, subject)
    if weights_file is None:
        raise InvalidCheckpoint(
            f"{subject}: contains no weights in a known format, but "
            f"{', '.join(names[:8]) or 'no files at all'}. Known are {known_formats()}."
        )
    return weights_file


def _chosen(names: list[str], subject: str) -> str | None:
    for readers in tables():
        known_names = (name for reader in readers for name in reader.weights if name in names)
        if (first_known := next(known_names, None)) is not None:
            return first_known
        for suffix in suffixes_of(readers):
            candidates = [
                n for n in names if n.endswith(suffix) and "/" not in n and "training_args" not in n
            ]
            if len(candidates) > 1:
                raise InvalidCheckpoint(
                    f"{subject}: contains several weight files: "
                    f"{', '.join(sorted(candidates)[:8])}. Give "
                    "the path of one (for a repository, download it first)."
                )
            if candidates:
                return candidates[0]
    return None


def is_weights(name: str) -> bool:
    """Tell whether a file of this name holds weights, or leads to them."""
    return name in WEIGHTS or name.endswith((*suffixes_of(READERS), ".index.json"))


def _refuse_shelf(path: Path) -> None:
    """Refuse a folder without weights that has checkpoints below it, and name them.

    Raises
    ------
    InvalidCheckpoint
        If there are any, one or two levels below.
    """
    entries_by_level = (islice(path.glob(level), MOST_FILES) for level in ("*/*", "*/*/*"))
    child_folders, grandchild_folders = (
        {e.parent for e in entries if is_weights(e.name) and e.is_file()}
        for entries in entries_by_level
    )
    grandchild_folders = {
        folder for folder in grandchild_folders if folder.parent not in child_folders
    }
    if model_folders := [*map(str, sorted(child_folders) + sorted(grandchild_folders))]:
        suffix = ", and more" if len(model_folders) > MOST_NAMED else ""
        raise InvalidCheckpoint(
            f"{path}: contains several checkpoints. Choose one: "
            f"{', '.join(model_folders[:MOST_NAMED])}{suffix}."
        )


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


def read_json(files: Files, file: str) -> dict[str, Any]:
    """Read a configuration or an index.

    Raises
    ------
    InvalidCheckpoint
        If it is longer than `MAX_JSON`, or no JSON object.
    """
    display_name = files.told(file)
    content = bytes(files.read(file, 0, MAX_JSON))
    if files.size(file) > len(content):
        raise InvalidCheckpoint(f"{display_name}: longer than {MAX_JSON} bytes. Download it again.")
    return parse_json(content, display_name)


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises
    ------
    InvalidCheckpoint
        If the content is anything else.
    """
    subject, advice = f"{name}: not valid JSON", "Fix it or download it again."
    with explain_errors(InvalidCheckpoint, subject, advice, ValueError, RecursionError):
        value = json.loads(content)
        if b"\\u" in content:  # half of a character can be neither printed nor written: this raises
            json.dumps(value, ensure_ascii=False).encode()
    if not isinstance(value, dict):
        raise InvalidCheckpoint(
            f"{name}: expected a JSON object, found a {type(value).__name__}. Download it again."
        )
    return value
