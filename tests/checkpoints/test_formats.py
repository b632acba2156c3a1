"""Files of Keras, Flax and the original ViT: what they hold to the bit, and files that mislead."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import msgpack
import numpy as np
import pytest
import torch
from format_samples import FOLDER, numbers
from made_large import array
from numpy.typing import NDArray

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint
from posprobe.families import inspect
from posprobe.layouts import Grid


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
    ],
)
def test_the_parameter_is_read_bit_for_bit(
    file: str, seed: int, family: str | None
) -> None:
    table = pp.load(f"{FOLDER}/{file}")
    expected = numbers((12, 8), seed)
    assert table.values.tobytes() == expected.tobytes()
    assert table.family == family
    assert not table.dropped
    assert not table.prefix_rows
    assert table.source.format == ("Flax" if file.endswith(".msgpack") else "HDF5")


def bfloat16(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    return torch.from_numpy(numbers(shape, seed)).bfloat16().float().numpy()


def test_keras_s_weights_in_several_files(tmp_path: Path) -> None:
    folder = FOLDER / "keras_shards"
    for reference in (folder, folder / "model.weights.json"):
        table = pp.load(str(reference))
        assert table.values.tobytes() == numbers((12, 8), 1).tobytes()
        assert table.source.file == "model_00000.weights.h5"
    tensors = open_local(FOLDER / "gpt2.weights.h5").tensors
    assert {*open_local(folder).tensors} == {*tensors}
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "model_00001.weights.h5").unlink()
    with pytest.raises(InvalidCheckpoint, match=r"model_00001\.weights\.h5"):
        open_local(copy)
    shutil.copy(copy / "model_00000.weights.h5", copy / "model_00001.weights.h5")
    with pytest.raises(InvalidCheckpoint, match="in two of its files"):
        open_local(copy)
    for index in (
        '{"weight_map": {}}',
        '{"weight_map": {"a": "../gpt2.weights.h5"}}',
        "nothing",
    ):
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
    np.testing.assert_array_equal(table.values, bfloat16((6, 8), 0))
    kernel = open_local(FOLDER / "bert.msgpack").read("bert/pooler/kernel")
    np.testing.assert_array_equal(kernel.values, bfloat16((8, 8), 2))


def test_a_layer_that_computes_positions_is_named() -> None:
    encodings = inspect(str(FOLDER / "layers.keras"))
    (fixed,) = (item for item in encodings if item["scheme"] == "fixed")
    assert "sine_position_encoding" in fixed["why"]


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        (
            "bert/tf_bert_model/bert/embeddings/position_embeddings/embeddings:0",
            slice(None),
        ),
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
        selected_rows = checkpoint.read_rows(f"{name}/embeddings:0", [0, 5, 6])
        np.testing.assert_array_equal(selected_rows, expected[[0, 5, 6]])
    assert not checkpoint.read("never/embeddings:0").values.any()
    assert not any(name.startswith("again") for name in checkpoint.tensors)


# --- the original ViT and its kin ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["original", "big_vision"])
def test_the_original_vit_as_timm_loads_it(layout: str, tmp_path: Path) -> None:
    import timm

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
        **{f"{block}/LayerNorm_{n}/{suffix}": (8,) for n in (0, 2) for suffix in ("scale", "bias")},
        **{f"{attention}/{n}/kernel": (8, 2, 4) for n in ("query", "key", "value")},
        **{f"{attention}/{n}/bias": (2, 4) for n in ("query", "key", "value")},
        f"{attention}/out/kernel": (2, 4, 8), f"{attention}/out/bias": (8,),
        f"{block}/MlpBlock_3/Dense_0/kernel": (8, 32), f"{block}/MlpBlock_3/Dense_0/bias": (32,),
        f"{block}/MlpBlock_3/Dense_1/kernel": (32, 8), f"{block}/MlpBlock_3/Dense_1/bias": (8,),
    }  # fmt: skip
    if layout == "original":
        shapes |= {
            "cls": (1, 1, 8),
            "Transformer/posembed_input/pos_embedding": (1, 17, 8),
        }
    else:
        renamed = {"MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
                   "LayerNorm_2": "LayerNorm_1", "MlpBlock_3": "MlpBlock_0"}  # fmt: skip
        for old, new in renamed.items():
            shapes = {name.replace(old, new): shape for name, shape in shapes.items()}
        shapes["pos_embedding"] = (1, 16, 8)
        shapes = {f"params/{name}": shape for name, shape in shapes.items()}
    return {
        name: numbers(shape, seed) for seed, (name, shape) in enumerate(shapes.items())
    }


def test_siglip_s_two_tables_in_jax(tmp_path: Path) -> None:
    path = tmp_path / "siglip.npz"
    image, text = numbers((1, 16, 8), 1), numbers((1, 20, 8), 2)
    savez(path, {"params/img/pos_embedding": image, "params/txt/pos_embedding": text})
    image_table = pp.load(f"{path}#image")
    np.testing.assert_array_equal(image_table.values, image[0])
    assert image_table.layout == Grid(4, 4)
    np.testing.assert_array_equal(pp.load(f"{path}#text").values, text[0])


def test_t5x_stores_its_biases_by_head(tmp_path: Path) -> None:
    """The same numbers as transformers' table of buckets, turned."""
    table = numbers((32, 4), 3)
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    savez(tmp_path / "t5x.npz", {"target/encoder/relpos_bias/rel_embedding": table.T})
    savez(tmp_path / "hf.npz", {name: table})
    (ours,), (reference,) = (
        pp.load_schemes(str(tmp_path / name)) for name in ("t5x.npz", "hf.npz")
    )
    np.testing.assert_array_equal(ours.kernel(40), reference.kernel(40))


