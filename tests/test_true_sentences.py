"""What the verdict says of tables whose truth is planted is true of them, as worded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_tables import as_table, gaussian, rotation, walk, waves
from numpy.typing import NDArray
from posprobe.analyses.answer import Answer
from posprobe.analyses.answers import order, smooth
from posprobe.analyses.grid_answers import grid_order, rows_and_columns
from posprobe.analyses.rotation_answers import _count, ladder
from posprobe.analyses.stationary_answer import stationary
from posprobe.analyses.turning import turn_lengths, winds
from posprobe.report.agreement import without_order
from posprobe.report.summary import main_clause
from posprobe.report.verdict import verdict
from sklearn.metrics.pairwise import cosine_similarity

import posprobe as pp
from posprobe.analyses.copies import Copies, copies
from posprobe.analyses.views import view
from posprobe.arrays import positions
from posprobe.measurements import TABLE, TableInputs
from posprobe.report.kernels import compare_kernels
from posprobe.report.narrator.causes import copied

Floats = NDArray[np.float64]


def told(values: Floats, grid: tuple[int, int] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the summary, and the answers by question."""
    table = pp.table(values, name="made", grid=grid)
    given = positions(table)
    bare = TableInputs(table, given, 0, None, {})
    chosen = {
        name: TABLE[name]
        for name in ("seams", "winding", "bridging", "axis_codes")
        if not TABLE[name].needs(bare)
    }
    found = verdict(TableInputs(table, given, 0, None, chosen), "F64")
    return found["summary"], {answer["question"]: answer for answer in found["answers"]}


def curve(n: int, d: int, seed: int = 0) -> Floats:
    """A smooth curve: noise, averaged."""
    window = np.hanning(17)
    noise = gaussian(n + 16, d, seed=seed)
    return np.stack([np.convolve(column, window, "valid") for column in noise.T], axis=1)


# --- copies and zeros ---


@pytest.mark.parametrize(
    ("values", "expected", "text"),
    [
        (
            np.repeat(gaussian(16, 4), 3, axis=0),
            Copies("blocks", 48, 32, times=3),
            "each row stands 3 times in succession",
        ),
        (
            np.tile(gaussian(16, 4), (3, 1)),
            Copies("period", 48, 32, period=16),
            "it repeats itself every 16 positions",
        ),
        (
            np.concatenate([gaussian(16, 4), gaussian(16, 4)[::-1]]),
            Copies("mirror", 32, 16),
            "its second half is the first in reverse order",
        ),
        (
            gaussian(4, 4)[np.arange(48) ** 3 % 47 % 4],
            Copies("any", 48, 44),
            "44 of its 48 rows are copies of earlier ones",
        ),
    ],
)
def test_copies_are_found_and_named(values: Floats, expected: Copies, text: str) -> None:
    found = copies(values)
    assert found == expected
    assert copied(expected) == text


def test_rows_of_their_own_equal_rows_and_zeros_are_no_copies() -> None:
    padded = gaussian(40, 4)
    padded[20:] = 0.0
    for values in (gaussian(40, 4), np.ones((40, 4)), padded):
        assert copies(values) is None


def test_a_mirrored_table_has_an_order_and_no_distance_decides() -> None:
    half = gaussian(32, 16)
    summary, answers = told(np.concatenate([half, half[::-1]]))
    assert answers["order"]["answer"] == "yes"
    assert answers["stationary"]["answer"] != "yes"
    assert "no sign" not in summary.lower()
    assert summary.endswith("its second half is the first in reverse order.")


def test_zeros_in_every_second_row_are_told_and_no_distance_decides() -> None:
    values = gaussian(64, 8)
    values[::2] = 0.0
    summary, answers = told(values)
    assert "32 rows of zeros" in summary
    assert answers["stationary"]["answer"] != "yes"


def test_padding_is_told_as_a_range() -> None:
    values = gaussian(64, 8)
    values[40:] = 0.0
    _, answers = told(values)
    assert "positions 40 to 63 hold only zeros" in answers["special_rows"]["sentence"]


def test_where_all_other_rows_are_equal_that_is_said() -> None:
    values = np.ones((64, 8))
    values[20] = 4.0
    assert "all rows are equal; the table has 1 special row" in told(values)[0]


def test_where_all_other_patches_are_equal_that_is_said() -> None:
    values = np.ones((64, 8))
    values[20] = 4.0
    summary, answers = told(values, (8, 8))
    assert summary == "All other patches are equal; the table has 1 special patch."
    assert answers["special_rows"]["value"] == [20]


