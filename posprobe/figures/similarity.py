"""Cosines of all pairs of positions, and their mean by offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import (
    LETTER,
    Sheet,
    area,
    balanced,
    extremes,
    legend_above,
    legend_height,
    panels,
    pooled,
    position_label,
    shortened,
    styled,
)
from posprobe.figures.styles import BLUE, MUTED, RED, signed
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Cosine, Similarity

#: Positions from which on the numbers of an axis need room.
WIDE_NUMBERS = 10_000
#: Largest side of a matrix, in inches.
LARGEST = 3.4
#: Marks of a colour bar of cosines.
MARKS = (-1, -0.5, 0, 0.5, 1)


def plot_similarity(ax: Axes, result: Similarity) -> None:
    """Draw the cosine matrix of the rows as stored."""
    image = heat_map(ax, result.raw, result.start)
    ax.figure.colorbar(image, ax=ax, label="cosine")


def heat_map(ax: Axes, cosine: Cosine, start: int = 0) -> AxesImage:
    """Draw the cosine matrix on fixed limits from -1 to 1, its axes in positions."""
    matrix, block = pooled(cosine.matrix)
    n, block = cosine.positions, block * cosine.pooled
    extent = (start - 0.5, start + n - 0.5, start + n - 0.5, start - 0.5)
    image = ax.imshow(matrix, cmap=signed(), vmin=-1, vmax=1, extent=extent)
    ax.set(xlabel="position", ylabel="position")
    if block > 1:
        ax.set_xlabel(f"position (means of {block} x {block} pairs)")
    if start + n > WIDE_NUMBERS:
        ax.locator_params(nbins=4)
    ax.spines[:].set_visible(False)
    return image


def profile(ax: Axes, result: Similarity, centred: bool | None = None) -> None:
    """Draw mean cosine against offset, or against displacement on a grid.

    Where ``centred`` does not say which, the curves are of both, and the map is of centred rows.
    """
    if isinstance(result.layout, Grid):
        right, down = result.layout.width - 1, result.layout.height - 1
        cosine = result.raw if centred is False else result.centered
        ax.imshow(
            cosine.offset_mean, cmap=signed(), vmin=-1, vmax=1,
            extent=(-right - 0.5, right + 0.5, down + 0.5, -down - 0.5),
        )  # fmt: skip
        ax.set(xlabel="columns apart", ylabel="rows apart")
        return
    drawn = (
        (result.raw, "raw", RED, (0, (4, 1.5))),
        (result.centered, "centred", BLUE, "-"),
    )
    for cosine, label, color, dash in drawn:
        if centred is not None and centred != (cosine is result.centered):
            continue
        offset = np.arange(len(cosine.offset_mean))
        curve = extremes(offset, cosine.offset_mean)
        ax.plot(*curve, color=color, linestyle=dash, label=label)
        if label == "centred" or centred is False:
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


def matrices(
    figure: Figure | SubFigure,
    shown: Sequence[tuple[str, Similarity, Cosine]],
    most: int,
    sheet: Sheet,
) -> None:
    """Draw cosine matrices into a figure with one colour bar.

    Parameters
    ----------
    figure
        To draw into.
    shown
        Title, result and which of its matrices, for each panel.
    most
        Panels side by side.
    sheet
        The figure's.
    """
    columns = balanced(len(shown), most)[1]
    axes = panels(figure, len(shown), most)
    fit = int((sheet.width - 0.6) / columns / LETTER) - 1
    for number, (title, result, cosine) in enumerate(shown):
        ax = axes.flat[number]
        image = heat_map(ax, cosine, result.start)
        pairs = ax.get_xlabel().removeprefix("position")
        ax.set_title(shortened(title, fit), pad=3, fontsize="medium")
        # The matrix is symmetric: one axis of numbers is enough beside another panel.
        first = number % columns == 0
        if sheet.narrow or columns > 2:
            ends = [result.start, result.start + cosine.positions - 1]
            # The first number would touch the last of the panel to the left.
            begin = ends[0] if first or ends[0] != shown[0][1].start else ""
            ax.set_xticks(ends, [begin, ends[1]])
            ax.set(yticks=ends, yticklabels=ends if first else ["", ""])
            for label, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
                label.set_ha(side)
            pairs = ""
        elif not first:
            ax.tick_params(labelleft=False)
        what = position_label(result.layout)
        ax.set_ylabel(what if first else "", labelpad=-4 if sheet.narrow or columns > 2 else None)
        ax.set_xlabel(what + pairs if number + columns >= len(shown) else "", labelpad=1)
    place: dict[str, Any] = {"location": "bottom", "aspect": 40} if sheet.narrow else {"aspect": 25}
    figure.colorbar(image, ax=axes, label="cosine", ticks=MARKS, pad=0.03, **place)


def similarity_figure(
    sheet: Sheet, results: Mapping[str, Similarity], references: Mapping[str, Any]
) -> Figure:
    """Draw a cosine matrix per table on one range (Wang & Chen 2020, figure 1).

    Unless ``centred`` of the references says which, a single table is drawn as stored and with its
    mean row subtracted, and several as stored.
    """
    shown = one_of_each(results, centred=bool(references.get("centred")))
    if len(results) == 1 and references.get("centred") is None:
        (only,) = results.values()
        shown = [("rows as stored", only, only.raw), ("mean row subtracted", only, only.centered)]
    most = sheet.columns or (3 if sheet.narrow else 4)
    rows, columns = balanced(len(shown), most)
    side = (sheet.width - (0.6 if sheet.narrow else 1.2)) / columns
    side = min(side, LARGEST)
    figure = sheet.figure(rows * (side + 0.2) + (0.85 if sheet.narrow else 0.4), compressed=True)
    matrices(figure, shown, most, sheet)
    return figure


def one_of_each(
    results: Mapping[str, Similarity], *, centred: bool
) -> list[tuple[str, Similarity, Cosine]]:
    """Return the label, the result and the matrix of each table that are drawn."""
    return [(name, one, one.centered if centred else one.raw) for name, one in results.items()]


def profile_figure(
    sheet: Sheet, results: Mapping[str, Similarity], references: Mapping[str, Any]
) -> Figure:
    """Draw the mean cosine by offset; on a grid, a map by displacement per table."""
    first, centred = next(iter(results.values())), references.get("centred")
    if isinstance(first.layout, Grid):
        return _displacements(sheet, results, centred)
    figure = sheet.figure(sheet.plain + legend_height([*results, ""], sheet.width))
    ax = figure.subplots()
    if len(results) == 1:
        profile(ax, first, centred)
    else:
        profiles(ax, results, centred=centred is not False)
    legend_above(ax)
    return figure


def _displacements(sheet: Sheet, results: Mapping[str, Similarity], centred: bool | None) -> Figure:
    most = 2 if sheet.narrow else 3
    rows, columns = balanced(len(results), most)
    side = min((sheet.width - 1.3) / columns, 2.4)
    figure = sheet.figure((side + 0.3) * rows + 0.3, width=side * columns + 1.4, compressed=True)
    axes = panels(figure, len(results), most)
    for number, (name, result) in enumerate(results.items()):
        ax = axes.flat[number]
        profile(ax, result, centred)
        if len(results) > 1 or sheet.exact:
            ax.set_title(shortened(name, int(side / LETTER)), fontsize="medium")
        if number % columns:
            ax.set_ylabel("")
        if number + columns < len(results):
            ax.set_xlabel("")
        ax.spines[:].set_visible(False)
        ax.locator_params(nbins=5, integer=True)
    label = f"mean {'raw' if centred is False else 'centred'} cosine"
    figure.colorbar(axes.flat[0].images[0], ax=axes, label=label, ticks=MARKS, aspect=25, pad=0.03)
    return figure
