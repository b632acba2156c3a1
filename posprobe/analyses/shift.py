"""The shift operator: which linear map takes a position to the next one, and how well.

In the sinusoid every step is one fixed rotation of each frequency's plane (Vaswani et al. 2017;
Kernes 2021 writes out the "translation matrix"). Fitting that map to a table by least squares is
dynamic mode decomposition (Schmid 2010): the angles of its eigenvalues are the learned frequencies,
free of any grid of bins, and their moduli the damping.

Periods alone prove nothing: least squares finds slow, smooth "periods" in a random walk too. What
tells them apart is the skill on rows that were not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.pca import PCA, components_of
from posprobe.analyses.result import Result, reasons
from posprobe.arrays import Array, Positions, positions
from posprobe.schema import Count, Reasons
from posprobe.tables import Grid, Layout, PositionTable

#: Fewest rows of which one half can teach what the other half tests.
MIN_ROWS = 16
#: Shares of the variance left out by the candidate ranks.
LEFT_OUT = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-6, 1e-9, 1e-12)
#: Largest drops from one component's variance to the next's that are candidates, too.
DROPS = 3
#: Largest candidate rank; the numerical rank of a table that lacks full rank may be twice that.
MAX_RANK = 256
#: How much held-out skill a larger rank may cost and still be preferred.
TOLERANCE = 0.01
#: How much better than noise a larger rank's components must be explained.
BEYOND_CHANCE = 3.0
#: Directions this much weaker than the strongest teach a half nothing: float32's rounding.
FLOOR = 1e-6
#: Modes that carry less of the variance are rounding or noise, and are not listed.
MIN_SHARE = 1e-4
#: Smallest angle per position, in radians, that is not a real eigenvalue split by rounding.
MIN_ANGLE = 1e-6
#: What a listed mode must show to count as a rotation.
MIN_SKILL = 0.5
MIN_SKILL_ROWS = 0.1
MIN_TURNS = 2.0
MIN_PHASE_LINEARITY = 0.995
MAX_RADIUS_CV = 0.3


class RotationRule(TypedDict):
    """What a mode needs to count as a rotation."""

    min_share: float
    min_skill: float
    min_skill_rows: float
    min_turns: float
    min_phase_linearity: float
    max_radius_cv: float


class ShiftBlock(TypedDict):
    """The linear map from each position to the next."""

    skill: Annotated[float | None, "On held-out rows, against no change."]
    skill_persistence: float | None
    r2: float | None
    skill_rows: float | None
    rank: Count | None
    variance: float | None
    periods: Annotated[list[float] | None, "In positions, of the shift operator's eigenvalues."]
    moduli: Annotated[list[float] | None, "Absolute values of the eigenvalues: 1 is undamped."]
    half_lives: Annotated[
        list[float | None] | None, "In positions; null where the mode does not decay."
    ]
    shares: list[float] | None
    turns: list[float] | None
    phase_linearity: list[float] | None
    radius_cv: list[float] | None
    rotations: Annotated[list[float] | None, "Periods of the modes that count as rotations."]
    rule: RotationRule
    undefined: Reasons


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
        least `MIN_SHARE` of the variance. Real eigenvalues (trends, and the alternation of period
        2) have no phase and are not listed.
    moduli
        ``[m]``: factor by which the mode's amplitude changes per position.
    half_lives
        ``[m]``: positions after which the amplitude has halved; infinite from modulus 1.
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
        ``[m]``: whether the mode is a rotation by all of `MIN_SKILL`, `MIN_SKILL_ROWS`,
        `MIN_TURNS`, `MIN_PHASE_LINEARITY` and `MAX_RADIUS_CV`.
    eigenvalues
        ``[rank]`` complex: of the map fitted to all rows.
    rank, variance
        Number of leading components that the map acts on, and their share of the variance.
    skill
        Of the components' next row, predicted by a map fitted to the other half of the table:
        1 - error over the smaller error of two forecasts that know nothing, "no change" and "the
        mean row". 1 is exact, 0 no better than those.
    skill_persistence, r2
        The same against "no change" alone and against the mean row alone.
    skill_rows
        Like ``skill``, for the whole rows: what lies outside the components counts as error.
    layout, start
        Of the positions.
    undefined
        Reason why there is no map, or empty.
    """

    figures: ClassVar[str] = "shift"

    periods: NDArray[np.float64]
    moduli: NDArray[np.float64]
    half_lives: NDArray[np.float64]
    shares: NDArray[np.float64]
    turns: NDArray[np.float64]
    phase_linearity: NDArray[np.float64]
    radius_cv: NDArray[np.float64]
    rotations: NDArray[np.bool_]
    eigenvalues: NDArray[np.complex128]
    rank: int | None
    variance: float | None
    skill: float | None
    skill_persistence: float | None
    r2: float | None
    skill_rows: float | None
    layout: Layout
    start: int
    undefined: str = ""

    def summary(self) -> ShiftBlock:
        """Return skill, rank and the modes, with the rule for rotations."""
        fitted = not self.undefined
        undamped = bool(np.isinf(self.half_lives).any())
        block: ShiftBlock = {
            "skill": self.skill,
            "skill_persistence": self.skill_persistence,
            "r2": self.r2,
            "skill_rows": self.skill_rows,
            "rank": self.rank,
            "variance": self.variance,
            "periods": self.periods.tolist() if fitted else None,
            "moduli": self.moduli.tolist() if fitted else None,
            "half_lives": np.where(np.isinf(self.half_lives), None, self.half_lives).tolist()  # type: ignore[call-overload]
            if fitted
            else None,
            "shares": self.shares.tolist() if fitted else None,
            "turns": self.turns.tolist() if fitted else None,
            "phase_linearity": self.phase_linearity.tolist() if fitted else None,
            "radius_cv": self.radius_cv.tolist() if fitted else None,
            "rotations": self.periods[self.rotations].tolist() if fitted else None,
            "rule": {
                "min_share": MIN_SHARE,
                "min_skill": MIN_SKILL,
                "min_skill_rows": MIN_SKILL_ROWS,
                "min_turns": MIN_TURNS,
                "min_phase_linearity": MIN_PHASE_LINEARITY,
                "max_radius_cv": MAX_RADIUS_CV,
            },
            "undefined": {},
        }
        block["undefined"] = reasons(block, self.undefined)
        if undamped:
            block["undefined"]["half_lives"] = (
                "null where the modulus is 1 or more: it does not decay"
            )
        return block


