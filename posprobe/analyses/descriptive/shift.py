"""The shift operator: which linear map takes a position to the next one, and how well.

In the sinusoid every step is one fixed rotation of each frequency's plane (Vaswani et al. 2017;
Kernes 2021 writes out the "translation matrix"). Fitting that map to a table by least squares is
dynamic mode decomposition (Schmid 2010): the angles of its eigenvalues are the learned frequencies,
free of any grid of bins, and their moduli the damping.

Periods alone prove nothing: least squares finds slow, smooth "periods" in a random walk too. What
tells them apart is the skill on rows that were not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.pca import PCA, resolve_components
from posprobe.analyses.facts import Number
from posprobe.analyses.linear import fit_line
from posprobe.analyses.result import HIDDEN, JsonType, Result, WithGaps, empty_array
from posprobe.arrays import Array, Floats, Positions, positions
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Reasons
from posprobe.tables import PositionTable

#: Fewest rows of a table whose map is fitted to one half and tested on the other: eight rows are
#: enough for two directions.
MIN_SHIFT_ROWS = 16
#: Shares of the variance left out by the candidate ranks: halves, then decades down to what double
#: precision keeps of squares.
LEFT_OUT_SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-6, 1e-9, 1e-12)
#: The ranks before this many steepest drops of the components' variance are candidates, too: the
#: variance drops where noise begins, once or twice in a table.
N_STEEPEST_DROPS = 3
#: Largest candidate rank; the numerical rank of a table that lacks full rank may be twice that. The
#: map costs its cube, a second at 512.
MAX_CANDIDATE_RANK = 256
#: How much held-out skill a larger rank may cost and still be preferred: a hundredth of what there
#: is to explain.
MAX_SKILL_LOSS = 0.01
#: How much better than noise a larger rank's components must be explained: three times as well, as
#: what so many regressors explain of noise is known to a fraction of itself.
MIN_CHANCE_RATIO = 3.0
#: The fit to a half ignores directions this much weaker than the strongest: the rounding of
#: float32.
HALF_TABLE_CONDITION = 1e-6
#: The same limit per row for a map that no other rows test: the rounding of float64.
CONDITION_PER_ROW = float(np.finfo(np.float64).eps)
#: Rows of a block that is factorised at a time: with 64 columns it stays in a core's cache.
ROWS_PER_FACTOR = 4096

#: Triangular factors of rows and of their changes, side by side.
_Factors: TypeAlias = tuple[Floats, Floats]


def choose_shift_rank(scores: NDArray[np.floating[Any]]) -> tuple[int, Floats]:
    """Choose how many leading components the map acts on; return its held-out errors as well.

    Both fits are about the mean of the whole: half a table holds too little of its slow modes to
    place their centre. In directions that a half does not show, the map predicts no change.

    Candidates are the ranks that leave out the shares of variance `LEFT_OUT_SHARES` and those
    before the `N_STEEPEST_DROPS` steepest drops, up to a quarter of the rows and to
    `MAX_CANDIDATE_RANK`, and the numerical rank where that is lower than the table's shape demands.
    Each predicts whole rows of the other half of the table. The one with the best skill is taken,
    then larger ones as long as they cost less than `MAX_SKILL_LOSS` of it and add components that
    the map explains: to `MIN_CHANCE_RATIO` times the share that so many regressors explain of
    noise, or to half of what that leaves. Too small a rank mixes frequencies, and the exact map of
    a sinusoid needs directions that carry next to nothing.

    Parameters
    ----------
    scores
        ``[n, k]``: positions along all components, strongest first; n at least `MIN_SHIFT_ROWS`.

    Returns
    -------
    tuple
        The rank, and the squared errors on held-out rows ``[3]`` with so many components: of the
        map, of no change, and of the mean row.
    """
    scores = np.asarray(scores, dtype=np.float64)
    n, k = scores.shape
    power = (scores**2).sum(axis=0)
    remaining_share = np.append(np.cumsum(power[::-1])[-2::-1], 0.0) / power.sum()
    limit = max(1, min(n // 4, MAX_CANDIDATE_RANK))
    candidates = {
        int(np.argmax(remaining_share <= share)) + 1 for share in LEFT_OUT_SHARES
    }
    candidates = {rank for rank in candidates if rank <= limit} or {min(limit, k)}
    numerical = int(np.count_nonzero(power > (1e-13 * n) ** 2 * power[0]))
    usable_power = power[: min(limit, numerical) + 1]
    steepest = (
        np.argsort(usable_power[1:] / usable_power[:-1], kind="stable")[:N_STEEPEST_DROPS]
        + 1
    )
    candidates.update(steepest.tolist())
    if numerical <= (2 * MAX_CANDIDATE_RANK if numerical < min(n - 1, k) else limit):
        candidates.add(numerical)
    ranks = sorted(candidates)
    halves = _half_factors(scores[:, : ranks[-1]])
    no_change, mean = _column_baselines(scores)
    # Outside the components the map knows no more than the mean.
    outside = np.append(np.cumsum(mean[::-1])[-2::-1], 0.0)
    errors = [_map_error(halves, rank) + outside[rank - 1] for rank in ranks]
    bases = no_change.sum(), mean.sum()
    reached = np.array([least_skill(np.array([error, *bases])) for error in errors])
    best = int(np.argmax(reached))
    best_rank = ranks[best]
    higher_ranks = zip(ranks[best + 1 :], reached[best + 1 :], strict=True)
    nearly_best = [
        rank for rank, skill in higher_ranks if skill >= reached[best] - MAX_SKILL_LOSS
    ]
    all_factors = _all_factors(scores[:, : max(nearly_best, default=1)])
    for rank in nearly_best:
        chance = rank / (n - 1)
        demanded = min(MIN_CHANCE_RATIO * chance, (1 + chance) / 2)
        if _explained_share(scores, all_factors, best_rank, rank) >= demanded:
            best_rank = rank
    # Least squares with fewer components needs no other factors.
    error = _map_error(halves, best_rank)
    return best_rank, np.array(
        [error, no_change[:best_rank].sum(), mean[:best_rank].sum()]
    )


def _explained_share(
    scores: NDArray[np.floating[Any]], all_factors: _Factors, n_known: int, rank: int
) -> float:
    """Return the mean share of components ``n_known`` to ``rank`` that their map explains."""
    added_columns = slice(n_known, rank)
    rows, changes = all_factors
    before, after = scores[:-1, added_columns], scores[1:, added_columns]
    error = (
        changes[:, added_columns]
        - rows[:, :rank]
        @ _fit_changes(all_factors, rank, CONDITION_PER_ROW * len(before))[
            :, added_columns
        ]
    )
    sizes = [
        (values**2).sum(axis=0)
        for values in (error, after - before, after - after.mean(axis=0))
    ]
    return float(np.mean(1 - sizes[0] / np.minimum(sizes[1], sizes[2])))


def sum_squares(values: NDArray[np.floating[Any]]) -> float:
    """Add up the squares."""
    return float((values**2).sum())


def _split_halves(scores: NDArray[np.floating[Any]]) -> tuple[NDArray[Any], ...]:
    """Centre the rows and cut them into the two halves, each of which tests the other."""
    centered = scores - scores.mean(axis=0)
    middle = len(scores) // 2
    return centered[:middle], centered[middle:]


def _half_factors(
    scores: NDArray[np.floating[Any]],
) -> list[_Factors]:
    """Return of each half the triangular factor of its rows and of their changes.

    All that least squares needs to know, for every number of leading components: those of the first
    few columns are the first few columns of the factor.
    """
    return [_factors(part[:-1], part[1:]) for part in _split_halves(scores)]


def _factors(
    before: NDArray[np.floating[Any]], after: NDArray[np.floating[Any]]
) -> _Factors:
    """Return the triangular factor of rows and of their changes, side by side.

    By blocks of rows, whose factors are then factorised together: nothing as long as the table is
    copied, and a block stays in the cache (Demmel et al. 2012).
    """
    k = before.shape[1]
    blocks = [
        np.linalg.qr(np.hstack([before[rows], after[rows] - before[rows]]), mode="r")
        for rows in (
            slice(start, start + ROWS_PER_FACTOR)
            for start in range(0, len(before), ROWS_PER_FACTOR)
        )
    ]
    stacked = np.concatenate(blocks)
    factor = np.asarray(np.linalg.qr(stacked, mode="r") if len(blocks) > 1 else stacked)
    return factor[:, :k], factor[:, k:]


def _all_factors(scores: NDArray[np.floating[Any]]) -> _Factors:
    """Return the same of all rows, each side about its mean: the least-squares constant."""
    before, after = scores[:-1], scores[1:]
    return _factors(before - before.mean(axis=0), after - after.mean(axis=0))


def _fit_changes(factors: _Factors, rank: int, min_power: float) -> Floats:
    """Return the change ``[rank, rank]`` by which leading components come to the next row.

    None in directions that are weaker than ``min_power`` times the strongest.
    """
    rows, changes = (factor[:rank, :rank] for factor in factors)
    return np.asarray(
        np.linalg.lstsq(rows, changes, rcond=min_power)[0], dtype=np.float64
    )


def _map_error(halves: list[_Factors], rank: int) -> float:
    """Squared error of the map that each half teaches, on the other half's rows."""
    error = 0.0
    for half, (tested, next_rows) in (halves, halves[::-1]):
        error += sum_squares(
            next_rows[:, :rank]
            - tested[:, :rank] @ _fit_changes(half, rank, HALF_TABLE_CONDITION)
        )
    return error


