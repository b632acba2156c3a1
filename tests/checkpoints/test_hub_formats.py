"""Of every format on the Hub only what is needed comes."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hub_server import Hub, Sparse
from made_hub import FORMATS, server, table, waits

from posprobe.checkpoints import hub_local
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import AmbiguousTable, InvalidCheckpoint, NoPositionTable, Unreachable
from posprobe.families import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["server", "waits"]


def test_a_gguf_model_costs_its_header_and_the_table(server: Hub, tmp_path: Path) -> None:
    from made_gguf import write

    values = table(64, 256)
    path = tmp_path / "model.gguf"
    write(path, "gpt2", {"position_embd.weight": values}, lambda w: w.add_context_length(64))
    content = path.read_bytes()
    server.add("me/model", {"model.gguf": Sparse(10**9, {0: content})})
    found = open_hub("me/model", None, offline=False)
    assert found.config["gpt2.context_length"] == 64
    assert found.read("position_embd.weight").values.tobytes() == values.tobytes()
    header = len(content) - values.nbytes
    assert server.sent("model.gguf") < 2 * header + 2**16 + values.nbytes
    server.forget()
    again = open_hub("me/model", None, offline=True)
    assert again.read("position_embd.weight").values.tobytes() == values.tobytes()
    assert server.sent() == 0


def test_rows_of_a_npy_file_on_the_hub_cost_themselves(server: Hub) -> None:
    values = table(2048, 64)
    stream = io.BytesIO()
    np.save(stream, values)
    server.add("me/array", {"table.npy": stream.getvalue()})
    found = open_hub("me/array", None, offline=False)
    np.testing.assert_array_equal(found.read_rows("table", [1000, 1001]), values[1000:1002])
    assert server.sent("table.npy") < 40_000 < values.nbytes
    # What lies in the file in another order is read as a whole.
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(values.astype(">f4")))
    server.add("me/array", {"table.npy": stream.getvalue()})
    np.testing.assert_array_equal(open_hub("me/array", None, offline=False).read("table").values,
                                  values)  # fmt: skip


def test_external_data_of_onnx_are_read_by_range(server: Hub, tmp_path: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    values = table(64, 32)
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(values, "wpe.weight")])
    onnx.save(
        helper.make_model(graph), tmp_path / "model.onnx", save_as_external_data=True,
        location="model.onnx_data", size_threshold=0,
    )  # fmt: skip
    files: dict[str, bytes | Sparse] = {
        "config.json": b'{"model_type": "gpt2"}',
        "onnx/model.onnx": (tmp_path / "model.onnx").read_bytes(),
        "onnx/model.onnx_data": Sparse(10**9, {0: (tmp_path / "model.onnx_data").read_bytes()}),
    }
    server.add("me/model", files)
    found = open_hub("me/model", None, offline=False)
    assert found.format == "ONNX"
    assert found.read("wpe.weight").values.tobytes() == values.tobytes()
    assert server.sent("model.onnx_data") < values.nbytes + 2**17
    assert found.config["model_type"] == "gpt2"
    server.add("me/partial", {"model.onnx": files["onnx/model.onnx"]})
    with pytest.raises(InvalidCheckpoint, match="not in the repository"):
        open_hub("me/partial", None, offline=False).read("wpe.weight")


def test_a_tensorflow_checkpoint_is_read_by_range(server: Hub) -> None:
    from pathlib import Path as Folder

    real = Folder(__file__).parents[1] / "data" / "tensorflow-bert"
    data = "bert_model.ckpt.data-00000-of-00001"
    files: dict[str, bytes | Sparse] = {
        "bert_model.ckpt.index": (real / "bert_model.ckpt.index").read_bytes(),
        data: Sparse(10**9, {0: (real / data).read_bytes()}),
    }
    server.add("me/bert", files)
    found = open_hub("me/bert", None, offline=False)
    assert found.read("bert/embeddings/position_embeddings").values.shape == (16, 8)
    assert server.sent(data) < 2**17


def test_one_of_several_models_costs_its_own_header_and_table(server: Hub) -> None:
    folder = FORMATS / "diffusers"
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    files["v1.ckpt"] = b"a single file beside the folders"
    server.add("me/diffusion", files)
    found = load("me/diffusion#text_encoder_2")
    expected = load(f"{folder}#text_encoder_2")
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.source.file == expected.source.file == "text_encoder_2/model.safetensors"
    assert found.source.revision == server.repos["me/diffusion"].commit
    paths = server.paths("/resolve/")
    assert {path.partition("/resolve/")[2].partition("/")[2] for path in paths} == {
        "model_index.json", "text_encoder_2/config.json", "text_encoder_2/model.safetensors",
    }  # fmt: skip
    with pytest.raises(NoPositionTable, match="no position table was found"):
        load("me/diffusion#unet")
    with pytest.raises(AmbiguousTable, match=r"me/diffusion#text_encoder_2"):
        load("me/diffusion")
    assert not server.paths("v1.ckpt")
    server.forget()
    again = open_hub("me/diffusion", None, offline=True, part="text_encoder_2")
    assert list(again.models) == ["text_encoder_2"]
    assert server.sent() == 0


def pieces_of(path: Path) -> Sparse:
    """Take a file with holes as the server's: what is between the holes."""
    found, place, size = {}, 0, path.stat().st_size
    with path.open("rb") as file:
        while place < size:
            try:
                start = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError:  # a hole up to the end
                break
            place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            found[start] = file.read(place - start)
    return Sparse(size, found)


