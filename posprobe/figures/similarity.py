"""Cosines of all pairs of positions, and their mean by offset."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import (
    Extent,
    FigureExtras,
    FigureFormat,
    Maps,
    assign_line_styles,
    average_blocks,
    fill_between_curves,
    map_by_displacement,
    map_figure,
    plot_with_legend,
    position_label,
    square_extent,
    thin_curve,
)
from posprobe.figures.styles import BLUE, DIVERGING_COLORMAP, MUTED, RED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Cosine, Similarity

#: Axes that reach further have fewer ticks, since their numbers are long.
MAX_DENSE_TICK_POSITION = 10_000


def plot_similarity(ax: Axes, result: Similarity) -> None:
    """Draw the cosine matrix of the rows as stored."""
    image = plot_cosine_matrix(ax, result.raw, result.start)
    ax.figure.colorbar(image, ax=ax, label="cosine")


def plot_cosine_matrix(ax: Axes, cosine: Cosine, start: int = 0) -> AxesImage:
    """Draw a cosine matrix with colours from -1 to 1, its axes in positions."""
    matrix, ends = pool_cosines(cosine, start)
    n = cosine.positions
    block = -(-n // len(matrix))
    image = ax.imshow(matrix, extent=ends, **cosine_colors())
    ax.set(xlabel="position", ylabel="position")
    if block > 1:
        ax.set_xlabel(f"position (means of {block} x {block} pairs)")
    if start + n > MAX_DENSE_TICK_POSITION:
        ax.locator_params(nbins=4)
    ax.spines[:].set_visible(False)
    return image


def pool_cosines(cosine: Cosine, start: int) -> tuple[NDArray[Any], Extent]:
    """Return the cosines averaged to the resolution of a page, with their extent."""
    return average_blocks(cosine.matrix)[0], square_extent(start, cosine.positions)


def cosine_colors() -> dict[str, Any]:
    """Return the colour map and limits that all cosines share."""
    return {"cmap": DIVERGING_COLORMAP, "vmin": -1, "vmax": 1}


def cosine_by_displacement(
    result: Similarity, centred: bool | None = None
) -> tuple[NDArray[Any], Extent]:
    """Return the mean cosine of patches by displacement; rows are centred by default."""
    return map_by_displacement(
        (result.raw if centred is False else result.centered).offset_mean
    )


def plot_profile(ax: Axes, result: Similarity, centred: bool | None = None) -> None:
    """Draw mean cosine against offset, or against displacement on a grid.

    Where ``centred`` is None, curves are of raw and centred rows, and the map is of centred rows.
    """
    if isinstance(result.layout, Grid):
        matrix, ends = cosine_by_displacement(result, centred)
        ax.imshow(matrix, extent=ends, **cosine_colors())
        ax.set(xlabel="columns apart", ylabel="rows apart")
        return
    profile_lines = (
        (result.raw, "raw", RED, (0, (4, 1.5))),
        (result.centered, "centred", BLUE, "-"),
    )
    for cosine, label, color, dash in profile_lines:
        if centred is not None and centred != (cosine is result.centered):
            continue
        offset = np.arange(len(cosine.offset_mean))
        curve = thin_curve(offset, cosine.offset_mean)
        ax.plot(*curve, color=color, linestyle=dash, label=label)
        if cosine.pooled == 1 and (label == "centred" or centred is False):
            low, high = (
                cosine.offset_mean + sign * cosine.offset_std for sign in (-1, 1)
            )
            fill_between_curves(
                ax, (offset, low, high), color=color, alpha=0.15, label="± 1 sd"
            )
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(
        xlabel="offset (positions)",
        ylabel="cosine",
        xlim=(0, len(offset) - 1),
        ylim=(-1.02, 1.02),
    )
    ax.legend(loc="upper right", ncols=3)


def plot_profiles(
    ax: Axes, results: Mapping[str, Similarity], *, centred: bool = True
) -> None:
    """Draw each table's mean cosine against offset; on a grid, along its rows."""
    for _, result, line_style in assign_line_styles(results):
        mean = (result.centered if centred else result.raw).offset_mean
        if isinstance(result.layout, Grid):
            height, width = mean.shape
            mean = mean[height // 2, width // 2 :]
        ax.plot(*thin_curve(np.arange(len(mean)), mean), **line_style)
    on_grid = isinstance(next(iter(results.values())).layout, Grid)
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set_xlabel("columns apart, same row" if on_grid else "offset (positions)")
    ax.set(ylabel=f"mean {'centred' if centred else 'raw'} cosine", ylim=(-1.02, 1.02))
    ax.margins(x=0)
    ax.legend(loc="best")


def cosine_matrices(results: Mapping[str, Similarity], *, centred: bool) -> Maps:
    """Return the cosine matrix of each table, with its extent."""
    return {
        name: pool_cosines(result.centered if centred else result.raw, result.start)
        for name, result in results.items()
    }


def similarity_figure(
    figure_format: FigureFormat, results: Mapping[str, Similarity], extras: FigureExtras
) -> Figure:
    """Draw a cosine matrix per table on one range (Wang & Chen 2020, figure 1).

    The extra ``centred`` chooses the rows. Without it, a single table is drawn as stored and with
    its mean row subtracted, and several tables as stored.
    """
    first_result, centred = next(iter(results.values())), extras.get("centred")
    matrices_by_name = cosine_matrices(results, centred=bool(centred))
    if len(results) == 1 and centred is None:
        variants = {
            "rows as stored": first_result.raw,
            "mean row subtracted": first_result.centered,
        }
        matrices_by_name = {
            name: pool_cosines(cosine, first_result.start)
            for name, cosine in variants.items()
        }
    max_panels = figure_format.max_columns or (3 if figure_format.is_narrow else 4)
    unit_label = position_label(first_result.layout)
    return map_figure(
        figure_format,
        matrices_by_name,
        max_panels,
        "cosine",
        (unit_label, unit_label),
        **cosine_colors(),
    )


def profile_figure(
    figure_format: FigureFormat, results: Mapping[str, Similarity], extras: FigureExtras
) -> Figure:
    """Draw the mean cosine by offset; on a grid, a map by displacement per table."""
    first_result, centred = next(iter(results.values())), extras.get("centred")
    if isinstance(first_result.layout, Grid):
        label = f"mean {'raw' if centred is False else 'centred'} cosine"
        profiles_by_name = {
            name: cosine_by_displacement(result, centred)
            for name, result in results.items()
        }
        axis_labels = ("columns apart", "rows apart")
        return map_figure(
            figure_format,
            profiles_by_name,
            2 if figure_format.is_narrow else 3,
            label,
            axis_labels,
            **cosine_colors(),
        )
    draw_profile = partial(plot_profile, centred=centred)
    return plot_with_legend(
        figure_format,
        results,
        draw_profile,
        partial(plot_profiles, centred=centred is not False),
        0.0,
    )
