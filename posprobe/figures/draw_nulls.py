"""A table's headline numbers beside those of null models and of the sinusoid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posprobe.figures.styles import BLUE, GRID, INK, MUTED, RED
from posprobe.nulls import NULLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Told apart by height in the strip and by marker.
MARKERS = ("o", "s", "^", "D")


def strip(ax: Axes, entry: Mapping[str, Any], title: str) -> None:
    """Draw one number: a line for the table, a dashed one for the sinusoid, a bar per null model.

    Parameters
    ----------
    ax
        To draw into; its horizontal axis is the number's own.
    entry
        ``value``, ``sinusoid`` and, by null model, ``p5``, ``p50`` and ``p95``, or None.
    title
        What the number is called.
    """
    for height, (name, marker) in enumerate(zip(NULLS, MARKERS, strict=True)):
        band = entry[name]
        if band is not None:
            y = -height
            ax.plot([band["p5"], band["p95"]], [y, y], color=MUTED, linewidth=2.2,
                    solid_capstyle="butt", label="_band")  # fmt: skip
            ax.plot([band["p50"]], [y], marker, color=INK, markerfacecolor="white", markersize=3.2,
                    markeredgewidth=0.7, label=name)  # fmt: skip
    if entry["sinusoid"] is not None:
        ax.axvline(entry["sinusoid"], color=RED, linewidth=1.1, linestyle=(0, (3, 1.2)),
                   label="sinusoid")  # fmt: skip
    ax.axvline(entry["value"], color=BLUE, linewidth=1.6, label="table")
    ax.set(ylim=(0.2 - len(NULLS), 0.8), yticks=[])
    ax.margins(x=0.08)
    low, high = ax.get_xlim()
    least = 0.02 * max(abs(low), abs(high), 1e-6)
    if high - low < least:
        ax.set_xlim(low - least, high + least)
    ax.spines["left"].set_visible(False)
    ax.spines["bottom"].set_color(GRID)
    ax.tick_params(axis="x", length=2, pad=1)
    ax.locator_params(axis="x", nbins=3)
    ax.set_title(title, pad=2, fontsize="medium")
