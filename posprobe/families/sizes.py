"""The number of positions in a configuration: where libraries state it, and how it is changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from posprobe import settings
from posprobe.checkpoints import TensorInfo
from posprobe.families.parts import part_for, parts_of
from posprobe.families.rows import IMAGE_SIZES, LENGTHS, SQUARES, Rows
from posprobe.layouts import Grid, Layout

#: No image is larger, in pixels along a side.
_LARGEST = 2**20


def with_size(
    config: Mapping[str, Any], info: TensorInfo, rows: Rows, layout: Layout
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a configuration that states another size for one table.

    Keys are those of the part of the model that the table belongs to. Numbers of positions are
    changed where they are that of the table, with or without its special rows; sizes of images by
    the size of a patch, which stays.

    Parameters
    ----------
    config
        As stored; not changed.
    info, rows
        The table as stored.
    layout
        The new one.

    Returns
    -------
    tuple
        The new configuration, and the keys that were changed.
    """
    new = copy.deepcopy(dict(config))
    part = part_for(info.name, parts_of(new))
    changed = new
    for key in part.path.split(".") if part.path else ():
        changed = changed[key]
    if isinstance(layout, Grid) and isinstance(rows.layout, Grid):
        keys = _images(changed, rows.layout, layout)
        keys += _counts(changed, SQUARES, {rows.layout.size: layout.size})
    else:
        special = len(rows.special)
        both = {rows.layout.size + more: layout.size + more for more in (0, special)}
        keys = _counts(changed, LENGTHS, both)
    return new, tuple(f"{part.path}.{key}" if part.path else key for key in keys)


def _counts(config: dict[str, Any], keys: tuple[str, ...], new: Mapping[int, int]) -> list[str]:
    found = [key for key in keys if type(config.get(key)) is int and config[key] in new]
    config |= {key: new[config[key]] for key in found}
    return found


def _images(config: dict[str, Any], old: Grid, new: Grid) -> list[str]:
    """Change the sizes of images: a number, two of them, or named, as they stand."""
    found = []
    for key in IMAGE_SIZES:
        image = settings.pair(config, key, most=_LARGEST)
        if image is not None:
            config[key] = _like(config[key], _image(image, old, new))
            found.append(key)
    pretrained = config.get("pretrained_cfg")
    size = pretrained.get("input_size") if isinstance(pretrained, dict) else None
    if isinstance(pretrained, dict) and isinstance(size, list) and len(size) == 3:
        # timm: the size that pictures are brought to, and the one that the model is built for.
        image = _image((size[1], size[2]), old, new)
        pretrained["input_size"] = [size[0], *image]
        stated = config.get("model_args")
        built = stated if isinstance(stated, dict) else {}
        config["model_args"] = {**built, "img_size": _like(built.get("img_size", 0), image)}
        found += ["pretrained_cfg.input_size", "model_args.img_size"]
    return found


def _image(stated: tuple[int, int], old: Grid, new: Grid) -> tuple[int, int]:
    return (stated[0] // old.height * new.height, stated[1] // old.width * new.width)


def _like(stated: object, size: tuple[int, int]) -> object:
    if isinstance(stated, dict):
        return {**stated, "height": size[0], "width": size[1]}
    return size[0] if isinstance(stated, int) and size[0] == size[1] else list(size)
