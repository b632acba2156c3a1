"""Folders of diffusers: several models, each in a folder of its own, listed in one file.

They are one checkpoint: each tensor's name begins with its folder's, and the configuration holds
those of the models, as models that consist of several parts have it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from posprobe.checkpoints.base import Checkpoint, ShardedTensors, TensorInfo
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
    renamed = {folder: _within(folder, model) for folder, model in models.items()}
    own = {key: value for key, value in index.items() if not isinstance(value, list | dict)}
    configs = {f"{folder}_config": dict(model.config) for folder, model in models.items()}
    whole = gathered(
        renamed.__getitem__,
        [*models],
        location,
        own | configs,
        {name: folder for folder, model in renamed.items() for name in model.tensors},
        revision,
        lambda info: info.name.partition(".")[0],
    )
    return replace(
        whole,
        format=next(iter(models.values())).format,
        uses={name: use for model in renamed.values() for name, use in model.uses.items()},
        models=renamed,
    )


def _within(folder: str, model: Checkpoint) -> Checkpoint:
    """Rename the tensors of a model and their files."""
    files: dict[str, str] = {}  # what the model calls a file, by its path in the whole

    @functools.cache
    def header(_: str) -> dict[str, TensorInfo]:
        found = {}
        for name, info in model.tensors.items():
            file = f"{folder}/{info.file.removeprefix(f'{folder}/')}"
            files[file] = info.file
            found[f"{folder}.{name}"] = replace(info, name=f"{folder}.{name}", file=file)
        return found

    def own(info: TensorInfo) -> TensorInfo:
        return replace(info, name=info.name.removeprefix(f"{folder}."), file=files[info.file])

    def dequantise(info: TensorInfo, data: bytes | memoryview[int]) -> Any:
        assert model.dequantise is not None  # noqa: S101 - only what has one is quantised
        return model.dequantise(own(info), data)

    return replace(
        model,
        tensors=ShardedTensors({f"{folder}.{name}": folder for name in model.tensors}, header),
        fetch=lambda info: model.fetch(own(info)),
        dequantise=dequantise,
        uses={f"{folder}.{name}": use for name, use in model.uses.items()},
    )


def gathered(
    opened: Callable[[str], Checkpoint],
    parts: list[str],
    location: str,
    config: Mapping[str, Any],
    shards: Mapping[str, str],
    revision: str | None = None,
    part_of: Callable[[TensorInfo], str] = attrgetter("file"),
) -> Checkpoint:
    """Put the parts of one checkpoint together, of ``shards`` each when it is needed.

    Parameters
    ----------
    opened
        Opens a part by its name, or returns it opened.
    parts
        Their names.
    location, config, revision
        Of the whole; what the only part says of a configuration counts where this one is silent.
    shards
        The part of each tensor, where there are several parts.
    part_of
        Names the part of a tensor that is read.
    """
    if not shards:
        only = opened(parts[0])
        settings = {**only.config, **config}
        return replace(only, location=location, config=settings, revision=revision)

    def dequantise(info: TensorInfo, data: bytes | memoryview[int]) -> Any:
        reader = opened(part_of(info)).dequantise
        assert reader is not None  # noqa: S101 - only what has one says that it is quantised
        return reader(info, data)

    return Checkpoint(
        location,
        ShardedTensors(shards, lambda part: opened(part).tensors),
        lambda info: opened(part_of(info)).fetch(info),
        config,
        revision,
        dequantise,
    )
