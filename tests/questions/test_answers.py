"""Answers about whole tables: what is planted is found and told, and no basis or scale matters."""

from __future__ import annotations

import re
import types
import typing
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_answers import (
    PLANTED,
    SAMPLES,
    answers_of,
    is_a_sentence,
    planted,
    smooth,
    turning,
    verdicts_of,
)
from made_tables import as_table, gaussian, rotation, walk, waves

import posprobe as pp
from posprobe import words
from posprobe.analyses import facts as settled
from posprobe.analyses.breaks.copies import Copies, copies
from posprobe.analyses.facts import Answer, Cause, Part, Test, TooFew, hold_rate
from posprobe.analyses.linear import half_length
from posprobe.analyses.view import units, view
from posprobe.layouts import Grid
from posprobe.questions import ANALYSIS, GRID, SEQUENCE, corrections
from posprobe.questions.absolute_position import AbsolutePosition
from posprobe.questions.breaks import Breaks, SpecialRows
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.corrections import kind_of
from posprobe.questions.fields import PatchDimension, PatchPlaces, PatchSmooth
from posprobe.questions.grids import AxisRotations, PatchOrder, RowsAndColumns, Sides
from posprobe.questions.models import QUESTIONS
from posprobe.questions.rotations import Ladder, Rotations, Winding
from posprobe.questions.schemes import KERNELS
from posprobe.questions.sequences import LowDimensional, Order, Smooth
from posprobe.report.document import answer_block, shared_block, verdict_block
from posprobe.words import ASKS, TEXTS, sentence, templates
from posprobe.words.lines import p_value
from posprobe.words.summary import clause, headline
from posprobe.words.tables import based_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from posprobe.analyses.facts import Verdict

    Floats = NDArray[np.float64]


def asked(question: str, values: Floats, grid: tuple[int, int] | None = None) -> Any:
    ask = (GRID if grid else SEQUENCE)[question]
    return ask(view(values, layout=Grid(*grid) if grid else None))


def rotations(values: Floats) -> Rotations:
    facts = asked("rotations", values).facts
    assert isinstance(facts, Rotations)
    return facts


# --- what is there, and what is not ---

#: By planted table, what follows from what was planted once all answers are known.
TRUE: dict[str, dict[str, str]] = {
    "noise": {
        "order": "no: none", "winding": "no: none", "absolute_position": "no: unordered",
        "seams": "no: none", "special_rows": "no: none",
    },
    "line": {"smooth": "yes: line", "absolute_position": "yes: straight_line"},
    "rotations": {"rotations": "yes: stand_out", "absolute_position": "no: bounded"},
    "sinusoid": {
        "closed_form": "yes: exact", "ladder": "yes: base", "smooth": "no: rotations",
        "absolute_position": "no: exact",
    },
    "helix": {"smooth": "yes: curve", "winding": "yes: rotation"},
    "chirp": {"order": "yes: winding", "absolute_position": "yes: place_speed"},
    "alternating": {"rotations": "no: none", "low_dimensional": "yes: fewer"},
    "growing": {"order": "yes: norms", "absolute_position": "yes: place_norms"},
    "mirrored": {"order": "yes: copies", "absolute_position": "yes: place_mirrored"},
    "one-hot": {"order": "no: none", "absolute_position": "no: equally_far"},
    "equal": {"order": "cannot tell: all_equal"},
    "few rows": {"order": "cannot tell: too_few"},
    "two halves": {"seams": "yes: found", "special_rows": "no: none"},
    "odd row": {"seams": "no: none", "special_rows": "yes: found"},
    "growing field": {"smooth": "yes: patch_surface", "absolute_position": "yes: patch_norms"},
    "turning codes": {"rows_and_columns": "yes: codes", "axis_rotations": "yes: circles"},
    "checkerboard": {"order": "yes: patch_neighbours", "rows_and_columns": "no: none"},
    "grid formula": {"closed_form": "yes: exact", "axis_rotations": "yes: formula"},
    "odd patch": {"special_rows": "yes: patch_found", "smooth": "yes: patch_surface"},
}  # fmt: skip


@pytest.mark.parametrize("name", TRUE)
def test_what_is_planted_is_what_is_answered(name: str) -> None:
    answers = planted(name).answers
    found = {each: f"{answers[each].answer}: {answers[each].reason}" for each in TRUE[name]}
    assert found == TRUE[name]
    assert list(answers) == list(GRID if PLANTED[name][1] else SEQUENCE)


