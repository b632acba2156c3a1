"""Small drawings of components, and of the row and column codes of patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.report.panel import LEFT, RIGHT, WIDTH, Panel, drawing
from posprobe.report.sketch_rows import Seen
from posprobe.text import lookup, show

#: Steps, in standard deviations, from which a path of more rows than this is drawn as dots, and how
#: many of them.
JUMP, FEW, DOTS = 0.5, 40, 150


def low_dimensional(seen: Seen) -> str:
    """Draw how evenly the variance is spread, beside what smoothness alone gives."""
    answer = seen.answers["low_dimensional"]
    value = lookup(answer["value"], "participation_ratio")
    if value is None or answer["null"] is None:
        return ""
    own, null = float(value), float(answer["null"])
    panel = Panel("equal directions that spread so", (0, max(own, null)), (0, 1))
    for row, (text, number) in enumerate((("this table", own), ("as smooth, by chance", null))):
        panel.bar(row, 0, number, "null" if row else "own")
        panel.label(f"{text}: {show(number)}", LEFT, panel.row(row) - 3)
    return panel.svg(
        f"Participation ratio: {show(own)}, and {show(null)} for independent columns that are as "
        "smooth."
    )


def rotations(seen: Seen) -> str:
    """Draw the power spectrum by period, with the rotations that were found."""
    answer = seen.answers["rotations"]
    coordinates = seen.scores
    if coordinates is None or len(coordinates) < 16 or answer["value"] is None:
        return ""
    n = len(coordinates)
    window = np.hanning(n)[:, None]
    slope = np.linspace(-1, 1, n)[:, None]
    level = coordinates - slope * (slope * coordinates).sum(axis=0) / np.square(slope).sum()
    power = np.square(np.abs(np.fft.rfft(level * window, axis=0))).sum(axis=1)[1:]
    period = n / np.arange(1, len(power) + 1)
    # As much of it as one bin in a hundredth of an octave would show: the tallest of each.
    edges = np.unique(np.round(np.geomspace(1, len(power) + 1, 110)).astype(int) - 1)
    tall = np.maximum.reduceat(power, edges[:-1])
    place = period[edges[:-1]]
    top = float(tall.max()) or 1.0
    least = max(float(tall.min()), 1e-7 * top)
    panel = Panel("power by period", (2, n), (least, 2 * top), log_x=True, log_y=True)
    periods = [float(rotation["period"]) for rotation in answer["value"]]
    for at in periods:
        panel.upright(at)
    panel.line(place, np.maximum(tall, least))
    panel.axis("2", "period, in positions", str(n))
    shown = ", ".join(show(at) for at in periods[:6])
    return panel.svg(
        "Power of the leading components by period, on logarithmic axes: "
        + (f"lines at periods of {shown}." if periods else "no period is marked.")
    )


def winding(seen: Seen) -> str:
    """Draw the plane of the first pair that winds."""
    answer = seen.answers["winding"]
    pairs = lookup(seen.document, "winding.pairs")
    scores = seen.scores
    if scores is None or not pairs or answer["value"] is None:
        return ""
    first, second = (int(k) - 1 for k in pairs[0]["components"])
    if max(first, second) >= scores.shape[1]:
        return ""
    panel = _path(scores[:, [first, second]], f"components {first + 1} and {second + 1}")
    turns = float(pairs[0]["turns"])
    panel.label(f"{show(turns)} turns", LEFT, 105)
    panel.label("red: first row", RIGHT, 105, "end")
    return panel.svg(
        f"Path of the positions in components {first + 1} and {second + 1}, which goes round "
        f"{turns:.1f} times."
    )


def _path(plane: NDArray[Any], title: str, left: float = LEFT, right: float = RIGHT) -> Panel:
    """Draw a path, both ways scaled alike; of a long one that jumps, its dots."""
    plane = np.asarray(plane, dtype=np.float64)
    spread = plane.std(axis=0)
    plane = (plane - plane.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    reach = 1.08 * float(np.abs(plane).max())
    panel = Panel(title, (-reach, reach), (-reach, reach), square=True, left=left, right=right)
    moved = float(np.median(np.linalg.norm(np.diff(plane, axis=0), axis=1)))
    if moved < JUMP or len(plane) <= FEW:
        panel.line(plane[:, 0], plane[:, 1])
    if moved >= JUMP:
        some = plane[:DOTS]
        panel.dots(some[:, 0], some[:, 1], radius=1.2)
    panel.dots(plane[0, 0], plane[0, 1], "named", 2.6)
    return panel


def ladder(seen: Seen) -> str:
    """Draw the periods in order on a logarithmic axis, where a series is a straight line."""
    found = lookup(seen.answers.get("rotations"), "value") or []
    periods = sorted(float(rotation["period"]) for rotation in found)
    if len(periods) < 3:
        return ""
    count = np.arange(1, len(periods) + 1)
    panel = Panel(
        "periods in order, logarithmic", (0.7, len(periods) + 0.3),
        (periods[0] / 1.6, periods[-1] * 1.9), log_y=True,
    )  # fmt: skip
    even = np.geomspace(periods[0], periods[-1], len(periods))
    panel.line(count, even, "null")
    panel.dots(count, periods)
    for at, period in zip(count, periods, strict=True):
        if len(periods) <= 6:
            panel.beside(f"{period:.3g}", float(at), period, "middle", 5)
    panel.axis("", "grey: even factors", "")
    shown = ", ".join(f"{period:.3g}" for period in periods)
    return panel.svg(f"Periods in order on a logarithmic axis: {shown}; a series is a line.")


def rows_and_columns(seen: Seen) -> str:
    """Draw the shares of row code, column code and the rest, and what smooth fields have."""
    answer = seen.answers["rows_and_columns"]
    value = answer["value"]
    if not isinstance(value, Mapping):
        return ""
    row, column = float(value["row_share"]), float(value["column_share"])
    panel = Panel("share of the variance", (0, 1), (0, 1))
    panel.bar(0, 0, row, "own")
    panel.bar(0, row, row + column, "named")
    panel.label(f"rows {row:.0%}, columns {column:.0%}", LEFT, panel.row(0) - 3)
    said = ""
    if answer["null"] is not None:
        null = float(answer["null"])
        panel.bar(1, 0, null, "null")
        panel.label(f"both, in smooth fields: {null:.0%}", LEFT, panel.row(1) - 3)
        said = f"; in smooth fields without such codes both together have {null:.0%}"
    panel.axis("0", "", "1")
    return panel.svg(
        f"Row codes hold {row:.0%} of the variance and column codes {column:.0%}{said}."
    )


def axis_rotations(seen: Seen) -> str:
    """Draw both codes in the plane of their first pair."""
    layout = seen.document["table"]["layout"]
    if seen.rows is None or layout["type"] != "grid":
        return ""
    cells = seen.rows.reshape(layout["height"], layout["width"], -1)
    parts: list[str] = []
    said = []
    for place, (name, code) in enumerate(
        (("rows", cells.mean(axis=1)), ("columns", cells.mean(axis=0)))
    ):
        pairs = lookup(seen.document, f"axis_codes.{name}.winding.pairs")
        if not pairs:
            continue
        code = np.asarray(code, dtype=np.float64)
        left, values, _ = np.linalg.svd(code - code.mean(axis=0), full_matrices=False)
        scores = (left * values)[:, [int(k) - 1 for k in pairs[0]["components"]]]
        begin = LEFT + place * WIDTH / 2
        panel = _path(scores, "", begin, begin + WIDTH / 2 - 16)
        panel.label(f"{name[:-1]} code", begin, 10)
        turns = float(pairs[0]["turns"])
        panel.label(f"{show(turns)} turns", begin, 105)
        said.append(f"{turns:.2f} turns of the {name[:-1]} code")
        parts += panel.parts
    if not parts:
        return ""
    return drawing(
        parts, f"Codes in the plane of their first pair of components: {', '.join(said)}."
    )
