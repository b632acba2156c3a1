"""What positions add to a model's hidden states, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.grid import Patches
from posprobe.figures.common import layer_axis, panels, pooled
from posprobe.figures.grid import mosaic
from posprobe.figures.pca import path_plane
from posprobe.figures.sheet import Sheet
from posprobe.figures.similarity import profile
from posprobe.figures.styles import BLUE, DIVERGING, LINES, MUTED, RED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import PCA, Similarity
    from posprobe.analyses.mean_decomposition import LayerMeans, MeanDecomposition

#: Layers that get a panel each.
PANELS = 6
#: Patches per side up to which a panel is a mosaic, and cells per side of a panel's matrix.
MOSAIC, CELLS = 16, 192


def plot_states(ax: Axes, result: MeanDecomposition) -> None:
    """Draw what positions amount to at every layer: the relative norm and the share of variance."""
    curves = (
        ("relative norm (Song & Zhong)", lambda layer: layer.relative_norm),
        ("share of variance", _position_share),
    )
    for (label, value), (color, dash) in zip(curves, LINES, strict=False):
        _by_layer(ax, result, value, label, color, dash)
    ax.set_ylabel("positions in the hidden states")
    ax.set_ylim(bottom=0)
    ax.legend(loc="best")


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
    numbers = np.array([value(layer) for layer in found.layers.values()], dtype=float)
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


def layers_figure(
    sheet: Sheet, results: Mapping[str, MeanDecomposition], references: Mapping[str, Any]
) -> Figure:
    """Draw shares of variance, relative norms and stable ranks by layer.

    ``references`` may hold numbers of the ``sinusoid`` and bands of random walks (``walk``).
    """
    (found,) = results.values()
    figure = sheet.figure(6.6 if sheet.narrow else 2.7)
    left, middle, right = figure.subplots(*sheet.beside(3))
    _by_layer(left, found, _position_share, "position", BLUE, "-")
    _by_layer(
        left, found, lambda layer: layer.shares["context"] if layer.shares else None,
        "context", *LINES[1], marker="s",
    )  # fmt: skip
    _by_layer(left, found, _noise, "noise in position", MUTED, (0, (1, 1)), marker="")
    _by_layer(middle, found, lambda layer: layer.relative_norm, "position", BLUE, "-")
    _by_layer(right, found, lambda layer: layer.stable_rank, "position", BLUE, "-")
    sinusoid = references.get("sinusoid", {}).get("pca.stable_rank")
    if sinusoid is not None:
        right.axhline(sinusoid, color=RED, linestyle=LINES[1][1], label="sinusoid")
    walk = references.get("walk", {}).get("pca.stable_rank")
    if walk is not None:
        right.axhspan(
            walk["p5"], walk["p95"], color=MUTED, alpha=0.35, linewidth=0, label="random walks"
        )
    labels = ("share of variance", "relative norm", "stable rank")
    for ax, label in zip((left, middle, right), labels, strict=True):
        ax.set(xlabel="layer", ylabel=label)
        ax.set_ylim(bottom=0)
        if ax is not middle:
            ax.legend(loc="lower left", bbox_to_anchor=(-0.04, 1.0))
    return figure


def _panels(sheet: Sheet, count: int, side: float) -> tuple[Figure, Any]:
    most = 2 if sheet.narrow else 3
    columns = min(count, most)
    figure = sheet.figure(side * -(-count // columns) + 0.15, width=max(2.05 * columns + 0.7, 3.6))
    return figure, panels(figure, count, most)


def cosines_figure(
    sheet: Sheet, results: Mapping[str, MeanDecomposition], references: Mapping[str, Any]
) -> Figure:
    """Draw the cosines of what positions add at some layers: ``cosines`` of the references."""
    (found,) = results.values()
    figure, axes = _panels(sheet, len(references["cosines"]), 2.2)
    for ax, (number, result) in zip(axes.flat, references["cosines"].items(), strict=False):
        image = cosine_panel(ax, result)
        ax.set_xlabel("")
        noise = found.layers[number].noise_share
        ax.set_title(
            f"layer {number}" + (f" (noise {noise:.0%})" if noise is not None else ""), pad=3
        )
        if ax not in axes[:, 0]:
            ax.set_ylabel("")
    figure.colorbar(image, ax=axes, label="cosine", aspect=30, shrink=0.9)
    return figure


def cosine_panel(ax: Axes, result: Similarity | Patches) -> Any:
    """Draw centred cosines small: a matrix, a mosaic, or a map by displacement."""
    if isinstance(result, Patches):
        image: Any = mosaic(ax, result)
        ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
    elif isinstance(result.layout, Grid):
        profile(ax, result)
        ax.locator_params(nbins=5)
        image = ax.images[0]
    else:
        first, stop = result.start, result.start + result.centered.positions
        image = ax.imshow(
            pooled(result.centered.matrix, CELLS)[0], cmap=DIVERGING, vmin=-1, vmax=1,
            extent=(first - 0.5, stop - 0.5, stop - 0.5, first - 0.5),
        )  # fmt: skip
        ax.locator_params(nbins=4)
        ax.spines[:].set_visible(False)
        ax.set(xlabel="position", ylabel="position")
    return image


def paths_figure(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw the path of positions through two components: ``components`` of the references."""
    components: Mapping[int, PCA] = references["components"]
    figure, axes = _panels(sheet, len(components), 2.0)
    for ax, (number, result) in zip(axes.flat, components.items(), strict=False):
        colors = path_plane(ax, result)
        ax.set_title(f"layer {number}", pad=3)
        ax.xaxis.labelpad = ax.yaxis.labelpad = 1
        ax.locator_params(nbins=4)
    along = "row" if isinstance(result.layout, Grid) else "position"
    figure.colorbar(colors, ax=axes, label=along, aspect=30, shrink=0.9)
    return figure
