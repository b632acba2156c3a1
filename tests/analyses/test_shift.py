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
from posprobe.analyses.descriptive.shift import RULE, least_skill, shift, shift_rank
from posprobe.analyses.result import as_block
from posprobe.encodings import sinusoidal
from posprobe.encodings.tables import Order, frequencies
from posprobe.families import load

Floats = NDArray[np.floating[Any]]

LADDER = [6.0, 18.0, 54.0, 162.0, 486.0]


def planted(periods: list[float], *, n: int = 512, d: int = 384, seed: int = 0) -> Floats:
    """Circles of equal radius in a random orientation, with noise 0.01 in every dimension."""
    circles = waves(n, periods, seed)
    return circles @ rotation(d, seed)[: circles.shape[1]] + 0.01 * gaussian(n, d, seed + 1)


# --- tables that rotate ---


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_ladder_is_found_again(seed: int) -> None:
    found: Any = shift(planted(LADDER, seed=seed))
    np.testing.assert_allclose(found.periods, LADDER, rtol=0.01)
    np.testing.assert_allclose(found.moduli, 1, atol=1e-3)
    np.testing.assert_allclose(found.shares, 0.2, atol=0.01)
    np.testing.assert_allclose(found.turns, 512 / np.array(LADDER), rtol=0.01)
    assert found.rank == 10
    assert found.skill > 0.99
    assert (found.phase_linearity > 0.999).all()
    assert (found.radius_cv < 0.06).all()
    # The slowest makes one turn only: too few to tell a rotation from a trend.
    assert found.rotations.tolist() == [True] * 4 + [False]


@pytest.mark.parametrize(("order", "endpoint"), [("interleaved", False), ("halves", True)])
def test_the_sinusoid_recovers_its_own_ladder(order: Order, endpoint: bool) -> None:
    found: Any = shift(sinusoidal(512, 64, order=order, endpoint=endpoint))
    ladder = 2 * np.pi / frequencies(64, endpoint=endpoint)
    np.testing.assert_allclose(found.periods[:12], ladder[:12], rtol=1e-6)
    assert found.skill > 0.99
    turning = ladder[ladder <= 256]
    np.testing.assert_allclose(found.periods[found.rotations], turning, rtol=1e-3)


def test_minilm_beyond_its_seam_has_four_rotations() -> None:
    found: Any = shift(load("sample:all-minilm-l6-v2")[128:510])
    np.testing.assert_allclose(found.periods[:4], [6.0, 17.8, 53.2, 159], rtol=0.01)
    np.testing.assert_allclose(found.periods[found.rotations], found.periods[:4])
    assert found.start == 128
    assert found.skill > 0.9
    assert found.rank == 12
    assert found.variance == pytest.approx(0.980, abs=0.001)
    assert (found.phase_linearity[:4] > 0.998).all()
    assert found.radius_cv[:4].max() < 0.13


def test_a_damped_rotation_has_its_half_life() -> None:
    decay, period = 0.99, 20.0
    time = np.arange(240)
    angle = 2 * np.pi * time / period
    circle = decay ** time[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    found = shift(circle @ rotation(6)[:2])
    np.testing.assert_allclose(found.periods, [period], rtol=1e-9)
    np.testing.assert_allclose(found.moduli, [decay], rtol=1e-9)
    np.testing.assert_allclose(found.half_lives, [math.log(0.5) / math.log(decay)], rtol=1e-6)
    assert not found.rotations.any()  # its radius shrinks to a tenth


def test_an_alternation_has_skill_but_no_phase() -> None:
    found = shift(np.outer((-1.0) ** np.arange(64), np.ones(5)))
    assert found.skill == pytest.approx(1)
    assert found.periods.size == 0
    assert found.eigenvalues.real.min() == pytest.approx(-1)


def test_a_drifting_frequency_is_no_rotation() -> None:
    time = np.arange(512.0)
    angle = 2 * np.pi * (time / 6 - time**2 / 12_000)  # from period 6 to period 12
    table = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ rotation(8)[:2]
    found: Any = shift(table + 0.01 * gaussian(512, 8))
    assert not found.rotations.any()
    assert found.skill > RULE.min_skill  # so it is the phase that gives it away
    assert found.phase_linearity.max() < 0.995


# --- tables that do not ---


def test_random_walks_have_smooth_periods_and_no_skill() -> None:
    found = [shift(walk(512, 384, seed)) for seed in range(4)]
    skills = [result.skill for result in found if result.skill is not None]
    assert len(skills) == 4
    assert -30 < np.median(skills) < -8
    assert max(skills) < -4
    assert not any(result.rotations.any() for result in found)
    # The periods alone would look convincing.
    assert all(result.phase_linearity.max() > 0.99 for result in found)


# --- laws ---


def test_skill_is_that_of_the_components_alone() -> None:
    table = planted([6.0, 18.0, 54.0], d=48)
    found, components = shift(table), pca(table)
    rank, _ = shift_rank(components.scores)
    assert rank == found.rank == 6
    leading = components.scores[:, :rank]
    assert held_out_skill(leading) == pytest.approx(found.skill, abs=1e-9)
    assert held_out_skill(1e3 * leading @ rotation(rank) + 5) == pytest.approx(
        found.skill, abs=1e-9
    )
    # What the components leave out makes whole rows harder to predict.
    assert found.skill_rows is not None
    assert found.skill is not None
    assert found.skill_rows < found.skill


def test_a_long_table_is_predicted_as_least_squares_of_all_rows_at_once_predicts_it() -> None:
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.standard_normal((10_500, 3)), axis=0) @ rng.standard_normal((3, 3))
    scores = pca(rows).scores
    rank, errors = shift_rank(scores)
    expected = held_out_skill(scores[:, :rank])
    assert least_skill(errors) == pytest.approx(expected, rel=1e-9, abs=1e-9)


# --- what is written and drawn ---


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
    found = shift(planted(LADDER))
    ax: Any = found.plot(Figure().add_subplot())
    texts = {text.get_text() for text in ax.texts}
    # Longer periods lie too near each other on the circle to be named.
    assert texts == {"6", "18", "54"}
    points = {line.get_label(): line.get_xydata() for line in ax.lines}
    turning = points["rotation"]
    np.testing.assert_allclose(np.hypot(*turning.T), np.tile(found.moduli[:4], 2))
    angle = 2 * np.pi / found.periods[:4]
    np.testing.assert_allclose(np.arctan2(turning[:, 1], turning[:, 0])[:4], angle)
    assert len(points["mode, no rotation"]) == 2
    circle = max(ax.lines, key=lambda line: len(line.get_xdata()))
    np.testing.assert_allclose(np.hypot(*circle.get_xydata().T), 1)
