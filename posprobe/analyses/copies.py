"""Rows that are exact copies of others: blocks, periods, mirror images."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import Floats

#: Least share of rows that are copies of earlier ones of which anything is said.
MANY = 0.1


@dataclass(frozen=True)
class Copies:
    """Rows that are exact copies of others.

    Parameters
    ----------
    text
        A clause whose subject is the table.
    kind
        Whether they follow each other, return after a period, or in reverse order, or neither.
    """

    text: str
    kind: Literal["blocks", "period", "mirror", "any"]


def copies(values: Floats) -> Copies | None:
    """Say which rows of a table are exact copies of others, if many are.

    Rows of zeros are no copies: a table that is padded has many. Neither are rows of a table of a
    single row, repeated.

    Parameters
    ----------
    values
        ``[n, d]``, finite.

    Returns
    -------
    Copies
        None where fewer than `MANY` of its rows are.

    Examples
    --------
    >>> import numpy as np
    >>> copies(np.repeat(np.arange(6.0), 4)[:, None] + 1).text
    'each row stands 4 times in succession'
    """
    n = len(values)
    # By digest, row by row: sorting whole rows would copy a large table several times.
    first: dict[bytes, int] = {}
    names = np.array(
        [
            first.setdefault(blake2b(row + 0.0, digest_size=16).digest(), at)  # no minus before 0
            for at, row in enumerate(values)
        ]
    )
    there = values.any(axis=1)
    different = len(set(names[there]))
    count = int(there.sum()) - different
    if different < 2 or count < max(2, MANY * n):
        return None
    edges = np.flatnonzero(np.diff(names)) + 1
    lengths = np.diff(np.concatenate([[0], edges, [n]]))
    if lengths[0] > 1 and (lengths[:-1] == lengths[0]).all() and lengths[-1] <= lengths[0]:
        return Copies(f"each row stands {lengths[0]} times in succession", "blocks")
    period = _period(names)
    if period:
        return Copies(f"it repeats itself every {period} positions", "period")
    if (names == names[::-1]).all():
        return Copies("its second half is the first in reverse order", "mirror")
    return Copies(f"{count} of its {n} rows are copies of earlier ones", "any")


def _period(names: NDArray[np.intp]) -> int:
    half = len(names) // 2
    same = (p for p in range(1, half + 1) if (names[p:] == names[:-p]).all())
    return next(same, 0)
