"""Logits of positions: what heads make of a table, as mathematics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from posprobe.analyses.models.head_logits import head_logits
from posprobe.errors import InvalidTable
from posprobe.layouts import Sequence
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


def made(values: NDArray[np.float64]) -> PositionTable:
    return PositionTable(values, Sequence(len(values)), "made", Source("made", "made"))


@given(seed=st.integers(0, 999), n=st.integers(3, 9), causal=st.booleans())
def test_biases_and_constant_content_leave_the_interaction_as_it_is(
    seed: int, n: int, causal: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows, w_q, w_k = (rng.normal(size=shape) for shape in ((n, 6), (6, 8), (6, 8)))
    b_q, b_k, content = (rng.normal(size=size) for size in (8, 8, 6))
    plain = head_logits(made(rows), w_q, w_k, heads=2, causal=causal)
    other = head_logits(made(rows + content), w_q, w_k, b_q, b_k, heads=2, causal=causal)
    np.testing.assert_allclose(plain.curves, other.curves, atol=1e-10)
    np.testing.assert_array_equal(plain.peak, other.peak)
    assert (np.isnan(plain.curves) == np.isnan(other.curves)).all()


@given(seed=st.integers(0, 999), n=st.integers(2, 9), causal=st.booleans())
def test_the_curve_is_the_mean_of_double_centred_logits_over_pairs(
    seed: int, n: int, causal: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows, w_q, w_k, b_q = (rng.normal(size=s) for s in ((n, 6), (6, 4), (6, 4), (4,)))
    found = head_logits(rows, w_q, w_k, b_q, heads=1, causal=causal)
    logits = (rows @ w_q + b_q) @ (rows @ w_k).T / 2
    inter = logits - logits.mean(0) - logits.mean(1, keepdims=True) + logits.mean()
    pairs = [(i, j) for i in range(n) for j in range(n) if j <= i or not causal]
    values = np.array([inter[i, j] for i, j in pairs])
    offsets = np.array([j - i for i, j in pairs])
    means = {o: values[offsets == o].mean() for o in set(offsets.tolist())}
    for offset, mean in means.items():
        assert found.curves[0, offset + n - 1] == pytest.approx(mean, abs=1e-12)
    explained = np.array([means[o] for o in offsets.tolist()])
    if n > 2:
        assert found.offset_share[0] == pytest.approx(explained.var() / values.var(), abs=1e-9)
    key = logits.mean(0).var()
    within = logits.var(axis=1).mean()
    assert found.key_share[0] == pytest.approx(key / within, abs=1e-9)


def test_logits_that_depend_on_the_offset_alone_are_explained_by_it() -> None:
    n = 16
    angle = 2 * np.pi * np.arange(n) / n
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    turn = 2 * np.pi * 3 / n
    turned = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    found = head_logits(circle, turned, np.eye(2), heads=1)
    # q_i · k_j = cos(angle_i + turn - angle_j): largest three positions on, and n - 3 back.
    assert found.offset_share[0] == pytest.approx(1)
    assert found.key_share[0] == pytest.approx(0, abs=1e-12)
    assert found.peak[0].tolist() == [3]


def test_torch_and_numpy_give_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((12, 6), (6, 8), (6, 8), (8,), (8,))]
    one = head_logits(*arrays, heads=2)
    other = head_logits(*map(torch.from_numpy, arrays), heads=2)
    np.testing.assert_allclose(one.curves, other.curves, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(one.peak, other.peak)


def test_too_many_positions_are_refused_before_memory_is_taken() -> None:
    with pytest.raises(InvalidTable, match="--rows"):
        head_logits(np.ones((20_000, 2)), np.eye(2), np.eye(2), heads=1)
