"""Questions about grids: planted tables have their expected answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from made_answers import is_sentence
from made_tables import (
    as_table,
    gaussian,
    rotation,
    smooth,
    smooth_field,
    sum_codes,
    walk,
    waves,
)
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.descriptive.grid import axis_codes
from posprobe.analyses.facts import Answer
from posprobe.analyses.view import view
from posprobe.layouts import Grid
from posprobe.questions import GRID_QUESTIONS, SEQUENCE_QUESTIONS
from posprobe.questions.fields import position_by_order
from posprobe.questions.grids import ask_axis_rotations, axis_rotations_by_formula
from posprobe.words import answer_sentence, templates

Floats = NDArray[np.float64]

#: Questions about the patches, apart from outliers and formulas.
PATCH_QUESTIONS = [
    name for name in GRID_QUESTIONS if name not in {"closed_form", "special_rows"}
]


def answers_about(values: Floats, height: int, width: int) -> dict[str, Any]:
    table_view = view(values, layout=Grid(height, width))
    return {name: GRID_QUESTIONS[name](table_view) for name in PATCH_QUESTIONS}


def circle_code(n: int, turns: float, seed: int) -> Floats:
    angle = 2 * np.pi * turns * np.arange(n) / (n - 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) @ rotation(32, seed)[:2]


def circle_table(side: int, turns: float, noise: float = 0.0) -> Floats:
    return sum_codes(circle_code(side, turns, 1), circle_code(side, turns, 2), noise)


def wave_code(n: int, periods: list[float], seed: int) -> Floats:
    code = waves(n, periods, seed)
    return code @ rotation(32, seed)[: code.shape[1]]


def row_growth(side: int, log_ratio: float) -> Floats:
    return np.exp(log_ratio * np.repeat(np.linspace(0, 1, side), side))[:, None]


def scale_patches(values: Floats) -> Floats:
    """Scale random patches, some of which become much longer than others."""
    return np.asarray(values * np.exp(3.0 * gaussian(len(values), 1, seed=4)))


TABLES: dict[str, tuple[Any, int, int]] = {
    "noise": (lambda: gaussian(256, 64), 16, 16),
    "noise 3 x 3": (lambda: gaussian(9, 8), 3, 3),
    "noise of few columns": (lambda: gaussian(64, 2), 8, 8),
    "noise 2 x 20": (lambda: gaussian(40, 8), 2, 20),
    "noise 40 x 60": (lambda: gaussian(2400, 8), 40, 60),
    "field": (lambda: smooth_field(14, 14, 64, 2.0), 14, 14),
    "field of few columns": (
        lambda: smooth_field(14, 14, 4, 2.0) @ gaussian(4, 64),
        14,
        14,
    ),
    "field in much noise": (
        lambda: 0.12 * smooth_field(20, 20, 256, 2.0) + gaussian(400, 256),
        20,
        20,
    ),
    "smooth codes": (
        lambda: sum_codes(smooth(14, 64, 3.0, 0), smooth(14, 64, 3.0, 1), 0.05),
        14,
        14,
    ),
    "codes of noise": (
        lambda: sum_codes(gaussian(14, 64), gaussian(14, 64, 1), 0.05),
        14,
        14,
    ),
    "codes of walks": (lambda: sum_codes(walk(12, 32), walk(12, 32, 1), 0.3), 12, 12),
    "weak codes": (
        lambda: sum_codes(smooth(10, 32, 2.0, 0), smooth(10, 32, 2.0, 10), 3.0),
        10,
        10,
    ),
    "hardly any codes": (
        lambda: sum_codes(smooth(16, 256, 3.0, 0), smooth(16, 256, 3.0, 1), 7.5),
        16,
        16,
    ),
    "small codes": (
        lambda: sum_codes(smooth(5, 32, 2.0, 1), smooth(5, 32, 2.0, 2), 0.6),
        5,
        5,
    ),
    "row code": (
        lambda: np.repeat(walk(12, 32), 12, axis=0) + 0.2 * gaussian(144, 32),
        12,
        12,
    ),
    "circles": (lambda: circle_table(14, 1.5, 0.1), 14, 14),
    "waves": (
        lambda: sum_codes(
            wave_code(24, [3.7, 6.1], 1), wave_code(24, [3.7, 6.1], 2), 0.4
        ),
        24,
        24,
    ),
    "growing": (lambda: smooth_field(14, 14, 64, 1.5) * row_growth(14, 1.5), 14, 14),
    "hardly growing": (lambda: gaussian(1024, 16) * row_growth(32, 0.1), 32, 32),
    "long patches": (lambda: scale_patches(smooth_field(14, 14, 64, 1.5)), 14, 14),
}


@cache
def answers_of(name: str) -> dict[str, Any]:
    make, height, width = TABLES[name]
    return answers_about(make(), height, width)


EXPECTED_ANSWERS = [
    ("noise", "order", "no", "patch_none"),
    ("noise", "rows_and_columns", "no", "none"),
    ("noise", "axis_rotations", "no", "no_codes"),
    ("noise", "smooth", "no", "patch_rough"),
    ("noise", "absolute_position", "cannot tell", "patch_unlike"),
    ("noise", "low_dimensional", "no", "patch_as_many"),
    ("noise 3 x 3", "order", "cannot tell", "patch_open"),
    ("noise 3 x 3", "rows_and_columns", "cannot tell", "few_patches"),
    ("noise 3 x 3", "axis_rotations", "cannot tell", "short"),
    ("noise 3 x 3", "smooth", "cannot tell", "narrow"),
    ("noise 3 x 3", "absolute_position", "cannot tell", "narrow"),
    ("noise 3 x 3", "low_dimensional", "cannot tell", "narrow"),
    ("noise 2 x 20", "rows_and_columns", "cannot tell", "narrow"),
    ("noise of few columns", "low_dimensional", "cannot tell", "too_few"),
    *(("noise 40 x 60", name, "cannot tell", "large") for name in PATCH_QUESTIONS),
    ("field", "order", "yes", "patch_neighbours"),
    ("field", "axis_rotations", "no", "no_codes"),
    ("smooth codes", "axis_rotations", "cannot tell", "open"),
    ("codes of noise", "axis_rotations", "no", "none"),
    ("field", "smooth", "yes", "patch_surface"),
    ("field", "absolute_position", "no", "patch_displacement"),
    ("field of few columns", "low_dimensional", "yes", "patch_fewer"),
    ("field of few columns", "absolute_position", "cannot tell", "patch_slow"),
    ("field in much noise", "order", "no", "patch_small"),
    ("smooth codes", "rows_and_columns", "yes", "codes"),
    ("smooth codes", "smooth", "yes", "patch_surface"),
    ("codes of walks", "rows_and_columns", "yes", "codes"),
    ("codes of walks", "smooth", "no", "patch_rough"),
    ("weak codes", "rows_and_columns", "cannot tell", "open"),
    ("small codes", "rows_and_columns", "cannot tell", "few_patches"),
    ("small codes", "smooth", "cannot tell", "patch_open"),
    ("small codes", "absolute_position", "cannot tell", "patch_open"),
    ("small codes", "low_dimensional", "cannot tell", "patch_open"),
    ("row code", "rows_and_columns", "yes", "lone"),
    ("circles", "axis_rotations", "yes", "circles"),
    ("waves", "axis_rotations", "yes", "lines"),
    ("waves", "absolute_position", "cannot tell", "patch_short"),
    ("hardly any codes", "rows_and_columns", "no", "small"),
    ("growing", "absolute_position", "yes", "patch_norms"),
    ("circles", "low_dimensional", "no", "patch_small"),
    ("hardly growing", "absolute_position", "cannot tell", "patch_small"),
    ("long patches", "absolute_position", "yes", "patch_products"),
]


@pytest.mark.parametrize(("table", "question", "answer", "reason"), EXPECTED_ANSWERS)
def test_planted_grids_have_their_expected_answers(
    table: str, question: str, answer: str, reason: str
) -> None:
    found_answer = answers_of(table)[question]
    assert (found_answer.answer, found_answer.reason) == (answer, reason)
    assert is_sentence(answer_sentence(found_answer))
    assert found_answer.change is None


def test_every_reason_about_grids_is_reached_or_from_a_correction() -> None:
    of_grids = {
        (name, reason)
        for name, reason in templates()
        if name in PATCH_QUESTIONS
        and (reason.startswith("patch_") or name not in SEQUENCE_QUESTIONS)
    }
    corrected = {
        ("axis_rotations", "formula"),
        *(
            ("absolute_position", reason)
            for reason in ("patch_unordered", "patch_order_open", "patch_yes_unordered")
        ),
    }
    shared = {"narrow", "large", "too_few"}
    reached = {
        (name, reason) for _, name, _, reason in EXPECTED_ANSWERS if reason not in shared
    }
    assert of_grids == reached | corrected


@pytest.mark.parametrize("table", TABLES)
def test_reported_numbers_are_the_tested_ones(table: str) -> None:
    table_answers = answers_of(table)
    values: dict[tuple[str, str], Callable[[Any], float]] = {
        ("order", ""): lambda f: f.cosine,
        ("rows_and_columns", ""): lambda f: f.share,
        ("smooth", ""): lambda f: f.cosine,
        ("low_dimensional", ""): lambda f: f.participation,
        ("absolute_position", "patch_norms"): lambda f: f.norms,
        ("absolute_position", "patch_products"): lambda f: f.misfit,
        ("absolute_position", "patch_displacement"): lambda f: f.misfit,
    }
    for (question, reason), value in values.items():
        answer = table_answers[question]
        if answer.test and answer.reason == (reason or answer.reason):
            assert answer.test.value == pytest.approx(value(answer.facts), rel=1e-9)


# --- order ---


def test_order_counts_all_components() -> None:
    """Noise that happens to have an order in its leading eight components has none."""
    assert answers_about(gaussian(49, 64), 7, 7)["order"].answer == "no"


# --- rows and columns ---


def test_codes_are_split_as_the_variance_is() -> None:
    facts = answers_of("codes of walks")["rows_and_columns"].facts
    codes = axis_codes(as_table(TABLES["codes of walks"][0](), Grid(12, 12)))
    # The means of rows and columns hold a little of the noise, too.
    assert facts.row_share == pytest.approx(codes.axes["rows"].share, abs=0.02)
    assert facts.column_share == pytest.approx(codes.axes["columns"].share, abs=0.02)
    assert facts.share > facts.typical
    assert facts.lone == ""
    assert answers_of("row code")["rows_and_columns"].facts.lone == "row"


@pytest.mark.parametrize("seed", [0, 1, 2, 32, 37, 48])
def test_codes_in_equal_noise_are_never_denied_of_a_small_grid(seed: int) -> None:
    codes = sum_codes(smooth(7, 64, 1.4, seed), smooth(7, 64, 1.4, seed + 100))
    values = codes + np.sqrt(2) * gaussian(49, 64, seed + 200)
    assert answers_about(values, 7, 7)["rows_and_columns"].answer != "no"


def test_smooth_codes_with_most_of_the_variance_are_found_on_a_small_grid() -> None:
    answers = []
    for seed in range(6):
        codes = sum_codes(smooth(7, 64, 1.5, seed), smooth(7, 64, 1.5, seed + 100))
        noise = (
            gaussian(49, 64, seed + 200) * codes.std(axis=0).mean() * np.sqrt(0.4 / 0.6)
        )
        answers.append(answers_about(codes + noise, 7, 7)["rows_and_columns"])
    assert sum(answer.yes for answer in answers) >= 5
    # A surface takes a code's share now and then.
    shares = [answer.facts.share for answer in answers]
    assert np.median(shares) == pytest.approx(0.6, abs=0.05)


def test_surfaces_longer_along_one_axis_have_no_codes_on_a_small_grid() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        surface = np.einsum(
            "ij,jkd,lk->ild",
            kernel_root(7, 2.0),
            rng.standard_normal((7, 7, 64)),
            kernel_root(7, 6.0),
        ).reshape(49, 64)
        values = surface + 0.5 * rng.standard_normal((49, 64))
        assert not answers_about(values, 7, 7)["rows_and_columns"].yes


def kernel_root(n: int, length: float) -> Floats:
    """Return a root of the squared exponential kernel of n positions."""
    offset = np.subtract.outer(np.arange(n), np.arange(n)) / length
    variances, vectors = np.linalg.eigh(np.exp(-0.5 * np.square(offset)))
    return np.asarray(vectors * np.sqrt(np.maximum(variances, 0.0)))


# --- rotations of codes ---


@pytest.mark.parametrize(("side", "noise"), [(8, 0.3), (14, 0.0), (14, 0.3)])
def test_longer_arcs_are_surer_circles(side: int, noise: float) -> None:
    level = {"no": 0, "cannot tell": 1, "yes": 2}
    answers_by_turns = [
        ask_rotations(circle_table(side, turns, noise), side)
        for turns in (0.5, 0.7, 0.8, 0.9, 1.0, 1.5)
    ]
    levels = [level[answer.answer] for answer in answers_by_turns]
    assert levels == sorted(levels)
    assert levels[0] < level["yes"] == levels[4]
    row_codes = [answer.facts.codes[0] for answer in answers_by_turns]
    shares = [
        code.circle.share for code in row_codes if code.circle
    ]  # of long ones, lines may stand
    assert (np.diff(shares) > (-0.1 if noise else -1e-9)).all()


def ask_rotations(values: Floats, side: int) -> Answer:
    return ask_axis_rotations(view(values, layout=Grid(side, side)))


@pytest.mark.parametrize("turns", [1.0, 1.3, 2.0])
def test_a_whole_circle_is_all_of_its_code(turns: float) -> None:
    answer = ask_rotations(circle_table(14, turns), 14)
    for code in answer.facts.codes:
        assert code.circle.turns == pytest.approx(turns, abs=0.02)
        assert code.circle.share == pytest.approx(1.0, abs=1e-9)
    assert answer.value["rotating"] == ["rows", "columns"]


@pytest.mark.parametrize("length", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("d", [8, 64])
def test_smooth_codes_do_not_go_round(length: float, d: int) -> None:
    values = sum_codes(smooth(14, d, length, 3), smooth(14, d, length, 4))
    assert ask_rotations(values, 14).answer != "yes"


def test_only_the_rotating_code_is_named() -> None:
    answer = ask_rotations(
        sum_codes(circle_code(14, 1.4, 1), smooth(14, 32, 8.0, 1) * 0.3, 0.02), 14
    )
    assert answer.answer == "yes"
    assert answer.facts.rotating == ("rows",)
    assert "column code" not in answer_sentence(answer)


def test_periods_of_codes_are_named() -> None:
    values = sum_codes(wave_code(24, [3.7, 6.1], 1), wave_code(24, [3.7, 6.1], 2), 0.2)
    answer = ask_rotations(values, 24)
    for code in answer.facts.codes:
        assert [line.period for line in code.lines] == pytest.approx([3.7, 6.1], rel=0.03)
    assert [line["period"] for line in answer.value["rows"]] == [
        line.period for line in answer.facts.codes[0].lines
    ]


def test_a_long_code_is_averaged() -> None:
    """A code of 600 rows is averaged, as drawing 600 x 600 matrices would take too long."""
    code = circle_code(600, 1.5, 1)
    values = np.repeat(code, 2, axis=0) + 0.05 * gaussian(1200, 32)
    table_view = view(values, layout=Grid(600, 2))
    answer = ask_axis_rotations(table_view)
    assert answer.answer == "yes"


# --- corrections ---


def test_a_formula_makes_codes_of_rotations() -> None:
    values = np.asarray(pp.sincos2d(14, 14, 64).values, dtype=np.float64)
    original = ask_rotations(values, 14)
    form = Answer("closed_form", "yes", "formula", keys=("sinusoid.cka",))
    corrected: Any = axis_rotations_by_formula(original, form)
    assert (corrected.answer, corrected.reason, corrected.test) == (
        "yes",
        "formula",
        None,
    )
    assert corrected.change.by == "closed_form"
    assert answer_sentence(corrected)
    assert axis_rotations_by_formula(original, replace(form, answer="no")) is None
    large_answer = answers_of("noise 40 x 60")["axis_rotations"]
    assert axis_rotations_by_formula(large_answer, form) is None


@pytest.mark.parametrize(
    ("verdict", "order", "expected"),
    [
        ("no", "no", ("no", "patch_unordered")),
        ("yes", "no", ("cannot tell", "patch_yes_unordered")),
        ("cannot tell", "no", None),
        ("no", "cannot tell", ("no", "patch_order_open")),
        ("yes", "cannot tell", ("cannot tell", "patch_yes_unordered")),
        ("no", "yes", None),
        ("yes", "yes", None),
    ],
)
def test_unordered_patches_correct_the_answer_about_places(
    verdict: Any, order: Any, expected: tuple[str, str] | None
) -> None:
    original = replace(answers_of("field")["absolute_position"], answer=verdict)
    corrected: Any = position_by_order(
        original, replace(answers_of("field")["order"], answer=order)
    )
    assert (corrected and (corrected.answer, corrected.reason)) == expected
    if corrected:
        assert corrected.change.was == verdict
        assert answer_sentence(corrected)


def test_waves_of_three_turns_in_codes_of_fourteen_patches_are_found() -> None:
    n_found, share = 0, 0.1
    for seed in range(5):
        codes = [
            np.sqrt(share)
            * normalise(
                circle_code(14, 3 * 13 / 14, 2 * seed + k) @ rotation(192, seed)[:32]
            )
            + np.sqrt(1 - share) * normalise(smooth(14, 192, 3.0, 50 + 2 * seed + k))
            for k in range(2)
        ]
        answer = ask_rotations(sum_codes(codes[0], codes[1], 0.005), 14)
        n_found += answer.reason == "lines"
        for code in answer.facts.codes:
            assert all(line.turns == pytest.approx(3, abs=0.1) for line in code.lines)
    assert n_found == 5


def normalise(values: Floats) -> Floats:
    values = values - values.mean(axis=0)
    return np.asarray(values / np.linalg.norm(values))
