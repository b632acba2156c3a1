"""Where the rows begin that look as they were initialised: independent, Gaussian, all alike."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats

#: Fewest rows that can be told, and fewest columns.
ROWS, COLUMNS = 32, 16
#: Standard errors by which each of three numbers may differ from that of independent Gaussian rows,
#: and by which neighbours of trained rows are more alike.
WITHIN, RELATED = 4.0, 6.0
#: Share by which variances of squares may differ beyond that: of numbers cut at two deviations, as
#: many initialisers do, they are lower by as much.
CUT = 0.5
#: Rows on either side of the first that looks untrained among which training ends, and the paces at
#: which it fades out there: in up to twice as many rows.
NEAR = 64
PACES = np.geomspace(1, 2 * NEAR, 15)
#: Sizes of the trained part that are tried, and their spread from row to row.
SIZES, SPREAD = 24, 0.5
#: Log likelihood by which ends fall short of the best that are left out: of 497 planted ends, sharp
#: and gradual, 487 are within.
SHORT = 6.0


def untrained_from(rows: NDArray[np.floating[Any]]) -> tuple[int, int, int] | None:
    """Return the row from which on all look untrained, after rows that do not, and its interval.

    Parameters
    ----------
    rows
        ``[n, d]``.

    Returns
    -------
    tuple or None
        The row, the least and the most that it may be, counted from 0.
    """
    n = len(rows)
    if n < 2 * ROWS or not _untrained(rows[n - ROWS :]):
        return None
    high = bisect_left(range(n - ROWS), True, key=lambda first: _untrained(rows[first:]))
    if high < ROWS:
        return None
    # The rows just before: where a table drifts slowly, they look as these do.
    trained = _standardised(rows[high - ROWS : high])
    if trained is None or _neighbours(trained) <= RELATED:
        return None
    return _end(np.asarray(rows, dtype=np.float64), high)


def _end(rows: Floats, first: int) -> tuple[int, int, int]:
    """Return the most likely end of the trained part, and the least and the most that it may be.

    The size of the trained part falls to zero along a straight line. Products of neighbouring rows
    have its square as their mean, in standard deviations of those of untrained rows.

    Parameters
    ----------
    rows
        ``[n, d]``.
    first
        Row from which on too little is trained to be seen in any one row.
    """
    n, d = rows.shape
    last = rows[-max(ROWS, (n - first) // 2) :]
    low, high = max(first - NEAR, 0), min(first + NEAR, n - ROWS // 2)
    near = rows[low : high + 1] - last.mean(axis=0)
    seen = (near[:-1] * near[1:]).sum(axis=1) / (last.var(axis=0, ddof=1).mean() * np.sqrt(d))
    ends = np.arange(low + 1, high + 1)
    ahead = ends[:, None, None] - np.arange(low, high + 1)
    faded = np.clip(ahead / PACES[:, None], 0, 1)  # [ends, paces, rows]
    product = faded[..., :-1] * faded[..., 1:]
    crossed = (np.square(faded[..., :-1]) + np.square(faded[..., 1:])) / np.sqrt(d)
    likelihood = np.full(len(ends), -np.inf)
    for size in np.geomspace(1, 2 * max(seen.max(), 2.0), SIZES):
        mean = size * product
        variance = 1 + size * crossed + np.square(SPREAD * mean)
        each = -0.5 * (np.log(variance) + np.square(seen - mean) / variance).sum(axis=-1)
        likelihood = np.maximum(likelihood, each.max(axis=1))
    within = ends[likelihood >= likelihood.max() - SHORT]
    return int(ends[likelihood.argmax()]), int(within[0]), int(within[-1])


def _untrained(rows: NDArray[np.floating[Any]]) -> bool:
    """Tell whether rows ``[n, d]`` look like independent Gaussian ones of one variance.

    The mean product of neighbours is 0, and the mean square of k numbers has a variance of 2 / k:
    along rows and along columns.
    """
    n, d = rows.shape
    values = _standardised(rows)
    if values is None or d < COLUMNS:
        return False
    spread = [
        float(np.square(values).mean(axis=axis).var()) * k / 2 for axis, k in ((1, d), (0, n))
    ]
    errors = [WITHIN * np.sqrt(2 / count) for count in (n, d)]
    usual = all(
        1 - CUT - error <= each <= 1 + error for each, error in zip(spread, errors, strict=True)
    )
    return usual and abs(_neighbours(values)) <= WITHIN


def _standardised(rows: NDArray[np.floating[Any]]) -> Floats | None:
    values = np.asarray(rows, dtype=np.float64)
    values = values - values.mean(axis=0)
    size = float(np.square(values).mean())
    return values / np.sqrt(size) if size > 0 else None


def _neighbours(values: Floats) -> float:
    """Return the mean product of neighbouring rows, in standard errors of independent ones.

    Centred on the mean of n rows, two of them have a product of -1 / (n - 1) for each column.
    """
    n, d = values.shape
    return float(((values[:-1] * values[1:]).sum() + d) / np.sqrt((n - 1) * d))
