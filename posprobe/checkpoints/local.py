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

from posprobe.checkpoints.base import Checkpoint, gathered, joined
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
INDEX, _MOST_MODELS, _LONGEST = "model_index.json", 64, 100
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
        within = ""
        # Of models for browsers the configuration lies above.
        if (real := root.resolve()).name == "onnx" and not (root / INDEX).exists():
            root, within = real.parent, "onnx/"
        files = LocalFiles(root, f"{within}{name}" if name else "")
        location = str(path.resolve())
        if name:
            open_regular(path).close()
            return open_model(files, within, location, named=files.named)
        names = files.names(within)
        if INDEX in names:
            return open_models(files, location, part=part)
        if _chosen(names, str(path)) is None:
            _refuse_shelf(path)
            if config := _config(files, f"{within}config.json"):
                # Rotary and linear positions are there: their tensors are none.
                return Checkpoint(location, {}, lambda _: b"", config)
        return open_model(files, within, location)


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
    found = [name for name, value in index.items() if _is_model(files, name, value)]
    if not 0 < len(found) <= _MOST_MODELS:
        raise InvalidCheckpoint(
            f"{location}: its {INDEX} lists {len(found)} models whose folders hold weights. "
            "Download the whole folder again, or name the folder of one model."
        )
    models = {
        name: open_model(files, f"{name}/", location, revision)
        for name in found
        if part not in found or name == part
    }
    return joined(models, index, location, revision)


def _is_model(files: Files, name: str, value: Any) -> bool:
    """Tell whether an entry of the index, library and class by folder, is of one with weights."""
    named = isinstance(value, list) and len(name) <= _LONGEST and name.isprintable()
    if not named or name in (".", "..") or PurePosixPath(name).name != name:
        return False
    return any(is_weights(file) for file in files.names(f"{name}/") if "/" not in file)


def open_model(
    files: Files, folder: str, location: str, revision: str | None = None, named: str = ""
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
    named
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
    where = f"{location}/{folder}".rstrip("/")
    file = named or folder + choose_weights(files.names(folder), where)
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

    whole = gathered(opened, parts, location, config, shards, revision)
    return replace(whole, format=reader.name)


def _opened(reader: Reader, files: Files, file: str) -> Checkpoint:
    try:
        with readable(files.told(file)):
            found: Checkpoint = load_opener(reader.opener)(files, file)
            return found
    except InvalidCheckpoint as error:
        if not str(error).startswith(file):
            raise
        told = files.told(file)
        raise InvalidCheckpoint(f"{told}{str(error).removeprefix(file)}") from error


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
    above = [folder.parent] if folder.name == "onnx" and weights.endswith(".onnx") else []
    found: dict[str, Any] = {}
    for file in (str(each / "config.json") for each in (*above, folder)):
        if files.has(file):
            found |= read_json(files, file)
    return found


def choose_weights(files: Iterable[str], where: str) -> str:
    """Pick the file that holds the weights out of a folder's or repository's file names.

    Raises
    ------
    InvalidCheckpoint
        If there is none, or several and nothing tells them apart.
    """
    names = sorted(files)
    found = _chosen(names, where)
    if found is None:
        raise InvalidCheckpoint(
            f"{where}: contains no weights in a known format, but "
            f"{', '.join(names[:8]) or 'no files at all'}. Known are {known_formats()}."
        )
    return found


def _chosen(names: list[str], where: str) -> str | None:
    for readers in tables():
        known = (name for reader in readers for name in reader.weights if name in names)
        if (first := next(known, None)) is not None:
            return first
        for suffix in suffixes_of(readers):
            found = [
                n for n in names if n.endswith(suffix) and "/" not in n and "training_args" not in n
            ]
            if len(found) > 1:
                raise InvalidCheckpoint(
                    f"{where}: contains several weight files: {', '.join(sorted(found)[:8])}. Give "
                    "the path of one (for a repository, download it first)."
                )
            if found:
                return found[0]
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
    looked = (islice(path.glob(level), MOST_FILES) for level in ("*/*", "*/*/*"))
    near, far = ({e.parent for e in each if is_weights(e.name) and e.is_file()} for each in looked)
    far = {folder for folder in far if folder.parent not in near}
    if found := [*map(str, sorted(near) + sorted(far))]:
        more = ", and more" if len(found) > MOST_NAMED else ""
        raise InvalidCheckpoint(
            f"{path}: contains several checkpoints. Choose one: "
            f"{', '.join(found[:MOST_NAMED])}{more}."
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
    told = files.told(file)
    content = bytes(files.read(file, 0, MAX_JSON))
    if files.size(file) > len(content):
        raise InvalidCheckpoint(f"{told}: longer than {MAX_JSON} bytes. Download it again.")
    return parse_json(content, told)


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises
    ------
    InvalidCheckpoint
        If the content is anything else.
    """
    what, advice = f"{name}: not valid JSON", "Fix it or download it again."
    with explain_errors(InvalidCheckpoint, what, advice, ValueError, RecursionError):
        value = json.loads(content)
        if b"\\u" in content:  # half of a character can be neither printed nor written: this raises
            json.dumps(value, ensure_ascii=False).encode()
    if not isinstance(value, dict):
        raise InvalidCheckpoint(
            f"{name}: expected a JSON object, found a {type(value).__name__}. Download it again."
        )
    return value
