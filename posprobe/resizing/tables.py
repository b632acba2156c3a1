"""Resizing of tables: the ways for each layout, and their limits.

There are two classes of ways. A way that *stretches* spreads the old rows over the new range, so
that relative places are kept and every period grows with the table (position interpolation, Chen et
al. 2023). A way that *continues* keeps the old rows at their positions and adds others, so that
periods and distances are kept.

Grids of patches are resized as timm and transformers resize them, bit by bit. These differ even
where a grid grows: timm filters (``antialias=True``), for which PyTorch takes the cubic kernel with
a = -0.5; most models of transformers do not: there a = -0.75.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.closeness import prepare_cloud
from posprobe.analyses.descriptive.matching_pursuit import (
    choose_sinusoids,
    refine_until_settled,
)
from posprobe.arrays import Floats
from posprobe.errors import MissingExtra, UsageError
from posprobe.layouts import Grid, Layout, Sequence, Video, layout_sides, make_grid
from posprobe.progress import import_stage
from posprobe.relations.tables import resampling_weights
from posprobe.resizing import GRID_WAYS, SEQUENCE_WAYS, VIDEO_WAYS, WAYS
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


#: Smallest number of rows for a fit of sinusoids, which are then two.
MIN_SINUSOID_ROWS = 8


def _spline(rows: Floats, size: int, degree: int) -> Floats:
    """Resize by a spline through the rows, ``[m, k]``; first and last row stay at the ends.

    New row j is the spline at the old row ``j (n - 1) / (m - 1)`` (not-a-knot ends).
    """
    from scipy.interpolate import make_interp_spline

    last_row = len(rows) - 1
    curve = make_interp_spline(np.arange(last_row + 1), rows, k=min(degree, last_row))
    return np.asarray(curve(np.linspace(0, last_row, size)))


def fourier(rows: Floats, size: int) -> Floats:
    """Resize by a trigonometric polynomial of period n; new row j is old row ``j n / m``.

    This is exact for a table that repeats after its last row; otherwise the jump from its last row
    to its first one rings at both ends. Fewer rows lose the frequencies that they cannot hold.
    """
    from scipy.signal import resample

    return np.asarray(resample(rows, size))


def tile(rows: Floats, size: int) -> Floats:
    """Repeat the table from its first row after the last one."""
    return rows[np.arange(size) % len(rows)]


def repeat_last(rows: Floats, size: int) -> Floats:
    """Repeat the last row at every further position."""
    return rows[np.minimum(np.arange(size), len(rows) - 1)]


def sinusoids(rows: Floats, size: int) -> Floats:
    """Continue with sinusoids that are fitted to the rows; the old rows stay as they are.

    The frequencies are common to all columns: those of `analyses.descriptive.matching_pursuit`,
    refined together until they converge. Each column has its own amplitudes and constant (least
    squares). There is no trend, so a rise along the table is continued by half a wave.

    The table must have at least `MIN_SINUSOID_ROWS` rows.
    """
    n = len(rows)
    if size <= n:
        return rows[:size]
    table = prepare_cloud(rows)
    if not table.total:
        return repeat_last(rows, size)
    frequencies = refine_until_settled(table, choose_sinusoids(table).frequencies[-1])
    angles = 2 * np.pi * np.outer(np.arange(size) - (n - 1) / 2, frequencies)
    waves = np.concatenate([np.ones((size, 1)), np.cos(angles), np.sin(angles)], axis=1)
    amplitudes = np.linalg.lstsq(waves[:n], rows, rcond=None)[0]
    return np.concatenate([rows, waves[n:] @ amplitudes])


ResizeAxis: TypeAlias = Callable[[Floats, int], Floats]

#: Ways that spread the old rows over the new range.
STRETCHING: Mapping[str, ResizeAxis] = {
    "linear": partial(_spline, degree=1),
    "cubic": partial(_spline, degree=3),
    "fourier": fourier,
}
#: Ways that keep the old rows and add others.
CONTINUING: Mapping[str, ResizeAxis] = {
    "tile": tile,
    "sinusoids": sinusoids,
    "repeat-last": repeat_last,
}
RESIZE_BY_WAY: Mapping[str, ResizeAxis] = {**STRETCHING, **CONTINUING}


def resize_both_axes(patches: Floats, size: tuple[int, int], way: ResizeAxis) -> Floats:
    """Apply a way along the rows of a grid, then along its columns.

    Parameters
    ----------
    patches
        Rows of the grid, ``[h, w, d]``.
    size
        New height and width.
    way
        Function that resizes one axis.

    Returns
    -------
    ndarray
        ``[height, width, d]``.
    """
    height, width = size
    resized_rows = way(patches.reshape(len(patches), -1), height).reshape(
        height, *patches.shape[1:]
    )
    columns_first = np.moveaxis(resized_rows, 1, 0)
    resized = way(columns_first.reshape(len(columns_first), -1), width).reshape(
        width, height, -1
    )
    return np.moveaxis(resized, 0, 1)


def resize_video(patches: Floats, sizes: tuple[int, ...]) -> Floats:
    """Resize each axis of a video linearly, as PyTorch does (``trilinear``, without corners).

    Parameters
    ----------
    patches
        ``[frames, height, width, d]``.
    sizes
        New number of frames, height and width.
    """
    for axis, size in enumerate(sizes):
        weights = resampling_weights(patches.shape[axis], size, "linear", corners=False)
        patches = np.moveaxis(np.tensordot(weights, patches, (1, axis)), 0, axis)
    return patches


def interpolate_as_library(
    table: PositionTable, old: Grid, new: Grid, way: str
) -> NDArray[Any]:
    """Resize by PyTorch's interpolation, with the same bits as the libraries' own functions.

    timm (``bicubic`` and ``bilinear``) filters, in float32. transformers does not, and computes in
    the format of the checkpoint.

    Returns
    -------
    ndarray
        ``[height * width, d]`` in the table's format.

    Raises
    ------
    MissingExtra
        If PyTorch is not installed.
    """
    if find_spec("torch") is None:
        raise MissingExtra(
            f"`how={way!r}` calls torch, which is not installed. Run `uv sync --extra models`."
        )
    with import_stage("torch"):
        import torch
    values = torch.from_numpy(np.array(table.values))
    stored = values.to(torch.bfloat16) if table.source.dtype == "BF16" else values
    is_filtered = way != "transformers"
    patches = stored.float() if is_filtered else stored
    resized = torch.nn.functional.interpolate(
        patches.reshape(1, old.height, old.width, -1).permute(0, 3, 1, 2),
        size=(new.height, new.width),
        mode="bilinear" if way == "bilinear" else "bicubic",
        align_corners=False,
        antialias=is_filtered,
    )
    rows = resized.permute(0, 2, 3, 1).reshape(new.size, -1)
    return np.ascontiguousarray(rows.to(stored.dtype).to(values.dtype).numpy())


#: Number of values that a resized table may have: 512 MiB in float32.
MAX_RESIZED_NUMBERS = 2**27


def resize(
    table: PositionTable | ArrayLike | PathLike[str],
    *,
    to: int | tuple[int, ...],
    how: str,
) -> PositionTable:
    """Resize a position table.

    Parameters
    ----------
    table
        Table, or an object that `posprobe.table` takes. Rows of special tokens (its ``prefix``) are
        kept as they are.
    to
        Number of positions of a sequence, ``(height, width)`` of a grid of patches, or ``(frames,
        height, width)`` of a video.
    how
        For a sequence ``"linear"``, ``"cubic"`` or ``"fourier"``, which spread the rows over the
        new range, so that periods grow with the table; or ``"tile"``, ``"sinusoids"`` or
        ``"repeat-last"``, which keep the rows and continue, or cut.

        For a grid ``"bicubic"`` or ``"bilinear"`` (as timm's ``resample_abs_pos_embed``),
        ``"transformers"`` (as its models' ``interpolate_pos_encoding``), or along each axis
        ``"fourier"``, ``"tile"``, ``"sinusoids"`` and ``"repeat-last"``.

        For a video ``"trilinear"``, linear along each axis (as PyTorch's ``interpolate``).

    Returns
    -------
    PositionTable
        Table ``[m, d]`` in the format of the old one, with a note on the method. A table of the
        requested size is returned unchanged.

    Raises
    ------
    UsageError
        If the size is invalid or too large, or size or method apply to another layout.
    MissingExtra
        If the method needs a library that is not installed.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.load("sample:all-minilm-l6-v2")
    >>> longer = pp.resize(table, to=1024, how="linear")
    >>> len(longer), bool((longer.values[-1] == table.values[-1]).all())
    (1024, True)
    """
    from posprobe.tables import table as as_table

    old_table = as_table(table)
    layout = new_layout(old_table, to)
    check_way(old_table, layout, how)
    if layout == old_table.layout:
        return old_table
    values = _resize_values(old_table, layout, how)
    note = f"resized from a {old_table.layout} to a {layout}: {how}"
    return replace(
        old_table,
        values=values,
        layout=layout,
        kind="learned",
        notes=(*old_table.notes, note),
    )


def new_layout(table: PositionTable, size: int | tuple[int, ...]) -> Layout:
    """Return the layout of a table at another size.

    Raises
    ------
    UsageError
        If the size is not positive, of another layout, or above `MAX_RESIZED_NUMBERS` values.
    """
    sizes = size if isinstance(size, tuple) else (size,)
    size_text = "x".join(map(str, sizes))
    if len(sizes) != len(layout_sides(table.layout)):
        prefix = f"{table.name}: it is a {table.layout}, so that its new size reads"
        if isinstance(table.layout, Video):
            raise UsageError(
                f"{prefix} FRAMESxROWSxCOLUMNS, such as 8x24x24, and not {size_text}."
            )
        if isinstance(table.layout, Grid):
            raise UsageError(
                f"{prefix} ROWSxCOLUMNS, such as 24x24, and not {size_text}."
            )
        raise UsageError(
            f"{prefix} as a number of positions, such as 1024, and not "
            f"{size_text}. Where its rows are patches of an image, say how "
            "they lie with `grid=(ROWS, COLUMNS)`."
        )
    if min(sizes) < 1:
        unit = "position" if len(sizes) == 1 else "patch"
        raise UsageError(
            f"{table.name}: a size of {size_text} is smaller than one {unit}."
        )
    layout: Layout = Sequence(*sizes) if len(sizes) == 1 else make_grid(sizes, table.name)
    if layout.size * table.dim > MAX_RESIZED_NUMBERS:
        raise UsageError(
            f"{table.name}: a {layout} of width {table.dim} has "
            f"{layout.size * table.dim:,} numbers, and at most "
            f"{MAX_RESIZED_NUMBERS:,} are made. Choose a smaller size."
        )
    return layout


def check_way(table: PositionTable, layout: Layout, way: str) -> None:
    """Refuse a way that is unknown, or does not apply to a table or its new layout.

    Raises
    ------
    UsageError
        If so; the message lists the ways that apply.
    """
    ways = available_ways(table)
    if way not in ways:
        refusal = (
            f"does not resize a {table.layout}" if way in WAYS else "is not a method"
        )
        raise UsageError(
            f"{table.name}: {way!r} {refusal}. Choose one of {', '.join(ways)}."
        )
    sides = zip(layout_sides(table.layout), layout_sides(layout), strict=False)
    too_short = [old for old, new in sides if old < min(new, MIN_SINUSOID_ROWS)]
    if way == "sinusoids" and too_short:
        raise UsageError(
            f"{table.name}: sinusoids are fitted to {MIN_SINUSOID_ROWS} "
            f"rows at least, and a {table.layout} has {too_short[0]} along "
            "an axis. Use another way."
        )


def available_ways(table: PositionTable) -> tuple[str, ...]:
    """Return the ways for the layout of a table."""
    if isinstance(table.layout, Video):
        return VIDEO_WAYS
    return GRID_WAYS if isinstance(table.layout, Grid) else SEQUENCE_WAYS


def _resize_values(
    table: PositionTable, layout: Layout, way: str
) -> NDArray[np.floating[Any]]:
    old_layout = table.layout
    if isinstance(old_layout, Grid) and isinstance(layout, Grid):
        if way not in RESIZE_BY_WAY:
            return interpolate_as_library(table, old_layout, layout, way)
        patches = table.values.astype(np.float64).reshape(
            old_layout.height, old_layout.width, table.dim
        )
        resized = resize_both_axes(
            patches, (layout.height, layout.width), RESIZE_BY_WAY[way]
        )
    elif isinstance(old_layout, Video):
        patches = table.values.astype(np.float64).reshape(*layout_sides(old_layout), -1)
        sizes = (1, *layout_sides(layout))[-3:]  # one frame is a grid
        resized = resize_video(patches, sizes)
    else:
        resized = RESIZE_BY_WAY[way](table.values.astype(np.float64), layout.size)
    return resized.reshape(layout.size, table.dim).astype(table.values.dtype)
