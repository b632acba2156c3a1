"""What positions add to the hidden states of running models."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_models import (
    LENGTH,
    VOCABULARY,
    WIDTH,
    WORDS,
    bert,
    gpt2,
    in_batches,
    minilm,
    pixels,
    states,
    timm_vit,
    tokens,
    vit,
)

import posprobe as pp
from posprobe.analyses.models.states import build_decomposition, sum_moments
from posprobe.analyses.result import as_block
from posprobe.errors import UsageError
from posprobe.forward import decompose, load_model
from posprobe.forward.running import find_hook_points
from posprobe.layouts import Grid, Layout, Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray


def plainly(hidden: NDArray[np.float64]) -> dict[str, Any]:
    """Song & Zhong's decomposition of ``[contexts, t, d]`` in two passes, as their paper has it."""
    count, length, width = hidden.shape
    mean = hidden.mean(axis=(0, 1))
    pos = hidden.mean(axis=0) - mean
    ctx = hidden.mean(axis=1) - mean
    residual = hidden - mean - pos - ctx[:, None]
    all_states = hidden.reshape(-1, width)
    tiled = np.concatenate([pos] * count)
    singular = np.linalg.svd(pos, compute_uv=False)
    parts = {"position": pos, "context": ctx, "rest": residual}
    repeats = {"position": count, "context": length, "rest": 1}
    total = ((hidden - mean) ** 2).sum()
    context_deviations = hidden - hidden.mean(axis=1, keepdims=True)
    return {
        "mean": mean,
        "pos": pos,
        "error": context_deviations.std(axis=0, ddof=1) / np.sqrt(count),
        "stable_rank": (singular**2).sum() / singular[0] ** 2,
        "relative_norm": np.linalg.norm(tiled, 2)
        / np.linalg.norm(all_states - all_states.mean(0), 2),
        "shares": {k: repeats[k] * (part**2).sum() / total for k, part in parts.items()},
    }


def assert_layer(layer: Any, expected: dict[str, Any]) -> None:
    for name in ("mean", "pos", "error"):
        np.testing.assert_allclose(
            getattr(layer, name), expected[name], rtol=1e-6, atol=1e-9, err_msg=name
        )
    for name in ("stable_rank", "relative_norm"):
        assert getattr(layer, name) == pytest.approx(expected[name], rel=1e-6), name
    assert layer.shares == pytest.approx(expected["shares"], rel=1e-6, abs=1e-9)


def albert() -> Any:
    config = transformers.AlbertConfig(
        hidden_size=WIDTH, embedding_size=6, num_hidden_layers=3, num_attention_heads=3,
        intermediate_size=16, vocab_size=VOCABULARY, max_position_embeddings=LENGTH,
        initializer_range=0.5,
    )  # fmt: skip
    return transformers.AlbertModel(config).train(mode=False)


def squeezebert() -> Any:
    """Its states are transposed from layer to layer, so that no module returns them."""
    config = transformers.SqueezeBertConfig(
        hidden_size=WIDTH, embedding_size=WIDTH, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=16, vocab_size=VOCABULARY, max_position_embeddings=LENGTH,
        initializer_range=0.5, q_groups=1, k_groups=1, v_groups=1, post_attention_groups=1,
        intermediate_groups=1, output_groups=1,
    )  # fmt: skip
    return transformers.SqueezeBertModel(config).train(mode=False)


@pytest.mark.parametrize("build", [gpt2, bert, albert, squeezebert, vit, timm_vit])
def test_streamed_sums_are_the_plain_decomposition_of_all_states(
    build: Any, device: str
) -> None:
    model = build().double().to(device)
    images = build in (vit, timm_vit)
    contexts = pixels(11).astype(np.float64) if images else tokens(23)
    decomposition = decompose(model, in_batches(contexts, 5))
    layout: Layout = Grid(2, 3) if images else Sequence(LENGTH)
    assert (decomposition.contexts, decomposition.layout, decomposition.start) == (
        len(contexts),
        layout,
        0,
    )
    hidden = states(model, contexts)
    assert list(decomposition.layers) == list(range(len(hidden)))
    for number, layer in decomposition.layers.items():
        assert_layer(layer, plainly(hidden[number][:, 1 if images else 0 :]))
    # States are seen where they appear, and not kept until the end of a batch.
    with torch.no_grad():
        points = find_hook_points(
            model, torch.as_tensor(contexts[:1], device=device), "hidden_states"
        )
    assert (points == []) == (build is squeezebert)


