"""Principal components: variance, scores, the path of the rows, and winding pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.arrays import Floats
from posprobe.figures.common import (
    FigureExtras,
    FigureFormat,
    annotate_point,
    assign_line_styles,
    draw_axis_cross,
    label_decades,
    make_panels,
    move_legend_above,
    plot_with_legend,
    single_result,
    thin_curve,
    write_undefined,
)
from posprobe.figures.styles import (
    BLUE,
    INK,
    MUTED,
    ONE_SIDED_COLORMAP,
    PALE,
    RED,
    SIGNED_COLORMAP,
)
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from posprobe.analyses import PCA
    from posprobe.analyses.descriptive.winding import Winding, WindingPair


#: At most this many components are drawn against position.
MAX_SCORE_COMPONENTS = 6
#: A path is cut into at most this many pieces, since a colour map has no more colours.
MAX_PATH_PIECES = 256
#: Components that change sign more often would fill the drawing with their curve.
MAX_CROSSINGS = 80
#: Such a component is drawn up to this change of sign.
N_SHOWN_CROSSINGS = 40


def plot_variance(ax: Axes, result: PCA) -> None:
    """Draw the explained variance of each component and its running sum."""
    shares = result.explained_variance_ratio
    if result.undefined:
        write_undefined(ax, result.undefined)
        return
    component_counts = np.arange(1, len(shares) + 1)
    ax.plot(component_counts, np.cumsum(shares), color=BLUE, label="running sum")
    ax.plot(
        component_counts,
        shares,
        color=RED,
        linestyle=(0, (4, 1.5)),
        label="each component",
    )
    for share in (0.90, 0.99):
        n_components = result.components_for(share)
        if n_components is not None:
            reached_share = np.cumsum(shares)[n_components - 1]
            ax.plot([n_components], [reached_share], "o", color=INK, markersize=3)
            annotate_point(
                ax, f"{share:.0%}: {n_components}", (n_components, share), (5, -9)
            )
    ax.set(
        xscale="log", xlabel="component", ylabel="share of variance", ylim=(-0.02, 1.04)
    )
    ax.set_xlim(0.9, len(shares))
    label_decades(ax.xaxis)
    ax.legend(loc="center right")


def plot_variances(ax: Axes, results: Mapping[str, PCA]) -> None:
    """Draw the running sum of explained variance for each table."""
    for _, result, line_style in assign_line_styles(results):
        share = np.cumsum(result.explained_variance_ratio)
        ax.plot(np.arange(1, len(share) + 1), share, **line_style)
    ax.set(xscale="log", xlabel="components", ylabel="share of variance", ylim=(0, 1.03))
    label_decades(ax.xaxis)
    ax.legend(loc="lower right")


def plot_score(ax: Axes, result: PCA, component: int) -> None:
    """Draw one component's score against position, or as a map of the grid."""
    values = result.scores[:, component]
    share = result.explained_variance_ratio[component]
    title = f"{component + 1}: {share:.1%}"
    ax.set_title(title, pad=3)
    if isinstance(result.layout, Grid):
        limit = np.abs(values).max() or 1.0
        grid_scores = values.reshape(result.layout.height, result.layout.width)
        ax.imshow(grid_scores, cmap=SIGNED_COLORMAP, vmin=-limit, vmax=limit)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        return
    ax.axhline(0, color=PALE, linewidth=0.6)
    position = result.start + np.arange(len(values))
    crossings = np.flatnonzero(np.diff(np.signbit(values)))
    if len(crossings) > MAX_CROSSINGS:
        n_shown = crossings[N_SHOWN_CROSSINGS] + 1
        position, values = position[:n_shown], values[:n_shown]
        ax.set_title(f"{title}, first {n_shown} rows", pad=3)
    ax.plot(*thin_curve(position, values), color=BLUE, linewidth=0.9)
    ax.margins(x=0.01)


