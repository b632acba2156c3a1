"""Values of every head by offset or displacement: curves, stripes and tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.figures.common import (
    FigureExtras,
    FigureFormat,
    annotate_point,
    balance_panels,
    pick_evenly,
)
from posprobe.figures.styles import (
    DIVERGING_COLORMAP,
    LINE_STYLES,
    MUTED,
    SIGNED_COLORMAP,
)
from posprobe.layouts import Grid
from posprobe.schemes import MAX_KERNEL_ROWS, RelativeBias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Heads

#: Most heads whose curves can be told apart in one plot.
MAX_HEAD_CURVES = 6
#: At most this many heads get a column of a mosaic.
MAX_MOSAIC_HEADS = 16
#: At most this many layers get a row of a mosaic.
MAX_MOSAIC_LAYERS = 24
#: At most this many heads get a stripe.
MAX_STRIPES = 192
#: Larger distances are drawn on a logarithmic axis.
MAX_LINEAR_REACH = 64
#: The logarithmic axis is linear up to this distance.
LINEAR_PART_POSITIONS = 8
#: Height that the label of a colour bar needs.
MIN_COLORBAR_INCHES = 2.0
#: Labels of axes by the quantity that is drawn.
QUANTITY_LABELS = {"bias": "bias (logits)", "cosine": "cosine with distance 0"}
#: Labels of colour bars; a head's mean bias is removed, since it changes no attention.
CENTRED_QUANTITY_LABELS = {
    "bias": "bias less the head's mean (logits)",
    "cosine": "cosine with distance 0",
}

#: Values of the heads of an encoding ``[heads, 2n - 1]`` or ``[heads, 2h - 1, 2w - 1]`` and the
#: record that describes them, by the name of the encoding.
_CurvesByName: TypeAlias = "Mapping[str, tuple[Floats, Heads | RelativeBias]]"


def plot_heads(ax: Axes, result: Heads | RelativeBias) -> None:
    """Draw every head: its curve or stripe by offset, or a tile by displacement."""
    if isinstance(result, RelativeBias):
        curves = result.curves(min(result.layout.size, MAX_KERNEL_ROWS))
    else:
        curves = result.curves
    _plot_encodings(ax, {"": (curves, result)})


def heads_figure(
    figure_format: FigureFormat, results: Mapping[str, Heads], _: FigureExtras
) -> Figure:
    """Draw every head of encodings of one kind, as curves, stripes or a mosaic."""
    heads = [len(record.curves) for record in results.values()]
    drawing = choose_drawing(results)
    if drawing == "mosaic":
        max_heads = min(max(heads), MAX_MOSAIC_HEADS)
        rows, n_columns = (
            balance_panels(max_heads, 4) if len(heads) == 1 else (len(heads), max_heads)
        )
        side = min((figure_format.width - 1.6) / n_columns, 0.8)
        height = max(side * min(rows, MAX_MOSAIC_LAYERS) + 0.7, MIN_COLORBAR_INCHES)
        figure = figure_format.make_figure(
            height, width=max(side * n_columns + 2.0, 4.6), compressed=True
        )
    else:
        height = max(0.08 * sum(heads), 0.2 * len(heads), 1.5) + 0.6
        figure = figure_format.make_figure(
            2.4 if drawing == "curves" else min(height, 7.5)
        )
    ax = figure.subplots()
    _plot_encodings(
        ax, {name: (record.curves, record) for name, record in results.items()}
    )
    if len(results) == 1 and not figure_format.is_exact:
        ax.set_title(next(iter(results)))
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>":
            # The label of the colour bar is longer than a low figure is high.
            axes.set_ylabel(fill(axes.get_ylabel(), 20))
    return figure


def choose_drawing(results: Mapping[str, Heads]) -> str:
    """Choose ``curves``, ``stripes`` or ``mosaic`` by the number of heads and the layout."""
    first_record = next(iter(results.values()))
    if isinstance(first_record.layout, Grid):
        return "mosaic"
    return (
        "curves"
        if len(results) == 1 and len(first_record.curves) <= MAX_HEAD_CURVES
        else "stripes"
    )


def _plot_encodings(ax: Axes, curves_by_name: _CurvesByName) -> None:
    (curves, record), *other_curves = curves_by_name.values()
    if isinstance(record.layout, Grid):
        image: AxesImage | QuadMesh = _plot_heads_as_tiles(ax, curves_by_name)
    elif other_curves or len(curves) > MAX_HEAD_CURVES:
        image = _plot_heads_as_stripes(ax, curves_by_name)
    else:
        _plot_curves(ax, curves, record)
        return
    ax.figure.colorbar(
        image, ax=ax, label=CENTRED_QUANTITY_LABELS[record.quantity], aspect=30
    )


def _visible_offsets(
    curves: Floats, record: Heads | RelativeBias
) -> tuple[NDArray[np.int64], Floats]:
    """Return the offsets ``[k]`` that a query sees, and the values there, ``[heads, k]``."""
    n = curves.shape[1] // 2 + 1
    stop = n if record.causal else 2 * n - 1
    return np.arange(1 - n, n)[:stop], curves[:, :stop]


def _plot_curves(ax: Axes, curves: Floats, record: Heads | RelativeBias) -> None:
    """Draw the curve of every head by offset."""
    offset, values = _visible_offsets(curves, record)
    for head, (curve, (color, dash)) in enumerate(zip(values, LINE_STYLES, strict=False)):
        ax.plot(offset, curve, color=color, linestyle=dash, label=f"head {head}")
    ax.legend(loc="best", ncols=2)
    ax.set(xlabel=_offset_label(record), ylabel=QUANTITY_LABELS[record.quantity])
    _label_offset_axis(ax, len(curves[0]) // 2, causal=record.causal)


def _offset_label(*records: Heads | RelativeBias) -> str:
    units = " or ".join(dict.fromkeys(record.unit for record in records))
    return f"offset (key minus query, {units})"


def _label_offset_axis(ax: Axes, reach: int, *, causal: bool) -> None:
    """Label offsets, on an axis that is logarithmic to either side where they are large."""
    margin = 0.02 * reach or 1.0
    if reach > MAX_LINEAR_REACH:
        ax.set_xscale("symlog", linthresh=LINEAR_PART_POSITIONS, linscale=1, base=2)
        decades = [
            LINEAR_PART_POSITIONS * 8**power
            for power in range(8)
            if LINEAR_PART_POSITIONS * 8**power <= reach / 6
        ]
        decades.append(reach)
        marks = [-mark for mark in decades[::-1]] + [0] + ([] if causal else decades)
        ax.set_xticks(marks, [f"{mark}".replace("-", "\N{MINUS SIGN}") for mark in marks])
        ax.set_xticks([], minor=True)
        margin = 0.15 * reach
    ax.set_xlim(-reach - margin, LINEAR_PART_POSITIONS / 4 if causal else reach + margin)


def _centre_biases(curves: Floats, record: Heads | RelativeBias) -> Floats:
    """Return biases less each head's mean, which changes no attention; cosines as they are."""
    if record.quantity == "cosine":
        return curves
    offset_axes = tuple(range(1, curves.ndim))
    return np.asarray(curves - curves.mean(axis=offset_axes, keepdims=True))


