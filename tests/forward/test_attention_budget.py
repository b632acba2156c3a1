"""Attention budget: identities, planted shares, an independent computation, and many families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")
import torch
import transformers

from posprobe.analyses.models.attention_budget import (
    LogitSums,
    build_attention_budget,
    place_projection,
)
from posprobe.analyses.models.attention_window import (
    AttentionWindow,
    grid_window,
    sequence_window,
)
from posprobe.errors import UsageError
from posprobe.forward import attention as attention_module
from posprobe.forward.attention import attention_budget
from posprobe.layouts import Grid, Sequence

torch.set_num_threads(1)
LENGTH = 48
TEXT: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
IMAGES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 64, "patch_size": 8,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 64,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
}  # fmt: skip
SWIN: dict[str, Any] = {
    "image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2],
    "window_size": 8,
}  # fmt: skip
WHISPER: dict[str, Any] = {
    "vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_source_positions": 48, "max_target_positions": 128,
    "num_mel_bins": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip


def built(family: str, part: str = "", **settings: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(**settings)
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}Model")._from_config(config).eval()
    return getattr(model, f"get_{part}")() if part else model


def tokens(contexts: int = 16, length: int = LENGTH, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return list(rng.integers(4, 64, (contexts // 8, 8, length)))


def pictures(contexts: int = 16, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return list(rng.standard_normal((contexts // 8, 8, 3, 64, 64)).astype("f4"))


# Definition.


def all_attention(model: Any, batches: list[Any], name: str) -> Any:
    """Attention of every layer in all contexts, in full, by the library itself."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        runs = [
            model(**{name: torch.as_tensor(batch)}, output_attentions=True)
            for batch in batches
        ]
    return [
        torch.cat([run.attentions[layer] for run in runs]).double().numpy()
        for layer in range(len(runs[0].attentions))
    ]


def shares_by_plain_loops(
    attention: Any, queries: list[int], keys_of: Callable[[int], list[int]]
) -> tuple[float, float, float]:
    """Shares of one head: design matrices, least squares, and pairs of contexts one by one."""
    logits = []
    for context in attention:
        rows = [
            [np.log(context[query, key]) for key in keys_of(query)] for query in queries
        ]
        logits.append([np.array(row) - np.mean(row) for row in rows])
    vectors = np.array(logits).reshape(len(attention), -1)
    n_queries, n_keys = len(queries), len(keys_of(queries[0]))
    by_distance = np.tile(np.eye(n_keys) - 1 / n_keys, (n_queries, 1))
    keys = sorted({key for query in queries for key in keys_of(query)})
    by_key = np.array(
        [[key == other for other in keys] for q in queries for key in keys_of(q)]
    )
    by_key = by_key.reshape(n_queries, n_keys, -1).astype(float)
    by_key = (by_key - by_key.mean(axis=1, keepdims=True)).reshape(-1, len(keys))
    by_key -= by_distance @ np.linalg.lstsq(by_distance, by_key, rcond=None)[0]

    def mean_product(parts: Any) -> float:
        pairs = [
            a @ b for i, a in enumerate(parts) for j, b in enumerate(parts) if i != j
        ]
        return float(np.mean(pairs))

    fits = [
        [design @ np.linalg.lstsq(design, vector, rcond=1e-10)[0] for vector in vectors]
        for design in (by_distance, by_key)
    ]
    variance = np.mean([vector @ vector for vector in vectors])
    distance, key = (mean_product(fit) / variance for fit in fits)
    return distance, key, mean_product(vectors) / variance - distance - key


