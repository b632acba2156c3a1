"""One vector per offset, on a line and on a grid: explicit loops, the libraries, laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_attention import noise, quick, randomised, same, tensor
from timm.layers import bottleneck_attn, halo_attn

from posprobe.attention import attend, relative_logits, relative_logits_2d, shift_relative

# --- one vector per position, one vector per offset ---


@quick
@given(st.integers(1, 9), st.lists(st.integers(1, 3), max_size=2))
def test_the_shift_is_a_gather(n: int, batch: list[int]) -> None:
    logits = noise(*batch, n, 2 * n - 1)
    found = shift_relative(logits)
    assert found.shape == (*batch, n, n)
    for i, j in np.ndindex(n, n):
        np.testing.assert_array_equal(found[..., i, j], logits[..., i, j - i + n - 1])


def test_of_four_tokens_column_0_is_distance_minus_3_and_column_6_is_plus_3() -> None:
    distances = np.tile(np.arange(-3, 4), (4, 1))
    i, j = np.indices((4, 4))
    np.testing.assert_array_equal(shift_relative(distances), j - i)


@quick
@given(st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_relative_logits_are_products_of_queries_and_the_row_of_the_offset(
    n: int, d: int, per_head: bool
) -> None:
    shape = (3, 2 * n - 1, d) if per_head else (2 * n - 1, d)
    q, table = noise(2, 3, n, d), noise(*shape, seed=1)
    found = relative_logits(q, table)
    assert found.shape == (2, 3, n, n)
    for b, h, i, j in np.ndindex(found.shape):
        row = (table[h] if per_head else table)[j - i + n - 1]
        assert found[b, h, i, j] == pytest.approx(q[b, h, i] @ row)


def test_the_lower_triangle_is_the_causal_skew_of_music_transformer() -> None:
    n, d = 6, 4
    q, table = noise(2, n, d), noise(2 * n - 1, d, seed=1)
    product = q @ table[:n].T  # offsets -(n - 1) to 0
    padded = np.concatenate([np.zeros((2, n, 1)), product], axis=-1)
    skewed = padded.reshape(2, n + 1, n)[:, 1:]
    np.testing.assert_allclose(np.tril(relative_logits(q, table)), np.tril(skewed), atol=1e-12)


def test_relative_logits_of_equal_queries_depend_on_the_offset_alone() -> None:
    logits = relative_logits(np.tile(noise(1, 5), (7, 1)), noise(13, 5, seed=1))
    for offset in range(-6, 7):
        diagonal = np.diagonal(logits, offset)
        np.testing.assert_allclose(diagonal, diagonal[0])


# --- grids ---


@quick
@given(st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_logits_on_a_grid_add_a_row_and_a_column(height: int, width: int, per_head: bool) -> None:
    d, n = 3, height * width
    heads = (2,) if per_head else ()
    q = noise(2, n, d)
    rows = noise(*heads, 2 * height - 1, d, seed=1)
    columns = noise(*heads, 2 * width - 1, d, seed=2)
    found = relative_logits_2d(q, rows, columns, height, width)
    assert found.shape == (2, n, n)
    for h, i, j in np.ndindex(found.shape):
        down, right = j // width - i // width, j % width - i % width
        row = (rows[h] if per_head else rows)[down + height - 1]
        column = (columns[h] if per_head else columns)[right + width - 1]
        assert found[h, i, j] == pytest.approx(q[h, i] @ row + q[h, i] @ column)


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 5), (5, 2), (1, 4), (1, 1)])
def test_logits_on_a_grid_are_those_of_timm(height: int, width: int) -> None:
    module = randomised(bottleneck_attn.PosEmbedRel, (height, width), dim_head=6, scale=1.0)
    q = tensor(3, height * width, 6)
    found = relative_logits_2d(q, module.height_rel, module.width_rel, height, width)
    same(found, module(q))


@pytest.mark.parametrize("scaled", [False, True])
def test_timms_bottleneck_attention_scales_its_positions_only_when_asked(scaled: bool) -> None:
    height, width, heads, d = 3, 5, 2, 8
    module = randomised(
        bottleneck_attn.BottleneckAttn,
        16,
        feat_size=(height, width),
        num_heads=heads,
        scale_pos_embed=scaled,
    )
    x = tensor(1, 16, height, width)
    split = module.qkv(x).reshape(3, heads, d, height * width)
    q, k, v = split.mT
    tables = module.pos_embed.height_rel, module.pos_embed.width_rel
    bias = relative_logits_2d(q, *tables, height, width)
    out = attend(q, k, v, bias / math.sqrt(d) if scaled else bias)
    same(out.mT.reshape(1, 16, height, width), module(x))


@pytest.mark.parametrize(("block", "halo"), [(3, 0), (2, 1), (3, 2)])
def test_halo_attention_counts_queries_from_the_corner_of_the_window(block: int, halo: int) -> None:
    window = block + 2 * halo
    module = randomised(
        halo_attn.PosEmbedRel, block_size=block, win_size=window, dim_head=4, scale=1.0
    )
    q = tensor(2, 5, block * block, 4)
    filled = torch.zeros(2, 5, window, window, 4)
    filled[:, :, :block, :block] = q.reshape(2, 5, block, block, 4)
    logits = relative_logits_2d(
        filled.reshape(2, 5, -1, 4), module.height_rel, module.width_rel, window, window
    )
    own = logits.reshape(2, 5, window, window, -1)[:, :, :block, :block]
    same(own.reshape(2, 5, block * block, -1), module(q))
