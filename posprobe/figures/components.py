"""Principal components: variance, scores, the path, and pairs that go round each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.arrays import Floats
from posprobe.figures.common import (
    Beside,
    Sheet,
    cross,
    extremes,
    legend_above,
    note,
    nothing,
    of_one,
    panels,
    pieces,
    plain,
    styled,
    with_legend,
)
from posprobe.figures.styles import BLUE, GRID, INK, MUTED, ONE_SIDED, RED, signed
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from posprobe.analyses import PCA
    from posprobe.analyses.sequences.winding import Winding, WindingPair


#: Components that are drawn against position.
COMPONENTS = 6
#: Changes of sign from which on a component is drawn up to the second of these.
MANY, SHOWN = 80, 40


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
    ax.set_title(f"component {component + 1}: {share:.1%}")
    if isinstance(result.layout, Grid):
        limit = np.abs(values).max() or 1.0
        shown = values.reshape(result.layout.height, result.layout.width)
        ax.imshow(shown, cmap=signed("PuOr_r"), vmin=-limit, vmax=limit)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        return
    ax.axhline(0, color=GRID, linewidth=0.6)
    position = result.start + np.arange(len(values))
    # A path that crosses 0 so often would fill the drawing: the first crossings are shown.
    crossings = np.flatnonzero(np.diff(np.signbit(values)))
    if len(crossings) > MANY:
        shown = crossings[SHOWN] + 1
        position, values = position[:shown], values[:shown]
        ax.set_title(f"{component + 1}: {share:.1%}, first {shown} rows")
    ax.plot(*extremes(position, values), color=BLUE, linewidth=0.9)
    ax.margins(x=0.01)


def path_plane(ax: Axes, result: PCA) -> ScalarMappable:
    """Draw the path in the plane of the first two components, coloured by position.

    On a grid every row is a path of its own, coloured by the row.
    """
    steps, shade, colors = _steps(result, 2)
    _lines(ax, steps, colors.to_rgba(shade))
    ends(ax, result.scores[:, :2], label=_ends_of(result))
    first, second = result.explained_variance_ratio[:2]
    ax.set(xlabel=f"component 1 ({first:.1%})", ylabel=f"component 2 ({second:.1%})")
    return colors


def _lines(ax: Axes, steps: list[Floats], shades: Any) -> None:
    """Draw the pieces of a path in a plane, both axes in units of the same size."""
    from matplotlib.collections import LineCollection

    cross(ax)
    ax.add_collection(LineCollection(steps, colors=shades, linewidths=1.1, capstyle="round"))
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.07)


def space(ax: Any, result: PCA) -> None:
    """Draw the path through the first three components into 3-D Axes."""
    steps, shade, colors = _steps(result, 3)
    path_in_space(ax, steps, [f"component {k}" for k in (1, 2, 3)], colors.to_rgba(shade), 1.1)
    ends(ax, result.scores[:, :3], label=_ends_of(result))
    reach = 1.05 * np.abs(result.scores[:, :3]).max(axis=0)
    ax.set(xlim=(-reach[0], reach[0]), ylim=(-reach[1], reach[1]), zlim=(-reach[2], reach[2]))
    # Stretched, so that a weak third component can be seen; the plane beside it keeps the units.
    ax.set_box_aspect((1, 1, 0.9), zoom=1.15)
    ax.view_init(elev=22, azim=-58)


def path_in_space(
    ax: Any, steps: list[Floats], names: Sequence[str], shades: Any, width: float
) -> None:
    """Draw the pieces of a path into 3-D Axes, whose axes are named and have no numbers."""
    from mpl_toolkits.mplot3d.art3d import (  # type: ignore[import-untyped]
        Line3DCollection,
    )

    # Pieces of unequal length: the first releases of matplotlib 3.10 cannot find their limits.
    ax.add_collection3d(Line3DCollection(steps, colors=shades, linewidths=width), autolim=False)
    for axis, name in zip((ax.xaxis, ax.yaxis, ax.zaxis), names, strict=True):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set(color=MUTED, linewidth=0.6)
        axis.set_ticks([0], [""])
        axis._axinfo["grid"].update({"linewidth": 0.5, "color": GRID})
        axis.set_label_text(name)
        axis.labelpad = -14


def ends(ax: Any, path: Floats, label: tuple[str, str] = ("", ""), **look: Any) -> None:
    """Mark the first and the last row of a path ``[n, c]``."""
    # Ink follows a page's theme, so that an open and a full mark of one shape would look alike.
    marks = ((path[0], "white", "o", label[0]), (path[-1], INK, "s", label[1]))
    for row, face, marker, said in marks:
        ax.plot(
            *row[:, None], marker=marker, markersize=4, markerfacecolor=face, markeredgecolor=INK,
            markeredgewidth=0.8, linestyle="none", label=said or None, **look,
        )  # fmt: skip


def _steps(result: PCA, components: int) -> tuple[list[Floats], Floats, ScalarMappable]:
    """Return the pieces of the path ``[k, components]``, what colours each, and the colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    points = result.scores[:, :components]
    if isinstance(result.layout, Grid):
        height, width = result.layout.height, result.layout.width
        steps, number = list(points.reshape(height, width, -1)), np.arange(float(height))
        first, last = 0, height - 1
    else:
        steps, number = pieces(points)
        first, last = result.start, result.start + len(points) - 1
        number = number + first
    return steps, number, ScalarMappable(Normalize(first, max(last, first + 1)), ONE_SIDED)


