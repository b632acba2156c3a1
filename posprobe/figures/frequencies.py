"""Frequencies of a table: spectrum, spectrogram, map from row to row, rotations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses.composition.rotation_clock import Clock
from posprobe.arrays import Floats
from posprobe.figures.common import (
    Builder,
    FigureExtras,
    FigureFormat,
    assign_line_styles,
    draw_axis_cross,
    label_decades,
    plot_with_legend,
    single_plot,
    single_result,
    write_undefined,
)
from posprobe.figures.fits import term_colour
from posprobe.figures.styles import BLUE, INK, MUTED, ONE_SIDED_COLORMAP, PALE, RED
from posprobe.layouts import Grid
from posprobe.text import format_period

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from posprobe.analyses import Shift, Spectrogram, Spectrum


#: Power this far below the peak has the last colour.
SPECTROGRAM_FLOOR_DB = -40.0
#: Smallest natural logarithm of the ratio of two frequencies whose labels do not overlap.
MIN_LABEL_LOG_RATIO = 0.45


def plot_spectrum(ax: Axes, result: Spectrum) -> None:
    """Draw the aggregate spectrum with its red-noise background and significant lines."""
    if result.undefined:
        write_undefined(ax, result.undefined)
        return
    frequency, power = result.frequency[1:], result.power[1:]
    ax.plot(frequency, power, color=BLUE, label="table")
    curves = [power]
    for noise_power, label, dash in (
        (result.background, "red noise", (4, 1.5)),
        (result.threshold, "1 % level", (1, 1.2)),
    ):
        if noise_power is not None:
            curves.append(noise_power[1:])
            ax.plot(frequency, curves[-1], color=MUTED, linestyle=(0, dash), label=label)
    positive_power = power[power > 0]
    # Labels stand above all curves, so that none crosses them.
    upper_limit = 2.5 * max(float(curve.max()) for curve in curves)
    _mark_lines(ax, result, upper_limit)
    on_grid = isinstance(result.layout, Grid)
    # A grid has too few rings for decades.
    ax.set(xscale="linear" if on_grid else "log", yscale="log")
    ax.set_ylabel("power (sum over dimensions)")
    if positive_power.size:
        largest_power = positive_power.max()
        top = 5 * upper_limit if result.lines else largest_power * 4
        ax.set_ylim(max(positive_power.min() / 2, largest_power * 1e-9), top)
    ax.set_xlabel(_frequency_label(result))
    ax.set_xlim(frequency[0] * 0.9, frequency[-1] * 1.05)
    if on_grid:
        label_decades(ax.yaxis)
        return
    label_decades(ax.xaxis, ax.yaxis, _add_period_axis(ax))
    ax.legend(loc="lower left")


def _mark_lines(ax: Axes, result: Spectrum, label_height: float) -> None:
    """Mark the strongest lines, and write the periods of those whose labels do not overlap."""
    labelled: list[float] = []
    for line in result.lines[:6]:
        height = result.power[np.argmin(np.abs(result.frequency - line.frequency))]
        ax.plot([line.frequency], [height], "o", color=RED, markersize=3)
        if all(
            abs(math.log(line.frequency / labelled_frequency)) > MIN_LABEL_LOG_RATIO
            for labelled_frequency in labelled
        ):
            labelled.append(line.frequency)
            ax.plot(
                [line.frequency] * 2, [height, label_height], color=RED, linewidth=0.5
            )
            label_point = (line.frequency, label_height)
            ax.annotate(f"{line.period:.1f}", label_point, ha="center", va="bottom")


def _frequency_label(result: Spectrum) -> str:
    on_grid = isinstance(result.layout, Grid)
    return f"frequency (cycles per {'patch, radial' if on_grid else 'position'})"


def _add_period_axis(ax: Axes) -> Axis:
    def invert(values: Any) -> Any:
        with np.errstate(divide="ignore"):
            return 1 / np.asarray(values, dtype=float)

    top = ax.secondary_xaxis("top", functions=(invert, invert))
    top.set_xlabel("period (positions)")
    top.spines["top"].set_visible(False)
    return top.xaxis


def plot_power_shares(ax: Axes, results: Mapping[str, Spectrum]) -> None:
    """Draw each table's spectrum as the share of its power at each frequency."""
    first_result = next(iter(results.values()))
    for _, result, line_style in assign_line_styles(results):
        ax.plot(
            result.frequency[1:],
            result.power[1:] / (result.power.sum() or 1.0),
            **line_style,
        )
    # A grid has too few rings for decades.
    on_grid = isinstance(first_result.layout, Grid)
    ax.set(
        xscale="linear" if on_grid else "log",
        yscale="log",
        xlabel=_frequency_label(first_result),
        ylabel="share of power",
    )
    ax.set_ylim(1e-7, 1)
    label_decades(*((ax.yaxis,) if on_grid else (ax.xaxis, ax.yaxis)))
    ax.legend(loc="lower left")


