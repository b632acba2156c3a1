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
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Number
from posprobe.analyses.pca import PCA, components_of
from posprobe.analyses.result import HIDDEN, As, Result, WithGaps, nothing
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

#: Smallest angle per position, in radians, that is not a real eigenvalue split by rounding.
MIN_ANGLE = 1e-6
#: Distance of a modulus from 1 that is rounding: such a mode does not decay.
SLIGHT = 1e-9


@dataclass(frozen=True)
class RotationRule:
    """What a mode needs to count as a rotation; below ``min_share`` it is noise, and not listed."""

    min_share: float = 1e-4
    min_skill: float = 0.5
    min_skill_rows: float = 0.1
    min_turns: float = 2.0
    min_phase_linearity: float = 0.995
    max_radius_cv: float = 0.3


RULE = RotationRule()


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
        ``[m]``: whether the mode is a rotation by ``rule``.
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
    rule
        What makes a mode a rotation.
    """

    figures: ClassVar[str] = "frequencies.plot_shift"

    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    periods: Annotated[
        NDArray[np.float64], "In positions, of the shift operator's eigenvalues."
    ] = field(default_factory=nothing)
    moduli: Annotated[NDArray[np.float64], "Absolute values of the eigenvalues: 1 is undamped."] = (
        field(default_factory=nothing)
    )
    half_lives: Annotated[WithGaps, "In positions; null where the mode does not decay."] = field(
        default_factory=nothing
    )
    shares: Annotated[NDArray[np.float64], ""] = field(default_factory=nothing)
    turns: Annotated[NDArray[np.float64], ""] = field(default_factory=nothing)
    phase_linearity: Annotated[NDArray[np.float64], ""] = field(default_factory=nothing)
    radius_cv: Annotated[NDArray[np.float64], ""] = field(default_factory=nothing)
    rotations: Annotated[
        NDArray[np.bool_],
        As(
            list[float] | None,
            lambda found: None if found.undefined else found.periods[found.rotations],
        ),
        "Periods of the modes that count as rotations.",
    ] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    eigenvalues: NDArray[np.complex128] = field(default_factory=nothing)
    skill: Annotated[
        float | None,
        Number(
            "shift skill",
            "how well one linear map predicts the next position, on held-out rows; 1 is exact",
            compared=True,
        ),
    ] = None
    r2: Annotated[float | None, Number("shift R²", "the same against the mean row")] = None
    rank: Annotated[
        Count | None, Number("shift rank", "leading components that the map acts on", form="d")
    ] = None
    variance: Annotated[
        float | None,
        Number("shift variance", "share of the variance that those components explain"),
    ] = None
    skill_persistence: float | None = None
    skill_rows: float | None = None
    undefined: Annotated[str, As(Reasons)] = ""
    rule: RotationRule = RULE

    @property
    def partly(self) -> dict[str, str]:
        """Why single half-lives are None."""
        why = "null where the modulus is 1, within rounding, or more: it does not decay"
        return {"half_lives": why} if np.isinf(self.half_lives).any() else {}


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
    none = partial(Shift, given.layout, given.start)
    n = given.values.shape[0]
    if isinstance(given.layout, Grid):
        why = "patches lie on a grid: no single step leads from each to the next"
        return none(undefined=why)
    if n < MIN_ROWS:
        return none(undefined=f"fewer than {MIN_ROWS} rows")
    components = components_of(given, pca)
    if components.undefined:
        return none(undefined=components.undefined)
    if components.method != "exact":
        why = f"only the {len(components.singular_values)} leading components are computed"
        return none(undefined=f"{why}, and the map's rank is chosen among all; try fewer --rows")
    # Squares of very small or large units must not leave the range of the numbers.
    scores = components.scores / components.singular_values[0]
    rank, errors = shift_rank(scores)
    skill = least_skill(errors)
    if np.isnan(skill):
        return none(undefined="the rows do not change within either half of the table")
    eigenvalues, modes = _modes(scores, rank)
    rotations = (
        (modes["turns"] >= RULE.min_turns)
        & (modes["phase_linearity"] >= RULE.min_phase_linearity)
        & (modes["radius_cv"] <= RULE.max_radius_cv)
    )
    against_no_change, against_mean = skills(errors)
    skill_rows = least_skill(with_rest(errors, baselines(scores[:, rank:])))
    return Shift(
        **modes,
        rotations=rotations & (skill >= RULE.min_skill and skill_rows >= RULE.min_skill_rows),
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


def _modes(scores: NDArray[np.float64], rank: int) -> tuple[NDArray[np.complex128], dict[str, Any]]:
    """Fit the map to all rows; return its eigenvalues and what each oscillation does."""
    n = len(scores)
    leading = scores[:, :rank]
    eigenvalues, vectors = np.linalg.eig(linear_map(leading))
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
    kept = shares >= RULE.min_share
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
