"""Special patches: planted ones are found, and questions are asked without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from made_answers import verdicts_of
from made_tables import gaussian, patches, rotation, slow_surface
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.breaks.limits import largest_ratio
from posprobe.analyses.breaks.outlier_patches import outlier_patch_ratios, replace_patches
from posprobe.analyses.breaks.seams import seams
from posprobe.analyses.result import as_block
from posprobe.arrays import namespace

Floats = NDArray[np.float64]


def special_patches(values: Floats, height: int, width: int) -> list[int]:
    patches: Any = outlier_patch_ratios(values - values.mean(axis=0), height, width)
    return sorted(patches)


def make_odd_patch(height: int, width: int, seed: int) -> tuple[Floats, int]:
    row = 7 * seed % (height * width)
    values = slow_surface(height, width, 24, seed)
    values[row] += 6 * values.std() * gaussian(1, 24, seed)[0]
    return values, row


@given(st.integers(0, 10_000), st.sampled_from([1e-5, 0.3, 1e6]))
def test_special_patches_ignore_scale_basis_and_mirroring(
    seed: int, scale: float
) -> None:
    height, width = 9, 14
    values, _ = make_odd_patch(height, width, seed)
    special = special_patches(values, height, width)
    assert special_patches(scale * values @ rotation(24, seed), height, width) == special
    grid = values.reshape(height, width, 24)
    coordinates = [divmod(row, width) for row in special]
    upside_down = sorted((height - 1 - y) * width + x for y, x in coordinates)
    assert special_patches(grid[::-1].reshape(-1, 24), height, width) == upside_down
    transposed = sorted(x * height + y for y, x in coordinates)
    assert (
        special_patches(grid.transpose(1, 0, 2).reshape(-1, 24), width, height)
        == transposed
    )


@pytest.mark.parametrize("seed", range(4))
def test_noise_surfaces_and_codes_have_no_special_patches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heavy_tailed = gaussian(196, 32, seed) * rng.standard_t(3, size=(196, 1))
    growing = slow_surface(14, 14, 32, seed) * np.geomspace(1, 3, 196)[:, None]
    codes = np.asarray(patches(14, 14, 32, seed))
    for values in (
        gaussian(196, 32, seed),
        slow_surface(14, 14, 32, seed),
        heavy_tailed,
        growing,
        codes,
    ):
        assert special_patches(values, 14, 14) == []


def test_several_special_patches_have_their_reasons() -> None:
    values = slow_surface(14, 14, 32)
    for row in (0, 75, 76, 190):
        values[row] += 4 * values.std() * gaussian(1, 32, seed=row)[0]
    values[100] = 0.0
    row_seams = seams(pp.table(values, grid=(14, 14)))
    assert [row.row for row in row_seams.special] == [0, 75, 76, 100, 190]
    kinds = [[cause.kind for cause in row.causes] for row in row_seams.special]
    assert kinds[3] == ["zero", "patch_far"]
    assert kinds[0] == kinds[1] == kinds[2] == kinds[4] == ["patch_far"]
    assert [row["row"] for row in as_block(row_seams)["special"]] == [0, 75, 76, 100, 190]
    assert as_block(row_seams)["between"] is None


@pytest.mark.parametrize("side", [7, 14])
@pytest.mark.parametrize(
    ("inner", "coordinates"), [((0, 0), [(0, 1), (1, 0)]), ((0, 3), [(0, 2), (0, 4)])]
)
def test_a_patch_among_special_ones_is_not_special_itself(
    side: int, inner: tuple[int, int], coordinates: list[tuple[int, int]]
) -> None:
    for seed in range(10):
        values = slow_surface(side, side, 24, seed)
        rows = sorted(y * side + x for y, x in coordinates)
        values[rows] += 6 * values.std() * gaussian(2, 24, seed)
        assert special_patches(values, side, side) == rows
        equal = np.ones_like(values)
        equal[rows] = gaussian(2, 24, seed)
        assert special_patches(equal, side, side) == rows
        special_rows = sorted([*rows, inner[0] * side + inner[1]])
        values[special_rows[0] if special_rows[0] not in rows else special_rows[1]] -= (
            6 * values.std()
        )
        assert special_patches(values, side, side) == special_rows


def test_removed_patches_become_the_mean_of_their_neighbours() -> None:
    values = gaussian(12, 5)
    for array in (values, torch.from_numpy(values)):
        filled = np.asarray(replace_patches(array, [0, 5, 6], 3, 4, namespace(array)))
        np.testing.assert_allclose(filled[0], (values[1] + values[4]) / 2)
        np.testing.assert_allclose(filled[5], (values[1] + values[9] + values[4]) / 3)
        np.testing.assert_allclose(filled[6], (values[2] + values[10] + values[7]) / 3)
        unchanged = [row for row in range(12) if row not in (0, 5, 6)]
        np.testing.assert_array_equal(filled[unchanged], values[unchanged])
    np.testing.assert_array_equal(values, gaussian(12, 5))


@pytest.mark.parametrize(
    ("height", "width", "reason"),
    [(2, 20, "along a side"), (3, 5, "fewer than 16 patches")],
)
def test_too_few_patches_have_a_reason(height: int, width: int, reason: str) -> None:
    row_seams = seams(pp.table(gaussian(height * width, 8), grid=(height, width)))
    assert reason in row_seams.no_special
    assert as_block(row_seams)["special"] is None
    assert reason in as_block(row_seams)["undefined"]["special"]


def test_few_patches_among_equal_ones_are_special_and_many_are_not() -> None:
    values = np.ones((36, 8))
    values[[0, 21]] = gaussian(2, 8)
    assert [row.row for row in seams(pp.table(values, grid=(6, 6))).special] == [0, 21]
    values[:18] = gaussian(18, 8)
    row_seams = seams(pp.table(values, grid=(6, 6)))
    assert not row_seams.special
    assert "many patches are copies" in row_seams.no_special


def test_one_odd_patch_changes_no_answer_about_the_others() -> None:
    values = slow_surface(14, 14, 48)
    spoilt = values.copy()
    spoilt[75] += 20 * values.std()
    clean_answers, answers_without, answers_with = (
        verdicts_of(table, (14, 14), all_rows=all_rows).answers
        for table, all_rows in ((values, False), (spoilt, False), (spoilt, True))
    )
    assert (
        answers_without["special_rows"].value
        == answers_with["special_rows"].value
        == [75]
    )
    for name in set(clean_answers) - {"special_rows"}:
        assert answers_without[name].answer == clean_answers[name].answer, name
    assert clean_answers["smooth"].yes
    assert not answers_with["smooth"].yes


@pytest.mark.parametrize("factor", [1.5, 2.0, 3.0])
def test_copies_of_patches_are_not_special(factor: float) -> None:
    indices = (np.arange(18) / factor).astype(int)
    copied = (
        gaussian(18 * 18, 8).reshape(18, 18, 8)[np.ix_(indices, indices)].reshape(-1, 8)
    )
    assert not outlier_patch_ratios(copied, 18, 18)


# --- the largest of many ratios with a power tail ---


def test_the_largest_ratio_of_a_power_tail_lies_in_its_interval() -> None:
    rng = np.random.default_rng(0)
    n_above = n_below = 0
    for _ in range(300):
        # Independent runs of four rows whose largest ratio has an exponential logarithm.
        ratios = np.exp(0.1 * rng.exponential(size=800)).repeat(4)
        largest = largest_ratio(ratios, np.ones_like(ratios))
        assert largest is not None
        value, (low, high) = largest
        n_above += value > high
        n_below += value < low
    # Nominally 5 % on either side; the scale comes from the upper third and is never too small.
    assert n_above <= 0.08 * 300
    assert n_below <= 0.20 * 300
    assert n_above + n_below >= 0.03 * 300


def test_the_largest_ratio_ignores_scale_and_needs_enough_ratios() -> None:
    rng = np.random.default_rng(1)
    values, typical = rng.uniform(1, 2, 200), rng.uniform(1, 2, 200)
    original, scaled = (
        largest_ratio(values, typical),
        largest_ratio(7 * values, 7 * typical),
    )
    assert original is not None
    assert scaled is not None
    assert original[0] == pytest.approx((values / typical).max())
    np.testing.assert_allclose([scaled[0], *scaled[1]], [original[0], *original[1]])
    assert largest_ratio(values[:90], typical[:90]) is None
    assert largest_ratio(values, np.where(np.arange(200) == 5, 0.0, typical)) is None
