"""The circles of rotations, and the speed of the clock that they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.clock import Clock
from posprobe.figures.common import nothing, of_one
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, MUTED, ONE_SIDED
from posprobe.text import period_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Most circles: as many as can be told apart.
CIRCLES = 6


def plot_clock(ax: Axes, result: Clock) -> None:
    """Draw the speed of the clock against position."""
    if not len(result.speed):
        nothing(ax, result.undefined or result.why)
        return
    position = result.first + np.arange(len(result.speed))
    ax.axhline(1.0, color=MUTED, linestyle=(0, (4, 1.5)), linewidth=0.9)
    ax.plot(position, result.speed, color=BLUE)
    ax.set(xlabel="position", ylabel="speed of the clock")
    ax.margins(x=0.02)


def circle(ax: Axes, result: Clock, rotation: int) -> Any:
    """Draw the rows along the plane of one rotation."""
    path = result.paths[rotation]
    x, y = path.T
    position = result.first + np.arange(len(path))
    dots = ax.scatter(x, y, c=position, cmap=ONE_SIDED, s=4, linewidths=0, rasterized=True)
    reach = 1.1 * float(np.abs(path).max())
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.text(0, 0, period_of(result.periods[rotation]), ha="center", va="center")
    return dots


@of_one
def clock_figure(sheet: Sheet, result: Clock) -> Figure:
    """Draw the circles of the rotations and, if it has one, the speed of their clock."""
    count = min(len(result.paths), CIRCLES)
    across = min(count, 2 if sheet.narrow else 4)
    down = -(-count // across)
    speed = bool(result.shared)
    side = sheet.width / max(across, 2)
    figure = sheet.figure(side * down + 1.5 * speed + 0.4)
    heights = [*[side] * down, *([1.4] if speed else [])]
    grid = figure.add_gridspec(len(heights), across, height_ratios=heights)
    axes = [figure.add_subplot(grid[k // across, k % across]) for k in range(count)]
    for k, ax in enumerate(axes):
        dots = circle(ax, result, k)
    bar = figure.colorbar(dots, ax=axes, shrink=0.7, pad=0.02, label="position")
    bar.outline.set_visible(False)
    figure.suptitle("Rotations, by period in positions", x=0.01, ha="left")
    if speed:
        plot_clock(figure.add_subplot(grid[-1, :]), result)
    return figure
