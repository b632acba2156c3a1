"""Ways to fill in rows that are missing from a curve: what each assumes is all that it can bridge.

Each takes the known rows of a curve ``[n, r]`` at positions 0 to n - 1 and returns the missing.
They stand for what a table may be: straight between neighbours, a Gaussian process, one linear map
from each row to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

#: Smallest share of noise in a process: below, its matrix cannot be inverted in double precision.
LEAST_NOISE = 1e-8
#: Share of the variance that the shift operator acts on, and its largest rank.
SHIFT_SHARE, SHIFT_RANK = 0.98, 32


def linear(curve: Floats, missing: Mask) -> Floats:
    """Interpolate between the nearest known rows; beyond the ends, repeat the last one.

    Parameters
    ----------
    curve
        ``[n, r]``.
    missing
        ``[n]``: rows to predict; two others at least are known.

    Returns
    -------
    ndarray
        ``[m, r]``.
    """
    known, wanted = np.flatnonzero(~missing), np.flatnonzero(missing)
    after = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    left, right = known[after - 1], known[after]
    share = np.clip((wanted - left) / (right - left), 0.0, 1.0)[:, None]
    return np.asarray((1 - share) * curve[left] + share * curve[right])


@dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process over position, its covariance inverted once for all gaps.

    All columns share the covariance. Rows that are missing follow from blocks of the inverse
    (Rasmussen & Williams 2006, section 5.4.2, for single rows): no gap needs a factorisation of its
    own.

    Parameters
    ----------
    inverse
        ``[n, n]`` of the covariance.
    weights, level
        ``[n, r]`` and ``[n]``: the inverse times the curve, and times 1.
    """

    inverse: Floats
    weights: Floats
    level: Floats

    @classmethod
    def of(cls, covariance: Floats, curve: Floats) -> Process:
        """Prepare a covariance ``[n, n]`` and a curve ``[n, r]``."""
        least = LEAST_NOISE * max(float(np.trace(covariance)) / len(covariance), 1e-300)
        regular = covariance.copy()
        np.fill_diagonal(regular, regular.diagonal() + least)
        inverse = np.asarray(np.linalg.inv(regular), np.float64)
        return cls(inverse, inverse @ curve, inverse.sum(axis=1))

    def predict(self, curve: Floats, missing: Mask) -> Floats:
        """Return the mean of the missing rows given the others: ``[m, r]``."""
        rows = np.flatnonzero(missing)
        mean = curve[~missing].mean(axis=0)
        weights = self.weights[rows] - self.level[rows, None] * mean
        block = self.inverse[np.ix_(rows, rows)]
        return np.asarray(curve[rows] - np.linalg.solve(block, weights))


def shift(curve: Floats, missing: Mask) -> Floats:
    """Carry on with the linear map from each row to the next, from both sides of every gap.

    The maps onwards and back are fitted to neighbouring rows that are both known, about the known
    rows' mean, in the leading columns of `SHIFT_SHARE` of the variance. Moduli above 1 are set to
    1, so that nothing explodes; what both sides predict is mixed by distance.

    Parameters
    ----------
    curve
        ``[n, r]``, the columns with the most variance first.
    missing
        ``[n]``: rows to predict.

    Returns
    -------
    ndarray
        ``[m, r]``.
    """
    n = len(curve)
    known = ~missing
    mean = curve[known].mean(axis=0)
    power = np.cumsum(np.square(curve[known] - mean).sum(axis=0))
    enough = int(np.argmax(power >= SHIFT_SHARE * power[-1])) + 1
    rank = max(1, min(enough, SHIFT_RANK, int(known.sum()) // 8))
    leading = curve[:, :rank] - mean[:rank]
    left = np.flatnonzero(known[:-1] & known[1:])
    result = np.zeros_like(curve)
    if left.size:
        onwards = _Map.fitted(leading[left], leading[left + 1])
        back = _Map.fitted(leading[left + 1], leading[left])
        edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]]).astype(int)))
        for first, stop in edges.reshape(-1, 2):
            steps = np.arange(1, stop - first + 1)
            weight = (1 - steps / (stop - first + 1))[:, None]
            if first == 0:
                result[:stop, :rank] = back.carried(leading[stop], steps[::-1])
            elif stop == n:
                result[first:, :rank] = onwards.carried(leading[first - 1], steps)
            else:
                result[first:stop, :rank] = weight * onwards.carried(leading[first - 1], steps)
                result[first:stop, :rank] += (1 - weight) * back.carried(leading[stop], steps[::-1])
    return np.asarray(result[missing] + mean)


@dataclass(frozen=True, eq=False)
class _Map:
    eigenvalues: NDArray[np.complex128]
    vectors: NDArray[np.complex128]
    inverse: NDArray[np.complex128]

    @classmethod
    def fitted(cls, before: Floats, after: Floats) -> _Map:
        operator = np.linalg.lstsq(before, after, rcond=1e-6)[0]
        values, vectors = np.linalg.eig(operator)
        bounded = values / np.maximum(np.abs(values), 1.0)
        return cls(bounded.astype(complex), vectors, np.linalg.pinv(vectors, rcond=1e-12))

    def carried(self, row: Floats, steps: NDArray[np.integer[Any]]) -> Floats:
        """Apply the map so many times to a row: ``[steps, r]``."""
        modes = row @ self.vectors
        return np.asarray(((self.eigenvalues ** steps[:, None] * modes) @ self.inverse).real)
