"""Rows that are copies of others: blocks, periods, mirror images, and rows that nearly return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from types import ModuleType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.outliers import MIN_SIDE, BreakRecord, Series, zero_rows
from posprobe.analyses.facts import Cause
from posprobe.analyses.linear import offset_sums
from posprobe.arrays import Array, Floats, to_numpy

#: Mean cosine of rows a period apart that are alike again, and by how much nearer ones are less so:
#: of 200 tables of noise, walks and smooth curves none is called periodic.
MIN_REPEAT_COSINE, MIN_REPEAT_CONTRAST = 0.5, 0.5
#: Share of the greatest mean cosine from which a shorter period is the period: its multiples have
#: the same cosine but for noise.
SHORTER = 0.9
#: Mean cosine that rotations with so much of the variance leave to tell of: a rotation's own share
#: is the cosine of rows a period apart.
UNTOLD = 0.3
#: Rows, from the first, in which a period is looked for; it is at most half of them: longer than
#: any context that tables were tiled from.
PERIOD_ROWS = 4096
#: Least share of rows that are copies of earlier ones of which anything is said: fewer change no
#: answer.
MIN_REPEATED_SHARE = 0.1


@dataclass(frozen=True)
class Copies:
    """Rows that are copies of others.

    Parameters
    ----------
    kind
        Whether they follow each other, return after a period, or in reverse order, or nearly return
        after a period, or none of these.
    rows
        Number of rows of the table.
    count
        Rows that are exact copies of earlier ones.
    times
        Number of times that each row of a block stands in succession.
    period
        Period in positions after which rows return, exactly or nearly.
    cosine, between
        Mean centred cosine of rows a period apart, where they nearly return, and the smallest mean
        of rows that are closer.
    """

    kind: Literal["blocks", "period", "mirror", "near", "any"]
    rows: int
    count: int = 0
    times: int = 0
    period: int = 0
    cosine: float = 0.0
    between: float = 0.0


def copies(values: Floats) -> Copies | None:
    """Find rows of a table that are exact copies of others, if many are.

    Rows of zeros are no copies: a table that is padded has many. Neither are rows of a table of a
    single row, repeated.

    Parameters
    ----------
    values
        ``[n, d]``, finite.

    Returns
    -------
    Copies
        None where fewer than `MIN_REPEATED_SHARE` of its rows are.

    Examples
    --------
    >>> import numpy as np
    >>> found = copies(np.repeat(np.arange(6.0), 4)[:, None] + 1)
    >>> found.kind, found.times
    ('blocks', 4)
    """
    n = len(values)
    # By digest, row by row: sorting whole rows would copy a large table several times.
    first_rows: dict[bytes, int] = {}
    names = np.array(
        [
            first_rows.setdefault(
                blake2b(row + 0.0, digest_size=16).digest(), index
            )  # no minus before 0
            for index, row in enumerate(values)
        ]
    )
    is_nonzero = values.any(axis=1)
    n_different = len(set(names[is_nonzero]))
    count = int(is_nonzero.sum()) - n_different
    if n_different < 2 or count < max(2, MIN_REPEATED_SHARE * n):
        return None
    edges = np.flatnonzero(np.diff(names)) + 1
    lengths = np.diff(np.concatenate([[0], edges, [n]]))
    if lengths[0] > 1 and (lengths[:-1] == lengths[0]).all() and lengths[-1] <= lengths[0]:
        return Copies("blocks", n, count, times=int(lengths[0]))
    period = _period(names)
    if period:
        return Copies("period", n, count, period=period)
    return Copies("mirror" if (names == names[::-1]).all() else "any", n, count)


def _period(names: NDArray[np.intp]) -> int:
    half = len(names) // 2
    exact_periods = (p for p in range(1, half + 1) if (names[p:] == names[:-p]).all())
    return next(exact_periods, 0)


def returns(values: Floats, rotating: float) -> Copies | None:
    """Find whether rows are alike again after a period, more than what rotates in them explains.

    A table that was made by putting copies of a shorter one after each other, and trained on, is
    such a one.

    Parameters
    ----------
    values
        ``[n, d]``, finite.
    rotating
        Share of the variance in what goes round and is told of elsewhere: rows return, then.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> tiled = np.tile(rng.normal(size=(16, 8)), (4, 1)) + 0.1 * rng.normal(size=(64, 8))
    >>> found = returns(tiled, rotating=0.0)
    >>> found.period, round(found.cosine, 2)
    (16, 0.99)
    """
    rows = values[:PERIOD_ROWS] / (np.abs(values).max(initial=0.0) or 1.0)
    n = len(rows)
    rows = rows - rows.mean(axis=0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(norms > 1e-12, norms, 1.0)
    cosine = (offset_sums(rows) / np.arange(n, 0, -1))[: n // 2 + 1]
    nearer = np.minimum.accumulate(cosine)[:-1]
    is_return = (cosine[1:] >= MIN_REPEAT_COSINE) & (cosine[1:] - nearer >= MIN_REPEAT_CONTRAST)
    is_return[1:] &= cosine[2:] >= cosine[1:-1]
    is_return[:-1] &= cosine[1:-1] >= cosine[2:]
    periods = np.flatnonzero(is_return) + 1
    if not len(periods):
        return None
    period = int(periods[cosine[periods] >= SHORTER * cosine[periods].max()][0])
    mean, contrast_floor = float(cosine[period]), float(nearer[period - 1])
    if mean - rotating < UNTOLD:
        return None
    return Copies("near", len(values), period=period, cosine=mean, between=contrast_floor)


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
    if len(runs) >= MIN_SIDE and all(stop - start > 1 for start, stop in runs[:-1]):
        return None
    return [(start, stop) for start, stop in runs if stop - start >= MIN_SIDE]


def find_beside(
    series: Series,
    stretches: Sequence[tuple[int, int]],
    start: int,
    find: Callable[[Series], BreakRecord],
) -> BreakRecord:
    """Look for seams and special rows among the other rows, and put seams at the stretches' ends.

    Fewer than `MIN_SIDE` rows beside a stretch are special. Two stretches with so few between them
    have a seam there if they differ.

    Parameters
    ----------
    series
        Row series of the table.
    stretches
        First row and the stop of each stretch of equal rows; one or more.
    start
        Position of the table's first row.
    find
        Function that looks for breaks and outlier rows in one part.
    """
    n = len(series.norms)
    breaks = BreakRecord()
    ends = [0, *(row for stretch in stretches for row in stretch), n]
    parts = list(zip(ends[::2], ends[1::2], strict=True))
    causes = [
        Cause(
            "equal_rows" if series.norms[stretch_start] else "rows_of_zeros",
            (start + stretch_start, start + stop - 1),
        )
        for stretch_start, stop in stretches
    ]
    for k, (stretch_start, stop) in enumerate(parts):
        if stop - stretch_start >= MIN_SIDE:
            if k > 0:
                breaks.seam(stretch_start - 1, causes[k - 1])
            if k < len(stretches):
                breaks.seam(stop - 1, causes[k])
            continue
        for row in range(stretch_start, stop):
            breaks.special[row] = [causes[max(k - 1, 0)]]
        is_inner = 0 < k < len(stretches)
        if is_inner and (series.rows[stretch_start - 1] != series.rows[stop]).any():
            breaks.seam((stretch_start + stop - 1) // 2, causes[k])
    for stretch_start, stop in parts:
        if stop - stretch_start >= 2 * MIN_SIDE:
            breaks.add(find(_part(series, stretch_start, stop)), stretch_start)
    for row, (zero,) in zero_rows(series).special.items():
        if zero not in breaks.special.get(row, ()):
            breaks.row(row, zero.kind)
    return breaks


def _part(series: Series, first: int, stop: int) -> Series:
    last = stop - 1
    return Series(
        series.norms[first:stop], series.likeness[first:stop],
        series.steps[first:last], series.chords[first:last],
        series.units[first:stop], series.rows[first:stop],
    )  # fmt: skip
