"""Whether other parts of a table go round in the planes of its longest part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from posprobe.analyses.sequences.planes import Turning, measured_path
from posprobe.arrays import Floats

#: Turns of a rotation within a part from which it is seen to go round there.
TURNS = 2.0


@dataclass(frozen=True)
class SamePlanes:
    """A part of a table in the planes of another.

    Parameters
    ----------
    first, last
        Positions of the part.
    held
        Share of the part's variance that lies in those planes. Random planes, as many, would hold
        the share of the columns that they span.
    around, rotations
        In how many of the planes the part goes round, of those in which it makes `TURNS` turns.
    """

    first: int
    last: int
    held: float
    around: int
    rotations: int


def same_planes(
    found: Turning, values: Floats, runs: Iterable[tuple[int, int]], start: int
) -> tuple[SamePlanes, ...]:
    """Return the parts that go round in most of the planes of another part.

    Parameters
    ----------
    found
        What goes round in the other part.
    values
        ``[N, d]``: all rows of the table.
    runs
        First row and stop of each part.
    start
        Position of the first row.
    """
    told = [k for k, each in enumerate(found.rotations) if each.round]
    same = []
    for first, stop in runs:
        points = values[first:stop] - values[first:stop].mean(axis=0)
        total = float(np.square(points).sum())
        paths = [
            measured_path(points @ found.planes[k].T)
            for k in told
            if (stop - first) / found.rotations[k].period >= TURNS
        ]
        around = sum(path.round for path in paths)
        if 2 * around > len(paths) and total > 0:
            basis = np.linalg.qr(np.concatenate(found.planes[told]).T)[0]
            held = float(np.square(points @ basis).sum()) / total
            same.append(SamePlanes(start + first, start + stop - 1, held, around, len(paths)))
    return tuple(same)
