"""The shift operator against tables whose periods are known, and against tables that have none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_tables import gaussian, held_out_skill, rotation, walk, waves
from matplotlib.figure import Figure
from numpy.typing import NDArray

from posprobe.analyses.descriptive.pca import pca
from posprobe.analyses.descriptive.shift import (
    ROTATION_RULE,
    choose_shift_rank,
    least_skill,
    shift,
)
from posprobe.analyses.result import as_block
from posprobe.encodings import sinusoidal
from posprobe.encodings.tables import Order, frequencies
from posprobe.families import load

Floats = NDArray[np.floating[Any]]

PLANTED_PERIODS = [6.0, 18.0, 54.0, 162.0, 486.0]


def plant_circles(
    periods: list[float], *, n: int = 512, d: int = 384, seed: int = 0
) -> Floats:
    """Circles of equal radius in a random orientation, with noise 0.01 in every dimension."""
    circles = waves(n, periods, seed)
    return circles @ rotation(d, seed)[: circles.shape[1]] + 0.01 * gaussian(
        n, d, seed + 1
    )


# --- tables that rotate ---


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_ladder_is_found_again(seed: int) -> None:
    operator: Any = shift(plant_circles(PLANTED_PERIODS, seed=seed))
    np.testing.assert_allclose(operator.periods, PLANTED_PERIODS, rtol=0.01)
    np.testing.assert_allclose(operator.moduli, 1, atol=1e-3)
    np.testing.assert_allclose(operator.shares, 0.2, atol=0.01)
    np.testing.assert_allclose(operator.turns, 512 / np.array(PLANTED_PERIODS), rtol=0.01)
    assert operator.rank == 10
    assert operator.skill > 0.99
    assert (operator.phase_linearity > 0.999).all()
    assert (operator.radius_cv < 0.06).all()
    # The slowest makes one turn only: too few to tell a rotation from a trend.
    assert operator.rotations.tolist() == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("order", "endpoint"), [("interleaved", False), ("halves", True)]
)
def test_the_sinusoid_recovers_its_own_ladder(order: Order, endpoint: bool) -> None:
    operator: Any = shift(sinusoidal(512, 64, order=order, endpoint=endpoint))
    ladder = 2 * np.pi / frequencies(64, endpoint=endpoint)
    np.testing.assert_allclose(operator.periods[:12], ladder[:12], rtol=1e-6)
    assert operator.skill > 0.99
    rotating_periods = ladder[ladder <= 256]
    np.testing.assert_allclose(
        operator.periods[operator.rotations], rotating_periods, rtol=1e-3
    )


def test_minilm_beyond_its_seam_has_four_rotations() -> None:
    operator: Any = shift(load("sample:all-minilm-l6-v2")[128:510])
    np.testing.assert_allclose(operator.periods[:4], [6.0, 17.8, 53.2, 159], rtol=0.01)
    np.testing.assert_allclose(operator.periods[operator.rotations], operator.periods[:4])
    assert operator.start == 128
    assert operator.skill > 0.9
    assert operator.rank == 12
    assert operator.variance == pytest.approx(0.980, abs=0.001)
    assert (operator.phase_linearity[:4] > 0.998).all()
    assert operator.radius_cv[:4].max() < 0.13


def test_a_damped_rotation_has_its_half_life() -> None:
    decay, period = 0.99, 20.0
    time = np.arange(240)
    angle = 2 * np.pi * time / period
    circle = decay ** time[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    operator = shift(circle @ rotation(6)[:2])
    np.testing.assert_allclose(operator.periods, [period], rtol=1e-9)
    np.testing.assert_allclose(operator.moduli, [decay], rtol=1e-9)
    np.testing.assert_allclose(
        operator.half_lives, [math.log(0.5) / math.log(decay)], rtol=1e-6
    )
    assert not operator.rotations.any()  # its radius shrinks to a tenth


def test_an_alternation_has_skill_but_no_phase() -> None:
    operator = shift(np.outer((-1.0) ** np.arange(64), np.ones(5)))
    assert operator.skill == pytest.approx(1)
    assert operator.periods.size == 0
    assert operator.eigenvalues.real.min() == pytest.approx(-1)


def test_a_drifting_frequency_is_no_rotation() -> None:
    time = np.arange(512.0)
    angle = 2 * np.pi * (time / 6 - time**2 / 12_000)  # from period 6 to period 12
    table = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ rotation(8)[:2]
    operator: Any = shift(table + 0.01 * gaussian(512, 8))
    assert not operator.rotations.any()
    assert (
        operator.skill > ROTATION_RULE.min_skill
    )  # so only the phase rules the rotation out
    assert operator.phase_linearity.max() < 0.995


# --- tables that do not rotate ---


def test_random_walks_have_smooth_periods_and_no_skill() -> None:
    operators = [shift(walk(512, 384, seed)) for seed in range(4)]
    skills = [operator.skill for operator in operators if operator.skill is not None]
    assert len(skills) == 4
    assert -30 < np.median(skills) < -8
    assert max(skills) < -4
    assert not any(operator.rotations.any() for operator in operators)
    # The periods alone would look convincing.
    assert all(operator.phase_linearity.max() > 0.99 for operator in operators)


# --- laws ---


def test_skill_is_that_of_the_components_alone() -> None:
    table = plant_circles([6.0, 18.0, 54.0], d=48)
    operator, components = shift(table), pca(table)
    rank, _ = choose_shift_rank(components.scores)
    assert rank == operator.rank == 6
    leading = components.scores[:, :rank]
    assert held_out_skill(leading) == pytest.approx(operator.skill, abs=1e-9)
    assert held_out_skill(1e3 * leading @ rotation(rank) + 5) == pytest.approx(
        operator.skill, abs=1e-9
    )
    # Whole rows are harder to predict, as they also hold the remaining components.
    assert operator.skill_rows is not None
    assert operator.skill is not None
    assert operator.skill_rows < operator.skill


def test_a_long_table_is_predicted_like_least_squares_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.standard_normal((10_500, 3)), axis=0) @ rng.standard_normal(
        (3, 3)
    )
    scores = pca(rows).scores
    rank, errors = choose_shift_rank(scores)
    expected = held_out_skill(scores[:, :rank])
    assert least_skill(errors) == pytest.approx(expected, rel=1e-9, abs=1e-9)


# --- documents and figures ---


def test_undamped_modes_have_no_half_life() -> None:
    circle = waves(200, [8.0])
    growing = circle * 1.001 ** np.arange(200)[:, None]
    summary: Any = as_block(shift(growing))
    assert summary["moduli"][0] == pytest.approx(1.001, rel=1e-6)
    assert summary["half_lives"] == [None]
    assert "does not decay" in summary["undefined"]["half_lives"]
    # A half-life of 10^15 positions would be rounding.
    assert np.isinf(shift(circle).half_lives).all()


def test_the_figure_shows_the_eigenvalues_and_the_periods() -> None:
    operator = shift(plant_circles(PLANTED_PERIODS))
    ax: Any = operator.plot(Figure().add_subplot())
    texts = {text.get_text() for text in ax.texts}
    # Longer periods lie too near each other on the circle to be named.
    assert texts == {"6", "18", "54"}
    points = {line.get_label(): line.get_xydata() for line in ax.lines}
    eigenvalues = points["rotation"]
    np.testing.assert_allclose(np.hypot(*eigenvalues.T), np.tile(operator.moduli[:4], 2))
    angle = 2 * np.pi / operator.periods[:4]
    np.testing.assert_allclose(
        np.arctan2(eigenvalues[:, 1], eigenvalues[:, 0])[:4], angle
    )
    assert len(points["mode, no rotation"]) == 2
    circle = max(ax.lines, key=lambda line: len(line.get_xdata()))
    np.testing.assert_allclose(np.hypot(*circle.get_xydata().T), 1)
