"""Values of every head by offset or displacement: curves, stripes, maps and tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import Builder, Sheet, balanced, note, panels
from posprobe.figures.styles import BLUE, DIVERGING, GRID, INK, LINES, MUTED, ONE_SIDED, signed
from posprobe.layouts import Grid, Layout, Sequence as Line
from posprobe.schemes import MAX_KERNEL, RelativeBias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Heads

#: Most heads that get a panel each, or a column of a mosaic.
MAX_HEADS = 16
#: Most encodings that get a row of a mosaic, and most rows of stripes.
MAX_LAYERS, MAX_STRIPES = 24, 192
#: Reach beyond which distances are drawn on a logarithmic axis, and where its linear part ends.
LOGARITHMIC, LINEAR = 64, 8
#: Height in inches that the labels of maps need.
LABEL = 2.0
#: What a value is, on axes; the constant that a head adds to all logits changes no attention.
QUANTITY = {"bias": "bias (logits)", "cosine": "cosine with distance 0"}
CENTRED = {"bias": "bias less the head's mean (logits)", "cosine": "cosine with distance 0"}


@dataclass(frozen=True)
class _Values:
    """What is drawn of a bias that was not analysed; fields as of `Heads`."""

    curves: NDArray[np.float64]
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


def _seen(heads: _Heads) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
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
        ax.axhline(0, color=GRID, linewidth=0.6)
        ax.axvline(0, color=GRID, linewidth=0.6)
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


def centred(heads: _Heads) -> NDArray[np.float64]:
    """Return biases less each head's mean, which changes no attention; cosines as they are."""
    if heads.quantity == "cosine":
        return heads.curves
    over = tuple(range(1, heads.curves.ndim))
    return np.asarray(heads.curves - heads.curves.mean(axis=over, keepdims=True))


def shared_range(values: Sequence[NDArray[np.float64]], quantity: str) -> tuple[float, str]:
    """Return the limit of a range around 0 for all panels, and which of its ends are exceeded.

    Cosines end at 1; of biases, one value in a hundred may lie beyond.
    """
    if quantity == "cosine":
        return 1.0, "neither"
    size = np.abs(np.concatenate([value.ravel() for value in values]))
    limit = float(np.percentile(size, 99)) or float(size.max()) or 1.0
    return limit, "both" if (size > limit).any() else "neither"


