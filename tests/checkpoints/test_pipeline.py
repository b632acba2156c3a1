"""Folders with several models, as diffusers saves them: each by its part, and none by another's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_samples import FOLDER, numbers
from safetensors.numpy import load_file, save_file

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.errors import AmbiguousTable, InvalidCheckpoint, NoPositionTable, UsageError
from posprobe.families import inspect
from posprobe.resizing.checkpoint import write_checkpoint

SAVED = FOLDER / "diffusers"


@pytest.mark.parametrize(
    ("part", "rows", "seed"), [("text_encoder", 12, 1), ("text_encoder_2", 12, 2),
                               ("image_encoder", 17, 3)],
)  # fmt: skip
def test_each_part_gives_its_own_parameter(part: str, rows: int, seed: int) -> None:
    table = pp.load(f"{SAVED}#{part}")
    expected = numbers((rows, 8), seed)
    special = 1 if part == "image_encoder" else 0  # CLS
    assert table.values.tobytes() == expected[special:].tobytes()
    assert len(table.prefix_rows) == special
    assert table.source.file == f"{part}/model.safetensors"
    assert (table.source.tensor or "").startswith(f"{part}.")
    assert pp.load(str(SAVED / part)).values.tobytes() == table.values.tobytes()


def test_a_network_with_a_table_of_patches() -> None:
    stored = load_file(SAVED / "transformer" / "diffusion_pytorch_model.safetensors")
    table = pp.load(f"{SAVED}#transformer")
    assert table.values.tobytes() == stored["pos_embed.pos_embed"][0].tobytes()
    assert table.layout == pp.layouts.Grid(6, 6)


def test_a_part_without_tables_is_said_to_have_none() -> None:
    for part in ("unet", "vae"):
        with pytest.raises(NoPositionTable, match="no position table was found"):
            pp.load(f"{SAVED}#{part}")


def test_without_a_part_all_are_listed(tmp_path: Path) -> None:
    with pytest.raises(AmbiguousTable, match="#text_encoder_2") as told:
        pp.load(str(SAVED))
    assert "#unet" not in str(told.value)
    names = [item["name"] for item in inspect(str(SAVED))]
    assert names == ["image_encoder", "text_encoder", "text_encoder_2", "transformer"]
    assert [item["name"] for item in inspect(f"{SAVED}#text_encoder")] == ["text_encoder"]
    with pytest.raises(UsageError, match=r"--into copies one model.*text_encoder"):
        write_checkpoint(f"{SAVED}#text_encoder", pp.sinusoidal(24, 8), tmp_path / "x")


def test_one_of_two_text_encoders_has_relative_positions(tmp_path: Path) -> None:
    """The configuration that counts is that of the tensor's own folder."""
    folder = shutil.copytree(SAVED, tmp_path / "model")
    shutil.rmtree(folder / "text_encoder_2")
    (folder / "text_encoder_2").mkdir()
    config = {"model_type": "t5", "relative_attention_num_buckets": 6, "num_heads": 2,
              "relative_attention_max_distance": 10}  # fmt: skip
    (folder / "text_encoder_2" / "config.json").write_text(json.dumps(config))
    bias = numbers((6, 2), 5)
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    save_file({name: bias}, folder / "text_encoder_2" / "model.safetensors")
    (scheme,) = pp.load_schemes(f"{folder}#text_encoder_2")
    (alone,) = pp.load_schemes(str(folder / "text_encoder_2"))
    assert scheme.kernel(20).tobytes() == alone.kernel(20).tobytes()
    with pytest.raises(NoPositionTable, match="relative positions"):
        pp.load(f"{folder}#text_encoder_2")
    assert len(pp.load(f"{folder}#text_encoder")) == 12


@pytest.mark.parametrize(
    "index",
    [[], {}, {"text_encoder": "transformers"}, {"../text_encoder": ["a", "b"]}, {"..": ["a", "b"]},
     {"/etc": ["a", "b"]}, {"text_encoder/": ["a", "b"]}, "nothing"],
)  # fmt: skip
def test_a_list_of_models_made_to_mislead(index: Any, tmp_path: Path) -> None:
    shutil.copytree(SAVED / "text_encoder", tmp_path / "m" / "text_encoder")
    shutil.copytree(SAVED / "text_encoder", tmp_path / "text_encoder")
    (tmp_path / "m" / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidCheckpoint, match=r"model_index\.json"):
        open_local(tmp_path / "m")


def test_a_damaged_part_hinders_no_other(tmp_path: Path) -> None:
    folder = shutil.copytree(SAVED, tmp_path / "model")
    (folder / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"1234567890")
    np.testing.assert_array_equal(pp.load(f"{folder}#text_encoder").values, numbers((12, 8), 1))
    with pytest.raises(InvalidCheckpoint, match="diffusion_pytorch_model"):
        pp.load(str(folder))
