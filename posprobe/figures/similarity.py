"""Cosines of all pairs of positions, and their mean by offset."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import (
    Baselines,
    Ends,
    Maps,
    Sheet,
    area,
    around,
    ends_of,
    extremes,
    map_figure,
    pooled,
    position_label,
    styled,
    with_legend,
)
from posprobe.figures.styles import BLUE, DIVERGING, MUTED, RED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Cosine, Similarity

#: Positions from which on the numbers of an axis need room.
WIDE_NUMBERS = 10_000


def plot_similarity(ax: Axes, result: Similarity) -> None:
    """Draw the cosine matrix of the rows as stored."""
    image = heat_map(ax, result.raw, result.start)
    ax.figure.colorbar(image, ax=ax, label="cosine")


def heat_map(ax: Axes, cosine: Cosine, start: int = 0) -> AxesImage:
    """Draw the cosine matrix on fixed limits from -1 to 1, its axes in positions."""
    matrix, ends = cells(cosine, start)
    n = cosine.positions
    block = -(-n // len(matrix))
    image = ax.imshow(matrix, extent=ends, **of_cosines())
    ax.set(xlabel="position", ylabel="position")
    if block > 1:
        ax.set_xlabel(f"position (means of {block} x {block} pairs)")
    if start + n > WIDE_NUMBERS:
        ax.locator_params(nbins=4)
    ax.spines[:].set_visible(False)
    return image


def cells(cosine: Cosine, start: int) -> tuple[NDArray[Any], Ends]:
    """Return as many cosines as a page shows, with the ends of their axes."""
    return pooled(cosine.matrix)[0], ends_of(start, cosine.positions)


def of_cosines() -> dict[str, Any]:
    """Return colours and limits that all cosines share."""
    return {"cmap": DIVERGING, "vmin": -1, "vmax": 1}


def displacements(result: Similarity, centred: bool | None = None) -> tuple[NDArray[Any], Ends]:
    """Return the mean cosine of patches by displacement, of centred rows unless asked otherwise."""
    return around((result.raw if centred is False else result.centered).offset_mean)


def profile(ax: Axes, result: Similarity, centred: bool | None = None) -> None:
    """Draw mean cosine against offset, or against displacement on a grid.

    Where ``centred`` does not say which, the curves are of both, and the map is of centred rows.
    """
    if isinstance(result.layout, Grid):
        matrix, ends = displacements(result, centred)
        ax.imshow(matrix, extent=ends, **of_cosines())
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
        curve = extremes(offset, cosine.offset_mean)
        ax.plot(*curve, color=color, linestyle=dash, label=label)
        if cosine.pooled == 1 and (label == "centred" or centred is False):
            low, high = (cosine.offset_mean + sign * cosine.offset_std for sign in (-1, 1))
            area(ax, (offset, low, high), color=color, alpha=0.15, label="± 1 sd")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(
        xlabel="offset (positions)", ylabel="cosine", xlim=(0, len(offset) - 1), ylim=(-1.02, 1.02)
    )
    ax.legend(loc="upper right", ncols=3)


def profiles(ax: Axes, results: Mapping[str, Similarity], *, centred: bool = True) -> None:
    """Draw each table's mean cosine against offset, on a grid along its rows."""
    for _, result, look in styled(results):
        mean = (result.centered if centred else result.raw).offset_mean
        if isinstance(result.layout, Grid):
            height, width = mean.shape
            mean = mean[height // 2, width // 2 :]
        ax.plot(*extremes(np.arange(len(mean)), mean), **look)
    on_grid = isinstance(next(iter(results.values())).layout, Grid)
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set_xlabel("columns apart, same row" if on_grid else "offset (positions)")
    ax.set(ylabel=f"mean {'centred' if centred else 'raw'} cosine", ylim=(-1.02, 1.02))
    ax.margins(x=0)
    ax.legend(loc="best")


def matrices(results: Mapping[str, Similarity], *, centred: bool) -> Maps:
    """Return the cosine matrix of each table, with the ends of its axes."""
    return {
        name: cells(result.centered if centred else result.raw, result.start)
        for name, result in results.items()
    }


def similarity_figure(
    sheet: Sheet, results: Mapping[str, Similarity], baselines: Baselines
) -> Figure:
    """Draw a cosine matrix per table on one range (Wang & Chen 2020, figure 1).

    Unless ``centred`` of what is beside says which, a single table is drawn as stored and with its
    mean row subtracted, and several as stored.
    """
    first_result, centred = next(iter(results.values())), baselines.get("centred")
    matrices_by_name = matrices(results, centred=bool(centred))
    if len(results) == 1 and centred is None:
        variants = {
            "rows as stored": first_result.raw,
            "mean row subtracted": first_result.centered,
        }
        matrices_by_name = {
            name: cells(cosine, first_result.start) for name, cosine in variants.items()
        }
    max_panels = sheet.columns or (3 if sheet.narrow else 4)
    unit_label = position_label(first_result.layout)
    return map_figure(
        sheet, matrices_by_name, max_panels, "cosine", (unit_label, unit_label), **of_cosines()
    )


def profile_figure(sheet: Sheet, results: Mapping[str, Similarity], baselines: Baselines) -> Figure:
    """Draw the mean cosine by offset; on a grid, a map by displacement per table."""
    first_result, centred = next(iter(results.values())), baselines.get("centred")
    if isinstance(first_result.layout, Grid):
        label = f"mean {'raw' if centred is False else 'centred'} cosine"
        profiles_by_name = {
            name: displacements(result, centred) for name, result in results.items()
        }
        axis_labels = ("columns apart", "rows apart")
        return map_figure(
            sheet, profiles_by_name, 2 if sheet.narrow else 3, label, axis_labels, **of_cosines()
        )
    draw_profile = partial(profile, centred=centred)
    return with_legend(
        sheet, results, draw_profile, partial(profiles, centred=centred is not False), 0.0
    )
