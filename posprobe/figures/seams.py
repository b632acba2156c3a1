"""Seams between neighbouring positions, and special rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import Builder, extremes, note, nothing, one_each
from posprobe.figures.styles import BLUE, INK, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posprobe.analyses import Seams

#: Special rows and seams whose numbers are written out.
NAMED = 12


def plot_seams(ax: Axes, result: Seams) -> None:
    """Draw the adjacent centred cosine against position, with seams and special rows marked."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    n = len(result.norms)
    # The cosine of two rows stands between them.
    middle = result.start + np.arange(n - 1) + 0.5
    ax.plot(*extremes(middle, result.cosines), color=BLUE, linewidth=0.9)
    for k, (left, right) in enumerate(result.between):
        x = result.start + (left + right) / 2
        ax.axvline(x, color=INK, linewidth=0.8, linestyle=(0, (4, 1.5)), zorder=0,
                   label="seam" if k == 0 else None)  # fmt: skip
        if k < NAMED:
            late = left > n / 2
            note(
                ax, f"{result.start + left} | {result.start + right}", (x, 0.04),
                (-3 if late else 3, 0), xycoords=("data", "axes fraction"),
                ha="right" if late else "left",
            )  # fmt: skip
    rows = np.array([found.row for found in result.special], dtype=int)
    if rows.size:
        # Between the cosines on either side, of which an end has one.
        padded = np.concatenate([result.cosines[:1], result.cosines, result.cosines[-1:]])
        height = np.nan_to_num((padded[rows] + padded[rows + 1]) / 2)
        ax.plot(result.start + rows, height, "v", color=RED, markersize=4, label="special row")
        groups = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) > 1) + 1)
        for group in groups[:NAMED]:
            first, last = (result.start + rows[group[[0, -1]]]).tolist()
            lowest = group[np.argmin(height[group])]
            late = rows[lowest] > n / 2
            note(
                ax, f"{first}" if first == last else f"{first}\N{EN DASH}{last}",
                (result.start + rows[lowest], height[lowest]), (-5 if late else 5, 0),
                ha="right" if late else "left", va="center",
            )  # fmt: skip
    ax.set(xlabel="position", ylabel="adjacent centred cosine")
    low = float(np.nanmin(result.cosines)) if np.isfinite(result.cosines).any() else 0.0
    ax.set_ylim(min(0.0, low) - 0.05, 1.05)
    ax.set_xlim(result.start - 0.02 * n, result.start + 1.02 * n)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0)


seams_figure: Builder = one_each(plot_seams, 2.1)
