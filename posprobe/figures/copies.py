"""Two copies of a model: what each projection of B is to that of A, and where its rows went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posprobe.arrays import Floats
from posprobe.figures.common import REPORT
from posprobe.figures.styles import BLUE, INK, MUTED, ON_RED, RED, SOUND_FILL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Cells of more layers are too narrow for a word along the row, and of many more for any word.
MAX_UPRIGHT_LAYERS = 5
MAX_LABELLED_LAYERS = 26
#: Height of a row of cells.
CELL_INCHES = 0.55
#: Height of a map of rows, and of its labels.
ROW_MAP_INCHES = 2.3
#: Width of a figure that fits on a phone.
NARROW_INCHES = 3.7


@dataclass(frozen=True)
class ProjectionCell:
    """One projection of one layer as it is drawn, and whether the copies differ in it."""

    layer: int
    side: str
    label: str
    differs: bool


def projections_figure(cells: Sequence[ProjectionCell]) -> Figure:
    """Draw each projection of each layer as a cell.

    Parameters
    ----------
    cells
        All projections that were compared.
    """
    n_layers = len({cell.layer for cell in cells})
    width = NARROW_INCHES if n_layers <= MAX_UPRIGHT_LAYERS else None
    figure = REPORT.make_figure(2 * CELL_INCHES + 0.6, width=width)
    _plot_cells(figure.subplots(), cells)
    return figure


def row_maps_figure(
    cells: Sequence[ProjectionCell], layer: int, row_maps: Floats
) -> Figure:
    """Draw where the rows of the queries and keys of one layer went.

    Parameters
    ----------
    cells
        All projections that were compared.
    layer
        The layer.
    row_maps
        ``[2, rows]``: row in A of each row of queries and of keys of B, NaN without.
    """
    figure = REPORT.make_figure(ROW_MAP_INCHES, width=NARROW_INCHES)
    faults = {cell.side for cell in cells if cell.layer == layer and cell.differs}
    sides = ("queries", "keys")
    for ax, side, rows in zip(figure.subplots(1, 2), sides, row_maps, strict=True):
        _plot_row_map(ax, rows, RED if side in faults else BLUE)
        ax.set_title(f"{side} of layer {layer}", fontsize="medium", pad=3)
    return figure


def _plot_cells(ax: Axes, cells: Sequence[ProjectionCell]) -> None:
    from matplotlib.patches import Rectangle

    layers = sorted({cell.layer for cell in cells})
    rows = {"queries": 0, "keys": 1}
    for cell in cells:
        corner = (layers.index(cell.layer) - 0.47, rows[cell.side] - 0.45)
        color = RED if cell.differs else SOUND_FILL
        ax.add_patch(Rectangle(corner, 0.94, 0.9, facecolor=color, edgecolor="none"))
        if len(layers) <= MAX_LABELLED_LAYERS:
            ax.text(
                layers.index(cell.layer),
                rows[cell.side],
                cell.label,
                rotation=0 if len(layers) <= MAX_UPRIGHT_LAYERS else 90,
                ha="center",
                va="center",
                fontsize="small",
                color=ON_RED if cell.differs else INK,
            )
    ax.set(xlim=(-0.5, len(layers) - 0.5), ylim=(1.5, -0.5), xlabel="layer")
    step = max(len(layers) // 16, 1)
    ax.set_xticks(range(0, len(layers), step), [str(layer) for layer in layers[::step]])
    ax.set_yticks([*rows.values()], [*rows])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _plot_row_map(ax: Axes, rows: Floats, color: str) -> None:
    defined = rows[np.isfinite(rows)]
    last = max(len(defined) - 1, 1)
    ax.plot([0, last], [0, last], color=MUTED, linewidth=0.5)
    size = 3.0 if len(defined) <= 128 else 1.2
    ax.plot(defined, np.arange(len(defined)), ".", color=color, markersize=size)
    ax.set(xlim=(-0.02 * last, 1.02 * last), ylim=(1.02 * last, -0.02 * last))
    ax.set(xlabel="row in A", ylabel="row in B", aspect="equal")
    ax.locator_params(nbins=4, integer=True)
