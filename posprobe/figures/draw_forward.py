"""Positions inside a model: what they add layer by layer, and what heads prefer by offset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.styles import BLUE, DIVERGING, GRID, INK, LINES, MUTED, ONE_SIDED, RED
from posprobe.table import Grid, Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.ticker import MaxNLocator

    from posprobe.analyses.attention_by_offset import AttentionByOffset
    from posprobe.analyses.effective import EffectiveTable
    from posprobe.analyses.head_logits import HeadLogits
    from posprobe.analyses.mean_decomposition import LayerMeans, MeanDecomposition

_T = TypeVar("_T")
#: Offsets to either side that a profile shows; twice as many before a causal query. On a grid rows
#: and columns to either side.
REACH, GRID_REACH = 16, 10
#: Rows of an image of profiles, and on a grid layers and heads of a mosaic, that are drawn at most.
MAX_ROWS, MAX_LAYERS, MAX_HEADS = 256, 12, 16


def spread(items: Sequence[_T], most: int) -> list[_T]:
    """Pick at most so many items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


# What positions add to the hidden states.


def through_layers(ax: Axes, found: MeanDecomposition) -> None:
    """Draw what positions amount to at every layer: the relative norm and the share of variance."""
    curves = (
        ("relative norm (Song & Zhong)", lambda layer: layer.relative_norm),
        ("share of variance", _position_share),
    )
    for (label, value), (color, dash) in zip(curves, LINES, strict=False):
        _by_layer(ax, found, value, label, color, dash)
    ax.set_ylabel("positions in the hidden states")
    ax.set_ylim(bottom=0)
    ax.legend(loc="best")


def shares(ax: Axes, found: MeanDecomposition) -> None:
    """Draw the shares of variance by position and by context, and how much of it is noise."""
    _by_layer(ax, found, _position_share, "position", BLUE, "-")
    _by_layer(
        ax, found, lambda layer: layer.shares["context"] if layer.shares else None,
        "context", *LINES[1], marker="s",
    )  # fmt: skip
    _by_layer(ax, found, _noise, "noise in position", MUTED, (0, (1, 1)), marker="")
    ax.set_ylabel("share of variance")
    ax.set_ylim(bottom=0)


def relative_norms(ax: Axes, found: MeanDecomposition) -> None:
    """Draw the relative norm of what positions add."""
    _by_layer(ax, found, lambda layer: layer.relative_norm, "position", BLUE, "-")
    ax.set_ylabel("relative norm")
    ax.set_ylim(bottom=0)


def stable_ranks(
    ax: Axes, found: MeanDecomposition, sinusoid: float | None, walk: tuple[float, float] | None
) -> None:
    """Draw the stable rank of what positions add, beside the sinusoid and random walks."""
    _by_layer(ax, found, lambda layer: layer.stable_rank, "position", BLUE, "-")
    if sinusoid is not None:
        ax.axhline(sinusoid, color=RED, linestyle=LINES[1][1], label="sinusoid")
    if walk is not None:
        ax.axhspan(*walk, color=MUTED, alpha=0.35, linewidth=0, label="random walks")
    ax.set_ylabel("stable rank")
    ax.set_ylim(bottom=0)


def _position_share(layer: LayerMeans) -> float | None:
    return layer.shares["position"] if layer.shares else None


def _noise(layer: LayerMeans) -> float | None:
    share = _position_share(layer)
    return None if share is None or layer.noise_share is None else share * layer.noise_share


def _by_layer(
    ax: Axes,
    found: MeanDecomposition,
    value: Callable[[LayerMeans], float | None],
    label: str,
    color: str,
    dash: Any,
    marker: str = "o",
) -> None:
    """Draw a number of every layer; marks are hollow where more than half of ``pos`` is noise."""
    values = [value(layer) for layer in found.layers.values()]
    numbers = np.array([np.nan if entry is None else entry for entry in values])
    at = np.array(list(found.layers))
    ax.plot(at, numbers, color=color, linestyle=dash, label=label)
    noisy = np.array([layer.is_noisy for layer in found.layers.values()])
    for chosen, face in ((~noisy, color), (noisy, "white")):
        if marker:
            ax.plot(
                at[chosen], numbers[chosen], marker, color=color, markerfacecolor=face,
                markersize=3,
            )  # fmt: skip
    layer_axis(ax)


def layer_axis(ax: Axes) -> None:
    """Label an axis that runs over layers: whole numbers only."""
    ax.xaxis.set_major_locator(_whole())
    ax.set_xlabel("layer (0: what enters the first)")


# What heads prefer.


