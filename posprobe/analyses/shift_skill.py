"""How well the map from each position to the next predicts rows that did not teach it.

One half of the table teaches and the other tests, both ways. The same skill chooses the rank.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Fewest rows of which one half can teach what the other half tests.
MIN_ROWS = 16
#: Shares of the variance left out by the candidate ranks.
LEFT_OUT = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-6, 1e-9, 1e-12)
#: Largest drops from one component's variance to the next's that are candidates, too.
DROPS = 3
#: Largest candidate rank; the numerical rank of a table that lacks full rank may be twice that.
MAX_RANK = 256
#: How much held-out skill a larger rank may cost and still be preferred.
TOLERANCE = 0.01
#: How much better than noise a larger rank's components must be explained.
BEYOND_CHANCE = 3.0
#: Directions this much weaker than the strongest teach a half nothing: float32's rounding.
FLOOR = 1e-6
#: The same for a map that no other rows test: float64's, times the rows.
EXACT = float(np.finfo(np.float64).eps)
#: Rows of a block that is factorised at a time.
BLOCK = 4096

#: Triangular factors of rows and of their changes, side by side.
_Factors: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


def shift_rank(scores: NDArray[np.floating[Any]]) -> tuple[int, NDArray[np.float64]]:
    """Choose how many leading components the map acts on; return its held-out errors as well.

    Both fits are about the mean of the whole: half a table holds too little of its slow modes to
    place their centre. In directions that a half does not show, the map predicts no change.

    Candidates are the ranks that leave out the shares of variance `LEFT_OUT` and those before the
    `DROPS` steepest drops, up to a quarter of the rows and to `MAX_RANK`, and the numerical rank
    where that is lower than the table's shape demands. Each predicts whole rows of the other half
    of the table. The one with the best skill is taken, then larger ones as long as they cost less
    than `TOLERANCE` of it and add components that the map explains: to `BEYOND_CHANCE` times the
    share that so many regressors explain of noise, or to half of what that leaves. Too small a rank
    mixes frequencies, and the exact map of a sinusoid needs directions that carry next to nothing.

    Parameters
    ----------
    scores
        ``[n, k]``: positions along all components, strongest first; n at least `MIN_ROWS`.

    Returns
    -------
    tuple
        The rank, and the squared errors on held-out rows ``[3]`` with so many components: of the
        map, of no change, and of the mean row.
    """
    scores = np.asarray(scores, dtype=np.float64)
    n, k = scores.shape
    power = (scores**2).sum(axis=0)
    rest = np.append(np.cumsum(power[::-1])[-2::-1], 0.0) / power.sum()
    limit = max(1, min(n // 4, MAX_RANK))
    candidates = {int(np.argmax(rest <= share)) + 1 for share in LEFT_OUT}
    candidates = {rank for rank in candidates if rank <= limit} or {min(limit, k)}
    numerical = int(np.count_nonzero(power > (1e-13 * n) ** 2 * power[0]))
    known = power[: min(limit, numerical) + 1]
    steepest = np.argsort(known[1:] / known[:-1], kind="stable")[:DROPS] + 1
    candidates.update(steepest.tolist())
    if numerical <= (2 * MAX_RANK if numerical < min(n - 1, k) else limit):
        candidates.add(numerical)
    ranks = sorted(candidates)
    halves = _halves(scores[:, : ranks[-1]])
    no_change, mean = _column_baselines(scores)
    # Outside the components the map knows no more than the mean.
    outside = np.append(np.cumsum(mean[::-1])[-2::-1], 0.0)
    errors = [_map_error(halves, rank) + outside[rank - 1] for rank in ranks]
    bases = no_change.sum(), mean.sum()
    reached = np.array([least_skill(np.array([error, *bases])) for error in errors])
    best = int(np.argmax(reached))
    chosen = ranks[best]
    later = zip(ranks[best + 1 :], reached[best + 1 :], strict=True)
    near = [rank for rank, skill in later if skill >= reached[best] - TOLERANCE]
    whole = _pairs(scores[:, : max(near, default=1)])
    for rank in near:
        chance = rank / (n - 1)
        demanded = min(BEYOND_CHANCE * chance, (1 + chance) / 2)
        if _explained(scores, whole, chosen, rank) >= demanded:
            chosen = rank
    # Least squares with fewer components needs no other factors.
    error = _map_error(halves, chosen)
    return chosen, np.array([error, no_change[:chosen].sum(), mean[:chosen].sum()])


def _explained(scores: NDArray[np.floating[Any]], whole: _Factors, known: int, rank: int) -> float:
    """Share of components ``known`` to ``rank`` that the map of that rank explains, on average."""
    added = slice(known, rank)
    rows, changes = whole
    before, after = scores[:-1, added], scores[1:, added]
    error = changes[:, added] - rows[:, :rank] @ _taught(whole, rank, EXACT * len(before))[:, added]
    sizes = [
        (values**2).sum(axis=0) for values in (error, after - before, after - after.mean(axis=0))
    ]
    return float(np.mean(1 - sizes[0] / np.minimum(sizes[1], sizes[2])))


def energy(values: NDArray[np.floating[Any]]) -> float:
    """Add up the squares."""
    return float((values**2).sum())


def _parts(scores: NDArray[np.floating[Any]]) -> tuple[NDArray[Any], ...]:
    """Centre the rows and cut them into the two halves, each of which tests the other."""
    centered = scores - scores.mean(axis=0)
    middle = len(scores) // 2
    return centered[:middle], centered[middle:]


def _halves(
    scores: NDArray[np.floating[Any]],
) -> list[_Factors]:
    """Return of each half the triangular factor of its rows and of their changes.

    All that least squares needs to know, for every number of leading components: those of the first
    few columns are the first few columns of the factor.
    """
    return [_factors(part[:-1], part[1:]) for part in _parts(scores)]


def _factors(before: NDArray[np.floating[Any]], after: NDArray[np.floating[Any]]) -> _Factors:
    """Return the triangular factor of rows and of their changes, side by side.

    By blocks of rows, whose factors are then factorised together: nothing as long as the table is
    copied, and a block stays in the cache (Demmel et al. 2012).
    """
    k = before.shape[1]
    blocks = [
        np.linalg.qr(np.hstack([before[rows], after[rows] - before[rows]]), mode="r")
        for rows in (slice(first, first + BLOCK) for first in range(0, len(before), BLOCK))
    ]
    stacked = np.concatenate(blocks)
    factor = np.asarray(np.linalg.qr(stacked, mode="r") if len(blocks) > 1 else stacked)
    return factor[:, :k], factor[:, k:]


def _pairs(scores: NDArray[np.floating[Any]]) -> _Factors:
    """Return the same of all rows, each side about its mean: the least-squares constant."""
    before, after = scores[:-1], scores[1:]
    return _factors(before - before.mean(axis=0), after - after.mean(axis=0))


def _taught(factors: _Factors, rank: int, least: float) -> NDArray[np.float64]:
    """Return the change ``[rank, rank]`` by which leading components come to the next row.

    None in directions that are weaker than ``least`` times the strongest.
    """
    rows, changes = (each[:rank, :rank] for each in factors)
    return np.asarray(np.linalg.lstsq(rows, changes, rcond=least)[0], dtype=np.float64)


def _map_error(halves: list[_Factors], rank: int) -> float:
    """Squared error of the map that each half teaches, on the other half's rows."""
    error = 0.0
    for half, (tested, moved) in (halves, halves[::-1]):
        error += energy(moved[:, :rank] - tested[:, :rank] @ _taught(half, rank, FLOOR))
    return error


