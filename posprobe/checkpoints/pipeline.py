"""Folders of diffusers: several models, each in a folder of its own, listed in one file.

They are one checkpoint: each tensor's name begins with its folder's, and the configuration holds
those of the models, as models that consist of several parts have it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from posprobe.checkpoints.base import Checkpoint, Dequantise, ShardedTensors, TensorInfo
from posprobe.errors import InvalidCheckpoint

#: The file that lists the models.
INDEX = "model_index.json"
#: More models than any folder has, and characters of the name of one.
_MOST, _LONGEST = 64, 100


def listed_models(index: Mapping[str, Any], folders: Iterable[str], where: str) -> tuple[str, ...]:
    """Name the folders that the index lists and that hold weights.

    Parameters
    ----------
    index
        What the file says: library and class by folder, and options.
    folders
        Those that hold weights.
    where
        The checkpoint, for messages.

    Raises
    ------
    InvalidCheckpoint
        If there is none, or there are too many.
    """
    there = set(folders)
    found = tuple(
        name
        for name, value in index.items()
        if name in there and isinstance(value, list) and len(name) <= _LONGEST
    )
    if not 0 < len(found) <= _MOST:
        raise InvalidCheckpoint(
            f"{where}: its {INDEX} lists {len(found)} models whose folders hold weights. Download "
            "the whole folder again, or name the folder of one model."
        )
    return found


def joined(
    models: Mapping[str, Checkpoint],
    index: Mapping[str, Any],
    location: str,
    revision: str | None = None,
) -> Checkpoint:
    """Put the models of a folder together into one checkpoint.

    Parameters
    ----------
    models
        Each by its folder.
    index
        What `INDEX` says.
    location, revision
        Of the whole.
    """
    files: dict[str, str] = {}  # what each model calls a file, by its path in the whole
    renamed = {folder: _within(folder, model, files) for folder, model in models.items()}

    def own(info: TensorInfo) -> tuple[str, TensorInfo]:
        folder, _, name = info.name.partition(".")
        return folder, replace(info, name=name, file=files[info.file])

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        folder, inside = own(info)
        return models[folder].fetch(inside)

    def dequantise(info: TensorInfo, data: bytes | memoryview[int]) -> Any:
        folder, inside = own(info)
        reader: Dequantise | None = models[folder].dequantise
        assert reader is not None  # noqa: S101 - only what has one says that it is quantised
        return reader(inside, data)

    whole = Checkpoint(
        location,
        ShardedTensors(
            {name: folder for folder, model in renamed.items() for name in model.tensors},
            lambda folder: renamed[folder].tensors,
        ),
        fetch,
        {
            **{key: value for key, value in index.items() if not isinstance(value, list | dict)},
            **{f"{folder}_config": dict(model.config) for folder, model in models.items()},
        },
        revision,
        dequantise,
        next(iter(models.values())).format,
        {name: use for model in renamed.values() for name, use in model.uses.items()},
    )
    return replace(whole, models=renamed)


def _within(folder: str, model: Checkpoint, files: dict[str, str]) -> Checkpoint:
    """Rename the tensors of a model, and note what their files are called in it."""

    @functools.cache
    def header(_: str) -> dict[str, TensorInfo]:
        found = {}
        for name, info in model.tensors.items():
            file = f"{folder}/{info.file.removeprefix(f'{folder}/')}"
            files[file] = info.file
            found[f"{folder}.{name}"] = replace(info, name=f"{folder}.{name}", file=file)
        return found

    return replace(
        model,
        tensors=ShardedTensors({f"{folder}.{name}": folder for name in model.tensors}, header),
        uses={f"{folder}.{name}": use for name, use in model.uses.items()},
    )
