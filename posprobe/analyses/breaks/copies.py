"""Find rows that are copies of others: blocks, periods, mirror images, and rows that recur."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from types import ModuleType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.limits import MIN_SIDE_ROWS
from posprobe.analyses.breaks.outliers import find_zero_rows
from posprobe.analyses.breaks.row_series import BreakRecord, RowSeries
from posprobe.analyses.facts import Cause
from posprobe.analyses.linear import offset_sums
from posprobe.arrays import Array, Floats, to_numpy

#: Rows a period apart have at least this mean cosine. With the contrast that follows, none of 200
#: tables of noise, random walks and smooth curves is periodic.
MIN_REPEAT_COSINE = 0.5
#: The mean cosine of rows a period apart exceeds that of some nearer rows by at least this.
MIN_REPEAT_CONTRAST = 0.5
#: The shortest period with this share of the largest mean cosine is taken, because multiples of a
#: period have the same cosine apart from noise.
MIN_SHORTER_PERIOD_SHARE = 0.9
#: At least this mean cosine is left after subtracting the share of rotations, which is the cosine
#: of rows a period apart that rotations explain.
MIN_UNEXPLAINED_COSINE = 0.3
#: A period is searched in this many rows from the first, and is at most half of them: longer than
#: any context that tables were tiled from.
MAX_PERIOD_ROWS = 4096
#: Copies are reported from this share of the rows on. Fewer copies change no answer.
MIN_REPEATED_SHARE = 0.1


@dataclass(frozen=True)
class Copies:
    """Rows that are copies of others.

    Parameters
    ----------
    kind
        Whether copies follow each other (``blocks``), recur after a period, exactly (``period``) or
        nearly (``near``), recur in reverse order (``mirror``), or none of these (``any``).
    rows
        Number of rows of the table.
    count
        Number of rows that are exact copies of earlier ones.
    times
        Number of equal rows in succession in each block.
    period
        Period in positions after which rows recur, exactly or nearly.
    cosine, between
        Mean centred cosine of rows a period apart, if they nearly recur, and the smallest mean of
        rows that are closer.
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

    Rows of zeros are no copies, because a padded table has many. Neither are the rows of a table
    that repeats a single row.

    Parameters
    ----------
    values
        ``[n, d]``, finite.

    Returns
    -------
    Copies
        None if fewer than `MIN_REPEATED_SHARE` of the rows are copies.

    Examples
    --------
    >>> import numpy as np
    >>> blocks = copies(np.repeat(np.arange(6.0), 4)[:, None] + 1)
    >>> blocks.kind, blocks.times
    ('blocks', 4)
    """
    n = len(values)
    # Rows are compared by their digests, because sorting rows would copy a large table.
    first_rows: dict[bytes, int] = {}
    # Adding 0.0 turns -0.0 into 0.0.
    digests = (blake2b(row + 0.0, digest_size=16).digest() for row in values)
    first_indices = np.array(
        [first_rows.setdefault(digest, index) for index, digest in enumerate(digests)]
    )
    is_nonzero = values.any(axis=1)
    n_distinct = len(set(first_indices[is_nonzero]))
    n_copies = int(is_nonzero.sum()) - n_distinct
    if n_distinct < 2 or n_copies < max(2, MIN_REPEATED_SHARE * n):
        return None
    edges = np.flatnonzero(np.diff(first_indices)) + 1
    block_lengths = np.diff(np.concatenate([[0], edges, [n]]))
    block_length, last_length = block_lengths[0], block_lengths[-1]
    has_equal_blocks = (
        block_lengths[:-1] == block_length
    ).all() and last_length <= block_length
    if block_length > 1 and has_equal_blocks:
        return Copies("blocks", n, n_copies, times=int(block_length))
    period = _exact_period(first_indices)
    if period:
        return Copies("period", n, n_copies, period=period)
    is_mirrored = (first_indices == first_indices[::-1]).all()
    return Copies("mirror" if is_mirrored else "any", n, n_copies)


def _exact_period(first_indices: NDArray[np.intp]) -> int:
    """Return the shortest period of up to half the rows, or 0."""
    half = len(first_indices) // 2
    exact_periods = (
        period
        for period in range(1, half + 1)
        if (first_indices[period:] == first_indices[:-period]).all()
    )
    return next(exact_periods, 0)


def find_returns(values: Floats, rotating_share: float) -> Copies | None:
    """Find whether rows nearly recur after a period, beyond what rotations explain.

    An example is a table that was made of copies of a shorter one, and then trained.

    Parameters
    ----------
    values
        ``[n, d]``, finite.
    rotating_share
        Share of the variance in rotations, which are reported elsewhere and make rows recur.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> tiled = np.tile(rng.normal(size=(16, 8)), (4, 1)) + 0.1 * rng.normal(size=(64, 8))
    >>> copies = find_returns(tiled, rotating_share=0.0)
    >>> copies.period, round(copies.cosine, 2)
    (16, 0.99)
    """
    rows = values[:MAX_PERIOD_ROWS] / (np.abs(values).max(initial=0.0) or 1.0)
    n = len(rows)
    rows = rows - rows.mean(axis=0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(norms > 1e-12, norms, 1.0)
    cosines = (offset_sums(rows) / np.arange(n, 0, -1))[: n // 2 + 1]
    smallest_nearer = np.minimum.accumulate(cosines)[:-1]
    contrasts = cosines[1:] - smallest_nearer
    is_return = (cosines[1:] >= MIN_REPEAT_COSINE) & (contrasts >= MIN_REPEAT_CONTRAST)
    is_return[1:] &= cosines[2:] >= cosines[1:-1]
    is_return[:-1] &= cosines[1:-1] >= cosines[2:]
    periods = np.flatnonzero(is_return) + 1
    if not len(periods):
        return None
    period = int(
        periods[cosines[periods] >= MIN_SHORTER_PERIOD_SHARE * cosines[periods].max()][0]
    )
    cosine, nearer_cosine = float(cosines[period]), float(smallest_nearer[period - 1])
    if cosine - rotating_share < MIN_UNEXPLAINED_COSINE:
        return None
    return Copies(
        "near", len(values), period=period, cosine=cosine, between=nearer_cosine
    )


def find_equal_rows(values: Array, xp: ModuleType) -> list[tuple[int, int]] | None:
    """Find the stretches of exactly equal rows.

    Parameters
    ----------
    values
        ``[n, d]``; NumPy or torch.
    xp
        Namespace of the values.

    Returns
    -------
    list
        First row and stop of each stretch of `MIN_SIDE_ROWS` or more. None if the table consists of
        `MIN_SIDE_ROWS` or more blocks of equal rows, which are then typical of it.
    """
    changes = np.flatnonzero(~to_numpy(xp.all(values[1:] == values[:-1], axis=1))) + 1
    runs = list(pairwise([0, *changes.tolist(), len(values)]))
    # The last of several blocks may be cut off.
    if len(runs) >= MIN_SIDE_ROWS and all(stop - start > 1 for start, stop in runs[:-1]):
        return None
    return [(start, stop) for start, stop in runs if stop - start >= MIN_SIDE_ROWS]


def find_between_equal_rows(
    series: RowSeries,
    equal_groups: Sequence[tuple[int, int]],
    start: int,
    find: Callable[[RowSeries], BreakRecord],
) -> BreakRecord:
    """Find breaks among the rows between stretches of equal rows, and add seams at their ends.

    Fewer than `MIN_SIDE_ROWS` rows beside a stretch are outliers. Two stretches with as few rows
    between them have a seam there if they differ.

    Parameters
    ----------
    series
        Row series of the table.
    equal_groups
        First row and stop of each stretch of equal rows; one or more.
    start
        Position of the table's first row.
    find
        Function that finds the breaks of a stretch of other rows.
    """
    n = len(series.norms)
    breaks = BreakRecord()
    edges = [0, *(row for group in equal_groups for row in group), n]
    gaps = list(zip(edges[::2], edges[1::2], strict=True))
    causes = [
        Cause(
            "equal_rows" if series.norms[first_row] else "rows_of_zeros",
            (start + first_row, start + stop - 1),
        )
        for first_row, stop in equal_groups
    ]
    for k, (first_row, stop) in enumerate(gaps):
        if stop - first_row >= MIN_SIDE_ROWS:
            if k > 0:
                breaks.add_seam(first_row - 1, causes[k - 1])
            if k < len(equal_groups):
                breaks.add_seam(stop - 1, causes[k])
            continue
        for row in range(first_row, stop):
            breaks.outlier_causes[row] = [causes[max(k - 1, 0)]]
        is_inner = 0 < k < len(equal_groups)
        if is_inner and (series.rows[first_row - 1] != series.rows[stop]).any():
            breaks.add_seam((first_row + stop - 1) // 2, causes[k])
    for first_row, stop in gaps:
        if stop - first_row >= 2 * MIN_SIDE_ROWS:
            breaks.add_stretch(find(_slice_series(series, first_row, stop)), first_row)
    for row, (zero_cause,) in find_zero_rows(series).outlier_causes.items():
        if zero_cause not in breaks.outlier_causes.get(row, ()):
            breaks.add_outlier(row, zero_cause.kind)
    return breaks


def _slice_series(series: RowSeries, first_row: int, stop: int) -> RowSeries:
    """Return the series of the rows from ``first_row`` to ``stop - 1``."""
    last_row = stop - 1
    return RowSeries(
        norms=series.norms[first_row:stop],
        mean_cosines=series.mean_cosines[first_row:stop],
        steps=series.steps[first_row:last_row],
        chords=series.chords[first_row:last_row],
        units=series.units[first_row:stop],
        rows=series.rows[first_row:stop],
    )
