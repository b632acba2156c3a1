"""The arithmetic of places: balance, least squares, reaches, moved shares and their nulls."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from posprobe.analyses.models.places import (
    PlaceNumbers,
    divide_last_slot,
    error_over_units,
    fit_chunk_weights,
    latin_square,
    measure_reach,
    moved_share,
    permute_slots,
    place_curve,
    rank_moved_share,
    summarise_places,
)


@pytest.mark.parametrize("slots", [2, 5, 8])
def test_latin_square_has_each_chunk_once_by_document_and_slot(slots: int) -> None:
    square = latin_square(slots, np.random.default_rng(0))
    for lines in (square, square.T):
        assert all(sorted(line) == list(range(slots)) for line in lines)


def test_latin_square_of_even_size_has_each_pair_of_neighbours_once() -> None:
    square = latin_square(8, np.random.default_rng(1))
    pairs = [tuple(pair) for row in square for pair in pairwise(row)]
    assert len(set(pairs)) == len(pairs) == 56


def test_chunk_weights_are_those_of_the_sum() -> None:
    rng = np.random.default_rng(0)
    chunks, weights = rng.normal(size=(6, 4, 20)), rng.random((6, 4))
    documents = np.einsum("ns,nsd->nd", weights, chunks)
    found, r2 = fit_chunk_weights(documents, chunks)
    np.testing.assert_allclose(found, weights, atol=1e-12)
    np.testing.assert_allclose(r2, 1)
    _, unrelated_r2 = fit_chunk_weights(rng.normal(size=(6, 20)), chunks)
    assert unrelated_r2.mean() < 0.5


def test_permuted_slots_reject_alike_places_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(200):
        units = 1 + 0.2 * rng.normal(size=(8, 8))
        numbers = PlaceNumbers(8, units)
        length = summarise_places(
            numbers, tokens=64, unit_size=1, layout=None, caused_reason="none",
            is_line=True, seed=0,
        )  # fmt: skip
        rejected += length.p <= 0.05
    # 10 are expected, with a standard deviation of 3.
    assert 1 <= rejected <= 20


def test_error_over_units_of_a_mean_is_its_standard_error() -> None:
    units = np.random.default_rng(0).normal(size=(12, 3))
    expected = units.std(axis=0, ddof=1) / np.sqrt(12)
    error = error_over_units(units, lambda values: values.mean(axis=0))
    np.testing.assert_allclose(error, expected)


def test_place_curve_has_mean_one() -> None:
    curve = place_curve(np.random.default_rng(0).random((5, 8)))
    assert curve.mean() == pytest.approx(1)


@pytest.mark.parametrize(
    ("influences", "reach"), [([1, 0, 0], 9.0), ([0, 0, 1], 29.0), ([1, 1, 1], 27.0)]
)
def test_reach_holds_nine_tenths_of_the_influence(
    influences: list[float], reach: float
) -> None:
    assert measure_reach([10, 10, 10], np.array(influences, float)) == pytest.approx(
        reach
    )


@pytest.mark.parametrize("tokens", [1, 2, 7, 16, 64])
def test_blocks_fill_the_last_slot(tokens: int) -> None:
    blocks = divide_last_slot(tokens).blocks
    assert sum(blocks) == tokens
    assert blocks[0] == 1


def test_reach_within_the_last_slot_follows_its_blocks() -> None:
    layout = divide_last_slot(8)  # blocks of 1, 1, 2 and 4 tokens
    slots = np.array([[0.0, 0.0, 1.0]])
    assert layout.reach(np.hstack([slots, [[1, 0, 0, 0]]])) == pytest.approx(0.9)
    assert layout.reach(np.hstack([slots, [[0, 0, 0, 1]]])) == pytest.approx(7.6)
    # Blocks without influence of their own share that of the slot by their size.
    assert layout.reach(np.hstack([slots, [[0, 0, 0, 0]]])) == pytest.approx(7.2)


def units_of(share: float, noise: float = 0.0) -> NDArray[np.float64]:
    """Return 16 units whose preference moves by ``share`` when positions are reversed."""
    rng = np.random.default_rng(0)
    curve = np.linspace(0.5, -0.5, 8)
    mirrored = (1 - share) * curve + share * curve[::-1]
    units = 1 + np.stack([curve, mirrored]) + noise * rng.normal(size=(16, 2, 8))
    return np.asarray(units)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_moved_share_is_the_planted_one_with_and_without_noise(share: float) -> None:
    assert moved_share(units_of(share)) == pytest.approx(share)
    assert moved_share(units_of(share, 0.1)) == pytest.approx(share, abs=0.1)


def test_moved_share_of_a_symmetric_preference_is_undefined() -> None:
    units = np.ones((4, 2, 8))
    units[:, :, :2] = units[:, :, -2:] = 2
    assert np.isnan(moved_share(units))


def test_swapped_conditions_reject_only_what_moves() -> None:
    rng = np.random.default_rng(0)
    p, (low, high) = rank_moved_share(units_of(1.0, 0.2), rng)
    assert p == pytest.approx(0.001)
    assert low < high < 1
    p, _ = rank_moved_share(units_of(0.0, 0.2), rng)
    assert p > 0.05


def test_permuted_curves_keep_the_mean() -> None:
    curves = permute_slots(
        np.random.default_rng(0).random((4, 8)), np.random.default_rng(1)
    )
    np.testing.assert_allclose(curves.mean(axis=1), 1)
