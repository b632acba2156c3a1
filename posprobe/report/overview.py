"""Drawings of the first screen of a table, from its document and its arrays.

They are made without matplotlib, in a tenth of the time. Drawings whose numbers a document or its
arrays lack are left out.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats, to_float64
from posprobe.figures.common import average_blocks
from posprobe.page import AnswerLine
from posprobe.report.svg import (
    cosine_bar,
    cosine_map,
    dot_commands,
    line_commands,
    path_element,
    position_ticks,
    read_template,
    rect_element,
    svg_element,
    text_element,
)
from posprobe.text import (
    Block,
    escape_invisible,
    format_percent,
    format_period,
    use_minus_sign,
)
from posprobe.words.comparisons import baseline_notes
from posprobe.words.lines import (
    TABLE_BUDGET_SUBJECT,
    BudgetTerm,
    budget_note,
    budget_subject,
    budget_sums,
    budget_terms,
    compared_budgets,
    table_budgets,
)

#: Arrays of a bundle by name.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
#: Map from values to coordinates.
Scale: TypeAlias = Callable[[Floats], Floats]

#: Names of the drawings of the first screen, in order.
DRAWING_NAMES = ("budget", "similarity", "shape", "spectrum")
#: Name of the drawing of a clock that rotations share, which is evidence of an answer.
CLOCK_DRAWING_NAME = "clock"
#: Fewest positions of a curve that is drawn.
MIN_CURVE_POINTS = 2


@dataclass(frozen=True)
class Style:
    """Sizes, positions and limits of the drawings, lengths in units of their view boxes.

    Parameters
    ----------
    map_cells
        Most cells per side of a map of cosines; larger maps are averaged in blocks.
    mosaic_cells
        Most cells per side of a mosaic; on larger grids every k-th patch has a tile.
    n_colours
        Number of colours of positions along a path.
    max_circles
        Most rotations that are drawn.
    max_marked_rows
        Most outlier rows that are marked.
    min_number_spacing
        Smallest distance between two points that are both labelled with their number.
    map_left, map_top, map_side
        Left edge, top edge and side of the map of cosines.
    plot_left, plot_top, plot_side
        Left edge, top edge and side of the spectrum.
    max_curve_points
        Most blocks whose extremes make the curve of the norms.
    max_path_points
        Most points of a path or circle.
    max_components
        Number of principal components that the plane of two is fitted in.
    max_decades
        Most decades of a spectrum.
    letter_share
        Width of a letter, as a share of the budget's bar.
    min_wide_share
        Share of the bar below which a term is labelled on wide pages only.
    names_share
        Share of the width that the names of several bars take.
    bar_height, low_bar_height
        Height of a bar: of one or a few, and of more under each other.
    max_tall_bars
        Most bars under each other that are not low.
    bar_gap
        Distance between bars under each other.
    note_height
        Height of the labels that stand below a bar.
    first_bar_top
        Upper edge of the first of several bars.
    """

    map_cells: int = 256
    mosaic_cells: int = 400
    n_colours: int = 16
    max_circles: int = 6
    max_marked_rows: int = 40
    min_number_spacing: float = 15
    map_left: int = 34
    map_top: int = 24
    map_side: int = 290
    plot_left: int = 40
    plot_top: int = 26
    plot_side: int = 352
    max_curve_points: int = 300
    max_path_points: int = 420
    max_components: int = 64
    max_decades: int = 7
    letter_share: float = 0.0056
    min_wide_share: float = 0.12
    names_share: float = 0.14
    bar_height: int = 44
    low_bar_height: int = 26
    max_tall_bars: int = 3
    bar_gap: int = 6
    note_height: int = 12
    first_bar_top: int = 26


#: Style of all drawings of the first screen.
STYLE = Style()


def draw_overview(document: Block, arrays: Arrays) -> dict[str, str]:
    """Draw the first screen: an element ``svg`` for each drawing, by name.

    Parameters
    ----------
    document
        Content of ``analysis.json`` of a table.
    arrays
        Content of ``arrays.npz``.
    """
    layout = document["table"]["layout"]
    grid_shape = (layout["height"], layout["width"]) if layout["type"] == "grid" else None
    svg_by_name = {"budget": draw_budget(document)}
    n = document["table"]["positions"]
    cosines = arrays.get("similarity_centered")
    # The cosines of a long sequence are means over blocks.
    side = n if grid_shape or cosines is None else len(cosines)
    if cosines is not None and cosines.shape == (side, side):
        norms = arrays.get("norms")
        svg_by_name["similarity"] = _draw_similarity(document, cosines, norms, grid_shape)
    scores = arrays.get("pca_scores")
    if (
        scores is not None
        and scores.ndim == 2
        and len(scores) == n
        and np.isfinite(scores).all()
    ):
        if grid_shape:
            codes = _axis_codes(scores, *grid_shape)
            svg_by_name["shape"] = _draw_code_shapes(codes)
            svg_by_name["spectrum"] = _draw_code_spectra(codes)
        else:
            first_row, stop = _answered_rows(document)
            rows = np.asarray(scores[first_row:stop], dtype=np.float64)
            rows = rows - rows.mean(axis=0)
            svg_by_name["shape"] = _draw_shape(document, rows, arrays)
            svg_by_name["spectrum"] = _draw_spectrum(
                document, arrays.get("budget_spectrum")
            )
            svg_by_name[CLOCK_DRAWING_NAME] = _draw_clock(document, arrays)
    return {name: svg for name, svg in svg_by_name.items() if svg}


def _answered_rows(document: Block) -> tuple[int, int]:
    """Return the rows that the answers are about, counted from the first."""
    start = document["table"]["rows"][0] if "rows" in document["table"] else 0
    verdict = document.get("verdict", {})
    first_row, stop = verdict.get("rows") or (
        start,
        start + document["table"]["positions"],
    )
    return first_row - start, stop - start


def draw_budget(document: Block) -> str:
    """Draw the variance budget as a bar, whose lengths are shares of the width of the page."""
    terms = budget_terms(document)
    if not terms:
        return ""
    elements, narrow_labels = _draw_bar(terms, 28)
    note = ", ".join(filter(None, [budget_subject(document), budget_note(document)]))
    elements.append(
        f'<text class="lab note" x="100%" y="16" text-anchor="end">{note}</text>'
    )
    elements.append(
        '<text class="lab wide" x="100%" y="88" text-anchor="end">'
        f"{', '.join(narrow_labels)}</text>"
    )
    for share, value, name in budget_sums(terms):
        elements.append(
            f'<line class="br" x1="0%" x2="{100 * share:.2f}%" y1="23" y2="23"/>'
        )
        elements.append(f'<text class="lab brt" x="0%" y="16">{name} {value}</text>')
    label = "; ".join(f"{term.name} {term.value}" for term in terms)
    return (
        f'<svg width="100%" height="94" role="img" aria-label="Budget: {label}">'
        f"{''.join(elements)}</svg>"
    )


def _draw_bar(
    terms: Sequence[BudgetTerm], top: int, width: float = 1.0, *, is_low: bool = False
) -> tuple[list[str], list[str]]:
    """Draw terms as segments of a bar, and return the labels of those that are too narrow.

    Parameters
    ----------
    terms
        Terms whose shares add up to 1.
    top
        Upper edge of the bar.
    width
        Width of the bar, as a share of that of the page.
    is_low
        Whether the bar has room for one line of text alone.
    """
    elements, narrow_labels, left_edge = [], [], 0.0
    height = STYLE.low_bar_height if is_low else STYLE.bar_height
    for term in terms:
        share = term.share
        centre = f"{100 * (left_edge + share / 2):.2f}%"
        elements.append(
            f'<rect class="seg {term.colour_class}" x="{100 * left_edge:.3f}%" y="{top}" '
            f'width="{100 * share:.3f}%" height="{height}"><title>{term.name}: {term.value}'
            "</title></rect>"
        )
        label = f"{term.label} {term.value}" if is_low else term.label
        if share * width > STYLE.letter_share * len(label):
            is_wide = share * width >= STYLE.min_wide_share
            css_class = f"in {term.colour_class}t{'' if is_wide else ' xl'}"
            value_class = f"{css_class} pc{' thin' if is_low else ''}"
            label_y, value_y = (top + 18, top + 26) if is_low else (top + 19, top + 36)
            elements.append(_bar_label(centre, label_y, label, f"{css_class} wide"))
            elements.append(_bar_label(centre, value_y, term.value, value_class))
        else:
            narrow_labels.append(f"{term.label} {term.value}")
        left_edge += share
    return elements, narrow_labels


def draw_budgets(
    budgets: Sequence[tuple[str, Sequence[BudgetTerm]]],
    title: str,
    name_notes: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Draw several budgets as bars under each other, each with its name on the left.

    On narrow pages the legend takes its place.

    Parameters
    ----------
    budgets
        Name and terms of each.
    title
        What the terms are shares of.
    name_notes
        Notes below names, by name.
    """
    left, is_low = STYLE.names_share, len(budgets) > STYLE.max_tall_bars
    height = STYLE.low_bar_height if is_low else STYLE.bar_height
    elements = [
        f'<text class="lab note" x="100%" y="16" text-anchor="end">{title}</text>'
    ]
    descriptions, top = [], STYLE.first_bar_top
    for name, terms in budgets:
        segments, narrow_labels = _draw_bar(terms, 0, 1 - left, is_low=is_low)
        shares_text = "; ".join(f"{term.name} {term.value}" for term in terms)
        safe_name = escape(escape_invisible(name))
        name_note = escape(name_notes.get(name, ""))
        descriptions.append(
            f"{safe_name}{f', {name_note}' * bool(name_note)}: {shares_text}"
        )
        note = ", ".join(narrow_labels)
        name_y = height / 2 + (-1 if name_note else 5)
        note_y = height + STYLE.note_height + 1
        # Frames of their own cut names that are too long, and give each bar its scale.
        elements.append(
            f'<svg class="slot" x="0" y="{top}" '
            f'width="{100 * left - 1:.1f}%" height="{height + 2}">'
            f'<title>{safe_name}</title><text class="barname" x="0" y="{name_y:g}">'
            f'{safe_name}</text><text class="ax namenote" x="0" y="{name_y + 13:g}">'
            f"{name_note}</text></svg>"
            f'<svg class="slot" x="{100 * left:.1f}%" y="{top}" '
            f'width="{100 - 100 * left:.1f}%" height="{note_y + 5}">{"".join(segments)}'
            f'<text class="lab wide" x="100%" y="{note_y}" text-anchor="end">{note}</text>'
            "</svg>"
        )
        top += height + STYLE.bar_gap + (STYLE.note_height if note else 0)
    return (
        f'<svg width="100%" height="{top}" class="bars" role="img" '
        f'aria-label="Budgets. {". ".join(descriptions)}">{"".join(elements)}</svg>'
    )


