"""What is no table of positions is never taken for one; odd values are named or kept."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_family_checks import assert_as_the_model, assert_same_bits, bert_of
from safetensors.torch import load_file, save_file
from tiny_models import CASES, roberta, save_pretrained

from posprobe.errors import InvalidTable, NoPositionTable
from posprobe.families import find_encodings, load
from posprobe.families.read import open_reference
from posprobe.reference import parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# --- what is no table ---


def test_a_buffer_of_position_ids_is_never_a_table(tmp_path: Path) -> None:
    tiny = bert_of(16)
    folder = tmp_path / "model"
    save_pretrained(tiny, folder)
    state = load_file(folder / "model.safetensors")
    ids = {"embeddings.position_ids": torch.arange(16)[None]}
    save_file(state | ids, folder / "model.safetensors")
    assert_same_bits(load(str(folder)).values, tiny.rows)
    (folder / "config.json").unlink()
    assert_same_bits(load(str(folder)).values, tiny.rows)
    del state["embeddings.position_embeddings.weight"]
    for dtype in (torch.int64, torch.int32, torch.float32):
        save_file(
            state | {"embeddings.position_ids": torch.arange(16).to(dtype).reshape(4, 4)},
            folder / "model.safetensors",
        )
        with pytest.raises(NoPositionTable):
            load(str(folder))


def hf_lm(name: str, **config: Any) -> Any:
    cls = getattr(transformers, name)
    return cls(cls.config_class(vocab_size=30, **config))


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 16}  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "build"),
    [
        ("rotary", lambda: hf_lm("LlamaForCausalLM", **SMALL)),
        (
            "rotary",
            lambda: hf_lm("EsmForMaskedLM", pad_token_id=1, mask_token_id=2,
                          position_embedding_type="rotary", **SMALL),
        ),
        ("alibi", lambda: hf_lm("BloomForCausalLM", hidden_size=16, n_layer=1, n_head=2)),
        ("alibi", lambda: hf_lm("FalconForCausalLM", alibi=True, **SMALL)),
        ("alibi", lambda: hf_lm("MptForCausalLM", d_model=16, n_heads=2, n_layers=1)),
        (
            "relative",
            lambda: hf_lm("T5ForConditionalGeneration", d_model=16, d_kv=8, num_layers=1,
                          num_heads=2, d_ff=16),
        ),
    ],
)  # fmt: skip
def test_another_scheme_is_named_and_ends_with_exit_code_5(
    scheme: str, build: Callable[[], Any], tmp_path: Path
) -> None:
    build().save_pretrained(tmp_path / "model")
    with pytest.raises(NoPositionTable, match=rf"no table of positions. It has {scheme}") as caught:
        load(str(tmp_path / "model"))
    assert caught.value.exit_code == 5
    found = find_encodings(open_reference(parse_reference(str(tmp_path / "model"))))
    assert {encoding.scheme for encoding in found} == {scheme}


def test_a_table_beside_another_scheme_is_found_and_both_are_listed(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.id == "MPNetModel")
    reference = case.save(case.build(), tmp_path / "model")
    found = find_encodings(open_reference(parse_reference(reference)))
    assert [encoding.scheme for encoding in found] == ["learned", "relative"]


def test_a_checkpoint_without_any_positions_says_so(tmp_path: Path) -> None:
    save_file({"linear.weight": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(NoPositionTable, match=r"its 1 tensor \(linear\.weight\), ") as caught:
        load(str(tmp_path))
    assert caught.value.exit_code == 5


def test_a_table_that_the_model_ignores_is_not_offered(tmp_path: Path) -> None:
    # ESM-2 models store a table that their rotary forward pass never reads.
    state = {"esm.embeddings.position_embeddings.weight": torch.randn(16, 8)}
    save_file(state, tmp_path / "model.safetensors")
    config = {"model_type": "esm", "position_embedding_type": "rotary", "pad_token_id": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(NoPositionTable, match="rotary"):
        load(str(tmp_path))


@pytest.mark.parametrize("scheme", ["relative_key", "relative_key_query"])
def test_a_table_is_read_where_the_library_ignores_that_positions_should_be_relative(
    scheme: str, tmp_path: Path
) -> None:
    """What transformers 4 saved holds a vector per distance; version 5 builds and adds a table."""
    make: Any = transformers.BertConfig
    config = make(position_embedding_type=scheme, max_position_embeddings=24, vocab_size=9, **SMALL)
    model: Any = transformers.BertModel(config)
    model.eval()
    model.save_pretrained(tmp_path)
    rows = model.embeddings.position_embeddings.weight
    table = load(str(tmp_path))
    np.testing.assert_array_equal(table.values, rows.detach().numpy())
    assert any(scheme in note and "ignores" in note for note in table.notes)
    ids = torch.arange(8)[None]
    with torch.no_grad():
        before = model(ids).last_hidden_state
        rows[:] = rows.flip(0)
        assert (model(ids).last_hidden_state - before).abs().max() > 1e-3  # it is used

    state = dict(model.state_dict())
    vectors = torch.randn(47, 8)
    state["encoder.layer.0.attention.self.distance_embedding.weight"] = vectors
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(NoPositionTable, match="relative"):
        load(str(tmp_path))


# --- damaged values ---


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_are_not_finite_are_named(value: float, tmp_path: Path) -> None:
    tiny = bert_of(16)
    tiny.rows[[3, 5, 7], 2] = value
    with pytest.raises(
        InvalidTable, match=r"3 of 16 rows hold NaN or infinity, at the positions 3, 5, 7"
    ) as caught:
        load(save_pretrained(tiny, tmp_path / "model"))
    assert caught.value.exit_code == 4


def test_a_row_that_is_no_position_may_hold_anything(tmp_path: Path) -> None:
    tiny = roberta(1)()
    tiny.rows[0] = float("nan")
    assert len(load(save_pretrained(tiny, tmp_path / "model"))) == len(tiny.rows) - 2


def test_nothing_but_the_table_is_needed(tmp_path: Path) -> None:
    tiny = roberta(3)()
    folder = tmp_path / "model"
    save_pretrained(tiny, folder)
    (tmp_path / "cut").mkdir()
    shutil.copy(folder / "config.json", tmp_path / "cut")
    state = load_file(folder / "model.safetensors")
    name = "embeddings.position_embeddings.weight"
    save_file({name: state[name]}, tmp_path / "cut/model.safetensors")
    assert_as_the_model(load(str(tmp_path / "cut")), tiny)
