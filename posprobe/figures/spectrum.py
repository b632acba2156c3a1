"""Power by frequency, and each dimension's dominant frequency."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import nothing, plain, styled, with_legend
from posprobe.figures.sheet import Sheet, legend_above
from posprobe.figures.styles import BLUE, GRID, MUTED, RED
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from posprobe.analyses import Spectrum

#: Logarithm of the ratio of two frequencies whose labels do not touch.
APART = 0.45


def plot_spectrum(ax: Axes, result: Spectrum) -> None:
    """Draw the aggregate spectrum with its red-noise background and significant lines."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    shown = slice(1, None)
    frequency = result.frequency[shown]
    ax.plot(frequency, result.power[shown], color=BLUE, label="table")
    noise = ((result.background, "red noise", (4, 1.5)), (result.threshold, "1 % level", (1, 1.2)))
    curves = [curve for curve in (result.power, *(n[0] for n in noise)) if curve is not None]
    for values, label, dash in noise:
        if values is not None:
            ax.plot(frequency, values[shown], color=MUTED, linestyle=(0, dash), label=label)
    floor = result.power[shown][result.power[shown] > 0]
    # Labels stand above everything that is drawn, so that no curve strikes them through.
    above = 2.5 * max(float(curve[shown].max()) for curve in curves)
    labelled: list[float] = []
    for line in result.lines[:6]:
        height = result.power[np.argmin(np.abs(result.frequency - line.frequency))]
        ax.plot([line.frequency], [height], "o", color=RED, markersize=3)
        if all(abs(math.log(line.frequency / other)) > APART for other in labelled):
            labelled.append(line.frequency)
            ax.plot([line.frequency] * 2, [height, above], color=RED, linewidth=0.5)
            ax.annotate(f"{line.period:.1f}", (line.frequency, above), ha="center", va="bottom")
    on_grid = isinstance(result.layout, Grid)
    # A grid has too few rings for decades.
    ax.set(xscale="linear" if on_grid else "log", yscale="log")
    ax.set_ylabel("power (sum over dimensions)")
    if floor.size:
        top = 5 * above if labelled else floor.max() * 4
        ax.set_ylim(max(floor.min() / 2, floor.max() * 1e-9), top)
    ax.set_xlabel(_frequency(result))
    ax.set_xlim(frequency[0] * 0.9, frequency[-1] * 1.05)
    if on_grid:
        plain(ax.yaxis)
        return
    plain(ax.xaxis, ax.yaxis, _period_axis(ax))
    ax.legend(loc="lower left")


def _frequency(result: Spectrum) -> str:
    on_grid = isinstance(result.layout, Grid)
    return f"frequency (cycles per {'patch, radial' if on_grid else 'position'})"


def _period_axis(ax: Axes) -> Axis:
    def invert(values: Any) -> Any:
        with np.errstate(divide="ignore"):
            return 1 / np.asarray(values, dtype=float)

    top = ax.secondary_xaxis("top", functions=(invert, invert))
    top.set_xlabel("period (positions)")
    top.spines["top"].set_visible(False)
    return top.xaxis


def ladder(ax: Axes, result: Spectrum) -> None:
    """Draw each dimension's dominant frequency, sorted, beside the sinusoid's ladder."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    order = np.argsort(-np.nan_to_num(result.dominant_frequency, nan=-1.0))
    frequency = result.dominant_frequency[order]
    rank = np.arange(1, len(order) + 1) / len(order)
    marked = result.dominant_significant[order]
    ax.plot(rank, frequency, ".", color=GRID, markersize=3, label="dimension")
    if marked.any():
        ax.plot(rank[marked], frequency[marked], ".", color=BLUE, markersize=3.5,
                label="above its red noise")  # fmt: skip
    lowest = result.frequency[1]
    sinusoid = 10_000.0 ** (-rank) / (2 * np.pi)
    ax.plot(rank, sinusoid, color=RED, linestyle=(0, (4, 1.5)), label="sinusoid's frequencies")
    ax.axhline(lowest, color=MUTED, linewidth=0.5, label="one cycle in the table")
    ax.set(yscale="log", xlabel="dimensions, fastest first (share)")
    ax.set_ylabel("dominant frequency\n(cycles per position)")
    ax.set_ylim(lowest / 2.5, 0.7)
    plain(ax.yaxis)
    ax.legend(loc="upper right")


def shares(ax: Axes, results: Mapping[str, Spectrum]) -> None:
    """Draw each table's spectrum as the share of its power at each frequency."""
    first = next(iter(results.values()))
    for _, result, look in styled(results):
        ax.plot(result.frequency[1:], result.power[1:] / (result.power.sum() or 1.0), **look)
    ax.set(xscale="log", yscale="log", xlabel=_frequency(first), ylabel="share of power")
    ax.set_ylim(1e-7, 1)
    plain(ax.xaxis, ax.yaxis)
    ax.legend(loc="lower left")


def spectrum_figure(sheet: Sheet, results: Mapping[str, Spectrum], _: Mapping[str, Any]) -> Figure:
    """Draw the power spectrum and, of a single sequence, each dimension's dominant frequency."""
    first = next(iter(results.values()))
    if len(results) > 1 or isinstance(first.layout, Grid):
        # The label of the vertical axis needs the height.
        return with_legend(sheet, results, plot_spectrum, shares, 0.3)
    figure = sheet.figure(4.4 if sheet.narrow else 2.8)
    ratios = None if sheet.narrow else (1.2, 1.0)
    axes = figure.subplots(*sheet.beside(2), width_ratios=ratios)
    plot_spectrum(axes[0], first)
    ladder(axes[1], first)
    if sheet.narrow:
        for ax in axes:
            legend_above(ax, top=ax is axes[0])
    return figure
