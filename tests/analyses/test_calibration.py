"""The tool that counts wrong answers expects answers to questions that are asked."""

import calibration
import pytest


@pytest.mark.parametrize("name", [*calibration.PROCESSES, *calibration.FIELDS])
def test_what_is_expected_is_asked(name: str) -> None:
    process = {**calibration.PROCESSES, **calibration.FIELDS}[name]
    assert process.yes | process.either <= set(calibration.COLUMNS[process.grid])


def test_every_question_is_counted_once_for_each_table() -> None:
    process = calibration.PROCESSES["walk"]
    counts = calibration.measure("walk", process, (32, 16), 2, seed=0)
    assert set(counts["answers"]) == set(calibration.COLUMNS[False])
    assert {sum(each) for each in counts["answers"].values()} == {2}


def test_rates_bound_a_false_yes_from_above_and_a_right_one_from_below() -> None:
    # Of 0 of n, the exact 95 % interval ends at 1 - 0.025 ** (1 / n).
    assert calibration.rate(0, 100, least=False) == "0 of 100 (≤ 3.6 %)"
    assert calibration.rate(100, 100, least=True) == "100 of 100 (≥ 96.4 %)"
