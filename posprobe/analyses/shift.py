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
from typing import Annotated, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.pca import PCA, components_of
from posprobe.analyses.result import Result, reasons
from posprobe.analyses.shift_skill import (
    MIN_ROWS,
    baselines,
    energy,
    least_skill,
    linear_map,
    shift_rank,
    skills,
    with_rest,
)
from posprobe.arrays import Array, Positions, positions
from posprobe.layouts import Grid, Layout
from posprobe.schema import Count, Reasons
from posprobe.tables import PositionTable

#: Modes that carry less of the variance are rounding or noise, and are not listed.
MIN_SHARE = 1e-4
#: Smallest angle per position, in radians, that is not a real eigenvalue split by rounding.
MIN_ANGLE = 1e-6
#: Distance of a modulus from 1 that is rounding: such a mode does not decay.
SLIGHT = 1e-9
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
        ``[m]``: positions after which the amplitude has halved; infinite from modulus 1, within
        `SLIGHT`.
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
                "null where the modulus is 1, within rounding, or more: it does not decay"
            )
        return block


def shift(table: PositionTable | Positions | Array, *, pca: PCA | None = None) -> Shift:
    """Fit the map from each position to the next, in the space of the leading components.

    The map and a constant are fitted to all pairs of neighbouring rows by least squares; the
    constant makes the fit exact for a table that rotates about another point than its mean. The
    skill is measured with one half of the table predicting the other, both ways, and the rank
    chosen by it (see `shift_rank`).

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
    rank, errors = shift_rank(scores)
    skill = least_skill(errors)
    if np.isnan(skill):
        return _none(given, "the rows do not change within either half of the table")
    eigenvalues, modes = _modes(scores, rank)
    rotations = (
        (modes["turns"] >= MIN_TURNS)
        & (modes["phase_linearity"] >= MIN_PHASE_LINEARITY)
        & (modes["radius_cv"] <= MAX_RADIUS_CV)
    )
    against_no_change, against_mean = skills(errors)
    skill_rows = least_skill(with_rest(errors, baselines(scores[:, rank:])))
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
        variance=energy(scores[:, :rank]) / energy(scores),
        skill=skill,
        skill_persistence=against_no_change,
        r2=against_mean,
        skill_rows=skill_rows,
        layout=given.layout,
        start=given.start,
    )


def _modes(
    scores: NDArray[np.float64], rank: int
) -> tuple[NDArray[np.complex128], dict[str, NDArray[np.float64]]]:
    """Fit the map to all rows; return its eigenvalues and what each oscillation does."""
    n = len(scores)
    leading = scores[:, :rank]
    before, after = leading[:-1], leading[1:]
    # Means of their own for both sides are the least-squares constant.
    operator = linear_map(before - before.mean(axis=0), after - after.mean(axis=0))
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
    shares = 2 * (straight + crossed) / energy(scores)
    kept = shares >= MIN_SHARE
    upper, signals, shares = upper[kept], signals[:, kept], shares[kept]
    modulus, angle = np.abs(eigenvalues[upper]), np.angle(eigenvalues[upper])
    half_lives = np.full(len(modulus), np.inf)
    damped = (modulus < 1 - SLIGHT) & (modulus > 0)
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
