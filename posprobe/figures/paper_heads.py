"""Figures for papers of encodings without a table: relative biases, rotations, linear biases."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from textwrap import fill
from typing import TYPE_CHECKING

from posprobe.figures import draw_rotary, draw_schemes
from posprobe.figures.styles import printable
from posprobe.table import Grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.analyses import Heads, Rotation
    from posprobe.figures.sheet import Sheet
    from posprobe.schemes import LinearBias

#: Height in inches that the labels of maps need.
LABEL = 2.0


def relative(layers: Mapping[str, Heads], sheet: Sheet) -> Figure:
    """Draw what every head learned about each distance: panels, stripes, maps or a mosaic."""
    layers = printable(layers)
    first = next(iter(layers.values()))
    if isinstance(first.layout, Grid):
        return _windows(layers, sheet)
    total = sum(len(heads.curves) for heads in layers.values())
    if len(layers) > 1 or sheet.narrow or total > draw_schemes.MAX_HEADS:
        figure = sheet.figure(max(0.09 * total, 0.2 * len(layers), 1.5) + 0.5)
        ax = figure.subplots()
        draw_schemes.stripes(ax, layers)
        if len(layers) == 1:
            every = range(0, total, -(-total // 12))
            ax.set_yticks([head + 0.5 for head in every], [str(head) for head in every])
        return _wrapped(figure)
    rows, _ = draw_schemes.balanced(total, 4)
    figure = sheet.figure(1.15 * rows + 0.35 + (rows == 1))
    draw_schemes.head_panels(figure, first)
    return figure


def _windows(layers: Mapping[str, Heads], sheet: Sheet) -> Figure:
    if len(layers) == 1:
        (heads,) = layers.values()
        most = 3 if sheet.narrow else 6
        shown = list(islice(enumerate(draw_schemes.centred(heads)), draw_schemes.MAX_HEADS))
        rows, columns = draw_schemes.balanced(len(shown), most)
        side = min((sheet.width - 1.2) / columns, 2.4)
        figure = sheet.figure(max((side + 0.25) * rows + 0.35, LABEL), compressed=True)
        maps = {f"head {head}": values for head, values in shown}
        draw_schemes.map_panels(
            figure, maps, draw_schemes.CENTRED[heads.quantity], heads.quantity, most
        )
        return _wrapped(figure)
    rows = min(len(layers), draw_schemes.MAX_LAYERS)
    across = min(max(len(heads.curves) for heads in layers.values()), draw_schemes.MAX_HEADS)
    side = (sheet.width - 1.6) / across
    figure = sheet.figure(max(min(side, 0.8) * rows + 0.6, LABEL), compressed=True)
    draw_schemes.mosaic(figure, layers)
    return _wrapped(figure)


def _wrapped(figure: Figure) -> Figure:
    """Break the labels of colour bars, which are longer than a low figure is high."""
    for ax in figure.axes:
        if ax.get_label() == "<colorbar>":
            ax.set_ylabel(fill(ax.get_ylabel(), 20))
    return figure


def rotation(rotations: Mapping[str, Rotation], sheet: Sheet) -> Figure:
    """Draw each ladder of wavelengths, and beside it how the mean rotation falls."""
    count = len(rotations)
    if sheet.narrow:
        figure = sheet.figure(4.4 * count)
        axes = figure.subplots(2 * count, 1, squeeze=False).reshape(count, 2)
    else:
        figure = sheet.figure(2.7 * count)
        axes = figure.subplots(count, 2, squeeze=False)
    for (left, right), (name, result) in zip(axes, printable(rotations).items(), strict=True):
        draw_rotary.ladder(left, result.wavelength, result.unscaled, result.training, result.target)
        draw_rotary.decay(right, result)
        for ax in (left, right):
            ax.legend(
                loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2 if sheet.width > 6 else 1,
                borderaxespad=0.2, labelspacing=0.3,
            )  # fmt: skip
        if count > 1:
            left.set_ylabel(f"{name}\n{left.get_ylabel()}")
    return figure


def slopes(record: LinearBias, sheet: Sheet) -> Figure:
    """Draw the penalty of every head by distance."""
    figure = sheet.figure(2.4 if sheet.narrow else 2.8)
    draw_rotary.slopes(figure.subplots(), record.slopes, record.max_positions or 512)
    return figure