def test_planted_numbers_are_those_of_the_facts() -> None:
    def facts(table: str, question: str) -> Any:
        return planted(table).answers[question].value

    # The correlation of squares falls to half of the neighbours' where the offset is:
    squares = np.sqrt(1 / 25 + 2 * np.log(2)) * 5.0
    assert facts("smooth", "smooth")["length"] == pytest.approx(squares, rel=0.1)
    assert facts("noisy line", "smooth")["straight"] == pytest.approx(0.5, abs=0.08)
    assert facts("line", "smooth")["straight"] == pytest.approx(1.0)
    assert facts("turned sinusoid", "closed_form")["base"] == pytest.approx(1000, rel=0.1)
    assert facts("turned sinusoid", "ladder")["base"] == pytest.approx(1000, rel=0.1)
    assert facts("helix", "winding")["turns"] == pytest.approx(3, abs=0.15)
    # A phase of 2 π k² / 512 has 127² / 512 turns after 127 rows.
    assert facts("chirp", "winding")["turns"] == pytest.approx(127**2 / 512, rel=0.1)
    assert facts("alternating", "order") == pytest.approx(-2.25 / 3.25, abs=0.05)
    assert facts("odd patch", "special_rows") == [75]
    codes = facts("codes", "rows_and_columns")
    assert codes["row_share"] + codes["column_share"] == pytest.approx(2 / 2.25, abs=0.05)
    periods = [line["period"] for line in facts("rotations", "rotations")]
    assert periods == pytest.approx([6.0, 17.3, 48.0], rel=0.02)
    assert planted("rotations").answers["rotations"].facts.share == pytest.approx(0.5, abs=0.05)


def test_the_order_is_held_against_the_mean_cosine_of_any_two_rows() -> None:
    values = np.abs(gaussian(20, 3)) ** 3
    rows = units(view(values).points)
    pairs = [float(rows[i] @ rows[j]) for i in range(20) for j in range(20) if i != j]
    assert np.mean(pairs) != pytest.approx(-1 / 19, rel=1e-4)  # that of rows that sum to 0
    for answer in (asked("order", values), asked("order", values, (5, 4))):
        assert answer.test is not None
        assert answer.test.null == answer.facts.chance == pytest.approx(np.mean(pairs), rel=1e-9)


def test_order_that_neighbours_do_not_show_is_told_by_what_shows_it() -> None:
    # Neighbours of a rotation of period 4 are orthogonal; half of the variance is noise.
    circle = waves(64, [4.0])
    answer = asked("order", circle + circle.std() * gaussian(64, circle.shape[1]))
    assert (answer.answer, answer.reason) == ("yes", "wave")
    assert answer.facts.period == 4


# --- whether places matter ---

HALF = gaussian(32, 16)


@pytest.mark.parametrize(
    ("order", "own", "reason", "expected"),
    [
        ("yes", "no", "bounded", None),
        ("no", "no", "bounded", ("no", "unordered")),
        ("no", "yes", "place_norms", ("cannot tell", "unordered_open")),
        ("no", "cannot tell", "wanders", ("cannot tell", "unordered_open")),
        ("no", "cannot tell", "slow", None),
        ("cannot tell", "no", "bounded", ("no", "order_open")),
        ("cannot tell", "yes", "place_norms", None),
    ],
)
def test_where_rows_have_no_order_neither_their_distance_nor_their_place_decides(
    order: Verdict, own: Verdict, reason: str, expected: tuple[str, str] | None
) -> None:
    answers = dict(planted("smooth").answers)
    facts = answers["absolute_position"].facts
    answers["order"] = Answer("order", order, "none", answers["order"].facts)
    answers["absolute_position"] = Answer("absolute_position", own, reason, facts)
    found = corrections._place_by_order(answers, view(np.eye(2)))
    assert (found and (found.answer, found.reason)) == expected


# --- copies ---


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.repeat(gaussian(16, 4), 3, axis=0), Copies("blocks", 48, 32, times=3)),
        (np.tile(gaussian(16, 4), (3, 1)), Copies("period", 48, 32, period=16)),
        (np.concatenate([HALF, HALF[::-1]]), Copies("mirror", 64, 32)),
        (gaussian(4, 4)[np.arange(48) ** 3 % 47 % 4], Copies("any", 48, 44)),
        (gaussian(40, 4), None),
        (np.ones((40, 4)), None),
        (gaussian(40, 4) * (np.arange(40) < 20)[:, None], None),
    ],
    ids=["blocks", "period", "mirror", "any", "none", "equal", "padding"],
)
def test_copies_are_found(values: Floats, expected: Copies | None) -> None:
    assert copies(values) == expected


