"""The length of every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import extremes, one_each
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, ONE_SIDED, RED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import Norms


def plot_norms(ax: Axes, result: Norms) -> None:
    """Draw row norms against position, or as a map of the grid."""
    if isinstance(result.layout, Grid):
        shape = result.layout.height, result.layout.width
        image = ax.imshow(result.norms.reshape(shape), cmap=ONE_SIDED)
        ax.set(xlabel="column", ylabel="row")
        ax.figure.colorbar(image, ax=ax, label="norm", shrink=0.85)
        return
    position = result.start + np.arange(len(result.norms))
    ax.plot(*extremes(position, result.norms), color=BLUE)
    if odd := result.outlier_rows:
        ax.plot(
            [each.row for each in odd], [each.norm for each in odd], "o", color=RED,
            markersize=2.5, label=f"stands out ({len(odd)})",
        )  # fmt: skip
        ax.legend(loc="upper right")
    ax.set(xlabel="position", ylabel="row norm", ylim=(0, None))
    ax.set_xlim(position[0] - 0.01 * len(position), position[-1] + 0.01 * len(position))


def norms_figure(
    sheet: Sheet, results: Mapping[str, Norms], references: Mapping[str, Any]
) -> Figure:
    """Draw each table's norms below the other's."""
    if isinstance(next(iter(results.values())).layout, Grid):
        height = min(sheet.width * 0.8, 3.0)
        return one_each(plot_norms, height, width=3.8, compressed=True)(sheet, results, references)
    return one_each(plot_norms, sheet.plain + 0.1)(sheet, results, references)