def spectrum_figure(
    figure_format: FigureFormat, results: Mapping[str, Spectrum], _: FigureExtras
) -> Figure:
    """Draw the power spectrum."""
    is_sequence = not isinstance(next(iter(results.values())).layout, Grid)
    # The label of the vertical axis needs some height, and the axis of periods needs more.
    extra_height = 1.0 if is_sequence and len(results) == 1 else 0.3
    return plot_with_legend(
        figure_format, results, plot_spectrum, plot_power_shares, extra_height
    )


def _to_decibels(power: Floats) -> Floats:
    """Return powers in dB relative to the peak, at least `SPECTROGRAM_FLOOR_DB` - 10."""
    floor = 10 ** (SPECTROGRAM_FLOOR_DB / 10) / 10
    peak = power.max() or 1.0
    return np.asarray(10 * np.log10(np.maximum(power / peak, floor)))


def plot_spectrogram(ax: Axes, result: Spectrogram) -> None:
    """Draw power over position and frequency in decibels below its peak, and the fastest line."""
    if result.length is None or result.step is None:
        write_undefined(ax, result.undefined)
        return
    half_step, bin_width, highest = (
        result.step / 2,
        result.frequency[1],
        result.frequency[-1],
    )
    extent = (
        result.center[0] - half_step,
        result.center[-1] + half_step,
        -bin_width / 2,
        highest + bin_width / 2,
    )
    image = ax.imshow(
        _to_decibels(result.power).T,
        origin="lower",
        aspect="auto",
        cmap=ONE_SIDED_COLORMAP,
        vmin=SPECTROGRAM_FLOOR_DB,
        vmax=0,
        extent=extent,
    )
    if not np.isnan(result.fastest).all():
        ax.plot(
            result.center,
            result.fastest,
            "o",
            color="white",
            markeredgecolor=RED,
            markeredgewidth=0.8,
            markersize=3,
            label="fastest line",
        )
        ax.legend(loc="upper right", labelcolor="white")
    ax.set(
        xlabel=f"position (middle of {result.length})",
        ylabel="frequency (cycles per position)",
        ylim=(0, highest),
    )
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label="power (dB below peak)", aspect=25, pad=0.02)


spectrogram_figure: Builder = single_plot(plot_spectrogram, 2.5)


#: At most this many periods are written beside the circle.
MAX_LABELLED_MODES = 8
#: Labels this far apart, in radians, do not overlap.
MIN_LABEL_ANGLE = 0.17


def plot_shift(ax: Axes, result: Shift) -> None:
    """Draw the eigenvalues in the complex plane, labelled with periods."""
    if result.skill is None:
        write_undefined(ax, result.undefined)
        return
    angles = np.linspace(0, 2 * np.pi, 361)
    draw_axis_cross(ax)
    ax.plot(np.cos(angles), np.sin(angles), color=MUTED, linewidth=0.7, zorder=1)
    eigenvalues = result.eigenvalues
    ax.plot(
        eigenvalues.real,
        eigenvalues.imag,
        ".",
        color=MUTED,
        markersize=2.5,
        label="other",
    )
    mode_angles = 2 * np.pi / result.periods
    modes = result.moduli * np.exp(1j * mode_angles)
    is_rotation = result.rotations
    for drawn_modes, label, fill in (
        (modes[is_rotation], "rotation", BLUE),
        (modes[~is_rotation], "mode, no rotation", "white"),
    ):
        conjugate_pairs = np.concatenate([drawn_modes, drawn_modes.conj()])
        if drawn_modes.size:
            ax.plot(
                conjugate_pairs.real,
                conjugate_pairs.imag,
                "o",
                color=BLUE,
                markerfacecolor=fill,
                markersize=4,
                label=label,
                zorder=3,
            )
    # A single stray eigenvalue must not shrink the circle.
    limit = min(1.2, max(1.05, float(np.abs(eigenvalues).max()) * 1.05))
    _write_periods(ax, result, mode_angles)
    ax.set(
        xlim=(-1.4 * limit, 1.4 * limit), ylim=(-1.2 * limit, 1.2 * limit), aspect="equal"
    )
    ax.set(xlabel="real part", ylabel="imaginary part (labels: periods)")
    box = ax.viewLim
    n_outside = sum(not box.contains(value.real, value.imag) for value in eigenvalues)
    title = f"skill {result.skill:.3g}, rank {result.rank}"
    if n_outside:
        title += f"\n{n_outside} of the eigenvalues beyond the frame"
    ax.set_title(title)
    ax.legend(loc="lower left", handletextpad=0.3, borderaxespad=0)


