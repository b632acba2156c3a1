"""What heads prefer by offset, by their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.head_logits import HeadLogits, HeadsByLayer
from posprobe.figures.common import of_one, whole
from posprobe.figures.profiles import GRID_REACH, REACH, image_of, page
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, DIVERGING, GRID, LINES, ONE_SIDED, RED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


def plot_logits(ax: Axes, result: HeadLogits | HeadsByLayer) -> None:
    """Draw the mean logit of every head by offset."""
    layers = {0: result} if isinstance(result, HeadLogits) else result.layers
    ax.figure.colorbar(_logit_image(ax, layers), ax=ax, label="share of the largest")


def _logit_image(ax: Axes, layers: Mapping[int, HeadLogits]) -> AxesImage:
    """Draw the mean logit of every head by offset: a row per head, or a tile per head on a grid.

    Each is shown less its mean over the offsets in sight and divided by what is then its largest
    magnitude, since heads differ in level and scale by orders.
    """
    first = next(iter(layers.values()))
    curves = {number: found.curves for number, found in layers.items()}
    return image_of(
        ax, curves, first.layout, _levelled,
        causal=first.causal, vmin=-1.0, vmax=1.0, cmap=DIVERGING,
    )  # fmt: skip


def _levelled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take the mean off each head's values and divide by their largest magnitude."""
    over = tuple(range(1, rows.ndim))
    rows = rows - np.nanmean(rows, axis=over, keepdims=True)
    size = np.nanmax(np.abs(rows), axis=over, keepdims=True, initial=0.0)
    shown: NDArray[np.float64] = np.divide(rows, size, out=np.zeros_like(rows), where=size > 0)
    return shown


def _peak_histogram(ax: Axes, layers: Mapping[int, HeadLogits]) -> None:
    """Count heads by the offset that they prefer, if any, beside what an even choice would give.

    -1 is the previous token, 1 the next; on a grid the counts stand at rows and columns.
    """
    first = next(iter(layers.values()))
    peaks = np.concatenate([found.peak[found.has_peak] for found in layers.values()])
    if isinstance(first.layout, Grid):
        _peak_map(ax, peaks, first.layout)
        return
    inside = np.clip(peaks[:, 0], -REACH - 1, REACH + 1)
    values, counts = np.unique(inside, return_counts=True)
    ax.bar(values, counts, color=BLUE, width=0.8)
    half = first.layout.size // 2
    even = len(peaks) / (half + 1 if first.causal else 2 * half + 1)
    ax.axhline(even, color=RED, linestyle=LINES[1][1], label="even choice among the offsets")
    marks = [-REACH - 1, -REACH // 2, -1, *(() if first.causal else (1, REACH // 2, REACH + 1))]
    names = {-REACH - 1: f"below\n-{REACH}", REACH + 1: f"above\n{REACH}"}
    labels = [names.get(mark, str(mark)).replace("-", "\N{MINUS SIGN}") for mark in marks]
    ax.set_xticks(marks, labels)
    ax.set_xlim(-REACH - 2, 1.5 if first.causal else REACH + 2)
    ax.set_xlabel("preferred offset (key minus query)")
    ax.set_ylabel("heads")
    ax.yaxis.set_major_locator(whole())
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0))


def _peak_map(ax: Axes, peaks: NDArray[np.int64], layout: Grid) -> None:
    down, right = (min(GRID_REACH, size - 1) for size in (layout.height, layout.width))
    counts = np.zeros((2 * down + 1, 2 * right + 1))
    place = np.add(np.clip(peaks, (-down, -right), (down, right)), (down, right))
    np.add.at(counts, tuple(place.T), 1)
    image = ax.imshow(
        np.where(counts > 0, counts, np.nan), cmap=ONE_SIDED, vmin=0,
        extent=(-right - 0.5, right + 0.5, down + 0.5, -down - 0.5),
    )  # fmt: skip
    ax.axhline(0, color=GRID, linewidth=0.6, zorder=0)
    ax.axvline(0, color=GRID, linewidth=0.6, zorder=0)
    ax.set(xlabel="columns from query to key", ylabel="rows from query to key")
    ax.xaxis.set_major_locator(whole())
    ax.yaxis.set_major_locator(whole())
    ax.figure.colorbar(image, ax=ax, label="heads", shrink=0.85, ticks=whole())


@of_one
def heads_figure(sheet: Sheet, found: HeadsByLayer) -> Figure:
    """Draw the logits of every head by offset."""
    counts = {number: len(layer.peak) for number, layer in found.layers.items()}
    layout = next(iter(found.layers.values())).layout
    return page(
        sheet,
        lambda ax: _logit_image(ax, found.layers),
        counts,
        layout,
        "logit, centred and scaled",
    )


@of_one
def peaks_figure(sheet: Sheet, found: HeadsByLayer) -> Figure:
    """Count heads by the offset that they prefer."""
    on_grid = isinstance(next(iter(found.layers.values())).layout, Grid)
    figure = sheet.figure(3.0, width=3.8) if on_grid else sheet.figure(2.2, width=5.4)
    _peak_histogram(figure.subplots(), found.layers)
    return figure
