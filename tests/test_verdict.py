"""The verdict of a whole table: what is planted is said, what is not is not, and nothing breaks."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest
from made_tables import as_table, gaussian, rotation, walk, waves
from numpy.typing import NDArray
from posprobe.report.questions import QUESTIONS
from posprobe.report.verdict import shared, verdict

import posprobe as pp
from posprobe.arrays import positions
from posprobe.layouts import Grid, Layout
from posprobe.measurements import TABLE, TableInputs
from posprobe.tables import PositionTable

Floats = NDArray[np.float64]


def block(table: PositionTable, *, all_rows: bool = False) -> dict[str, Any]:
    """The verdict, of which only what it looks at is measured."""
    given = positions(table)
    bare = TableInputs(table, given, 0, None, {})
    behind = ("seams", "winding", "bridging", "axis_codes")
    chosen = {name: TABLE[name] for name in behind if not TABLE[name].needs(bare)}
    inputs = TableInputs(table, given, 0, None, chosen, all_rows)
    return verdict(inputs, "F32")


def by_name(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {answer["question"]: answer for answer in told["answers"]}


def asked(values: Floats, layout: Layout | None = None) -> dict[str, dict[str, Any]]:
    return by_name(block(as_table(values, layout)))


def smooth(n: int, d: int, length: float, seed: int = 0) -> Floats:
    offset = np.subtract.outer(np.arange(n), np.arange(n)) / length
    root = np.linalg.cholesky(np.exp(-(offset**2) / 2) + 1e-8 * np.eye(n))
    return np.asarray(root @ gaussian(n, d, seed))


def pulled_back(n: int, d: int, length: float) -> Floats:
    """An Ornstein-Uhlenbeck process."""
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return np.asarray(np.linalg.cholesky(np.exp(-offset / length)) @ gaussian(n, d))


def turning(periods: list[float], n: int, d: int) -> Floats:
    """Rotations in ``d`` columns, with as much noise."""
    circles = np.asarray(waves(n, periods), dtype=np.float64)
    values = circles @ rotation(d)[: circles.shape[1]]
    noise = gaussian(n, d, seed=5)
    return np.asarray(values + noise * np.linalg.norm(values) / np.linalg.norm(noise))


def helix(n: int, turns: float, d: int = 24) -> Floats:
    t = np.linspace(0, 1, n)
    angle = 2 * np.pi * turns * t
    curve = np.stack([np.cos(angle), np.sin(angle), 1.5 * t], axis=1)
    return np.asarray(curve @ rotation(d)[:3] + 0.01 * gaussian(n, d))


def codes(height: int, width: int, d: int) -> Floats:
    rows, columns = gaussian(height, d, seed=1), gaussian(width, d, seed=2)
    values = (rows[:, None] + columns[None]).reshape(height * width, d)
    return np.asarray(values + 0.5 * gaussian(height * width, d))


def odd_row(n: int = 96, row: int = 30) -> Floats:
    values = smooth(n, 16, 6.0)
    values[row] = 8 * gaussian(1, 16, seed=9)
    return values


# --- what is there ---


def test_rotations_are_named_whether_or_not_they_divide_the_table() -> None:
    found = asked(turning([6.0, 17.3, 48.0], 192, 24))
    assert found["rotations"]["answer"] == "yes"
    periods = [line["period"] for line in found["rotations"]["value"]]
    assert periods == pytest.approx([6.0, 17.3, 48.0], rel=0.02)
    assert found["smooth"]["answer"] == "no"
    assert found["closed_form"]["answer"] == "no"


def test_a_helix_winds_as_often_as_it_does() -> None:
    found = asked(helix(256, 3.0))
    assert found["winding"]["answer"] == "yes"
    assert found["winding"]["value"]["turns"] == pytest.approx(3, abs=0.15)
    assert found["smooth"]["answer"] == "yes"


def test_row_and_column_codes_are_said_to_be_codes() -> None:
    told = block(as_table(codes(8, 9, 24), Grid(8, 9)))
    assert by_name(told)["rows_and_columns"]["answer"] == "yes"
    assert "code of its row plus a code of its column" in told["summary"]


def test_a_seam_is_found_where_it_is() -> None:
    values = np.concatenate([smooth(80, 24, 8.0), smooth(64, 24, 8.0, seed=1)])
    told = block(as_table(values))
    found = by_name(told)["seams"]
    assert found["answer"] == "yes"
    assert found["value"] == [[79, 80]]
    assert told["rows"] == [0, 80]
    assert "seam between 79 and 80" in told["summary"]


def test_a_special_row_ends_the_stretch_and_all_rows_can_be_asked_for() -> None:
    table = as_table(odd_row())
    told = block(table)
    assert by_name(told)["special_rows"]["value"] == [30]
    assert told["rows"] == [31, 96]
    assert told["summary"].startswith("Positions 31 to 95: ")
    every = block(table, all_rows=True)
    assert every["rows"] == [0, 96]
    assert by_name(every)["special_rows"]["value"] == [30]


def test_positions_keep_their_numbers_in_a_slice() -> None:
    told = block(as_table(odd_row())[10:])
    assert by_name(told)["special_rows"]["value"] == [30]
    assert told["rows"] == [31, 96]


def test_the_sinusoid_is_recognised_by_name_and_in_any_basis() -> None:
    plain = by_name(block(pp.sinusoidal(96, 32)))["closed_form"]
    assert plain["answer"] == "yes"
    assert plain["value"]["formula"].startswith("sinusoid, interleaved")
    assert plain["value"]["formula"].endswith("base 10000")
    table = pp.sinusoidal(96, 32, base=1000.0)
    turned = asked(np.asarray(table.values, dtype=np.float64) @ rotation(32))
    assert turned["closed_form"]["answer"] == "yes"
    assert turned["closed_form"]["value"]["base"] == pytest.approx(1000, rel=0.1)
    assert turned["rotations"]["answer"] == turned["ladder"]["answer"] == "yes"


# --- what is not ---

LACKING = {
    "noise": gaussian(128, 24),
    "walk": walk(128, 24),
    "pulled back": pulled_back(128, 24, 10.0),
    "smooth": smooth(128, 24, 5.0),
}


@cache
def lacking(name: str) -> dict[str, Any]:
    return block(as_table(LACKING[name]))


@pytest.mark.parametrize("name", LACKING)
def test_nothing_is_said_that_is_not_there(name: str) -> None:
    found = {question: answer["answer"] for question, answer in by_name(lacking(name)).items()}
    absent = {"closed_form", "seams", "special_rows", "low_dimensional", "rotations", "winding"}
    assert "yes" not in {found[question] for question in {*absent, "ladder"}}
    assert found["order"] == ("no" if name == "noise" else "yes")
    assert (found["smooth"] == "yes") == (name == "smooth")
    assert name != "walk" or found["stationary"] != "yes"


@pytest.mark.parametrize("name", LACKING)
def test_every_question_of_a_sequence_is_answered_once(name: str) -> None:
    names = [answer["question"] for answer in lacking(name)["answers"]]
    assert names == [q for q in QUESTIONS if q not in ("rows_and_columns", "axis_rotations")]


# --- what must not matter ---


@pytest.mark.parametrize("name", ["walk", "smooth"])
def test_no_basis_scale_or_mean_row_matters(name: str) -> None:
    changed = 0.02 * LACKING[name] @ rotation(24) + np.linspace(0, 1, 24)
    found = asked(changed)
    for question, answer in by_name(lacking(name)).items():
        assert found[question]["answer"] == answer["answer"], question


# --- too little to say ---

LEAN: dict[str, tuple[Floats, Layout | None]] = {
    **{f"{n} rows": (gaussian(n, 4), None) for n in range(2, 9)},
    "one column": (walk(40, 1), None),
    "two columns": (walk(40, 2), None),
    "constant": (np.full((40, 4), 0.1), None),
    "zeros": (np.zeros((40, 4)), None),
    "zero rows": (gaussian(40, 4) * (np.arange(40) % 7 > 0)[:, None], None),
    "line": (np.outer(np.arange(40.0), [1.0, 2.0]), None),
    "1 x 9": (gaussian(9, 4), Grid(1, 9)),
    "9 x 1": (gaussian(9, 4), Grid(9, 1)),
    "2 x 2": (gaussian(4, 4), Grid(2, 2)),
    "3 x 3": (gaussian(9, 4), Grid(3, 3)),
    "equal patches": (np.ones((16, 4)), Grid(4, 4)),
    "grid of one column": (gaussian(16, 1), Grid(4, 4)),
}


@pytest.mark.parametrize("name", LEAN)
def test_every_table_has_a_verdict(name: str) -> None:
    values, layout = LEAN[name]
    told = block(as_table(values, layout))
    assert told["summary"].endswith(".")
    names = [answer["question"] for answer in told["answers"]]
    assert names == [q for q in QUESTIONS if layout or q not in ("rows_and_columns",
                                                                "axis_rotations")]  # fmt: skip
    for answer in told["answers"]:
        start = {"yes": "Yes", "no": "No", "cannot tell": "Cannot be told"}[answer["answer"]]
        assert answer["sentence"].startswith(start)
        assert "-0.00" not in answer["sentence"]
        assert "nan" not in answer["sentence"].split()
        assert answer["p"] is None or 0 < answer["p"] <= 1
    json.dumps(told, allow_nan=False)


def test_the_block_is_what_the_schema_says() -> None:
    document = pp.analyze(as_table(walk(24, 4)), nulls=0).to_dict()
    path = files("posprobe.report") / "schema" / "analysis-1.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), schema)
    assert {finding["text"] for finding in document["findings"]} >= {
        answer["sentence"][5].upper() + answer["sentence"][6:]
        for answer in document["verdict"]["answers"]
        if answer["answer"] == "yes"
    }


# --- several tables ---


def test_tables_are_compared_by_their_answers() -> None:
    told = shared(["a", "b"], [lacking("walk"), lacking("smooth")])
    same = {answer["question"]: answer["same"] for answer in told["answers"]}
    assert same["order"]
    assert not same["smooth"]
    assert "smooth curve?" in told["summary"]


# --- real tables ---


def test_the_digits_table_is_codes_of_rows_and_columns() -> None:
    found = by_name(block(pp.load("sample:digits-vit")))
    assert found["rows_and_columns"]["answer"] == "yes"
    assert found["closed_form"]["answer"] == "no"


@pytest.mark.slow
def test_minilm_is_a_ladder_of_four_rotations_behind_a_seam() -> None:
    told = block(pp.load("sample:all-minilm-l6-v2"))
    found = by_name(told)
    assert found["seams"]["value"] == [[127, 128]]
    assert {0, 127, 510, 511} <= set(found["special_rows"]["value"])
    assert told["rows"] == [128, 510]
    periods = [line["period"] for line in found["rotations"]["value"]]
    assert periods == pytest.approx([6.0, 17.8, 53, 159], rel=0.04)
    assert found["ladder"]["answer"] == "yes"
    assert found["smooth"]["answer"] == "no"
    assert found["closed_form"]["answer"] == "no"


def test_parts_between_seams_are_summed_up_each() -> None:
    first = gaussian(150, 16)
    second = 0.3 * turning([9.0, 31.0], 90, 16)
    told = block(as_table(np.concatenate([first, second])))
    (part,) = told["parts"]
    assert told["rows"] == pytest.approx([0, 150], abs=2)
    assert part["rows"] == pytest.approx([150, 240], abs=2)
    assert "rotation" in part["summary"]
    assert "rotation" not in told["summary"].split(". ")[0]
    assert part["summary"][1:] in told["summary"]


def test_a_table_without_seams_has_no_other_parts() -> None:
    assert block(as_table(smooth(120, 8, 9.0)))["parts"] == []


def test_what_winds_as_often_as_a_rotation_turns_is_that_rotation() -> None:
    values = turning([5.3], 96, 24)
    found = asked(values)["winding"]
    assert found["answer"] == "yes"
    assert found["value"]["rotation"] == pytest.approx(5.3, rel=0.02)
    assert "they are the rotation with a period of 5.3" in found["sentence"]
    assert "their period changes" not in found["sentence"]
    t = np.linspace(0, 1, 300)
    angle = 2 * np.pi * 4 * t**3  # no period stands
    values = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ rotation(16)[:2]
    found = asked(values + 0.05 * gaussian(300, 16))["winding"]
    assert found["answer"] == "yes"
    assert "rotation" not in found["value"]


def test_few_rows_do_not_show_that_there_are_no_rotations() -> None:
    found = asked(turning([3.7, 5.4, 8.0], 32, 24))["rotations"]
    assert found["answer"] == "cannot tell"


@pytest.mark.parametrize("rows", [32, 48])
def test_few_rows_do_not_show_that_nothing_breaks(rows: int) -> None:
    # A seam in the middle, of the size that is found in 64 rows: what is not seen is not denied.
    values = np.concatenate([smooth(rows // 2, 16, 3.0, seed) for seed in (1, 2)])
    told = asked(values)
    assert {told[question]["answer"] for question in ("seams", "special_rows")} <= {
        "yes",
        "cannot tell",
    }
    assert asked(gaussian(64, 16))["seams"]["answer"] == "no"


def test_rungs_that_may_be_missed_do_not_deny_a_series() -> None:
    rungs = np.geomspace(3.1, 16, 5).tolist()
    found = asked(turning(rungs, 64, 32))
    assert len(found["rotations"]["value"]) < 5
    assert found["ladder"]["answer"] == "cannot tell"
    # In four times the rows each is seen, and the same periods unevenly spaced are denied.
    assert asked(turning(rungs, 256, 32))["ladder"]["answer"] == "yes"
    uneven = [3.1, 3.6, 4.2, 5.0, 16.0]
    assert asked(turning(uneven, 256, 32))["ladder"]["answer"] == "no"
