"""Principal components: variance, scores, the path, and pairs that go round each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.arrays import Floats
from posprobe.figures.common import (
    Baselines,
    Sheet,
    cross,
    extremes,
    legend_above,
    note,
    nothing,
    of_one,
    panels,
    plain,
    styled,
    with_legend,
)
from posprobe.figures.styles import BLUE, GRID, INK, MUTED, ONE_SIDED, RED, SIGNED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from posprobe.analyses import PCA
    from posprobe.analyses.descriptive.winding import Winding, WindingPair


#: Components that are drawn against position.
COMPONENTS = 6
#: Pieces of a path that have a colour of their own: a colour map has no more colours.
MAX_PIECES = 256
#: Changes of sign from which on a component is drawn up to the second of these.
MANY_ROWS, MAX_MARKED_ROWS = 80, 40


def plot_variance(ax: Axes, result: PCA) -> None:
    """Draw the explained variance of each component and its running sum."""
    ratio = result.explained_variance_ratio
    if result.undefined:
        nothing(ax, result.undefined)
        return
    count = np.arange(1, len(ratio) + 1)
    ax.plot(count, np.cumsum(ratio), color=BLUE, label="running sum")
    ax.plot(count, ratio, color=RED, linestyle=(0, (4, 1.5)), label="each component")
    for share in (0.90, 0.99):
        needed = result.components_for(share)
        if needed is not None:
            ax.plot([needed], [np.cumsum(ratio)[needed - 1]], "o", color=INK, markersize=3)
            note(ax, f"{share:.0%}: {needed}", (needed, share), (5, -9))
    ax.set(xscale="log", xlabel="component", ylabel="share of variance", ylim=(-0.02, 1.04))
    ax.set_xlim(0.9, len(ratio))
    plain(ax.xaxis)
    ax.legend(loc="center right")


def variances(ax: Axes, results: Mapping[str, PCA]) -> None:
    """Draw the running sum of explained variance for each table."""
    for _, result, look in styled(results):
        share = np.cumsum(result.explained_variance_ratio)
        ax.plot(np.arange(1, len(share) + 1), share, **look)
    ax.set(xscale="log", xlabel="components", ylabel="share of variance", ylim=(0, 1.03))
    plain(ax.xaxis)
    ax.legend(loc="lower right")


def score(ax: Axes, result: PCA, component: int) -> None:
    """Draw one component's score against position, or as a map of the grid."""
    values = result.scores[:, component]
    share = result.explained_variance_ratio[component]
    title = f"{component + 1}: {share:.1%}"
    ax.set_title(title, pad=3)
    if isinstance(result.layout, Grid):
        limit = np.abs(values).max() or 1.0
        grid_scores = values.reshape(result.layout.height, result.layout.width)
        ax.imshow(grid_scores, cmap=SIGNED, vmin=-limit, vmax=limit)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        return
    ax.axhline(0, color=GRID, linewidth=0.6)
    position = result.start + np.arange(len(values))
    # A path that crosses 0 so often would fill the drawing: the first crossings are shown.
    crossings = np.flatnonzero(np.diff(np.signbit(values)))
    if len(crossings) > MANY_ROWS:
        grid_scores = crossings[MAX_MARKED_ROWS] + 1
        position, values = position[:grid_scores], values[:grid_scores]
        ax.set_title(f"{title}, first {grid_scores} rows", pad=3)
    ax.plot(*extremes(position, values), color=BLUE, linewidth=0.9)
    ax.margins(x=0.01)


