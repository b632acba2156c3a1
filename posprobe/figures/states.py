"""Hidden states by layer, the table as attention sees it, and directions of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.grid import Patches
from posprobe.figures.common import (
    Baselines,
    Builder,
    Ends,
    Sheet,
    alone,
    balanced,
    ends_of,
    layer_axis,
    map_figure,
    maps,
    nothing,
    panels,
    pooled,
)
from posprobe.figures.components import path_plane
from posprobe.figures.grid import canvas
from posprobe.figures.similarity import displacements, of_cosines
from posprobe.figures.styles import BLUE, DIVERGING, GRID, LINES, MUTED, RED, SKY, gapped
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import PCA, Similarity
    from posprobe.analyses.models.states import EffectiveTable, LayerMeans, MeanDecomposition
    from posprobe.analyses.models.subspaces import SubspaceOverlap


#: Layers that get a panel each.
PANELS = 6
#: Patches per side up to which a panel is a mosaic, and cells per side of a panel's matrix.
MOSAIC, CELLS = 16, 192


def plot_states(ax: Axes, result: MeanDecomposition) -> None:
    """Draw the shares of the variance of hidden states that position and context have by layer."""
    _by_layer(ax, result, _position_share, "position", BLUE, "-")
    _by_layer(
        ax, result, lambda layer: layer.shares["context"] if layer.shares else None,
        "context", *LINES[1], marker="s",
    )  # fmt: skip
    _by_layer(ax, result, _noise, "noise in position", MUTED, (0, (1, 1)), marker="")
    ax.set(xlabel="layer", ylabel="share of variance")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.04, 1.0))


def _position_share(layer: LayerMeans) -> float | None:
    return layer.shares["position"] if layer.shares else None


def _noise(layer: LayerMeans) -> float | None:
    share = _position_share(layer)
    return None if share is None or layer.noise_share is None else share * layer.noise_share


def _by_layer(
    ax: Axes,
    decomposition: MeanDecomposition,
    value: Callable[[LayerMeans], float | None],
    label: str,
    color: str,
    dash: Any,
    marker: str = "o",
) -> None:
    """Draw a number of every layer; marks are hollow where more than half of ``pos`` is noise."""
    numbers = np.array([value(layer) for layer in decomposition.layers.values()], dtype=float)
    layers = np.array(list(decomposition.layers))
    ax.plot(layers, numbers, color=color, linestyle=dash, label=label)
    noisy = np.array([layer.is_noisy for layer in decomposition.layers.values()])
    for mask, face in ((~noisy, color), (noisy, "white")):
        if marker:
            ax.plot(
                layers[mask], numbers[mask], marker, color=color, markerfacecolor=face,
                markersize=3,
            )  # fmt: skip
    layer_axis(ax)


def layers_figure(
    sheet: Sheet, results: Mapping[str, MeanDecomposition], baselines: Baselines
) -> Figure:
    """Draw shares of variance, relative norms and stable ranks by layer.

    Beside them may stand numbers of the ``sinusoid`` and bands of random walks (``walk``).
    """
    (decomposition,) = results.values()
    figure = sheet.figure(6.6 if sheet.narrow else 2.7)
    left, middle, right = figure.subplots(*sheet.beside(3))
    plot_states(left, decomposition)
    _by_layer(middle, decomposition, lambda layer: layer.relative_norm, "position", BLUE, "-")
    _by_layer(right, decomposition, lambda layer: layer.stable_rank, "position", BLUE, "-")
    sinusoid = baselines.get("sinusoid", {}).get("pca.stable_rank")
    if sinusoid is not None:
        right.axhline(sinusoid, color=RED, linestyle=LINES[1][1], label="sinusoid")
    walk = baselines.get("walk", {}).get("pca.stable_rank")
    if walk is not None:
        right.axhspan(
            walk["p5"], walk["p95"], color=MUTED, alpha=0.35, linewidth=0, label="random walks"
        )
    for ax, label in ((middle, "relative norm"), (right, "stable rank")):
        ax.set(xlabel="layer", ylabel=label)
        ax.set_ylim(bottom=0)
    right.legend(loc="lower left", bbox_to_anchor=(-0.04, 1.0))
    return figure


def cosines_figure(
    sheet: Sheet, results: Mapping[str, MeanDecomposition], baselines: Baselines
) -> Figure:
    """Draw the cosines of what positions add at some layers: ``cosines`` of what is beside."""
    (decomposition,) = results.values()
    matrices_by_layer = {}
    for number, result in baselines["cosines"].items():
        noise = decomposition.layers[number].noise_share
        noise_text = "" if noise is None else f" (noise {noise:.0%})"
        matrices_by_layer[f"layer {number}{noise_text}"] = _cells(result)
        axis_labels = _along(result)
    return map_figure(
        sheet, matrices_by_layer, 2 if sheet.narrow else 3, "cosine", axis_labels, **_look()
    )


def _cells(result: Similarity | Patches) -> tuple[NDArray[Any], Ends | None]:
    """Return centred cosines of positions: a matrix, a map by displacement, or a mosaic."""
    if isinstance(result, Patches):
        return canvas(result), None
    if isinstance(result.layout, Grid):
        return displacements(result)
    matrix = pooled(result.centered.matrix, CELLS)[0]
    return matrix, ends_of(result.start, result.centered.positions)


def _along(result: Similarity | Patches) -> tuple[str, str]:
    """Say what lies across and down; in a mosaic a tile for each patch."""
    if isinstance(result, Patches):
        return "", ""
    on_grid = isinstance(result.layout, Grid)
    return ("columns apart", "rows apart") if on_grid else ("position", "position")


def _look() -> dict[str, Any]:
    return of_cosines() | {"cmap": gapped(DIVERGING)}


def paths_figure(sheet: Sheet, _: Baselines, baselines: Baselines) -> Figure:
    """Draw the path of positions through two components: ``components`` of what is beside."""
    components: Mapping[int, PCA] = baselines["components"]
    max_columns = 2 if sheet.narrow else 3
    rows, columns = balanced(len(components), max_columns)
    figure = sheet.figure(2.0 * rows + 0.15, width=max(2.05 * columns + 0.7, 3.6))
    axes = panels(figure, len(components), max_columns)
    for ax, (number, result) in zip(axes.flat, components.items(), strict=False):
        colors = path_plane(ax, result)
        ax.set_title(f"layer {number}", pad=3)
        ax.xaxis.labelpad = ax.yaxis.labelpad = 1
        ax.locator_params(nbins=4)
    axis_name = "row" if isinstance(result.layout, Grid) else "position"
    figure.colorbar(colors, ax=axes, label=axis_name, aspect=30, shrink=0.9)
    return figure


#: Numbers between -1 and 1 that are drawn, and their names.
NUMBERS = {
    "similarity.raw.neighbour_mean": "neighbour cosine, raw",
    "similarity.centered.neighbour_mean": "neighbour cosine",
    "similarity.centered.far_mean": "far cosine",
    "similarity.raw.translation_invariance": "translation invariance",
    "pca.top3": "first three components",
    "sinusoid.cka": "CKA with the sinusoid",
}


def plot_effective(ax: Axes, result: EffectiveTable) -> None:
    """Draw the numbers of a table before and after LayerNorm."""
    pairs = {
        label: (before, after)
        for key, label in NUMBERS.items()
        if (before := result.raw.get(key)) is not None
        and (after := result.effective.get(key)) is not None
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


def effective_figure(
    sheet: Sheet, results: Mapping[str, EffectiveTable], baselines: Baselines
) -> Figure:
    """Draw the table's cosines as attention sees it (``effective``, beside), and its numbers."""
    (effective_table,) = results.values()
    figure = sheet.figure(4.8 if sheet.narrow else 2.6)
    ratios = None if sheet.narrow else (1, 1.1)
    left, right = figure.subfigures(*sheet.beside(2), squeeze=False, width_ratios=ratios).flat
    result = baselines["effective"]
    maps(left, {"as attention sees it": _cells(result)}, 1, "cosine", _along(result), **_look())
    plot_effective(right.subplots(), effective_table)
    return figure


