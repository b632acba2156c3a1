"""The drawings of the first screen of a table, from its document and its arrays.

They are drawn without matplotlib: a page needs no figure of a paper, and is made in a tenth of the
time. What a document or its arrays lack is left out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.figures.common import average_blocks
from posprobe.page import Line
from posprobe.report.svg import color_bar, curve, dots, map_of, path, rect, source, svg, text, ticks
from posprobe.text import Block, fine_percent, minus, period_of
from posprobe.words.lines import budget_note, budget_parts, budget_sums

Arrays = Mapping[str, NDArray[Any]]

#: What the first screen draws, where it can.
NAMES = ("budget", "similarity", "shape", "spectrum")
#: Cells along a side of a map, and of a mosaic; colours of positions; circles that are drawn.
CELLS, MOSAIC, COLORS, CIRCLES = 256, 400, 16, 6
#: Least distance of points with a number; outlier rows that are marked.
MIN_MARK_SPACING, MARKS = 15, 40
#: Left, top and side of a map; the same of a spectrum.
X, Y, SIDE = 34, 24, 290
LEFT_MARGIN, TOP, BOX = 40, 26, 352
#: Points of a curve, and dots of a circle.
POINTS, DOTS = 300, 420
#: Components that a shape is looked for in; decades of a spectrum.
LEADING, DECADES = 64, 7
#: Width of a letter in a bar, as a share of the bar; parts that are named on wide pages alone.
LETTER, NARROW = 0.0056, 0.12


def drawings(document: Block, arrays: Arrays) -> dict[str, str]:
    """Draw what the first screen shows, by name, each as an element ``svg``.

    Parameters
    ----------
    document
        The content of ``analysis.json`` of a table.
    arrays
        That of ``arrays.npz``.
    """
    layout = document["table"]["layout"]
    shape: Any = None
    if layout["type"] == "grid":
        shape = (layout["height"], layout["width"])
    svg_by_name = {"budget": _budget(document)}
    n = document["table"]["positions"]
    cosines = arrays.get("similarity_centered")
    # Those of a long sequence are means over blocks.
    side = n if shape or cosines is None else len(cosines)
    if cosines is not None and cosines.shape == (side, side):
        svg_by_name["similarity"] = _similarity(document, cosines, arrays.get("norms"), shape)
    scores = arrays.get("pca_scores")
    if scores is not None and scores.ndim == 2 and len(scores) == n and np.isfinite(scores).all():
        if shape:
            codes = _codes(scores, *shape)
            svg_by_name["shape"], svg_by_name["spectrum"] = (
                _code_shapes(codes),
                _code_spectra(codes),
            )
        else:
            first_row, stop = _rows(document)
            rows = np.asarray(scores[first_row:stop], dtype=np.float64)
            rows = rows - rows.mean(axis=0)
            svg_by_name["shape"] = _shape(document, rows, arrays)
            svg_by_name["spectrum"] = _spectrum(document, arrays.get("budget_spectrum"))
    return {name: svg for name, svg in svg_by_name.items() if svg}


def _rows(document: Block) -> tuple[int, int]:
    """Return the rows that the answers are about, counted from the first."""
    start = document["table"]["rows"][0] if "rows" in document["table"] else 0
    verdict = document.get("verdict", {})
    first_row, stop = verdict.get("rows") or (start, start + document["table"]["positions"])
    return first_row - start, stop - start


def _budget(document: Block) -> str:
    parts = budget_parts(document)
    if not parts:
        return ""
    svg_parts, small, left_edge = [], [], 0.0
    for part in parts:
        width, middle = part.share, f"{100 * (left_edge + part.share / 2):.2f}%"
        svg_parts.append(
            f'<rect class="seg {part.look}" x="{100 * left_edge:.3f}%" y="28" '
            f'width="{100 * width:.3f}%" height="44"><title>{part.name}: {part.value}'
            "</title></rect>"
        )
        if width > LETTER * len(part.label):
            look = f"in {part.look}t{' xl' if width < NARROW else ''}"
            svg_parts.append(_in_bar(middle, 47, part.label, f"{look} wide"))
            svg_parts.append(_in_bar(middle, 64, part.value, f"{look} pc"))
        else:
            small.append(f"{part.label} {part.value}")
        left_edge += width
    note = ", ".join(filter(None, ["variance around the mean row", budget_note(document)]))
    svg_parts.append(f'<text class="lab note" x="100%" y="16" text-anchor="end">{note}</text>')
    svg_parts.append(
        f'<text class="lab wide" x="100%" y="88" text-anchor="end">{", ".join(small)}</text>'
    )
    for share, words in budget_sums(parts):
        svg_parts.append(f'<line class="br" x1="0%" x2="{100 * share:.2f}%" y1="23" y2="23"/>')
        svg_parts.append(f'<text class="lab brt" x="0%" y="16">{words}</text>')
    label = "; ".join(f"{part.name} {part.value}" for part in parts)
    return (
        f'<svg width="100%" height="94" role="img" aria-label="Variance budget: {label}">'
        f"{''.join(svg_parts)}</svg>"
    )


def legend(document: Block) -> str:
    """Name the parts of the budget, for pages on which its bar is too narrow."""
    return '<ul class="legend">{}</ul>'.format(
        "".join(
            f'<li><i class="sw {part.look}"></i>{part.name} <b>{part.value}</b></li>'
            for part in budget_parts(document)
        )
    )


def _in_bar(x: str, y: int, words: str, look: str) -> str:
    return f'<text class="{look}" x="{x}" y="{y}" text-anchor="middle">{words}</text>'


def _similarity(
    document: Block, cosines: NDArray[Any], norms: NDArray[Any] | None, shape: Any
) -> str:
    """Draw the map with breaks and outlier rows on it, and the norms below."""
    n, start = document["table"]["positions"], document["table"].get("rows", [0])[0]
    seams = document.get("seams", {})
    special = [outlier["row"] - start for outlier in seams.get("special") or ()]
    breaks = [second - start for _, second in seams.get("between") or ()]
    svg_parts, data = [], ""
    if shape:
        title, words, half, first = (
            "Cosine similarity: a tile per patch",
            "patch, row by row",
            0.5,
            0,
        )
        (n_rows, n_columns), image, small = shape, _mosaic(cosines, *shape), cosines
        if n <= CELLS:
            data = f' data-h="{n_rows}" data-w="{n_columns}"'
    else:
        title, words, half, first = "Cosine similarity of positions", "position", 0.0, start
        n_rows = n_columns = n
        image = small = average_blocks(np.asarray(cosines, dtype=np.float64), CELLS)[0]
        data = f' data-n="{n}" data-first="{start}"'
        svg_parts.append(rect("null", X, Y, SIDE, SIDE))
    svg_parts += [text(0, 13, title, "h"), map_of(image, X, Y, SIDE), color_bar(338, 64, 210)]
    for tick in ticks(n_columns, first):
        x = X + SIDE * (tick - first + half) / n_columns
        svg_parts.append(text(x, Y + SIDE + 13 if shape else 408, str(tick), "ax", "middle"))
    for tick in ticks(n_rows, first):
        x = Y + SIDE * (tick - first + half) / n_rows
        svg_parts.append(text(X - 5, x + 4, str(tick), "ax", "end"))
    for row in breaks:
        x = SIDE * row / n
        cross = f"M{X + x:.1f},{Y}v{SIDE}M{X},{Y + x:.1f}h{SIDE}"
        svg_parts += [path("halo", cross), path("seamline", cross)]
    for row in () if shape else special[:MARKS]:
        x = SIDE * (row + 0.5) / n
        svg_parts.append(path("mark", f"M{X + x - 4:.1f},{Y - 7}h8l-4,6z"))
        svg_parts.append(path("mark", f"M{X + SIDE + 7},{Y + x - 4:.1f}v8l-6,-4z"))
    if norms is not None and norms.shape == (n,):
        svg_parts += _norms(np.asarray(norms, dtype=np.float64), special, breaks)
    svg_parts.append(text(X + SIDE / 2, 408 if shape else 421, words, "ax", "middle"))
    svg_parts.append('<text class="read" x="366" y="13" text-anchor="end"></text>')
    if data:
        levels = np.rint(np.nan_to_num(np.clip(small, -1, 1), nan=-1.28) * 100).astype(np.int8)
        data += f' data-m="{len(levels)}" data-v="{base64.b64encode(levels.tobytes()).decode()}"'
    return svg(380, 426, f"{title}, and the norm of every row", svg_parts, data)


def _mosaic(cosines: NDArray[Any], height: int, width: int) -> Floats:
    """Lay out the cosines of each patch with all others as a tile in its place."""
    stride = max(1, -(-(max(height, width) ** 2) // MOSAIC))
    tiles = np.asarray(cosines, dtype=np.float64).reshape(height, width, height, width)
    tiles = tiles[::stride, ::stride]
    rows, columns = tiles.shape[:2]
    gapped = np.full((rows, height + 1, columns, width + 1), np.nan)
    gapped[:, :height, :, :width] = tiles.transpose(0, 2, 1, 3)
    return gapped.reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]


def _norms(norms: Floats, special: list[int], breaks: list[int]) -> list[str]:
    n, top, high = len(norms), 352, 40
    ordinary = np.delete(norms, [row for row in special if 0 <= row < n])
    ordinary = ordinary[np.isfinite(ordinary)] if np.isfinite(ordinary).any() else np.zeros(1)
    low, highest = float(ordinary.min()), float(ordinary.max())
    if highest - low < 0.02 * highest:
        low, highest = 0.98 * low, 1.02 * highest
    x = X + SIDE * (np.arange(n) + 0.5) / n
    places, values = x, norms
    if n > 2 * POINTS:
        edges = np.arange(0, n, -(-n // POINTS))
        extremes = np.stack(
            [np.minimum.reduceat(norms, edges), np.maximum.reduceat(norms, edges)], 1
        )
        places, values = np.repeat(x[edges], 2), extremes.ravel()
    height = top + high * (1 - np.clip((values - low) / (highest - low or 1.0), -0.1, 1.1))
    lines = [f"M{X + SIDE * row / n:.1f},{top - 4}v{high + 8}" for row in breaks]
    marks = [f"M{X + SIDE * (row + 0.5) / n - 4:.1f},{top + 4}h8l-4,-6z" for row in special[:MARKS]]
    return [
        text(X, 342, "row norm", "h2"),
        rect("plotbg", X, top - 4, SIDE, high + 8),
        path("line", curve(places, height)),
        text(X - 5, top + 6, _brief(highest), "ax", "end"),
        text(X - 5, top + high + 4, _brief(low), "ax", "end"),
        *(path("seamline", polyline) for polyline in lines),
        *(path("mark", polyline) for polyline in marks),
    ]


def _brief(value: float) -> str:
    return f"{value:#.2g}".removesuffix(".")


def _shape(document: Block, rows: Floats, arrays: Arrays) -> str:
    """Draw the circles of the rotations; where there are none, the first two components."""
    first_row = _rows(document)[0] + document["table"].get("rows", [0])[0]
    paths = arrays.get("rotation_paths")
    periods = (document.get("clock") or {}).get("periods") or ()
    if paths is not None and paths.ndim == 3 and len(paths) == len(periods) > 0:
        title, count = "Shape: the table seen along each rotation", paths.shape[1]
        svg_parts = _circles(np.asarray(paths, dtype=np.float64), periods)
    else:
        title, count = "Shape: first two principal components", len(rows)
        svg_parts = _plane(rows, first_row)
    svg_parts = [
        text(0, 13, title, "h"),
        *svg_parts,
        text(141, 421, f"position {first_row}", "ax", "end"),
    ]
    for k in range(COLORS):
        svg_parts.append(rect(f"f{k}", 146 + 7.5 * k, 414, 7.8, 7))
    svg_parts.append(text(271, 421, str(first_row + count - 1)))
    return svg(372, 426, title, svg_parts)


def _circles(paths: Floats, periods: Any) -> list[str]:
    count = min(len(paths), CIRCLES)
    n_columns = 1 if count == 1 else 2 if count <= 4 else 3
    down = -(-count // n_columns)
    side = min(372 / n_columns, 380 / down)
    svg_parts = []
    for k in range(count):
        x = 186 + (k % n_columns - (n_columns - 1) / 2) * 372 / n_columns
        y = 24 + side * (k // n_columns + 0.5)
        points = paths[k][:: -(-paths.shape[1] // DOTS)]
        reach = float(np.percentile(np.hypot(*points.T), 98)) or 1.0
        path_points = np.clip(points / reach, -1.15, 1.15) * side * 0.42 + (x, y)
        svg_parts += [path(f"p c{c}", dots(part)) for c, part in _colored(path_points)]
        svg_parts.append(text(x, y, period_of(periods[k]), "big", "middle"))
        svg_parts.append(text(x, y + 16, "positions", "ax", "middle"))
    return svg_parts


def _colored(points: Floats) -> list[tuple[int, Floats]]:
    """Cut points into runs of one colour; each ends where the next begins."""
    edges = np.linspace(0, len(points), COLORS + 1).astype(int)
    return [(c, points[a : b + 1]) for c, (a, b) in enumerate(pairwise(edges)) if a < b]


def _plane(rows: Floats, first_row: int) -> list[str]:
    leading = rows[:, :LEADING]
    values, vectors = np.linalg.eigh(leading.T @ leading)
    pair = leading @ vectors[:, ::-1][:, :2]
    shares = values[::-1][:2] / (float(np.square(rows).sum()) or 1.0)
    if pair.shape[1] < 2:
        return []
    x0, y0, wide, high = 24.0, 28.0, 330.0, 366.0
    path_points, cross = _fitted(pair, (x0 + wide / 2, y0 + high / 2), 0.47 * wide, 0.47 * high)
    svg_parts = [path("grid", f"M{x0},{cross[1]:.1f}h{wide}M{cross[0]:.1f},{y0}v{high}")]
    thinned = path_points[:: max(1, len(path_points) // DOTS)]
    svg_parts += [path(f"l c{c}", curve(*part.T)) for c, part in _colored(thinned)]
    for position in ticks(len(path_points), first_row):
        x, y = path_points[position - first_row]
        svg_parts.append(f'<circle class="pt" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        text_offset, anchor = (8, "start") if x >= x0 + wide / 2 else (-8, "end")
        svg_parts.append(text(x + text_offset, y + 14, str(position), "tag", anchor))
    svg_parts.append(text(354, 404, f"PC 1 ({fine_percent(shares[0])} of variance)", "ax", "end"))
    axis_text = '<text class="ax" transform="translate(12 390) rotate(-90)">'
    svg_parts.append(f"{axis_text}PC 2 ({fine_percent(shares[1])})</text>")
    return svg_parts


def _fitted(
    points: Floats, middle: tuple[float, float], wide: float, high: float
) -> tuple[Floats, Floats]:
    """Place points within so much of a middle, both axes on one scale, and say where 0 lies."""
    centre, span = (points.max(axis=0) + points.min(axis=0)) / 2, np.ptp(points, axis=0) / 2
    scale = min(wide / (span[0] or 1.0), high / (span[1] or 1.0))
    scales = np.array([scale, -scale])
    return (points - centre) * scales + middle, -centre * scales + middle


def _spectrum(document: Block, planes: NDArray[Any] | None) -> str:
    """Draw the share of variance by period over that of the best fit without waves."""
    if planes is None or planes.ndim != 2 or planes.shape[0] != 3 or planes.shape[1] < 7:
        return ""
    share, mean, columns = np.asarray(planes, dtype=np.float64)
    n = len(share) + 1
    # Many bins share a place on a logarithmic axis: their means are drawn.
    edges = np.unique(np.rint(np.geomspace(1, n, 160)).astype(int)) - 1
    edges = edges[edges < n - 1]
    count = np.diff(np.append(edges, n - 1))
    period = 2 * n / (np.add.reduceat(np.arange(1.0, n), edges) / count)
    power = np.add.reduceat(share, edges) / count
    x, y, svg_parts = _axes(
        period,
        power,
        "positions",
        [mark for mark in (1000, 300, 100, 30, 10, 3) if period.min() <= mark <= period.max()],
    )
    from scipy.special import chdtri

    mean_power, free = np.add.reduceat(mean, edges) / count, np.add.reduceat(columns, edges)
    high, low = (mean_power * chdtri(free, q) / free for q in (0.025, 0.975))
    band, band_period = np.concatenate([high, low[::-1]]), np.concatenate([period, period[::-1]])
    svg_parts.insert(0, path("null", curve(x(band_period), y(band)) + "z"))
    svg_parts.append('<rect class="null" x="216" y="35" width="16" height="10"/>')
    svg_parts.append(text(237, 44, "without rotations, 95 %"))
    svg_parts.insert(
        0, rect("far", LEFT_MARGIN, TOP, float(x(np.array([n]))[0]) - LEFT_MARGIN, BOX)
    )
    svg_parts.insert(0, rect("plotbg", LEFT_MARGIN, TOP, BOX, BOX))
    svg_parts.append(path("line strong", curve(x(period), y(power))))
    parts = (document.get("budget") or {}).get("parts") or ()
    for mark in (part["period"] for part in parts if part["part"] == "rotation"):
        is_near = (period > mark / 1.15) & (period < mark * 1.15)
        if is_near.any():
            top = float(y(np.array([power[is_near].max()]))[0])
            x_position = float(x(np.array([mark]))[0])
            svg_parts.append(path("peak", f"M{x_position:.1f},{top - 3:.1f}v-9"))
            svg_parts.append(text(x_position, top - 17, period_of(mark), "big", "middle"))
    svg_parts.append(text(LEFT_MARGIN + 4, TOP + BOX - 7, "< 2 turns"))
    return svg(
        400, 426, "Share of variance by period, over the best fit without rotations", svg_parts
    )


def _axes(
    period: Floats, power: Floats, unit: str, marks: Sequence[float]
) -> tuple[Any, Any, list[str]]:
    """Return the scales of a spectrum, and its grid."""
    slow, fast = float(np.log(period.max())), float(np.log(period.min()))
    positive = power[power > 0]
    top = float(np.ceil(np.log10(positive.max())))
    bottom = max(float(np.floor(np.log10(positive.min()))), top - DECADES)

    def x(values: Floats) -> Floats:
        scaled: Floats = LEFT_MARGIN + BOX * (slow - np.log(values)) / ((slow - fast) or 1.0)
        return scaled

    def y(values: Floats) -> Floats:
        logs = np.log10(np.clip(values, 10.0**bottom, 10.0**top))
        return TOP + BOX * (top - logs) / ((top - bottom) or 1.0)

    svg_parts = [text(0, 13, "Spectrum: share of variance by period", "h")]
    for mark in marks:
        x_position = float(x(np.array([float(mark)]))[0])
        svg_parts += [path("grid", f"M{x_position:.1f},{TOP}v{BOX}")]
        svg_parts.append(
            text(x_position, 393, f"{mark:.2g}" if mark < 10 else f"{mark:.0f}", "ax", "middle")
        )
    for decade in range(int(bottom), int(top) + 1):
        x_position = TOP + BOX * (top - decade) / ((top - bottom) or 1.0)
        power_of = f'10<tspan dy="-4" font-size="8.5">{minus(str(decade))}</tspan>'
        svg_parts.append(path("grid", f"M{LEFT_MARGIN},{x_position:.1f}h{BOX}"))
        svg_parts.append(
            f'<text class="ax" x="35" y="{x_position + 4:.1f}" text-anchor="end">{power_of}</text>'
        )
    svg_parts.append(text(216, 410, f"period ({unit})", "ax", "middle"))
    return x, y, svg_parts


def _codes(scores: NDArray[Any], height: int, width: int) -> dict[str, Floats]:
    """Return the row code and the column code of a grid."""
    cells = np.asarray(scores, dtype=np.float64).reshape(height, width, -1)
    cells = cells - cells.mean(axis=(0, 1))
    rows, columns = cells.mean(axis=1), cells.mean(axis=0)
    return {"row code": rows, "column code": columns}


def _code_shapes(codes: dict[str, Floats]) -> str:
    svg_parts = [text(0, 13, "Shape: the two codes, first two components", "h")]
    for k, (name, code) in enumerate(codes.items()):
        look, y0 = ("rowc", "colc")[k], 30 + 190 * k
        _, values, basis = np.linalg.svd(code, full_matrices=False)
        shares = values**2 / (float(np.square(values).sum()) or 1.0)
        if len(shares) < 2 or not shares[1] > 0:
            continue
        pair = code @ basis[:2].T
        path_points, _ = _fitted(pair, (200, y0 + 88), 90, 73.8)
        svg_parts.append(text(0, y0 + 10, name, "h2"))
        for c, share in enumerate(shares[:2]):
            svg_parts.append(text(0, y0 + 27 + 15 * c, f"PC {c + 1} {fine_percent(share)}"))
        svg_parts.append(path(f"codeline {look}", curve(*path_points.T)))
        centre, last_label = path_points.mean(axis=0), np.full(2, -99.0)
        for row, (x, y) in enumerate(path_points):
            svg_parts.append(f'<circle class="code {look}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
            direction = (path_points[row] - centre) / (
                float(np.hypot(*(path_points[row] - centre))) or 1.0
            )
            if np.hypot(*(path_points[row] - last_label)) > MIN_MARK_SPACING:
                last_label = path_points[row]
                svg_parts.append(
                    text(x + 13 * direction[0], y + 13 * direction[1] + 4, str(row), "ax", "middle")
                )
    svg_parts.append(text(180, 421, "numbers: row or column of the grid", "ax", "middle"))
    return svg(
        372, 426, "The row code and the column code along their first two components", svg_parts
    )


def _code_spectra(codes: dict[str, Floats]) -> str:
    from scipy.fft import dct

    other_lengths = [len(code) for code in codes.values()][::-1]
    total = sum(
        float(np.square(code).sum()) * other_length
        for code, other_length in zip(codes.values(), other_lengths, strict=True)
    )
    if not total or min(len(code) for code in codes.values()) < 4:
        return ""
    spectra = {}
    for (name, code), other_length in zip(codes.items(), other_lengths, strict=True):
        n = len(code)
        power = np.square(dct(code, axis=0, norm="ortho")).sum(axis=1)[1:] * other_length / total
        spectra[name] = (2 * n / np.arange(1.0, n), power)
    period = np.concatenate([p for p, _ in spectra.values()])
    x, y, svg_parts = _axes(
        period,
        np.concatenate([p for _, p in spectra.values()]),
        "patches",
        [period.max() / k for k in (1, 2, 3, 4, 6, 9, 13) if period.max() / k >= period.min()],
    )
    svg_parts.insert(0, rect("plotbg", LEFT_MARGIN, TOP, BOX, BOX))
    for k, (name, (frequency, power)) in enumerate(spectra.items()):
        look = ("rowc", "colc")[k]
        x_points, y_points = x(frequency), y(power)
        svg_parts.append(path(f"codeline {look}", curve(x_points, y_points)))
        svg_parts += [
            f'<circle class="code {look}" cx="{a:.1f}" cy="{b:.1f}" r="3.5"/>'
            for a, b in zip(x_points, y_points, strict=True)
        ]
        svg_parts.append(f'<circle class="code {look}" cx="{268}" cy="{42 + 17 * k}" r="3.5"/>')
        svg_parts.append(text(278, 46 + 17 * k, name, ("rowtx", "coltx")[k] + " h2"))
    return svg(400, 426, "Share of variance of both codes by period", svg_parts)


def strip(line: Line) -> str:
    """Draw the value of an answer and the range of its null on one axis; empty without a null."""
    if line.tested is None or line.interval is None:
        return ""
    ends = np.array([line.tested, *line.interval])
    value, low, high = 280 + 240 * (2 * (ends - ends.min()) / (float(np.ptp(ends)) or 1.0) - 1)
    svg_parts = [
        path("axis", "M20,44H540"),
        rect("null", low, 14, max(high - low, 1), 30),
        path("val", f"M{value:.1f},8v36"),
    ]
    label = f"{line.question} {line.value}, by chance {line.chance}"
    return svg(560, 50, label, svg_parts).replace("<svg ", '<svg class="strip" ', 1)


def standalone(svg: str) -> str:
    """Turn a drawing of a page into a file of its own, with its colours."""
    svg = svg.replace('<svg width="100%"', '<svg width="1216"', 1)
    head, _, content = svg.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}><style>{source('colors.css')}{source('drawings.css')}</style>{content}"
