"""Checkpoints of any format, on disk or on the Hub: the choice of weight files and their readers.

A folder or repository is one model, or one of diffusers, whose index lists several models.
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

from posprobe.checkpoints.checkpoint import Checkpoint, join_models, join_shards
from posprobe.checkpoints.files import Files, LocalFiles, explain_read_errors
from posprobe.errors import (
    InvalidCheckpoint,
    MissingExtra,
    UnknownReference,
    explain_errors,
)
from posprobe.opening import open_regular
from posprobe.readers import (
    N_MAGIC_BYTES,
    READERS,
    WEIGHT_FILES,
    Reader,
    choose_reader,
    iter_readers,
    list_suffixes,
    load_opener,
    needs_start,
)

#: File that lists the models of a folder.
MODEL_INDEX = "model_index.json"
#: File that describes an adapter (PEFT); its content stands under the name without its suffix.
ADAPTER_CONFIG = "adapter_config.json"
#: Largest number of models in a folder, and of characters in a model's name; none has as many.
_MAX_MODELS = 64
_MAX_NAME_LETTERS = 100
#: Longest configuration or shard index that is read, in bytes; published indices reach 10 MB.
MAX_JSON_BYTES = 64 * 1024 * 1024
#: Largest number of files that are listed on one level below a folder without weights.
MAX_LISTED_FILES = 20_000
#: Largest number of checkpoints that a message names.
MAX_NAMED_CHECKPOINTS = 20


def open_local(path: Path, model: str | None = None) -> Checkpoint:
    """Open a checkpoint folder or a single weight file.

    Parameters
    ----------
    path
        The folder or file.
    model
        Name of the only model to open in a folder of several.

    Raises
    ------
    UnknownReference
        If the path does not exist or cannot be read.
    InvalidCheckpoint
        If it is not a checkpoint, or a damaged one.
    """
    with explain_read_errors(path):
        folder, name = (path, "") if path.is_dir() else (path.parent, path.name)
        subfolder = ""
        # Models for browsers have their configuration in the folder above ``onnx``.
        if (real_root := folder.resolve()).name == "onnx" and not (
            folder / MODEL_INDEX
        ).exists():
            folder, subfolder = real_root.parent, "onnx/"
        files = LocalFiles(folder, f"{subfolder}{name}" if name else "")
        location = str(path.resolve())
        if name:
            open_regular(path).close()
            return open_model(files, subfolder, location, weights_file=files.named_file)
        names = files.names(subfolder)
        if MODEL_INDEX in names:
            return open_models(files, location, model=model)
        if _find_weights(names, str(path)) is None:
            _check_no_checkpoints_below(path)
            if config := _read_config(files, f"{subfolder}config.json"):
                # Rotary and linear positions need no tensor.
                return Checkpoint(location, {}, lambda _: b"", config)
        return open_model(files, subfolder, location)


def open_models(
    files: Files, location: str, revision: str | None = None, model: str | None = None
) -> Checkpoint:
    """Open the models that `MODEL_INDEX` lists, or of them the one called ``model``.

    Raises
    ------
    PosprobeError
        As `open_model`; also if there is none, or there are too many.
    """
    index = read_json(files, MODEL_INDEX)
    model_names = [name for name, value in index.items() if _is_model(files, name, value)]
    if not 0 < len(model_names) <= _MAX_MODELS:
        raise InvalidCheckpoint(
            f"{location}: its {MODEL_INDEX} lists {len(model_names)} models "
            "whose folders hold weights. Download the whole folder again, "
            "or name the folder of one model."
        )
    models = {
        name: open_model(files, f"{name}/", location, revision)
        for name in model_names
        if model not in model_names or name == model
    }
    return join_models(models, index, location, revision)


def _is_model(files: Files, name: str, value: Any) -> bool:
    """Tell whether an entry of the index, library and class by folder, is a model with weights."""
    is_model_entry = (
        isinstance(value, list) and len(name) <= _MAX_NAME_LETTERS and name.isprintable()
    )
    if not is_model_entry or name in (".", "..") or PurePosixPath(name).name != name:
        return False
    return any(is_weights(file) for file in files.names(f"{name}/") if "/" not in file)


def open_model(
    files: Files,
    folder: str,
    location: str,
    revision: str | None = None,
    weights_file: str = "",
) -> Checkpoint:
    """Open the model in a folder; its files are read when they are needed.

    Parameters
    ----------
    files
        Access to the bytes of its files.
    folder
        Path of the folder with a slash at its end, or empty.
    location, revision
        Location and revision of the checkpoint.
    weights_file
        File with the weights or the list of their shards, if the user names it.

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
    file = weights_file or folder + choose_weights(files.names(folder), subject)
    shards = _read_shards(files, file) if file.endswith(".index.json") else {}
    shard_names = sorted(set(shards.values())) or [file]
    first_bytes = (
        bytes(files.read(shard_names[0], 0, N_MAGIC_BYTES))
        if needs_start(_file_name(shard_names[0]))
        else b""
    )
    reader = choose_reader(_file_name(shard_names[0]), first_bytes)
    if reader is None:
        raise InvalidCheckpoint(
            f"{files.display_name(file)}: "
            f"{PurePosixPath(file).suffix or 'a file without suffix'} is "
            f"not a checkpoint format. Known are {known_formats()}, and a "
            "folder that holds weights."
        )
    check_packages(reader, files.display_name(file))  # before any download
    config = _read_config(files, file)

    @functools.cache
    def open_shard(shard_name: str) -> Checkpoint:
        if shards and not files.has(shard_name):
            raise UnknownReference(
                f"{files.display_name(shard_name)}: no such file, which its "
                "shard index names. Download the whole checkpoint, or "
                "choose another revision."
            )
        return _open_file(reader, files, shard_name)

    joined_checkpoint = join_shards(
        open_shard, shard_names, location, config, shards, revision
    )
    return replace(joined_checkpoint, format=reader.name)