def shift(table: PositionTable | Positions | Array, *, pca: PCA | None = None) -> Shift:
    """Fit the map from each position to the next, in the space of the leading components.

    The map and a constant are fitted to all pairs of neighbouring rows by least squares; the
    constant makes the fit exact for a table that rotates about another point than its mean. The
    skill is measured with one half of the table predicting the other, both ways (see
    `shift_skill`), and the rank chosen by it (see `shift_rank`).

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
    given = positions(table)
    n = given.values.shape[0]
    if isinstance(given.layout, Grid):
        return _none(given, "patches lie on a grid: no single step leads from each to the next")
    if n < MIN_ROWS:
        return _none(given, f"fewer than {MIN_ROWS} rows")
    components = components_of(given, pca)
    if components.undefined:
        return _none(given, components.undefined)
    if components.method != "exact":
        why = f"only the {len(components.singular_values)} leading components are computed"
        return _none(given, f"{why}, and the map's rank is chosen among all; try fewer --rows")
    # Squares of very small or large units must not leave the range of the numbers.
    scores = components.scores / components.singular_values[0]
    rank = shift_rank(scores)
    errors = _errors(scores[:, :rank])
    skill = _skill(errors)
    if np.isnan(skill):
        return _none(given, "the rows do not change within either half of the table")
    eigenvalues, modes = _modes(scores, rank)
    rotations = (
        (modes["turns"] >= MIN_TURNS)
        & (modes["phase_linearity"] >= MIN_PHASE_LINEARITY)
        & (modes["radius_cv"] <= MAX_RADIUS_CV)
    )
    against_no_change, against_mean = _skills(errors)
    skill_rows = _skill(_with_rest(errors, _baselines(scores[:, rank:])))
    return Shift(
        periods=modes["periods"],
        moduli=modes["moduli"],
        half_lives=modes["half_lives"],
        shares=modes["shares"],
        turns=modes["turns"],
        phase_linearity=modes["phase_linearity"],
        radius_cv=modes["radius_cv"],
        rotations=rotations & (skill >= MIN_SKILL and skill_rows >= MIN_SKILL_ROWS),
        eigenvalues=eigenvalues,
        rank=rank,
        variance=_energy(scores[:, :rank]) / _energy(scores),
        skill=skill,
        skill_persistence=against_no_change,
        r2=against_mean,
        skill_rows=skill_rows,
        layout=given.layout,
        start=given.start,
    )


def shift_skill(scores: NDArray[np.floating[Any]]) -> float:
    """Predict each half of a series by the map fitted to the other half.

    Both fits are about the mean of the whole: half a table holds too little of its slow modes to
    place their centre. In directions that a half does not show, the map predicts no change.

    Parameters
    ----------
    scores
        ``[n, r]``: positions along the leading components, or any other coordinates; n at least 4.

    Returns
    -------
    float
        1 - error over the smaller error of "no change" and "the mean row"; at most 1, and without
        lower limit. NaN where one of those is exact and leaves nothing to gain.
    """
    # Iid rows are predicted half as badly by their mean as by their predecessor, so a skill
    # against persistence alone is 0.5 for pure noise.
    return _skill(_errors(np.asarray(scores, dtype=np.float64)))


def leading_skill(scores: NDArray[np.floating[Any]]) -> float | None:
    """Return the skill of the map at the rank that these components call for.

    Parameters
    ----------
    scores
        ``[n, k]``: positions along the leading components, strongest first; None is returned
        for n below `MIN_ROWS`, or where nothing changes.
    """
    if len(scores) < MIN_ROWS:
        return None
    scaled = scores.astype(np.float64) / float(np.linalg.norm(scores[:, 0]))
    skill = shift_skill(scaled[:, : shift_rank(scaled)])
    return None if np.isnan(skill) else skill


def shift_rank(scores: NDArray[np.floating[Any]]) -> int:
    """Choose how many leading components the map acts on.

    Candidates are the ranks that leave out the shares of variance `LEFT_OUT` and those before the
    `DROPS` steepest drops, up to a quarter of the rows and to `MAX_RANK`, and the numerical rank
    where that is lower than the table's shape demands. Each predicts whole rows of the other half
    of the table. The one with the best skill is taken, then larger ones as long as they cost less
    than `TOLERANCE` of it and add components that the map explains: to `BEYOND_CHANCE` times the
    share that so many regressors explain of noise, or to half of what that leaves. Too small a rank
    mixes frequencies, and the exact map of a sinusoid needs directions that carry next to nothing.

    Parameters
    ----------
    scores
        ``[n, k]``: positions along all components, strongest first; n at least `MIN_ROWS`.
    """
    scores = np.asarray(scores, dtype=np.float64)
    n, k = scores.shape
    power = (scores**2).sum(axis=0)
    rest = np.append(np.cumsum(power[::-1])[-2::-1], 0.0) / power.sum()
    limit = max(1, min(n // 4, MAX_RANK))
    candidates = {int(np.argmax(rest <= share)) + 1 for share in LEFT_OUT}
    candidates = {rank for rank in candidates if rank <= limit} or {min(limit, k)}
    numerical = int(np.count_nonzero(power > (1e-13 * n) ** 2 * power[0]))
    known = power[: min(limit, numerical) + 1]
    steepest = np.argsort(known[1:] / known[:-1], kind="stable")[:DROPS] + 1
    candidates.update(steepest.tolist())
    if numerical <= (2 * MAX_RANK if numerical < min(n - 1, k) else limit):
        candidates.add(numerical)
    ranks = sorted(candidates)
    halves = _halves(scores[:, : ranks[-1]])
    no_change, mean = _column_baselines(scores)
    # Outside the components the map knows no more than the mean.
    outside = np.append(np.cumsum(mean[::-1])[-2::-1], 0.0)
    errors = [_map_error(halves, rank) + outside[rank - 1] for rank in ranks]
    skills = np.array([_skill(np.array([error, no_change.sum(), mean.sum()])) for error in errors])
    best = int(np.argmax(skills))
    chosen = ranks[best]
    for rank, skill in zip(ranks[best + 1 :], skills[best + 1 :], strict=True):
        chance = rank / (n - 1)
        demanded = min(BEYOND_CHANCE * chance, (1 + chance) / 2)
        if skill >= skills[best] - TOLERANCE and _explained(scores, chosen, rank) >= demanded:
            chosen = rank
    return chosen


def _explained(scores: NDArray[np.floating[Any]], known: int, rank: int) -> float:
    """Share of components ``known`` to ``rank`` that the map of that rank explains, on average."""
    before, after = scores[:-1, :rank], scores[1:, :rank]
    no_change = after - before
    before, after = before - before.mean(axis=0), after - after.mean(axis=0)
    error = after - before @ _operator(before, after)
    added = slice(known, rank)
    sizes = [(values[:, added] ** 2).sum(axis=0) for values in (error, no_change, after)]
    return float(np.mean(1 - sizes[0] / np.minimum(sizes[1], sizes[2])))


def _energy(values: NDArray[np.floating[Any]]) -> float:
    return float((values**2).sum())


def _parts(scores: NDArray[np.floating[Any]]) -> tuple[NDArray[Any], ...]:
    """Centre the rows and cut them into the two halves, each of which tests the other."""
    centered = scores - scores.mean(axis=0)
    middle = len(scores) // 2
    return centered[:middle], centered[middle:]


def _halves(
    scores: NDArray[np.floating[Any]],
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return of each half the triangular factor of its rows and of their changes.

    All that least squares needs to know, for every number of leading components: those of the first
    few columns are the first few columns of the factor.
    """
    k = scores.shape[1]
    factors = [
        np.asarray(np.linalg.qr(np.hstack([part[:-1], np.diff(part, axis=0)]), mode="r"))
        for part in _parts(scores)
    ]
    return [(factor[:, :k], factor[:, k:]) for factor in factors]


