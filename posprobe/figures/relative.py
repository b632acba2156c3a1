"""Values of every head by offset or displacement: curves, stripes, maps and tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.figures.common import (
    Beside,
    Builder,
    Sheet,
    around,
    balanced,
    cross,
    map_figure,
    note,
    spread,
)
from posprobe.figures.styles import BLUE, DIVERGING, INK, LINES, MUTED, ONE_SIDED, signed
from posprobe.layouts import Grid, Layout, Sequence as Line
from posprobe.schemes import MAX_KERNEL, RelativeBias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Heads

#: Most heads that get a panel each, or a column of a mosaic.
MAX_HEADS = 16
#: Most layers that get a row of a mosaic, and most rows of stripes.
MAX_LAYERS, MAX_STRIPES = 24, 192
#: Reach beyond which distances are drawn on a logarithmic axis, and where its linear part ends.
LOGARITHMIC, LINEAR = 64, 8
#: Height in inches that the labels of maps need.
LABEL = 2.0
#: Axes of a map by displacement.
APART = ("columns to key", "rows to key")
#: What a value is, on axes; the constant that a head adds to all logits changes no attention.
QUANTITY = {"bias": "bias (logits)", "cosine": "cosine with distance 0"}
CENTRED = {"bias": "bias less the head's mean (logits)", "cosine": "cosine with distance 0"}


@dataclass(frozen=True)
class _Values:
    """What is drawn of a bias that was not analysed; fields as of `Heads`."""

    curves: Floats
    layout: Layout
    quantity: str
    causal: bool
    unit: str


_Heads: TypeAlias = "Heads | _Values"


def plot_heads(ax: Axes, result: Heads | RelativeBias) -> None:
    """Draw every head: its curve by offset, or a tile by displacement."""
    drawn: _Heads
    if isinstance(result, RelativeBias):
        n = min(result.layout.size, MAX_KERNEL)
        layout = result.layout if isinstance(result.layout, Grid) else Line(n)
        drawn = _Values(result.curves(n), layout, result.quantity, result.causal, result.unit)
    else:
        drawn = result
    (_tiles_of if isinstance(drawn.layout, Grid) else _curves_of)(ax, drawn)


def _seen(heads: _Heads) -> tuple[NDArray[np.int64], Floats]:
    """Return the offsets on a line that attention meets, and the values there, ``[heads, k]``."""
    n = heads.layout.size
    stop = n if heads.causal else 2 * n - 1
    return np.arange(1 - n, n)[:stop], heads.curves[:, :stop]


def _curves_of(ax: Axes, heads: _Heads) -> None:
    """Draw every head's curve by offset into one Axes, and their mean."""
    offset, curves = _seen(heads)
    if len(curves) <= len(LINES):
        for head, (curve, (color, dash)) in enumerate(zip(curves, LINES, strict=False)):
            ax.plot(offset, curve, color=color, linestyle=dash, label=f"head {head}")
        ax.legend(loc="best", ncols=2)
    else:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        colors = ScalarMappable(Normalize(0, len(curves) - 1), ONE_SIDED)
        shades = colors.to_rgba(np.arange(len(curves)))
        for shade, curve in zip(shades, curves, strict=True):
            ax.plot(offset, curve, color=shade, linewidth=0.8)
        ax.plot(offset, curves.mean(axis=0), color=INK, linestyle=(0, (4, 1.5)), label="mean")
        ax.figure.colorbar(colors, ax=ax, label="head", aspect=30)
        ax.legend(loc="best")
    ax.set_ylabel(QUANTITY[heads.quantity])
    _offset_axis(ax, heads)


def _panels(figure: Figure, heads: Heads) -> None:
    """Draw one panel per head: its curve by offset, before the mean of all heads."""
    offset, curves = _seen(heads)
    shown = curves[:MAX_HEADS]
    axes = figure.subplots(*balanced(len(shown), 4), sharex=True, sharey=True, squeeze=False)
    for head, ax in enumerate(axes.flat):
        if head >= len(shown):
            ax.set_axis_off()
            continue
        cross(ax)
        if len(curves) > 1:
            ax.plot(offset, curves.mean(axis=0), color=MUTED, linestyle=(0, (2, 1)), linewidth=0.8)
        ax.plot(offset, shown[head], color=BLUE)
        if len(curves) > 1:
            window = heads.window[head]
            ax.set_title(
                f"head {head}" + ("" if np.isnan(window) else f", window {window:.3g}"),
                pad=2,
                fontsize="medium",
            )
    _offset_axis(axes[0, 0], heads)
    for ax in axes.flat:
        ax.set_xlabel("")
    figure.supxlabel(_offset_label(heads))
    figure.supylabel(QUANTITY[heads.quantity])


