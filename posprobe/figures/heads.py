"""Attention of the heads of a model by offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.arrays import Floats
from posprobe.figures.common import (
    Builder,
    FigureFormat,
    label_decades,
    label_layer_axis,
    single_result,
)
from posprobe.figures.relative import (
    MAX_MOSAIC_HEADS,
    MAX_MOSAIC_LAYERS,
    MAX_STRIPES,
    plot_stripes,
    plot_tiles,
)
from posprobe.figures.styles import (
    BLUE,
    INK,
    LINE_STYLES,
    ONE_SIDED_COLORMAP,
    PALE,
    RED,
    colormap_with_gaps,
)
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from posprobe.analyses import AttentionByOffset


#: Offsets drawn to either side of the query; twice as many are drawn before a causal query.
PROFILE_OFFSETS = 16
#: Rows and columns drawn to either side of the query on a grid.
GRID_PROFILE_OFFSETS = 10


def _make_heads_figure(
    figure_format: FigureFormat, layers: Mapping[int, Any], layout: Layout
) -> Figure:
    """Make a figure for the heads of some layers, which have an offset ``peak`` each."""
    heads = [len(layer.peak) for layer in layers.values()]
    if isinstance(layout, Grid):
        n_columns = min(max(heads), MAX_MOSAIC_HEADS)
        side = min((figure_format.width - 1.1) / n_columns, 0.9)
        height = max(side * min(len(heads), MAX_MOSAIC_LAYERS) + 0.5, 2.0)
        return figure_format.make_figure(height, width=max(side * n_columns + 1.3, 3.2))
    rows = min(sum(heads), MAX_STRIPES)
    return figure_format.make_figure(
        min(1.1 + max(0.09, 0.9 / rows) * rows, 7.0), width=5.4
    )


def _plot_layers(
    ax: Axes,
    layers: Mapping[int, Floats],
    layout: Layout,
    label: str,
    *,
    causal: bool,
    **colors: Any,
) -> None:
    """Draw curves near the query: a row for each head, or a tile for each head on a grid."""
    rows_by_name = {str(number): values for number, values in layers.items()}
    if isinstance(layout, Grid):
        image: ScalarMappable = plot_tiles(ax, rows_by_name, **colors)
    else:
        width = next(iter(layers.values())).shape[1]
        first_offset = 1 - width if causal else -(width // 2)
        image = plot_stripes(
            ax,
            {name: (first_offset, rows) for name, rows in rows_by_name.items()},
            **colors,
        )
        ax.set_xlabel("offset (key minus query)")
    noun = "layer" if len(layers) > 1 else f"head of layer {next(iter(rows_by_name))}"
    ax.set_ylabel(f"{noun}{ax.get_ylabel().removeprefix('head')}")
    label_decades(ax.figure.colorbar(image, ax=ax, label=label, aspect=30).ax.yaxis)


def _cut_near_query(curves: Floats, *, causal: bool) -> Floats:
    """Cut ``[heads, 2n - 1]`` or ``[heads, 2h - 1, 2w - 1]`` to offsets near the query."""
    middle = [size // 2 for size in curves.shape[1:]]
    if len(middle) == 1:
        n_before = min(2 * PROFILE_OFFSETS if causal else PROFILE_OFFSETS, *middle)
        return curves[
            :, middle[0] - n_before : middle[0] + (0 if causal else n_before) + 1
        ]
    return curves[
        :,
        *(
            slice(max(m - GRID_PROFILE_OFFSETS, 0), m + GRID_PROFILE_OFFSETS + 1)
            for m in middle
        ),
    ]


def plot_attention(ax: Axes, result: AttentionByOffset) -> None:
    """Draw the mean attention of every head by offset on one logarithmic range.

    It begins at a tenth of uniform attention; what lies below has the colour of its beginning, and
    offsets that attention never meets are grey.
    """
    from matplotlib.colors import LogNorm

    top = max(float(np.nanmax(layer.curves)) for layer in result.layers.values())
    low = min(0.1 / result.layout.size, top / 10)
    near_curves = {
        k: _cut_near_query(layer.curves, causal=result.causal)
        for k, layer in result.layers.items()
    }
    positive_curves = {
        k: np.where(rows > 0, np.maximum(rows, low), np.nan)
        for k, rows in near_curves.items()
    }
    _plot_layers(
        ax,
        positive_curves,
        result.layout,
        "mean attention",
        causal=result.causal,
        norm=LogNorm(low, top),
        cmap=colormap_with_gaps(ONE_SIDED_COLORMAP, PALE),
    )


@single_result
def attention_figure(figure_format: FigureFormat, attention: AttentionByOffset) -> Figure:
    """Draw the mean attention of every head by offset."""
    figure = _make_heads_figure(figure_format, attention.layers, attention.layout)
    plot_attention(figure.subplots(), attention)
    return figure


@single_result
def first_figure(figure_format: FigureFormat, attention: AttentionByOffset) -> Figure:
    """Draw every head's attention to the first position, and to tokens without a position."""
    panels = list_receivers(attention)
    shape = figure_format.arrange_panels(len(panels))
    figure = figure_format.make_figure(
        2.4 * shape[0], width=6.3 if len(panels) > 1 else 4.8
    )
    axes = figure.subplots(*shape, squeeze=False).ravel()
    for ax, (title, values, uniform) in zip(axes, panels, strict=True):
        _plot_received(ax, values, uniform)
        ax.set_ylabel(f"mean attention to\n{title}")
    axes[0].legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    return figure


def list_receivers(
    attention: AttentionByOffset,
) -> list[tuple[str, dict[int, Any], float | None]]:
    """List the tokens whose attention is drawn: title, attention per layer, uniform attention."""
    first_shares = {
        k: layer.first
        for k, layer in attention.layers.items()
        if not np.isnan(layer.first).any()
    }
    special = {
        k: layer.special for k, layer in attention.layers.items() if layer.special.any()
    }
    panels: list[tuple[str, dict[int, Any], float | None]] = []
    if first_shares:
        panels.append(("the first position", first_shares, attention.uniform_first))
    if special:
        panels.append(("tokens that are not positions", special, None))
    return panels


def _plot_received(ax: Axes, layers: Mapping[int, Floats], uniform: float | None) -> None:
    """Draw every head's attention to some tokens: a dot per head, a line for the mean."""
    for number, values in layers.items():
        side = (
            number + 0.3 * np.linspace(-1, 1, len(values))
            if len(values) > 1
            else [number]
        )
        ax.plot(side, values, ".", color=BLUE, markersize=2.5, alpha=0.7)
    means = [float(np.mean(values)) for values in layers.values()]
    ax.plot(list(layers), means, color=INK, label="mean over heads")
    if uniform is not None:
        ax.axhline(
            uniform, color=RED, linestyle=LINE_STYLES[1][1], label="uniform attention"
        )
    ax.plot([], [], ".", color=BLUE, markersize=4, label="a head")
    label_layer_axis(ax)
    ax.set_xlabel("layer")
    ax.set_ylim(-0.02, 1.02)


words_figure: Builder = attention_figure
