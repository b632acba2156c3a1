"""Several subjects side by side: tables, kernels, sizes and rules, steps of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.arrays import Floats
from posprobe.figures.common import (
    LETTER,
    Beside,
    Builder,
    Maps,
    Sheet,
    around,
    balanced,
    columns_of,
    curves,
    ends_of,
    legend_above,
    legend_height,
    map_figure,
    maps,
    plain,
    pooled,
    position_label,
)
from posprobe.figures.frequencies import shares
from posprobe.figures.relative import APART, color_map
from posprobe.figures.similarity import matrices, of_cosines, profiles
from posprobe.figures.styles import BLUE, DIVERGING, INK, LINES, MUTED, RED

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


def comparison_figure(sheet: Sheet, results: Mapping[str, Similarity], beside: Beside) -> Figure:
    """Draw the matrices above the curves by offset and by frequency: a paper's first figure.

    Beside them stand ``spectra`` of the same labels; with ``centred``, the matrices are of centred
    rows.
    """
    most = sheet.columns or (3 if sheet.narrow else 6)
    rows, columns = balanced(len(results), most)
    side = (sheet.width - (0.6 if sheet.narrow else 1.2)) / columns
    side = min(side, 0.4 * sheet.width)
    top = rows * (side + 0.2) + (0.95 if sheet.narrow else 0.5)
    below = (2 * sheet.plain if sheet.narrow else sheet.plain) + legend_height(
        [*results, ""], sheet.width
    )
    # On a low sheet the curves keep more than half of the height.
    top = min(top, max(sheet.limit - below, 0.45 * sheet.limit))
    figure = sheet.figure(top + below)
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(top, below))[:, 0]
    shown = matrices(results, centred=bool(beside.get("centred")))
    what = position_label(next(iter(results.values())).layout)
    maps(upper, shown, most, "cosine", (what, what), **of_cosines())
    _both_curves(lower, sheet, results, beside, stacked=sheet.narrow)
    return figure


def curves_figure(sheet: Sheet, results: Mapping[str, Similarity], beside: Beside) -> Figure:
    """Draw the curves by offset above those by frequency, of ``spectra`` of what is beside."""
    figure = sheet.figure(5.0 + legend_height([*results, ""], sheet.width))
    _both_curves(figure, sheet, results, beside, stacked=True)
    return figure


def _both_curves(
    figure: Figure | SubFigure,
    sheet: Sheet,
    results: Mapping[str, Similarity],
    beside: Beside,
    *,
    stacked: bool,
) -> None:
    left, right = figure.subplots(2, 1) if stacked else figure.subplots(1, 2)
    profiles(left, results)
    shares(right, beside["spectra"])
    handles, labels = left.get_legend_handles_labels()
    for ax in (left, right):
        ax.get_legend().remove()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns_of(labels, sheet.width),
        borderaxespad=0.1, columnspacing=1.0, handlelength=2.4, labelspacing=0.3,
    )  # fmt: skip


def distances_figure(sheet: Sheet, results: Mapping[str, Any], beside: Beside) -> Figure:
    """Draw the ``distances`` of what is beside: ``[m, m]`` by name."""
    matrices, labels = beside["distances"], list(results)
    room = LETTER * max(map(len, labels)) + 0.3
    side = min(0.42 * len(labels), (sheet.width - room) / len(matrices) - 0.1)
    width = room + (side + 0.1) * len(matrices)
    figure = sheet.figure(side + 0.5 + room, width=width, compressed=True)
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        title, same, low = TITLES[name]
        _cells(ax, matrix, low=low, reverse=same == 0, size=min(7, 20 * side / len(labels)))
        ax.set_xticks(range(len(labels)), labels, rotation=90)
        ax.set_yticks(range(len(labels)), labels if ax is axes[0] else [""] * len(labels))
        ax.set_title(f"{title}\n({same}: the same)", fontsize="medium")
    return figure


def _cells(ax: Axes, matrix: Floats, *, low: int, reverse: bool, size: float) -> None:
    """Draw a matrix of numbers up to 1, each in its cell: the more alike, the brighter."""
    colors = DIVERGING if low < 0 else "cividis_r" if reverse else "cividis"
    ax.imshow(np.ma.masked_invalid(matrix), cmap=colors, vmin=low, vmax=1)
    for (row, column), value in np.ndenumerate(matrix):
        text = "–" if np.isnan(value) else f"{value:.2f}"
        alike = 1 - value if reverse else value
        dark = abs(value) > 0.65 if low < 0 else alike < 0.55
        color = INK if np.isnan(value) else "white" if dark else "black"
        ax.text(column, row, text, ha="center", va="center", color=color, fontsize=size)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def kernel_curves(sheet: Sheet, results: Mapping[str, Floats], _: Beside) -> Figure:
    """Draw standardised curves: ``[n - 1]`` from distance 1, or ``[2h - 1, 2w - 1]`` on a grid."""
    if next(iter(results.values())).ndim == 2:
        shown = {name: around(curve) for name, curve in results.items()}
        return map_figure(sheet, shown, 4, "standard deviations", APART, **_of_deviations())
    kernels = results.items()
    figure, ax = curves(sheet, {name: (np.arange(1, len(c) + 1), c) for name, c in kernels})
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(xscale="log", xlabel="distance (positions)", ylabel="standard deviations")
    ax.set_xlim(1, max(map(len, results.values())))
    plain(ax.xaxis)
    ax.legend(loc="best")
    return figure


def kernel_maps(sheet: Sheet, _: Beside, beside: Beside) -> Figure:
    """Draw the standardised ``kernels`` of what is beside, ``[n, n]`` by label, on one range."""
    shown: Maps = {
        label: (pooled(kernel)[0], ends_of(0, len(kernel)))
        for label, kernel in beside["kernels"].items()
    }
    return map_figure(sheet, shown, 3, "standard deviations", ("key", "query"), **_of_deviations())


def _of_deviations() -> dict[str, Any]:
    return {"cmap": color_map("bias"), "vmin": -3, "vmax": 3, "extend": "both"}


#: Of a comparison of kernels.
KERNEL_FIGURES: Mapping[str, Builder] = {
    "curves": kernel_curves,
    "kernels": kernel_maps,
    "distances": distances_figure,
}


#: Points of a curve of losses: each is the mean of its neighbours.
POINTS = 48


def _cosines(sheet: Sheet, results: Mapping[str, Floats], beside: Beside) -> Figure:
    """Draw centred cosines ``[c, c]`` of the table before and in each way, on one range."""
    shown: Maps = {
        label: (cosines, ends_of(0, beside["positions"][label]))
        for label, cosines in results.items()
    }
    return map_figure(sheet, shown, 4, "cosine, centred", ("position", "position"), **of_cosines())


def _norms(sheet: Sheet, _: Beside, beside: Beside) -> Figure:
    """Draw ``norms`` of what is beside, ``[n]`` by label, by position."""
    norms = beside["norms"].items()
    figure, ax = curves(
        sheet, {how: (np.arange(len(found)), found) for how, found in norms}, grey="before"
    )
    ax.set(xlabel="position", ylabel="norm", ylim=(0, None))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _losses(sheet: Sheet, _: Beside, beside: Beside) -> Figure:
    """Draw ``losses`` of what is beside, ``[n]`` by label, by position; means of neighbours."""
    losses = beside["losses"]
    figure, ax = curves(
        sheet, {how: _averaged(loss) for how, loss in losses.items()}, grey="before"
    )
    ax.axvline(len(losses["before"]) - 0.5, color=MUTED, linewidth=0.8)
    ax.set(xlabel="position in the context", ylabel="loss (nats)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _averaged(loss: Floats) -> tuple[Floats, Floats]:
    """Return middles and means of neighbouring positions."""
    parts = np.array_split(np.flatnonzero(np.isfinite(loss)), min(POINTS, len(loss)))
    kept = [part for part in parts if part.size]
    return np.array([p.mean() for p in kept]), np.array([loss[p].mean() for p in kept])


#: Of ways of resizing a table.
WAY_FIGURES: Mapping[str, Builder] = {"cosines": _cosines, "norms": _norms, "losses": _losses}


def _wavelengths(sheet: Sheet, results: Mapping[str, Floats], beside: Beside) -> Figure:
    """Draw wavelengths ``[pairs]`` by rule, with both lengths."""
    rules = results.items()
    figure, ax = curves(sheet, {name: (np.arange(len(found)), found) for name, found in rules})
    for name in ("training", "to"):
        ax.axhline(beside[name], color=MUTED, linewidth=0.8)
    ax.set(yscale="log", xlabel="pair, fastest first", ylabel="wavelength (positions)")
    plain(ax.yaxis)
    ax.legend(loc="best")
    return figure


def _decay(sheet: Sheet, _: Beside, beside: Beside) -> Figure:
    """Draw the mean rotation ``[k]`` at each ``distance`` by rule."""
    distance, kernels = beside["distance"], beside["kernels"]
    figure, ax = curves(sheet, {name: (distance, kernel) for name, kernel in kernels.items()})
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.axvline(beside["training"], color=MUTED, linewidth=0.8)
    ax.set(xscale="log", xlabel="distance (positions)", ylabel="mean rotation")
    plain(ax.xaxis)
    ax.legend(loc="best")
    return figure


#: Of rules that scale rotary positions.
RULE_FIGURES: Mapping[str, Builder] = {"wavelengths": _wavelengths, "decay": _decay}


def _by_place(x: str, y: str) -> Builder:
    """Return what draws a curve for each encoding by the number of its rows or pairs."""

    def drawn(sheet: Sheet, found: Mapping[str, Floats], _: Mapping[str, Any]) -> Figure:
        # Where there is one encoding it has no name.
        lines = {name or y: (np.arange(len(each)), each) for name, each in found.items()}
        figure, ax = curves(sheet, lines)
        ax.set(xlabel=x, ylabel=y)
        if len(found) > 1:
            ax.legend(loc="best")
        return figure

    return drawn


#: Of two copies of a model.
CHECK_FIGURES: Mapping[str, Builder] = {
    "ladder": _by_place("pair, fastest first", "frequency in B over that in A"),
    "rows": _by_place("row of A", "distance of B's row, over a row's length"),
}


#: How answers are marked: shape, filled or not, size.
ANSWERS: Mapping[str, tuple[str, bool, float]] = {
    "yes": ("s", True, 2.6), "no": ("s", False, 2.2), "cannot tell": ("_", True, 2.2),
}  # fmt: skip
#: Ratio of the last to the first step beyond which steps are drawn on a logarithmic axis.
FAR = 30
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
    for row, said in enumerate(answers.values()):
        for answer, (marker, filled, size) in ANSWERS.items():
            at = [step for step, each in zip(steps, said, strict=True) if each == answer]
            ax.plot(
                at, [row] * len(at), marker, color=BLUE if answer == "yes" else MUTED,
                markersize=size, markeredgewidth=0.6, linestyle="none",
                markerfacecolor=None if filled else "white",
                label=answer if row == 0 else f"_{answer}",
            )  # fmt: skip
    ax.set_yticks(range(len(answers)), list(answers))
    ax.set_ylim(len(answers) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def series_figure(sheet: Sheet, _: Beside, beside: Beside) -> Figure:
    """Draw ``steps``, ``numbers`` by label, ``path`` and ``answers`` of what is beside."""
    steps, numbers, answers = (beside[name] for name in ("steps", "numbers", "answers"))
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
    _path(axes[len(numbers)], steps, beside["path"])
    if answers:
        _answers(axes[-1], steps, answers)
    first = next((step for step in steps if step > 0), 1)
    if steps[-1] / first > FAR:
        axes[-1].set_xscale("symlog", linthresh=first, linscale=0.4)
        axes[-1].set_xlim(steps[0] - 0.3 * first, steps[-1] * 1.15)
        tens = [10**k for k in range(20) if first <= 10**k <= steps[-1]]
        axes[-1].set_xticks([0, *tens], [f"{step:,}" for step in (0, *tens)])
        axes[-1].minorticks_off()
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.label.set_color(INK)
    return figure
