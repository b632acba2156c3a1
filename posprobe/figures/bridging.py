"""Held-out rows: how well each rule predicts them, by the width of the gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import nothing
from posprobe.figures.sheet import Sheet, columns_of, legend_height
from posprobe.figures.styles import GRID, LINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.bridging import Bridging

#: R² below which a curve leaves the frame.
LOWEST = -0.25
#: Marks of the rules, beside colour and dash.
MARKS = ("o", "s", "^", "D")
NAMES = {
    "linear": "straight line",
    "smooth": "smooth part of the model",
    "waves": "model with periodic components",
    "shift": "linear map from row to row",
}


def plot_bridging(ax: Axes, result: Bridging) -> None:
    """Draw R² against the gap for each rule, and what lies beyond the ends to the right of it."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    at = np.log2(result.gaps)
    # Wide enough apart for their labels, whatever the number of gaps.
    apart = max(0.17 * float(at[-1] - at[0]), 0.5)
    ends = at[-1] + apart * np.array([1.0, 2.0])
    ax.axhline(0, color=GRID, linewidth=0.6, zorder=0)
    ax.axvline(at[-1] + apart / 2, color=GRID, linewidth=0.6, zorder=0)
    for (rule, label), (color, dash), mark in zip(NAMES.items(), LINES, MARKS, strict=False):
        look: dict[str, Any] = {"color": color, "markersize": 3, "clip_on": True}
        ax.plot(at, result.r2[rule], mark, linestyle=dash, label=label, **look)
        ax.plot(ends, result.beyond[rule][:2], mark, linestyle="none", **look)
    every = max(1, -(-len(at) // 9))
    shown = list(range(len(at)))[::-1][::every][::-1]
    ax.set_xticks(
        [*at[shown], *ends], [*(str(result.gaps[k]) for k in shown), "before\nstart", "after\nend"]
    )
    ax.set(xlabel="rows left out (a quarter beyond the ends)", ylabel="held-out R²")
    ax.set(ylim=(LOWEST, 1.04), xlim=(at[0] - apart / 3, ends[-1] + apart / 2))


def bridging_figure(sheet: Sheet, results: Mapping[str, Bridging], _: Mapping[str, Any]) -> Figure:
    """Draw a panel for each table, and for both axes of each grid, side by side."""
    shown: dict[str, Bridging] = {}
    for name, result in results.items():
        parts = {axis: part for axis, part in result.axes.items() if not part.undefined}
        shown |= {f"{name}: {axis}": part for axis, part in parts.items()} or {name: result}
    across = 1 if sheet.narrow else min(2, len(shown))
    down = -(-len(shown) // across)
    labels = list(NAMES.values())
    figure = sheet.figure(2.2 * down + legend_height(labels, sheet.width))
    axes = figure.subplots(down, across, squeeze=False, sharey=True)
    for ax, (name, result) in zip(axes.flat, shown.items(), strict=False):
        plot_bridging(ax, result)
        if len(shown) > 1:
            ax.set_title(name)
        if sheet.narrow:
            ax.set_xlabel("rows left out")
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    drawn = [ax for ax in axes.flat if ax.lines]
    if drawn:
        figure.legend(
            *drawn[0].get_legend_handles_labels(), loc="outside upper center",
            ncols=columns_of(labels, sheet.width), columnspacing=1.0, handlelength=2.8,
        )  # fmt: skip
    return figure