def map_panels(
    figure: Figure,
    maps: Mapping[str, NDArray[np.float64]],
    label: str,
    quantity: str,
    most: int = 6,
) -> None:
    """Draw a panel per map by displacement on one range, the query in the middle.

    Parameters
    ----------
    figure
        To draw into.
    maps
        ``[2h - 1, 2w - 1]`` by title.
    label
        What the colours are.
    quantity
        ``"bias"`` or ``"cosine"``, which decides on colours and limits.
    most
        Panels side by side.
    """
    limit, extend = shared_range(list(maps.values()), quantity)
    axes = panels(figure, len(maps), most)
    rows, columns = axes.shape
    one_size = len({values.shape for values in maps.values()}) == 1
    for ax, (title, values) in zip(axes.flat, maps.items(), strict=False):
        down, right = (span // 2 for span in values.shape)
        image = ax.imshow(
            values,
            cmap=color_map(quantity),
            vmin=-limit,
            vmax=limit,
            extent=(-right - 0.5, right + 0.5, down + 0.5, -down - 0.5),
        )
        ax.set_title(title, pad=2, fontsize="medium")
        last = ax in axes[-1] or ax in axes.flat[len(maps) - columns : len(maps)]
        ax.set_xticks([-right, 0, right] if last or not one_size else [])
        ax.set_yticks([-down, 0, down] if ax in axes[:, 0] or not one_size else [])
        ax.spines[:].set_visible(False)
    figure.supxlabel("columns from query to key")
    figure.supylabel("rows from query to key")
    figure.colorbar(image, ax=axes, label=label, extend=extend, aspect=15 * rows)


def tiles(
    ax: Axes,
    maps: Sequence[Sequence[NDArray[np.float64]]],
    limit: float,
    quantity: str,
) -> AxesImage:
    """Draw rows of maps by displacement as tiles of one size, the query in the middle of each.

    Windows of several sizes are drawn as large as each other. Ticks stand at rows and columns.
    """
    spans = {span for row in maps for tile in row for span in tile.shape}
    side = max(spans) * (1 if len(spans) == 1 else 2)
    step = side + max(side // 12, 1)
    across = max(map(len, maps))
    canvas = np.full((len(maps) * step, across * step), np.nan)
    for r, row in enumerate(maps):
        for c, tile in enumerate(row):
            picked = [np.arange(side) * span // side for span in tile.shape]
            canvas[r * step : r * step + side, c * step : c * step + side] = tile[np.ix_(*picked)]
    canvas = canvas[: side - step, : side - step]
    image = ax.imshow(canvas, cmap=color_map(quantity), vmin=-limit, vmax=limit)
    middle = (side - 1) / 2
    ax.set_xticks(middle + step * np.arange(across), [str(c) for c in range(across)])
    ax.set_yticks(middle + step * np.arange(len(maps)))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


def _tiles_of(ax: Axes, heads: _Heads) -> None:
    """Draw a tile per head into one Axes, at most `MAX_HEADS`: the bias by displacement."""
    shown = centred(heads)[:MAX_HEADS]
    limit, extend = shared_range(list(shown), heads.quantity)
    rows, columns = balanced(len(shown), 4)
    picked = [list(shown[row * columns : (row + 1) * columns]) for row in range(rows)]
    image = tiles(ax, picked, limit, heads.quantity)
    first = [row * columns for row in range(rows)]
    ax.set_yticks(ax.get_yticks(), [f"{head} +" if rows > 1 else "" for head in first])
    ax.set(xlabel="head", ylabel="")
    ax.figure.colorbar(image, ax=ax, label=CENTRED[heads.quantity], extend=extend, aspect=30)


def _tiles_by_layer(figure: Figure, layers: Mapping[str, Heads]) -> None:
    """Draw a row per encoding and a column per head: all biases by displacement on one range.

    Of more than `MAX_LAYERS` rows every second … is drawn, of the heads the first `MAX_HEADS`, and
    the labels say so.
    """
    quantity = next(iter(layers.values())).quantity
    every = math.ceil(len(layers) / MAX_LAYERS)
    shown = dict(list(layers.items())[::every])
    rows = [list(centred(heads)[:MAX_HEADS]) for heads in shown.values()]
    limit, extend = shared_range([tile for row in rows for tile in row], quantity)
    ax = figure.subplots()
    image = tiles(ax, rows, limit, quantity)
    ax.set_yticks(ax.get_yticks(), list(shown))
    for at, heads in zip(ax.get_yticks(), shown.values(), strict=True):
        if len(heads.curves) > MAX_HEADS:
            note(
                ax, f"+{len(heads.curves) - MAX_HEADS}", (1, at), (2, 0), va="center",
                xycoords=("axes fraction", "data"), color=MUTED,
            )  # fmt: skip
    more = any(len(heads.curves) > MAX_HEADS for heads in layers.values())
    ax.set_xlabel("head" + (" (+: further heads, not drawn)" if more else ""))
    if every > 1:
        ax.set_ylabel(f"one encoding in {every} is drawn")
    figure.colorbar(
        image, ax=ax, label=CENTRED[quantity], extend=extend, aspect=30, shrink=0.6,
        pad=0.06 if more else 0.02,
    )  # fmt: skip


def _stripes_of(ax: Axes, layers: Mapping[str, Heads]) -> None:
    """Draw a stripe per head of encodings on a line: its values by offset, on one range.

    Of more than `MAX_STRIPES` heads, every second, third … is drawn, as the label says.
    """
    first = next(iter(layers.values()))
    n = max(heads.layout.size for heads in layers.values())
    total = sum(len(heads.curves) for heads in layers.values())
    every = math.ceil(total / MAX_STRIPES)
    stop = n if all(heads.causal for heads in layers.values()) else 2 * n - 1
    values = np.full((total, stop), np.nan)
    ends = [0]
    for heads in layers.values():
        _, curves = _seen(heads)
        begin = n - heads.layout.size
        values[ends[-1] : ends[-1] + len(curves), begin : begin + curves.shape[1]] = (
            centred(heads)[:, : curves.shape[1]]
        )  # fmt: skip
        ends.append(ends[-1] + len(curves))
    shown = values[::every]
    # A value that holds for many distances, as in a bucket, counts once.
    new = (np.nan_to_num(np.diff(values, axis=1)) != 0).any(axis=0)
    distinct = shown[:, np.flatnonzero(np.append(True, new))]
    limit, extend = shared_range([distinct[np.isfinite(distinct)]], first.quantity)
    image = ax.pcolormesh(
        np.arange(1 - n, stop - n + 2) - 0.5,
        np.append(np.arange(0, total, every), total),
        shown, cmap=color_map(first.quantity), vmin=-limit, vmax=limit, rasterized=True,
    )  # fmt: skip
    for end in ends[1:-1]:
        ax.axhline(end, color="white", linewidth=0.8)
    ax.set_yticks([(low + high) / 2 for low, high in pairwise(ends)], list(layers))
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(total, 0)
    _offset_axis(ax, max(layers.values(), key=lambda heads: heads.layout.size))
    ax.set_xlabel(fill(_offset_label(*layers.values()), 80))
    ax.set_xlim(0.5 - n, stop - n + 0.5)
    ax.set_ylabel("head" + (f" (one in {every} is drawn)" if every > 1 else ""))
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label=CENTRED[first.quantity], extend=extend, aspect=30)


def color_map(quantity: str) -> Colormap:
    """Return the colours of biases (``"bias"``) or cosines."""
    return signed(DIVERGING if quantity == "cosine" else "PuOr_r")


def suited(results: Mapping[str, Heads], sheet: Sheet) -> str:
    """Choose the figure of `HEAD_FIGURES` that so many heads can be read in."""
    heads = max(len(found.curves) for found in results.values())
    if isinstance(next(iter(results.values())).layout, Grid):
        return "maps" if len(results) == 1 or heads == 1 else "mosaic"
    return "stripes" if len(results) > 1 or sheet.narrow or heads > MAX_HEADS else "curves"


def _curves(sheet: Sheet, results: Mapping[str, Heads], _: Mapping[str, Any]) -> Figure:
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


def _stripes(sheet: Sheet, results: Mapping[str, Heads], _: Mapping[str, Any]) -> Figure:
    """Draw a stripe per head."""
    total = sum(len(heads.curves) for heads in results.values())
    height = max(0.08 * total, 0.2 * len(results), 1.5) + 0.6
    figure = sheet.figure(min(height, 7.5))
    ax = figure.subplots()
    _stripes_of(ax, results)
    if len(results) == 1:
        every = range(0, total, -(-total // 12))
        ax.set_yticks([head + 0.5 for head in every], [str(head) for head in every])
        if not sheet.exact:
            ax.set_title(next(iter(results)))
    return _wrapped(figure)


def _maps(sheet: Sheet, results: Mapping[str, Heads], _: Mapping[str, Any]) -> Figure:
    """Draw a map per head of one encoding, or of several that have one head each."""
    first = next(iter(results.values()))
    if len(results) == 1:
        shown = {f"head {head}": values for head, values in enumerate(centred(first)[:MAX_HEADS])}
    else:
        every = ((name, found.curves[0]) for name, found in results.items())
        shown = dict(islice(every, MAX_LAYERS))
    most = 3 if sheet.narrow else 6
    rows, columns = balanced(len(shown), most)
    side = min((sheet.width - 1.2) / columns, 2.4)
    height = max((side + 0.25) * rows + 0.35, LABEL)
    figure = sheet.figure(height, width=side * columns + 1.3, compressed=True)
    map_panels(figure, shown, CENTRED[first.quantity], first.quantity, most)
    if len(results) == 1 and not sheet.exact:
        figure.suptitle(next(iter(results)))
    return _wrapped(figure)


def _mosaic(sheet: Sheet, results: Mapping[str, Heads], _: Mapping[str, Any]) -> Figure:
    """Draw a tile per encoding and head."""
    rows = min(len(results), MAX_LAYERS)
    across = min(max(len(heads.curves) for heads in results.values()), MAX_HEADS)
    side = min((sheet.width - 1.6) / across, 0.8 if sheet.exact else 0.45)
    height = max(side * rows + 0.7, LABEL)
    figure = sheet.figure(height, width=max(side * across + 2.0, 4.6), compressed=True)
    _tiles_by_layer(figure, results)
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