@pytest.mark.parametrize("periods", [[9.0, 31.0], [5.0, 11.0, 17.0, 23.0]])
def test_components_that_mix_rotations_are_told_to_do_so(periods: list[float]) -> None:
    # Of equal size, so that principal components are any mixture of them.
    _, answers = told(waves(256, periods, noise=0.1))
    winding = answers["winding"]
    assert answers["rotations"]["answer"] == winding["answer"] == "yes"
    turns = [256 / period for period in periods]
    assert min(abs(winding["value"]["turns"] / each - 1) for each in turns) < 0.01
    assert "changes along" not in winding["sentence"]
    assert "mix the rotations with periods of" in winding["sentence"]


def test_components_that_mix_a_rotation_and_a_wave_are_no_rotation() -> None:
    time = 2 * np.pi * np.arange(256)
    points = np.stack([np.cos(time / 64), np.sin(time / 64), np.cos(time / 16)], axis=1)
    # Of the sine and the other wave, sum and difference are components.
    mix = np.array([[1.1, 0, 0], [0, 1.025, 0.025], [0, 0.025, 1.025]])
    mixed = 0
    for seed in range(4):  # noise decides which of them go round together
        into = np.linalg.qr(gaussian(16, 3, seed=seed))[0].T
        winding = told(points @ mix @ into + 0.02 * gaussian(256, 16, seed=seed))[1]["winding"]
        if winding["answer"] == "yes":
            assert winding["value"]["turns"] == pytest.approx(256 / 64, abs=0.05)
        else:
            mixed += 1
            assert winding["answer"] == "cannot tell"
            assert "mix rotations and waves with periods of 16 and 64" in winding["sentence"]
    assert mixed > 0


def test_what_turns_fast_and_slowly_stays_in_bounds() -> None:
    values = waves(256, [9.0, 31.0], noise=0.1)
    answer = stationary(view(values))
    steps = np.diff(values, axis=0)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(99, 255, 1))
    walks = np.cumsum(signs * steps, axis=1).var(axis=1).sum(axis=1)
    assert answer.answer == "yes"
    # Steps that are related keep their sign together, and get further.
    assert answer.value["variance_ratio"] < 1.2 * values.var(axis=0).sum() / np.median(walks)


def test_lengths_are_written_without_powers_of_ten() -> None:
    line = np.linspace(-1, 1, 400)[:, None]
    values = line * gaussian(1, 8) + line**2 * gaussian(1, 8, seed=1)
    assert "e+" not in told(values)[0]


def test_special_patches_are_part_of_how_far_a_formula_is() -> None:
    values = np.array(pp.sincos2d(8, 8, 32).values, float)
    values[20] *= 5
    sentence = told(values, (8, 8))[1]["closed_form"]["sentence"]
    assert "nearly: it is off by" in sentence
    assert "special patches are part of that" in sentence


def test_codes_of_nine_patches_are_not_denied() -> None:
    values = pp.sincos2d(3, 3, 64).values + 0.05 * gaussian(9, 64)
    assert told(values, (3, 3))[1]["rows_and_columns"]["answer"] != "no"


# --- what kind of table ---


def test_a_table_that_alternates_is_not_called_alike() -> None:
    values = np.tile(gaussian(2, 16), (32, 1)) + 0.1 * gaussian(64, 16)
    summary, _ = told(values)
    assert summary.startswith("Neighbours point away from each other (mean cosine -0.9")


def test_lengths_that_grow_are_an_order_of_lengths_only() -> None:
    values = np.linspace(0.4, 2, 128)[:, None] * gaussian(128, 32)
    answer = order(view(values))
    assert answer.answer == "yes"
    assert "though their directions show no order" in answer.sentence
    assert order(view(gaussian(128, 32))).answer != "yes"


def test_a_straight_line_and_one_in_noise_are_told_from_a_walk() -> None:
    place = np.linspace(-1, 1, 96)[:, None]
    noisy = np.sqrt(3) * place * np.ones(16) + gaussian(96, 16)
    answer = smooth(view(noisy))
    assert answer.answer == "yes"
    assert answer.value["straight"] == pytest.approx(0.5, abs=0.08)
    assert smooth(view(place * np.arange(1.0, 9))).value["straight"] == pytest.approx(1.0)
    assert "straight" not in smooth(view(walk(96, 16))).value


