"""Layouts of positions: sequences, grids, and the patches of videos."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Video:
    """Patches of a video, stored frame by frame: row ``(t * height + r) * width + c``.

    A frame is what one patch covers in time, ``tubelet_size`` pictures of the video.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.layouts.Video(8, 14, 14).size
    1568
    """

    frames: int
    height: int
    width: int

    @property
    def frame(self) -> Grid:
        """Grid of one frame."""
        return Grid(self.height, self.width)

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.frames * self.height * self.width

    def __str__(self) -> str:
        return f"video of {self.frames} x {self.height} x {self.width}"


Layout: TypeAlias = Sequence | Grid | Video


class SequenceBlock(TypedDict):
    """Positions on a line."""

    type: Literal["sequence"]
    length: Natural


class GridLayoutBlock(TypedDict):
    """Positions on a grid, rows first."""

    type: Literal["grid"]
    height: Natural
    width: Natural


class VideoLayoutBlock(TypedDict):
    """Patches of a video, frames first."""

    type: Literal["video"]
    frames: Natural
    height: Natural
    width: Natural


LayoutBlock: TypeAlias = SequenceBlock | GridLayoutBlock | VideoLayoutBlock


def describe_layout(layout: Layout) -> LayoutBlock:
    """Return a layout as it stands in JSON."""
    match layout:
        case Grid(height, width):
            return {"type": "grid", "height": height, "width": width}
        case Video(frames, height, width):
            return {"type": "video", "frames": frames, "height": height, "width": width}
    return {"type": "sequence", "length": layout.length}


def layout_sides(layout: Layout) -> tuple[int, ...]:
    """Return the sizes of the axes of a layout, outermost first."""
    match layout:
        case Grid(height, width):
            return height, width
        case Video(frames, height, width):
            return frames, height, width
    return (layout.length,)


def check_no_video(layout: Layout, name: str) -> None:
    """Refuse the patches of a video where one line or one grid of positions is needed.

    Raises
    ------
    UsageError
        If the layout is that of a video of several frames.
    """
    if isinstance(layout, Video):
        raise UsageError(
            f"{name}: it is a {layout}, and this is known for lines and grids only. Take "
            f"one frame, such as the first with `table[0:{layout.frame.size}]`; "
            "analyses of the model and resizing take the whole table."
        )


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
    if isinstance(layout, Video):
        return begin, end, _slice_video(layout, begin, end)
    if isinstance(layout, Grid) and begin % layout.width == 0 and end % layout.width == 0:
        return begin, end, Grid((end - begin) // layout.width, layout.width)
    return begin, end, Sequence(end - begin)


def _slice_video(layout: Video, begin: int, end: int) -> Layout:
    """Return the layout of some patches of a video: whole frames, rows of one frame, or a line."""
    frame = layout.frame
    if begin % frame.size == 0 and end % frame.size == 0 and end - begin > frame.size:
        return replace(layout, frames=(end - begin) // frame.size)
    is_in_one_frame = begin // frame.size == (end - 1) // frame.size
    if is_in_one_frame and begin % layout.width == 0 and end % layout.width == 0:
        return Grid((end - begin) // layout.width, layout.width)
    return Sequence(end - begin)


def split_note(full_layout: Layout, part_layout: Layout) -> tuple[str, ...]:
    """Return a note about a grid that was cut within its rows, or an empty tuple."""
    is_whole = isinstance(part_layout, Grid | Video)
    if isinstance(full_layout, Sequence) or is_whole:
        return ()
    note = (
        f"{part_layout.size} patches of a {full_layout} are not whole rows "
        "of it: they are read as a sequence, in which patches below each "
        f"other are {full_layout.width} positions apart. A grid stays one "
        f"where both ends are multiples of {full_layout.width}"
    )
    return (note,)


def make_grid(sizes: tuple[int, ...], name: str) -> Grid | Video:
    """Return the grid of a height and a width, or with frames before them that of a video.

    Raises
    ------
    UsageError
        If these are not two or three whole numbers above 0.
    """
    try:
        sides = tuple(map(index, sizes))
    except (TypeError, ValueError):
        sides = ()
    if len(sides) not in (2, 3) or min(sides) < 1:
        raise UsageError(
            f"{name}: {sizes!r} is not a grid. Give height and width as two "
            "whole numbers above 0, such as (14, 14), or frames, height and width of a "
            "video as three."
        )
    frames, height, width = (1, *sides)[-3:]
    return Video(frames, height, width) if frames > 1 else Grid(height, width)


def _format_slice(rows: slice) -> str:
    bounds = (
        (rows.start, rows.stop)
        if rows.step is None
        else (rows.start, rows.stop, rows.step)
    )
    return ":".join("" if bound is None else str(bound) for bound in bounds)
