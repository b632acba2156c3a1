"""What figures share: the room of a sheet, legends, thinned curves, pooled matrices, panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.figures.styles import GRID, LINES
from posprobe.layouts import Grid, Layout
from posprobe.text import plain as as_seen

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure


#: Inches below which panels stand below each other rather than side by side.
NARROW = 4.5
#: Inches of height below which little stands above each other.
LOW = 4.0
#: Width in inches of a drawing with a single pair of axes, where it may be narrower than the sheet.
PLAIN = 4.6
#: Width in inches of a letter of a legend or a panel's title, and height of their lines.
LETTER, LINE = 0.06, 0.13


#: Layouts that are tried until nothing leaves the page.
ATTEMPTS = 3


@dataclass(frozen=True)
class Sheet:
    """The room that a figure has.

    Parameters
    ----------
    width
        In inches.
    limit
        Largest height in inches.
    exact
        Whether every figure is as wide, as a page of a paper asks for, rather than at most.
    columns
        Most panels side by side; None for as many as suit the width.
    """

    width: float
    limit: float
    exact: bool = True
    columns: int | None = None

    @property
    def narrow(self) -> bool:
        """Whether the sheet is a column rather than a page."""
        return self.width < NARROW

    @property
    def low(self) -> bool:
        """Whether the sheet is a slide rather than a page of paper."""
        return self.limit < LOW

    def beside(self, count: int) -> tuple[int, int]:
        """Return rows and columns of so many panels: below each other on a narrow sheet."""
        return (count, 1) if self.narrow else (1, count)

    @property
    def plain(self) -> float:
        """Height in inches of a plain drawing without its legend."""
        return 1.9 if self.exact else 2.2

    def figure(
        self, height: float, *, width: float | None = None, compressed: bool = False
    ) -> Figure:
        """Make an empty figure.

        Parameters
        ----------
        height
            In inches, where the limit allows.
        width
            In inches, where a figure may be narrower than the sheet; None: as wide.
        compressed
            Whether panels of fixed shape are brought together.
        """
        from matplotlib.figure import Figure

        wide = self.width if self.exact or width is None else min(width, self.width)
        size = wide, min(height, self.limit)
        figure = Figure(figsize=size, layout="compressed" if compressed else "constrained")
        if self.exact:
            # A column is narrow: what stands at its edge gets as little room as it needs.
            engine: Any = figure.get_layout_engine()
            engine.set(w_pad=0.02, h_pad=0.02)
        return figure


#: A figure of a report, which has the room that it needs.
REPORT = Sheet(6.3, 9.0, exact=False)


def lay_out(figure: Figure) -> None:
    """Place everything for good, so that every file of the figure is the same, and nothing is cut.

    Titles above rows of panels reach a little beyond the room that the layout gives them; where
    they would leave the page, the layout is made again with a margin.
    """
    engine = figure.get_layout_engine()
    if engine is None:
        return
    engine.execute(figure)
    width, height = figure.get_size_inches()
    left = bottom = right = top = 0.0
    for _ in range(ATTEMPTS):
        box = figure.get_tightbbox()
        overhangs = (-box.x0 / width, -box.y0 / height, box.x1 / width - 1, box.y1 / height - 1)
        if max(overhangs) <= 0:
            break
        margins = [max(part, 0.0) for part in overhangs]
        left, bottom, right, top = (
            a + b for a, b in zip((left, bottom, right, top), margins, strict=True)
        )
        rect = (left, bottom, 1 - left - right, 1 - bottom - top)
        engine.set(rect=rect)  # type: ignore[call-arg]
        engine.execute(figure)
    figure.set_layout_engine(None)  # "none" would be an engine that saving draws once more for


def legend_above(ax: Axes) -> None:
    """Move a legend above the axes, in as many columns as fit; there may be none."""
    handles, labels = ax.get_legend_handles_labels()
    if not handles or (ax.get_legend() is None and len(handles) < 2):
        return
    width = ax.figure.bbox.width / ax.figure.dpi
    ax.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0, 1.0),
        ncols=columns_of(labels, width), borderaxespad=0.2, columnspacing=1.0,
        handlelength=2.4, labelspacing=0.3,
    )  # fmt: skip


def columns_of(labels: Sequence[str], width: float) -> int:
    """Return how many columns of a legend fit into a width, samples and gaps included."""
    widest = LETTER * max(map(len, labels)) + 0.45
    return min(max(int((width - 0.4) / widest), 1), len(labels))


def legend_height(labels: Sequence[str], width: float) -> float:
    """Return the height in inches that a legend above axes of this width takes."""
    return LINE * math.ceil(len(labels) / columns_of(labels, width))


def shortened(text: str, max_letters: int) -> str:
    """Leave out the middle of a text that is longer than ``max_letters`` letters."""
    return (
        text
        if len(text) <= max_letters
        else f"{text[: max_letters // 2 - 1]}…{text[-(max_letters - max_letters // 2) :]}"
    )


_T = TypeVar("_T")
#: What was computed to stand beside results, by what each figure calls it.
Baselines: TypeAlias = Mapping[str, Any]
#: Makes a figure on a sheet, of results by label and of what stands beside them.
Builder: TypeAlias = "Callable[[Sheet, Mapping[str, Any], Baselines], Figure]"

#: Left, right, bottom and top of an image.
Ends: TypeAlias = tuple[float, float, float, float]
#: Matrices by title, with the ends of their axes.
Maps: TypeAlias = "Mapping[str, tuple[NDArray[Any], Ends | None]]"
#: Largest side of a matrix, in inches.
LARGEST = 3.4
#: Cells per side beyond which a heat map is averaged in blocks: more are finer than any page.
MAX_CELLS = 512
#: Points of a curve, and of an area's edge: more are finer than any page, and each takes its place.
MAX_POINTS = 2048
#: Ends of axes whose decades are written as plain numbers.
MIN_PLAIN, MAX_PLAIN = 5e-5, 2e5


def shown_plainly(figure: Figure) -> Figure:
    """Have a figure show the names that it quotes as seen; lines stay lines."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        label = text.get_text()
        if not label.isprintable():
            text.set_text("\n".join(map(as_seen, label.split("\n"))))
    return figure


