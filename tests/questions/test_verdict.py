"""The verdict of a whole table: breaks first, then the longest stretch, then other parts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_answers import PLANTED, planted, smooth, turning, verdicts_of
from made_tables import as_table, gaussian

from posprobe.report.document import shared_block, verdict_block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def odd_row() -> Floats:
    values = PLANTED["odd row"][0]()
    assert isinstance(values, np.ndarray)
    return values


# --- breaks and the stretch between them ---


def test_a_seam_is_found_where_it_is() -> None:
    found = planted("two halves")
    assert found.answers["seams"].value == [[79, 80]]
    assert (found.first, found.stop, found.whole) == (0, 80, False)
    assert [(part.first, part.stop) for part in found.parts] == [(80, 144)]


def test_a_special_row_ends_the_stretch_and_all_rows_can_be_asked_for() -> None:
    for table in (as_table(odd_row()), as_table(odd_row())[10:]):
        found = verdicts_of(table)
        assert found.answers["special_rows"].value == [30]
        assert (found.first, found.stop) == (31, 96)
    every = verdicts_of(odd_row(), all_rows=True)
    assert (every.first, every.stop, every.whole) == (0, 96, True)
    assert every.answers["special_rows"].value == [30]


def test_every_part_between_seams_is_asked_by_itself() -> None:
    values = np.concatenate([gaussian(150, 16), 0.3 * turning([9.0, 31.0], 90, 16, seed=5)])
    found = verdicts_of(values)
    (part,) = found.parts
    assert (found.first, found.stop) == pytest.approx((0, 150), abs=2)
    assert (part.first, part.stop) == pytest.approx((150, 240), abs=2)
    assert found.answers["rotations"].answer == "no"
    assert part.answers["rotations"].yes
    assert not {"seams", "special_rows"} & set(part.answers)
    assert planted("smooth").parts == ()


@pytest.mark.parametrize("rows", [32, 48])
def test_few_rows_do_not_show_that_nothing_breaks(rows: int) -> None:
    # A seam in the middle, of the size that is found in 64 rows: what is not seen is not denied.
    values = np.concatenate([smooth(rows // 2, 16, 3.0, seed) for seed in (1, 2)])
    answers = verdicts_of(values).answers
    assert "no" not in {answers[question].answer for question in ("seams", "special_rows")}


def test_rows_and_patches_that_are_all_equal_but_one() -> None:
    values = np.ones((64, 8))
    values[20] = 4.0
    for grid in (None, (8, 8)):
        answers = verdicts_of(values, grid).answers
        assert answers["special_rows"].value == [20]
        assert answers["order"].reason == "all_equal"


def test_rows_of_zeros() -> None:
    values = gaussian(64, 8)
    values[::2] = 0.0
    found = verdicts_of(values).answers
    assert found["special_rows"].facts.zeros == tuple(range(0, 64, 2))
    assert (found["absolute_position"].answer, found["absolute_position"].reason) == (
        "yes",
        "zeros",
    )
    padded = gaussian(64, 8)
    padded[40:] = 0.0
    assert verdicts_of(padded).answers["special_rows"].facts.zeros == tuple(range(40, 64))


@pytest.mark.parametrize("scale", [1e-300, 1e150])
def test_no_scale_leaves_the_range_of_numbers(scale: float) -> None:
    answers = verdicts_of(scale * smooth(32, 8, 4.0)).answers
    assert answers["smooth"].yes
    assert all(answer.p is None or np.isfinite(answer.p) for answer in answers.values())


# --- documents ---


def test_the_block_shows_the_answers_with_what_they_were_held_against() -> None:
    found = planted("smooth")
    block = verdict_block(found)
    json.dumps(block, allow_nan=False)
    assert block["rows"] == [0, 128]
    for told, answer in zip(block["answers"], found.answers.values(), strict=True):
        assert (told["question"], told["answer"]) == (answer.question, answer.answer)
        assert told["reason"] == answer.reason
        assert told["p"] == answer.p
        if answer.test is None:
            assert told["interval"] is told["null"] is told["draws"] is None
        else:
            assert told["interval"] is None or told["interval"][0] <= told["interval"][1]
            assert (told["baseline"] or "", told["draws"] or 0) == (
                answer.test.of,
                answer.test.draws,
            )
        if told["change"]:
            assert told["change"]["by"] != told["question"]


def test_tables_are_compared_by_their_answers() -> None:
    block = shared_block({name: planted(name).answers.values() for name in ("walk", "smooth")})
    same = {answer["question"]: answer["same"] for answer in block["answers"]}
    assert same["order"]
    assert not same["smooth"]


# --- real tables ---


def test_the_digits_table_is_codes_of_rows_and_columns() -> None:
    answers = planted("sample:digits-vit").answers
    assert answers["rows_and_columns"].yes
    assert answers["closed_form"].answer == "no"


@pytest.mark.slow
def test_minilm_is_a_ladder_of_rotations_behind_a_seam() -> None:
    found = planted("sample:all-minilm-l6-v2")
    answers = found.answers
    assert answers["seams"].value == [[127, 128]]
    assert {0, 127, 510, 511} <= set(answers["special_rows"].value)
    assert (found.first, found.stop) == (128, 510)
    periods = [line["period"] for line in answers["rotations"].value]
    assert periods == pytest.approx([6.07, 18.22, 54.63, 165.3], rel=0.01)
    assert answers["ladder"].yes
    assert answers["smooth"].answer == answers["closed_form"].answer == "no"
