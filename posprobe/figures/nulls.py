"""A table's headline numbers, those of null models and those of the sinusoid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posprobe.figures.common import Builder
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, GRID, INK, MUTED, RED
from posprobe.nulls import NULLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Told apart by height in the strip and by marker.
MARKERS = ("o", "s", "^", "D")


def _strip(ax: Axes, entry: Mapping[str, Any], title: str) -> None:
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
                    markeredgewidth=0.7, zorder=3, label=name)  # fmt: skip
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


def _nulls(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw a strip for each of the ``numbers`` of the references, by label."""
    numbers = references["numbers"]
    columns = 2 if sheet.narrow else 4 if sheet.low else 3
    rows = math.ceil(len(numbers) / columns)
    figure = sheet.figure(0.66 * rows + 0.3)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(numbers) :]:
        ax.set_axis_off()
    handles: dict[str, Any] = {}
    for ax, (label, entry) in zip(axes.flat, numbers.items(), strict=False):
        title = label.replace("translation", "transl.") if columns != 3 else label
        _strip(ax, entry, title)
        handles |= {text: mark for mark, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    ordered = {name: handles[name] for name in ("table", "sinusoid", *handles) if name in handles}
    figure.legend(
        list(ordered.values()), list(ordered), loc="outside upper left", borderaxespad=0.1,
        ncols=3 if sheet.narrow else len(ordered), columnspacing=1.2,
    )  # fmt: skip
    return figure


FIGURES: Mapping[str, Builder] = {"nulls": _nulls}