def of_one(draw: Callable[[Sheet, Any], Figure]) -> Builder:
    """Return a builder of figures that show one result, and nothing beside it."""

    def build(sheet: Sheet, results: Mapping[str, Any], _: Baselines) -> Figure:
        (result,) = results.values()
        return draw(sheet, result)

    return build


def with_legend(
    sheet: Sheet,
    results: Mapping[str, _T],
    draw_one: Callable[[Axes, _T], object],
    draw_several: Callable[[Axes, Mapping[str, _T]], object],
    extra_height: float,
) -> Figure:
    """Draw one result, or several into the same Axes, below their legend.

    Parameters
    ----------
    sheet, results
        As every figure takes them.
    draw_one, draw_several
        What draws them.
    extra_height
        Height in inches beyond that of a plain drawing.
    """
    width = min(sheet.width, PLAIN)
    height = sheet.plain + extra_height + legend_height([*results, ""], width)
    figure = sheet.figure(height, width=width)
    ax = figure.subplots()
    if len(results) == 1:
        draw_one(ax, next(iter(results.values())))
    else:
        draw_several(ax, results)
    legend_above(ax)
    return figure


def alone(
    plot: Callable[[Axes, Any], object], height: float, *, width: float | None = None
) -> Builder:
    """Return a builder that draws the only result into Axes of its own."""

    def draw(sheet: Sheet, result: Any) -> Figure:
        figure = sheet.figure(height, width=width)
        plot(figure.subplots(), result)
        return figure

    return of_one(draw)


