"""The sinusoid and its grid: closed forms, and each variant as its library computes it."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_formulas import distilbert, mae, marian, musicgen, timm, whisper
from transformers.models.florence2.modeling_florence2 import (
    Florence2VisionPositionalEmbeddingCosine1D,
)

from posprobe.encodings import (
    frequencies,
    sincos2d,
    sine_ladder,
    sinusoidal,
    translation_matrix,
)
from posprobe.encodings.tables import Order
from posprobe.errors import UsageError
from posprobe.layouts import Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


orders = st.sampled_from(["interleaved", "halves"])
sizes = st.tuples(st.integers(1, 40), st.integers(1, 24))


# --- one dimension ---


@given(sizes, orders, st.booleans(), st.booleans(), st.sampled_from([100.0, 1e4, 1e6]))
def test_laws_of_every_sinusoid(
    size: tuple[int, int], order: Order, endpoint: bool, cosine_first: bool, base: float
) -> None:
    n, d = size[0], 2 * size[1]
    table = sinusoidal(
        n, d, order=order, endpoint=endpoint, cosine_first=cosine_first, base=base
    )
    assert table.values.shape == (n, d)
    assert table.values.dtype == np.float64
    assert table.layout == Sequence(n)
    assert table.kind == "fixed"
    np.testing.assert_allclose(
        np.linalg.norm(table, axis=1), math.sqrt(d / 2), rtol=1e-12
    )
    gram = table.values @ table.values.T
    for offset in range(n):  # what two positions share depends on their distance alone
        diagonal = np.diagonal(gram, offset)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-12 * d)
    omega = frequencies(d, base=base, endpoint=endpoint)
    np.testing.assert_allclose(gram[0], np.cos(np.outer(np.arange(n), omega)).sum(axis=1))


@given(
    sizes,
    orders,
    st.booleans(),
    st.booleans(),
    st.floats(-500, 500),
    st.sampled_from([20.0, 1e4]),
)
def test_the_translation_matrix_moves_every_row(
    size: tuple[int, int],
    order: Order,
    endpoint: bool,
    cosine_first: bool,
    shift: float,
    base: float,
) -> None:
    n, d = size[0], 2 * size[1]
    variant: dict[str, Any] = {
        "order": order, "endpoint": endpoint, "cosine_first": cosine_first, "base": base,
    }  # fmt: skip
    rows = round(shift / 20)
    table = sinusoidal(n + abs(rows), d, **variant).values
    translated = table @ translation_matrix(d, rows, **variant)
    begin = max(-rows, 0)
    np.testing.assert_allclose(
        translated[begin : begin + n], table[begin + rows :][:n], atol=1e-12 * (n + 50)
    )
    half = translation_matrix(d, shift / 2, **variant)
    np.testing.assert_allclose(
        half @ half, translation_matrix(d, shift, **variant), atol=1e-11
    )
    np.testing.assert_allclose(half @ half.T, np.eye(d), atol=1e-14)
    assert (half != 0).sum() <= 2 * d  # a rotation of each plane by itself


def florence2(n: int, d: int) -> Floats:
    sine, cosine = Florence2VisionPositionalEmbeddingCosine1D.get_sinusoid_embeddings(
        n, d
    )
    return np.stack([np.asarray(sine), np.asarray(cosine)], axis=2).reshape(n, d)


@pytest.mark.parametrize(
    ("library", "options"),
    [
        (whisper, {"order": "halves", "endpoint": True}),
        (distilbert, {}),
        (florence2, {}),
        (marian, {"order": "halves"}),
        (musicgen, {"order": "halves", "endpoint": True, "cosine_first": True}),
    ],
)
@pytest.mark.parametrize(("n", "d"), [(1500, 384), (5, 4)])
def test_every_variant_equals_a_library(
    library: Any, options: dict[str, Any], n: int, d: int
) -> None:
    # In float32 an angle of n carries an error of about n * 2**-24.
    np.testing.assert_allclose(
        sinusoidal(n, d, **options), library(n, d), atol=1e-6 + n * 2**-23
    )


@pytest.mark.parametrize("base", [1.0, 0.5, -3.0, math.nan, math.inf])
def test_a_base_that_makes_no_ladder_is_wrong_usage(base: float) -> None:
    for build in (
        lambda: sinusoidal(4, 4, base=base),
        lambda: sincos2d(2, 2, 4, base=base),
        lambda: sine_ladder(4, 4, base=base),
        lambda: translation_matrix(4, 1, base=base),
    ):
        with pytest.raises(UsageError, match="base"):
            build()


# --- grids ---


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 8))
def test_a_row_of_the_grid_encodes_its_column_and_then_its_row(
    height: int, width: int, quarter: int
) -> None:
    half = 2 * quarter
    line = sinusoidal(max(height, width), half, order="halves").values
    values = sincos2d(height, width, 2 * half).values.reshape(height, width, 2 * half)
    for r, c in product(range(height), range(width)):
        np.testing.assert_array_equal(values[r, c, :half], line[c])
        np.testing.assert_array_equal(values[r, c, half:], line[r])


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 7), (7, 3), (1, 5)])
def test_the_grid_in_timms_order_is_that_of_timm(height: int, width: int) -> None:
    for base in (10_000.0, 100.0):
        ours = sincos2d(height, width, 24, order="timm", base=base)
        expected = timm(height, width, 24, temperature=base)
        np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_the_grid_is_that_of_masked_autoencoders() -> None:
    np.testing.assert_allclose(sincos2d(4, 4, 16), mae(4, 4), atol=1e-6)
