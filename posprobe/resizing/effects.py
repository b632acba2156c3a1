"""What a way of resizing does to the structure of a table, way by way.

Of a table at another size one can ask two things that no way grants together: that a row still
stands at its relative place, and that it still stands at its position. Both are measured, with what
follows from either: periods, steps between neighbours, seams, and rows that cannot be told apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.axis_codes import axis_codes
from posprobe.analyses.closeness import cka
from posprobe.analyses.norms import norms
from posprobe.analyses.seams import seams
from posprobe.analyses.similarity import MAX_ROWS, similarity
from posprobe.analyses.winding import Winding, winding
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout
from posprobe.resizing.facts import Against, Effect, Turns
from posprobe.resizing.ways import Floats
from posprobe.tables import PositionTable

#: Pairs of components whose periods are listed.
PERIODS = 3
#: Cells along a side of a drawn matrix of cosines.
CELLS = 160
#: Rows by which a seam may lie elsewhere and be the same one.
NEAR = 4


def effect(
    made: PositionTable, old: PositionTable, *, stretched: bool, against: PositionTable | None
) -> Effect:
    """Measure a table beside the one that it was made of.

    Parameters
    ----------
    made, old
        ``[m, d]`` and ``[n, d]``; the same table twice gives the numbers before.
    stretched
        Whether the way spreads old rows over the new range, so that seams move with them.
    against
        A table of the size of ``made``, or None.

    Returns
    -------
    Effect
        Seams are pairs of positions, and special rows positions. Undefined numbers are None, with a
        reason.
    """
    values, before = (table.values.astype(np.float64) for table in (made, old))
    undefined: dict[str, str] = {}
    lengths = norms(made)
    neighbours = invariance = None
    if len(made) <= MAX_ROWS:
        likeness = similarity(made)
        neighbours = likeness.centered.neighbour_mean
        invariance = likeness.raw.translation_invariance
        undefined |= {
            "neighbour_cosine": likeness.centered.undefined.get("neighbour_mean", ""),
            "translation_invariance": likeness.raw.undefined.get("translation_invariance", ""),
        }
    else:
        why = f"more than {MAX_ROWS} positions"
        undefined |= {"neighbour_cosine": why, "translation_invariance": why}
    mean = before.mean(axis=0)
    place, position = _nearest(old.layout, made.layout), _shared(old.layout, made.layout)
    found = seams(made)
    between = None if found.undefined else _created(old, found.between, made, stretched=stretched)
    undefined |= {"seams": found.undefined, "special": found.no_special}
    zero = "no row differs from the mean row"
    undefined |= dict.fromkeys(("same_place", "same_position"), zero)
    special = tuple(each.row + made.start for each in found.special)
    measured = Effect(
        norm_mean=float(lengths.norms.mean()),
        norm_min=float(lengths.norms.min()),
        neighbour_cosine=neighbours,
        same_place=_cosine(values - mean, (before - mean)[place]),
        same_position=_cosine(values[position[1]] - mean, before[position[0]] - mean),
        translation_invariance=invariance,
        copies=len(made) - len({row.tobytes() for row in made.values}),
        turns={name: _turns(pairs) for name, pairs in _windings(made).items()},
        seams=between,
        special=None if found.no_special else special,
        against=None if against is None else _distances(made, against),
        undefined=undefined,
    )
    reasons = {
        name: why or "there is nothing to measure"
        for name, why in undefined.items()
        if getattr(measured, name) is None
    }
    return replace(measured, undefined=reasons)


def pooled_cosines(table: PositionTable) -> Floats:
    """Return the centred cosines of all pairs of rows, ``[c, c]``, means over blocks of them."""
    rows = table.values.astype(np.float64)
    rows -= rows.mean(axis=0)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    starts = np.unique(np.linspace(0, len(rows), CELLS, endpoint=False).astype(np.intp))
    sizes = np.diff(np.append(starts, len(rows)))
    # The mean over pairs of two blocks is the product of the means of each.
    means = np.add.reduceat(units, starts, axis=0) / sizes[:, None]
    return np.asarray(means @ means.T)


def check_against(table: PositionTable, against: PositionTable, layout: Layout) -> None:
    """Refuse a table that a new one cannot be compared with.

    Raises
    ------
    UsageError
        If its layout is not that of the new one, or its width not that of the old one.
    """
    if against.dim != table.dim:
        raise UsageError(
            f"{against.name}: it is {against.dim} wide and {table.name} {table.dim}. Name a table "
            "of the same width."
        )
    if against.layout != layout:
        raise UsageError(
            f"{against.name}: --against names a table of the new size, a {layout}, and this is a "
            f"{against.layout}."
        )


def _windings(table: PositionTable) -> dict[str, Winding]:
    if not isinstance(table.layout, Grid):
        return {"positions": winding(table)}
    return {name: axis.winding for name, axis in axis_codes(table).axes.items()}


def _turns(found: Winding) -> Turns:
    # A period longer than the table is one that nobody has seen.
    pairs = [pair for pair in found.pairs if pair.turns >= 1][:PERIODS]
    return Turns(tuple(pair.period for pair in pairs), pairs[0].turns if pairs else None)


def _sides(layout: Layout) -> tuple[int, int]:
    return (layout.height, layout.width) if isinstance(layout, Grid) else (1, layout.length)


def _nearest(old: Layout, new: Layout) -> NDArray[np.intp]:
    """Return for each new cell the old one at the nearest relative place, ``[m]``."""
    rows, columns = (
        ((2 * np.arange(many) + 1) * few // (2 * many)).astype(np.intp)
        for few, many in zip(_sides(old), _sides(new), strict=True)
    )
    return np.asarray((rows[:, None] * _sides(old)[1] + columns[None, :]).ravel())


def _shared(old: Layout, new: Layout) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the cells that both have, counted in the old and in the new layout."""
    height, width = (min(sides) for sides in zip(_sides(old), _sides(new), strict=True))
    both = (
        (np.arange(height)[:, None] * _sides(layout)[1] + np.arange(width)).ravel()
        for layout in (old, new)
    )
    first, second = both
    return first, second


def _cosine(one: Floats, two: Floats) -> float | None:
    """Return the mean cosine of rows that have a direction; None where none has."""
    product = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    # A row that is the mean row but for rounding has no direction.
    there = product > 1e-12 * max(float(product.max()), np.finfo(float).tiny)
    if not there.any():
        return None
    return float(((one * two).sum(axis=1)[there] / product[there]).mean())


def _created(
    old: PositionTable,
    between: tuple[tuple[int, int], ...],
    made: PositionTable,
    *,
    stretched: bool,
) -> tuple[tuple[int, int], ...]:
    """Return seams of a sequence that the old one has not, as pairs of positions."""
    factor = len(made) / len(old) if stretched else 1.0
    known = np.array([left * factor for left, _ in seams(old).between])
    reach = NEAR * max(factor, 1.0)
    return tuple(
        (left + made.start, right + made.start)
        for left, right in between
        # A table that begins again has its old seams again.
        if not any((np.abs(known - place) <= reach).any() for place in (left, left % len(old)))
    )


def _distances(made: PositionTable, against: PositionTable) -> Against:
    one, two = (table.values.astype(np.float64) for table in (made, against))
    try:
        alike = cka(made, against) if len(made) > 3 else None
    except InvalidTable:
        alike = None
    size = float(np.linalg.norm(two))
    distance = float(np.linalg.norm(one - two)) / size if size else None
    return Against(_cosine(one, two), distance, alike)
