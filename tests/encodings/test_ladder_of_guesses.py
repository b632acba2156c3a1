"""From counting to rotations: what each simpler code of positions lacks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from posprobe.encodings import (
    FORMULAS,
    binary,
    continuous_binary,
    counting,
    from_reference,
    normalised_counting,
    sine_ladder,
    sinusoidal,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

quick = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def distinct(values: Floats) -> int:
    return len(np.unique(np.asarray(values).round(9), axis=0))


def test_counting_is_unbounded_and_of_rank_one() -> None:
    for n in (10, 1000):
        values = counting(n, 4).values
        assert values.max() == n - 1
        assert np.linalg.matrix_rank(values) == 1
        assert distinct(values) == n
        np.testing.assert_array_equal(np.diff(values, axis=0), 1)


def test_normalised_counting_is_bounded_but_depends_on_the_length() -> None:
    short, long = normalised_counting(11, 3).values, normalised_counting(101, 3).values
    for values in (short, long):
        assert (values.min(), values.max()) == (0, 1)
        assert distinct(values) == len(values)
    np.testing.assert_allclose(short[5], long[50])  # one row means two positions
    assert np.abs(short[5] - long[5]).min() > 0.4
    assert (normalised_counting(1, 2).values == 0).all()


@quick
@given(st.integers(1, 200), st.integers(1, 80))
def test_binary_rows_are_the_digits_of_their_position(n: int, digits: int) -> None:
    values = binary(n, digits).values
    read = [sum(int(v) << j for j, v in enumerate(row)) for row in values]
    assert read == [i % 2**digits for i in range(n)]
    np.testing.assert_array_equal(binary(n, digits, signed=True).values, 2 * values - 1)


@pytest.mark.parametrize("signed", [False, True])
def test_binary_rows_are_bounded_and_repeat_after_2_to_the_d(signed: bool) -> None:
    values = binary(3 * 32, 5, signed=signed).values
    assert distinct(values) == 32
    np.testing.assert_array_equal(values[:64], values[32:])
    assert set(values.ravel()) == ({-1, 1} if signed else {0, 1})


def test_neighbours_in_binary_are_as_far_apart_as_their_digits_flip() -> None:
    values = binary(256, 8).values
    steps = np.linalg.norm(np.diff(values, axis=0), axis=1)
    assert (steps.min(), steps.max()) == (1, math.sqrt(8))  # the carry from 127 to 128 flips all
    assert steps.argmax() == 127


def test_the_dials_have_the_signs_of_the_signed_digits() -> None:
    values = continuous_binary(300, 9).values
    np.testing.assert_array_equal(np.sign(values), binary(300, 9, signed=True))


@pytest.mark.parametrize("dim", [1, 4, 7])
def test_the_dials_close_after_2_to_the_d_and_not_before(dim: int) -> None:
    turn = 2**dim
    values = continuous_binary(2 * turn, dim).values
    np.testing.assert_array_equal(values[:turn], values[turn:])
    assert distinct(values) == turn
    assert np.abs(values).max() <= 1


def test_each_dial_turns_half_as_fast_as_the_one_before() -> None:
    values = continuous_binary(64, 6).values
    for j in range(6):
        period = 2 ** (j + 1)
        spectrum = np.abs(np.fft.rfft(values[:, j]))
        assert spectrum.argmax() == 64 // period
        assert (spectrum > 1e-9).sum() == 1  # a single line: a pure sine


def test_the_curve_of_dials_is_smoother_than_the_digits() -> None:
    digits, dials = binary(512, 9, signed=True), continuous_binary(512, 9)
    for j in range(3, 9):
        jump = [np.abs(np.diff(t.values[:, j])).max() for t in (digits, dials)]
        assert jump[0] == 2
        assert jump[1] <= 2 * math.pi / 2 ** (j + 1)


def test_rows_of_the_sine_ladder_and_of_the_sinusoid_are_all_distinct() -> None:
    for table in (sine_ladder(5000, 32), sinusoidal(5000, 32)):
        assert distinct(table.values) == 5000
        assert np.abs(table.values).max() <= 1


def test_the_sine_ladder_has_one_frequency_per_column() -> None:
    values = sine_ladder(50, 6, base=1000).values
    omega = 1000 ** (-np.arange(6) / 6)
    np.testing.assert_allclose(values, np.sin(np.outer(np.arange(50), omega)), atol=1e-12)


def shift_error(values: Floats, shift: int) -> float:
    """Relative error of the best linear map from every row to the one that is `shift` later."""
    before, after = values[:-shift], values[shift:]
    matrix = np.linalg.lstsq(before, after, rcond=None)[0]
    return float(np.linalg.norm(before @ matrix - after) / np.linalg.norm(after))


def test_only_with_cosines_is_a_shift_linear() -> None:
    assert shift_error(sinusoidal(400, 16).values, 7) < 1e-10
    assert shift_error(sine_ladder(400, 16).values, 7) > 0.1
    assert shift_error(binary(400, 16).values, 7) > 0.1


def test_the_row_norm_of_the_sinusoid_alone_is_constant() -> None:
    spread = {
        name: np.ptp(np.linalg.norm(from_reference(f"{name}:64x16"), axis=1))
        for name, formula in FORMULAS.items()
        if formula.build and len(formula.sizes) == 2
    }
    assert spread.pop("sinusoidal") < 1e-12
    assert min(spread.values()) > 0.1
    assert np.ptp(np.linalg.norm(binary(64, 16, signed=True), axis=1)) == 0
