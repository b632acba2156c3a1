"""Two linear biases, and two tables of biases by distance."""

from __future__ import annotations

import numpy as np

from posprobe.arrays import Floats
from posprobe.relations.rules import RULES, Finding
from posprobe.relations.values import distance, stored_again


def relate_slopes(a: Floats, b: Floats) -> tuple[Finding, ...]:
    """Say what the slopes of one linear bias, ``[heads]``, are to those of another."""
    if len(a) != len(b):
        return (Finding("heads", "heads", len(a), len(b)),)
    if (a <= 0).any() or (b <= 0).any():
        equal = np.array_equal(a, b)
        return (Finding("slopes", "same_slopes" if equal else "slopes", value=distance(a, b)),)
    ratio = np.log(b / a)
    if np.abs(ratio).max() < RULES["same_slopes"].tolerance:
        return (Finding("slopes", "same_slopes", value=float(np.abs(ratio).max())),)
    if np.ptp(ratio) < RULES["slopes_scaled"].tolerance:
        return (Finding("slopes", "slopes_scaled", value=float(np.exp(ratio.mean()))),)
    if np.allclose(np.sort(a), np.sort(b), RULES["same_slopes"].tolerance, 0):
        return (Finding("slopes", "heads_order", len(a), len(b)),)
    return (Finding("slopes", "slopes", float(a[0]), float(b[0]), distance(a, b)),)


def relate_biases(a: Floats, b: Floats) -> tuple[Finding, ...]:
    """Say what biases by distance are to others.

    Parameters
    ----------
    a, b
        ``[heads, 2 r + 1]`` by offset, or ``[heads, 2 h - 1, 2 w - 1]`` by displacement.
    """
    if len(a) != len(b):
        return (Finding("heads", "heads", len(a), len(b)),)
    if a.shape[1:] != b.shape[1:]:
        if _same_numbers(a, b):
            return (Finding("buckets", "buckets", list(a.shape[1:]), list(b.shape[1:])),)
        return (Finding("buckets", "reach", list(a.shape[1:]), list(b.shape[1:])),)
    if found := stored_again(a, b, "values"):
        return (found,)
    if a.ndim == 3 and a.shape[1] == a.shape[2] and np.array_equal(a.swapaxes(1, 2), b):
        return (Finding("values", "exchanged", *a.shape[1:]),)
    if np.array_equal(a.reshape(len(a), -1)[:, ::-1].reshape(a.shape), b):
        return (Finding("values", "reversed", a.shape[1], b.shape[1]),)
    rows_a, rows_b = ({row.tobytes() for row in each} for each in (a, b))
    if rows_a == rows_b:
        return (Finding("values", "heads_order", len(a), len(b)),)
    if _same_numbers(a, b):
        return (Finding("buckets", "buckets", list(a.shape[1:]), list(b.shape[1:])),)
    apart = distance(a, b)
    scale = float((a * b).sum() / ((a * a).sum() or 1.0))
    rest = distance(b, scale * a)
    if scale and rest < min(RULES["scaled"].tolerance, apart / 3):
        return (Finding("values", "scaled", value=rest, more={"factor": scale}),)
    cause = "moved" if apart < RULES["moved"].tolerance else "unrelated"
    return (Finding("values", cause, value=apart),)


def _same_numbers(a: Floats, b: Floats) -> bool:
    """Tell whether every head has the same values, of buckets laid out over other distances."""
    return all(
        np.array_equal(np.unique(one), np.unique(other)) and len(np.unique(one)) > 2
        for one, other in zip(a, b, strict=True)
    )
