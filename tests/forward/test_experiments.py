"""Experiments on running models: permuted tokens, shifted positions, images without content."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from made_models import (
    LENGTH,
    VOCABULARY,
    WIDTH,
    bert,
    digits,
    gpt2,
    in_batches,
    language_model,
    pixels,
    states,
    timm_vit,
    tokens,
    vit,
)

from posprobe.analyses.result import as_block
from posprobe.errors import UsageError
from posprobe.forward import blank_images, load_model, permutation_effect, phase_shift
from posprobe.forward.contexts import context_length
from posprobe.forward.experiments import _draw_permutation
from posprobe.layouts import Grid


def test_without_positions_a_vit_is_blind_to_scrambling() -> None:
    images, labels = digits()
    model = load_model("sample:digits-vit", device="cpu", head=True)
    saved_table = model.get_parameter("vit.embeddings.position_embeddings").clone()
    effect = permutation_effect(model, list(in_batches(images, 100)), labels=labels)
    assert effect.contexts == 400
    assert effect.table == "vit.embeddings.position_embeddings"
    blind_loss, seeing_loss = effect.without_positions, effect.with_positions
    assert blind_loss.special is not None
    assert seeing_loss.special is not None
    assert blind_loss.special < 1e-5
    assert blind_loss.tokens < 1e-5
    assert blind_loss.accuracy == blind_loss.scrambled_accuracy
    assert seeing_loss.special > 0.1
    assert seeing_loss.accuracy is not None
    assert seeing_loss.scrambled_accuracy is not None
    assert seeing_loss.accuracy > 0.95
    assert seeing_loss.scrambled_accuracy < 0.5
    assert torch.equal(
        saved_table, model.get_parameter("vit.embeddings.position_embeddings")
    )


@pytest.mark.parametrize(("build", "knows"), [(bert, False), (gpt2, True)])
def test_without_positions_a_causal_mask_alone_knows_the_order(
    build: Any, knows: bool
) -> None:
    effect = permutation_effect(build().double(), [tokens(6)])
    assert effect.with_positions.tokens > 0.1
    assert (effect.without_positions.tokens > 0.05) == knows
    if not knows:
        assert (
            effect.without_positions.tokens < 1e-6
        )  # attention's softmax may be float32
    assert effect.with_positions.special is None


def test_permutations_do_not_depend_on_how_contexts_are_grouped(device: str) -> None:
    model, contexts = timm_vit().double().to(device), pixels(6).astype(np.float64)
    a, b = (
        permutation_effect(model, list(in_batches(contexts, size)), seed=2)
        for size in (2, 6)
    )
    assert a.with_positions.tokens == pytest.approx(b.with_positions.tokens, rel=1e-9)
    assert a.without_positions.tokens < 1e-9


def test_every_permutation_moves_something_and_all_of_these_are_drawn() -> None:
    orders = [tuple(_draw_permutation([0, k], 3).tolist()) for k in range(1000)]
    counts = Counter(orders)
    assert set(counts) == set(permutations(range(3))) - {(0, 1, 2)}
    # Each has 200, with a standard deviation of 13.
    assert all(150 < count < 250 for count in counts.values())
    assert _draw_permutation([0, 0], 1).tolist() == [0]


# Phase shift.


def test_a_shift_is_a_table_whose_rows_are_moved(device: str) -> None:
    model, contexts = language_model("gpt2").double().to(device), tokens(7)
    effect = phase_shift(model, in_batches(contexts, 3), shifts=[4, 20])
    assert effect.shifts.tolist() == [0, 4, 20]
    assert effect.change[0] == 0
    assert effect.task == "next token"
    assert effect.loss is not None
    table = model.transformer.wpe.weight.data
    full_table = table.clone()
    batch = torch.from_numpy(contexts).to(device)
    expected = []
    with torch.no_grad():
        for shift in (0, 4, 20):
            table[:LENGTH] = full_table[shift : shift + LENGTH]
            expected.append(
                (float(model(batch, labels=batch).loss), model.transformer(batch)[0])
            )
    unshifted = expected[0][1]
    for number, (loss, state) in enumerate(expected):
        assert effect.loss[number] == pytest.approx(
            loss, rel=1e-6
        )  # its softmax is float32
        assert effect.change[number] == pytest.approx(
            float((state - unshifted).norm() / unshifted.norm()), rel=1e-9
        )


def test_a_model_that_knows_distances_alone_does_not_mind_a_shift(device: str) -> None:
    effect = phase_shift(language_model("llama").double().to(device), [tokens(4)])
    assert effect.shifts[-1] == 4 * LENGTH
    # The rotation's own angles are float32.
    assert effect.change.max() < 1e-5
    assert effect.loss is not None
    assert np.ptp(effect.loss) < 1e-5


def test_masked_tokens_are_the_same_however_contexts_are_grouped() -> None:
    model, contexts = language_model("roberta").double(), tokens(8)
    contexts = np.where(contexts < 6, 6, contexts)
    a, b = (
        phase_shift(model, in_batches(contexts, size), mask_token=5, seed=3)
        for size in (1, 8)
    )
    assert a.task == "masked token"
    assert a.loss is not None
    assert b.loss is not None
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-9)
    np.testing.assert_allclose(a.change, b.change, rtol=1e-9)
    body = phase_shift(model.base_model, [contexts], shifts=[1])
    assert (body.task, body.loss) == ("", None)
    unmasked = phase_shift(model, [contexts], shifts=[1])
    assert (unmasked.task, unmasked.loss) == ("masked token", None)
    assert "which token masks" in as_block(unmasked)["undefined"]["loss"]


def test_a_head_that_sees_its_target_has_no_loss() -> None:
    torch.manual_seed(0)
    config = transformers.XLMConfig(
        vocab_size=VOCABULARY,
        emb_dim=WIDTH,
        n_layers=1,
        n_heads=3,
        max_position_embeddings=20,
    )
    model: Any = transformers.XLMWithLMHeadModel(config).train(mode=False)
    contexts = np.where(tokens(3) < 6, 6, tokens(3))
    effect = phase_shift(model, [contexts])
    assert (effect.task, effect.loss) == ("", None)


def test_a_decoder_of_speech_ends_where_its_positions_end() -> None:
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, decoder_layers=1, decoder_attention_heads=3,
        decoder_ffn_dim=16, max_target_positions=20, pad_token_id=0,
    )  # fmt: skip
    model: Any = transformers.WhisperModel(config).train(mode=False).get_decoder()
    assert phase_shift(model, [tokens(2)]).shifts[-1] == 20 - LENGTH


@pytest.mark.parametrize(
    "kind", ["data2vec-text", "xlm-roberta-xl", "roberta-prelayernorm"]
)
def test_positions_that_count_on_from_padding_are_found_in_the_table(kind: str) -> None:
    torch.manual_seed(0)
    config: Any = transformers.AutoConfig.for_model(
        kind, vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=3,
        intermediate_size=16, max_position_embeddings=20, initializer_range=0.5,
    )  # fmt: skip
    build: Any = transformers.AutoModel.from_config
    model = build(config).train(mode=False).double()
    contexts = np.where(tokens(3) < 3, 3, tokens(3))
    assert context_length(model) == 18
    effect = phase_shift(model, [contexts], shifts=[1])
    with torch.no_grad():
        ids = torch.from_numpy(contexts)
        plain = model(ids).last_hidden_state
        shifted = model(
            ids, position_ids=torch.arange(3, 3 + LENGTH).expand(3, -1)
        ).last_hidden_state
    assert effect.change[1] == pytest.approx(
        float((shifted - plain).norm() / plain.norm()), rel=1e-9
    )
    with pytest.raises(UsageError, match="longer than the 18 positions"):
        phase_shift(model, [np.full((1, 19), 5)])


# Images without content.


@pytest.mark.parametrize("build", [vit, timm_vit])
def test_patterns_of_every_layer_are_those_of_the_library_s_own_states(
    build: Any, device: str
) -> None:
    model = build().double().to(device)
    patterns = blank_images(model, seed=1)
    assert patterns.layout == Grid(2, 3)
    assert list(patterns.constant) == list(patterns.noise) == [0, 1, 2]
    # Patches of a constant image differ by their rows alone.
    assert patterns.constant[0].alignment == pytest.approx(1)
    assert patterns.constant[0].cka == pytest.approx(1)
    image = np.random.default_rng(1).standard_normal((3, 14, 21))
    table = model.get_parameter(patterns.table)[0, 1:].numpy(force=True)
    rows = table - table.mean(axis=0)
    hidden = states(model, np.stack([np.zeros_like(image), image]))[:, :, 1:]
    for number, image_pair in enumerate(hidden):
        for patches, pattern in zip(
            image_pair, (patterns.constant[number], patterns.noise[number]), strict=True
        ):
            deviations = patches - patches.mean(axis=0)
            cosines = [
                a @ r / np.sqrt(a @ a * (r @ r))
                for a, r in zip(deviations, rows, strict=True)
            ]
            assert pattern.alignment == pytest.approx(np.mean(cosines))
            assert pattern.share == pytest.approx(
                1 - 6 * np.sum(patches.mean(axis=0) ** 2) / np.sum(patches**2)
            )
            np.testing.assert_allclose(
                pattern.norms.ravel(), np.sqrt((deviations**2).sum(axis=1))
            )
    json.dumps(as_block(patterns), allow_nan=False)


def test_without_positions_a_constant_image_is_constant() -> None:
    model = vit().double()
    model.embeddings.position_embeddings.data.zero_()
    model.embeddings.patch_embeddings.projection.bias.data.normal_()
    effect = blank_images(model)
    for pattern in effect.constant.values():
        assert pattern.share == pytest.approx(0, abs=1e-12)
        assert pattern.alignment is None
    assert as_block(effect)["undefined"]
    # What noise shows then is content, not the table.
    assert effect.noise[2].share is not None
    assert effect.noise[2].share > 0.01


# What cannot be asked.


class _Numbered(torch.nn.Module):
    """A model that adds one to the positions that it numbers itself, and not to those given."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(vocab_size=VOCABULARY, max_position_embeddings=20)
        self.words = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.position_embeddings = torch.nn.Embedding(21, WIDTH)

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> SimpleNamespace:
        if position_ids is None:
            position_ids = torch.arange(1, 1 + input_ids.shape[1])
        state = self.words(input_ids) + self.position_embeddings(position_ids)
        return SimpleNamespace(last_hidden_state=state, hidden_states=(state,))