@pytest.mark.parametrize("family", ["GPT2", "T5", "ViT"])
def test_shares_equal_those_of_a_plain_computation(family: str) -> None:
    if family == "ViT":
        model, name = (
            built("ViT", **{**IMAGES, "image_size": 48}).double(),
            "pixel_values",
        )
        batches = [batch[:, :, :48, :48].astype("f8") for batch in pictures(8)]
        inner = [1 + 6 * row + column for row in (2, 3) for column in (2, 3)]
        steps = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)]

        def keys_of(query: int) -> list[int]:
            return [query - 6 * dy - dx for dy, dx in steps]
    else:
        batches, name = tokens(8, 30), "input_ids"
        causal = family == "GPT2"
        model = (
            built("GPT2", **GPT2) if causal else built("T5", "encoder", **T5)
        ).double()
        inner = list(range(15, 30)) if causal else list(range(10, 20))
        distances = range(15) if causal else range(-9, 10)

        def keys_of(query: int) -> list[int]:
            return [query - distance for distance in distances]

    budget = attention_budget(model, batches)
    assert {head.lost for head in budget.heads} == {0.0}
    attention = all_attention(model, batches, name)
    for head in budget.heads[::3]:
        expected = shares_by_plain_loops(
            attention[head.layer][:, head.head], inner, keys_of
        )
        measured = head.distance, head.key, head.other
        # The softmax of this library's ViT is computed in single precision.
        tolerance = 1e-7 if family == "ViT" else 1e-8
        np.testing.assert_allclose(measured, expected, rtol=0, atol=tolerance)
        assert sum(measured) + head.content == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("family", ["Bert", "GPT2", "ViT", "T5"])
def test_logits_of_projections_are_those_of_attention(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"Bert": TEXT, "GPT2": GPT2, "ViT": IMAGES, "T5": T5}[family]
    model = built(family, "encoder" if family == "T5" else "", **settings)
    batches = pictures() if family == "ViT" else tokens()
    by_projection = attention_budget(model, batches)
    monkeypatch.setattr(attention_module, "_observe_all_inputs", lambda *_: {})
    by_attention = attention_budget(model, batches)
    assert (by_projection.source, by_attention.source) == (
        "queries and keys",
        "attention",
    )
    for first, second in zip(by_projection.heads, by_attention.heads, strict=True):
        for name in ("distance", "key", "other", "content", "error", "moved", "spread"):
            assert getattr(first, name) == pytest.approx(getattr(second, name), abs=1e-5)


# Identities.


def test_relative_positions_have_no_place() -> None:
    for family, settings in (("Llama", TEXT), ("T5", T5), ("Bloom", BLOOM)):
        model = built(family, "encoder" if family == "T5" else "", **settings)
        budget = attention_budget(model, tokens(64))
        for head in budget.heads:
            assert abs(head.key + head.other) < max(4 * (head.error or 0.0), 1e-3)


BLOOM: dict[str, Any] = {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}


def test_bias_alone_is_distance() -> None:
    model = built("Bloom", **BLOOM)
    with torch.no_grad():
        for block in model.h:
            block.self_attention.query_key_value.weight[:] = 0
            block.self_attention.query_key_value.bias[:] = 0
    budget = attention_budget(model, tokens())
    assert all(head.distance == pytest.approx(1, abs=1e-6) for head in budget.heads)
    # The slopes of the other heads are too flat to move a weight by a tenth.
    assert [head.preferred for head in budget.heads if head.head < 2] == [0] * 4


def test_without_tokens_there_is_no_content() -> None:
    model = built("GPT2", **GPT2)
    with torch.no_grad():
        model.wte.weight[:] = 0
    budget = attention_budget(model, tokens())
    assert all(abs(head.content) < 1e-6 for head in budget.heads)
    assert budget.most == len(budget.heads)


def test_without_positions_and_mask_content_decides() -> None:
    model = built("Bert", **TEXT)
    with torch.no_grad():
        model.embeddings.position_embeddings.weight[:] = 0
    budget = attention_budget(model, tokens(64))
    assert budget.by_chance is not None
    assert budget.by_chance.position_p > 0.02
    for head in budget.heads:
        assert abs(head.position) < 4 * (head.error or 0.0)
        assert head.prefers != "yes"


def test_shares_do_not_depend_on_temperature_or_basis() -> None:
    model = built("Bert", **TEXT)
    before = attention_budget(model, tokens())
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    blocks = torch.as_tensor(np.kron(np.eye(4), rotation), dtype=torch.float32)
    with torch.no_grad():
        for layer in model.encoder.layer:
            projections = layer.attention.self
            for part, factor in ((projections.query, 2.0), (projections.key, 1.0)):
                part.weight[:] = factor * blocks @ part.weight
                part.bias[:] = factor * blocks @ part.bias
    after = attention_budget(model, tokens())
    for first, second in zip(before.heads[:4], after.heads[:4], strict=True):
        for name in ("distance", "key", "other", "content"):
            assert getattr(first, name) == pytest.approx(getattr(second, name), abs=1e-4)
        assert second.spread == pytest.approx(2 * first.spread, rel=1e-3)


