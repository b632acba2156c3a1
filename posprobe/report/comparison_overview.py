"""Drawings of the first screen of a comparison of tables, from its document and its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import to_float64
from posprobe.figures.common import average_blocks, shorten_label
from posprobe.report.overview import draw_budgets
from posprobe.report.svg import (
    cosine_map,
    line_commands,
    path_element,
    position_ticks,
    rect_element,
    svg_element,
    text_element,
)
from posprobe.text import Block
from posprobe.words.comparisons import (
    baseline_notes,
    chance_band,
    pair_line,
    similarity_verdict,
)
from posprobe.words.lines import TABLE_BUDGET_SUBJECT, table_budgets

#: Arrays of a bundle by name.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

#: Number of tables whose maps are drawn: more are too small to read on one screen.
MAX_COMPARED_MAPS = 8
#: Number of tables whose pairs are drawn beside their range by chance: more are a matrix.
MAX_TABLES_OF_BANDS = 3
#: Cells per side of a map, which keep the page of three tables below 300 kB.
COMPARED_MAP_CELLS = 112
#: Names of the maps of similarity, by the number of the table.
MAP_NAMES = tuple(f"map-{index}" for index in range(MAX_COMPARED_MAPS))
#: Names of the drawings of the first screen, in order.
COMPARISON_DRAWING_NAMES = ("budget", *MAP_NAMES, "dimensions", "closeness")
#: Names of the arrays that they are drawn from.
COMPARED_ARRAYS = tuple(
    f"{index}_{name}"
    for index in range(MAX_COMPARED_MAPS)
    for name in ("similarity_centered", "pca_explained_variance_ratio")
)
#: Figure of matplotlib that shows the same as a drawing, and stands in for it where it is lacking.
FIGURE_NAMES: Mapping[str, str] = {MAP_NAMES[0]: "similarity", "dimensions": "variance"}
#: Share of the variance at which the components of a table are counted.
COUNTED_VARIANCE_SHARE = 0.9
#: Classes of the curves of tables, each with a colour and a dash of its own.
CURVE_CLASSES = tuple(f"k{index}" for index in range(MAX_COMPARED_MAPS))
#: Width of all pictures of the first screen, which stand side by side.
SCREEN_WIDTH = 1216
#: Distance between two pictures.
PANEL_GAP = 16
#: Largest width of a map of similarity.
MAX_PANEL_WIDTH = 216
#: Smallest width of a map of similarity.
MIN_PANEL_WIDTH = 140
#: Width of the curves of variance.
DIMENSIONS_WIDTH = 176
#: Space on the left of a map, for the numbers of its positions.
PLOT_LEFT = 34
#: Space on the left of the curves, for their percentages.
DIMENSIONS_LEFT = 44
#: Space on the right of a plot.
PLOT_RIGHT = 6
#: Top edge of a plot.
PLOT_TOP = 24
#: Space below a plot, for its numbers and its unit.
PLOT_BOTTOM = 28
#: Height of the plot of the curves.
DIMENSIONS_HEIGHT = 66
#: Width of a cell of the matrix of CKA.
MATRIX_CELL_WIDTH = 34
#: Height of a cell of the matrix of CKA.
MATRIX_CELL_HEIGHT = 22
#: Width of a letter of a name in the pictures.
LETTER_WIDTH = 6.6
#: Most letters of a name in the matrix of CKA.
MAX_MATRIX_NAME = 18


def draw_comparison_overview(document: Block, arrays: Arrays) -> dict[str, str]:
    """Draw the first screen of a comparison of tables: an ``svg`` by name.

    Parameters
    ----------
    document
        Content of ``analysis.json``.
    arrays
        Content of ``arrays.npz``.
    """
    labels = [table["label"] for table in document["tables"]]
    svg_by_name = {}
    if budgets := table_budgets(document):
        svg_by_name["budget"] = draw_budgets(
            budgets, TABLE_BUDGET_SUBJECT, baseline_notes(document)
        )
    spectra = [
        arrays.get(f"{index}_pca_explained_variance_ratio")
        for index in range(len(labels))
    ]
    shares = {
        label: np.cumsum(to_float64(spectrum))
        for label, spectrum in zip(labels, spectra, strict=True)
        if spectrum is not None and spectrum.size and np.isfinite(spectrum).all()
    }
    closeness = _draw_closeness(labels, document["pairs"])
    width = _map_width(labels)
    for index, (name, table) in enumerate(
        zip(MAP_NAMES, document["tables"], strict=False)
    ):
        cosines = arrays.get(f"{index}_similarity_centered")
        if cosines is not None and cosines.ndim == 2 and len(cosines) > 1:
            svg_by_name[name] = _draw_map(table, cosines, width)
    if shares and len(labels) <= len(CURVE_CLASSES):
        svg_by_name["dimensions"] = _draw_dimensions(shares, width)
    if closeness:
        svg_by_name["closeness"] = closeness
    return svg_by_name


def _map_width(labels: Sequence[str]) -> int:
    """Return the width of maps that leaves room for the other pictures beside them."""
    if len(labels) <= MAX_TABLES_OF_BANDS:
        return MAX_PANEL_WIDTH
    left_width = SCREEN_WIDTH - _matrix_width(labels) - DIMENSIONS_WIDTH
    width = (left_width - PANEL_GAP * (len(labels) + 1)) // len(labels)
    return min(max(width, MIN_PANEL_WIDTH), MAX_PANEL_WIDTH)


def _draw_panel(width: int, height: int, label: str, elements: Sequence[str]) -> str:
    """Draw one of several pictures that stand side by side in their own sizes."""
    return svg_element(width, height, label, elements, f' width="{width}"')


def _draw_map(table: Block, cosines: NDArray[Any], width: int) -> str:
    """Draw the cosines of all pairs of rows of one table, without its mean row."""
    description, is_grid = table["table"], table["table"]["layout"]["type"] == "grid"
    first_row = 0 if is_grid else description.get("rows", [0])[0]
    n = description["positions"]
    image, _ = average_blocks(to_float64(cosines), COMPARED_MAP_CELLS)
    side, unit = width - PLOT_LEFT - PLOT_RIGHT, "patch" if is_grid else "position"
    bottom, name_length = PLOT_TOP + side, int(width / LETTER_WIDTH)
    elements = [
        text_element(0, 13, shorten_label(table["label"], name_length), "h"),
        cosine_map(image, PLOT_LEFT, PLOT_TOP, side),
        rect_element("frame", PLOT_LEFT, PLOT_TOP, side, side),
    ]
    ticks = position_ticks(n, first_row)
    for tick in (ticks[0], ticks[len(ticks) // 2], ticks[-1]):
        at = side * (tick - first_row) / max(n - 1, 1)
        anchor = "start" if tick == ticks[0] else "end" if tick == ticks[-1] else "middle"
        elements.append(
            text_element(PLOT_LEFT - 4, PLOT_TOP + max(at, 9), str(tick), "ax", "end")
        )
        elements.append(
            text_element(PLOT_LEFT + at, bottom + 12, str(tick), "ax", anchor)
        )
    elements.append(
        text_element(width, bottom + 25, f"{unit}; cosine, centred", "ax", "end")
    )
    label = f"Cosine similarity of every pair of rows of {table['label']}, centred"
    return _draw_panel(width, bottom + PLOT_BOTTOM, label, elements)


def _draw_dimensions(shares: Mapping[str, NDArray[np.float64]], map_width: int) -> str:
    """Draw the variance that the leading components explain, a curve for each table."""
    n_most = max(map(len, shares.values()))
    top = PLOT_TOP + 6 + 13 * len(shares)
    # The panel is as high as the maps beside it, if that leaves the curves enough room.
    bottom = max(top + DIMENSIONS_HEIGHT, PLOT_TOP + map_width - PLOT_LEFT - PLOT_RIGHT)
    left, length = DIMENSIONS_LEFT, DIMENSIONS_WIDTH - DIMENSIONS_LEFT - PLOT_RIGHT
    scale = length / (np.log(n_most) or 1.0)
    elements = [text_element(0, 13, "Variance by components", "h")]
    for share in (0.0, 0.5, 1.0):
        share_y = bottom - (bottom - top) * share
        elements.append(path_element("grid", f"M{left},{share_y:.1f}h{length}"))
        elements.append(
            text_element(left - 4, share_y + 4, f"{100 * share:.0f} %", "ax", "end")
        )
    for tick in (10**power for power in range(len(str(n_most)))):
        tick_x = left + scale * np.log(tick)
        elements.append(text_element(tick_x, bottom + 12, str(tick), "ax", "middle"))
    descriptions = []
    for index, (label, explained) in enumerate(shares.items()):
        css_class = f"line strong {CURVE_CLASSES[index]}"
        x = left + scale * np.log(np.arange(1, len(explained) + 1))
        y = bottom - (bottom - top) * np.minimum(explained, 1.0)
        count = int(np.searchsorted(explained, COUNTED_VARIANCE_SHARE - 1e-9)) + 1
        count = min(count, len(explained))
        elements.append(path_element(css_class, line_commands(x, y)))
        elements.append(
            f'<circle class="pt" cx="{x[count - 1]:.1f}" cy="{y[count - 1]:.1f}" r="3"/>'
        )
        name_y = PLOT_TOP + 7 + 13 * index
        name = f"{shorten_label(label, 18)}: {count}"
        elements.append(path_element(css_class, f"M0,{name_y - 4}h26"))
        elements.append(text_element(31, name_y, name))
        descriptions.append(f"{label} {count}")
    unit = "components; dot: 90 %"
    elements.append(text_element(DIMENSIONS_WIDTH, bottom + 25, unit, "ax", "end"))
    label = f"Components that explain 90 % of the variance: {', '.join(descriptions)}"
    return _draw_panel(DIMENSIONS_WIDTH, bottom + PLOT_BOTTOM, label, elements)


def _draw_closeness(labels: Sequence[str], pairs: Sequence[Block]) -> str:
    """Draw the CKA of every pair; empty where no pair has one."""
    if not any(pair["cka"] is not None for pair in pairs):
        return ""
    if len(labels) > MAX_COMPARED_MAPS:
        return ""
    if len(labels) > MAX_TABLES_OF_BANDS:
        return _draw_matrix(labels, pairs)
    return _draw_bands([pair for pair in pairs if pair["cka"] is not None])


def _closeness_title(pairs: Sequence[Block]) -> str:
    is_compared = any(chance_band(pair)[1] for pair in pairs)
    return "CKA (grey: by chance)" if is_compared else "CKA of pairs"


def _closeness_label(pairs: Sequence[Block]) -> str:
    descriptions = (f"{' · '.join(p['tables'])} {pair_line(p, '').value}" for p in pairs)
    return f"CKA of pairs of tables: {', '.join(descriptions)}"


def _matrix_width(labels: Sequence[str]) -> int:
    """Return the width of the matrix of CKA, whose rows end with the names of tables."""
    name_lengths = [min(len(label), MAX_MATRIX_NAME) for label in labels]
    ends = [
        MATRIX_CELL_WIDTH * row + LETTER_WIDTH * length
        for row, length in enumerate(name_lengths)
    ]
    return math.ceil(max(ends)) + 4


def _draw_matrix(labels: Sequence[str], pairs: Sequence[Block]) -> str:
    """Draw the CKA of every pair as a number, in the row of one table and the column of another."""
    elements = [text_element(0, 13, _closeness_title(pairs), "h")]
    values = {frozenset(pair["tables"]): pair for pair in pairs}
    for row, label in enumerate(labels):
        y = PLOT_TOP + MATRIX_CELL_HEIGHT * row
        for column, column_label in enumerate(labels[:row]):
            pair, x = values[frozenset((label, column_label))], MATRIX_CELL_WIDTH * column
            css_class = "null" if similarity_verdict(pair) == "no" else "grid"
            elements.append(
                rect_element(
                    css_class, x, y, MATRIX_CELL_WIDTH - 2, MATRIX_CELL_HEIGHT - 2
                )
            )
            middle = x + MATRIX_CELL_WIDTH / 2 - 1
            value = pair_line(pair, "").value
            elements.append(text_element(middle, y + 14, value, "lab", "middle"))
        name_x = MATRIX_CELL_WIDTH * row + 2
        name = shorten_label(label, MAX_MATRIX_NAME)
        elements.append(text_element(name_x, y + 14, name, "ax"))
    height = PLOT_TOP + MATRIX_CELL_HEIGHT * len(labels)
    return _draw_panel(_matrix_width(labels), height, _closeness_label(pairs), elements)


def _draw_bands(pairs: Sequence[Block]) -> str:
    """Draw the CKA of every pair as a point, and what random tables reach as a band."""
    elements = [text_element(0, 13, _closeness_title(pairs), "h")]
    pitch = min((MAX_PANEL_WIDTH - PLOT_LEFT - PLOT_RIGHT) / len(pairs), 62)
    left, length = 4, MAX_PANEL_WIDTH - 10
    bottom = PLOT_TOP + pitch * len(pairs)
    for tick, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        tick_x = left + length * tick
        elements.append(path_element("grid", f"M{tick_x:.1f},{PLOT_TOP}V{bottom:.1f}"))
        elements.append(text_element(tick_x, bottom + 12, f"{tick:g}", "ax", anchor))
    for index, pair in enumerate(pairs):
        y = PLOT_TOP + pitch * index
        short_names = " · ".join(shorten_label(name, 17) for name in pair["tables"])
        value, (_, band) = pair_line(pair, "").value, chance_band(pair)
        if band:
            low, high = (left + length * max(band[key], 0.0) for key in ("p5", "p95"))
            elements.append(
                rect_element("null", low, y + 15, max(high - low, 1.5), pitch - 20)
            )
        x = left + length * min(max(pair["cka"], 0.0), 1.0)
        elements.append(text_element(left, y + 11, short_names))
        elements.append(
            f'<circle class="dotline" cx="{x:.1f}" cy="{y + pitch / 2 + 5:.1f}" r="4"/>'
        )
        anchor, shift = ("end", -8) if x > MAX_PANEL_WIDTH / 2 else ("start", 8)
        elements.append(text_element(x + shift, y + pitch / 2 + 9, value, "tag", anchor))
    height = math.ceil(bottom) + PLOT_BOTTOM
    return _draw_panel(MAX_PANEL_WIDTH, height, _closeness_label(pairs), elements)
