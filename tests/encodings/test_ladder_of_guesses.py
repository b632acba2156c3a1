"""From counting to rotations: what each simpler code of positions lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from posprobe.encodings import (
    binary,
    continuous_binary,
    counting,
    normalised_counting,
    sine_ladder,
    sinusoidal,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


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
    short_table, long_table = (
        normalised_counting(11, 3).values,
        normalised_counting(101, 3).values,
    )
    for values in (short_table, long_table):
        assert (values.min(), values.max()) == (0, 1)
        assert distinct(values) == len(values)
    np.testing.assert_allclose(
        short_table[5], long_table[50]
    )  # one row means two positions
    assert np.abs(short_table[5] - long_table[5]).min() > 0.4
    assert (normalised_counting(1, 2).values == 0).all()


@given(st.integers(1, 200), st.integers(1, 80))
def test_binary_rows_are_the_digits_of_their_position(n: int, digits: int) -> None:
    values = binary(n, digits).values
    read = [sum(int(v) << j for j, v in enumerate(row)) for row in values]
    assert read == [i % 2**digits for i in range(n)]
    np.testing.assert_array_equal(binary(n, digits, signed=True).values, 2 * values - 1)


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


def test_every_digit_turns_half_as_fast_as_the_previous() -> None:
    values = continuous_binary(64, 6).values
    for j in range(6):
        period = 2 ** (j + 1)
        spectrum = np.abs(np.fft.rfft(values[:, j]))
        assert spectrum.argmax() == 64 // period
        assert (spectrum > 1e-9).sum() == 1  # a single line: a pure sine


def shift_error(values: Floats, shift: int) -> float:
    """Relative error of the best linear map from every row to the one that is `shift` later."""
    before, after = values[:-shift], values[shift:]
    matrix = np.linalg.lstsq(before, after, rcond=None)[0]
    return float(np.linalg.norm(before @ matrix - after) / np.linalg.norm(after))


def test_only_with_cosines_is_a_shift_linear() -> None:
    assert shift_error(sinusoidal(400, 16).values, 7) < 1e-10
    assert shift_error(sine_ladder(400, 16).values, 7) > 0.1
    assert shift_error(binary(400, 16).values, 7) > 0.1
