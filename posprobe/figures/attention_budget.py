"""Attention budget of a run: the shares of every head, and the curves that position moves most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import (
    FigureExtras,
    FigureFormat,
    make_panels,
    shorten_label,
    single_result,
)
from posprobe.figures.styles import DIVERGING_COLORMAP, INK, MUTED, RED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.attention_budget import AttentionBudget

#: Colour of each part of the logits, as on the page.
PART_COLORS = {
    "distance": "#154a82",
    "key": "#5a9bd4",
    "other": "#0f6b5c",
    "content": "#dfe2e4",
}
#: Label of each part.
PART_LABELS = {
    "distance": "distance",
    "key": "place of the key",
    "other": "other position",
    "content": "content",
}
#: Shares below this are too narrow for their number.
MIN_LABELLED_SHARE = 0.08
#: Heads whose curves are drawn, those that position moves most.
MAX_DRAWN_CURVES = 12
#: Colour of the curves.
CURVE_COLOR = PART_COLORS["distance"]


def plot_attention_budget(ax: Axes, result: AttentionBudget) -> None:
    """Draw every head as a stacked bar of what decides where it looks, grouped by layer."""
    layers = sorted({head.layer for head in result.heads})
    # A gap between two layers is as wide as a bar.
    rows = np.array([k + layers.index(head.layer) for k, head in enumerate(result.heads)])
    left = np.zeros(len(rows))
    for name, color in PART_COLORS.items():
        shares = np.array([max(getattr(head, name), 0.0) for head in result.heads])
        ax.barh(
            rows, shares, left=left, color=color, height=0.86, label=PART_LABELS[name]
        )
        left += shares
    middles = [
        np.mean(
            [row for row, head in zip(rows, result.heads, strict=True) if head.layer == n]
        )
        for n in layers
    ]
    step = -(-len(layers) // MAX_DRAWN_CURVES)
    ax.set_yticks(middles[::step], [str(layer) for layer in layers[::step]])
    ax.set(xlim=(0, 1), ylim=(rows.max() + 1, -1), ylabel="layer")
    ax.set_xlabel("share of the variance of attention logits")
    ax.tick_params(axis="y", length=0)


@single_result
def attention_budget_figure(
    figure_format: FigureFormat, result: AttentionBudget
) -> Figure:
    """Draw the shares of every head, and the curves of the heads that position moves most."""
    picked = sorted(
        sorted(range(len(result.heads)), key=lambda k: -result.heads[k].moved)[
            :MAX_DRAWN_CURVES
        ]
    )
    is_narrow = figure_format.is_narrow
    n_columns = 3
    figure = figure_format.make_figure(4.6 if is_narrow else 3.0)
    shape, ratios = ((2, 1), (1.0,)) if is_narrow else ((1, 2), (1.0, 1.5))
    subfigures: Any = figure.subfigures(*shape, width_ratios=ratios)
    bars, panels = subfigures
    ax = bars.subplots()
    plot_attention_budget(ax, result)
    bars.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    grid = make_panels(panels, len(picked), n_columns)
    for place, (panel, index) in enumerate(zip(grid.flat, picked, strict=False)):
        _plot_curve(panel, result, index)
        # All panels have the same distances, so that the lowest ones are enough to name them.
        panel.tick_params(labelbottom=place + grid.shape[1] >= len(picked))
    unit = "rows and columns" if isinstance(result.layout, Grid) else "tokens back"
    panels.supxlabel(f"mean logit less its mean (nats) by {unit}", fontsize="medium")
    return figure


def attention_budgets_figure(
    figure_format: FigureFormat, results: Mapping[str, AttentionBudget], _: FigureExtras
) -> Figure:
    """Draw the mean shares of several models as bars under each other, one line per model."""
    figure = figure_format.make_figure(0.26 * len(results) + 0.75)
    ax = figure.subplots()
    rows = np.arange(len(results))
    edges = np.zeros(len(rows))
    for name, color in PART_COLORS.items():
        shares = np.array(
            [max(getattr(result, name) or 0.0, 0.0) for result in results.values()]
        )
        ax.barh(
            rows, shares, left=edges, color=color, height=0.7, label=PART_LABELS[name]
        )
        for row, (edge, share) in enumerate(zip(edges, shares, strict=True)):
            if share >= MIN_LABELLED_SHARE:
                ax.text(
                    edge + share / 2,
                    row,
                    # Only 1 is written as 100 %.
                    "> 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %",
                    ha="center",
                    va="center_baseline",
                    fontsize=6,
                    color=INK if name in ("content", "key") else "white",
                )
        edges += shares
    max_letters = 14 if figure_format.is_narrow else 28
    ax.set_yticks(rows, [shorten_label(name, max_letters) for name in results])
    ax.set(xlim=(0, max(1.0, edges.max())), ylim=(len(rows) - 0.5, -0.5))
    ax.set_xlabel("share of the variance of attention logits, mean of heads")
    ax.tick_params(axis="y", length=0)
    figure.legend(
        *ax.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=2 if figure_format.is_narrow else 4,
    )
    return figure


def _plot_curve(ax: Axes, result: AttentionBudget, index: int) -> None:
    """Draw one head's curve by displacement, or a tile of a grid."""
    head, curve = result.heads[index], result.curves[index]
    ax.set_title(
        f"{head.layer}.{head.head}  {100 * max(head.distance, 0.0):.0f} %",
        fontsize=6,
        pad=2,
    )
    ax.tick_params(labelsize=6, pad=1, length=2)
    if isinstance(result.layout, Grid):
        rows, columns = (len(set(axis)) for axis in result.displacements.T.tolist())
        limit = float(np.nanmax(np.abs(curve)))
        ax.imshow(
            curve.reshape(rows, columns)[::-1, ::-1],
            cmap=DIVERGING_COLORMAP,
            vmin=-limit,
            vmax=limit,
        )
        ax.set_xticks([])
        ax.set_yticks([])
        return
    distances = result.displacements[:, 0]
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.plot(distances, curve, color=CURVE_COLOR, linewidth=1)
    ax.locator_params(axis="y", nbins=3)
    if isinstance(head.preferred, int):
        k = int(np.flatnonzero(distances == head.preferred)[0])
        ax.plot([head.preferred], [curve[k]], "o", color=RED, markersize=2.5)
    # The dot often stands on the highest point.
    ax.margins(x=0.04, y=0.15)
    ax.xaxis.label.set_color(INK)
