"""A table at another size in each way, and rotary pairs by each rule of scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import Builder, balanced, curves, panels, plain
from posprobe.figures.relative import color_map
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import MUTED

#: Points of a curve of losses: each is the mean of its neighbours.
POINTS = 48

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
