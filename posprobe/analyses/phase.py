"""The phase of one rotation along a table: its frequency, and whether the period changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Fewest turns by which a change of the period is told; twice as many phases are looked at at most.
DRIFT_BLOCKS = 6


def drift_p(along: NDArray[np.complexfloating[Any, Any]], cycles: float) -> float:
    """Return the p-value of a bend in the phase: a parabola is fitted to its means over turns.

    Student's t of the parabola's third coefficient; 1 of fewer than `DRIFT_BLOCKS` turns.

    Parameters
    ----------
    along
        ``[n]``: the table along the rotation's plane.
    cycles
        Turns over the table.
    """
    from scipy.special import stdtr

    blocks = min(2 * DRIFT_BLOCKS, int(cycles))
    if blocks < DRIFT_BLOCKS:
        return 1.0
    slow = _slowed(along, cycles)
    phase = np.unwrap([np.angle(part.mean()) for part in np.array_split(slow, blocks)])
    # The third of three orthonormal polynomials is the bend that slope and offset leave.
    basis, _ = np.linalg.qr(np.vander(np.linspace(-1, 1, blocks), 3, increasing=True))
    along_basis = basis.T @ phase
    left = np.square(phase - basis @ along_basis).sum() / (blocks - 3)
    if left <= np.finfo(np.float64).tiny:
        return 1.0
    return float(2 * stdtr(blocks - 3, -abs(along_basis[2]) / np.sqrt(left)))


def refined(along: NDArray[np.complexfloating[Any, Any]], cycles: float) -> float:
    """Find the turns over the table, near ``cycles``, at which the tapered power is greatest.

    Parameters
    ----------
    along, cycles
        As for `drift_p`.
    """
    n = len(along)
    taper = np.sin(np.pi * (np.arange(n) + 0.5) / n)
    step = 0.25
    for _ in range(7):
        tried = cycles + step * np.arange(-2, 3)
        turning = np.exp(-2j * np.pi * np.outer(tried, np.arange(n)) / n)
        value = np.abs(turning @ (along * taper))
        cycles = float(tried[int(np.argmax(value))])
        step /= 2
    return cycles


def local_periods(
    along: NDArray[np.complexfloating[Any, Any]], cycles: float
) -> tuple[float, float, float]:
    """Return the period in the first and last third, and the turns of all, from the phase.

    Parameters
    ----------
    along, cycles
        As for `drift_p`.
    """
    n = len(along)
    slow = _slowed(along, cycles)
    length = max(3, round(n / max(cycles, 1.0)), n // 24)  # the other way round averages out
    smooth = np.convolve(slow, np.hanning(length + 2)[1:-1], "same")
    phase = np.unwrap(np.angle(smooth)) / (2 * np.pi)
    third = max(n // 3, 2)
    edge = min(length // 2, third // 3)
    t = np.arange(n)
    slopes = [
        float(np.polyfit(t[part], phase[part], 1)[0])
        for part in (slice(edge, third), slice(n - third, n - edge))
    ]
    # All turns from end to end, each end averaged over a stretch: drift does not weigh the middle.
    window = max(edge, n // 12, 1)
    ends = phase[edge : edge + window].mean(), phase[n - edge - window : n - edge].mean()
    slopes.append(float(ends[1] - ends[0]) / max(n - 2 * edge - window, 1))
    first, last, whole = (max(cycles / n + slope, 1e-9) for slope in slopes)
    # A phase that slips says nothing about the frequency.
    turns = n * whole if abs(n * whole / cycles - 1) < 0.1 else cycles
    return 1 / first, 1 / last, turns


def _slowed(along: NDArray[np.complexfloating[Any, Any]], cycles: float) -> NDArray[Any]:
    """Turn back by so many turns over the table: what is left is the phase's departure."""
    n = len(along)
    return np.asarray(along * np.exp(-2j * np.pi * cycles * np.arange(n) / n))
