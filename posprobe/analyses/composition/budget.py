"""The variance budget: what a table is made of, in shares that add up to its sum of squares.

The mean row, rows that stand apart and the levels of the parts between breaks are taken off
exactly. What is left of each long part is shared out by the additive model
(`posprobe.analyses.composition.mixture`), on a grid by that of grids
(`posprobe.analyses.composition.grid_model`).

The rotations among these parts have a record of their own: their circles, their clock, and whether
other parts share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.outlier_patches import replace_patches
from posprobe.analyses.breaks.seams import Seams, seams
from posprobe.analyses.breaks.stretches import all_stretches, find_stretch, long_stretches
from posprobe.analyses.composition.clocks import (
    MIN_CLOCK_TURNS,
    measure_lead,
    orient_forward,
)
from posprobe.analyses.composition.formulas import fit_sequence
from posprobe.analyses.composition.grid_model import GridModel, fit_grid
from posprobe.analyses.composition.paths import measure_path
from posprobe.analyses.composition.planes import MAX_PERIOD_RATIO, Rotation, RotationFit
from posprobe.analyses.facts import Number
from posprobe.analyses.linear import scaled_points
from posprobe.analyses.result import (
    HIDDEN,
    JsonType,
    Result,
    StoredArray,
    empty_array,
    record_numbers,
)
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Reasons
from posprobe.tables import PositionTable

PartName: TypeAlias = Literal[
    "rows",
    "columns",
    "rotation",
    "sway",
    "preferred",
    "line",
    "smooth",
    "slow",
    "walk",
    "rough",
    "alternating",
    "special",
    "breaks",
    "noise",
    "untrained",
    "other",
    "mean",
]
#: Terms in the order of a bar, where waves of equal kind are sorted with the fastest first.
BUDGET_TERMS: tuple[PartName, ...] = get_args(PartName)
#: Unit of every number that is a share.
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
        Period of a wave, in positions; None of other parts, and of the rotations of a formula,
        which are one part.
    error
        Half the width of an interval that held 95 % of planted shares or more, given that the table
        has this part; None where no such interval is known, or the model does not explain it.
    ranges
        Smallest and largest share of each family of slow changes that cannot be told apart; None
        for other parts.
    """

    part: PartName
    share: float
    period: float | None = None
    error: float | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None

    def scale(self, factor: float) -> Share:
        """Return the part with its shares, without error, times a factor."""
        ranges = self.ranges and {
            name: (low * factor, high * factor)
            for name, (low, high) in self.ranges.items()
        }
        return replace(self, share=self.share * factor, ranges=ranges)


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
    slow
        Share of a smooth curve and a random walk or rough part that cannot be told apart.
    alternating
        Share of the part that changes sign from row to row.
    noise
        Share of independent rows.
    special, breaks
        Shares of outlier rows, and of the levels of the parts between breaks.
    rows, columns
        Shares of the row code and of the column code, on a grid.
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
    missing_reason: ClassVar[str] = "the table has no such part"

    parts: Annotated[tuple[Share, ...], ""]
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    mean: Annotated[float | None, Number("mean row", SHARE_UNIT)] = None
    rotation: Annotated[float | None, Number("rotations", SHARE_UNIT)] = None
    sway: Annotated[float | None, Number("waves along one direction", SHARE_UNIT)] = None
    preferred: Annotated[
        float | None, Number("noise with a preferred period", SHARE_UNIT)
    ] = None
    line: Annotated[float | None, Number("straight line", SHARE_UNIT)] = None
    smooth: Annotated[float | None, Number("smooth part", SHARE_UNIT)] = None
    slow: Annotated[float | None, Number("slow changes", SHARE_UNIT)] = None
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
    misfit: Annotated[
        float | None, Number("misfit", "share of the variance misplaced")
    ] = None
    typical_misfit: float | None = None
    misfit_p: float | None = None
    explained: bool | None = None
    spectrum: Annotated[Floats, StoredArray("budget_spectrum")] = field(
        default_factory=empty_array
    )
    undefined: Annotated[str, JsonType(Reasons)] = ""

    def around_mean(self) -> tuple[Share, ...]:
        """Return the parts but for the mean row, as shares of the variance around it."""
        terms = [term for term in self.parts if term.part != "mean"]
        total = sum(term.share for term in terms) or 1.0
        return tuple(term.scale(1 / total) for term in terms)


def stretch_parts(fit: RotationFit) -> tuple[Share, ...]:
    """Return the parts of a stretch as shares of its variance, in the order of `BUDGET_TERMS`."""
    ledger = _Ledger(1.0)
    ledger.add_model(1.0, fit, fit)
    return ledger.parts()


