"""Row code and column code of a table of patches, each as the short sequence that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import nothing
from posprobe.figures.sheet import Sheet, legend_height
from posprobe.figures.styles import GRID, LINES
from posprobe.figures.winding import pair_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.axis_codes import AxisCode, AxisCodes

#: Components of a code that are drawn along its axis.
COMPONENTS = 4
SINGLE = {"rows": "row", "columns": "column"}


def plot_axis_codes(ax: Axes, result: AxisCodes) -> None:
    """Draw how the variance is shared out between rows, columns and their interaction."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    shares = [result.axes["rows"].share, result.axes["columns"].share, result.interaction_share]
    left = 0.0
    for name, share, (color, _) in zip(("rows", "columns", "rest"), shares, LINES, strict=False):
        ax.barh([0], [share], left=left, color=color, height=0.5, label=f"{name} {share:.1%}")
        left += share
    ax.set(yticks=[], ylim=(-0.3, 0.5), xlim=(0, 1), xlabel="share of variance")
    ax.spines["left"].set_visible(False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 0.85), ncols=3)


def scores(ax: Axes, code: AxisCode, axis: str) -> None:
    """Draw the leading components of a code along its axis."""
    if code.components is None:
        nothing(ax, code.undefined)
        return
    count = min(COMPONENTS, len(code.components.singular_values))
    ax.axhline(0, color=GRID, linewidth=0.6, zorder=0)
    for k, (color, dash) in zip(range(count), LINES, strict=False):
        share = code.components.explained_variance_ratio[k]
        ax.plot(
            np.arange(len(code.code)), code.components.scores[:, k], color=color, linestyle=dash,
            marker="o", markersize=2, label=f"{k + 1}: {share:.0%}",
        )  # fmt: skip
    ax.set(xlabel=f"{SINGLE[axis]} of patches", ylabel="score")
    ax.locator_params(axis="x", integer=True)
    ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, handlelength=2.0, columnspacing=0.8,
        borderaxespad=0.2, labelspacing=0.2,
    )  # fmt: skip


def axis_codes_figure(
    sheet: Sheet, results: Mapping[str, AxisCodes], _: Mapping[str, Any]
) -> Figure:
    """Draw for each axis its two strongest pairs in their planes, and its components."""
    codes = [
        (name, axis, code) for name, result in results.items() for axis, code in result.axes.items()
    ]
    wide = not sheet.narrow
    room = legend_height([""] * 4, sheet.width)
    figure = sheet.figure((2.3 if wide else 3.7) * len(codes) + room)
    parts = figure.subfigures(len(codes), 1, squeeze=False)[:, 0]
    for part, (name, axis, code) in zip(parts, codes, strict=True):
        named = f"{name}: " if len(results) > 1 else ""
        whose = "of the table's variance" if wide else "of the variance"
        title = f"{named}{SINGLE[axis]} code, {code.share:.1%} {whose}"
        part.suptitle(title, x=0.01, ha="left")
        if wide:
            first, second, last = part.subplots(1, 3)
        else:
            grid = part.add_gridspec(2, 2)
            first, second = part.add_subplot(grid[0, 0]), part.add_subplot(grid[0, 1])
            last = part.add_subplot(grid[1, :])
        for k, ax in enumerate((first, second)):
            if k < len(code.winding.pairs):
                pair = code.winding.pairs[k]
                pair_plane(ax, code.winding, pair)
                ax.set_title(f"{pair.turns:.2f} turns, {pair.share:.0%}")
                ax.locator_params(nbins=4)
            else:
                nothing(ax, code.winding.undefined or "no further pair goes round")
        scores(last, code, axis)
    return figure