def budget_legend(document: Block) -> str:
    """Return a legend of the budget, for pages on which its bar is too narrow for labels.

    Of several budgets it has the bars too, each below its name, for pages that have no room for
    names on their left.
    """
    entries = _legend_entries(budget_terms(document))
    notes = baseline_notes(document)
    if budgets := table_budgets(document):
        entries.append(f'<li class="slim m">{TABLE_BUDGET_SUBJECT}</li>')
    for label, terms in budgets:
        safe_label = escape(escape_invisible(label))
        note = f' <span class="m">{escape(notes[label])}</span>' if label in notes else ""
        entries += [
            f'<li class="of">{safe_label}{note}</li>',
            _legend_bar(safe_label, terms),
        ]
        entries += _legend_entries(terms)
    runs = compared_budgets(document)
    for label, terms in runs:
        safe_label = escape(escape_invisible(label))
        entries += [
            f'<li class="of slim">{safe_label}</li>',
            _legend_bar(safe_label, terms),
        ]
    for _, terms in runs[:1]:
        entries += [
            f'<li><i class="sw {term.colour_class}"></i>{term.name}</li>'
            for term in terms
        ]
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _legend_bar(safe_label: str, terms: Sequence[BudgetTerm]) -> str:
    """Return the bar of one of several budgets for the legend, which says the same in words."""
    segments, _ = _draw_bar(terms, 0, is_low=True)
    return (
        f'<li class="slim"><svg class="slot" width="100%" height="{STYLE.low_bar_height}" '
        f'role="img" aria-label="Budget of {safe_label}">{"".join(segments)}</svg></li>'
    )


