"""Several subjects side by side: tables, kernels, sizes and rules, steps of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import (
    LETTER,
    Builder,
    Sheet,
    balanced,
    columns_of,
    curves,
    legend_above,
    legend_height,
    panels,
    plain,
    pooled,
)
from posprobe.figures.frequencies import shares
from posprobe.figures.relative import color_map, map_panels
from posprobe.figures.similarity import matrices, one_of_each, profiles
from posprobe.figures.styles import BLUE, DIVERGING, INK, LINES, MUTED, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage

    from posprobe.analyses import Similarity


#: Letters of the longest name that stands slanted below a column.
SLANTED = 20
#: What is written above pairwise numbers, and what encodings that are the same have.
TITLES = {
    "cka": ("CKA", 1),
    "procrustes": ("Procrustes distance", 0),
    "subspace_overlap": ("subspace overlap", 1),
    "correlation": ("correlation", 1),
    "alignment": ("alignment", 1),
}


def comparison_figure(
    sheet: Sheet, results: Mapping[str, Similarity], references: Mapping[str, Any]
) -> Figure:
    """Draw the matrices above the curves by offset and by frequency: a paper's first figure.

    ``references`` holds ``spectra`` of the same labels and, where there are any, null ``bands``;
    with ``centred``, the matrices are of centred rows.
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
    shown = one_of_each(results, centred=bool(references.get("centred")))
    matrices(upper, shown, most, sheet)
    _both_curves(lower, sheet, results, references, stacked=sheet.narrow)
    return figure


def curves_figure(
    sheet: Sheet, results: Mapping[str, Similarity], references: Mapping[str, Any]
) -> Figure:
    """Draw the curves by offset above those by frequency, of ``spectra`` of the references."""
    figure = sheet.figure(5.0 + legend_height([*results, ""], sheet.width))
    _both_curves(figure, sheet, results, references, stacked=True)
    return figure


def _both_curves(
    figure: Figure | SubFigure,
    sheet: Sheet,
    results: Mapping[str, Similarity],
    references: Mapping[str, Any],
    *,
    stacked: bool,
) -> None:
    left, right = figure.subplots(2, 1) if stacked else figure.subplots(1, 2)
    profiles(left, results)
    shares(right, references["spectra"])
    handles, labels = left.get_legend_handles_labels()
    for ax in (left, right):
        ax.get_legend().remove()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns_of(labels, sheet.width),
        borderaxespad=0.1, columnspacing=1.0, handlelength=2.4, labelspacing=0.3,
    )  # fmt: skip


