"""Rows of a table: values, norms, seams and outlier rows, and norms beside those of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import (
    Builder,
    FigureFormat,
    annotate_point,
    label_decades,
    position_label,
    rows_per_cell,
    single_plot,
    single_result,
    thin_curve,
    write_undefined,
)
from posprobe.figures.styles import BLUE, INK, ONE_SIDED_COLORMAP, RED, SIGNED_COLORMAP
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import Norms, Seams
    from posprobe.analyses.descriptive.norms import Scale
    from posprobe.tables import PositionTable


def plot_norms(ax: Axes, result: Norms) -> None:
    """Draw row norms against position, or as a map of the grid."""
    if isinstance(result.layout, Grid):
        shape = result.layout.height, result.layout.width
        image = ax.imshow(result.norms.reshape(shape), cmap=ONE_SIDED_COLORMAP)
        ax.set(xlabel="column", ylabel="row")
        ax.figure.colorbar(image, ax=ax, label="norm", shrink=0.85)
        return
    position = result.start + np.arange(len(result.norms))
    ax.plot(*thin_curve(position, result.norms), color=BLUE)
    if outliers := result.outlier_rows:
        ax.plot(
            [outlier.row for outlier in outliers],
            [outlier.norm for outlier in outliers],
            "o",
            color=RED,
            markersize=2.5,
            label=f"stands out ({len(outliers)})",
        )
        ax.legend(loc="upper right")
    ax.set(xlabel="position", ylabel="row norm", ylim=(0, None))
    ax.set_xlim(position[0] - 0.01 * len(position), position[-1] + 0.01 * len(position))


@single_result
def norms_figure(figure_format: FigureFormat, result: Norms) -> Figure:
    """Draw the norms."""
    figure = figure_format.make_figure(figure_format.plain_height + 0.1)
    if isinstance(result.layout, Grid):
        figure = figure_format.make_figure(
            min(figure_format.width * 0.8, 3.0), width=3.8, compressed=True
        )
    plot_norms(figure.subplots(), result)
    return figure


def plot_table(ax: Axes, table: PositionTable) -> None:
    """Draw the table itself, positions horizontal, clipped at the 99th percentile.

    Beyond `figures.common.MAX_CELLS` rows or dimensions, every k-th is drawn, as the labels say.
    """
    values = np.asarray(table.values, dtype=np.float32)
    limit = float(np.percentile(np.abs(values), 99, overwrite_input=True)) or 1.0
    rows, columns = map(rows_per_cell, values.shape)
    first_row, stop = table.rows
    image = ax.imshow(
        values[::rows, ::columns].T,
        aspect="auto",
        cmap=SIGNED_COLORMAP,
        vmin=-limit,
        vmax=limit,
        extent=(first_row - 0.5, stop - 0.5, table.dim - 0.5, -0.5),
    )
    ax.set_xlabel(_stride_label(position_label(table.layout), rows))
    ax.set_ylabel(_stride_label("dimension", columns))
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(
        image, ax=ax, label="value", extend="both", aspect=25, pad=0.02
    )
    bar.ax.locator_params(nbins=5)


def _stride_label(noun: str, step: int) -> str:
    return noun if step == 1 else f"{noun} (one in {step})"


table_figure: Builder = single_plot(plot_table, 2.5)


#: At most this many outlier rows, and this many seams, are labelled with their numbers.
MAX_NAMED_ROWS = 12


def plot_seams(ax: Axes, result: Seams) -> None:
    """Draw the adjacent centred cosine against position, with seams and outlier rows marked."""
    if result.undefined:
        write_undefined(ax, result.undefined)
        return
    n = len(result.norms)
    # The cosine of two rows stands between them.
    middle = result.start + np.arange(n - 1) + 0.5
    ax.plot(*thin_curve(middle, result.cosines), color=BLUE, linewidth=0.9)
    for k, (left, right) in enumerate(result.between):
        x = result.start + (left + right) / 2
        ax.axvline(
            x,
            color=INK,
            linewidth=0.8,
            linestyle=(0, (4, 1.5)),
            zorder=0,
            label="seam" if k == 0 else None,
        )
        if k < MAX_NAMED_ROWS:
            is_late = left > n / 2
            annotate_point(
                ax,
                f"{result.start + left} | {result.start + right}",
                (x, 0.04),
                (-3 if is_late else 3, 0),
                xycoords=("data", "axes fraction"),
                ha="right" if is_late else "left",
            )
    _mark_outlier_rows(ax, result)
    ax.set(xlabel="position", ylabel="adjacent centred cosine")
    low = float(np.nanmin(result.cosines)) if np.isfinite(result.cosines).any() else 0.0
    ax.set_ylim(min(0.0, low) - 0.05, 1.05)
    ax.set_xlim(result.start - 0.02 * n, result.start + 1.02 * n)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0)


def _mark_outlier_rows(ax: Axes, seams: Seams) -> None:
    """Mark outlier rows at the height of their cosines, and number each group of neighbours."""
    rows = np.array([outlier.row for outlier in seams.special], dtype=int)
    if not rows.size:
        return
    # A marker stands between the cosines on either side; the ends have only one.
    padded = np.concatenate([seams.cosines[:1], seams.cosines, seams.cosines[-1:]])
    height = np.nan_to_num((padded[rows] + padded[rows + 1]) / 2)
    ax.plot(seams.start + rows, height, "v", color=RED, markersize=4, label="special row")
    groups = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) > 1) + 1)
    for group in groups[:MAX_NAMED_ROWS]:
        first, last = (seams.start + rows[group[[0, -1]]]).tolist()
        lowest = group[np.argmin(height[group])]
        is_late = rows[lowest] > len(seams.norms) / 2
        annotate_point(
            ax,
            f"{first}" if first == last else f"{first}\N{EN DASH}{last}",
            (seams.start + rows[lowest], height[lowest]),
            (-5 if is_late else 5, 0),
            ha="right" if is_late else "left",
            va="center",
        )


seams_figure: Builder = single_plot(plot_seams, 2.1)


#: Edges of the bins that both histograms share.
N_HISTOGRAM_EDGES = 60


def plot_scale(ax: Axes, result: Scale) -> None:
    """Draw the norms of positions and of tokens as histograms on one axis, their means as lines."""
    histograms = (
        (result.position_norms, "positions", BLUE, "-"),
        (result.token_norms, "tokens", RED, (0, (4, 1.5))),
    )
    all_norms = np.concatenate([result.position_norms, result.token_norms])
    low, high = float(all_norms.min()), float(all_norms.max())
    if not high:
        write_undefined(ax, "all positions and all tokens are zero")
        return
    # The two kinds of norms may lie decades apart, but a norm of 0 has no logarithm.
    is_logarithmic = low > 0 and high > 4 * low
    edges = (
        np.geomspace(low, high, N_HISTOGRAM_EDGES)
        if is_logarithmic
        else np.linspace(low, high, N_HISTOGRAM_EDGES)
    )
    if low == high:
        edges = np.array([0.9 * low, 1.1 * low])
    for norms, label, color, dash in histograms:
        # Rounding must not put the largest norm beyond the last edge.
        share = np.histogram(np.clip(norms, edges[0], edges[-1]), edges)[0] / len(norms)
        ax.stairs(
            share, edges, color=color, linestyle=dash, label=f"{label} ({len(norms)})"
        )
        ax.axvline(norms.mean(), color=color, linestyle=dash, linewidth=0.6)
    ax.set(xlabel="norm (lines: means)", ylabel="share", ylim=(0, None))
    if is_logarithmic:
        from matplotlib.ticker import LogLocator

        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        label_decades(ax.xaxis)
    ax.legend(loc="best")


scale_figure: Builder = single_plot(plot_scale, 2.4, width=4.6)