#: Token directions that a running mean goes over: this share of all, at least 3.
WINDOW = 1 / 24


def plot_subspaces(ax: Axes, overlap: SubspaceOverlap) -> None:
    """Draw how much of each token direction lies within the position subspace.

    Single directions scatter, by chance alone within the band, so that a running mean is drawn
    over them.
    """
    if not (overlap.rank and len(overlap.overlap)):
        nothing(ax, overlap.undefined["top"])
        return
    numbers = np.arange(1, len(overlap.overlap) + 1)
    low, high = overlap.chance.band
    ax.axhspan(low, high, color=GRID, linewidth=0, label="random subspace, 5 to 95 %")
    ax.axhline(overlap.chance.expected, color=MUTED, linewidth=0.8, linestyle=(0, (4, 2)))
    ax.plot(
        numbers, overlap.overlap, color=SKY, linestyle="none", marker="o", markersize=2,
        markeredgewidth=0, label="direction",
    )  # fmt: skip
    window = min(len(numbers), max(3, round(len(numbers) * WINDOW)))
    if len(numbers) > window:
        sums = np.cumsum(np.concatenate([[0.0], overlap.overlap]))
        means = (sums[window:] - sums[:-window]) / window
        middle = numbers[: len(means)] + (window - 1) / 2
        ax.plot(middle, means, color=BLUE, label=f"mean of {window}")
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="token direction, by singular value", ylabel="share within positions")
    ax.set_xlim(0.5, len(numbers) + 0.5)
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, columnspacing=1.2)


overlap_figure: Builder = alone(plot_subspaces, 2.6)