def test_a_wave_along_one_direction_is_no_rotation() -> None:
    t = np.arange(128)
    wave = np.outer(np.cos(2 * np.pi * t / 8), np.ones(16)) + 0.3 * gaussian(128, 16)
    _, answers = told(wave)
    assert answers["rotations"]["sentence"].startswith("Yes: one wave stands out")
    assert "to and fro" in answers["rotations"]["sentence"]


def test_the_share_of_a_rotation_counts_the_straight_line_beside_it() -> None:
    both = np.hstack([waves(256, [20.0]), np.linspace(-2, 2, 256)[:, None]])  # 1 and 4 / 3
    values = np.hstack([both, np.zeros((256, 13))]) @ rotation(16)
    _, answers = told(values + 0.02 * gaussian(256, 16))
    assert answers["rotations"]["effect"] == pytest.approx(1 / (1 + 4 / 3), abs=0.03)


def test_a_weak_rotation_is_not_the_main_thing() -> None:
    def said(share: float) -> str:
        line = {"period": 4.1, "circularity": 1.0, "share": share, "constant_share": share}
        answers = {
            "closed_form": Answer("closed_form", "no", "No."),
            "order": Answer("order", "yes", "Yes.", 0.9),
            "smooth": Answer("smooth", "yes", "Yes.", {"length": 27.0}),
            "stationary": Answer("stationary", "cannot tell", "Cannot be told."),
            "rotations": Answer("rotations", "yes", "Yes.", [line], effect=share),
            "ladder": Answer("ladder", "no", "No."),
        }
        return main_clause(answers)

    assert said(0.6) == "a rotation with a period of 4.1 positions, holding 60% of the variance"
    smooth_curve = "a smooth curve: likeness falls to half within 27 positions"
    assert said(0.2) == (
        f"{smooth_curve}; beside that, a rotation with a period of 4.1 positions, holding 20% of "
        "the variance"
    )
    assert said(0.002) == smooth_curve


def test_a_whole_turn_takes_its_period_however_phases_wobble_within() -> None:
    t = np.arange(300)
    wobbling = 2 * np.pi * t / 100 + 0.5 * np.sin(2 * np.pi * t / 100)
    np.testing.assert_allclose(turn_lengths(wobbling), 100, atol=1e-3)
    slowing = turn_lengths(2 * np.pi * np.sqrt(t / 10))
    assert slowing.max() > 2 * slowing.min()


def test_an_exact_line_has_no_seams() -> None:
    values = -np.outer(np.arange(256.0), 2.0 ** -np.arange(1, 9))
    assert pp.seams(values).between == ()


@pytest.mark.parametrize("scale", [1e-300, 1e150])
def test_no_scale_leaves_the_range_of_numbers(scale: float) -> None:
    assert told(scale * curve(32, 8))[0].startswith("A smooth curve")


# --- patches ---


def test_a_checkerboard_has_an_order() -> None:
    board = (-1.0) ** np.add.outer(np.arange(8), np.arange(8)).ravel()
    values = np.outer(board, np.ones(8)) + 0.3 * gaussian(64, 8)
    assert grid_order(view(values), 8, 8).answer == "yes"
    summary, _ = told(values, (8, 8))
    assert summary.startswith("Neighbouring patches are opposed")


def test_a_code_of_rows_alone_is_not_called_both() -> None:
    values = np.repeat(gaussian(10, 16), 10, axis=0) + 0.05 * gaussian(100, 16)
    answer = rows_and_columns(view(values), 10, 10)
    assert answer.sentence.startswith("Yes: a patch is a code of its row alone")


def test_a_rough_field_has_an_order_among_all_questions() -> None:
    y, x = np.divmod(np.arange(64), 8)
    near = np.exp(-np.hypot(y[:, None] - y, x[:, None] - x) / 8)
    values = np.linalg.cholesky(near) @ gaussian(64, 16)
    assert told(values, (8, 8))[1]["order"]["answer"] == "yes"


def test_patches_of_noise_do_not_change_slowly() -> None:
    _, answers = told(gaussian(64, 16), (8, 8))
    assert "slowly" not in answers["stationary"]["sentence"]
    assert "Pairs of components" not in answers["axis_rotations"]["sentence"]


def test_one_hot_patches_have_answers() -> None:
    assert told(np.eye(36), (6, 6))[1]["closed_form"]["answer"] == "no"


# --- several encodings ---


def test_kernels_share_and_differ_in_words() -> None:
    (alibi,) = pp.load_schemes("alibi:48x4")
    told = compare_kernels(alibi, pp.sinusoidal(48, 16), as_table(walk(48, 4))).to_dict()["verdict"]
    answers = {answer["question"]: answer["answers"] for answer in told["answers"]}
    name, table, random = answers["kernel_falls"]
    assert answers["kernel_falls"][name] == "yes"
    assert answers["kernel_falls"][table] == "no"
    assert answers["kernel_offset"] == {name: "yes", table: "yes", random: "no"}
    assert "correlation" in told["summary"]