def _ends_of(result: PCA) -> tuple[str, str]:
    if isinstance(result.layout, Grid):
        return "first patch", "last patch"
    return f"position {result.start}", f"position {result.start + len(result.scores) - 1}"


def variance_figure(sheet: Sheet, results: Mapping[str, PCA], _: Beside) -> Figure:
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
        title = ax.get_title(loc="left")
        if sheet.narrow:
            title = title.removeprefix("component ").removesuffix(" rows")
        ax.set_title(title, pad=3)
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
    """Draw the path through the first two components, and through three where there are."""
    three = result.scores.shape[1] > 2
    shape = sheet.beside(1 + three)
    height = {(1, 1): 0.8 * min(sheet.width, 4), (2, 1): 1.62 * sheet.width}
    figure = sheet.figure(height.get(shape, 0.44 * sheet.width))
    flat = figure.add_subplot(*shape, 1)
    axes: list[Any] = [flat]
    colors = path_plane(flat, result)
    if three:
        axes.append(figure.add_subplot(*shape, 2, projection="3d"))
        space(axes[1], result)
        if sheet.low:
            axes[1].set_box_aspect((1, 1, 0.9), zoom=0.85)
    flat.locator_params(nbins=5)
    legend_above(flat)
    label = "row" if isinstance(result.layout, Grid) else "position"
    figure.colorbar(colors, ax=axes, label=label, aspect=30, shrink=0.9, pad=0.02)
    return figure


#: R² of a component against the phase from which it is drawn as the axis of a helix.
CARRIES = 0.5
#: Turns beyond which a path in its plane is drawn as points, and a helix ends: more fill both.
MANY_TURNS = 12


def plot_winding(ax: Axes, result: Winding) -> None:
    """Draw the path of the first pair in its plane, coloured by position."""
    if not result.pairs:
        nothing(ax, result.undefined or "no two components go round each other")
        return
    pair_plane(ax, result, result.pairs[0])


def pair_plane(ax: Axes, result: Winding, pair: WindingPair) -> ScalarMappable:
    """Draw a pair in its plane, both components in units of the same size."""
    path = _circle(pair)
    colors, shade = _colors(result)
    steps, number = pieces(path)
    many = pair.turns > MANY_TURNS
    _lines(ax, [] if many else steps, colors.to_rgba(result.start + number))
    if many or len(path) <= 64:
        size = 3 if many else 10
        shown = colors.to_rgba(shade)
        ax.scatter(path[:, 0], path[:, 1], c=shown, s=size, linewidths=0, zorder=3)
    ends(ax, path, zorder=4)
    first, second = pair.components
    ax.set(xlabel=f"component {first + 1}", ylabel=f"component {second + 1}")
    ax.set_title(f"{pair.turns:.2f} turns, {pair.share:.0%} of variance")
    return colors