def _map_error(halves: list[tuple[NDArray[np.float64], NDArray[np.float64]]], rank: int) -> float:
    """Squared error of the map that each half teaches, on the other half's rows."""
    error = 0.0
    first, second = halves
    for (rows, changes), (tested, moved) in ((first, second), (second, first)):
        change = np.linalg.lstsq(rows[:rank, :rank], changes[:rank, :rank], rcond=FLOOR)[0]
        error += _energy(moved[:, :rank] - tested[:, :rank] @ change)
    return error


def _operator(
    before: NDArray[np.floating[Any]], after: NDArray[np.floating[Any]]
) -> NDArray[np.float64]:
    """Least-squares map ``before -> after``; the identity in directions that teach nothing."""
    change: NDArray[np.float64] = np.linalg.lstsq(before, after - before, rcond=None)[0]
    return np.eye(before.shape[1]) + change


def _errors(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Squared errors on held-out rows: of the map, of no change, and of the mean row."""
    return np.array([_map_error(_halves(scores), scores.shape[1]), *_baselines(scores)])


def _column_baselines(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Squared errors on the same rows of "no change" and of "the mean row": ``[2, k]``."""
    parts = _parts(scores)
    return np.array(
        [
            sum((np.diff(part, axis=0) ** 2).sum(axis=0) for part in parts),
            sum((part[1:] ** 2).sum(axis=0) for part in parts),
        ]
    )


def _baselines(scores: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Squared errors on the same rows of "no change" and of "the mean row"."""
    no_change, mean = _column_baselines(scores).sum(axis=1)
    return float(no_change), float(mean)


def _with_rest(errors: NDArray[np.float64], rest: tuple[float, float]) -> NDArray[np.float64]:
    """Add what lies outside the components, where the map knows no more than the mean."""
    no_change, mean = rest
    added: NDArray[np.float64] = errors + np.array([mean, no_change, mean])
    return added


def _skill(errors: NDArray[np.float64]) -> float:
    return float(np.min(_skills(errors)))


def _skills(errors: NDArray[np.float64]) -> tuple[float, float]:
    """Skill against no change and against the mean row; NaN against a forecast that is exact."""
    error, no_change, mean = errors.tolist()
    rounding = 1e-24 * max(no_change, mean)
    against = [1 - error / base if base > rounding else np.nan for base in (no_change, mean)]
    return float(against[0]), float(against[1])


def _modes(
    scores: NDArray[np.float64], rank: int
) -> tuple[NDArray[np.complex128], dict[str, NDArray[np.float64]]]:
    """Fit the map to all rows; return its eigenvalues and what each oscillation does."""
    n = len(scores)
    leading = scores[:, :rank]
    before, after = leading[:-1], leading[1:]
    # Means of their own for both sides are the least-squares constant.
    operator = _operator(before - before.mean(axis=0), after - after.mean(axis=0))
    eigenvalues, vectors = np.linalg.eig(operator)
    eigenvalues = eigenvalues.astype(np.complex128)
    upper = np.flatnonzero(np.angle(eigenvalues) > MIN_ANGLE)
    upper = upper[np.abs(eigenvalues[upper].imag) > MIN_ANGLE * np.abs(eigenvalues[upper])]
    upper = upper[np.argsort(-np.angle(eigenvalues[upper]), kind="stable")]
    signals = leading @ vectors[:, upper]
    # Energy of 2 Re(signal x direction), with neither formed: [n, rank] for each mode.
    directions = np.linalg.pinv(vectors, rcond=1e-15)[upper]
    straight = (np.abs(signals) ** 2).sum(axis=0) * (np.abs(directions) ** 2).sum(axis=1)
    crossed = ((signals**2).sum(axis=0) * (directions**2).sum(axis=1)).real
    shares = 2 * (straight + crossed) / _energy(scores)
    kept = shares >= MIN_SHARE
    upper, signals, shares = upper[kept], signals[:, kept], shares[kept]
    modulus, angle = np.abs(eigenvalues[upper]), np.angle(eigenvalues[upper])
    half_lives = np.full(len(modulus), np.inf)
    damped = (modulus < 1) & (modulus > 0)
    half_lives[damped] = np.log(0.5) / np.log(modulus[damped])
    radius = np.abs(signals)
    phase = np.unwrap(np.angle(signals), axis=0)
    return eigenvalues, {
        "periods": 2 * np.pi / angle,
        "moduli": modulus,
        "half_lives": half_lives,
        "shares": shares,
        "turns": n * angle / (2 * np.pi),
        "phase_linearity": _linearity(phase),
        "radius_cv": radius.std(axis=0) / radius.mean(axis=0),
    }


def _linearity(phase: NDArray[np.float64]) -> NDArray[np.float64]:
    """R² of each column against position."""
    time = np.arange(len(phase)) - (len(phase) - 1) / 2
    centered = phase - phase.mean(axis=0)
    total = (centered**2).sum(axis=0)
    explained = (time @ centered) ** 2 / (time**2).sum()
    r2: NDArray[np.float64] = np.zeros_like(total)
    np.divide(explained, total, out=r2, where=total > 0)
    return r2


def _none(given: Positions, why: str) -> Shift:
    nothing: NDArray[np.float64] = np.zeros(0)
    return Shift(
        periods=nothing,
        moduli=nothing,
        half_lives=nothing,
        shares=nothing,
        turns=nothing,
        phase_linearity=nothing,
        radius_cv=nothing,
        rotations=np.zeros(0, dtype=bool),
        eigenvalues=np.zeros(0, dtype=np.complex128),
        rank=None,
        variance=None,
        skill=None,
        skill_persistence=None,
        r2=None,
        skill_rows=None,
        layout=given.layout,
        start=given.start,
        undefined=why,
    )
