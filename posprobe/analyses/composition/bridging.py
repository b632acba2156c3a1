"""Bridging: which rule predicts, from the rest of the table, rows that were left out.

A random walk is bridged by the straight line between its neighbours, the worse the wider the gap; a
smooth curve by a Gaussian process up to about its length scale, and then by nothing; a rotation by
its waves far beyond its own smoothness, and on past the end. So the rule that bridges wide gaps
says what the table is made of, where a spectrum or principal components cannot: those of walks and
smooth curves look like waves, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.mixture import cosine_power
from posprobe.analyses.composition.waves import (
    MIN_WAVE_ROWS,
    Waves,
    find_waves,
    fit_jointly,
    row_covariance,
)
from posprobe.analyses.descriptive.pca import (
    PCA,
    pca as principal_components,
    resolve_components,
)
from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, JsonType, Result, empty_array
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Reasons
from posprobe.tables import PositionTable

Rows: TypeAlias = NDArray[np.integer[Any]]
Mask: TypeAlias = NDArray[np.bool_]

#: Smallest share of noise in a process. With less, its matrix cannot be inverted in double
#: precision.
MIN_NOISE_SHARE = 1e-8
#: Share of the variance that the shift operator acts on; the rest is noise in trained tables.
SHIFT_VARIANCE_SHARE = 0.98
#: Largest rank of the shift operator, as each direction costs eight known rows.
MAX_SHIFT_RANK = 32


def interpolate_rows(curve: Floats, missing: Mask) -> Floats:
    """Interpolate between the nearest known rows; beyond the ends, repeat the last one.

    Parameters
    ----------
    curve
        ``[n, r]``.
    missing
        ``[n]``: rows to predict; two others at least are known.

    Returns
    -------
    ndarray
        ``[m, r]``.
    """
    known_rows, missing_rows = np.flatnonzero(~missing), np.flatnonzero(missing)
    columns = [
        np.interp(missing_rows, known_rows, column[known_rows]) for column in curve.T
    ]
    return np.stack(columns, axis=1)


#: Function that predicts the rows that are missing, ``[m, r]``.
Predict: TypeAlias = Callable[[Mask], Floats]


def fit_process_predictor(covariance: Floats, curve: Floats) -> Predict:
    """Return the mean of missing rows given the others, by a Gaussian process over position.

    All columns share the covariance. Rows that are missing follow from blocks of its inverse
    (Rasmussen & Williams 2006, section 5.4.2, for single rows): no gap needs a factorisation of its
    own.

    Parameters
    ----------
    covariance
        ``[n, n]``.
    curve
        ``[n, r]``.
    """
    mean_variance = float(np.trace(covariance)) / len(covariance)
    regularised = covariance.copy()
    min_noise = MIN_NOISE_SHARE * max(mean_variance, 1e-300)
    np.fill_diagonal(regularised, regularised.diagonal() + min_noise)
    inverse = np.asarray(np.linalg.inv(regularised), np.float64)
    weights, level = inverse @ curve, inverse.sum(axis=1)

    def predict(missing: Mask) -> Floats:
        rows = np.flatnonzero(missing)
        known_mean = curve[~missing].mean(axis=0)
        centred_weights = weights[rows] - level[rows, None] * known_mean
        inverse_block = inverse[np.ix_(rows, rows)]
        return np.asarray(curve[rows] - np.linalg.solve(inverse_block, centred_weights))

    return predict


def predict_by_shift(curve: Floats, missing: Mask) -> Floats:
    """Carry on with the linear map from each row to the next, from both sides of every gap.

    The maps onwards and back are fitted to neighbouring rows that are both known, about the known
    rows' mean, in the leading columns of `SHIFT_VARIANCE_SHARE` of the variance. Moduli above 1 are
    set to 1, so that nothing explodes; what both sides predict is mixed by distance.

    Parameters
    ----------
    curve
        ``[n, r]``, the columns with the most variance first.
    missing
        ``[n]``: rows to predict.

    Returns
    -------
    ndarray
        ``[m, r]``.
    """
    n = len(curve)
    is_known = ~missing
    mean = curve[is_known].mean(axis=0)
    power = np.cumsum(np.square(curve[is_known] - mean).sum(axis=0))
    variance_rank = int(np.argmax(power >= SHIFT_VARIANCE_SHARE * power[-1])) + 1
    rank = max(1, min(variance_rank, MAX_SHIFT_RANK, int(is_known.sum()) // 8))
    leading = curve[:, :rank] - mean[:rank]
    left_rows = np.flatnonzero(is_known[:-1] & is_known[1:])
    result = np.zeros_like(curve)
    if left_rows.size:
        step_forward = _fit_step_map(leading[left_rows], leading[left_rows + 1])
        step_back = _fit_step_map(leading[left_rows + 1], leading[left_rows])
        edges = np.flatnonzero(
            np.diff(np.concatenate([[False], missing, [False]]).astype(int))
        )
        for gap_start, stop in edges.reshape(-1, 2):
            steps = np.arange(1, stop - gap_start + 1)
            weight = (1 - steps / (stop - gap_start + 1))[:, None]
            if gap_start == 0:
                result[:stop, :rank] = step_back(leading[stop], steps[::-1])
            elif stop == n:
                result[gap_start:, :rank] = step_forward(leading[gap_start - 1], steps)
            else:
                forward = step_forward(leading[gap_start - 1], steps)
                back = step_back(leading[stop], steps[::-1])
                result[gap_start:stop, :rank] = weight * forward
                result[gap_start:stop, :rank] += (1 - weight) * back
    return np.asarray(result[missing] + mean)


def _fit_step_map(before: Floats, after: Floats) -> Callable[[Floats, Rows], Floats]:
    """Fit the map from rows to rows; return what applies it so many times: ``[steps, r]``."""
    operator = np.linalg.lstsq(before, after, rcond=1e-6)[0]
    values, vectors = np.linalg.eig(operator)
    bounded = (values / np.maximum(np.abs(values), 1.0)).astype(complex)
    inverse = np.linalg.pinv(vectors, rcond=1e-12)

    def apply_steps(row: Floats, steps: Rows) -> Floats:
        return np.asarray(((bounded ** steps[:, None] * (row @ vectors)) @ inverse).real)

    return apply_steps


#: Fewest positions of which a quarter can be left out.
MIN_BRIDGING_ROWS = 8
#: Most positions; of a longer table the middle is taken. A kernel's inverse costs their cube.
MAX_BRIDGING_ROWS = 1536
#: Share of the variance that the leading components hold, so that R² is that of the table to a
#: thousandth.
BRIDGED_VARIANCE_SHARE = 0.999
#: Most leading components, which bounds the time.
MAX_BRIDGED_COMPONENTS = 128
#: Rounds over each small set of gaps, in other positions each time.
N_NARROW_ROUNDS = 2
#: Fewest blocks of each wide gap, where there is room: an R² of fewer rests on one or two
#: positions.
MIN_WIDE_BLOCKS = 4
#: Ends of the table, in order.
TABLE_ENDS = ("start", "end")
#: Steps of the golden section, which spread most evenly, however many there are (Weyl 1916).
GOLDEN_SECTION = (5**0.5 - 1) / 2

#: Rules that predict missing rows, in the order in which they are shown.
BRIDGING_RULES = ("linear", "smooth", "waves", "shift")


@dataclass(frozen=True)
class Beyond:
    """Held-out R² of a quarter of the table, before the start, after the end, and of both."""

    start: float | None
    end: float | None
    both: float | None


def _beyond_by_rule(bridges: Bridging) -> dict[str, Beyond] | None:
    beyond = {rule: Beyond(*r2.tolist()) for rule, r2 in bridges.beyond.items()}
    return None if bridges.undefined else beyond


@dataclass(frozen=True, eq=False, repr=False)
class Bridging(Result):
    """How well rows that were left out are predicted from the rest, by rule and width of the gap.

    R² is 1 - squared error over that of the known rows' mean: 1 is exact, 0 no better than the
    mean, below 0 worse. Processes are fitted once, to all rows; everything else that is fitted is
    fitted to the known rows alone.

    Parameters
    ----------
    gaps
        ``[m]``: widths in positions, 1, 2, 4 … to a quarter of the table.
    r2
        For each of `BRIDGING_RULES`, ``[m]``.
    beyond
        For each rule ``[3]``: the first quarter predicted from the rest, the last, and both.
    components, variance
        Number of leading components that are predicted, and their share of the variance.
    first, stop
        Rows that were used: of a table longer than `MAX_BRIDGING_ROWS` those in the middle.
    layout, start
        Layout and first of the positions.
    axes
        On a grid, the row code and the column code, measured as sequences.
    undefined
        Reason why there are no numbers, or empty.
    """

    figures: ClassVar[str] = "fits.plot_bridging"
    missing_reason: ClassVar[str] = "the positions are a sequence, without axes"

    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    gaps: Annotated[NDArray[np.int64], ""] = field(default_factory=empty_array)
    r2: Annotated[dict[str, Floats], JsonType(dict[str, list[float | None]])] = field(
        default_factory=dict
    )
    beyond: Annotated[
        dict[str, Floats], JsonType(dict[str, Beyond] | None, _beyond_by_rule)
    ] = field(default_factory=dict)
    components: Annotated[
        int | None, Number("components bridged", "the leading", form="d")
    ] = None
    variance: float | None = None
    first: Annotated[int, HIDDEN] = 0
    stop: Annotated[int, HIDDEN] = 0
    axes: Annotated[
        dict[str, Bridging],
        JsonType(dict[str, Bridging], lambda bridges: bridges.axes or None),
    ] = field(default_factory=dict)
    undefined: Annotated[str, JsonType(Reasons)] = ""

    @property
    def rows(self) -> Annotated[list[int] | None, ""]:
        """First position that was used, and one past the last."""
        return [self.start + self.first, self.start + self.stop] if self.stop else None

    @property
    def partly(self) -> dict[str, str]:
        """Why single R² are None, and why not all rows were used."""
        reasons = {}
        if any(np.isnan(r2).any() for r2 in (*self.r2.values(), *self.beyond.values())):
            reasons["r2"] = (
                "null where the rows left out are all equal to the mean of the rest"
            )
        if not self.undefined and self.stop - self.first < self.layout.size:
            reasons["rows"] = (
                f"the table is longer than {MAX_BRIDGING_ROWS} rows: those in its middle"
            )
        return reasons


def bridging(
    table: PositionTable | Positions | Array,
    *,
    pca: PCA | None = None,
    model: Waves | None = None,
) -> Bridging:
    """Leave rows out and predict them from the rest.

    Blocks of 1, 2, 4 … n/4 neighbouring rows are left out, with at least as many known rows on
    either side of each, and a quarter of the table at either end. What is predicted are the leading
    components of `BRIDGED_VARIANCE_SHARE` of the variance. The rules: the straight line between
    neighbours; the Gaussian process of what has no period in the additive model
    (`posprobe.analyses.composition.mixture`), and that of all, waves included, which is the same
    where there are none; the linear map from each row to the next.

    Parameters
    ----------
    table
        ``[n, d]``. On a grid the means of the rows and of the columns are measured in its place.
    pca
        The table's principal components where they are known already.
    model
        The additive model of the same rows where it is known already.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or ``pca`` is of a table of other length.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.bridging(pp.sinusoidal(64, 16)).undefined
    ''
    """
    given_positions = positions(table)
    layout, start = given_positions.layout, given_positions.start
    n, d = given_positions.values.shape
    if isinstance(layout, Grid):
        patches = to_numpy(given_positions.values).astype(np.float64)
        patches = patches.reshape(layout.height, layout.width, d)
        axes = {
            "rows": bridging(patches.mean(axis=1)),
            "columns": bridging(patches.mean(axis=0)),
        }
        message = "patches lie on a grid: see its axes"
        return Bridging(layout, start, axes=axes, undefined=message)
    if n < MIN_BRIDGING_ROWS:
        return Bridging(layout, start, undefined=f"fewer than {MIN_BRIDGING_ROWS} rows")
    components = resolve_components(given_positions, pca)
    first_row = max((n - MAX_BRIDGING_ROWS) // 2, 0)
    stop = min(first_row + MAX_BRIDGING_ROWS, n)
    if stop - first_row < n:
        components = principal_components(
            to_numpy(given_positions.values)[first_row:stop]
        )
    if components.undefined:
        return Bridging(layout, start, undefined=components.undefined)
    share = np.cumsum(components.explained_variance_ratio)
    rank = int(np.argmax(share >= min(BRIDGED_VARIANCE_SHARE, share[-1]))) + 1
    rank = min(rank, MAX_BRIDGED_COMPONENTS)
    curve = components.scores[:, :rank] / components.singular_values[0]
    if model is not None and len(model.fit.components.covariance) != len(curve):
        model = None  # of other rows than the middle ones
    gaps, r2 = _measure_rules(curve, model)
    return Bridging(
        gaps=np.array(gaps, dtype=np.int64),
        r2={rule: values[: len(gaps)] for rule, values in r2.items()},
        beyond={rule: values[len(gaps) :] for rule, values in r2.items()},
        components=rank,
        variance=float(share[rank - 1]),
        first=first_row,
        stop=stop,
        layout=layout,
        start=start,
    )


def _measure_rules(
    curve: Floats, model: Waves | None
) -> tuple[list[int], dict[str, Floats]]:
    """Return the gaps, and R² of each rule by gap, beyond each end and beyond both."""
    predict_smooth, predict_waves = _process_predictors(curve, model)
    gaps, folds = _choose_folds(len(curve))
    n_groups = len(gaps) + len(TABLE_ENDS)
    errors = {rule: np.zeros(n_groups) for rule in ("mean", *BRIDGING_RULES)}
    for fold in folds:
        missing = fold >= 0
        predicted = {
            "mean": curve[~missing].mean(axis=0),
            "linear": interpolate_rows(curve, missing),
            "smooth": predict_smooth(missing),
            "waves": predict_waves(missing),
            "shift": predict_by_shift(curve, missing),
        }
        for rule, rows in predicted.items():
            squares = np.square(curve[missing] - rows).sum(axis=1)
            errors[rule] += np.bincount(fold[missing], squares, n_groups)
    return gaps, _held_out_r2(errors, len(gaps))


def _process_predictors(curve: Floats, model: Waves | None) -> tuple[Predict, Predict]:
    """Return the processes of the additive model, without waves and with them.

    Both are the same where it has none.
    """
    points = curve - curve.mean(axis=0)
    power = cosine_power(points)
    if model is None and len(curve) >= MIN_WAVE_ROWS:
        model = find_waves(points, power, 0)[0]
    background = model
    if background is None or background.waves:
        background = fit_jointly(power, points, ())
    predict_smooth = fit_process_predictor(row_covariance(background, waves=False), curve)
    if model is None or model is background:
        return predict_smooth, predict_smooth
    return predict_smooth, fit_process_predictor(row_covariance(model, waves=True), curve)


def _held_out_r2(errors: dict[str, Floats], n_gaps: int) -> dict[str, Floats]:
    """Return R² of each rule, beside the known rows' mean: by gap, and beyond each end and both."""
    sums = {
        rule: np.append(squares, squares[n_gaps:].sum())
        for rule, squares in errors.items()
    }
    mean_sums = sums.pop("mean")
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            rule: np.where(mean_sums > 0, 1 - rule_sums / mean_sums, np.nan)
            for rule, rule_sums in sums.items()
        }


