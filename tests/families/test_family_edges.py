"""Checkpoints that name no known family, hold no table, or odd values: what is found and told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_checkpoints import model_folder
from made_family_checks import assert_same_bits, assert_table_as_in_model, bert_of
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

from posprobe.errors import (
    AmbiguousTable,
    InvalidCheckpoint,
    NoPositionTable,
    UnknownReference,
)
from posprobe.families import find_encodings, load
from posprobe.families.architectures import load_registry
from posprobe.families.find import is_named_position
from posprobe.families.read import open_reference
from posprobe.layouts import Grid, Sequence
from posprobe.reference import parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def without_config(tiny: Tiny, folder: Path, keep: tuple[str, ...] = ()) -> str:
    save_pretrained(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    if keep:
        (folder / "config.json").write_text(
            json.dumps({key: config[key] for key in keep})
        )
    return str(folder)


@pytest.mark.parametrize(
    "prefix", [p for family in load_registry().families for p in family.prefixes]
)
def test_the_modules_name_identifies_the_family(prefix: str, tmp_path: Path) -> None:
    (family,) = (
        family for family in load_registry().families if prefix in family.prefixes
    )
    own_cases = [
        case for case in CASES if (case.model_type or "").replace("-", "_") == prefix
    ]
    case = next(
        case for case in own_cases if "For" in case.id
    )  # whose names have the prefix
    tiny = case.build()
    tables, padding = family.tables, getattr(tiny.model.config, "pad_token_id", None)
    keep = ("image_size", "patch_size") if tables[0].grid else ()
    reference = without_config(tiny, tmp_path / "model", keep)
    if tables[0].reserved == "padding":
        with pytest.raises(InvalidCheckpoint, match=r"pad_token_id.*`tensor="):
            load(reference)
        (tmp_path / "model/config.json").write_text(json.dumps({"pad_token_id": padding}))
    table = load(reference)
    assert table.family == case.family
    assert_table_as_in_model(table, tiny)


def test_an_anonymous_bert_named_table_may_have_padding_rows(tmp_path: Path) -> None:
    reference = without_config(bert_of(514), tmp_path / "model")
    with pytest.raises(InvalidCheckpoint) as caught:
        load(reference)
    for part in ("[514, 8]", "bert", "roberta", "mpnet", "model_type", "`tensor="):
        assert part in str(caught.value)
    tiny = bert_of(512)
    table = load(without_config(tiny, tmp_path / "round"))
    assert_same_bits(table.values, tiny.rows)
    assert table.dropped == ()


@pytest.mark.parametrize(
    ("padding", "says"),
    [(11, "12 rows are not positions"),
     *((padding, "pad_token_id, which") for padding in (None, "1", -1, True, 1.0))],
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
    with pytest.raises(InvalidCheckpoint, match=r"max_positions.*`tensor="):
        load(path)


# --- unknown architectures ---


def save_tensors(
    folder: Path, config: Mapping[str, Any] | None = None, **shapes: Any
) -> str:
    draw = np.random.default_rng(0)
    tensors = {
        name.replace("__", "."): draw.normal(size=shape) for name, shape in shapes.items()
    }
    return model_folder(folder, tensors, **config or {})


NAMED_SCHEMES = [
    "model.pos_embedding.weight", "positional_embedding", "encoder.pos_encoder.pe", "pos_emb",
    "embed_positions.weight", "pos_table", "emb_pos.weight", "position_embedding_table.weight",
    "transformer.position_embeddings.weight", "visual.positional_embedding",
]  # fmt: skip
OTHERWISE = [
    "attn.relative_position_bias_table", "position_embeddings_norm.weight", "rotary_pos_emb",
    "positionwise.weight", "pos_embed_proj.weight", "composer.weight",
]  # fmt: skip


def test_table_names_are_distinguished_from_similar_names() -> None:
    assert [
        name for name in (*NAMED_SCHEMES, *OTHERWISE) if is_named_position(name)
    ] == NAMED_SCHEMES


def test_an_unknown_architecture_gives_a_candidate_and_the_reason(tmp_path: Path) -> None:
    config = {"model_type": "mine"}
    table = load(save_tensors(tmp_path, config, head__weight=(8, 8), pos_emb=(9, 8)))
    assert (table.source.tensor, table.layout, table.family) == (
        "pos_emb",
        Sequence(9),
        None,
    )
    assert any("unknown architecture" in note for note in table.notes)
    (encoding,) = find_encodings(open_reference(parse_reference(str(tmp_path))))
    assert "generic rule" in encoding.evidence


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


@pytest.mark.parametrize("shape", [(9,), (1, 8), (9, 1), (2, 2, 3, 4)])
def test_tensors_without_table_shape_are_no_candidates(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    with pytest.raises(NoPositionTable):
        load(save_tensors(tmp_path, None, pos_emb=shape))


def test_several_candidates_are_named_after_their_part_of_the_model(
    tmp_path: Path,
) -> None:
    rows = {
        "encoder__pos_emb": 9,
        "decoder__pos_emb": 7,
        "a__pos_emb": 5,
        "b__pos_emb": 3,
    }
    reference = save_tensors(tmp_path, None, **{name: (n, 8) for name, n in rows.items()})
    with pytest.raises(AmbiguousTable, match="4 position tables"):
        load(reference)
    for name, count in rows.items():
        assert len(load(f"{reference}#{name.split('__')[0]}")) == count
    reference = save_tensors(
        tmp_path, encoder__a__pos_emb=(9, 8), encoder__b__pos_emb=(7, 8)
    )
    with pytest.raises(UnknownReference):
        load(f"{reference}#encoder")
    assert len(load(f"{reference}#b")) == len(load(f"{reference}#encoder.b.pos_emb")) == 7


def test_a_square_number_of_patches_is_a_grid_with_a_note(tmp_path: Path) -> None:
    config = {"model_type": "mine", "image_size": 64}
    table = load(save_tensors(tmp_path, config, pos_emb=(17, 8)))
    assert table.layout == Grid(4, 4)
    assert [row.token for row in table.prefix_rows] == ["CLS"]
    assert any("16 patches read as square" in note for note in table.notes)


def test_a_learned_table_in_a_fixed_place_is_called_learned(tmp_path: Path) -> None:
    tiny = hf_whisper("WhisperModel", "encoder")
    tiny.rows.add_(torch.randn(tiny.rows.shape))
    table = load(save_pretrained(tiny, tmp_path / "model") + "#encoder")
    assert table.kind == "learned"
    assert any("its values differ" in note for note in table.notes)


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
    with pytest.raises(
        NoPositionTable, match=rf"no table of positions that can be read. It has {scheme}"
    ) as caught:
        load(str(tmp_path / "model"))
    assert caught.value.exit_code == 5
    encodings = find_encodings(open_reference(parse_reference(str(tmp_path / "model"))))
    assert {encoding.scheme for encoding in encodings} == {scheme}


@pytest.mark.parametrize("scheme", ["relative_key", "relative_key_query"])
def test_a_table_is_read_where_the_library_ignores_relative_key(
    scheme: str, tmp_path: Path
) -> None:
    """What transformers 4 saved holds a vector per distance; version 5 builds and adds a table."""
    make: Any = transformers.BertConfig
    config = make(
        position_embedding_type=scheme, max_position_embeddings=24, vocab_size=9, **SMALL
    )
    model: Any = transformers.BertModel(config)
    model.eval()
    model.save_pretrained(tmp_path)
    rows = model.embeddings.position_embeddings.weight
    table = load(str(tmp_path))
    np.testing.assert_array_equal(table.values, rows.detach().numpy())
    ids = torch.arange(8)[None]
    with torch.no_grad():
        output_before = model(ids).last_hidden_state
        rows[:] = rows.flip(0)
        assert (
            model(ids).last_hidden_state - output_before
        ).abs().max() > 1e-3  # it is used

    state = dict(model.state_dict())
    vectors = torch.randn(47, 8)
    state["encoder.layer.0.attention.self.distance_embedding.weight"] = vectors
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(NoPositionTable, match="relative"):
        load(str(tmp_path))


def test_a_table_that_the_model_ignores_is_not_offered(tmp_path: Path) -> None:
    # ESM-2 models store a table that their rotary forward pass never reads.
    config = {"model_type": "esm", "position_embedding_type": "rotary", "pad_token_id": 1}
    names = {"esm__embeddings__position_embeddings__weight": (16, 8)}
    with pytest.raises(NoPositionTable, match="rotary"):
        load(save_tensors(tmp_path, config, **names))


def test_a_checkpoint_without_a_table_names_what_tells_positions_apart(
    tmp_path: Path,
) -> None:
    reference = save_tensors(tmp_path, encoder__pos_conv_embed__conv__weight_g=(1, 1, 8))
    with pytest.raises(
        NoPositionTable, match=r"convolution positions .*encoder\.pos_conv_embed"
    ) as caught:
        load(reference)
    assert caught.value.exit_code == 5


# --- damaged values ---


def test_dropped_rows_may_hold_any_values(tmp_path: Path) -> None:
    tiny = roberta(1)()
    tiny.rows[0] = float("nan")
    assert len(load(save_pretrained(tiny, tmp_path / "model"))) == len(tiny.rows) - 2
