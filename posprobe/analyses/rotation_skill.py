"""What each rotation of a table predicts of rows that were left out, beside all else that it has.

All else is the mean, a smooth Gaussian process and the other rotations, fitted to the rows that are
known (universal kriging: Rasmussen & Williams 2006, section 2.7); the kernel and the periods are
those of all rows. Rows are left out in blocks as long as half the rotation's period, over which no
smooth curve knows where it has turned to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from posprobe.analyses.bridging import leave_out
from posprobe.analyses.closeness import Floats
from posprobe.analyses.slow_rotation import SLOW_ROWS, SLOW_TURNS, Rotation
from posprobe.analyses.stationary import fit_kernel
from posprobe.analyses.toeplitz import toeplitz_inverse

#: Times that blocks of each length are left out, at other places.
ROUNDS = 3
#: Rows that fast rotations are measured on, in the middle; slow ones on every n-th row.
ROWS = 512
#: Least and largest share of noise in the smooth part: below, its matrix cannot be inverted; above,
#: too little of the curve would be left to tell what a rotation tells.
LEAST_NOISE, MOST_NOISE = 1e-4, 0.5
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
    smooth part too, alone and with all slow ones: ``e0`` is the least of these errors. Rotations of
    many turns are measured on the middle `ROWS` rows, slow ones on every n-th row of all.

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
    window = _fit(coordinates[middle], beyond[middle], [w[middle] for w in waves], every)
    thin = max(1, n // SLOW_ROWS)
    fewer = coordinates[::thin], beyond[::thin], [wave[::thin] for wave in waves]
    kept = []
    for k, rotation in enumerate(rotations):
        others = every - {k}
        if k in slow:
            # Only with the wave left to it does the kernel say what a smooth curve can do.
            error, *without = (
                _errors(_fit(*fewer, left), rotation.period / thin, left)[0]
                for left in (every, others, every - slow)
            )
            least = min(without)
        else:
            error, least = _errors(window, rotation.period, every, others)
        if error < (1 - LEAST_SKILL) * least:
            kept.append(replace(rotation, skill=1 - error / least))
    return tuple(kept)


@dataclass(frozen=True, eq=False)
class _Model:
    """The mean and waves as fixed columns beside a smooth process.

    Parameters
    ----------
    inverse
        ``[n, n]`` of the smooth process's matrix.
    weighted, gram
        The inverse times all columns (constant, waves, coordinates), ``[n, k + r]``, and their
        products under it, ``[k + r, k + r]``.
    beyond
        ``[n]``: squares that lie beyond the coordinates.
    places
        Columns of the constant, and of each wave.
    """

    inverse: Floats
    weighted: Floats
    gram: Floats
    beyond: Floats
    places: list[list[int]]


def _fit(coordinates: Floats, beyond: Floats, waves: list[Floats], fitted: set[int]) -> _Model:
    """Fit the smooth part to what some of the waves leave.

    What lies beyond the leading directions is noise of the smooth part: the leading directions of
    any walk are smooth, and without noise such a curve would tell of every wave, too.
    """
    n = len(coordinates)
    edges = [1, *(1 + np.cumsum([wave.shape[1] for wave in waves])).tolist()]
    places = [[0], *(list(range(first, stop)) for first, stop in pairwise(edges))]
    columns = np.concatenate([np.full((n, 1), n**-0.5), *waves, coordinates], axis=1)
    basis, _ = np.linalg.qr(columns[:, _chosen(places, fitted)])
    rest = coordinates - basis @ (basis.T @ coordinates)
    kernel = fit_kernel(rest).by_offset(n)
    outside = float(np.maximum(beyond, 0.0).sum())
    share = outside / (outside + float(np.square(rest).sum()) or 1.0)
    noise = min(max(share, LEAST_NOISE), MOST_NOISE)
    first = kernel / (kernel[0] or 1.0) * (1 - noise)
    first[0] = 1.0
    inverse = toeplitz_inverse(first)
    weighted = inverse @ columns
    return _Model(inverse, weighted, columns.T @ weighted, np.maximum(beyond, 0.0), places)


def _chosen(places: list[list[int]], waves: set[int]) -> list[int]:
    """Return the columns of the constant and of some waves."""
    return [*places[0], *(place for k in sorted(waves) for place in places[k + 1])]


def _errors(model: _Model, period: float, *sets: set[int]) -> list[float]:
    """Return the squared errors of rows left out, predicted with each of some sets of waves."""
    n = len(model.inverse)
    gap = max(min(2, n // 4), min(round(period / 2), n // 4))
    fixed = 1 + model.places[-1][-1]
    totals = [0.0] * len(sets)
    for turn in range(ROUNDS):
        fold = np.full(n, -1)
        leave_out(fold, 0, n, 0, gap, (turn + 0.5) / ROUNDS, max(n // (4 * gap), 1) == 1)
        rows = np.flatnonzero(fold >= 0)
        # What the known rows say of the missing, by blocks of the inverse, as in `predictors`.
        there = np.linalg.solve(model.inverse[np.ix_(rows, rows)], model.weighted[rows])
        known = model.gram - model.weighted[rows].T @ there
        for k, waves in enumerate(sets):
            chosen = _chosen(model.places, waves)
            gram = known[np.ix_(chosen, chosen)]
            gram = gram + 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
            amplitudes = np.linalg.solve(gram, known[chosen, fixed:])
            missed = there[:, fixed:] - there[:, chosen] @ amplitudes
            totals[k] += float(np.square(missed).sum() + model.beyond[rows].sum())
    return totals


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