@pytest.mark.skipif(sys.platform != "linux", reason="holes in files are found as on Linux")
@pytest.mark.parametrize(
    ("file", "name", "tensor"),
    [
        ("x.weights.h5", "HDF5", "layers/position_embedding_1/vars/0"),
        ("x.keras", "HDF5", "layers/position_embedding_1/vars/0"),
        ("flax_model.msgpack", "Flax", "wpe/embedding"),
        ("ggml-tiny.bin", "ggml", "decoder.positional_embedding"),
        ("ViT.npz", "NumPy archive", "Transformer/posembed_input/pos_embedding"),
    ],
)
def test_of_500_mb_on_the_hub_only_names_and_the_table_come(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, name: str, tensor: str
) -> None:
    from made_large import LARGE

    values = table(12, 8)
    LARGE[file.partition(".")[2]](tmp_path / file, values)
    server.add("me/large", {file: pieces_of(tmp_path / file)})
    assert server.repos["me/large"].files[file].size > 500e6
    monkeypatch.setitem(sys.modules, "torch", None)  # whisper.cpp's .bin is not PyTorch's
    found = open_hub("me/large", None, offline=False)
    assert (found.format, found.location) == (name, "me/large")
    assert found.read(tensor).values.tobytes() == values.tobytes()
    assert server.sent(file) < 300_000
    server.forget()
    again = open_hub("me/large", None, offline=True)
    assert again.read(tensor).values.tobytes() == values.tobytes()
    assert server.sent() == 0


