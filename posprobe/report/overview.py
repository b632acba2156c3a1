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
from posprobe.figures.common import pooled
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
APART, MARKS = 15, 40
#: Left, top and side of a map; the same of a spectrum.
X, Y, SIDE = 34, 24, 290
LEFT, TOP, BOX = 40, 26, 352
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
    found = {"budget": _budget(document)}
    n = document["table"]["positions"]
    cosines = arrays.get("similarity_centered")
    # Those of a long sequence are means over blocks.
    side = n if shape or cosines is None else len(cosines)
    if cosines is not None and cosines.shape == (side, side):
        found["similarity"] = _similarity(document, cosines, arrays.get("norms"), shape)
    scores = arrays.get("pca_scores")
    if scores is not None and scores.ndim == 2 and len(scores) == n and np.isfinite(scores).all():
        if shape:
            codes = _codes(scores, *shape)
            found["shape"], found["spectrum"] = _code_shapes(codes), _code_spectra(codes)
        else:
            first, stop = _rows(document)
            rows = np.asarray(scores[first:stop], dtype=np.float64)
            rows = rows - rows.mean(axis=0)
            found["shape"] = _shape(document, rows, arrays)
            found["spectrum"] = _spectrum(document, arrays.get("budget_spectrum"))
    return {name: drawn for name, drawn in found.items() if drawn}


def _rows(document: Block) -> tuple[int, int]:
    """Return the rows that the answers are about, counted from the first."""
    start = document["table"]["rows"][0] if "rows" in document["table"] else 0
    told = document.get("verdict", {})
    first, stop = told.get("rows") or (start, start + document["table"]["positions"])
    return first - start, stop - start


