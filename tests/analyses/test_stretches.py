"""Stretches of equal rows, and of rows as initialised: told, and the others asked without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_answers import smooth, verdicts_of
from made_tables import as_table, gaussian, rotation, walk, waves
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.breaks.changes import ROWS, untrained_from
from posprobe.analyses.breaks.seams import seams, stretch
from posprobe.analyses.facts import Cause
from posprobe.analyses.result import as_block
from posprobe.words.summary import headline

Floats = NDArray[np.float64]


def with_equal(values: Floats, *stretches: tuple[int, int]) -> Floats:
    """Give the rows from the first to the last of each stretch one row."""
    for k, (first, last) in enumerate(stretches):
        values[first : last + 1] = gaussian(1, values.shape[1], 100 + k)
    return values


@pytest.mark.parametrize(
    ("first", "last"), [(40, 47), (40, 69), (20, 127), (100, 127), (0, 63), (8, 119)]
)
def test_a_stretch_has_its_ends_as_seams_and_nothing_else_is_found(first: int, last: int) -> None:
    ends = {(first - 1, first), (last, last + 1)} - {(-1, 0), (127, 128)}
    for values in (gaussian(128, 16), walk(128, 16), gaussian(128, 16, 1), walk(128, 16, 1)):
        table = with_equal(values, (first, last))
        for array in (table, torch.from_numpy(table)):
            found = seams(array)
            assert found.equal == ((first, last),)
            assert set(found.between) == ends
            assert set(found.reasons) == {Cause("equal_rows", (first, last))}
            assert not found.special


def test_zeros_at_the_end_begin_at_a_seam() -> None:
    for seed in range(10):
        values = gaussian(128, 16, seed)
        values[100:] = 0.0
        found = seams(values)
        assert found.between == ((99, 100),)
        assert [row.row for row in found.special] == list(range(100, 128))
        assert found.equal == ()


@pytest.mark.parametrize(
    ("long", "special", "seam"),
    [
        ([127, 1], [127], []),
        ([1, 127], [0], []),
        ([60, 60, 3], [120, 121, 122], [59]),
        ([3, 60, 60], [0, 1, 2], [62]),
        ([64, 64], [], [63]),
    ],
    ids=str,
)
def test_a_few_levels_have_seams_and_few_rows_at_either_end_are_special(
    long: list[int], special: list[int], seam: list[int]
) -> None:
    found = seams(np.repeat(gaussian(len(long), 16), long, axis=0))
    assert [row.row for row in found.special] == special
    assert [left for left, _ in found.between] == seam
    assert [last + 1 - first for first, last in found.equal] == [each for each in long if each > 3]
    causes = {cause for row in found.special for cause in row.causes} | set(found.reasons)
    assert {cause.kind for cause in causes} == {"equal_rows"}


@pytest.mark.parametrize(("blocks", "long"), [(10, 13), (20, 8)])
def test_a_table_of_equal_blocks_has_no_seam_at_each(blocks: int, long: int) -> None:
    found = seams(np.repeat(gaussian(blocks, 16), long, axis=0)[:-3])
    assert (found.between, found.special, found.equal) == ((), (), ())


def test_the_stretch_of_which_questions_are_asked_is_one_of_different_rows() -> None:
    found = stretch(seams(with_equal(gaussian(128, 16), (40, 127))))
    assert found.rows == slice(0, 40)
    assert found.reasons[0].causes == (Cause("equal_rows", (40, 127)),)
    only = np.ones((40, 8))
    only[20] = 5.0
    assert stretch(seams(only)).rows == slice(0, 20)


def test_the_other_rows_are_asked_without_the_equal_ones() -> None:
    table = np.array(pp.sinusoidal(200, 32).values, dtype=np.float64)
    found = verdicts_of(with_equal(table, (40, 59)))
    assert found.equal == ((40, 59),)
    assert found.copies is None
    assert found.answers["closed_form"].yes
    assert found.answers["seams"].yes


def test_positions_and_not_rows_are_told() -> None:
    table = as_table(with_equal(gaussian(128, 16), (60, 79)))[10:]
    summary = as_block(seams(table), lambda cause: f"{cause.numbers}")
    assert summary["equal"] == [[60, 79]]
    assert summary["between"] == [[59, 60], [79, 80]]
    assert summary["reasons"][0] == "(60, 79)"


# --- rows that look as they were initialised, after trained ones ---


def half_trained(trained: int, rest: int, d: int, seed: int) -> Floats:
    """A smooth curve on top of the noise that all rows began as."""
    values = 0.02 * gaussian(trained + rest, d, seed)
    values[:trained] += 0.03 * smooth(trained, d, 6.0, seed + 1)
    return values


@pytest.mark.parametrize("d", [32, 512])
@pytest.mark.parametrize(("trained", "rest"), [(50, 60), (150, 300)])
def test_their_beginning_is_found(trained: int, rest: int, d: int) -> None:
    found = [untrained_from(half_trained(trained, rest, d, seed)) for seed in range(5)]
    assert all(told and abs(told[0] - trained) <= 3 for told in found), found
    assert sum(told is not None and told[1] <= trained <= told[2] for told in found) >= 4


@pytest.mark.parametrize("fade", [1, 20, 60])
@pytest.mark.parametrize("size", [1.5, 3.0])
def test_an_interval_holds_the_end_of_training(fade: int, size: float) -> None:
    held, off, n = 0, [], 256
    for seed in range(6):
        end = 90 + 16 * seed
        left = np.clip((end - np.arange(n)) / fade, 0, 1)
        values = gaussian(n, 64, seed) + size * left[:, None] * smooth(n, 64, 8.0, seed + 1)
        told: Any = untrained_from(values)
        row, least, most = told
        held += least <= end <= most
        off.append(abs(row - end))
    assert held >= 5
    assert np.median(off) <= 1 + fade / 10


NONE = {
    "noise": gaussian(300, 64),
    "smooth": smooth(300, 64, 8.0),
    "walk": walk(300, 64),
    "trend": gaussian(300, 64) + np.outer(np.arange(300), gaussian(1, 64)[0]) / 30,
    "rotation in noise": waves(300, [9.0]) @ rotation(64)[:2] * 3 + gaussian(300, 64),
    "growing": gaussian(300, 64) * np.linspace(1, 3, 300)[:, None],
    "unequal columns": gaussian(300, 64) * np.geomspace(0.1, 1, 64),
    "heavy tails": np.random.default_rng(0).standard_t(2, (300, 64)),
    "few columns": gaussian(300, 3),
    "zeros": np.vstack([smooth(100, 32, 6.0), np.zeros((100, 32))]),
    "short": gaussian(2 * ROWS - 1, 64),
}


@pytest.mark.parametrize("name", NONE)
def test_other_tables_have_none(name: str) -> None:
    assert untrained_from(NONE[name]) is None


def test_trained_tables_have_none() -> None:
    for name in ("all-minilm-l6-v2", "whisper-tiny-decoder", "rxnmapper-albert", "sapiens-roberta"):
        assert pp.seams(pp.load(f"sample:{name}")).untrained is None


def test_questions_are_asked_of_the_trained_part() -> None:
    values = half_trained(120, 300, 64, 3)
    values[:120] += 0.2 * smooth(120, 64, 12.0, 5)
    found: Any = verdicts_of(values)
    assert (found.first, found.stop) == (0, found.untrained)
    assert found.answers["smooth"].yes
    assert f"rows from position {found.untrained} on look untrained" in headline(found).lower()
    within: Any = pp.seams(values).untrained_interval
    assert within[0] <= 120 <= within[1]
    budget = pp.budget(values)
    rest = values[found.untrained :]
    expected = np.square(rest - rest.mean(axis=0)).sum() / np.square(values).sum()
    assert budget.untrained == pytest.approx(expected, rel=1e-6)
