"""Rotations that read one clock: planes whose phases all follow the same function of position.

A phase that advances as ``2 pi g(p) / T`` reads the clock g; two planes share one where the same g
serves both. A clock runs evenly where the period is fixed. It is fitted to the unwrapped phases:
the position itself and a polynomial without a straight part, times a pace of each plane's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.mixture import Floats

Complexes: TypeAlias = NDArray[np.complex128]

#: Degree of the polynomial: a clock that runs faster and slower four times along the table. What
#: degrees from there to the second hold is taken for noise.
DEGREE, NOISE_DEGREE = 8, 24
#: Turns of fitting the paces and the clock to each other; from the third on nothing moves.
TURNS = 8
#: Turns of a plane from which its clock can be told: what else is smooth bends slower ones.
FEW = 4
#: Level at which a plane's phases are bent, against their noise; and the least correlation, without
#: that noise, of how far bent planes run ahead: of two to four planes with a clock of their own
#: each, one is told in 8 of 1,440 tables.
BENT, ALIKE = 0.01, 0.97
#: Draws of clocks that are moved against each other, and the level: 1 / 200 is below it.
DRAWS, LEVEL = 199, 0.02


@dataclass(frozen=True, eq=False)
class Fitted:
    """A clock that several planes read.

    Parameters
    ----------
    reading
        ``[n]``: g, in positions, as fast as position on average.
    paces
        ``[k]``: radians per position on average.
    fixed, one, own
        Share of what lies in the planes that circles of fixed periods explain, that those read from
        this clock do, and those with a clock for each.
    bent
        How many planes of `FEW` turns or more change their pace beyond noise.
    alike
        Least correlation of two such planes' clocks, less their even run and their noise; 0 of
        fewer.
    p
        How often clocks that are moved against each other are as alike.
    """

    reading: Floats
    paces: Floats
    fixed: float
    one: float
    own: float
    bent: int
    alike: float
    p: float

    @property
    def shared(self) -> bool:
        """Whether all planes whose pace changes read this one."""
        return self.bent > 1 and self.alike >= ALIKE and self.p <= LEVEL

    @property
    def speed(self) -> Floats:
        """``[n]``: of the clock, 1 on average."""
        return np.asarray(np.gradient(self.reading))


def forward(z: Complexes) -> Complexes:
    """Return paths ``[k, n]`` mirrored where that makes their phases rise."""
    turned = np.angle(z[:, 1:] * z[:, :-1].conj()).sum(axis=1)
    return np.where(turned[:, None] < 0, z.conj(), z)


def fit_clock(z: Complexes, rng: np.random.Generator) -> Fitted:
    """Fit one clock to several planes.

    Parameters
    ----------
    z
        ``[k, n]``: the table along each plane; two planes or more.
    rng
        Of the draws.
    """
    from scipy.special import fdtrc

    z = forward(z)
    n = z.shape[1]
    place = np.arange(n) - (n - 1) / 2
    weights = np.square(np.abs(z)).sum(axis=1)
    phases = np.unwrap(np.angle(z), axis=1)
    phases -= phases.mean(axis=1, keepdims=True)
    straight = np.stack([np.ones(n), place], axis=1)
    most = min(NOISE_DEGREE, n - 2)
    bends = np.polynomial.legendre.legvander(np.linspace(-1, 1, n), most)[:, 2:]
    bends = np.linalg.qr(bends - straight @ np.linalg.lstsq(straight, bends, rcond=None)[0])[0]
    even = phases @ place / (place @ place)
    held = phases @ bends
    own, bends = held[:, : DEGREE - 1], bends[:, : DEGREE - 1]
    noise = np.square(held[:, DEGREE - 1 :]).mean(axis=1) + 1e-12 / n
    size = np.square(own).sum(axis=1) + 1e-12
    told = np.abs(even) * n >= 2 * np.pi * FEW
    bent = told & (fdtrc(DEGREE - 1, most - DEGREE, size / noise / (DEGREE - 1)) <= BENT)
    ahead = np.asarray(own / even[:, None])[bent]
    reading, paces = place, even
    for _ in range(TURNS):
        bend = (weights * paces) @ own / (weights @ np.square(paces))
        reading = place + bends @ bend
        paces = phases @ reading / (reading @ reading)

    def explained(told: Floats) -> float:
        held = np.square(np.abs((z * np.exp(-1j * told)).sum(axis=1))) / n
        return float(held.sum() / weights.sum())

    each = even[:, None] * place
    return Fitted(
        reading,
        paces,
        # Of each plane the best of all fixed periods, to a sixteenth of a turn.
        fixed=float(np.square(np.abs(np.fft.fft(z, 16 * n)).max(axis=1)).sum() / n / weights.sum()),
        one=explained(paces[:, None] * reading),
        own=explained(each + own @ bends.T),
        bent=len(ahead),
        alike=_alike(ahead, (1 - (DEGREE - 1) * noise / size)[bent]),
        p=_chance(ahead, np.asarray(bends, np.float64), rng),
    )


def _alike(ahead: Floats, kept: Floats | float = 1.0) -> float:
    """Return the least correlation of how far clocks run ahead: rows ``[k, m]``.

    Parameters
    ----------
    ahead
        Rows that are not zero.
    kept
        ``[k]``: what noise is not, of their squares.
    """
    if len(ahead) < 2:
        return 0.0
    unit = ahead / np.sqrt(np.square(ahead).sum(axis=1) * kept)[:, None]
    return min(float((unit @ unit.T)[np.triu_indices(len(unit), 1)].min()), 1.0)


def _chance(ahead: Floats, bends: Floats, rng: np.random.Generator) -> float:
    """Return how often clocks ``[k, m]`` that are shifted along the table are as alike."""
    if len(ahead) < 2:
        return 1.0
    first, *others = np.asarray(ahead @ bends.T)
    reached = 0
    for _ in range(DRAWS):
        moved = [np.roll(each, rng.integers(len(each))) for each in others]
        reached += _alike(np.stack([first, *moved]) @ bends) >= _alike(ahead)
    return (1 + reached) / (1 + DRAWS)


def rewound(points: Floats, reading: Floats) -> Floats:
    """Return rows ``[n, d]`` at even steps of a clock, between its first and last reading."""
    at = np.interp(
        np.linspace(reading[0], reading[-1], len(points)), reading, np.arange(len(points))
    )
    below = np.minimum(at.astype(np.intp), len(points) - 2)
    part = (at - below)[:, None]
    return np.asarray((1 - part) * points[below] + part * points[below + 1])
