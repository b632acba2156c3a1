"""ONNX graphs built by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((12, 8)).astype(np.float32)


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    tensors: dict[str, NDArray[Any]],
    inputs: tuple[str, ...] = ("input_ids",),
) -> str:
    graph_inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "n"])
        for name in inputs
    ]
    graph = helper.make_graph(
        nodes, "graph", graph_inputs,
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), path)
    return str(path)


WORDS = {"words": RNG.standard_normal((30, 8)).astype(np.float32)}
LOOK_UP = helper.make_node(
    "Gather", ["words", "input_ids"], ["embedded"], name="/words/Gather"
)


def add_node(name: str) -> onnx.NodeProto:
    return helper.make_node("Add", ["embedded", name], ["out"], name="/encoder/Add")