def test_a_file_on_the_hub_that_is_cut_short_is_one_clear_error(server: Hub) -> None:
    for name in ("gpt2.weights.h5", "layers.keras", "bert.msgpack"):
        content = (FORMATS / name).read_bytes()
        server.add("me/cut", {name: content[: len(content) // 2]})
        with pytest.raises(InvalidCheckpoint, match=name):
            open_hub("me/cut", None, offline=False)
    # What goes wrong on the way is no damage of the file.
    server.add("me/cut", {"bert.weights.h5": (FORMATS / "gpt2.weights.h5").read_bytes()})
    server.fail("status", "bert.weights.h5", status=403)
    with pytest.raises(Unreachable):
        open_hub("me/cut", None, offline=False)


def test_shards_of_hdf5_are_opened_when_they_are_needed(server: Hub) -> None:
    import h5py

    files: dict[str, bytes] = {}
    shards = {}
    for number, tensor in enumerate(("wpe/embeddings:0", "wte/embeddings:0")):
        name = f"tf_model-0000{number + 1}-of-00002.h5"
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            file[tensor] = table(12, 8, seed=number)
        files[name], shards[tensor] = stream.getvalue(), name
    files["tf_model.h5.index.json"] = json.dumps({"weight_map": shards}).encode()
    server.add("me/shards", files)
    assert load("me/shards").values.tobytes() == table(12, 8).tobytes()
    assert not server.paths("tf_model-00002")
    parts = {file.name: file.read_bytes() for file in (FORMATS / "keras_shards").iterdir()}
    server.add("me/keras", parts)
    expected = load(str(FORMATS / "keras_shards"))
    assert load("me/keras").values.tobytes() == expected.values.tobytes()


def orbax(folder: Path, arrays: Mapping[str, NDArray[np.float32]], *, together: bool) -> None:
    """Write arrays with TensorStore as Orbax does, in one OCDBT store or each in a folder."""
    import tensorstore

    folder.mkdir()
    tree = {}
    for name, values in arrays.items():
        place: dict[str, Any] = {"driver": "file", "path": f"{folder}/"}
        if together:
            place = {"driver": "ocdbt", "base": place, "path": f"{name}/"}
        else:
            place["path"] += f"{name}/"
        metadata = {"compressor": None, "shape": [*values.shape], "chunks": [*values.shape]}
        spec = {"driver": "zarr", "kvstore": place, "metadata": metadata}
        array = tensorstore.open(spec, create=True, dtype="float32").result()
        array.write(values).result()
        keys = [{"key": key, "key_type": 2} for key in name.split(".")]
        about = {"value_type": "jax.Array", "skip_deserialize": False}
        tree[name] = {"key_metadata": keys, "value_metadata": about}
    (folder / "_METADATA").write_text(json.dumps({"tree_metadata": tree}))


@pytest.mark.parametrize("together", [True, False], ids=["OCDBT", "zarr"])
def test_of_an_orbax_folder_the_table_alone_comes(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    big, values = table(1024, 1024, seed=1), table(12, 8)
    arrays = {"params.big.kernel": big, "params.wpe.embedding": values}
    orbax(tmp_path / "saved", arrays, together=together)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # what is here is asked of no proxy
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    files = {
        str(path.relative_to(tmp_path / "saved")): path.read_bytes()
        for path in (tmp_path / "saved").rglob("*")
        if path.is_file()
    }
    server.add("me/orbax", files)
    count = hub_local.bytes_read.set(0)
    found = open_hub("me/orbax", None, offline=False)
    assert found.format == "Orbax"
    assert found.read("params/wpe/embedding").values.tobytes() == values.tobytes()
    assert 0 < hub_local.bytes_read.get() < 300_000
    hub_local.bytes_read.reset(count)
    assert server.sent("/resolve/") < 300_000 < big.nbytes
    assert os.environ["no_proxy"] == "127.0.0.1"
    server.forget()
    again = open_hub("me/orbax", None, offline=True)
    assert again.read("params/wpe/embedding").values.tobytes() == values.tobytes()
    assert server.sent() == 0
    with pytest.raises(Unreachable, match="offline"):
        again.read("params/big/kernel")
    assert found.read("params/big/kernel").values.tobytes() == big.tobytes()


def test_an_orbax_folder_that_fails_on_the_way_or_is_damaged(server: Hub) -> None:
    folder = FORMATS / "orbax"
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    server.add("me/orbax", files)
    assert load("me/orbax").values.shape == (12, 8)
    server.add("me/cut", {name: content[:300] if name.startswith("d/") else content
                          for name, content in files.items()})  # fmt: skip
    with pytest.raises(InvalidCheckpoint, match="cannot be read"):
        load("me/cut")
    server.add("me/refused", files)
    server.fail("status", "/d/", status=403)
    with pytest.raises(Unreachable):
        load("me/refused")