# --- what is touched -----------------------------------------------------------------------------


def test_a_member_that_somebody_compressed_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "packed.keras"
    with (
        zipfile.ZipFile(FOLDER / "layers.keras") as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        new.writestr("model.weights.h5", old.read("model.weights.h5"))
    stored = open_local(path).read(
        "layers/token_and_position_embedding/position_embedding/vars/0"
    )
    np.testing.assert_array_equal(stored.values, numbers((12, 8), 1))


def test_hdf5_never_leads_to_another_file(tmp_path: Path) -> None:
    outside = tmp_path / "outside.h5"
    with h5py.File(outside, "w") as file:
        file["wpe"] = numbers((12, 8), 0)
    (tmp_path / "raw").write_bytes(bytes(400))
    link, virtual, raw = (tmp_path / f"{n}.h5" for n in ("link", "virtual", "raw"))
    with h5py.File(link, "w") as file:
        file["wpe"] = h5py.ExternalLink(str(outside), "/wpe")
    layout = h5py.VirtualLayout((12, 8), "f4")
    layout[:] = h5py.VirtualSource(str(outside), "wpe", shape=(12, 8))
    with h5py.File(virtual, "w") as file:
        file.create_virtual_dataset("wpe", layout)
    with h5py.File(raw, "w") as file:
        file.create_dataset(
            "wpe", (10, 10), "f4", external=[(str(tmp_path / "raw"), 0, 400)]
        )
    for path in (link, virtual, raw):
        with pytest.raises(InvalidCheckpoint, match=rf"{path.name}.*other? ?\w* files?"):
            open_local(path)


def test_hdf5_bombs_and_unknown_filters_are_refused_unopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("checkpoint", "hdf5file"):
        monkeypatch.setattr(f"posprobe.checkpoints.{module}.MAX_UNPACKED_BYTES", 2**20)
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("long", (2**20, 8), "f4", chunks=(8, 8), compression="gzip")
        file.create_dataset("chunk", (8, 8), "f4", chunks=(2**18, 8), maxshape=(None, 8),
                            compression="gzip")  # fmt: skip
        file.create_dataset("never", (2**40, 8), "f4")
        lies = file.create_dataset(
            "lies", (8, 8), "f4", chunks=(8, 8), compression="gzip"
        )
        lies.id.write_direct_chunk((0, 0), zlib.compress(bytes(2**25)))
        file.create_dataset("many", (4096, 32), "f4", chunks=(1, 1))
        file.create_dataset("scaled", data=numbers((8, 8), 0), scaleoffset=2)
    checkpoint = open_local(path)
    tracemalloc.start()
    for name in ("long", "chunk", "never", "lies", "many", "scaled"):
        with pytest.raises(
            InvalidCheckpoint, match=r"bomb\.h5.*(bytes|131072 chunks|filters)"
        ):
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
    for levels, expectation in ((64, nullcontext()), (65, too_deep)):
        with h5py.File(tmp_path / "deep.h5", "w") as file:
            file["/".join("g" * levels)] = numbers((2, 2), 0)
        with expectation:
            assert len(open_local(tmp_path / "deep.h5").tensors) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "1 bytes are announced at byte 0 and 0 are left"),
        (b"\xc1", "begins no value"),
        (b"\xdf\xff\xff\xff\xff", "4294967295 values in 0 bytes"),
        (b"\xc6\xff\xff\xff\xff", "4294967295 bytes are announced"),
        (b"\x91" * 200_000, "more than 64 levels"),
        (msgpack.packb({"w": 1}) + b"\0", "1 bytes follow"),
        (msgpack.packb({"w": 1}), "contains no arrays"),
        (msgpack.packb({"w" * 2000: 1}), "a name of 2000 bytes"),
        (
            msgpack.packb({"w": array((4, 4), "float32", bytes(60))}),
            "60 bytes for an array",
        ),
        (
            msgpack.packb({"w": array((2**40, 2**40), "float32", b"")}),
            "0 bytes for an array",
        ),
        (msgpack.packb({"w": array((-2, -2), "float32", bytes(16))}), "no shape"),
        (msgpack.packb({"w": array("44", "float32", bytes(16))}), "no shape"),
    ],
)
def test_flax_files_made_to_mislead(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.msgpack").write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=rf"x\.msgpack.*{reason}"):
        open_local(tmp_path / "x.msgpack")


def test_flax_values_of_every_kind_and_moments_of_training_are_passed_over(
    tmp_path: Path,
) -> None:
    odd = [
        *(
            -1,
            -200,
            2**40,
            -(2**40),
            1.5,
            None,
            True,
            "text" * 100,
            b"x" * 300,
            [1, [2, {}]],
        ),
        *(
            {"a": {}},
            msgpack.ExtType(3, b"12"),
            msgpack.ExtType(9, bytes(16)),
            {3: "number"},
        ),
    ]
    values = numbers((40, 8), 0)
    table = {"embedding": array([40, 8], "float32", values.tobytes())}
    path = tmp_path / "x.msgpack"
    path.write_bytes(
        msgpack.packb({"odd": odd, "wpe": table, "opt_state": {"mu": table}})
    )
    checkpoint = open_local(path)
    assert list(checkpoint.tensors) == ["wpe/embedding"]
    np.testing.assert_array_equal(checkpoint.read("wpe/embedding").values, values)
    np.testing.assert_array_equal(
        checkpoint.read_rows("wpe/embedding", [3, 4]), values[3:5]
    )
    # The same as what the format's own library unpacks.
    stored = msgpack.unpackb(path.read_bytes(), strict_map_key=False)["wpe"][
        "embedding"
    ].data
    assert msgpack.unpackb(stored)[2] == values.tobytes()


def test_tables_in_many_chunks_are_read(tmp_path: Path) -> None:
    # More bytes than are let through unseen, in chunks that were once searched one by one.
    values = np.random.default_rng(0).standard_normal((5000, 60)).astype(np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("wpe", data=values, chunks=(5, 3), compression="gzip")
    assert (tmp_path / "x.h5").stat().st_size > 2**30 // 1032
    np.testing.assert_array_equal(
        open_local(tmp_path / "x.h5").read("wpe").values, values
    )
