"""The dictionary: components without a period that a table may be a sum of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats

#: An exponential kernel shorter than this is as good as noise: its correlation with the next row,
#: exp(-1 / .9), would show from a tenth of the variance on.
MAX_NOISE_LENGTH_POSITIONS = 0.9
#: The same limit for kernels of alternating sign. Where 0.4 of the variance alternates in noise,
#: 0.38 to 0.49 is found in 128 rows (12 tables; up to 0.72 where all lengths count as alternating).
MAX_ALTERNATING_NOISE_POSITIONS = 0.6
#: Shortest length of a smooth curve. A shorter one bends within a few rows, as moving averages of
#: four rows do.
MIN_SMOOTH_LENGTH_POSITIONS = 3.0


@dataclass(frozen=True, eq=False)
class Components:
    """Components that a table may be made of.

    Parameters
    ----------
    family
        ``[m]``: family of each component.
    power
        ``[n - 1, m]``: power in each bin, 1 in all.
    covariance
        ``[n, m]``: covariance by offset for a power of 1; zeros where it is not stationary.
    """

    family: tuple[str, ...]
    power: Floats
    covariance: Floats

    def has_family(self, *families: str) -> NDArray[np.bool_]:
        """Return which components belong to any of the families: ``[m]``."""
        return np.isin(self.family, families)


def join_components(groups: Sequence[Components]) -> Components:
    """Join groups of components, in order."""
    return Components(
        tuple(family for group in groups for family in group.family),
        np.hstack([group.power for group in groups]),
        np.hstack([group.covariance for group in groups]),
    )


def stationary_components(family: Sequence[str], covariance: Floats) -> Components:
    """Return stationary components from covariances by offset ``[n, m]``.

    ``f_k' K f_k`` of a Toeplitz K is the sum over offsets s of ``c(s)`` times ``((n - s) cos(k pi s
    / n) - sin(k pi s / n) / sin(k pi / n)) / n``, twice for s > 0.
    """
    n = len(covariance)
    offset = np.arange(n)[:, None]
    cosine_sum = np.fft.rfft((n - offset) * covariance, 2 * n, axis=0)[1:n].real
    sine_sum = -np.fft.rfft(covariance, 2 * n, axis=0)[1:n].imag
    bin_sine = np.sin(np.pi * np.arange(1, n) / n)[:, None]
    power = 2 * (cosine_sum - sine_sum / bin_sine) / n - covariance[0]
    power = np.maximum(power, 0.0)
    total = power.sum(axis=0)
    return Components(tuple(family), power / total, covariance / total)


@dataclass(frozen=True)
class KernelShape:
    """A kernel without a period (Rasmussen & Williams 2006, section 4.2).

    Parameters
    ----------
    family
        Family that it belongs to in this many rows.
    kind
        ``exponential``, ``matern`` of order 3/2, or ``normal``.
    length
        Length in positions; 0 for noise.
    """

    family: str
    kind: str
    length: float


def covariance(kernel: KernelShape, distance: Floats) -> Floats:
    """Return the covariance that a kernel has at distances, 1 at distance 0."""
    if not kernel.length:
        return np.asarray(distance == 0, dtype=np.float64)
    ratio = distance / kernel.length
    if kernel.kind == "exponential":
        return np.asarray(np.exp(-ratio))
    if kernel.kind == "matern":
        return np.asarray((1 + np.sqrt(3) * ratio) * np.exp(-np.sqrt(3) * ratio))
    return np.asarray(np.exp(-0.5 * np.square(ratio)))


@lru_cache(maxsize=8)
def kernels(n: int) -> tuple[KernelShape, ...]:
    """Return the kernels without a period that a table of so many rows may have."""
    rough = np.geomspace(0.8, 2 * n, int(np.log(2.5 * n) / np.log(1.25)) + 1)
    # Steps of 1.6 are too coarse for short kernels, whose spectra are steep.
    long_lengths = np.geomspace(4.0, 2 * n, int(np.log(n / 2) / np.log(1.6)) + 1)
    smooth = np.append(np.geomspace(1.28, 4.0, 6)[:-1], long_lengths)
    rough_families = np.where(
        rough < MAX_NOISE_LENGTH_POSITIONS,
        "noise",
        np.where(rough > n / 2, "walk", "rough"),
    )
    is_short = smooth < MIN_SMOOTH_LENGTH_POSITIONS
    smooth_families = np.where(
        smooth > n / 3, "slow", np.where(is_short, "rough", "smooth")
    ).tolist()
    exponential = ["exponential"] * len(rough)
    matern, normal = ["matern"] * len(smooth), ["normal"] * len(smooth)
    return (
        KernelShape("noise", "exponential", 0.0),
        *map(KernelShape, rough_families.tolist(), exponential, rough.tolist()),
        *map(KernelShape, smooth_families, matern, smooth.tolist()),
        *map(KernelShape, smooth_families, normal, smooth.tolist()),
    )


@lru_cache(maxsize=4)
def dictionary(n: int) -> Components:
    """Return the components without a period that a table of so many rows may have.

    The first two are the random walk and the straight line, which are not stationary.
    """
    lag = np.arange(n, dtype=np.float64)
    bins = np.arange(1, n)
    walk = 1 / np.square(np.sin(np.pi * bins / (2 * n)))
    # The transform of a ramp has odd bins alone.
    ramp = np.where(bins % 2, np.square(np.cos(np.pi * bins / (2 * n)) * walk), 0.0)
    nonstationary_power = np.stack([walk / walk.sum(), ramp / ramp.sum()], axis=1)
    shapes = kernels(n)
    covariances = np.stack([covariance(shape, lag) for shape in shapes], axis=1)
    sign_lengths = np.append(np.geomspace(0.5, 12.0, 8), np.inf)
    is_noise = sign_lengths < MAX_ALTERNATING_NOISE_POSITIONS
    alternating = ((1 - 2 * (lag % 2)) * np.exp(-lag / sign_lengths[:, None])).T
    return join_components(
        [
            Components(("walk", "line"), nonstationary_power, np.zeros((n, 2))),
            stationary_components([shape.family for shape in shapes], covariances),
            stationary_components(
                np.where(is_noise, "noise", "alternating").tolist(), alternating
            ),
        ]
    )