def _budget(document: Block) -> str:
    parts = budget_parts(document)
    if not parts:
        return ""
    drawn, small, left = [], [], 0.0
    for part in parts:
        width, middle = part.share, f"{100 * (left + part.share / 2):.2f}%"
        drawn.append(
            f'<rect class="seg {part.look}" x="{100 * left:.3f}%" y="28" '
            f'width="{100 * width:.3f}%" height="44"><title>{part.name}: {part.value}'
            "</title></rect>"
        )
        if width > LETTER * len(part.label):
            look = f"in {part.look}t{' xl' if width < NARROW else ''}"
            drawn.append(_in_bar(middle, 47, part.label, f"{look} wide"))
            drawn.append(_in_bar(middle, 64, part.value, f"{look} pc"))
        else:
            small.append(f"{part.label} {part.value}")
        left += width
    note = ", ".join(filter(None, ["variance around the mean row", budget_note(document)]))
    drawn.append(f'<text class="lab note" x="100%" y="16" text-anchor="end">{note}</text>')
    drawn.append(
        f'<text class="lab wide" x="100%" y="88" text-anchor="end">{", ".join(small)}</text>'
    )
    for share, words in budget_sums(parts):
        drawn.append(f'<line class="br" x1="0%" x2="{100 * share:.2f}%" y1="23" y2="23"/>')
        drawn.append(f'<text class="lab brt" x="0%" y="16">{words}</text>')
    label = "; ".join(f"{part.name} {part.value}" for part in parts)
    return (
        f'<svg width="100%" height="94" role="img" aria-label="Variance budget: {label}">'
        f"{''.join(drawn)}</svg>"
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
    found = document.get("seams", {})
    special = [each["row"] - start for each in found.get("special") or ()]
    breaks = [second - start for _, second in found.get("between") or ()]
    drawn, data = [], ""
    if shape:
        title, words, half, first = (
            "Cosine similarity: a tile per patch",
            "patch, row by row",
            0.5,
            0,
        )
        (down, across), image, small = shape, _mosaic(cosines, *shape), cosines
        if n <= CELLS:
            data = f' data-h="{down}" data-w="{across}"'
    else:
        title, words, half, first = "Cosine similarity of positions", "position", 0.0, start
        down = across = n
        image = small = pooled(np.asarray(cosines, dtype=np.float64), CELLS)[0]
        data = f' data-n="{n}" data-first="{start}"'
        drawn.append(rect("null", X, Y, SIDE, SIDE))
    drawn += [text(0, 13, title, "h"), map_of(image, X, Y, SIDE), color_bar(338, 64, 210)]
    for tick in ticks(across, first):
        at = X + SIDE * (tick - first + half) / across
        drawn.append(text(at, Y + SIDE + 13 if shape else 408, str(tick), "ax", "middle"))
    for tick in ticks(down, first):
        at = Y + SIDE * (tick - first + half) / down
        drawn.append(text(X - 5, at + 4, str(tick), "ax", "end"))
    for row in breaks:
        at = SIDE * row / n
        cross = f"M{X + at:.1f},{Y}v{SIDE}M{X},{Y + at:.1f}h{SIDE}"
        drawn += [path("halo", cross), path("seamline", cross)]
    for row in () if shape else special[:MARKS]:
        at = SIDE * (row + 0.5) / n
        drawn.append(path("mark", f"M{X + at - 4:.1f},{Y - 7}h8l-4,6z"))
        drawn.append(path("mark", f"M{X + SIDE + 7},{Y + at - 4:.1f}v8l-6,-4z"))
    if norms is not None and norms.shape == (n,):
        drawn += _norms(np.asarray(norms, dtype=np.float64), special, breaks)
    drawn.append(text(X + SIDE / 2, 408 if shape else 421, words, "ax", "middle"))
    drawn.append('<text class="read" x="366" y="13" text-anchor="end"></text>')
    if data:
        levels = np.rint(np.nan_to_num(np.clip(small, -1, 1), nan=-1.28) * 100).astype(np.int8)
        data += f' data-m="{len(levels)}" data-v="{base64.b64encode(levels.tobytes()).decode()}"'
    return svg(380, 426, f"{title}, and the norm of every row", drawn, data)


def _mosaic(cosines: NDArray[Any], height: int, width: int) -> Floats:
    """Lay out the cosines of each patch with all others as a tile in its place."""
    every = max(1, -(-(max(height, width) ** 2) // MOSAIC))
    tiles = np.asarray(cosines, dtype=np.float64).reshape(height, width, height, width)
    tiles = tiles[::every, ::every]
    rows, columns = tiles.shape[:2]
    gapped = np.full((rows, height + 1, columns, width + 1), np.nan)
    gapped[:, :height, :, :width] = tiles.transpose(0, 2, 1, 3)
    return gapped.reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]


def _norms(norms: Floats, special: list[int], breaks: list[int]) -> list[str]:
    n, top, high = len(norms), 352, 40
    usual = np.delete(norms, [row for row in special if 0 <= row < n])
    usual = usual[np.isfinite(usual)] if np.isfinite(usual).any() else np.zeros(1)
    low, most = float(usual.min()), float(usual.max())
    if most - low < 0.02 * most:
        low, most = 0.98 * low, 1.02 * most
    at = X + SIDE * (np.arange(n) + 0.5) / n
    places, values = at, norms
    if n > 2 * POINTS:
        edges = np.arange(0, n, -(-n // POINTS))
        both = np.stack([np.minimum.reduceat(norms, edges), np.maximum.reduceat(norms, edges)], 1)
        places, values = np.repeat(at[edges], 2), both.ravel()
    height = top + high * (1 - np.clip((values - low) / (most - low or 1.0), -0.1, 1.1))
    lines = [f"M{X + SIDE * row / n:.1f},{top - 4}v{high + 8}" for row in breaks]
    marks = [f"M{X + SIDE * (row + 0.5) / n - 4:.1f},{top + 4}h8l-4,-6z" for row in special[:MARKS]]
    return [
        text(X, 342, "row norm", "h2"),
        rect("plotbg", X, top - 4, SIDE, high + 8),
        path("line", curve(places, height)),
        text(X - 5, top + 6, _brief(most), "ax", "end"),
        text(X - 5, top + high + 4, _brief(low), "ax", "end"),
        *(path("seamline", each) for each in lines),
        *(path("mark", each) for each in marks),
    ]


def _brief(value: float) -> str:
    return f"{value:#.2g}".removesuffix(".")


def _shape(document: Block, rows: Floats, arrays: Arrays) -> str:
    """Draw the circles of the rotations; where there are none, the first two components."""
    first = _rows(document)[0] + document["table"].get("rows", [0])[0]
    paths = arrays.get("rotation_paths")
    periods = (document.get("clock") or {}).get("periods") or ()
    if paths is not None and paths.ndim == 3 and len(paths) == len(periods) > 0:
        title, count = "Shape: the table seen along each rotation", paths.shape[1]
        drawn = _circles(np.asarray(paths, dtype=np.float64), periods)
    else:
        title, count = "Shape: first two principal components", len(rows)
        drawn = _plane(rows, first)
    drawn = [text(0, 13, title, "h"), *drawn, text(141, 421, f"position {first}", "ax", "end")]
    for k in range(COLORS):
        drawn.append(rect(f"f{k}", 146 + 7.5 * k, 414, 7.8, 7))
    drawn.append(text(271, 421, str(first + count - 1)))
    return svg(372, 426, title, drawn)


def _circles(paths: Floats, periods: Any) -> list[str]:
    count = min(len(paths), CIRCLES)
    across = 1 if count == 1 else 2 if count <= 4 else 3
    down = -(-count // across)
    side = min(372 / across, 380 / down)
    drawn = []
    for k in range(count):
        x = 186 + (k % across - (across - 1) / 2) * 372 / across
        y = 24 + side * (k // across + 0.5)
        points = paths[k][:: -(-paths.shape[1] // DOTS)]
        reach = float(np.percentile(np.hypot(*points.T), 98)) or 1.0
        placed = np.clip(points / reach, -1.15, 1.15) * side * 0.42 + (x, y)
        drawn += [path(f"p c{c}", dots(part)) for c, part in _colored(placed)]
        drawn.append(text(x, y, period_of(periods[k]), "big", "middle"))
        drawn.append(text(x, y + 16, "positions", "ax", "middle"))
    return drawn


def _colored(points: Floats) -> list[tuple[int, Floats]]:
    """Cut points into runs of one colour; each ends where the next begins."""
    edges = np.linspace(0, len(points), COLORS + 1).astype(int)
    return [(c, points[a : b + 1]) for c, (a, b) in enumerate(pairwise(edges)) if a < b]


def _plane(rows: Floats, first: int) -> list[str]:
    leading = rows[:, :LEADING]
    values, vectors = np.linalg.eigh(leading.T @ leading)
    pair = leading @ vectors[:, ::-1][:, :2]
    shares = values[::-1][:2] / (float(np.square(rows).sum()) or 1.0)
    if pair.shape[1] < 2:
        return []
    x0, y0, wide, high = 24.0, 28.0, 330.0, 366.0
    placed, cross = _fitted(pair, (x0 + wide / 2, y0 + high / 2), 0.47 * wide, 0.47 * high)
    drawn = [path("grid", f"M{x0},{cross[1]:.1f}h{wide}M{cross[0]:.1f},{y0}v{high}")]
    thinned = placed[:: max(1, len(placed) // DOTS)]
    drawn += [path(f"l c{c}", curve(*part.T)) for c, part in _colored(thinned)]
    for position in ticks(len(placed), first):
        x, y = placed[position - first]
        drawn.append(f'<circle class="pt" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        away, anchor = (8, "start") if x >= x0 + wide / 2 else (-8, "end")
        drawn.append(text(x + away, y + 14, str(position), "tag", anchor))
    drawn.append(text(354, 404, f"PC 1 ({fine_percent(shares[0])} of variance)", "ax", "end"))
    turned = '<text class="ax" transform="translate(12 390) rotate(-90)">'
    drawn.append(f"{turned}PC 2 ({fine_percent(shares[1])})</text>")
    return drawn


def _fitted(
    points: Floats, middle: tuple[float, float], wide: float, high: float
) -> tuple[Floats, Floats]:
    """Place points within so much of a middle, both axes on one scale, and say where 0 lies."""
    own, span = (points.max(axis=0) + points.min(axis=0)) / 2, np.ptp(points, axis=0) / 2
    scale = min(wide / (span[0] or 1.0), high / (span[1] or 1.0))
    both = np.array([scale, -scale])
    return (points - own) * both + middle, -own * both + middle


def _spectrum(document: Block, known: NDArray[Any] | None) -> str:
    """Draw the share of variance by period over that of the best fit without waves."""
    if known is None or known.ndim != 2 or known.shape[0] != 3 or known.shape[1] < 7:
        return ""
    share, mean, columns = np.asarray(known, dtype=np.float64)
    n = len(share) + 1
    # Many bins share a place on a logarithmic axis: their means are drawn.
    edges = np.unique(np.rint(np.geomspace(1, n, 160)).astype(int)) - 1
    edges = edges[edges < n - 1]
    count = np.diff(np.append(edges, n - 1))
    period = 2 * n / (np.add.reduceat(np.arange(1.0, n), edges) / count)
    power = np.add.reduceat(share, edges) / count
    x, y, drawn = _axes(
        period, power, "positions",
        [each for each in (1000, 300, 100, 30, 10, 3) if period.min() <= each <= period.max()],
    )  # fmt: skip
    from scipy.special import chdtri

    usual, free = np.add.reduceat(mean, edges) / count, np.add.reduceat(columns, edges)
    high, low = (usual * chdtri(free, q) / free for q in (0.025, 0.975))
    band, around = np.concatenate([high, low[::-1]]), np.concatenate([period, period[::-1]])
    drawn.insert(0, path("null", curve(x(around), y(band)) + "z"))
    drawn.append('<rect class="null" x="216" y="35" width="16" height="10"/>')
    drawn.append(text(237, 44, "without rotations, 95 %"))
    drawn.insert(0, rect("far", LEFT, TOP, float(x(np.array([n]))[0]) - LEFT, BOX))
    drawn.insert(0, rect("plotbg", LEFT, TOP, BOX, BOX))
    drawn.append(path("line strong", curve(x(period), y(power))))
    parts = (document.get("budget") or {}).get("parts") or ()
    for each in (part["period"] for part in parts if part["part"] == "rotation"):
        near = (period > each / 1.15) & (period < each * 1.15)
        if near.any():
            top = float(y(np.array([power[near].max()]))[0])
            at = float(x(np.array([each]))[0])
            drawn.append(path("peak", f"M{at:.1f},{top - 3:.1f}v-9"))
            drawn.append(text(at, top - 17, period_of(each), "big", "middle"))
    drawn.append(text(LEFT + 4, TOP + BOX - 7, "< 2 turns"))
    return svg(400, 426, "Share of variance by period, over the best fit without rotations", drawn)


def _axes(
    period: Floats, power: Floats, unit: str, marks: Sequence[float]
) -> tuple[Any, Any, list[str]]:
    """Return the scales of a spectrum, and its grid."""
    slow, fast = float(np.log(period.max())), float(np.log(period.min()))
    known = power[power > 0]
    top = float(np.ceil(np.log10(known.max())))
    bottom = max(float(np.floor(np.log10(known.min()))), top - DECADES)

    def x(values: Floats) -> Floats:
        scaled: Floats = LEFT + BOX * (slow - np.log(values)) / ((slow - fast) or 1.0)
        return scaled

    def y(values: Floats) -> Floats:
        logs = np.log10(np.clip(values, 10.0**bottom, 10.0**top))
        return TOP + BOX * (top - logs) / ((top - bottom) or 1.0)

    drawn = [text(0, 13, "Spectrum: share of variance by period", "h")]
    for each in marks:
        at = float(x(np.array([float(each)]))[0])
        drawn += [path("grid", f"M{at:.1f},{TOP}v{BOX}")]
        drawn.append(text(at, 393, f"{each:.2g}" if each < 10 else f"{each:.0f}", "ax", "middle"))
    for decade in range(int(bottom), int(top) + 1):
        at = TOP + BOX * (top - decade) / ((top - bottom) or 1.0)
        power_of = f'10<tspan dy="-4" font-size="8.5">{minus(str(decade))}</tspan>'
        drawn.append(path("grid", f"M{LEFT},{at:.1f}h{BOX}"))
        drawn.append(
            f'<text class="ax" x="35" y="{at + 4:.1f}" text-anchor="end">{power_of}</text>'
        )
    drawn.append(text(216, 410, f"period ({unit})", "ax", "middle"))
    return x, y, drawn


def _codes(scores: NDArray[Any], height: int, width: int) -> dict[str, Floats]:
    """Return the row code and the column code of a grid."""
    cells = np.asarray(scores, dtype=np.float64).reshape(height, width, -1)
    cells = cells - cells.mean(axis=(0, 1))
    rows, columns = cells.mean(axis=1), cells.mean(axis=0)
    return {"row code": rows, "column code": columns}


def _code_shapes(codes: dict[str, Floats]) -> str:
    drawn = [text(0, 13, "Shape: the two codes, first two components", "h")]
    for k, (name, code) in enumerate(codes.items()):
        look, y0 = ("rowc", "colc")[k], 30 + 190 * k
        _, values, basis = np.linalg.svd(code, full_matrices=False)
        shares = values**2 / (float(np.square(values).sum()) or 1.0)
        if len(shares) < 2 or not shares[1] > 0:
            continue
        pair = code @ basis[:2].T
        placed, _ = _fitted(pair, (200, y0 + 88), 90, 73.8)
        drawn.append(text(0, y0 + 10, name, "h2"))
        for c, share in enumerate(shares[:2]):
            drawn.append(text(0, y0 + 27 + 15 * c, f"PC {c + 1} {fine_percent(share)}"))
        drawn.append(path(f"codeline {look}", curve(*placed.T)))
        centre, said = placed.mean(axis=0), np.full(2, -99.0)
        for row, (x, y) in enumerate(placed):
            drawn.append(f'<circle class="code {look}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
            away = (placed[row] - centre) / (float(np.hypot(*(placed[row] - centre))) or 1.0)
            if np.hypot(*(placed[row] - said)) > APART:
                said = placed[row]
                drawn.append(text(x + 13 * away[0], y + 13 * away[1] + 4, str(row), "ax", "middle"))
    drawn.append(text(180, 421, "numbers: row or column of the grid", "ax", "middle"))
    return svg(372, 426, "The row code and the column code along their first two components", drawn)


def _code_spectra(codes: dict[str, Floats]) -> str:
    from scipy.fft import dct

    others = [len(code) for code in codes.values()][::-1]
    total = sum(
        float(np.square(code).sum()) * other
        for code, other in zip(codes.values(), others, strict=True)
    )
    if not total or min(len(code) for code in codes.values()) < 4:
        return ""
    found = {}
    for (name, code), other in zip(codes.items(), others, strict=True):
        n = len(code)
        power = np.square(dct(code, axis=0, norm="ortho")).sum(axis=1)[1:] * other / total
        found[name] = (2 * n / np.arange(1.0, n), power)
    period = np.concatenate([p for p, _ in found.values()])
    x, y, drawn = _axes(
        period, np.concatenate([p for _, p in found.values()]), "patches",
        [period.max() / k for k in (1, 2, 3, 4, 6, 9, 13) if period.max() / k >= period.min()],
    )  # fmt: skip
    drawn.insert(0, rect("plotbg", LEFT, TOP, BOX, BOX))
    for k, (name, (of, power)) in enumerate(found.items()):
        look = ("rowc", "colc")[k]
        across, up = x(of), y(power)
        drawn.append(path(f"codeline {look}", curve(across, up)))
        drawn += [
            f'<circle class="code {look}" cx="{a:.1f}" cy="{b:.1f}" r="3.5"/>'
            for a, b in zip(across, up, strict=True)
        ]
        drawn.append(f'<circle class="code {look}" cx="{268}" cy="{42 + 17 * k}" r="3.5"/>')
        drawn.append(text(278, 46 + 17 * k, name, ("rowtx", "coltx")[k] + " h2"))
    return svg(400, 426, "Share of variance of both codes by period", drawn)


def strip(line: Line) -> str:
    """Draw the value of an answer and the range of its null on one axis; empty without a null."""
    if line.tested is None or line.interval is None:
        return ""
    ends = np.array([line.tested, *line.interval])
    value, low, high = 280 + 240 * (2 * (ends - ends.min()) / (float(np.ptp(ends)) or 1.0) - 1)
    drawn = [
        path("axis", "M20,44H540"),
        rect("null", low, 14, max(high - low, 1), 30),
        path("val", f"M{value:.1f},8v36"),
    ]
    label = f"{line.question} {line.value}, by chance {line.chance}"
    return svg(560, 50, label, drawn).replace("<svg ", '<svg class="strip" ', 1)


def standalone(drawn: str) -> str:
    """Turn a drawing of a page into a file of its own, with its colours."""
    drawn = drawn.replace('<svg width="100%"', '<svg width="1216"', 1)
    head, _, rest = drawn.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}><style>{source('colors.css')}{source('drawings.css')}</style>{rest}"
