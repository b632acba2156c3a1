"""A table before and after LayerNorm, as attention sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posprobe.figures.model_states import cosine_panel
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, GRID, MUTED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.effective import EffectiveTable

#: Numbers between -1 and 1 that are drawn, and their names.
NUMBERS = {
    "similarity.raw.neighbour_mean": "neighbour cosine, raw",
    "similarity.centered.neighbour_mean": "neighbour cosine",
    "similarity.centered.far_mean": "far cosine",
    "similarity.raw.translation_invariance": "translation invariance",
    "pca.top3": "first three components",
    "sinusoid.cka": "CKA with the sinusoid",
}


def plot_effective(ax: Axes, result: EffectiveTable) -> None:
    """Draw the numbers of a table before and after LayerNorm."""
    pairs = {
        label: (before, after)
        for key, label in NUMBERS.items()
        if (before := result.raw.get(key)) is not None
        and (after := result.effective.get(key)) is not None
    }
    for row, (before, after) in enumerate(pairs.values()):
        ax.plot([before, after], [row, row], color=GRID, zorder=1)
        ax.plot([before], [row], "o", color=RED, markerfacecolor="white", markersize=4)
        ax.plot([after], [row], "o", color=BLUE, markersize=4)
    ax.plot([], [], "o", color=RED, markerfacecolor="white", markersize=4, label="as stored")
    ax.plot([], [], "o", color=BLUE, markersize=4, label="as attention sees it")
    ax.axvline(0, color=MUTED, linewidth=0.5, zorder=0)
    ax.set_yticks(range(len(pairs)), list(pairs))
    ax.set_xlim(-1.05, 1.05)
    ax.set_ylim(len(pairs) - 0.4, -0.6)
    ax.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=2)


def effective_figure(
    sheet: Sheet, results: Mapping[str, EffectiveTable], references: Mapping[str, Any]
) -> Figure:
    """Draw the table's cosines as attention sees it (``effective`` references), and its numbers."""
    (found,) = results.values()
    figure = sheet.figure(4.8 if sheet.narrow else 2.6)
    ratios = None if sheet.narrow else (1, 1.1)
    left, right = figure.subplots(*sheet.beside(2), width_ratios=ratios)
    image = cosine_panel(left, references["effective"])
    left.set_title("as attention sees it")
    figure.colorbar(image, ax=left, label="cosine", aspect=30, shrink=0.9)
    plot_effective(right, found)
    return figure
