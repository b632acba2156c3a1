"""Whether similarity depends on absolute position: a yes rejects tables in which it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_tables import gaussian, rotation, walk, waves
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.facts import Answer
from posprobe.analyses.tables.cached import view
from posprobe.analyses.tables.copies import copies
from posprobe.questions.absolute_position import ABSOLUTE_POSITION, _exact
from posprobe.report.narrator import sentence

Floats = NDArray[np.float64]


def process(n: int, d: int, length: float, power: float = 1.0, seed: int = 0) -> Floats:
    """Columns of a stationary process: of power 1 rough, of power 2 smooth."""
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / length
    root = np.linalg.cholesky(np.exp(-(offset**power)) + 1e-8 * np.eye(n))
    return np.asarray(root @ gaussian(n, d, seed))


def slowing() -> Floats:
    angle = np.outer(2 * np.pi * np.linspace(0, 1, 400) ** 2, [6.0, 9.0, 13.0])
    circles = np.hstack([np.cos(angle), np.sin(angle)]) @ rotation(6)
    return np.asarray(circles + 0.01 * gaussian(400, 6))


HALF, LONG = gaussian(32, 16), gaussian(64, 64)
TABLES = {
    "exact": np.asarray(pp.sinusoidal(128, 64).values, float),
    "equally_far": np.eye(48),
    "bounded": process(200, 16, 5.0),
    "small": 0.6 * np.concatenate([LONG, LONG[::-1]]) + gaussian(128, 64, 9),
    # A few rows are much longer than all others.
    "place_products": gaussian(64, 256, 1)
    / np.sqrt(np.random.default_rng(3).chisquare(2, (64, 1)) / 2),
    "place_norms": gaussian(256, 32) * np.linspace(1, 3, 256)[:, None],
    "place_speed": slowing(),
    "place_mirrored": np.concatenate([HALF, HALF[::-1]]),
    "place_opposed": np.concatenate([HALF, -HALF[::-1]]),
    "slow": process(128, 16, 96.0, seed=4),
    "maybe_place": np.repeat(gaussian(32, 16), 4, axis=0),
    "wanders": walk(200, 32),
    "few_steps": process(128, 8, 64.0, 2),
    "too_few": walk(5, 4),
    "all_equal": np.ones((20, 4)),
}
CORRECTED = {
    "straight_line", "unordered", "unordered_open", "order_open", "copies", "zeros", "among_many",
}  # fmt: skip


QUESTION, YES = ABSOLUTE_POSITION, {name for name in TABLES if name.startswith("place_")}
NO = {"exact", "equally_far", "bounded", "small"}


def asked(values: Floats) -> Answer:
    return ABSOLUTE_POSITION.ask(view(values))


@pytest.mark.parametrize("reason", sorted(CORRECTED))
def test_corrections_have_words(reason: str) -> None:
    answer = asked(TABLES["bounded" if reason != "among_many" else "place_norms"])
    facts = replace(answer.facts, copies=copies(np.repeat(HALF, 2, axis=0)))
    assert sentence(answer.corrected("no", reason, "order", facts=facts)).endswith(".")


@pytest.mark.parametrize("reason", sorted(YES))
def test_a_yes_is_tested_by_the_number_that_it_tells(reason: str) -> None:
    answer = asked(TABLES[reason])
    test, place = answer.test, answer.facts.place
    assert test is not None
    assert test.value == place.share
    assert test.null == place.typical
    assert test.p == answer.facts.p_shift == answer.value["p_shift"] <= 0.02
    assert test.interval is not None
    assert test.interval[1] < place.share
    assert test.least <= 0.05 / 7
    assert test.draws == 559


def test_a_no_draws_no_more_than_it_needs() -> None:
    test: Any = asked(TABLES["bounded"]).test
    assert test.draws < 559
    assert test.least <= 0.05 / 7


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_stationary_tables_rarely_depend_on_place(power: float) -> None:
    found = [
        asked(process(128, d, length, power, seed)).yes
        for d in (4, 64)
        for length in (3.0, 32.0, 128.0)
        for seed in range(5)
    ]
    # Of thirty at a level of 0.02, more than three happen one time in three hundred.
    assert sum(found) <= 3


def test_slow_waves_of_many_columns_do_not_mirror_places() -> None:
    # The leading principal components are cosines, the same from either end.
    assert not sum(asked(process(512, 768, 3.0, seed=seed)).yes for seed in range(4))


def test_a_walk_rejects_nothing_by_wandering() -> None:
    for seed in range(5):
        answer = asked(walk(200, 32, seed))
        assert answer.answer != "no"
        assert answer.yes == (answer.facts.p_shift <= 0.02)


def test_how_little_distance_explains_is_told() -> None:
    for values in (TABLES["bounded"], waves(200, [20.0]) @ rotation(2) + 0.1 * gaussian(200, 2)):
        answer = asked(values)
        assert answer.reason == "bounded"
        expected = pp.similarity(values).centered.translation_invariance
        assert answer.facts.invariance == pytest.approx(expected, abs=1e-9)
        assert ("though distance explains" in sentence(answer)) == (expected < 0.9)  # type: ignore[operator]


def test_distances_of_a_sinusoid_follow_from_the_offset_wherever_it_is_moved() -> None:
    moved = TABLES["exact"] + np.linspace(0, 5, 64)
    assert asked(moved).reason == "exact"
    assert asked(waves(64, [64.0])).reason == "exact"


def test_distances_that_follow_from_offsets_do_so_along_the_whole_table() -> None:
    t = np.arange(1536.0)
    speed = np.where(t < 700, 0.3, 0.3 + 2e-4 * (t - 700))
    steady = np.stack([np.cos(0.3 * t), np.sin(0.3 * t)], axis=1)
    changing = np.stack([np.cos(np.cumsum(speed)), np.sin(np.cumsum(speed))], axis=1)
    assert _exact(steady - steady.mean(axis=0))
    assert not _exact(changing - changing.mean(axis=0))
    values = gaussian(128, 32)
    values[:, 3] = np.arange(128)
    assert asked(values).reason != "exact"  # noise beside a long line is no rounding


def test_eight_rows_of_a_walk_are_too_few_to_show_bounds() -> None:
    for seed in range(10):
        assert asked(np.cumsum(gaussian(8, 64, seed=seed), axis=0)).answer != "no"


def test_what_turns_fast_and_slowly_stays_in_bounds() -> None:
    values = waves(256, [9.0, 31.0], noise=0.1)
    answer = asked(values)
    steps = np.diff(values, axis=0)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(99, 255, 1))
    walks = np.cumsum(signs * steps, axis=1).var(axis=1).sum(axis=1)
    assert answer.answer == "no"
    # Steps that are related keep their sign together, and get further.
    ratio = values.var(axis=0).sum() / np.median(walks)
    assert answer.value["variance_ratio"] < 1.2 * ratio