def _color_limits(values: Mapping[str, Floats], quantity: str) -> dict[str, Any]:
    """Return colours and limits around 0 of all heads; cosines end at 1."""
    if quantity == "cosine":
        return {"cmap": DIVERGING_COLORMAP, "vmin": -1, "vmax": 1}
    limit = max(float(np.abs(rows).max()) for rows in values.values()) or 1.0
    return {"cmap": SIGNED_COLORMAP, "vmin": -limit, "vmax": limit}


def _plot_heads_as_tiles(ax: Axes, curves_by_name: _CurvesByName) -> AxesImage:
    """Draw a row of tiles for each encoding; a single encoding is broken into several rows."""
    (curves, record), *other_curves = curves_by_name.values()
    rows = {
        name: _centre_biases(*curves_and_record)
        for name, curves_and_record in curves_by_name.items()
    }
    if not other_curves:
        heads = _centre_biases(curves, record)[:MAX_MOSAIC_HEADS]
        _, columns = balance_panels(len(heads), 4)
        starts = range(0, len(heads), columns)
        rows = {
            f"{k} +" if len(starts) > 1 else "": heads[k : k + columns] for k in starts
        }
    return plot_tiles(ax, rows, **_color_limits(rows, record.quantity))


def _plot_heads_as_stripes(ax: Axes, curves_by_name: _CurvesByName) -> QuadMesh:
    """Draw a stripe per head of encodings on a line: its values by offset."""
    rows = {
        name: _visible_offsets(_centre_biases(*curves_and_record), curves_and_record[1])
        for name, curves_and_record in curves_by_name.items()
    }
    records = [record for _, record in curves_by_name.values()]
    colors = _color_limits(
        {name: values for name, (_, values) in rows.items()}, records[0].quantity
    )
    image = plot_stripes(
        ax,
        {name: (int(offset[0]), values) for name, (offset, values) in rows.items()},
        **colors,
    )
    limits = ax.get_xlim()
    reach = max(-int(offset[0]) for offset, _ in rows.values())
    _label_offset_axis(ax, reach, causal=all(record.causal for record in records))
    ax.set_xlim(limits)
    ax.set_xlabel(fill(_offset_label(*records), 80))
    return image


