"""Tables with known answers: noise, walks, planted waves, grids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.layouts import Grid, Layout, Sequence
from posprobe.sources import Source
from posprobe.tables import PositionTable

Floats = NDArray[np.floating[Any]]


def as_table(
    values: Floats, layout: Layout | None = None, name: str = "made"
) -> PositionTable:
    source = Source(reference=name, resolved=name, shape=values.shape, dtype="F64")
    return PositionTable(values, layout or Sequence(len(values)), name=name, source=source)


def gaussian(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((n, d))


def walk(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    """Return a random walk: independent Gaussian steps, smooth and without a period."""
    return np.asarray(np.cumsum(gaussian(n, d, seed), axis=0))


def rotation(d: int, seed: int = 0) -> NDArray[np.float64]:
    orthogonal, _ = np.linalg.qr(gaussian(d, d, seed))
    return np.asarray(orthogonal)


def waves(
    n: int, periods: list[float], seed: int = 0, noise: float = 0.0
) -> NDArray[np.float64]:
    """Return one circle of radius 1 per period, mixed by a rotation of the columns."""
    angle = 2 * np.pi * np.arange(n)[:, None] / np.asarray(periods)
    phase = np.random.default_rng(seed).uniform(0, 2 * np.pi, len(periods))
    circles = np.concatenate([np.sin(angle + phase), np.cos(angle + phase)], axis=1)
    rotated = circles @ rotation(2 * len(periods), seed)
    return np.asarray(rotated + noise * gaussian(n, 2 * len(periods), seed + 1))


def patches(height: int, width: int, d: int, seed: int = 0) -> PositionTable:
    """Return a grid of smooth row codes plus column codes, with noise."""
    rows, columns = walk(height, d, seed), walk(width, d, seed + 1)
    values = (rows[:, None] + columns[None]).reshape(height * width, d)
    return as_table(values + 0.3 * gaussian(height * width, d, seed + 2), Grid(height, width))


def held_out_skill(scores: NDArray[Any]) -> float:
    """Return the skill of a linear map between neighbouring rows, held out by halves."""
    rows = scores - scores.mean(axis=0)
    halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    errors = np.zeros(3)
    for training, test_rows in (halves, halves[::-1]):
        change = np.linalg.lstsq(training[:-1], np.diff(training, axis=0))[0]
        steps = np.diff(test_rows, axis=0)
        residuals = steps - test_rows[:-1] @ change, steps, test_rows[1:]
        errors += [np.square(values).sum() for values in residuals]
    return float(1 - errors[0] / min(errors[1:]))


def hurried_circles(seed: int = 0, *, broken: bool = True) -> NDArray[np.float64]:
    """Return circles of uneven pace; if ``broken``, five rows have twice the pace."""
    pace = np.random.default_rng(seed).uniform(0.7, 1.3, 400)
    if broken:
        pace[200:205] = 2.0
    angle = np.outer(np.cumsum(pace), 2 * np.pi / np.array([9.0, 25.0, 61.0]))
    values = np.hstack([np.cos(angle), np.sin(angle)]) @ rotation(32, seed)[:6]
    return np.asarray(values + 0.02 * gaussian(400, 32, seed))


def fading_circles(seed: int = 0) -> NDArray[np.float64]:
    """Return two slow circles in noise that fade out from row 100 to row 150 of 300."""
    amplitude = np.clip((150 - np.arange(300)) / 50, 0, 1)[:, None]
    return np.asarray(
        0.02 * gaussian(300, 64, seed)
        + 0.1 * amplitude * waves(300, [31.0, 53.0]) @ rotation(64)[:4]
    )
