"""Stretches of equal rows are told as such, and the other rows are asked without them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_answers import verdicts_of
from made_tables import as_table, gaussian, walk
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.facts import Cause
from posprobe.analyses.result import as_block
from posprobe.analyses.sequences.seams import seams, stretch

Floats = NDArray[np.float64]


def with_equal(values: Floats, *stretches: tuple[int, int]) -> Floats:
    """Give the rows from the first to the last of each stretch one row."""
    for k, (first, last) in enumerate(stretches):
        values[first : last + 1] = gaussian(1, values.shape[1], 100 + k)
    return values


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("first", "last"), [(40, 47), (40, 69), (20, 127), (100, 127), (0, 63), (8, 119)]
)
def test_a_stretch_has_its_ends_as_seams_and_nothing_else_is_found(
    first: int, last: int, seed: int
) -> None:
    ends = {(first - 1, first), (last, last + 1)} - {(-1, 0), (127, 128)}
    for values in (gaussian(128, 16, seed), walk(128, 16, seed)):
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


@pytest.mark.parametrize(("first", "last"), [(40, 59), (150, 199)])
def test_the_other_rows_are_asked_without_the_equal_ones(first: int, last: int) -> None:
    table = np.array(pp.sinusoidal(200, 32).values, dtype=np.float64)
    found = verdicts_of(with_equal(table, (first, last)))
    assert found.equal == ((first, last),)
    assert found.copies is None
    assert found.answers["closed_form"].yes
    assert found.answers["seams"].yes


def test_positions_and_not_rows_are_told() -> None:
    table = as_table(with_equal(gaussian(128, 16), (60, 79)))[10:]
    summary = as_block(seams(table), lambda cause: f"{cause.numbers}")
    assert summary["equal"] == [[60, 79]]
    assert summary["between"] == [[59, 60], [79, 80]]
    assert summary["reasons"][0] == "(60, 79)"