def plot_path_plane(ax: Axes, result: PCA) -> ScalarMappable:
    """Draw the path in the plane of the first two components, coloured by position.

    On a grid every row is a path of its own, coloured by the row.
    """
    points = result.scores[:, :2]
    if isinstance(result.layout, Grid):
        height, width = result.layout.height, result.layout.width
        pieces = list(points.reshape(height, width, -1))
        positions = np.arange(float(height))
        first, last = 0, height - 1
        end_labels = ("first patch", "last patch")
    else:
        pieces, middles = _cut_path(points)
        positions = middles + result.start
        first, last = result.start, result.start + len(points) - 1
        end_labels = f"position {first}", f"position {last}"
    colors = _position_colors(first, last)
    _draw_path(ax, pieces, colors.to_rgba(positions))
    _mark_path_ends(ax, points, end_labels)
    first_share, second_share = result.explained_variance_ratio[:2]
    ax.set(
        xlabel=f"component 1 ({first_share:.1%})",
        ylabel=f"component 2 ({second_share:.1%})",
    )
    return colors


def _cut_path(points: Floats) -> tuple[list[Floats], Floats]:
    """Cut a path ``[n, c]`` into at most `MAX_PATH_PIECES` pieces; return their middles too."""
    n_steps = len(points) - 1
    block = max(math.ceil(n_steps / MAX_PATH_PIECES), 1)
    starts = np.arange(0, n_steps, block)
    middles = (starts + np.minimum(starts + block, n_steps)) / 2
    return [points[k : k + block + 1] for k in starts], middles


