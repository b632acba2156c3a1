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

from posprobe.analyses.breaks.outliers import MIN_SIDE_ROWS, BreakRecord, RowSeries, find_zero_rows
from posprobe.analyses.facts import Cause
from posprobe.analyses.linear import offset_sums
from posprobe.arrays import Array, Floats, to_numpy

#: Mean cosine of rows a period apart that are alike again, and by how much nearer ones are less so:
#: of 200 tables of noise, walks and smooth curves none is called periodic.
MIN_REPEAT_COSINE = 0.5
MIN_REPEAT_CONTRAST = 0.5
#: Share of the greatest mean cosine from which a shorter period is the period: its multiples have
#: the same cosine but for noise.
MIN_SHORTER_PERIOD_SHARE = 0.9
#: Mean cosine that rotations with so much of the variance leave to tell of: a rotation's own share
#: is the cosine of rows a period apart.
MIN_UNEXPLAINED_COSINE = 0.3
#: Rows, from the first, in which a period is looked for; it is at most half of them: longer than
#: any context that tables were tiled from.
MAX_PERIOD_ROWS = 4096
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
    first_indices = np.array(
        [
            first_rows.setdefault(
                blake2b(row + 0.0, digest_size=16).digest(), index
            )  # no minus before 0
            for index, row in enumerate(values)
        ]
    )
    is_nonzero = values.any(axis=1)
    n_distinct = len(set(first_indices[is_nonzero]))
    n_copies = int(is_nonzero.sum()) - n_distinct
    if n_distinct < 2 or n_copies < max(2, MIN_REPEATED_SHARE * n):
        return None
    edges = np.flatnonzero(np.diff(first_indices)) + 1
    block_lengths = np.diff(np.concatenate([[0], edges, [n]]))
    if (
        block_lengths[0] > 1
        and (block_lengths[:-1] == block_lengths[0]).all()
        and block_lengths[-1] <= block_lengths[0]
    ):
        return Copies("blocks", n, n_copies, times=int(block_lengths[0]))
    period = _exact_period(first_indices)
    if period:
        return Copies("period", n, n_copies, period=period)
    return Copies("mirror" if (first_indices == first_indices[::-1]).all() else "any", n, n_copies)


def _exact_period(first_indices: NDArray[np.intp]) -> int:
    half = len(first_indices) // 2
    exact_periods = (
        period
        for period in range(1, half + 1)
        if (first_indices[period:] == first_indices[:-period]).all()
    )
    return next(exact_periods, 0)


def find_returns(values: Floats, rotating_share: float) -> Copies | None:
    """Find whether rows are alike again after a period, more than what rotates in them explains.

    A table that was made by putting copies of a shorter one after each other, and trained on, is
    such a one.

    Parameters
    ----------
    values
        ``[n, d]``, finite.
    rotating_share
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
    rows = values[:MAX_PERIOD_ROWS] / (np.abs(values).max(initial=0.0) or 1.0)
    n = len(rows)
    rows = rows - rows.mean(axis=0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(norms > 1e-12, norms, 1.0)
    cosines = (offset_sums(rows) / np.arange(n, 0, -1))[: n // 2 + 1]
    smallest_nearer = np.minimum.accumulate(cosines)[:-1]
    is_return = (cosines[1:] >= MIN_REPEAT_COSINE) & (
        cosines[1:] - smallest_nearer >= MIN_REPEAT_CONTRAST
    )
    is_return[1:] &= cosines[2:] >= cosines[1:-1]
    is_return[:-1] &= cosines[1:-1] >= cosines[2:]
    periods = np.flatnonzero(is_return) + 1
    if not len(periods):
        return None
    period = int(periods[cosines[periods] >= MIN_SHORTER_PERIOD_SHARE * cosines[periods].max()][0])
    cosine, nearer_cosine = float(cosines[period]), float(smallest_nearer[period - 1])
    if cosine - rotating_share < MIN_UNEXPLAINED_COSINE:
        return None
    return Copies("near", len(values), period=period, cosine=cosine, between=nearer_cosine)


def find_equal_rows(values: Array, xp: ModuleType) -> list[tuple[int, int]] | None:
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
        First row and the stop of each run of `MIN_SIDE_ROWS` or more. None where the table consists of
        `MIN_SIDE_ROWS` or more blocks of equal rows: there, they are what is usual.
    """
    changes = np.flatnonzero(~to_numpy(xp.all(values[1:] == values[:-1], axis=1))) + 1
    runs = list(pairwise([0, *changes.tolist(), len(values)]))
    # The last of a number of blocks may be cut off.
    if len(runs) >= MIN_SIDE_ROWS and all(stop - start > 1 for start, stop in runs[:-1]):
        return None
    return [(start, stop) for start, stop in runs if stop - start >= MIN_SIDE_ROWS]


def find_between_equal_rows(
    series: RowSeries,
    equal_groups: Sequence[tuple[int, int]],
    start: int,
    find: Callable[[RowSeries], BreakRecord],
) -> BreakRecord:
    """Look for seams and special rows among the other rows, and put seams at the stretches' ends.

    Fewer than `MIN_SIDE_ROWS` rows beside a stretch are special. Two stretches with so few between them
    have a seam there if they differ.

    Parameters
    ----------
    series
        Row series of the table.
    equal_groups
        First row and the stop of each stretch of equal rows; one or more.
    start
        Position of the table's first row.
    find
        Function that looks for breaks and outlier rows in one part.
    """
    n = len(series.norms)
    breaks = BreakRecord()
    edges = [0, *(row for group in equal_groups for row in group), n]
    gaps = list(zip(edges[::2], edges[1::2], strict=True))
    causes = [
        Cause(
            "equal_rows" if series.norms[first] else "rows_of_zeros",
            (start + first, start + stop - 1),
        )
        for first, stop in equal_groups
    ]
    for k, (first, stop) in enumerate(gaps):
        if stop - first >= MIN_SIDE_ROWS:
            if k > 0:
                breaks.add_seam(first - 1, causes[k - 1])
            if k < len(equal_groups):
                breaks.add_seam(stop - 1, causes[k])
            continue
        for row in range(first, stop):
            breaks.outlier_causes[row] = [causes[max(k - 1, 0)]]
        is_inner = 0 < k < len(equal_groups)
        if is_inner and (series.rows[first - 1] != series.rows[stop]).any():
            breaks.add_seam((first + stop - 1) // 2, causes[k])
    for first, stop in gaps:
        if stop - first >= 2 * MIN_SIDE_ROWS:
            breaks.add_stretch(find(_slice_series(series, first, stop)), first)
    for row, (zero_cause,) in find_zero_rows(series).outlier_causes.items():
        if zero_cause not in breaks.outlier_causes.get(row, ()):
            breaks.add_outlier(row, zero_cause.kind)
    return breaks


def _slice_series(series: RowSeries, first: int, stop: int) -> RowSeries:
    last_row = stop - 1
    return RowSeries(
        series.norms[first:stop], series.mean_cosines[first:stop],
        series.steps[first:last_row], series.chords[first:last_row],
        series.units[first:stop], series.rows[first:stop],
    )  # fmt: skip
