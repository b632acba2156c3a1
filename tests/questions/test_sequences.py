"""Questions about sequences: a planted table for every reason, and its planted numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from made_answers import LINE_ROWS, circle_along, is_sentence
from made_tables import gaussian, rotation, sinusoid, smooth, walk, waves

import posprobe as pp
from posprobe.analyses.view import View, view
from posprobe.arrays import Floats
from posprobe.layouts import Grid
from posprobe.questions import GRID_QUESTIONS, SEQUENCE_QUESTIONS
from posprobe.questions.closed_form import ClosedForm
from posprobe.questions.rank_tests import MIN_EFFECT_SHARE
from posprobe.questions.rotations import (
    MIN_WINDING_TURNS,
    N_SINGLE_YES_DRAWS,
    ladder_by_formula,
    measure_turns,
    rotations_by_ladder,
    rotations_by_winding,
    winding_by_rotations,
)
from posprobe.questions.sequences import MAX_FEWER_RATIO
from posprobe.words import answer_sentence, templates
from posprobe.words.formats import format_similarity, format_whole_percent


def stationary_process(
    n: int, d: int, length: float, power: float = 1.0, seed: int = 0
) -> Floats:
    """Return a stationary process per column: rough with power 1, smooth with power 2."""
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / length
    root = np.linalg.cholesky(np.exp(-(offset**power)) + 1e-8 * np.eye(n))
    return np.asarray(root @ gaussian(n, d, seed))


def slowing() -> Floats:
    angle = np.outer(2 * np.pi * np.linspace(0, 1, 400) ** 2, [6.0, 9.0, 13.0])
    circles = np.hstack([np.cos(angle), np.sin(angle)]) @ rotation(6)
    return np.asarray(circles + 0.01 * gaussian(400, 6))


def weak_line() -> Floats:
    weak_wave = 0.12 * waves(512, [60.0])
    return np.hstack([waves(512, [5.0, 9.0]), weak_wave, 0.02 * gaussian(512, 10)])


def make_weak_circle(share: float) -> Floats:
    """Return smooth rows with a circle of period 4.1 that has the given share."""
    slow = smooth(256, 16, 20.0)
    slow /= np.sqrt(np.square(slow - slow.mean(axis=0)).sum(axis=1).mean())
    circle = waves(256, [4.1]) @ rotation(16)[:2]
    values = np.sqrt(1 - share) * slow + np.sqrt(share) * circle
    return np.asarray(values + 1e-3 * gaussian(256, 16))


def chirp() -> Floats:
    return circle_along(2 * np.pi * np.arange(256) ** 2 / 2048)


def two_arcs(turns: float) -> Floats:
    """Return an arc of large radius plus a smaller circle with the given turns."""
    time = np.linspace(0, 1, 300)
    large, small = 2 * np.pi * 0.6 * time, 2 * np.pi * turns * time
    coordinates = [2 * np.cos(large), 2 * np.sin(large), np.cos(small), np.sin(small)]
    return np.stack(coordinates, axis=1) @ rotation(12)[:4] + 0.02 * gaussian(300, 12)


def warped_waves() -> Floats:
    """Return three circles that read one clock, whose pace varies by a fifth."""
    time = np.arange(300.0)
    clock_positions = time + 0.2 * 60 * np.sin(2 * np.pi * time / 300)
    angle = np.outer(2 * np.pi * clock_positions, [1 / 6, 1 / 18, 1 / 54])
    circles = np.hstack([np.cos(angle), np.sin(angle)]) @ rotation(24)[:6]
    return np.asarray(circles + 0.02 * gaussian(300, 24))


def mixture() -> Floats:
    """Return a smooth curve and a random walk of like variance, in noise."""
    curve, path, noise = smooth(256, 48, 12.0, 3), walk(256, 48, 4), gaussian(256, 48, 5)
    parts = [values - values.mean(axis=0) for values in (curve, path, noise)]
    shares = (0.4, 0.3, 0.3)
    return np.asarray(
        sum(
            np.sqrt(s / np.square(x).sum()) * x
            for s, x in zip(shares, parts, strict=True)
        )
    )


HALF_ROWS = gaussian(32, 16)
LONG_ROWS = gaussian(64, 64)
GRID_FORMULA = np.asarray(pp.sincos2d(8, 8, 32).values, dtype=np.float64)
#: One table per question, answer and reason.
TABLES_BY_QUESTION: dict[str, dict[str, Floats | View]] = {
    "closed_form": {
        "yes: exact": sinusoid(128, 64),
        "yes: nearly": 3 * sinusoid(128, 64) + 0.02 * gaussian(128, 64),
        "yes: sinusoid": sinusoid(128, 64) @ rotation(64) + 1.0,
        "yes: sincos2d": view(GRID_FORMULA @ rotation(32), layout=Grid(8, 8)),
        "no: none": walk(200, 64),
    },
    "ladder": {
        "yes: base": sinusoid(128, 32, noise=1.0),
        "yes: even": waves(512, [6.0, 18.0, 54.0], noise=0.05),
        "no: none": gaussian(200, 32),
        "cannot tell: few": waves(128, [9.0], noise=0.05),
        "cannot tell: dense": sinusoid(64, 128, 30.0, 0.6),
        "cannot tell: uneven": waves(512, [5.0, 10.0, 20.0, 48.0, 80.0], noise=0.05),
        "no: random": waves(512, [6.0, 9.0, 54.0], noise=0.05),
        "cannot tell: between": weak_line(),
        "cannot tell: open": waves(512, [6.0, 19.0, 54.0], noise=0.05),
    },
    "rotations": {
        "yes: stand_out": waves(256, [9.0, 31.0], noise=0.1),
        "yes: formula": sinusoid(128, 64),
        "no: small": make_weak_circle(0.01),
        "no: none": gaussian(200, 32),
        "cannot tell: few_rows": gaussian(40, 8),
        "cannot tell: dense": sinusoid(64, 128, 30.0, 0.6),
        "cannot tell: unclear": gaussian(48, 2),
        "no: preferred": np.asarray(
            pp.load("sample:rxnmapper-albert").values, dtype=np.float64
        ),
    },
    "winding": {
        "yes: turns": chirp(),
        "no: part_turn": waves(400, [400.0]),
        "no: smooth": walk(400, 32, 3),
        "cannot tell: open": waves(400, [330.0], noise=0.1),
        "no: none": gaussian(200, 32),
        # A large share of the leading directions may be a small one of the table.
        "cannot tell: small": 2.2 * waves(800, [40.0]) @ rotation(500)[:2]
        + gaussian(800, 500),
    },
    "smooth": {
        "yes: curve": smooth(128, 16, 6.0),
        "yes: formula": sinusoid(128, 64),
        "yes: line": np.sqrt(3) * LINE_ROWS + gaussian(96, 16),
        "yes: slow": mixture(),
        "no: none": gaussian(200, 32),
        "cannot tell: hidden": walk(200, 32),
    },
    "low_dimensional": {
        "yes: fewer": smooth(256, 3, 8.0) @ rotation(32)[:3] + 0.02 * gaussian(256, 32),
        "no: small": gaussian(120, 24, seed=2) * 0.97 ** np.arange(24),
        "no: not_fewer": smooth(256, 32, 8.0),
        "cannot tell: open": smooth(12, 3, 1.0, seed=20) * 0.6 ** np.arange(3),
        "cannot tell: slow": walk(200, 32),
        "cannot tell: few_columns": walk(64, 2),
    },
    "absolute_position": {
        "yes: clock": warped_waves(),
        "no: exact": sinusoid(128, 64),
        "no: equally_far": np.eye(48),
        "no: bounded": stationary_process(200, 16, 5.0),
        "no: small": 0.6 * np.concatenate([LONG_ROWS, LONG_ROWS[::-1]])
        + gaussian(128, 64, 9),
        # A few rows are much longer than all others.
        "yes: place_products": gaussian(64, 256, 1)
        / np.sqrt(np.random.default_rng(3).chisquare(2, (64, 1)) / 2),
        "yes: place_norms": gaussian(256, 32) * np.linspace(1, 3, 256)[:, None],
        "yes: place_speed": slowing(),
        "yes: place_mirrored": np.concatenate([HALF_ROWS, HALF_ROWS[::-1]]),
        "yes: place_opposed": np.concatenate([HALF_ROWS, -HALF_ROWS[::-1]]),
        "cannot tell: slow": stationary_process(128, 16, 96.0, seed=4),
        "cannot tell: maybe_place": np.repeat(gaussian(32, 16), 4, axis=0),
        "cannot tell: wanders": walk(200, 32),
        "cannot tell: few_steps": stationary_process(128, 8, 64.0, 2),
    },
}
#: Reasons that only corrections give.
CORRECTED_REASONS = {
    "rotations": {"series", "pace", "elsewhere"},
    "ladder": {"formula"},
    "winding": {"rotation", "mixed", "mixed_waves"},
    "smooth": {"elsewhere", "slow_elsewhere"},
    "absolute_position": {
        "straight_line", "unordered", "unordered_open", "order_open", "copies", "zeros",
    },
}  # fmt: skip


def ask(question: str, table: Floats | View) -> Any:
    return SEQUENCE_QUESTIONS[question](table if isinstance(table, View) else view(table))


@cache
def answer_about(question: str, reason: str) -> Any:
    """Return the answer about the table of a reason."""
    (table,) = (
        candidate
        for key, candidate in TABLES_BY_QUESTION[question].items()
        if key.endswith(f": {reason}")
    )
    return ask(question, table)


@pytest.mark.parametrize(
    ("question", "expected"),
    [(name, key) for name, tables in TABLES_BY_QUESTION.items() for key in tables],
)
def test_planted_sequences_have_their_expected_answers(
    question: str, expected: str
) -> None:
    answer = answer_about(question, expected.partition(": ")[2])
    assert f"{answer.answer}: {answer.reason}" == expected
    assert is_sentence(answer_sentence(answer))
    if answer.yes and answer.test:
        low, high = answer.test.interval
        # The additive model tests its parts by likelihood, without draws of a null model.
        if answer.test.of != "family":
            assert 0 < answer.test.least <= 0.05 / 7
            assert low <= answer.test.null <= high
        # Lower values support few directions and a series.
        is_lower_better = answer.reason in {"fewer", "even"}
        assert answer.test.value < low if is_lower_better else answer.test.value > high


@pytest.mark.parametrize("question", TABLES_BY_QUESTION)
def test_every_reason_about_sequences_is_reached_or_from_a_correction(
    question: str,
) -> None:
    reached = {key.partition(": ")[2] for key in TABLES_BY_QUESTION[question]}
    worded = {reason for name, reason in templates() if name == question}
    of_lines = {reason for reason in worded if not reason.startswith("patch_")}
    assert of_lines == reached | CORRECTED_REASONS.get(question, set())


@pytest.mark.parametrize(
    ("question", "reason", "changes"),
    [
        ("closed_form", "nearly", {"scale": 1.0}),
        ("closed_form", "none", {"of": 600}),
        ("closed_form", "none", {"grid": True}),
        ("rotations", "none", {"alternating": 0.3}),
        ("winding", "turns", {"components": (3, 4)}),
        ("winding", "turns", {"turns": 8.06}),
        ("winding", "turns", {"changes": False}),
        ("low_dimensional", "fewer", {"every": 1}),
        ("absolute_position", "bounded", {"invariance": 0.95}),
    ],
)
def test_sentences_change_with_their_facts(
    question: str, reason: str, changes: dict[str, Any]
) -> None:
    answer = answer_about(question, reason)
    changed_answer = replace(answer, facts=replace(answer.facts, **changes))
    assert answer_sentence(changed_answer) != answer_sentence(answer)


@pytest.mark.parametrize("changes", [{"circularity": 0.0}, {"pace": "smooth"}])
def test_sentences_change_with_the_kind_of_a_periodic_component(
    changes: dict[str, Any],
) -> None:
    answer = answer_about("rotations", "stand_out")
    line = answer.facts.lines[0]
    changed_line = replace(line, **changes, slowest=2 * line.slowest)
    lines = (changed_line, *answer.facts.lines[1:])
    changed_answer = replace(answer, facts=replace(answer.facts, lines=lines))
    assert answer_sentence(changed_answer) != answer_sentence(answer)


# --- known formulas ---


def test_answers_about_formulas_have_base_scale_and_error() -> None:
    assert answer_about("closed_form", "exact").value["formula"].endswith("base 10000")
    answer = answer_about("closed_form", "nearly")
    assert answer.facts.base == pytest.approx(1e4)
    assert answer.facts.scale == pytest.approx(3, rel=0.01)
    # Noise of 0.02, over waves of a root mean square of 3 / sqrt(2).
    assert answer.facts.error == pytest.approx(0.02 / (3 / np.sqrt(2)), rel=0.03)
    assert answer_about("closed_form", "sinusoid").facts.base == pytest.approx(
        1e4, rel=1e-3
    )
    # The error is relative to the values, whatever the base.
    facts = ask(
        "closed_form", sinusoid(512, 64, 7350.0) + 0.005 * gaussian(512, 64)
    ).facts
    assert facts.base == pytest.approx(7350, rel=0.01)
    assert facts.error == pytest.approx(0.005 * np.sqrt(2), rel=0.1)


def test_only_the_first_rows_of_a_long_table_are_compared_with_formulas() -> None:
    long_answer, short_answer = (ask("closed_form", walk(n, 64)) for n in (600, 500))
    assert (long_answer.facts.rows, long_answer.facts.of, long_answer.value["rows"]) == (
        512,
        600,
        512,
    )
    assert (short_answer.facts.rows, short_answer.facts.of) == (500, 500)


def test_patches_are_compared_with_the_table_of_patches() -> None:
    answer: Any = GRID_QUESTIONS["closed_form"](view(gaussian(64, 32), layout=Grid(8, 8)))
    assert abs(answer.facts.cka) < 0.2
    assert answer.facts.grid
    narrow: Any = GRID_QUESTIONS["closed_form"](view(gaussian(64, 3), layout=Grid(8, 8)))
    assert (narrow.reason, narrow.facts.cka) == ("none", None)


def test_numbers_are_never_rounded_to_one_and_large_ones_have_all_digits() -> None:
    answer = answer_about("closed_form", "sinusoid")
    for base, cka, text in ((1e4, 0.996, "0.9960"), (3.1e6, 1.0, "3,100,000")):
        changed_answer = replace(answer, facts=ClosedForm(128, 128, base=base, cka=cka))
        assert text in answer_sentence(changed_answer)
    assert [format_similarity(value) for value in (0.99996, 1 - 1e-9, -0.001)] == [
        "0.9999",
        "1.00",
        "0.00",
    ]
    assert [format_whole_percent(value) for value in (0.996, 1.0)] == [
        "more than 99 %",
        "100 %",
    ]


# --- series ---


def test_the_series_has_its_base_or_its_factor() -> None:
    base_series, even_series = (
        answer_about("ladder", "base"),
        answer_about("ladder", "even"),
    )
    assert base_series.value["base"] == pytest.approx(1e4, rel=0.3)
    assert base_series.test.value == base_series.facts.series.cka
    assert even_series.value == {"factor": pytest.approx(3, rel=0.01)}
    assert even_series.test.value == even_series.facts.off
    assert answer_about("ladder", "none").value is None
    assert even_series.facts.series is None


@pytest.mark.parametrize(
    ("n", "d", "rise"), [(64, 32, 1.0), (128, 64, 2.0), (512, 32, 4.0)]
)
def test_a_helix_is_no_series_and_has_no_base(n: int, d: int, rise: float) -> None:
    angle = np.linspace(0, 2 * np.pi * 5, n)
    curve = np.stack(
        [np.cos(angle), np.sin(angle), np.linspace(-rise / 2, rise / 2, n)], axis=1
    )
    table_view = view(curve @ rotation(d, 4)[:3] + 0.01 / np.sqrt(d) * gaussian(n, d))
    answer = ask("ladder", table_view)
    assert not answer.yes
    assert answer.facts.series is None
    assert ask("closed_form", table_view).facts.base is None


def test_random_frequencies_are_no_series() -> None:
    for seed in range(4):
        frequency = np.abs(0.15 * np.random.default_rng(seed).normal(size=16))
        angle = np.outer(np.arange(128), frequency)
        assert not ask(
            "ladder", np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        ).yes


def test_a_fitting_formula_confirms_the_series() -> None:
    table_view = view(sinusoid(128, 32))
    formula, series = ask("closed_form", table_view), ask("ladder", table_view)
    unsure = series.with_correction("cannot tell", "among_many", "number of questions")
    answer: Any = ladder_by_formula(unsure, formula)
    assert (answer.answer, answer.reason, answer.p) == ("yes", "formula", None)
    assert answer.value == {"base": pytest.approx(1e4, rel=1e-3)}
    for series_answer in (series, ask("ladder", gaussian(6, 4))):
        assert ladder_by_formula(series_answer, formula) is None
    assert ladder_by_formula(unsure, answer_about("closed_form", "none")) is None


# --- rotations ---


def test_planted_rotations_have_their_periods_and_share() -> None:
    facts = answer_about("rotations", "stand_out").facts
    assert [line.period for line in facts.lines] == pytest.approx([9, 31], rel=0.005)
    # Two circles of radius 1, and noise of 0.1 in four columns.
    assert facts.share == pytest.approx(2 / 2.04, abs=0.005)
    assert all(line.is_circular for line in facts.lines)
    assert [line["turns"] for line in facts.value] == pytest.approx(
        [256 / 9, 256 / 31], rel=0.005
    )
    # 12.8 and 11.9 turns: each peak holds some of the other.
    close = waves(256, [20.0, 21.5]) + 0.3 * gaussian(256, 4)
    assert ask("rotations", close).facts.share <= 2 / (2 + 4 * 0.09) + 0.02


def test_small_rotations_are_no_however_certain() -> None:
    for share, answer in ((0.01, "no"), (0.05, "yes")):
        found_answer = ask("rotations", make_weak_circle(share))
        assert found_answer.p <= 0.01
        assert found_answer.answer == answer
        assert (found_answer.facts.share >= MIN_EFFECT_SHARE) == (answer == "yes")


def test_a_wave_along_one_direction_is_no_circle() -> None:
    wave = np.outer(np.cos(2 * np.pi * np.arange(256) / 8), np.ones(16)) + 0.3 * gaussian(
        256, 16
    )
    answer = ask("rotations", wave)
    assert [line.is_circular for line in answer.facts.lines] == [False]


def test_a_varying_period_has_its_ends_and_a_smooth_pace() -> None:
    answer = ask(
        "rotations", circle_along(2 * np.pi * 256 / 15 * (np.arange(256) / 256) ** 1.15)
    )
    (line,) = answer.facts.lines
    local = 15 / (1.15 * (np.arange(256) / 256) ** 0.15)[1:]
    ends = tuple(np.quantile(local, [0.1, 0.9]))
    assert (line.fastest, line.slowest) == pytest.approx(ends, rel=0.03)
    assert line.pace == "smooth"


def test_alternating_rows_have_their_share_of_alternating_signs() -> None:
    alternating = gaussian(128, 16) + 0.7 * np.where(np.arange(128) % 2, 1, -1)[:, None]
    answer = ask("rotations", alternating)
    assert answer.reason == "none"
    assert answer.facts.alternating == pytest.approx(0.49 / 1.49, abs=0.03)
    assert answer_about("rotations", "none").facts.alternating < 0.02


def test_a_series_is_made_of_periodic_components() -> None:
    series, no_series = (
        ask("ladder", table) for table in (sinusoid(64, 128, 30.0), gaussian(64, 16))
    )
    original: Any = answer_about("rotations", "none")
    answer: Any = rotations_by_ladder(original, series)
    assert (answer.answer, answer.reason, answer.p) == ("yes", "series", None)
    assert answer.change.by == "ladder"
    assert rotations_by_ladder(original, no_series) is None
    assert rotations_by_ladder(answer_about("rotations", "stand_out"), series) is None
    assert rotations_by_ladder(ask("rotations", gaussian(12, 4)), series) is None


@pytest.mark.parametrize(
    ("n", "d", "base", "is_rotated"),
    [
        (64, 16, 1e4, False),
        (512, 128, 1e4, False),
        (512, 128, 1e4, True),
        (96, 64, 50.0, False),
        (96, 64, 50.0, True),
    ],
)
def test_a_formula_has_the_shares_of_its_frequencies(
    n: int, d: int, base: float, is_rotated: bool
) -> None:
    values = sinusoid(n, d, base)
    omega = base ** (-np.arange(d // 2) / (d // 2))
    turning = omega * n / (2 * np.pi) >= 1.75
    centred = values - values.mean(axis=0)
    # Columns of a pair stand side by side.
    pair_amounts = np.square(centred).sum(axis=0).reshape(-1, 2).sum(axis=1)
    share = pair_amounts[turning].sum() / pair_amounts.sum()
    table_view = view(values @ rotation(d) if is_rotated else values)
    answer, smooth_answer = ask("rotations", table_view), ask("smooth", table_view)
    assert (answer.answer, answer.reason) == ("yes", "formula")
    assert answer.facts.share == pytest.approx(share, abs=0.02)
    assert answer.facts.count == pytest.approx(turning.sum(), abs=1)
    assert answer.facts.periods[0] == pytest.approx(2 * np.pi, rel=1e-3)
    assert smooth_answer.yes == (share < 0.98)
    assert answer.facts.share + smooth_answer.facts.share == pytest.approx(1, abs=0.01)


def test_the_budget_of_a_formula_is_that_of_its_answers() -> None:
    budget = pp.budget(pp.sinusoidal(256, 64))
    facts = ask("rotations", sinusoid(256, 64)).facts
    parts = {part.part: part for part in budget.around_mean()}
    assert {"rotation", "smooth"} == set(parts)
    assert parts["rotation"].share == pytest.approx(facts.share, abs=1e-9)
    assert parts["rotation"].period is None


def test_winding_of_varying_pace_denies_fixed_periods() -> None:
    pace = 2 * np.pi / 10 * np.exp(0.35 * np.sin(2 * np.pi * np.arange(200) / 61))
    winding = ask("winding", circle_along(np.cumsum(pace), noise=0.0))
    assert winding.yes
    original = answer_about("rotations", "unclear")
    answer: Any = rotations_by_winding(original, winding)
    assert (answer.answer, answer.reason) == ("no", "pace")
    fastest, slowest = answer.facts.turn
    assert 10 * np.exp(-0.35) < fastest < 10 < slowest < 10 * np.exp(0.35)
    assert (
        rotations_by_winding(original, ask("winding", waves(256, [12.0], noise=0.05)))
        is None
    )
    assert rotations_by_winding(original, replace(winding, answer="cannot tell")) is None
    for reason in ("none", "few_rows"):
        assert rotations_by_winding(answer_about("rotations", reason), winding) is None
    assert rotations_by_winding(ask("rotations", gaussian(12, 4)), winding) is None


# --- winding ---


def test_the_reported_winding_pair_is_the_tested_one() -> None:
    # The arc holds four fifths of the variance, but only the circle winds.
    answer = ask("winding", two_arcs(8.06))
    assert answer.answer == "yes"
    assert answer.facts.components == (3, 4)
    assert answer.facts.turns == pytest.approx(8.06, abs=0.05)
    assert answer.test.value == answer.facts.turns
    # No document shows the pair itself.
    assert "pair" not in answer.value
    assert "pair" not in repr(answer.facts)


@pytest.mark.parametrize("values", [chirp(), two_arcs(8.06)])
def test_the_share_of_a_winding_pair_is_of_the_table_s_variance(values: Floats) -> None:
    centred = values - values.mean(axis=0)
    share = np.linalg.svd(centred, compute_uv=False) ** 2 / np.square(centred).sum()
    facts = ask("winding", values).facts
    first, second = facts.components
    assert facts.share == pytest.approx(share[first - 1] + share[second - 1], rel=1e-4)


@pytest.mark.parametrize("turns", [0.75, 0.99])
def test_less_than_one_turn_is_no_winding(turns: float) -> None:
    answer = ask("winding", waves(400, [400 / turns], noise=0.02))
    assert (answer.answer, answer.reason) == ("no", "part_turn")
    assert answer.facts.turns < MIN_WINDING_TURNS
    assert "1.00" not in answer_sentence(answer)


def test_null_draws_stop_early_once_a_yes_is_excluded() -> None:
    assert answer_about("winding", "turns").test.draws == N_SINGLE_YES_DRAWS
    assert answer_about("winding", "smooth").test.draws < N_SINGLE_YES_DRAWS
    assert answer_about("absolute_position", "place_norms").test.draws == 559
    assert answer_about("absolute_position", "bounded").test.draws < 559


def test_winding_reports_a_varying_pace_but_no_phase_noise() -> None:
    facts = answer_about("winding", "turns").facts
    assert facts.changes
    assert facts.turn[1] > 2 * facts.turn[0]
    steady = waves(100, [12.5]) @ rotation(48)[:2] + gaussian(100, 48) / np.sqrt(48)
    assert not ask("winding", steady).facts.changes
    # A full turn takes its period, however the phase wobbles within.
    t = np.arange(300)
    wobbling = 2 * np.pi * t / 100 + 0.5 * np.sin(2 * np.pi * t / 100)
    np.testing.assert_allclose(measure_turns(wobbling), 100, atol=1e-3)
    assert len(measure_turns(t / 100)) == 0


@pytest.mark.parametrize(
    ("periods", "reason"),
    [([12.5], "rotation"), ([9.0, 31.0], "mixed"), ([5.0, 11.0, 17.0, 23.0], "mixed")],
)
def test_winding_is_named_by_the_periods_of_its_rotations(
    periods: list[float], reason: str
) -> None:
    # Circles of equal size let principal components be any mixture of them.
    table_view = view(waves(256, periods, noise=0.1))
    original = ask("winding", table_view)
    assert original.yes
    answer: Any = winding_by_rotations(original, ask("rotations", table_view))
    assert (answer.answer, answer.reason) == ("yes", reason)
    turns = [256 / period for period in periods]
    assert min(abs(answer.facts.turns / expected - 1) for expected in turns) < 0.01
    assert answer.value["rotation"] == answer.facts.rotation
    assert (len(answer.facts.mixed) > 1) == (reason == "mixed")


@pytest.mark.slow
def test_components_that_mix_a_circle_and_a_wave_are_no_circle() -> None:
    time = 2 * np.pi * np.arange(256)
    points = np.stack([np.cos(time / 32), np.sin(time / 32), np.cos(time / 8)], axis=1)
    # The components are the sum and the difference of the sine and the other wave.
    mix = np.array([[1.1, 0, 0], [0, 1.025, 0.025], [0, 0.025, 1.025]])
    reasons = set()
    for seed in (3, 4, 5):  # the noise decides which of them form a pair
        directions = np.linalg.qr(gaussian(16, 3, seed=seed))[0].T
        table_view = view(points @ mix @ directions + 0.02 * gaussian(256, 16, seed=seed))
        original = ask("winding", table_view)
        answer = winding_by_rotations(original, ask("rotations", table_view)) or original
        reasons.add(answer.reason)
        if answer.reason == "mixed_waves":
            assert answer.answer == "cannot tell"
        else:
            assert answer.facts.turns == pytest.approx(256 / 32, abs=0.1)
    assert "mixed_waves" in reasons


def test_rotations_of_other_periods_do_not_explain_winding() -> None:
    winding, other_rotations = (
        answer_about("winding", "turns"),
        ask("rotations", waves(256, [4.1], noise=0.1)),
    )
    assert winding_by_rotations(winding, other_rotations) is None
    assert winding_by_rotations(replace(winding, answer="no"), other_rotations) is None
    assert winding_by_rotations(winding, replace(other_rotations, answer="no")) is None


# --- smooth parts ---


def test_a_smooth_part_has_the_share_that_was_planted() -> None:
    curve, noise = smooth(256, 32, 8.0), gaussian(256, 32, 3)
    values = np.sqrt(0.4 / 0.6) * curve / curve.std() + noise
    answer = ask("smooth", values)
    assert answer.yes
    assert answer.facts.share == pytest.approx(0.4, abs=0.05)
    assert answer.facts.share == answer.value["share"] == answer.test.value


def test_a_straight_line_in_noise_has_its_share() -> None:
    facts = answer_about("smooth", "line").facts
    assert facts.is_line
    assert facts.straight == facts.share == pytest.approx(0.5, abs=0.1)


def test_a_mixture_of_slow_changes_has_their_sum_and_ranges() -> None:
    facts = answer_about("smooth", "slow").facts
    # The planted parts are not orthogonal.
    assert facts.share == pytest.approx(0.7, abs=0.08)
    assert facts.least <= 0.4
    ranges = view(mixture()).rotation_fit.slow_ranges
    for name, planted in (("smooth", 0.4), ("walk", 0.3)):
        low, high = ranges[name]
        assert low <= planted <= high


@pytest.mark.parametrize("make", [gaussian, walk])
def test_noise_and_walks_have_no_smooth_part(make: Any) -> None:
    assert not any(ask("smooth", make(160, 24, seed=seed)).yes for seed in range(4))


def test_moving_averages_of_four_rows_are_no_smooth_curves() -> None:
    for seed in range(4):
        noise = gaussian(203, 32, seed)
        values = sum(noise[k : k + 200] for k in range(4))
        assert not ask("smooth", np.asarray(values)).yes


# --- few dimensions ---


@pytest.mark.parametrize("n", [120, 400])
def test_the_reported_participation_ratio_is_the_tested_one(n: int) -> None:
    values = gaussian(n, 3) @ gaussian(3, 32, seed=1) + 0.5 * gaussian(n, 32, seed=2)
    answer = ask("low_dimensional", values)
    facts, test = answer.facts, answer.test
    assert answer.yes
    assert test.value == facts.participation == answer.value["participation_ratio"]
    assert test.null == facts.expected
    assert facts.participation <= MAX_FEWER_RATIO * facts.expected
    assert facts.participation < test.interval[0] < facts.expected < test.interval[1]
    assert (facts.every > 1) == (n > 128)


def test_the_participation_ratio_is_that_of_rows_of_equal_length() -> None:
    values = gaussian(100, 12) * 0.8 ** np.arange(12)
    values -= np.median(values, axis=0)
    rows = values / np.linalg.norm(values, axis=1, keepdims=True)
    variance = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    expected = variance.sum() ** 2 / np.square(variance).sum()
    participation = ask("low_dimensional", values).facts.participation
    assert participation == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("n", [128, 300, 520])
def test_rows_that_alternate_use_few_directions(n: int) -> None:
    values = gaussian(2, 64, seed=1)[np.arange(n) % 2] + 0.3 * gaussian(n, 64)
    assert ask("low_dimensional", values).yes


def test_independent_columns_are_rarely_low_dimensional() -> None:
    tables = [make(120, 16, seed) for make in (gaussian, walk) for seed in range(4)]
    tables += [smooth(160, 32, 4.0, seed) for seed in range(4)]
    assert not any(ask("low_dimensional", table).yes for table in tables)


# --- absolute position ---


@pytest.mark.parametrize("sign", ["products", "norms", "speed", "mirrored", "opposed"])
def test_absolute_position_is_tested_by_its_reported_number(sign: str) -> None:
    answer = answer_about("absolute_position", f"place_{sign}")
    test, place = answer.test, answer.facts.place
    assert (test.value, test.null) == (place.share, place.typical)
    assert test.p == answer.facts.p_shift == answer.value["p_shift"] <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_stationary_tables_rarely_depend_on_place(power: float) -> None:
    is_yes = [
        ask("absolute_position", stationary_process(128, d, length, power, seed)).yes
        for d in (4, 64)
        for length in (3.0, 32.0, 128.0)
        for seed in range(3)
    ]
    # More than two of eighteen at a level of 0.02 have a chance of 1 in 200.
    assert sum(is_yes) <= 2


@pytest.mark.slow
def test_slow_waves_of_many_columns_do_not_mirror_places() -> None:
    # The leading principal components are cosines, the same from either end.
    for seed in range(2):
        assert not ask(
            "absolute_position", stationary_process(512, 768, 3.0, seed=seed)
        ).yes


def test_a_walk_rejects_nothing_by_wandering() -> None:
    for seed in range(5):
        answer = ask("absolute_position", walk(200, 32, seed))
        assert answer.answer != "no"
        assert answer.yes == (answer.facts.p_shift <= 0.02)
    # Eight rows are too few to show bounds.
    for seed in range(10):
        short_answer = ask(
            "absolute_position", np.cumsum(gaussian(8, 64, seed=seed), axis=0)
        )
        assert short_answer.answer != "no"


def test_invariance_is_that_of_the_centred_similarity() -> None:
    turning = waves(200, [20.0]) @ rotation(2) + 0.1 * gaussian(200, 2)
    for values in (stationary_process(200, 16, 5.0), turning):
        answer = ask("absolute_position", values)
        assert answer.reason == "bounded"
        expected: Any = pp.similarity(values).centered.translation_invariance
        assert answer.facts.invariance == pytest.approx(expected, abs=1e-9)


def test_exact_offset_distances_hold_along_the_whole_table() -> None:
    # A shift of the origin does not matter.
    for values in (sinusoid(128, 64) + np.linspace(0, 5, 64), waves(64, [64.0])):
        assert ask("absolute_position", values).reason == "exact"
    t = np.arange(1536.0)
    speed = np.where(t < 700, 0.3, 0.3 + 2e-4 * (t - 700))
    for phase, exact in ((0.3 * t, True), (np.cumsum(speed), False)):
        points = np.stack([np.cos(phase), np.sin(phase)], axis=1)
        assert (ask("absolute_position", points).reason == "exact") == exact
    values = gaussian(128, 32)
    values[:, 3] = np.arange(128)
    # Noise beside a long line is no rounding.
    assert ask("absolute_position", values).reason != "exact"


def test_fast_and_slow_rotations_stay_in_bounds() -> None:
    values = waves(256, [9.0, 31.0], noise=0.1)
    answer = ask("absolute_position", values)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(99, 255, 1))
    walks = np.cumsum(signs * np.diff(values, axis=0), axis=1).var(axis=1).sum(axis=1)
    assert answer.answer == "no"
    # Correlated steps share their sign and lead further.
    ratio = values.var(axis=0).sum() / np.median(walks)
    assert answer.value["variance_ratio"] < 1.2 * ratio
