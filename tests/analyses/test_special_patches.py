"""Special patches: what is planted on a grid is found, and the questions are asked without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from made_answers import verdicts_of
from made_tables import gaussian, patches, rotation
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.breaks.outliers import largest_ratio, odd_patches, without
from posprobe.analyses.breaks.seams import seams
from posprobe.analyses.result import as_block
from posprobe.arrays import namespace

Floats = NDArray[np.float64]


def surface(height: int, width: int, d: int, seed: int = 0) -> Floats:
    """A few slow waves over the grid, each with a direction of its own."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(np.arange(height) / height, np.arange(width) / width, indexing="ij")
    waves = [
        np.cos(np.pi * (a * y + b * x) + rng.uniform(0, 6)) for a in range(3) for b in range(3)
    ]
    return np.asarray(np.stack(waves, -1).reshape(height * width, 9) @ rng.standard_normal((9, d)))


def found_in(values: Floats, height: int, width: int) -> list[int]:
    found: Any = odd_patches(values - values.mean(axis=0), height, width)
    return sorted(found)


def with_odd_patch(height: int, width: int, seed: int) -> tuple[Floats, int]:
    row = 7 * seed % (height * width)
    values = surface(height, width, 24, seed)
    values[row] += 6 * values.std() * gaussian(1, 24, seed)[0]
    return values, row


@given(st.integers(0, 10_000), st.sampled_from([1e-5, 0.3, 1e6]))
def test_scale_basis_and_the_side_from_which_a_grid_is_seen_change_nothing(
    seed: int, scale: float
) -> None:
    height, width = 9, 14
    values, _ = with_odd_patch(height, width, seed)
    found = found_in(values, height, width)
    assert found_in(scale * values @ rotation(24, seed), height, width) == found
    grid = values.reshape(height, width, 24)
    places = [divmod(row, width) for row in found]
    upside_down = sorted((height - 1 - y) * width + x for y, x in places)
    assert found_in(grid[::-1].reshape(-1, 24), height, width) == upside_down
    turned = sorted(x * height + y for y, x in places)
    assert found_in(grid.transpose(1, 0, 2).reshape(-1, 24), width, height) == turned


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_special_of_noise_of_surfaces_and_of_codes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heavy = gaussian(196, 32, seed) * rng.standard_t(3, size=(196, 1))
    growing = surface(14, 14, 32, seed) * np.geomspace(1, 3, 196)[:, None]
    codes = np.asarray(patches(14, 14, 32, seed))
    for values in (gaussian(196, 32, seed), surface(14, 14, 32, seed), heavy, growing, codes):
        assert found_in(values, 14, 14) == []


def test_several_patches_and_their_reasons_are_told() -> None:
    values = surface(14, 14, 32)
    for row in (0, 75, 76, 190):
        values[row] += 4 * values.std() * gaussian(1, 32, seed=row)[0]
    values[100] = 0.0
    found = seams(pp.table(values, grid=(14, 14)))
    assert [row.row for row in found.special] == [0, 75, 76, 100, 190]
    kinds = [[cause.kind for cause in row.causes] for row in found.special]
    assert kinds[3] == ["zero", "patch_far"]
    assert kinds[0] == kinds[1] == kinds[2] == kinds[4] == ["patch_far"]
    assert [row["row"] for row in as_block(found)["special"]] == [0, 75, 76, 100, 190]
    assert as_block(found)["between"] is None


@pytest.mark.parametrize("side", [7, 14])
@pytest.mark.parametrize(
    ("inner", "places"), [((0, 0), [(0, 1), (1, 0)]), ((0, 3), [(0, 2), (0, 4)])]
)
def test_a_patch_among_special_ones_is_not_special_itself(
    side: int, inner: tuple[int, int], places: list[tuple[int, int]]
) -> None:
    for seed in range(10):
        values = surface(side, side, 24, seed)
        rows = sorted(y * side + x for y, x in places)
        values[rows] += 6 * values.std() * gaussian(2, 24, seed)
        assert found_in(values, side, side) == rows
        equal = np.ones_like(values)
        equal[rows] = gaussian(2, 24, seed)
        assert found_in(equal, side, side) == rows
        both = sorted([*rows, inner[0] * side + inner[1]])
        values[both[0] if both[0] not in rows else both[1]] -= 6 * values.std()
        assert found_in(values, side, side) == both