def helix(ax: Any, result: Winding, pair: WindingPair) -> ScalarMappable:
    """Draw a pair into 3-D Axes, upwards the component that rises with its phase, or position.

    Of more than `MANY_TURNS` turns the first are drawn.
    """
    shown = _drawn(pair)
    colors, shade = _colors(result)
    carried = pair.axis is not None and pair.axis_r2 >= CARRIES and pair.turns <= MANY_TURNS
    up = (result.scores[:, pair.axis] if carried and pair.axis is not None else shade)[:shown]
    points = np.column_stack([_circle(pair)[:shown], up])
    steps, number = pieces(points)
    first, second = pair.components
    third = f"component {pair.axis + 1}" if carried and pair.axis is not None else "position"
    names = (f"component {first + 1}", f"component {second + 1}", third)
    path_in_space(ax, steps, names, colors.to_rgba(result.start + number), 1.5)
    ends(ax, points)
    reach = 1.05 * max(float(np.abs(points[:, :2]).max()), np.finfo(float).tiny)
    low, high = float(up.min()), float(up.max())
    ax.set_box_aspect((1, 1, 1.15), zoom=1.05)
    ax.view_init(elev=18, azim=-60)
    # After the ticks, which would widen them.
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(low, high if high > low else low + 1))
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
    known = local[np.isfinite(local)]
    # A part that nearly stands still has a period without meaning, which must not rule the axis.
    top = min(max([*known, pair.period]), 4 * float(np.median(known))) if known.size else 1.0
    ax.set(xlabel="position", ylabel="period", ylim=(0, 1.15 * top))
    ax.margins(x=0.02)


def _drawn(pair: WindingPair) -> int:
    """Return how many rows a helix shows: of many turns the first ones, which can be told apart."""
    turns = np.abs(pair.phase - pair.phase[0]) / (2 * np.pi)
    return int(np.argmax(turns > MANY_TURNS)) if turns.max() > MANY_TURNS else len(turns)


def _circle(pair: WindingPair) -> Floats:
    """Return the path in the plane of a pair: ``[n, 2]``."""
    return np.column_stack([pair.radius * np.cos(pair.phase), pair.radius * np.sin(pair.phase)])


def _colors(result: Winding) -> tuple[ScalarMappable, Floats]:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shade = result.start + np.arange(len(result.scores), dtype=np.float64)
    return ScalarMappable(Normalize(shade[0], shade[-1]), ONE_SIDED), shade


@of_one
def winding_figure(sheet: Sheet, result: Winding) -> Figure:
    """Draw the first pair in space, and beside it or below phase and period."""
    pair = result.pairs[0]
    figure = sheet.figure(5.2 if sheet.narrow else 3.0)
    ratios: dict[str, Any] = {"width_ratios": (1.1, 1)}
    if sheet.narrow:
        ratios = {"height_ratios": (1.5, 1)}
    left, right = figure.subfigures(*sheet.beside(2), squeeze=False, **ratios).flat
    space = left.add_subplot(projection="3d")
    colors = helix(space, result, pair)
    if space.get_zlabel() != "position":
        bar = left.colorbar(colors, ax=space, shrink=0.6, pad=0.02, label="position")
        bar.outline.set_visible(False)
    title = f"{pair.turns:.2f} turns, {pair.share:.0%} of the variance"
    if not sheet.narrow:
        title += f", radius varies by {pair.radius_cv:.0%}"
    if _drawn(pair) < len(pair.phase):
        title += f"; drawn: the first {MANY_TURNS}"
    figure.suptitle(title, x=0.01, ha="left")
    above, below = right.subplots(2, 1, sharex=True)
    phase(above, result, pair)
    period(below, result, pair)
    return figure
