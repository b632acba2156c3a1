"""Figures for papers: the drawings of results, put together at the width of a column or page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posprobe.figures import draw_compare, draw_nulls, draw_path, draw_shift, draw_timefreq
from posprobe.figures.draw import MAX_TILES, heat_map, tile_block
from posprobe.figures.draw import ladder as draw_ladder
from posprobe.figures.draw import matrix as draw_matrix
from posprobe.figures.draw import mosaic as draw_mosaic
from posprobe.figures.draw import norms as draw_norms
from posprobe.figures.draw import power as draw_power
from posprobe.figures.draw import profile as draw_profile
from posprobe.figures.draw import score as draw_score
from posprobe.figures.draw import variance as draw_variance
from posprobe.figures.draw_schemes import balanced
from posprobe.figures.sheet import (
    LETTER,
    PLAIN,
    Sheet,
    columns_of,
    few_ticks,
    fewer_labels,
    legend_above,
    legend_height,
    opaque,
    shortened,
)
from posprobe.figures.styles import DIVERGING, INK, printable
from posprobe.table import Grid, PositionTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from posprobe.analyses import (
        PCA,
        Cosine,
        Norms,
        Patches,
        Shift,
        Similarity,
        Spectrogram,
        Spectrum,
    )

#: Components that are drawn against position.
COMPONENTS = 6


def similarity(results: Mapping[str, Similarity], sheet: Sheet) -> Figure:
    """Draw a cosine matrix per table on one range (Wang & Chen 2020, figure 1).

    A single table is drawn as stored and with its mean row subtracted.
    """
    if len(results) == 1:
        (only,) = results.values()
        cosines = {"rows as stored": only.raw, "mean row subtracted": only.centered}
        panels = [(title, only, cosine) for title, cosine in cosines.items()]
    else:
        panels = [(name, result, result.raw) for name, result in printable(results).items()]
    rows, columns = balanced(len(panels), 3 if sheet.narrow else 4)
    side = (sheet.width - (0.6 if sheet.narrow else 1.2)) / columns
    figure = sheet.figure(rows * (side + 0.2) + (0.85 if sheet.narrow else 0.4), compressed=True)
    _matrices(figure, panels, (rows, columns), sheet)
    return figure


def _matrices(
    figure: Figure | SubFigure,
    panels: Sequence[tuple[str, Similarity, Cosine]],
    shape: tuple[int, int],
    sheet: Sheet,
) -> None:
    """Draw cosine matrices into a figure with one colour bar, the positions' ends as ticks."""
    axes = figure.subplots(*shape, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    fit = int((sheet.width - 0.6) / shape[1] / LETTER) - 1
    for number, (title, result, cosine) in enumerate(panels):
        ax = axes.flat[number]
        image = heat_map(ax, cosine, result.start)
        ax.set_title(shortened(title, fit), pad=3, fontsize="medium")
        ends = [result.start, result.start + cosine.positions - 1]
        # The matrix is symmetric: one axis of numbers is enough beside another panel.
        first = number % shape[1] == 0
        ax.set(xticks=ends, yticks=ends, yticklabels=ends if first else ["", ""])
        for label, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
            label.set_ha(side)
        what = "patch, row by row" if isinstance(result.layout, Grid) else "position"
        ax.set_ylabel(what if first else "", labelpad=-4)
        below = number + shape[1] >= len(panels)
        ax.set_xlabel(what if below else "", labelpad=1)
    place: dict[str, Any] = {"location": "bottom", "aspect": 40} if sheet.narrow else {"aspect": 25}
    figure.colorbar(image, ax=axes, label="cosine", ticks=[-1, -0.5, 0, 0.5, 1], pad=0.03, **place)


def mosaic(result: Patches, sheet: Sheet) -> Figure:
    """Draw a tile per patch (Dosovitskiy et al. 2021, figure 7) and say how to read one."""
    height, width = result.layout.height, result.layout.width
    ratio = height / width
    if sheet.narrow:
        figure = sheet.figure((sheet.width - 0.95) * ratio + 0.65, compressed=True)
        ax = figure.subplots()
        image = opaque(draw_mosaic(ax, result))
        figure.colorbar(image, ax=ax, label="cosine", ticks=[-1, -0.5, 0, 0.5, 1], aspect=30)
    else:
        wide = 0.67 * (sheet.width - 1.2)
        figure = sheet.figure(wide * ratio + 0.65)
        spots = figure.subplot_mosaic(
            [["all", "one"], ["all", "bar"]],
            width_ratios=(wide, 0.5 * wide), height_ratios=(1, 0.06),
        )  # fmt: skip
        ax = spots["all"]
        image = opaque(draw_mosaic(ax, result))
        every = math.ceil(max(height, width) / MAX_TILES)
        _one_tile(spots["one"], ax, result, every)
        figure.colorbar(
            image, cax=spots["bar"], label="cosine", ticks=[-1, 0, 1], orientation="horizontal"
        )
    fewer_labels(ax)
    ax.set_title("a tile: cosine of one patch with all", pad=4)
    return figure


def _one_tile(ax: Axes, whole: Axes, result: Patches, every: int) -> None:
    """Draw one tile of a mosaic again, larger, and frame it and its own cell."""
    from matplotlib.patches import Rectangle

    height, width = result.layout.height, result.layout.width
    row, column = (size // 3 // every * every for size in (height, width))
    frame: dict[str, Any] = {"fill": False, "edgecolor": INK, "linewidth": 1.0}
    wide, tall = (math.ceil(size / tile_block(result.layout)) for size in (width, height))
    left, top = (cell // every * (size + 1) - 1 for cell, size in ((column, wide), (row, tall)))
    whole.add_patch(Rectangle((left, top), wide + 1, tall + 1, **frame))
    tile = result.mosaic[row // result.every, column // result.every]
    ax.imshow(tile, cmap=DIVERGING, vmin=-1, vmax=1)
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **frame))
    ax.set(xlabel="column of the other patch", ylabel="row of the other patch")
    ax.set_title(f"the tile of row {row}, column {column}\n(framed cell: itself)", pad=4)
    few_ticks(ax)
    ax.spines[:].set_visible(False)
    ax.set_anchor("N")


def profile(
    results: Mapping[str, Similarity], band: draw_compare.Band | None, sheet: Sheet
) -> Figure:
    """Draw the mean cosine by offset; on a grid, a map by displacement per table."""
    first = next(iter(results.values()))
    if isinstance(first.layout, Grid):
        return _displacements(printable(results), sheet)
    figure = sheet.figure(PLAIN + legend_height([*results, ""], sheet))
    ax = figure.subplots()
    if len(results) == 1:
        draw_profile(ax, first)
    else:
        draw_compare.profiles(ax, printable(results), band)
    legend_above(ax, sheet)
    return figure


def _displacements(results: Mapping[str, Similarity], sheet: Sheet) -> Figure:
    rows, columns = balanced(len(results), 2 if sheet.narrow else 3)
    side = min((sheet.width - 1.3) / columns, 2.4)
    figure = sheet.figure((side + 0.3) * rows + 0.3, compressed=True)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(results) :]:
        ax.set_axis_off()
    for number, (name, result) in enumerate(results.items()):
        ax = axes.flat[number]
        draw_profile(ax, result)
        ax.set_title(shortened(name, int(side / LETTER)), fontsize="medium")
        if number % columns:
            ax.set_ylabel("")
        if number + columns < len(results):
            ax.set_xlabel("")
        ax.spines[:].set_visible(False)
        ax.locator_params(nbins=5, integer=True)
    figure.colorbar(
        axes.flat[0].images[0], ax=axes, label="mean centred cosine", ticks=[-1, -0.5, 0, 0.5, 1],
        aspect=25, pad=0.03,
    )  # fmt: skip
    return figure


def variance(results: Mapping[str, PCA], band: draw_compare.Band | None, sheet: Sheet) -> Figure:
    """Draw the explained variance by component."""
    figure = sheet.figure(PLAIN + legend_height([*results, ""], sheet))
    ax = figure.subplots()
    if len(results) == 1:
        draw_variance(ax, next(iter(results.values())))
    else:
        draw_compare.variances(ax, printable(results), band)
    legend_above(ax, sheet)
    return figure


def components(result: PCA, sheet: Sheet) -> Figure:
    """Draw the first components' scores against position, or as maps of the grid."""
    on_grid = isinstance(result.layout, Grid)
    count = min(COMPONENTS, result.scores.shape[1])
    columns = min(count, 3 if on_grid or not sheet.narrow else 2)
    rows = -(-count // columns)
    if isinstance(result.layout, Grid):
        side = (sheet.width - 0.1) / columns * result.layout.height / result.layout.width
        figure = sheet.figure(rows * (side + 0.2), compressed=True)
    else:
        figure = sheet.figure(rows * (0.95 if sheet.narrow else 1.15) + 0.3)
    axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    for number, ax in enumerate(axes.flat[:count]):
        draw_score(ax, result, number)
        share = result.explained_variance_ratio[number]
        title = f"{number + 1}: {share:.1%}" if sheet.narrow else ax.get_title(loc="left")
        ax.set_title(title, pad=3)
        if not on_grid:
            ax.locator_params(axis="y", nbins=3)
            few_ticks(ax, axis="x")
    if not on_grid:
        figure.supxlabel("position")
        figure.supylabel("score")
    return figure


def trajectory(result: PCA, sheet: Sheet) -> Figure:
    """Draw the path through the first two components, and through three where there are."""
    three = result.scores.shape[1] > 2
    if not three:
        figure = sheet.figure(0.8 * min(sheet.width, 4))
        flat = figure.subplots()
        beside: list[Any] = [flat]
    elif sheet.narrow:
        figure = sheet.figure(1.62 * sheet.width)
        flat = figure.add_subplot(2, 1, 1)
        beside = [flat, figure.add_subplot(2, 1, 2, projection="3d")]
    else:
        figure = sheet.figure(0.44 * sheet.width)
        flat = figure.add_subplot(1, 2, 1)
        beside = [flat, figure.add_subplot(1, 2, 2, projection="3d")]
    colors = draw_path.plane(flat, result)
    if three:
        draw_path.space(beside[1], result)
        if sheet.low:
            beside[1].set_box_aspect((1, 1, 0.9), zoom=0.85)
    flat.locator_params(nbins=5)
    legend_above(flat, sheet)
    label = "row" if isinstance(result.layout, Grid) else "position"
    figure.colorbar(colors, ax=beside, label=label, aspect=30, shrink=0.9, pad=0.02)
    return figure


def spectrum(
    results: Mapping[str, Spectrum], band: draw_compare.Band | None, sheet: Sheet
) -> Figure:
    """Draw the power spectrum and, of a single sequence, each dimension's dominant frequency."""
    first = next(iter(results.values()))
    on_grid = isinstance(first.layout, Grid)
    if len(results) > 1 or on_grid:
        # The label of the vertical axis needs the height.
        figure = sheet.figure(PLAIN + 0.2 + legend_height([*results, ""], sheet))
        ax = figure.subplots()
        if len(results) > 1:
            _shares(ax, results, band)
        else:
            draw_power(ax, first)
        legend_above(ax, sheet)
        return figure
    figure = sheet.figure(4.4 if sheet.narrow else 2.7)
    upper, lower = figure.subplots(2, 1) if sheet.narrow else figure.subplots(1, 2)
    draw_power(upper, first)
    draw_ladder(lower, first)
    if sheet.narrow:
        for ax in (upper, lower):
            legend_above(ax, sheet, top=ax is upper)
    return figure


def _shares(ax: Axes, results: Mapping[str, Spectrum], band: draw_compare.Band | None) -> None:
    draw_compare.spectra(ax, printable(results), band)
    if isinstance(next(iter(results.values())).layout, Grid):
        ax.set_xlabel("frequency (cycles per patch, radial)")


def spectrogram(result: Spectrogram, sheet: Sheet) -> Figure:
    """Draw power over position and frequency."""
    figure = sheet.figure(2.5)
    ax = figure.subplots()
    image = draw_timefreq.spectrogram(ax, result)
    if image is not None:
        figure.colorbar(image, ax=ax, label="power (dB below peak)", aspect=25, pad=0.02)
    return figure


def matrix(table: PositionTable, sheet: Sheet) -> Figure:
    """Draw the table itself."""
    figure = sheet.figure(2.2 if sheet.narrow else 2.8)
    ax = figure.subplots()
    colors = draw_matrix(ax, table)
    ax.set_xlabel("patch, row by row" if isinstance(table.layout, Grid) else "position")
    ax.set_ylabel("dimension")
    figure.colorbar(colors, ax=ax, label="value", extend="both", aspect=25, pad=0.02)
    return figure


def norms(result: Norms, table: PositionTable, sheet: Sheet) -> Figure:
    """Draw the length of every row."""
    on_grid = isinstance(table.layout, Grid)
    figure = sheet.figure(min(sheet.width * 0.8, 3.0) if on_grid else PLAIN, compressed=on_grid)
    ax = figure.subplots()
    draw_norms(ax, result, table.layout, table.start)
    return figure


def nulls(numbers: Mapping[str, Mapping[str, Any]], sheet: Sheet) -> Figure:
    """Draw a strip per number, by label: the table's value, the sinusoid's, and the null bands."""
    columns = 2 if sheet.narrow else 4 if sheet.low else 3
    rows = math.ceil(len(numbers) / columns)
    figure = sheet.figure(0.66 * rows + 0.3)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(numbers) :]:
        ax.set_axis_off()
    handles: dict[str, Any] = {}
    for ax, (label, entry) in zip(axes.flat, numbers.items(), strict=False):
        title = label.replace("translation", "transl.") if columns != 3 else label
        draw_nulls.strip(ax, entry, title)
        handles |= {text: mark for mark, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    ordered = {name: handles[name] for name in ("table", "sinusoid", *handles) if name in handles}
    figure.legend(
        list(ordered.values()), list(ordered), loc="outside upper left", borderaxespad=0.1,
        ncols=3 if sheet.narrow else len(ordered), columnspacing=1.2,
    )  # fmt: skip
    return figure


def shift(result: Shift, sheet: Sheet) -> Figure:
    """Draw the eigenvalues of the step from one position to the next."""
    size = min(sheet.width, 4.0)
    figure = sheet.figure(0.95 * size, compressed=True)
    ax = figure.subplots()
    draw_shift.shift_plane(ax, result)
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, handletextpad=0.3,
        borderaxespad=0, columnspacing=1.0,
    )  # fmt: skip
    return figure


def comparison(
    similarities: Mapping[str, Similarity],
    spectra: Mapping[str, Spectrum],
    bands: Mapping[str, draw_compare.Band],
    sheet: Sheet,
) -> Figure:
    """Draw the matrices above the curves by offset and by frequency: a paper's first figure."""
    rows, columns = balanced(len(similarities), 3 if sheet.narrow else 6)
    side = (sheet.width - (0.6 if sheet.narrow else 1.2)) / columns
    side = min(side, 0.4 * sheet.width)
    top = rows * (side + 0.2) + (0.95 if sheet.narrow else 0.5)
    legend = legend_height([*similarities, ""], sheet)
    below = (2 * PLAIN if sheet.narrow else PLAIN) + legend
    # On a low sheet the curves keep more than half of the height.
    top = min(top, max(sheet.limit - below, 0.45 * sheet.limit))
    figure = sheet.figure(top + below)
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(top, below))[:, 0]
    panels = [(name, result, result.raw) for name, result in printable(similarities).items()]
    _matrices(upper, panels, (rows, columns), sheet)
    left, right = lower.subplots(2, 1) if sheet.narrow else lower.subplots(1, 2)
    if isinstance(next(iter(similarities.values())).layout, Grid):
        _along(left, printable(similarities))
    else:
        draw_compare.profiles(left, printable(similarities), bands.get("profile"))
    _shares(right, spectra, bands.get("spectrum"))
    handles, labels = left.get_legend_handles_labels()
    for ax in (left, right):
        ax.get_legend().remove()
    lower.legend(
        handles, labels, loc="outside upper center", ncols=columns_of(labels, sheet),
        borderaxespad=0.1, columnspacing=1.0, handlelength=2.4, labelspacing=0.3,
    )  # fmt: skip
    return figure


def _along(ax: Axes, results: Mapping[str, Similarity]) -> None:
    """Draw the mean centred cosine along the rows of a grid."""
    from posprobe.figures.styles import LINES

    for (name, result), (color, dash) in zip(results.items(), LINES, strict=False):
        means = result.centered.offset_mean
        height, width = means.shape
        ax.plot(means[height // 2, width // 2 :], color=color, linestyle=dash, label=name)
    ax.set(xlabel="columns apart, same row", ylabel="mean centred cosine", ylim=(-1.02, 1.02))
    ax.margins(x=0)
    ax.legend()
