"""The table itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.figures.common import MAX_CELLS, one_each, position_label
from posprobe.figures.sheet import Sheet
from posprobe.figures.styles import signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.tables import PositionTable


def plot_table(ax: Axes, table: PositionTable) -> None:
    """Draw the table itself, positions horizontal, clipped at the 99th percentile.

    Of more than `MAX_CELLS` rows or dimensions every second, third … is drawn, as the labels say.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    values = np.asarray(table.values, dtype=np.float32)
    limit = float(np.percentile(np.abs(values), 99, overwrite_input=True)) or 1.0
    colors = ScalarMappable(Normalize(-limit, limit), signed("PuOr_r"))
    rows, columns = (math.ceil(size / MAX_CELLS) for size in values.shape)
    # Colouring here rather than in imshow, which would need twenty times the table's memory.
    shown = values[::rows, ::columns].T
    pixels = np.stack([colors.to_rgba(dimension, bytes=True) for dimension in shown])
    first, stop = table.rows
    extent = (first - 0.5, stop - 0.5, table.dim - 0.5, -0.5)
    ax.imshow(pixels, aspect="auto", extent=extent)
    ax.set_xlabel(_every(position_label(table.layout), rows))
    ax.set_ylabel(_every("dimension", columns))
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(colors, ax=ax, label="value", extend="both", aspect=25, pad=0.02)
    bar.ax.locator_params(nbins=5)


def _every(what: str, step: int) -> str:
    return what if step == 1 else f"{what} (one in {step})"


def table_figure(
    sheet: Sheet, results: Mapping[str, PositionTable], references: Mapping[str, Any]
) -> Figure:
    """Draw each table below the other."""
    return one_each(plot_table, 2.2 if sheet.narrow else 2.8)(sheet, results, references)
