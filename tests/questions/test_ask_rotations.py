"""Periodic components: which are found in planted tables, how large they are, and why not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from made_answers import smooth
from made_tables import gaussian, rotation, walk, waves

import posprobe as pp
from posprobe.analyses.facts import Answer
from posprobe.analyses.tables.bridging import bridging
from posprobe.analyses.tables.cached import view
from posprobe.arrays import Floats
from posprobe.questions.base import LEAST_SHARE
from posprobe.questions.closed_form import CLOSED_FORM
from posprobe.questions.rotations import (
    LADDER,
    ROTATIONS,
    WINDING,
    bridged,
    by_winding,
    lines_by_formula,
)
from posprobe.report.narrator import sentence


def weak(share: float) -> Floats:
    """Return smooth rows with a circle of period 4.1 of that share."""
    slow = smooth(256, 16, 20.0)
    slow /= np.sqrt(np.square(slow - slow.mean(axis=0)).sum(axis=1).mean())
    circle = waves(256, [4.1]) @ rotation(16)[:2]
    both = np.sqrt(1 - share) * slow + np.sqrt(share) * circle
    return np.asarray(both + 1e-3 * gaussian(256, 16))


def sinusoid_in_noise() -> Floats:
    """Return a sinusoid of which no period can be told from the next."""
    exact = np.asarray(pp.sinusoidal(64, 128, base=30.0).values, dtype=np.float64)
    return np.asarray(exact + 0.6 * exact.std() * gaussian(64, 128))


def chirp(n: int = 200) -> Floats:
    """Return a circle whose pace wanders too widely for a period, in some noise."""
    pace = 2 * np.pi / 10 * np.exp(0.35 * np.sin(2 * np.pi * np.arange(n) / 61))
    phase = np.cumsum(pace)
    return np.stack([np.cos(phase), np.sin(phase)], axis=1)


TABLES = {
    "stand_out": waves(256, [9.0, 31.0], noise=0.1),
    "small": weak(0.01),
    "none": gaussian(200, 32),
    "few_rows": gaussian(40, 8),
    "dense": sinusoid_in_noise(),
    "unclear": gaussian(48, 2),
    "preferred": pp.load("sample:rxnmapper-albert").values,
    "too_few": gaussian(12, 4),
}


QUESTION, YES, NO = ROTATIONS, {"stand_out"}, {"small", "none", "preferred"}
CORRECTED = {"formula", "pace"}


@cache
def asked(name: str) -> Answer:
    return ROTATIONS.ask(view(np.asarray(TABLES[name], dtype=np.float64)))


def test_planted_periods_have_their_numbers() -> None:
    facts = asked("stand_out").facts
    assert [line.period for line in facts.lines] == pytest.approx([9, 31], rel=0.005)
    # Two circles of radius 1, and noise of 0.1 in four columns.
    assert facts.share == pytest.approx(2 / 2.04, abs=0.005)
    assert all(line.round for line in facts.lines)
    assert facts.steady
    assert [line["turns"] for line in facts.value] == pytest.approx([256 / 9, 256 / 31], rel=0.005)


def test_lines_that_overlap_are_not_counted_twice() -> None:
    # 12.8 and 11.9 turns: each peak holds some of the other.
    close = waves(256, [20.0, 21.5]) + 0.3 * gaussian(256, 4)
    facts = ROTATIONS.ask(view(close)).facts
    signal = 2 / (2 + 4 * 0.09)
    assert facts.share <= signal + 0.02
    assert facts.share <= 1


def test_what_stands_out_lies_beyond_its_null() -> None:
    for name in ("stand_out", "small"):
        test: Any = asked(name).test
        assert test.interval[0] <= test.null <= test.interval[1] < test.value


def test_what_is_sure_and_small_is_no_and_said_to_be_small() -> None:
    for share, answer in ((0.01, "no"), (0.05, "yes")):
        found: Any = ROTATIONS.ask(view(weak(share)))
        assert found.p <= 0.01
        assert found.answer == answer
        assert (found.facts.share >= LEAST_SHARE) == (answer == "yes")
    assert "small (1 % of the variance)" in sentence(asked("small"))


def test_a_wave_along_one_direction_is_told_from_a_circle() -> None:
    wave = np.outer(np.cos(2 * np.pi * np.arange(256) / 8), np.ones(16)) + 0.3 * gaussian(256, 16)
    answer = ROTATIONS.ask(view(wave))
    assert [line.round for line in answer.facts.lines] == [False]
    assert "It oscillates along one direction" in sentence(answer)
    assert "oscillate" not in sentence(asked("stand_out"))


def test_a_period_that_changes_is_said_to_change() -> None:
    phase = 2 * np.pi * 256 / 15 * (np.arange(256) / 256) ** 1.15
    curve = np.stack([np.cos(phase), np.sin(phase)], axis=1) @ rotation(16)[:2]
    answer = ROTATIONS.ask(view(curve + 0.05 * gaussian(256, 16)))
    (line,) = answer.facts.lines
    local = 15 / (1.15 * (np.arange(256) / 256) ** 0.15)[1:]
    ends = tuple(np.quantile(local, [0.1, 0.9]))
    assert (line.fastest, line.slowest) == pytest.approx(ends, rel=0.03)
    assert (line.pace, answer.facts.steady) == ("smooth", False)
    assert "Along the table, periods vary" in sentence(answer)
    assert "a period of about" in sentence(answer)


def test_a_period_of_two_is_told_where_there_is_no_other() -> None:
    alternating = gaussian(128, 16) + 0.7 * np.where(np.arange(128) % 2, 1, -1)[:, None]
    answer = ROTATIONS.ask(view(alternating))
    assert answer.reason == "none"
    assert answer.facts.alternating == pytest.approx(0.49 / 1.49, abs=0.03)
    assert "alternating signs" in sentence(answer)
    assert not asked("none").facts.alternates


def test_a_formula_or_a_series_is_made_of_periodic_components() -> None:
    exact = np.asarray(pp.sinusoidal(64, 128, base=30.0).values, dtype=np.float64)
    seen = view(exact @ rotation(128))
    own, form, series = ROTATIONS.ask(seen), CLOSED_FORM.ask(seen), LADDER.ask(seen)
    assert not own.yes
    for first, second, by in ((form, series, "closed_form"), (asked("none"), series, "ladder")):
        answer: Any = lines_by_formula(own, first, second)
        assert (answer.answer, answer.reason, answer.p) == ("yes", "formula", None)
        assert answer.change.by == by
        assert sentence(answer)
    assert lines_by_formula(own, asked("none"), asked("none")) is None
    assert lines_by_formula(asked("stand_out"), form, series) is None
    assert lines_by_formula(asked("too_few"), form, series) is None


def test_no_period_is_fixed_where_what_winds_changes_its_pace() -> None:
    winds = WINDING.ask(view(chirp()))
    assert winds.yes
    assert winds.facts.changes
    own = asked("unclear")
    answer: Any = by_winding(own, winds)
    assert (answer.answer, answer.reason) == ("no", "pace")
    fast, slow = answer.facts.turn
    assert f"between {fast:.3g} and {slow:.3g} positions" in sentence(answer)
    steady = WINDING.ask(view(waves(256, [12.0], noise=0.05)))
    assert by_winding(own, steady) is None
    assert by_winding(own, replace(winds, answer="cannot tell")) is None
    assert by_winding(asked("none"), winds) is None
    assert by_winding(asked("few_rows"), winds) is None
    assert by_winding(asked("too_few"), winds) is None


def test_gaps_tell_sinusoids_from_smooth_curves() -> None:
    found: Any = bridged(bridging(waves(256, [9.0, 31.0], noise=0.1)))
    assert found.waves > found.curve + 0.2
    assert bridged(bridging(walk(256, 16))) is None
    assert bridged(None) is None
