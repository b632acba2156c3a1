"""The path of a table's positions through its first principal components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.styles import GRID, INK, MUTED, ONE_SIDED
from posprobe.table import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

    from posprobe.analyses import PCA


def plane(ax: Axes, result: PCA) -> ScalarMappable:
    """Draw the path in the plane of the first two components, coloured by position.

    On a grid every row is a path of its own, coloured by the row.
    """
    from matplotlib.collections import LineCollection

    steps, shade, colors = _steps(result, 2)
    ax.axhline(0, color=GRID, linewidth=0.5, zorder=0)
    ax.axvline(0, color=GRID, linewidth=0.5, zorder=0)
    ax.add_collection(
        LineCollection(list(steps), colors=colors.to_rgba(shade), linewidths=1.1, capstyle="round")
    )
    points = result.scores[:, :2]
    for row, face in ((0, "white"), (-1, INK)):
        ax.plot(
            *points[row], marker="o", markersize=4, markerfacecolor=face, markeredgecolor=INK,
            markeredgewidth=0.8, linestyle="none", label=_end(result, row),
        )  # fmt: skip
    first, second = result.explained_variance_ratio[:2]
    ax.set(xlabel=f"component 1 ({first:.1%})", ylabel=f"component 2 ({second:.1%})")
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.06)
    return colors


def space(ax: Any, result: PCA) -> ScalarMappable:
    """Draw the path through the first three components into 3-D Axes, one unit for all of them."""
    from mpl_toolkits.mplot3d.art3d import (  # type: ignore[import-untyped]
        Line3DCollection,
    )

    steps, shade, colors = _steps(result, 3)
    ax.add_collection3d(Line3DCollection(list(steps), colors=colors.to_rgba(shade), linewidths=1.1))
    points = result.scores[:, :3]
    for row, face in ((0, "white"), (-1, INK)):
        ax.plot(
            *points[row, :, None], marker="o", markersize=4, markerfacecolor=face,
            markeredgecolor=INK, markeredgewidth=0.8, linestyle="none",
        )  # fmt: skip
    reach = 1.05 * np.abs(points).max(axis=0)
    ax.set(xlim=(-reach[0], reach[0]), ylim=(-reach[1], reach[1]), zlim=(-reach[2], reach[2]))
    # Stretched, so that a weak third component can be seen; the plane beside it keeps the units.
    ax.set_box_aspect((1, 1, 0.9), zoom=1.15)
    ax.view_init(elev=22, azim=-58)
    for axis, number in zip((ax.xaxis, ax.yaxis, ax.zaxis), (1, 2, 3), strict=True):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set(color=MUTED, linewidth=0.6)
        axis.set_ticks([0], [""])
        axis._axinfo["grid"].update({"linewidth": 0.5, "color": GRID})
        axis.set_label_text(f"component {number}")
        axis.labelpad = -14
    return colors


def _steps(
    result: PCA, components: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], ScalarMappable]:
    """Return the steps of the path ``[k, 2, components]``, what colours each, and the colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    points = result.scores[:, :components]
    steps = np.stack([points[:-1], points[1:]], axis=1)
    number = result.start + 0.5 + np.arange(len(points) - 1, dtype=np.float64)
    last = result.start + len(points) - 1
    if isinstance(result.layout, Grid):
        width = result.layout.width
        within = np.arange(1, len(points)) % width != 0
        steps, number = steps[within], np.repeat(np.arange(float(result.layout.height)), width - 1)
        last = result.layout.height - 1
    first = 0 if isinstance(result.layout, Grid) else result.start
    return steps, number, ScalarMappable(Normalize(first, max(last, first + 1)), ONE_SIDED)


def _end(result: PCA, row: int) -> str:
    n = len(result.scores)
    if isinstance(result.layout, Grid):
        return "first patch" if row == 0 else "last patch"
    return f"position {result.start + row % n}"
