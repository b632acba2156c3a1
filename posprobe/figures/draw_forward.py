"""Positions inside a model: what heads prefer by offset, and what positions add layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.styles import DIVERGING, GRID, LINES, ONE_SIDED
from posprobe.table import Grid, Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from posprobe.analyses.attention_by_offset import AttentionByOffset
    from posprobe.analyses.head_logits import HeadLogits
    from posprobe.analyses.mean_decomposition import MeanDecomposition

#: Offsets to either side that a profile shows.
REACH = 16


def head_profiles(ax: Axes, layers: Mapping[int, HeadLogits]) -> AxesImage:
    """Draw the mean logit of every head by offset, heads below each other.

    Each row is shown less its mean over the offsets in sight and divided by what is then its
    largest magnitude, since heads differ in level and scale by orders.

    Parameters
    ----------
    ax
        To draw into.
    layers
        By number. On a grid the offsets are those along a row of patches.
    """
    rows, labels = _rows({n: found.curves for n, found in layers.items()}, _layout(layers))
    rows = rows - np.nanmean(rows, axis=1, keepdims=True)
    size = np.nanmax(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    shown = np.divide(rows, size, out=np.zeros_like(rows), where=size > 0)
    return _image(ax, shown, labels, vmin=-1.0, vmax=1.0, cmap=DIVERGING)


def attention_profiles(ax: Axes, found: AttentionByOffset) -> AxesImage:
    """Draw the mean attention of every head by offset, heads below each other."""
    rows, labels = _rows({n: layer.curves for n, layer in found.layers.items()}, found.layout)
    return _image(ax, rows, labels, vmin=0.0, vmax=None, cmap=ONE_SIDED)


def peak_histogram(ax: Axes, layers: Mapping[int, HeadLogits]) -> None:
    """Count heads by the offset that they prefer; -1 is the previous token, 1 the next."""
    peaks = np.concatenate([found.peak[:, -1] for found in layers.values()])
    inside = np.clip(peaks, -REACH - 1, REACH + 1)
    color, _ = LINES[0]
    values, counts = np.unique(inside, return_counts=True)
    ax.bar(values, counts, color=color, width=0.8)
    marks = [-REACH - 1, -REACH // 2, -1, 1, REACH // 2, REACH + 1]
    names = [f"below\n{-REACH}", f"{-REACH // 2}", "-1", "1", f"{REACH // 2}", f"above\n{REACH}"]
    ax.set_xticks(marks, [name.replace("-", "\N{MINUS SIGN}") for name in names])
    ax.set_xlim(-REACH - 2, REACH + 2)
    ax.set_xlabel("preferred offset (key minus query)")
    ax.set_ylabel("heads")


def through_layers(ax: Axes, found: MeanDecomposition) -> None:
    """Draw what positions amount to at every layer: the relative norm and the share of variance."""
    from matplotlib.ticker import MaxNLocator

    numbers = list(found.layers)
    shares = [np.nan if s.shares is None else s.shares["position"] for s in found.layers.values()]
    norms = [np.nan if s.relative_norm is None else s.relative_norm for s in found.layers.values()]
    for values, label, (color, dash), mark in zip(
        (norms, shares),
        ("relative norm (Song & Zhong)", "share of variance"),
        LINES,
        ("o", "s"),
        strict=False,
    ):
        ax.plot(numbers, values, color=color, linestyle=dash, marker=mark, label=label)
    ax.set_xlabel("layer (0: what enters the first)")
    ax.set_ylabel("positions in the hidden states")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(loc="best")


def _layout(layers: Mapping[int, HeadLogits]) -> Layout:
    return next(iter(layers.values())).layout


def _rows(
    curves: Mapping[int, NDArray[np.float64]], layout: Layout
) -> tuple[NDArray[np.float64], list[str]]:
    """Stack the curves of all heads around offset 0; on a grid those along a row of patches."""
    found, labels = [], []
    for number, values in curves.items():
        lines = values[:, layout.height - 1] if isinstance(layout, Grid) else values
        middle = lines.shape[1] // 2
        reach = min(REACH, middle)
        found.append(lines[:, middle - reach : middle + reach + 1])
        labels += [f"{number}.{head}" for head in range(len(lines))]
    return np.concatenate(found), labels


def _image(
    ax: Axes,
    rows: NDArray[np.float64],
    labels: list[str],
    *,
    vmin: float,
    vmax: float | None,
    cmap: str,
) -> AxesImage:
    from matplotlib import colormaps

    reach = rows.shape[1] // 2
    image = ax.imshow(
        rows,
        aspect="auto",
        interpolation="nearest",
        extent=(-reach - 0.5, reach + 0.5, len(rows) - 0.5, -0.5),
        vmin=vmin,
        vmax=vmax,
        cmap=colormaps[cmap].with_extremes(bad=GRID),
    )
    step = -(-len(labels) // 24)
    ax.set_yticks(range(0, len(labels), step), labels[::step])
    ax.set_xlabel("offset (key minus query)")
    ax.set_ylabel("layer.head")
    return image