def path_plane(ax: Axes, result: PCA) -> ScalarMappable:
    """Draw the path in the plane of the first two components, coloured by position.

    On a grid every row is a path of its own, coloured by the row.
    """
    points, first = result.scores[:, :2], result.start
    if isinstance(result.layout, Grid):
        height, width = result.layout.height, result.layout.width
        steps, number = list(points.reshape(height, width, -1)), np.arange(float(height))
        first, last, end_labels = 0, height - 1, ("first patch", "last patch")
    else:
        steps, number = _pieces(points)
        number, last = number + first, first + len(points) - 1
        end_labels = f"position {first}", f"position {last}"
    colors = _colors(first, last)
    _lines(ax, steps, colors.to_rgba(number))
    _ends(ax, points, end_labels)
    first_share, second_share = result.explained_variance_ratio[:2]
    ax.set(xlabel=f"component 1 ({first_share:.1%})", ylabel=f"component 2 ({second_share:.1%})")
    return colors


def _pieces(points: Floats) -> tuple[list[Floats], Floats]:
    """Cut a path ``[n, c]`` into as few steps each as keep its pieces few; and their middles."""
    steps = len(points) - 1
    block = max(math.ceil(steps / MAX_PIECES), 1)
    starts = np.arange(0, steps, block)
    middles = (starts + np.minimum(starts + block, steps)) / 2
    return [points[k : k + block + 1] for k in starts], middles


