"""Attention as measured: by offset, and to the first position or special tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import Builder, layer_axis, of_one
from posprobe.figures.profiles import image_of, page
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import BLUE, INK, LINES, ONE_SIDED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import AttentionByOffset


def plot_attention(ax: Axes, result: AttentionByOffset) -> None:
    """Draw the mean attention of every head by offset."""
    ax.figure.colorbar(_attention_image(ax, result), ax=ax, label="attention")


def _attention_image(ax: Axes, found: AttentionByOffset) -> AxesImage:
    """Draw the mean attention of every head by offset on one logarithmic range.

    It begins at a tenth of uniform attention; what lies below has the colour of its beginning, and
    offsets that attention never meets are grey.
    """
    from matplotlib.colors import LogNorm

    curves = {number: layer.curves for number, layer in found.layers.items()}
    top = max(float(np.nanmax(values)) for values in curves.values())
    low = min(0.1 / found.layout.size, top / 10)
    return image_of(
        ax, curves, found.layout, lambda rows: np.where(rows > 0, np.maximum(rows, low), np.nan),
        causal=found.causal, norm=LogNorm(low, top), cmap=ONE_SIDED,
    )  # fmt: skip


@of_one
def attention_figure(sheet: Sheet, found: AttentionByOffset) -> Figure:
    """Draw the mean attention of every head by offset."""
    counts = {number: len(layer.peak) for number, layer in found.layers.items()}
    return page(
        sheet, lambda ax: _attention_image(ax, found), counts, found.layout, "mean attention"
    )


@of_one
def first_figure(sheet: Sheet, found: AttentionByOffset) -> Figure:
    """Draw what every head pays to the first position, and to tokens that are not positions."""
    panels = receivers(found)
    shape = sheet.beside(len(panels))
    figure = sheet.figure(2.4 * shape[0], width=6.3 if len(panels) > 1 else 4.8)
    axes = figure.subplots(*shape, squeeze=False).ravel()
    for ax, (title, values, even) in zip(axes, panels, strict=True):
        _to_one_token(ax, values, even)
        ax.set_ylabel(f"mean attention to\n{title}")
    axes[0].legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    return figure


def receivers(found: AttentionByOffset) -> list[tuple[str, dict[int, Any], float | None]]:
    """List the tokens that attention is drawn to: what each head pays them, and an even share."""
    first = {k: layer.first for k, layer in found.layers.items() if not np.isnan(layer.first).any()}
    special = {k: layer.special for k, layer in found.layers.items() if layer.special.any()}
    panels: list[tuple[str, dict[int, Any], float | None]] = []
    if first:
        panels.append(("the first position", first, found.uniform_first))
    if special:
        panels.append(("tokens that are not positions", special, None))
    return panels


def _to_one_token(
    ax: Axes, layers: Mapping[int, NDArray[np.float64]], uniform: float | None
) -> None:
    """Draw what every head pays to one token, or some: a dot per head, a line for the mean."""
    for number, values in layers.items():
        side = number + 0.3 * np.linspace(-1, 1, len(values)) if len(values) > 1 else [number]
        ax.plot(side, values, ".", color=BLUE, markersize=2.5, alpha=0.7)
    means = [float(np.mean(values)) for values in layers.values()]
    ax.plot(list(layers), means, color=INK, label="mean over heads")
    if uniform is not None:
        ax.axhline(uniform, color=RED, linestyle=LINES[1][1], label="uniform attention")
    ax.plot([], [], ".", color=BLUE, markersize=4, label="a head")
    layer_axis(ax)
    ax.set_xlabel("layer")
    ax.set_ylim(-0.02, 1.02)


words_figure: Builder = attention_figure
