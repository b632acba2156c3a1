"""The figures of a run of a model: each where its result is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.analyses.effective import EffectiveTable
from posprobe.analyses.experiments import BlankImages, PermutationEffect, PhaseShift
from posprobe.analyses.grid import grid
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.analyses.pca import pca
from posprobe.analyses.similarity import similarity
from posprobe.analyses.subspaces import SubspaceOverlap
from posprobe.figures import draw_experiments as experiments
from posprobe.figures import draw_forward as inside
from posprobe.figures import draw_path, draw_subspaces
from posprobe.figures.draw import mosaic, plain, pooled, profile
from posprobe.figures.draw_schemes import balanced
from posprobe.figures.styles import DIVERGING, new_figure
from posprobe.table import Grid, PositionTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import Result

Make: TypeAlias = "Callable[[], Figure]"

#: Layers that get a panel each.
PANELS = 6
#: Cells per side of a panel's matrix, and patches per side up to which a panel is a mosaic.
CELLS, MOSAIC = 192, 16
#: Numbers between -1 and 1 that are drawn for the table as attention sees it, and their names.
NUMBERS = {
    "similarity.raw.neighbour_mean": "neighbour cosine, raw",
    "similarity.centered.neighbour_mean": "neighbour cosine",
    "similarity.centered.far_mean": "far cosine",
    "similarity.raw.translation_invariance": "translation invariance",
    "pca.top3": "first three components",
    "sinusoid.cka": "CKA with the sinusoid",
}


def forward_figures(results: Mapping[str, Result], beside: Mapping[str, Any]) -> dict[str, Make]:
    """Name the figures of a run of a model, and how to make each.

    Parameters
    ----------
    results
        Frozen results by name, any of `posprobe.report.forward.NAMES`.
    beside
        Headline numbers of the sinusoid and of random walks of the same shape.
    """
    return {
        name: make
        for key, result in results.items()
        for name, make in _figures(key, result, beside)
    }


def _figures(key: str, result: Result, beside: Mapping[str, Any]) -> Iterator[tuple[str, Make]]:
    match result:
        case MeanDecomposition():
            yield "layers", partial(_layers, result, beside)
            moving = [n for n, layer in result.layers.items() if layer.stable_rank is not None]
            shown = {n: result.table(n) for n in inside.spread(moving, PANELS)}
            if shown:
                yield "cosines", partial(_cosines, result, shown)
            if result.layout.size > 2 and shown and next(iter(shown.values())).dim > 1:
                yield "paths", partial(_paths, shown)
        case HeadsByLayer():
            label = "logit, centred and scaled"
            draw = partial(inside.head_profiles, layers=result.layers)
            heads = {n: len(found.peak) for n, found in result.layers.items()}
            on_grid = isinstance(next(iter(result.layers.values())).layout, Grid)
            yield "heads", partial(_profiles, draw, heads, label, on_grid)
            yield "peaks", partial(_peaks, result)
        case AttentionByOffset():
            draw = partial(inside.attention_profiles, found=result)
            heads = {n: len(layer.peak) for n, layer in result.layers.items()}
            on_grid = isinstance(result.layout, Grid)
            yield key, partial(_profiles, draw, heads, "mean attention", on_grid)
            if key == "attention" and any(_receivers(result)):
                yield "first", partial(_first, result)
        case EffectiveTable():
            yield "effective", partial(_effective, result)
        case SubspaceOverlap():
            yield "overlap", partial(_overlap, result)
        case PermutationEffect():
            yield "permutation", partial(_permutation, result)
        case PhaseShift():
            yield "shift", partial(_shift, result)
        case BlankImages():
            yield "blank", partial(_blank, result)


def _layers(found: MeanDecomposition, beside: Mapping[str, Any]) -> Figure:
    figure = new_figure(6.5, 2.7)
    left, middle, right = figure.subplots(1, 3)
    inside.shares(left, found)
    inside.relative_norms(middle, found)
    walk = beside.get("walk", {}).get("pca.stable_rank")
    band = None if walk is None else (walk["p5"], walk["p95"])
    inside.stable_ranks(right, found, beside.get("sinusoid", {}).get("pca.stable_rank"), band)
    for ax in (left, right):
        ax.legend(loc="lower left", bbox_to_anchor=(-0.04, 1.0))
    for ax in (left, middle, right):
        ax.set_xlabel("layer")
    return figure


def _panels(count: int, side: float) -> tuple[Figure, Any]:
    rows, columns = balanced(count, 3)
    figure = new_figure(max(2.05 * columns + 0.7, 3.6), side * rows + 0.15)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return figure, axes


def _title(number: int, found: MeanDecomposition) -> str:
    noise = found.layers[number].noise_share
    return f"layer {number}" + ("" if noise is None else f" (noise {noise:.0%})")


def _cosines(found: MeanDecomposition, tables: Mapping[int, PositionTable]) -> Figure:
    figure, axes = _panels(len(tables), 2.2)
    for ax, (number, table) in zip(axes.flat, tables.items(), strict=False):
        if not isinstance(table.layout, Grid):
            image = _matrix(ax, table)
        elif max(table.layout.height, table.layout.width) <= MOSAIC:
            image = mosaic(ax, grid(table))
            ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
        else:
            image = _displacements(ax, table)
        ax.set_title(_title(number, found), pad=3)
        if ax not in axes[:, 0]:
            ax.set_ylabel("")
    figure.colorbar(image, ax=axes, label="cosine", aspect=30, shrink=0.9)
    return figure


def _matrix(ax: Axes, table: PositionTable) -> Any:
    cells, _ = pooled(similarity(table).centered.matrix, CELLS)
    first, stop = table.rows
    extent = (first - 0.5, stop - 0.5, stop - 0.5, first - 0.5)
    image = ax.imshow(cells, cmap=DIVERGING, vmin=-1, vmax=1, extent=extent)
    ax.locator_params(nbins=4)
    ax.spines[:].set_visible(False)
    ax.set_ylabel("position")
    return image


def _displacements(ax: Axes, table: PositionTable) -> Any:
    profile(ax, similarity(table))
    ax.locator_params(nbins=5)
    ax.set_xlabel("")
    return ax.images[0]


def _paths(tables: Mapping[int, PositionTable]) -> Figure:
    figure, axes = _panels(len(tables), 2.0)
    for ax, (number, table) in zip(axes.flat, tables.items(), strict=False):
        colors = draw_path.plane(ax, pca(table))
        # Ink follows the page's theme, so that an open and a full mark would look alike.
        ax.lines[-1].set_marker("s")
        ax.set_title(f"layer {number}", pad=3)
        ax.xaxis.labelpad = ax.yaxis.labelpad = 1
        ax.locator_params(nbins=4)
    along = "row" if isinstance(table.layout, Grid) else "position"
    figure.colorbar(colors, ax=axes, label=along, aspect=30, shrink=0.9)
    return figure


def _profiles(
    draw: Callable[[Axes], Any], heads: Mapping[int, int], label: str, on_grid: bool
) -> Figure:
    if on_grid:
        across = min(max(heads.values()), inside.MAX_HEADS)
        side = min(5.2 / across, 0.9)
        height = side * min(len(heads), inside.MAX_LAYERS) + 0.5
        figure = new_figure(max(side * across + 1.3, 3.2), max(height, 2.0))
    else:
        rows = min(sum(heads.values()), inside.MAX_ROWS)
        figure = new_figure(5.4, min(1.1 + max(0.09, 0.9 / rows) * rows, 7.0))
    ax = figure.subplots()
    bar = figure.colorbar(draw(ax), ax=ax, label=label, aspect=30)
    plain(bar.ax.yaxis)
    return figure


def _peaks(result: HeadsByLayer) -> Figure:
    on_grid = isinstance(next(iter(result.layers.values())).layout, Grid)
    figure = new_figure(3.8, 3.0) if on_grid else new_figure(5.4, 2.2)
    inside.peak_histogram(figure.subplots(), result.layers)
    return figure


def _receivers(found: AttentionByOffset) -> list[tuple[str, dict[int, Any], float | None]]:
    """List the tokens that attention is drawn to: what each head pays them, and an even share."""
    first = {k: layer.first for k, layer in found.layers.items() if not np.isnan(layer.first).any()}
    special = {k: layer.special for k, layer in found.layers.items() if layer.special.any()}
    panels: list[tuple[str, dict[int, Any], float | None]] = []
    if first:
        panels.append(("the first position", first, found.uniform_first))
    if special:
        panels.append(("tokens that are no positions", special, None))
    return panels


def _first(found: AttentionByOffset) -> Figure:
    panels = _receivers(found)
    figure = new_figure(6.5 if len(panels) > 1 else 4.8, 2.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, values, even) in zip(axes, panels, strict=True):
        inside.to_one_token(ax, values, even)
        ax.set_ylabel(f"mean attention to\n{title}")
    axes[0].legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    return figure


def _effective(found: EffectiveTable) -> Figure:
    figure = new_figure(6.3, 2.6)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    if isinstance(found.table.layout, Grid):
        image = mosaic(left, grid(found.table))
        left.set(xticks=[], yticks=[])
    else:
        image = _matrix(left, found.table)
        left.set_xlabel("position")
    left.set_title("as attention sees it")
    figure.colorbar(image, ax=left, label="cosine", aspect=30, shrink=0.9)
    inside.effective_numbers(right, found, NUMBERS)
    return figure


def _overlap(found: SubspaceOverlap) -> Figure:
    figure = new_figure(6.3, 4.6)
    upper, lower = figure.subplots(2, 1)
    draw_subspaces.overlap_curve(upper, found)
    draw_subspaces.overlap_map(lower, found)
    return figure


def _permutation(found: PermutationEffect) -> Figure:
    known = found.with_positions.accuracy is not None
    figure = new_figure(6.3 if known else 4.2, 1.8)
    axes = figure.subplots(1, 1 + known, squeeze=False)[0]
    experiments.changes(axes[0], found)
    if known:
        experiments.accuracies(axes[1], found)
    return figure


def _shift(found: PhaseShift) -> Figure:
    with_loss = found.loss is not None
    figure = new_figure(4.8, 3.6 if with_loss else 2.2)
    axes = figure.subplots(1 + with_loss, 1, sharex=True, squeeze=False)[:, 0]
    experiments.shift_change(axes[0], found)
    if with_loss:
        axes[0].set_xlabel("")
        experiments.shift_loss(axes[1], found)
    return figure


def _blank(found: BlankImages) -> Figure:
    layers = inside.spread(list(found.constant), PANELS)
    figure = new_figure(6.3, 4.6)
    halves: Any = figure.subfigures(2, 1, height_ratios=(2.4 if len(layers) > 3 else 3, 2))
    experiments.blank_maps(halves[0], found, layers)
    left, right = halves[1].subplots(1, 2)
    experiments.blank_alignment(left, found)
    experiments.blank_share(right, found)
    left.legend(loc="best")
    return figure
