"""Drawings of the first screen of a run of a model, from its document and its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.figures.attention_budget import MAX_DRAWN_CURVES
from posprobe.report.overview import draw_budget, draw_budgets
from posprobe.report.place_overview import draw_places
from posprobe.report.svg import (
    cosine_map,
    line_commands,
    path_element,
    rect_element,
    svg_element,
    text_element,
)
from posprobe.text import Block, format_value, use_minus_sign
from posprobe.words.lines import (
    ATTENTION_LABELS,
    ATTENTION_SUBJECT,
    compared_budgets,
    head_share_text,
)

#: Arrays of a bundle by name.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

#: Names of the drawings of the first screen, in order.
RUN_DRAWING_NAMES = (
    "budget",
    "attention-heads",
    "attention-curves",
    "output-places",
)
#: Panels of curves side by side.
N_CURVE_COLUMNS = 3
#: Lengths of the drawings are in units of their view boxes, of this height.
DRAWING_HEIGHT = 426
#: Smallest distance between two ticks.
MIN_TICK_SPACING = 12
#: Layers that are labelled at most: more would overlap.
MAX_LAYER_LABELS = 24


@dataclass(frozen=True)
class Panel:
    """A box for a curve or a tile: left and top edge, width and height."""

    left: float
    top: float
    width: float
    height: float


def draw_run_overview(document: Block, arrays: Arrays) -> dict[str, str]:
    """Draw the first screen of a run, or of a comparison of runs: an ``svg`` by name.

    Parameters
    ----------
    document
        Content of ``analysis.json``.
    arrays
        Content of ``arrays.npz``.
    """
    if budgets := compared_budgets(document):
        return {"budget": draw_budgets(budgets, f"{ATTENTION_SUBJECT}, mean of heads")}
    svg_by_name = {}
    block = document.get("attention_budget")
    if block and block["heads"]:
        svg_by_name["budget"] = draw_budget(document)
        svg_by_name["attention-heads"] = _draw_heads(block["heads"])
        curves = arrays.get("attention_curves")
        if curves is not None and curves.ndim == 2 and len(curves) == len(block["heads"]):
            svg_by_name["attention-curves"] = _draw_curves(block, curves)
    if places_svg := draw_places(document):
        svg_by_name["output-places"] = places_svg
    return svg_by_name


def _draw_heads(heads: Sequence[Block]) -> str:
    """Draw each head as a bar of its shares, grouped by layer."""
    layers = sorted({head["layer"] for head in heads})
    left, top, width, height = 40.0, 26.0, 320.0, 352.0
    # A gap between two layers is as wide as a bar.
    pitch = height / (len(heads) + len(layers) - 1)
    bar = max(0.86 * pitch, 0.3)
    commands: dict[str, list[str]] = {name: [] for name in ATTENTION_LABELS}
    elements = [text_element(0, 13, "Each head: what decides where it looks", "h")]
    label_step = -(-len(layers) // MAX_LAYER_LABELS)
    y = top
    for index, layer in enumerate(layers):
        layer_heads = [head for head in heads if head["layer"] == layer]
        if index % label_step == 0:
            middle = y + pitch * len(layer_heads) / 2
            elements.append(text_element(left - 6, middle + 4, str(layer), "ax", "end"))
        for head in layer_heads:
            shares = [max(head[name], 0.0) for name in ATTENTION_LABELS]
            x, total = left, sum(shares) or 1.0
            for name, share in zip(ATTENTION_LABELS, shares, strict=True):
                length = width * share / total
                if length >= 0.05:
                    commands[name].append(f"M{x:.1f},{y + pitch / 2:.2f}h{length:.1f}")
                x += length
            y += pitch
        y += pitch
    for name, (_, colour_class) in ATTENTION_LABELS.items():
        if commands[name]:
            elements.append(
                f'<path class="bar {colour_class}s" stroke-width="{bar:.2f}" '
                f'd="{"".join(commands[name])}"/>'
            )
    for percent in (0, 50, 100):
        x = left + width * percent / 100
        text = f"{percent} %" if percent else "0"
        elements.append(text_element(x, top + height + 15, text, "ax", "middle"))
    elements.append(
        text_element(
            left + width / 2, 421, "share of the variance of logits", "ax", "middle"
        )
    )
    elements.append(text_element(8, top + height + 15, "layer", "ax"))
    label = "What decides where each head looks, as a bar of four shares, by layer"
    return svg_element(380, DRAWING_HEIGHT, label, elements)


def _pick_heads(heads: Sequence[Block]) -> list[int]:
    """Return the indices of the heads that position moves most, in the order of the model."""
    by_movement = sorted(range(len(heads)), key=lambda k: -(heads[k]["moved"] or 0.0))
    return sorted(by_movement[:MAX_DRAWN_CURVES])


def _draw_curves(block: Block, curves: Floats) -> str:
    """Draw the mean logit by displacement of the heads that position moves most."""
    heads = block["heads"]
    is_grid = block["layout"]["type"] == "grid"
    picked = _pick_heads(heads)
    title = "By distance: the heads that position moves most"
    elements = [text_element(0, 13, title, "h")]
    n_rows = -(-len(picked) // N_CURVE_COLUMNS)
    row_pitch = 372 / max(n_rows, 1)
    for place, index in enumerate(picked):
        row, column = divmod(place, N_CURVE_COLUMNS)
        panel = Panel(
            34 + 118 * column, 42 + row_pitch * row, 84, min(row_pitch - 38, 96)
        )
        head = heads[index]
        name = f"{head['layer']}.{head['head']}"
        elements.append(
            text_element(
                panel.left, panel.top - 6, f"{name}   {head_share_text(head)}", "h2"
            )
        )
        if is_grid:
            elements += _draw_tile(panel, curves[index], block["layout"])
        else:
            first = 1 - block["window"] if block["both_sides"] else 0
            elements += _draw_curve(panel, curves[index], first, head["preferred"])
            if place + N_CURVE_COLUMNS >= len(picked):
                elements += _draw_distance_ticks(panel, first, len(curves[index]))
    note = (
        "logit by displacement; red: above the mean"
        if is_grid
        else "logit less its mean (nats), by tokens back; dot: preferred"
    )
    elements.append(text_element(186, 421, note, "ax", "middle"))
    return svg_element(372, DRAWING_HEIGHT, title, elements)


def _draw_curve(
    panel: Panel, curve: Floats, first: int, preferred: int | None
) -> list[str]:
    """Draw one curve over the distances from ``first``, with its preferred distance."""
    values = curve[np.isfinite(curve)]
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = panel.height / ((high - low) or 1.0)
    x = panel.left + panel.width * np.arange(len(curve)) / max(len(curve) - 1, 1)
    y = panel.top + (high - curve) * scale
    zero_y = panel.top + high * scale
    elements = [
        path_element("grid", f"M{panel.left:.1f},{zero_y:.1f}h{panel.width:.1f}"),
        path_element("line strong", line_commands(x, y)),
    ]
    if preferred is not None:
        k = preferred - first
        elements.append(f'<circle class="mark" cx="{x[k]:.1f}" cy="{y[k]:.1f}" r="2.6"/>')
    for value, value_y in (
        (0.0, zero_y),
        (high, panel.top),
        (low, panel.top + panel.height),
    ):
        if value == 0.0 or abs(value_y - zero_y) > MIN_TICK_SPACING:
            text = use_minus_sign(format_value(value, ".2g"))
            elements.append(text_element(panel.left - 4, value_y + 4, text, "ax", "end"))
    return elements


def _draw_distance_ticks(panel: Panel, first: int, n: int) -> list[str]:
    """Write the distances at both ends of a curve, and 0 or the one in the middle."""
    middle = -first if first else (n - 1) // 2
    y = panel.top + panel.height + 14
    return [
        text_element(
            panel.left + panel.width * k / max(n - 1, 1),
            y,
            use_minus_sign(str(first + k)),
            "ax",
            "middle",
        )
        for k in (0, middle, n - 1)
    ]


def _draw_tile(panel: Panel, curve: Floats, layout: Block) -> list[str]:
    """Draw the mean logit by displacement of patches, on a scale of its own."""
    # A grid's window reaches a third of each side.
    rows, columns = (2 * (layout[side] // 3) + 1 for side in ("height", "width"))
    size = float(np.nanmax(np.abs(curve))) or 1.0
    tile = curve.reshape(rows, columns) / size
    side = min(panel.width, panel.height)
    # Keys stand where they are seen from the query: a row up is drawn up.
    return [
        cosine_map(tile[::-1, ::-1], panel.left, panel.top, side),
        rect_element("frame", panel.left, panel.top, side, side),
    ]
