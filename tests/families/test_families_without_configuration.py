"""Checkpoints whose configuration does not name a known family: what is found, and what is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_family_checks import assert_as_the_model, assert_same_bits, bert_of
from safetensors.torch import load_file, save_file
from tiny_models import (
    CASES,
    Tiny,
    find,
    hf_mae,
    hf_whisper,
    roberta,
    save_fairseq,
    save_pretrained,
)

from posprobe.errors import AmbiguousTable, InvalidCheckpoint, NoPositionTable, UnknownReference
from posprobe.families import find_encodings, load
from posprobe.families.read import open_reference
from posprobe.families.registry import registry
from posprobe.layouts import Grid, Sequence
from posprobe.reference import parse_reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def without_config(tiny: Tiny, folder: Path, keep: tuple[str, ...] = ()) -> str:
    save_pretrained(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    if keep:
        (folder / "config.json").write_text(json.dumps({key: config[key] for key in keep}))
    return str(folder)


PREFIXED = {
    "bert": "BertForMaskedLM", "distilbert": "DistilBertForMaskedLM",
    "electra": "ElectraForPreTraining", "albert": "AlbertForMaskedLM",
    "roberta": "RobertaForMaskedLM", "longformer": "LongformerForMaskedLM",
    "data2vec_text": "Data2VecTextForMaskedLM", "mpnet": "MPNetForMaskedLM",
    "vit": "ViTForImageClassification", "deit": "DeiTForImageClassificationWithTeacher",
    "dinov2": "Dinov2ForImageClassification",
    "dinov2_with_registers": "Dinov2WithRegistersForImageClassification",
}  # fmt: skip


def test_every_module_name_that_identifies_a_family_is_tried() -> None:
    assert set(PREFIXED) == {prefix for family in registry().families for prefix in family.prefixes}


@pytest.mark.parametrize("prefix", PREFIXED)
def test_the_modules_name_identifies_the_family(prefix: str, tmp_path: Path) -> None:
    (family,) = (family for family in registry().families if prefix in family.prefixes)
    (case,) = (case for case in CASES if case.id == PREFIXED[prefix])
    tiny = case.build()
    tables, padding = family.tables, getattr(tiny.model.config, "pad_token_id", None)
    keep = ("image_size", "patch_size") if tables[0].grid else ()
    reference = without_config(tiny, tmp_path / "model", keep)
    if tables[0].reserved == "padding":
        with pytest.raises(InvalidCheckpoint, match=r"padding_idx.*pad_token_id.*--tensor"):
            load(reference)
        (tmp_path / "model/config.json").write_text(json.dumps({"pad_token_id": padding}))
    table = load(reference)
    assert table.family == case.family
    assert_as_the_model(table, tiny)


def test_an_anonymous_bert_named_table_of_514_rows_is_refused(tmp_path: Path) -> None:
    reference = without_config(bert_of(514), tmp_path / "model")
    with pytest.raises(InvalidCheckpoint) as caught:
        load(reference)
    message = str(caught.value)
    for part in ("[514, 8]", "bert", "roberta", "mpnet", "model_type", "--tensor"):
        assert part in message
    taken = load(reference, tensor="embeddings.position_embeddings.weight")
    assert len(taken) == 514


def test_an_anonymous_bert_named_table_of_512_rows_has_no_padding_rows(tmp_path: Path) -> None:
    tiny = bert_of(512)
    table = load(without_config(tiny, tmp_path / "model"))
    assert_same_bits(table.values, tiny.rows)
    assert table.dropped == ()


@pytest.mark.parametrize(
    ("padding", "says"),
    [(11, "12 rows are not positions"),
     *((padding, "gives pad_token_id as") for padding in (None, "1", -1, True, 1.0))],
)  # fmt: skip
def test_a_padding_row_that_cannot_be_is_refused(
    padding: object, says: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    save_pretrained(roberta(1)(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": padding}))
    with pytest.raises(InvalidCheckpoint, match=says):
        load(str(folder))


def test_a_fairseq_checkpoint_without_its_options_is_refused(tmp_path: Path) -> None:
    path = save_fairseq(roberta(1)(), tmp_path / "model")
    content = torch.load(path, weights_only=False)
    torch.save({"model": content["model"]}, path)
    with pytest.raises(InvalidCheckpoint, match=r"max_positions.*--tensor"):
        load(path)


# --- unknown architectures ---


def save_tensors(folder: Path, config: Mapping[str, Any] | None = None, **shapes: Any) -> str:
    torch.manual_seed(0)
    state = {name.replace("__", "."): torch.randn(shape) for name, shape in shapes.items()}
    save_file(state, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize(
    "name",
    [
        "pos_emb", "model__pos_embedding__weight", "transformer__position_embeddings__weight",
        "positional_embedding", "visual__positional_embedding", "encoder__pos_encoder__pe",
        "embed_positions__weight", "pos_table", "positional_encoding", "emb_pos__weight",
        "position_embedding_table__weight",
    ],
)  # fmt: skip
def test_an_unknown_architecture_gives_a_candidate_and_the_reason(
    name: str, tmp_path: Path
) -> None:
    reference = save_tensors(
        tmp_path, {"model_type": "mine"}, head__weight=(8, 8), **{name: (9, 8)}
    )
    table = load(reference)
    assert table.source.tensor == name.replace("__", ".")
    assert table.layout == Sequence(9)
    assert table.family is None
    assert any("unknown architecture" in note for note in table.notes)
    (encoding,) = find_encodings(open_reference(parse_reference(reference)))
    assert "generic rule" in encoding.why


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((9, 8), Sequence(9)), ((1, 9, 8), Sequence(9)),
     ((1, 4, 6, 8), Grid(4, 6)), ((4, 6, 8), Grid(4, 6))],
)  # fmt: skip
def test_the_stored_shape_gives_the_layout(
    shape: tuple[int, ...], layout: Sequence | Grid, tmp_path: Path
) -> None:
    table = load(save_tensors(tmp_path, my_pos_embedding=shape))
    assert table.layout == layout
    state = load_file(tmp_path / "model.safetensors")
    assert_same_bits(table.values, state["my_pos_embedding"].reshape(-1, 8))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("attn__relative_position_bias_table", (9, 2)),
        ("position_embeddings_norm__weight", (9, 8)),
        ("rotary_pos_emb", (9, 8)),
        ("positionwise__weight", (9, 8)),
        ("pos_embed_proj__weight", (9, 8)),
        ("composer__weight", (9, 8)),
        ("pos_emb", (9,)),
        ("pos_emb", (1, 8)),
        ("pos_emb", (9, 1)),
        ("pos_emb", (2, 2, 3, 4)),
    ],
)
def test_what_is_not_named_and_shaped_like_a_table_is_no_candidate(
    name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    with pytest.raises(NoPositionTable):
        load(save_tensors(tmp_path, None, **{name: shape}))


def test_several_candidates_are_named_after_their_part_of_the_model(tmp_path: Path) -> None:
    reference = save_tensors(
        tmp_path, encoder__pos_emb=(9, 8), decoder__pos_emb=(7, 8), a__pos_emb=(5, 8),
        b__pos_emb=(3, 8),
    )  # fmt: skip
    with pytest.raises(AmbiguousTable, match="4 position tables"):
        load(reference)
    sizes = {name: len(load(f"{reference}#{name}")) for name in ("encoder", "decoder")}
    assert sizes == {"encoder": 9, "decoder": 7}
    assert len(load(f"{reference}#a.pos_emb")) == 5
    assert len(load(f"{reference}#b.pos_emb")) == 3


def test_a_square_number_of_patches_is_a_grid_and_said_to_be(tmp_path: Path) -> None:
    config = {"model_type": "mine", "image_size": 64}
    table = load(save_tensors(tmp_path, config, pos_emb=(17, 8)))
    assert table.layout == Grid(4, 4)
    assert [row.token for row in table.prefix_rows] == ["CLS"]
    assert any("16 patches read as square" in note for note in table.notes)


def test_two_tables_of_one_part_are_named_in_full(tmp_path: Path) -> None:
    reference = save_tensors(tmp_path, encoder__a__pos_emb=(9, 8), encoder__b__pos_emb=(7, 8))
    with pytest.raises(UnknownReference):
        load(f"{reference}#encoder")
    assert len(load(f"{reference}#encoder.b.pos_emb")) == 7


def test_a_learned_table_in_a_fixed_place_is_called_learned(tmp_path: Path) -> None:
    tiny = hf_whisper("WhisperModel", "encoder")
    tiny.rows.add_(torch.randn(tiny.rows.shape))
    table = load(save_pretrained(tiny, tmp_path / "model") + "#encoder")
    assert table.kind == "learned"
    assert any("its values differ" in note for note in table.notes)


def test_a_formula_in_a_learned_place_is_called_fixed(tmp_path: Path) -> None:
    from posprobe.encodings import sinusoidal

    tiny = bert_of(32)
    tiny.rows.copy_(torch.from_numpy(np.array(sinusoidal(32, 8))))
    table = load(save_pretrained(tiny, tmp_path / "model"))
    assert table.kind == "fixed"
    assert any("interleaved" in note for note in table.notes)


def test_mae_keeps_its_fixed_grid_apart_from_its_zero_row(tmp_path: Path) -> None:
    model = hf_mae()
    model.save_pretrained(tmp_path / "model")
    table = load(str(tmp_path / "model"))
    stored = find(model, "embeddings.position_embeddings").data[0]
    assert table.kind == "fixed"
    assert table.layout == Grid(4, 4)
    assert_same_bits(table.values, stored[1:])
    assert table.prefix is not None
    assert not table.prefix.any()