@pytest.mark.parametrize(
    ("values", "period"),
    [
        (np.tile(gaussian(32, 16), (4, 1)) + 0.4 * gaussian(128, 16, seed=1), 32),
        (smooth(64, 16, 4.0) / 3 + np.where(np.arange(64) % 2, 1, -1)[:, None], 2),
        (walk(128, 16), None),
        (smooth(128, 16, 4.0), None),
        (waves(128, [9.0]), None),
    ],
    ids=["tiles", "alternating", "walk", "smooth", "circle"],
)
def test_what_returns_does_so_after_its_period_and_what_moves_on_does_not(
    values: Floats, period: int | None
) -> None:
    found = verdicts_of(values).copies
    assert (found and (found.kind, found.period)) == (period and ("near", period))


# --- what must not matter ---

TABLES = {
    "walk": walk(96, 16),
    "smooth": smooth(96, 16, 4.0),
    "noise": gaussian(96, 16),
    "series": turning([3.0, 6.0, 12.0, 24.0], 128),
    "few directions": smooth(128, 3, 4.0) @ rotation(16)[:3] + 0.02 * gaussian(128, 16),
}


@cache
def plain(name: str) -> dict[str, Answer]:
    return answers_of(TABLES[name])


@pytest.mark.parametrize("name", TABLES)
def test_no_basis_scale_or_mean_row_matters(name: str) -> None:
    width = TABLES[name].shape[1]
    changed = answers_of(7e-3 * TABLES[name] @ rotation(width) + np.linspace(0, 1, width))
    for question, one in plain(name).items():
        two = changed[question]
        assert (one.answer, one.reason) == (two.answer, two.reason), question
        if one.test is None or two.test is None:
            assert one.test is two.test
        else:
            assert one.p == pytest.approx(two.p, abs=0.011), question
            assert one.test.value == pytest.approx(two.test.value, rel=1e-3, abs=1e-4), question


@pytest.mark.parametrize("name", TABLES)
def test_the_curve_is_the_same_whichever_way_it_is_run_along(name: str) -> None:
    found = answers_of(TABLES[name][::-1])
    for question in ("rotations", "ladder", "smooth", "absolute_position", "low_dimensional"):
        assert found[question].yes == plain(name)[question].yes, question
    assert len(found["rotations"].value) == len(plain(name)["rotations"].value)


# --- each rotation ---


def test_slow_curves_beside_rotations_are_no_rotations() -> None:
    values = waves(256, [3.3, 5.3, 8.7])
    values = np.hstack([values / np.linalg.norm(values), np.zeros((256, 58))]) @ rotation(64)
    for background in (smooth(256, 64, 20.0), walk(256, 64)):
        rest = background - background.mean(axis=0)
        found = rotations(values + rest / np.linalg.norm(rest)).lines
        assert [line.period for line in found] == pytest.approx([3.3, 5.3, 8.7], rel=0.02)


def test_the_share_of_a_rotation_counts_the_straight_line_beside_it() -> None:
    both = np.hstack([waves(256, [20.0]), np.linspace(-2, 2, 256)[:, None]])  # 1 and 4 / 3
    values = np.hstack([both, np.zeros((256, 13))]) @ rotation(16)
    found = rotations(values + 0.02 * gaussian(256, 16))
    assert found.share == pytest.approx(1 / (1 + 4 / 3), abs=0.03)


def test_rungs_that_may_be_missed_do_not_deny_a_series() -> None:
    rungs = np.geomspace(3.1, 16, 7).tolist()
    found = answers_of(turning(rungs, 64, seed=5))
    assert len(found["rotations"].value) < 7
    assert found["ladder"].answer == "cannot tell"
    # In four times the rows each is seen, and as many periods unevenly spaced are denied.
    assert answers_of(turning(rungs, 256, seed=5))["ladder"].yes
    uneven = [3.1, 3.6, 4.2, 5.0, 16.0]
    assert answers_of(turning(uneven, 256, seed=5))["ladder"].answer == "no"


# --- what is measured ---


@pytest.mark.parametrize("grid", [None, (10, 12)])
def test_directions_are_those_of_the_table_and_not_of_rows_of_equal_length(
    grid: tuple[int, int] | None,
) -> None:
    # The long rows lie in few directions: rows of equal length have more.
    values = gaussian(120, 24) @ np.diag(0.8 ** np.arange(24))
    values[::3] *= 4
    values[::3, 6:] = 0
    centred = values - values.mean(axis=0)
    share = np.cumsum(np.linalg.svd(centred, compute_uv=False) ** 2 / np.square(centred).sum())
    answer = asked("low_dimensional", values, grid)
    assert answer.value["directions"] == np.argmax(share >= 0.9) + 1


