"""Comparisons of several subjects: tables, kernels, ways of resizing, steps of a training run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.encodings.rotary import rotary_kernel, wavelengths
from posprobe.figures.common import (
    LEGEND_SPACING,
    LETTER_INCHES,
    REPORT,
    Builder,
    FigureExtras,
    FigureFormat,
    Maps,
    assign_line_styles,
    balance_panels,
    count_legend_columns,
    label_decades,
    legend_height,
    map_by_displacement,
    map_figure,
    plot_maps,
    position_label,
    square_extent,
)
from posprobe.figures.frequencies import plot_power_shares
from posprobe.figures.similarity import cosine_colors, cosine_matrices, plot_profiles
from posprobe.figures.styles import (
    BLUE,
    DIVERGING_COLORMAP,
    INK,
    LINE_STYLES,
    MUTED,
    RED,
    SIGNED_COLORMAP,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from posprobe.analyses import Similarity


#: Title of each pairwise number, its value for equal encodings and its smallest value.
PAIRWISE_MEASURES = {
    "cka": ("CKA", 1, 0),
    "procrustes": ("Procrustes distance", 0, 0),
    "subspace_overlap": ("subspace overlap", 1, 0),
    "correlation": ("correlation", 1, -1),
    "alignment": ("alignment", 1, -1),
}


def comparison_figure(
    figure_format: FigureFormat, results: Mapping[str, Similarity], extras: FigureExtras
) -> Figure:
    """Draw the matrices above the curves by offset and by frequency: a paper's first figure.

    ``extras`` holds the ``spectra`` by the same labels, and whether the matrices are of ``centred``
    rows.
    """
    max_panels = figure_format.max_columns or (3 if figure_format.is_narrow else 6)
    rows, columns = balance_panels(len(results), max_panels)
    side = (figure_format.width - (0.6 if figure_format.is_narrow else 1.2)) / columns
    side = min(side, 0.4 * figure_format.width)
    n_curve_rows = 2 if figure_format.is_narrow else 1
    curves_height = n_curve_rows * figure_format.plain_height
    curves_height += legend_height([*results, ""], figure_format.width)
    maps_height = rows * (side + 0.2) + (0.95 if figure_format.is_narrow else 0.5)
    # On a slide the curves keep more than half of the height.
    max_height = figure_format.max_height
    maps_height = min(maps_height, max(max_height - curves_height, 0.45 * max_height))
    figure = figure_format.make_figure(maps_height + curves_height)
    height_ratios = (maps_height, curves_height)
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=height_ratios)[
        :, 0
    ]
    cosines = cosine_matrices(results, centred=bool(extras.get("centred")))
    unit_label = position_label(next(iter(results.values())).layout)
    plot_maps(
        upper, cosines, max_panels, "cosine", (unit_label, unit_label), **cosine_colors()
    )
    _plot_offset_and_frequency(
        lower, figure_format, results, extras, stacked=figure_format.is_narrow
    )
    return figure


def curves_figure(
    figure_format: FigureFormat, results: Mapping[str, Similarity], extras: FigureExtras
) -> Figure:
    """Draw the curves by offset above those by frequency, which are the extra ``spectra``."""
    figure = figure_format.make_figure(
        5.0 + legend_height([*results, ""], figure_format.width)
    )
    _plot_offset_and_frequency(figure, figure_format, results, extras, stacked=True)
    return figure


def _plot_offset_and_frequency(
    figure: Figure | SubFigure,
    figure_format: FigureFormat,
    results: Mapping[str, Similarity],
    extras: FigureExtras,
    *,
    stacked: bool,
) -> None:
    left, right = figure.subplots(2, 1) if stacked else figure.subplots(1, 2)
    plot_profiles(left, results)
    plot_power_shares(right, extras["spectra"])
    handles, labels = left.get_legend_handles_labels()
    for ax in (left, right):
        ax.get_legend().remove()
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=count_legend_columns(labels, figure_format.width),
        borderaxespad=0.1,
        **LEGEND_SPACING,
    )


def distances_figure(
    figure_format: FigureFormat, results: Mapping[str, Any], extras: FigureExtras
) -> Figure:
    """Draw the extra ``distances``: matrices ``[m, m]`` by name."""
    matrices = extras["distances"]
    labels = list(results)
    label_room = LETTER_INCHES * max(map(len, labels)) + 0.3
    side = min(
        0.42 * len(labels), (figure_format.width - label_room) / len(matrices) - 0.1
    )
    width = label_room + (side + 0.1) * len(matrices)
    figure = figure_format.make_figure(
        side + 0.5 + label_room, width=width, compressed=True
    )
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        title, same_value, lowest = PAIRWISE_MEASURES[name]
        _plot_numbered_matrix(
            ax,
            matrix,
            lowest=lowest,
            is_distance=same_value == 0,
            font_size=min(7, 20 * side / len(labels)),
        )
        ax.set_xticks(range(len(labels)), labels, rotation=90)
        ax.set_yticks(range(len(labels)), labels if ax is axes[0] else [""] * len(labels))
        ax.set_title(f"{title}\n({same_value}: the same)", fontsize="medium")
    return figure


def _plot_numbered_matrix(
    ax: Axes, matrix: Floats, *, lowest: int, is_distance: bool, font_size: float
) -> None:
    """Draw a matrix of numbers up to 1, each in its cell, brighter for more similar encodings."""
    colors = (
        DIVERGING_COLORMAP if lowest < 0 else "cividis_r" if is_distance else "cividis"
    )
    ax.imshow(np.ma.masked_invalid(matrix), cmap=colors, vmin=lowest, vmax=1)
    for (row, column), value in np.ndenumerate(matrix):
        text = "–" if np.isnan(value) else f"{value:.2f}"
        similarity = 1 - value if is_distance else value
        is_dark = abs(value) > 0.65 if lowest < 0 else similarity < 0.55
        color = INK if np.isnan(value) else "white" if is_dark else "black"
        ax.text(
            column, row, text, ha="center", va="center", color=color, fontsize=font_size
        )
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def kernel_curves_figure(
    _: FigureFormat, results: Mapping[str, Floats], __: FigureExtras
) -> Figure:
    """Draw standardised curves: ``[n - 1]`` from distance 1, or ``[2h - 1, 2w - 1]`` on a grid."""
    if next(iter(results.values())).ndim == 2:
        centred_curves = {
            name: map_by_displacement(curve) for name, curve in results.items()
        }
        axis_labels = ("columns to key", "rows to key")
        colors = {"cmap": SIGNED_COLORMAP, "vmin": -3, "vmax": 3, "extend": "both"}
        return map_figure(
            REPORT, centred_curves, 4, "standard deviations", axis_labels, **colors
        )
    figure = _plot_report_curves(
        {name: (np.arange(1, len(curve) + 1), curve) for name, curve in results.items()},
        xscale="log",
        xlabel="distance (positions)",
        ylabel="standard deviations",
        xlim=(1, max(map(len, results.values()))),
    )
    figure.axes[0].axhline(0, color=MUTED, linewidth=0.5)
    return figure


#: Figures of a comparison of kernels, by name.
KERNEL_FIGURES: Mapping[str, Builder] = {
    "curves": kernel_curves_figure,
    "distances": distances_figure,
}


def _plot_report_curves(
    curves: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], **axes: Any
) -> Figure:
    """Draw curves ``(x, y)`` by label for a report; the curve ``before`` is broad and grey."""
    figure = REPORT.make_figure(2.8)
    ax = figure.subplots()
    if "before" in curves:
        ax.plot(*curves["before"], color=MUTED, linewidth=2.5, label="before")
    later_curves = {name: curves[name] for name in curves if name != "before"}
    for _, curve, line_style in assign_line_styles(later_curves):
        ax.plot(*curve, **line_style)
    ax.set(**axes)
    label_decades(*(axis for axis in (ax.xaxis, ax.yaxis) if axis.get_scale() == "log"))
    if len(curves) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _plot_by_index(curves: Mapping[str, Floats], **axes: Any) -> Figure:
    """Draw curves over the index of a row or pair."""
    return _plot_report_curves(
        {name: (np.arange(len(curve)), curve) for name, curve in curves.items()}, **axes
    )


def table_resizing_figures(
    cosines: Mapping[str, Floats],
    norms: Mapping[str, Floats],
    losses: Mapping[str, Floats],
) -> dict[str, Callable[[], Figure]]:
    """Return functions that draw a table before and after each way of resizing.

    Parameters
    ----------
    cosines
        Centred cosines ``[c, c]`` by label.
    norms, losses
        Values ``[n]`` by position; no losses where the model was not run.
    """
    maps_by_name: Maps = {
        name: (matrix, square_extent(0, len(norms[name])))
        for name, matrix in cosines.items()
    }
    label = "cosine, centred"
    axis_labels = ("position", "position")
    builders: dict[str, Callable[[], Figure]] = {
        "cosines": partial(
            map_figure, REPORT, maps_by_name, 4, label, axis_labels, **cosine_colors()
        ),
        "norms": partial(
            _plot_by_index, norms, xlabel="position", ylabel="norm", ylim=(0, None)
        ),
    }
    return builders | ({"losses": partial(_losses_figure, losses)} if losses else {})


#: Losses are averaged over neighbouring positions to this many points.
N_LOSS_POINTS = 48


def _losses_figure(losses: Mapping[str, Floats]) -> Figure:
    """Draw means of neighbouring losses by position, and the end of the old length."""
    figure = _plot_report_curves(
        {name: _average_losses(loss) for name, loss in losses.items()},
        xlabel="position in the context",
        ylabel="loss (nats)",
    )
    figure.axes[0].axvline(len(losses["before"]) - 0.5, color=MUTED, linewidth=0.8)
    return figure


def _average_losses(loss: Floats) -> tuple[Floats, Floats]:
    """Return the mean positions and mean losses of groups of neighbouring positions."""
    finite_positions = np.flatnonzero(np.isfinite(loss))
    groups = np.array_split(finite_positions, min(N_LOSS_POINTS, len(loss)))
    groups = [group for group in groups if group.size]
    mean_positions = np.array([group.mean() for group in groups])
    return mean_positions, np.array([loss[group].mean() for group in groups])


#: The mean rotation is drawn at this many distances, evenly spaced on a logarithmic axis.
N_DECAY_DISTANCES = 400


def rotary_scaling_figures(
    ladders: Mapping[str, Floats],
    training: int,
    target: int,
    losses: Mapping[str, Floats],
) -> dict[str, Callable[[], Figure]]:
    """Return functions that draw rules for scaling rotary frequencies.

    Parameters
    ----------
    ladders
        Frequencies ``[pairs]`` by rule.
    training, target
        Length of the training contexts and length that the rules scale to.
    losses
        Losses ``[n]`` by position; none where the model was not run.
    """

    def draw_wavelengths() -> Figure:
        finite_wavelengths = {}
        for name, frequencies in ladders.items():
            values = wavelengths(frequencies)
            finite_wavelengths[name] = np.where(np.isfinite(values), values, np.nan)
        figure = _plot_by_index(
            finite_wavelengths,
            yscale="log",
            xlabel="pair, fastest first",
            ylabel="wavelength (positions)",
        )
        for length in (training, target):
            figure.axes[0].axhline(length, color=MUTED, linewidth=0.8)
        return figure

    def draw_decay() -> Figure:
        distances = np.unique(np.geomspace(1, target, N_DECAY_DISTANCES).round())
        kernels = {
            name: (distances, rotary_kernel(frequencies, distances))
            for name, frequencies in ladders.items()
        }
        figure = _plot_report_curves(
            kernels,
            xscale="log",
            xlabel="distance (positions)",
            ylabel="mean rotation",
        )
        figure.axes[0].axhline(0, color=MUTED, linewidth=0.5)
        figure.axes[0].axvline(training, color=MUTED, linewidth=0.8)
        return figure

    loss_figures = {"losses": partial(_losses_figure, losses)} if losses else {}
    return {"wavelengths": draw_wavelengths, "decay": draw_decay, **loss_figures}


def _copy_curves_builder(x: str, y: str) -> Builder:
    """Return a builder of a curve per encoding over the index of its rows or pairs."""

    def build(_: FigureFormat, curves: Mapping[str, Floats], __: FigureExtras) -> Figure:
        # A single encoding has an empty name.
        return _plot_by_index(
            {name or y: curve for name, curve in curves.items()}, xlabel=x, ylabel=y
        )

    return build


#: Figures of the check of two copies of a model, by name.
CHECK_FIGURES: Mapping[str, Builder] = {
    "ladder": _copy_curves_builder(
        "pair, fastest first", "frequency in B over that in A"
    ),
    "rows": _copy_curves_builder("row of A", "distance of B's row, over a row's length"),
}


#: Marker of each answer: its shape, whether it is filled, and its size in points.
ANSWER_MARKERS: Mapping[str, tuple[str, bool, float]] = {
    "yes": ("s", True, 2.6),
    "no": ("s", False, 2.2),
    "cannot tell": ("_", True, 2.2),
}
#: Colour and dash of each distance of the path, none of them those of a number.
PATH_LINES = LINE_STYLES[2:5]
#: The axis of steps is logarithmic where the last step is more than this many times the first.
MAX_LINEAR_STEP_RATIO = 30
#: Height of a line of answers.
ANSWER_LINE_INCHES = 0.14
#: Height of the axis below the answers.
STEP_AXIS_INCHES = 0.36
#: Height of a panel of curves over training steps.
SERIES_PANEL_INCHES = 0.82
#: At most this many decades of steps are labelled on the axis of a narrow panel.
MAX_NARROW_DECADES = 2


def _plot_series_number(
    ax: Axes, label: str, steps: Sequence[int], series: Mapping[str, Any]
) -> None:
    """Draw one number by step, and its value for the sinusoid."""
    sinusoid = np.array(series["sinusoid"], dtype=float)
    ax.plot(
        steps,
        sinusoid,
        color=RED,
        linestyle=(0, (3, 1.2)),
        linewidth=0.9,
        label="sinusoid",
    )
    ax.plot(
        steps,
        np.array(series["values"], dtype=float),
        color=BLUE,
        marker="o",
        markersize=2,
        label="table",
    )
    ax.set_title(label, pad=2, fontsize="medium")
    ax.locator_params(axis="y", nbins=3)
    ax.margins(y=0.1)


def _plot_series_path(
    ax: Axes, steps: Sequence[int], path: Mapping[str, Sequence[float | None]]
) -> None:
    for (label, values), (color, dash) in zip(path.items(), PATH_LINES, strict=False):
        ax.plot(
            steps, np.array(values, dtype=float), color=color, linestyle=dash, label=label
        )
    ax.set_title("distance of the table", pad=2, fontsize="medium")
    ax.set_ylim(0, None)
    ax.locator_params(axis="y", nbins=3)


def _plot_series_answers(
    ax: Axes, steps: Sequence[int], answers: Mapping[str, Sequence[str | None]]
) -> None:
    """Draw a line of marks for each question."""
    for row, series_answers in enumerate(answers.values()):
        for answer, (marker, is_filled, size) in ANSWER_MARKERS.items():
            answer_steps = [
                step
                for step, answer_at_step in zip(steps, series_answers, strict=True)
                if answer_at_step == answer
            ]
            ax.plot(
                answer_steps,
                [row] * len(answer_steps),
                marker,
                color=BLUE if answer == "yes" else MUTED,
                markersize=size,
                markeredgewidth=0.6,
                linestyle="none",
                markerfacecolor=None if is_filled else "none",
                label=answer if row == 0 else f"_{answer}",
            )
    ax.set_yticks(range(len(answers)), list(answers))
    ax.set_ylim(len(answers) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def series_figure(
    figure_format: FigureFormat, _: Mapping[str, Any], extras: FigureExtras
) -> Figure:
    """Draw the extra ``numbers`` by label, ``path`` and ``answers`` over the ``steps``."""
    steps, numbers, answers = extras["steps"], extras["numbers"], extras["answers"]
    n_columns = 2 if figure_format.is_narrow else 3
    # Each number has a panel, the path has one, and the last cell holds the legend.
    n_panels = len(numbers) + 1
    n_rows = math.ceil((n_panels + 1) / n_columns)
    heights = [SERIES_PANEL_INCHES * n_rows + 0.5 * STEP_AXIS_INCHES]
    if answers:
        heights.append(ANSWER_LINE_INCHES * len(answers) + STEP_AXIS_INCHES)
    figure = figure_format.make_figure(sum(heights))
    upper, *lower = figure.subfigures(
        len(heights), 1, squeeze=False, height_ratios=heights
    )[:, 0]
    grid = upper.subplots(n_rows, n_columns, squeeze=False)
    for ax, (label, series) in zip(grid.flat, numbers.items(), strict=False):
        _plot_series_number(ax, label, steps, series)
    _plot_series_path(grid.flat[len(numbers)], steps, extras["path"])
    for place, ax in enumerate(grid.flat[:n_panels]):
        is_lowest = place + n_columns >= n_panels
        _scale_steps(ax, steps, MAX_NARROW_DECADES)
        ax.tick_params(labelbottom=is_lowest)
        # The axis below the answers is named.
        ax.set_xlabel("step" if is_lowest and not answers else "")
    for ax in grid.flat[n_panels:]:
        ax.set_axis_off()
    shown_lines = [*grid.flat[0].lines, *grid.flat[n_panels - 1].lines]
    lines_by_label = {str(line.get_label()): line for line in shown_lines}
    grid.flat[-1].legend(
        lines_by_label.values(),
        lines_by_label,
        loc="center left",
        bbox_to_anchor=(-0.1, 0.4),
        borderaxespad=0,
        handlelength=1.8,
        labelspacing=0.2,
    )
    for subfigure in lower:
        ax = subfigure.subplots()
        _plot_series_answers(ax, steps, answers)
        _scale_steps(ax, steps, MAX_NARROW_DECADES * n_columns)
        ax.set_xlabel("step")
    return figure


def _scale_steps(ax: Axes, steps: Sequence[int], max_decades: int) -> None:
    """Label the axis of steps, which is logarithmic where they span decades."""
    first_positive = next((step for step in steps if step > 0), 1)
    if steps[-1] / first_positive <= MAX_LINEAR_STEP_RATIO:
        ax.locator_params(axis="x", nbins=max_decades + 1, integer=True)
        return
    ax.set_xscale("symlog", linthresh=first_positive, linscale=0.4)
    ax.set_xlim(steps[0] - 0.3 * first_positive, steps[-1] * 1.15)
    tens = [10**k for k in range(20) if first_positive <= 10**k <= steps[-1]]
    # The last decade is labelled, and those at equal distances before it.
    tens = tens[:: -math.ceil(len(tens) / max_decades)]
    ax.set_xticks([0, *tens], [_short_step(step) for step in (0, *tens)])
    ax.minorticks_off()


def _short_step(step: int) -> str:
    """Return a number of steps with k for thousands and M for millions."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if step >= size and step % size == 0:
            return f"{step // size:,}{letter}"
    return f"{step:,}"
