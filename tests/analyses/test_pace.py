"""Changes of pace: found where steps change at once, and neither in trends nor in noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import posprobe as pp
from posprobe.analyses.sequences.changes import pace_changes
from posprobe.arrays import Floats


def steps_of(values: Floats) -> Floats:
    return np.asarray(np.linalg.norm(np.diff(values, axis=0), axis=1))


@pytest.mark.parametrize("factor", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("at", [40, 100, 160])
def test_a_walk_whose_steps_change_at_once(at: int, factor: float) -> None:
    steps = np.random.default_rng(at).normal(size=(200, 24))
    steps[at:] *= factor
    ((row, found),) = pace_changes(steps_of(np.cumsum(steps, axis=0)))
    # Step ``at`` leads from row at - 1 to row at.
    assert abs(row - (at - 1)) <= 1
    assert found == pytest.approx(factor, rel=0.12)


def test_three_parts_have_two_changes() -> None:
    steps = np.random.default_rng(1).normal(size=(240, 16))
    steps[80:] *= 2
    steps[160:] *= 2
    rows = [row for row, _ in pace_changes(steps_of(np.cumsum(steps, axis=0)))]
    assert rows == pytest.approx([79, 159], abs=1)


def trend(rng: np.random.Generator, n: int) -> Floats:
    return np.asarray(np.linspace(1, 4, n)[:, None] * rng.normal(size=(n, 16)))


def wave(rng: np.random.Generator, n: int) -> Floats:
    size = 2 + np.cos(2 * np.pi * np.arange(n) / n)
    return np.asarray(np.cumsum(size[:, None] * rng.normal(size=(n, 16)), axis=0))


def heavy(rng: np.random.Generator, n: int) -> Floats:
    tails = np.sqrt(rng.chisquare(2, (n, 1)) / 2)
    return np.asarray(np.cumsum(rng.normal(size=(n, 16)) / tails, axis=0))


def noise(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(size=(n, 16))


@pytest.mark.parametrize("draw", [trend, wave, heavy, noise])
@pytest.mark.parametrize("n", [48, 150, 400])
def test_a_trend_heavy_tails_and_noise_are_no_change(
    draw: Callable[[np.random.Generator, int], Floats], n: int
) -> None:
    found = [bool(pace_changes(steps_of(draw(np.random.default_rng(k), n)))) for k in range(20)]
    assert sum(found) == 0


def test_a_real_table_breaks_where_its_matrix_shows_it() -> None:
    # Cosines of neighbours, far from the seam on either side: 0.2 before, more than 0.6 after.
    table = pp.load("sample:sapiens-roberta")
    ((left, right),) = pp.seams(table).between
    assert (left, right) == (83, 84)
    before: Any = pp.similarity(table[:80]).centered.neighbour_mean
    after: Any = pp.similarity(table[88:]).centered.neighbour_mean
    assert before < 0.3 < 0.6 < after
