"""The rotations of a table: their circles, their clock, and whether other parts share them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, As, Result, Stored, nothing
from posprobe.analyses.sequences.clock_fit import forward
from posprobe.analyses.sequences.planes import Turning, measured_path
from posprobe.analyses.sequences.seams import seams
from posprobe.analyses.tables.cached import view
from posprobe.analyses.tables.stretch import stretch
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.schema import Reasons
from posprobe.tables import PositionTable

#: Why there is no clock.
NONE = "there are no rotations"


@dataclass(frozen=True, eq=False, repr=False)
class Clock(Result):
    """The rotations of a table, and the function of position that their phases follow.

    Parameters
    ----------
    periods
        Of the rotations, fastest first, in positions.
    ratios
        Of each period to the one before.
    lock
        How closely the phase of each rotation follows that of the next one, times the nearest whole
        number to their ratio: 1 where it does exactly, about 0 where it does not.
    shared
        Whether all read the same clock, and it does not run evenly; None of a single rotation, as
        are all numbers that follow.
    fixed, one, own
        Share of what lies in their planes that circles of fixed periods explain, circles that read
        one clock, and circles with a clock for each.
    evidence
        Logarithm, to base 10, of how many times likelier the phases are with one clock than with
        clocks of their own; 0 where fewer than two rotations are fast enough to tell.
    variation
        Half the difference of the fastest and the slowest speed of the clock, 1 being its mean.
    speed
        ``[n]``: of the clock, 1 on average.
    paths
        ``[r, n, 2]``: the rows along the two directions of each rotation's plane.
    first
        Position of the first of these rows.
    layout
        Of the positions.
    undefined
        Reason why there are no numbers, or empty.
    """

    figures: ClassVar[str] = "frequencies.plot_clock"
    why: ClassVar[str] = "there is a single rotation"

    layout: Annotated[Layout, HIDDEN]
    periods: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    lock: tuple[float, ...] = ()
    shared: bool | None = None
    fixed: float | None = None
    one: Annotated[
        float | None, Number("explained by one clock", "share of the rotations' planes")
    ] = None
    own: float | None = None
    evidence: float | None = None
    variation: float | None = None
    speed: Annotated[Floats, Stored("clock_speed")] = field(default_factory=nothing)
    paths: Annotated[Floats, Stored("rotation_paths")] = field(default_factory=nothing)
    first: Annotated[int, HIDDEN] = 0
    undefined: Annotated[str, As(Reasons)] = ""


def clock(table: PositionTable | Positions | Array) -> Clock:
    """Tell whether the rotations of a table read one clock.

    The longest part without breaks and outlier rows is measured.

    Parameters
    ----------
    table
        ``[n, d]``.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> found = pp.clock(pp.load("sample:all-minilm-l6-v2"))
    >>> [f"{ratio:.2f}" for ratio in found.ratios]
    ['3.00', '3.00', '3.00']
    """
    given = positions(table)
    values = to_numpy(given.values).astype(np.float64)
    values = values / (np.abs(values).max() or 1.0)  # no square overflows or vanishes
    rows = stretch(seams(replace(given, values=values))).rows
    on_grid = isinstance(given.layout, Grid)
    seen = view(values[rows])
    return clock_of(
        Turning() if on_grid else seen.turning, seen.points, given.layout, given.start + rows.start
    )


def clock_of(found: Turning, points: Floats, layout: Layout, first: int) -> Clock:
    """Describe the clock of what goes round.

    Parameters
    ----------
    found
        What does.
    points
        ``[n, d]``, centred: the rows that it was found in.
    layout
        Of the positions of the whole table.
    first
        Position of the first of the rows.
    """
    told = [k for k, each in enumerate(found.rotations) if each.round]
    if not told:
        return Clock(layout, first=first, undefined=NONE)
    paths = np.stack([points @ found.planes[k].T for k in told])
    periods = np.array([found.rotations[k].period for k in told])
    ratios = periods[1:] / periods[:-1]
    phases = np.angle(forward(paths[..., 0] + 1j * paths[..., 1]))
    apart = phases[:-1] - np.round(ratios)[:, None] * phases[1:]
    lock = np.abs(np.exp(1j * apart).mean(axis=1))
    known = Clock(
        layout, tuple(periods.tolist()), tuple(ratios.tolist()), tuple(lock.tolist()),
        paths=paths, first=first,
    )  # fmt: skip
    if (fitted := found.clock) is None:
        return known
    speed = fitted.speed
    return replace(
        known, shared=fitted.shared, fixed=fitted.fixed, one=fitted.one, own=fitted.own,
        evidence=fitted.evidence, speed=speed,
        variation=float(speed.max() - speed.min()) / 2,
    )  # fmt: skip


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
