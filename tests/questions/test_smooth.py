"""Whether a table is a smooth curve: what is planted is found, and the number told was tested."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_answers import smooth
from made_tables import gaussian, walk
from numpy.typing import NDArray

from posprobe.analyses.facts import Answer
from posprobe.analyses.tables.cached import random_signs, view
from posprobe.questions.sequences import GRADUAL, SMOOTH, _cosines
from posprobe.report.narrator import sentence

Floats = NDArray[np.float64]


def related_steps(n: int, d: int, cosine: float) -> Floats:
    steps = gaussian(n, d, seed=4)
    for k in range(1, n):
        steps[k] += cosine * steps[k - 1]
    return np.asarray(np.cumsum(steps, axis=0))


LINE = np.linspace(-1, 1, 96)[:, None]
TABLES = {
    "curve": smooth(128, 16, 6.0),
    "line": LINE * np.arange(1.0, 9),
    "noisy_line": np.sqrt(3) * LINE + gaussian(96, 16),
    "small": related_steps(1000, 32, 0.08),
    "not_smooth": walk(200, 32),
    "open": walk(10, 8),
    "too_few": walk(5, 4),
    "all_equal": np.ones((20, 4)),
}


QUESTION, YES = SMOOTH, {"curve", "line", "noisy_line"}
NO, CORRECTED = {"small", "not_smooth"}, {"rotations", "among_many"}


def asked(values: Floats) -> Answer:
    return SMOOTH.ask(view(values))


def test_what_rotations_tell_better_is_said_with_both_scores() -> None:
    answer = asked(TABLES["curve"])
    facts = replace(answer.facts, gap=16, waves=0.74, curve=0.28)
    text = sentence(answer.corrected("no", "rotations", "rotations", facts=facts))
    assert "gaps of 16 positions" in text
    assert "0.74" in text
    assert "0.28" in text


@pytest.mark.parametrize(("n", "d", "stride"), [(40, 3, 1), (61, 70, 4), (90, 5, 16)])
def test_cosines_are_those_of_the_walks_themselves(n: int, d: int, stride: int) -> None:
    values = walk(n, d)
    signs = random_signs(n - 1, np.random.default_rng(1))[:5]
    found = _cosines(np.diff(values, axis=0), signs, [1, stride])[1]
    for sign, cosine in zip(signs, found, strict=True):
        steps = sign[:, None] * np.diff(values, axis=0)
        path = np.cumsum(np.vstack([values[:1], steps]), axis=0)
        step = path[stride:] - path[:-stride]
        one, two = step[:-stride], step[stride:]
        expected = 2 * np.vdot(one, two) / (np.square(one).sum() + np.square(two).sum())
        assert cosine == pytest.approx(expected, abs=1e-9)
    np.testing.assert_array_equal(signs[0], 1)


def test_steps_are_compared_in_all_columns_and_what_is_told_was_tested() -> None:
    ways = np.arange(1, 41)
    time = np.arange(200)
    values = np.cos(2 * np.pi * np.outer(time, ways) / 400 + ways) + 0.3 * gaussian(200, 40)
    answer: Any = asked(values)
    stride = answer.facts.stride
    step = values[stride:] - values[:-stride]
    one, two = step[:-stride], step[stride:]
    expected = 2 * np.vdot(one, two) / (np.square(one).sum() + np.square(two).sum())
    assert answer.facts.cosine == pytest.approx(expected, rel=1e-9)
    assert answer.test.value == answer.facts.cosine == answer.value["cosine"]
    low, high = answer.test.interval
    assert low < answer.test.null < high < answer.test.value


def test_a_significant_cosine_that_is_small_is_no_smooth_curve() -> None:
    answer: Any = asked(TABLES["small"])
    assert answer.answer == "no"
    assert answer.p <= 0.02
    assert 0.02 < answer.facts.cosine < GRADUAL
    assert asked(related_steps(1000, 32, 0.4)).yes


def test_a_line_is_told_by_its_share() -> None:
    noisy = asked(TABLES["noisy_line"])
    assert noisy.facts.straight == noisy.value["straight"] == noisy.test.value  # type: ignore[union-attr]
    assert noisy.facts.straight == pytest.approx(0.5, abs=0.08)
    assert not noisy.facts.line
    assert asked(TABLES["line"]).facts.line
    assert "straight" not in asked(walk(96, 16)).value


def test_a_table_that_repeats_itself_over_a_step_is_not_smooth() -> None:
    answer = asked(np.tile(gaussian(16, 16), (8, 1)))
    assert abs(answer.facts.cosine) <= 1
    assert not answer.yes
