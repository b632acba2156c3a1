"""Stretches of a table that go round in the planes of another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from posprobe.analyses.composition.paths import measure_path
from posprobe.analyses.composition.planes import RotationFit
from posprobe.arrays import Floats

#: A rotation is tested within a stretch where it makes this many turns: a smooth curve makes one,
#: and a walk 0.75.
MIN_STRETCH_TURNS = 2.0


@dataclass(frozen=True)
class SharedPlanes:
    """A stretch of a table in the planes of another.

    Parameters
    ----------
    first, last
        Positions of the stretch.
    held
        Share of the stretch's variance that lies in those planes. Random planes, as many, would
        hold the share of the columns that they span.
    around
        Number of the planes in which the stretch goes round.
    rotations
        Number of the planes that were tested: those of which it makes `MIN_STRETCH_TURNS` turns.
    """

    first: int
    last: int
    held: float
    around: int
    rotations: int


def find_shared_planes(
    fit: RotationFit, values: Floats, runs: Iterable[tuple[int, int]], start: int
) -> tuple[SharedPlanes, ...]:
    """Return the stretches that go round in more than half of the planes that were tested.

    A plane of the other stretch is tested where a stretch is long enough for `MIN_STRETCH_TURNS`
    of its turns.

    Parameters
    ----------
    fit
        Rotations of the other stretch.
    values
        ``[N, d]``: all rows of the table.
    runs
        First row and stop of each stretch.
    start
        Position of the first row.
    """
    circular = [k for k, rotation in enumerate(fit.rotations) if rotation.is_circular]
    shared_planes = []
    for first_row, stop in runs:
        n_rows = stop - first_row
        points = values[first_row:stop] - values[first_row:stop].mean(axis=0)
        total = float(np.square(points).sum())
        paths = [
            measure_path(points @ fit.planes[k].T)
            for k in circular
            if n_rows / fit.rotations[k].period >= MIN_STRETCH_TURNS
        ]
        n_rotations = sum(path.is_rotation for path in paths)
        if 2 * n_rotations > len(paths) and total > 0:
            basis = np.linalg.qr(np.concatenate(fit.planes[circular]).T)[0]
            share = float(np.square(points @ basis).sum()) / total
            last_position = start + stop - 1
            shared_planes.append(
                SharedPlanes(
                    start + first_row, last_position, share, n_rotations, len(paths)
                )
            )
    return tuple(shared_planes)
