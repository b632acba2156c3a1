"""Heads that were made to look somewhere are reported to look there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import timm
import torch
import transformers
from made_heads import measured, saved

from posprobe.analyses.models.head_logits import NO_PEAK, head_logits, peak_name
from posprobe.analyses.result import as_block
from posprobe.families.layers import load_heads
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    _plant_first_head(model.encoder.layer[0].attention.self, shift, size)
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


def _plant_first_head(attention: Any, shift: int, size: int) -> None:
    w_q, w_k = plant(shift, size)
    for linear, weight in ((attention.query, w_q), (attention.key, w_k)):
        linear.weight.data.zero_()
        linear.weight.data[:size, :size] = torch.from_numpy(weight.T)


def _plant(table: torch.Tensor, size: int) -> None:
    """Write rows that are one-hot up to what a LayerNorm removes."""
    table.zero_()
    table[:, :size] = 10 * torch.eye(size)
    table[:, size:] = -10 / size


@pytest.mark.parametrize("shift", [-1, 1, 0, -3])
@pytest.mark.parametrize("build", [planted_bert, planted_gpt2])
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
    assert found.peak_name[1] == NO_PEAK
    assert np.isnan(found.attention[1])
    assert np.nanmax(np.abs(found.curves[1])) == 0


def test_a_head_that_looks_at_one_key_from_everywhere_prefers_no_offset() -> None:
    rows = np.eye(8)
    # A bias of the queries meets the key of row 5 alone.
    found = head_logits(rows, np.zeros((8, 4)), 9 * rows[:, [5, 5, 5, 5]], np.ones(4), heads=1)
    assert found.key_share[0] == 1
    block = as_block(found)
    assert (block["peak"], block["peak_name"], block["without_peak"]) == ([None], [NO_PEAK], 1)
    assert block["attention"] == [None]


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


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        ([0], "same token"), ([-1], "previous token"),
        ([1], "next token"), ([-3], "3 tokens before"),
        ([2], "2 tokens after"), ([0, 0], "same patch"),
        ([-1, 0], "one row up"), ([1, 0], "one row down"),
        ([0, -1], "one column left"), ([0, 2], "same row, 2 columns right"),
        ([2, 0], "same column, 2 rows down"),
        ([-1, 2], "one row up, 2 columns right"),
    ],
)  # fmt: skip
def test_an_offset_is_named_by_where_it_leads(offset: list[int], name: str) -> None:
    assert peak_name(offset) == name
