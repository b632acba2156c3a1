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
from posprobe.figures.common import Beside, Sheet, balanced, note, spread
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
_Shown: TypeAlias = "Mapping[str, tuple[Floats, Heads | RelativeBias]]"


def plot_heads(ax: Axes, result: Heads | RelativeBias) -> None:
    """Draw every head: its curve or stripe by offset, or a tile by displacement."""
    if isinstance(result, RelativeBias):
        curves = result.curves(min(result.layout.size, MAX_KERNEL))
    else:
        curves = result.curves
    _draw(ax, {"": (curves, result)})


def heads_figure(sheet: Sheet, results: Mapping[str, Heads], _: Beside) -> Figure:
    """Draw every head of encodings of one kind, in the way that suits so many."""
    heads = [len(found.curves) for found in results.values()]
    kind = suited(results)
    if kind == "mosaic":
        most = min(max(heads), MAX_HEADS)
        rows, across = balanced(most, 4) if len(heads) == 1 else (len(heads), most)
        side = min((sheet.width - 1.6) / across, 0.8)
        height = max(side * min(rows, MAX_LAYERS) + 0.7, LABEL)
        figure = sheet.figure(height, width=max(side * across + 2.0, 4.6), compressed=True)
    else:
        height = max(0.08 * sum(heads), 0.2 * len(heads), 1.5) + 0.6
        figure = sheet.figure(2.4 if kind == "curves" else min(height, 7.5))
    ax = figure.subplots()
    _draw(ax, {name: (found.curves, found) for name, found in results.items()})
    if len(results) == 1 and not sheet.exact:
        ax.set_title(next(iter(results)))
    for each in figure.axes:
        if each.get_label() == "<colorbar>":
            # Its label is longer than a low figure is high.
            each.set_ylabel(fill(each.get_ylabel(), 20))
    return figure


def suited(results: Mapping[str, Heads]) -> str:
    """Name the drawing that so many heads can be read in."""
    first = next(iter(results.values()))
    if isinstance(first.layout, Grid):
        return "mosaic"
    return "curves" if len(results) == 1 and len(first.curves) <= len(LINES) else "stripes"


def _draw(ax: Axes, shown: _Shown) -> None:
    (curves, record), *others = shown.values()
    if isinstance(record.layout, Grid):
        image: AxesImage | QuadMesh = _tiles(ax, shown)
    elif others or len(curves) > len(LINES):
        image = _stripes(ax, shown)
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
    over = tuple(range(1, curves.ndim))
    return np.asarray(curves - curves.mean(axis=over, keepdims=True))


def _colors(values: Mapping[str, Floats], quantity: str) -> dict[str, Any]:
    """Return colours and limits around 0 of all heads; cosines end at 1."""
    if quantity == "cosine":
        return {"cmap": DIVERGING, "vmin": -1, "vmax": 1}
    limit = max(float(np.abs(each).max()) for each in values.values()) or 1.0
    return {"cmap": SIGNED, "vmin": -limit, "vmax": limit}


def _tiles(ax: Axes, shown: _Shown) -> AxesImage:
    """Draw a row of tiles for each encoding; the heads of a single one in as many as suit."""
    (curves, record), *others = shown.values()
    rows = {name: _centred(*each) for name, each in shown.items()}
    if not others:
        heads = _centred(curves, record)[:MAX_HEADS]
        _, columns = balanced(len(heads), 4)
        starts = range(0, len(heads), columns)
        rows = {f"{k} +" if len(starts) > 1 else "": heads[k : k + columns] for k in starts}
    return tiles(ax, rows, **_colors(rows, record.quantity))


def _stripes(ax: Axes, shown: _Shown) -> QuadMesh:
    """Draw a stripe per head of encodings on a line: its values by offset."""
    rows = {name: _seen(_centred(*each), each[1]) for name, each in shown.items()}
    records = [record for _, record in shown.values()]
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
    every = math.ceil(len(layers) / MAX_LAYERS)
    shown = {name: layers[name][:MAX_HEADS] for name in list(layers)[::every]}
    spans = [tile.shape for row in shown.values() for tile in row]
    one_size = len({*spans}) == 1
    height, width = spans[0] if one_size else [2 * max(span for each in spans for span in each)] * 2
    gap = max(max(height, width) // 12, 1)
    across = max(map(len, shown.values()))
    canvas = np.full((len(shown), height + gap, across, width + gap), np.nan)
    for r, row in enumerate(shown.values()):
        for c, tile in enumerate(row):
            down, right = tile.shape
            picked = np.ix_(np.arange(height) * down // height, np.arange(width) * right // width)
            canvas[r, :height, c, :width] = tile[picked]
    flat = canvas.reshape(len(shown) * (height + gap), -1)[:-gap, :-gap]
    image = ax.imshow(flat, **colors)
    ax.set_xticks((width - 1) / 2 + (width + gap) * np.arange(across), map(str, range(across)))
    ax.set_yticks((height - 1) / 2 + (height + gap) * np.arange(len(shown)), list(shown))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for at, name in zip(ax.get_yticks(), shown, strict=True):
        if more := len(layers[name]) - len(shown[name]):
            note(
                ax, f"+{more}", (1, at), (2, 0), va="center",
                xycoords=("axes fraction", "data"), color=MUTED,
            )  # fmt: skip
    cut = max(map(len, layers.values())) > MAX_HEADS
    ax.set_xlabel("head" + (" (+: further heads, not drawn)" if cut else ""))
    ax.set_ylabel(f"one row in {every} is drawn" if every > 1 else "")
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
    first = min(begin for begin, _ in layers.values())
    stop = max(begin + rows.shape[1] for begin, rows in layers.values())
    ends = [0, *np.cumsum([len(rows) for _, rows in layers.values()]).tolist()]
    values = np.full((ends[-1], stop - first), np.nan)
    for (begin, rows), (low, high) in zip(layers.values(), pairwise(ends), strict=True):
        values[low:high, begin - first : begin - first + rows.shape[1]] = rows
    every = math.ceil(ends[-1] / MAX_STRIPES)
    edges = np.append(np.arange(0, ends[-1], every), ends[-1])
    image = ax.pcolormesh(
        np.arange(first, stop + 1) - 0.5, edges, values[::every], rasterized=True, **colors
    )
    for end in ends[1:-1]:
        ax.axhline(end, color="white", linewidth=0.8)
    if len(layers) == 1:
        ax.set_yticks([head + 0.5 for head in range(0, ends[-1], -(-ends[-1] // 12))])
        ax.yaxis.set_major_formatter(lambda place, _: str(int(place)))
    else:
        named = spread([*zip(layers, pairwise(ends), strict=True)], 24)
        ax.set_yticks([(low + high) / 2 for _, (low, high) in named], [name for name, _ in named])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(ends[-1], 0)
    ax.set_ylabel("head" + (f" (one in {every} is drawn)" if every > 1 else ""))
    ax.spines[:].set_visible(False)
    return image
