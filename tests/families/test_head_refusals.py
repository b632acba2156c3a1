"""Weights of heads that cannot be read as they are used are one clear error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from made_heads import HEADS, albert, bart, saved
from made_models import BERT, WIDTH, bert, gpt2, timm_vit
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


def test_other_architectures_and_formulas_are_refused(tmp_path: Path) -> None:
    config = transformers.MPNetConfig(**BERT)
    with pytest.raises(UsageError, match="is not known"):
        load_heads(saved(transformers.MPNetModel(config), tmp_path))
    with pytest.raises(UsageError, match="no heads"):
        load_heads("sinusoidal:16x8")
    with pytest.raises(UsageError, match=r"self\.query\.weight is missing"):
        load_heads("sample:all-minilm-l6-v2")  # the table alone is there


def albert_of(width: int = 16, **options: Any) -> Any:
    config = transformers.AlbertConfig(**BERT, embedding_size=width, **options)
    return transformers.AlbertModel(config)


def rpn() -> Any:
    """A model that normalises after its attention, by a norm that is called as one before it."""
    model = timm_vit("vit_base_patch16_rpn_224", class_token=False, global_pool="avg")
    assert hasattr(model.blocks[0], "norm1")
    return model


GAIN, MAPPING = "embeddings.LayerNorm.weight", "encoder.embedding_hidden_mapping_in.weight"
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
    "no norm": (gpt2, {"transformer.h.0.ln_1.weight": None}, {}, r"h\.0\.ln_1.* is missing"),
    "layers by the dozen": (
        albert, {}, {"num_hidden_layers": "many"}, "as 'many'; a whole number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_as_it_is_used_is_refused(name: str, tmp_path: Path) -> None:
    build, tensors, config, message = REFUSED[name]
    model = build()
    folder = saved(model, tmp_path)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()} | tensors
    kept = {name: tensor for name, tensor in state.items() if tensor is not None}
    save_file(kept, tmp_path / "model.safetensors")
    place = tmp_path / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | config))
    grid = (2, 3) if hasattr(model, "blocks") else None
    with pytest.raises((InvalidCheckpoint, UsageError), match=message):
        load_heads(folder, grid=grid)


def test_an_architecture_that_only_its_model_type_tells_is_not_guessed(tmp_path: Path) -> None:
    folder = saved(bart(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="no model_type"):
        effective_table(f"{folder}#encoder")


def test_a_number_of_heads_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = saved(albert(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"layer_norm_eps": None}))
    assert load_heads(folder).layers == config["num_hidden_layers"]
    for heads in (0, -2):
        with pytest.raises(UsageError, match="at least 1"):
            load_heads(folder, heads=heads)