def _position_colors(first: int, last: int) -> ScalarMappable:
    """Return the colours of positions from ``first`` to ``last``."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(first, max(last, first + 1)), ONE_SIDED_COLORMAP)


def _draw_path(ax: Axes, pieces: list[Floats], shades: Any) -> None:
    """Draw the pieces of a path in a plane, both axes on one scale."""
    from matplotlib.collections import LineCollection

    draw_axis_cross(ax)
    ax.add_collection(
        LineCollection(pieces, colors=shades, linewidths=1.1, capstyle="round")
    )
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.07)


def _mark_path_ends(ax: Axes, path: Floats, labels: tuple[str, str] = ("", "")) -> None:
    """Mark the first and the last row of a path ``[n, 2]``."""
    # Ink follows the theme of a page, so that open and full markers of one shape would be confused.
    marks = ((path[0], "white", "o", labels[0]), (path[-1], INK, "s", labels[1]))
    for row, face, marker, end_label in marks:
        ax.plot(
            *row[:, None],
            marker=marker,
            markersize=4,
            markerfacecolor=face,
            markeredgecolor=INK,
            markeredgewidth=0.8,
            linestyle="none",
            label=end_label or None,
            zorder=4,
        )


def variance_figure(
    figure_format: FigureFormat, results: Mapping[str, PCA], _: FigureExtras
) -> Figure:
    """Draw the explained variance by component."""
    return plot_with_legend(figure_format, results, plot_variance, plot_variances, 0.2)


@single_result
def components_figure(figure_format: FigureFormat, result: PCA) -> Figure:
    """Draw the first components' scores against position, or as maps of the grid."""
    on_grid = isinstance(result.layout, Grid)
    count = min(MAX_SCORE_COMPONENTS, result.scores.shape[1])
    columns = min(
        count,
        figure_format.max_columns or (3 if on_grid or not figure_format.is_narrow else 2),
    )
    rows = -(-count // columns)
    if isinstance(result.layout, Grid):
        side = (
            (figure_format.width - 0.1)
            / columns
            * result.layout.height
            / result.layout.width
        )
        figure = figure_format.make_figure(rows * (side + 0.2), compressed=True)
    else:
        figure = figure_format.make_figure(
            rows * (0.95 if figure_format.is_narrow else 1.3) + 0.3
        )
    axes = make_panels(figure, count, columns)
    for number, ax in enumerate(axes.flat[:count]):
        plot_score(ax, result, number)
        if not on_grid:
            ax.locator_params(axis="y", nbins=3)
            ax.locator_params(
                axis="x", nbins=2 if figure_format.is_narrow else 4, integer=True
            )
            cut = ax.get_xlim()[1] < result.start + len(result.scores) - 1
            ax.tick_params(labelbottom=cut or number + columns >= count)
    if not on_grid:
        figure.supxlabel("position")
        figure.supylabel("score")
    return figure


@single_result
def trajectory_figure(figure_format: FigureFormat, result: PCA) -> Figure:
    """Draw the path through the first two components."""
    figure = figure_format.make_figure(0.8 * min(figure_format.width, 4.5), width=4.5)
    ax = figure.subplots()
    colors = plot_path_plane(ax, result)
    ax.locator_params(nbins=5)
    move_legend_above(ax)
    label = "row" if isinstance(result.layout, Grid) else "position"
    figure.colorbar(colors, ax=ax, label=label, aspect=30, shrink=0.9, pad=0.02)
    return figure


#: Paths of more turns are drawn as points, since lines would fill their plane.
MAX_LINE_TURNS = 12


def plot_winding(ax: Axes, result: Winding) -> None:
    """Draw the path of the first pair in its plane, coloured by position."""
    if not result.pairs:
        write_undefined(ax, result.undefined or "no two components go round each other")
        return
    plot_pair_plane(ax, result, result.pairs[0])


def plot_pair_plane(ax: Axes, result: Winding, pair: WindingPair) -> ScalarMappable:
    """Draw a pair of components in its plane, both axes on one scale."""
    path = np.column_stack(
        [pair.radius * np.cos(pair.phase), pair.radius * np.sin(pair.phase)]
    )
    colors = _position_colors(result.start, result.start + len(path) - 1)
    pieces, middles = _cut_path(path)
    has_many_turns = pair.turns > MAX_LINE_TURNS
    _draw_path(
        ax, [] if has_many_turns else pieces, colors.to_rgba(result.start + middles)
    )
    if has_many_turns:
        shades = colors.to_rgba(result.start + np.arange(len(path)))
        ax.scatter(path[:, 0], path[:, 1], c=shades, s=3, linewidths=0, zorder=3)
    _mark_path_ends(ax, path)
    first, second = pair.components
    ax.set(xlabel=f"component {first + 1}", ylabel=f"component {second + 1}")
    ax.set_title(f"{pair.turns:.2f} turns, {pair.share:.0%} of variance")
    return colors


def plot_phase(ax: Axes, result: Winding, pair: WindingPair) -> None:
    """Draw the phase in turns against position, beside the straight line of an even rotation."""
    position = result.start + np.arange(len(pair.phase))
    turns = (pair.phase - pair.phase[0]) / (2 * np.pi)
    ax.plot(
        position[[0, -1]],
        turns[[0, -1]],
        color=MUTED,
        linestyle=(0, (4, 1.5)),
        linewidth=0.9,
        label="even rotation",
    )
    ax.plot(position, turns, color=BLUE, label="phase")
    ax.set(ylabel="turns")
    ax.margins(x=0.02)
    ax.legend(loc="upper left", handlelength=2.4, borderaxespad=0.2)


def plot_period(ax: Axes, result: Winding, pair: WindingPair) -> None:
    """Draw the period of each section of the table; gaps where it rests or turns back."""
    edges = result.start + pair.bounds
    local_periods = pair.local_period
    ax.stairs(
        local_periods,
        edges,
        baseline=None,
        color=RED,
        linewidth=1.3,
        label="by tenths of the table",
    )
    if np.isfinite(pair.period):
        ax.axhline(
            pair.period,
            color=MUTED,
            linestyle=(0, (4, 1.5)),
            linewidth=0.9,
            label="on average",
        )
    finite_periods = local_periods[np.isfinite(local_periods)]
    top = 1.0
    if finite_periods.size:
        # Sections that nearly rest have huge periods without meaning, which must not set the axis.
        top = min(
            max([*finite_periods, pair.period]), 4 * float(np.median(finite_periods))
        )
    ax.set(xlabel="position", ylabel="period", ylim=(0, 1.15 * top))
    ax.margins(x=0.02)


@single_result
def winding_figure(figure_format: FigureFormat, result: Winding) -> Figure:
    """Draw the first pair in its plane, and beside or below it phase and period."""
    pair = result.pairs[0]
    figure = figure_format.make_figure(5.2 if figure_format.is_narrow else 2.8)
    ratios: dict[str, Any] = {"width_ratios": (1.1, 1)}
    if figure_format.is_narrow:
        ratios = {"height_ratios": (1.5, 1)}
    left, right = figure.subfigures(
        *figure_format.arrange_panels(2), squeeze=False, **ratios
    ).flat
    plane = left.subplots()
    colors = plot_pair_plane(plane, result, pair)
    left.colorbar(colors, ax=plane, label="position", aspect=30, pad=0.02)
    upper_axes, lower_axes = right.subplots(2, 1, sharex=True)
    plot_phase(upper_axes, result, pair)
    plot_period(lower_axes, result, pair)
    return figure
