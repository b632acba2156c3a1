"""Logits from the file alone are those that the library's own model attends by."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_heads import (
    HEADS,
    MODEL_BUILDERS,
    albert,
    bart,
    head_logits_of,
    perturb,
    save_model,
)
from made_models import BERT, LENGTH, WIDTH, bert, gpt2, timm_vit
from matplotlib.figure import Figure
from safetensors.torch import save_file
from scipy.special import softmax

from posprobe.analyses.models.head_logits import head_logits
from posprobe.analyses.result import as_block
from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families import effective_table, load, open_reference
from posprobe.families.layers import LayerHeads, load_heads
from posprobe.forward import measure_heads
from posprobe.layouts import Grid, Sequence

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
    content_tensor = torch.from_numpy(content)
    if not isinstance(model, transformers.PreTrainedModel):
        return model(torch.zeros(1, 3, 14, 21, dtype=torch.float64))
    model.set_attn_implementation("eager")
    if model.config.model_type == "vit":
        image = torch.zeros(1, 3, 14, 21, dtype=torch.float64)
        return model(image, output_attentions=True)
    if part:
        model = getattr(model, part)
    types = next(
        (v for n, v in model.named_parameters() if "token_type_embeddings" in n), None
    )
    if types is not None:
        content_tensor = content_tensor - types[0]
    return model(
        inputs_embeds=content_tensor.expand(1, LENGTH, -1), output_attentions=True
    )


@torch.no_grad()
def own_attention(
    model: Any, content: NDArray[np.float64], part: str = ""
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows that enter the first layer's attention, and its weights, by the library."""
    model = model.double()
    ends = (".query", ".q_proj", ".q_lin", ".c_attn", ".qkv")
    query = next(m for n, m in model.named_modules() if part in n and n.endswith(ends))
    rows: list[torch.Tensor] = []
    attentions: list[torch.Tensor] = []
    hooks = [query.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0]))]
    if not isinstance(model, transformers.PreTrainedModel):
        attention = model.blocks[0].attn
        attention.fused_attn = False
        drop = attention.attn_drop
        hooks.append(
            drop.register_forward_pre_hook(lambda _, inputs: attentions.append(inputs[0]))
        )
    output = run(model, content, part)
    for hook in hooks:
        hook.remove()
    weights = attentions[0] if attentions else output.attentions[0]
    return np.asarray(rows[0].reshape(-1, rows[0].shape[-1])), np.asarray(weights[0])