def test_the_mean_of_the_neighbours_is_put_in_place() -> None:
    values = gaussian(12, 5)
    for array in (values, torch.from_numpy(values)):
        filled = np.asarray(without(array, [0, 5, 6], 3, 4, namespace(array)))
        np.testing.assert_allclose(filled[0], (values[1] + values[4]) / 2)
        np.testing.assert_allclose(filled[5], (values[1] + values[9] + values[4]) / 3)
        np.testing.assert_allclose(filled[6], (values[2] + values[10] + values[7]) / 3)
        kept = [row for row in range(12) if row not in (0, 5, 6)]
        np.testing.assert_array_equal(filled[kept], values[kept])
    np.testing.assert_array_equal(values, gaussian(12, 5))


@pytest.mark.parametrize(
    ("height", "width", "why"), [(2, 20, "along a side"), (3, 5, "fewer than 16 patches")]
)
def test_too_few_patches_have_a_reason(height: int, width: int, why: str) -> None:
    found = seams(pp.table(gaussian(height * width, 8), grid=(height, width)))
    assert why in found.no_special
    assert as_block(found)["special"] is None
    assert why in as_block(found)["undefined"]["special"]


def test_few_patches_among_equal_ones_are_special_and_many_tell_nothing() -> None:
    values = np.ones((36, 8))
    values[[0, 21]] = gaussian(2, 8)
    assert [row.row for row in seams(pp.table(values, grid=(6, 6))).special] == [0, 21]
    values[:18] = gaussian(18, 8)
    found = seams(pp.table(values, grid=(6, 6)))
    assert not found.special
    assert "many patches are copies" in found.no_special


def test_one_odd_patch_decides_no_answer_about_the_others() -> None:
    values = surface(14, 14, 48)
    spoilt = values.copy()
    spoilt[75] += 20 * values.std()
    clean, kept, whole = (
        verdicts_of(table, (14, 14), all_rows=every).answers
        for table, every in ((values, False), (spoilt, False), (spoilt, True))
    )
    assert kept["special_rows"].value == whole["special_rows"].value == [75]
    for name in set(clean) - {"special_rows"}:
        assert kept[name].answer == clean[name].answer, name
    assert clean["smooth"].yes
    assert not whole["smooth"].yes


@pytest.mark.parametrize("factor", [1.5, 2.0, 3.0])
def test_copies_of_patches_are_not_special(factor: float) -> None:
    place = (np.arange(18) / factor).astype(int)
    copied = gaussian(18 * 18, 8).reshape(18, 18, 8)[np.ix_(place, place)].reshape(-1, 8)
    assert not odd_patches(copied, 18, 18)


# --- the longest of many ratios, where their tail falls like a power ---


def test_of_ratios_with_a_power_tail_the_largest_lies_in_its_interval() -> None:
    rng = np.random.default_rng(0)
    above = below = 0
    for _ in range(300):
        # Independent runs of four rows whose largest ratio has an exponential logarithm.
        ratios = np.exp(0.1 * rng.exponential(size=800)).repeat(4)
        found = largest_ratio(ratios, np.ones_like(ratios))
        assert found is not None
        value, (low, high) = found
        above += value > high
        below += value < low
    # Five in a hundred each; the scale is estimated from the upper third, and never too small.
    assert above <= 0.08 * 300
    assert below <= 0.20 * 300
    assert above + below >= 0.03 * 300


def test_it_depends_on_ratios_alone_and_needs_enough_of_them() -> None:
    rng = np.random.default_rng(1)
    values, usual = rng.uniform(1, 2, 200), rng.uniform(1, 2, 200)
    once, scaled = largest_ratio(values, usual), largest_ratio(7 * values, 7 * usual)
    assert once is not None
    assert scaled is not None
    assert once[0] == pytest.approx((values / usual).max())
    np.testing.assert_allclose([scaled[0], *scaled[1]], [once[0], *once[1]])
    assert largest_ratio(values[:90], usual[:90]) is None
    assert largest_ratio(values, np.where(np.arange(200) == 5, 0.0, usual)) is None