def test_half_the_similarity_is_where_a_triangle_halves() -> None:
    # Sums of neighbours of noise fall linearly, to 0 at the length of the sum.
    values = np.stack([np.convolve(x, np.ones(20), "valid") for x in gaussian(2000, 200).T], axis=1)
    assert half_length(view(values).points) == pytest.approx(1 + 19 / 2, abs=0.5)


@pytest.mark.parametrize("base", [100.0, 500_000.0])
@pytest.mark.parametrize("order", ["interleaved", "halves"])
@pytest.mark.parametrize("endpoint", [False, True])
def test_published_layouts_are_named_with_their_base(
    base: float, order: str, endpoint: bool
) -> None:
    table = pp.sinusoidal(200, 64, base=base, order=order, endpoint=endpoint).values  # type: ignore[arg-type]
    noisy = 0.02 * (table + 1e-3 * gaussian(200, 64))
    stored = {"half": (table.astype(np.float16), 1), "scaled": (3 * table, 3), "": (noisy, 0.02)}
    for kind, (values, scale) in stored.items():
        answer = asked("closed_form", np.asarray(values, dtype=np.float64))
        assert answer.reason == ("exact" if kind else "nearly")
        exponents = "d/2 - 1" if endpoint else "d/2"
        assert answer.facts.formula == f"sinusoid, {order}, exponents over {exponents}"
        assert answer.facts.base == pytest.approx(base, rel=1e-2)
        assert answer.facts.scale == pytest.approx(scale, rel=1e-2)


# --- too little to say ---

#: Reasons that any question may have.
SHARED = {"too_few", "all_equal", "narrow", "large", "among_many"}

LEAN: dict[str, tuple[Floats, tuple[int, int] | None]] = {
    **{f"{n} x {d}": (gaussian(n, d), None) for n in (2, 3, 8) for d in (1, 2, 4)},
    **{f"walk {n} x {d}": (walk(n, d), None) for n, d in ((9, 4), (20, 4), (60, 1), (60, 2))},
    "zeros": (np.zeros((40, 4)), None),
    "zero rows": (gaussian(40, 4) * (np.arange(40) % 7 > 0)[:, None], None),
    "one row differs": (np.eye(40)[:, :1] * np.ones(3), None),
    "four rows again and again": (np.tile(gaussian(4, 3), (10, 1)), None),
    "constant columns": (np.hstack([walk(40, 2), np.ones((40, 3))]), None),
    "one wave and nothing else": (np.cos(np.arange(64) * 0.7)[:, None], None),
    "a circle and nothing else": (waves(64, [5.3]), None),
    "two values": (np.tile([[0.0, 1], [1.0, 0]], (30, 1)), None),
    **{
        f"{h} x {w} patches, {noise}": (noise * gaussian(h * w, 8) + 1 - noise, (h, w))
        for h, w in ((1, 9), (9, 1), (2, 2), (3, 3), (7, 9))
        for noise in (0, 1)
    },
    "grid of one column": (gaussian(16, 1), (4, 4)),
    "one-hot patches": (np.eye(36), (6, 6)),
}  # fmt: skip


@cache
def lean(name: str) -> dict[str, Answer]:
    return dict(verdicts_of(*LEAN[name]).answers)


@pytest.mark.parametrize("name", LEAN)
def test_every_question_has_an_answer_for_every_table(name: str) -> None:
    values, grid = LEAN[name]
    answers = lean(name)
    assert list(answers) == list(GRID if grid else SEQUENCE)
    for question, answer in answers.items():
        assert (question, answer.reason) in templates() or answer.reason in SHARED
        assert answer.p is None or 0 < answer.p <= 1
    if len(values) < 8 or not np.ptp(values, axis=0).any():
        assert {each.answer for each in answers.values() if not each.yes} == {"cannot tell"}


# --- breaks and the stretch between them ---


def test_a_seam_is_found_where_it_is() -> None:
    found = planted("two halves")
    assert found.answers["seams"].value == [[79, 80]]
    assert (found.first, found.stop, found.whole) == (0, 80, False)
    assert [(part.first, part.stop) for part in found.parts] == [(80, 144)]


