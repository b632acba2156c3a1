"""Curves by offset: windows, widths and asymmetry have closed forms on simple curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.ndimage import gaussian_filter1d

from posprobe.analyses import heads, rotation, smoothness
from posprobe.analyses.result import as_block
from posprobe.encodings import alibi_slopes, rotary_frequencies
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Sequence


def line(values: Any) -> Any:
    return np.asarray([values], dtype=float)


ABS = np.abs(np.arange(-19, 20))
#: The bias to oneself is often low.
LOW_AT_ZERO = np.where(ABS == 0, -5.0, np.where(ABS < 7, 1.0, 0.0))


@pytest.mark.parametrize(
    ("curve", "causal", "number", "expected"),
    [
        (np.zeros(39), False, "window", 20),
        (np.zeros(39), True, "window", 20),
        (1000.0 * (np.arange(-19, 20) == -3), False, "window", 1),
        (1000.0 * (np.arange(-19, 20) == -3), False, "peak", [-3]),
        (np.where(ABS < 7, 1.0, 0.0), False, "half_width", 7),
        (LOW_AT_ZERO, False, "half_width", 7),
        (ABS, False, "half_width", np.nan),
        (-ABS, False, "monotone_fraction", 1.0),
        (ABS, False, "monotone_fraction", 0.0),
        (-(ABS // 3), False, "monotone_fraction", 1.0),  # a bucket's plateau is no step
        (np.zeros(39), False, "monotone_fraction", np.nan),
    ],
)
def test_simple_curves_have_known_numbers(
    curve: Any, causal: bool, number: str, expected: Any
) -> None:
    found = heads(line(curve), causal=causal)
    assert getattr(found, number)[0] == pytest.approx(expected, nan_ok=True)
    if np.isnan(np.asarray(expected, dtype=float)).any():
        assert as_block(found)[number] == [None]
        assert number in as_block(found)["undefined"]


def test_the_window_of_a_linear_bias_is_that_of_a_geometric_distribution() -> None:
    # p_k = (1 - q) q^k with q = exp(-slope); its entropy is -(log(1 - q) + q log q / (1 - q)).
    slopes = alibi_slopes(4)[:3]
    n = 4000
    curves = -slopes[:, None] * np.abs(np.arange(1 - n, n))
    q = np.exp(-slopes)
    expected = np.exp(-(np.log(1 - q) + q * np.log(q) / (1 - q)))
    np.testing.assert_allclose(heads(curves, causal=True).window, expected, rtol=1e-9)


@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_even_curves_have_no_asymmetry_and_odd_ones_nothing_else(n: int, seed: int) -> None:
    half = np.random.default_rng(seed).normal(size=n - 1)
    even = np.concatenate([half[::-1], [0.5], half])
    odd = np.concatenate([-half[::-1], [0.0], half])
    assert heads(line(even)).asymmetry[0] == pytest.approx(0, abs=1e-12)
    assert heads(line(odd)).asymmetry[0] == pytest.approx(1)


def test_on_a_window_a_peak_has_two_coordinates() -> None:
    values = np.zeros((2, 5, 7))
    values[0, 1, 6] = 9.0
    values[1, 2, 3] = 9.0
    result = heads(values)
    assert result.layout == Grid(3, 4)
    assert result.peak.tolist() == [[-1, 3], [0, 0]]
    assert heads(np.zeros((1, 5, 7))).window[0] == pytest.approx(12)


def test_later_keys_take_no_part_in_the_numbers_of_a_causal_head() -> None:
    rng = np.random.default_rng(0)
    curve = rng.normal(size=39)
    other = curve.copy()
    other[20:] = rng.normal(size=19) + 50
    one, two = heads(line(curve), causal=True), heads(line(other), causal=True)
    assert one.window[0] == two.window[0]
    assert one.peak.tolist() == two.peak.tolist()
    assert one.half_width.tolist() == pytest.approx(two.half_width.tolist(), nan_ok=True)
    assert as_block(one)["asymmetry"] == [None]


def test_similarities_have_no_window() -> None:
    summary = as_block(heads(line(np.ones(9)), quantity="cosine"))
    assert summary["window"] == [None]
    assert summary["layout"] == {"type": "sequence", "length": 5}
    assert heads(line(np.ones(9))).layout == Sequence(5)


@pytest.mark.parametrize(
    "values", [np.zeros((1, 4)), np.zeros((0, 3)), np.zeros(3), line([1, np.nan, 1])]
)
def test_impossible_curves_are_refused(values: Any) -> None:
    with pytest.raises(InvalidTable):
        heads(values)


# Smoothness


def test_a_smooth_head_is_smooth_and_noise_is_not() -> None:
    rng = np.random.default_rng(1)
    values = np.stack([np.linspace(0, 1, 63), rng.normal(size=63), np.cumsum(rng.normal(size=63))])
    result = smoothness(values)
    assert result.structured.tolist() == [True, False, True]
    assert result.correlation[0] > 0.9


def test_a_bucket_counts_once() -> None:
    rng = np.random.default_rng(3)
    entries = rng.normal(size=(1, 12))
    wide = np.repeat(entries, 9, axis=1)
    np.testing.assert_allclose(smoothness(wide).correlation, smoothness(entries).correlation)
    assert smoothness(wide).entries == 12


def test_mirrored_halves_count_once() -> None:
    quarter = np.random.default_rng(7).normal(size=(2, 6, 6))
    half = np.concatenate([quarter[:, :0:-1], quarter], axis=1)
    whole = np.concatenate([half[:, :, :0:-1], half], axis=2)
    assert smoothness(whole).entries == 36
    np.testing.assert_allclose(smoothness(whole).correlation, smoothness(quarter).correlation)


def by_row_and_column(rng: np.random.Generator, side: int, scale: float) -> Any:
    """Cosines with the middle of vectors by row and of vectors by column, as SAM's are laid out."""
    lines = []
    for _ in range(2):
        vectors = gaussian_filter1d(rng.normal(size=(2 * side - 1, 32)), scale, axis=0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        lines.append(vectors @ vectors[side - 1])
    return (lines[0][:, None] + lines[1]) / 2


@pytest.mark.parametrize("side", [7, 14])
def test_a_sum_of_random_rows_and_columns_is_noise(side: int) -> None:
    """A row has one summand in common whatever was learned, so that whole rows are permuted."""
    rng = np.random.default_rng(9)
    noise = np.stack([by_row_and_column(rng, side, 1e-3) for _ in range(200)])
    smooth = np.stack([by_row_and_column(rng, side, 2.0) for _ in range(20)])
    # 200 tables: four standard deviations of a 5 % rate are 6.2 %.
    assert smoothness(noise).structured.mean() < 0.112
    assert smoothness(smooth).structured.all()


def test_only_sums_are_permuted_by_lines() -> None:
    """One entry that breaks the sum makes all entries exchangeable; the bar of a sum is higher."""
    rng = np.random.default_rng(10)
    whole = rng.normal(size=13)[:, None] + rng.normal(size=13)
    broken = whole.copy()
    broken[0, 0] += 1e-6
    assert smoothness(whole[None]).p95[0] > 2 * smoothness(broken[None]).p95[0]


def test_a_constant_head_has_no_smoothness() -> None:
    result = smoothness(np.ones((2, 9)))
    assert as_block(result)["correlation"] == [None, None]
    assert as_block(result)["structured"] == 0


# Rotation


def ladder(head_dim: int = 128, **more: Any) -> Any:
    return rotary_frequencies(head_dim, **more)[0]


@pytest.mark.parametrize(
    ("base", "length", "turning"), [(1e4, 512, 31), (1e4, 4096, 46), (5e5, 8192, 35)]
)
def test_how_many_pairs_complete_a_turn(base: float, length: int, turning: int) -> None:
    result = rotation(ladder(base=base), training=length, target=length)
    assert result.never_turn_target == pytest.approx(1 - turning / 64)
    assert result.never_turn_training == result.never_turn_target


def test_frequencies_that_cannot_be_are_refused() -> None:
    for bad in ([], [-1.0], [np.nan], [[1.0]]):
        with pytest.raises(InvalidTable):
            rotation(np.asarray(bad))


def test_the_slowest_pair_may_stand_still() -> None:
    result = rotation(np.array([1.0, 0.0]), target=100)
    assert as_block(result)["longest_wavelength"] is None
    assert result.never_turn_target == 0.5


def test_a_head_whose_largest_bias_holds_to_the_end_does_not_favour_near_keys() -> None:
    # One bias for all keys from eight positions on, as a bucket of T5 has; and a peak before it.
    distance = np.abs(np.arange(-63, 64))
    plateau = np.minimum(distance, 8.0)
    curves = np.stack([plateau, np.where(distance == 3, 9.0, plateau), -plateau])
    assert heads(curves).near.tolist() == [0, 1, 1]
