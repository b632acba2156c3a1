"""Several subjects side by side: tables, kernels, sizes and rules, steps of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.encodings.rotary import rotary_kernel, wavelengths
from posprobe.figures.common import (
    LETTER,
    REPORT,
    Baselines,
    Builder,
    Maps,
    Sheet,
    around,
    balanced,
    columns_of,
    ends_of,
    legend_above,
    legend_height,
    map_figure,
    maps,
    plain,
    position_label,
    styled,
)
from posprobe.figures.frequencies import shares
from posprobe.figures.similarity import matrices, of_cosines, profiles
from posprobe.figures.styles import BLUE, DIVERGING, INK, LINES, MUTED, RED, SIGNED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from posprobe.analyses import Similarity


#: What is written above pairwise numbers, what encodings that are the same have, and the least.
TITLES = {
    "cka": ("CKA", 1, 0),
    "procrustes": ("Procrustes distance", 0, 0),
    "subspace_overlap": ("subspace overlap", 1, 0),
    "correlation": ("correlation", 1, -1),
    "alignment": ("alignment", 1, -1),
}


def comparison_figure(
    sheet: Sheet, results: Mapping[str, Similarity], baselines: Baselines
) -> Figure:
    """Draw the matrices above the curves by offset and by frequency: a paper's first figure.

    Beside them stand ``spectra`` of the same labels; with ``centred``, the matrices are of centred
    rows.
    """
    max_panels = sheet.columns or (3 if sheet.narrow else 6)
    rows, columns = balanced(len(results), max_panels)
    side = (sheet.width - (0.6 if sheet.narrow else 1.2)) / columns
    side = min(side, 0.4 * sheet.width)
    top = rows * (side + 0.2) + (0.95 if sheet.narrow else 0.5)
    legend_space = (2 * sheet.plain if sheet.narrow else sheet.plain) + legend_height(
        [*results, ""], sheet.width
    )
    # On a low sheet the curves keep more than half of the height.
    top = min(top, max(sheet.limit - legend_space, 0.45 * sheet.limit))
    figure = sheet.figure(top + legend_space)
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(top, legend_space))[:, 0]
    cosines = matrices(results, centred=bool(baselines.get("centred")))
    unit_label = position_label(next(iter(results.values())).layout)
    maps(upper, cosines, max_panels, "cosine", (unit_label, unit_label), **of_cosines())
    _both_curves(lower, sheet, results, baselines, stacked=sheet.narrow)
    return figure


def curves_figure(sheet: Sheet, results: Mapping[str, Similarity], baselines: Baselines) -> Figure:
    """Draw the curves by offset above those by frequency, of ``spectra`` of what is beside."""
    figure = sheet.figure(5.0 + legend_height([*results, ""], sheet.width))
    _both_curves(figure, sheet, results, baselines, stacked=True)
    return figure


def _both_curves(
    figure: Figure | SubFigure,
    sheet: Sheet,
    results: Mapping[str, Similarity],
    baselines: Baselines,
    *,
    stacked: bool,
) -> None:
    left, right = figure.subplots(2, 1) if stacked else figure.subplots(1, 2)
    profiles(left, results)
    shares(right, baselines["spectra"])
    handles, labels = left.get_legend_handles_labels()
    for ax in (left, right):
        ax.get_legend().remove()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns_of(labels, sheet.width),
        borderaxespad=0.1, columnspacing=1.0, handlelength=2.4, labelspacing=0.3,
    )  # fmt: skip


def distances_figure(sheet: Sheet, results: Mapping[str, Any], baselines: Baselines) -> Figure:
    """Draw the ``distances`` of what is beside: ``[m, m]`` by name."""
    matrices, labels = baselines["distances"], list(results)
    room = LETTER * max(map(len, labels)) + 0.3
    side = min(0.42 * len(labels), (sheet.width - room) / len(matrices) - 0.1)
    width = room + (side + 0.1) * len(matrices)
    figure = sheet.figure(side + 0.5 + room, width=width, compressed=True)
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        title, same_value, low = TITLES[name]
        _cells(ax, matrix, low=low, reverse=same_value == 0, size=min(7, 20 * side / len(labels)))
        ax.set_xticks(range(len(labels)), labels, rotation=90)
        ax.set_yticks(range(len(labels)), labels if ax is axes[0] else [""] * len(labels))
        ax.set_title(f"{title}\n({same_value}: the same)", fontsize="medium")
    return figure


def _cells(ax: Axes, matrix: Floats, *, low: int, reverse: bool, size: float) -> None:
    """Draw a matrix of numbers up to 1, each in its cell: the more alike, the brighter."""
    colors = DIVERGING if low < 0 else "cividis_r" if reverse else "cividis"
    ax.imshow(np.ma.masked_invalid(matrix), cmap=colors, vmin=low, vmax=1)
    for (row, column), value in np.ndenumerate(matrix):
        text = "–" if np.isnan(value) else f"{value:.2f}"
        similarity = 1 - value if reverse else value
        dark = abs(value) > 0.65 if low < 0 else similarity < 0.55
        color = INK if np.isnan(value) else "white" if dark else "black"
        ax.text(column, row, text, ha="center", va="center", color=color, fontsize=size)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def kernel_curves(_: Sheet, results: Mapping[str, Floats], __: Baselines) -> Figure:
    """Draw standardised curves: ``[n - 1]`` from distance 1, or ``[2h - 1, 2w - 1]`` on a grid."""
    if next(iter(results.values())).ndim == 2:
        centred_curves = {name: around(curve) for name, curve in results.items()}
        axis_labels = ("columns to key", "rows to key")
        colors = {"cmap": SIGNED, "vmin": -3, "vmax": 3, "extend": "both"}
        return map_figure(REPORT, centred_curves, 4, "standard deviations", axis_labels, **colors)
    figure = _curves(
        {name: (np.arange(1, len(curve) + 1), curve) for name, curve in results.items()},
        xscale="log", xlabel="distance (positions)", ylabel="standard deviations",
        xlim=(1, max(map(len, results.values()))),
    )  # fmt: skip
    figure.axes[0].axhline(0, color=MUTED, linewidth=0.5)
    return figure


#: Of a comparison of kernels.
KERNEL_FIGURES: Mapping[str, Builder] = {"curves": kernel_curves, "distances": distances_figure}


def _curves(curves: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], **axes: Any) -> Figure:
    """Draw curves ``(x, y)`` by label for a report; that from ``before`` broad and grey."""
    figure = REPORT.figure(2.8)
    ax = figure.subplots()
    if "before" in curves:
        ax.plot(*curves["before"], color=MUTED, linewidth=2.5, label="before")
    for _, curve, look in styled({name: curves[name] for name in curves if name != "before"}):
        ax.plot(*curve, **look)
    ax.set(**axes)
    plain(*(axis for axis in (ax.xaxis, ax.yaxis) if axis.get_scale() == "log"))
    if len(curves) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _by_place(curves: Mapping[str, Floats], **axes: Any) -> Figure:
    """Draw curves over the number of a row or pair."""
    return _curves({name: (np.arange(len(curve)), curve) for name, curve in curves.items()}, **axes)


def ways_figures(
    cosines: Mapping[str, Floats], norms: Mapping[str, Floats], losses: Mapping[str, Floats]
) -> dict[str, Callable[[], Figure]]:
    """Return how to draw a table before and in each way of resizing.

    Parameters
    ----------
    cosines
        Centred, ``[c, c]`` by label, on one range.
    norms, losses
        ``[n]`` by position; no losses where the model was not run.
    """
    maps_by_name: Maps = {
        name: (cosines, ends_of(0, len(norms[name]))) for name, cosines in cosines.items()
    }
    axis_labels, label = ("position", "position"), "cosine, centred"
    builders: dict[str, Callable[[], Figure]] = {
        "cosines": partial(map_figure, REPORT, maps_by_name, 4, label, axis_labels, **of_cosines()),
        "norms": partial(_by_place, norms, xlabel="position", ylabel="norm", ylim=(0, None)),
    }
    return builders | ({"losses": partial(_losses, losses)} if losses else {})


#: Points of a curve of losses: each is the mean of its neighbours.
POINTS = 48


def _losses(losses: Mapping[str, Floats]) -> Figure:
    """Draw means of neighbouring losses by position, and where the old length ends."""
    figure = _curves(
        {name: _averaged(loss) for name, loss in losses.items()},
        xlabel="position in the context", ylabel="loss (nats)",
    )  # fmt: skip
    figure.axes[0].axvline(len(losses["before"]) - 0.5, color=MUTED, linewidth=0.8)
    return figure


def _averaged(loss: Floats) -> tuple[Floats, Floats]:
    """Return middles and means of neighbouring positions."""
    parts = np.array_split(np.flatnonzero(np.isfinite(loss)), min(POINTS, len(loss)))
    non_empty = [part for part in parts if part.size]
    return np.array([p.mean() for p in non_empty]), np.array([loss[p].mean() for p in non_empty])


#: Distances at which a mean rotation is drawn.
DISTANCES = 400


def rules_figures(
    ladders: Mapping[str, Floats], training: int, target: int, losses: Mapping[str, Floats]
) -> dict[str, Callable[[], Figure]]:
    """Return how to draw rules that scale rotary positions.

    Parameters
    ----------
    ladders
        Frequencies ``[pairs]`` by rule.
    training, target
        Both lengths.
    losses
        ``[n]`` by position; none where the model was not run.
    """

    def waves() -> Figure:
        wavelengths_by_name = {name: wavelengths(omega) for name, omega in ladders.items()}
        finite = {
            name: np.where(np.isfinite(values), values, np.nan)
            for name, values in wavelengths_by_name.items()
        }
        figure = _by_place(
            finite, yscale="log", xlabel="pair, fastest first", ylabel="wavelength (positions)"
        )
        for length in (training, target):
            figure.axes[0].axhline(length, color=MUTED, linewidth=0.8)
        return figure

    def decay() -> Figure:
        distances = np.unique(np.geomspace(1, target, DISTANCES).round())
        figure = _curves(
            {name: (distances, rotary_kernel(omega, distances)) for name, omega in ladders.items()},
            xscale="log", xlabel="distance (positions)", ylabel="mean rotation",
        )  # fmt: skip
        figure.axes[0].axhline(0, color=MUTED, linewidth=0.5)
        figure.axes[0].axvline(training, color=MUTED, linewidth=0.8)
        return figure

    run = {"losses": partial(_losses, losses)} if losses else {}
    return {"wavelengths": waves, "decay": decay, **run}


def _of_copies(x: str, y: str) -> Builder:
    """Return what draws a curve for each encoding by the number of its rows or pairs."""

    def drawn(_: Sheet, curves: Mapping[str, Floats], __: Baselines) -> Figure:
        # Where there is one encoding it has no name.
        return _by_place({name or y: curve for name, curve in curves.items()}, xlabel=x, ylabel=y)

    return drawn


#: Of two copies of a model.
CHECK_FIGURES: Mapping[str, Builder] = {
    "ladder": _of_copies("pair, fastest first", "frequency in B over that in A"),
    "rows": _of_copies("row of A", "distance of B's row, over a row's length"),
}


#: How answers are marked: shape, filled or not, size.
ANSWERS: Mapping[str, tuple[str, bool, float]] = {
    "yes": ("s", True, 2.6), "no": ("s", False, 2.2), "cannot tell": ("_", True, 2.2),
}  # fmt: skip
#: Ratio of the last to the first step beyond which steps are drawn on a logarithmic axis.
MAX_STEP_LABELS = 30
#: Height in inches of a line of answers, and of a panel of curves.
LINE, PANEL = 0.15, 0.95


def _number(ax: Axes, label: str, steps: Sequence[int], entry: Mapping[str, Any]) -> None:
    """Draw one number, and the sinusoid's value."""
    sinusoid = np.array(entry["sinusoid"], dtype=float)
    ax.plot(steps, sinusoid, color=RED, linestyle=(0, (3, 1.2)), linewidth=0.9, label="sinusoid")
    ax.plot(
        steps,
        np.array(entry["values"], dtype=float),
        color=BLUE,
        marker="o",
        markersize=2,
        label="table",
    )
    ax.set_title(label, pad=2, fontsize="medium")
    ax.locator_params(axis="y", nbins=3)
    ax.margins(y=0.1)