def _open_file(reader: Reader, files: Files, file: str) -> Checkpoint:
    try:
        with explain_read_errors(files.display_name(file)):
            checkpoint: Checkpoint = load_opener(reader.opener)(files, file)
            return checkpoint
    except InvalidCheckpoint as error:
        if not str(error).startswith(file):
            raise
        display_name = files.display_name(file)
        raise InvalidCheckpoint(
            f"{display_name}{str(error).removeprefix(file)}"
        ) from error


def _file_name(file: str) -> str:
    return PurePosixPath(file).name


def _read_shards(files: Files, index: str) -> dict[str, str]:
    """Read a shard index: tensor name to file."""
    folder = index.removesuffix(_file_name(index))
    match read_json(files, index):
        case {"weight_map": dict(shards)} if shards:
            check_shard_names(
                shards.values(), files.display_name(index), list_suffixes(READERS)
            )
            return {name: folder + shard for name, shard in shards.items()}
    raise InvalidCheckpoint(
        f"{files.display_name(index)}: it has no weight_map. It is not a shard index."
    )


def _read_config(files: Files, weights: str) -> dict[str, Any]:
    """Read the configuration beside a file of weights, and above a folder ``onnx``."""
    folder = PurePosixPath(weights).parent
    parent_folders = (
        [folder.parent] if folder.name == "onnx" and weights.endswith(".onnx") else []
    )
    config: dict[str, Any] = {}
    for file in (str(parent / "config.json") for parent in (*parent_folders, folder)):
        if files.has(file):
            config |= read_json(files, file)
    # open_clip keeps the configuration of the model in a section of its own file.
    open_clip = str(folder / "open_clip_config.json")
    if not config and files.has(open_clip):
        model = read_json(files, open_clip).get("model_cfg")
        config = model if isinstance(model, dict) else {}
    adapter_file = str(folder / ADAPTER_CONFIG)
    if _file_name(weights).startswith("adapter_model") and files.has(adapter_file):
        config[ADAPTER_CONFIG.removesuffix(".json")] = read_json(files, adapter_file)
    return config


