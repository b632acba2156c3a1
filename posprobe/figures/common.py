"""Shared parts of figures: their format, legends, thinned curves, averaged matrices, panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.figures.styles import LINE_STYLES, PALE
from posprobe.layouts import Grid, Layout, Video
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure


#: Figures narrower than this have their panels below each other rather than side by side.
MIN_PAGE_INCHES = 4.5
#: Figures lower than this are on a slide, where few panels fit above each other.
MIN_PAPER_INCHES = 4.0
#: Width of a drawing with a single pair of axes, where it may be narrower than its format.
SINGLE_AXES_INCHES = 4.6
#: Mean width of a letter in a legend or the title of a panel.
LETTER_INCHES = 0.06
#: Height of a line of a legend.
LEGEND_LINE_INCHES = 0.13
#: The layout is repeated with larger margins at most this often.
MAX_LAYOUT_PASSES = 3


@dataclass(frozen=True)
class FigureFormat:
    """The size of a figure and how its panels are arranged.

    Parameters
    ----------
    width
        Width in inches.
    max_height
        Largest height in inches.
    is_exact
        Whether every figure has exactly this width, as a paper requires, rather than at most.
    max_columns
        Most panels side by side; None for as many as suit the width.
    """

    width: float
    max_height: float
    is_exact: bool = True
    max_columns: int | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether the figure fills a column rather than a page."""
        return self.width < MIN_PAGE_INCHES

    @property
    def is_low(self) -> bool:
        """Whether the figure is for a slide rather than a page of paper."""
        return self.max_height < MIN_PAPER_INCHES

    def arrange_panels(self, count: int) -> tuple[int, int]:
        """Return rows and columns of ``count`` panels: one column where the figure is narrow."""
        return (count, 1) if self.is_narrow else (1, count)

    @property
    def plain_height(self) -> float:
        """Height in inches of a plain drawing without its legend."""
        return 1.9 if self.is_exact else 2.2

    def make_figure(
        self, height: float, *, width: float | None = None, compressed: bool = False
    ) -> Figure:
        """Make an empty figure.

        Parameters
        ----------
        height
            Height in inches, reduced to `max_height`.
        width
            Width in inches where the format is not exact; None for the width of the format.
        compressed
            Whether to remove the gaps between panels of fixed shape.
        """
        from matplotlib.figure import Figure

        if self.is_exact or width is None:
            width = self.width
        size = min(width, self.width), min(height, self.max_height)
        figure = Figure(
            figsize=size, layout="compressed" if compressed else "constrained"
        )
        if self.is_exact:
            # Columns are narrow, so that padding is kept small, in inches. A text is up to 0.03
            # wider in a file than in the layout, whose letters stand on whole pixels.
            engine: Any = figure.get_layout_engine()
            engine.set(w_pad=0.04, h_pad=0.02)
        return figure


#: Format of the figures of a report.
REPORT = FigureFormat(6.3, 9.0, is_exact=False)


def freeze_layout(figure: Figure) -> None:
    """Place everything once and for all, so that all files of a figure agree and nothing is cut.

    Titles above rows of panels can reach beyond the space that the layout reserves for them. Where
    they would leave the figure, the layout is repeated with a margin.
    """
    engine = figure.get_layout_engine()
    if engine is None:
        return
    engine.execute(figure)
    width, height = figure.get_size_inches()
    left = bottom = right = top = 0.0
    for _ in range(MAX_LAYOUT_PASSES):
        box = figure.get_tightbbox()
        overhangs = (
            -box.x0 / width,
            -box.y0 / height,
            box.x1 / width - 1,
            box.y1 / height - 1,
        )
        if max(overhangs) <= 0:
            break
        left += max(overhangs[0], 0.0)
        bottom += max(overhangs[1], 0.0)
        right += max(overhangs[2], 0.0)
        top += max(overhangs[3], 0.0)
        rect = (left, bottom, 1 - left - right, 1 - bottom - top)
        engine.set(rect=rect)  # type: ignore[call-arg]
        engine.execute(figure)
    # "none" would be an engine, for which saving draws the figure once more.
    figure.set_layout_engine(None)


#: Spacing of a legend of several columns, in units of its font size.
LEGEND_SPACING: dict[str, Any] = {
    "columnspacing": 1.0,
    "handlelength": 2.4,
    "labelspacing": 0.3,
}


def move_legend_above(ax: Axes) -> None:
    """Move the legend, if there is one, above the axes, in as many columns as fit."""
    handles, labels = ax.get_legend_handles_labels()
    if not handles or (ax.get_legend() is None and len(handles) < 2):
        return
    width = ax.figure.bbox.width / ax.figure.dpi
    ax.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=count_legend_columns(labels, width),
        borderaxespad=0.2,
        **LEGEND_SPACING,
    )