def fit_linear_map(scores: NDArray[np.floating[Any]]) -> Floats:
    """Return the least-squares map from each row ``[n, r]`` to the next: ``[r, r]``.

    About means of their own for both sides. It is the identity in directions that teach nothing.
    """
    rank = scores.shape[1]
    return np.eye(rank) + _fit_changes(
        _all_factors(scores), rank, CONDITION_PER_ROW * (len(scores) - 1)
    )


def _column_baselines(scores: NDArray[np.floating[Any]]) -> Floats:
    """Squared errors on the same rows of "no change" and of "the mean row": ``[2, k]``."""
    parts = _split_halves(scores)
    return np.array(
        [
            sum((np.diff(part, axis=0) ** 2).sum(axis=0) for part in parts),
            sum((part[1:] ** 2).sum(axis=0) for part in parts),
        ]
    )


def least_skill(errors: Floats) -> float:
    """Return the smaller of both `skills`.

    Iid rows are predicted half as badly by their mean as by their predecessor, so a skill against
    persistence alone is 0.5 for pure noise.
    """
    return float(np.min(skills(errors)))


def skills(errors: Floats) -> tuple[float, float]:
    """Return the skill against no change and against the mean row.

    Parameters
    ----------
    errors
        ``[3]``: squared errors of the map, of no change and of the mean row. Against a forecast
        that is exact the skill is NaN.
    """
    error, no_change, mean = errors.tolist()
    rounding = 1e-24 * max(no_change, mean)
    against = [
        1 - error / base if base > rounding else np.nan for base in (no_change, mean)
    ]
    return float(against[0]), float(against[1])