@pytest.mark.parametrize("name", MODEL_BUILDERS)
def test_logits_from_the_file_are_those_that_the_model_attends_by(
    name: str, tmp_path: Path
) -> None:
    model = perturb(MODEL_BUILDERS[name]())
    grid = (
        (2, 3) if name.startswith("timm") else None
    )  # no configuration of timm states it
    _, pick, part = name.partition("#")
    loaded = load_heads(save_model(model, tmp_path) + pick + part, grid=grid)
    rows, attention = own_attention(model, loaded.content, part)
    patches = slice(
        attention.shape[1] - len(loaded.table), None
    )  # CLS comes first, if at all
    assert attention.shape[0] == loaded.heads == HEADS
    np.testing.assert_allclose(rows[patches], loaded.table.values, rtol=1e-10, atol=1e-12)
    for head, weights in enumerate(attention[:, patches, patches]):
        logits = logits_of(loaded, head)
        if loaded.causal:
            logits[np.triu_indices_from(logits, 1)] = -np.inf
        # Attention of a query, as far as it goes to positions.
        np.testing.assert_allclose(
            softmax(logits, axis=1),
            weights / weights.sum(axis=1, keepdims=True),
            rtol=1e-5
            if name in ("ViT", "OPT", "OPT-350m")
            else 1e-9,  # softmax in float32
            atol=1e-300,
        )


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(
    "options", [{"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}]
)
def test_logits_of_gpt2_are_scaled_as_configured(
    options: dict[str, bool], layer: int, tmp_path: Path
) -> None:
    model = perturb(gpt2(**options)).double()
    loaded = load_heads(save_model(model, tmp_path), layer)
    attention = model.transformer.h[layer].attn
    model.set_attn_implementation("eager")
    rows = torch.tensor(loaded.table.values)
    with torch.no_grad():
        weights = np.asarray(attention(rows[None])[1][0])
    for head in range(HEADS):
        # Where the module is called without a mask, every key is seen.
        ours = softmax(logits_of(loaded, head), axis=1)
        np.testing.assert_allclose(ours, weights[head], rtol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("layer", [0, 1])
def test_the_effective_table_follows_the_direct_path_to_a_layer(
    layer: int, tmp_path: Path
) -> None:
    model = perturb(gpt2()).double()
    folder = save_model(model, tmp_path)
    inner = model.transformer
    content = inner.wte.weight.mean(dim=0)
    effective = effective_table(folder, layer, rows=slice(2, 7))
    expected = inner.h[layer].ln_1(inner.wpe.weight[2:7] + content)
    np.testing.assert_allclose(effective.values, expected.numpy(), rtol=1e-10)
    assert (effective.start, effective.layout) == (2, Sequence(5))
    assert effective.source == load(folder).source
    without_content = effective_table(folder, layer, content="none")
    expected = inner.h[layer].ln_1(inner.wpe.weight)
    np.testing.assert_allclose(without_content.values, expected.numpy(), rtol=1e-10)


def test_albert_projects_its_rows_and_shares_its_weights_among_layers(
    tmp_path: Path,
) -> None:
    folder = save_model(perturb(albert()), tmp_path)
    first, second = load_heads(folder, 0), load_heads(folder, 1)
    assert (first.content.size, first.table.dim, first.layers) == (16, WIDTH, 2)
    np.testing.assert_array_equal(first.table.values, second.table.values)
    with pytest.raises(UsageError, match="0 to 1"):
        load_heads(folder, 2)
    logits = measure_heads(folder)
    assert list(logits.layers) == [0]
    assert any("all 2 layers share their weights" in note for note in logits.notes)


def test_names_that_transformers_computes_with_are_known(tmp_path: Path) -> None:
    config = transformers.Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, image_size=14,
        patch_size=7,
    )  # fmt: skip
    model = perturb(transformers.Dinov2Model(config))
    (tmp_path / "as").mkdir()
    state = dict(model.state_dict())
    assert "encoder.layer.0.attention.q_proj.weight" in state
    save_file(state, tmp_path / "as" / "model.safetensors")
    (tmp_path / "as" / "config.json").write_text(config.to_json_string())
    converted = effective_table(save_model(model, tmp_path / "converted"))
    original = effective_table(str(tmp_path / "as"))
    np.testing.assert_array_equal(converted.values, original.values)


def test_reading_one_layer_opens_no_other_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(perturb(MODEL_BUILDERS["timm ViT"]()), tmp_path)
    read: list[str] = []

    def watched(*arguments: Any, **options: Any) -> Checkpoint:
        checkpoint = open_reference(*arguments, **options)

        def fetch(info: TensorInfo) -> bytes | memoryview[int]:
            read.append(info.name)
            return checkpoint.fetch(info)

        return replace(checkpoint, fetch=fetch)

    monkeypatch.setattr("posprobe.families.layers.open_reference", watched)
    load_heads(folder, 1, content="none", grid=(2, 3))
    assert set(read) == {
        # Of queries, keys and values the first two thirds.
        f"blocks.1.attn.qkv.weight[0:{2 * WIDTH}]", "blocks.1.attn.qkv.bias",
        "blocks.1.norm1.weight", "blocks.1.norm1.bias",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "timm ViT"])
def test_all_layers_at_once_are_the_layers_one_by_one(name: str, tmp_path: Path) -> None:
    folder = save_model(perturb(MODEL_BUILDERS[name]()), tmp_path)
    options: dict[str, Any] = (
        {"grid": (2, 3)} if name == "timm ViT" else {"rows": slice(1, 9)}
    )
    logits = measure_heads(folder, **options)
    assert list(logits.layers) == [0, 1]
    for number, layer in logits.layers.items():
        one_layer = head_logits_of(load_heads(folder, number, **options))
        np.testing.assert_array_equal(layer.curves, one_layer.curves)
        np.testing.assert_array_equal(layer.peak, one_layer.peak)
    summary = json.loads(json.dumps(as_block(logits), allow_nan=False))
    assert [layer["layer"] for layer in summary["layers"]] == [0, 1]
    assert sum(summary["peaks"].values()) == summary["heads"] == 2 * HEADS
    assert any("direct path" in note for note in summary["notes"])
    assert logits.plot(Figure().add_subplot()).has_data()


# What cannot be read as it is used


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "0 heads"),
        ({"heads": 3}, "and 3 heads"),
        ({"w_q": np.ones((5, 8))}, "transpose"),
        ({"w_k": np.ones((6, 4))}, "repeated"),
        ({"b_q": np.ones(7)}, "biases"),
        ({"w_k": np.full((6, 8), np.nan)}, "w_k holds NaN"),
    ],
)
def test_weights_that_do_not_fit_are_one_clear_error(
    change: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {
        "w_q": np.ones((6, 8)),
        "w_k": np.ones((6, 8)),
        "heads": 2,
    }
    with pytest.raises(UsageError, match=message):
        head_logits(np.ones((4, 6)), **arguments | change)


def test_an_undecidable_layer_layout_is_refused(tmp_path: Path) -> None:
    folder = save_model(bert(), tmp_path / "bert")
    for layer in (2, -1):
        with pytest.raises(UsageError, match="0 to 1"):
            load_heads(folder, layer)
    save_file(dict(timm_vit().state_dict()), tmp_path / "model.safetensors")
    reading: dict[str, Any] = {"grid": (2, 3)}
    effective = effective_table(str(tmp_path), **reading)
    # CLS is no position, and what its row was before is not on the page of these.
    assert (effective.layout, effective.prefix, effective.prefix_rows) == (
        Grid(2, 3),
        None,
        (),
    )
    assert load_heads(str(tmp_path), heads=HEADS, **reading).heads == HEADS
    for heads, says in ((None, "heads=N"), (5, "do not divide"), (0, "at least 1")):
        with pytest.raises(UsageError, match=says):
            load_heads(str(tmp_path), heads=heads, **reading)


def test_other_architectures_and_formulas_are_refused(tmp_path: Path) -> None:
    config = transformers.MPNetConfig(**BERT)
    for reference, says in (
        (save_model(transformers.MPNetModel(config), tmp_path), "is not known"),
        ("sinusoidal:16x8", "no heads"),
        ("sample:all-minilm-l6-v2", "weights are missing"),  # the table alone is there
    ):
        with pytest.raises(UsageError, match=says):
            load_heads(reference)


def albert_of(width: int = 16, **options: Any) -> Any:
    config = transformers.AlbertConfig(**BERT, embedding_size=width, **options)
    return transformers.AlbertModel(config)


def rpn() -> Any:
    """A model that normalises after its attention, by a norm that is called as one before it."""
    model = timm_vit("vit_base_patch16_rpn_224", class_token=False, global_pool="avg")
    assert hasattr(model.blocks[0], "norm1")
    return model


GAIN = "embeddings.LayerNorm.weight"
MAPPING = "encoder.embedding_hidden_mapping_in.weight"
ATTENTION = "encoder.layer.0.attention.self"
#: By what is wrong: a model, its tensors that are others or gone, its configuration, what is said.
REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], dict[str, Any], str]] = {
    **{
        f"{extra} takes part": (
            build, {extra: torch.ones(3)}, {}, "stands between positions and their logits",
        )
        for build, extra in (
            (bert, f"{ATTENTION}.distance_embedding.weight"),
            (timm_vit, "blocks.0.attn.proj_l.weight"),  # CaiT mixes the logits of heads
            (timm_vit, "blocks.0.attn.rel_pos_h"),  # SAM adds a bias
        )
    },
    "queries are normalised": (lambda: timm_vit(qk_norm=True), {}, {}, "[qk]_norm"),
    "perhaps no LayerNorm": (timm_vit, {"blocks.0.norm1.bias": None}, {}, "RMSNorm"),
    "a norm after the attention": (
        rpn, {}, {"architecture": "vit_base_patch16_rpn_224"}, "normalises after its attention",
    ),
    "groups of layers": (lambda: albert_of(num_hidden_groups=2), {}, {}, "must share one set"),
    "layers of a group": (lambda: albert_of(inner_group_num=2), {}, {}, "must share one set"),
    "no LayerNorm before": (albert_of, {GAIN: None}, {}, "LayerNorm is missing"),
    "another width before": (albert_of, {GAIN: torch.ones(7)}, {}, "is not 16 wide"),
    "a mapping of another width": (
        albert_of, {MAPPING: torch.ones(WIDTH, 7)}, {}, "takes no rows of",
    ),
    "no mapping": (albert_of, {MAPPING: None}, {}, "is missing"),
    "queries of another width": (
        bert, {f"{ATTENTION}.query.weight": torch.ones(8, 8)}, {}, "width 8",
    ),
    "no keys": (bert, {f"{ATTENTION}.key.weight": None}, {}, "is missing"),
    "no norm": (gpt2, {"transformer.h.0.ln_1.weight": None}, {}, "weights are missing"),
    "no architecture": (bart, {}, {"model_type": None}, "differs between architectures"),
    "layers by the dozen": (
        albert, {}, {"num_hidden_layers": "many"}, "as 'many'; a whole number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unreadable_layer_weights_are_refused(name: str, tmp_path: Path) -> None:
    build, tensors, config, message = REFUSED[name]
    model = build()
    folder = save_model(model, tmp_path)
    state = {
        name: tensor.clone() for name, tensor in model.state_dict().items()
    } | tensors
    remaining = {name: tensor for name, tensor in state.items() if tensor is not None}
    save_file(remaining, tmp_path / "model.safetensors")
    place = tmp_path / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | config))
    grid = (2, 3) if hasattr(model, "blocks") else None
    with pytest.raises((InvalidCheckpoint, UsageError), match=message):
        load_heads(folder + ("#encoder" if build is bart else ""), grid=grid)