def test_a_special_row_ends_the_stretch_and_all_rows_can_be_asked_for() -> None:
    values: Any = PLANTED["odd row"][0]()
    for table in (as_table(values), as_table(values)[10:]):
        found = verdicts_of(table)
        assert found.answers["special_rows"].value == [30]
        assert (found.first, found.stop) == (31, 96)
    every = verdicts_of(values, all_rows=True)
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


def test_the_block_says_of_which_rows_its_answers_are() -> None:
    row, patch, halves = (
        verdict_block(planted(name)) for name in ("odd row", "odd patch", "two halves")
    )
    assert (row["rows"], row["replaced"], row["parts"]) == ([31, 96], [], [])
    assert (patch["rows"], patch["replaced"]) == ([0, 144], [75])
    assert halves["rows"] == [0, 80]
    assert [part["rows"] for part in halves["parts"]] == [[80, 144]]


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


# --- arithmetic ---


def test_the_false_discovery_rate_is_held_over_the_questions() -> None:
    def made(name: str, verdict: Verdict, p: float | None) -> Answer:
        return Answer(name, verdict, "made", test=None if p is None else Test(1.0, p))

    some = [
        made("a", "yes", 0.02),
        made("b", "no", 0.5),
        made("c", "no", 0.9),
        made("d", "no", None),
    ]
    found = hold_rate(some)
    assert (found[0].answer, found[0].reason) == ("cannot tell", "among_many")  # 0.02 > 0.05 / 3
    assert found[1:] == some[1:]
    helped = [*some, made("e", "yes", 0.01)]
    assert hold_rate(helped) == helped  # 0.02 <= 2 * 0.05 / 4


ALL = (*PLANTED, *SAMPLES)


# --- words ---


def test_every_question_is_asked_in_few_words() -> None:
    assert set(ASKS) == {*ANALYSIS, *QUESTIONS, *KERNELS}
    assert all(len(asked.split()) <= 5 and asked.endswith("?") for asked in ASKS.values())


def test_every_part_that_is_made_by_a_function_is_told() -> None:
    for made_parts in words.made_parts():
        for question, parts in made_parts.items():
            told = f"{TEXTS[question]} {TEXTS['shared']['parts']}"
            # Of a text and a function of one name, one would never be told.
            assert not set(parts) & set(TEXTS[question].get("parts", ()))
            assert all(re.search(rf"{{{name}[:}}]", told) for name in parts), question


# --- templates and facts of any kind ---

#: Facts of each question about a table, on a line and on a grid.
FACTS: dict[str, tuple[type, ...]] = {
    "closed_form": (ClosedForm,),
    "special_rows": (SpecialRows,),
    "seams": (Breaks,),
    "order": (Order, PatchOrder),
    "smooth": (Smooth, PatchSmooth),
    "absolute_position": (AbsolutePosition, PatchPlaces),
    "low_dimensional": (LowDimensional, PatchDimension),
    "rotations": (Rotations,),
    "winding": (Winding,),
    "ladder": (Ladder,),
    "rows_and_columns": (RowsAndColumns,),
    "axis_rotations": (AxisRotations,),
}
COSINES = {"cosine", "chance", "cka", "similar", "neighbours", "between", "invariance", "curve"}
#: What no sentence may rest on, and no planted table lacks.
LACKED = {"invariance"}
COUNTS = st.integers(1, 4096)
POSITIVE = st.floats(1e-3, 1e6)
CAUSES = st.builds(
    Cause, st.sampled_from(sorted(TEXTS["causes"])), st.tuples(*[POSITIVE] * 3), st.just("rows")
)


def made(kind: Any, name: str, reason: str) -> st.SearchStrategy[Any]:
    """Draw what a field may hold; of those that may be lacking most do so in planted tables."""
    if get_origin(kind) is typing.Annotated:
        return st.none()  # hidden from documents
    if get_origin(kind) in (Union, types.UnionType):
        (one,) = (each for each in get_args(kind) if each is not type(None))
        value = made(one, name, reason)
        return st.none() | value if name in LACKED else value
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[-1] is not Ellipsis:
            return st.tuples(*(made(part, name, reason) for part in parts)).map(sorted).map(tuple)
        several = st.lists(made(parts[0], name, reason), min_size=1, max_size=4, unique=True)
        return several.map(lambda found: tuple(sorted(found) if name == "positions" else found))
    if kind is Cause:
        return CAUSES
    if is_dataclass(kind):
        return built(kind, reason)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return COUNTS
    if kind is str:
        return st.sampled_from({"axis": ("rows", "columns")}.get(name, (f"some {name}",)))
    return st.floats(-1, 1) if name in COSINES else POSITIVE


