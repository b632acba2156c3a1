"""Whether a table has fewer directions than smoothness gives, told by the numbers compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_answers import smooth
from made_tables import gaussian, rotation, walk
from numpy.typing import NDArray

from posprobe.analyses.facts import Answer
from posprobe.analyses.tables.cached import view
from posprobe.questions.sequences import FEWER, LOW_DIMENSIONAL
from posprobe.report.narrator import sentence

Floats = NDArray[np.float64]


def shared_columns(weight: float, n: int = 120, d: int = 24) -> Floats:
    """Noise whose later columns are weaker."""
    return np.asarray(gaussian(n, d, seed=2) * weight ** np.arange(d))


TABLES = {
    "fewer": smooth(256, 3, 8.0) @ rotation(32)[:3] + 0.02 * gaussian(256, 32),
    "small": shared_columns(0.97),
    "not_fewer": smooth(256, 32, 8.0),
    "open": smooth(12, 3, 1.0, seed=20) * 0.6 ** np.arange(3),
    "slow": walk(200, 32),
    "few_columns": walk(64, 2),
    "too_few": walk(5, 4),
    "all_equal": np.ones((20, 4)),
}


QUESTION, YES, NO, CORRECTED = LOW_DIMENSIONAL, {"fewer"}, {"small", "not_fewer"}, {"among_many"}


def asked(values: Floats) -> Answer:
    return LOW_DIMENSIONAL.ask(view(values))


@pytest.mark.parametrize("n", [120, 400])
def test_the_number_that_is_told_is_the_one_that_was_tested(n: int) -> None:
    values = gaussian(n, 3) @ gaussian(3, 32, seed=1) + 0.5 * gaussian(n, 32, seed=2)
    answer = asked(values)
    facts, test = answer.facts, answer.test
    assert answer.yes
    assert test is not None
    assert test.value == facts.participation == answer.value["participation_ratio"]
    assert test.null == facts.expected
    assert facts.participation <= FEWER * facts.expected
    assert test.interval is not None
    assert facts.participation < test.interval[0] < facts.expected < test.interval[1]
    assert (f"one row in {facts.every}" in sentence(answer)) == (facts.every > 1) == (n > 128)


def test_the_participation_ratio_is_that_of_rows_of_equal_length() -> None:
    values = gaussian(100, 12) * 0.8 ** np.arange(12)
    values -= np.median(values, axis=0)
    rows = values / np.linalg.norm(values, axis=1, keepdims=True)
    variance = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    expected = variance.sum() ** 2 / np.square(variance).sum()
    assert asked(values).facts.participation == pytest.approx(expected, rel=0.05)


def test_significant_and_hardly_fewer_is_no() -> None:
    answer: Any = asked(TABLES["small"])
    assert answer.p <= 0.02
    assert FEWER < answer.facts.participation / answer.facts.expected < 1


@pytest.mark.parametrize("n", [128, 300, 520])
def test_rows_that_alternate_use_few_directions(n: int) -> None:
    assert asked(gaussian(2, 64, seed=1)[np.arange(n) % 2] + 0.3 * gaussian(n, 64)).yes


def test_independent_columns_are_rarely_said_to_be_few() -> None:
    found = [asked(make(120, 16, seed)) for make in (gaussian, walk) for seed in range(4)]
    found += [asked(smooth(160, 32, 4.0, seed)) for seed in range(4)]
    assert not any(answer.yes for answer in found)
