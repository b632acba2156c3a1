"""ONNX: exports of real libraries, quantised tables, external data, and tables without a name."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_onnx import LOOK_UP, RNG, TABLE, WORDS, add_node, save
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    NoPositionTable,
    PosprobeError,
)
from posprobe.families import inspect, load_schemes
from posprobe.schemes import RelativeBias


def export(tiny: Any, folder: Path, inputs: dict[str, Any], **options: Any) -> str:
    """Export with PyTorch, and put the configuration beside it as optimum does."""
    import torch

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = tiny.model

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(inputs, values, strict=True)))[0]

    folder.mkdir()
    tiny.model.eval().set_attn_implementation("eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Called().eval(), tuple(inputs.values()), str(folder / "model.onnx"), dynamo=False,
            input_names=list(inputs), **options,
        )  # fmt: skip
    tiny.model.config.save_pretrained(folder)
    return str(folder)


def tokens(*names: str) -> dict[str, Any]:
    import torch

    return {name: torch.ones(1, 5, dtype=torch.long) for name in names}


def exported(name: str, part: str, folder: Path) -> tuple[Any, str]:
    import tiny_models as tm
    import torch

    text = ("input_ids", "attention_mask")
    inputs = tokens(*text)
    match name:
        case "BertModel":
            tiny = tm.hf_text(name, tm.BERT, **tm.MODEL_SIZE)
        case "RobertaModel":
            tiny = tm.roberta(1)()
        case "GPT2Model":
            sizes: dict[str, Any] = dict(tm.GPT_SIZE)
            tiny = tm.hf_text(name, "wpe.weight", **sizes)
        case "ViTModel":
            tiny = tm.hf_vision(name, tm.VIT, tokens=("cls_token",))
            inputs = {"pixel_values": tiny.image}
        case _:
            tiny = tm.hf_whisper(name, part)
            text = ("decoder_input_ids", "decoder_attention_mask")
            inputs = {"input_features": torch.ones(1, 4, 20), **tokens(*text)}
    tiny.model.config.use_cache = False
    axes = {name: {0: "batch", 1: "length"} for name in text if name in inputs}
    return tiny, export(tiny, folder, inputs, dynamic_axes=axes)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("BertModel", ""), ("RobertaModel", ""), ("GPT2Model", ""), ("ViTModel", ""),
        ("WhisperModel", "decoder"), ("WhisperModel", "encoder"),
    ],
)  # fmt: skip
def test_exports_give_the_rows_that_the_forward_pass_uses(
    name: str, part: str, tmp_path: Path
) -> None:
    tiny, path = exported(name, part, tmp_path / "model")
    table = pp.load(f"{path}#{part}" if part else path)
    rows = tiny.probe()
    assert table.values.tobytes() == tiny.rows[rows.positions].numpy().tobytes()
    assert [row.row for row in table.prefix_rows] == sorted(rows.special)
    assert [row.row for row in table.dropped] == rows.unused
    assert table.layout == (
        pp.layouts.Grid(*rows.grid)
        if rows.grid
        else pp.layouts.Sequence(len(rows.positions))
    )
    assert table.source.format == "ONNX"
    if part == "encoder":  # constant folding renamed it
        assert (table.source.tensor or "").startswith("onnx::Add_")
        assert any("/model/encoder/Add" in note for note in table.notes)


# --- graphs made by hand ---


def test_a_renamed_table_is_found_by_the_add_that_uses_it(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        [LOOK_UP, add_node("onnx::Add_7")],
        {**WORDS, "onnx::Add_7": TABLE},
    )
    (item,) = inspect(path)
    assert item["tensor"] == "onnx::Add_7"
    assert item["why"] == "its use: it is added to the hidden states in /encoder/Add"
    assert pp.load(path).values.tobytes() == TABLE.tobytes()


def counted(indices: list[onnx.NodeProto], output_name: str) -> list[onnx.NodeProto]:
    gather = helper.make_node(
        "Gather", ["p", output_name], ["rows"], name="/positions/Gather"
    )
    return [
        *indices,
        LOOK_UP,
        gather,
        helper.make_node("Add", ["embedded", "rows"], ["out"]),
    ]


def test_a_table_is_found_by_rows_gathered_by_counting(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["places"]),
    ]
    tensors = {**WORDS, "p": TABLE, "zero": np.int64(0), "one": np.int64(1)}
    arrays = {name: np.asarray(value) for name, value in tensors.items()}
    path = save(tmp_path / "m.onnx", counted(nodes, "places"), arrays)
    (item,) = inspect(path)
    assert item["tensor"] == "p"
    assert item["why"].endswith("gathered by counted positions in /positions/Gather")


def bare(path: Path, rows: int, offset: int, name: str = "onnx::Gather_9") -> str:
    """Gather the rows of counted positions plus an offset, as exporters write BART and OPT."""
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["counted"]),
        helper.make_node("Add", ["counted", "offset"], ["places"]),
        LOOK_UP,
        helper.make_node("Gather", [name, "places"], ["rows"], name="/positions/Gather"),
        helper.make_node("Add", ["embedded", "rows"], ["out"]),
    ]
    values = RNG.standard_normal((rows, 8)).astype("f4")
    numbers = {"zero": 0, "one": 1, "offset": offset}
    tensors = {name: values, **WORDS, **{k: np.asarray(v) for k, v in numbers.items()}}
    return save(path, nodes, tensors)


@pytest.mark.parametrize("name", ["onnx::Gather_9", "odd.embed_positions.weight"])
def test_a_bare_file_does_not_say_which_row_the_first_position_takes(
    name: str, tmp_path: Path
) -> None:
    """OPT's 130 rows and RoBERTa's 514 are never taken for as many positions unasked."""
    for rows in (130, 514):
        path = bare(tmp_path / "m.onnx", rows, 2, name)
        (item,) = inspect(path)
        assert item["positions"] is None
        with pytest.raises(
            InvalidCheckpoint, match=r"does not .*which row|do not all take every"
        ):
            pp.load(path)
        assert len(pp.load(path, tensor=name)) == rows
    (tmp_path / "config.json").write_text(
        '{"model_type": "odd", "max_position_embeddings": 128}'
    )
    bare(tmp_path / "m.onnx", 130, 2, name)
    table = pp.load(path)
    assert len(table) == 128
    assert [row.row for row in table.dropped] == [0, 1]


def test_a_likely_row_count_is_taken_with_a_note(tmp_path: Path) -> None:
    table = pp.load(bare(tmp_path / "m.onnx", 128, 0))
    assert len(table) == 128
    assert any(
        "does not say which row the first position takes" in note for note in table.notes
    )
    path = save(
        tmp_path / "n.onnx",
        [LOOK_UP, add_node("onnx::Add_7")],
        {**WORDS, "onnx::Add_7": TABLE},
    )
    assert not any("first position" in note for note in pp.load(path).notes)


@pytest.mark.parametrize(
    ("folded", "is_position"),
    [(np.arange(12)[None], True), (np.zeros((1, 12), np.int64), False)],
)
def test_folded_indices_tell_positions_from_token_types(
    folded: NDArray[Any], is_position: bool, tmp_path: Path
) -> None:
    tensors = {**WORDS, "p": TABLE, "i": folded}
    path = save(tmp_path / "m.onnx", counted([], "i"), tensors)
    assert bool(inspect(path)) == is_position


def test_tokens_and_equal_rows_are_no_positions(tmp_path: Path) -> None:
    nodes = [
        LOOK_UP,
        helper.make_node("Cast", ["types"], ["cast"], to=TensorProto.INT64),
        helper.make_node("Gather", ["kinds", "cast"], ["typed"]),
        helper.make_node("Add", ["embedded", "typed"], ["sum"]),
        helper.make_node("Add", ["sum", "same"], ["out"]),
    ]
    tensors = {**WORDS, "kinds": TABLE[:2], "same": np.repeat(TABLE[:1], 12, 0)}
    path = save(tmp_path / "m.onnx", nodes, tensors, ("input_ids", "types"))
    assert inspect(path) == []


def test_a_table_in_a_branch_of_the_graph_is_found(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["embedded", "onnx::Add_3"], ["out"], name="/inner/Add")],
        "branch", [], [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(TABLE, "onnx::Add_3")],
    )  # fmt: skip
    nodes = [
        LOOK_UP,
        helper.make_node("If", ["yes"], ["out"], then_branch=inner, else_branch=inner),
    ]
    path = save(tmp_path / "m.onnx", nodes, {**WORDS, "yes": np.array(True)})
    assert pp.load(path).values.tobytes() == TABLE.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_every_float_format_is_read_raw_and_typed(dtype: str, tmp_path: Path) -> None:
    import ml_dtypes

    values = TABLE.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    raw = numpy_helper.from_array(values, "pos_embed")
    typed = helper.make_tensor(
        "pos_embed", raw.data_type, values.shape, TABLE.reshape(-1)
    )
    for name, tensor in (("raw", raw), ("typed", typed)):
        graph = helper.make_graph([], "graph", [], [], [tensor])
        onnx.save(helper.make_model(graph), tmp_path / f"{name}.onnx")
        stored = open_local(tmp_path / f"{name}.onnx").read("pos_embed")
        assert np.array_equal(stored.values.astype(np.float64), values.astype(np.float64))


def test_a_large_graph_is_searched_in_one_pass(
    tmp_path: Path,
) -> None:
    chain = [helper.make_node("Identity", [f"v{n}"], [f"v{n + 1}"]) for n in range(3000)]
    nodes = [
        helper.make_node("Add", [f"v{2000 + n}", f"t{table}"], [f"t{table}y{n}"])
        for table in range(10)
        for n in range(300)
    ]
    tables = {f"t{number}": TABLE for number in range(10)}
    path = Path(save(tmp_path / "m.onnx", [*chain, *nodes], tables))
    assert set(open_local(path).uses) == set(tables)


# --- hostile files ---


def test_a_file_without_a_graph_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(
        InvalidCheckpoint, match=r"empty\.onnx: not a valid ONNX.*no graph"
    ):
        inspect(str(tmp_path / "empty.onnx"))


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    inner = b""
    for _ in range(60):  # a node with an attribute with a graph
        attribute = b"\x32" + _length(inner) + inner
        node = b"\x2a" + _length(attribute) + attribute
        inner = b"\x0a" + _length(node) + node
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x3a" + _length(inner) + inner)
    with pytest.raises(InvalidCheckpoint, match="nested"):
        open_local(path)


def _length(content: bytes) -> bytes:
    size, written = len(content), bytearray()
    while size > 0x7F:
        written.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*written, size])


def test_a_browsers_folder_has_its_configuration_above(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "n_positions": 12})
    )
    path = save(tmp_path / "onnx" / "model.onnx", [], {"wpe.weight": TABLE})
    (tmp_path / "linked").symlink_to(tmp_path / "onnx")
    for folder in (Path(path), Path(path).parent, tmp_path / "linked"):
        assert open_local(folder).config["n_positions"] == 12
    np.save(tmp_path / "onnx" / "other.npy", TABLE)  # which is no model for browsers
    assert open_local(tmp_path / "onnx" / "other.npy").config == {}


@pytest.mark.parametrize("shape", [(-1, 8), (2**40, 2**40), (1,) * 40])
def test_impossible_shapes_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    tensor = TensorProto(name="pos_embed", data_type=1, raw_data=bytes(64), dims=shape)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], [tensor])), path)
    with pytest.raises(PosprobeError, match="pos_embed"):
        open_local(path).read("pos_embed")


LADDER = np.linspace(0.01, 0.1, 24, dtype="f4")
QUANTISED: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "per tensor": (np.uint8, np.float32(0.03), np.uint8(120), {}),
    "signed": (np.int8, np.float32(0.03), np.int8(-3), {}),
    "per row": (np.int8, LADDER[:12], np.arange(12, dtype=np.int8), {"axis": 0}),
    "per column": (np.uint8, LADDER[:8], np.arange(8, dtype=np.uint8), {"axis": 1}),
    "blocks": (
        np.int8, LADDER.reshape(12, 2), np.arange(24, dtype=np.int8).reshape(12, 2),
        {"axis": 1, "block_size": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_tables_are_codes_less_zero_points_times_scales(
    kind: str, tmp_path: Path
) -> None:
    dtype, scale, zero, attributes = QUANTISED[kind]
    codes = RNG.integers(0, 128, (12, 8)).astype(dtype)
    nodes = [
        helper.make_node("DequantizeLinear", ["wpe.weight_quantized", "s", "z"], ["floats"],
                         **attributes),
        LOOK_UP,
        add_node("floats"),
    ]  # fmt: skip
    tensors = {
        "wpe.weight_quantized": codes,
        "s": np.asarray(scale),
        "z": np.asarray(zero),
    }
    table = pp.load(save(tmp_path / "m.onnx", nodes, {**WORDS, **tensors}))
    scales, zeros = np.asarray(scale), np.asarray(zero).astype("f4")
    if kind == "per row":
        scales, zeros = scales[:, None], zeros[:, None]
    if kind == "blocks":
        scales, zeros = np.repeat(scales, 4, 1), np.repeat(zeros, 4, 1)
    expected = (codes - zeros) * scales
    assert table.values.tobytes() == expected.astype("f4").tobytes()
    quantisation = table.source.quantisation
    assert quantisation is not None
    blocks = " in blocks of 4" if kind == "blocks" else ""
    assert (
        quantisation.name == f"{np.dtype(dtype).name}{blocks} with scale and zero point"
    )
    assert quantisation.step == pytest.approx(float(np.median(scale)))
    assert table.source.tensor == "wpe.weight"


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("width", [8, 7])
def test_four_bit_blocks_equal_the_onnxruntime_operator(
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
            "DequantizeLinear",
            ["wpe.weight_Q4", "s", "z"],
            ["floats"],
            axis=1,
            block_size=4,
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
    quantisation = table.source.quantisation
    assert quantisation is not None
    assert quantisation.name == f"{dtype} in blocks of 4 with scale and zero point"
    assert quantisation.step == pytest.approx(float(np.median(scale)))


SAMPLES = Path(__file__).parents[1] / "data" / "formats"


@pytest.mark.parametrize(
    "name",
    ["uint4", "uint4_zero", "int4", "int4_zero", "bytes4", "bytes4_zero", "bytes8"],
)
def test_gathered_blocks_equal_onnxruntime(name: str) -> None:
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
def test_blocks_that_do_not_fit_are_one_clear_error(
    change: dict[str, int], tmp_path: Path
) -> None:
    model = onnx.load(SAMPLES / "bytes4_zero.onnx")
    for attribute in model.graph.node[0].attribute:
        attribute.i = change.get(attribute.name, attribute.i)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InvalidTable, match="Use the model before it was quantised"):
        pp.load(str(tmp_path / "m.onnx"))


@pytest.mark.parametrize("scale", ["s", "computed"])
def test_rows_that_are_dequantised_after_they_were_gathered(
    scale: str, tmp_path: Path
) -> None:
    # As onnxruntime quantises embeddings.
    codes = RNG.integers(0, 256, (12, 8)).astype(np.uint8)
    nodes = [
        helper.make_node("Gather", ["wpe.weight_quantized", "i"], ["rows"]),
        helper.make_node("DequantizeLinear", ["rows", scale, "z"], ["floats"]),
    ]
    tensors: dict[str, NDArray[Any]] = {
        "wpe.weight_quantized": codes, "i": np.arange(12)[None], "s": np.array(0.5, "f4"),
        "z": np.array(7, np.uint8),
    }  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, tensors)
    if scale == "computed":
        with pytest.raises(InvalidTable, match="computed when the model runs"):
            pp.load(path)
        return
    table = pp.load(path)
    assert np.array_equal(table.values, (codes.astype(int) - 7) * 0.5)
    assert table.family == "gpt2"


# --- external data ---


def external(
    folder: Path, change: Callable[[onnx.ModelProto], object] = lambda _: None
) -> Path:
    folder.mkdir()
    path = folder / "model.onnx"
    save(path, [LOOK_UP, add_node("pos_embed")], {**WORDS, "pos_embed": TABLE})
    model = onnx.load(path)
    onnx.save(
        model,
        path,
        save_as_external_data=True,
        location="model.onnx_data",
        size_threshold=0,
    )
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


def test_empty_external_data_opens_no_file_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def emptied(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            tensor.dims[0] = 0
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value="beside")

    path = external(tmp_path / "model", emptied)
    (tmp_path / "beside").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InvalidCheckpoint, match="model/beside: not a regular file, or not there"
    ):
        open_local(path).read("pos_embed")


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


@pytest.mark.parametrize("scales", [1, 3])
def test_a_bias_that_is_turned_before_it_is_dequantised(
    scales: int, tmp_path: Path
) -> None:
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
    n_before = bias.values.shape[1] // 2 - 1
    assert np.array_equal(
        bias.values[:, n_before], codes[1] * 0.5
    )  # one token back: bucket 1
    with pytest.raises(NoPositionTable, match="relative"):
        pp.load(path)  # no rows of positions
