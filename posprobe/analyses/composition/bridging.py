"""Bridging: which rule predicts, from the rest of the table, rows that were left out.

A random walk is bridged by the straight line between its neighbours, the worse the wider the gap; a
smooth curve by a Gaussian process up to about its length scale, and then by nothing; what goes
round by its waves far beyond its own smoothness, and on past the end. So the rule that bridges wide
gaps says what the table is made of, where a spectrum or principal components cannot: those of walks
and smooth curves look like waves, too.
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
from posprobe.analyses.descriptive.pca import PCA, components_of, pca as principal_components
from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, As, Result, nothing
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Reasons
from posprobe.tables import PositionTable

Rows: TypeAlias = NDArray[np.integer[Any]]
Mask: TypeAlias = NDArray[np.bool_]

#: Smallest share of noise in a process: below, its matrix cannot be inverted in double precision.
MIN_NOISE_SHARE = 1e-8
#: Share of the variance that the shift operator acts on, and its largest rank: what lies beyond is
#: noise in trained tables, and each direction costs eight known rows.
SHIFT_VARIANCE_SHARE = 0.98
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
    columns = [np.interp(missing_rows, known_rows, column[known_rows]) for column in curve.T]
    return np.stack(columns, axis=1)


#: Predicts the rows that are missing, ``[m, r]``.
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
    min_noise = MIN_NOISE_SHARE * max(float(np.trace(covariance)) / len(covariance), 1e-300)
    regular = covariance.copy()
    np.fill_diagonal(regular, regular.diagonal() + min_noise)
    inverse = np.asarray(np.linalg.inv(regular), np.float64)
    weights, level = inverse @ curve, inverse.sum(axis=1)

    def predict(missing: Mask) -> Floats:
        rows = np.flatnonzero(missing)
        correction = weights[rows] - level[rows, None] * curve[~missing].mean(axis=0)
        return np.asarray(curve[rows] - np.linalg.solve(inverse[np.ix_(rows, rows)], correction))

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
    n_directions = int(np.argmax(power >= SHIFT_VARIANCE_SHARE * power[-1])) + 1
    rank = max(1, min(n_directions, MAX_SHIFT_RANK, int(is_known.sum()) // 8))
    leading = curve[:, :rank] - mean[:rank]
    left_rows = np.flatnonzero(is_known[:-1] & is_known[1:])
    result = np.zeros_like(curve)
    if left_rows.size:
        onwards = _fit_step_map(leading[left_rows], leading[left_rows + 1])
        back = _fit_step_map(leading[left_rows + 1], leading[left_rows])
        edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]]).astype(int)))
        for start, stop in edges.reshape(-1, 2):
            steps = np.arange(1, stop - start + 1)
            weight = (1 - steps / (stop - start + 1))[:, None]
            if start == 0:
                result[:stop, :rank] = back(leading[stop], steps[::-1])
            elif stop == n:
                result[start:, :rank] = onwards(leading[start - 1], steps)
            else:
                result[start:stop, :rank] = weight * onwards(leading[start - 1], steps)
                result[start:stop, :rank] += (1 - weight) * back(leading[stop], steps[::-1])
    return np.asarray(result[missing] + mean)


def _fit_step_map(before: Floats, after: Floats) -> Callable[[Floats, Rows], Floats]:
    """Fit the map from rows to rows; return what applies it so many times: ``[steps, r]``."""
    operator = np.linalg.lstsq(before, after, rcond=1e-6)[0]
    values, vectors = np.linalg.eig(operator)
    bounded = (values / np.maximum(np.abs(values), 1.0)).astype(complex)
    inverse = np.linalg.pinv(vectors, rcond=1e-12)

    def carried(row: Floats, steps: Rows) -> Floats:
        return np.asarray(((bounded ** steps[:, None] * (row @ vectors)) @ inverse).real)

    return carried


#: Fewest positions of which a quarter can be left out.
MIN_BRIDGING_ROWS = 8
#: Most positions: of a longer table the middle is taken. A kernel's inverse costs their cube.
MAX_BRIDGING_ROWS = 1536
#: Share of the variance that the leading components hold, so that R² is that of the table to a
#: thousandth, and most of them, which bounds the time.
BRIDGED_VARIANCE_SHARE = 0.999
MAX_BRIDGED_COMPONENTS = 128
#: Times each small set of gaps, at places off the first, and fewest blocks of each wide one, where
#: there is room: an R² of fewer rests on one or two places.
N_NARROW_ROUNDS = 2
MIN_WIDE_BLOCKS = 4
#: Ends of the table, in order.
TABLE_ENDS = ("start", "end")
#: Steps of the golden section spread most evenly, however many there are (Weyl 1916).
GOLDEN_SECTION = (5**0.5 - 1) / 2

#: Rules that predict missing rows, in the order in which they are shown.
BRIDGING_RULES = ("linear", "smooth", "waves", "shift")


@dataclass(frozen=True)
class Beyond:
    """Held-out R² of a quarter of the table, before the start, after the end, and of both."""

    start: float | None
    end: float | None
    both: float | None


def _beyond_by_rule(bridging_record: Bridging) -> dict[str, Beyond] | None:
    ends = {rule: Beyond(*r2.tolist()) for rule, r2 in bridging_record.beyond.items()}
    return None if bridging_record.undefined else ends


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
    gaps: Annotated[NDArray[np.int64], ""] = field(default_factory=nothing)
    r2: Annotated[dict[str, Floats], As(dict[str, list[float | None]])] = field(
        default_factory=dict
    )
    beyond: Annotated[dict[str, Floats], As(dict[str, Beyond] | None, _beyond_by_rule)] = field(
        default_factory=dict
    )
    components: Annotated[int | None, Number("components bridged", "the leading", form="d")] = None
    variance: float | None = None
    first: Annotated[int, HIDDEN] = 0
    stop: Annotated[int, HIDDEN] = 0
    axes: Annotated[
        dict[str, Bridging], As(dict[str, Bridging], lambda record: record.axes or None)
    ] = field(default_factory=dict)
    undefined: Annotated[str, As(Reasons)] = ""

    @property
    def rows(self) -> Annotated[list[int] | None, ""]:
        """First position that was used, and one past the last."""
        return [self.start + self.first, self.start + self.stop] if self.stop else None

    @property
    def partly(self) -> dict[str, str]:
        """Why single R² are None, and why not all rows were used."""
        missing = {}
        if any(np.isnan(r2).any() for r2 in (*self.r2.values(), *self.beyond.values())):
            missing["r2"] = "null where the rows left out are all equal to the mean of the rest"
        if not self.undefined and self.stop - self.first < self.layout.size:
            missing["rows"] = (
                f"the table is longer than {MAX_BRIDGING_ROWS} rows: those in its middle"
            )
        return missing


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
    inputs = positions(table)
    n, d = inputs.values.shape
    if isinstance(inputs.layout, Grid):
        cells = to_numpy(inputs.values).astype(np.float64)
        cells = cells.reshape(inputs.layout.height, inputs.layout.width, d)
        axes = {"rows": bridging(cells.mean(axis=1)), "columns": bridging(cells.mean(axis=0))}
        reason = "patches lie on a grid: see its axes"
        return Bridging(inputs.layout, inputs.start, axes=axes, undefined=reason)
    if n < MIN_BRIDGING_ROWS:
        return Bridging(
            inputs.layout, inputs.start, undefined=f"fewer than {MIN_BRIDGING_ROWS} rows"
        )
    components = components_of(inputs, pca)
    first_row = max((n - MAX_BRIDGING_ROWS) // 2, 0)
    stop = min(first_row + MAX_BRIDGING_ROWS, n)
    if stop - first_row < n:
        components = principal_components(to_numpy(inputs.values)[first_row:stop])
    if components.undefined:
        return Bridging(inputs.layout, inputs.start, undefined=components.undefined)
    share = np.cumsum(components.explained_variance_ratio)
    n_kept = min(
        int(np.argmax(share >= min(BRIDGED_VARIANCE_SHARE, share[-1]))) + 1, MAX_BRIDGED_COMPONENTS
    )
    curve = components.scores[:, :n_kept] / components.singular_values[0]
    if model is not None and len(model.fit.components.covariance) != len(curve):
        model = None  # of other rows than the middle ones
    smooth, waves = _process_predictors(curve, model)
    gaps, folds = _choose_folds(len(curve))
    groups = len(gaps) + len(TABLE_ENDS)
    errors = {rule: np.zeros(groups) for rule in ("mean", *BRIDGING_RULES)}
    for fold in folds:
        missing = fold >= 0
        predicted = {
            "mean": curve[~missing].mean(axis=0),
            "linear": interpolate_rows(curve, missing),
            "smooth": smooth(missing),
            "waves": waves(missing),
            "shift": predict_by_shift(curve, missing),
        }
        for rule, rows in predicted.items():
            squares = np.square(curve[missing] - rows).sum(axis=1)
            errors[rule] += np.bincount(fold[missing], squares, groups)
    r2 = _held_out_r2(errors, len(gaps))
    return Bridging(
        gaps=np.array(gaps, dtype=np.int64),
        r2={rule: values[: len(gaps)] for rule, values in r2.items()},
        beyond={rule: values[len(gaps) :] for rule, values in r2.items()},
        components=n_kept,
        variance=float(share[n_kept - 1]),
        first=first_row,
        stop=stop,
        layout=inputs.layout,
        start=inputs.start,
    )


def _process_predictors(curve: Floats, model: Waves | None) -> tuple[Predict, Predict]:
    """Return the processes of the additive model, without waves and with them.

    One and the same where it has none.
    """
    points = curve - curve.mean(axis=0)
    power = cosine_power(points)
    if model is None and len(curve) >= MIN_WAVE_ROWS:
        model = find_waves(points, power, 0)[0]
    bare = fit_jointly(power, points, ()) if model is None or model.waves else model
    smooth = fit_process_predictor(row_covariance(bare, waves=False), curve)
    if model is None or model is bare:
        return smooth, smooth
    return smooth, fit_process_predictor(row_covariance(model, waves=True), curve)


def _held_out_r2(errors: dict[str, Floats], gaps: int) -> dict[str, Floats]:
    """Return R² of each rule, beside the known rows' mean: by gap, and beyond each end and both."""
    sums = {
        rule: np.append(rule_errors, rule_errors[gaps:].sum())
        for rule, rule_errors in errors.items()
    }
    total_errors = sums.pop("mean")
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            rule: np.where(total_errors > 0, 1 - part / total_errors, np.nan)
            for rule, part in sums.items()
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
    gaps = sorted({2**k for k in range(quarter.bit_length()) if 2**k <= quarter} | {quarter})
    narrow = [k for k, gap in enumerate(gaps) if 64 * gap <= n]
    folds = []
    if narrow:
        # Slots along the table take turns; each has blocks of one gap.
        slots = max(n // (4 * gaps[narrow[-1]]), 1)
        edges = np.linspace(0, n, slots + 1).astype(int)
        for turn in range(N_NARROW_ROUNDS):
            fold = np.full(n, -1)
            for slot in range(slots):
                index = narrow[(slot + turn * len(narrow) // 2) % len(narrow)]
                leave_out_blocks(
                    fold,
                    int(edges[slot]),
                    int(edges[slot + 1]),
                    index,
                    gaps[index],
                    turn / N_NARROW_ROUNDS,
                )
            folds.append(fold)
    for index in range(len(narrow), len(gaps)):
        gap = gaps[index]
        fits = max(n // (4 * gap), 1)
        rounds = min(-(-MIN_WIDE_BLOCKS // fits), 3)
        for turn in range(rounds):
            fold = np.full(n, -1)
            leave_out_blocks(fold, 0, n, index, gap, (turn + 0.5) / rounds, fits == 1)
            folds.append(fold)
    for end, rows in enumerate((slice(0, quarter), slice(n - quarter, n))):
        fold = np.full(n, -1)
        fold[rows] = len(gaps) + end
        folds.append(fold)
    return gaps, folds


def leave_out_blocks(
    fold: NDArray[np.int64], start: int, stop: int, index: int, gap: int, offset: float,
    single: bool = False,
) -> None:  # fmt: skip
    """Leave out blocks within some rows, a cell of four gaps for each, off the middle by turns."""
    cells = max((stop - start) // (4 * gap), 1)
    edges = np.linspace(start, stop, cells + 1)
    for cell, (low, high) in enumerate(pairwise(edges.tolist())):
        # Uneven, so that no period is sampled at one phase only.
        share = offset if single else (GOLDEN_SECTION * cell + offset) % 1.0
        begin = int(np.floor(low + gap + share * max(high - low - 3 * gap, 0)))
        fold[begin : begin + gap] = index