#: With a smaller angle per position, a pair is a real eigenvalue that rounding has split.
MIN_EIGENVALUE_ANGLE_RADIANS = 1e-6
#: A mode whose modulus is this close to 1 does not decay: the difference is rounding.
MODULUS_ROUNDING = 1e-9


@dataclass(frozen=True)
class RotationRule:
    """What a mode needs to count as a rotation; below ``min_share`` it is noise, and not listed.

    Half of the next row's change is to be predicted; walks and noise have skills below 0. Phases of
    a walk are as straight as 0.99 over less than two turns. A radius that varies by 0.3 is that of
    `posprobe.analyses.composition.paths.MAX_RADIUS_CV`.
    """

    min_share: float = 1e-4
    min_skill: float = 0.5
    min_skill_rows: float = 0.1
    min_turns: float = 2.0
    min_phase_linearity: float = 0.995
    max_radius_cv: float = 0.3

    def select_rotations(
        self, modes: dict[str, Any], skill: float, skill_rows: float
    ) -> NDArray[np.bool_]:
        """Return which modes of a map are rotations: none where the map lacks skill."""
        has_skill = skill >= self.min_skill and skill_rows >= self.min_skill_rows
        is_circular: NDArray[np.bool_] = (
            (modes["turns"] >= self.min_turns)
            & (modes["phase_linearity"] >= self.min_phase_linearity)
            & (modes["radius_cv"] <= self.max_radius_cv)
        )
        return is_circular & has_skill


ROTATION_RULE = RotationRule()


