"""Files of other libraries made to mislead: refused in one clear sentence, or read as they are."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
import zipfile
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import msgpack
import numpy as np
import pytest
from format_samples import FOLDER, numbers
from made_large import array
from safetensors.numpy import save_file

from posprobe.checkpoints import open_local
from posprobe.checkpoints.base import TensorInfo
from posprobe.checkpoints.hdf5file import position_layers
from posprobe.errors import InvalidCheckpoint
from posprobe.families.read import model_source, open_reference
from posprobe.reference import parse_reference


def h5(path: Path, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("wpe/embeddings:0", data=numbers((12, 8), 0), **options)
    return path


def test_hdf5_never_leads_to_another_file(tmp_path: Path) -> None:
    outside = h5(tmp_path / "outside.h5")
    (tmp_path / "raw").write_bytes(bytes(400))
    link, virtual, raw = (tmp_path / f"{n}.h5" for n in ("link", "virtual", "raw"))
    with h5py.File(link, "w") as file:
        file["wpe"] = h5py.ExternalLink(str(outside), "/wpe")
    layout = h5py.VirtualLayout((12, 8), "f4")
    layout[:] = h5py.VirtualSource(str(outside), "wpe/embeddings:0", shape=(12, 8))
    with h5py.File(virtual, "w") as file:
        file.create_virtual_dataset("wpe", layout)
    with h5py.File(raw, "w") as file:
        file.create_dataset("wpe", (10, 10), "f4", external=[(str(tmp_path / "raw"), 0, 400)])
    for path in (link, virtual, raw):
        with pytest.raises(InvalidCheckpoint, match=rf"{path.name}.*other? ?\w* files?"):
            open_local(path)


def test_hdf5_bombs_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("base", "hdf5file"):
        monkeypatch.setattr(f"posprobe.checkpoints.{module}.MAX_UNPACKED", 2**20)
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("long", (2**20, 8), "f4", chunks=(8, 8), compression="gzip")
        file.create_dataset("chunk", (8, 8), "f4", chunks=(2**18, 8), maxshape=(None, 8),
                            compression="gzip")  # fmt: skip
        file.create_dataset("never", (2**40, 8), "f4")
        lies = file.create_dataset("lies", (8, 8), "f4", chunks=(8, 8), compression="gzip")
        lies.id.write_direct_chunk((0, 0), zlib.compress(bytes(2**25)))
    checkpoint = open_local(path)
    tracemalloc.start()
    for name in ("long", "chunk", "never", "lies"):
        with pytest.raises(InvalidCheckpoint, match=r"bomb\.h5.*bytes"):
            checkpoint.read(name)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    packed = tmp_path / "packed.keras"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(2**21))
    with pytest.raises(InvalidCheckpoint, match="unpacks to 2097152 bytes"):
        open_local(packed)


def test_hdf5_groups_without_end(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "circle.h5", "w") as file:
        file["wpe/embeddings:0"] = numbers((12, 8), 0)
        file["wpe/again"] = file["/"]
        file["other"] = file["wpe"]
    assert len(open_local(tmp_path / "circle.h5").tensors) == 1
    too_deep = pytest.raises(InvalidCheckpoint, match="more than 64 levels")
    for levels, said in ((64, nullcontext()), (65, too_deep)):
        with h5py.File(tmp_path / "deep.h5", "w") as file:
            file["/".join("g" * levels)] = numbers((2, 2), 0)
        with said:
            assert len(open_local(tmp_path / "deep.h5").tensors) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "too early|ends|announced|index"),
        (b"\xc1", "begins no value"),
        (b"\xdf\xff\xff\xff\xff", "4294967295 values in 0 bytes"),
        (b"\xc6\xff\xff\xff\xff", "4294967295 bytes are announced"),
        (b"\x91" * 200_000, "more than 64 levels"),
        (msgpack.packb({"w": 1}) + b"\0", "1 bytes follow"),
        (msgpack.packb({"w": 1}), "contains no arrays"),
        (msgpack.packb({"w" * 2000: 1}), "a name of 2000 bytes"),
        (msgpack.packb({"w": array((4, 4), "float32", bytes(60))}), "60 bytes for an array"),
        (msgpack.packb({"w": array((2**40, 2**40), "float32", b"")}), "0 bytes for an array"),
        (msgpack.packb({"w": array((-2, -2), "float32", bytes(16))}), "no shape"),
        (msgpack.packb({"w": array("44", "float32", bytes(16))}), "no shape"),
        (
            msgpack.packb({"w": {
                "__msgpack_chunked_array__": True, "shape": {"0": 9},
                "chunks": {"0": array((4,), "float32", bytes(16))},
            }}),
            "pieces of 4 numbers",
        ),
    ],
)  # fmt: skip
def test_flax_files_made_to_mislead(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.msgpack").write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=rf"x\.msgpack.*({why})"):
        open_local(tmp_path / "x.msgpack")


def test_flax_values_of_every_kind_are_passed_over(tmp_path: Path) -> None:
    odd = [
        *(-1, -200, 2**40, -(2**40), 1.5, None, True, "text" * 100, b"x" * 300, [1, [2, {}]]),
        *({"a": {}}, msgpack.ExtType(3, b"12"), msgpack.ExtType(9, bytes(16)), {3: "number"}),
    ]
    values = numbers((40, 8), 0)
    content = {"odd": odd, "wpe": {"embedding": array([40, 8], "float32", values.tobytes())}}
    path = tmp_path / "x.msgpack"
    path.write_bytes(msgpack.packb(content))
    checkpoint = open_local(path)
    assert list(checkpoint.tensors) == ["wpe/embedding"]
    np.testing.assert_array_equal(checkpoint.read("wpe/embedding").values, values)
    np.testing.assert_array_equal(checkpoint.read_rows("wpe/embedding", [3, 4]), values[3:5])
    # The same as what the format's own library unpacks.
    told = msgpack.unpackb(path.read_bytes(), strict_map_key=False)["wpe"]["embedding"].data
    assert msgpack.unpackb(told)[2] == values.tobytes()


def test_a_table_in_millions_of_chunks_is_refused(tmp_path: Path) -> None:
    # Both libraries keep a record of each chunk, written or not.
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("wpe/embedding", (4096, 64), "f4", chunks=(1, 1))
    with pytest.raises(InvalidCheckpoint, match=r"262144 chunks"):
        open_local(tmp_path / "x.h5").read("wpe/embedding")
    folder = shutil.copytree(FOLDER / "orbax_zarr", tmp_path / "orbax")
    name = "params.bert.embeddings.position_embeddings.embedding"
    about = json.loads((folder / name / ".zarray").read_text())
    about |= {"shape": [4096, 64], "chunks": [1, 1]}
    (folder / name / ".zarray").write_text(json.dumps(about))
    with pytest.raises(InvalidCheckpoint, match=r"262144 chunks"):
        open_local(folder).read(name.replace(".", "/"))


@pytest.mark.parametrize("store", ["orbax", "orbax_zarr"])
@pytest.mark.parametrize("where", ["file", "folder"])
def test_a_link_out_of_an_orbax_folder_is_refused(store: str, where: str, tmp_path: Path) -> None:
    name = "params.bert.embeddings.position_embeddings.embedding"
    folder = shutil.copytree(FOLDER / store, tmp_path / "saved")
    place = folder / name / "0.0" if store == "orbax_zarr" else next(iter((folder / "d").iterdir()))
    place = place if where == "file" else place.parent
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidCheckpoint, match=rf"{place.name}.*link that leads out"):
        open_local(folder).read(name.replace(".", "/"))
    inside = place.with_name("inside")
    place.unlink()
    (tmp_path / "elsewhere").rename(inside)
    place.symlink_to(inside)
    values = open_local(folder).read(name.replace(".", "/")).values
    expected = open_local(FOLDER / store).read(name.replace(".", "/")).values
    assert values.tobytes() == expected.tobytes()


@pytest.mark.parametrize("linked", ["model.safetensors", "config.json", "index"])
def test_a_file_of_a_folder_may_be_no_link_out_of_it_but_what_is_named_may(
    linked: str, tmp_path: Path
) -> None:
    values = np.ones((8, 4), np.float32)
    for place in (tmp_path / "elsewhere", tmp_path / "m"):
        place.mkdir()
        save_file({"wpe.weight": values}, place / "model.safetensors")
        (place / "config.json").write_text('{"model_type": "gpt2"}')
        index = {"weight_map": {"wpe.weight": "model.safetensors"}}
        (place / "index").write_text(json.dumps(index))
    inside = tmp_path / "m" / linked
    if linked == "index":
        inside.unlink()
        inside = inside.with_name("model.safetensors.index.json")
        (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "part.safetensors")
        index = {"weight_map": {"wpe.weight": "part.safetensors"}}
        (tmp_path / "elsewhere" / "index").write_text(json.dumps(index))
    inside.unlink(missing_ok=True)
    inside.symlink_to(tmp_path / "elsewhere" / linked)
    with pytest.raises(InvalidCheckpoint, match=rf"{inside.name}.*link that leads out"):
        open_local(tmp_path / "m")
    for call in (model_source, lambda parsed: open_reference(parsed)):
        with pytest.raises(InvalidCheckpoint, match="link that leads out"):
            call(parse_reference(tmp_path / "m"))
    # A folder or a file that is named may be a link; so may those of the Hub's cache.
    (tmp_path / "named").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "named.safetensors").symlink_to(tmp_path / "elsewhere" / "model.safetensors")
    for name in ("named", "named.safetensors"):
        assert open_local(tmp_path / name).read("wpe.weight").values.shape == (8, 4)
    blobs = tmp_path / "models--someone--gpt2" / "blobs"
    shutil.copytree(tmp_path / "elsewhere", blobs)
    snapshot = blobs.with_name("snapshots") / "abc"
    snapshot.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        (snapshot / file).symlink_to(blobs / file)
    assert open_local(snapshot).config == {"model_type": "gpt2"}
    assert model_source(parse_reference(snapshot)) == str(snapshot)


def test_a_folder_of_pipes_says_what_lies_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match=r"but model\.safetensors: not a regular file"):
        open_local(tmp_path)


def test_a_table_in_many_compressed_chunks_is_read(tmp_path: Path) -> None:
    # More bytes than are let through unseen, in chunks that were once searched one by one.
    values = np.random.default_rng(0).standard_normal((5000, 60)).astype(np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("wpe", data=values, chunks=(5, 3), compression="gzip")
    assert (tmp_path / "x.h5").stat().st_size > 2**30 // 1032
    np.testing.assert_array_equal(open_local(tmp_path / "x.h5").read("wpe").values, values)


def test_an_orbax_table_in_many_chunks_is_read(tmp_path: Path) -> None:
    import tensorstore

    values = np.random.default_rng(0).standard_normal((1200, 30)).astype(np.float32)
    metadata = {"compressor": None, "shape": [1200, 30], "chunks": [4, 6]}
    store = {"driver": "file", "path": f"{tmp_path}/wpe/"}
    spec = {"driver": "zarr", "kvstore": store, "metadata": metadata}
    tensorstore.open(spec, create=True, dtype="float32").result().write(values).result()
    about = {"value_type": "jax.Array", "skip_deserialize": False}
    entry = {"key_metadata": [{"key": "wpe", "key_type": 2}], "value_metadata": about}
    (tmp_path / "_METADATA").write_text(json.dumps({"tree_metadata": {"wpe": entry}}))
    assert len(list((tmp_path / "wpe").iterdir())) == 1501
    np.testing.assert_array_equal(open_local(tmp_path).read("wpe").values, values)


def test_ten_thousand_layers_and_as_many_weights_are_matched() -> None:
    layers = [{"class_name": "Own", "config": {"name": f"l{n}", "maxlen": 8, "seq_len": 9}}
              for n in range(10_000)]  # fmt: skip
    tensors = {
        name: TensorInfo(name, (rows, 4), "F32", "")
        for n in range(10_000)
        for name, rows in ((f"layers/own_{n}/vars/0", 7), (f"layers/own_{n}/deep/vars/0", 6))
    }
    tensors |= {f"layers/own_5/{part}": TensorInfo(part, (8, 4), "F32", "") for part in "ab"}
    tensors["layers/own_6/x/y"] = TensorInfo("layers/own_6/x/y", (8, 4), "F32", "")
    config = {"class_name": "Model", "config": {"layers": layers}}
    found = position_layers(config, tensors)
    assert list(found) == ["layers/own_6/x/y"]  # of own_5 two fit
    assert found["layers/own_6/x/y"].endswith("with 8 rows, maxlen of a layer Own called l6 at "
                                              "layers/own_6")  # fmt: skip


def test_arrays_under_the_name_of_pieces_are_kept_where_nothing_was_cut(tmp_path: Path) -> None:
    whole = array([2], "float32", bytes(8))
    cut = {"__msgpack_chunked_array__": True, "shape": {"0": 2}, "chunks": {"0": whole}}
    path = tmp_path / "x.msgpack"
    path.write_bytes(msgpack.packb({"a": {"chunks": {"0": whole}}, "chunks": {"b": cut}}))
    assert set(open_local(path).tensors) == {"a/chunks/0", "chunks/b"}
