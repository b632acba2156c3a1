"""Files of libraries other than PyTorch: what they hold, bit for bit.

The files under ``tests/data/formats`` were written by the libraries themselves, with parameters of
known numbers (``tools/format_samples.py``).
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import timm
import torch
from format_samples import FOLDER, numbers
from numpy.typing import NDArray

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint
from posprobe.families import inspect
from posprobe.layouts import Grid

# --- what the libraries wrote ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "seed", "family"),
    [
        ("gpt2.weights.h5", 1, "keras-hub"),
        ("bart.weights.h5#position_embedding", 1, "keras-hub"),
        ("bart.weights.h5#position_embedding_1", 2, "keras-hub"),
        ("layers.keras#token_and_position_embedding", 1, "keras-hub"),
        ("layers.keras#layers/position_embedding/vars/0", 2, "keras-hub"),
        ("layers_keras2.h5", 1, None),
        ("bert.msgpack", 0, "bert"),
        ("pieces.msgpack", 0, "bert"),
    ],
)
def test_the_parameter_is_read_bit_for_bit(file: str, seed: int, family: str | None) -> None:
    table = pp.load(f"{FOLDER}/{file}")
    expected = numbers((12, 8), seed)
    assert table.values.tobytes() == expected.tobytes()
    assert table.family == family
    assert not table.dropped
    assert not table.prefix_rows
    assert table.source.format == ("Flax" if file.endswith(".msgpack") else "HDF5")


@pytest.mark.parametrize("folder", ["orbax", "orbax_zarr"])
def test_orbax_s_two_layouts(folder: str, tmp_path: Path) -> None:
    table = pp.load(str(FOLDER / folder))
    assert table.values.tobytes() == numbers((12, 8), 0).tobytes()
    assert (table.family, table.source.format) == ("bert", "Orbax")
    kernel = open_local(FOLDER / folder).read("params/bert/pooler/kernel").values
    expected = torch.from_numpy(numbers((8, 8), 2)).bfloat16().float().numpy()
    np.testing.assert_array_equal(kernel, expected)
    copy = shutil.copytree(FOLDER / folder, tmp_path / "damaged")
    for path in copy.rglob("*"):
        if path.is_file() and path.name != "_METADATA":
            path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InvalidCheckpoint, match=r"position_embeddings.*cannot be read"):
        pp.load(str(copy))
    for odd in ("{}", '{"tree_metadata": {"a": {}}}', '{"tree_metadata": [1]}', "[]"):
        (copy / "_METADATA").write_text(odd)
        with pytest.raises(InvalidCheckpoint, match=r"^_METADATA: (not a|expected a|a JSON|it)"):
            open_local(copy)
    entry = {"key_metadata": [{"key": "../../etc"}], "value_metadata": {"value_type": "np.ndarray"}}
    (copy / "_METADATA").write_text(json.dumps({"tree_metadata": {"a": entry}}))
    with pytest.raises(InvalidCheckpoint, match="has no name"):
        open_local(copy)


@pytest.mark.parametrize(
    ("tensor", "rows", "seed", "why"),
    [
        ("layers/whereabouts/vars/0", 12, 1, "shape alone fits, with 12 rows, sequence_length"),
        ("layers/adder/inner/vars/0", 10, 2, "table of a layer PositionEmbedding called inside"),
    ],
)  # fmt: skip
def test_layers_of_one_s_own_names_are_found_by_class_or_by_shape(
    tensor: str, rows: int, seed: int, why: str
) -> None:
    """Keras itself wrote the archive; no name in it is that of a table of positions."""
    path = f"{FOLDER}/named.keras"
    table = pp.load(f"{path}#{tensor}")
    assert table.values.tobytes() == numbers((rows, 8), seed).tobytes()
    assert any("the name" in note and why in note for note in table.notes)
    found = {item["tensor"]: item["why"] for item in inspect(path)}
    assert len(found) == 2  # and not the embedding of tokens
    assert why in found[tensor]


def test_keras_s_weights_in_several_files(tmp_path: Path) -> None:
    folder = FOLDER / "keras_shards"
    for reference in (folder, folder / "model.weights.json"):
        table = pp.load(str(reference))
        assert table.values.tobytes() == numbers((12, 8), 1).tobytes()
        assert table.source.file == "model_00000.weights.h5"
        assert table.family == "keras-hub"
    whole = open_local(FOLDER / "gpt2.weights.h5").tensors
    assert {*open_local(folder).tensors} == {*whole}
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "model_00001.weights.h5").unlink()
    with pytest.raises(InvalidCheckpoint, match=r"model_00001\.weights\.h5"):
        open_local(copy)
    shutil.copy(copy / "model_00000.weights.h5", copy / "model_00001.weights.h5")
    with pytest.raises(InvalidCheckpoint, match="in two of its files"):
        open_local(copy)
    for index in ('{"weight_map": {}}', '{"weight_map": {"a": "../gpt2.weights.h5"}}', "nothing"):
        (copy / "model.weights.json").write_text(index)
        with pytest.raises(InvalidCheckpoint, match=r"model\.weights\.json"):
            open_local(copy)


def test_kerashub_s_patches_come_after_cls() -> None:
    table = pp.load(str(FOLDER / "vit.weights.h5"))
    np.testing.assert_array_equal(table.values, numbers((17, 8), 3)[1:])
    assert table.layout == Grid(4, 4)
    assert [row.token for row in table.prefix_rows] == ["CLS"]


def test_bfloat16_is_widened_exactly() -> None:
    table = pp.load(str(FOLDER / "bfloat16.weights.h5"))
    expected = torch.from_numpy(numbers((6, 8), 0)).bfloat16().float().numpy()
    np.testing.assert_array_equal(table.values, expected)
    kernel = open_local(FOLDER / "bert.msgpack").read("bert/pooler/kernel")
    expected = torch.from_numpy(numbers((8, 8), 2)).bfloat16().float().numpy()
    np.testing.assert_array_equal(kernel.values, expected)


def test_a_layer_that_computes_positions_is_named() -> None:
    found = inspect(str(FOLDER / "layers.keras"))
    (fixed,) = (item for item in found if item["scheme"] == "fixed")
    assert "sine_position_encoding" in fixed["why"]
    # The optimiser's moments have the names of the parameters, and are no tables.
    assert len(inspect(str(FOLDER / "pieces.msgpack"))) == 1


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("bert/tf_bert_model/bert/embeddings/position_embeddings/embeddings:0", slice(None)),
        ("transformer/tfgpt2lm_head_model/transformer/wpe/weight:0", slice(None)),
        ("model/tf_opt/model/decoder/embed_positions/embeddings:0", slice(2, None)),
    ],
)
def test_transformers_tensorflow_names(path: str, rows: slice, tmp_path: Path) -> None:
    """The layout of ``tf_model.h5``, which transformers 5 no longer writes."""
    kinds = {"bert": "bert", "transformer": "gpt2", "model": "opt"}
    config = {"model_type": kinds[path.partition("/")[0]]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    values = numbers((12, 8), 7)
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file.attrs["layer_names"] = [path.partition("/")[0]]
        file.attrs["backend"] = "tensorflow"
        file[path] = values
    table = pp.load(str(tmp_path))
    np.testing.assert_array_equal(table.values, values[rows])
    assert table.family == kinds[path.partition("/")[0]]


def test_chunks_and_orders_of_bytes(tmp_path: Path) -> None:
    values = numbers((64, 16), 0)
    ways: dict[str, dict[str, Any]] = {
        "gzip": {"compression": "gzip", "shuffle": True, "chunks": (16, 16)},
        "lzf": {"compression": "lzf", "fletcher32": True},
        "big": {"dtype": ">f4"},
        "double": {"dtype": "f8"},
        "half": {"dtype": "f2"},
    }
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, options in ways.items():
            file.create_dataset(f"{name}/embeddings:0", data=values, **options)
        file.create_dataset("never/embeddings:0", (4, 4), "f4")
        file["again"] = h5py.SoftLink("/gzip")
    checkpoint = open_local(tmp_path / "x.h5")
    for name, options in ways.items():
        stored = checkpoint.read(f"{name}/embeddings:0").values
        expected = values.astype(np.dtype(options.get("dtype", "f4")).newbyteorder("="))
        np.testing.assert_array_equal(stored, expected)
        some = checkpoint.read_rows(f"{name}/embeddings:0", [0, 5, 6])
        np.testing.assert_array_equal(some, expected[[0, 5, 6]])
    assert not checkpoint.read("never/embeddings:0").values.any()
    assert not any(name.startswith("again") for name in checkpoint.tensors)


# --- the original ViT and its kin ----------------------------------------------------------------


@pytest.mark.parametrize("layout", ["original", "big_vision"])
def test_the_original_vit_as_timm_loads_it(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "ViT-tiny.npz"
    savez(path, vit_arrays(layout))
    pooled = layout == "big_vision"
    model = timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=8, depth=1, num_heads=2, num_classes=3,
        class_token=not pooled, global_pool="avg" if pooled else "token",
    )  # fmt: skip
    model.load_pretrained(str(path))
    assert model.pos_embed is not None
    rows = model.pos_embed.detach().numpy()[0]
    table = pp.load(str(path))
    np.testing.assert_array_equal(table.values, rows if pooled else rows[1:])
    assert table.layout == Grid(4, 4)
    assert [row.token for row in table.prefix_rows] == ([] if pooled else ["CLS"])
    assert table.family == "jax-vit"


def savez(path: Path, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    np.savez(path, allow_pickle=False, **arrays)


def vit_arrays(layout: str) -> dict[str, NDArray[np.float32]]:
    """Name parameters as the original release does, or as Big Vision's models without CLS."""
    block = "Transformer/encoderblock_0"
    attention = f"{block}/MultiHeadDotProductAttention_1"
    shapes: dict[str, tuple[int, ...]] = {
        "embedding/kernel": (4, 4, 3, 8), "embedding/bias": (8,),
        "Transformer/encoder_norm/scale": (8,), "Transformer/encoder_norm/bias": (8,),
        "head/kernel": (8, 3), "head/bias": (3,),
        **{f"{block}/LayerNorm_{n}/{what}": (8,) for n in (0, 2) for what in ("scale", "bias")},
        **{f"{attention}/{n}/kernel": (8, 2, 4) for n in ("query", "key", "value")},
        **{f"{attention}/{n}/bias": (2, 4) for n in ("query", "key", "value")},
        f"{attention}/out/kernel": (2, 4, 8), f"{attention}/out/bias": (8,),
        f"{block}/MlpBlock_3/Dense_0/kernel": (8, 32), f"{block}/MlpBlock_3/Dense_0/bias": (32,),
        f"{block}/MlpBlock_3/Dense_1/kernel": (32, 8), f"{block}/MlpBlock_3/Dense_1/bias": (8,),
    }  # fmt: skip
    if layout == "original":
        shapes |= {"cls": (1, 1, 8), "Transformer/posembed_input/pos_embedding": (1, 17, 8)}
    else:
        renamed = {"MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
                   "LayerNorm_2": "LayerNorm_1", "MlpBlock_3": "MlpBlock_0"}  # fmt: skip
        for old, new in renamed.items():
            shapes = {name.replace(old, new): shape for name, shape in shapes.items()}
        shapes["pos_embedding"] = (1, 16, 8)
        shapes = {f"params/{name}": shape for name, shape in shapes.items()}
    return {name: numbers(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}


def test_how_a_member_of_an_archive_is_stored_changes_no_number(tmp_path: Path) -> None:
    """What is not compressed, by rows and little-endian is mapped; anything else is unpacked."""
    values = numbers((64, 16), 0)
    ways: dict[str, Any] = {
        "rows": values, "columns": np.asfortranarray(values), "big": values.astype(">f4"),
        "half": values.astype("f2"), "turned": values.T,
    }  # fmt: skip
    np.savez(tmp_path / "plain.npz", allow_pickle=False, **ways)
    np.savez_compressed(tmp_path / "packed.npz", allow_pickle=False, **ways)
    plain, packed = (open_local(tmp_path / f"{name}.npz") for name in ("plain", "packed"))
    for name, expected in ways.items():
        for checkpoint in (plain, packed):
            np.testing.assert_array_equal(checkpoint.read(name).values, expected)
            some = checkpoint.read_rows(name, [0, 5, 6])
            np.testing.assert_array_equal(some, expected[[0, 5, 6]])
        assert plain.read(name).sha256 == packed.read(name).sha256
    mapped = [name for name, info in plain.tensors.items() if info.stop]
    assert mapped == ["rows", "half"]
    assert not any(info.stop for info in packed.tensors.values())
    content = bytearray((tmp_path / "plain.npz").read_bytes())
    content[plain.tensors["rows"].start + 9] ^= 1
    (tmp_path / "bit.npz").write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=r"bit\.npz.*rows.*checksum"):
        open_local(tmp_path / "bit.npz").read("rows")


