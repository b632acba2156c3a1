"""Heads by offset: an image of all of them, by their weights and by attention as measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.head_logits import HeadLogits, HeadsByLayer
from posprobe.figures.common import Builder, Sheet, layer_axis, of_one, plain, spread, whole
from posprobe.figures.styles import BLUE, DIVERGING, GRID, INK, LINES, ONE_SIDED, RED
from posprobe.layouts import Grid, Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import AttentionByOffset


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
