"""Turns, periods and pitch of curves that are known to wind."""

from __future__ import annotations

import numpy as np
import pytest
from made_tables import Floats, gaussian, rotation, walk

from posprobe.analyses.descriptive.winding import MIN_PAIR_COHERENCE, winding


def helix(n: int, turns: float, rise: float, d: int = 6) -> Floats:
    """Return a circle of radius 2 with `turns` turns while a third direction rises."""
    angle = np.linspace(0, 2 * np.pi * turns, n)
    curve = np.stack(
        [2 * np.cos(angle), 2 * np.sin(angle), np.linspace(0, rise, n)], axis=1
    )
    return np.asarray(curve @ rotation(d, 4)[:3])


def test_an_exact_helix_has_its_turns_pitch_and_period() -> None:
    # Whole turns from row to row after the last, so that the components are the three directions
    # but for their small correlation with the rise.
    n, turns, rise = 401, 8.0, 1.0
    pair = winding(helix(n, turns, rise)).pairs[0]
    assert pair.components == (0, 1)
    assert pair.turns == pytest.approx(turns, abs=0.01)
    assert pair.period == pytest.approx((n - 1) / turns, rel=0.01)
    np.testing.assert_allclose(pair.local_period, (n - 1) / turns, rtol=0.1)
    assert pair.phase_linearity > 0.999
    assert pair.radius.mean() == pytest.approx(2, rel=0.01)
    assert pair.radius_cv < 0.05
    assert pair.coherence > 0.97
    assert pair.axis == 2
    assert pair.axis_r2 > 0.98
    assert pair.pitch == pytest.approx(rise / turns, rel=0.03)


def test_pairs_are_chosen_by_quadrature_and_not_by_order() -> None:
    # By variance the order is: one of the slow pair, both of the fast pair, the other slow one.
    n = 360
    angle = 2 * np.pi * np.arange(n) / n
    table = np.stack(
        [2.0 * np.cos(3 * angle), 1.5 * np.cos(17 * angle), 1.4 * np.sin(17 * angle),
         1.2 * np.sin(3 * angle)], axis=1,
    )  # fmt: skip
    pairs = {pair.components: pair for pair in winding(table @ rotation(4, 2)).pairs}
    assert set(pairs) == {(0, 3), (1, 2)}
    assert pairs[0, 3].turns == pytest.approx(3, abs=0.02)
    assert pairs[1, 2].turns == pytest.approx(17, abs=0.1)


def test_coherence_is_the_sum_over_every_lag() -> None:
    scores = walk(60, 2, 3)
    scores -= scores.mean(axis=0)
    basis = np.linalg.svd(scores, full_matrices=False)
    x, y = (basis[0] * np.sqrt(60)).T
    best = 0.0
    for lag in range(1, 31):
        crossed = abs(np.sum(x[:-lag] * y[lag:] - y[:-lag] * x[lag:]))
        size = np.sum(x[:-lag] ** 2 + y[:-lag] ** 2) * np.sum(x[lag:] ** 2 + y[lag:] ** 2)
        best = max(best, crossed / np.sqrt(size))
    pairs = winding(scores).pairs
    assert (pairs[0].coherence if pairs else 0.0) == pytest.approx(
        best if best >= MIN_PAIR_COHERENCE else 0
    )


def test_a_chirp_has_a_period_of_its_own_in_every_part() -> None:
    time = np.linspace(0, 1, 1000)
    turns = 4 * time + 6 * time**2
    table = np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)
    pair = winding(table).pairs[0]
    middle = (np.arange(10) + 0.5) / 10
    np.testing.assert_allclose(pair.local_period, 999 / (4 + 12 * middle), rtol=0.06)
    # The parts' turns add up to all of them.
    edges = np.minimum(pair.bounds, 999)
    assert (pair.frequency * np.diff(edges)).sum() == pytest.approx(pair.turns, abs=1e-9)


def test_a_walks_first_components_make_three_quarters_of_a_turn() -> None:
    turns = [winding(walk(400, 256, seed)).pairs for seed in range(6)]
    first_turns = [
        pair.turns for pairs in turns for pair in pairs if pair.components == (0, 1)
    ]
    assert len(first_turns) == 6
    assert np.mean(first_turns) == pytest.approx(0.75, abs=0.02)


# --- laws ---


@pytest.mark.parametrize("scale", [1e-80, 1.0, 1e80])
def test_rotation_and_scale_change_nothing_but_units(scale: float) -> None:
    table = helix(200, 3.3, 5.0) + 0.05 * gaussian(200, 6)
    before, after = winding(table), winding(scale * table @ rotation(6, 9) - 2 * scale)
    assert len(before.pairs) == len(after.pairs) >= 1
    for pair, transformed_pair in zip(before.pairs, after.pairs, strict=True):
        assert pair.components == transformed_pair.components
        np.testing.assert_allclose(
            transformed_pair.phase - transformed_pair.phase[0],
            pair.phase - pair.phase[0],
            atol=1e-6,
        )
        np.testing.assert_allclose(
            transformed_pair.radius, scale * pair.radius, rtol=1e-6
        )
        assert transformed_pair.pitch == pytest.approx(scale * pair.pitch, rel=1e-6)