def distances(*, signed: bool) -> Builder:
    """Return a builder that draws the ``distances`` of the references: ``[m, m]`` by name.

    Parameters
    ----------
    signed
        Whether they run from -1 to 1 rather than from 0 to 1.
    """

    def build(sheet: Sheet, results: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
        matrices = references["distances"]
        labels = list(results)
        longest = max(map(len, labels))
        beside = LETTER * longest + 0.3
        # Slanted, long names would reach into the drawing on their left.
        slant, below = (30, 0.5 * beside) if longest <= SLANTED else (90, beside)
        side = min(0.42 * len(labels), (sheet.width - beside) / len(matrices) - 0.1)
        figure = sheet.figure(
            side + 0.5 + below, width=beside + (side + 0.1) * len(matrices), compressed=True
        )
        axes = figure.subplots(1, len(matrices), squeeze=False)[0]
        for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
            title, same = TITLES[name]
            _cells(ax, matrix, labels, signed=signed, reverse=same == 0)
            ax.tick_params(axis="x", labelrotation=slant)
            for text in ax.get_xticklabels():
                text.set_horizontalalignment("right" if slant < 90 else "center")
            for text in ax.texts:
                text.set_fontsize(min(7, 20 * side / len(labels)))
            ax.set_title(f"{title}\n({same}: the same)", fontsize="medium")
            if ax is not axes[0]:
                ax.set_yticklabels([])
        return figure

    return build


def _cells(
    ax: Axes, matrix: NDArray[np.float64], labels: Sequence[str], *, signed: bool, reverse: bool
) -> None:
    """Draw a matrix of pairwise numbers, each in its cell: the more alike, the brighter."""
    shown = np.ma.masked_invalid(matrix)
    colors = DIVERGING if signed else "cividis_r" if reverse else "cividis"
    ax.imshow(shown, cmap=colors, vmin=-1 if signed else 0, vmax=1)
    for row, column in np.ndindex(matrix.shape):
        value = matrix[row, column]
        text = "–" if np.isnan(value) else f"{value:.2f}"
        alike = 1 - value if reverse else value
        dark = abs(value) > 0.65 if signed else not np.isnan(value) and alike < 0.55
        color = INK if np.isnan(value) else "white" if dark else "black"
        ax.text(column, row, text, ha="center", va="center", color=color)
    ax.set_xticks(range(len(labels)), labels)
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


distances_figure: Builder = distances(signed=False)


def kernel_map(
    ax: Axes, kernel: NDArray[np.float64], limit: float, quantity: str, *, causal: bool = False
) -> AxesImage:
    """Draw ``[n, n]`` numbers between positions, queries downwards; unseen keys are left empty."""
    n = len(kernel)
    shown, block = pooled(kernel)
    if causal:
        side = np.arange(len(shown))
        shown = np.where(side[:, None] < side, np.nan, shown)
    image = ax.imshow(
        shown, cmap=color_map(quantity), vmin=-limit, vmax=limit,
        extent=(-0.5, n - 0.5, n - 0.5, -0.5),
    )  # fmt: skip
    of = f" (mean of {block} x {block} cells)" if block > 1 else ""
    ax.set(xlabel=f"key{of}", ylabel="query")
    ax.spines[:].set_visible(False)
    return image


def kernel_curves(
    sheet: Sheet, results: Mapping[str, NDArray[np.float64]], _: Mapping[str, Any]
) -> Figure:
    """Draw standardised curves: ``[n - 1]`` from distance 1, or ``[2h - 1, 2w - 1]`` on a grid."""
    if next(iter(results.values())).ndim == 2:
        rows, columns = balanced(len(results), 4)
        side = (sheet.width - 1.1) / max(columns, 2)
        figure = sheet.figure((side + 0.25) * rows + 0.3, width=side * columns + 1.1)
        map_panels(figure, results, "standard deviations", "bias", 4)
        return figure
    kernels = results.items()
    figure, ax = curves(sheet, {name: (np.arange(1, len(c) + 1), c) for name, c in kernels})
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(xscale="log", xlabel="distance (positions)", ylabel="standard deviations")
    ax.set_xlim(1, max(map(len, results.values())))
    plain(ax.xaxis)
    ax.legend(loc="best")
    return figure


def kernel_maps(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw the standardised ``kernels`` of the references, ``[n, n]`` by label, on one range."""
    kernels = references["kernels"]
    rows, columns = balanced(len(kernels), 3)
    figure = sheet.figure(((sheet.width - 0.9) / max(columns, 2) + 0.2) * rows + 0.1)
    axes = panels(figure, len(kernels), 3)
    for ax, (label, kernel) in zip(axes.flat, kernels.items(), strict=False):
        image = kernel_map(ax, kernel, 3, "bias")
        ax.set_title(label)
    figure.colorbar(image, ax=axes, label="standard deviations", extend="both", aspect=30)
    return figure


#: Of a comparison of kernels.
KERNEL_FIGURES: Mapping[str, Builder] = {
    "curves": kernel_curves,
    "kernels": kernel_maps,
    "distances": distances(signed=True),
}


#: Points of a curve of losses: each is the mean of its neighbours.
POINTS = 48


def _cosines(
    sheet: Sheet, results: Mapping[str, NDArray[np.float64]], references: Mapping[str, Any]
) -> Figure:
    """Draw centred cosines ``[c, c]`` of the table before and in each way, on one range."""
    most = 4
    rows, columns = balanced(len(results), most)
    side = (sheet.width - 0.9) / columns
    figure = sheet.figure((side + 0.35) * rows + 0.2)
    axes = panels(figure, len(results), most)
    for ax, (label, cosines) in zip(axes.flat, results.items(), strict=False):
        end = references["positions"][label] - 0.5
        image = ax.imshow(
            cosines, cmap=color_map("cosine"), vmin=-1, vmax=1, extent=(-0.5, end, end, -0.5)
        )
        ax.set_title(label)
        ax.locator_params(nbins=3, integer=True)
        ax.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label="cosine, centred", aspect=30)
    return figure


def _norms(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw ``norms`` of the references, ``[n]`` by label, by position."""
    norms = references["norms"].items()
    figure, ax = curves(
        sheet, {how: (np.arange(len(found)), found) for how, found in norms}, grey="before"
    )
    ax.set(xlabel="position", ylabel="norm", ylim=(0, None))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _losses(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw ``losses`` of the references, ``[n]`` by label, by position; means of neighbours."""
    losses = references["losses"]
    figure, ax = curves(
        sheet, {how: _averaged(loss) for how, loss in losses.items()}, grey="before"
    )
    ax.axvline(len(losses["before"]) - 0.5, color=MUTED, linewidth=0.8)
    ax.set(xlabel="position in the context", ylabel="loss (nats)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _averaged(loss: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return middles and means of neighbouring positions."""
    parts = np.array_split(np.flatnonzero(np.isfinite(loss)), min(POINTS, len(loss)))
    kept = [part for part in parts if part.size]
    return np.array([p.mean() for p in kept]), np.array([loss[p].mean() for p in kept])


#: Of ways of resizing a table.
WAY_FIGURES: Mapping[str, Builder] = {"cosines": _cosines, "norms": _norms, "losses": _losses}


def _wavelengths(
    sheet: Sheet, results: Mapping[str, NDArray[np.float64]], references: Mapping[str, Any]
) -> Figure:
    """Draw wavelengths ``[pairs]`` by rule, with both lengths."""
    rules = results.items()
    figure, ax = curves(sheet, {name: (np.arange(len(found)), found) for name, found in rules})
    for name in ("training", "to"):
        ax.axhline(references[name], color=MUTED, linewidth=0.8)
    ax.set(yscale="log", xlabel="pair, fastest first", ylabel="wavelength (positions)")
    plain(ax.yaxis)
    ax.legend(loc="best")
    return figure


def _decay(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw the mean rotation ``[k]`` at each ``distance`` by rule."""
    distance, kernels = references["distance"], references["kernels"]
    figure, ax = curves(sheet, {name: (distance, kernel) for name, kernel in kernels.items()})
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.axvline(references["training"], color=MUTED, linewidth=0.8)
    ax.set(xscale="log", xlabel="distance (positions)", ylabel="mean rotation")
    plain(ax.xaxis)
    ax.legend(loc="best")
    return figure


#: Of rules that scale rotary positions.
RULE_FIGURES: Mapping[str, Builder] = {"wavelengths": _wavelengths, "decay": _decay}


def _by_place(x: str, y: str) -> Builder:
    """Return what draws a curve for each encoding by the number of its rows or pairs."""

    def drawn(
        sheet: Sheet, found: Mapping[str, NDArray[np.float64]], _: Mapping[str, Any]
    ) -> Figure:
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


def series_figure(sheet: Sheet, _: Mapping[str, Any], references: Mapping[str, Any]) -> Figure:
    """Draw ``steps``, ``numbers`` by label, ``path`` and ``answers`` of the references."""
    steps, numbers, answers = (references[name] for name in ("steps", "numbers", "answers"))
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
    _path(axes[len(numbers)], steps, references["path"])
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