def _write_periods(ax: Axes, result: Shift, angle: Floats) -> None:
    """Label modes with periods that do not overlap, rotations first and strong before weak."""
    labelled_modes: list[int] = []
    for mode in np.lexsort((-result.shares, ~result.rotations)).tolist():
        if all(
            abs(angle[mode] - angle[labelled_mode]) >= MIN_LABEL_ANGLE
            for labelled_mode in labelled_modes
        ):
            labelled_modes.append(mode)
    for mode in labelled_modes[:MAX_LABELLED_MODES]:
        x, y = np.cos(angle[mode]), np.sin(angle[mode])
        side = "left" if x > 0.1 else "right" if x < -0.1 else "center"
        period_label = format_period(result.periods[mode])
        radius = result.moduli[mode]
        ax.plot(
            [radius * x, 1.06 * x],
            [radius * y, 1.06 * y],
            color=PALE,
            linewidth=0.6,
            zorder=0,
        )
        ax.text(1.08 * x, 1.08 * y, period_label, color=INK, ha=side, va="center")


@single_result
def shift_figure(figure_format: FigureFormat, result: Shift) -> Figure:
    """Draw the eigenvalues."""
    figure = figure_format.make_figure(
        0.95 * min(figure_format.width, 4.0), width=3.8, compressed=True
    )
    ax = figure.subplots()
    plot_shift(ax, result)
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    figure.legend(
        *ax.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        handletextpad=0.3,
        borderaxespad=0,
        columnspacing=1.0,
    )
    return figure


#: At most this many circles are drawn, as more are too small to read.
MAX_CIRCLES = 6


def plot_clock(ax: Axes, result: Clock) -> None:
    """Draw the speed of the clock against position."""
    if not len(result.speed):
        write_undefined(ax, result.undefined or result.missing_reason)
        return
    position = result.first + np.arange(len(result.speed))
    ax.axhline(1.0, color=MUTED, linestyle=(0, (4, 1.5)), linewidth=0.9)
    ax.plot(position, result.speed, color=BLUE)
    ax.set(xlabel="position", ylabel="speed of clock")
    ax.margins(x=0.02)


def plot_lead(ax: Axes, result: Clock) -> None:
    """Draw how far the angle of each rotation is ahead of an even pace, against position."""
    position = result.first + np.arange(result.lead.shape[1])
    ax.axhline(0.0, color=MUTED, linestyle=(0, (4, 1.5)), linewidth=0.9)
    for k, (lead, period) in enumerate(zip(result.lead, result.periods, strict=True)):
        if np.isfinite(lead).all():
            colour = term_colour("rotation", k, len(result.lead))
            ax.plot(position, lead, color=colour, label=format_period(period))
    ax.set(ylabel="lead (positions)")
    ax.tick_params(labelbottom=False)
    ax.margins(x=0.02)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, title="period")


def plot_circle(ax: Axes, result: Clock, rotation: int) -> Any:
    """Draw the rows projected on the plane of one rotation."""
    path = result.paths[rotation]
    x, y = path.T
    position = result.first + np.arange(len(path))
    dots = ax.scatter(
        x, y, c=position, cmap=ONE_SIDED_COLORMAP, s=4, linewidths=0, rasterized=True
    )
    reach = 1.1 * float(np.abs(path).max())
    ax.set(
        xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[]
    )
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.text(0, 0, format_period(result.periods[rotation]), ha="center", va="center")
    return dots


@single_result
def clock_figure(figure_format: FigureFormat, result: Clock) -> Figure:
    """Draw the circles of the rotations; of one clock also their angles, and its speed."""
    count = min(len(result.paths), MAX_CIRCLES)
    n_columns = min(count, 2 if figure_format.is_narrow else 4)
    n_rows = -(-count // n_columns)
    n_curves = 2 * bool(result.shared)
    side = figure_format.width / max(n_columns, 2)
    figure = figure_format.make_figure(side * n_rows + 1.4 * n_curves + 0.4)
    heights = [side] * n_rows + [1.3] * n_curves
    grid = figure.add_gridspec(len(heights), n_columns, height_ratios=heights)
    axes = [figure.add_subplot(grid[k // n_columns, k % n_columns]) for k in range(count)]
    for k, ax in enumerate(axes):
        dots = plot_circle(ax, result, k)
    bar = figure.colorbar(dots, ax=axes, shrink=0.7, pad=0.02, label="position")
    bar.outline.set_visible(False)
    figure.suptitle("Rotations, by period in positions", x=0.01, ha="left")
    if n_curves:
        plot_lead(figure.add_subplot(grid[-2, :]), result)
        plot_clock(figure.add_subplot(grid[-1, :]), result)
    return figure