def _legend_entries(terms: Sequence[BudgetTerm]) -> list[str]:
    return [
        f'<li><i class="sw {term.colour_class}"></i>{term.name} <b>{term.value}</b></li>'
        for term in terms
    ]


def _bar_label(x: str, y: int, label: str, css_class: str) -> str:
    return (
        f'<text class="{css_class}" x="{x}" y="{y}" text-anchor="middle">{label}</text>'
    )


def _draw_similarity(
    document: Block,
    cosines: NDArray[Any],
    norms: NDArray[Any] | None,
    grid_shape: tuple[int, int] | None,
) -> str:
    """Draw the map of cosines with seams and outlier rows on it, and the norms below."""
    n, start = document["table"]["positions"], document["table"].get("rows", [0])[0]
    seams = document.get("seams", {})
    outlier_rows = [outlier["row"] - start for outlier in seams.get("special") or ()]
    seam_rows = [right - start for _, right in seams.get("between") or ()]
    left_edge, top, side = STYLE.map_left, STYLE.map_top, STYLE.map_side
    elements: list[str] = []
    data_attributes = ""
    if grid_shape:
        title, axis_label = "Cosine similarity: a tile per patch", "patch, row by row"
        first_tick, tick_shift = 0, 0.5
        n_rows, n_columns = grid_shape
        image, readable_cosines = _lay_out_mosaic(cosines, *grid_shape), cosines
        if n <= STYLE.map_cells:
            data_attributes = f' data-h="{n_rows}" data-w="{n_columns}"'
    else:
        title, axis_label = "Cosine similarity of positions", "position"
        first_tick, tick_shift = start, 0.0
        n_rows = n_columns = n
        image, _ = average_blocks(to_float64(cosines), STYLE.map_cells)
        readable_cosines = image
        data_attributes = f' data-n="{n}" data-first="{start}"'
        elements.append(rect_element("null", left_edge, top, side, side))
    elements.append(text_element(0, 13, title, "h"))
    elements += [cosine_map(image, left_edge, top, side), cosine_bar(338, 64, 210)]
    tick_label_y = top + side + 13 if grid_shape else 408
    elements += _draw_ticks((n_rows, n_columns), first_tick, tick_shift, tick_label_y)
    elements += _mark_rows(n, seam_rows, () if grid_shape else outlier_rows)
    if norms is not None and norms.shape == (n,):
        elements += _draw_norms(to_float64(norms), outlier_rows, seam_rows)
    axis_label_y = 408 if grid_shape else 421
    elements.append(
        text_element(left_edge + side / 2, axis_label_y, axis_label, "ax", "middle")
    )
    elements.append('<text class="read" x="366" y="13" text-anchor="end"></text>')
    if data_attributes:
        data_attributes += _encode_cosines(readable_cosines)
    label = f"{title}, and the norm of every row"
    return svg_element(380, 426, label, elements, data_attributes)


