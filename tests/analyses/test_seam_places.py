"""Seams stand exactly where they were put, however the table changes there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_tables import gaussian, rotation, waves
from numpy.typing import NDArray

from posprobe.analyses.sequences.seams import seams

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = NDArray[np.float64]
#: Rows, columns, and the first row after the change.
SHAPES = [(128, 32, 100), (64, 64, 32), (300, 8, 200)]


def _fading(n: int, d: int, edge: int, seed: int) -> Floats:
    values = gaussian(n, d, seed)
    values[edge:] *= 0.02
    return values


def _hurrying(n: int, d: int, edge: int, seed: int) -> Floats:
    steps = gaussian(n, d, seed)
    steps[edge:] *= 4
    return np.asarray(np.cumsum(steps, axis=0))


def _moved(n: int, d: int, edge: int, seed: int) -> Floats:
    values = gaussian(n, d, seed)
    values[edge:] += 5 * gaussian(1, d, seed + 1000)
    return values


@pytest.mark.parametrize(("n", "d", "edge"), SHAPES)
@pytest.mark.parametrize("make", [_fading, _hurrying, _moved])
def test_a_seam_stands_where_the_level_changes(
    make: Callable[[int, int, int, int], Floats], n: int, d: int, edge: int
) -> None:
    for seed in range(10):
        found = seams(make(n, d, edge, seed))
        assert found.between == ((edge - 1, edge),)
        mirrored = seams(make(n, d, edge, seed)[::-1])
        assert mirrored.between == ((n - edge - 1, n - edge),)


def test_long_steps_of_a_wandering_rotation_whose_rows_return_are_not_special() -> None:
    """After eight positions rows are alike again; neighbours are alike all the same."""
    found = 0
    for seed in range(15):
        for n in (64, 200):
            heavy = np.abs(np.random.default_rng(seed + 9).standard_t(2, (n, 1)))
            wandering = np.cumsum(0.02 * gaussian(n, 32, seed) * heavy, axis=0)
            circle = waves(n, [8.0]) @ rotation(32, seed)[:2]
            found += bool(seams(circle + wandering).special)
    assert found <= 1  # of 30 tables


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_change_of_norm_among_independent_rows_is_placed_by_the_rows(factor: float) -> None:
    """Two norms of the ratio 2 in 32 dimensions overlap in one row in twenty."""
    exact = 0
    for seed in range(40):
        values = gaussian(128, 32, seed)
        values[100:] *= factor
        (pair,) = seams(values).between
        exact += pair == (99, 100)
    assert exact >= 38
