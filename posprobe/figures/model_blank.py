"""Images without content: what tells their patches apart, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import layer_axis, of_one, spread
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import LINES, MUTED, ONE_SIDED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses.experiments import BlankImages


#: Layers that get a map each.
PANELS = 6


def plot_blank(ax: Axes, found: BlankImages) -> None:
    """Draw the mean cosine of the patches' states with the position table by layer."""
    _patterns(ax, found, "alignment")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set_ylim(-1.05, 1.05)
    ax.set_ylabel("cosine with the table")
    ax.legend(loc="best")


def _share(ax: Axes, found: BlankImages) -> None:
    """Draw which share of the states' squared norm differs between patches by layer."""
    _patterns(ax, found, "share")
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("share between patches")


def _patterns(ax: Axes, found: BlankImages, number: str) -> None:
    kinds = (("constant", found.constant), ("noise", found.noise))
    for (label, patterns), (color, dash), marker in zip(kinds, LINES, "os", strict=False):
        values = np.array([getattr(each, number) for each in patterns.values()], dtype=float)
        ax.plot(
            list(patterns), values, color=color, linestyle=dash, marker=marker, markersize=3,
            label=label,
        )  # fmt: skip
    layer_axis(ax)


def _maps(figure: Any, found: BlankImages, layers: list[int]) -> None:
    """Draw how far each patch of an image without content lies from the mean, at some layers.

    Every map is drawn over its own largest norm, since norms grow along the layers.
    """
    kinds = {"constant": found.constant, "noise": found.noise}
    axes = figure.subplots(len(kinds), len(layers), squeeze=False)
    for row, (kind, patterns) in zip(axes, kinds.items(), strict=True):
        for ax, number in zip(row, layers, strict=True):
            norms = patterns[number].norms
            image = ax.imshow(norms / (norms.max() or 1.0), cmap=ONE_SIDED, vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if patterns is found.constant:
                ax.set_title(f"layer {number}", pad=2)
        row[0].set_ylabel(kind)
    figure.colorbar(image, ax=axes, label="norm over the largest", aspect=30)


@of_one
def blank_figure(sheet: Sheet, found: BlankImages) -> Figure:
    """Draw each patch of both images at some layers, and the patterns' share and alignment."""
    layers = spread(list(found.constant), 3 if sheet.narrow else PANELS)
    figure = sheet.figure(4.6)
    halves: Any = figure.subfigures(2, 1, height_ratios=(2.4 if len(layers) > 3 else 3, 2))
    _maps(halves[0], found, layers)
    left, right = halves[1].subplots(1, 2)
    plot_blank(left, found)
    _share(right, found)
    return figure