def choose_weights(files: Iterable[str], subject: str) -> str:
    """Pick the file that holds the weights out of a folder's or repository's file names.

    Raises
    ------
    InvalidCheckpoint
        If there is none, or several and nothing tells them apart.
    """
    names = sorted(files)
    weights_file = _find_weights(names, subject)
    if weights_file is None:
        raise InvalidCheckpoint(
            f"{subject}: contains no weights in a known format, but "
            f"{', '.join(names[:8]) or 'no files at all'}. Known are "
            f"{known_formats()}."
        )
    return weights_file


def _find_weights(names: list[str], subject: str) -> str | None:
    for readers in iter_readers():
        standard_names = (
            name for reader in readers for name in reader.weights if name in names
        )
        if (name := next(standard_names, None)) is not None:
            return name
        for suffix in list_suffixes(readers):
            candidates = [
                n
                for n in names
                if n.endswith(suffix) and "/" not in n and "training_args" not in n
            ]
            if len(candidates) > 1:
                raise InvalidCheckpoint(
                    f"{subject}: contains several weight files: "
                    f"{', '.join(sorted(candidates)[:8])}. Give the path of "
                    "one (for a repository, download it first)."
                )
            if candidates:
                return candidates[0]
    return None


def is_weights(name: str) -> bool:
    """Tell whether a file of this name holds weights, or leads to them."""
    return name in WEIGHT_FILES or name.endswith((*list_suffixes(READERS), ".index.json"))


def _check_no_checkpoints_below(path: Path) -> None:
    """Refuse a folder without weights that has checkpoints below it, and name them.

    Raises
    ------
    InvalidCheckpoint
        If there are any, one or two levels below.
    """
    entries_by_level = (
        islice(path.glob(level), MAX_LISTED_FILES) for level in ("*/*", "*/*/*")
    )
    child_folders, grandchild_folders = (
        {e.parent for e in entries if is_weights(e.name) and e.is_file()}
        for entries in entries_by_level
    )
    grandchild_folders = {
        folder for folder in grandchild_folders if folder.parent not in child_folders
    }
    if model_folders := [*map(str, sorted(child_folders) + sorted(grandchild_folders))]:
        suffix = ", and more" if len(model_folders) > MAX_NAMED_CHECKPOINTS else ""
        raise InvalidCheckpoint(
            f"{path}: contains several checkpoints. Choose one: "
            f"{', '.join(model_folders[:MAX_NAMED_CHECKPOINTS])}{suffix}."
        )


def check_packages(reader: Reader, file: str) -> None:
    """Refuse a file whose reader needs a package that is not installed.

    Raises
    ------
    MissingExtra
        With one line that names the command to install it.
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
        f"{reader.name} ({', '.join(reader.suffixes or reader.weights)})"
        for reader in READERS
    )


def check_shard_names(
    shards: Iterable[Any], index: str, suffixes: tuple[str, ...]
) -> None:
    """Refuse an index that names anything but files of weights in its own folder.

    Raises
    ------
    InvalidCheckpoint
        If one of the shards is none.
    """
    for shard in shards:
        is_weights_name = (
            isinstance(shard, str) and shard.isprintable() and shard.endswith(suffixes)
        )
        if not is_weights_name or Path(shard).name != shard:
            raise InvalidCheckpoint(
                f"{index}: the shard {shard!r} lies outside the checkpoint."
            )


def read_json(files: Files, file: str) -> dict[str, Any]:
    """Read a configuration or an index.

    Raises
    ------
    InvalidCheckpoint
        If it is longer than `MAX_JSON_BYTES`, or no JSON object.
    """
    display_name = files.display_name(file)
    content = bytes(files.read(file, 0, MAX_JSON_BYTES))
    if files.size(file) > len(content):
        raise InvalidCheckpoint(
            f"{display_name}: longer than {MAX_JSON_BYTES} bytes. Download it again."
        )
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
        if (
            b"\\u" in content
        ):  # half of a character can be neither printed nor written: this raises
            json.dumps(value, ensure_ascii=False).encode()
    if not isinstance(value, dict):
        raise InvalidCheckpoint(
            f"{name}: expected a JSON object, found a {type(value).__name__}. Download it again."
        )
    return value
