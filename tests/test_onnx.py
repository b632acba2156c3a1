"""ONNX: exports of real libraries, quantised tables, external data, and tables without a name."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.checkpoints.base import TensorInfo
from posprobe.checkpoints.files import LocalFiles
from posprobe.checkpoints.onnx import read_onnx
from posprobe.checkpoints.onnx_graph import Graph, find_positions
from posprobe.errors import InvalidCheckpoint, InvalidTable, PosprobeError
from posprobe.families import inspect

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((12, 8)).astype(np.float32)


# --- what PyTorch exports ---


def export(tiny: Any, folder: Path, given: dict[str, Any], **options: Any) -> str:
    """Export with PyTorch, and put the configuration beside it as optimum does."""
    import torch

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = tiny.model

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(given, values, strict=True)))[0]

    folder.mkdir()
    tiny.model.eval().set_attn_implementation("eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Called().eval(), tuple(given.values()), str(folder / "model.onnx"), dynamo=False,
            input_names=list(given), **options,
        )  # fmt: skip
    tiny.model.config.save_pretrained(folder)
    return str(folder)


def tokens(*names: str, length: int = 5) -> dict[str, Any]:
    import torch

    return {name: torch.ones(1, length, dtype=torch.long) for name in names}


def exported(name: str, part: str, folder: Path) -> tuple[Any, str]:
    import tiny_models as tm
    import torch

    text = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
    if name == "BertModel":
        sizes: dict[str, Any] = tm._SIZE
        tiny = tm.hf_text(name, tm.BERT, **sizes)
        return tiny, export(tiny, folder, tokens(*text), dynamic_axes=text)
    if name == "RobertaModel":
        tiny = tm.roberta(1)()
        return tiny, export(tiny, folder, tokens(*text), dynamic_axes=text)
    if name == "GPT2Model":
        sizes = dict(tm._GPT)
        tiny = tm.hf_text(name, "wpe.weight", **sizes)
        tiny.model.config.use_cache = False
        return tiny, export(tiny, folder, tokens(*text), dynamic_axes=text)
    if name == "ViTModel":
        tiny = tm.hf_vision(name, tm.VIT, tokens=("cls_token",))
        assert tiny.image is not None
        return tiny, export(tiny, folder, {"pixel_values": tiny.image})
    tiny = tm.hf_whisper(name, part)
    tiny.model.config.use_cache = False
    names = ("decoder_input_ids", "decoder_attention_mask")
    given = {"input_features": torch.ones(1, 4, 20), **tokens(*names)}
    axes = {name: {0: "batch", 1: "length"} for name in names}
    return tiny, export(tiny, folder, given, dynamic_axes=axes)


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
    assert table.layout == (pp.Grid(*rows.grid) if rows.grid else pp.Sequence(len(rows.positions)))
    assert table.source.format == "ONNX"
    if part == "encoder":  # constant folding renamed it
        assert (table.source.tensor or "").startswith("onnx::Add_")
        assert any("/model/encoder/Add" in note for note in table.notes)


# --- graphs made by hand ---


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    tensors: dict[str, NDArray[Any]],
    inputs: tuple[str, ...] = ("input_ids",),
) -> str:
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "n"]) for name in inputs]
    graph = helper.make_graph(
        nodes, "graph", given,
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), path)
    return str(path)


WORDS = {"words": RNG.standard_normal((30, 8)).astype(np.float32)}
LOOK_UP = helper.make_node("Gather", ["words", "input_ids"], ["embedded"], name="/words/Gather")


def added(name: str) -> onnx.NodeProto:
    return helper.make_node("Add", ["embedded", name], ["out"], name="/encoder/Add")


def test_a_renamed_table_is_found_by_the_add_that_uses_it(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx", [LOOK_UP, added("onnx::Add_7")], {**WORDS, "onnx::Add_7": TABLE}
    )
    (item,) = inspect(path)
    assert item["tensor"] == "onnx::Add_7"
    assert item["why"] == "its use: it is added to the hidden states in /encoder/Add"
    assert pp.load(path).values.tobytes() == TABLE.tobytes()


def counted(indices: list[onnx.NodeProto], last: str) -> list[onnx.NodeProto]:
    gather = helper.make_node("Gather", ["p", last], ["rows"], name="/positions/Gather")
    return [*indices, LOOK_UP, gather, helper.make_node("Add", ["embedded", "rows"], ["out"])]


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
        with pytest.raises(InvalidCheckpoint, match=r"does not .*which row|do not all take every"):
            pp.load(path)
        assert len(pp.load(path, tensor=name)) == rows
    (tmp_path / "config.json").write_text('{"model_type": "odd", "max_position_embeddings": 128}')
    bare(tmp_path / "m.onnx", 130, 2, name)
    table = pp.load(path)
    assert len(table) == 128
    assert [row.row for row in table.dropped] == [0, 1]


def test_a_round_number_of_rows_is_taken_and_what_is_not_known_is_said(tmp_path: Path) -> None:
    table = pp.load(bare(tmp_path / "m.onnx", 128, 0))
    assert len(table) == 128
    assert any("does not say which row the first position takes" in note for note in table.notes)
    path = save(
        tmp_path / "n.onnx", [LOOK_UP, added("onnx::Add_7")], {**WORDS, "onnx::Add_7": TABLE}
    )
    assert not any("first position" in note for note in pp.load(path).notes)


@pytest.mark.parametrize(
    ("folded", "found"), [(np.arange(12)[None], True), (np.zeros((1, 12), np.int64), False)]
)
def test_folded_indices_tell_positions_from_token_types(
    folded: NDArray[Any], found: bool, tmp_path: Path
) -> None:
    tensors = {**WORDS, "p": TABLE, "i": folded}
    path = save(tmp_path / "m.onnx", counted([], "i"), tensors)
    assert bool(inspect(path)) == found


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
    typed = helper.make_tensor("pos_embed", raw.data_type, values.shape, TABLE.reshape(-1))
    for name, tensor in (("raw", raw), ("typed", typed)):
        graph = helper.make_graph([], "graph", [], [], [tensor])
        onnx.save(helper.make_model(graph), tmp_path / f"{name}.onnx")
        stored = open_local(tmp_path / f"{name}.onnx").read("pos_embed")
        assert np.array_equal(stored.values.astype(np.float64), values.astype(np.float64))


def test_a_graph_in_which_the_search_never_ends_is_given_up() -> None:
    # Thousands of nodes back from each of thousands of additions.
    chain = [helper.make_node("Identity", [f"v{n}"], [f"v{n + 1}"]) for n in range(3000)]
    tables = [numpy_helper.from_array(TABLE, f"t{n}") for n in range(10)]
    nodes = [
        helper.make_node("Add", [f"v{2000 + n}", table.name], [f"{table.name}y{n}"])
        for table in tables
        for n in range(300)
    ]
    graph = Graph.of(helper.make_graph([*chain, *nodes], "graph", [], [], tables))
    tensors = {table.name: TensorInfo(table.name, TABLE.shape, "F32", "") for table in tables}
    assert find_positions(graph, tensors, lambda _: None) == {}
    assert next(graph.steps, None) is None


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


SAMPLES = Path(__file__).parent / "data" / "formats"


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


class Counting(LocalFiles):
    """Files that remember what was asked for."""

    asked: ClassVar[list[tuple[str, int, int]]] = []

    def read(self, file: str, start: int, stop: int) -> memoryview[int]:
        self.asked.append((file, start, stop))
        return super().read(file, start, stop)


def test_external_data_are_read_in_part(tmp_path: Path) -> None:
    path = external(tmp_path / "model")
    files = Counting(path)
    checkpoint = read_onnx(files, path.name)
    assert checkpoint.read("pos_embed").values.tobytes() == TABLE.tobytes()
    info = checkpoint.tensors["pos_embed"]
    few = ("model.onnx_data", info.start, info.start + 3 * 32)  # do its rows differ?
    assert files.asked[1:] == [few, ("model.onnx_data", info.start, info.stop)]
    assert np.array_equal(checkpoint.read_rows("pos_embed", [2, 3, 7]), TABLE[[2, 3, 7]])


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
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    for number, file in enumerate(sorted(path.parent.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(blobs / str(number))
    assert open_local(snapshot).read("pos_embed").values.tobytes() == TABLE.tobytes()


# --- hostile files ---


def test_cut_and_damaged_models_never_end_in_a_traceback(tmp_path: Path) -> None:
    path = Path(
        save(tmp_path / "m.onnx", [LOOK_UP, added("pos_embed")], {**WORDS, "pos_embed": TABLE})
    )
    content = path.read_bytes()
    rng = np.random.default_rng(3)
    for _ in range(150):
        damaged = bytearray(content[: rng.integers(1, len(content) + 1)])
        for place in rng.integers(0, len(damaged), 2):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            inspect(str(path))
            open_local(path).read("pos_embed")
        except (PosprobeError, KeyError):
            pass


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


@pytest.mark.parametrize("shape", [(-1, 8), (2**40, 2**40), (1,) * 40])
def test_impossible_shapes_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    tensor = TensorProto(name="pos_embed", data_type=1, raw_data=bytes(64))
    tensor.dims.extend(shape)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], [tensor])), path)
    with pytest.raises(PosprobeError, match="pos_embed"):
        open_local(path).read("pos_embed")


def test_a_browsers_folder_has_its_configuration_above(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_positions": 12}))
    path = save(tmp_path / "onnx" / "model.onnx", [], {"wpe.weight": TABLE})
    assert open_local(Path(path)).config["n_positions"] == 12