def _colors(first: int, last: int) -> ScalarMappable:
    """Return the colours of places along a path."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(first, max(last, first + 1)), ONE_SIDED)


def _lines(ax: Axes, steps: list[Floats], shades: Any) -> None:
    """Draw the pieces of a path in a plane, both axes in units of the same size."""
    from matplotlib.collections import LineCollection

    cross(ax)
    ax.add_collection(LineCollection(steps, colors=shades, linewidths=1.1, capstyle="round"))
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.07)


def _ends(ax: Axes, path: Floats, label: tuple[str, str] = ("", "")) -> None:
    """Mark the first and the last row of a path ``[n, 2]``."""
    # Ink follows a page's theme, so that an open and a full mark of one shape would look alike.
    marks = ((path[0], "white", "o", label[0]), (path[-1], INK, "s", label[1]))
    for row, face, marker, end_label in marks:
        ax.plot(
            *row[:, None], marker=marker, markersize=4, markerfacecolor=face, markeredgecolor=INK,
            markeredgewidth=0.8, linestyle="none", label=end_label or None, zorder=4,
        )  # fmt: skip


def variance_figure(sheet: Sheet, results: Mapping[str, PCA], _: Baselines) -> Figure:
    """Draw the explained variance by component."""
    return with_legend(sheet, results, plot_variance, variances, 0.2)


@of_one
def components_figure(sheet: Sheet, result: PCA) -> Figure:
    """Draw the first components' scores against position, or as maps of the grid."""
    on_grid = isinstance(result.layout, Grid)
    count = min(COMPONENTS, result.scores.shape[1])
    columns = min(count, sheet.columns or (3 if on_grid or not sheet.narrow else 2))
    rows = -(-count // columns)
    if isinstance(result.layout, Grid):
        side = (sheet.width - 0.1) / columns * result.layout.height / result.layout.width
        figure = sheet.figure(rows * (side + 0.2), compressed=True)
    else:
        figure = sheet.figure(rows * (0.95 if sheet.narrow else 1.3) + 0.3)
    axes = panels(figure, count, columns)
    for number, ax in enumerate(axes.flat[:count]):
        score(ax, result, number)
        if not on_grid:
            ax.locator_params(axis="y", nbins=3)
            ax.locator_params(axis="x", nbins=2 if sheet.narrow else 4, integer=True)
            cut = ax.get_xlim()[1] < result.start + len(result.scores) - 1
            ax.tick_params(labelbottom=cut or number + columns >= count)
    if not on_grid:
        figure.supxlabel("position")
        figure.supylabel("score")
    return figure


@of_one
def trajectory_figure(sheet: Sheet, result: PCA) -> Figure:
    """Draw the path through the first two components."""
    figure = sheet.figure(0.8 * min(sheet.width, 4.5), width=4.5)
    ax = figure.subplots()
    colors = path_plane(ax, result)
    ax.locator_params(nbins=5)
    legend_above(ax)
    label = "row" if isinstance(result.layout, Grid) else "position"
    figure.colorbar(colors, ax=ax, label=label, aspect=30, shrink=0.9, pad=0.02)
    return figure


#: Turns beyond which a path in its plane is drawn as points: lines would fill it.
MANY_TURNS = 12


def plot_winding(ax: Axes, result: Winding) -> None:
    """Draw the path of the first pair in its plane, coloured by position."""
    if not result.pairs:
        nothing(ax, result.undefined or "no two components go round each other")
        return
    pair_plane(ax, result, result.pairs[0])


def pair_plane(ax: Axes, result: Winding, pair: WindingPair) -> ScalarMappable:
    """Draw a pair in its plane, both components in units of the same size."""
    path = np.column_stack([pair.radius * np.cos(pair.phase), pair.radius * np.sin(pair.phase)])
    colors = _colors(result.start, result.start + len(path) - 1)
    steps, number = _pieces(path)
    has_many_turns = pair.turns > MANY_TURNS
    _lines(ax, [] if has_many_turns else steps, colors.to_rgba(result.start + number))
    if has_many_turns:
        shades = colors.to_rgba(result.start + np.arange(len(path)))
        ax.scatter(path[:, 0], path[:, 1], c=shades, s=3, linewidths=0, zorder=3)
    _ends(ax, path)
    first, second = pair.components
    ax.set(xlabel=f"component {first + 1}", ylabel=f"component {second + 1}")
    ax.set_title(f"{pair.turns:.2f} turns, {pair.share:.0%} of variance")
    return colors


def phase(ax: Axes, result: Winding, pair: WindingPair) -> None:
    """Draw the phase in turns against position, beside the straight line of an even rotation."""
    position = result.start + np.arange(len(pair.phase))
    turns = (pair.phase - pair.phase[0]) / (2 * np.pi)
    ax.plot(
        position[[0, -1]], turns[[0, -1]], color=MUTED, linestyle=(0, (4, 1.5)), linewidth=0.9,
        label="even rotation",
    )  # fmt: skip
    ax.plot(position, turns, color=BLUE, label="phase")
    ax.set(ylabel="turns")
    ax.margins(x=0.02)
    ax.legend(loc="upper left", handlelength=2.4, borderaxespad=0.2)


def period(ax: Axes, result: Winding, pair: WindingPair) -> None:
    """Draw the period of each part of the table; gaps where it stands still or turns back."""
    edges = result.start + pair.bounds
    local = pair.local_period
    ax.stairs(local, edges, baseline=None, color=RED, linewidth=1.3, label="by tenths of the table")
    if np.isfinite(pair.period):
        ax.axhline(
            pair.period, color=MUTED, linestyle=(0, (4, 1.5)), linewidth=0.9, label="on average"
        )
    finite_periods = local[np.isfinite(local)]
    # A part that nearly stands still has a period without meaning, which must not rule the axis.
    top = (
        min(max([*finite_periods, pair.period]), 4 * float(np.median(finite_periods)))
        if finite_periods.size
        else 1.0
    )
    ax.set(xlabel="position", ylabel="period", ylim=(0, 1.15 * top))
    ax.margins(x=0.02)


@of_one
def winding_figure(sheet: Sheet, result: Winding) -> Figure:
    """Draw the first pair in its plane, and beside it or below phase and period."""
    pair = result.pairs[0]
    figure = sheet.figure(5.2 if sheet.narrow else 2.8)
    ratios: dict[str, Any] = {"width_ratios": (1.1, 1)}
    if sheet.narrow:
        ratios = {"height_ratios": (1.5, 1)}
    left, right = figure.subfigures(*sheet.beside(2), squeeze=False, **ratios).flat
    plane = left.subplots()
    colors = pair_plane(plane, result, pair)
    left.colorbar(colors, ax=plane, label="position", aspect=30, pad=0.02)
    upper_axes, lower_axes = right.subplots(2, 1, sharex=True)
    phase(upper_axes, result, pair)
    period(lower_axes, result, pair)
    return figure