def built(kind: Any, reason: str) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    drawn = {each.name: made(hints[each.name], each.name, reason) for each in fields(kind)}
    if kind is AbsolutePosition and reason.startswith("place_"):
        place = drawn["place"]
        drawn["place"] = place.map(lambda f: type(f)(reason[6:], f.share, f.typical, f.large))
    if kind is SpecialRows:
        drawn["width"] = COUNTS if reason.startswith("patch") else st.none()
    return st.builds(kind, **drawn)


def facts_of(question: str, reason: str) -> st.SearchStrategy[Any]:
    if question == "axis_rotations" and reason in {"lines", "circles", "none", "open"}:
        return codes(reason)
    kinds = FACTS[question]
    kind = kinds[-1] if reason.startswith("patch_") else kinds[0]
    return built(kind, reason)


@st.composite
def codes(draw: Any, reason: str) -> AxisRotations:
    """Draw codes of which each has lines or a circle, as the reason says."""
    hints = get_type_hints(AxisRotations)
    kind = get_args(hints["codes"])[0]
    circle = get_args(get_type_hints(kind)["circle"])[0]
    line = get_args(get_type_hints(kind)["lines"])[0]
    made_codes = []
    for axis in ("rows", "columns"):
        lines = draw(st.lists(built(line, reason), min_size=1, max_size=3)) * (reason == "lines")
        round_one = None if lines else draw(built(circle, reason))
        made_codes.append(kind(axis, draw(COUNTS), tuple(lines), round_one))
    return AxisRotations(14, 14, tuple(made_codes), ("rows", "columns"))


OF_TABLES = [
    (question, reason)
    for question, reason in templates()
    if question in {*SEQUENCE, *GRID} and reason not in {"changed", "slight", "rounding"}
]


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@pytest.mark.parametrize(("question", "reason"), OF_TABLES)
@given(data=st.data())
def test_every_template_makes_a_sentence_of_any_facts(
    question: str, reason: str, data: st.DataObject
) -> None:
    facts = data.draw(facts_of(question, reason))
    assert is_a_sentence(text := sentence(Answer(question, "yes", reason, facts))), text


@pytest.mark.parametrize("reason", ["too_few", "all_equal", "narrow", "large", "among_many"])
def test_reasons_that_all_questions_share_have_words(reason: str) -> None:
    facts = Sides(2, 9, 3, 64) if reason in {"narrow", "large"} else TooFew(6, 4)
    answer = Answer("order", "yes", "too_few", facts)
    told = sentence(answer.corrected("cannot tell", reason, "another"))
    assert is_a_sentence(told)
    assert (words.AMONG_MANY in told) == (reason == "among_many")


# --- numbers ---

#: Numbers that are no findings, by question: of nine tenths, of dimensions, of a random walk.
CONSTANTS: dict[str, set[float]] = {
    "low_dimensional": {90.0}, "closed_form": {1.0, 2.0}, "smooth": {0.0},
    "special_rows": {95.0},
}  # fmt: skip
#: Where a number is rounded up or down, so that what is not all is not 100 %.
BOUND = re.compile(r"less than 1 %|more than 99 %|to within \d+ %")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def numbers_in(facts: Any) -> set[float]:
    """Every number of a record, counts of its tuples, and its properties."""
    if isinstance(facts, bool) or facts is None:
        return set()
    if isinstance(facts, int | float):
        return {float(facts)}
    if isinstance(facts, str):
        return {float(found.replace(",", "")) for found in NUMBER.findall(facts)}
    if isinstance(facts, tuple | list):
        return {float(len(facts))}.union(*map(numbers_in, facts))
    if isinstance(facts, dict):
        return set().union(*map(numbers_in, facts.values()))
    if is_dataclass(facts):
        own = {each.name for each in fields(facts)} - {"pair"}
        derived = {name for name, each in vars(type(facts)).items() if isinstance(each, property)}
        return set().union(*(numbers_in(getattr(facts, name)) for name in own | derived))
    return set()


def stands_for(text: str, number: float) -> bool:
    """Whether a numeral is a number, rounded, or its per cent."""
    said = float(text.replace(",", ""))
    last = 10.0 ** -len(text.partition(".")[2]) if "e" not in text else 0.0
    for value in (number, 100 * number):
        figures = {float(f"{value:.2g}"), float(f"{value:.3g}")}
        if said in figures or abs(said - value) <= 0.5 * last * (1 + 1e-9):
            return True
    return False


