"""Families: what is read back is what the model's own forward pass uses."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import (
    BERT,
    CASES,
    VIT,
    Case,
    Tiny,
    find,
    hf_mae,
    hf_text,
    hf_two_towers,
    hf_vision,
    hf_whisper,
    roberta,
    save_fairseq,
    save_pretrained,
    save_state_dict,
    save_timm,
    timm_vit,
)

from posprobe.errors import (
    AmbiguousTable,
    InvalidCheckpoint,
    InvalidTable,
    NoPositionTable,
    UnknownReference,
    UsageError,
)
from posprobe.families import FAMILIES, find_encodings, load
from posprobe.families.read import open_reference
from posprobe.layouts import Grid, Sequence
from posprobe.reference import parse_reference
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

#: What posprobe calls the tokens of these parameters.
TOKENS = {
    "cls_token": "CLS", "class_token": "CLS", "class_embedding": "CLS",
    "dist_token": "distillation", "distillation_token": "distillation",
    "reg_token": "register", "register_tokens": "register",
}  # fmt: skip


#: Families of other libraries than PyTorch; tests/test_formats.py reads what those write.
ELSEWHERE = {"jax-vit", "keras-hub"}


def test_every_family_and_every_model_type_has_a_tiny_model() -> None:
    listed = {
        (family.name, model_type)
        for family in FAMILIES
        if family.name not in ELSEWHERE
        for model_type in family.model_types or (None,)
    }
    assert {(case.family, case.model_type) for case in CASES} == listed
    assert len({case.id for case in CASES}) == len(CASES)


def test_every_table_of_a_family_is_picked_by_some_tiny_model() -> None:
    ours = [family for family in FAMILIES if family.name not in ELSEWHERE]
    named = {(f.name, rule.name) for f in ours for rule in f.tables if rule.name}
    assert {(case.family, case.pick.removeprefix("#")) for case in CASES if case.pick} >= named


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_rows_are_those_that_the_forward_pass_uses(case: Case, tmp_path: Path) -> None:
    tiny = case.build()
    reference = case.save(tiny, tmp_path / "model")
    table = load(reference + case.pick)
    assert table.family == case.family
    assert table.kind == case.kind
    assert_as_the_model(table, tiny)


def assert_as_the_model(table: PositionTable, tiny: Tiny) -> None:
    rows = tiny.probe()
    assert_same_bits(table.values, tiny.rows[rows.positions])
    assert [row.row for row in table.dropped] == rows.unused
    assert all(row.reason for row in table.dropped)
    assert table.layout == (Grid(*rows.grid) if rows.grid else Sequence(len(rows.positions)))
    special = sorted(rows.special)
    assert [row.row for row in table.prefix_rows] == special
    count = Counter(rows.special[row].partition("[")[0] for row in special)
    for prefix in table.prefix_rows:
        parameter, _, index = rows.special[prefix.row].partition("[")
        token = TOKENS[parameter]
        assert prefix.token == (f"{token} {index[:-1]}" if count[parameter] > 1 else token)
    if special:
        assert table.prefix is not None
        assert_same_bits(table.prefix, tiny.rows[special])
    else:
        assert table.prefix is None
    assert table.source.shape == tuple(tiny.table.shape)


def assert_same_bits(values: np.ndarray[Any, Any], parameter: Tensor) -> None:
    if parameter.dtype == torch.bfloat16:
        parameter = parameter.float()  # NumPy has no bfloat16; float32 holds each of its numbers
    expected = parameter.numpy()
    assert values.dtype == expected.dtype
    assert values.shape == expected.shape
    assert values.tobytes() == expected.tobytes()


# --- formats ---


def save_bin(tiny: Tiny, folder: Path, **options: Any) -> str:
    folder.mkdir()
    tiny.model.config.save_pretrained(folder)
    torch.save(tiny.model.state_dict(), folder / "pytorch_model.bin", **options)
    return str(folder)


def save_bin_legacy(tiny: Tiny, folder: Path) -> str:
    return save_bin(tiny, folder, _use_new_zipfile_serialization=False)


def save_bin_shards(tiny: Tiny, folder: Path) -> str:
    folder.mkdir()
    tiny.model.config.save_pretrained(folder)
    state = tiny.model.state_dict()
    shards = {
        name: f"pytorch_model-0000{i % 2 + 1}-of-00002.bin" for i, name in enumerate(sorted(state))
    }
    for shard in set(shards.values()):
        torch.save({name: state[name] for name in state if shards[name] == shard}, folder / shard)
    index = {"metadata": {"total_size": 1}, "weight_map": shards}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return str(folder)


def save_sharded(tiny: Tiny, folder: Path) -> str:
    tiny.model.save_pretrained(folder, max_shard_size="2KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return str(folder)


def save_shard_index(tiny: Tiny, folder: Path) -> str:
    return save_sharded(tiny, folder) + "/model.safetensors.index.json"


def save_weights_file(tiny: Tiny, folder: Path) -> str:
    return save_pretrained(tiny, folder) + "/model.safetensors"


def save_npz(tiny: Tiny, folder: Path) -> str:
    save_pretrained(tiny, folder)
    (folder / "model.safetensors").unlink()
    state = {name: tensor.numpy() for name, tensor in tiny.model.state_dict().items()}
    np.savez(folder / "model.npz", **state)
    return str(folder)


def save_nested(*keys: str, prefix: str = "") -> Callable[[Tiny, Path], str]:
    def save(tiny: Tiny, folder: Path) -> str:
        folder.mkdir()
        tiny.model.config.save_pretrained(folder)
        content: Mapping[str, Any] = {
            prefix + name: tensor for name, tensor in tiny.model.state_dict().items()
        }
        for key in reversed(keys):
            content = {key: content, "epoch": 3, "best": torch.tensor(0.5).item()}
        torch.save(content, folder / "checkpoint.pt")
        return str(folder / "checkpoint.pt")

    return save


FORMATS = {
    "safetensors": save_pretrained,
    "safetensors-file": save_weights_file,
    "safetensors-shards": save_sharded,
    "safetensors-index": save_shard_index,
    "bin": save_bin,
    "bin-legacy": save_bin_legacy,
    "bin-shards": save_bin_shards,
    "pt-model": save_nested("model"),
    "pt-state_dict": save_nested("state_dict"),
    "pt-module": save_nested(prefix="module."),
    "pt-state_dict-module": save_nested("state_dict", prefix="module."),
    "pt-nested-twice": save_nested("model", "state_dict"),
    "npz": save_npz,
}  # fmt: skip


@pytest.mark.parametrize("save", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("part", ["text", "vision"])
def test_every_file_format_gives_the_same_rows(
    save: Callable[[Tiny, Path], str], part: str, tmp_path: Path
) -> None:
    tiny = roberta(3)() if part == "text" else hf_vision("ViTModel", VIT, tokens=("cls_token",))
    assert_as_the_model(load(save(tiny, tmp_path / "model")), tiny)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("save", [save_pretrained, save_bin, save_bin_legacy])
def test_every_precision_is_kept_to_the_bit(
    dtype: torch.dtype, save: Callable[[Tiny, Path], str], tmp_path: Path
) -> None:
    tiny = roberta(1, dtype)()
    table = load(save(tiny, tmp_path / "model"))
    assert_as_the_model(table, tiny)
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16"}
    assert table.source.dtype == names.get(dtype, "BF16")


def test_the_source_says_what_was_read(tmp_path: Path) -> None:
    from hashlib import sha256

    tiny = roberta(1)()
    folder = tmp_path / "model"
    table = load(save_pretrained(tiny, folder))
    assert table.source.reference == str(folder)
    assert table.source.resolved == str(folder.resolve())
    assert table.source.file == "model.safetensors"
    assert table.source.tensor == "embeddings.position_embeddings.weight"
    assert table.source.dtype == "F32"
    assert table.source.sha256 == sha256(tiny.table.detach().numpy().tobytes()).hexdigest()
    assert table.source.revision is None
    assert table.name == "model"


# --- several tables ---


def encoder_decoder() -> Tiny:
    return hf_whisper("WhisperModel", "decoder")


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (encoder_decoder, ("encoder", "decoder")),
        (lambda: hf_two_towers("CLIPModel", "text"), ("text", "vision")),
        (lambda: hf_two_towers("SiglipModel", "text"), ("text", "vision")),
    ],
)
def test_several_tables_and_no_choice_lists_them(
    build: Callable[[], Tiny], parts: tuple[str, ...], tmp_path: Path
) -> None:
    reference = save_pretrained(build(), tmp_path / "model")
    with pytest.raises(AmbiguousTable) as caught:
        load(reference)
    message = str(caught.value)
    for part in parts:
        tensor = load(f"{reference}#{part}").source
        assert f"{reference}#{part}" in message
        assert tensor.tensor is not None
        assert tensor.tensor in message
        assert tensor.shape is not None
        assert " x ".join(map(str, tensor.shape)) in message
    assert "--tensor" in message
    assert caught.value.exit_code == 2


def test_a_table_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    reference = save_pretrained(encoder_decoder(), tmp_path / "model")
    with pytest.raises(UnknownReference, match=r"'vision'[\s\S]*#decoder[\s\S]*#encoder"):
        load(f"{reference}#vision")


def test_a_table_is_picked_by_its_tensor_too(tmp_path: Path) -> None:
    tiny = encoder_decoder()
    reference = save_pretrained(tiny, tmp_path / "model")
    table = load(f"{reference}#decoder.embed_positions.weight")
    assert_as_the_model(table, tiny)


# --- naming a tensor, stating a grid ---


def test_a_named_tensor_is_taken_whole(tmp_path: Path) -> None:
    tiny = roberta(3)()
    reference = save_pretrained(tiny, tmp_path / "model")
    table = load(reference, tensor="embeddings.position_embeddings.weight")
    assert_same_bits(table.values, tiny.rows)
    assert table.dropped == ()
    assert any("--tensor" in note for note in table.notes)
    words = load(reference, tensor="embeddings.word_embeddings.weight")
    assert_same_bits(words.values, find(tiny.model, "word_embeddings.weight").data)


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        ("embeddings.position_embedding.weight", UnknownReference, "position_embeddings.weight"),
        ("embeddings.LayerNorm.weight", InvalidTable, r"\[16\].*two dimensions"),
    ],
)
def test_a_named_tensor_that_is_no_table(
    tensor: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    reference = save_pretrained(roberta(1)(), tmp_path / "model")
    with pytest.raises(error, match=message):
        load(reference, tensor=tensor)


def test_a_tensor_and_a_table_name_contradict_each_other(tmp_path: Path) -> None:
    reference = save_pretrained(encoder_decoder(), tmp_path / "model")
    with pytest.raises(UsageError, match="Use one"):
        load(f"{reference}#decoder", tensor="decoder.embed_positions.weight")


def wide_vit(**options: Any) -> Tiny:
    """4 x 7 patches: with CLS, 29 rows, which no square explains."""
    return timm_vit("vit_tiny_patch16_224", img_size=(28, 49), patch_size=7, **options)


@pytest.mark.parametrize("options", [{}, {"reg_tokens": 2}, {"no_embed_class": True}])
def test_a_stated_grid_settles_what_the_checkpoint_does_not_say(
    options: dict[str, Any], tmp_path: Path
) -> None:
    tiny = wide_vit(**options)
    path = save_state_dict(tiny, tmp_path / "model")
    with pytest.raises(InvalidCheckpoint, match=r"--grid HEIGHTxWIDTH.*--tensor pos_embed"):
        load(path)
    assert_as_the_model(load(path, grid=(4, 7)), tiny)
    assert_as_the_model(load(path, tensor="pos_embed", grid=(4, 7)), tiny)


@pytest.mark.parametrize(("rows", "partly"), [((7, 21), False), ((0, 10), True)])
def test_parts_of_the_rows_of_a_grid_are_noted(
    rows: tuple[int, int], partly: bool, tmp_path: Path
) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    whole = load(path, grid=(4, 7))
    for part in (load(path, grid=(4, 7), rows=slice(*rows)), whole[slice(*rows)]):
        assert isinstance(part.layout, Grid) is not partly
        said = [note for note in part.notes if "patches below each other are 7 positions" in note]
        assert bool(said) is partly


def test_a_stated_grid_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    with pytest.raises(InvalidCheckpoint, match="29 rows are not 1 or 0 special tokens"):
        load(path, grid=(4, 6))


@pytest.mark.parametrize("grid", [(0, 28), (-4, -7), (-1, 29)])
def test_a_grid_has_positive_sides(grid: tuple[int, int], tmp_path: Path) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    with pytest.raises(UsageError, match="grid"):
        load(path, grid=grid)


def test_a_configured_grid_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_pretrained(hf_vision("ViTModel", VIT), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"image_size": [28, 56]}))
    with pytest.raises(InvalidCheckpoint, match=r"shape \[1, 13, 16\].*grid of 4 x 4"):
        load(str(folder))


def test_timm_states_an_input_size_that_is_not_the_models(tmp_path: Path) -> None:
    tiny = timm_vit("vit_tiny_patch16_224")
    folder = tmp_path / "model"
    save_timm(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["input_size"] = [3, 224, 224]
    config.pop("model_args", None)
    (folder / "config.json").write_text(json.dumps(config))
    table = load(str(folder))
    assert_as_the_model(table, tiny)
    assert any("square" in note for note in table.notes)


# --- without a configuration ---


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
    assert set(PREFIXED) == {prefix for family in FAMILIES for prefix in family.prefixes}


@pytest.mark.parametrize("prefix", PREFIXED)
def test_the_modules_name_identifies_the_family(prefix: str, tmp_path: Path) -> None:
    (family,) = (family for family in FAMILIES if prefix in family.prefixes)
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


def bert_of(rows: int) -> Tiny:
    return hf_text(
        "BertModel", BERT, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, vocab_size=30, max_position_embeddings=rows,
    )  # fmt: skip


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


def test_a_padding_row_beyond_the_table_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_pretrained(roberta(1)(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": 11}))
    with pytest.raises(InvalidCheckpoint, match="12 rows are no positions"):
        load(str(folder))


@pytest.mark.parametrize("padding", [None, "1", -1, True, 1.0])
def test_a_padding_index_that_is_none_is_refused(padding: object, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_pretrained(roberta(1)(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": padding}))
    with pytest.raises(InvalidCheckpoint, match="gives pad_token_id as"):
        load(str(folder))


def test_a_fairseq_checkpoint_without_its_options_is_refused(tmp_path: Path) -> None:
    path = save_fairseq(roberta(1)(), tmp_path / "model")
    content = torch.load(path, weights_only=False)
    torch.save({"model": content["model"]}, path)
    with pytest.raises(InvalidCheckpoint, match=r"max_positions.*--tensor"):
        load(path)


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
        ("rotary", lambda: hf_lm("GPTNeoXForCausalLM", **SMALL)),
        ("rotary", lambda: hf_lm("FalconForCausalLM", **SMALL)),
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
    with pytest.raises(NoPositionTable, match="1 tensors") as caught:
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


def test_a_zero_row_is_a_row(tmp_path: Path) -> None:
    tiny = bert_of(16)
    tiny.rows[4] = 0
    table = load(save_pretrained(tiny, tmp_path / "model"))
    assert np.flatnonzero(~table.values.any(axis=1)).tolist() == [4]


def test_a_row_that_is_no_position_may_hold_anything(tmp_path: Path) -> None:
    tiny = roberta(1)()
    tiny.rows[0] = float("nan")
    assert len(load(save_pretrained(tiny, tmp_path / "model"))) == len(tiny.rows) - 2


def test_a_table_of_one_row_loads(tmp_path: Path) -> None:
    tiny = bert_of(1)
    table = load(save_pretrained(tiny, tmp_path / "model"))
    assert table.layout == Sequence(1)
    assert_same_bits(table.values, tiny.rows)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_a_quantised_table_is_refused_by_name(dtype: torch.dtype, tmp_path: Path) -> None:
    tiny = bert_of(16)
    folder = tmp_path / "model"
    save_pretrained(tiny, folder)
    state = load_file(folder / "model.safetensors")
    state["embeddings.position_embeddings.weight"] = tiny.rows.to(dtype)
    save_file(state, folder / "model.safetensors")
    with pytest.raises(InvalidTable, match=r"position_embeddings.*quantised.*F32") as caught:
        load(str(folder))
    assert caught.value.exit_code == 4


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
