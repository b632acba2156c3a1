"""Whether learned biases of neighbouring distances are alike, by head and along the encodings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import nothing
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, GRID, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.smoothness import Smoothness

#: Most encodings that are named on an axis.
NAMED = 24


def plot_smoothness(ax: Axes, result: Smoothness) -> None:
    """Draw the correlation of neighbouring distances per head over the permutations' 95 %."""
    head = np.arange(len(result.correlation))
    if not np.isfinite(result.correlation).any():
        nothing(ax, "every head has the same value at every distance")
        return
    ax.bar(head, result.p95, width=0.8, color=GRID, label="95 % of permutations lie below")
    ax.plot(head, result.correlation, "o", color=BLUE, markersize=3.5, label="head")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(xlabel="head", ylabel="correlation of neighbouring distances")
    low = float(np.nanmin(np.append(result.correlation, 0)))
    ax.set_ylim(min(low, 0) - 0.05, 1.02)
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def _by_encoding(
    ax: Axes,
    values: Mapping[str, NDArray[np.float64]],
    label: str,
    chance: Mapping[str, NDArray[np.float64]] | None = None,
) -> None:
    """Draw one number of every head against its encoding, and the median of each encoding.

    Parameters
    ----------
    ax
        To draw into.
    values
        ``[heads]`` by encoding.
    label
        What the numbers are.
    chance
        Of each head, what 95 % of permutations stay below; the highest is drawn.
    """
    at = np.arange(len(values))
    for x, heads in zip(at, values.values(), strict=True):
        spread = 0.25 * np.linspace(-1, 1, len(heads)) if len(heads) > 1 else np.zeros(1)
        ax.plot(x + spread, heads, ".", color=BLUE, markersize=3, label="head" if x == 0 else None)
    if chance:
        highest = [heads[np.isfinite(heads)].max(initial=0) for heads in chance.values()]
        ax.bar(at, highest, width=0.8, color=GRID, label="95 % of permutations lie below")
    defined = [heads[np.isfinite(heads)] for heads in values.values()]
    median = [float(np.median(heads)) if heads.size else np.nan for heads in defined]
    ax.plot(at, median, color=INK, linewidth=0.8, marker="_", markersize=9, label="median")
    step = math.ceil(len(values) / NAMED)
    ax.set_xticks(
        at[::step], list(values)[::step], rotation=90 if sum(map(len, values)) > 80 else 0
    )
    ax.set_ylabel(label)
    ax.margins(x=0.02)


def depth_figure(
    sheet: Sheet, results: Mapping[str, Smoothness], references: Mapping[str, Any]
) -> Figure:
    """Draw the smoothness by encoding, below the windows of the ``heads`` of the references."""
    layers = references.get("heads", {})
    figure = sheet.figure(4.2 if layers else 2.4)
    axes = figure.subplots(
        2 if layers else 1, 1, sharex=set(layers) == set(results), squeeze=False
    )[:, 0]  # fmt: skip
    if layers:
        windows = {name: heads.window for name, heads in layers.items()}
        _by_encoding(axes[0], windows, "window (positions)")
        axes[0].set_ylim(bottom=0)
    found = {name: result.correlation for name, result in results.items()}
    chance = {name: result.p95 for name, result in results.items()}
    _by_encoding(axes[-1], found, "correlation of\nneighbouring distances", chance)
    axes[-1].axhline(0, color=MUTED, linewidth=0.5)
    axes[-1].set_xlabel("encoding")
    for ax in axes:
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    return figure
