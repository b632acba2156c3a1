"""Statistics of a matrix of cosines by loops over all pairs of positions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from posprobe.layouts import Grid, Sequence


def naive_invariance(matrix: Any, *, diagonal: bool = False) -> float:
    """Return 1 - sum (G - Toep G)^2 / sum (G - mean G)^2, pair by pair."""
    n = len(matrix)
    by_offset: dict[int, list[float]] = {}
    for i, j in itertools.product(range(n), repeat=2):
        if diagonal or i != j:
            by_offset.setdefault(abs(i - j), []).append(float(matrix[i, j]))
    cosines = [value for values in by_offset.values() for value in values]
    mean = math.fsum(cosines) / len(cosines)
    spread = math.fsum((value - mean) ** 2 for value in cosines)
    sum_within = 0.0
    for values in by_offset.values():
        center = math.fsum(values) / len(values)
        sum_within += math.fsum((value - center) ** 2 for value in values)
    return 1 - sum_within / spread


def naive_monotone(matrix: Any, window: int = 64) -> float:
    """Return the share of steps from offset m to m + 1 at which the cosine falls."""
    n = len(matrix)
    window = min(window, n // 2)
    steps = [
        matrix[i, i + m + 1] < matrix[i, i + m] - 1e-12
        for i in range(n - window)
        for m in range(window)
        if not np.isnan(matrix[i, i + m + 1] - matrix[i, i + m])
    ]
    return float(np.mean(steps))


def naive_statistics(matrix: Any, layout: Sequence | Grid) -> dict[str, float]:
    """Return means over pairs of rows by a loop over all pairs."""
    height, width = (1, layout.length) if isinstance(layout, Sequence) else (
        layout.height, layout.width,
    )  # fmt: skip
    diagonal = math.hypot(height if height > 1 else 0, width if width > 1 else 0)
    neighbour_cosines, far_cosines, all_cosines = [], [], []
    for i, j in itertools.permutations(range(len(matrix)), 2):
        value = float(matrix[i, j])
        if math.isnan(value):
            continue
        distance = math.hypot(i // width - j // width, i % width - j % width)
        all_cosines.append(value)
        if distance == 1:
            neighbour_cosines.append(value)
        elif distance > diagonal / 4:
            far_cosines.append(value)
    return {
        "neighbour_mean": float(np.mean(neighbour_cosines)),
        "far_mean": float(np.mean(far_cosines)),
        "minimum": min(all_cosines),
    }
