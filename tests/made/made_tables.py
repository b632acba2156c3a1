"""Tables with known answers: noise, walks, planted waves, grids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import posprobe as pp
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.sources import Source
from posprobe.tables import PositionTable

Floats = NDArray[np.floating[Any]]


def as_table(
    values: Floats, layout: Layout | None = None, name: str = "made"
) -> PositionTable:
    source = Source(reference=name, resolved=name, shape=values.shape, dtype="F64")
    return PositionTable(
        values, layout or Sequence(len(values)), name=name, source=source
    )


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


def sinusoid(
    n: int, d: int, base: float = 1e4, noise: float = 0.0
) -> NDArray[np.float64]:
    """Return a new array of the sinusoidal table, plus noise relative to its deviation."""
    exact = np.asarray(pp.sinusoidal(n, d, base=base).values, dtype=np.float64)
    return np.asarray(exact + noise * exact.std() * gaussian(n, d))


def slow_surface(height: int, width: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    """Return the sum of slow waves over the grid in random directions."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(
        np.arange(height) / height, np.arange(width) / width, indexing="ij"
    )
    surface_waves = [
        np.cos(np.pi * (a * y + b * x) + rng.uniform(0, 6))
        for a in range(3)
        for b in range(3)
    ]
    return np.asarray(
        np.stack(surface_waves, -1).reshape(height * width, 9)
        @ rng.standard_normal((9, d))
    )


def smooth(n: int, d: int, length: float, seed: int = 0) -> NDArray[np.float64]:
    """Return a squared exponential process per column."""
    offset = np.subtract.outer(np.arange(n), np.arange(n)) / length
    root = np.linalg.cholesky(np.exp(-(offset**2) / 2) + 1e-8 * np.eye(n))
    return np.asarray(root @ gaussian(n, d, seed))


def smooth_field(
    height: int, width: int, d: int, length: float, seed: int = 0
) -> NDArray[np.float64]:
    """Return an isotropic smooth field over a grid."""
    rows = np.stack(np.divmod(np.arange(height * width), width), axis=1) / length
    squared_distances = np.square(rows[:, None] - rows[None]).sum(axis=-1)
    kernel = np.exp(-squared_distances / 2) + 1e-8 * np.eye(height * width)
    return np.asarray(np.linalg.cholesky(kernel) @ gaussian(height * width, d, seed))


def sum_codes(rows: Floats, columns: Floats, noise: float = 0.0) -> NDArray[np.float64]:
    """Return a row code plus a column code, plus noise."""
    values = (rows[:, None] + columns[None]).reshape(-1, rows.shape[1])
    return np.asarray(values + noise * gaussian(*values.shape, seed=9))


def patches(height: int, width: int, d: int, seed: int = 0) -> PositionTable:
    """Return a grid of smooth row codes plus column codes, with noise."""
    rows, columns = walk(height, d, seed), walk(width, d, seed + 1)
    values = (rows[:, None] + columns[None]).reshape(height * width, d)
    return as_table(
        values + 0.3 * gaussian(height * width, d, seed + 2), Grid(height, width)
    )


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
