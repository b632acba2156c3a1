"""Of every format on the Hub only what is needed comes."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import Hub, Sparse
from made_hub import FORMATS, server, table, waits

from posprobe.checkpoints.hub import open_hub
from posprobe.errors import (
    AmbiguousTable,
    InvalidCheckpoint,
    NoPositionTable,
    Unreachable,
)
from posprobe.families import load

__all__ = ["server", "waits"]

TENSORFLOW = Path(__file__).parents[1] / "data" / "tensorflow-bert"
VALUES = table(12, 8)


def content_of(folder: Path) -> dict[str, Any]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def with_holes(path: Path) -> Sparse:
    """Take a file with holes as the server's: what is between the holes."""
    sparse_parts, place, size = {}, 0, path.stat().st_size
    with path.open("rb") as file:
        while place < size:
            try:
                start = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError:  # a hole up to the end
                break
            place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            sparse_parts[start] = file.read(place - start)
    return Sparse(size, sparse_parts)


def large(file: str, folder: Path) -> dict[str, bytes | Sparse]:
    """Make the files of a model in which one is long."""
    if file == "model.gguf":
        from made_gguf import write

        write(folder / file, "gpt2", {"position_embd.weight": VALUES})
        return {file: Sparse(10**9, {0: (folder / file).read_bytes()})}
    if file == "bert_model.ckpt.index":
        files = content_of(TENSORFLOW)
        (data,) = (name for name in files if ".data-" in name)
        return {**files, data: Sparse(10**9, {0: files[data]})}
    if file == "onnx/model.onnx":
        import onnx
        from onnx import helper, numpy_helper

        graph = helper.make_graph(
            [], "g", [], [], [numpy_helper.from_array(VALUES, "wpe.weight")]
        )
        onnx.save(
            helper.make_model(graph), folder / "model.onnx", save_as_external_data=True,
            location="data", size_threshold=0,
        )  # fmt: skip
        external = Sparse(10**9, {0: (folder / "data").read_bytes()})
        model = (folder / "model.onnx").read_bytes()
        return {
            "config.json": b'{"model_type": "gpt2"}',
            file: model,
            "onnx/data": external,
        }
    from made_large import LARGE

    LARGE[file.partition(".")[2]](folder / file, VALUES)
    return {file: with_holes(folder / file)}


@pytest.mark.skipif(
    sys.platform != "linux", reason="holes in files are found as on Linux"
)
@pytest.mark.parametrize(
    ("file", "name", "tensor"),
    [
        ("x.weights.h5", "HDF5", "layers/position_embedding_1/vars/0"),
        ("x.keras", "HDF5", "layers/position_embedding_1/vars/0"),
        ("flax_model.msgpack", "Flax", "wpe/embedding"),
        ("ViT.npz", "NumPy archive", "Transformer/posembed_input/pos_embedding"),
        ("model.gguf", "GGUF", "position_embd.weight"),
        ("onnx/model.onnx", "ONNX", "wpe.weight"),
        (
            "bert_model.ckpt.index",
            "TensorFlow checkpoint",
            "bert/embeddings/position_embeddings",
        ),
    ],
)
def test_of_500_mb_on_the_hub_only_names_and_the_table_come(
    server: Hub, tmp_path: Path, file: str, name: str, tensor: str
) -> None:
    files = large(file, tmp_path)
    server.add("me/large", files)
    assert sum(file.size for file in server.repos["me/large"].files.values()) >= 500e6
    checkpoint = open_hub("me/large", None, offline=False)
    assert (checkpoint.format, checkpoint.location) == (name, "me/large")
    values = checkpoint.read(tensor).values
    if name != "TensorFlow checkpoint":
        assert values.tobytes() == VALUES.tobytes()
    assert server.sent() < 300_000
    server.forget()
    reopened = open_hub("me/large", None, offline=True)
    assert reopened.read(tensor).values.tobytes() == values.tobytes()
    assert server.sent() == 0


