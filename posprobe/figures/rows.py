"""A table row by row: values, norms, breaks and outliers, and norms beside those of tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from posprobe.figures.common import (
    MAX_CELLS,
    Builder,
    Sheet,
    alone,
    extremes,
    note,
    nothing,
    of_one,
    plain,
    position_label,
)
from posprobe.figures.styles import BLUE, INK, ONE_SIDED, RED, SIGNED
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
        image = ax.imshow(result.norms.reshape(shape), cmap=ONE_SIDED)
        ax.set(xlabel="column", ylabel="row")
        ax.figure.colorbar(image, ax=ax, label="norm", shrink=0.85)
        return
    position = result.start + np.arange(len(result.norms))
    ax.plot(*extremes(position, result.norms), color=BLUE)
    if odd := result.outlier_rows:
        ax.plot(
            [outlier.row for outlier in odd], [outlier.norm for outlier in odd], "o", color=RED,
            markersize=2.5, label=f"stands out ({len(odd)})",
        )  # fmt: skip
        ax.legend(loc="upper right")
    ax.set(xlabel="position", ylabel="row norm", ylim=(0, None))
    ax.set_xlim(position[0] - 0.01 * len(position), position[-1] + 0.01 * len(position))


@of_one
def norms_figure(sheet: Sheet, result: Norms) -> Figure:
    """Draw the norms."""
    figure = sheet.figure(sheet.plain + 0.1)
    if isinstance(result.layout, Grid):
        figure = sheet.figure(min(sheet.width * 0.8, 3.0), width=3.8, compressed=True)
    plot_norms(figure.subplots(), result)
    return figure


def plot_table(ax: Axes, table: PositionTable) -> None:
    """Draw the table itself, positions horizontal, clipped at the 99th percentile.

    Of more than `MAX_CELLS` rows or dimensions every second, third … is drawn, as the labels say.
    """
    values = np.asarray(table.values, dtype=np.float32)
    limit = float(np.percentile(np.abs(values), 99, overwrite_input=True)) or 1.0
    rows, columns = (math.ceil(size / MAX_CELLS) for size in values.shape)
    first_row, stop = table.rows
    image = ax.imshow(
        values[::rows, ::columns].T, aspect="auto", cmap=SIGNED, vmin=-limit, vmax=limit,
        extent=(first_row - 0.5, stop - 0.5, table.dim - 0.5, -0.5),
    )  # fmt: skip
    ax.set_xlabel(_every(position_label(table.layout), rows))
    ax.set_ylabel(_every("dimension", columns))
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, label="value", extend="both", aspect=25, pad=0.02)
    bar.ax.locator_params(nbins=5)


def _every(noun: str, step: int) -> str:
    return noun if step == 1 else f"{noun} (one in {step})"


table_figure: Builder = alone(plot_table, 2.5)


#: Special rows and seams whose numbers are written out.
MAX_NAMED_ROWS = 12


def plot_seams(ax: Axes, result: Seams) -> None:
    """Draw the adjacent centred cosine against position, with seams and special rows marked."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    n = len(result.norms)
    # The cosine of two rows stands between them.
    middle = result.start + np.arange(n - 1) + 0.5
    ax.plot(*extremes(middle, result.cosines), color=BLUE, linewidth=0.9)
    for k, (left, right) in enumerate(result.between):
        x = result.start + (left + right) / 2
        ax.axvline(x, color=INK, linewidth=0.8, linestyle=(0, (4, 1.5)), zorder=0,
                   label="seam" if k == 0 else None)  # fmt: skip
        if k < MAX_NAMED_ROWS:
            late = left > n / 2
            note(
                ax, f"{result.start + left} | {result.start + right}", (x, 0.04),
                (-3 if late else 3, 0), xycoords=("data", "axes fraction"),
                ha="right" if late else "left",
            )  # fmt: skip
    rows = np.array([outlier.row for outlier in result.special], dtype=int)
    if rows.size:
        # Between the cosines on either side, of which an end has one.
        padded = np.concatenate([result.cosines[:1], result.cosines, result.cosines[-1:]])
        height = np.nan_to_num((padded[rows] + padded[rows + 1]) / 2)
        ax.plot(result.start + rows, height, "v", color=RED, markersize=4, label="special row")
        groups = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) > 1) + 1)
        for group in groups[:MAX_NAMED_ROWS]:
            first, last = (result.start + rows[group[[0, -1]]]).tolist()
            lowest = group[np.argmin(height[group])]
            late = rows[lowest] > n / 2
            note(
                ax, f"{first}" if first == last else f"{first}\N{EN DASH}{last}",
                (result.start + rows[lowest], height[lowest]), (-5 if late else 5, 0),
                ha="right" if late else "left", va="center",
            )  # fmt: skip
    ax.set(xlabel="position", ylabel="adjacent centred cosine")
    low = float(np.nanmin(result.cosines)) if np.isfinite(result.cosines).any() else 0.0
    ax.set_ylim(min(0.0, low) - 0.05, 1.05)
    ax.set_xlim(result.start - 0.02 * n, result.start + 1.02 * n)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0)


seams_figure: Builder = alone(plot_seams, 2.1)


#: Bins of either histogram, over the range of both.
BINS = 60


def plot_scale(ax: Axes, result: Scale) -> None:
    """Draw the norms of positions and of tokens as histograms on one axis, their means as lines."""
    histograms = (
        (result.position_norms, "positions", BLUE, "-"),
        (result.token_norms, "tokens", RED, (0, (4, 1.5))),
    )
    all_norms = np.concatenate([result.position_norms, result.token_norms])
    low, high = float(all_norms.min()), float(all_norms.max())
    if not high:
        nothing(ax, "all positions and all tokens are zero")
        return
    # Norms of the two may lie decades apart, but a norm of zero lies on no logarithmic axis.
    logarithmic = low > 0 and high > 4 * low
    edges = np.geomspace(low, high, BINS) if logarithmic else np.linspace(low, high, BINS)
    if low == high:
        edges = np.array([0.9 * low, 1.1 * low])
    for norms, label, color, dash in histograms:
        # Rounding must not put the largest norm beyond the last edge.
        share = np.histogram(np.clip(norms, edges[0], edges[-1]), edges)[0] / len(norms)
        ax.stairs(share, edges, color=color, linestyle=dash, label=f"{label} ({len(norms)})")
        ax.axvline(norms.mean(), color=color, linestyle=dash, linewidth=0.6)
    ax.set(xlabel="norm (lines: means)", ylabel="share", ylim=(0, None))
    if logarithmic:
        from matplotlib.ticker import LogLocator

        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        plain(ax.xaxis)
    ax.legend(loc="best")


scale_figure: Builder = alone(plot_scale, 2.4, width=4.6)