@dataclass(frozen=True, eq=False, repr=False)
class Shift(Result):
    """The linear map from each position to the next, its oscillations and its skill.

    Read the periods with the skill beside them: a random walk has smooth "periods" and a skill far
    below 0. Modes are not orthogonal, so their shares need not add up to 1; noise in the rows
    pulls moduli below 1; a period longer than half the table (fewer than two turns) is a guess.

    Parameters
    ----------
    periods
        ``[m]``, in positions, rising: one for each pair of conjugate eigenvalues that carries at
        least `RotationRule.min_share` of the variance. Real eigenvalues (trends, and the
        alternation of period 2) have no phase and are not listed.
    moduli
        ``[m]``: factor by which the mode's amplitude changes per position.
    half_lives
        ``[m]``: positions after which the amplitude has halved; infinite from modulus 1, within
        `MODULUS_ROUNDING`.
    shares
        ``[m]``: the mode's sum of squares over the table's variance.
    turns
        ``[m]``: table length over period.
    phase_linearity
        ``[m]``: R² of the mode's unwrapped phase against position; 1 for a uniform rotation.
    radius_cv
        ``[m]``: standard deviation over mean of the mode's radius; 0 for a circle. Together with
        the phase it separates a rotation from a Lissajous figure.
    rotations
        ``[m]``: whether the mode is a rotation by ``rule``.
    eigenvalues
        ``[rank]`` complex: of the map fitted to all rows.
    rank, variance
        Number of leading components that the map acts on, and their share of the variance.
    skill
        Skill in predicting the components' next row with a map fitted to the other half of the
        table: 1 - error over the smaller error of two forecasts that know nothing, "no change" and
        "the mean row". 1 is exact, 0 no better than those.
    skill_persistence, r2
        The same against "no change" alone and against the mean row alone.
    skill_rows
        Like ``skill``, for the whole rows: what lies outside the components counts as error.
    layout, start
        Layout and first of the positions.
    undefined
        Reason why there is no map, or empty.
    rule
        Rule by which a mode is a rotation.
    """

    figures: ClassVar[str] = "frequencies.plot_shift"

    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    periods: Annotated[Floats, "In positions, of the shift operator's eigenvalues."] = (
        field(default_factory=empty_array)
    )
    moduli: Annotated[Floats, "Absolute values of the eigenvalues: 1 is undamped."] = (
        field(default_factory=empty_array)
    )
    half_lives: Annotated[
        WithGaps, "In positions; null where the mode does not decay."
    ] = field(default_factory=empty_array)
    shares: Annotated[Floats, ""] = field(default_factory=empty_array)
    turns: Annotated[Floats, ""] = field(default_factory=empty_array)
    phase_linearity: Annotated[Floats, ""] = field(default_factory=empty_array)
    radius_cv: Annotated[Floats, ""] = field(default_factory=empty_array)
    rotations: Annotated[
        NDArray[np.bool_],
        JsonType(
            list[float] | None,
            lambda record: None if record.undefined else record.periods[record.rotations],
        ),
        "Periods of the modes that count as rotations.",
    ] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    eigenvalues: NDArray[np.complex128] = field(default_factory=empty_array)
    skill: Annotated[
        float | None,
        Number("shift skill", "of the next row, held out; 1 is exact", compared=True),
    ] = None
    r2: Annotated[float | None, Number("shift R²", "the same against the mean row")] = (
        None
    )
    rank: Annotated[
        Count | None, Number("shift rank", "components it acts on", form="d")
    ] = None
    variance: Annotated[
        float | None, Number("shift variance", "share in those components")
    ] = None
    skill_persistence: float | None = None
    skill_rows: float | None = None
    undefined: Annotated[str, JsonType(Reasons)] = ""
    rule: RotationRule = ROTATION_RULE

    @property
    def partly(self) -> dict[str, str]:
        """Why single half-lives are None."""
        reason = (
            "null where the modulus is 1, within rounding, or more: it does not decay"
        )
        return {"half_lives": reason} if np.isinf(self.half_lives).any() else {}


