"""Series of frequencies: of a sinusoid's base, or of lines that stand out."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from made_tables import gaussian, rotation, waves

import posprobe as pp
from posprobe.analyses.facts import Answer
from posprobe.analyses.tables.cached import view
from posprobe.arrays import Floats
from posprobe.questions.closed_form import CLOSED_FORM
from posprobe.questions.rotations import LADDER, series_by_formula
from posprobe.report.narrator import sentence


def sinusoid(n: int, d: int, base: float = 1e4, noise: float = 0.0) -> Floats:
    exact = np.asarray(pp.sinusoidal(n, d, base=base).values, dtype=np.float64)
    return np.asarray(exact + noise * exact.std() * gaussian(n, d))


def helix(n: int, d: int, turns: float, rise: float) -> Floats:
    angle = np.linspace(0, 2 * np.pi * turns, n)
    curve = np.stack([np.cos(angle), np.sin(angle), np.linspace(-rise / 2, rise / 2, n)], axis=1)
    return np.asarray(curve @ rotation(d, 4)[:3] + 0.01 / np.sqrt(d) * gaussian(n, d))


def weak_line() -> Floats:
    weak = 0.12 * waves(512, [60.0])
    return np.hstack([waves(512, [5.0, 9.0]), weak, 0.02 * gaussian(512, 10)])


TABLES = {
    "base": sinusoid(128, 32, noise=1.0),
    "even": waves(512, [6.0, 18.0, 54.0], noise=0.05),
    "none": gaussian(200, 32),
    "few": waves(128, [9.0], noise=0.05),
    "dense": sinusoid(64, 128, 30.0, 0.6),
    "uneven": waves(512, [5.0, 10.0, 20.0, 48.0, 80.0], noise=0.05),
    "random": waves(512, [6.0, 9.0, 54.0], noise=0.05),
    "between": weak_line(),
    "open": waves(512, [6.0, 19.0, 54.0], noise=0.05),
    "too_few": gaussian(6, 4),
}


QUESTION, YES, NO = LADDER, {"base", "even"}, {"none", "uneven", "random"}
CORRECTED = set[str]()


@cache
def asked(name: str) -> Answer:
    return LADDER.ask(view(TABLES[name]))


def test_the_series_has_its_base_or_its_factor() -> None:
    assert asked("base").value["base"] == pytest.approx(1e4, rel=0.3)
    assert asked("even").value == {"factor": pytest.approx(3, rel=0.01)}
    assert asked("none").value is None
    assert "base" not in sentence(asked("even"))


@pytest.mark.parametrize(("n", "d", "rise"), [(64, 32, 1.0), (128, 64, 2.0), (512, 32, 4.0)])
def test_a_helix_is_no_series_and_has_no_base(n: int, d: int, rise: float) -> None:
    seen = view(helix(n, d, 5, rise))
    answer = LADDER.ask(seen)
    assert not answer.yes
    assert answer.facts.series is None
    assert "base" not in sentence(answer)
    assert "base" not in sentence(CLOSED_FORM.ask(seen))


def test_frequencies_at_random_are_no_series() -> None:
    for seed in range(4):
        frequency = np.abs(0.15 * np.random.default_rng(seed).normal(size=16))
        angle = np.outer(np.arange(128), frequency)
        values = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        assert not LADDER.ask(view(values)).yes


def test_a_series_is_tested_by_the_number_that_is_told() -> None:
    base: Any = asked("base").test
    assert base.p <= 0.05 / 7
    assert base.value == asked("base").facts.series.cka


def test_a_formula_whose_base_fits_needs_no_test() -> None:
    formula = CLOSED_FORM.ask(view(sinusoid(128, 32)))
    fits = LADDER.ask(view(sinusoid(128, 32)))
    unsure = fits.corrected("cannot tell", "among_many", "number of questions")
    answer: Any = series_by_formula(unsure, formula)
    assert (answer.answer, answer.reason, answer.p) == ("yes", "base", None)
    assert answer.value["base"] == pytest.approx(1e4, rel=1e-3)
    assert series_by_formula(fits, formula) is None
    assert series_by_formula(asked("none"), formula) is None
    assert series_by_formula(asked("too_few"), formula) is None
    assert series_by_formula(unsure, CLOSED_FORM.ask(view(gaussian(64, 32)))) is None
