"""Heads by offset: an image of all of them, by their weights and by attention as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.models.head_logits import HeadLogits, HeadsByLayer
from posprobe.arrays import Floats
from posprobe.figures.common import Builder, Sheet, layer_axis, of_one, plain
from posprobe.figures.relative import MAX_HEADS, MAX_LAYERS, MAX_STRIPES, stripes, tiles
from posprobe.figures.styles import BLUE, DIVERGING, GRID, INK, LINES, ONE_SIDED, RED, gapped
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from posprobe.analyses import AttentionByOffset


#: Offsets to either side that a profile shows; twice as many before a causal query. On a grid rows
#: and columns to either side.
REACH, GRID_REACH = 16, 10


def _figure(sheet: Sheet, heads: Sequence[int], layout: Layout) -> Figure:
    """Make a figure for so many heads of each layer."""
    if isinstance(layout, Grid):
        n_columns = min(max(heads), MAX_HEADS)
        side = min((sheet.width - 1.1) / n_columns, 0.9)
        height = max(side * min(len(heads), MAX_LAYERS) + 0.5, 2.0)
        return sheet.figure(height, width=max(side * n_columns + 1.3, 3.2))
    rows = min(sum(heads), MAX_STRIPES)
    return sheet.figure(min(1.1 + max(0.09, 0.9 / rows) * rows, 7.0), width=5.4)


def _draw(
    ax: Axes,
    layers: Mapping[int, Floats],
    layout: Layout,
    label: str,
    *,
    causal: bool,
    **colors: Any,
) -> None:
    """Draw what `_near` returns of each layer: a row for each head, or a tile on a grid."""
    rows_by_name = {str(number): values for number, values in layers.items()}
    if isinstance(layout, Grid):
        image: ScalarMappable = tiles(ax, rows_by_name, **colors)
    else:
        width = next(iter(layers.values())).shape[1]
        first_offset = 1 - width if causal else -(width // 2)
        image = stripes(
            ax, {name: (first_offset, rows) for name, rows in rows_by_name.items()}, **colors
        )
        ax.set_xlabel("offset (key minus query)")
    noun = "layer" if len(layers) > 1 else f"head of layer {next(iter(rows_by_name))}"
    ax.set_ylabel(f"{noun}{ax.get_ylabel().removeprefix('head')}")
    plain(ax.figure.colorbar(image, ax=ax, label=label, aspect=30).ax.yaxis)


def _near(curves: Floats, *, causal: bool) -> Floats:
    """Cut ``[heads, 2n - 1]`` or ``[heads, 2h - 1, 2w - 1]`` to what lies near the query."""
    middle = [size // 2 for size in curves.shape[1:]]
    if len(middle) == 1:
        n_before = min(2 * REACH if causal else REACH, *middle)
        return curves[:, middle[0] - n_before : middle[0] + (0 if causal else n_before) + 1]
    return curves[:, *(slice(max(m - GRID_REACH, 0), m + GRID_REACH + 1) for m in middle)]


def plot_logits(ax: Axes, result: HeadLogits | HeadsByLayer) -> None:
    """Draw the mean logit of every head by offset: a row per head, or a tile per head on a grid.

    Each is shown less its mean over the offsets in sight and divided by what is then its largest
    magnitude, since heads differ in level and scale by orders.
    """
    layers = {0: result} if isinstance(result, HeadLogits) else result.layers
    first_layer = next(iter(layers.values()))
    near = {
        k: _levelled(_near(layer.curves, causal=first_layer.causal)) for k, layer in layers.items()
    }
    _draw(
        ax, near, first_layer.layout, "logit, centred and scaled", causal=first_layer.causal,
        vmin=-1.0,
        vmax=1.0, cmap=gapped(DIVERGING, GRID),
    )  # fmt: skip


def _levelled(rows: Floats) -> Floats:
    """Take the mean off each head's values and divide by their largest magnitude."""
    row_axes = tuple(range(1, rows.ndim))
    rows = rows - np.nanmean(rows, axis=row_axes, keepdims=True)
    size = np.nanmax(np.abs(rows), axis=row_axes, keepdims=True, initial=0.0)
    levelled: Floats = np.divide(rows, size, out=np.zeros_like(rows), where=size > 0)
    return levelled


@of_one
def heads_figure(sheet: Sheet, heads: HeadsByLayer) -> Figure:
    """Draw the logits of every head by offset."""
    first_layer = next(iter(heads.layers.values()))
    figure = _figure(
        sheet, [len(layer.peak) for layer in heads.layers.values()], first_layer.layout
    )
    plot_logits(figure.subplots(), heads)
    return figure


def plot_attention(ax: Axes, result: AttentionByOffset) -> None:
    """Draw the mean attention of every head by offset on one logarithmic range.

    It begins at a tenth of uniform attention; what lies below has the colour of its beginning, and
    offsets that attention never meets are grey.
    """
    from matplotlib.colors import LogNorm

    top = max(float(np.nanmax(layer.curves)) for layer in result.layers.values())
    low = min(0.1 / result.layout.size, top / 10)
    near_curves = {
        k: _near(layer.curves, causal=result.causal) for k, layer in result.layers.items()
    }
    positive_curves = {
        k: np.where(rows > 0, np.maximum(rows, low), np.nan) for k, rows in near_curves.items()
    }
    _draw(
        ax, positive_curves, result.layout, "mean attention", causal=result.causal,
        norm=LogNorm(low, top),
        cmap=gapped(ONE_SIDED, GRID),
    )  # fmt: skip


@of_one
def attention_figure(sheet: Sheet, attention: AttentionByOffset) -> Figure:
    """Draw the mean attention of every head by offset."""
    figure = _figure(
        sheet, [len(layer.peak) for layer in attention.layers.values()], attention.layout
    )
    plot_attention(figure.subplots(), attention)
    return figure


@of_one
def first_figure(sheet: Sheet, attention: AttentionByOffset) -> Figure:
    """Draw what every head pays to the first position, and to tokens that are not positions."""
    panels = receivers(attention)
    shape = sheet.beside(len(panels))
    figure = sheet.figure(2.4 * shape[0], width=6.3 if len(panels) > 1 else 4.8)
    axes = figure.subplots(*shape, squeeze=False).ravel()
    for ax, (title, values, uniform) in zip(axes, panels, strict=True):
        _to_one_token(ax, values, uniform)
        ax.set_ylabel(f"mean attention to\n{title}")
    axes[0].legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    return figure


def receivers(attention: AttentionByOffset) -> list[tuple[str, dict[int, Any], float | None]]:
    """List the tokens that attention is drawn to: what each head pays them, and an even share."""
    first_shares = {
        k: layer.first for k, layer in attention.layers.items() if not np.isnan(layer.first).any()
    }
    special = {k: layer.special for k, layer in attention.layers.items() if layer.special.any()}
    panels: list[tuple[str, dict[int, Any], float | None]] = []
    if first_shares:
        panels.append(("the first position", first_shares, attention.uniform_first))
    if special:
        panels.append(("tokens that are not positions", special, None))
    return panels


def _to_one_token(ax: Axes, layers: Mapping[int, Floats], uniform: float | None) -> None:
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