def shift(table: PositionTable | Positions | Array, *, pca: PCA | None = None) -> Shift:
    """Fit the map from each position to the next, in the space of the leading components.

    The map and a constant are fitted to all pairs of neighbouring rows by least squares; the
    constant makes the fit exact for a table that rotates about another point than its mean. The
    skill is measured with one half of the table predicting the other, both ways, and the rank
    chosen by it (see `choose_shift_rank`).

    Parameters
    ----------
    table
        ``[n, d]``. On a grid the map is undefined: no single step leads from patch to patch.
    pca
        The table's principal components where they are known already.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or ``pca`` is of a table of other length.

    Examples
    --------
    Two circles with periods of 8 and 20 positions:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> turns = 2 * np.pi * np.arange(80)[:, None] / [8, 20]
    >>> shift = pp.shift(np.hstack([np.cos(turns), np.sin(turns)]))
    >>> sorted(shift.periods.round(3).tolist())
    [8.0, 20.0]
    >>> print(f"{shift.skill:.3f}")
    1.000
    """
    inputs = positions(table)
    undefined_shift = partial(Shift, inputs.layout, inputs.start)
    n = inputs.values.shape[0]
    if isinstance(inputs.layout, Grid):
        reason = "patches lie on a grid: no single step leads from each to the next"
        return undefined_shift(undefined=reason)
    if n < MIN_SHIFT_ROWS:
        return undefined_shift(undefined=f"fewer than {MIN_SHIFT_ROWS} rows")
    components = resolve_components(inputs, pca)
    if components.undefined:
        return undefined_shift(undefined=components.undefined)
    if components.method != "exact":
        reason = (
            f"only the {len(components.singular_values)} leading components are computed"
        )
        return undefined_shift(
            undefined=f"{reason}, and the map's rank is chosen among all; try fewer rows"
        )
    # Squares of very small or large units must not leave the range of the numbers.
    scores = components.scores / components.singular_values[0]
    rank, errors = choose_shift_rank(scores)
    skill = least_skill(errors)
    if np.isnan(skill):
        return undefined_shift(
            undefined="the rows do not change within either half of the table"
        )
    eigenvalues, modes = _describe_modes(scores, rank)
    against_no_change, against_mean = skills(errors)
    # Outside the components the map knows no more than the mean.
    static_error, mean = _column_baselines(scores[:, rank:]).sum(axis=1)
    skill_rows = least_skill(errors + np.array([mean, static_error, mean]))
    return Shift(
        **modes,
        rotations=ROTATION_RULE.select_rotations(modes, skill, skill_rows),
        eigenvalues=eigenvalues,
        rank=rank,
        variance=sum_squares(scores[:, :rank]) / sum_squares(scores),
        skill=skill,
        skill_persistence=against_no_change,
        r2=against_mean,
        skill_rows=skill_rows,
        layout=inputs.layout,
        start=inputs.start,
    )


def _describe_modes(
    scores: Floats, rank: int
) -> tuple[NDArray[np.complex128], dict[str, Any]]:
    """Fit the map to all rows; return its eigenvalues and what each oscillation does."""
    n = len(scores)
    leading = scores[:, :rank]
    eigenvalues, vectors = np.linalg.eig(fit_linear_map(leading))
    eigenvalues = eigenvalues.astype(np.complex128)
    upper = np.flatnonzero(np.angle(eigenvalues) > MIN_EIGENVALUE_ANGLE_RADIANS)
    upper = upper[
        np.abs(eigenvalues[upper].imag)
        > MIN_EIGENVALUE_ANGLE_RADIANS * np.abs(eigenvalues[upper])
    ]
    upper = upper[np.argsort(-np.angle(eigenvalues[upper]), kind="stable")]
    signals = leading @ vectors[:, upper]
    # Energy of 2 Re(signal x direction), with neither formed: [n, rank] for each mode.
    directions = np.linalg.pinv(vectors, rcond=1e-15)[upper]
    straight = (np.abs(signals) ** 2).sum(axis=0) * (np.abs(directions) ** 2).sum(axis=1)
    crossed = ((signals**2).sum(axis=0) * (directions**2).sum(axis=1)).real
    shares = 2 * (straight + crossed) / sum_squares(scores)
    has_share = shares >= ROTATION_RULE.min_share
    upper, signals, shares = upper[has_share], signals[:, has_share], shares[has_share]
    modulus, angle = np.abs(eigenvalues[upper]), np.angle(eigenvalues[upper])
    half_lives = np.full(len(modulus), np.inf)
    damped = (modulus < 1 - MODULUS_ROUNDING) & (modulus > 0)
    half_lives[damped] = np.log(0.5) / np.log(modulus[damped])
    radius = np.abs(signals)
    phase = np.unwrap(np.angle(signals), axis=0)
    time = np.arange(n, dtype=np.float64)
    return eigenvalues, {
        "periods": 2 * np.pi / angle,
        "moduli": modulus,
        "half_lives": half_lives,
        "shares": shares,
        "turns": n * angle / (2 * np.pi),
        "phase_linearity": np.array(
            [fit_line(time, mode_phase)[1] for mode_phase in phase.T]
        ),
        "radius_cv": radius.std(axis=0) / radius.mean(axis=0),
    }