def _draw_ticks(
    shape: tuple[int, int], first_tick: int, shift: float, column_label_y: float
) -> list[str]:
    """Write the numbers of the map's rows on its left, and those of its columns below."""
    left_edge, top, side = STYLE.map_left, STYLE.map_top, STYLE.map_side
    n_rows, n_columns = shape
    elements = []
    for tick in position_ticks(n_columns, first_tick):
        x = left_edge + side * (tick - first_tick + shift) / n_columns
        elements.append(text_element(x, column_label_y, str(tick), "ax", "middle"))
    for tick in position_ticks(n_rows, first_tick):
        y = top + side * (tick - first_tick + shift) / n_rows
        elements.append(text_element(left_edge - 5, y + 4, str(tick), "ax", "end"))
    return elements


def _mark_rows(
    n: int, seam_rows: Sequence[int], outlier_rows: Sequence[int]
) -> list[str]:
    """Mark seams by lines across the map, and outlier rows by triangles at its edges."""
    left_edge, top, side = STYLE.map_left, STYLE.map_top, STYLE.map_side
    elements = []
    for row in seam_rows:
        distance = side * row / n
        cross = f"M{left_edge + distance:.1f},{top}v{side}M{left_edge},{top + distance:.1f}h{side}"
        elements += [path_element("halo", cross), path_element("seamline", cross)]
    for row in outlier_rows[: STYLE.max_marked_rows]:
        distance = side * (row + 0.5) / n
        elements.append(
            path_element("mark", f"M{left_edge + distance - 4:.1f},{top - 7}h8l-4,6z")
        )
        elements.append(
            path_element(
                "mark", f"M{left_edge + side + 7},{top + distance - 4:.1f}v8l-6,-4z"
            )
        )
    return elements


def _encode_cosines(cosines: NDArray[Any]) -> str:
    """Encode cosines in hundredths as attributes, from which the page's script reads them.

    The matrix is symmetric, so that its lower half suffices, row by row with the diagonal.
    """
    hundredths = np.rint(np.nan_to_num(np.clip(cosines, -1, 1), nan=-1.28) * 100).astype(
        np.int8
    )
    encoded = base64.b64encode(
        hundredths[np.tril_indices(len(hundredths))].tobytes()
    ).decode()
    return f' data-m="{len(hundredths)}" data-v="{encoded}"'