def test_siglip_s_two_tables_in_jax(tmp_path: Path) -> None:
    path = tmp_path / "siglip.npz"
    image, text = numbers((1, 16, 8), 1), numbers((1, 20, 8), 2)
    savez(path, {"params/img/pos_embedding": image, "params/txt/pos_embedding": text})
    seen = pp.load(f"{path}#image")
    np.testing.assert_array_equal(seen.values, image[0])
    assert seen.layout == Grid(4, 4)
    np.testing.assert_array_equal(pp.load(f"{path}#text").values, text[0])


def test_t5x_stores_its_biases_by_head(tmp_path: Path) -> None:
    """The same numbers as transformers' table of buckets, turned."""
    table = numbers((32, 4), 3)
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    savez(tmp_path / "t5x.npz", {"target/encoder/relpos_bias/rel_embedding": table.T})
    savez(tmp_path / "hf.npz", {name: table})
    (ours,), (theirs,) = (pp.load_schemes(str(tmp_path / name)) for name in ("t5x.npz", "hf.npz"))
    np.testing.assert_array_equal(ours.kernel(40), theirs.kernel(40))


# --- what is touched -----------------------------------------------------------------------------


def test_a_member_that_somebody_compressed_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "packed.keras"
    with (
        zipfile.ZipFile(FOLDER / "layers.keras") as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        new.writestr("model.weights.h5", old.read("model.weights.h5"))
    stored = open_local(path).read("layers/token_and_position_embedding/position_embedding/vars/0")
    np.testing.assert_array_equal(stored.values, numbers((12, 8), 1))


@pytest.mark.parametrize("depth", [0, 1, 300, -1])
def test_the_configuration_in_an_archive_made_to_mislead(depth: int, tmp_path: Path) -> None:
    told: Any = {"class_name": [], "config": {"sequence_length": 12, "layers": [1, None]}}
    for _ in range(depth):
        told = {"class_name": "A", "config": {"layers": [told], "name": 3, "max_len": True}}
    path = tmp_path / "x.keras"
    with zipfile.ZipFile(FOLDER / "named.keras") as old, zipfile.ZipFile(path, "w") as new:
        new.writestr("config.json", json.dumps(told if depth >= 0 else [told]))
        new.writestr("model.weights.h5", old.read("model.weights.h5"))
    if depth >= 0:
        assert open_local(path).uses == {}
        return
    with pytest.raises(InvalidCheckpoint, match=r"x\.keras/config\.json"):
        open_local(path)
