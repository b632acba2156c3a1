"""Logits of positions: what heads make of a table, as mathematics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from posprobe.analyses.models.head_logits import NO_PEAK, head_logits, peak_name
from posprobe.analyses.result import as_block
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


def made(values: NDArray[np.float64], layout: Layout | None = None) -> PositionTable:
    layout = layout or Sequence(len(values))
    return PositionTable(values, layout, "made", Source("made", "made"))


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


@pytest.mark.parametrize(
    ("layout", "shift", "offset"),
    [
        *((Sequence(12), shift, [shift]) for shift in (-1, 1, 0, -3)),
        (Grid(3, 4), -1, [0, -1]), (Grid(3, 4), 4, [1, 0]), (Grid(3, 4), -4, [-1, 0]),
    ],
)  # fmt: skip
def test_a_head_made_to_look_somewhere_is_reported_to_look_there(
    layout: Layout, shift: int, offset: list[int]
) -> None:
    # The one-hot row i asks for the row i + shift; the second head has no weights.
    w_q, w_k = np.zeros((2, 12, 24))
    w_q[:, :12], w_k[:, :12] = 99 * np.eye(12), np.roll(np.eye(12), shift, axis=1).T
    found = head_logits(made(np.eye(12), layout), w_q, w_k, heads=2)
    assert found.peak[0].tolist() == offset
    assert found.attention[0] > 0.9
    assert found.uniform[0] < 0.3
    # A head without weights prefers nothing: its attention is uniform everywhere.
    assert np.isnan(found.offset_share[1])
    assert found.peak_name[1] == NO_PEAK
    assert np.isnan(found.attention[1])
    assert np.nanmax(np.abs(found.curves[1])) == 0


def test_a_head_that_looks_at_one_key_from_everywhere_prefers_no_offset() -> None:
    rows = np.eye(8)
    # A bias of the queries meets the key of row 5 alone.
    found = head_logits(rows, np.zeros((8, 4)), 9 * rows[:, [5, 5, 5, 5]], np.ones(4), heads=1)
    assert found.key_share[0] == 1
    block = as_block(found)
    assert (block["peak"], block["peak_name"], block["without_peak"]) == ([None], [NO_PEAK], 1)
    assert block["attention"] == [None]


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        ([0], "same token"), ([-1], "previous token"),
        ([1], "next token"), ([-3], "3 tokens before"),
        ([2], "2 tokens after"), ([0, 0], "same patch"),
        ([-1, 0], "one row up"), ([1, 0], "one row down"),
        ([0, -1], "one column left"), ([0, 2], "same row, 2 columns right"),
        ([2, 0], "same column, 2 rows down"),
        ([-1, 2], "one row up, 2 columns right"),
    ],
)  # fmt: skip
def test_an_offset_is_named_by_where_it_leads(offset: list[int], name: str) -> None:
    assert peak_name(offset) == name
