"""Values of every head by offset: a row of an image per head, or a tile on a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import plain, spread
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import DIVERGING, GRID, INK
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

#: Offsets to either side that a profile shows; twice as many before a causal query. On a grid rows
#: and columns to either side.
REACH, GRID_REACH = 16, 10
#: Rows of an image of profiles, and on a grid layers and heads of a mosaic, that are drawn at most.
MAX_ROWS, MAX_LAYERS, MAX_HEADS = 256, 12, 16


def page(
    sheet: Sheet, draw: Callable[[Axes], Any], heads: Mapping[int, int], layout: Layout, label: str
) -> Figure:
    """Make a figure of one image of profiles.

    Parameters
    ----------
    sheet
        The figure's.
    draw
        Draws the image into Axes.
    heads
        How many there are, by layer.
    layout
        Of the positions.
    label
        What the colours are.
    """
    if isinstance(layout, Grid):
        across = min(max(heads.values()), MAX_HEADS)
        side = min((sheet.width - 1.1) / across, 0.9)
        height = max(side * min(len(heads), MAX_LAYERS) + 0.5, 2.0)
        figure = sheet.figure(height, width=max(side * across + 1.3, 3.2))
    else:
        rows = min(sum(heads.values()), MAX_ROWS)
        figure = sheet.figure(min(1.1 + max(0.09, 0.9 / rows) * rows, 7.0), width=5.4)
    ax = figure.subplots()
    plain(figure.colorbar(draw(ax), ax=ax, label=label, aspect=30).ax.yaxis)
    return figure


def image_of(
    ax: Axes,
    layers: Mapping[int, NDArray[np.float64]],
    layout: Layout,
    prepared: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    causal: bool,
    **colors: Any,
) -> AxesImage:
    """Draw the profiles of some layers, and say how many are left out.

    Parameters
    ----------
    ax
        To draw into.
    layers
        ``[heads, 2n - 1]`` or ``[heads, 2h - 1, 2w - 1]`` by number.
    layout
        Of the positions.
    prepared
        Turns the values in sight into those that are drawn.
    causal
        Whether later keys are hidden.
    colors
        Colour map and range.
    """
    rows = max(2, MAX_ROWS // max(map(len, layers.values())))
    chosen = spread(list(layers), MAX_LAYERS if isinstance(layout, Grid) else rows)
    shown = {number: layers[number] for number in chosen}
    if isinstance(layout, Grid):
        image = _tiles(ax, shown, prepared, **colors)
    else:
        image = _stripes(ax, shown, prepared, causal=causal, **colors)
    part = f" ({len(shown)} of {len(layers)} shown)" if len(shown) < len(layers) else ""
    ax.set_ylabel(f"layer{part}" if len(layers) > 1 else f"head of layer {chosen[0]}")
    return image


def _stripes(
    ax: Axes,
    layers: Mapping[int, NDArray[np.float64]],
    prepared: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    causal: bool,
    **colors: Any,
) -> AxesImage:
    """Draw a row per head, layers apart."""
    middle = next(iter(layers.values())).shape[1] // 2
    before = min(2 * REACH if causal else REACH, middle)
    after = 0 if causal else before
    rows = [prepared(values[:, middle - before : middle + after + 1]) for values in layers.values()]
    counts = [len(part) for part in rows]
    ends = np.cumsum(counts)
    image = ax.imshow(
        np.concatenate(rows),
        aspect="auto",
        extent=(-before - 0.5, after + 0.5, ends[-1] - 0.5, -0.5),
        **_greyed(colors),
    )
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color=INK if colors["cmap"] == DIVERGING else "white", linewidth=0.8)
    if len(counts) == 1:
        every = -(-counts[0] // 12)
        ax.set_yticks(range(0, counts[0], every))
    elif ends[-1] <= 24:
        heads = [(number, k) for number, values in layers.items() for k in range(len(values))]
        ax.set_yticks(range(ends[-1]), [f"{number}.{head}" for number, head in heads])
    else:
        every = -(-len(counts) // 24)
        middles = (ends - (np.array(counts) + 1) / 2)[::every]
        ax.set_yticks(middles, [str(number) for number in list(layers)[::every]])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("offset (key minus query)")
    return image


def _tiles(
    ax: Axes,
    layers: Mapping[int, NDArray[np.float64]],
    prepared: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    **colors: Any,
) -> AxesImage:
    """Draw a tile per head by displacement, the query in the middle: layers down, heads across."""
    first = next(iter(layers.values()))
    middle = [size // 2 for size in first.shape[1:]]
    reach = [min(GRID_REACH, size) for size in middle]
    cut = [slice(m - r, m + r + 1) for m, r in zip(middle, reach, strict=True)]
    height, width = (2 * r + 1 for r in reach)
    across = min(max(len(values) for values in layers.values()), MAX_HEADS)
    canvas = np.full((len(layers) * (height + 1) - 1, across * (width + 1) - 1), np.nan)
    for row, values in enumerate(layers.values()):
        for head, tile in enumerate(prepared(values[:across, *cut])):
            top, left = row * (height + 1), head * (width + 1)
            canvas[top : top + height, left : left + width] = tile
    image = ax.imshow(canvas, **colors)
    ax.set_xticks((width - 1) / 2 + (width + 1) * np.arange(across), map(str, range(across)))
    ax.set_yticks((height - 1) / 2 + (height + 1) * np.arange(len(layers)), map(str, layers))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    heads = max(len(values) for values in layers.values())
    ax.set_xlabel("head" + (f" (the first {across} of {heads})" if heads > across else ""))
    return image


def _greyed(colors: Mapping[str, Any]) -> dict[str, Any]:
    """Have offsets that attention never meets in grey."""
    from matplotlib import colormaps

    return dict(colors) | {"cmap": colormaps[colors["cmap"]].with_extremes(bad=GRID)}
