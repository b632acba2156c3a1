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


DISTANCE = np.abs(np.arange(-19, 20))
#: Learned biases are often low at offset zero.
LOW_SELF_BIAS = np.where(DISTANCE == 0, -5.0, np.where(DISTANCE < 7, 1.0, 0.0))


@pytest.mark.parametrize(
    ("curve", "causal", "number", "expected"),
    [
        (np.zeros(39), False, "window", 20),
        (np.zeros(39), True, "window", 20),
        (1000.0 * (np.arange(-19, 20) == -3), False, "window", 1),
        (1000.0 * (np.arange(-19, 20) == -3), False, "peak", [-3]),
        (np.where(DISTANCE < 7, 1.0, 0.0), False, "half_width", 7),
        (LOW_SELF_BIAS, False, "half_width", 7),
        (DISTANCE, False, "half_width", np.nan),
        (-DISTANCE, False, "monotone_fraction", 1.0),
        (DISTANCE, False, "monotone_fraction", 0.0),
        (
            -(DISTANCE // 3),
            False,
            "monotone_fraction",
            1.0,
        ),  # a bucket's plateau is no step
        (np.zeros(39), False, "monotone_fraction", np.nan),
    ],
)
def test_simple_curves_have_known_numbers(
    curve: Any, causal: bool, number: str, expected: Any
) -> None:
    curve_numbers = heads(line(curve), causal=causal)
    assert getattr(curve_numbers, number)[0] == pytest.approx(expected, nan_ok=True)
    if np.isnan(np.asarray(expected, dtype=float)).any():
        assert as_block(curve_numbers)[number] == [None]
        assert number in as_block(curve_numbers)["undefined"]


def test_the_window_of_a_linear_bias_is_that_of_a_geometric_distribution() -> None:
    # p_k = (1 - q) q^k with q = exp(-slope); its entropy is -(log(1 - q) + q log q / (1 - q)).
    slopes = alibi_slopes(4)[:3]
    n = 4000
    curves = -slopes[:, None] * np.abs(np.arange(1 - n, n))
    q = np.exp(-slopes)
    expected = np.exp(-(np.log(1 - q) + q * np.log(q) / (1 - q)))
    np.testing.assert_allclose(heads(curves, causal=True).window, expected, rtol=1e-9)


@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_even_curves_have_no_asymmetry_and_odd_ones_nothing_else(
    n: int, seed: int
) -> None:
    half = np.random.default_rng(seed).normal(size=n - 1)
    even_curve = np.concatenate([half[::-1], [0.5], half])
    odd_curve = np.concatenate([-half[::-1], [0.0], half])
    assert heads(line(even_curve)).asymmetry[0] == pytest.approx(0, abs=1e-12)
    assert heads(line(odd_curve)).asymmetry[0] == pytest.approx(1)


def test_the_peak_of_a_grid_curve_has_two_coordinates() -> None:
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
    changed_curve = curve.copy()
    changed_curve[20:] = rng.normal(size=19) + 50
    head, changed_head = (
        heads(line(curve), causal=True),
        heads(line(changed_curve), causal=True),
    )
    assert head.window[0] == changed_head.window[0]
    assert head.peak.tolist() == changed_head.peak.tolist()
    assert head.half_width.tolist() == pytest.approx(
        changed_head.half_width.tolist(), nan_ok=True
    )
    assert as_block(head)["asymmetry"] == [None]


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
    values = np.stack(
        [np.linspace(0, 1, 63), rng.normal(size=63), np.cumsum(rng.normal(size=63))]
    )
    result = smoothness(values)
    assert result.structured.tolist() == [True, False, True]
    assert result.correlation[0] > 0.9


def test_a_bucket_counts_once() -> None:
    rng = np.random.default_rng(3)
    entries = rng.normal(size=(1, 12))
    wide = np.repeat(entries, 9, axis=1)
    np.testing.assert_allclose(
        smoothness(wide).correlation, smoothness(entries).correlation
    )
    assert smoothness(wide).entries == 12


def test_mirrored_halves_count_once() -> None:
    quarter = np.random.default_rng(7).normal(size=(2, 6, 6))
    half = np.concatenate([quarter[:, :0:-1], quarter], axis=1)
    mirrored = np.concatenate([half[:, :, :0:-1], half], axis=2)
    assert smoothness(mirrored).entries == 36
    np.testing.assert_allclose(
        smoothness(mirrored).correlation, smoothness(quarter).correlation
    )


def by_row_and_column(rng: np.random.Generator, side: int, scale: float) -> Any:
    """Return row cosines plus column cosines with the middle, laid out as in SAM."""
    lines = []
    for _ in range(2):
        vectors = gaussian_filter1d(rng.normal(size=(2 * side - 1, 32)), scale, axis=0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        lines.append(vectors @ vectors[side - 1])
    return (lines[0][:, None] + lines[1]) / 2


@pytest.mark.parametrize("side", [7, 14])
def test_a_sum_of_random_rows_and_columns_is_noise(side: int) -> None:
    """Entries of a row share one summand, learned or not, so whole rows are permuted."""
    rng = np.random.default_rng(9)
    noise = np.stack([by_row_and_column(rng, side, 1e-3) for _ in range(200)])
    smooth = np.stack([by_row_and_column(rng, side, 2.0) for _ in range(20)])
    # 200 tables: four standard deviations of a 5 % rate are 6.2 %.
    assert smoothness(noise).structured.mean() < 0.112
    assert smoothness(smooth).structured.all()


def test_only_sums_are_permuted_by_lines() -> None:
    """An entry that breaks the sum makes all entries exchangeable, with a lower threshold."""
    rng = np.random.default_rng(10)
    exact_sum = rng.normal(size=13)[:, None] + rng.normal(size=13)
    broken_sum = exact_sum.copy()
    broken_sum[0, 0] += 1e-6
    assert smoothness(exact_sum[None]).p95[0] > 2 * smoothness(broken_sum[None]).p95[0]


def test_a_constant_head_has_no_smoothness() -> None:
    result = smoothness(np.ones((2, 9)))
    assert as_block(result)["correlation"] == [None, None]
    assert as_block(result)["structured"] == 0


# Rotation


def ladder(head_dim: int = 128, **options: Any) -> Any:
    return rotary_frequencies(head_dim, **options)[0]


@pytest.mark.parametrize(
    ("base", "length", "n_turning"), [(1e4, 512, 31), (1e4, 4096, 46), (5e5, 8192, 35)]
)
def test_pairs_that_complete_no_turn_are_counted(
    base: float, length: int, n_turning: int
) -> None:
    result = rotation(ladder(base=base), training=length, target=length)
    assert result.never_turn_target == pytest.approx(1 - n_turning / 64)
    assert result.never_turn_training == result.never_turn_target


def test_impossible_frequencies_are_refused() -> None:
    for bad in ([], [-1.0], [np.nan], [[1.0]]):
        with pytest.raises(InvalidTable):
            rotation(np.asarray(bad))


def test_the_slowest_pair_may_stand_still() -> None:
    result = rotation(np.array([1.0, 0.0]), target=100)
    assert as_block(result)["longest_wavelength"] is None
    assert result.never_turn_target == 0.5


def test_a_largest_bias_up_to_the_end_does_not_favour_near_keys() -> None:
    # One bias for all keys from eight positions on, as in T5's last bucket, and a peak before.
    distance = np.abs(np.arange(-63, 64))
    plateau = np.minimum(distance, 8.0)
    curves = np.stack([plateau, np.where(distance == 3, 9.0, plateau), -plateau])
    assert heads(curves).near.tolist() == [0, 1, 1]
