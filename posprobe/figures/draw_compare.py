"""Several tables on the same axes: curves over a null band, and the matrix of distances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.draw import area, extremes, heat_map, plain
from posprobe.figures.styles import DIVERGING, LINES, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import PCA, Similarity, Spectrum

_Style = tuple[str, Any]
_Drawn = TypeVar("_Drawn")
Band = tuple[NDArray[np.float64], NDArray[np.float64]]


def similarity_panels(figure: Figure, results: Mapping[str, Similarity]) -> None:
    """Draw one cosine matrix per table on one shared range (Wang & Chen 2020, figure 1)."""
    columns = min(len(results), 3)
    rows = -(-len(results) // columns)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(results) :]:
        ax.set_axis_off()
    for ax, (label, result) in zip(axes.flat, results.items(), strict=False):
        image = heat_map(ax, result.raw, result.start)
        ax.set_title(label)
    figure.colorbar(image, ax=axes, label="cosine", shrink=0.9, aspect=30)


def profiles(ax: Axes, results: Mapping[str, Similarity], band: Band | None) -> None:
    """Draw the mean centred cosine against offset for each table."""
    _band(ax, band, first=0)
    for (label, result), (color, dash) in _styled(results):
        mean = result.centered.offset_mean
        ax.plot(*extremes(np.arange(len(mean)), mean), color=color, linestyle=dash, label=label)
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(xlabel="offset (positions)", ylabel="mean centred cosine", ylim=(-1.02, 1.02))
    ax.margins(x=0)
    ax.legend(loc="best")


def spectra(ax: Axes, results: Mapping[str, Spectrum], band: Band | None) -> None:
    """Draw each table's spectrum as the share of its power at each frequency."""
    frequency = next(iter(results.values())).frequency
    if band is not None and len(band[0]) == len(frequency):
        low, high = (np.maximum(edge[1:], 1e-12) for edge in band)
        area(ax, (frequency[1:], low, high), log=True, color=MUTED, alpha=0.25, label=_BAND)
    for (label, result), (color, dash) in _styled(results):
        share = result.power[1:] / result.power.sum()
        ax.plot(result.frequency[1:], share, color=color, linestyle=dash, label=label)
    ax.set(xscale="log", yscale="log", xlabel="frequency (cycles per position)")
    ax.set_ylabel("share of power")
    ax.set_ylim(1e-7, 1)
    plain(ax.xaxis, ax.yaxis)
    ax.legend(loc="lower left")


def variances(ax: Axes, results: Mapping[str, PCA], band: Band | None) -> None:
    """Draw the running sum of explained variance for each table."""
    _band(ax, band, first=1)
    for (label, result), (color, dash) in _styled(results):
        share = np.cumsum(result.explained_variance_ratio)
        ax.plot(np.arange(1, len(share) + 1), share, color=color, linestyle=dash, label=label)
    ax.set(xscale="log", xlabel="components", ylabel="share of variance", ylim=(0, 1.03))
    plain(ax.xaxis)
    ax.legend(loc="lower right")


def distances(
    ax: Axes,
    matrix: NDArray[np.float64],
    labels: Sequence[str],
    title: str,
    *,
    signed: bool = False,
) -> None:
    """Draw a matrix of pairwise numbers from 0 (from -1 where signed) to 1, each in its cell."""
    shown = np.ma.masked_invalid(matrix)
    ax.imshow(shown, cmap=DIVERGING if signed else "cividis", vmin=-1 if signed else 0, vmax=1)
    for row, column in np.ndindex(matrix.shape):
        value = matrix[row, column]
        text = "–" if np.isnan(value) else f"{value:.2f}"
        dark = abs(value) > 0.65 if signed else np.isnan(value) or value < 0.55
        color = "white" if dark else "black"
        ax.text(column, row, text, ha="center", va="center", color=color)
    ax.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)


_BAND = "random walk, 5 to 95 %"


def _band(ax: Axes, band: Band | None, *, first: int) -> None:
    if band is not None:
        at = np.arange(first, first + len(band[0]))
        area(ax, (at, *band), color=MUTED, alpha=0.25, label=_BAND)


def _styled(results: Mapping[str, _Drawn]) -> Iterator[tuple[tuple[str, _Drawn], _Style]]:
    for index, item in enumerate(results.items()):
        yield item, LINES[index % len(LINES)]