@pytest.mark.parametrize("name", ALL)
def test_no_number_is_told_that_is_not_in_the_facts(name: str) -> None:
    for question, answer in planted(name).answers.items():
        known = numbers_in(answer.facts) | CONSTANTS.get(question, set())
        if question == "special_rows" and answer.facts.width:
            known |= {n for at in answer.value or () for n in divmod(at, answer.facts.width)}
        elif question == "special_rows":
            known |= {at + side for at in answer.facts.positions for side in (-1.0, 1.0)}
        text = BOUND.sub("", sentence(answer)).replace("\N{MINUS SIGN}", "-")
        for numeral in NUMBER.findall(text):
            assert any(stands_for(numeral, number) for number in known), (numeral, text)


@pytest.mark.parametrize("name", ALL)
def test_what_chance_gives_stands_beside_each_number_that_was_tested(name: str) -> None:
    for question, answer in planted(name).answers.items():
        block = answer_block(answer)
        told, test = p_value(block), answer.test
        assert [block[key] for key in ("question", "answer", "reason", "p")] == [
            question, answer.answer, answer.reason, answer.p,
        ]  # fmt: skip
        assert bool(block["facts"]) == (answer.facts is not None)
        if test is None:
            assert block["interval"] is block["null"] is block["draws"] is None
            assert told == "–"
            continue
        assert (block["null"], block["baseline"], block["draws"] or 0) == (
            test.null, test.of or None, test.draws,
        )  # fmt: skip
        if test.interval:
            assert block["tested"] == test.value
            assert block["interval"] == sorted(block["interval"]) == list(test.interval)
        assert answer.p is not None
        assert answer.p >= test.least - 1e-12, question
        assert ("≤" in told) == (answer.p == pytest.approx(test.least, rel=1e-9))
        if "≤" in told:
            assert answer.p <= float(told.rpartition(" ")[2]) < 1.2 * answer.p, question


# --- headlines ---

#: Kinds that no yes stands behind.
NO_YES = {"walk", "equal", "equally_far", "independent", "too_few", "unknown"}
#: How a table of each kind is told of, with the numbers that were planted.
HEADLINES = {
    "noise": "No structure found: the rows look independent.",
    "walk": "Like a random walk: no smoother than random steps added up.",
    "smooth": r"A smooth curve explains \d+ % of the variance\.",
    "line": "A straight line along which positions are evenly spaced.",
    "noisy line": r"A straight line in noise: the line explains 5\d % of the variance.",
    "rotations": (
        r"Rotations with periods of 6, 17 and 48 positions explain "
        r"\d\d % of the variance; each period is 2\.8 times the one before\."
    ),
    "sinusoid": (
        r"It matches a formula: sinusoid, interleaved, exponents over d/2, base 10,000\."
    ),
    "turned sinusoid": "Up to a rotation, it is the sinusoid of base 1,000.",
    "helix": r"A rotation with a period of 8\d positions explains .*",
    "chirp": (
        r"Order matters, but neighbours are hardly similar \(mean cosine .*\), "
        r"and two components trace 3\d turns of a circle."
    ),
    "alternating": (
        r"Neighbours point in opposite directions \(mean cosine -0\.\d\d\)\. Rows 2 positions "
        r"apart are similar again \(.*\)\."
    ),
    "growing": (
        "The distance from the mean row changes along the table, while directions show no order."
    ),
    "mirrored": r".*\. The second half is the first in reverse order\.",
    "one-hot": "Any two rows are equally far apart.",
    "equal": "All rows are equal.",
    "few rows": "Six rows are too few to tell.",
    "two halves": (
        r"A smooth curve explains \d\d % of the variance.*\. The table breaks between positions 79 "
        r"and 80\."
    ),
    "odd row": r"Positions 31–95: a smooth curve: .*\. The table has 1 outlier row\.",
    "patches of noise": "No structure found: the patches look independent.",
    "field": r"A smooth surface over the grid: similarity halves within \d\.\d patches.",
    "codes": (
        r"Each patch is a row code plus a column code: together they explain 8\d % of the "
        r"variance\."
    ),
    "turning codes": (
        r"Each patch is .* code: together they explain 9\d % .*; both codes contain rotations\."
    ),
    "row code": r"Each patch is a row code alone: it explains more than 99 % of the variance\.",
    "checkerboard": r"Neighbours point in opposite directions \(mean cosine -0\.9\d\)\.",
    "grid formula": r"It matches a formula: 2-D sin-cos, columns first, base 10,000\.",
    "odd patch": r"A smooth surface over the grid: .*\. The table has 1 outlier patch\.",
}  # fmt: skip


