"""The helix: a pair of components that goes round, its phase and its period along the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import cross, nothing, pieces
from posprobe.figures.pca import ends, path_in_space
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, MUTED, ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from posprobe.analyses.winding import Winding, WindingPair

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
    from matplotlib.collections import LineCollection

    path = _circle(pair)
    x, y = path.T
    colors, shade = _colors(result)
    cross(ax)
    if pair.turns > MANY_TURNS:
        ax.scatter(x, y, c=colors.to_rgba(shade), s=3, linewidths=0)
    else:
        steps, number = pieces(path)
        shown = colors.to_rgba(result.start + number)
        ax.add_collection(LineCollection(steps, colors=shown, linewidths=1.2, capstyle="round"))
        if len(x) <= 64:
            ax.scatter(x, y, c=colors.to_rgba(shade), s=10, linewidths=0, zorder=3)
    ends(ax, path, zorder=4)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
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


def _circle(pair: WindingPair) -> NDArray[np.float64]:
    """Return the path in the plane of a pair: ``[n, 2]``."""
    return np.column_stack([pair.radius * np.cos(pair.phase), pair.radius * np.sin(pair.phase)])


def _colors(result: Winding) -> tuple[ScalarMappable, NDArray[np.float64]]:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shade = result.start + np.arange(len(result.scores), dtype=np.float64)
    return ScalarMappable(Normalize(shade[0], shade[-1]), ONE_SIDED), shade


def winding_figure(sheet: Sheet, results: Mapping[str, Winding], _: Mapping[str, Any]) -> Figure:
    """Draw each table's first pair in space, and beside it or below phase and period."""
    wound = {name: result for name, result in results.items() if result.pairs}
    height = 5.2 if sheet.narrow else 3.0
    figure = sheet.figure(height * len(wound))
    parts = figure.subfigures(len(wound), 1, squeeze=False)[:, 0]
    for part, (name, result) in zip(parts, wound.items(), strict=True):
        pair = result.pairs[0]
        ratios = {"height_ratios": (1.5, 1)} if sheet.narrow else {"width_ratios": (1.1, 1)}
        left, right = part.subfigures(*sheet.beside(2), **ratios)
        space = left.add_subplot(projection="3d")
        colors = helix(space, result, pair)
        if space.get_zlabel() != "position":
            bar = left.colorbar(colors, ax=space, shrink=0.6, pad=0.02, label="position")
            bar.outline.set_visible(False)
        named = f"{name}: " if len(wound) > 1 else ""
        title = f"{named}{pair.turns:.2f} turns, {pair.share:.0%} of the variance"
        if not sheet.narrow:
            title += f", radius varies by {pair.radius_cv:.0%}"
        if _drawn(pair) < len(pair.phase):
            title += f"; drawn: the first {MANY_TURNS}"
        part.suptitle(title, x=0.01, ha="left")
        above, below = right.subplots(2, 1, sharex=True)
        phase(above, result, pair)
        period(below, result, pair)
    return figure
