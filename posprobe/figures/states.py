"""Hidden states by layer, and directions of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.grid import Patches
from posprobe.figures.common import (
    Builder,
    Extent,
    FigureExtras,
    FigureFormat,
    average_blocks,
    balance_panels,
    label_layer_axis,
    make_panels,
    map_figure,
    single_plot,
    square_extent,
    write_undefined,
)
from posprobe.figures.components import plot_path_plane
from posprobe.figures.grid import lay_out_mosaic
from posprobe.figures.similarity import cosine_by_displacement, cosine_colors
from posprobe.figures.styles import (
    BLUE,
    DIVERGING_COLORMAP,
    LINE_STYLES,
    MUTED,
    PALE,
    RED,
    SKY,
    colormap_with_gaps,
)
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import PCA, Similarity
    from posprobe.analyses.models.states import (
        LayerMeans,
        MeanDecomposition,
    )
    from posprobe.analyses.models.subspaces import SubspaceOverlap


#: At most this many layers get a panel.
MAX_STATE_PANELS = 6
#: Grids with more patches per side are drawn by displacement rather than as a mosaic.
MAX_MOSAIC_SIDE = 16
#: Matrices of cosines are averaged to this many cells per side.
MAX_STATE_CELLS = 192


def plot_states(ax: Axes, result: MeanDecomposition) -> None:
    """Draw the shares of position and context in the variance of hidden states by layer."""
    _plot_by_layer(ax, result, _position_share, "position", BLUE, "-")
    _plot_by_layer(
        ax,
        result,
        lambda layer: layer.shares["context"] if layer.shares else None,
        "context",
        *LINE_STYLES[1],
        marker="s",
    )
    _plot_by_layer(
        ax, result, _noise_share, "noise in position", MUTED, (0, (1, 1)), marker=""
    )
    ax.set(xlabel="layer", ylabel="share of variance")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.04, 1.0))


def _position_share(layer: LayerMeans) -> float | None:
    return layer.shares["position"] if layer.shares else None


def _noise_share(layer: LayerMeans) -> float | None:
    share = _position_share(layer)
    return (
        None if share is None or layer.noise_share is None else share * layer.noise_share
    )


def _plot_by_layer(
    ax: Axes,
    decomposition: MeanDecomposition,
    value: Callable[[LayerMeans], float | None],
    label: str,
    color: str,
    dash: Any,
    marker: str = "o",
) -> None:
    """Draw a number by layer; markers are hollow where more than half of it is noise."""
    numbers = np.array(
        [value(layer) for layer in decomposition.layers.values()], dtype=float
    )
    layers = np.array(list(decomposition.layers))
    ax.plot(layers, numbers, color=color, linestyle=dash, label=label)
    noisy = np.array([layer.is_noisy for layer in decomposition.layers.values()])
    for mask, face in ((~noisy, color), (noisy, "white")):
        if marker:
            ax.plot(
                layers[mask],
                numbers[mask],
                marker,
                color=color,
                markerfacecolor=face,
                markersize=3,
            )
    label_layer_axis(ax)


def layers_figure(
    figure_format: FigureFormat,
    results: Mapping[str, MeanDecomposition],
    extras: FigureExtras,
) -> Figure:
    """Draw shares of variance, relative norms and stable ranks by layer.

    The extras can hold numbers of the ``sinusoid`` and bands of random walks (``walk``).
    """
    (decomposition,) = results.values()
    figure = figure_format.make_figure(6.6 if figure_format.is_narrow else 2.7)
    left, middle, right = figure.subplots(*figure_format.arrange_panels(3))
    plot_states(left, decomposition)
    _plot_by_layer(
        middle, decomposition, lambda layer: layer.relative_norm, "position", BLUE, "-"
    )
    _plot_by_layer(
        right, decomposition, lambda layer: layer.stable_rank, "position", BLUE, "-"
    )
    sinusoid = extras.get("sinusoid", {}).get("pca.stable_rank")
    if sinusoid is not None:
        right.axhline(sinusoid, color=RED, linestyle=LINE_STYLES[1][1], label="sinusoid")
    random_walk = extras.get("walk", {}).get("pca.stable_rank")
    if random_walk is not None:
        right.axhspan(
            random_walk["p5"],
            random_walk["p95"],
            color=MUTED,
            alpha=0.35,
            linewidth=0,
            label="random walks",
        )
    for ax, label in ((middle, "relative norm"), (right, "stable rank")):
        ax.set(xlabel="layer", ylabel=label)
        ax.set_ylim(bottom=0)
    right.legend(loc="lower left", bbox_to_anchor=(-0.04, 1.0))
    return figure


def cosines_figure(
    figure_format: FigureFormat,
    results: Mapping[str, MeanDecomposition],
    extras: FigureExtras,
) -> Figure:
    """Draw the cosines of the positions' means at some layers: the extra ``cosines``."""
    (decomposition,) = results.values()
    matrices_by_layer = {}
    for number, result in extras["cosines"].items():
        noise = decomposition.layers[number].noise_share
        noise_text = "" if noise is None else f" (noise {noise:.0%})"
        matrices_by_layer[f"layer {number}{noise_text}"] = _centred_cosines(result)
        axis_labels = _axis_labels(result)
    return map_figure(
        figure_format,
        matrices_by_layer,
        2 if figure_format.is_narrow else 3,
        "cosine",
        axis_labels,
        **_cosine_colors_with_gaps(),
    )