#: Names of the parts for the reader.
BUDGET_LABELS: Mapping[str, str] = {
    key: number.label for key, number, _ in record_numbers(Budget)
}


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
    >>> budget = pp.budget(pp.load("sample:all-minilm-l6-v2"))
    >>> f"{budget.rotation:.2f}"
    '0.57'
    """
    given_positions = positions(table)
    layout, start = given_positions.layout, given_positions.start
    values = to_numpy(given_positions.values).astype(np.float64)
    if not values.any():
        return Budget((), layout, start, undefined="all rows are zero")
    values = values / np.abs(values).max()  # no square overflows or vanishes
    found_seams = breaks or seams(replace(given_positions, values=values))
    if isinstance(layout, Grid):
        patches = patches or _fit_grid_model(values, found_seams, layout)
        models = {}
    elif models is None:
        models = {
            run: fit_sequence(values[slice(*run)], 0)
            for run in long_stretches(found_seams)
        }
    # Where one model covers all rows, none is an outlier.
    is_undivided = (0, len(values)) in models
    outlier_rows = (
        [] if is_undivided else [outlier.row for outlier in found_seams.special]
    )
    ordinary_rows = np.delete(np.arange(len(values)), outlier_rows)
    mean, level = values.mean(axis=0), values[ordinary_rows].mean(axis=0)
    ledger = _Ledger(float(np.square(values).sum()))
    ledger.add("mean", len(values) * float(mean @ mean))
    # Outlier rows move the mean, too: they account for its distance from all other rows.
    mean_shift = len(ordinary_rows) * float(np.square(level - mean).sum())
    outlier_amount = float(np.square(values[outlier_rows] - mean).sum())
    ledger.add("special", outlier_amount + mean_shift * bool(outlier_rows))
    main_fit = RotationFit()
    if isinstance(layout, Grid):
        grid_shares = {"other": 1.0} if patches is None else patches.shares
        amount = float(np.square(values[ordinary_rows] - level).sum())
        ledger.add_shares(amount, grid_shares)
    else:
        longest_run = max(models, key=lambda run: run[1] - run[0], default=None)
        main_fit = models[longest_run] if longest_run else main_fit
        _add_sections(ledger, values, ordinary_rows, found_seams, models, main_fit)
    return _describe_budget(ledger, main_fit, layout, start)


def _add_sections(
    ledger: _Ledger,
    values: Floats,
    ordinary_rows: NDArray[np.intp],
    found_seams: Seams,
    models: Mapping[tuple[int, int], RotationFit],
    main_fit: RotationFit,
) -> None:
    """Add the levels of the sections between seams to a ledger, and what each stretch varies by.

    Parameters
    ----------
    ledger
        Sums of squares, which are added to.
    values, ordinary_rows
        ``[n, d]``, and the indices of its rows that are no outliers.
    found_seams, models, main_fit
        Seams of the table, the model of each long part, and that of the longest.
    """
    is_undivided = (0, len(values)) in models
    untrained_row = None if is_undivided else found_seams.untrained
    level = values[ordinary_rows].mean(axis=0)
    right_rows = [right_row for _, right_row in found_seams.between]
    for first_row, stop in pairwise([0, *right_rows, len(values)]):
        is_inside = (ordinary_rows >= first_row) & (ordinary_rows < stop)
        section_rows = ordinary_rows[is_inside]
        if not len(section_rows):
            continue
        section_level = values[section_rows].mean(axis=0)
        break_amount = float(np.square(section_level - level).sum())
        ledger.add("breaks", len(section_rows) * break_amount)
        runs = (
            [(first_row, stop)]
            if is_undivided
            else [run for run in all_stretches(found_seams) if first_row <= run[0] < stop]
        )
        for run in runs:
            # Where outlier rows alone part them, levels of stretches are slow changes.
            amount = float(np.square(values[slice(*run)] - section_level).sum())
            if untrained_row is not None and run[0] >= untrained_row:
                ledger.add("untrained", amount)
            else:
                fit = main_fit if is_undivided else models.get(run, RotationFit())
                ledger.add_model(amount, fit, main_fit)


@dataclass(frozen=True, eq=False)
class _Ledger:
    """Sums of squares by term and period, and squared errors of the shares by term.

    Parameters
    ----------
    total
        Sum of squares of the table.
    amounts
        Sum of squares of each term, by its name and period.
    squared_errors
        Squares of the errors of the shares, by term.
    slow_ranges
        Smallest and largest share of the families of slow changes.
    """

    total: float
    amounts: dict[tuple[PartName, float | None], float] = field(default_factory=dict)
    squared_errors: dict[str, float] = field(default_factory=dict)
    slow_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, part: PartName, amount: float, period: float | None = None) -> None:
        """Add a sum of squares to a term."""
        if amount > 0:
            self.amounts[part, period] = self.amounts.get((part, period), 0.0) + amount

    def add_shares(self, amount: float, shares: Mapping[str, float]) -> None:
        """Share out a sum of squares among families."""
        for name, share in shares.items():
            self.add(cast(PartName, name), share * amount)

    def add_model(self, amount: float, fit: RotationFit, main_fit: RotationFit) -> None:
        """Share out what one stretch varies by, with the errors of its shares.

        Its rotations count with those of like period in the main fit.
        """
        if fit.model is None:
            self.add("other", amount)
        else:
            if fit.formula is not None:
                self.add("rotation", fit.formula.share * amount)
            for rotation in fit.rotations if fit.formula is None else ():
                period = _nearest_period(rotation, main_fit)
                name: PartName = "rotation" if rotation.is_circular else "sway"
                self.add(name, rotation.share * amount, period)
            for hump in fit.humps:
                self.add("preferred", hump.share * amount, hump.period)
            self.add_shares(amount, fit.families)
        for term, error in _share_errors(fit).items():
            squared_error = (error * amount / self.total) ** 2
            self.squared_errors[term] = self.squared_errors.get(term, 0.0) + squared_error
        for family, (low, high) in fit.slow_ranges.items():
            total_low, total_high = self.slow_ranges.get(family, (0.0, 0.0))
            share = amount / self.total
            self.slow_ranges[family] = total_low + low * share, total_high + high * share

    def parts(self) -> tuple[Share, ...]:
        """Return every part with its share, in the order of `BUDGET_TERMS`."""
        errors = {
            term: float(np.sqrt(square)) for term, square in self.squared_errors.items()
        }
        terms = [
            Share(
                name,
                amount / self.total,
                period,
                errors.get(name),
                dict(self.slow_ranges) if name == "slow" else None,
            )
            for (name, period), amount in self.amounts.items()
        ]
        terms.sort(key=lambda term: (BUDGET_TERMS.index(term.part), term.period or 0.0))
        return tuple(terms)


def _nearest_period(rotation: Rotation, main_fit: RotationFit) -> float:
    """Return the period of the main fit that is nearest to a rotation's, or its own."""
    ratios = {line.period: line.period / rotation.period for line in main_fit.rotations}
    similar = [
        period
        for period, ratio in ratios.items()
        if 1 / MAX_PERIOD_RATIO < ratio < MAX_PERIOD_RATIO
    ]
    return min(
        similar, key=lambda period: abs(np.log(ratios[period])), default=rotation.period
    )


