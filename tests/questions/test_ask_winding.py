"""What winds: the pair that is tested is the pair that is described."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from made_tables import gaussian, rotation, walk, waves

import posprobe as pp
from posprobe.analyses.facts import Answer
from posprobe.analyses.tables.cached import view
from posprobe.arrays import Floats
from posprobe.questions.base import LEAST_SHARE
from posprobe.questions.rotations import (
    DRAWS_ALONE,
    MIN_TURNS,
    ROTATIONS,
    SHARE,
    WINDING,
    Winding,
    by_rotations,
    strongest,
    turn_lengths,
)
from posprobe.report.narrator import sentence


def chirp() -> Floats:
    phase = 2 * np.pi * np.arange(256) ** 2 / 2048
    curve = np.stack([np.cos(phase), np.sin(phase)], axis=1) @ rotation(16)[:2]
    return curve + 0.05 * gaussian(256, 16)


def two_arcs(turns: float) -> Floats:
    """Return an arc of large radius, and a smaller circle of so many turns."""
    time = np.linspace(0, 1, 300)
    large, small = 2 * np.pi * 0.6 * time, 2 * np.pi * turns * time
    parts = [2 * np.cos(large), 2 * np.sin(large), np.cos(small), np.sin(small)]
    return np.stack(parts, axis=1) @ rotation(12)[:4] + 0.02 * gaussian(300, 12)


TABLES = {
    "turns": chirp(),
    "part_turn": waves(400, [400.0]),
    "smooth": walk(400, 32, 3),
    "open": waves(400, [330.0], noise=0.1),
    "none": gaussian(200, 32),
    "small": 2.2 * waves(800, [40.0]) @ rotation(500)[:2] + gaussian(800, 500),
    "too_few": gaussian(20, 8),
    "all_equal": np.ones((40, 8)),
}


QUESTION, YES = WINDING, {"turns"}
NO = {"part_turn", "smooth", "none", "small"}
CORRECTED = {"rotation", "mixed", "mixed_waves"}


@cache
def asked(name: str) -> Answer:
    return WINDING.ask(view(TABLES[name]))


def test_the_pair_that_is_tested_is_the_one_that_is_told() -> None:
    # The arc holds four fifths of the variance; the circle is what winds.
    answer: Any = WINDING.ask(view(two_arcs(8.06)))
    assert answer.answer == "yes"
    assert answer.facts.components == (3, 4)
    assert answer.facts.turns == pytest.approx(8.06, abs=0.05)
    assert answer.test.value == answer.facts.turns
    assert answer.value["components"] == [3, 4]
    assert "Components 3 and 4" in sentence(answer)
    assert "8.1 turns" in sentence(answer)


def test_the_whisper_table_is_told_by_its_tested_pair() -> None:
    answer = WINDING.ask(view(pp.load("sample:whisper-tiny-decoder").values.astype(np.float64)))
    points = np.asarray(pp.load("sample:whisper-tiny-decoder").values, dtype=np.float64)
    _, pair, held = strongest(points)
    assert pair is not None
    assert answer.facts.turns == pytest.approx(pair.turns)
    assert answer.facts.share == pytest.approx(pair.share * held)
    assert not (answer.yes and answer.facts.turns < MIN_TURNS)


@pytest.mark.parametrize("values", [chirp(), two_arcs(8.06)])
def test_the_share_is_one_of_the_variance_of_the_table(values: Floats) -> None:
    centred = values - values.mean(axis=0)
    share = np.linalg.svd(centred, compute_uv=False) ** 2 / np.square(centred).sum()
    facts = WINDING.ask(view(values)).facts
    first, second = facts.components
    assert facts.share == pytest.approx(share[first - 1] + share[second - 1], rel=1e-4)


def test_a_large_share_of_the_leading_directions_may_be_a_small_one_of_the_table() -> None:
    _, pair, held = strongest(TABLES["small"])
    assert pair is not None
    assert pair.share >= SHARE
    assert asked("small").facts.share == pytest.approx(pair.share * held)
    assert asked("small").facts.share < LEAST_SHARE


@pytest.mark.parametrize("turns", [0.75, 0.99])
def test_less_than_one_turn_is_no_winding(turns: float) -> None:
    answer = WINDING.ask(view(waves(400, [400 / turns], noise=0.02)))
    assert (answer.answer, answer.reason) == ("no", "part_turn")
    assert answer.facts.turns < MIN_TURNS
    assert "1.00" not in sentence(answer)


def test_a_yes_draws_more_and_lies_beyond_its_null() -> None:
    test: Any = asked("turns").test
    assert test.draws == DRAWS_ALONE
    assert test.of in {"walk", "stationary"}
    assert test.interval[1] < test.value
    # Draws that exclude a yes are no reason to draw more.
    excluded: Any = asked("smooth").test
    assert excluded.draws < DRAWS_ALONE


def test_a_pace_that_changes_is_told_and_noise_of_the_phase_is_none() -> None:
    facts = asked("turns").facts
    assert facts.changes
    fast, slow = facts.turn
    assert slow > 2 * fast
    steady = waves(100, [12.5]) @ rotation(48)[:2] + gaussian(100, 48) / np.sqrt(48)
    answer = WINDING.ask(view(steady))
    assert not answer.facts.changes
    assert "changes" not in sentence(answer)


def test_a_whole_turn_takes_its_period_however_phases_wobble_within() -> None:
    t = np.arange(300)
    wobbling = 2 * np.pi * t / 100 + 0.5 * np.sin(2 * np.pi * t / 100)
    np.testing.assert_allclose(turn_lengths(wobbling), 100, atol=1e-3)
    assert len(turn_lengths(t / 100)) == 0


# --- beside periodic components ---


def test_what_winds_is_named_by_its_period() -> None:
    seen = view(waves(256, [12.5], noise=0.05))
    answer: Any = by_rotations(WINDING.ask(seen), ROTATIONS.ask(seen))
    assert (answer.answer, answer.reason) == ("yes", "rotation")
    assert answer.facts.rotation == pytest.approx(12.5, rel=0.01)
    assert answer.value["rotation"] == answer.facts.rotation
    assert "the 12.5-position period" in sentence(answer)


@pytest.mark.parametrize("periods", [[9.0, 31.0], [5.0, 11.0, 17.0, 23.0]])
def test_components_that_mix_circles_are_told_to_do_so(periods: list[float]) -> None:
    # Of equal size, so that principal components are any mixture of them.
    seen = view(waves(256, periods, noise=0.1))
    own = WINDING.ask(seen)
    answer: Any = by_rotations(own, ROTATIONS.ask(seen))
    assert own.yes
    assert (answer.answer, answer.reason) == ("yes", "mixed")
    assert len(answer.facts.mixed) >= 2
    turns = [256 / period for period in periods]
    assert min(abs(answer.facts.turns / each - 1) for each in turns) < 0.01
    assert "mix circles with periods of" in sentence(answer)


def test_components_that_mix_a_circle_and_a_wave_are_no_circle() -> None:
    time = 2 * np.pi * np.arange(256)
    points = np.stack([np.cos(time / 32), np.sin(time / 32), np.cos(time / 8)], axis=1)
    # Of the sine and the other wave, sum and difference are components.
    mix = np.array([[1.1, 0, 0], [0, 1.025, 0.025], [0, 0.025, 1.025]])
    reasons = set()
    for seed in range(8):  # noise decides which of them go round together
        into = np.linalg.qr(gaussian(16, 3, seed=seed))[0].T
        seen = view(points @ mix @ into + 0.02 * gaussian(256, 16, seed=seed))
        own = WINDING.ask(seen)
        answer = by_rotations(own, ROTATIONS.ask(seen)) or own
        reasons.add(answer.reason)
        if answer.reason == "mixed_waves":
            assert answer.answer == "cannot tell"
            assert "not all of them circles" in sentence(answer)
        else:
            assert answer.facts.turns == pytest.approx(256 / 32, abs=0.1)
    assert "mixed_waves" in reasons


def test_lines_of_other_turns_say_nothing_of_what_winds() -> None:
    winds = asked("turns")
    other = ROTATIONS.ask(view(waves(256, [4.1], noise=0.1)))
    assert by_rotations(winds, other) is None
    assert by_rotations(replace(winds, answer="no"), other) is None
    assert by_rotations(winds, replace(other, answer="no")) is None


def test_no_document_shows_the_pair_itself() -> None:
    facts = asked("turns").facts
    assert isinstance(facts, Winding)
    assert "pair" not in facts.value
    assert "pair" not in repr(facts)
