"""Rotations of queries and keys: laws, and the libraries that release each kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_attention import angles, noise, quick, same, tensor
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

from posprobe.attention import rotate


@quick
@given(
    st.integers(1, 5), st.integers(0, 3), st.booleans(), st.integers(0, 5000), st.integers(0, 5000)
)
def test_the_product_after_rotation_depends_on_the_offset_alone(
    pairs: int, rest: int, interleaved: bool, first: int, second: int
) -> None:
    q, k = (np.tile(noise(1, 2 * pairs + rest, seed=s), (4, 1)) for s in (0, 1))
    products = [
        rotate(q, angles(4, pairs, start), interleaved=interleaved)
        @ rotate(k, angles(4, pairs, start), interleaved=interleaved).T
        for start in (first, second)
    ]
    np.testing.assert_allclose(products[0], products[1], atol=1e-9)
    for offset in range(-3, 4):
        diagonal = np.diagonal(products[0], offset)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-9)


@quick
@given(st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_a_rotation_keeps_norms_and_what_lies_beyond_its_pairs(
    pairs: int, rest: int, interleaved: bool
) -> None:
    x = noise(2, 6, 2 * pairs + rest)
    turned = rotate(x, angles(6, pairs), interleaved=interleaved)
    np.testing.assert_array_equal(turned[..., 2 * pairs :], x[..., 2 * pairs :])
    np.testing.assert_array_equal(turned[:, 0], x[:, 0])  # position 0
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1))
    back = rotate(turned, -angles(6, pairs), interleaved=interleaved)
    np.testing.assert_allclose(back, x, atol=1e-12)


def test_a_pair_is_two_neighbours_or_two_halves() -> None:
    quarter = np.array([[math.pi / 2, 0.0]])
    x = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]])
    np.testing.assert_allclose(rotate(x, quarter, interleaved=True), [[-2, 1, 3, 4, 5]])
    np.testing.assert_allclose(rotate(x, quarter), [[-3, 2, 1, 4, 5]])


def test_halves_are_rotated_as_llama_does() -> None:
    config = LlamaConfig(hidden_size=32, num_attention_heads=2, head_dim=16)
    q, k = tensor(1, 2, 9, 16), tensor(1, 2, 9, 16, seed=1)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(9)[None])
    for x, expected in zip((q, k), llama.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        same(rotate(x, angles(9, 8)), expected)


def test_a_part_is_rotated_as_gpt_neox_does() -> None:
    config = GPTNeoXConfig(
        hidden_size=32,
        num_attention_heads=2,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.25,
        },
    )
    q, k = tensor(1, 2, 9, 16), tensor(1, 2, 9, 16, seed=1)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, torch.arange(9)[None])
    assert cos.shape[-1] == 4
    apply: Any = neox.apply_rotary_pos_emb
    for x, expected in zip((q, k), apply(q, k, cos, sin), strict=True):
        same(rotate(x, angles(9, 2)), expected)


def test_neighbours_are_rotated_as_gpt_j_does() -> None:
    q = tensor(1, 2, 9, 8)
    sin, cos = gptj.create_sinusoidal_positions(9, 8).chunk(2, dim=-1)
    expected = gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    same(rotate(q, angles(9, 4), interleaved=True), expected)


def test_the_rotated_product_of_equal_vectors_falls_as_the_mean_cosine_does() -> None:
    turned = rotate(np.ones((1001, 128)), angles(1001, 64))
    kernel = turned[0] @ turned.T / 128
    at = [0, 1, 10, 50, 100, 250, 500, 1000]
    expected = [1, 0.9702, 0.6691, 0.5462, 0.4772, 0.3071, 0.2985, 0.1590]
    np.testing.assert_allclose(kernel[at], expected, atol=5e-5)


def test_far_positions_are_rotated_in_the_precision_of_their_angles() -> None:
    turn = angles(2, 1, start=2**24 + 1)  # beyond the integers that float32 holds
    found = rotate(np.array([[1, 0], [1, 0]], dtype=np.float32), turn)
    np.testing.assert_allclose(found[:, 0], np.cos([2.0**24 + 1, 2.0**24 + 2]), atol=1e-6)