def _describe_budget(
    ledger: _Ledger, main_fit: RotationFit, layout: Layout, start: int
) -> Budget:
    terms = ledger.parts()
    shares: dict[str, float] = {}
    for term in terms:
        shares[term.part] = shares.get(term.part, 0.0) + term.share
    spectrum = main_fit.spectrum
    budget = Budget(terms, layout, start, spectrum=spectrum, **shares)  # type: ignore[arg-type]
    misfit = main_fit.misfit
    if misfit is None:
        return budget
    return replace(
        budget,
        misfit=misfit.amount,
        typical_misfit=misfit.typical_amount,
        misfit_p=misfit.p,
        explained=misfit.is_explained,
    )


def _share_errors(fit: RotationFit) -> Mapping[str, float]:
    """Return the errors of shares, where planted tables show that they cover the truth.

    There are none beside circles of changing pace, nor for a fit that does not explain the table.
    """
    misfit = fit.misfit
    if misfit is None or not misfit.is_explained:
        return {}
    if any(rotation.pace != "fixed" for rotation in fit.rotations):
        return {}
    return {
        name: error
        for name, error in misfit.errors.items()
        if name not in fit.slow_ranges
    }


def _fit_grid_model(values: Floats, found_seams: Seams, grid: Grid) -> GridModel | None:
    outlier_rows = [outlier.row for outlier in found_seams.special]
    patches = np.asarray(
        replace_patches(values, outlier_rows, grid.height, grid.width, np)
    )
    if not scaled_points(patches).any():
        return None
    return fit_grid(patches, grid.height, grid.width, 0)


#: Reason why there is no clock.
NO_ROTATIONS_REASON = "there are no rotations"
#: Reason why there is no clock of a formula.
DENSE_ROTATIONS_REASON = "its rotations are too close in period to be told apart"


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
        reason = DENSE_ROTATIONS_REASON if fit.formula else NO_ROTATIONS_REASON
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