def test_rows_of_a_npy_file_on_the_hub_cost_themselves(server: Hub) -> None:
    values = table(2048, 64)
    for stored in (values, np.asfortranarray(values.astype(">f4"))):
        stream = io.BytesIO()
        np.save(stream, stored)
        server.add("me/array", {"table.npy": stream.getvalue()})
        server.forget()
        checkpoint = open_hub("me/array", None, offline=False)
        np.testing.assert_array_equal(
            checkpoint.read_rows("table", [1000, 1001]), values[1000:1002]
        )
        # What lies in the file in another order is read as a whole.
        assert (server.sent("table.npy") < 40_000) == (stored is values)


def test_one_of_several_models_costs_its_own_header_and_table(server: Hub) -> None:
    folder = FORMATS / "diffusers"
    other_files = {
        "v1.ckpt": b"a file beside the folders",
        "scheduler/old/model.safetensors": b"",
    }
    server.add("me/diffusion", content_of(folder) | other_files)
    table = load("me/diffusion#text_encoder_2")
    expected = load(f"{folder}#text_encoder_2")
    assert table.values.tobytes() == expected.values.tobytes()
    assert table.source.file == expected.source.file == "text_encoder_2/model.safetensors"
    assert table.source.revision == server.repos["me/diffusion"].commit
    paths = server.paths("/resolve/")
    assert {path.partition("/resolve/")[2].partition("/")[2] for path in paths} == {
        "model_index.json", "text_encoder_2/config.json", "text_encoder_2/model.safetensors",
    }  # fmt: skip
    with pytest.raises(NoPositionTable, match="no position table was found"):
        load("me/diffusion#unet")
    with pytest.raises(AmbiguousTable, match=r"me/diffusion#text_encoder_2"):
        load("me/diffusion")
    server.forget()
    reopened = open_hub("me/diffusion", None, offline=True, model="text_encoder_2")
    assert list(reopened.models) == ["text_encoder_2"]
    assert server.sent() == 0


@pytest.mark.parametrize("name", ["gpt2.weights.h5", "layers.keras", "bert.msgpack"])
def test_a_file_on_the_hub_that_is_cut_short_is_one_clear_error(
    name: str, server: Hub
) -> None:
    content = (FORMATS / name).read_bytes()
    server.add("me/cut", {name: content[: len(content) // 2]})
    with pytest.raises(InvalidCheckpoint, match=f"^me/cut/{name}"):
        open_hub("me/cut", None, offline=False)
    # What goes wrong on the way is no damage of the file.
    server.add("me/refused", {name: content})
    server.fail("status", name, status=403)
    with pytest.raises(Unreachable):
        open_hub("me/refused", None, offline=False)


def test_data_of_onnx_that_are_not_there(server: Hub, tmp_path: Path) -> None:
    model = large("onnx/model.onnx", tmp_path)["onnx/model.onnx"]
    server.add("me/partial", {"model.onnx": model})
    with pytest.raises(InvalidCheckpoint, match="not in the repository"):
        open_hub("me/partial", None, offline=False).read("wpe.weight")


def test_shards_of_hdf5_are_opened_when_they_are_needed(server: Hub) -> None:
    import h5py

    files: dict[str, bytes | Sparse] = {}
    shards = {}
    for number, tensor in enumerate(("wpe/embeddings:0", "wte/embeddings:0")):
        name = f"tf_model-0000{number + 1}-of-00002.h5"
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            file[tensor] = table(12, 8, seed=number)
        files[name], shards[tensor] = stream.getvalue(), name
    files["tf_model.h5.index.json"] = json.dumps({"weight_map": shards}).encode()
    server.add("me/shards", files)
    assert load("me/shards").values.tobytes() == VALUES.tobytes()
    assert not server.paths("tf_model-00002")
    server.add("me/keras", content_of(FORMATS / "keras_shards"))
    expected = load(str(FORMATS / "keras_shards"))
    assert load("me/keras").values.tobytes() == expected.values.tobytes()