def _centred_cosines(result: Similarity | Patches) -> tuple[NDArray[Any], Extent | None]:
    """Return centred cosines of positions: a matrix, a map by displacement, or a mosaic."""
    if isinstance(result, Patches):
        return lay_out_mosaic(result), None
    if isinstance(result.layout, Grid):
        return cosine_by_displacement(result)
    matrix = average_blocks(result.centered.matrix, MAX_STATE_CELLS)[0]
    return matrix, square_extent(result.start, result.centered.positions)


def _axis_labels(result: Similarity | Patches) -> tuple[str, str]:
    """Return the labels of both axes; a mosaic has none."""
    if isinstance(result, Patches):
        return "", ""
    on_grid = isinstance(result.layout, Grid)
    return ("columns apart", "rows apart") if on_grid else ("position", "position")


def _cosine_colors_with_gaps() -> dict[str, Any]:
    return cosine_colors() | {"cmap": colormap_with_gaps(DIVERGING_COLORMAP)}


def paths_figure(
    figure_format: FigureFormat, _: Mapping[str, Any], extras: FigureExtras
) -> Figure:
    """Draw the path of positions through two components of each layer: the extra ``components``."""
    components: Mapping[int, PCA] = extras["components"]
    max_columns = 2 if figure_format.is_narrow else 3
    rows, columns = balance_panels(len(components), max_columns)
    figure = figure_format.make_figure(
        2.0 * rows + 0.15, width=max(2.05 * columns + 0.7, 3.6)
    )
    axes = make_panels(figure, len(components), max_columns)
    for ax, (number, result) in zip(axes.flat, components.items(), strict=False):
        colors = plot_path_plane(ax, result)
        ax.set_title(f"layer {number}", pad=3)
        ax.xaxis.labelpad = ax.yaxis.labelpad = 1
        ax.locator_params(nbins=4)
    axis_name = "row" if isinstance(result.layout, Grid) else "position"
    figure.colorbar(colors, ax=axes, label=axis_name, aspect=30, shrink=0.9)
    return figure


#: The running mean covers this share of the token directions, and at least 3.
RUNNING_MEAN_SHARE = 1 / 24


def plot_subspaces(ax: Axes, overlap: SubspaceOverlap) -> None:
    """Draw the share of each token direction that lies within the position subspace.

    Single directions scatter even by chance, within the band, so that a running mean is drawn over
    them.
    """
    if not (overlap.rank and len(overlap.overlap)):
        write_undefined(ax, overlap.undefined["top"])
        return
    directions = np.arange(1, len(overlap.overlap) + 1)
    low, high = overlap.chance.band
    ax.axhspan(low, high, color=PALE, linewidth=0, label="random subspace, 5 to 95 %")
    ax.axhline(overlap.chance.expected, color=MUTED, linewidth=0.8, linestyle=(0, (4, 2)))
    ax.plot(
        directions,
        overlap.overlap,
        color=SKY,
        linestyle="none",
        marker="o",
        markersize=2,
        markeredgewidth=0,
        label="direction",
    )
    window = min(len(directions), max(3, round(len(directions) * RUNNING_MEAN_SHARE)))
    if len(directions) > window:
        sums = np.cumsum(np.concatenate([[0.0], overlap.overlap]))
        means = (sums[window:] - sums[:-window]) / window
        middle = directions[: len(means)] + (window - 1) / 2
        ax.plot(middle, means, color=BLUE, label=f"mean of {window}")
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="token direction, by singular value", ylabel="share within positions")
    ax.set_xlim(0.5, len(directions) + 0.5)
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, columnspacing=1.2)


overlap_figure: Builder = single_plot(plot_subspaces, 2.6)
