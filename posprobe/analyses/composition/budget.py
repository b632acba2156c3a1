"""The variance budget: what a table is made of, in shares that add up to its sum of squares.

The mean row, rows that stand apart and the levels of the parts between breaks are taken off
exactly. What is left of each long part is shared out by the additive model
(`posprobe.analyses.composition.mixture`), on a grid by that of grids
(`posprobe.analyses.composition.grid_model`).

The rotations among these parts have a record of their own: their circles, their clock, and whether
other parts share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, TypeAlias, cast, get_args

import numpy as np

from posprobe.analyses.breaks.outliers import without
from posprobe.analyses.breaks.seams import Seams, long_runs, runs, seams, stretch
from posprobe.analyses.composition.grid_model import GridModel, fit_grid
from posprobe.analyses.composition.planes import (
    MAX_PERIOD_RATIO,
    RotationFit,
    find_rotations,
    measure_path,
    orient_forward,
)
from posprobe.analyses.facts import Number
from posprobe.analyses.linear import scaled_points
from posprobe.analyses.result import HIDDEN, As, Result, Stored, nothing, numbers_of
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Reasons
from posprobe.tables import PositionTable

PartName: TypeAlias = Literal[
    "rows", "columns", "rotation", "sway", "preferred", "line", "smooth", "walk", "rough",
    "alternating", "special", "breaks", "noise", "untrained", "other", "mean",
]  # fmt: skip
#: In the order of a bar; waves of equal kind fastest first.
BUDGET_TERMS: tuple[PartName, ...] = get_args(PartName)
SHARE_UNIT = "share of the sum of squares"


@dataclass(frozen=True)
class Share:
    """A part of a table and its share of the sum of squares.

    Parameters
    ----------
    part
        Name of the part.
    share
        Share of the sum of squares of all numbers of the table.
    period
        Period of a wave, in positions.
    error
        Half the width of an interval that held 95 % of planted shares or more, given that the table
        has this part; None where no such interval is known, or the model does not explain it.
    """

    part: PartName
    share: float
    period: float | None = None
    error: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Budget(Result):
    """What a table is made of. All shares are of its sum of squares, and add up to 1.

    Parameters
    ----------
    parts
        Every part, in the order of `BUDGET_TERMS`.
    mean
        Share of the mean row, which all positions have in common.
    rotation, sway
        Shares of planes in which the table goes round, and of waves along one direction.
    preferred
        Share of noise that prefers a period.
    line, smooth, walk, rough
        Shares of a straight line, of a smooth curve, of a random walk, and of a curve that is
        similar from row to row but not smooth.
    alternating
        Share of the part that changes sign from row to row.
    noise
        Share of independent rows.
    special, breaks
        Shares of outlier rows, and of the levels of the parts between breaks.
    rows, columns
        On a grid, of the row code and of the column code.
    untrained, other
        Shares of rows that look untrained, and of rows in parts too short to measure.
    misfit, typical_misfit, misfit_p
        Fit of the longest part: share of its variance that the model misplaces among frequencies,
        the median for tables drawn from the model, and the frequency with which those misplace as
        much.
    explained
        Whether that is no more than chance; None of grids and of parts too short to measure.
    spectrum
        ``[3, n - 1]``: of the longest part, the share of the variance in each bin of the cosine
        transform, its mean in the best fit without waves, and the independent columns there.
    layout, start
        Layout and first of the positions.
    undefined
        Reason why there are no numbers, or empty.
    """

    figures: ClassVar[str] = "fits.plot_budget"
    why: ClassVar[str] = "the table has no such part"

    parts: Annotated[tuple[Share, ...], ""]
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    mean: Annotated[float | None, Number("mean row", SHARE_UNIT)] = None
    rotation: Annotated[float | None, Number("rotations", SHARE_UNIT)] = None
    sway: Annotated[float | None, Number("waves along one direction", SHARE_UNIT)] = None
    preferred: Annotated[float | None, Number("noise with a preferred period", SHARE_UNIT)] = None
    line: Annotated[float | None, Number("straight line", SHARE_UNIT)] = None
    smooth: Annotated[float | None, Number("smooth part", SHARE_UNIT)] = None
    walk: Annotated[float | None, Number("random walk", SHARE_UNIT)] = None
    rough: Annotated[float | None, Number("rough part", SHARE_UNIT)] = None
    alternating: Annotated[float | None, Number("alternating signs", SHARE_UNIT)] = None
    noise: Annotated[float | None, Number("noise", SHARE_UNIT)] = None
    special: Annotated[float | None, Number("outlier rows", SHARE_UNIT)] = None
    breaks: Annotated[float | None, Number("breaks", SHARE_UNIT)] = None
    rows: Annotated[float | None, Number("row code", SHARE_UNIT)] = None
    columns: Annotated[float | None, Number("column code", SHARE_UNIT)] = None
    untrained: Annotated[float | None, Number("untrained rows", SHARE_UNIT)] = None
    other: Annotated[float | None, Number("short parts", SHARE_UNIT)] = None
    misfit: Annotated[float | None, Number("misfit", "share of the variance misplaced")] = None
    typical_misfit: float | None = None
    misfit_p: float | None = None
    explained: bool | None = None
    spectrum: Annotated[Floats, Stored("budget_spectrum")] = field(default_factory=nothing)
    undefined: Annotated[str, As(Reasons)] = ""

    def around_mean(self) -> tuple[Share, ...]:
        """Return the parts but for the mean row, as shares of the variance around it."""
        rest = [each for each in self.parts if each.part != "mean"]
        whole = sum(each.share for each in rest) or 1.0
        return tuple(replace(each, share=each.share / whole) for each in rest)


#: The parts, as a reader calls them.
BUDGET_LABELS: Mapping[str, str] = {key: number.label for key, number, _ in numbers_of(Budget)}


def budget(
    table: PositionTable | Positions | Array,
    *,
    breaks: Seams | None = None,
    models: Mapping[tuple[int, int], RotationFit] | None = None,
    patches: GridModel | None = None,
) -> Budget:
    """Share out the sum of squares of a table among what it is made of.

    Parameters
    ----------
    table
        ``[n, d]``.
    breaks
        Its seams and special rows where they are known already.
    models
        The model of each long part, by its first row and the stop, where they are known already.
    patches
        The model of a grid, without special patches, where it is known already.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> found = pp.budget(pp.load("sample:all-minilm-l6-v2"))
    >>> f"{found.rotation:.2f}"
    '0.57'
    """
    given = positions(table)
    values = to_numpy(given.values).astype(np.float64)
    if not values.any():
        return Budget((), given.layout, given.start, undefined="all rows are zero")
    values = values / np.abs(values).max()  # no square overflows or vanishes
    found = seams(replace(given, values=values)) if breaks is None else breaks
    if isinstance(given.layout, Grid):
        patches = patches or _fit_grid_model(values, found, given.layout)
        models = {}
    elif models is None:
        models = {
            run: find_rotations(scaled_points(values[slice(*run)]), 0) for run in long_runs(found)
        }
    # Where all rows are looked at together none is an outlier.
    together = (0, len(values)) in models
    special = [] if together else [each.row for each in found.special]
    plain = np.delete(values, special, axis=0)
    middle, level = values.mean(axis=0), plain.mean(axis=0)
    shares: dict[tuple[PartName, float | None], float] = {}
    squares: dict[str, float] = {}
    turning = RotationFit()

    def add(part: PartName, amount: float, period: float | None = None) -> None:
        if amount > 0:
            shares[part, period] = shares.get((part, period), 0.0) + amount

    whole = float(np.square(values).sum())
    add("mean", len(values) * float(middle @ middle))
    # Outlier rows move the mean, too: what all others are off it by is theirs.
    moved = len(plain) * float(np.square(level - middle).sum())
    add("special", float(np.square(values[special] - middle).sum()) + moved * bool(special))
    if isinstance(given.layout, Grid):
        amount = float(np.square(plain - level).sum())
        held = {"other": 1.0} if patches is None else patches.shares
        for name, share in held.items():
            add(cast(PartName, name), share * amount)
    else:
        longest = max(models, key=lambda run: run[1] - run[0], default=None)
        turning = models[longest] if longest else turning
        for run in [(0, len(values))] if together else runs(found):
            part = values[slice(*run)]
            add("breaks", len(part) * float(np.square(part.mean(axis=0) - level).sum()))
            inside = part - part.mean(axis=0)
            amount = float(np.square(inside).sum())
            if found.untrained is not None and run[0] >= found.untrained and not together:
                add("untrained", amount)
            else:
                own = models.get(run, RotationFit())
                _add_waves(amount, own, turning, add)
                for name, error in _share_errors(own).items():
                    squares[name] = squares.get(name, 0.0) + (error * amount / whole) ** 2
    errors = {name: float(np.sqrt(square)) for name, square in squares.items()}
    parts = [
        Share(name, amount / whole, period, errors.get(name))
        for (name, period), amount in shares.items()
    ]
    parts.sort(key=lambda each: (BUDGET_TERMS.index(each.part), each.period or 0.0))
    total: dict[str, float] = {}
    for each in parts:
        total[each.part] = total.get(each.part, 0.0) + each.share
    told = Budget(tuple(parts), given.layout, given.start, spectrum=turning.spectrum, **total)  # type: ignore[arg-type]
    if (off := turning.misfit) is None:
        return told
    return replace(
        told, misfit=off.amount, typical_misfit=off.typical_amount, misfit_p=off.p,
        explained=off.is_explained,
    )  # fmt: skip


def _share_errors(found: RotationFit) -> Mapping[str, float]:
    """Return the errors of shares, where planted tables show that they cover the truth.

    Not beside circles of changing pace, nor of a fit that does not explain the table.
    """
    off = found.misfit
    if off is None or not off.is_explained or any(one.pace != "fixed" for one in found.rotations):
        return {}
    return off.errors


def _fit_grid_model(values: Floats, found: Seams, grid: Grid) -> GridModel | None:
    special = [each.row for each in found.special]
    cells = np.asarray(without(values, special, grid.height, grid.width, np))
    if not scaled_points(cells).any():
        return None
    return fit_grid(cells, grid.height, grid.width, 0)


def _add_waves(
    amount: float, found: RotationFit, main: RotationFit, add: Callable[..., None]
) -> None:
    """Share out what one part varies by; its rotations count with those of like period."""
    if found.model is None:
        add("other", amount)
        return
    for each in found.rotations:
        near = [
            one
            for one in main.rotations
            if 1 / MAX_PERIOD_RATIO < one.period / each.period < MAX_PERIOD_RATIO
        ]
        like = min(near, key=lambda one: abs(np.log(one.period / each.period)), default=each)
        add("rotation" if each.is_circular else "sway", each.share * amount, like.period)
    for hump in found.humps:
        add("preferred", hump.share * amount, hump.period)
    for name, share in found.families.items():
        add(name, share * amount)


#: Why there is no clock.
NO_ROTATIONS_REASON = "there are no rotations"


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
    first
        Position of the first of these rows.
    layout
        Layout of the positions.
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
        float | None, Number("explained by one clock", "share of their planes' variance")
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
    points = scaled_points(values[rows])
    turning = RotationFit() if on_grid else find_rotations(points, 0)
    return describe_clock(turning, points, given.layout, given.start + rows.start)


def describe_clock(found: RotationFit, points: Floats, layout: Layout, first: int) -> Clock:
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
    told = [k for k, each in enumerate(found.rotations) if each.is_circular]
    if not told:
        return Clock(layout, first=first, undefined=NO_ROTATIONS_REASON)
    paths = np.stack([points @ found.planes[k].T for k in told])
    periods = np.array([found.rotations[k].period for k in told])
    ratios = periods[1:] / periods[:-1]
    phases = np.angle(orient_forward(paths[..., 0] + 1j * paths[..., 1]))
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
        known, shared=fitted.is_shared, fixed=fitted.fixed_share, one=fitted.one_clock_share, own=fitted.own_clocks_share,
        evidence=fitted.evidence, speed=speed,
        variation=float(speed.max() - speed.min()) / 2,
    )  # fmt: skip


#: Turns of a rotation within a part from which it is seen to go round there: a smooth curve makes
#: one, and a walk 0.75.
MIN_STRETCH_TURNS = 2.0


@dataclass(frozen=True)
class SharedPlanes:
    """A part of a table in the planes of another.

    Parameters
    ----------
    first, last
        Positions of the part.
    held
        Share of the part's variance that lies in those planes. Random planes, as many, would hold
        the share of the columns that they span.
    around, rotations
        In how many of the planes the part goes round, of those in which it makes `MIN_STRETCH_TURNS` turns.
    """

    first: int
    last: int
    held: float
    around: int
    rotations: int


def find_shared_planes(
    found: RotationFit, values: Floats, runs: Iterable[tuple[int, int]], start: int
) -> tuple[SharedPlanes, ...]:
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
    told = [k for k, each in enumerate(found.rotations) if each.is_circular]
    same = []
    for first, stop in runs:
        points = values[first:stop] - values[first:stop].mean(axis=0)
        total = float(np.square(points).sum())
        paths = [
            measure_path(points @ found.planes[k].T)
            for k in told
            if (stop - first) / found.rotations[k].period >= MIN_STRETCH_TURNS
        ]
        around = sum(path.is_rotation for path in paths)
        if 2 * around > len(paths) and total > 0:
            basis = np.linalg.qr(np.concatenate(found.planes[told]).T)[0]
            held = float(np.square(points @ basis).sum()) / total
            same.append(SharedPlanes(start + first, start + stop - 1, held, around, len(paths)))
    return tuple(same)
