"""Layouts of positions: sequences and grids."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import ClassVar, Literal, TypeAlias, TypedDict

from posprobe.errors import UsageError, explain_errors
from posprobe.number_types import Natural


@dataclass(frozen=True)
class Sequence:
    """Positions on a line: row ``i`` is ``i`` steps after row 0.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.layouts.Sequence(512).size
    512
    """

    length: int
    #: A sequence is a grid of one row.
    height: ClassVar[int] = 1

    @property
    def width(self) -> int:
        """Number of positions."""
        return self.length

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.length

    def __str__(self) -> str:
        return f"sequence of {self.length}"


@dataclass(frozen=True)
class Grid:
    """Positions on a grid, stored row by row: row ``r * width + c`` is the patch ``(r, c)``.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.layouts.Grid(14, 14).size
    196
    """

    height: int
    width: int

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.height * self.width

    def __str__(self) -> str:
        return f"grid of {self.height} x {self.width}"


Layout: TypeAlias = Sequence | Grid


class SequenceBlock(TypedDict):
    """Positions on a line."""

    type: Literal["sequence"]
    length: Natural


class GridLayoutBlock(TypedDict):
    """Positions on a grid, rows first."""

    type: Literal["grid"]
    height: Natural
    width: Natural


LayoutBlock: TypeAlias = SequenceBlock | GridLayoutBlock


def describe_layout(layout: Layout) -> LayoutBlock:
    """Return a layout as it stands in JSON."""
    if isinstance(layout, Grid):
        return {"type": "grid", "height": layout.height, "width": layout.width}
    return {"type": "sequence", "length": layout.length}


def slice_layout(layout: Layout, rows: slice, name: str) -> tuple[int, int, Layout]:
    """Resolve a slice of positions to its first, the one past its last, and their layout.

    Raises
    ------
    UsageError
        If the slice is not of whole numbers, is empty, or skips rows.
    """
    advice = (
        "Choose a slice of whole numbers, such as slice(1, 512) for positions 1 to 511."
    )
    index_errors = AttributeError, TypeError, ValueError
    with explain_errors(
        UsageError, f"{name}: {rows!r} are not rows", advice, *index_errors
    ):
        begin, end, step = rows.indices(layout.size)
    if step != 1 or begin >= end:
        raise UsageError(
            f"{name}: rows {_format_slice(rows)} of {layout.size} positions: "
            + ("rows must be neighbours." if step != 1 else "nothing is left.")
            + f" Choose A:B with 0 <= A < B <= {layout.size}."
        )
    if isinstance(layout, Grid) and begin % layout.width == 0 and end % layout.width == 0:
        return begin, end, Grid((end - begin) // layout.width, layout.width)
    return begin, end, Sequence(end - begin)


def split_note(full_layout: Layout, part_layout: Layout) -> tuple[str, ...]:
    """Return a note about a grid that was cut within its rows, or an empty tuple."""
    if not isinstance(full_layout, Grid) or isinstance(part_layout, Grid):
        return ()
    note = (
        f"{part_layout.size} patches of a {full_layout} are not whole rows "
        "of it: they are read as a sequence, in which patches below each "
        f"other are {full_layout.width} positions apart. A grid stays one "
        f"where both ends are multiples of {full_layout.width}"
    )
    return (note,)


def make_grid(sizes: tuple[int, int], name: str) -> Grid:
    """Return the grid of a height and a width.

    Raises
    ------
    UsageError
        If these are not two whole numbers above 0.
    """
    try:
        height, width = map(index, sizes)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise UsageError(
            f"{name}: {sizes!r} is not a grid. Give height and width as two "
            "whole numbers above 0, such as (14, 14)."
        )
    return Grid(height, width)


def _format_slice(rows: slice) -> str:
    bounds = (
        (rows.start, rows.stop)
        if rows.step is None
        else (rows.start, rows.stop, rows.step)
    )
    return ":".join("" if bound is None else str(bound) for bound in bounds)