def head_profiles(ax: Axes, layers: Mapping[int, HeadLogits]) -> AxesImage:
    """Draw the mean logit of every head by offset: a row per head, or a tile per head on a grid.

    Each is shown less its mean over the offsets in sight and divided by what is then its largest
    magnitude, since heads differ in level and scale by orders.

    Parameters
    ----------
    ax
        To draw into.
    layers
        By number.
    """
    first = next(iter(layers.values()))
    curves = {number: found.curves for number, found in layers.items()}
    return _profiles(
        ax, curves, first.layout, _levelled,
        causal=first.causal, vmin=-1.0, vmax=1.0, cmap=DIVERGING,
    )  # fmt: skip


def attention_profiles(ax: Axes, found: AttentionByOffset) -> AxesImage:
    """Draw the mean attention of every head by offset on one logarithmic range.

    It begins at a tenth of uniform attention; what lies below has the colour of its beginning, and
    offsets that attention never meets are grey.
    """
    from matplotlib.colors import LogNorm

    curves = {number: layer.curves for number, layer in found.layers.items()}
    top = max(float(np.nanmax(values)) for values in curves.values())
    low = min(0.1 / found.layout.size, top / 10)
    return _profiles(
        ax, curves, found.layout, lambda rows: np.where(rows > 0, np.maximum(rows, low), np.nan),
        causal=found.causal, norm=LogNorm(low, top), cmap=ONE_SIDED,
    )  # fmt: skip


def peak_histogram(ax: Axes, layers: Mapping[int, HeadLogits]) -> None:
    """Count heads by the offset that they prefer, beside what an even choice would give.

    -1 is the previous token, 1 the next; on a grid the counts stand at rows and columns.
    """
    first = next(iter(layers.values()))
    peaks = np.concatenate([found.peak for found in layers.values()])
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
    ax.yaxis.set_major_locator(_whole())
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
    ax.xaxis.set_major_locator(_whole())
    ax.yaxis.set_major_locator(_whole())
    ax.figure.colorbar(image, ax=ax, label="heads", shrink=0.85, ticks=_whole())


def to_one_token(
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
    ax.set_ylabel("mean attention")


def effective_numbers(ax: Axes, found: EffectiveTable, labels: Mapping[str, str]) -> None:
    """Draw the numbers between -1 and 1 of a table before and after LayerNorm.

    Parameters
    ----------
    ax
        To draw into.
    found
        The numbers.
    labels
        What they are called, by key, in the order of the drawing.
    """
    pairs = {
        label: (before, after)
        for key, label in labels.items()
        if (before := found.raw.get(key)) is not None
        and (after := found.effective.get(key)) is not None
    }
    for row, (before, after) in enumerate(pairs.values()):
        ax.plot([before, after], [row, row], color=GRID, zorder=1)
        ax.plot([before], [row], "o", color=RED, markerfacecolor="white", markersize=4)
        ax.plot([after], [row], "o", color=BLUE, markersize=4)
    ax.plot([], [], "o", color=RED, markerfacecolor="white", markersize=4, label="as stored")
    ax.plot([], [], "o", color=BLUE, markersize=4, label="as attention sees it")
    ax.axvline(0, color=MUTED, linewidth=0.5, zorder=0)
    ax.set_yticks(range(len(pairs)), list(pairs))
    ax.set_xlim(-1.05, 1.05)
    ax.set_ylim(len(pairs) - 0.4, -0.6)
    ax.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=2)


# Images of profiles.


def _profiles(
    ax: Axes,
    layers: Mapping[int, NDArray[np.float64]],
    layout: Layout,
    prepared: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    causal: bool,
    **colors: Any,
) -> AxesImage:
    draw = _mosaic if isinstance(layout, Grid) else _stripes
    chosen = spread(list(layers), MAX_LAYERS if isinstance(layout, Grid) else _most(layers))
    shown = {number: layers[number] for number in chosen}
    image = draw(ax, shown, prepared, causal=causal, **colors)
    part = f" ({len(shown)} of {len(layers)} shown)" if len(shown) < len(layers) else ""
    ax.set_ylabel(f"layer{part}" if len(layers) > 1 else f"head of layer {chosen[0]}")
    return image


def _most(layers: Mapping[int, NDArray[np.float64]]) -> int:
    return max(2, MAX_ROWS // max(len(values) for values in layers.values()))


def _levelled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take the mean off each head's values and divide by their largest magnitude."""
    over = tuple(range(1, rows.ndim))
    rows = rows - np.nanmean(rows, axis=over, keepdims=True)
    size = np.nanmax(np.abs(rows), axis=over, keepdims=True, initial=0.0)
    shown: NDArray[np.float64] = np.divide(rows, size, out=np.zeros_like(rows), where=size > 0)
    return shown


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


def _mosaic(
    ax: Axes,
    layers: Mapping[int, NDArray[np.float64]],
    prepared: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    causal: bool,  # noqa: ARG001 - patches have no order
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


def _whole() -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=6, integer=True)
