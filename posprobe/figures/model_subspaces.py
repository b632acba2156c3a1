"""The position subspace and the directions of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import nothing, of_one
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, GRID, MUTED, ONE_SIDED, SKY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.subspaces import SubspaceOverlap

#: Token directions that a running mean goes over: this share of all, at least 3.
WINDOW = 1 / 24
#: Groups of neighbouring token directions that a map shows at most.
GROUPS = 64


def plot_subspaces(ax: Axes, found: SubspaceOverlap) -> None:
    """Draw how much of each token direction lies within the position subspace.

    Single directions scatter, by chance alone within the band, so that a running mean is drawn
    over them.
    """
    if not (found.rank and len(found.overlap)):
        nothing(ax, found.undefined["top"])
        return
    numbers = np.arange(1, len(found.overlap) + 1)
    low, high = found.chance.band
    ax.axhspan(low, high, color=GRID, linewidth=0, label="random subspace, 5 to 95 %")
    ax.axhline(found.chance.expected, color=MUTED, linewidth=0.8, linestyle=(0, (4, 2)))
    ax.plot(
        numbers, found.overlap, color=SKY, linestyle="none", marker="o", markersize=2,
        markeredgewidth=0, label="direction",
    )  # fmt: skip
    window = min(len(numbers), max(3, round(len(numbers) * WINDOW)))
    if len(numbers) > window:
        sums = np.cumsum(np.concatenate([[0.0], found.overlap]))
        means = (sums[window:] - sums[:-window]) / window
        middle = numbers[: len(means)] + (window - 1) / 2
        ax.plot(middle, means, color=BLUE, label=f"mean of {window}")
    _along_tokens(ax, len(numbers))
    ax.set_ylabel("share within positions")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, columnspacing=1.2)


def overlap_map(ax: Axes, found: SubspaceOverlap) -> None:
    """Draw where each position direction lies among the token directions.

    Neighbouring token directions are added up in groups. The colour says how many times as much of
    a position direction lies there as of a random one.
    """
    if not (found.rank and len(found.overlap)):
        nothing(ax, found.undefined["top"])
        return
    rank, count = found.matrix.shape
    size = -(-count // GROUPS)
    starts = np.arange(0, count, size)
    widths = np.diff(np.append(starts, count))
    shares = np.add.reduceat(found.matrix, starts, axis=1)
    times = shares * len(found.cosine_change) / widths
    image = ax.imshow(
        times, aspect="auto", interpolation="nearest", cmap=ONE_SIDED, vmin=0,
        extent=(0.5, len(starts) * size + 0.5, rank + 0.5, 0.5),
    )  # fmt: skip
    _along_tokens(ax, count)
    ax.set_ylabel("position direction")
    ax.figure.colorbar(image, ax=ax, label="times a random direction's share", aspect=30)


def _along_tokens(ax: Axes, count: int) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(0.5, count + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("token direction, by singular value")


@of_one
def overlap_figure(sheet: Sheet, found: SubspaceOverlap) -> Figure:
    """Draw the share of each token direction, and where position directions lie."""
    figure = sheet.figure(4.6)
    upper, lower = figure.subplots(2, 1)
    plot_subspaces(upper, found)
    overlap_map(lower, found)
    return figure