# --- tables that nobody trained on purpose ---


def test_a_table_of_tiles_that_was_trained_on_returns_after_its_period() -> None:
    tiled = np.tile(gaussian(32, 16), (4, 1)) + 0.4 * gaussian(128, 16, seed=1)
    summary, _ = told(tiled)
    assert "rows 32 positions apart are alike again (mean cosine 0.8" in summary


def test_even_positions_are_alike_and_odd_ones() -> None:
    alternating = curve(64, 16) / 3 + np.where(np.arange(64) % 2, 1, -1)[:, None]
    assert "rows 2 positions apart are alike again" in told(alternating)[0]


@pytest.mark.parametrize("values", [walk(128, 16), curve(128, 16), waves(128, [9.0])])
def test_what_moves_on_or_goes_round_is_not_said_to_return(values: Floats) -> None:
    assert "alike again" not in told(values)[0]


def test_distances_of_a_sinusoid_follow_from_the_offset_wherever_it_is_moved() -> None:
    values = pp.load("sinusoidal:256x64").values + np.linspace(0, 5, 64)
    answer = told(values)[1]["stationary"]
    assert answer["answer"] == "yes"
    assert "but for rounding" in answer["sentence"]


def test_eight_rows_of_a_walk_are_too_few_to_show_bounds() -> None:
    for seed in range(10):
        answers = told(np.cumsum(gaussian(8, 64, seed=seed), axis=0))[1]
        assert answers["stationary"]["answer"] != "yes"


def test_one_column_that_outweighs_all_others_is_told_though_there_is_no_order() -> None:
    values = gaussian(128, 64)
    values[:, 7] *= 100
    summary, answers = told(values)
    assert answers["low_dimensional"]["answer"] == "yes"
    assert "the rows look independent; 1 direction holds nine tenths of the variance" in summary


def test_a_helix_is_a_curve_before_it_is_a_rotation() -> None:
    angle = 0.3 * np.arange(128)
    helix = np.stack([np.sin(angle), np.cos(angle), np.arange(128) / 20], axis=1)
    assert told(helix)[0].startswith("A smooth curve that winds 6.1 times")


# --- answers of one verdict agree ---


def test_a_chirp_has_an_order_though_its_neighbours_stand_at_every_angle() -> None:
    phase = 2 * np.pi * np.arange(128) ** 2 / 512
    chirp = np.stack([np.cos(phase), np.sin(phase)], axis=1) @ rotation(16)[:2]
    summary, answers = told(chirp + 0.05 * gaussian(128, 16))
    assert answers["winding"]["answer"] == answers["order"]["answer"] == "yes"
    assert "look independent" not in summary


def test_where_rows_have_no_order_neither_their_distance_nor_their_place_decides() -> None:
    heavy = gaussian(256, 64) / np.sqrt(np.random.default_rng(2).chisquare(2, (256, 1)) / 2)
    shared = view(heavy)
    assert order(shared).answer == "no"
    assert without_order(stationary(shared), order(shared)).answer != "no"
    answer = told(gaussian(32, 8))[1]["stationary"]
    assert answer["sentence"].startswith("Yes, as their order does not matter")
    bounded = Answer("stationary", "yes", "Yes: it stays in bounds, and distance decides.")
    unsure = Answer("order", "cannot tell", "Cannot be told.", 0.05)
    assert "decides" not in without_order(bounded, unsure).sentence
    assert without_order(bounded, replace(unsure, answer="yes")) == bounded


def test_rows_of_an_identity_matrix_lie_equally_far_apart() -> None:
    summary, answers = told(np.eye(48))
    assert summary.endswith("any two rows lie equally far apart.")
    assert "whatever the distance" in answers["stationary"]["sentence"]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_places_that_mirror_each_other_may_be_opposed_as_well_as_alike(sign: float) -> None:
    half = gaussian(32, 16)
    answer = stationary(view(np.concatenate([half, sign * half[::-1]])))
    assert answer.answer == "no"
    assert f"more {'alike' if sign > 0 else 'opposed'} than their distance" in answer.sentence


def test_rows_that_alternate_are_as_alike_as_their_distance_says() -> None:
    values = gaussian(128, 16) + 0.7 * np.where(np.arange(128) % 2, 1, -1)[:, None]
    assert stationary(view(values)).answer == "yes"


