"""Known formulas: exact, nearly, up to a rotation, and how similar the nearest one is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from made_tables import gaussian, rotation, walk

import posprobe as pp
from posprobe.analyses.facts import Answer
from posprobe.analyses.tables.cached import View, view
from posprobe.layouts import Grid
from posprobe.questions.closed_form import CLOSED_FORM, ClosedForm
from posprobe.report.narrator import sentence
from posprobe.report.narrator.words import percent, similarity

SINUSOID = np.asarray(pp.sinusoidal(128, 64).values, dtype=np.float64)
GRID = np.asarray(pp.sincos2d(8, 8, 32).values, dtype=np.float64)
TABLES: dict[str, View] = {
    "exact": view(SINUSOID),
    "nearly": view(3 * SINUSOID + 0.02 * gaussian(128, 64)),
    "sinusoid": view(SINUSOID @ rotation(64) + 1.0),
    "sincos2d": view(GRID @ rotation(32), layout=Grid(8, 8)),
    "none": view(walk(200, 64)),
    "too_few": view(gaussian(6, 4)),
}


QUESTION, YES = CLOSED_FORM, {"exact", "nearly", "sinusoid", "sincos2d"}
NO, CORRECTED = {"none"}, set[str]()


@cache
def asked(name: str) -> Answer:
    return CLOSED_FORM.ask(TABLES[name])


def test_the_formula_has_its_numbers() -> None:
    assert asked("exact").value["formula"].endswith("base 10000")
    facts = asked("nearly").facts
    assert facts.base == pytest.approx(1e4)
    assert facts.scale == pytest.approx(3, rel=0.01)
    # Noise of 0.02, over waves of a root mean square of 3 / sqrt(2).
    assert facts.error == pytest.approx(0.02 / (3 / np.sqrt(2)), rel=0.03)
    assert "times 3" in sentence(asked("nearly"))
    assert asked("sinusoid").facts.base == pytest.approx(1e4, rel=1e-3)


def test_an_error_is_that_of_the_values_whatever_the_base() -> None:
    table = np.asarray(pp.sinusoidal(512, 64, base=7350.0).values, dtype=np.float64)
    noisy = table + 0.005 * gaussian(512, 64)
    facts = CLOSED_FORM.ask(view(noisy)).facts
    assert facts.base == pytest.approx(7350, rel=0.01)
    assert facts.error == pytest.approx(0.005 * np.sqrt(2), rel=0.1)


def test_special_patches_are_part_of_how_far_a_formula_is() -> None:
    values = GRID.copy()
    values[20] += 0.1
    seen = view(values, layout=Grid(8, 8))
    for replaced in ((), (20,)):
        answer = CLOSED_FORM.ask(replace(seen, replaced=replaced))
        assert answer.reason == "nearly"
        assert answer.facts.replaced == bool(replaced)
        assert ("Outlier patches" in sentence(answer)) == bool(replaced)


def test_the_rows_that_were_compared_are_told() -> None:
    long, short = (CLOSED_FORM.ask(view(walk(n, 64))) for n in (600, 500))
    assert (long.facts.rows, long.facts.of) == (512, 600)
    assert "over the first 512 positions" in sentence(long)
    assert (short.facts.rows, short.facts.of) == (500, 500)
    assert "first" not in sentence(short)
    assert long.value["rows"] == 512


def test_a_base_is_named_only_where_one_is_singled_out() -> None:
    for name in ("none", "sincos2d"):
        assert asked(name).facts.base is None
        assert "base" not in asked(name).value
        assert "base" not in sentence(asked(name))


def test_patches_are_compared_with_the_table_of_patches() -> None:
    answer = CLOSED_FORM.ask(view(gaussian(64, 32), layout=Grid(8, 8)))
    assert answer.reason == "none"
    assert abs(answer.facts.cka) < 0.2
    assert "2-D sin-cos table has a CKA of" in sentence(answer)
    narrow = CLOSED_FORM.ask(view(gaussian(64, 3), layout=Grid(8, 8)))
    assert sentence(narrow) == "Matches no known formula."


def test_what_is_not_one_is_not_written_as_one() -> None:
    answer = asked("sinusoid")
    told = replace(answer, facts=ClosedForm(128, 128, base=1e4, cka=0.996))
    assert "CKA 0.9960" in sentence(told)
    assert similarity(0.99996) == "0.9999"
    assert similarity(1 - 1e-9) == "1.00"
    assert similarity(-0.001) == "0.00"
    assert percent(0.996) == "more than 99 %"
    assert percent(1.0) == "100 %"


def test_a_large_base_is_written_in_full() -> None:
    told = replace(asked("sinusoid"), facts=ClosedForm(128, 128, base=3.1e6, cka=1.0))
    assert "base 3,100,000" in sentence(told)
