"""Weights of heads that cannot be read as they are used are one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import transformers
from made_heads import (
    BERT,
    HEADS,
    MODELS,
    TIMM,
    WIDTH,
    albert,
    bart,
    bert,
    gpt2,
    saved,
    stirred,
    timm_vit,
)
from safetensors.torch import save_file

from posprobe.analyses.models.head_logits import head_logits
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families import effective_table
from posprobe.families.layers import load_heads


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
        with pytest.raises(UsageError, match="at least 1"):
            load_heads(folder, heads=heads)


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
