"""Drawing of the places that reach a model's output, for the first screen of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posprobe.arrays import Floats
from posprobe.report.svg import (
    cosine_map,
    line_commands,
    path_element,
    position_ticks,
    rect_element,
    svg_element,
    text_element,
)
from posprobe.text import Block, format_value

#: Left edge, top edge, width and height of the plot, in units of its view box.
PLOT_BOX = (44.0, 46.0, 342.0, 318.0)
#: Influences below this share of the mean are drawn at it, on a logarithmic axis.
MIN_SHOWN_INFLUENCE = 1e-3
#: Titles by output.
PLACE_TITLES = {
    "embedding": "What the embedding represents",
    "next_token": "Influence on the next token",
    "classes": "Influence on the class",
}


def draw_places(document: Block) -> str:
    """Draw the weight of each place of the longest documents; empty where none was measured."""
    block = document.get("places")
    if not block:
        return ""
    full_length = block["lengths"][-1]
    if block["grid"]:
        return _draw_cells(full_length, block["grid"], PLACE_TITLES[block["output"]])
    is_influence = block["output"] == "next_token"
    title = PLACE_TITLES[block["output"]]
    elements = [text_element(0, 13, title, "h")]
    elements += (
        _draw_influences(full_length) if is_influence else _draw_weights(full_length)
    )
    left, top, width, height = PLOT_BOX
    tokens = full_length["tokens"]
    for tick in position_ticks(tokens + 1):
        x = left + width * tick / tokens
        elements.append(text_element(x, top + height + 15, str(tick), "ax", "middle"))
    axis_label = "tokens back" if is_influence else "place in the text (tokens)"
    elements.append(text_element(left + width / 2, 421, axis_label, "ax", "middle"))
    return svg_element(400, 426, title, elements)


def _draw_cells(full_length: Block, grid: Sequence[int], title: str) -> str:
    """Draw the influence of the cells of a picture, red where it is above the mean."""
    left, top, _, side = PLOT_BOX
    excess = np.array(full_length["weights"], dtype=np.float64).reshape(*grid) - 1
    cells = excess / (float(np.abs(excess).max()) or 1.0)
    elements = [
        text_element(0, 13, title, "h"),
        cosine_map(cells, left, top, side),
        rect_element("frame", left, top, side, side),
    ]
    for (row, column), weight in np.ndenumerate(1 + excess):
        x, y = (
            left + side * (column + 0.5) / grid[1],
            top + side * (row + 0.5) / grid[0],
        )
        elements.append(text_element(x, y + 4, f"{weight:.2g}", "tag", "middle"))
    note = "cell of the picture: influence, mean = 1"
    elements.append(text_element(left + side / 2, 421, note, "ax", "middle"))
    return svg_element(400, 426, title, elements)


def _slot_centres(full_length: Block) -> Floats:
    """Return the middle of each slot, in tokens from the start."""
    slots = full_length["slots"]
    centres: Floats = (np.arange(slots) + 0.5) * full_length["tokens"] / slots
    return centres


def _draw_weights(full_length: Block) -> list[str]:
    """Draw the weights, those with reversed positions, and where permuted places lie."""
    left, top, width, height = PLOT_BOX
    weights = np.array(full_length["weights"], dtype=np.float64)
    reversed_weights = full_length["reversed"]
    curves = [weights]
    if reversed_weights is not None:
        curves.append(np.array(reversed_weights, dtype=np.float64))
    low_chance, high_chance = full_length["weights_chance"]
    high = max(1.2, high_chance, *(float(np.nanmax(curve)) for curve in curves)) * 1.05
    low = min(0.5, low_chance, *(float(np.nanmin(curve)) for curve in curves))
    x = left + width * _slot_centres(full_length) / full_length["tokens"]

    def y(values: Floats | float) -> Floats:
        return np.asarray(top + height * (high - np.asarray(values)) / (high - low))

    band_top, band_bottom = float(y(high_chance)), float(y(low_chance))
    elements = [
        rect_element("null", left, band_top, width, band_bottom - band_top),
        text_element(left + width - 4, band_top + 13, "by chance", "ax", "end"),
    ]
    labels = ("as it is", "positions reversed")
    for curve, label, style in zip(curves, labels, ("line", "reversed"), strict=False):
        elements += _draw_dots(x, y(curve), style)
        end = 0 if style == "line" else -1
        anchor = "start" if style == "line" else "end"
        css_class = "tag" if style == "line" else "tag marktx"
        elements.append(
            text_element(
                float(x[end]), float(y(curve)[end]) - 9, label, css_class, anchor
            )
        )
    for tick in np.arange(np.ceil(low * 5) / 5, high, 0.2 if high - low < 2 else 0.5):
        elements.append(
            text_element(left - 6, float(y(tick)) + 4, f"{tick:.1f}", "ax", "end")
        )
    elements.append(text_element(0, top - 14, "weight, mean = 1", "ax"))
    return elements


def _draw_influences(full_length: Block) -> list[str]:
    """Draw influences by distance from the next token, on a logarithmic axis."""
    left, top, width, height = PLOT_BOX
    weights = np.maximum(full_length["weights"], MIN_SHOWN_INFLUENCE)
    low, high = np.log10(weights.min()), np.log10(max(weights.max(), 10.0))
    distances = full_length["tokens"] - _slot_centres(full_length)
    x = left + width * distances / full_length["tokens"]

    def y(values: Floats) -> Floats:
        return np.asarray(
            top + height * (high - np.log10(values)) / ((high - low) or 1.0)
        )

    mean_y = float(y(np.array(1.0)))
    elements = [
        path_element("grid", f"M{left:.1f},{mean_y:.1f}h{width:.1f}"),
        text_element(left + width, mean_y - 5, "all places alike", "ax", "end"),
        *_draw_dots(x, y(weights), "line"),
    ]
    for exponent in range(int(np.ceil(low)), int(np.floor(high)) + 1):
        value = 10.0**exponent
        text = format_value(value, "g")
        elements.append(
            text_element(left - 6, float(y(np.array(value))) + 4, text, "ax", "end")
        )
    reach = full_length["reach"]
    if reach is not None:
        reach_x = left + width * min(reach / full_length["tokens"], 1.0)
        anchor = "start" if reach_x < left + width / 2 else "end"
        note = f"90 % within {max(1, round(reach))} tokens"
        elements += [
            path_element("seamline", f"M{reach_x:.1f},{top}v{height}"),
            text_element(
                reach_x + (5 if anchor == "start" else -5),
                top + height - 8,
                note,
                "tag",
                anchor,
            ),
        ]
    elements.append(text_element(0, top - 14, "influence, mean = 1", "ax"))
    return elements


def _draw_dots(x: Sequence[float] | Floats, y: Floats, style: str) -> list[str]:
    """Draw a line through dots."""
    dots = [
        f'<circle class="{"dotline" if style == "line" else "mark"}" cx="{a:.1f}" '
        f'cy="{b:.1f}" r="4"/>'
        for a, b in zip(x, y, strict=True)
        if np.isfinite(b)
    ]
    css_class = "line strong" if style == "line" else "reversed"
    return [path_element(css_class, line_commands(x, y)), *dots]
