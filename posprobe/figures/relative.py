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
from posprobe.figures.common import Baselines, Sheet, balanced, note, spread
from posprobe.figures.styles import DIVERGING, LINES, MUTED, SIGNED
from posprobe.layouts import Grid
from posprobe.schemes import MAX_KERNEL, RelativeBias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Heads

#: Most heads that get a column of a mosaic.
MAX_HEADS = 16
#: Most layers that get a row of a mosaic, and most rows of stripes.
MAX_LAYERS, MAX_STRIPES = 24, 192
#: Reach beyond which distances are drawn on a logarithmic axis, and where its linear part ends.
LOGARITHMIC, LINEAR = 64, 8
#: Height in inches that the label of a colour bar needs.
LABEL = 2.0
#: What a value is, on axes; the constant that a head adds to all logits changes no attention.
QUANTITY = {"bias": "bias (logits)", "cosine": "cosine with distance 0"}
CENTRED = {"bias": "bias less the head's mean (logits)", "cosine": "cosine with distance 0"}

#: Values of the heads of an encoding ``[heads, 2n - 1]`` or ``[heads, 2h - 1, 2w - 1]``, by the
#: name of the encoding, with what says of what they are.
_CurvesByName: TypeAlias = "Mapping[str, tuple[Floats, Heads | RelativeBias]]"


def plot_heads(ax: Axes, result: Heads | RelativeBias) -> None:
    """Draw every head: its curve or stripe by offset, or a tile by displacement."""
    if isinstance(result, RelativeBias):
        curves = result.curves(min(result.layout.size, MAX_KERNEL))
    else:
        curves = result.curves
    _draw(ax, {"": (curves, result)})


def heads_figure(sheet: Sheet, results: Mapping[str, Heads], _: Baselines) -> Figure:
    """Draw every head of encodings of one kind, in the way that suits so many."""
    heads = [len(record.curves) for record in results.values()]
    kind = suited(results)
    if kind == "mosaic":
        max_heads = min(max(heads), MAX_HEADS)
        rows, n_columns = balanced(max_heads, 4) if len(heads) == 1 else (len(heads), max_heads)
        side = min((sheet.width - 1.6) / n_columns, 0.8)
        height = max(side * min(rows, MAX_LAYERS) + 0.7, LABEL)
        figure = sheet.figure(height, width=max(side * n_columns + 2.0, 4.6), compressed=True)
    else:
        height = max(0.08 * sum(heads), 0.2 * len(heads), 1.5) + 0.6
        figure = sheet.figure(2.4 if kind == "curves" else min(height, 7.5))
    ax = figure.subplots()
    _draw(ax, {name: (record.curves, record) for name, record in results.items()})
    if len(results) == 1 and not sheet.exact:
        ax.set_title(next(iter(results)))
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>":
            # Its label is longer than a low figure is high.
            axes.set_ylabel(fill(axes.get_ylabel(), 20))
    return figure


def suited(results: Mapping[str, Heads]) -> str:
    """Name the drawing that so many heads can be read in."""
    first_record = next(iter(results.values()))
    if isinstance(first_record.layout, Grid):
        return "mosaic"
    return "curves" if len(results) == 1 and len(first_record.curves) <= len(LINES) else "stripes"


def _draw(ax: Axes, curves_by_name: _CurvesByName) -> None:
    (curves, record), *other_curves = curves_by_name.values()
    if isinstance(record.layout, Grid):
        image: AxesImage | QuadMesh = _tiles(ax, curves_by_name)
    elif other_curves or len(curves) > len(LINES):
        image = _stripes(ax, curves_by_name)
    else:
        _curves(ax, curves, record)
        return
    ax.figure.colorbar(image, ax=ax, label=CENTRED[record.quantity], aspect=30)


def _seen(curves: Floats, record: Heads | RelativeBias) -> tuple[NDArray[np.int64], Floats]:
    """Return the offsets on a line that attention meets, and the values there, ``[heads, k]``."""
    n = curves.shape[1] // 2 + 1
    stop = n if record.causal else 2 * n - 1
    return np.arange(1 - n, n)[:stop], curves[:, :stop]


