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

from posprobe.arrays import Floats

Complexes: TypeAlias = NDArray[np.complex128]


#: Degree of the polynomial: a clock that runs faster and slower four times along the table. What
#: degrees from there to the second hold is taken for noise.
DEGREE, NOISE_DEGREE = 8, 24


#: Turns of fitting the paces and the clock to each other; from the third on nothing moves.
TURNS = 8


#: Turns of a plane from which its clock can be told: what else is smooth bends slower ones.
FEW = 3


#: Correlation of clocks that are one, as those of trained planes are; and how many times likelier
#: than clocks of their own they make what was seen: strong evidence (Jeffreys 1961, appendix B).
ONE, STRONG = 0.995, 10.0


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
    evidence
        Logarithm, to base 10, of how many times likelier the phases are with one clock than with
        clocks of their own, for all or for any one of three or more; 0 where fewer than two planes
        make `FEW` turns.
    """

    reading: Floats
    paces: Floats
    fixed: float
    one: float
    own: float
    evidence: float

    @property
    def shared(self) -> bool:
        """Whether the planes read this one, and it does not run evenly."""
        return bool(self.evidence >= np.log10(STRONG))

    @property
    def speed(self) -> Floats:
        """``[n]``: of the clock, 1 on average."""
        return np.asarray(np.gradient(self.reading))


def forward(z: Complexes) -> Complexes:
    """Return paths ``[k, n]`` mirrored where that makes their phases rise."""
    turned = np.angle(z[:, 1:] * z[:, :-1].conj()).sum(axis=1)
    return np.where(turned[:, None] < 0, z.conj(), z)


def fit_clock(z: Complexes) -> Fitted:
    """Fit one clock to several planes.

    Parameters
    ----------
    z
        ``[k, n]``: the table along each plane; two planes or more.
    """
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
    told = np.abs(even) * n >= 2 * np.pi * FEW
    reading, paces = place, even
    for _ in range(TURNS):
        bend = (weights * paces) @ own / (weights @ np.square(paces))
        reading = place + bends @ bend
        paces = phases @ reading / (reading @ reading)

    def explained(phase: Floats) -> float:
        held = np.square(np.abs((z * np.exp(-1j * phase)).sum(axis=1))) / n
        return float(held.sum() / weights.sum())

    each = even[:, None] * place
    return Fitted(
        reading,
        paces,
        # Of each plane the best of all fixed periods, to a sixteenth of a turn.
        fixed=float(np.square(np.abs(np.fft.fft(z, 16 * n)).max(axis=1)).sum() / n / weights.sum()),
        one=explained(paces[:, None] * reading),
        own=explained(each + own @ bends.T),
        evidence=_evidence((own / even[:, None])[told], (noise / np.square(even))[told]),
    )


def _evidence(ahead: Floats, noise: Floats) -> float:
    """Compare clocks that are one with clocks of their own: log10 of the likelihoods' ratio.

    The speed of a clock is taken for a random walk, so that the squares of its degrees fall by
    their fourth power. How far it walks is, in each case, what makes the phases likeliest. That all
    planes but one read a clock is taken to be a tenth as likely beforehand.

    Parameters
    ----------
    ahead
        ``[k, m]``: how far clocks run ahead, by degree from the second on.
    noise
        ``[k]``: variance of each of these.
    """
    if len(ahead) < 2:
        return 0.0
    falling = np.arange(2.0, ahead.shape[1] + 2) ** -4
    # From clocks that run evenly to ten times the largest bend seen.
    sizes = np.append(0.0, np.geomspace(1e-8, 10, 70)) * np.square(ahead).max() / falling[0]

    def likelihood(reads: NDArray[np.intp]) -> float:
        same = np.equal.outer(reads, reads)
        alike = np.where(np.eye(len(reads), dtype=bool), 1.0, ONE * same)
        spread = np.multiply.outer(sizes, falling)[..., None, None] * alike + np.diag(noise)
        fitting = np.einsum("kj,tjkl,lj->tj", ahead, np.linalg.inv(spread), ahead)
        return -0.5 * float((np.linalg.slogdet(spread)[1] + fitting).sum(axis=1).min())

    each = np.arange(len(ahead))
    others = [likelihood(each)]
    if len(ahead) > 2:
        others += [likelihood(np.where(each == k, 1, 0)) - np.log(STRONG) for k in each]
    return float((likelihood(np.zeros_like(each)) - max(others)) / np.log(10))


def rewound(points: Floats, reading: Floats) -> Floats:
    """Return rows ``[n, d]`` at even steps of a clock, between its first and last reading."""
    even = np.linspace(reading[0], reading[-1], len(points))
    return np.stack([np.interp(even, reading, column) for column in points.T], axis=1)
