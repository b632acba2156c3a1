"""Several tables side by side: matrices, curves over a null band, and distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import Builder, balanced
from posprobe.figures.sheet import LETTER, Sheet, columns_of, legend_height
from posprobe.figures.similarity import matrices, one_of_each, profiles
from posprobe.figures.spectrum import shares
from posprobe.figures.styles import DIVERGING, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

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
