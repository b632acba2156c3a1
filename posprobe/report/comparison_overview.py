"""Drawings of the first screen of a comparison of tables, from its document and its arrays."""

from __future__ import annotations

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
from posprobe.words.comparisons import chance_band, pair_line
from posprobe.words.lines import TABLE_BUDGET_SUBJECT, table_budgets

#: Arrays of a bundle by name.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

#: Number of tables whose maps are drawn: more are too small to read on one screen.
MAX_COMPARED_MAPS = 8
#: Number of pairs whose CKA is drawn: more do not fit beside the maps.
MAX_DRAWN_PAIRS = 8
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
#: Colour classes of the curves of tables, as far apart as those of positions are.
CURVE_CLASSES = ("c2", "c14", "c8", "c5", "c11", "c0", "c15", "c6")
#: Width of every picture, in units of its view box.
PANEL_WIDTH = 216
#: Its height.
PANEL_HEIGHT = 226
#: Left edge of a plot in its picture.
PLOT_LEFT = 38
#: Its top edge.
PLOT_TOP = 26
#: Its side.
PLOT_SIDE = 174


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
        svg_by_name["budget"] = draw_budgets(budgets, TABLE_BUDGET_SUBJECT)
    for index, (name, table) in enumerate(
        zip(MAP_NAMES, document["tables"], strict=False)
    ):
        cosines = arrays.get(f"{index}_similarity_centered")
        if cosines is not None and cosines.ndim == 2 and len(cosines) > 1:
            svg_by_name[name] = _draw_map(table, cosines)
    spectra = [
        arrays.get(f"{index}_pca_explained_variance_ratio")
        for index in range(len(labels))
    ]
    shares = {
        label: np.cumsum(to_float64(spectrum))
        for label, spectrum in zip(labels, spectra, strict=True)
        if spectrum is not None and spectrum.size and np.isfinite(spectrum).all()
    }
    if shares and len(labels) <= len(CURVE_CLASSES):
        svg_by_name["dimensions"] = _draw_dimensions(shares)
    pairs = [pair for pair in document["pairs"] if pair["cka"] is not None]
    if pairs and len(document["pairs"]) <= MAX_DRAWN_PAIRS:
        svg_by_name["closeness"] = _draw_closeness(pairs)
    return svg_by_name


