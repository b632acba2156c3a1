"""Folders of weights: shards, configurations, several models, and files that nobody may read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from format_samples import FOLDER, numbers
from made_files import VALUES, save_zip, write
from safetensors.numpy import load_file, save_file

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.checkpoints.files import LocalFiles
from posprobe.errors import (
    AmbiguousTable,
    InvalidCheckpoint,
    NoPositionTable,
    UnknownReference,
    UsageError,
)
from posprobe.families import inspect
from posprobe.families.read import find_model_source, open_reference
from posprobe.reference import parse_reference
from posprobe.resizing.checkpoint import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEX = "model.safetensors.index.json"


def shards(folder: Path, weight_map: object) -> Path:
    safetensors.numpy.save_file(
        {"a": VALUES, "twice": VALUES}, folder / "model-1.safetensors"
    )
    safetensors.numpy.save_file({"b": 2 * VALUES, "twice": 0 * VALUES},
                                folder / "model-2.safetensors")  # fmt: skip
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def test_shards_open_lazily_as_one_checkpoint(tmp_path: Path) -> None:
    numbers = {"a": 1, "b": 2, "twice": 1, "gone": 2, "c": 3}
    weight_map = {name: f"model-{number}.safetensors" for name, number in numbers.items()}
    folder = shards(tmp_path, weight_map)
    for reference in (folder, folder / INDEX):
        checkpoint = open_local(reference)
        np.testing.assert_array_equal(checkpoint.read("b").values, 2 * VALUES)
        assert checkpoint.tensors["b"].file == "model-2.safetensors"
        # Of a tensor in two shards the one counts that the index names.
        np.testing.assert_array_equal(checkpoint.read("twice").values, VALUES)
        with pytest.raises(InvalidCheckpoint, match="'gone' is in it, and it is not"):
            checkpoint.read("gone")
        with pytest.raises(UnknownReference, match=r"model-3\.safetensors.*shard index"):
            checkpoint.read("c")


def test_pytorch_shards_open_as_one_checkpoint(tmp_path: Path) -> None:
    for number in (1, 2):
        save_zip({"t": torch.full((2, 2), number)}, tmp_path / f"{number}.bin")
    index = {"weight_map": {"t": "2.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    checkpoint = open_local(tmp_path)
    assert checkpoint.tensors["t"].file == "2.bin"


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
    "half a character": b'{"model_type": "\\ud800"}', "its key": b'{"a": ["\\udc00"]}',
    "too long": b"{}" + b" " * 10_000,
}  # fmt: skip


@pytest.mark.parametrize("case", NO_JSON)
@pytest.mark.parametrize("file", ["config.json", INDEX])
def test_a_json_that_is_none_is_refused(
    case: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posprobe.checkpoints.local.MAX_JSON_BYTES", 9_000)
    if file == "config.json":
        safetensors.numpy.save_file({"a": VALUES}, tmp_path / "model.safetensors")
    if case == "nested deeply":
        monkeypatch.undo()
    write(tmp_path / file, NO_JSON[case])
    with pytest.raises(InvalidCheckpoint, match=file.replace(".", r"\.")):
        open_local(tmp_path)


def test_the_best_known_of_a_folder_s_weights_are_opened(tmp_path: Path) -> None:
    save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / "best.pt")
    save_zip([1], tmp_path / "training_args.bin")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "best.pt"
    save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / "last.pt")
    with pytest.raises(InvalidCheckpoint, match=r"best\.pt, last\.pt.*path"):
        open_local(tmp_path)
    for name in ("odd.safetensors", "pytorch_model.bin", "model.safetensors"):
        if name.endswith("bin"):
            save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / name)
        else:
            safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / name)
        assert open_local(tmp_path).tensors["wpe.weight"].file == name


@pytest.mark.parametrize("files", [[], ["rust_model.ot"], ["a.onnx.txt", "README.md"]])
def test_a_folder_without_weights_lists_its_files(
    files: list[str], tmp_path: Path
) -> None:
    for name in files:
        write(tmp_path / name, b"x")
    (tmp_path / "sub.safetensors").mkdir()
    with pytest.raises(InvalidCheckpoint, match=files[0] if files else "no files"):
        open_local(tmp_path)


def test_a_folder_of_checkpoints_names_some_of_them(tmp_path: Path) -> None:
    for name in ("a", "b", "deep/c", "far/far/away"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        np.save(folder / "model.npy", np.eye(4))
    names = [str(tmp_path / name) for name in ("a", "b", "deep/c")]
    with pytest.raises(InvalidCheckpoint, match=f"Choose one: {', '.join(names)}."):
        pp.load(str(tmp_path))
    for number in range(25):
        (tmp_path / f"{number:02}").mkdir()
        np.save(tmp_path / f"{number:02}" / "model.npy", np.eye(4))
    with pytest.raises(InvalidCheckpoint, match=r"/19, and more\.$"):
        pp.load(str(tmp_path))


@pytest.mark.parametrize("name", ["model.onnx", "model", "model.ot", "config.json"])
def test_a_file_of_no_checkpoint_format_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=name):
        open_local(write(tmp_path / name, b"{}"))


@pytest.mark.parametrize(
    "name", ["missing.safetensors", "missing.bin", "missing.csv", "missing"]
)
def test_a_path_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownReference, match=f"{name}: no such file"):
        open_local(tmp_path / name)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"t": "a.safetensors"}}))
    with pytest.raises(InvalidCheckpoint, match=r"a\.safetensors: not a regular file"):
        open_local(tmp_path).read("t")
    (tmp_path / INDEX).unlink()
    os.mkfifo(tmp_path / INDEX)
    for path in (tmp_path, tmp_path / INDEX):
        with pytest.raises(InvalidCheckpoint, match="not a regular file"):
            open_local(path)


@pytest.mark.parametrize(
    "file", ["model.safetensors", "model.bin", "model.npz", "config.json"]
)
def test_unreadable_files_are_refused(file: str, unprivileged: Path) -> None:
    weights = unprivileged / (file if file != "config.json" else "model.safetensors")
    match weights.suffix:
        case ".bin":
            save_zip({"a": torch.ones(3, 2)}, weights)
        case ".npz":
            np.savez(weights, a=VALUES)
        case _:
            safetensors.numpy.save_file({"a": VALUES}, weights)
    (unprivileged / "config.json").write_text("{}")
    open_local(weights)
    (unprivileged / file).chmod(0)
    with pytest.raises(UnknownReference, match=rf"{file}: permission denied"):
        open_local(weights)


def test_files_that_become_unreadable_are_refused(unprivileged: Path) -> None:
    (unprivileged / "data").touch(mode=0)
    with pytest.raises(UnknownReference, match="data: permission denied"):
        LocalFiles(unprivileged).read("data", 0, 1)


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


@pytest.mark.parametrize("linked", ["model.safetensors", "config.json", INDEX])
def test_links_out_of_a_folder_are_refused_unless_named(
    linked: str, tmp_path: Path
) -> None:
    model_folder, other_folder = tmp_path / "m", tmp_path / "elsewhere"
    for place in (model_folder, other_folder):
        place.mkdir()
        safetensors.numpy.save_file({"wpe.weight": VALUES}, place / "model.safetensors")
        (place / "config.json").write_text('{"model_type": "gpt2"}')
    if linked == INDEX:
        (model_folder / "model.safetensors").rename(model_folder / "part.safetensors")
        index = {"weight_map": {"wpe.weight": "part.safetensors"}}
        (other_folder / INDEX).write_text(json.dumps(index))
    (model_folder / linked).unlink(missing_ok=True)
    (model_folder / linked).symlink_to(other_folder / linked)
    for call in (find_model_source, lambda parsed: open_reference(parsed)):
        with pytest.raises(InvalidCheckpoint, match=rf"{linked}.*link that leads out"):
            call(parse_reference(model_folder))


def test_named_links_and_hub_cache_links_are_followed(tmp_path: Path) -> None:
    blobs = tmp_path / "models--someone--gpt2" / "blobs"
    snapshot = blobs.with_name("snapshots") / "abc"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    safetensors.numpy.save_file({"wpe.weight": VALUES}, blobs / "model.safetensors")
    (blobs / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "named").symlink_to(blobs)
    (tmp_path / "named.safetensors").symlink_to(blobs / "model.safetensors")
    for file in ("config.json", "model.safetensors"):
        (snapshot / file).symlink_to(blobs / file)
    for path in (tmp_path / "named", tmp_path / "named.safetensors", snapshot):
        assert open_local(path).read("wpe.weight").values.shape == VALUES.shape
    assert open_local(snapshot).config == {"model_type": "gpt2"}
    assert find_model_source(parse_reference(snapshot)) == str(snapshot)


SAVED = FOLDER / "diffusers"


@pytest.mark.parametrize(
    ("part", "rows", "seed"), [("text_encoder", 12, 1), ("text_encoder_2", 12, 2),
                               ("image_encoder", 17, 3)],
)  # fmt: skip
def test_every_submodel_yields_its_own_table(part: str, rows: int, seed: int) -> None:
    table = pp.load(f"{SAVED}#{part}")
    expected = numbers((rows, 8), seed)
    special = 1 if part == "image_encoder" else 0  # CLS
    assert table.values.tobytes() == expected[special:].tobytes()
    assert len(table.prefix_rows) == special
    assert table.source.file == f"{part}/model.safetensors"
    assert (table.source.tensor or "").startswith(f"{part}.")
    assert pp.load(str(SAVED / part)).values.tobytes() == table.values.tobytes()
    stored = load_file(SAVED / "transformer" / "diffusion_pytorch_model.safetensors")
    patches = pp.load(f"{SAVED}#transformer")
    assert patches.values.tobytes() == stored["pos_embed.pos_embed"][0].tobytes()
    assert patches.layout == pp.layouts.Grid(6, 6)


def test_a_submodel_without_tables_is_reported_as_such() -> None:
    for part in ("unet", "vae"):
        with pytest.raises(NoPositionTable, match="no position table was found"):
            pp.load(f"{SAVED}#{part}")


def test_without_a_part_all_are_listed(tmp_path: Path) -> None:
    with pytest.raises(AmbiguousTable, match="#text_encoder_2") as refusal:
        pp.load(str(SAVED))
    assert "#unet" not in str(refusal.value)
    names = [item["name"] for item in inspect(str(SAVED))]
    assert names == ["image_encoder", "text_encoder", "text_encoder_2", "transformer"]
    assert [item["name"] for item in inspect(f"{SAVED}#text_encoder")] == ["text_encoder"]
    with pytest.raises(UsageError, match=r"one model is copied.*text_encoder"):
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
    (alone_loaded,) = pp.load_schemes(str(folder / "text_encoder_2"))
    assert scheme.kernel(20).tobytes() == alone_loaded.kernel(20).tobytes()
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