def count_legend_columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns of a legend fit into a width in inches, line samples included."""
    column_width = LETTER_INCHES * max(map(len, labels)) + 0.45
    return min(max(int((width - 0.4) / column_width), 1), len(labels))


def legend_height(labels: Sequence[str], width: float) -> float:
    """Return the height in inches that a legend above axes of this width takes."""
    return LEGEND_LINE_INCHES * math.ceil(
        len(labels) / count_legend_columns(labels, width)
    )


def shorten_label(text: str, max_letters: int) -> str:
    """Leave out the middle of a text that is longer than ``max_letters`` letters."""
    if len(text) <= max_letters:
        return text
    n_first = max_letters // 2 - 1
    n_last = max_letters - max_letters // 2
    return f"{text[:n_first]}…{text[-n_last:]}"


_T = TypeVar("_T")
#: Inputs of a figure besides its results, by name.
FigureExtras: TypeAlias = Mapping[str, Any]
#: Function that makes a figure in a format, from results by label and further inputs.
Builder: TypeAlias = "Callable[[FigureFormat, Mapping[str, Any], FigureExtras], Figure]"

#: Left, right, bottom and top of an image, in units of its axes.
Extent: TypeAlias = tuple[float, float, float, float]
#: Matrices by title, with their extents.
Maps: TypeAlias = "Mapping[str, tuple[NDArray[Any], Extent | None]]"
#: Largest side of a matrix.
MAX_MATRIX_INCHES = 3.4
#: Larger heat maps are averaged in blocks, since more cells are finer than any page can show.
MAX_CELLS = 512
#: Longer curves and edges of areas are thinned: more points are finer than any page can show, and
#: each takes space in the file.
MAX_POINTS = 2048
#: Axes that begin below this, or end above `MAX_PLAIN_NUMBER`, have decades written as powers.
MIN_PLAIN_NUMBER = 5e-5
#: See `MIN_PLAIN_NUMBER`.
MAX_PLAIN_NUMBER = 2e5


def escape_figure_text(figure: Figure) -> Figure:
    """Write invisible characters in a figure's texts as escapes; line breaks stay."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        label = text.get_text()
        if not label.isprintable():
            text.set_text("\n".join(map(escape_invisible, label.split("\n"))))
    return figure


def single_result(draw: Callable[[FigureFormat, Any], Figure]) -> Builder:
    """Turn a function that draws one result into a builder."""

    def build(
        figure_format: FigureFormat, results: Mapping[str, Any], _: FigureExtras
    ) -> Figure:
        (result,) = results.values()
        return draw(figure_format, result)

    return build


def plot_with_legend(
    figure_format: FigureFormat,
    results: Mapping[str, _T],
    draw_one: Callable[[Axes, _T], object],
    draw_several: Callable[[Axes, Mapping[str, _T]], object],
    extra_height: float,
) -> Figure:
    """Draw one result, or several into the same Axes, below their legend.

    Parameters
    ----------
    figure_format
        Format of the figure.
    results
        Results by label.
    draw_one, draw_several
        Functions that draw a single result and several results into Axes.
    extra_height
        Height in inches beyond that of a plain drawing.
    """
    width = min(figure_format.width, SINGLE_AXES_INCHES)
    height = (
        figure_format.plain_height + extra_height + legend_height([*results, ""], width)
    )
    figure = figure_format.make_figure(height, width=width)
    ax = figure.subplots()
    if len(results) == 1:
        draw_one(ax, next(iter(results.values())))
    else:
        draw_several(ax, results)
    if ax.child_axes:
        # A second axis on top has labels where the legend would stand.
        handles, labels = ax.get_legend_handles_labels()
        if (legend := ax.get_legend()) is not None:
            legend.remove()
        figure.legend(
            handles,
            labels,
            loc="outside upper left",
            ncols=count_legend_columns(labels, width),
            **LEGEND_SPACING,
        )
    else:
        move_legend_above(ax)
    return figure


def single_plot(
    plot: Callable[[Axes, Any], object], height: float, *, width: float | None = None
) -> Builder:
    """Return a builder that draws its only result with ``plot`` into a figure of this size."""

    def draw(figure_format: FigureFormat, result: Any) -> Figure:
        figure = figure_format.make_figure(height, width=width)
        plot(figure.subplots(), result)
        return figure

    return single_result(draw)


