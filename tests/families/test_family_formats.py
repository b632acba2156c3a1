"""Every format of a file gives the same rows, in the precision in which they were stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_family_checks import assert_as_the_model
from tiny_models import VIT, Tiny, hf_vision, roberta, save_pretrained

from posprobe.families import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


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