def _path(ax: Axes, steps: Sequence[int], path: Mapping[str, Sequence[float | None]]) -> None:
    for (label, values), (colour, dash) in zip(path.items(), LINES, strict=False):
        ax.plot(steps, np.array(values, dtype=float), color=colour, linestyle=dash, label=label)
    ax.set_ylim(0, None)
    ax.locator_params(axis="y", nbins=3)
    legend_above(ax)


def _answers(ax: Axes, steps: Sequence[int], answers: Mapping[str, Sequence[str | None]]) -> None:
    """Draw a line of marks for each question."""
    for row, series_answers in enumerate(answers.values()):
        for answer, (marker, filled, size) in ANSWERS.items():
            answer_steps = [
                step
                for step, answer_at_step in zip(steps, series_answers, strict=True)
                if answer_at_step == answer
            ]
            ax.plot(
                answer_steps, [row] * len(answer_steps), marker,
                color=BLUE if answer == "yes" else MUTED,
                markersize=size, markeredgewidth=0.6, linestyle="none",
                markerfacecolor=None if filled else "white",
                label=answer if row == 0 else f"_{answer}",
            )  # fmt: skip
    ax.set_yticks(range(len(answers)), list(answers))
    ax.set_ylim(len(answers) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def series_figure(sheet: Sheet, _: Baselines, baselines: Baselines) -> Figure:
    """Draw ``steps``, ``numbers`` by label, ``path`` and ``answers`` of what is beside."""
    steps, numbers, answers = (baselines[name] for name in ("steps", "numbers", "answers"))
    heights = [PANEL] * len(numbers) + [PANEL + 0.4]
    if answers:
        heights.append(LINE * len(answers) + 0.35)
    figure = sheet.figure(sum(heights) + 0.5)
    axes = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for ax, (label, entry) in zip(axes, numbers.items(), strict=False):
        _number(ax, label, steps, entry)
    if numbers:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=3, borderaxespad=0.1)
    _path(axes[len(numbers)], steps, baselines["path"])
    if answers:
        _answers(axes[-1], steps, answers)
    first_positive = next((step for step in steps if step > 0), 1)
    if steps[-1] / first_positive > MAX_STEP_LABELS:
        axes[-1].set_xscale("symlog", linthresh=first_positive, linscale=0.4)
        axes[-1].set_xlim(steps[0] - 0.3 * first_positive, steps[-1] * 1.15)
        tens = [10**k for k in range(20) if first_positive <= 10**k <= steps[-1]]
        axes[-1].set_xticks([0, *tens], [f"{step:,}" for step in (0, *tens)])
        axes[-1].minorticks_off()
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.label.set_color(INK)
    return figure
