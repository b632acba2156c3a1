"""Attention of running models by offset."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from made_models import (
    LENGTH,
    WORDS,
    attentions,
    bert,
    gpt2,
    hooks_of,
    in_batches,
    minilm,
    pixels,
    timm_vit,
    tokens,
    vit,
)

from posprobe.analyses.models.attention import (
    NO_PEAK,
    attention_by_offset,
    locality,
    peak_name,
    sum_attention,
    symmetry,
)
from posprobe.analyses.result import as_block
from posprobe.errors import UsageError
from posprobe.forward import attend, load_model, repeated_tokens
from posprobe.layouts import Grid, Sequence


@pytest.mark.parametrize("build", [gpt2, bert])
def test_measured_attention_is_the_mean_of_the_library_s_own(
    build: Any, device: str
) -> None:
    model, contexts = build().to(device), tokens(11)
    expected = attentions(model, contexts)
    hooks_before = hooks_of(model)
    attention = attend(model, in_batches(contexts, 4))
    assert model.config._attn_implementation == "sdpa"
    assert hooks_of(model) == hooks_before
    assert (list(attention.layers), attention.contexts) == ([0, 1], 11)
    for number, layer in attention.layers.items():
        mean = expected[number].mean(axis=0)
        for head, matrix in enumerate(mean):
            # The first token does not count as a key.
            without_first = matrix.copy()
            without_first[:, 0] = np.nan
            diagonals = [
                np.nanmean(np.diagonal(without_first, o))
                for o in range(2 - LENGTH, LENGTH)
            ]
            assert np.isnan(layer.curves[head, 0])
            np.testing.assert_allclose(layer.curves[head, 1:], diagonals, atol=1e-7)
            assert layer.first[head] == pytest.approx(matrix[1:, 0].mean(), abs=1e-7)
        contexts_attention = expected[number]
        np.testing.assert_allclose(
            layer.locality, locality(contexts_attention).mean(axis=0), atol=1e-7
        )
        np.testing.assert_allclose(
            layer.symmetry, symmetry(contexts_attention).mean(axis=0), atol=1e-7
        )
        if build is gpt2:
            assert (layer.curves[:, LENGTH:] == 0).all()
            np.testing.assert_allclose(layer.symmetry, 0, atol=1e-12)
    json.dumps(as_block(attention), allow_nan=False)


@pytest.mark.parametrize("build", [vit, timm_vit])
def test_attention_between_patches_is_measured_by_displacement(
    build: Any, device: str
) -> None:
    model, contexts = build().to(device), pixels(5)
    attention = attend(model, in_batches(contexts, 2))
    assert attention.layout == Grid(2, 3)
    assert {layer.curves.shape for layer in attention.layers.values()} == {(3, 3, 5)}
    assert json.loads(json.dumps(as_block(attention), allow_nan=False))["contexts"] == 5
    if build is vit:
        patches = attentions(model, contexts)[:, :, :, 1:, 1:].mean(axis=1)
        # Attention to CLS is counted separately.
        cls = attentions(model, contexts)[:, :, :, 1:, 0].mean(axis=(1, 3))
        for number, layer in attention.layers.items():
            np.testing.assert_allclose(layer.special, cls[number], atol=1e-6)
        # Three pairs of patches are above each other.
        attention_below = np.stack([patches[:, :, i, i + 3] for i in range(3)]).mean(
            axis=0
        )
        for number, layer in attention.layers.items():
            np.testing.assert_allclose(
                layer.curves[:, 2, 2], attention_below[number], atol=1e-6
            )
    else:
        assert all(block.attn.fused_attn for block in model.blocks)


MATRICES = {
    "uniform": (np.full((20, 20), 1 / 20), 0.140, 1.0),
    "itself": (np.eye(20), 1.0, math.nan),
    "previous": (np.eye(20, k=-1) + np.eye(20)[:1].T @ np.eye(20)[:1], 0.525, 0.0),
}
_NEAR_ATTENTION = np.exp(-np.abs(np.subtract.outer(np.arange(20), np.arange(20))) / 2)
MATRICES["near"] = (_NEAR_ATTENTION / _NEAR_ATTENTION.sum(1, keepdims=True), 0.494, 1.0)
_NEAR_PAST_ATTENTION = np.tril(_NEAR_ATTENTION)
MATRICES["near and past"] = (
    _NEAR_PAST_ATTENTION / _NEAR_PAST_ATTENTION.sum(1, keepdims=True),
    0.616,
    0.0,
)


@pytest.mark.parametrize("name", MATRICES)
def test_plain_matrices_have_their_known_locality_and_symmetry(name: str) -> None:
    matrix, expected_locality, expected_symmetry = MATRICES[name]
    # Locality as in Chen et al.; symmetry without their scaling of rows.
    assert locality(matrix) == pytest.approx(expected_locality, abs=5e-4)
    assert symmetry(matrix) == pytest.approx(expected_symmetry, abs=1e-12, nan_ok=True)


def test_attention_to_the_first_token_is_no_preference_for_far_offsets() -> None:
    n = 16
    matrix = np.full((n, n), 0.2 / n)
    matrix[:, 0] += 0.7
    matrix += 0.1 * (np.eye(n, k=-1) + np.eye(n)[:1].T @ np.eye(n)[:1])
    sums = sum_attention(matrix[None, None], Sequence(n))
    layer = attention_by_offset({0: sums}, layout=Sequence(n)).layers[0]
    assert layer.peak.tolist() == [[-1]]
    assert layer.first[0] == pytest.approx(matrix[1:, 0].mean())
    assert np.isnan(layer.curves[0, 0])
    np.testing.assert_allclose(layer.curves[0, 1 : n - 2], 0.2 / n)


def test_peaks_are_measured_against_uniform_causal_attention() -> None:
    n = 32
    uniform = np.tri(n) / np.arange(1, n + 1)[:, None]
    # The excess for the third token back is far below what uniform attention pays to oneself.
    shifted = 0.97 * uniform + 0.03 * (np.eye(n, k=-3) + np.eye(n) * (np.arange(n) < 3))
    sums = sum_attention(shifted[None, None], Sequence(n))
    attention = attention_by_offset({0: sums}, layout=Sequence(n))
    assert attention.causal
    assert attention.layers[0].peak.tolist() == [[-3]]


def indifferent_attention() -> dict[str, Any]:
    n = 16
    past = np.tri(n) / np.arange(1, n + 1)[:, None]
    first_only = np.zeros((n, n))
    first_only[:, 0] = 1
    special = np.full((n + 1, n + 1), 0.1 / n)
    special[:, 0] = 0.9
    return {
        "even": (np.full((n, n), 1 / n), Sequence(n)),
        "even of what came before": (past, Sequence(n)),
        "even, in half precision": (torch.from_numpy(past).bfloat16(), Sequence(n)),
        "even on a grid": (np.full((n, n), 1 / n), Grid(4, 4)),
        "the first position": (first_only, Sequence(n)),
        "a special token": (special, Grid(4, 4)),
        "a single position": (np.ones((1, 1)), Sequence(1)),
    }


@pytest.mark.parametrize("name", indifferent_attention())
def test_a_head_that_looks_at_no_offset_more_than_evenly_prefers_none(name: str) -> None:
    matrix, layout = indifferent_attention()[name]
    sums = {0: sum_attention(matrix[None, None], layout)}
    sums = {0: sums[0] + sums[0]}
    block = as_block(attention_by_offset(sums, layout=layout))
    (layer,) = block["layers"]
    assert (layer["peak"], layer["peak_name"], layer["without_peak"]) == (
        [None],
        [NO_PEAK],
        1,
    )
    assert "peak" in block["undefined"]


def test_repeated_tokens_without_positions_get_uniform_attention() -> None:
    model = bert()
    config = model.config
    words = list(repeated_tokens(config, LENGTH, 12, batch_size=5))
    assert [len(batch) for batch in words] == [5, 5, 2]
    all_words = np.concatenate(words)
    assert (all_words == all_words[:, :1]).all()
    assert len(set(all_words[:, 0].tolist())) == 12
    model.embeddings.position_embeddings.weight.data.zero_()
    layer = attend(model, words).layers[0]
    # Without positions all words look alike: attention is uniform.
    np.testing.assert_allclose(layer.curves[:, 1:], 1 / LENGTH, atol=1e-6)
    assert layer.locality == pytest.approx(
        locality(np.full((LENGTH, LENGTH), 1 / LENGTH))
    )


def test_attention_by_offset_alone_is_translation_invariant() -> None:
    offsets = np.subtract.outer(np.arange(12), np.arange(12))
    toeplitz = np.exp(-((offsets + 2) ** 2) / 8)
    noise = np.random.default_rng(0).random((12, 12))
    for matrix, expected in ((toeplitz, 1.0), (np.tril(toeplitz), 1.0)):
        sums = sum_attention(matrix[None, None], Sequence(len(matrix)))
        layer = attention_by_offset({0: sums}, layout=Sequence(12)).layers[0]
        assert layer.translation_invariance == pytest.approx(expected)
    sums = sum_attention(noise[None, None], Sequence(len(noise)))
    layer = attention_by_offset({0: sums}, layout=Sequence(12)).layers[0]
    assert layer.translation_invariance is not None
    assert layer.translation_invariance < 0.5


def test_a_bias_of_positions_is_not_taken_for_attention() -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=40, d_model=12, d_kv=4, d_ff=8, num_layers=2, num_heads=3
    )
    model: Any = transformers.T5EncoderModel(config).train(mode=False).encoder
    for block in model.block:
        block.layer[0].SelfAttention.q.weight.data.normal_()
    contexts = tokens(5)
    expected = attentions(model, contexts)
    attention = attend(model, in_batches(contexts, 2))
    assert list(attention.layers) == [0, 1]
    for number, layer in attention.layers.items():
        first_attention = expected[number].mean(axis=0)[:, 1:, 0].mean(axis=1)
        np.testing.assert_allclose(layer.first, first_attention, atol=1e-6)


def test_layers_without_attention_keep_their_numbers() -> None:
    torch.manual_seed(0)
    config = transformers.JambaConfig(
        vocab_size=40, hidden_size=12, intermediate_size=16, num_hidden_layers=4,
        num_attention_heads=3, num_key_value_heads=3, attn_layer_period=2, attn_layer_offset=1,
        num_experts=1, mamba_d_state=4, mamba_dt_rank=4, use_mamba_kernels=False, pad_token_id=0,
    )  # fmt: skip
    model: Any = transformers.JambaModel(config).train(mode=False)
    assert list(attend(model, [tokens(3)]).layers) == [1, 3]
    with pytest.raises(UsageError, match="those that do are 1, 3"):
        attend(model, [tokens(3)], layers=[0])


def test_models_that_show_no_attention_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match="neither a model of transformers"):
        attend(torch.nn.Linear(4, 4), [tokens(2)])


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_a_head_of_minilm_s_first_layer_attends_to_the_previous_token() -> None:
    rng = np.random.default_rng(1)
    model = load_model(str(minilm()), device="cpu")
    layer = attend(model, [rng.integers(*WORDS, (16, 64))]).layers[0]
    # Whatever the words are: column 62 is the offset -1.
    head = int(np.argmax(layer.curves[:, 62]))
    assert layer.peak[head].tolist() == [-1]
    assert layer.curves[head, 62] > 0.7


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
