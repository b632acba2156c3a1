"""The variance budget: what a table is made of, in shares that add up to its sum of squares.

The mean row, rows that stand apart and the levels of the parts between breaks are taken off
exactly. What is left of each long part is shared out by the additive model
(`posprobe.analyses.composition.mixture`), on a grid by that of grids
(`posprobe.analyses.composition.grid_model`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.outlier_patches import replace_patches
from posprobe.analyses.breaks.seams import Seams, seams
from posprobe.analyses.breaks.stretches import all_stretches, long_stretches
from posprobe.analyses.composition.formulas import fit_sequence
from posprobe.analyses.composition.grid_model import GridModel, fit_grid
from posprobe.analyses.composition.ledger import Ledger, Share
from posprobe.analyses.composition.planes import RotationFit
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

#: Unit of every number that is a share.
SHARE_UNIT = "share of the sum of squares"


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
    ledger = Ledger(float(np.square(values).sum()))
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
    ledger: Ledger,
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


def _describe_budget(
    ledger: Ledger, main_fit: RotationFit, layout: Layout, start: int
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


def _fit_grid_model(values: Floats, found_seams: Seams, grid: Grid) -> GridModel | None:
    outlier_rows = [outlier.row for outlier in found_seams.special]
    patches = np.asarray(
        replace_patches(values, outlier_rows, grid.height, grid.width, np)
    )
    if not scaled_points(patches).any():
        return None
    return fit_grid(patches, grid.height, grid.width, 0)