def _offset_label(*drawn: _Heads) -> str:
    units = " or ".join(dict.fromkeys(heads.unit for heads in drawn))
    return f"offset (key minus query, {units})"


def _offset_axis(ax: Axes, heads: _Heads) -> None:
    reach = heads.layout.size - 1
    ax.set_xlabel(_offset_label(heads))
    margin = 0.02 * reach or 1.0
    if reach > LOGARITHMIC:
        ax.set_xscale("symlog", linthresh=LINEAR, linscale=1, base=2)
        decades = [LINEAR * 8**power for power in range(8) if LINEAR * 8**power <= reach / 6]
        decades.append(reach)
        marks = [-mark for mark in decades[::-1]] + [0] + ([] if heads.causal else decades)
        ax.set_xticks(marks, [f"{mark}".replace("-", "\N{MINUS SIGN}") for mark in marks])
        ax.set_xticks([], minor=True)
        margin = 0.15 * reach
    ax.set_xlim(-reach - margin, 0 + LINEAR / 4 if heads.causal else reach + margin)


def centred(heads: _Heads) -> Floats:
    """Return biases less each head's mean, which changes no attention; cosines as they are."""
    if heads.quantity == "cosine":
        return heads.curves
    over = tuple(range(1, heads.curves.ndim))
    return np.asarray(heads.curves - heads.curves.mean(axis=over, keepdims=True))


def in_range(
    values: Sequence[Floats], quantity: str
) -> tuple[dict[str, Any], Literal["neither", "both"]]:
    """Return colours and limits around 0 of all panels, and which ends of the colours are exceeded.

    Cosines end at 1; of biases, one value in a hundred may lie beyond.
    """
    limit, beyond = 1.0, False
    if quantity != "cosine":
        size = np.abs(np.concatenate([value.ravel() for value in values]))
        limit = float(np.percentile(size, 99)) or float(size.max()) or 1.0
        beyond = bool((size > limit).any())
    look = {"cmap": color_map(quantity), "vmin": -limit, "vmax": limit}
    return look, "both" if beyond else "neither"


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


def _tiled(ax: Axes, layers: Mapping[str, Floats], quantity: str) -> None:
    look, extend = in_range(list(layers.values()), quantity)
    image = tiles(ax, layers, **look)
    ax.figure.colorbar(image, ax=ax, label=CENTRED[quantity], extend=extend, aspect=30, shrink=0.6)


def _tiles_of(ax: Axes, heads: _Heads) -> None:
    """Draw a tile per head into one Axes, at most `MAX_HEADS`: the bias by displacement."""
    shown = centred(heads)[:MAX_HEADS]
    _, columns = balanced(len(shown), 4)
    rows = {f"{k} +": shown[k : k + columns] for k in range(0, len(shown), columns)}
    _tiled(ax, rows if len(rows) > 1 else {"": shown}, heads.quantity)


def _stripes_of(ax: Axes, layers: Mapping[str, Heads]) -> None:
    """Draw a stripe per head of encodings on a line: its values by offset, on one range."""
    quantity = next(iter(layers.values())).quantity
    shown, distinct = {}, []
    for name, heads in layers.items():
        offsets, curves = _seen(heads)
        shown[name] = int(offsets[0]), centred(heads)[:, : curves.shape[1]]
        # A value that holds for many distances, as in a bucket, counts once.
        new = (np.diff(curves, axis=1) != 0).any(axis=0)
        distinct.append(shown[name][1][:, np.flatnonzero(np.append(True, new))])
    look, extend = in_range(distinct, quantity)
    image = stripes(ax, shown, **look)
    widest = max(layers.values(), key=lambda heads: heads.layout.size)
    limits = ax.get_xlim()
    _offset_axis(ax, widest)
    ax.set_xlabel(fill(_offset_label(*layers.values()), 80))
    ax.set_xlim(limits)
    ax.figure.colorbar(image, ax=ax, label=CENTRED[quantity], extend=extend, aspect=30)


