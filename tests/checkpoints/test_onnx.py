"""ONNX: exports of real libraries, quantised tables, external data, and tables without a name."""

from __future__ import annotations

import json
import warnings
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
from posprobe.checkpoints.base import TensorInfo
from posprobe.checkpoints.onnx_graph import Graph, find_positions
from posprobe.errors import InvalidCheckpoint, PosprobeError
from posprobe.families import inspect

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
    assert table.layout == (
        pp.layouts.Grid(*rows.grid) if rows.grid else pp.layouts.Sequence(len(rows.positions))
    )
    assert table.source.format == "ONNX"
    if part == "encoder":  # constant folding renamed it
        assert (table.source.tensor or "").startswith("onnx::Add_")
        assert any("/model/encoder/Add" in note for note in table.notes)


# --- graphs made by hand ---


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


# --- hostile files ---


def test_a_file_without_a_graph_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(InvalidCheckpoint, match=r"empty\.onnx: not a valid ONNX.*no graph"):
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
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_positions": 12}))
    path = save(tmp_path / "onnx" / "model.onnx", [], {"wpe.weight": TABLE})
    assert open_local(Path(path)).config["n_positions"] == 12


@pytest.mark.parametrize("shape", [(-1, 8), (2**40, 2**40), (1,) * 40])
def test_impossible_shapes_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    tensor = TensorProto(name="pos_embed", data_type=1, raw_data=bytes(64), dims=shape)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], [tensor])), path)
    with pytest.raises(PosprobeError, match="pos_embed"):
        open_local(path).read("pos_embed")
