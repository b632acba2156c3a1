"""Stretches of equal and of untrained rows are reported, and questions leave them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_answers import verdicts_of
from made_tables import as_table, gaussian, rotation, smooth, walk, waves
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.breaks.changes import MIN_UNTRAINED_ROWS, find_untrained_rows
from posprobe.analyses.breaks.seams import seams
from posprobe.analyses.breaks.stretches import find_stretch
from posprobe.analyses.facts import Cause
from posprobe.analyses.result import as_block
from posprobe.words.summary import table_headline

Floats = NDArray[np.float64]


def with_equal_rows(values: Floats, *stretches: tuple[int, int]) -> Floats:
    """Replace the rows of every stretch, given as first and last, with one row."""
    for k, (first, last) in enumerate(stretches):
        values[first : last + 1] = gaussian(1, values.shape[1], 100 + k)
    return values


@pytest.mark.parametrize(
    ("first", "last"), [(40, 47), (40, 69), (20, 127), (100, 127), (0, 63), (8, 119)]
)
def test_a_stretch_of_equal_rows_has_seams_at_its_ends_alone(
    first: int, last: int
) -> None:
    ends = {(first - 1, first), (last, last + 1)} - {(-1, 0), (127, 128)}
    for values in (
        gaussian(128, 16),
        walk(128, 16),
        gaussian(128, 16, 1),
        walk(128, 16, 1),
    ):
        table = with_equal_rows(values, (first, last))
        for array in (table, torch.from_numpy(table)):
            row_seams = seams(array)
            assert row_seams.equal == ((first, last),)
            assert set(row_seams.between) == ends
            assert set(row_seams.reasons) == {Cause("equal_rows", (first, last))}
            assert not row_seams.special


def test_zeros_at_the_end_begin_at_a_seam() -> None:
    for seed in range(10):
        values = gaussian(128, 16, seed)
        values[100:] = 0.0
        row_seams = seams(values)
        assert row_seams.between == ((99, 100),)
        assert [row.row for row in row_seams.special] == list(range(100, 128))
        assert row_seams.equal == ()


@pytest.mark.parametrize(
    ("lengths", "special", "left_rows"),
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
    lengths: list[int], special: list[int], left_rows: list[int]
) -> None:
    row_seams = seams(np.repeat(gaussian(len(lengths), 16), lengths, axis=0))
    assert [row.row for row in row_seams.special] == special
    assert [left_row for left_row, _ in row_seams.between] == left_rows
    assert [last + 1 - first for first, last in row_seams.equal] == [
        length for length in lengths if length > 3
    ]
    causes = {cause for row in row_seams.special for cause in row.causes} | set(
        row_seams.reasons
    )
    assert {cause.kind for cause in causes} == {"equal_rows"}


@pytest.mark.parametrize(("blocks", "length"), [(10, 13), (20, 8)])
def test_a_table_of_many_equal_blocks_has_no_seams(blocks: int, length: int) -> None:
    row_seams = seams(np.repeat(gaussian(blocks, 16), length, axis=0)[:-3])
    assert (row_seams.between, row_seams.special, row_seams.equal) == ((), (), ())


def test_the_longest_stretch_consists_of_different_rows() -> None:
    longest_stretch = find_stretch(seams(with_equal_rows(gaussian(128, 16), (40, 127))))
    assert longest_stretch.rows == slice(0, 40)
    assert longest_stretch.reasons[0].causes == (Cause("equal_rows", (40, 127)),)
    equal_rows = np.ones((40, 8))
    equal_rows[20] = 5.0
    assert find_stretch(seams(equal_rows)).rows == slice(0, 20)


def test_questions_leave_out_stretches_of_equal_rows() -> None:
    table = np.array(pp.sinusoidal(200, 32).values, dtype=np.float64)
    verdict = verdicts_of(with_equal_rows(table, (40, 59)))
    assert verdict.equal == ((40, 59),)
    assert verdict.copies is None
    assert verdict.answers["closed_form"].yes
    assert verdict.answers["seams"].yes


def test_seams_of_a_cut_table_are_given_as_positions() -> None:
    table = as_table(with_equal_rows(gaussian(128, 16), (60, 79)))[10:]
    summary = as_block(seams(table), lambda cause: f"{cause.numbers}")
    assert summary["equal"] == [[60, 79]]
    assert summary["between"] == [[59, 60], [79, 80]]
    assert summary["reasons"][0] == "(60, 79)"


# --- untrained rows behind trained ones ---


def make_half_trained(trained: int, untrained: int, d: int, seed: int) -> Floats:
    """Return a smooth curve on top of the noise of the initialisation."""
    values = 0.02 * gaussian(trained + untrained, d, seed)
    values[:trained] += 0.03 * smooth(trained, d, 6.0, seed + 1)
    return values


@pytest.mark.parametrize("d", [32, 512])
@pytest.mark.parametrize(("trained", "untrained"), [(50, 60), (150, 300)])
def test_the_first_untrained_row_is_found(trained: int, untrained: int, d: int) -> None:
    intervals = [
        find_untrained_rows(make_half_trained(trained, untrained, d, seed))
        for seed in range(5)
    ]
    assert all(interval and abs(interval[0] - trained) <= 3 for interval in intervals), (
        intervals
    )
    assert (
        sum(
            interval is not None and interval[1] <= trained <= interval[2]
            for interval in intervals
        )
        >= 4
    )


@pytest.mark.parametrize("fade", [1, 20, 60])
@pytest.mark.parametrize("size", [1.5, 3.0])
def test_the_interval_of_untrained_rows_holds_the_end_of_training(
    fade: int, size: float
) -> None:
    n_inside, misfits, n = 0, [], 256
    for seed in range(6):
        end = 90 + 16 * seed
        amplitude = np.clip((end - np.arange(n)) / fade, 0, 1)
        values = gaussian(n, 64, seed) + size * amplitude[:, None] * smooth(
            n, 64, 8.0, seed + 1
        )
        interval: Any = find_untrained_rows(values)
        row, low, high = interval
        n_inside += low <= end <= high
        misfits.append(abs(row - end))
    assert n_inside >= 5
    assert np.median(misfits) <= 1 + fade / 10


TABLES_WITHOUT_UNTRAINED_ROWS = {
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
    "short": gaussian(2 * MIN_UNTRAINED_ROWS - 1, 64),
}


@pytest.mark.parametrize("name", TABLES_WITHOUT_UNTRAINED_ROWS)
def test_other_tables_have_no_untrained_rows(name: str) -> None:
    assert find_untrained_rows(TABLES_WITHOUT_UNTRAINED_ROWS[name]) is None


def test_trained_tables_have_no_untrained_rows() -> None:
    for name in (
        "all-minilm-l6-v2",
        "whisper-tiny-decoder",
        "rxnmapper-albert",
        "sapiens-roberta",
    ):
        assert pp.seams(pp.load(f"sample:{name}")).untrained is None


def test_questions_concern_the_trained_rows_alone() -> None:
    values = make_half_trained(120, 300, 64, 3)
    values[:120] += 0.2 * smooth(120, 64, 12.0, 5)
    verdict: Any = verdicts_of(values)
    assert (verdict.first, verdict.stop) == (0, verdict.untrained)
    assert verdict.answers["smooth"].yes
    assert (
        f"rows from position {verdict.untrained} on look untrained"
        in table_headline(verdict).lower()
    )
    interval: Any = pp.seams(values).untrained_interval
    assert interval[0] <= 120 <= interval[1]
    budget = pp.budget(values)
    untrained = values[verdict.untrained :]
    expected = (
        np.square(untrained - untrained.mean(axis=0)).sum() / np.square(values).sum()
    )
    assert budget.untrained == pytest.approx(expected, rel=1e-6)