def with_labels(count: int, *, head: bool = True) -> object:
    images, labels = digits()
    model = load_model("sample:digits-vit", device="cpu", head=head)
    return permutation_effect(model, [images[:4]], labels=labels[:count])


NO_CHANGE_MESSAGE = r"permuting changes nothing\. Use longer contexts"
#: What is asked, and what is said.
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: permutation_effect(bert(), [np.full((3, 5), 7)]), NO_CHANGE_MESSAGE),
    (lambda: permutation_effect(bert(), [np.arange(4)[:, None]]), NO_CHANGE_MESSAGE),
    (
        lambda: permutation_effect(torch.nn.Linear(4, 4), [tokens(2)]),
        "one table of positions",
    ),
    (lambda: with_labels(4, head=False), "head=True"),
    (lambda: with_labels(3), "labels"),
    (lambda: with_labels(5), "labels"),
    (lambda: phase_shift(gpt2(n_positions=34), [tokens(2)], shifts=[26]), "by 1 to 25"),
    (lambda: phase_shift(gpt2(n_positions=34), [tokens(2)], shifts=[-1]), "by 1 to 25"),
    (
        lambda: phase_shift(gpt2(n_positions=34), [tokens(2)], shifts=[0]),
        "Use shorter contexts",
    ),
    (
        lambda: phase_shift(gpt2(), [tokens(2)], shifts=[0.5]),  # type: ignore[list-item]
        "whole positions, not by 0.5",
    ),
    (lambda: phase_shift(_Numbered(), [tokens(2)]), "not known"),
    (lambda: phase_shift(vit(), [pixels(2)]), "position_ids"),
    (lambda: phase_shift(timm_vit(), [pixels(2)]), "position_ids"),
    (lambda: blank_images(bert()), "takes no images"),
    (lambda: blank_images(timm_vit(pos_embed="none")), "one table of positions"),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_impossible_experiments_are_one_clear_error(
    ask: Callable[[], object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ask()