def test_noise_beside_a_long_line_is_not_called_rounding() -> None:
    values = gaussian(128, 32)
    values[:, 3] = np.arange(128)
    assert "rounding" not in stationary(view(values)).sentence


def test_distances_on_a_circle_follow_from_the_offset_though_it_has_one_turn() -> None:
    answer = told(waves(64, [64.0]))[1]["stationary"]
    assert answer["answer"] == "yes"
    assert answer["p"] is None


def test_a_straight_line_stays_in_no_bounds() -> None:
    answer = told(np.outer(np.arange(1.0, 65), np.ones(8)))[1]["stationary"]
    assert answer["answer"] == "no"
    assert "moves on along a straight line" in answer["sentence"]


def test_frequencies_at_random_are_no_series() -> None:
    for seed in range(4):
        frequency = np.abs(0.15 * np.random.default_rng(seed).normal(size=16))
        angle = np.outer(np.arange(128), frequency)
        values = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        assert ladder(view(values)).answer != "yes"
    exact = pp.sinusoidal(128, 32).values
    noisy = exact + exact.std() * gaussian(128, 32)
    assert ladder(view(noisy)).value["base"] == pytest.approx(1e4, rel=0.3)


def test_noise_of_the_phase_is_no_change_of_the_period() -> None:
    steady = waves(100, [12.5]) @ rotation(48)[:2] + gaussian(100, 48) / np.sqrt(48)
    assert "changes" not in winds(steady, None).sentence


def test_almost_one_turn_is_not_written_as_one() -> None:
    ring = waves(400, [400.0])[:400]
    assert "go round 0.99 times, which is less than one turn" in winds(ring, None).sentence


def test_the_seam_stands_before_the_first_row_that_is_far_from_the_one_before() -> None:
    values = np.concatenate([pp.sinusoidal(64, 32).values, gaussian(64, 32)])
    assert pp.seams(values).between == ((63, 64),)


def test_rotations_and_waves_are_counted_apart() -> None:
    assert _count([1.0, 0.1]) == "one rotation and one wave stand"
    assert _count([1.0, 0.9]) == "two rotations stand"
    assert _count([0.1]) == "one wave stands"


def test_an_exact_checkerboard_has_answers() -> None:
    board = (-1.0) ** np.add.outer(np.arange(8), np.arange(8)).ravel()
    answers = told(np.outer(board, np.arange(1.0, 9)), (8, 8))[1]
    assert answers["rows_and_columns"]["answer"] == "no"
    assert "(participation ratio) is 1," in answers["low_dimensional"]["sentence"]
    assert "-0%" not in answers["stationary"]["sentence"]


def test_nothing_is_said_of_the_columns_where_only_rows_have_a_code() -> None:
    values = np.repeat(curve(10, 16), 10, axis=0) + 0.05 * gaussian(100, 16)
    answer = told(values, (10, 10))[1]["axis_rotations"]
    assert "row code" in answer["sentence"]
    assert "column code" not in answer["sentence"]


def test_order_that_neighbours_do_not_show_is_told_by_what_shows_it() -> None:
    # Neighbours of a rotation of period 4 are orthogonal; half of the variance is noise.
    circle = waves(64, [4.0])
    answer = order(view(circle + circle.std() * gaussian(64, circle.shape[1])))
    assert answer.answer == "yes"
    assert "a wave with a period of 4 positions" in answer.sentence


def test_differences_are_compared_in_all_columns() -> None:
    # Far more than the leading directions, in which the question is put to random walks.
    t = np.arange(200)
    ways = np.arange(1, 41)
    values = np.cos(2 * np.pi * np.outer(t, ways) / 400 + ways) + 0.3 * gaussian(200, 40)
    found = smooth(view(values))
    stride = found.value["stride"]
    step = values[stride:] - values[:-stride]
    exact = np.diagonal(cosine_similarity(step[stride:], step[:-stride])).mean()
    assert found.value["cosine"] == pytest.approx(exact, rel=1e-9)


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
    answer = told(values, grid)[1]["low_dimensional"]
    assert answer["value"]["directions"] == np.argmax(share >= 0.9) + 1
    assert "with all " in answer["sentence"]


def test_the_rows_that_a_sinusoid_was_compared_with_are_named() -> None:
    assert "resembles its first 512 rows most" in told(walk(600, 64))[1]["closed_form"]["sentence"]
    assert "resembles it most" in told(walk(500, 64))[1]["closed_form"]["sentence"]