class _InPlace(torch.nn.Module):
    """A model that writes positions into what its embedding returned."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace()
        self.words = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.rows = torch.nn.Embedding(LENGTH, WIDTH)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids: torch.Tensor, **_: object) -> SimpleNamespace:
        state = self.words(input_ids)
        state += self.rows(torch.arange(input_ids.shape[1]))
        output = self.layer(state)
        return SimpleNamespace(hidden_states=(state, output), last_hidden_state=output)


class _Packed(_InPlace):
    """A model that puts all contexts of a batch into one sequence."""

    def forward(self, input_ids: torch.Tensor, **_: object) -> SimpleNamespace:
        state = self.words(input_ids).reshape(1, -1, WIDTH)
        return SimpleNamespace(hidden_states=(state, state), last_hidden_state=state)


def test_contexts_that_share_a_sequence_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match="it packs"):
        decompose(_Packed(), [tokens(4)])


def test_states_changed_in_place_are_read_at_the_end() -> None:
    torch.manual_seed(0)
    model, contexts = _InPlace().double(), tokens(7)
    decomposition = decompose(model, in_batches(contexts, 3))
    with torch.no_grad():
        expected = model(torch.from_numpy(contexts)).hidden_states
    for number, hidden in enumerate(expected):
        assert_layer(decomposition.layers[number], plainly(hidden.numpy()))


def test_products_are_of_the_first_contexts_however_they_are_grouped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("posprobe.analyses.models.states.MAX_PRODUCT_STATES", 5 * LENGTH)
    model, contexts = gpt2().double(), tokens(23)
    all_products, leading_products = (
        states(model, contexts)[1],
        states(model, contexts[:5])[1],
    )
    expected = plainly(all_products)
    flat = leading_products.reshape(-1, WIDTH)
    largest = np.linalg.norm(flat - flat.mean(axis=0), 2) / np.sqrt(5)
    for size in (1, 4, 23):
        layer = decompose(model, in_batches(contexts, size)).layers[1]
        assert layer.shares == pytest.approx(expected["shares"], rel=1e-9)
        spectral = np.linalg.norm(expected["pos"], 2)
        assert layer.relative_norm == pytest.approx(spectral / largest, rel=1e-9)


@pytest.mark.parametrize("width", [20, 300])
def test_the_largest_eigenvalue_is_that_of_the_whole_matrix(width: int) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(40, 12, width)) * np.linspace(1, 3, width)
    decomposition = build_decomposition(
        {0: sum_moments(hidden)}, layout=Sequence(12)
    ).layers[0]
    assert_layer(decomposition, plainly(hidden))


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_the_noise_share_equals_that_of_chance(scale: float) -> None:
    rng = np.random.default_rng(0)
    wave = scale * np.sin(np.arange(32))[:, None] * rng.normal(size=20)
    hidden = wave + rng.normal(size=(50, 32, 20))
    layer = build_decomposition({0: sum_moments(hidden)}, layout=Sequence(32)).layers[0]
    assert layer.noise_share is not None
    # Means of 50 numbers of variance 1, 20 of them at 32 positions of which the mean is taken out.
    noise = 20 * 31 / 50
    assert layer.noise_share == pytest.approx(
        min(1, noise / (layer.pos**2).sum()), rel=0.05
    )
    assert (layer.noise_share > 0.9) == (scale == 0)


@pytest.mark.parametrize("planted", [0, 1, 3])
@pytest.mark.parametrize("uneven", [False, True])
def test_the_rank_counts_directions_that_stand_out_of_the_noise(
    planted: int, uneven: bool
) -> None:
    rng = np.random.default_rng(planted)
    mixing = rng.normal(size=(20, 20)) * (np.geomspace(5, 0.1, 20) if uneven else 1)
    signal = 5 * rng.normal(size=(32, planted)) @ rng.normal(size=(planted, 20))
    hidden = signal + rng.normal(size=(200, 32, 20)) @ mixing
    layer = build_decomposition({0: sum_moments(hidden)}, layout=Sequence(32)).layers[0]
    assert layer.rank == planted


def test_correlated_noise_adds_no_rank() -> None:
    rng = np.random.default_rng(0)
    ranks = []
    for _ in range(20):
        hidden = rng.normal(size=(64, 64, 48))
        for t in range(1, 64):
            hidden[:, t] = 0.8 * hidden[:, t - 1] + 0.6 * hidden[:, t]
        layer = build_decomposition({0: sum_moments(hidden)}, layout=Sequence(64)).layers[
            0
        ]
        ranks.append(layer.rank)
    assert max(filter(None, ranks), default=0) <= 1
    assert sum(map(bool, ranks)) <= 3


@pytest.mark.parametrize("count", [2, 3, 8])
def test_equal_contexts_have_the_rank_of_positions(count: int) -> None:
    rng = np.random.default_rng(0)
    context = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 300))
    hidden = np.repeat(context[None], count, axis=0)
    assert (
        build_decomposition({0: sum_moments(hidden)}, layout=Sequence(40)).layers[0].rank
        == 2
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_added_up_in_float32(dtype: str, device: str) -> None:
    model = gpt2().to(device)
    wide = decompose(model, [tokens(30)])
    half = decompose(model.to(getattr(torch, dtype)), [tokens(30)])
    close = {"float16": 4e-3, "bfloat16": 4e-2}[dtype]
    for number, layer in wide.layers.items():
        error = np.linalg.norm(half.layers[number].pos - layer.pos)
        assert error < close * np.linalg.norm(layer.pos)


def test_positions_can_be_chosen_as_song_and_zhong_do() -> None:
    model, contexts = gpt2().double(), tokens(12)
    decomposition = decompose(model, [contexts], positions=slice(1, LENGTH))
    assert (decomposition.start, decomposition.layout) == (1, Sequence(LENGTH - 1))
    assert_layer(decomposition.layers[1], plainly(states(model, contexts)[1][:, 1:]))


def test_a_large_common_mean_costs_no_digits() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(30, 6, 5)) + 1e6 * np.array([1, 0, -1, 0, 3])
    leading_moments = sum_moments(hidden[:7])
    sums = {0: leading_moments + sum_moments(hidden[7:], leading_moments)}
    decomposition = build_decomposition(sums, layout=Sequence(6))
    assert_layer(decomposition.layers[0], plainly(hidden))


def test_dropout_is_off_and_a_model_is_left_as_it_was_found() -> None:
    model = bert(hidden_dropout_prob=0.5)
    decomposed = decompose(model, [tokens(3)])
    model.train()
    model.encoder.layer[0].eval()
    repeated = decompose(model, [tokens(3)])
    assert [part.training for part in (model, *model.encoder.layer)] == [
        True,
        False,
        True,
    ]
    np.testing.assert_array_equal(decomposed.layers[2].pos, repeated.layers[2].pos)


def test_positions_at_a_layer_are_a_table_that_the_analyses_take() -> None:
    decomposition = decompose(gpt2(), [tokens(10)], positions=slice(1, None))
    table = decomposition.table(1)
    assert table.rows == (1, LENGTH)
    assert pp.pca(table).stable_rank == pytest.approx(decomposition.layers[1].stable_rank)
    assert pp.similarity(table).raw.minimum is not None
    with pytest.raises(UsageError, match="0, 1, 2"):
        decomposition.table(3)


def test_numbers_that_are_not_defined_are_none_with_a_reason() -> None:
    equal_moments = sum_moments(np.ones((3, 4, 5)))
    decomposition = build_decomposition({0: equal_moments}, layout=Sequence(4))
    summary = as_block(decomposition)
    assert summary["layers"][0]["relative_norm"] is None
    assert set(summary["undefined"]) == {
        "noise_share",
        "rank",
        "relative_norm",
        "stable_rank",
    }
    json.dumps(summary, allow_nan=False)
    assert np.isnan(
        build_decomposition({0: sum_moments(np.ones((1, 4, 5)))}, layout=Sequence(4))
        .layers[0]
        .error
    ).all()


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_layer_0_of_minilm_is_predicted_by_its_table_within_sampling_error() -> None:
    words = slice(WORDS[0], WORDS[0] + 2000)
    contexts = np.random.default_rng(0).integers(words.start, words.stop, (64, 16))
    model: Any = load_model(str(minilm()), device="cpu")
    layer = decompose(model, in_batches(contexts, 8), layers=[0]).layers[0]
    parts = model.double().embeddings
    with torch.no_grad():
        rows = parts.word_embeddings.weight[words]
        base = (
            parts.token_type_embeddings.weight[0] + parts.position_embeddings.weight[:16]
        )
        # The expectation over words, for each position, of LayerNorm(word + position + type).
        expected = torch.stack(
            [parts.LayerNorm(rows + words).mean(dim=0) for words in base]
        ).numpy()
    deviations = (layer.pos - (expected - expected.mean(axis=0))) / layer.error
    # Standard scores of 16 x 384 numbers: their spread is 1 and few lie beyond 5.
    assert np.sqrt((deviations**2).mean()) == pytest.approx(1, abs=0.05)
    assert np.abs(deviations).max() < 6
