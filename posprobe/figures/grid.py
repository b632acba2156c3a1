"""Patches on a grid: mosaics of cosines and axis codes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from posprobe.analyses.descriptive.grid import MAX_MOSAIC_TILES
from posprobe.arrays import Floats
from posprobe.figures.common import (
    FigureFormat,
    legend_height,
    single_result,
    write_undefined,
)
from posprobe.figures.components import plot_pair_plane
from posprobe.figures.styles import (
    DIVERGING_COLORMAP,
    LINE_STYLES,
    PALE,
    colormap_with_gaps,
)
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Patches
    from posprobe.analyses.descriptive.grid import AxisCode, AxisCodes, VideoCodes


#: A mosaic has at most this many tiles per side; on larger grids every k-th patch has one.
MAX_TILES = MAX_MOSAIC_TILES
#: At most this many tiles per side are numbered.
MAX_TILE_LABELS = 8
#: Tiles with more cells per side are averaged in blocks to at most half as many.
MAX_TILE_CELLS = 64
#: Ticks of a colour bar of cosines.
COSINE_TICKS = (-1, -0.5, 0, 0.5, 1)


def plot_patches(ax: Axes, result: Patches) -> None:
    """Draw the mosaic and its colour bar."""
    ax.figure.colorbar(plot_mosaic(ax, result), ax=ax, label="cosine")


def lay_out_mosaic(result: Patches) -> Floats:
    """Lay out a tile per patch, with NaN in the gaps between them."""
    height, width = result.layout.height, result.layout.width
    block, step = tile_block(result.layout), tile_stride(result.layout) // result.every
    tiles = result.mosaic[::step, ::step]
    if block > 1:
        row_starts, column_starts = (
            np.arange(0, side, block) for side in (height, width)
        )
        sums = np.add.reduceat(
            np.add.reduceat(tiles, row_starts, axis=2), column_starts, axis=3
        )
        block_heights = np.diff(np.append(row_starts, height))
        block_widths = np.diff(np.append(column_starts, width))
        tiles = sums / np.outer(block_heights, block_widths)
    n_rows, n_columns, tile_height, tile_width = tiles.shape
    gapped_tiles = np.full((n_rows, tile_height + 1, n_columns, tile_width + 1), np.nan)
    gapped_tiles[:, :tile_height, :, :tile_width] = tiles.transpose(0, 2, 1, 3)
    canvas = gapped_tiles.reshape(
        n_rows * (tile_height + 1), n_columns * (tile_width + 1)
    )
    return canvas[:-1, :-1]


def plot_mosaic(ax: Axes, result: Patches) -> AxesImage:
    """Draw one tile per patch: its cosine with every patch (Dosovitskiy et al. 2021, figure 7)."""
    block, step = tile_block(result.layout), tile_stride(result.layout)
    # Gaps are grey: white means a cosine of 0, and transparency would need a second raster.
    image = ax.imshow(
        lay_out_mosaic(result),
        cmap=colormap_with_gaps(DIVERGING_COLORMAP),
        vmin=-1,
        vmax=1,
    )
    for axis, side in ((ax.xaxis, result.layout.width), (ax.yaxis, result.layout.height)):
        count, tile = -(-side // step), -(-side // block)
        labelled = np.arange(0, count, -(-count // MAX_TILE_LABELS))
        axis.set_ticks(
            labelled * (tile + 1) + (tile - 1) / 2, [str(k * step) for k in labelled]
        )
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    cells = f" (cells: means of {block} x {block})" if block > 1 else ""
    ax.set(xlabel=f"column of the patch{cells}", ylabel="row of the patch")
    return image


def tile_stride(layout: Grid) -> int:
    """Return the stride between patches that have a tile: 1 unless the grid is large."""
    return math.ceil(max(layout.height, layout.width) / MAX_TILES)


def tile_block(layout: Grid) -> int:
    """Return the side, in patches, of the blocks in which tiles are averaged."""
    longer_side = max(layout.height, layout.width)
    return (
        math.ceil(2 * longer_side / MAX_TILE_CELLS) if longer_side > MAX_TILE_CELLS else 1
    )


@single_result
def mosaic_figure(figure_format: FigureFormat, result: Patches) -> Figure:
    """Draw a tile per patch."""
    ratio = result.layout.height / result.layout.width
    width = min(figure_format.width - 0.95, 4.3 * max(1, 1 / ratio))
    figure = figure_format.make_figure(
        width * ratio + 0.65, width=width + 0.95, compressed=True
    )
    ax = figure.subplots()
    figure.colorbar(
        plot_mosaic(ax, result), ax=ax, label="cosine", ticks=COSINE_TICKS, aspect=30
    )
    if figure_format.is_exact:
        ax.set_title("a tile: cosine of one patch with all", pad=4)
    return figure


#: At most this many components of a code are drawn along its axis.
MAX_CODE_COMPONENTS = 4
#: Singular of each axis, for labels.
AXIS_SINGULARS = {"frames": "time", "rows": "row", "columns": "column"}


def plot_axis_codes(ax: Axes, result: AxisCodes | VideoCodes) -> None:
    """Draw the shares of the variance of each axis, and of their interaction."""
    if result.undefined:
        write_undefined(ax, result.undefined)
        return
    shares = {axis: code.share for axis, code in result.axes.items()}
    shares["rest"] = result.interaction_share
    left_edge = 0.0
    for (name, share), (color, _) in zip(shares.items(), LINE_STYLES, strict=False):
        ax.barh(
            [0],
            [share],
            left=left_edge,
            color=color,
            height=0.5,
            label=f"{name} {share:.1%}",
        )
        left_edge += share
    ax.set(yticks=[], ylim=(-0.3, 0.5), xlim=(0, 1), xlabel="share of variance")
    ax.spines["left"].set_visible(False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 0.85), ncols=len(shares))


def plot_code_scores(ax: Axes, code: AxisCode, axis: str) -> None:
    """Draw the leading components of a code along its axis."""
    if code.components is None:
        write_undefined(ax, code.undefined)
        return
    count = min(MAX_CODE_COMPONENTS, len(code.components.singular_values))
    ax.axhline(0, color=PALE, linewidth=0.6, zorder=0)
    for k, (color, dash) in zip(range(count), LINE_STYLES, strict=False):
        share = code.components.explained_variance_ratio[k]
        ax.plot(
            np.arange(len(code.code)),
            code.components.scores[:, k],
            color=color,
            linestyle=dash,
            marker="o",
            markersize=2,
            label=f"{k + 1}: {share:.0%}",
        )
    ax.set(xlabel=f"{AXIS_SINGULARS[axis]} of patches", ylabel="score")
    ax.locator_params(axis="x", integer=True)
    ax.locator_params(axis="y", nbins=4)
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=2,
        handlelength=2.0,
        columnspacing=0.8,
        borderaxespad=0.2,
        labelspacing=0.2,
    )


@single_result
def axis_codes_figure(
    figure_format: FigureFormat, result: AxisCodes | VideoCodes
) -> Figure:
    """Draw for each axis its two strongest pairs in their planes, and its components."""
    is_wide = not figure_format.is_narrow
    legend_room = legend_height([""] * 4, figure_format.width)
    figure = figure_format.make_figure(
        (2.3 if is_wide else 3.7) * len(result.axes) + legend_room
    )
    subfigures = figure.subfigures(len(result.axes), 1, squeeze=False)[:, 0]
    for subfigure, (axis, code) in zip(subfigures, result.axes.items(), strict=True):
        variance_label = "of the table's variance" if is_wide else "of the variance"
        subfigure.suptitle(
            f"{AXIS_SINGULARS[axis]} code, {code.share:.1%} {variance_label}",
            x=0.01,
            ha="left",
        )
        axes = subfigure.subplot_mosaic("ABC" if is_wide else "AB;CC")
        for k, ax in enumerate((axes["A"], axes["B"])):
            if k < len(code.winding.pairs):
                pair = code.winding.pairs[k]
                plot_pair_plane(ax, code.winding, pair)
                ax.set_title(f"{pair.turns:.2f} turns, {pair.share:.0%}")
                ax.locator_params(nbins=4)
            else:
                write_undefined(
                    ax, code.winding.undefined or "no further pair goes round"
                )
        plot_code_scores(axes["C"], code, axis)
    return figure


#: The figure of a video has a strip for each of its three axes.
video_codes_figure = axis_codes_figure
