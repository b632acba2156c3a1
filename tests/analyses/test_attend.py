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
    attention_by_offset,
    attention_sums,
    locality,
    symmetry,
)
from posprobe.analyses.models.head_logits import NO_PEAK, head_logits
from posprobe.analyses.result import as_block
from posprobe.errors import UsageError
from posprobe.families.layers import load_heads
from posprobe.forward import attend, load_model, repeated_tokens
from posprobe.layouts import Grid, Sequence


@pytest.mark.parametrize("build", [gpt2, bert])
def test_measured_attention_is_the_mean_of_the_library_s_own(build: Any, device: str) -> None:
    model, contexts = build().to(device), tokens(11)
    expected = attentions(model, contexts)
    before = hooks_of(model)
    found = attend(model, in_batches(contexts, 4))
    assert model.config._attn_implementation == "sdpa"
    assert hooks_of(model) == before
    assert (list(found.layers), found.contexts) == ([0, 1], 11)
    for number, layer in found.layers.items():
        mean = expected[number].mean(axis=0)
        for head, matrix in enumerate(mean):
            # Without the first token as a key.
            later = matrix.copy()
            later[:, 0] = np.nan
            diagonals = [np.nanmean(np.diagonal(later, o)) for o in range(2 - LENGTH, LENGTH)]
            assert np.isnan(layer.curves[head, 0])
            np.testing.assert_allclose(layer.curves[head, 1:], diagonals, atol=1e-7)
            assert layer.first[head] == pytest.approx(matrix[1:, 0].mean(), abs=1e-7)
        each = expected[number]
        np.testing.assert_allclose(layer.locality, locality(each).mean(axis=0), atol=1e-7)
        np.testing.assert_allclose(layer.symmetry, symmetry(each).mean(axis=0), atol=1e-7)
        if build is gpt2:
            assert (layer.curves[:, LENGTH:] == 0).all()
            np.testing.assert_allclose(layer.symmetry, 0, atol=1e-12)
    json.dumps(as_block(found), allow_nan=False)


@pytest.mark.parametrize("build", [vit, timm_vit])
def test_attention_between_patches_is_measured_by_displacement(build: Any, device: str) -> None:
    model, contexts = build().to(device), pixels(5)
    found = attend(model, in_batches(contexts, 2))
    assert found.layout == Grid(2, 3)
    assert {layer.curves.shape for layer in found.layers.values()} == {(3, 3, 5)}
    assert json.loads(json.dumps(as_block(found), allow_nan=False))["contexts"] == 5
    if build is vit:
        patches = attentions(model, contexts)[:, :, :, 1:, 1:].mean(axis=1)
        # What is paid to CLS is counted apart.
        cls = attentions(model, contexts)[:, :, :, 1:, 0].mean(axis=(1, 3))
        for number, layer in found.layers.items():
            np.testing.assert_allclose(layer.special, cls[number], atol=1e-6)
        # Three pairs of patches are above each other.
        below = np.stack([patches[:, :, i, i + 3] for i in range(3)]).mean(axis=0)
        for number, layer in found.layers.items():
            np.testing.assert_allclose(layer.curves[:, 2, 2], below[number], atol=1e-6)
    else:
        assert all(block.attn.fused_attn for block in model.blocks)


MATRICES = {
    "uniform": (np.full((20, 20), 1 / 20), 0.140, 1.0),
    "itself": (np.eye(20), 1.0, math.nan),
    "previous": (np.eye(20, k=-1) + np.eye(20)[:1].T @ np.eye(20)[:1], 0.525, 0.0),
}
_near = np.exp(-np.abs(np.subtract.outer(np.arange(20), np.arange(20))) / 2)
MATRICES["near"] = (_near / _near.sum(1, keepdims=True), 0.494, 1.0)
_past = np.tril(_near)
MATRICES["near and past"] = (_past / _past.sum(1, keepdims=True), 0.616, 0.0)


@pytest.mark.parametrize("name", MATRICES)
def test_locality_and_symmetry_of_plain_matrices(name: str) -> None:
    matrix, near, even = MATRICES[name]
    # Locality as Chen et al. have it; symmetry without their scaling of each row.
    assert locality(matrix) == pytest.approx(near, abs=5e-4)
    assert symmetry(matrix) == pytest.approx(even, abs=1e-12, nan_ok=True)


def test_what_all_pay_to_the_first_token_is_no_preference_for_far_offsets() -> None:
    n = 16
    matrix = np.full((n, n), 0.2 / n)
    matrix[:, 0] += 0.7
    matrix += 0.1 * (np.eye(n, k=-1) + np.eye(n)[:1].T @ np.eye(n)[:1])
    sums = attention_sums(matrix[None, None], Sequence(n))
    found = attention_by_offset({0: sums}, layout=Sequence(n)).layers[0]
    assert found.peak.tolist() == [[-1]]
    assert found.first[0] == pytest.approx(matrix[1:, 0].mean())
    assert np.isnan(found.curves[0, 0])
    np.testing.assert_allclose(found.curves[0, 1 : n - 2], 0.2 / n)


