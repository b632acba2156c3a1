"""The path of the rows in a plane: whether it goes round, at which radius and pace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posprobe.analyses.composition.clocks import Complexes
from posprobe.arrays import Floats

#: A rotation keeps away from its centre: the 2 % quantile of its radii over their median. This
#: limit and the two that follow come from the planes of trained tables and of narrow-band noise
#: (docs/calibration.md).
MIN_RADIUS_RATIO = 0.5
#: Radii that vary less than this count as constant, whatever the smallest is: their standard
#: deviation over their mean.
MAX_RADIUS_CV = 0.3
#: A rotation takes at least this share of its steps in one direction.
MIN_SAME_DIRECTION = 0.95
#: Degree of the polynomial that a smooth phase follows.
PHASE_DEGREE = 8


def project_path(points: Floats, plane: Floats) -> Complexes:
    """Return the path ``[n]`` of rows in a plane ``[2, d]``."""
    path = points @ plane.T
    return np.asarray(path[:, 0] + 1j * path[:, 1])


@dataclass(frozen=True, eq=False)
class PathStats:
    """Statistics of a path in a plane.

    Parameters
    ----------
    phase
        ``[n]``: unwrapped angle in radians, which begins at 0.
    radius_ratio
        2 % quantile of the radii over their median.
    radius_cv
        Standard deviation of the radii over their mean.
    same_direction
        Share of the steps that turn the way that most do.
    """

    phase: Floats
    radius_ratio: float
    radius_cv: float
    same_direction: float

    @property
    def is_rotation(self) -> bool:
        """Whether it goes round at a constant radius."""
        is_round = (
            self.radius_ratio >= MIN_RADIUS_RATIO or self.radius_cv <= MAX_RADIUS_CV
        )
        return is_round and self.same_direction >= MIN_SAME_DIRECTION


def measure_path(path: Floats) -> PathStats:
    """Measure a path ``[n, 2]``."""
    z = path[:, 0] + 1j * path[:, 1]
    radius = np.abs(z)
    steps, radius_cv, same_direction = measure_steps(z)
    radius_ratio = float(np.quantile(radius, 0.02) / max(np.median(radius), 1e-300))
    phase = np.append(0.0, np.cumsum(steps))
    return PathStats(phase, radius_ratio, float(radius_cv), float(same_direction))


def measure_steps(z: Complexes) -> tuple[Floats, Floats, Floats]:
    """Return the steps of paths ``[..., n]``, how their radii vary, and how many steps agree."""
    radius = np.abs(z)
    steps = np.angle(z[..., 1:] * z[..., :-1].conj())
    main_direction = np.sign(np.median(steps, axis=-1, keepdims=True))
    same_direction = np.mean(steps * main_direction > 0, axis=-1)
    radius_cv = radius.std(axis=-1) / np.maximum(radius.mean(axis=-1), 1e-300)
    return steps, radius_cv, same_direction


def smooth_pace_share(path: Floats) -> float:
    """Return the share of a path that a constant radius with a smooth phase explains."""
    z = path[:, 0] + 1j * path[:, 1]
    position = np.linspace(-1, 1, len(z))
    phase = np.unwrap(np.angle(z))
    smooth_phase = np.polynomial.legendre.Legendre.fit(position, phase, PHASE_DEGREE)(
        position
    )
    explained = np.abs((z * np.exp(-1j * smooth_phase)).mean()) ** 2
    return float(explained / np.square(np.abs(z)).mean())


def local_periods(phase: Floats) -> Floats:
    """Return the local periods, each over about a whole turn."""
    n = len(phase)
    turn = max(round(2 * np.pi * (n - 1) / max(abs(phase[-1] - phase[0]), 1e-9)), 1)
    turn = min(turn, n - 1)
    phase_steps = np.abs(phase[turn:] - phase[:-turn])
    return np.asarray(2 * np.pi * turn / np.maximum(phase_steps, 1e-9))
