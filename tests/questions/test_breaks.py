"""Questions about outliers and seams: planted ones are answered with their numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from made_answers import is_sentence
from made_tables import (
    as_table,
    fading_circles,
    gaussian,
    hurried_circles,
    patches,
    rotation,
    sinusoid,
    slow_surface,
    walk,
)
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.breaks.copies import Copies
from posprobe.analyses.breaks.seams import SpecialRow
from posprobe.analyses.facts import Cause, Verdicts
from posprobe.analyses.result import to_json as as_json
from posprobe.analyses.view import view
from posprobe.arrays import positions
from posprobe.data import read_data
from posprobe.layouts import Grid
from posprobe.measurements import TableInputs
from posprobe.questions.breaks import ask_seams, ask_special_rows
from posprobe.tables import PositionTable
from posprobe.words import answer_sentence, cause_clause, templates
from posprobe.words.tables import basis_sentences, copies_clause

Floats = NDArray[np.float64]


def two_bases(n: int, d: int, edge: int) -> Floats:
    table = sinusoid(n, d)
    return np.concatenate([table[:edge], table[edge:] @ rotation(d, 5)])


def replace_rows(values: Floats, *changes: tuple[Any, Any]) -> Floats:
    """Replace some rows, given as pairs of index and new rows."""
    for rows, new_rows in changes:
        values[rows] = new_rows
    return values


def grid(values: Floats, height: int, width: int) -> PositionTable:
    return pp.table(values, grid=(height, width))


def inputs_of(table: PositionTable, *, all_rows: bool = False) -> TableInputs:
    return TableInputs(table, positions(table), 0, None, {}, all_rows)


def answers_about(table: PositionTable) -> dict[str, Any]:
    inputs = inputs_of(table)
    table_view = view(
        np.asarray(inputs.kept_positions.values, dtype=np.float64),
        layout=table.layout, start=table.start, seams=inputs.seams,
        replaced_patches=inputs.replaced_patches,
    )  # fmt: skip
    asks = {"special_rows": ask_special_rows, "seams": ask_seams}
    if isinstance(table.layout, Grid):
        del asks["seams"]
    return {name: ask(table_view) for name, ask in asks.items()}


@cache
def tables() -> dict[str, PositionTable]:
    """Return tables with planted seams and outliers."""
    odd = replace_rows(two_bases(200, 64, 100), (150, gaussian(1, 64)[0]))
    return {
        "noise": as_table(gaussian(100, 16)),
        "short noise": as_table(gaussian(40, 16)),
        "five rows": as_table(gaussian(5, 16)),
        "seam and outlier": as_table(odd)[10:],
        "two seams": as_table(
            replace_rows(gaussian(128, 16), (slice(60, 80), gaussian(1, 16, 5)))
        ),
        "odd ends": as_table(
            replace_rows(
                sinusoid(200, 64), (0, gaussian(1, 64)), (199, gaussian(1, 64, 2))
            )
        ),
        "long row": as_table(replace_rows(gaussian(300, 64), (77, 4 * gaussian(1, 64)))),
        "long first steps": as_table(
            np.cumsum(
                gaussian(200, 32) * (1 + np.exp(-np.arange(200) / 2))[:, None], axis=0
            )
        ),
        "row unlike all": as_table(
            replace_rows(
                gaussian(200, 64, 1) + 16 * np.eye(64)[0], (100, 16 * np.eye(64)[1])
            )
        ),
        "zeros": as_table(replace_rows(walk(64, 16), (slice(20, 22), 0.0))),
        "zeros and long row": as_table(
            replace_rows(gaussian(300, 64), (77, 4 * gaussian(1, 64)), (200, 0.0))
        ),
        "zeros behind": as_table(replace_rows(gaussian(128, 16), (slice(100, 128), 0.0))),
        "all special": as_table(
            replace_rows(np.zeros((40, 8)), (slice(35, 40), gaussian(5, 8)))
        ),
        "zeros everywhere": as_table(
            replace_rows(gaussian(64, 16), (slice(0, 64, 7), 0.0))
        ),
        "outliers at a seam": as_table(
            replace_rows(two_bases(200, 64, 100), (slice(99, 101), gaussian(2, 64)))
        ),
        "louder": as_table(
            gaussian(400, 384) * np.where(np.arange(400) < 250, 1, 1.6)[:, None]
        ),
        "faster": as_table(
            np.cumsum(
                gaussian(300, 16) * np.where(np.arange(300) < 100, 1, 4)[:, None], axis=0
            )
        ),
        "hurried": as_table(hurried_circles()),
        "fading": as_table(fading_circles()),
        "moved": as_table(
            gaussian(200, 16) + 2 * np.repeat(gaussian(2, 16, 9), 100, axis=0)
        ),
        "short runs": as_table(
            np.repeat(gaussian(13, 16), [7] * 6 + [1] + [7] * 6, axis=0)
        ),
        "outlier among runs": as_table(
            replace_rows(
                np.repeat(1 + 1e-3 * gaussian(9, 8), [7] * 8 + [8], axis=0),
                (20, gaussian(1, 8)),
            )
        ),
        "outlier patch": grid(
            replace_rows(slow_surface(14, 14, 32), (75, 9 * gaussian(1, 32))), 14, 14
        ),
        "outlier patches": grid(
            replace_rows(
                slow_surface(14, 14, 32),
                (0, 9 * gaussian(1, 32)),
                (76, 9 * gaussian(1, 32)),
                (100, 0),
            ),
            14,
            14,
        ),
        "equal patches": grid(
            replace_rows(np.ones((36, 8)), ([0, 21], gaussian(2, 8))), 6, 6
        ),
        "codes": patches(12, 12, 32),
        "few patches": patches(6, 6, 8),
        "too few patches": patches(3, 5, 8),
    }


@pytest.mark.parametrize(
    ("name", "special", "breaks"),
    [
        ("noise", ("no", "none", []), ("no", "none", [])),
        ("short noise", ("cannot tell", "few", []), ("cannot tell", "few", [])),
        (
            "five rows",
            ("cannot tell", "undefined", None),
            ("cannot tell", "undefined", None),
        ),
        ("seam and outlier", ("yes", "found", [150]), ("yes", "found", [[99, 100]])),
        ("two seams", ("no", "none", []), ("yes", "found", [[59, 60], [79, 80]])),
        ("odd ends", ("yes", "found", [0, 199]), ("no", "none", [])),
        ("zeros and long row", ("yes", "found", [77, 200]), ("no", "none", [])),
        ("long first steps", ("cannot tell", "longest", []), ("no", "none", [])),
        ("outlier patch", ("yes", "patch_found", [75]), None),
        ("outlier patches", ("yes", "patch_found", [0, 76, 100]), None),
        ("codes", ("no", "patch_none", []), None),
        ("few patches", ("cannot tell", "patch_few", []), None),
        ("too few patches", ("cannot tell", "undefined", None), None),
    ],
)
def test_planted_seams_and_outliers_are_answered(
    name: str, special: tuple[Any, ...], breaks: tuple[Any, ...] | None
) -> None:
    answers = answers_about(tables()[name])
    answer = answers["special_rows"]
    assert (answer.answer, answer.reason, answer.value) == special
    if breaks:
        answer = answers["seams"]
        assert (answer.answer, answer.reason, answer.value) == breaks


def test_facts_name_positions_and_separate_zeros() -> None:
    facts = answers_about(tables()["zeros and long row"][50:])["special_rows"].facts
    assert (facts.rows, facts.positions, facts.zeros) == (250, (77,), (200,))
    (cause_found,) = facts.causes
    assert cause_found.kind == "norm"
    norm, median_norm = cause_found.numbers
    assert norm == pytest.approx(np.linalg.norm(4 * gaussian(1, 64)))
    assert median_norm == pytest.approx(8.05, abs=0.01)
    patch = answers_about(tables()["outlier patches"])["special_rows"].facts
    assert (patch.positions, patch.zeros, patch.width, patch.replaced) == (
        (0, 76),
        (100,),
        14,
        True,
    )


def test_facts_name_the_cause_of_the_first_outlier() -> None:
    facts = answers_about(tables()["odd ends"])["special_rows"].facts
    assert facts.causes[0].kind == "far_from_next"
    zeros = answers_about(tables()["zeros"])["special_rows"].facts
    assert (zeros.positions, zeros.zeros, zeros.causes) == ((), (20, 21), ())


def test_sentences_name_patches_by_row_and_column() -> None:
    sentence = answer_sentence(answers_about(tables()["outlier patches"])["special_rows"])
    assert "(5, 6)" in sentence
    assert "row 7 and column 2" in sentence


def test_every_reason_about_breaks_is_reached_with_a_sentence() -> None:
    reached = set()
    for table in tables().values():
        for answer in answers_about(table).values():
            reached.add((answer.question, answer.reason))
            assert is_sentence(answer_sentence(answer))
    assert reached == {key for key in templates() if key[0] in {"special_rows", "seams"}}


def test_every_cause_of_a_break_is_reached_with_words() -> None:
    causes = set(inputs_of(tables()["noise"], all_rows=True).stretch.reasons)
    for table in tables().values():
        inputs = inputs_of(table)
        causes |= {*inputs.seams.reasons, *inputs.stretch.reasons}
        causes |= {
            cause_found for row in inputs.seams.special for cause_found in row.causes
        }
    assert {cause_found.kind for cause_found in causes} == set(
        read_data("words/answers.toml")["causes"]
    ) - {"together"}
    for cause_found in causes:
        assert np.isfinite(cause_found.numbers).all()
        assert "{" not in cause_clause(cause_found)


def test_causes_are_words_in_the_document() -> None:
    change = Cause("level", (1.0, 2.5), "norms")
    assert as_json({"a": (change,), "b": np.float32(0.5)}, cause_clause) == {
        "a": ["norms change from 1 to 2.5"], "b": 0.5,
    }  # fmt: skip
    assert cause_clause(Cause("seam", (9, 10), causes=(change,))) == (
        "a break between positions 9 and 10: norms change from 1 to 2.5"
    )
    odd = SpecialRow(7, (Cause("zero"), change))
    assert as_json([odd], cause_clause) == [
        {"row": 7, "reason": "zero: it has no direction; norms change from 1 to 2.5"}
    ]
    copied_rows = Copies("near", 64, period=16, cosine=0.987, between=-0.001)
    assert as_json(copied_rows)["period"] == 16
    assert "(mean cosine 0.99; 0.00 between)" in copies_clause(copied_rows)


def test_the_stretch_names_its_excluded_rows() -> None:
    ends = (Cause("seam", (9, 10)), Cause("special", (50,)))
    assert basis_sentences(
        Verdicts({}, 10, 50, is_whole=False, end_causes=ends)
    ).startswith(
        "Based on positions 10–49; outliers and positions beyond the break at 10 are excluded."
    )
    assert basis_sentences(Verdicts({}, 0, 64, end_causes=(Cause("no_break"),))) == ""
