"""Stretches of rows that are all the same, such as those that a model never used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import ModuleType

import numpy as np

from posprobe.analyses.facts import Cause
from posprobe.analyses.outliers import MIN_SIDE
from posprobe.analyses.special_rows import Found, Series, zero_rows
from posprobe.arrays import Array, to_numpy


def equal_rows(values: Array, xp: ModuleType) -> list[tuple[int, int]] | None:
    """Find the runs of equal rows: exactly equal, as stored.

    Parameters
    ----------
    values
        ``[n, d]``; NumPy or torch.
    xp
        Its namespace.

    Returns
    -------
    list
        First row and the stop of each run of `MIN_SIDE` or more. None where the table consists of
        `MIN_SIDE` or more blocks of equal rows: there, they are what is usual.
    """
    changes = np.flatnonzero(~to_numpy(xp.all(values[1:] == values[:-1], axis=1))) + 1
    runs = list(pairwise([0, *changes.tolist(), len(values)]))
    # The last of a number of blocks may be cut off.
    if len(runs) >= MIN_SIDE and all(stop - first > 1 for first, stop in runs[:-1]):
        return None
    return [(first, stop) for first, stop in runs if stop - first >= MIN_SIDE]


def find_beside(
    series: Series,
    stretches: Sequence[tuple[int, int]],
    start: int,
    find: Callable[[Series], Found],
) -> Found:
    """Look for seams and special rows among the other rows, and put seams at the stretches' ends.

    Fewer than `MIN_SIDE` rows beside a stretch are special. Two stretches with so few between them
    have a seam there if they differ.

    Parameters
    ----------
    series
        Of the table.
    stretches
        First row and the stop of each stretch of equal rows; one or more.
    start
        Position of the table's first row.
    find
        What looks for either in a part without stretches.
    """
    n = len(series.norms)
    found = Found()
    ends = [0, *(row for stretch in stretches for row in stretch), n]
    parts = list(zip(ends[::2], ends[1::2], strict=True))
    causes = [
        Cause(
            "equal_rows" if series.norms[first] else "rows_of_zeros",
            (start + first, start + stop - 1),
        )
        for first, stop in stretches
    ]
    for k, (first, stop) in enumerate(parts):
        if stop - first >= MIN_SIDE:
            if k > 0:
                found.seam(first - 1, causes[k - 1])
            if k < len(stretches):
                found.seam(stop - 1, causes[k])
            continue
        for row in range(first, stop):
            found.special[row] = [causes[max(k - 1, 0)]]
        inside = 0 < k < len(stretches)
        if inside and (series.rows[first - 1] != series.rows[stop]).any():
            found.seam((first + stop - 1) // 2, causes[k])
    for first, stop in parts:
        if stop - first >= 2 * MIN_SIDE:
            found.add(find(_part(series, first, stop)), first)
    for row, (zero,) in zero_rows(series).special.items():
        if zero not in found.special.get(row, ()):
            found.row(row, zero.kind)
    return found


def _part(series: Series, first: int, stop: int) -> Series:
    return Series(
        norms=series.norms[first:stop],
        likeness=series.likeness[first:stop],
        steps=series.steps[first : stop - 1],
        chords=series.chords[first : stop - 1],
        units=series.units[first:stop],
        rows=series.rows[first:stop],
    )
