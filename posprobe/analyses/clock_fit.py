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

#: Degree of the polynomial: a clock that runs faster and slower four times along the table.
DEGREE = 8
#: Turns of fitting the paces and the clock to each other; from the third on nothing moves.
TURNS = 8
#: Most of what clocks of their own explain beyond one clock, of what they explain beyond fixed
#: periods; and the least correlation of how far each runs ahead.
LEFT, ALIKE = 0.1, 0.97
#: Share of the planes that bent phases explain beyond straight ones where there is a clock to tell.
BENT = 0.02
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
    alike
        Least correlation of two planes' clocks, less their even run.
    p
        How often clocks that are moved against each other are as alike.
    """

    reading: Floats
    paces: Floats
    fixed: float
    one: float
    own: float
    alike: float
    p: float

    @property
    def bent(self) -> bool:
        """Whether the planes' paces change."""
        return self.own - self.fixed >= BENT

    @property
    def shared(self) -> bool:
        """Whether all planes read this one."""
        left = self.own - self.one <= LEFT * (self.own - self.fixed)
        return self.bent and left and self.alike >= ALIKE and self.p <= LEVEL

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
    z = forward(z)
    n = z.shape[1]
    place = np.arange(n) - (n - 1) / 2
    weights = np.square(np.abs(z)).sum(axis=1)
    phases = np.unwrap(np.angle(z), axis=1)
    phases -= phases.mean(axis=1, keepdims=True)
    straight = np.stack([np.ones(n), place], axis=1)
    bends = np.polynomial.legendre.legvander(np.linspace(-1, 1, n), DEGREE)[:, 2:]
    bends = np.linalg.qr(bends - straight @ np.linalg.lstsq(straight, bends, rcond=None)[0])[0]
    even = phases @ place / (place @ place)
    own = phases @ bends
    ahead = np.asarray(own / even[:, None])
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
        alike=_alike(ahead),
        p=_chance(ahead, np.asarray(bends, np.float64), rng),
    )


def _alike(ahead: Floats) -> float:
    """Return the least correlation of how far clocks run ahead: rows ``[k, m]``."""
    unit = ahead / np.maximum(np.linalg.norm(ahead, axis=1, keepdims=True), 1e-300)
    return float((unit @ unit.T).min())


def _chance(ahead: Floats, bends: Floats, rng: np.random.Generator) -> float:
    """Return how often clocks ``[k, m]`` that are shifted along the table are as alike."""
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