def _choose_folds(n: int) -> tuple[list[int], list[NDArray[np.int64]]]:
    """Choose which rows are left out at once.

    Returns
    -------
    tuple
        The gaps, and folds ``[n]``: -1 for a row that is known, else the index of the gap that it
        is in; of the ends, indices beyond those.
    """
    quarter = n // 4
    gaps = sorted(
        {2**k for k in range(quarter.bit_length()) if 2**k <= quarter} | {quarter}
    )
    n_narrow = sum(64 * gap <= n for gap in gaps)
    folds = _narrow_folds(n, gaps[:n_narrow]) if n_narrow else []
    for index in range(n_narrow, len(gaps)):
        gap = gaps[index]
        n_blocks = max(n // (4 * gap), 1)
        n_rounds = min(-(-MIN_WIDE_BLOCKS // n_blocks), 3)
        for turn in range(n_rounds):
            fold = np.full(n, -1)
            offset = (turn + 0.5) / n_rounds
            leave_out_blocks(fold, 0, n, index, gap, offset, n_blocks == 1)
            folds.append(fold)
    for end, rows in enumerate((slice(0, quarter), slice(n - quarter, n))):
        fold = np.full(n, -1)
        fold[rows] = len(gaps) + end
        folds.append(fold)
    return gaps, folds


def _narrow_folds(n: int, gaps: list[int]) -> list[NDArray[np.int64]]:
    """Return folds in which slots along the table take turns; each slot has blocks of one gap."""
    n_slots = max(n // (4 * gaps[-1]), 1)
    edges = np.linspace(0, n, n_slots + 1).astype(int).tolist()
    folds = []
    for turn in range(N_NARROW_ROUNDS):
        fold = np.full(n, -1)
        for slot, (slot_start, stop) in enumerate(pairwise(edges)):
            index = (slot + turn * len(gaps) // 2) % len(gaps)
            offset = turn / N_NARROW_ROUNDS
            leave_out_blocks(fold, slot_start, stop, index, gaps[index], offset)
        folds.append(fold)
    return folds


def leave_out_blocks(
    fold: NDArray[np.int64],
    start: int,
    stop: int,
    index: int,
    gap: int,
    offset: float,
    single: bool = False,
) -> None:
    """Leave out blocks within some rows, one in each cell of four gaps, off the middle by turns."""
    n_cells = max((stop - start) // (4 * gap), 1)
    edges = np.linspace(start, stop, n_cells + 1)
    for cell, (low, high) in enumerate(pairwise(edges.tolist())):
        # The blocks are unevenly spaced, so that no period is sampled at one phase only.
        share = offset if single else (GOLDEN_SECTION * cell + offset) % 1.0
        first_row = int(np.floor(low + gap + share * max(high - low - 3 * gap, 0)))
        fold[first_row : first_row + gap] = index
