"""Answers about whole tables: what is planted is found, and no basis or scale matters."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_answers import (
    PLANTED,
    answers_of,
    planted,
    smooth,
    turning,
    verdicts_of,
)
from made_tables import as_table, gaussian, rotation, walk, waves

import posprobe as pp
from posprobe.analyses.facts import Answer, Test, hold_rate
from posprobe.analyses.linear import half_length
from posprobe.analyses.tables.cached import units, view
from posprobe.analyses.tables.copies import Copies, copies
from posprobe.layouts import Grid
from posprobe.questions import GRID, SEQUENCE, corrections
from posprobe.questions.rotations import Rotations
from posprobe.report.document import shared_block
from posprobe.report.narrator import templates

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