def make_panels(figure: Any, count: int, max_panels: int) -> Any:
    """Make Axes ``[rows, columns]`` for ``count`` panels; those left over are switched off."""
    axes = figure.subplots(*balance_panels(count, max_panels), squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return axes


def balance_panels(count: int, max_panels: int) -> tuple[int, int]:
    """Return rows and columns of a grid of panels whose rows are filled evenly."""
    rows = math.ceil(count / max_panels)
    return rows, math.ceil(count / rows)


def map_figure(
    figure_format: FigureFormat,
    maps_shown: Maps,
    max_panels: int,
    label: str,
    axes: tuple[str, str],
    **colors: Any,
) -> Figure:
    """Make a figure of `plot_maps`, as large as its format allows."""
    rows, columns = balance_panels(len(maps_shown), max_panels)
    side = min(
        (figure_format.width - (0.6 if figure_format.is_narrow else 1.2)) / columns,
        MAX_MATRIX_INCHES,
    )
    height = rows * (side + 0.2) + (0.85 if figure_format.is_narrow else 0.4)
    figure = figure_format.make_figure(
        height, width=side * columns + 1.3, compressed=True
    )
    plot_maps(figure, maps_shown, max_panels, label, axes, **colors)
    return figure


def plot_maps(
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
        Figure that is drawn into.
    maps_shown
        Matrices by title, with their extents; axes without an extent have no numbers.
    max_panels
        Most panels side by side.
    label, extend
        Label of the colour bar, and its ends as matplotlib names them.
    axes
        Labels of the horizontal and the vertical axis.
    colors
        Colour map and limits.
    """
    count = len(maps_shown)
    _, columns = balance_panels(count, max_panels)
    grid = make_panels(figure, count, max_panels)
    width = figure.bbox.width / figure.figure.dpi
    max_letters = int((width - 0.6) / columns / LETTER_INCHES) - 1
    for index, (title, (matrix, extent)) in enumerate(maps_shown.items()):
        ax = grid.flat[index]
        is_first_column = index % columns == 0
        image = ax.imshow(matrix, extent=extent, **colors)
        ax.set_title(shorten_label(title, max_letters), pad=3, fontsize="medium")
        ax.set_xlabel(axes[0] if index + columns >= count else "")
        ax.set_ylabel(axes[1] if is_first_column else "")
        # All panels have the same axes, so that only the first of a row has numbers on the left.
        ax.tick_params(left=is_first_column, labelleft=is_first_column)
        ax.locator_params(nbins=3, integer=True)
        if extent is None:
            ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    bar_options: dict[str, Any] = {"aspect": 25}
    if width < MIN_PAGE_INCHES:
        bar_options = {"aspect": 40, "location": "bottom"}
    bar = figure.colorbar(
        image, ax=grid, label=label, extend=extend, pad=0.03, **bar_options
    )
    bar.ax.locator_params(nbins=5)


def square_extent(start: int, count: int) -> Extent:
    """Return the extent of a square matrix of ``count`` positions that begin at ``start``."""
    return (start - 0.5, start + count - 0.5, start + count - 0.5, start - 0.5)


def map_by_displacement(matrix: NDArray[Any]) -> tuple[NDArray[Any], Extent]:
    """Return a matrix by displacement, which is 0 in its middle, with its extent."""
    half_height, half_width = (size // 2 for size in matrix.shape)
    return matrix, (
        -half_width - 0.5,
        half_width + 0.5,
        half_height + 0.5,
        -half_height - 0.5,
    )


def pick_evenly(items: Sequence[_T], max_items: int) -> list[_T]:
    """Pick at most ``max_items`` items, evenly spaced, the first and the last among them."""
    if len(items) <= max_items:
        return list(items)
    return [
        items[round(k * (len(items) - 1) / (max_items - 1))] for k in range(max_items)
    ]


def annotate_point(
    ax: Axes,
    text: str,
    point: tuple[float, float],
    offset: tuple[float, float],
    **options: Any,
) -> None:
    """Write a text at an offset in typographic points from a point of the axes."""
    ax.annotate(text, point, offset, textcoords="offset points", **options)


def draw_axis_cross(ax: Axes) -> None:
    """Draw both axes of a plane behind everything else."""
    ax.axhline(0, color=PALE, linewidth=0.5, zorder=0)
    ax.axvline(0, color=PALE, linewidth=0.5, zorder=0)


def assign_line_styles(
    results: Mapping[str, _T],
) -> Iterator[tuple[str, _T, dict[str, Any]]]:
    """Yield each result with its label and the keywords of a line of its own.

    Where colours are used again, dashes are others.
    """
    n_styles = len(LINE_STYLES)
    for index, (label, result) in enumerate(results.items()):
        color, _ = LINE_STYLES[index % n_styles]
        _, dash = LINE_STYLES[(index + index // n_styles) % n_styles]
        yield label, result, {"color": color, "linestyle": dash, "label": label}


def rows_per_cell(count: int, max_cells: int = MAX_CELLS) -> int:
    """Return how many of ``count`` rows share a cell of a heat map of at most ``max_cells``."""
    return math.ceil(count / max_cells)


def average_blocks(matrix: Floats, max_cells: int = MAX_CELLS) -> tuple[Floats, int]:
    """Average a square matrix in blocks to ``max_cells`` per side; return the block size too."""
    n = len(matrix)
    block = rows_per_cell(n, max_cells)
    if block == 1:
        return matrix, 1
    edges = np.arange(0, n, block)
    n_full_rows = n // block * block
    # Summing full blocks this way is five times as fast as `reduceat`.
    row_sums = matrix[:n_full_rows].reshape(-1, block, n).sum(axis=1)
    if n_full_rows < n:
        row_sums = np.vstack([row_sums, matrix[n_full_rows:].sum(axis=0)])
    sums = np.add.reduceat(row_sums, edges, axis=1)
    sizes = np.diff(np.append(edges, n))
    return sums / np.outer(sizes, sizes), block


def thin_curve(
    x: NDArray[Any], values: NDArray[np.floating[Any]]
) -> tuple[NDArray[Any], NDArray[np.floating[Any]]]:
    """Thin a curve of more than `MAX_POINTS` points to the lowest and highest of each block.

    Parameters
    ----------
    x, values
        Coordinates and values of the points, ``[k]`` each.
    """
    if len(values) <= MAX_POINTS:
        return x, values
    block = -(-2 * len(values) // MAX_POINTS)
    starts = np.arange(0, len(values) // block * block, block)
    blocks = values[: len(starts) * block].reshape(-1, block)
    lowest = np.argmin(np.where(np.isnan(blocks), np.inf, blocks), axis=1)
    highest = np.argmax(np.where(np.isnan(blocks), -np.inf, blocks), axis=1)
    remainder = np.arange(blocks.size, len(values))
    extreme_indices = np.unique(
        np.concatenate([starts + lowest, starts + highest, remainder])
    )
    return x[extreme_indices], values[extreme_indices]


def fill_between_curves(
    ax: Axes, edges: tuple[NDArray[Any], ...], **options: Any
) -> None:
    """Fill the area between two curves, thinned to the extremes of neighbouring points.

    Parameters
    ----------
    ax
        Axes that are drawn into.
    edges
        Coordinates, lower values and upper values, ``[k]`` each.
    options
        Keywords of ``Axes.fill_between``.
    """
    x, low, high = edges
    if len(x) > MAX_POINTS:
        spaced = np.linspace(x[0], x[-1], MAX_POINTS)
        indices = np.unique(np.searchsorted(x, spaced))
        x = x[indices]
        low, high = np.minimum.reduceat(low, indices), np.maximum.reduceat(high, indices)
    ax.fill_between(x, low, high, linewidth=0, **options)


def position_label(layout: Layout) -> str:
    """Return the label of an axis along the rows of a table."""
    if isinstance(layout, Video):
        return "patch, frame by frame"
    return "patch, row by row" if isinstance(layout, Grid) else "position"


def label_decades(*axes: Axis) -> None:
    """Label decades as plain numbers, or all of an axis as powers where some would be long.

    Powers are written as 1e6: superscripts would need a parser and read no better.
    """
    from matplotlib.ticker import FuncFormatter, NullLocator

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(partial(_format_decade, axis)))
        axis.set_minor_locator(NullLocator())


def _format_decade(axis: Axis, value: float, _: object) -> str:
    low, high = sorted(axis.get_view_interval())
    has_plain_decades = low >= MIN_PLAIN_NUMBER and high <= MAX_PLAIN_NUMBER
    # A colour bar of signed numbers lies about 0.
    has_plain_signs = -MAX_PLAIN_NUMBER <= low < 0 and high <= MAX_PLAIN_NUMBER
    if has_plain_decades or has_plain_signs or value in (0, 1):
        return f"{value:g}"
    power = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa = value / 10.0**power
    return f"{mantissa:g}e{power}"


def label_layer_axis(ax: Axes) -> None:
    """Label an axis that runs over layers, at whole numbers only."""
    ax.locator_params(axis="x", nbins=6, integer=True)
    ax.set_xlabel("layer (0: what enters the first)")


def write_undefined(ax: Axes, reason: str) -> None:
    """Write in an empty drawing why the result is undefined."""
    ax.text(
        0.5,
        0.5,
        f"undefined:\n{reason}",
        ha="center",
        va="center",
        transform=ax.transAxes,
    )
    ax.set(xticks=[], yticks=[])