def plot_tiles(ax: Axes, layers: Mapping[str, Floats], **colors: Any) -> AxesImage:
    """Draw rows of maps by displacement as tiles of one size, the query in the middle of each.

    Windows of several sizes are drawn at one size. Beyond `MAX_MOSAIC_LAYERS` rows, every k-th is
    drawn, and of each row the first `MAX_MOSAIC_HEADS` heads; labels say so.

    Parameters
    ----------
    ax
        Axes to draw into.
    layers
        Maps of the heads by the name of their row: ``[heads, 2h - 1, 2w - 1]``.
    colors
        Colour map and limits.
    """
    stride = math.ceil(len(layers) / MAX_MOSAIC_LAYERS)
    visible_layers = {
        name: layers[name][:MAX_MOSAIC_HEADS] for name in list(layers)[::stride]
    }
    shapes = [tile.shape for row in visible_layers.values() for tile in row]
    height, width = shapes[0]
    if len({*shapes}) > 1:
        height = width = 2 * max(side for shape in shapes for side in shape)
    gap = max(max(height, width) // 12, 1)
    n_rows = len(visible_layers)
    n_columns = max(map(len, visible_layers.values()))
    canvas = np.full((n_rows, height + gap, n_columns, width + gap), np.nan)
    for i, row in enumerate(visible_layers.values()):
        for j, tile in enumerate(row):
            tile_height, tile_width = tile.shape
            tile_rows = np.arange(height) * tile_height // height
            tile_columns = np.arange(width) * tile_width // width
            canvas[i, :height, j, :width] = tile[np.ix_(tile_rows, tile_columns)]
    image = ax.imshow(canvas.reshape(n_rows * (height + gap), -1)[:-gap, :-gap], **colors)
    x_centres = (width - 1) / 2 + (width + gap) * np.arange(n_columns)
    y_centres = (height - 1) / 2 + (height + gap) * np.arange(n_rows)
    ax.set_xticks(x_centres, map(str, range(n_columns)))
    ax.set_yticks(y_centres, list(visible_layers))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for tick, name in zip(ax.get_yticks(), visible_layers, strict=True):
        if n_hidden := len(layers[name]) - len(visible_layers[name]):
            annotate_point(
                ax,
                f"+{n_hidden}",
                (1, tick),
                (2, 0),
                va="center",
                xycoords=("axes fraction", "data"),
                color=MUTED,
            )
    cut = max(map(len, layers.values())) > MAX_MOSAIC_HEADS
    ax.set_xlabel("head" + (" (+: further heads, not drawn)" if cut else ""))
    ax.set_ylabel(f"one row in {stride} is drawn" if stride > 1 else "")
    return image


def plot_stripes(
    ax: Axes, layers: Mapping[str, tuple[int, Floats]], **colors: Any
) -> QuadMesh:
    """Draw a stripe per head by offset, with lines between layers, on one range.

    Beyond `MAX_STRIPES` heads, every k-th is drawn, as the label says.

    Parameters
    ----------
    ax
        Axes to draw into.
    layers
        First offset, and ``[heads, k]`` from there on, by name.
    colors
        Colour map and range.
    """
    first_offset = min(first for first, _ in layers.values())
    stop = max(first + rows.shape[1] for first, rows in layers.values())
    ends = [0, *np.cumsum([len(rows) for _, rows in layers.values()]).tolist()]
    values = np.full((ends[-1], stop - first_offset), np.nan)
    for (first, rows), (low, high) in zip(layers.values(), pairwise(ends), strict=True):
        values[low:high, first - first_offset : first - first_offset + rows.shape[1]] = (
            rows
        )
    stride = math.ceil(ends[-1] / MAX_STRIPES)
    edges = np.append(np.arange(0, ends[-1], stride), ends[-1])
    image = ax.pcolormesh(
        np.arange(first_offset, stop + 1) - 0.5,
        edges,
        values[::stride],
        rasterized=True,
        **colors,
    )
    for end in ends[1:-1]:
        ax.axhline(end, color="white", linewidth=0.8)
    if len(layers) == 1:
        ax.set_yticks([head + 0.5 for head in range(0, ends[-1], -(-ends[-1] // 12))])
        ax.yaxis.set_major_formatter(lambda value, _: str(int(value)))
    else:
        labelled = pick_evenly([*zip(layers, pairwise(ends), strict=True)], 24)
        ax.set_yticks(
            [(low + high) / 2 for _, (low, high) in labelled],
            [name for name, _ in labelled],
        )
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(ends[-1], 0)
    ax.set_ylabel("head" + (f" (one in {stride} is drawn)" if stride > 1 else ""))
    ax.spines[:].set_visible(False)
    return image
