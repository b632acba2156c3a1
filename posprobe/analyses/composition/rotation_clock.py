"""The rotations of a table, and whether they read one clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from posprobe.analyses.breaks.seams import seams
from posprobe.analyses.breaks.stretches import find_stretch
from posprobe.analyses.composition.clocks import (
    MIN_CLOCK_TURNS,
    measure_lead,
    orient_forward,
)
from posprobe.analyses.composition.formulas import fit_sequence
from posprobe.analyses.composition.planes import RotationFit
from posprobe.analyses.facts import Number
from posprobe.analyses.linear import scaled_points
from posprobe.analyses.result import HIDDEN, JsonType, Result, StoredArray, empty_array
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Reasons
from posprobe.tables import PositionTable

#: Reason why there is no clock.
NO_ROTATIONS_REASON = "there are no rotations"
#: Reason why there is no clock of a formula.
UNSEPARATED_ROTATIONS_REASON = "no rotation of the formula stands out by itself"


@dataclass(frozen=True, eq=False, repr=False)
class Clock(Result):
    """The rotations of a table, and the function of position that their phases follow.

    Parameters
    ----------
    periods
        Periods of the rotations, fastest first, in positions.
    ratios
        Ratio of each period to the previous one.
    lock
        Agreement of the phase of each rotation with that of the next one, times the nearest whole
        number to their ratio: 1 where it follows exactly, about 0 where it does not.
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
    lead
        ``[r, n]``: how far the angle of each rotation is ahead of an even pace, in positions; NaN
        for rotations of fewer than `MIN_CLOCK_TURNS` turns, which everything smooth bends.
    first
        Position of the first of these rows.
    layout
        Layout of the positions.
    undefined
        Reason why there are no numbers, or empty.
    """

    figures: ClassVar[str] = "frequencies.plot_clock"
    missing_reason: ClassVar[str] = "there is a single rotation"

    layout: Annotated[Layout, HIDDEN]
    periods: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    lock: tuple[float, ...] = ()
    shared: bool | None = None
    fixed: float | None = None
    one: Annotated[
        float | None, Number("explained by one clock", "share of their planes' variance")
    ] = None
    own: float | None = None
    evidence: float | None = None
    variation: float | None = None
    speed: Annotated[Floats, StoredArray("clock_speed")] = field(
        default_factory=empty_array
    )
    paths: Annotated[Floats, StoredArray("rotation_paths")] = field(
        default_factory=empty_array
    )
    lead: Annotated[Floats, StoredArray("clock_lead")] = field(
        default_factory=empty_array
    )
    first: Annotated[int, HIDDEN] = 0
    undefined: Annotated[str, JsonType(Reasons)] = ""


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
    >>> clock = pp.clock(pp.load("sample:all-minilm-l6-v2"))
    >>> [f"{ratio:.2f}" for ratio in clock.ratios]
    ['3.00', '3.00', '3.00']
    """
    given_positions = positions(table)
    values = to_numpy(given_positions.values).astype(np.float64)
    values = values / (np.abs(values).max() or 1.0)  # no square overflows or vanishes
    rows = find_stretch(seams(replace(given_positions, values=values))).rows
    layout, first_position = given_positions.layout, given_positions.start + rows.start
    points = scaled_points(values[rows])
    fit = RotationFit() if isinstance(layout, Grid) else fit_sequence(values[rows], 0)
    return describe_clock(fit, points, layout, first_position)


def describe_clock(
    fit: RotationFit, points: Floats, layout: Layout, first_position: int
) -> Clock:
    """Describe the clock of the rotations.

    Parameters
    ----------
    fit
        Rotations of the rows.
    points
        ``[n, d]``, centred: the rows that they were found in.
    layout
        Layout of the positions of the whole table.
    first_position
        Position of the first of the rows.
    """
    circular = [k for k, rotation in enumerate(fit.rotations) if rotation.is_circular]
    if not circular:
        reason = UNSEPARATED_ROTATIONS_REASON if fit.formula else NO_ROTATIONS_REASON
        return Clock(layout, first=first_position, undefined=reason)
    paths = np.stack([points @ fit.planes[k].T for k in circular])
    periods = np.array([fit.rotations[k].period for k in circular])
    ratios = periods[1:] / periods[:-1]
    z = orient_forward(paths[..., 0] + 1j * paths[..., 1])
    phases = np.angle(z)
    phase_differences = phases[:-1] - np.round(ratios)[:, None] * phases[1:]
    lock = np.abs(np.exp(1j * phase_differences).mean(axis=1))
    clock = Clock(
        layout,
        periods=tuple(periods.tolist()),
        ratios=tuple(ratios.tolist()),
        lock=tuple(lock.tolist()),
        paths=paths,
        first=first_position,
    )
    clock_fit = fit.clock
    if clock_fit is None:
        return clock
    speed = clock_fit.speed
    is_slow = MIN_CLOCK_TURNS * periods > len(points)
    return replace(
        clock,
        shared=clock_fit.is_shared,
        fixed=clock_fit.fixed_share,
        one=clock_fit.one_clock_share,
        own=clock_fit.own_clocks_share,
        evidence=clock_fit.evidence,
        speed=speed,
        lead=np.where(is_slow[:, None], np.nan, measure_lead(z)),
        variation=float(speed.max() - speed.min()) / 2,
    )