def color_map(quantity: str) -> Colormap:
    """Return the colours of biases (``"bias"``) or cosines."""
    return signed(DIVERGING if quantity == "cosine" else "PuOr_r")


def suited(results: Mapping[str, Heads], sheet: Sheet) -> str:
    """Choose the figure of `HEAD_FIGURES` that so many heads can be read in."""
    heads = max(len(found.curves) for found in results.values())
    if isinstance(next(iter(results.values())).layout, Grid):
        return "maps" if len(results) == 1 or heads == 1 else "mosaic"
    return "stripes" if len(results) > 1 or sheet.narrow or heads > MAX_HEADS else "curves"


def _curves(sheet: Sheet, results: Mapping[str, Heads], _: Beside) -> Figure:
    """Draw a panel per head of one encoding."""
    ((name, heads),) = results.items()
    rows, columns = balanced(min(len(heads.curves), MAX_HEADS), 4)
    width = sheet.width if columns > 2 else 2.1 * columns + 1
    figure = sheet.figure(1.25 * rows + 0.45 + (rows == 1), width=width)
    _panels(figure, heads)
    if not sheet.exact:
        also = " (dashed: mean over heads)" if len(heads.curves) > 1 else ""
        figure.suptitle(f"{name}{also}")
    return figure


def _stripes(sheet: Sheet, results: Mapping[str, Heads], _: Beside) -> Figure:
    """Draw a stripe per head."""
    total = sum(len(heads.curves) for heads in results.values())
    height = max(0.08 * total, 0.2 * len(results), 1.5) + 0.6
    figure = sheet.figure(min(height, 7.5))
    ax = figure.subplots()
    _stripes_of(ax, results)
    if len(results) == 1 and not sheet.exact:
        ax.set_title(next(iter(results)))
    return _wrapped(figure)


def _maps(sheet: Sheet, results: Mapping[str, Heads], _: Beside) -> Figure:
    """Draw a map per head of one encoding, or of several that have one head each."""
    quantity = next(iter(results.values())).quantity
    every = [
        (f"head {head}" if len(results) == 1 else name, values)
        for name, found in results.items()
        for head, values in enumerate(centred(found)[:MAX_HEADS])
    ]
    shown = dict(every[:MAX_LAYERS])
    look, extend = in_range(list(shown.values()), quantity)
    figure = map_figure(
        sheet, {name: around(values) for name, values in shown.items()}, 3 if sheet.narrow else 6,
        CENTRED[quantity], APART, extend=extend, **look,
    )  # fmt: skip
    if len(results) == 1 and not sheet.exact:
        figure.suptitle(next(iter(results)))
    return _wrapped(figure)


def _mosaic(sheet: Sheet, results: Mapping[str, Heads], _: Beside) -> Figure:
    """Draw a tile per encoding and head."""
    quantity = next(iter(results.values())).quantity
    rows = min(len(results), MAX_LAYERS)
    across = min(max(len(heads.curves) for heads in results.values()), MAX_HEADS)
    side = min((sheet.width - 1.6) / across, 0.8 if sheet.exact else 0.45)
    height = max(side * rows + 0.7, LABEL)
    figure = sheet.figure(height, width=max(side * across + 2.0, 4.6), compressed=True)
    layers = {name: centred(heads) for name, heads in results.items()}
    _tiled(figure.subplots(), layers, quantity)
    return _wrapped(figure)


def _wrapped(figure: Figure) -> Figure:
    """Break the labels of colour bars, which are longer than a low figure is high."""
    for ax in figure.axes:
        if ax.get_label() == "<colorbar>":
            ax.set_ylabel(fill(ax.get_ylabel(), 20))
    return figure


#: By the number of heads and encodings that they suit.
HEAD_FIGURES: Mapping[str, Builder] = {
    "curves": _curves,
    "stripes": _stripes,
    "maps": _maps,
    "mosaic": _mosaic,
}
