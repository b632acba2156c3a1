"""What a checkpoint says about position beside a table that can be read: nothing is hidden."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_checkpoints import model_folder
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.errors import InvalidCheckpoint, NoPositionTable, PosprobeError, UsageError
from posprobe.families import inspect
from posprobe.families.read import inspect_reference, load_any
from posprobe.resizing.checkpoint import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

ESM_TABLE = "esm.embeddings.position_embeddings.weight"
ESM_ROTATION = "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq"


def random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def adapter(folder: Path, tensors: dict[str, Any]) -> str:
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-2-7b-hf"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


def refusal(reference: str) -> str:
    with pytest.raises(PosprobeError) as error:
        load_any(reference)
    return str(error.value)


def test_an_adapter_names_the_base_model_that_has_the_positions(tmp_path: Path) -> None:
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    reference = adapter(tmp_path / "a", {name: random(8, 64)})
    records, message = inspect_reference(reference)
    assert records == []
    assert "adapter" in message
    assert "meta-llama/Llama-2-7b-hf" in message
    assert refusal(reference).endswith(message.partition(": ")[2])


def test_a_change_of_a_table_is_listed_with_its_rank_and_rows(tmp_path: Path) -> None:
    stem = "base_model.model.transformer.wpe.lora_embedding"
    tensors = {f"{stem}_A": random(8, 256), f"{stem}_B": random(64, 8)}
    reference = adapter(tmp_path / "a", tensors)
    (record,) = inspect(reference)
    assert record["scheme"] == "learned"
    assert "transformer.wpe, 256 rows, rank 8" in record["why"]
    assert "meta-llama/Llama-2-7b-hf" in record["problem"]
    assert record["problem"].partition(".")[0] in refusal(reference)


@pytest.mark.parametrize("shape", [(0,), (0, 64), (64, 0)])
@pytest.mark.parametrize("config", [{}, {"model_type": "gpt2", "n_positions": 256}])
def test_a_placeholder_of_zero_3_is_said_to_be_one(
    shape: tuple[int, ...], config: dict[str, Any], tmp_path: Path
) -> None:
    tensors = {
        "transformer.wpe.weight": random(*shape),
        "transformer.wte.weight": random(0),
    }
    reference = model_folder(tmp_path / "m", tensors, **config)
    (record,) = inspect(reference)
    assert record["positions"] is None
    assert "ZeRO-3" in record["problem"]
    with pytest.raises(InvalidCheckpoint, match="ZeRO-3"):
        pp.load(reference)


def test_tables_that_the_architecture_has_and_the_file_lacks_are_named(
    tmp_path: Path,
) -> None:
    tensors = {"model.encoder.layers.0.self_attn.q_proj.weight": random(64, 64)}
    reference = model_folder(tmp_path / "m", tensors, model_type="mbart", d_model=64)
    records = inspect(reference)
    assert [record["name"] for record in records] == ["encoder", "decoder"]
    assert all("does not hold it" in record["problem"] for record in records)
    assert "encoder.embed_positions.weight" in refusal(reference)
    assert "decoder.embed_positions.weight" in refusal(reference)


def test_a_convolution_is_listed_by_inspect_as_it_is_by_analyze(tmp_path: Path) -> None:
    name = "wav2vec2.encoder.pos_conv_embed.conv.weight_g"
    reference = model_folder(
        tmp_path / "m", {name: random(1, 1, 128)}, model_type="wav2vec2"
    )
    (record,) = inspect(reference)
    assert (record["scheme"], record["tensor"]) == ("convolution", name)
    assert record["why"] in refusal(reference)


def test_the_projection_of_patches_is_no_convolution_of_positions(tmp_path: Path) -> None:
    tensors = {"pos_embed.proj.weight": random(64, 16, 2, 2)}
    assert inspect(model_folder(tmp_path / "m", tensors)) == []
    tensors = {"pos_embed.proj.weight": random(64, 1, 3, 3)}
    assert inspect(model_folder(tmp_path / "n", tensors))[0]["scheme"] == "convolution"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "rotate queries and keys"),
        (
            {"model_type": "esm", "position_embedding_type": "rotary", "pad_token_id": 1,
             "hidden_size": 64, "num_attention_heads": 4},
            "position_embedding_type is rotary",
        ),
    ],
)  # fmt: skip
def test_the_dead_table_of_esm_is_listed_as_unused_beside_its_rotation(
    config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    tensors = {ESM_TABLE: random(1026, 64), ESM_ROTATION: random(8)}
    reference = model_folder(tmp_path / "m", tensors, **config)
    rotary, table = inspect(reference)
    assert rotary["scheme"] == "rotary"
    assert rotary["unused"] is None
    assert (table["tensor"], table["problem"]) == (ESM_TABLE, None)
    assert reason in table["unused"]
    with pytest.raises(NoPositionTable, match="never read"):
        pp.load(reference)
    assert len(pp.load(reference, tensor=ESM_TABLE)) == 1026


def test_a_bert_that_adds_its_table_has_no_unused_one(tmp_path: Path) -> None:
    tensors = {"bert.embeddings.position_embeddings.weight": random(16, 8)}
    (record,) = inspect(model_folder(tmp_path / "m", tensors))
    assert record["unused"] is None
    assert record["positions"] == 16


@pytest.mark.parametrize(
    "rotation", ["visual.rope.freqs_cos", "visual.rope.freqs", "rotary_emb.inv_freq"]
)
def test_a_rotation_is_listed_beside_a_table_that_is_read(
    rotation: str, tmp_path: Path
) -> None:
    tensors = {
        "visual.pos_embed": random(1, 257, 64), "visual.cls_token": random(1, 1, 64),
        "visual.patch_embed.proj.weight": random(64, 3, 14, 14), rotation: random(256, 16),
    }  # fmt: skip
    table, rotary = inspect(model_folder(tmp_path / "m", tensors))
    assert (table["scheme"], table["positions"]) == ("learned", 256)
    assert (rotary["scheme"], rotary["tensor"]) == ("rotary", rotation)


def cog_video(folder: Path, *, learned: bool) -> str:
    tensors = {"patch_embed.pos_embedding": random(1, 226 + 12, 8)}
    return model_folder(
        folder, tensors, _class_name="CogVideoXTransformer3DModel", max_text_seq_length=226,
        use_rotary_positional_embeddings=True, use_learned_positional_embeddings=learned,
        attention_head_dim=64, num_attention_heads=2,
    )  # fmt: skip


def test_the_rows_of_the_text_are_no_positions_of_a_video(tmp_path: Path) -> None:
    reference = cog_video(tmp_path / "m", learned=True)
    table, rotary = inspect(reference)
    assert table["positions"] == 12
    assert [row["row"] for row in table["dropped_rows"]] == list(range(226))
    assert rotary["scheme"] == "rotary"
    expected = random(1, 238, 8)[0, 226:]
    np.testing.assert_array_equal(pp.load(reference).values, expected)


def test_a_table_of_a_video_model_that_rotates_alone_is_unused(tmp_path: Path) -> None:
    rotary, table = inspect(cog_video(tmp_path / "m", learned=False))
    assert rotary["scheme"] == "rotary"
    assert "use_rotary_positional_embeddings" in table["unused"]


def test_a_constant_in_a_keras_configuration_is_named(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    weights = tmp_path / "model.weights.h5"
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = random(4, 4)
    constant = {"class_name": "__tensor__", "config": {"value": random(1, 6, 4).tolist()}}
    layer = {"class_name": "Add", "name": "add_3", "config": {}, "args": [constant]}
    config = {"class_name": "Functional", "config": {"layers": [layer]}}
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.write(weights, "model.weights.h5")
    assert "layer add_3 holds a constant of 6 x 4" in inspect_reference(str(path))[1]
    assert "layer add_3 holds a constant of 6 x 4" in refusal(str(path))


def test_the_table_of_longclip_has_rows_of_two_tensors(tmp_path: Path) -> None:
    first, second = random(248, 8), -random(248, 8)
    tensors = {"positional_embedding": first, "positional_embedding_res": second}
    table = pp.load(model_folder(tmp_path / "m", tensors))
    np.testing.assert_array_equal(table.values[:20], first[:20])
    np.testing.assert_array_equal(table.values[20:], second[20:])
    assert any("LongCLIP" in note for note in table.notes)
    part = pp.load(str(tmp_path / "m"), rows=slice(18, 22))
    np.testing.assert_array_equal(part.values, table.values[18:22])


def test_a_table_of_two_tensors_is_not_resized_in_its_checkpoint(tmp_path: Path) -> None:
    tensors = {
        "positional_embedding": random(32, 8),
        "positional_embedding_res": random(32, 8),
    }
    reference = model_folder(tmp_path / "m", tensors)
    table = pp.load(reference)
    with pytest.raises(UsageError, match="positional_embedding_res"):
        write_checkpoint(reference, table, tmp_path / "new")
    assert not (tmp_path / "new").exists()