# Planted shares.


def planted_budget(
    seed: int, distance: float, key: float, *, heads: int = 1, contexts: int = 24
) -> Any:
    """Budget of heads whose logits have known shares of distance and place; the rest is noise."""
    rng = np.random.default_rng(seed)
    window = sequence_window(None, 48)
    assert isinstance(window, AttentionWindow)
    n_queries, n_keys = window.keys.shape

    def scaled(part: Any, share: float) -> Any:
        part = part - part.mean(axis=-1, keepdims=True)
        return part * np.sqrt(share / np.mean(part**2)) if share else 0 * part

    curve = scaled(
        np.broadcast_to(rng.standard_normal(n_keys), window.keys.shape), distance
    )
    places = rng.standard_normal(48)[window.keys]
    projection = place_projection(window)
    from posprobe.analyses.models.attention_budget import remove_means

    place = scaled(projection.project(remove_means(places[None])[0]), key)
    noise = rng.standard_normal((contexts, heads, n_queries, n_keys))
    noise -= noise.mean(axis=-1, keepdims=True)
    noise *= np.sqrt((1 - distance - key) / np.mean(noise**2))
    logits = curve + place + noise
    none = np.zeros((contexts, heads))
    sums = {0: LogitSums((logits,), none, none, window, 1 / 48)}
    return build_attention_budget(
        sums, {}, layout=Sequence(48), source="attention", name="planted"
    )


def test_planted_shares_are_within_two_errors() -> None:
    hits = 0
    for seed in range(100):
        budget = planted_budget(seed, 0.2, 0.1)
        (head,) = budget.heads
        hits += abs(head.position - 0.3) <= 2 * head.error
        assert head.distance == pytest.approx(0.2, abs=0.05)
        assert head.key == pytest.approx(0.1, abs=0.05)
        assert head.prefers == "yes"
    assert hits >= 90


def test_noise_is_neither_position_nor_a_preference() -> None:
    budget = planted_budget(0, 0.0, 0.0, heads=400)
    assert budget.most == 0
    assert [head.prefers for head in budget.heads].count("yes") == 0
    assert np.mean([head.moved for head in budget.heads]) < 0.05
    assert budget.by_chance.position_p > 0.02


def test_shares_do_not_grow_with_the_number_of_contexts() -> None:
    means = [
        np.mean(
            [planted_budget(seed, 0.1, 0.05, contexts=n).distance for seed in range(20)]
        )
        for n in (4, 64)
    ]
    assert means == pytest.approx([0.1, 0.1], abs=0.01)


# Windows.


def test_every_query_of_a_window_sees_the_same_distances() -> None:
    causal = np.tril(np.ones((64, 64), dtype=bool))
    for visible in (None, causal, np.triu(causal, -20)):
        window = sequence_window(visible, 64)
        assert isinstance(window, AttentionWindow)
        distances = window.queries[:, None] - window.keys
        assert (distances == window.displacements[:, 0]).all()
        assert window.keys.min() >= 1
        assert visible is None or visible[window.queries[:, None], window.keys].all()


def test_keys_of_patches_are_at_their_displacement() -> None:
    window = grid_window(Grid(9, 6), 1)
    assert isinstance(window, AttentionWindow)
    assert len(window.queries) == 3 * 2
    assert len(window.displacements) == 7 * 5
    rows, columns = np.divmod(window.keys - 1, 6)
    query_rows, query_columns = np.divmod(window.queries - 1, 6)
    assert (query_rows[:, None] - rows == window.displacements[:, 0]).all()
    assert (query_columns[:, None] - columns == window.displacements[:, 1]).all()


# Families.