def _lay_out_mosaic(cosines: NDArray[Any], height: int, width: int) -> Floats:
    """Lay out a tile per patch, its cosines with all patches, with NaN between tiles."""
    stride = max(1, -(-(max(height, width) ** 2) // STYLE.mosaic_cells))
    tiles = np.asarray(cosines, dtype=np.float64).reshape(height, width, height, width)
    tiles = tiles[::stride, ::stride]
    rows, columns = tiles.shape[:2]
    gapped_tiles = np.full((rows, height + 1, columns, width + 1), np.nan)
    gapped_tiles[:, :height, :, :width] = tiles.transpose(0, 2, 1, 3)
    return gapped_tiles.reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]


#: Small norms that are labelled: more would overlap.
MAX_LABELLED_NORMS = 1


def _draw_norms(
    norms: Floats, outlier_rows: list[int], seam_rows: list[int]
) -> list[str]:
    """Draw the norms of the rows; outlier rows do not set the scale."""
    n = len(norms)
    top, height = 352, 40
    left_edge, side = STYLE.map_left, STYLE.map_side
    ordinary = np.delete(norms, [row for row in outlier_rows if 0 <= row < n])
    ordinary = (
        ordinary[np.isfinite(ordinary)] if np.isfinite(ordinary).any() else np.zeros(1)
    )
    lowest, highest = float(ordinary.min()), float(ordinary.max())
    if highest - lowest < 0.02 * highest:
        lowest, highest = 0.98 * lowest, 1.02 * highest
    x = left_edge + side * (np.arange(n) + 0.5) / n
    curve_x, curve_norms = x, norms
    if n > 2 * STYLE.max_curve_points:
        edges = np.arange(0, n, -(-n // STYLE.max_curve_points))
        extremes = [np.minimum.reduceat(norms, edges), np.maximum.reduceat(norms, edges)]
        curve_x, curve_norms = np.repeat(x[edges], 2), np.stack(extremes, 1).ravel()
    relative_norms = (curve_norms - lowest) / (highest - lowest or 1.0)
    curve_y = top + height * (1 - np.clip(relative_norms, -0.1, 1.1))
    seam_lines = [
        f"M{left_edge + side * row / n:.1f},{top - 4}v{height + 8}" for row in seam_rows
    ]
    marked_rows = outlier_rows[: STYLE.max_marked_rows]
    # A triangle points up at a large norm, above the strip, and down at a small one, below it.
    is_small = {row: norms[row] < lowest for row in marked_rows if 0 <= row < n}
    outlier_marks = [
        f"M{left_edge + side * (row + 0.5) / n - 4:.1f},"
        + (f"{top + height + 2}h8l-4,6z" if is_small.get(row) else f"{top + 4}h8l-4,-6z")
        for row in marked_rows
    ]
    small_labels = []
    for row in [row for row, small in is_small.items() if small][:MAX_LABELLED_NORMS]:
        is_left = row < n / 2
        label_x = left_edge + side * (row + 0.5) / n + (7 if is_left else -7)
        anchor, label = "start" if is_left else "end", _format_briefly(float(norms[row]))
        small_labels.append(text_element(label_x, top + height, label, "ax", anchor))
    return [
        text_element(left_edge, 342, "row norm", "h2"),
        rect_element("plotbg", left_edge, top - 4, side, height + 8),
        path_element("line", line_commands(curve_x, curve_y)),
        *(
            text_element(left_edge - 5, top + y, label, "ax", "end")
            for label, y in _norm_limits(lowest, highest, height)
        ),
        *(path_element("seamline", commands) for commands in seam_lines),
        *(path_element("mark", commands) for commands in outlier_marks),
        *small_labels,
    ]


def _norm_limits(lowest: float, highest: float, height: float) -> list[tuple[str, float]]:
    """Return the labels of the limits of an axis, one if both round to it, and their heights."""
    low_label, high_label = _format_briefly(lowest), _format_briefly(highest)
    if low_label == high_label:
        return [(low_label, height / 2 + 5)]
    return [(high_label, 6), (low_label, height + 4)]


def _format_briefly(value: float) -> str:
    return f"{value:#.2g}".removesuffix(".")


def _draw_shape(document: Block, rows: Floats, arrays: Arrays) -> str:
    """Draw the circles of the rotations; where there are none, the first two components."""
    first_row = _answered_rows(document)[0] + document["table"].get("rows", [0])[0]
    paths = arrays.get("rotation_paths")
    periods = (document.get("clock") or {}).get("periods") or ()
    if paths is not None and paths.ndim == 3 and len(paths) == len(periods) > 0:
        title = "Shape: the table seen along each rotation"
        count = paths.shape[1]
        curves = _draw_circles(np.asarray(paths, dtype=np.float64), periods)
    else:
        title = "Shape: first two principal components"
        count = len(rows)
        curves = _draw_component_plane(rows, first_row)
    elements = [
        text_element(0, 13, title, "h"),
        *curves,
        text_element(141, 421, f"position {first_row}", "ax", "end"),
    ]
    elements += [
        rect_element(f"f{colour}", 146 + 7.5 * colour, 414, 7.8, 7)
        for colour in range(STYLE.n_colours)
    ]
    elements.append(text_element(271, 421, str(first_row + count - 1)))
    return svg_element(372, 426, title, elements)


def _draw_circles(paths: Floats, periods: Sequence[float]) -> list[str]:
    """Draw the rows in the plane of each rotation as coloured dots around its period."""
    count = min(len(paths), STYLE.max_circles)
    n_columns = 1 if count == 1 else 2 if count <= 4 else 3
    n_rows = -(-count // n_columns)
    side = min(372 / n_columns, 380 / n_rows)
    elements = []
    for k in range(count):
        x = 186 + (k % n_columns - (n_columns - 1) / 2) * 372 / n_columns
        y = 24 + side * (k // n_columns + 0.5)
        path = paths[k][:: -(-paths.shape[1] // STYLE.max_path_points)]
        radius = float(np.percentile(np.hypot(*path.T), 98)) or 1.0
        points = np.clip(path / radius, -1.15, 1.15) * side * 0.42 + (x, y)
        elements += [
            path_element(f"p c{colour}", dot_commands(coloured_points))
            for colour, coloured_points in _split_by_colour(points)
        ]
        elements.append(text_element(x, y, format_period(periods[k]), "big", "middle"))
        elements.append(text_element(x, y + 16, "positions", "ax", "middle"))
    return elements


def _split_by_colour(points: Floats) -> list[tuple[int, Floats]]:
    """Split points into runs of one colour; each run ends with the first point of the next."""
    edges = np.linspace(0, len(points), STYLE.n_colours + 1).astype(int)
    return [
        (colour, points[start : stop + 1])
        for colour, (start, stop) in enumerate(pairwise(edges))
        if start < stop
    ]


def _draw_component_plane(rows: Floats, first_row: int) -> list[str]:
    """Draw the path of the rows through their first two principal components."""
    leading = rows[:, : STYLE.max_components]
    variances, vectors = np.linalg.eigh(leading.T @ leading)
    path = leading @ vectors[:, ::-1][:, :2]
    shares = variances[::-1][:2] / (float(np.square(rows).sum()) or 1.0)
    if path.shape[1] < 2:
        return []
    left_edge, top, width, height = 24.0, 28.0, 330.0, 366.0
    centre = (left_edge + width / 2, top + height / 2)
    points, origin = _fit_into_box(path, centre, 0.47 * width, 0.47 * height)
    axes = f"M{left_edge},{origin[1]:.1f}h{width}M{origin[0]:.1f},{top}v{height}"
    elements = [path_element("grid", axes)]
    thinned_points = points[:: max(1, len(points) // STYLE.max_path_points)]
    elements += [
        path_element(f"l c{colour}", line_commands(*coloured_points.T))
        for colour, coloured_points in _split_by_colour(thinned_points)
    ]
    for position in position_ticks(len(points), first_row):
        x, y = points[position - first_row]
        elements.append(f'<circle class="pt" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        label_shift, anchor = (8, "start") if x >= centre[0] else (-8, "end")
        elements.append(
            text_element(x + label_shift, y + 14, str(position), "tag", anchor)
        )
    x_label = f"PC 1 ({format_percent(shares[0])} of variance)"
    elements.append(text_element(354, 404, x_label, "ax", "end"))
    elements.append(
        '<text class="ax" transform="translate(12 390) rotate(-90)">'
        f"PC 2 ({format_percent(shares[1])})</text>"
    )
    return elements


def _fit_into_box(
    points: Floats, centre: tuple[float, float], half_width: float, half_height: float
) -> tuple[Floats, Floats]:
    """Scale points into a box, both axes on one scale; return the place of the origin too."""
    lowest, highest = points.min(axis=0), points.max(axis=0)
    middle, half_span = (highest + lowest) / 2, np.ptp(points, axis=0) / 2
    scale = min(half_width / (half_span[0] or 1.0), half_height / (half_span[1] or 1.0))
    scales = np.array([scale, -scale])
    return (points - middle) * scales + centre, -middle * scales + centre


def _draw_clock(document: Block, arrays: Arrays) -> str:
    """Draw how far the angle of each rotation is ahead of an even pace, if they share a clock."""
    clock, leads = document.get("clock") or {}, arrays.get("clock_lead")
    if not clock.get("shared") or leads is None or leads.ndim != 2:
        return ""
    periods = np.array(clock["periods"])
    if len(leads) != len(periods) or leads.shape[1] < MIN_CURVE_POINTS:
        return ""
    is_measured = np.isfinite(leads).all(axis=1)
    leads, periods = leads[is_measured].astype(np.float64), periods[is_measured]
    reach = float(np.abs(leads).max(initial=0.0)) or 1.0
    n = leads.shape[1]
    left_edge, top, width, height = 44, 26, 352, 150
    first = _answered_rows(document)[0] + document["table"].get("rows", [0])[0]

    def x(position: Floats) -> Floats:
        return np.asarray(left_edge + width * (position - first) / (n - 1))

    def y(lead: Floats) -> Floats:
        return np.asarray(top + height / 2 * (1 - lead / reach))

    elements = [
        text_element(
            0, 13, "Angle of each rotation: positions ahead of an even pace", "h"
        ),
        rect_element("plotbg", left_edge, top, width, height),
        path_element("grid", f"M{left_edge},{top + height / 2}h{width}"),
    ]
    for value in (reach, 0.0, -reach):
        label = use_minus_sign(f"{value:.1f}") if value else "0"
        label_y = float(y(np.array(value))) + 4
        elements.append(text_element(left_edge - 6, label_y, label, "ax", "end"))
    for tick in position_ticks(n, first):
        tick_x = float(x(np.array(float(tick))))
        elements.append(
            text_element(tick_x, top + height + 15, str(tick), "ax", "middle")
        )
    positions = x(first + np.arange(n, dtype=np.float64))
    legend_y = top + height - 11
    elements.append(text_element(left_edge + 6, legend_y + 4, "period"))
    for k, (lead, period) in enumerate(zip(leads, periods.tolist(), strict=True)):
        css_class = f"line c{k * STYLE.n_colours // len(leads)}"
        elements.append(path_element(css_class, line_commands(positions, y(lead))))
        legend_x = left_edge + 54 + 56 * k
        elements.append(path_element(css_class, f"M{legend_x},{legend_y}h18"))
        label = format_period(period)
        elements.append(text_element(legend_x + 22, legend_y + 4, label))
    elements.append(text_element(left_edge + width / 2, 208, "position", "ax", "middle"))
    label = "How far the angle of each rotation is ahead of an even pace, in positions"
    return svg_element(412, 214, label, elements)


#: Labelled periods of a spectrum, in positions.
PERIOD_TICKS = (1000, 300, 100, 30, 10, 3)


def _draw_spectrum(document: Block, budget_spectrum: NDArray[Any] | None) -> str:
    """Draw the share of variance by period over that of the best fit without waves."""
    if budget_spectrum is None or budget_spectrum.ndim != 2:
        return ""
    if budget_spectrum.shape[0] != 3 or budget_spectrum.shape[1] < 7:
        return ""
    share, background, columns = np.asarray(budget_spectrum, dtype=np.float64)
    n = len(share) + 1
    # Short periods are dense on a logarithmic axis, so that means of their bins are drawn.
    edges = np.unique(np.rint(np.geomspace(1, n, 160)).astype(int)) - 1
    edges = edges[edges < n - 1]
    bin_counts = np.diff(np.append(edges, n - 1))
    period = 2 * n / (np.add.reduceat(np.arange(1.0, n), edges) / bin_counts)
    power = np.add.reduceat(share, edges) / bin_counts
    shortest_period, longest_period = period.min(), period.max()
    ticks = [tick for tick in PERIOD_TICKS if shortest_period <= tick <= longest_period]
    x, y, elements = _draw_spectrum_axes(period, power, "positions", ticks)
    from scipy.special import chdtri

    background_power = np.add.reduceat(background, edges) / bin_counts
    degrees = np.add.reduceat(columns, edges)
    high, low = (background_power * chdtri(degrees, q) / degrees for q in (0.025, 0.975))
    band_x = x(np.concatenate([period, period[::-1]]))
    band_y = y(np.concatenate([high, low[::-1]]))
    left_edge, top, side = STYLE.plot_left, STYLE.plot_top, STYLE.plot_side
    two_turns_x = float(x(np.array([n / 2]))[0])
    terms = (document.get("budget") or {}).get("parts") or ()
    rotation_periods = [term["period"] for term in terms if term["part"] == "rotation"]
    # Nothing was fitted to a table that follows a formula: its rotations have no period.
    has_fit = None not in rotation_periods
    null_elements = [
        path_element("null", line_commands(band_x, band_y) + "z"),
        '<rect class="null" x="216" y="35" width="16" height="10"/>',
        text_element(237, 44, "without rotations, 95 %"),
    ]
    elements = [
        rect_element("plotbg", left_edge, top, side, side),
        rect_element("far", left_edge, top, two_turns_x - left_edge, side),
        *(null_elements if has_fit else ()),
        *elements,
        path_element("line strong", line_commands(x(period), y(power))),
    ]
    for rotation_period in filter(None, rotation_periods):
        is_near = (period > rotation_period / 1.15) & (period < rotation_period * 1.15)
        if is_near.any():
            peak = x(np.array([rotation_period])), y(np.array([power[is_near].max()]))
            elements += _draw_peak(*peak, format_period(rotation_period))
    elements.append(text_element(left_edge + 4, top + side - 7, "< 2 turns"))
    title = "Share of variance by period, over the best fit without rotations"
    title = title if has_fit else title.partition(",")[0]
    return svg_element(400, 426, title, elements)


def _draw_peak(x: Floats, y: Floats, label: str) -> list[str]:
    """Draw a mark above a peak at ``[1]`` coordinates, with its label."""
    peak_x, peak_y = float(x[0]), float(y[0])
    return [
        path_element("peak", f"M{peak_x:.1f},{peak_y - 3:.1f}v-9"),
        text_element(peak_x, peak_y - 17, label, "big", "middle"),
    ]


def _draw_spectrum_axes(
    period: Floats, power: Floats, unit: str, ticks: Sequence[float]
) -> tuple[Scale, Scale, list[str]]:
    """Return the scales of periods and of powers, and the elements of the grid."""
    left_edge, top, side = STYLE.plot_left, STYLE.plot_top, STYLE.plot_side
    log_longest, log_shortest = float(np.log(period.max())), float(np.log(period.min()))
    positive = power[power > 0]
    last_decade = float(np.ceil(np.log10(positive.max())))
    first_decade = max(
        float(np.floor(np.log10(positive.min()))), last_decade - STYLE.max_decades
    )
    n_decades = (last_decade - first_decade) or 1.0

    def x(periods: Floats) -> Floats:
        log_range = (log_longest - log_shortest) or 1.0
        scaled: Floats = left_edge + side * (log_longest - np.log(periods)) / log_range
        return scaled

    def y(powers: Floats) -> Floats:
        logs = np.log10(np.clip(powers, 10.0**first_decade, 10.0**last_decade))
        return top + side * (last_decade - logs) / n_decades

    elements = [text_element(0, 13, "Spectrum: share of variance by period", "h")]
    for tick in ticks:
        tick_x = float(x(np.array([float(tick)]))[0])
        tick_label = f"{tick:.2g}" if tick < 10 else f"{tick:.0f}"
        elements.append(path_element("grid", f"M{tick_x:.1f},{top}v{side}"))
        elements.append(text_element(tick_x, 393, tick_label, "ax", "middle"))
    for decade in range(int(first_decade), int(last_decade) + 1):
        decade_y = top + side * (last_decade - decade) / n_decades
        exponent = f'<tspan dy="-4" font-size="8.5">{use_minus_sign(str(decade))}</tspan>'
        elements.append(path_element("grid", f"M{left_edge},{decade_y:.1f}h{side}"))
        elements.append(
            f'<text class="ax" x="35" y="{decade_y + 4:.1f}" text-anchor="end">10{exponent}</text>'
        )
    elements.append(text_element(216, 410, f"period ({unit})", "ax", "middle"))
    return x, y, elements


def _axis_codes(scores: NDArray[Any], height: int, width: int) -> dict[str, Floats]:
    """Return the row code and the column code of a grid."""
    patches = np.asarray(scores, dtype=np.float64).reshape(height, width, -1)
    patches = patches - patches.mean(axis=(0, 1))
    return {"row code": patches.mean(axis=1), "column code": patches.mean(axis=0)}


def _draw_code_shapes(codes: dict[str, Floats]) -> str:
    """Draw the path of each axis code through its first two components."""
    elements = [text_element(0, 13, "Shape: the two codes, first two components", "h")]
    for k, (name, code) in enumerate(codes.items()):
        css_class, top = ("rowc", "colc")[k], 30 + 190 * k
        _, singular_values, basis = np.linalg.svd(code, full_matrices=False)
        shares = singular_values**2 / (float(np.square(singular_values).sum()) or 1.0)
        if len(shares) < 2 or not shares[1] > 0:
            continue
        points, _ = _fit_into_box(code @ basis[:2].T, (200, top + 88), 90, 73.8)
        elements.append(text_element(0, top + 10, name, "h2"))
        for component, share in enumerate(shares[:2]):
            share_label = f"PC {component + 1} {format_percent(share)}"
            elements.append(text_element(0, top + 27 + 15 * component, share_label))
        elements.append(path_element(f"codeline {css_class}", line_commands(*points.T)))
        elements += _number_points(points, css_class)
    elements.append(
        text_element(180, 421, "numbers: row or column of the grid", "ax", "middle")
    )
    label = "The row code and the column code along their first two components"
    return svg_element(372, 426, label, elements)


def _number_points(points: Floats, css_class: str) -> list[str]:
    """Draw points as dots, and number those that are far enough from the last number."""
    elements = []
    centre, last_numbered = points.mean(axis=0), np.full(2, -99.0)
    for row, point in enumerate(points):
        x, y = point
        elements.append(
            f'<circle class="code {css_class}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        )
        outward = (point - centre) / (float(np.hypot(*(point - centre))) or 1.0)
        if np.hypot(*(point - last_numbered)) > STYLE.min_number_spacing:
            last_numbered = point
            label_x, label_y = x + 13 * outward[0], y + 13 * outward[1] + 4
            elements.append(text_element(label_x, label_y, str(row), "ax", "middle"))
    return elements


def _draw_code_spectra(codes: dict[str, Floats]) -> str:
    """Draw the share of variance of each axis code by period."""
    from scipy.fft import dct

    # A code repeats along the other axis.
    repeats = [len(code) for code in codes.values()][::-1]
    total = sum(
        float(np.square(code).sum()) * count
        for code, count in zip(codes.values(), repeats, strict=True)
    )
    if not total or min(len(code) for code in codes.values()) < 4:
        return ""
    spectra = {}
    for (name, code), count in zip(codes.items(), repeats, strict=True):
        n = len(code)
        power = np.square(dct(code, axis=0, norm="ortho")).sum(axis=1)[1:] * count / total
        spectra[name] = (2 * n / np.arange(1.0, n), power)
    all_periods = np.concatenate([periods for periods, _ in spectra.values()])
    all_powers = np.concatenate([power for _, power in spectra.values()])
    shortest_period, longest_period = all_periods.min(), all_periods.max()
    ticks = [
        longest_period / k
        for k in (1, 2, 3, 4, 6, 9, 13)
        if longest_period / k >= shortest_period
    ]
    x, y, elements = _draw_spectrum_axes(all_periods, all_powers, "patches", ticks)
    side = STYLE.plot_side
    elements.insert(
        0, rect_element("plotbg", STYLE.plot_left, STYLE.plot_top, side, side)
    )
    for k, (name, (periods, power)) in enumerate(spectra.items()):
        css_class = ("rowc", "colc")[k]
        points = (x(periods), y(power))
        elements.append(path_element(f"codeline {css_class}", line_commands(*points)))
        elements += [
            f'<circle class="code {css_class}" cx="{point_x:.1f}" cy="{point_y:.1f}" r="3.5"/>'
            for point_x, point_y in zip(*points, strict=True)
        ]
        legend_y = 42 + 17 * k
        elements.append(
            f'<circle class="code {css_class}" cx="268" cy="{legend_y}" r="3.5"/>'
        )
        elements.append(
            text_element(278, legend_y + 4, name, ("rowtx", "coltx")[k] + " h2")
        )
    return svg_element(400, 426, "Share of variance of both codes by period", elements)


def draw_answer_strip(line: AnswerLine) -> str:
    """Draw the value of an answer and the range of its null on one axis; empty without a null."""
    if line.tested is None or line.interval is None:
        return ""
    values = np.array([line.tested, *line.interval])
    relative_values = (values - values.min()) / (float(np.ptp(values)) or 1.0)
    tested_x, low_x, high_x = 280 + 240 * (2 * relative_values - 1)
    elements = [
        path_element("axis", "M20,44H540"),
        rect_element("null", low_x, 14, max(high_x - low_x, 1), 30),
        path_element("val", f"M{tested_x:.1f},8v36"),
    ]
    label = f"{line.question} {line.value}, by chance {line.chance}"
    return svg_element(560, 50, label, elements).replace(
        "<svg ", '<svg class="strip" ', 1
    )


def make_standalone(svg: str) -> str:
    """Turn a drawing of a page into a file of its own, with its colours."""
    svg = svg.replace('<svg width="100%"', '<svg width="1216"', 1)
    head, _, content = svg.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    style = f"{read_template('colors.css')}{read_template('drawings.css')}"
    return f"{head}><style>{style}</style>{content}"
