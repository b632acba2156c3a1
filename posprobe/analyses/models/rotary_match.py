"""Heads of two runs by their curves over distance: which head of the one is which of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.schema import TWO, Count, Natural

#: Layer and number of a head.
Place: TypeAlias = tuple[int, int]
#: Below every correlation: a head is not matched with itself.
_NEVER = -2.0


@dataclass(frozen=True)
class MatchedHead:
    """One head of each run.

    Parameters
    ----------
    first, second
        Layer and number.
    correlation
        Of their measured curves, over distance.
    """

    first: Annotated[tuple[Count, Count], TWO]
    second: Annotated[tuple[Count, Count], TWO]
    correlation: float


@dataclass(frozen=True)
class HeadMatch:
    """The heads of two runs, each with at most one of the other: largest sum of correlations.

    Parameters
    ----------
    heads
        That are matched: as many as the run with fewer has.
    correlation
        Median over matched heads.
    same
        Heads that are matched with the head of their own layer and number; None where the runs
        have different heads.
    by_place
        Median correlation of heads of one layer and number; None where the runs have different
        heads.
    within
        The same as ``correlation`` of the heads of one run matched with its other heads, the larger
        of both runs: curves that fall with distance are alike anyway. None with one head.
    matched
        In the order of the first run.
    """

    heads: Natural
    correlation: float
    same: Count | None
    by_place: float | None
    within: float | None
    matched: tuple[MatchedHead, ...]


def match_heads(
    curves: tuple[NDArray[np.float64], NDArray[np.float64]],
    places: tuple[Sequence[Place], Sequence[Place]],
) -> HeadMatch:
    """Match the heads of two runs by their curves.

    Parameters
    ----------
    curves
        ``[heads, n]`` of each run, at the same distances.
    places
        Layer and number of each head.

    Examples
    --------
    >>> import numpy as np
    >>> far = np.arange(32)
    >>> curves = np.stack([-far, np.cos(far), np.sin(far)])
    >>> found = match_heads((curves, curves[::-1]), ([(0, 0), (0, 1), (0, 2)],) * 2)
    >>> [each.second for each in found.matched], found.same
    ([(0, 2), (0, 1), (0, 0)], 1)
    """
    first, second = map(_unit, curves)
    across = first @ second.T
    rows, columns = _assigned(across)
    alike = list(places[0]) == list(places[1])
    within = [
        float(np.median(own[_assigned(own)]))
        for own in (unit @ unit.T + (_NEVER - 1) * np.eye(len(unit)) for unit in (first, second))
        if len(own) > 1
    ]
    return HeadMatch(
        heads=len(rows),
        correlation=float(np.median(across[rows, columns])),
        same=int(np.sum(rows == columns)) if alike else None,
        by_place=float(np.median(np.diag(across))) if alike else None,
        within=max(within, default=None),
        matched=tuple(
            MatchedHead(places[0][row], places[1][column], float(across[row, column]))
            for row, column in zip(rows, columns, strict=True)
        ),
    )


def _unit(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centre curves and give them unit length; zeros where they are flat."""
    centred = curves - curves.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    flat = size <= 1e-12 * np.abs(curves).max(axis=1, keepdims=True)
    return np.where(flat, 0.0, centred / np.where(flat, 1.0, size))


def _assigned(correlation: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(correlation, maximize=True)
    return rows, columns