def _curves(ax: Axes, curves: Floats, record: Heads | RelativeBias) -> None:
    """Draw the curve of every head by offset."""
    offset, values = _seen(curves, record)
    for head, (curve, (color, dash)) in enumerate(zip(values, LINES, strict=False)):
        ax.plot(offset, curve, color=color, linestyle=dash, label=f"head {head}")
    ax.legend(loc="best", ncols=2)
    ax.set(xlabel=_offset_label(record), ylabel=QUANTITY[record.quantity])
    _offset_axis(ax, len(curves[0]) // 2, causal=record.causal)


def _offset_label(*records: Heads | RelativeBias) -> str:
    units = " or ".join(dict.fromkeys(record.unit for record in records))
    return f"offset (key minus query, {units})"


def _offset_axis(ax: Axes, reach: int, *, causal: bool) -> None:
    """Mark offsets, far ones on a logarithmic axis to either side."""
    margin = 0.02 * reach or 1.0
    if reach > LOGARITHMIC:
        ax.set_xscale("symlog", linthresh=LINEAR, linscale=1, base=2)
        decades = [LINEAR * 8**power for power in range(8) if LINEAR * 8**power <= reach / 6]
        decades.append(reach)
        marks = [-mark for mark in decades[::-1]] + [0] + ([] if causal else decades)
        ax.set_xticks(marks, [f"{mark}".replace("-", "\N{MINUS SIGN}") for mark in marks])
        ax.set_xticks([], minor=True)
        margin = 0.15 * reach
    ax.set_xlim(-reach - margin, LINEAR / 4 if causal else reach + margin)


def _centred(curves: Floats, record: Heads | RelativeBias) -> Floats:
    """Return biases less each head's mean, which changes no attention; cosines as they are."""
    if record.quantity == "cosine":
        return curves
    offset_axes = tuple(range(1, curves.ndim))
    return np.asarray(curves - curves.mean(axis=offset_axes, keepdims=True))


def _colors(values: Mapping[str, Floats], quantity: str) -> dict[str, Any]:
    """Return colours and limits around 0 of all heads; cosines end at 1."""
    if quantity == "cosine":
        return {"cmap": DIVERGING, "vmin": -1, "vmax": 1}
    limit = max(float(np.abs(rows).max()) for rows in values.values()) or 1.0
    return {"cmap": SIGNED, "vmin": -limit, "vmax": limit}


def _tiles(ax: Axes, curves_by_name: _CurvesByName) -> AxesImage:
    """Draw a row of tiles for each encoding; the heads of a single one in as many as suit."""
    (curves, record), *other_curves = curves_by_name.values()
    rows = {
        name: _centred(*curves_and_record) for name, curves_and_record in curves_by_name.items()
    }
    if not other_curves:
        heads = _centred(curves, record)[:MAX_HEADS]
        _, columns = balanced(len(heads), 4)
        starts = range(0, len(heads), columns)
        rows = {f"{k} +" if len(starts) > 1 else "": heads[k : k + columns] for k in starts}
    return tiles(ax, rows, **_colors(rows, record.quantity))


def _stripes(ax: Axes, curves_by_name: _CurvesByName) -> QuadMesh:
    """Draw a stripe per head of encodings on a line: its values by offset."""
    rows = {
        name: _seen(_centred(*curves_and_record), curves_and_record[1])
        for name, curves_and_record in curves_by_name.items()
    }
    records = [record for _, record in curves_by_name.values()]
    colors = _colors({name: values for name, (_, values) in rows.items()}, records[0].quantity)
    image = stripes(
        ax, {name: (int(offset[0]), values) for name, (offset, values) in rows.items()}, **colors
    )
    limits = ax.get_xlim()
    reach = max(-int(offset[0]) for offset, _ in rows.values())
    _offset_axis(ax, reach, causal=all(record.causal for record in records))
    ax.set_xlim(limits)
    ax.set_xlabel(fill(_offset_label(*records), 80))
    return image


def tiles(ax: Axes, layers: Mapping[str, Floats], **colors: Any) -> AxesImage:
    """Draw rows of maps by displacement as tiles of one size, the query in the middle of each.

    Windows of several sizes are drawn as large as each other. Of more than `MAX_LAYERS` rows every
    second … is drawn, of the heads the first `MAX_HEADS`, and the labels say so.

    Parameters
    ----------
    ax
        To draw into.
    layers
        By the name of a row, a map for each head ``[heads, 2h - 1, 2w - 1]``.
    colors
        Colour map and limits.
    """
    stride = math.ceil(len(layers) / MAX_LAYERS)
    visible_layers = {name: layers[name][:MAX_HEADS] for name in list(layers)[::stride]}
    spans = [tile.shape for row in visible_layers.values() for tile in row]
    one_size = len({*spans}) == 1
    height, width = (
        spans[0] if one_size else [2 * max(span for span_pair in spans for span in span_pair)] * 2
    )
    gap = max(max(height, width) // 12, 1)
    n_columns = max(map(len, visible_layers.values()))
    canvas = np.full((len(visible_layers), height + gap, n_columns, width + gap), np.nan)
    for r, row in enumerate(visible_layers.values()):
        for c, tile in enumerate(row):
            tile_height, tile_width = tile.shape
            picked = np.ix_(
                np.arange(height) * tile_height // height, np.arange(width) * tile_width // width
            )
            canvas[r, :height, c, :width] = tile[picked]
    flat = canvas.reshape(len(visible_layers) * (height + gap), -1)[:-gap, :-gap]
    image = ax.imshow(flat, **colors)
    ax.set_xticks(
        (width - 1) / 2 + (width + gap) * np.arange(n_columns), map(str, range(n_columns))
    )
    ax.set_yticks(
        (height - 1) / 2 + (height + gap) * np.arange(len(visible_layers)), list(visible_layers)
    )
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for tick, name in zip(ax.get_yticks(), visible_layers, strict=True):
        if n_hidden := len(layers[name]) - len(visible_layers[name]):
            note(
                ax, f"+{n_hidden}", (1, tick), (2, 0), va="center",
                xycoords=("axes fraction", "data"), color=MUTED,
            )  # fmt: skip
    cut = max(map(len, layers.values())) > MAX_HEADS
    ax.set_xlabel("head" + (" (+: further heads, not drawn)" if cut else ""))
    ax.set_ylabel(f"one row in {stride} is drawn" if stride > 1 else "")
    return image


def stripes(ax: Axes, layers: Mapping[str, tuple[int, Floats]], **colors: Any) -> QuadMesh:
    """Draw a stripe per head by offset, layers apart, on one range.

    Of more than `MAX_STRIPES` heads, every second, third … is drawn, as the label says.

    Parameters
    ----------
    ax
        To draw into.
    layers
        By name, the first offset and ``[heads, k]`` from there on.
    colors
        Colour map and range.
    """
    first_offset = min(begin for begin, _ in layers.values())
    stop = max(begin + rows.shape[1] for begin, rows in layers.values())
    ends = [0, *np.cumsum([len(rows) for _, rows in layers.values()]).tolist()]
    values = np.full((ends[-1], stop - first_offset), np.nan)
    for (begin, rows), (low, high) in zip(layers.values(), pairwise(ends), strict=True):
        values[low:high, begin - first_offset : begin - first_offset + rows.shape[1]] = rows
    stride = math.ceil(ends[-1] / MAX_STRIPES)
    edges = np.append(np.arange(0, ends[-1], stride), ends[-1])
    image = ax.pcolormesh(
        np.arange(first_offset, stop + 1) - 0.5, edges, values[::stride], rasterized=True, **colors
    )
    for end in ends[1:-1]:
        ax.axhline(end, color="white", linewidth=0.8)
    if len(layers) == 1:
        ax.set_yticks([head + 0.5 for head in range(0, ends[-1], -(-ends[-1] // 12))])
        ax.yaxis.set_major_formatter(lambda place, _: str(int(place)))
    else:
        labelled = spread([*zip(layers, pairwise(ends), strict=True)], 24)
        ax.set_yticks(
            [(low + high) / 2 for _, (low, high) in labelled], [name for name, _ in labelled]
        )
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(ends[-1], 0)
    ax.set_ylabel("head" + (f" (one in {stride} is drawn)" if stride > 1 else ""))
    ax.spines[:].set_visible(False)
    return image
