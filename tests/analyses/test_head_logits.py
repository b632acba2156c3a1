"""Logits of positions: heads that are applied to a table alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st

from posprobe.analyses.models.head_logits import NO_PEAK, head_logits, peak_name
from posprobe.analyses.result import as_block
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


def make_table(
    values: NDArray[np.float64], layout: Layout | None = None
) -> PositionTable:
    layout = layout or Sequence(len(values))
    return PositionTable(values, layout, "made", Source("made", "made"))


@given(seed=st.integers(0, 999), n=st.integers(3, 9), causal=st.booleans())
def test_biases_and_constant_content_leave_the_interaction_as_it_is(
    seed: int, n: int, causal: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows, w_q, w_k = (rng.normal(size=shape) for shape in ((n, 6), (6, 8), (6, 8)))
    b_q, b_k, content = (rng.normal(size=size) for size in (8, 8, 6))
    plain = head_logits(make_table(rows), w_q, w_k, heads=2, causal=causal)
    biased = head_logits(
        make_table(rows + content), w_q, w_k, b_q, b_k, heads=2, causal=causal
    )
    np.testing.assert_allclose(plain.curves, biased.curves, atol=1e-10)
    np.testing.assert_array_equal(plain.peak, biased.peak)
    assert (np.isnan(plain.curves) == np.isnan(biased.curves)).all()


@given(seed=st.integers(0, 999), n=st.integers(2, 9), causal=st.booleans())
def test_the_curve_is_the_mean_of_double_centred_logits_over_pairs(
    seed: int, n: int, causal: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows, w_q, w_k, b_q = (rng.normal(size=s) for s in ((n, 6), (6, 4), (6, 4), (4,)))
    head = head_logits(rows, w_q, w_k, b_q, heads=1, causal=causal)
    logits = (rows @ w_q + b_q) @ (rows @ w_k).T / 2
    interaction = logits - logits.mean(0) - logits.mean(1, keepdims=True) + logits.mean()
    pairs = [(i, j) for i in range(n) for j in range(n) if j <= i or not causal]
    values = np.array([interaction[i, j] for i, j in pairs])
    offsets = np.array([j - i for i, j in pairs])
    means = {o: values[offsets == o].mean() for o in set(offsets.tolist())}
    for offset, mean in means.items():
        assert head.curves[0, offset + n - 1] == pytest.approx(mean, abs=1e-12)
    explained = np.array([means[o] for o in offsets.tolist()])
    if n > 2:
        assert head.offset_share[0] == pytest.approx(
            explained.var() / values.var(), abs=1e-9
        )
    key_variance = logits.mean(0).var()
    variance_within = logits.var(axis=1).mean()
    assert head.key_share[0] == pytest.approx(key_variance / variance_within, abs=1e-9)


def test_logits_that_depend_on_the_offset_alone_are_explained_by_it() -> None:
    n = 16
    angle = 2 * np.pi * np.arange(n) / n
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    turn = 2 * np.pi * 3 / n
    turn_matrix = np.array(
        [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
    )
    head = head_logits(circle, turn_matrix, np.eye(2), heads=1)
    # q_i · k_j = cos(angle_i + turn - angle_j): largest three positions on, and n - 3 back.
    assert head.offset_share[0] == pytest.approx(1)
    assert head.key_share[0] == pytest.approx(0, abs=1e-12)
    assert head.peak[0].tolist() == [3]


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
def test_a_head_that_attends_to_one_offset_has_it_as_peak(
    layout: Layout, shift: int, offset: list[int]
) -> None:
    # The one-hot row i asks for the row i + shift; the second head has no weights.
    w_q, w_k = np.zeros((2, 12, 24))
    w_q[:, :12], w_k[:, :12] = 99 * np.eye(12), np.roll(np.eye(12), shift, axis=1).T
    logits = head_logits(make_table(np.eye(12), layout), w_q, w_k, heads=2)
    assert logits.peak[0].tolist() == offset
    assert logits.attention[0] > 0.9
    assert logits.uniform[0] < 0.3
    # A head without weights prefers nothing: its attention is uniform everywhere.
    assert np.isnan(logits.offset_share[1])
    assert logits.peak_name[1] == NO_PEAK
    assert np.isnan(logits.attention[1])
    assert np.nanmax(np.abs(logits.curves[1])) == 0


def test_a_head_that_attends_to_one_key_alone_has_no_peak() -> None:
    rows = np.eye(8)
    # A bias of the queries meets the key of row 5 alone.
    head = head_logits(
        rows, np.zeros((8, 4)), 9 * rows[:, [5, 5, 5, 5]], np.ones(4), heads=1
    )
    assert head.key_share[0] == 1
    block = as_block(head)
    assert (block["peak"], block["peak_name"], block["without_peak"]) == (
        [None],
        [NO_PEAK],
        1,
    )
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
def test_peak_names_describe_offsets_in_words(offset: list[int], name: str) -> None:
    assert peak_name(offset) == name