#: By name: class, part, settings, source of the logits, and whether later keys are seen.
FAMILIES: dict[str, tuple[str, str, dict[str, Any], str, bool]] = {
    "BERT": ("Bert", "", TEXT, "queries and keys", True),
    "OPT": ("OPT", "", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}, "queries and keys",
            False),
    "T5 decoder": ("T5", "decoder", T5, "queries and keys", False),
    "BLOOM": ("Bloom", "", BLOOM, "attention", False),
    "MPT": ("Mpt", "", {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4}, "attention",
            False),
    "Falcon": ("Falcon", "", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
                              "num_attention_heads": 4, "alibi": True}, "attention", False),
    "Gemma 3": ("Gemma3Text", "", {**TEXT, "head_dim": 8, "sliding_window": 16,
                "layer_types": ["sliding_attention", "full_attention"]}, "queries and keys", False),
    "GPT-OSS": ("GptOss", "", {**TEXT, "head_dim": 8, "num_local_experts": 4}, "queries and keys",
                False),
    "DeBERTa v2": ("DebertaV2", "", {**TEXT, "relative_attention": True, "position_buckets": 16,
                   "pos_att_type": "p2c|c2p"}, "attention", True),
    "XLNet": ("XLNet", "", {"vocab_size": 64, "d_model": 32, "n_layer": 2, "n_head": 4,
              "d_inner": 64}, "attention", True),
    "ALBERT": ("Albert", "", {**TEXT, "embedding_size": 16}, "attention", True),
    "ModernBERT": ("ModernBert", "", {**TEXT, "local_attention": 32, "cls_token_id": 1,
                   "sep_token_id": 2}, "queries and keys", True),
    "CLIP text": ("CLIPText", "", TEXT, "queries and keys", False),
    "CLIP vision": ("CLIPVision", "", IMAGES, "queries and keys", True),
    "DINOv3": ("DINOv3ViT", "", IMAGES, "queries and keys", True),
    "Swin": ("Swin", "", SWIN, "attention", True),
    "SwinV2": ("Swinv2", "", SWIN, "attention", True),
    "Whisper": ("Whisper", "decoder", WHISPER, "queries and keys", False),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_measured_by_queries_and_keys_or_by_attention(name: str) -> None:
    family, part, settings, source, sees_later_keys = FAMILIES[name]
    model = built(family, part, **settings)
    takes_images = "image_size" in settings
    budget = attention_budget(model, pictures() if takes_images else tokens())
    assert budget.source == source
    assert budget.both_sides == sees_later_keys
    assert {layer.problem for layer in budget.layers} == {None}
    assert len(budget.heads) == 4 if takes_images and family.startswith("Swin") else 8
    assert all(np.isfinite(head.moved) for head in budget.heads)


def test_sound_is_measured_from_its_features() -> None:
    features = np.random.default_rng(0).standard_normal((16, 16, 96)).astype("f4")
    budget = attention_budget(built("Whisper", "encoder", **WHISPER), [features])
    assert (budget.tokens, budget.window, budget.both_sides) == (48, 16, True)


def test_sliding_layers_have_a_window_of_their_own() -> None:
    settings = FAMILIES["Gemma 3"][2]
    budget = attention_budget(built("Gemma3Text", **settings), tokens())
    assert [layer.window for layer in budget.layers] == [16, 24]
    assert np.isnan(budget.curves[0]).sum() == 8
    assert not np.isnan(budget.curves[-1]).any()


# Refusals.


def refusal(model: Any, batches: list[Any]) -> str:
    with pytest.raises(UsageError) as raised:
        attention_budget(model, batches)
    return str(raised.value)


def test_contexts_that_cannot_be_measured_are_refused() -> None:
    model = built("Bert", **TEXT)
    assert "23 tokens are too short" in refusal(model, tokens(length=23))
    assert "longer than the 128 positions" in refusal(model, tokens(length=130))
    assert "one context" in refusal(model, [tokens()[0][:1]])


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize(("end_tokens", "n_allowed"), [(None, 1), (2, 2), ([5, 2], 2)])
def test_padding_is_refused_beyond_tokens_that_end_texts(
    end_tokens: int | list[int] | None, n_allowed: int, side: str
) -> None:
    model = built("GPT2", **GPT2)
    model.config.pad_token_id, model.config.eos_token_id = 2, end_tokens
    contexts = np.where(tokens()[0] == 2, 3, tokens()[0])

    def padded(count: int) -> Any:
        batch = contexts.copy()
        batch[3, slice(count) if side == "start" else slice(-count, None)] = 2
        return batch

    assert attention_budget(model, [padded(n_allowed)]).contexts == 8
    assert "padding (token 2)" in refusal(model, [padded(n_allowed + 1)])


