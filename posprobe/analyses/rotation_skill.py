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

from posprobe.analyses.bridging import leave_out
from posprobe.analyses.closeness import Floats
from posprobe.analyses.slow_rotation import Rotation
from posprobe.analyses.stationary import fit_kernel

#: Times that blocks of each length are left out, at other places.
ROUNDS = 3
#: Least share of noise in the smooth part: below, its matrix cannot be inverted.
LEAST_NOISE = 1e-4
#: Cycles by which a rotation's frequency is moved to where it explains most.
MOVED = (0.0, -0.2, -0.1, 0.1, 0.2)


def with_skill(
    points: Floats, coordinates: Floats, rotations: Sequence[Rotation]
) -> tuple[Rotation, ...]:
    """Measure the held-out skill of each rotation, and leave out those that have none.

    Skill is ``1 - e / e0``: ``e`` is the squared error over the rows left out of the mean, the
    smooth part and all rotations, ``e0`` that of all but this one.

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
    waves = [_waves(n, rotation, coordinates) for rotation in rotations]
    fixed = np.concatenate([np.full((n, 1), n**-0.5), *waves], axis=1)
    basis, _ = np.linalg.qr(fixed)
    rest = coordinates - basis @ (basis.T @ coordinates)
    inverse = _inverse(fit_kernel(rest - rest.mean(axis=0)).by_offset(n))
    beyond = np.square(points).sum(axis=1) - np.square(coordinates).sum(axis=1)
    columns = np.concatenate([fixed, coordinates], axis=1)
    weighted = inverse @ columns
    whole = columns.T @ weighted
    gaps = [max(2, min(round(r.period / 2), n // 4)) for r in rotations]
    errors = np.zeros((2, len(rotations)))
    for gap in sorted(set(gaps)):
        members = [k for k, each in enumerate(gaps) if each == gap]
        fits = max(n // (4 * gap), 1)
        for turn in range(ROUNDS):
            fold = np.full(n, -1)
            leave_out(fold, 0, n, 0, gap, (turn + 0.5) / ROUNDS, fits == 1)
            rows = np.flatnonzero(fold >= 0)
            # What the known rows say of the missing: blocks of the inverse, as in `predictors`.
            there = np.linalg.solve(inverse[np.ix_(rows, rows)], weighted[rows])
            known = whole - weighted[rows].T @ there
            noise = float(np.maximum(beyond[rows], 0.0).sum())
            for k in members:
                kept = np.ones(fixed.shape[1], dtype=bool)
                errors[0, k] += _error(there, known, kept) + noise
                kept[1 + 2 * k : 3 + 2 * k] = False
                errors[1, k] += _error(there, known, kept) + noise
    skills = 1 - errors[0] / np.maximum(errors[1], np.finfo(np.float64).tiny)
    return tuple(
        replace(rotation, skill=float(skill))
        for rotation, skill in zip(rotations, skills, strict=True)
        if skill > 0
    )


def _error(there: Floats, known: Floats, kept: np.ndarray) -> float:
    """Return the squared error of the missing rows with some of the fixed columns."""
    count = len(kept)
    chosen = np.flatnonzero(kept)
    gram = known[np.ix_(chosen, chosen)]
    gram = gram + 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
    amplitudes = np.linalg.solve(gram, known[chosen, count:])
    return float(np.square(there[:, count:] - there[:, chosen] @ amplitudes).sum())


def _waves(n: int, rotation: Rotation, coordinates: Floats) -> Floats:
    """Return cosine and sine of a rotation, with the drift of its period if that explains more."""
    t = (np.arange(n) + 0.5) / n
    turns = n / rotation.period
    paths = [(turns + moved) * t for moved in MOVED]
    if rotation.first_period != rotation.last_period:
        # The frequency as a parabola that has the means of the first and the last third and of all.
        first, last = n / rotation.first_period - turns, n / rotation.last_period - turns
        slope = (last - first) / (2 / 3)
        bend = (first + last) / 2 / (13 / 108 - 1 / 12)
        middle = t - 0.5
        paths.append(turns * t + slope * middle**2 / 2 + bend * (middle**3 / 3 - middle / 12))
        paths.append(turns * t + slope * middle**2 / 2)
    found = [
        np.stack([np.cos(2 * np.pi * path), np.sin(2 * np.pi * path)], axis=1) / np.sqrt(n / 2)
        for path in paths
    ]
    explained = [float(np.square(wave.T @ coordinates).sum()) for wave in found]
    return found[int(np.argmax(explained))]


def _inverse(covariance: Floats) -> Floats:
    """Invert the matrix of a kernel given by offset, which is symmetric and Toeplitz: ``[n, n]``.

    Durbin's recursion gives its first column (Golub & Van Loan 2013, section 4.7.3), and that the
    rest (Gohberg & Semencul 1972).
    """
    n = len(covariance)
    by_offset = covariance / (covariance[0] or 1.0)
    by_offset = by_offset * (1 - LEAST_NOISE)
    by_offset[0] = 1.0
    ahead = np.zeros(n)
    ahead[0], left = 1.0, 1.0
    for k in range(1, n):
        reflection = -(by_offset[k:0:-1] @ ahead[:k]) / left
        ahead[1 : k + 1] += reflection * ahead[k - 1 :: -1][:k]
        left *= 1 - reflection**2
    ahead /= np.sqrt(left)
    behind = np.concatenate([[0.0], ahead[:0:-1]])
    inverse = np.outer(ahead, ahead) - np.outer(behind, behind)
    for row in range(1, n):
        inverse[row, 1:] += inverse[row - 1, :-1]
    return inverse
