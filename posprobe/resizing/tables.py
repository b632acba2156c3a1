"""A table of another size: which way suits which layout, what is kept, what is refused.

Two kinds of ways must be told apart. A way that *stretches* spreads the old rows over the new
range, so that relative places are kept and every period grows with the table (position
interpolation, Chen et al. 2023). A way that *continues* keeps the old rows at their positions and
adds others, so that periods and distances are kept.

What timm and transformers do to a grid of patches is called, so that the bits are theirs. They
differ even where a grid grows: timm filters (``antialias=True``), for which PyTorch takes the cubic
kernel with a = -0.5; most models of transformers do not, and take the one with -0.75.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import UsageError
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.resizing.libraries import timm_resampled, transformers_interpolated
from posprobe.resizing.names import GRID_WAYS, SEQUENCE_WAYS, WAYS
from posprobe.resizing.ways import ALONG, FEWEST_ROWS, along_both
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Numbers that a new table may have: 512 MiB in float32.
MOST_NUMBERS = 2**27


def resize(
    table: PositionTable | ArrayLike, *, to: int | tuple[int, int], how: str
) -> PositionTable:
    """Resize a position table.

    Parameters
    ----------
    table
        A `PositionTable`, or what `posprobe.table` takes. Rows of special tokens (its ``prefix``)
        are kept as they are.
    to
        Positions of a sequence, or ``(height, width)`` of a grid of patches.
    how
        For a sequence ``"linear"``, ``"cubic"`` or ``"fourier"``, which spread the rows over the
        new range, so that periods grow with the table; or ``"tile"``, ``"sinusoids"`` or
        ``"repeat-last"``, which keep the rows and continue, or cut.

        For a grid ``"bicubic"`` or ``"bilinear"`` (timm's ``resample_abs_pos_embed``),
        ``"transformers"`` (the model's own ``interpolate_pos_encoding``), or along each axis
        ``"fourier"``, ``"tile"``, ``"sinusoids"`` and ``"repeat-last"``.

    Returns
    -------
    PositionTable
        ``[m, d]`` in the format of the old one; a note says how it was made. At its own size a
        table is returned with its own values.

    Raises
    ------
    UsageError
        If the size is invalid or too large, or size or method are for another layout.
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

    old = as_table(table)
    layout = new_layout(old, to)
    check_way(old, layout, how)
    if layout == old.layout:
        return old
    values = _resized(old, layout, how)
    note = f"resized from a {old.layout} to a {layout}: {how}"
    return replace(old, values=values, layout=layout, kind="learned", notes=(*old.notes, note))


def new_layout(table: PositionTable, to: int | tuple[int, int]) -> Layout:
    """Return the layout of a table at another size.

    Raises
    ------
    UsageError
        If the size is none, of another layout, or makes more than `MOST_NUMBERS` numbers.
    """
    sizes = to if isinstance(to, tuple) else (to,)
    if isinstance(table.layout, Grid) != (len(sizes) == 2):
        has = f"{table.name}: it is a {table.layout}, so that its new size reads"
        if isinstance(table.layout, Grid):
            raise UsageError(f"{has} ROWSxCOLUMNS, such as 24x24, and not {_read(sizes)}.")
        raise UsageError(
            f"{has} as a number of positions, such as 1024, and not {_read(sizes)}. Where its rows "
            "are patches of an image, say how they lie with --grid ROWSxCOLUMNS."
        )
    if min(sizes) < 1:
        what = "patch" if len(sizes) == 2 else "position"
        raise UsageError(f"{table.name}: a size of {_read(sizes)} is smaller than one {what}.")
    layout: Layout = Grid(*sizes) if len(sizes) == 2 else Sequence(sizes[0])
    if layout.size * table.dim > MOST_NUMBERS:
        raise UsageError(
            f"{table.name}: a {layout} of width {table.dim} has {layout.size * table.dim:,} "
            f"numbers, and at most {MOST_NUMBERS:,} are made. Choose a smaller size."
        )
    return layout


def check_way(table: PositionTable, layout: Layout, how: str) -> None:
    """Refuse a way that does not exist, or not for a table or its new layout.

    Raises
    ------
    UsageError
        With the ways that there are.
    """
    ways = ways_of(table)
    if how not in ways:
        other = f"does not resize a {table.layout}" if how in WAYS else "is not a method"
        raise UsageError(f"{table.name}: {how!r} {other}. Choose one of {', '.join(ways)}.")
    sides = zip(_sides(table.layout), _sides(layout), strict=True)
    short = [old for old, new in sides if old < min(new, FEWEST_ROWS)]
    if how == "sinusoids" and short:
        raise UsageError(
            f"{table.name}: sinusoids are fitted to {FEWEST_ROWS} rows at least, and a "
            f"{table.layout} has {short[0]} along an axis. Use another way."
        )


def ways_of(table: PositionTable) -> tuple[str, ...]:
    """Return the ways for the layout of a table."""
    return GRID_WAYS if isinstance(table.layout, Grid) else SEQUENCE_WAYS


def _resized(table: PositionTable, layout: Layout, how: str) -> NDArray[np.floating[Any]]:
    old = table.layout
    if isinstance(old, Grid) and isinstance(layout, Grid):
        if how == "transformers":
            return transformers_interpolated(table, old, layout)
        if how not in ALONG:
            return timm_resampled(table, old, layout, how)
        cells = table.values.astype(np.float64).reshape(old.height, old.width, table.dim)
        made = along_both(cells, (layout.height, layout.width), ALONG[how])
    else:
        made = ALONG[how](table.values.astype(np.float64), layout.size)
    return made.reshape(layout.size, table.dim).astype(table.values.dtype)


def _sides(layout: Layout) -> tuple[int, ...]:
    return (layout.height, layout.width) if isinstance(layout, Grid) else (layout.length,)


def _read(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
