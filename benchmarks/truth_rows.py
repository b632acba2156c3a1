"""Which rows of a table are positions: what the model's own code and sizes say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any

import truth_code
from torch import nn


def class_of(module: nn.Module) -> type:
    """Return a module's class, as something that can be looked up in a cache."""
    return type(module)


def offset_rows(owner: nn.Module, table: nn.Module | None) -> tuple[int, ...]:
    """Leading rows that no position reaches, from the code that makes the row numbers.

    fairseq's models start after the padding row (`padding_idx + 1`), OPT's and BART's tables have
    an `offset`, and a few models add a constant to `arange`.
    """
    offset = getattr(table, "offset", None)
    if isinstance(offset, int):
        return tuple(range(offset))
    words = truth_code.identifiers(class_of(owner))
    text = truth_code.text(class_of(owner))
    if table is not None and type(table) is not nn.Embedding:
        words = truth_code.identifiers(class_of(table))
        text += truth_code.text(class_of(table))
    starts_after_padding = any(
        "create_position_ids_from" in w for w in words
    ) or re.search(r"padding_idx \+ 1|\+ self\.padding_idx", text)
    if starts_after_padding:
        padding = getattr(owner, "padding_idx", getattr(table, "padding_idx", None))
        if padding is None:
            padding = getattr(table, "padding_idx", None)
        if padding is not None:
            return tuple(range(int(padding) + 1))
    match_found = re.search(
        r"arange\([^\n]*\)\)?(?:\.expand\(\(1, -1\)\))? \+ (\d+)", text
    )
    return tuple(range(int(match_found.group(1)))) if match_found else ()


def pair(value: Any) -> tuple[int, int] | None:
    """Read a height and width from an integer or a pair."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, tuple | list) and len(value) == 2:
        return int(value[0]), int(value[1])
    return None


def patch_grids(owner: nn.Module) -> Iterator[tuple[int, int]]:
    """Every grid of patches that a module or its patch embedding states."""
    for module in [owner, *owner.modules()]:
        for name in ("grid_size", "patch_shape", "feat_size"):
            grid = pair(getattr(module, name, None))
            if grid:
                yield grid
        config = getattr(module, "config", None)
        for holder in (module, config):
            image, patch = (
                pair(getattr(holder, "image_size", None)),
                pair(getattr(holder, "patch_size", None)),
            )
            if image and patch:
                yield image[0] // patch[0], image[1] // patch[1]


def patch_rows(
    owner: nn.Module, rows: int
) -> tuple[tuple[int, ...], tuple[int, int] | None] | None:
    """Find the prefix rows and the grid of a table of patches from the patch embedding."""
    for grid in patch_grids(owner):
        extra = rows - prod(grid)
        if 0 <= extra <= 16 and prod(grid) > 1:
            return tuple(range(extra)), grid
    for module in owner.modules():
        count = getattr(module, "num_patches", None)
        if isinstance(count, int) and 0 <= rows - count <= 16:
            return tuple(range(rows - count)), None
    return None


def row_count(
    shape: tuple[int, ...], channels_first: bool
) -> tuple[int, tuple[int, int] | None]:
    """Count the rows of a table stored as [n, d], [1, n, d], [1, h, w, d] or [1, d, h, w]."""
    body = tuple(s for s in shape if s != 1) if len(shape) > 2 else shape
    if len(body) == 3:
        grid = body[1:] if channels_first else body[:2]
        return prod(grid), (grid[0], grid[1])
    return body[0], None


def is_vision(owner: nn.Module) -> bool:
    """Whether a module works on patches: it has a convolution or a patch embedding inside."""
    return any(
        isinstance(m, nn.modules.conv._ConvNd) or "Patch" in type(m).__name__
        for m in owner.modules()
    )
