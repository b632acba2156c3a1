"""What each rotation of a table predicts of rows that were left out, beside all else that it has.

All else is the mean, a smooth Gaussian process and the other rotations, fitted to the rows that are
known (universal kriging: Rasmussen & Williams 2006, section 2.7); the kernel and the periods are
those of all rows. Rows are left out in blocks as long as half the rotation's period, over which no
smooth curve knows where it has turned to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.bridging import leave_out
from posprobe.analyses.closeness import Floats
from posprobe.analyses.slow_rotation import SLOW_ROWS, SLOW_TURNS, Rotation
from posprobe.analyses.stationary import fit_kernel

#: Times that blocks of each length are left out, at other places.
ROUNDS = 3
#: Rows that fast rotations are measured on, in the middle; slow ones on every n-th row.
ROWS = 512
#: Least share of noise in the smooth part: below, its matrix cannot be inverted.
LEAST_NOISE = 1e-4
#: Skill that a rotation has at least: with less it is as good as not there.
LEAST_SKILL = 0.02
#: Most slow waves by which a rotation's size and phase change along the table.
MOST_BENDS = 16
#: Cycles by which a rotation's frequency is moved to where it explains most.
MOVED = (0.0, -0.2, -0.1, 0.1, 0.2)


def with_skill(
    points: Floats, coordinates: Floats, rotations: Sequence[Rotation]
) -> tuple[Rotation, ...]:
    """Measure the held-out skill of each rotation, and leave out those with next to none.

    Skill is ``1 - e / e0``: ``e`` is the squared error over the rows left out of the mean, the
    smooth part and all rotations, ``e0`` that of all but this one. A slow rotation is left to the
    smooth part too, alone and with all slow ones: ``e0`` is the least of these errors.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    coordinates
        ``[n, r]``: along the leading directions; what lies beyond them counts as error in both.
    rotations
        Those of the table.
    """
    if not rotations:
        return ()
    n = len(points)
    beyond = np.square(points).sum(axis=1) - np.square(coordinates).sum(axis=1)
    turns = [n / rotation.period for rotation in rotations]
    apart = [min((abs(a - b) for b in turns if b != a), default=a) for a in turns]
    waves = [
        _waves(n, rotation, coordinates, int(min(near, each / 4, MOST_BENDS)))
        for rotation, each, near in zip(rotations, turns, apart, strict=True)
    ]
    every = set(range(len(waves)))
    slow = {k for k in every if turns[k] < SLOW_TURNS}
    middle = slice(max(n - ROWS, 0) // 2, max(n - ROWS, 0) // 2 + ROWS)
    window = _Model(coordinates[middle], beyond[middle], [w[middle] for w in waves], every)
    thin = max(1, n // SLOW_ROWS)
    fewer = coordinates[::thin], beyond[::thin], [wave[::thin] for wave in waves]
    kept = []
    for k, rotation in enumerate(rotations):
        if k in slow:
            # Only with the wave left to it does the kernel say what a smooth curve can do.
            period = rotation.period / thin
            error = _Model(*fewer, every).error(period, every)
            others = (every - {k}, every - slow)
            least = min(_Model(*fewer, left).error(period, left) for left in others)
        else:
            error = window.error(rotation.period, every)
            least = window.error(rotation.period, every - {k})
        if error < (1 - LEAST_SKILL) * least:
            kept.append(replace(rotation, skill=1 - error / least))
    return tuple(kept)


class _Model:
    """The mean and waves as fixed columns beside a smooth process, for any rows left out."""

    def __init__(
        self, coordinates: Floats, beyond: Floats, waves: list[Floats], fitted: set[int]
    ) -> None:
        """Fit the smooth part to what some of the waves leave."""
        n = len(coordinates)
        self.beyond = np.maximum(beyond, 0.0)
        self.edges = np.cumsum([1, *(wave.shape[1] for wave in waves)])
        self.fixed = int(self.edges[-1])
        columns = np.concatenate([np.full((n, 1), n**-0.5), *waves, coordinates], axis=1)
        basis, _ = np.linalg.qr(columns[:, self.columns(fitted)])
        rest = coordinates - basis @ (basis.T @ coordinates)
        self.inverse = toeplitz_inverse(fit_kernel(rest).by_offset(n))
        self.weighted = self.inverse @ columns
        self.gram = columns.T @ self.weighted
        self.solved: dict[int, list[tuple[Floats, Floats, float]]] = {}

    def columns(self, waves: set[int]) -> NDArray[np.intp]:
        """Return the places of the constant and of some waves."""
        each = [np.arange(self.edges[k], self.edges[k + 1]) for k in sorted(waves)]
        return np.concatenate([[0], *each])

    def error(self, period: float, waves: set[int]) -> float:
        """Return the squared error of rows left out, predicted with some of the waves."""
        n = len(self.inverse)
        gap = max(min(2, n // 4), min(round(period / 2), n // 4))
        if gap not in self.solved:
            self.solved[gap] = [self._left_out(gap, turn) for turn in range(ROUNDS)]
        chosen = self.columns(waves)
        total = 0.0
        for there, known, noise in self.solved[gap]:
            gram = known[np.ix_(chosen, chosen)]
            gram = gram + 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
            amplitudes = np.linalg.solve(gram, known[chosen, self.fixed :])
            missed = there[:, self.fixed :] - there[:, chosen] @ amplitudes
            total += float(np.square(missed).sum()) + noise
        return total

    def _left_out(self, gap: int, turn: int) -> tuple[Floats, Floats, float]:
        n = len(self.inverse)
        fold = np.full(n, -1)
        fits = max(n // (4 * gap), 1)
        leave_out(fold, 0, n, 0, gap, (turn + 0.5) / ROUNDS, fits == 1)
        rows = np.flatnonzero(fold >= 0)
        # What the known rows say of the missing, by blocks of the inverse, as in `predictors`.
        there = np.linalg.solve(self.inverse[np.ix_(rows, rows)], self.weighted[rows])
        known = self.gram - self.weighted[rows].T @ there
        return there, known, float(self.beyond[rows].sum())


def _waves(n: int, rotation: Rotation, coordinates: Floats, most: int) -> Floats:
    """Return cosine and sine of a rotation, and with slow changes of size and phase if it has them.

    ``[n, 2 + 2 j]``, times ``j`` slow cosines, at most ``most``: as many as explain three times
    what they would of noise.
    """
    t = (np.arange(n) + 0.5) / n
    turns = n / rotation.period
    paths = [(turns + moved) * t for moved in MOVED]
    # Growing or shrinking all along: from the mean of the first third to that of the last.
    change = (n / rotation.last_period - n / rotation.first_period) / (2 / 3)
    paths.append(turns * t + change * (t - 0.5) ** 2 / 2)
    found = [
        np.stack([np.cos(2 * np.pi * path), np.sin(2 * np.pi * path)], axis=1) / np.sqrt(n / 2)
        for path in paths
    ]
    wave = max(found, key=lambda wave: float(np.square(wave.T @ coordinates).sum()))
    slow = np.cos(np.pi * np.outer(t, np.arange(most + 1)))
    bent = (slow[:, :, None] * wave[:, None, :]).reshape(n, -1)
    basis, _ = np.linalg.qr(bent)
    explained = np.cumsum(np.square(basis.T @ coordinates).sum(axis=1).reshape(-1, 2).sum(axis=1))
    noise = (np.square(coordinates).sum() - explained[-1]) / n
    bends = int(np.argmax(explained - 6 * noise * np.arange(most + 1)))
    return np.asarray(bent[:, : 2 + 2 * bends])


def toeplitz_inverse(covariance: Floats) -> Floats:
    """Invert the matrix of a kernel given by offset, which is symmetric and Toeplitz: ``[n, n]``.

    Durbin's recursion gives its first column (Golub & Van Loan 2013, section 4.7.3), and that the
    rest (Gohberg & Semencul 1972).
    """
    n = len(covariance)
    by_offset = covariance / (covariance[0] or 1.0)
    by_offset = by_offset * (1 - LEAST_NOISE)
    by_offset[0] = 1.0
    ahead = np.zeros(n)
    ahead[0] = 1.0
    left = 1.0
    for k in range(1, n):
        reflection = -float(by_offset[k:0:-1] @ ahead[:k]) / left
        ahead[1 : k + 1] += reflection * ahead[k - 1 :: -1][:k]
        left *= 1 - reflection**2
    ahead /= np.sqrt(left)
    behind = np.concatenate([[0.0], ahead[:0:-1]])
    inverse = np.outer(ahead, ahead) - np.outer(behind, behind)
    for row in range(1, n):
        inverse[row, 1:] += inverse[row - 1, :-1]
    return inverse
