"""Places of an input that reach a model's output: curves by place, and maps of an image's cells."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import (
    FigureFormat,
    label_decades,
    single_result,
)
from posprobe.figures.styles import BLUE, LINE_STYLES, MUTED, ONE_SIDED_COLORMAP, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.models.places import Places, PlacesAtLength

#: Influences below this share of the mean are drawn at it, on a logarithmic axis.
MIN_DRAWN_INFLUENCE = 1e-4


def plot_places(ax: Axes, places: Places) -> None:
    """Draw the weight of every place at the longest length, and of the shorter ones in grey."""
    if places.grid is not None:
        _plot_cells(ax, places)
    elif places.output == "next_token":
        _plot_influences(ax, places)
    else:
        _plot_weights(ax, places)


def _slot_centres(length: PlacesAtLength) -> NDArray[np.float64]:
    """Return the middle of each slot, in tokens from the start."""
    slot_tokens = length.tokens / length.slots
    return np.asarray((np.arange(length.slots) + 0.5) * slot_tokens)


def _plot_shorter(ax: Axes, places: Places, *, from_end: bool) -> None:
    # The longest of them has the plainest line.
    for length, (_, dash) in zip(places.lengths[-2::-1], cycle(LINE_STYLES)):
        x = _slot_centres(length)
        x = length.tokens - x if from_end else x
        weights = np.maximum(length.weights, MIN_DRAWN_INFLUENCE if from_end else -np.inf)
        label = f"{length.tokens} tokens"
        ax.plot(x, weights, color=MUTED, linestyle=dash, linewidth=0.8, label=label)


def _add_legend(ax: Axes) -> None:
    """Add a legend above the axes, in two columns, if there are several lines."""
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def _plot_weights(ax: Axes, places: Places) -> None:
    """Draw weights by place, those with reversed positions, and where permuted places lie."""
    full_length = places.full_length
    x = _slot_centres(full_length)
    ax.axhspan(*full_length.weights_chance, color=PALE, linewidth=0)
    label = f"{full_length.tokens} tokens"
    ax.plot(x, full_length.weights, color=BLUE, marker="o", markersize=3, label=label)
    ax.errorbar(x, full_length.weights, full_length.error, color=BLUE, fmt="none")
    if full_length.reversed is not None:
        color, dash = LINE_STYLES[1]
        ax.plot(
            x,
            full_length.reversed,
            color=color,
            linestyle=dash,
            marker="s",
            markersize=3,
            label=f"position {'rows' if places.reversed_positions == 'table' else 'ids'} "
            "reversed",
        )
    _plot_shorter(ax, places, from_end=False)
    _add_legend(ax)
    name = "weight" if full_length.measure == "weight" else "influence"
    ax.set(xlabel="place in the text (tokens)", ylabel=f"{name}, mean = 1")
    ax.set_xlim(0, full_length.tokens)
    ax.set_ylim(bottom=min(0.5, ax.get_ylim()[0]))


def _plot_influences(ax: Axes, places: Places) -> None:
    """Draw influences on the next token by distance from it, on a logarithmic axis."""
    full_length = places.full_length
    x = full_length.tokens - _slot_centres(full_length)
    ax.axhline(1, color=MUTED, linewidth=0.5)
    weights = np.maximum(full_length.weights, MIN_DRAWN_INFLUENCE)
    label = f"{full_length.tokens} tokens"
    ax.plot(x, weights, color=BLUE, marker="o", markersize=3, label=label)
    if full_length.reach is not None:
        reach = max(1, round(full_length.reach))
        ax.axvline(
            full_length.reach,
            color=LINE_STYLES[1][0],
            linestyle=(0, (1, 1)),
            label=f"90 % within {reach} token{'' if reach == 1 else 's'}",
        )
    _plot_shorter(ax, places, from_end=True)
    _add_legend(ax)
    ax.set(xlabel="tokens back", ylabel="influence, mean = 1", yscale="log")
    label_decades(ax.yaxis)
    ax.set_xlim(0, full_length.tokens)


def _plot_cells(ax: Axes, places: Places) -> None:
    """Draw the influence of the cells of an image as a map."""
    rows, columns = places.grid or (1, 1)
    cells = places.full_length.weights.reshape(rows, columns)
    image = ax.imshow(cells, cmap=ONE_SIDED_COLORMAP, vmin=0, vmax=max(2, cells.max()))
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label="influence of a cell, mean = 1", aspect=30)


@single_result
def places_figure(figure_format: FigureFormat, places: Places) -> Figure:
    """Draw the weights of places, or a map of an image's cells."""
    is_map = places.grid is not None
    figure = figure_format.make_figure(2.6, width=4.2, compressed=is_map)
    plot_places(figure.subplots(), places)
    return figure