@pytest.mark.parametrize("name", HEADLINES)
def test_headlines_say_what_was_planted(name: str) -> None:
    told = headline(planted(name)).replace("\N{MINUS SIGN}", "-")
    assert re.fullmatch(HEADLINES[name], told), told


@pytest.mark.parametrize("name", ALL)
def test_headlines_claim_only_what_is_answered_yes(name: str) -> None:
    found = planted(name)
    for answers in (found.answers, *(part.answers for part in found.parts)):
        kind = kind_of(answers)
        assert kind.name in NO_YES or all(answers[question].yes for question in kind.of)
    told = headline(found)
    assert len(told.split()) <= 60
    assert is_a_sentence(told)
    assert ("break" in told) == bool(found.answers.get("seams") and found.answers["seams"].yes)
    assert ("outlier" in told) == found.answers["special_rows"].yes
    assert (based_on(found) == "") == found.whole


def test_a_headline_of_many_parts_stays_short() -> None:
    names = ("two halves", "rotations", "chirp", "alternating", "mirrored", "smooth")
    parts = tuple(Part(10 * k, 10 * k + 9, planted(name).answers) for k, name in enumerate(names))
    equal = tuple((k, k + 8) for k in range(0, 90, 9))
    for name in names:
        found = replace(planted(name), parts=parts, equal=equal, untrained=90)
        told = headline(found)
        assert 30 < len(told.split()) <= 60
        alone = headline(replace(found, parts=(), equal=(), untrained=None))
        assert told.startswith(alone.partition(". ")[0].removesuffix("."))


@pytest.mark.parametrize(
    ("share", "kind", "beside"),
    [(0.6, "rotations", False), (0.1, "smooth", True), (0.002, "smooth", False)],
)
def test_a_weak_rotation_is_not_what_a_table_is(share: float, kind: str, beside: bool) -> None:
    slow = smooth(256, 16, 20.0)
    slow /= np.sqrt(np.square(slow - slow.mean(axis=0)).sum(axis=1).mean())
    circle = waves(256, [8.1]) @ rotation(16)[:2]
    both = np.sqrt(1 - share) * slow + np.sqrt(share) * circle + 1e-3 * gaussian(256, 16)
    answers = answers_of(both)
    assert kind_of(answers).name == kind
    assert ("; in addition, a period of 8.1 positions" in clause(answers)) == beside


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            1 + np.eye(64)[:, 20:21] * np.ones(8),
            "has 1 outlier row and has equal rows at positions 0–19",
        ),
        (gaussian(64, 8) * (np.arange(64) % 2)[:, None], "the table has 32 rows of zeros"),
        (np.repeat(gaussian(24, 4), 3, axis=0), "each row occurs 3 times in succession"),
    ],
)
def test_what_else_a_headline_tells(values: Any, told: str) -> None:
    assert told in headline(verdicts_of(values)).lower()


# --- what sentences rest on ---


def test_p_values_are_ranked_once_for_each_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[dict[str, float | None]] = []
    real = settled.hold_rate

    def counted(own: Any) -> list[Answer]:
        answers = list(own)
        ranked.append({answer.question: answer.p for answer in answers})
        return real(answers)

    monkeypatch.setattr(settled, "hold_rate", counted)
    values = PLANTED["two halves"][0]()
    found = verdicts_of(values)
    assert len(ranked) == 1 + len(found.parts) == 2
    for ps, answers in zip(ranked, (found.answers, found.parts[0].answers), strict=True):
        assert set(ps) == set(answers)
        assert ps["winding"] is not None
        for question, answer in answers.items():
            assert ps[question] == answer.p or answer.change


@pytest.mark.parametrize("asked", [SEQUENCE, GRID], ids=["line", "grid"])
def test_a_yes_can_stand_alone_among_the_questions(asked: Any) -> None:
    grid = asked is GRID
    tables = [name for name in ALL if ("rows_and_columns" in planted(name).answers) == grid]
    answers = [answer for name in tables for answer in planted(name).answers.values()]
    tested = {answer.question for answer in answers if answer.test}
    assert len(tested) == (6 if grid else 7)
    for answer in answers:
        if answer.yes and answer.test:
            assert 0 < answer.test.least <= settled.RATE / len(tested), answer.question
    assert tested == {answer.question for answer in answers if answer.yes and answer.test}
