"""The longest of many ratios: what it is by chance where their tail falls like a power."""

from __future__ import annotations

import numpy as np
import pytest

from posprobe.analyses.tables.outliers import largest_ratio


def test_of_ratios_with_a_power_tail_the_largest_lies_in_its_interval() -> None:
    rng = np.random.default_rng(0)
    above = below = 0
    for _ in range(300):
        # Independent runs of four rows whose largest ratio has an exponential logarithm.
        ratios = np.exp(0.1 * rng.exponential(size=800)).repeat(4)
        found = largest_ratio(ratios, np.ones_like(ratios))
        assert found is not None
        value, (low, high) = found
        above += value > high
        below += value < low
    # Five in a hundred each; the scale is estimated from the upper third, and never too small.
    assert above <= 0.08 * 300
    assert below <= 0.20 * 300
    assert above + below >= 0.03 * 300


def test_it_depends_on_ratios_alone_and_needs_enough_of_them() -> None:
    rng = np.random.default_rng(1)
    values, usual = rng.uniform(1, 2, 200), rng.uniform(1, 2, 200)
    once, scaled = largest_ratio(values, usual), largest_ratio(7 * values, 7 * usual)
    assert once is not None
    assert scaled is not None
    assert once[0] == pytest.approx((values / usual).max())
    np.testing.assert_allclose([scaled[0], *scaled[1]], [once[0], *once[1]])
    assert largest_ratio(values[:90], usual[:90]) is None
    assert largest_ratio(values, np.where(np.arange(200) == 5, 0.0, usual)) is None