def test_uniform_causal_attention_is_what_a_preference_is_measured_against() -> None:
    n = 32
    uniform = np.tri(n) / np.arange(1, n + 1)[:, None]
    # A little more to the token three before, far less than uniform attention pays to the same.
    shifted = 0.97 * uniform + 0.03 * (np.eye(n, k=-3) + np.eye(n) * (np.arange(n) < 3))
    sums = attention_sums(shifted[None, None], Sequence(n))
    found = attention_by_offset({0: sums}, layout=Sequence(n))
    assert found.causal
    assert found.layers[0].peak.tolist() == [[-3]]


def kinds_of_indifference() -> dict[str, Any]:
    n = 16
    past = np.tri(n) / np.arange(1, n + 1)[:, None]
    first = np.zeros((n, n))
    first[:, 0] = 1
    special = np.full((n + 1, n + 1), 0.1 / n)
    special[:, 0] = 0.9
    return {
        "even": (np.full((n, n), 1 / n), Sequence(n)),
        "even of what came before": (past, Sequence(n)),
        "even, in half precision": (torch.from_numpy(past).bfloat16(), Sequence(n)),
        "even on a grid": (np.full((n, n), 1 / n), Grid(4, 4)),
        "the first position": (first, Sequence(n)),
        "a special token": (special, Grid(4, 4)),
        "a single position": (np.ones((1, 1)), Sequence(1)),
    }


@pytest.mark.parametrize("kind", kinds_of_indifference())
def test_a_head_that_looks_at_no_offset_more_than_evenly_prefers_none(kind: str) -> None:
    matrix, layout = kinds_of_indifference()[kind]
    sums = {0: attention_sums(matrix[None, None], layout)}
    sums = {0: sums[0] + sums[0]}
    block = as_block(attention_by_offset(sums, layout=layout))
    (layer,) = block["layers"]
    assert (layer["peak"], layer["peak_name"], layer["without_peak"]) == ([None], [NO_PEAK], 1)
    assert "peak" in block["undefined"]


def test_a_repeated_word_leaves_the_first_layer_nothing_but_positions() -> None:
    model = bert()
    config = model.config
    words = list(repeated_tokens(config, LENGTH, 12, batch_size=5))
    assert [len(batch) for batch in words] == [5, 5, 2]
    every = np.concatenate(words)
    assert (every == every[:, :1]).all()
    assert len(set(every[:, 0].tolist())) == 12
    model.embeddings.position_embeddings.weight.data.zero_()
    found = attend(model, words).layers[0]
    # Without positions all words look alike: attention is uniform.
    np.testing.assert_allclose(found.curves[:, 1:], 1 / LENGTH, atol=1e-6)
    assert found.locality == pytest.approx(locality(np.full((LENGTH, LENGTH), 1 / LENGTH)))


def test_attention_that_depends_on_the_offset_alone_is_translation_invariant() -> None:
    offsets = np.subtract.outer(np.arange(12), np.arange(12))
    toeplitz = np.exp(-((offsets + 2) ** 2) / 8)
    noise = np.random.default_rng(0).random((12, 12))
    for matrix, expected in ((toeplitz, 1.0), (np.tril(toeplitz), 1.0)):
        sums = attention_sums(matrix[None, None], Sequence(len(matrix)))
        found = attention_by_offset({0: sums}, layout=Sequence(12)).layers[0]
        assert found.translation_invariance == pytest.approx(expected)
    sums = attention_sums(noise[None, None], Sequence(len(noise)))
    found = attention_by_offset({0: sums}, layout=Sequence(12)).layers[0]
    assert found.translation_invariance is not None
    assert found.translation_invariance < 0.5


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
    found = attend(model, in_batches(contexts, 2))
    assert list(found.layers) == [0, 1]
    for number, layer in found.layers.items():
        first = expected[number].mean(axis=0)[:, 1:, 0].mean(axis=1)
        np.testing.assert_allclose(layer.first, first, atol=1e-6)


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
def test_what_weights_say_of_the_first_layer_of_minilm_is_seen_when_it_runs() -> None:
    loaded = load_heads(str(minilm()), rows=slice(0, 64))
    said = head_logits(
        loaded.table, loaded.w_q, loaded.w_k, loaded.b_q, loaded.b_k, heads=loaded.heads
    )
    rng = np.random.default_rng(1)
    model = load_model(str(minilm()), device="cpu")
    seen = attend(model, [rng.integers(*WORDS, (16, 64))]).layers[0]
    # One head looks back by one whatever the words are.
    head = int(np.argmax(said.attention))
    assert said.peak[head].tolist() == seen.peak[head].tolist() == [-1]
    assert said.attention[head] > 0.7
    assert seen.curves[head, 62] > 0.7
    assert int(np.argmax(seen.curves[:, 62])) == head
