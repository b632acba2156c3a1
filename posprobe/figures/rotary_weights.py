"""What query and key weights alone say of a rotary model: strength of pairs, self-match curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import of_one, spread
from posprobe.figures.rotary_use import MAX_HEADS, MAX_LAYERS, distance_axis, heat_map, stacked
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.rotary_weights import WeightUse


def plot_weights(ax: Axes, result: WeightUse) -> None:
    """Draw the strength of each pair of each head, as a share of the head's."""
    heads = [row for layer in result.layers for row in layer.heads]
    numbers = [layer.layer for layer in result.layers for _ in layer.heads]
    turning = result.ladder * (result.positions or np.inf) >= 2 * np.pi
    heat_map(ax, stacked(heads), numbers, result.ladder, [int(turning.sum())] * len(heads))
    ax.set_ylabel("wavelength (tokens)")


@of_one
def weights_usage_figure(sheet: Sheet, found: WeightUse) -> Figure:
    """Draw the strength of each pair of each head."""
    figure = sheet.figure(2.6)
    ax = figure.subplots()
    plot_weights(ax, found)
    ax.set_title("share of the head's strength, from weights")
    figure.colorbar(ax.images[0], ax=ax, label="share", aspect=30)
    return figure


@of_one
def weights_curves_figure(sheet: Sheet, found: WeightUse) -> Figure:
    """Draw the self-match curves of some layers and heads, and the curves of biases."""
    layers = spread(list(found.layers), MAX_LAYERS)
    across = min(max(len(layer.heads) for layer in layers), MAX_HEADS)
    wide = (sheet.width - 0.4) / across
    figure = sheet.figure(min(wide, 0.8) * len(layers) + 0.5)
    grid = figure.subplots(len(layers), across, sharey="row", squeeze=False)
    for axes, layer in zip(grid, layers, strict=True):
        heads = spread(list(range(len(layer.heads))), across)
        for ax in axes[len(heads) :]:
            ax.set_axis_off()
        for ax, head in zip(axes, heads, strict=False):
            for curves, color in ((layer.self_match, MUTED), (layer.bias_curve, BLUE)):
                if curves is not None:
                    curve = curves[head] - curves[head].mean()
                    ax.plot(distance_axis(ax, np.arange(len(curve))), curve, color=color)
            ax.set_title(f"head {head}", fontsize=6, pad=2)
        axes[0].set_ylabel(f"layer {layer.layer}")
    figure.supxlabel("distance (tokens)", fontsize="medium")
    return figure
