"""Values in ONNX files: quantised in every way the operators know, and stored beside the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_onnx import LOOK_UP, RNG, TABLE, WORDS, added, save
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint, InvalidTable, NoPositionTable
from posprobe.families import inspect, load_schemes
from posprobe.schemes import RelativeBias

# --- quantised ---


def reference(codes: NDArray[Any], given: dict[str, Any]) -> NDArray[Any]:
    from onnx.reference import ReferenceEvaluator

    node = helper.make_node(
        "DequantizeLinear", ["x", "scale", "zero"], ["y"], **given["attributes"]
    )
    graph = helper.make_graph(
        [node], "one",
        [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, codes.shape)],
        [numpy_helper.from_array(value, name) for name, value in
         (("x", codes), ("scale", given["scale"]), ("zero", given["zero"]))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (values,) = ReferenceEvaluator(model).run(None, {})
    return np.asarray(values)


QUANTISED: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "per tensor": (np.uint8, np.float32(0.03), np.uint8(120), {}),
    "signed": (np.int8, np.float32(0.03), np.int8(-3), {}),
    "per row": (
        np.int8, np.linspace(0.01, 0.1, 12, dtype="f4"), np.arange(12, dtype=np.int8), {"axis": 0},
    ),
    "per column": (
        np.uint8, np.linspace(0.01, 0.1, 8, dtype="f4"), np.arange(8, dtype=np.uint8), {"axis": 1},
    ),
    "blocks": (
        np.int8, np.linspace(0.01, 0.1, 24, dtype="f4").reshape(12, 2),
        np.arange(24, dtype=np.int8).reshape(12, 2), {"axis": 1, "block_size": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_tables_are_what_the_operator_makes_of_them(kind: str, tmp_path: Path) -> None:
    dtype, scale, zero, attributes = QUANTISED[kind]
    bounds = np.iinfo(dtype)
    codes = RNG.integers(bounds.min, bounds.max + 1, (12, 8)).astype(dtype)
    nodes = [
        helper.make_node(
            "DequantizeLinear",
            ["positional_embedding_quantized", "s", "z"],
            ["dequantized"],
            **attributes,
        ),
        LOOK_UP,
        added("dequantized"),
    ]
    tensors = {
        **WORDS,
        "positional_embedding_quantized": codes,
        "s": np.asarray(scale),
        "z": np.asarray(zero),
    }
    path = save(tmp_path / "m.onnx", nodes, tensors)
    table = pp.load(path)
    given = {"scale": np.asarray(scale), "zero": np.asarray(zero), "attributes": attributes}
    assert table.values.tobytes() == reference(codes, given).tobytes()
    found = table.source.quantisation
    assert found is not None
    blocks = " in blocks of 4" if kind == "blocks" else ""
    assert found.name == f"{np.dtype(dtype).name}{blocks} with scale and zero point"
    assert found.step == pytest.approx(float(np.median(np.asarray(scale))))
    assert table.source.tensor == "positional_embedding"


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("width", [8, 7])
def test_four_bits_are_what_the_operator_makes_of_them(
    dtype: str, width: int, typed: bool, tmp_path: Path
) -> None:
    """Two numbers in a byte; of an odd number the last half byte is empty."""
    import ml_dtypes

    low = -8 if dtype == "int4" else 0
    codes = RNG.integers(low, low + 16, (11, width)).astype(np.int8)
    zero = RNG.integers(low, low + 16, (11, 2)).astype(np.int8)
    scale = np.linspace(0.01, 0.1, 22, dtype="f4").reshape(11, 2)
    kind = getattr(ml_dtypes, dtype)
    nodes = [
        helper.make_node(
            "DequantizeLinear", ["wpe.weight_Q4", "s", "z"], ["floats"], axis=1, block_size=4
        )
    ]
    tensors = {"wpe.weight_Q4": codes.astype(kind), "s": scale, "z": zero.astype(kind)}
    path = save(tmp_path / "m.onnx", nodes, tensors)
    if typed:  # as numbers of int32, and not as bytes
        model = onnx.load(path)
        packed = model.graph.initializer[0]
        numbers = list(packed.raw_data)
        packed.ClearField("raw_data")
        packed.int32_data.extend(numbers)
        onnx.save(model, path)
    spread = np.repeat(np.arange(2), 4)[:width]
    expected = (codes.astype(int) - zero[:, spread]).astype("f4") * scale[:, spread]
    table = pp.load(path)
    assert table.values.tobytes() == expected.tobytes()
    found = table.source.quantisation
    assert found is not None
    assert found.name == f"{dtype} in blocks of 4 with scale and zero point"
    assert found.step == pytest.approx(float(np.median(scale)))


SAMPLES = Path(__file__).parents[1] / "data" / "formats"


@pytest.mark.parametrize(
    "name", ["uint4", "uint4_zero", "int4", "int4_zero", "bytes4", "bytes4_zero", "bytes8"]
)
def test_gathered_blocks_are_what_onnxruntime_answers(name: str) -> None:
    """Models and answers are onnxruntime's (``tools/format_samples.py``)."""
    (item,) = inspect(f"{SAMPLES}/{name}.onnx")
    assert item["tensor"] == "wpe.weight"
    assert item["shape"] == [12, 40]
    table = pp.load(f"{SAMPLES}/{name}.onnx")
    with np.load(SAMPLES / "onnxruntime_answers.npz") as answers:
        assert table.values.tobytes() == answers[name].tobytes()
    bits = {"bytes4": "uint4", "bytes8": "uint8"}.get(
        name.partition("_")[0], name.partition("_")[0]
    )
    assert item["quantisation"] == f"{bits} in blocks of 16 with scale and zero point"
    assert table.family == "gpt2"