def _draw_map(table: Block, cosines: NDArray[Any]) -> str:
    """Draw the cosines of all pairs of rows of one table, without its mean row."""
    description, is_grid = table["table"], table["table"]["layout"]["type"] == "grid"
    first_row = 0 if is_grid else description.get("rows", [0])[0]
    n = description["positions"]
    image, _ = average_blocks(to_float64(cosines), COMPARED_MAP_CELLS)
    unit = f"{'patch' if is_grid else 'position'}; cosine, centred"
    elements = [
        text_element(0, 13, shorten_label(table["label"], 30), "h"),
        cosine_map(image, PLOT_LEFT, PLOT_TOP, PLOT_SIDE),
        rect_element("frame", PLOT_LEFT, PLOT_TOP, PLOT_SIDE, PLOT_SIDE),
    ]
    ticks = position_ticks(n, first_row)
    for tick in (ticks[0], ticks[len(ticks) // 2], ticks[-1]):
        at = PLOT_SIDE * (tick - first_row) / max(n - 1, 1)
        anchor = "start" if tick == ticks[0] else "end" if tick == ticks[-1] else "middle"
        elements.append(
            text_element(PLOT_LEFT - 4, PLOT_TOP + max(at, 9), str(tick), "ax", "end")
        )
        elements.append(
            text_element(
                PLOT_LEFT + at, PLOT_TOP + PLOT_SIDE + 12, str(tick), "ax", anchor
            )
        )
    elements.append(
        text_element(PLOT_LEFT + PLOT_SIDE / 2, PANEL_HEIGHT - 4, unit, "ax", "middle")
    )
    label = f"Cosine similarity of every pair of rows of {table['label']}, centred"
    return svg_element(PANEL_WIDTH, PANEL_HEIGHT, label, elements)


def _draw_dimensions(shares: Mapping[str, NDArray[np.float64]]) -> str:
    """Draw the variance that the leading components explain, a curve for each table."""
    n_most = max(map(len, shares.values()))
    top = PLOT_TOP + 6 + 14 * len(shares)
    bottom = PLOT_TOP + PLOT_SIDE
    scale = PLOT_SIDE / (np.log(n_most) or 1.0)
    elements = [text_element(0, 13, "Variance by components", "h")]
    for share in (0.0, 0.5, 1.0):
        share_y = bottom - (bottom - top) * share
        elements.append(path_element("grid", f"M{PLOT_LEFT},{share_y:.1f}h{PLOT_SIDE}"))
        elements.append(
            text_element(PLOT_LEFT - 4, share_y + 4, f"{100 * share:.0f} %", "ax", "end")
        )
    for tick in (10**power for power in range(len(str(n_most)))):
        tick_x = PLOT_LEFT + scale * np.log(tick)
        elements.append(text_element(tick_x, bottom + 12, str(tick), "ax", "middle"))
    descriptions = []
    for index, (label, explained) in enumerate(shares.items()):
        css_class = f"line strong {CURVE_CLASSES[index]}"
        x = PLOT_LEFT + scale * np.log(np.arange(1, len(explained) + 1))
        y = bottom - (bottom - top) * np.minimum(explained, 1.0)
        count = int(np.searchsorted(explained, COUNTED_VARIANCE_SHARE - 1e-9)) + 1
        count = min(count, len(explained))
        elements.append(path_element(css_class, line_commands(x, y)))
        elements.append(
            f'<circle class="pt" cx="{x[count - 1]:.1f}" cy="{y[count - 1]:.1f}" r="3"/>'
        )
        name_y = 30 + 14 * index
        name = f"{shorten_label(label, 20)}: {count}"
        elements.append(path_element(css_class, f"M{PLOT_LEFT},{name_y - 4}h14"))
        elements.append(text_element(PLOT_LEFT + 18, name_y, name))
        descriptions.append(f"{label} {count}")
    elements.append(
        text_element(
            PLOT_LEFT + PLOT_SIDE / 2,
            PANEL_HEIGHT - 4,
            "components; dot: 90 %",
            "ax",
            "middle",
        )
    )
    label = f"Components that explain 90 % of the variance: {', '.join(descriptions)}"
    return svg_element(PANEL_WIDTH, PANEL_HEIGHT, label, elements)


def _draw_closeness(pairs: Sequence[Block]) -> str:
    """Draw the CKA of every pair as a point, and what random tables reach as a band."""
    is_compared = any(chance_band(pair)[1] for pair in pairs)
    title = "CKA (grey: by chance)" if is_compared else "CKA of pairs"
    elements = [text_element(0, 13, title, "h")]
    pitch = min((PLOT_SIDE + 4) / len(pairs), 62)
    left, length = 4, PANEL_WIDTH - 10
    bottom = PLOT_TOP + pitch * len(pairs)
    descriptions = []
    for tick, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        tick_x = left + length * tick
        elements.append(path_element("grid", f"M{tick_x:.1f},{PLOT_TOP}V{bottom:.1f}"))
        elements.append(text_element(tick_x, bottom + 12, f"{tick:g}", "ax", anchor))
    for index, pair in enumerate(pairs):
        y, names = PLOT_TOP + pitch * index, " · ".join(pair["tables"])
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
        anchor, shift = ("end", -8) if x > PANEL_WIDTH / 2 else ("start", 8)
        elements.append(text_element(x + shift, y + pitch / 2 + 9, value, "tag", anchor))
        descriptions.append(f"{names} {value}")
    label = f"CKA of pairs of tables: {', '.join(descriptions)}"
    return svg_element(PANEL_WIDTH, PANEL_HEIGHT, label, elements)