def panels(figure: Any, count: int, max_panels: int) -> Any:
    """Make Axes ``[rows, columns]`` for so many panels, the rest switched off."""
    axes = figure.subplots(*balanced(count, max_panels), squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return axes


def balanced(count: int, max_panels: int) -> tuple[int, int]:
    """Arrange panels in rows that are as full as each other."""
    rows = math.ceil(count / max_panels)
    return rows, math.ceil(count / rows)


def map_figure(
    sheet: Sheet,
    maps_shown: Maps,
    max_panels: int,
    label: str,
    axes: tuple[str, str],
    **colors: Any,
) -> Figure:
    """Make a figure of `maps`, as large as the sheet allows."""
    rows, columns = balanced(len(maps_shown), max_panels)
    side = min((sheet.width - (0.6 if sheet.narrow else 1.2)) / columns, LARGEST)
    height = rows * (side + 0.2) + (0.85 if sheet.narrow else 0.4)
    figure = sheet.figure(height, width=side * columns + 1.3, compressed=True)
    maps(figure, maps_shown, max_panels, label, axes, **colors)
    return figure


def maps(
    figure: Figure | SubFigure,
    maps_shown: Maps,
    max_panels: int,
    label: str,
    axes: tuple[str, str],
    *,
    extend: str = "neither",
    **colors: Any,
) -> None:
    """Draw a panel for each matrix, all in the same colours, and one colour bar.

    Parameters
    ----------
    figure
        To draw into.
    maps_shown
        Matrices by title, with the ends of their axes; without ends an axis has no numbers.
    max_panels
        Panels side by side.
    label, extend
        Of the colour bar.
    axes
        What lies across and down.
    colors
        Colour map and limits.
    """
    count, columns = len(maps_shown), balanced(len(maps_shown), max_panels)[1]
    grid, width = panels(figure, count, max_panels), figure.bbox.width / figure.figure.dpi
    letters = int((width - 0.6) / columns / LETTER) - 1
    for number, (title, (matrix, ends)) in enumerate(maps_shown.items()):
        ax, is_first_column = grid.flat[number], number % columns == 0
        image = ax.imshow(matrix, extent=ends, **colors)
        ax.set_title(shortened(title, letters), pad=3, fontsize="medium")
        ax.set_xlabel(axes[0] if number + columns >= count else "")
        ax.set_ylabel(axes[1] if is_first_column else "")
        # What lies across lies down as well: one axis of numbers is enough beside another panel.
        ax.tick_params(left=is_first_column, labelleft=is_first_column)
        ax.locator_params(nbins=3, integer=True)
        if ends is None:
            ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    place: dict[str, Any] = {"aspect": 25}
    if width < NARROW:
        place = {"aspect": 40, "location": "bottom"}
    bar = figure.colorbar(image, ax=grid, label=label, extend=extend, pad=0.03, **place)
    bar.ax.locator_params(nbins=5)


def ends_of(start: int, count: int) -> Ends:
    """Return the ends of both axes of a square matrix of positions."""
    return (start - 0.5, start + count - 0.5, start + count - 0.5, start - 0.5)


def around(matrix: NDArray[Any]) -> tuple[NDArray[Any], Ends]:
    """Return a matrix by displacement, which is 0 in its middle, with the ends of its axes."""
    half_height, half_width = (size // 2 for size in matrix.shape)
    return matrix, (-half_width - 0.5, half_width + 0.5, half_height + 0.5, -half_height - 0.5)


def spread(items: Sequence[_T], max_items: int) -> list[_T]:
    """Pick at most so many items, evenly spaced, the first and the last among them."""
    if len(items) <= max_items:
        return list(items)
    return [items[round(k * (len(items) - 1) / (max_items - 1))] for k in range(max_items)]


def note(
    ax: Axes, text: str, position: tuple[float, float], offset: tuple[float, float], **look: Any
) -> None:
    """Write beside a point, so many points of type away from it."""
    ax.annotate(text, position, offset, textcoords="offset points", **look)


def cross(ax: Axes) -> None:
    """Draw both axes of a plane, behind everything."""
    ax.axhline(0, color=GRID, linewidth=0.5, zorder=0)
    ax.axvline(0, color=GRID, linewidth=0.5, zorder=0)


def styled(results: Mapping[str, _T]) -> Iterator[tuple[str, _T, dict[str, Any]]]:
    """Give each labelled result a line of its own."""
    for index, (label, result) in enumerate(results.items()):
        color, dash = LINES[index % len(LINES)]
        yield label, result, {"color": color, "linestyle": dash, "label": label}


def pooled(matrix: Floats, cells: int = MAX_CELLS) -> tuple[Floats, int]:
    """Average a square matrix in blocks so that it has at most ``cells`` cells per side."""
    n = len(matrix)
    block = math.ceil(n / cells)
    if block == 1:
        return matrix, 1
    edges = np.arange(0, n, block)
    whole_rows = n // block * block
    # Adding up rows of whole blocks so takes a fifth of the time that `reduceat` takes.
    rows = matrix[:whole_rows].reshape(-1, block, n).sum(axis=1)
    if whole_rows < n:
        rows = np.vstack([rows, matrix[whole_rows:].sum(axis=0)])
    sums = np.add.reduceat(rows, edges, axis=1)
    size = np.diff(np.append(edges, n))
    return sums / np.outer(size, size), block


def extremes(
    x: NDArray[Any], values: NDArray[np.floating[Any]]
) -> tuple[NDArray[Any], NDArray[np.floating[Any]]]:
    """Thin a curve of more than `MAX_POINTS` points: each block keeps its lowest and its highest.

    Parameters
    ----------
    x, values
        Places and values ``[k]``.
    """
    if len(values) <= MAX_POINTS:
        return x, values
    block = -(-2 * len(values) // MAX_POINTS)
    starts = np.arange(0, len(values) // block * block, block)
    blocks = values[: len(starts) * block].reshape(-1, block)
    lowest = np.argmin(np.where(np.isnan(blocks), np.inf, blocks), axis=1)
    highest = np.argmax(np.where(np.isnan(blocks), -np.inf, blocks), axis=1)
    remainder = np.arange(blocks.size, len(values))
    extreme_indices = np.unique(np.concatenate([starts + lowest, starts + highest, remainder]))
    return x[extreme_indices], values[extreme_indices]


def area(ax: Axes, edges: tuple[NDArray[Any], ...], **look: Any) -> None:
    """Fill between two curves, of many points with the extremes of neighbouring ones.

    Parameters
    ----------
    ax
        To draw into.
    edges
        Places, lower and upper values, each ``[k]``.
    look
        Of the area.
    """
    x, low, high = edges
    if len(x) > MAX_POINTS:
        spaced = np.linspace(x[0], x[-1], MAX_POINTS)
        indices = np.unique(np.searchsorted(x, spaced))
        x = x[indices]
        low, high = np.minimum.reduceat(low, indices), np.maximum.reduceat(high, indices)
    ax.fill_between(x, low, high, linewidth=0, **look)


def position_label(layout: Layout) -> str:
    """Name an axis along the rows of a table."""
    return "patch, row by row" if isinstance(layout, Grid) else "position"


def plain(*axes: Axis) -> None:
    """Label decades as plain numbers, or all of an axis as powers where some would be long.

    Superscripts would cost a parser and read no better.
    """
    from matplotlib.ticker import FuncFormatter, NullLocator

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(partial(_decade, axis)))
        axis.set_minor_locator(NullLocator())


def _decade(axis: Axis, value: float, _: object) -> str:
    low, high = sorted(axis.get_view_interval())
    if high <= MAX_PLAIN and (
        low >= MIN_PLAIN or -MAX_PLAIN <= low < 0
    ):  # decades, or colours about 0
        return f"{value:g}"
    if value in (0, 1):
        return f"{value:g}"
    power = math.floor(math.log10(abs(value)) + 1e-9)
    times = value / 10.0**power
    return f"{times:g}e{power}"


def layer_axis(ax: Axes) -> None:
    """Label an axis that runs over layers: whole numbers only."""
    ax.locator_params(axis="x", nbins=6, integer=True)
    ax.set_xlabel("layer (0: what enters the first)")


def nothing(ax: Axes, reason: str) -> None:
    """Say in an empty drawing why the result is undefined."""
    ax.text(0.5, 0.5, f"undefined:\n{reason}", ha="center", va="center", transform=ax.transAxes)
    ax.set(xticks=[], yticks=[])