def test_contexts_may_come_as_one_array() -> None:
    model = built("Bert", **TEXT)
    whole = attention_budget(model, np.concatenate(tokens()))
    batches = attention_budget(model, tokens())
    assert whole.contexts == 16
    np.testing.assert_allclose(
        [head.distance for head in whole.heads], [head.distance for head in batches.heads],
        atol=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "contexts", "message"),
    [("sample:pydoc-llama", tokens(), "a model is expected. Load one with"),
     (None, ["a text"], "arrays of token ids"),
     (None, np.zeros((8, 3, 16, 16), "f4"), "")],
)  # fmt: skip
def test_what_is_no_model_or_no_context_is_refused(
    model: Any, contexts: Any, message: str
) -> None:
    assert message in refusal(model or built("Bert", **TEXT), contexts)


def test_heads_whose_attention_underflows_are_named() -> None:
    model = built(
        "Mpt", d_model=32, n_heads=4, n_layers=2, vocab_size=64, max_seq_len=128
    )
    with torch.no_grad():
        weight = model.blocks[0].attn.Wqkv.weight
        weight[:8] *= 3000.0  # queries of the first head
        weight[32:40] *= 3000.0
    budget = attention_budget(model, tokens())
    assert budget.source == "attention"
    assert [(head.layer, head.head) for head in budget.lost_heads] == [(0, 0)]
    assert budget.lost_heads[0].lost > 1e-3
    assert len(budget.heads) == 7


def test_a_head_that_looks_at_one_place_prefers_no_distance() -> None:
    rng = np.random.default_rng(0)
    window = sequence_window(np.tri(LENGTH, dtype=bool), LENGTH)
    assert isinstance(window, AttentionWindow)
    # A hump of logits in the middle of the contexts has a mean by distance within the window.
    by_place = 3 * np.exp(-(((np.arange(LENGTH) - 20) / 4) ** 2))
    logits = by_place[window.keys] + rng.standard_normal((24, *window.keys.shape)) * 0.3
    sums = LogitSums(
        (logits[:, None].astype("f4"),),
        np.zeros((24, 1)),
        np.zeros((24, 1)),
        window,
        0.02,
    )
    budget = build_attention_budget(
        {0: sums}, {}, layout=Sequence(LENGTH), source="queries and keys", name="made"
    )
    (head,) = budget.heads
    assert head.key > head.distance > 0.05
    assert head.p is not None
    assert head.p <= 0.01
    assert head.preferred is None
    assert head.prefers == "cannot tell"


def test_a_layer_that_cannot_see_the_first_token_has_no_share_there() -> None:
    settings = {**FAMILIES["Gemma 3"][2], "layer_types": ["sliding_attention"] * 2}
    settings |= {"sliding_window": 12}
    budget = attention_budget(built("Gemma3Text", **settings), tokens())
    assert {head.first for head in budget.heads} == {None}
    assert budget.uniform_first is None
    assert {"first", "uniform_first"} <= set(budget.undefined)


def test_a_layer_with_nan_is_left_out_with_its_reason() -> None:
    model = built("GPT2", **GPT2)
    with torch.no_grad():
        model.h[1].attn.c_attn.weight[0, 0] = float("nan")
    budget = attention_budget(model, tokens())
    assert [layer.problem for layer in budget.layers] == [None, "not_finite"]
    assert {head.layer for head in budget.heads} == {0}


def test_a_model_that_looks_ahead_is_refused() -> None:
    # Built with fused attention, it leaves out its mask where attention is to be shown.
    settings = {**FAMILIES["Falcon"][2], "alibi": False}
    assert "attends to later tokens" in refusal(built("Falcon", **settings), tokens())


def test_heads_whose_attention_underflows_are_left_out() -> None:
    model = built("Bloom", **BLOOM)
    with torch.no_grad():
        model.h[1].self_attention.query_key_value.weight *= 1e5
    budget = attention_budget(model, tokens())
    assert [layer.problem for layer in budget.layers] == [None, "underflow"]


def test_few_contexts_have_shares_but_no_chance() -> None:
    budget = attention_budget(built("GPT2", **GPT2), [tokens()[0][:4]])
    assert budget.by_chance is None
    assert {head.prefers for head in budget.heads} == {"cannot tell"}
    assert budget.distance is not None
