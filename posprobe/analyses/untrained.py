"""Where the rows begin that look as they were initialised: independent, Gaussian, all alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Fewest rows that can be told, and fewest columns.
ROWS, COLUMNS = 32, 16
#: Standard errors by which each of three numbers may differ from that of independent Gaussian rows,
#: and by which neighbours of trained rows are more alike.
WITHIN, RELATED = 4.0, 6.0
#: Share by which variances of squares may differ beyond that: of numbers cut at two deviations, as
#: many initialisers do, they are lower by as much.
CUT = 0.5


def untrained_from(rows: NDArray[np.floating[Any]]) -> int | None:
    """Return the first row from which on all look untrained, after rows that do not.

    Parameters
    ----------
    rows
        ``[n, d]``.

    Returns
    -------
    int or None
        Counted from 0; `ROWS` or more come before, and as many from there on.
    """
    n = len(rows)
    if n < 2 * ROWS or not _untrained(rows[n - ROWS :]):
        return None
    low, high = 0, n - ROWS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _untrained(rows[middle:]) else (middle + 1, high)
    if high < ROWS:
        return None
    # The rows just before: where a table drifts slowly, they look as these do.
    trained = _standardised(rows[high - ROWS : high])
    return high if trained is not None and _neighbours(trained) > RELATED else None


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


def _standardised(rows: NDArray[np.floating[Any]]) -> NDArray[np.float64] | None:
    values = np.asarray(rows, dtype=np.float64)
    values = values - values.mean(axis=0)
    size = float(np.square(values).mean())
    return values / np.sqrt(size) if size > 0 else None


def _neighbours(values: NDArray[np.float64]) -> float:
    """Return the mean product of neighbouring rows, in standard errors of independent ones.

    Centred on the mean of n rows, two of them have a product of -1 / (n - 1) for each column.
    """
    n, d = values.shape
    return float(((values[:-1] * values[1:]).sum() + d) / np.sqrt((n - 1) * d))
