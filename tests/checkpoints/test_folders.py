"""Folders of weights, their shards and configurations, and files that nobody may read."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import safetensors.numpy
import torch
from made_files import VALUES, save_zip, write

from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint, UnknownReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def shards(folder: Path, weight_map: object) -> Path:
    safetensors.numpy.save_file({"a": VALUES}, folder / "model-1.safetensors")
    safetensors.numpy.save_file({"b": 2 * VALUES}, folder / "model-2.safetensors")
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    folder = shards(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    for reference in (folder, folder / "model.safetensors.index.json"):
        checkpoint = open_local(reference)
        assert {name: info.file for name, info in checkpoint.tensors.items()} == {
            "a": "model-1.safetensors", "b": "model-2.safetensors",
        }  # fmt: skip
        np.testing.assert_array_equal(checkpoint.read("b").values, 2 * VALUES)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = shards(tmp_path, {"a": "model-1.safetensors", "c": "model-3.safetensors"})
    with pytest.raises(UnknownReference, match=r"model-3\.safetensors.*shards") as caught:
        open_local(folder)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "shard",
    ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ".", "", 7, None,
     ["model-1.safetensors"], "a\0.safetensors", "~/model.safetensors"],
)  # fmt: skip
def test_an_index_that_points_elsewhere_is_refused(shard: object, tmp_path: Path) -> None:
    folder = shards(tmp_path, {"a": "model-1.safetensors", "b": shard})
    with pytest.raises(InvalidCheckpoint, match=r"index\.json"):
        open_local(folder)


@pytest.mark.parametrize("weight_map", [{}, [], None, "model-1.safetensors", 3])
def test_an_index_without_a_map_is_refused(weight_map: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match="weight_map"):
        open_local(shards(tmp_path, weight_map))


NO_JSON = {
    "empty": b"", "text": b"hello", "a list": b"[1, 2]", "a number": b"3", "null": b"null",
    "cut": b'{"model_type": "bert"', "no UTF-8": b'{"model_type": "\xff\xff"}',
    "nested deeply": b"[" * 100_000, "a long number": b'{"a": ' + b"9" * 5000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("case", NO_JSON)
@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
def test_a_json_that_is_none_is_refused(case: str, file: str, tmp_path: Path) -> None:
    if file == "config.json":
        safetensors.numpy.save_file({"a": VALUES}, tmp_path / "model.safetensors")
    write(tmp_path / file, NO_JSON[case])
    with pytest.raises(InvalidCheckpoint, match=file.replace(".", r"\.")) as caught:
        open_local(tmp_path)
    assert caught.value.exit_code == 4


def test_the_only_weights_of_a_folder_need_no_usual_name(tmp_path: Path) -> None:
    save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / "best.pt")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "best.pt"
    safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / "weights.fp16.safetensors")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "weights.fp16.safetensors"


def test_several_weights_are_listed(tmp_path: Path) -> None:
    for name in ("last.pt", "best.pt"):
        save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / name)
    with pytest.raises(InvalidCheckpoint, match=r"best\.pt, last\.pt.*path"):
        open_local(tmp_path)


@pytest.mark.parametrize("files", [[], ["rust_model.ot"], ["model.onnx", "README.md"]])
def test_a_folder_without_weights_says_what_it_has(files: list[str], tmp_path: Path) -> None:
    for name in files:
        write(tmp_path / name, b"x")
    (tmp_path / "sub.safetensors").mkdir()
    with pytest.raises(InvalidCheckpoint, match=files[0] if files else "no files") as caught:
        open_local(tmp_path)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("name", ["model.onnx", "model", "model.ot", "config.json"])
def test_a_file_of_no_checkpoint_format_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=name):
        open_local(write(tmp_path / name, b"{}"))


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("missing.safetensors", "missing.bin", "missing.npy", "missing.npz", "missing"):
        with pytest.raises(UnknownReference, match=name) as caught:
            open_local(tmp_path / name)
        assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "file", ["model.safetensors", "model.bin", "model.npy", "model.npz", "config.json"]
)
def test_what_may_not_be_read_is_refused(file: str, unprivileged: Path) -> None:
    weights = unprivileged / (file if file != "config.json" else "model.npy")
    saved: dict[str, Callable[[], object]] = {
        ".safetensors": lambda: safetensors.numpy.save_file({"a": VALUES}, weights),
        ".bin": lambda: save_zip({"a": torch.ones(3, 2)}, weights),
        ".npy": lambda: np.save(weights, VALUES),
        ".npz": lambda: np.savez(weights, a=VALUES),
    }
    saved[weights.suffix]()
    (unprivileged / "config.json").write_text("{}")
    open_local(weights)
    (unprivileged / file).chmod(0)
    with pytest.raises(UnknownReference, match=rf"{file}: permission denied") as caught:
        open_local(weights)
    assert caught.value.exit_code == 3


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Return a folder, and become nobody where the tests run as root, whom nothing stops."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if user == 0:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)


def test_a_folder_is_opened_by_its_lazy_format(tmp_path: Path) -> None:
    save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / "pytorch_model.bin")
    save_zip([1], tmp_path / "training_args.bin")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "pytorch_model.bin"
    safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / "model.safetensors")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "model.safetensors"
