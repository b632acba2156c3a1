"""Clocks that rotations read: functions g of position by which their planes go round.

Rotations may read one clock: planes whose phases all follow the same function g of position, as
``2 pi g(p) / T``. A clock runs evenly where the period is fixed. It is fitted to the unwrapped
phases: the position itself and a polynomial without a straight part, times a frequency for each
plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats

Complexes: TypeAlias = NDArray[np.complex128]
#: Degree of the polynomial that bends a clock, which may run faster and slower four times along the
#: table.
CLOCK_DEGREE = 8
#: Degrees from the clock's to this one count as noise of the phases.
CLOCK_NOISE_DEGREE = 24
#: Rounds in which frequencies and clock are fitted to each other; nothing moves after the third.
N_CLOCK_ITERATIONS = 8
#: A plane shows its clock from this many turns on: slower ones are bent by everything smooth.
MIN_CLOCK_TURNS = 3
#: Correlation of clocks that are one, as those of trained planes are.
CLOCK_CORRELATION = 0.995
#: Strong evidence for one clock makes the phases this many times likelier than clocks of their own
#: do (Jeffreys 1961, appendix B).
STRONG_EVIDENCE_RATIO = 10.0


@dataclass(frozen=True, eq=False)
class ClockFit:
    """A clock that several planes read.

    Parameters
    ----------
    clock_positions
        ``[n]``: g, in positions, as fast as position on average.
    frequencies
        ``[k]``: radians per position on average.
    fixed_share, one_clock_share, own_clocks_share
        Share of the planes' variance that circles of fixed periods explain, circles that read this
        clock, and circles with a clock for each.
    evidence
        Logarithm, to base 10, of how many times likelier the phases are with one clock than with
        clocks of their own, for all or for any one of three or more; 0 where fewer than two planes
        make `MIN_CLOCK_TURNS` turns.
    """

    clock_positions: Floats
    frequencies: Floats
    fixed_share: float
    one_clock_share: float
    own_clocks_share: float
    evidence: float

    @property
    def is_shared(self) -> bool:
        """Whether the planes read this one, and it does not run evenly."""
        return bool(self.evidence >= np.log10(STRONG_EVIDENCE_RATIO))

    @property
    def speed(self) -> Floats:
        """``[n]``: speed of the clock, 1 on average."""
        return np.asarray(np.gradient(self.clock_positions))


def orient_forward(z: Complexes) -> Complexes:
    """Return paths ``[k, n]`` mirrored where that makes their phases rise."""
    total_angles = np.angle(z[:, 1:] * z[:, :-1].conj()).sum(axis=1)
    return np.where(total_angles[:, None] < 0, z.conj(), z)


def measure_lead(z: Complexes) -> Floats:
    """Return how far the angle in each plane is ahead of an even pace, in positions: ``[k, n]``.

    It is the unwrapped angle less its straight line, over the slope of that line. Planes that read
    one clock have one curve.

    Parameters
    ----------
    z
        ``[k, n]``: path of the rows in each plane, whose phases rise.
    """
    phases = np.unwrap(np.angle(z), axis=1)
    phases -= phases.mean(axis=1, keepdims=True)
    position = np.arange(z.shape[1]) - (z.shape[1] - 1) / 2
    frequencies = phases @ position / (position @ position)
    return np.asarray(phases / frequencies[:, None] - position)


def fit_clock(z: Complexes) -> ClockFit:
    """Fit one clock to several planes.

    Parameters
    ----------
    z
        ``[k, n]``: path of the rows in each plane; two planes or more.
    """
    z = orient_forward(z)
    n = z.shape[1]
    position = np.arange(n) - (n - 1) / 2
    weights = np.square(np.abs(z)).sum(axis=1)
    phases = np.unwrap(np.angle(z), axis=1)
    phases -= phases.mean(axis=1, keepdims=True)
    bends = _bend_basis(position)
    even_frequencies = phases @ position / (position @ position)
    coefficients = phases @ bends
    own_bends, bends = coefficients[:, : CLOCK_DEGREE - 1], bends[:, : CLOCK_DEGREE - 1]
    noise = np.square(coefficients[:, CLOCK_DEGREE - 1 :]).mean(axis=1) + 1e-12 / n
    is_fast = np.abs(even_frequencies) * n >= 2 * np.pi * MIN_CLOCK_TURNS
    clock_positions, frequencies = position, even_frequencies
    for _ in range(N_CLOCK_ITERATIONS):
        bend = (weights * frequencies) @ own_bends / (weights @ np.square(frequencies))
        clock_positions = position + bends @ bend
        frequencies = phases @ clock_positions / (clock_positions @ clock_positions)

    def circle_power(phase: Floats) -> Floats:
        return np.asarray(np.square(np.abs((z * np.exp(-1j * phase)).sum(axis=1))) / n)

    # The best fixed period of each plane is found to a sixteenth of a turn.
    fixed_power = np.square(np.abs(np.fft.fft(z, 16 * n)).max(axis=1)) / n
    straight_phases = even_frequencies[:, None] * position
    relative_bends = own_bends / even_frequencies[:, None]
    relative_noise = noise / np.square(even_frequencies)
    one_power = circle_power(frequencies[:, None] * clock_positions)
    own_power = circle_power(straight_phases + own_bends @ bends.T)
    evidence = _log10_evidence(relative_bends[is_fast], relative_noise[is_fast])
    # An even clock is one clock, and one clock is a clock for each: in noise, phases that slip bend
    # the clocks that are fitted to them, and an even one explains more.
    if one_power.sum() < fixed_power.sum():
        clock_positions, frequencies, one_power = position, even_frequencies, fixed_power
        evidence = min(evidence, 0.0)
    own_power = np.maximum(own_power, one_power)
    fixed_share, one_share, own_share = (
        float(power.sum() / weights.sum())
        for power in (fixed_power, one_power, own_power)
    )
    return ClockFit(
        clock_positions, frequencies, fixed_share, one_share, own_share, evidence
    )


def _bend_basis(position: Floats) -> Floats:
    """Return orthonormal polynomials ``[n, k]`` of degree 2 on, without a straight part."""
    n = len(position)
    straight = np.stack([np.ones(n), position], axis=1)
    max_degree = min(CLOCK_NOISE_DEGREE, n - 2)
    bends = np.polynomial.legendre.legvander(np.linspace(-1, 1, n), max_degree)[:, 2:]
    bends = bends - straight @ np.linalg.lstsq(straight, bends, rcond=None)[0]
    return np.asarray(np.linalg.qr(bends)[0])


def _log10_evidence(bends: Floats, noise: Floats) -> float:
    """Compare one clock with clocks of their own: log10 of the likelihoods' ratio.

    The speed of a clock is taken for a random walk, so that the squares of its degrees fall by
    their fourth power. The size of the walk is, in each case, what makes the phases likeliest. That
    all planes but one read a clock is taken to be a tenth as likely beforehand.

    Parameters
    ----------
    bends
        ``[k, m]``: coefficients by which clocks run ahead, by degree from the second on.
    noise
        ``[k]``: variance of each of these.
    """
    if len(bends) < 2:
        return 0.0
    degree_variances = np.arange(2.0, bends.shape[1] + 2) ** -4
    # The sizes reach from clocks that run evenly to ten times the largest bend seen.
    scale = np.square(bends).max() / degree_variances[0]
    sizes = np.append(0.0, np.geomspace(1e-8, 10, 70)) * scale

    def log_likelihood(clock_labels: NDArray[np.intp]) -> float:
        is_same_clock = np.equal.outer(clock_labels, clock_labels)
        is_diagonal = np.eye(len(clock_labels), dtype=bool)
        correlation = np.where(is_diagonal, 1.0, CLOCK_CORRELATION * is_same_clock)
        variances = np.multiply.outer(sizes, degree_variances)[..., None, None]
        covariance = variances * correlation + np.diag(noise)
        inverse = np.linalg.inv(covariance)
        distances = np.einsum("kj,tjkl,lj->tj", bends, inverse, bends)
        return -0.5 * float(
            (np.linalg.slogdet(covariance)[1] + distances).sum(axis=1).min()
        )

    planes = np.arange(len(bends))
    alternatives = [log_likelihood(planes)]
    if len(bends) > 2:
        penalty = np.log(STRONG_EVIDENCE_RATIO)
        alternatives += [
            log_likelihood(np.where(planes == k, 1, 0)) - penalty for k in planes
        ]
    return float((log_likelihood(np.zeros_like(planes)) - max(alternatives)) / np.log(10))


def resample_evenly(points: Floats, clock_positions: Floats) -> Floats:
    """Return rows ``[n, d]`` at even steps of a clock, from its first position to its last."""
    even_positions = np.linspace(clock_positions[0], clock_positions[-1], len(points))
    columns = [np.interp(even_positions, clock_positions, column) for column in points.T]
    return np.stack(columns, axis=1)
