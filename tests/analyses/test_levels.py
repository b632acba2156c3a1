"""Changes of the mean row: planted ones are found, and processes without one have none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import posprobe as pp
from posprobe.arrays import Floats

Draw = Callable[[np.random.Generator, int, int], Floats]


def shifted_noise(rng: np.random.Generator, n: int, d: int, row: int) -> Floats:
    """Draw noise whose columns all shift by one standard deviation at a row."""
    values = rng.standard_normal((n, d))
    values[row:] += rng.choice([-1.0, 1.0], size=d)
    return values


def has_seam_near(values: Floats, row: int) -> bool:
    return any(abs(right - row) <= 3 for _, right in pp.seams(values).between)


@pytest.mark.parametrize(("n", "d"), [(64, 64), (128, 64), (448, 64)])
def test_a_shift_by_one_deviation_is_found(n: int, d: int) -> None:
    n_found = 0
    for seed in range(10):
        rng = np.random.default_rng([seed, n, d])
        row = int(rng.integers(n // 3, 2 * n // 3))
        n_found += has_seam_near(shifted_noise(rng, n, d, row), row)
    assert n_found >= 9


def test_an_odd_row_between_two_levels_does_not_hide_their_change() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        values = shifted_noise(rng, 448, 64, 224)
        values[223] = 6 * rng.standard_normal(64)
        seams = pp.seams(values)
        assert 223 in [outlier.row for outlier in seams.special]
        assert has_seam_near(values, 224)


def test_a_change_of_level_does_not_depend_on_the_unit() -> None:
    values = shifted_noise(np.random.default_rng(0), 128, 64, 60)
    between = pp.seams(values).between
    assert between
    assert all(pp.seams(values * unit).between == between for unit in (1e-60, 1e60))


def autoregressive(memory: float) -> Draw:
    def draw(rng: np.random.Generator, n: int, d: int) -> Floats:
        values = rng.standard_normal((n, d))
        for row in range(1, n):
            values[row] += memory * values[row - 1]
        return values

    return draw


def curve_in_noise(rng: np.random.Generator, n: int, d: int) -> Floats:
    position = np.linspace(-1, 1, n)
    powers = np.stack([position, position**2, position**3], axis=1)
    return np.asarray(
        powers @ rng.standard_normal((3, d)) + 0.5 * rng.standard_normal((n, d))
    )


def growing_noise(rng: np.random.Generator, n: int, d: int) -> Floats:
    return np.asarray(rng.standard_normal((n, d)) * np.linspace(0.3, 3, n)[:, None])


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n, d: rng.standard_normal((n, d)),
        lambda rng, n, d: rng.standard_t(3, size=(n, d)),
        lambda rng, n, d: np.cumsum(rng.standard_normal((n, d)), axis=0),
        autoregressive(0.9),
        autoregressive(-0.6),
        curve_in_noise,
        growing_noise,
    ],
    ids=["noise", "heavy tails", "walk", "memory", "alternation", "cubic", "growing"],
)
def test_processes_without_a_change_have_none(draw: Draw) -> None:
    tables = [draw(np.random.default_rng([seed, 5]), 192, 48) for seed in range(10)]
    seams = [pp.seams(table) for table in tables]
    assert sum(cause.kind == "means" for result in seams for cause in result.reasons) <= 1
