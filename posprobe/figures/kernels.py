"""Encodings of any scheme side by side, by the kernel between positions that each induces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import Builder, balanced, curves, panels, plain, pooled
from posprobe.figures.comparison import distances
from posprobe.figures.relative import color_map, map_panels
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


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