def linear_map(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the least-squares map from each row ``[n, r]`` to the next: ``[r, r]``.

    About means of their own for both sides. It is the identity in directions that teach nothing.
    """
    rank = scores.shape[1]
    return np.eye(rank) + _taught(_pairs(scores), rank, EXACT * (len(scores) - 1))


def _column_baselines(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Squared errors on the same rows of "no change" and of "the mean row": ``[2, k]``."""
    parts = _parts(scores)
    return np.array(
        [
            sum((np.diff(part, axis=0) ** 2).sum(axis=0) for part in parts),
            sum((part[1:] ** 2).sum(axis=0) for part in parts),
        ]
    )


def baselines(scores: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Squared errors on the same rows of "no change" and of "the mean row"."""
    no_change, mean = _column_baselines(scores).sum(axis=1)
    return float(no_change), float(mean)


def with_rest(errors: NDArray[np.float64], rest: tuple[float, float]) -> NDArray[np.float64]:
    """Add what lies outside the components, where the map knows no more than the mean."""
    no_change, mean = rest
    added: NDArray[np.float64] = errors + np.array([mean, no_change, mean])
    return added


def least_skill(errors: NDArray[np.float64]) -> float:
    """Return the smaller of both `skills`.

    Iid rows are predicted half as badly by their mean as by their predecessor, so a skill against
    persistence alone is 0.5 for pure noise.
    """
    return float(np.min(skills(errors)))


def skills(errors: NDArray[np.float64]) -> tuple[float, float]:
    """Return the skill against no change and against the mean row.

    Parameters
    ----------
    errors
        ``[3]``: squared errors of the map, of no change and of the mean row. Against a forecast
        that is exact the skill is NaN.
    """
    error, no_change, mean = errors.tolist()
    rounding = 1e-24 * max(no_change, mean)
    against = [1 - error / base if base > rounding else np.nan for base in (no_change, mean)]
    return float(against[0]), float(against[1])
