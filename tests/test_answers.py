"""Answers: what is planted is found, what is not is not, and no basis or scale matters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from made_tables import gaussian, rotation, walk, waves
from numpy.typing import NDArray
from posprobe.analyses.answer import Answer
from posprobe.analyses.answers import ask, settle
from posprobe.analyses.grid_answers import ask_grid
from posprobe.analyses.rotation_answers import closed_form

import posprobe as pp
from posprobe.analyses.lines import constant_shares
from posprobe.analyses.result import as_block
from posprobe.analyses.slow_rotation import Rotation
from posprobe.analyses.stationary import half_length
from posprobe.analyses.toeplitz import toeplitz_inverse
from posprobe.analyses.views import units, view

Floats = NDArray[np.float64]
QUESTIONS = [
    "order", "smooth", "stationary", "low_dimensional", "rotations", "ladder", "closed_form",
]  # fmt: skip


def planted(periods: list[float], n: int = 200, width: int = 32, seed: int = 0) -> Floats:
    """Rotations with as much noise."""
    values = waves(n, periods)
    values = np.hstack([values, np.zeros((n, width - values.shape[1]))]) @ rotation(width)
    noise = gaussian(n, width, seed=seed)
    return np.asarray(values + noise * np.linalg.norm(values) / np.linalg.norm(noise))


def smooth(n: int, d: int, length: float) -> Floats:
    offset = np.subtract.outer(np.arange(n), np.arange(n)) / length
    return np.asarray(
        np.linalg.cholesky(np.exp(-(offset**2) / 2) + 1e-8 * np.eye(n)) @ gaussian(n, d)
    )


def by_name(values: Floats) -> dict[str, Answer]:
    return {answer.question: answer for answer in ask(values)}


def verdicts(values: Floats) -> dict[str, str]:
    return {name: answer.answer for name, answer in by_name(values).items()}


def codes(height: int, width: int, d: int) -> Floats:
    rows, columns = gaussian(height, d, seed=1), gaussian(width, d, seed=2)
    return np.asarray((rows[:, None] + columns[None]).reshape(height * width, d))


# --- what is there, and what is not ---


def test_a_walk_is_said_to_be_a_walk() -> None:
    found = verdicts(walk(200, 32))
    assert found["order"] == "yes"
    assert {found[name] for name in ("smooth", "stationary", "rotations", "closed_form")} == {"no"}
    assert found["low_dimensional"] != "yes"


def test_noise_is_said_to_be_noise() -> None:
    found = verdicts(gaussian(200, 32))
    assert found.pop("stationary") == "yes"  # in bounds, and no distance matters
    assert "yes" not in found.values()
    assert found["smooth"] == found["rotations"] == "no"


def test_permuted_rotations_have_no_order_left() -> None:
    values = np.random.default_rng(0).permutation(planted([5.3, 17.0]))
    found = verdicts(values)
    assert found["order"] == "no"
    assert found["rotations"] == "no"


def test_the_order_is_held_against_the_mean_cosine_of_any_two_rows() -> None:
    values = np.abs(gaussian(20, 3)) ** 3
    (found,) = (answer for answer in ask(values) if answer.question == "order")
    rows = units(view(values).points)
    pairs = [float(rows[i] @ rows[j]) for i in range(20) for j in range(20) if i != j]
    assert found.null == pytest.approx(np.mean(pairs), rel=1e-9)
    assert found.null != pytest.approx(-1 / 19, rel=1e-4)  # what it would be of rows that sum to 0
    assert found.effect == found.value - found.null
    (found,) = (answer for answer in ask_grid(values, 5, 4) if answer.question == "order")
    assert found.null == pytest.approx(np.mean(pairs), rel=1e-9)
    assert f"random order {np.mean(pairs):.2f}" in found.sentence


def test_a_smooth_curve_is_smooth_and_has_no_rotations() -> None:
    found = by_name(smooth(256, 32, 6.0))
    assert found["smooth"].answer == "yes"
    assert found["smooth"].value["length"] == pytest.approx(7, abs=1.5)
    assert found["rotations"].answer == "no"
    assert found["stationary"].answer == "yes"


@pytest.mark.parametrize("periods", [[5.3], [8.0, 25.0], [4.0, 12.0, 36.0]], ids=str)
def test_planted_rotations_are_named(periods: list[float]) -> None:
    found = by_name(planted(periods))
    assert found["order"].answer == "yes"
    assert found["rotations"].answer == "yes"
    assert [line["period"] for line in found["rotations"].value] == pytest.approx(periods, rel=0.02)
    assert sum(line["share"] for line in found["rotations"].value) == pytest.approx(0.5, abs=0.1)


def test_evenly_spaced_periods_are_a_ladder_and_others_are_not() -> None:
    assert verdicts(planted([3.5, 9.0, 23.0, 60.0], 256))["ladder"] == "yes"
    assert verdicts(planted([3.5, 4.8, 30.0, 60.0], 256))["ladder"] != "yes"


@pytest.mark.parametrize("base", [1000.0])
def test_the_sinusoid_is_recognised_in_any_basis(base: float) -> None:
    table = np.asarray(pp.sinusoidal(128, 64, base=base).values, dtype=np.float64)
    for values in (table, 3 * table @ rotation(64) + 1):
        found = by_name(values)
        assert found["closed_form"].answer == "yes"
        assert found["rotations"].answer == "yes"
        assert found["ladder"].answer == "yes"
        assert found["ladder"].value["base"] == pytest.approx(base, rel=0.1)


def test_few_directions_are_fewer_than_smoothness_gives() -> None:
    values = smooth(256, 3, 8.0) @ rotation(32)[:3] + 0.02 * gaussian(256, 32)
    assert verdicts(values)["low_dimensional"] == "yes"
    assert verdicts(smooth(256, 32, 8.0))["low_dimensional"] != "yes"


@pytest.mark.parametrize("n", [128, 256, 300, 520])
def test_rows_that_alternate_use_few_directions_and_are_no_rotation(n: int) -> None:
    two = gaussian(2, 64, seed=1)
    found = by_name(two[np.arange(n) % 2] + 0.3 * gaussian(n, 64))
    assert found["low_dimensional"].answer == "yes"
    between = float(np.square(two[0] - two[1]).sum() / 4)
    share = between / (between + 64 * 0.09)
    assert found["rotations"].answer == "no"
    said = re.search(
        r"Even and odd positions differ, which holds (\d+)%", found["rotations"].sentence
    )
    assert said is not None
    assert int(said[1]) / 100 == pytest.approx(share, abs=0.03)


def test_smooth_curves_too_short_to_come_back_are_not_said_to_wander() -> None:
    offset = np.abs(np.subtract.outer(np.arange(64), np.arange(64))) * 5**0.5 / 10
    root = np.linalg.cholesky((1 + offset + offset**2 / 3) * np.exp(-offset))
    found = [verdicts(root @ gaussian(64, 32, seed=seed))["stationary"] for seed in range(10)]
    assert "no" not in found


def test_a_curve_that_slows_down_is_not_stationary() -> None:
    t = np.linspace(0, 1, 400) ** 2
    angle = np.outer(2 * np.pi * t, np.array([6.0, 9.0, 13.0]))
    values = np.hstack([np.cos(angle), np.sin(angle)]) @ rotation(6)
    found = by_name(values + 0.01 * gaussian(400, 6))["stationary"]
    assert found.answer == "no"
    assert "faster" in found.sentence


# --- what must not matter ---

TABLES = {
    "planted": planted([5.3, 17.0], 96, 16),
    "walk": walk(96, 16),
    "smooth": smooth(96, 16, 4.0),
    "noise": gaussian(96, 16),
}


@pytest.mark.parametrize("name", TABLES)
def test_no_basis_scale_or_mean_row_matters(name: str) -> None:
    plain = ask(TABLES[name])
    changed = ask(7e-3 * TABLES[name] @ rotation(16) + np.linspace(0, 1, 16))
    for one, two in zip(plain, changed, strict=True):
        assert one.answer == two.answer, one.question
        assert (one.p is None) == (two.p is None)
        assert (one.p or 0) == pytest.approx(two.p or 0, abs=0.011), one.question
        if one.effect is not None and two.effect is not None:
            assert one.effect == pytest.approx(two.effect, rel=1e-3, abs=1e-4), one.question


#: Questions whose answer is about the curve, whichever way it is run along.
EITHER_WAY = ("rotations", "ladder", "smooth", "stationary", "low_dimensional")
CLEAR = {
    **TABLES,
    "ladder": planted([3.0, 6.0, 12.0, 24.0], 128),
    "few directions": smooth(128, 3, 4.0) @ rotation(16)[:3] + 0.02 * gaussian(128, 16),
}


@pytest.mark.parametrize("name", CLEAR)
def test_changes_that_change_no_property_change_no_answer(name: str) -> None:
    values = CLEAR[name]
    plain = by_name(values)
    width = values.shape[1]
    changes = {
        "turned": values @ rotation(width, seed=5),
        "scaled": 250 * values,
        "moved": values + 3 * gaussian(1, width, seed=6),
        "reversed": values[::-1],
    }
    for change, changed in changes.items():
        found = by_name(changed)
        for question in EITHER_WAY:
            yes = found[question].answer == "yes"
            assert yes == (plain[question].answer == "yes"), (change, question)
        assert len(found["rotations"].value) == len(plain["rotations"].value), change


@pytest.mark.parametrize("name", ["planted", "walk"])
def test_winding_does_not_depend_on_basis_scale_mean_or_direction(name: str) -> None:
    values = TABLES[name]
    changes = (values @ rotation(16, seed=5), 250 * values, values + 2.0, values[::-1])
    turns = [
        [pair["turns"] for pair in as_block(pp.winding(changed))["pairs"] or []]
        for changed in (values, *changes)
    ]
    for other in turns[1:]:
        assert np.abs(other) == pytest.approx(np.abs(turns[0]), rel=0.05, abs=0.05)


# --- each rotation ---


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_every_rung_of_a_ladder_is_listed_down_to_a_turn_and_a_half(factor: float) -> None:
    periods = [3.0 * factor**k for k in range(5)]
    found = by_name(planted(periods, 128, 64))["rotations"]
    listed = [p for p in periods if 128 / p > 1.5]
    assert [line["period"] for line in found.value] == pytest.approx(listed, rel=0.06)
    assert all(0.02 < line["skill"] < 0.5 for line in found.value)


def test_slow_curves_beside_rotations_are_no_rotations() -> None:
    values = waves(128, [3.3, 5.3, 8.7])
    values = np.hstack([values / np.linalg.norm(values), np.zeros((128, 26))]) @ rotation(32)
    for background in (smooth(128, 32, 20.0), walk(128, 32)):
        rest = background - background.mean(axis=0)
        found = by_name(values + rest / np.linalg.norm(rest))["rotations"]
        assert [line["period"] for line in found.value] == pytest.approx([3.3, 5.3, 8.7], rel=0.02)


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_skill_of_a_rotation_in_noise_is_its_share(noise: float) -> None:
    values = np.hstack([waves(400, [7.3]), np.zeros((400, 14))]) @ rotation(16)
    values = values + gaussian(400, 16) * np.sqrt(noise / 16)
    (line,) = by_name(values)["rotations"].value
    assert line["skill"] == pytest.approx(1 / (1 + noise), abs=0.05)


@pytest.mark.parametrize("width", [64, 768])
def test_what_a_rotation_predicts_in_a_walk_does_not_depend_on_the_columns(width: int) -> None:
    steps = walk(512, width, seed=3)
    steps -= steps.mean(axis=0)
    planes = waves(512, [3.7, 21.8, 128.0]) @ rotation(width)[:6]
    values = planes + steps * np.linalg.norm(planes) / np.linalg.norm(steps)
    fast, middle, _ = by_name(np.asarray(values))["rotations"].value
    # Over two positions, and over eleven, a walk of that size wanders by little.
    assert fast["skill"] > 0.9
    assert middle["skill"] > 0.85


def test_a_rotation_that_drifts_keeps_its_skill() -> None:
    t = np.arange(512) / 512
    angle = 2 * np.pi * 64 * (t - 0.05 * t**2)
    values = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ rotation(32)[:2]
    (line,) = by_name(values + gaussian(512, 32) / np.sqrt(32))["rotations"].value
    assert line["skill"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("swing", [0.0, 0.8])
def test_a_rotation_whose_period_swings_is_not_said_to_have_a_constant_one(swing: float) -> None:
    # The period is the same in the first and in the last third: nothing drifts from end to end.
    t = np.arange(384)
    turns = t / 6 + swing * np.sin(2 * np.pi * t / 384)
    wave = np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)
    values = wave @ rotation(32)[:2] + 0.5 * gaussian(384, 32) / np.sqrt(32)
    found = by_name(values)["rotations"]
    assert (line := found.value[0])["period"] == pytest.approx(6, rel=0.02)
    # Least squares with the wave that fits best, the frequency taken from a fine grid.
    centred = values - values.mean(axis=0)
    explained = 0.0
    for frequency in np.arange(1 / 8, 1 / 5, 1 / 3840):
        waves = np.exp(2j * np.pi * frequency * t)[:, None].view(np.float64).reshape(-1, 2)
        fit = np.linalg.lstsq(waves, centred, rcond=None)[0]
        explained = max(explained, 1 - np.square(centred - waves @ fit).sum() / (centred**2).sum())
    assert line["constant_share"] == pytest.approx(explained, rel=0.05)
    assert ("of about" in found.sentence) == bool(swing)
    assert ("a wave of constant period and size holds" in found.sentence) == bool(swing)
    assert (line["constant_share"] < line["share"] / 2) == bool(swing)


def test_waves_of_constant_period_are_told_from_neighbours_and_from_every_second_row() -> None:
    t = np.arange(400)
    values, lines, powers = np.zeros((400, 16)), [], (9.0, 1.0, 1.0)
    for turns, power in zip((40.0, 41.25, 199.25), powers, strict=True):
        angle = 2 * np.pi * turns * t / 400
        plane = np.linalg.qr(gaussian(16, 2, seed=int(turns)))[0]
        values += np.sqrt(power) * np.stack([np.cos(angle), np.sin(angle)], axis=1) @ plane.T
        period = 400 / turns
        lines.append(Rotation(period, power / 11, 1.0, 1.0, period, period, 5.0, 0.01))
    found = constant_shares(values - values.mean(axis=0), lines)
    np.testing.assert_allclose(found, np.array(powers) / 11, atol=0.01)


def test_the_inverse_of_a_kernel_is_its_inverse() -> None:
    kernel = 3 * np.exp(-np.arange(40) / 7)
    kernel[0] += 0.01
    matrix = kernel[np.abs(np.subtract.outer(np.arange(40), np.arange(40)))]
    np.testing.assert_allclose(toeplitz_inverse(kernel), np.linalg.inv(matrix), atol=1e-9)


def test_a_seed_gives_the_same_answers() -> None:
    assert ask(TABLES["planted"], seed=3) == ask(TABLES["planted"], seed=3)


# --- too little to say ---

LEAN = {
    "two rows": gaussian(2, 4),
    "three rows": gaussian(3, 4),
    "four rows": gaussian(4, 4),
    "seven rows": walk(7, 4),
    "nine rows": walk(9, 4),
    "twenty rows": walk(20, 4),
    "one column": walk(60, 1),
    "two columns": walk(60, 2),
    "constant": np.full((40, 4), 0.1),
    "zeros": np.zeros((40, 4)),
    "one row differs": np.eye(40)[:, :1] * np.ones(3),
    "a straight line": np.outer(np.arange(60.0), [1.0, 2.0, 3.0]),
    **{f"{n} x {d}": gaussian(n, d) for n in (2, 3, 8) for d in (1, 2)},
    "rows twice": np.repeat(walk(30, 4), 2, axis=0),
    "one row again and again": np.tile(gaussian(4, 3), (10, 1)),
    "constant columns": np.hstack([walk(40, 2), np.ones((40, 3))]),
    "one wave and nothing else": np.cos(np.arange(64) * 0.7)[:, None],
    "a circle and nothing else": waves(64, [5.3]),
    "two values": np.tile([[0.0, 1], [1.0, 0]], (30, 1)),
}


@pytest.mark.parametrize("name", LEAN)
def test_every_question_has_an_answer_for_every_table(name: str) -> None:
    found = ask(LEAN[name])
    assert [answer.question for answer in found] == QUESTIONS
    for answer in found:
        start = {"yes": "Yes", "no": "No", "cannot tell": "Cannot be told"}[answer.answer]
        assert answer.sentence.startswith(start)
        assert answer.sentence.endswith(".")
        assert answer.p is None or 0 < answer.p <= 1
    if len(LEAN[name]) < 8 or name in ("constant", "zeros"):
        assert {answer.answer for answer in found if answer.question != "closed_form"} == {
            "cannot tell"
        }


@pytest.mark.parametrize("shape", [(1, 4), (2, 2), (3, 3), (2, 20), (7, 9)])
def test_every_question_has_an_answer_for_every_grid(shape: tuple[int, int]) -> None:
    for values in (gaussian(shape[0] * shape[1], 8), np.ones((shape[0] * shape[1], 8))):
        found = ask_grid(values, *shape)
        assert [a.question for a in found] == [
            "order", "rows_and_columns", "axis_rotations", "smooth", "stationary",
            "low_dimensional", "closed_form",
        ]  # fmt: skip


# --- grids ---


def test_row_and_column_codes_are_found_in_noise() -> None:
    values = codes(10, 12, 24)
    found = ask_grid(values + np.sqrt(2) * gaussian(120, 24), 10, 12)[1]
    assert found.answer == "yes"
    shares = found.value["row_share"] + found.value["column_share"]
    assert shares == pytest.approx(0.5, abs=0.15)


def test_noise_on_a_grid_has_no_codes() -> None:
    assert {a.answer for a in ask_grid(gaussian(120, 24), 10, 12)[:2]} == {"no"}


def test_the_two_dimensional_sinusoid_is_recognised() -> None:
    found = {
        a.question: a
        for a in ask_grid(np.asarray(pp.sincos2d(10, 12, 32).values, dtype=np.float64), 10, 12)
    }
    assert found["rows_and_columns"].answer == "yes"
    assert found["closed_form"].answer == "yes"


def of_grid(values: Floats, side: int) -> dict[str, Answer]:
    return {answer.question: answer for answer in ask_grid(values, side, side)}


def test_codes_that_go_round_are_found_and_smooth_ones_are_not() -> None:
    angle = 2 * np.pi * np.outer(np.arange(14) / 13, [1.0, 2.0])
    circles = np.hstack([np.cos(angle), np.sin(angle)]) * [1, 0.4, 1, 0.4]
    down, right = circles @ rotation(32)[:4], circles @ rotation(32, 1)[:4]
    turning = (down[:, None] + right[None]).reshape(196, 32)
    found = of_grid(turning + 0.05 * gaussian(196, 32), 14)
    assert found["rows_and_columns"].answer == "yes"
    assert found["axis_rotations"].answer == "yes"
    for length in (2.0, 4.0, 8.0):
        lines = smooth(14, 64, length)
        curves = (lines[:, None, :32] + lines[None, :, 32:]).reshape(196, 32)
        assert of_grid(curves, 14)["axis_rotations"].answer != "yes"


@pytest.mark.parametrize("seed", [0, 1, 2, 32, 37, 48])
def test_codes_in_equal_noise_are_never_denied_of_a_small_grid(seed: int) -> None:
    """A separable field that is fitted to smooth codes of seven patches a side imitates them."""
    rng = np.random.default_rng(seed)
    curve = np.exp(-0.5 * np.square(np.subtract.outer(np.arange(7), np.arange(7)) / 1.4))
    root = np.linalg.cholesky(curve + 1e-8 * np.eye(7))
    down, right = root @ rng.standard_normal((2, 7, 64))
    values = (down[:, None] + right[None]).reshape(49, 64)
    noisy = values + np.sqrt(2) * rng.standard_normal((49, 64))
    assert of_grid(noisy, 7)["rows_and_columns"].answer != "no"


def surface(side: int, d: int, power: float, length: float) -> Floats:
    """An isotropic field: smooth with a power of 2, rough with 1."""
    place = np.stack(np.divmod(np.arange(side * side), side), axis=1) / length
    distance = np.sqrt(np.square(place[:, None] - place[None]).sum(axis=-1))
    kernel = np.exp(-(distance**power) / power) + 1e-8 * np.eye(side * side)
    return np.asarray(np.linalg.cholesky(kernel) @ gaussian(side * side, d))


def test_a_smooth_surface_is_smooth_and_a_rough_one_is_not() -> None:
    assert of_grid(surface(12, 48, 2, 3.0), 12)["smooth"].answer == "yes"
    assert of_grid(surface(12, 48, 1, 3.0), 12)["smooth"].answer == "no"
    assert of_grid(gaussian(144, 48), 12)["smooth"].answer == "no"


def test_where_patches_stand_matters_if_their_norms_grow() -> None:
    even = surface(12, 48, 2, 2.0)
    assert of_grid(even, 12)["stationary"].answer == "yes"
    grown = np.geomspace(1, 4, 12).repeat(12)[:, None] * even
    assert of_grid(grown, 12)["stationary"].answer == "no"


def test_a_surface_in_few_directions_has_few_directions() -> None:
    flat = surface(12, 3, 2, 2.0) @ rotation(48)[:3] + 0.02 * gaussian(144, 48)
    assert of_grid(flat, 12)["low_dimensional"].answer == "yes"
    assert of_grid(surface(12, 48, 2, 2.0), 12)["low_dimensional"].answer == "no"


# --- arithmetic ---


def test_the_false_discovery_rate_is_held_over_the_questions() -> None:
    made = [
        Answer("a", "yes", "Yes: a.", p=0.02),
        Answer("b", "no", "No: b.", p=0.5),
        Answer("c", "no", "No: c.", p=0.9),
        Answer("d", "no", "No: d.", p=None),
    ]
    assert settle(made)[0].answer == "cannot tell"  # 0.02 > 0.05 / 3
    helped = [*made, Answer("e", "yes", "Yes: e.", p=0.01)]
    assert settle(helped)[0].answer == "yes"  # 0.02 <= 2 * 0.05 / 4
    assert settle(made)[1:] == made[1:]


def test_half_the_likeness_is_where_a_triangle_halves() -> None:
    # Sums of neighbours of noise fall linearly, to 0 at the length of the sum.
    values = np.stack([np.convolve(x, np.ones(20), "valid") for x in gaussian(2000, 200).T], axis=1)
    assert half_length(view(values).points) == pytest.approx(1 + 19 / 2, abs=0.5)


@pytest.mark.parametrize("base", [100.0, 10_000.0, 500_000.0])
@pytest.mark.parametrize("order", ["interleaved", "halves"])
@pytest.mark.parametrize("endpoint", [False, True])
def test_published_layouts_are_named_with_their_base(
    base: float, order: str, endpoint: bool
) -> None:
    table = pp.sinusoidal(200, 64, base=base, order=order, endpoint=endpoint).values  # type: ignore[arg-type]
    noise = 1e-3 * gaussian(200, 64)
    name = f"sinusoid, {order}, exponents over {'d/2 - 1' if endpoint else 'd/2'}, base {base:g}"
    name = name.replace("5e+05", "500000")
    stored = {"as it is": table, "half": table.astype(np.float16), "scaled": 3 * table}
    for kind, values in (*stored.items(), ("noisy", 0.02 * (table + noise))):
        double: Floats = np.asarray(values, dtype=np.float64)
        answer = closed_form(view(double), double, "F32")
        assert answer.answer == "yes"
        assert name in answer.sentence
        assert ("nearly" in answer.sentence) == (kind == "noisy")
        assert ("times" in answer.sentence) == (kind in ("scaled", "noisy"))


@pytest.mark.parametrize("scale", [1.0, 0.02])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_published_grids_are_named_with_their_base(scale: float, noise: float) -> None:
    table = pp.sincos2d(14, 14, 192).values
    values = scale * (table + noise * gaussian(196, 192))
    answer = {a.question: a for a in ask_grid(values, 14, 14)}["closed_form"]
    assert answer.answer == "yes"
    assert "2-D sin-cos, columns first" in answer.sentence
    assert "base 10000" in answer.sentence