@pytest.mark.parametrize(
    "change",
    [{"bits": 2}, {"bits": 3}, {"bits": -1}, {"block_size": 0}, {"block_size": -16},
     {"block_size": 2**40}, {"quantize_axis": 7}, {"quantize_axis": -9}, {"block_size": 8}],
    ids=str,
)  # fmt: skip
def test_blocks_that_do_not_fit_are_one_clear_error(change: dict[str, int], tmp_path: Path) -> None:
    model = onnx.load(SAMPLES / "bytes4_zero.onnx")
    for attribute in model.graph.node[0].attribute:
        attribute.i = change.get(attribute.name, attribute.i)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InvalidTable, match="Use the model before it was quantised"):
        pp.load(str(tmp_path / "m.onnx"))


def test_rows_that_are_dequantised_after_they_were_gathered(tmp_path: Path) -> None:
    # As onnxruntime quantises embeddings.
    codes = RNG.integers(0, 256, (12, 8)).astype(np.uint8)
    nodes = [
        helper.make_node("Gather", ["wpe.weight_quantized", "i"], ["rows"]),
        helper.make_node("DequantizeLinear", ["rows", "s", "z"], ["floats"]),
    ]
    tensors: dict[str, NDArray[Any]] = {
        "wpe.weight_quantized": codes, "i": np.arange(12)[None], "s": np.array(0.5, "f4"),
        "z": np.array(7, np.uint8),
    }  # fmt: skip
    table = pp.load(save(tmp_path / "m.onnx", nodes, tensors))
    assert np.array_equal(table.values, (codes.astype(int) - 7) * 0.5)
    assert table.family == "gpt2"


def test_a_scale_that_is_not_stored_is_named(tmp_path: Path) -> None:
    codes = np.zeros((12, 8), np.int8)
    nodes = [
        helper.make_node(
            "DequantizeLinear", ["positional_embedding_quantized", "computed"], ["floats"]
        ),
        LOOK_UP,
        added("floats"),
    ]
    path = save(tmp_path / "m.onnx", nodes, {**WORDS, "positional_embedding_quantized": codes})
    with pytest.raises(InvalidTable, match="computed when the model runs"):
        pp.load(path)


# --- external data ---


def external(folder: Path, change: Callable[[onnx.ModelProto], object] = lambda _: None) -> Path:
    folder.mkdir()
    path = folder / "model.onnx"
    save(path, [LOOK_UP, added("pos_embed")], {**WORDS, "pos_embed": TABLE})
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def at(key: str, value: str) -> Callable[[onnx.ModelProto], object]:
    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == key:
                    entry.value = value

    return change


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("location", "/etc/passwd"), ("location", "../secret"), ("location", "a/../../secret"),
        ("location", "C:\\secret"), ("location", ""), ("location", "a\nb"), ("offset", "-4"),
        ("offset", "x"), ("length", "5"), ("location", "missing"), ("offset", "99999999"),
        ("location", "link"), ("location", "folder"),
    ],
)  # fmt: skip
def test_data_outside_the_folder_or_the_file_are_refused(
    key: str, value: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(bytes(10_000))
    path = external(tmp_path / "model", at(key, value))
    (path.parent / "link").symlink_to(tmp_path / "secret")
    (path.parent / "folder").mkdir()
    with pytest.raises(InvalidCheckpoint) as caught:
        open_local(path).read("pos_embed")
    assert "\n" not in str(caught.value)
    if value == "link":
        assert "leads out of its folder" in str(caught.value)


def test_links_of_the_hubs_local_cache_are_followed(tmp_path: Path) -> None:
    path = external(tmp_path / "model")
    blobs = tmp_path / "models--me--model" / "blobs"
    snapshot = tmp_path / "models--me--model" / "snapshots" / ("a" * 40)
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(path.parent.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(blobs / str(number))
    assert open_local(snapshot).read("pos_embed").values.tobytes() == TABLE.tobytes()


@pytest.mark.parametrize("scales", [1, 3])
def test_a_bias_that_is_turned_before_it_is_dequantised(scales: int, tmp_path: Path) -> None:
    # As onnxruntime quantises T5: rows are gathered by counted numbers, then heads go first.
    name = "enc.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    codes = RNG.integers(0, 256, (32, 3)).astype(np.uint8)
    nodes = [
        helper.make_node("Range", ["zero", "count", "one"], ["i"]),
        helper.make_node("Gather", [f"{name}_quantized", "i"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("DequantizeLinear", ["turned", "s"], ["floats"], axis=0),
    ]
    tensors: dict[str, NDArray[Any]] = {
        f"{name}_quantized": codes, "zero": np.array(0), "one": np.array(1),
        "count": np.array(32), "s": np.full(scales if scales > 1 else (), 0.5, "f4"),
    }  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, tensors)
    if scales > 1:  # which axis they belong to has changed: no bias of codes
        with pytest.raises(NoPositionTable):
            load_schemes(path)
        return
    (bias,) = load_schemes(path)
    assert isinstance(bias, RelativeBias)
    before = bias.values.shape[1] // 2 - 1
    assert np.array_equal(bias.values[:, before], codes[1] * 0.5)  # one token back: bucket 1
    with pytest.raises(NoPositionTable, match="relative"):
        pp.load(path)  # no rows of positions
