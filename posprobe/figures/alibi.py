"""Linear biases (ALiBi): the penalty of every head by distance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import note, plain
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.schemes import LinearBias

#: Positions that are drawn where the record states none.
POSITIONS = 512


def plot_slopes(ax: Axes, record: LinearBias) -> None:
    """Draw the penalty of each head by distance on logarithmic axes, where it is a line."""
    from matplotlib import colormaps

    values = record.slopes
    distance = np.array([1, max((record.max_positions or POSITIONS) - 1, 2)])
    # The lightest end of the map is lost on white.
    colors = colormaps[ONE_SIDED](np.linspace(0, 0.85, len(values)))
    every = math.ceil(len(values) / 8)
    # Labels stand in the order of the slopes, whatever the order of the heads.
    labelled = np.argsort(-values, kind="stable")[::every]
    for head, slope in enumerate(values):
        ax.plot(distance, slope * distance, color=colors[head], linewidth=0.9)
    for head in labelled:
        end = (distance[-1], values[head] * distance[-1])
        note(ax, f"head {head}", end, (3, 0), va="center")
    ax.axhline(1, color=RED, linewidth=0.8, linestyle=(0, (4, 1.5)))
    ax.set(xscale="log", yscale="log", xlabel="distance (positions)")
    ax.set_ylabel("penalty (logits; dashed: 1)")
    ax.set_xlim(1, distance[-1])
    plain(ax.xaxis, ax.yaxis)


def slopes_figure(sheet: Sheet, results: Mapping[str, LinearBias], _: Mapping[str, Any]) -> Figure:
    """Draw the penalty of every head by distance."""
    ((name, record),) = results.items()
    figure = sheet.figure(2.4 if sheet.narrow else 2.8, width=4.4)
    ax = figure.subplots()
    plot_slopes(ax, record)
    if not sheet.exact:
        ax.set_title(name)
    return figure
