"""ONNX models: the tensors of a graph by name, inline or in files beside it, and how they are used.

The onnx package parses a copy of the model from which the tensors' numbers were left out, so that a
model of any size costs what its graph does. The numbers are then read from where they stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.base import FLOATS, MAX_UNPACKED, Checkpoint, TensorInfo, widen_bfloat16
from posprobe.checkpoints.files import Files, LocalFiles
from posprobe.checkpoints.local import parse_json, read_small
from posprobe.checkpoints.onnx_graph import Graph, Quantised, find_positions, find_quantised
from posprobe.checkpoints.wire import Damaged, places, varint
from posprobe.errors import InvalidCheckpoint
from posprobe.progress import importing
from posprobe.quantisation import Quantisation

if TYPE_CHECKING:
    import onnx

#: Numbers of a tensor of at most so many bytes stay in the copy: indices, scales and the like.
_KEPT = 2**16
#: Bytes of a graph without its tensors, and levels of graphs within it, at most.
_MOST, _DEPTH = 2**28, 16
#: Which fields of a message are messages to look into, by what it is; ``onnx.proto``.
_WITHIN: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
}
#: Fields of a tensor that hold its numbers, and the one of them that holds them as they are.
_NUMBERS, _RAW = (4, 5, 7, 9, 10, 11), 9
#: Where the copy says which tensor it stands for: the field for documentation.
_NOTE = 12
_DTYPES = {
    "FLOAT": "F32", "DOUBLE": "F64", "FLOAT16": "F16", "BFLOAT16": "BF16", "INT64": "I64",
    "INT32": "I32", "INT16": "I16", "INT8": "I8", "UINT8": "U8", "UINT16": "U16", "UINT32": "U32",
    "UINT64": "U64", "BOOL": "BOOL",
}  # fmt: skip
_INTEGERS = {"I8": "<i1", "U8": "<u1", "I16": "<i2", "U16": "<u2", "I32": "<i4"}
_MOST_DIMENSIONS = 32


def open_onnx(path: Path) -> Checkpoint:
    """Open an ONNX model, memory-mapped; files with external data are opened when they are read.

    Raises
    ------
    InvalidCheckpoint
        If the model is damaged, or its data lie outside its folder.
    """
    opened = read_onnx(LocalFiles(path.parent), path.name)
    above = path.parent.parent / "config.json"
    if path.parent.name == "onnx" and above.is_file():  # models for browsers
        return replace(opened, config=parse_json(read_small(above), str(above)))
    return opened


def read_onnx(files: Files, name: str) -> Checkpoint:
    """Read the graph of a model; ``files`` gives its bytes and those of its external data.

    Raises
    ------
    InvalidCheckpoint
        If the model is damaged, or its data lie outside its folder.
    """
    with importing("onnx"):
        import onnx
    from google.protobuf.message import DecodeError

    data = memoryview(files.read(name, 0, files.size(name)))
    skeleton = _Skeleton(data)
    try:
        model = onnx.ModelProto.FromString(skeleton.of("model", 0, len(data)))
    except (Damaged, DecodeError) as error:
        raise InvalidCheckpoint(
            f"{name}: it is no sound ONNX model ({error}). Download it again."
        ) from error
    graph = Graph.of(model.graph)
    tensors: dict[str, TensorInfo] = {}
    stored: dict[str, tuple[int, int]] = {}
    for key, tensor in graph.tensors.items():
        whole = skeleton.tensors[int(tensor.doc_string)]
        info = _external(tensor, key, name) if tensor.data_location == 1 else _inline(
            tensor, key, name, skeleton.raw.get(int(tensor.doc_string))
        )  # fmt: skip
        stored[key] = whole
        tensors[key] = info

    def content(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop or 0 in info.shape:
            return files.read(info.file, info.start, info.stop)
        if info.file != name:
            size = files.size(info.file)
            return files.read(info.file, info.start, size)
        return _typed(data, *stored[info.name], info)

    def small(key: str) -> NDArray[Any] | None:
        """Return the values of a scale or the like."""
        info = tensors.get(key)
        if info is None or math.prod(info.shape) * 8 > MAX_UNPACKED:
            return None
        return _array(info, content(info))

    quantised = find_quantised(graph, tensors)
    renamed: dict[str, tuple[str, Quantised]] = {}
    for key, how in quantised.items():
        bare = key.removesuffix("_quantized")
        shown = bare if bare not in tensors else key
        renamed[shown] = key, how
        kind = Quantisation(f"{tensors[key].dtype} with scale and zero point")
        tensors[shown] = replace(tensors.pop(key), name=shown, dtype="F32", quantisation=kind)

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.name in renamed:
            original = renamed[info.name][0]
            return content(replace(info, name=original, quantisation=None, dtype=_width(info)))
        return content(info)

    def dequantise(
        info: TensorInfo, found: bytes | memoryview[int]
    ) -> tuple[NDArray[np.floating[Any]], float]:
        codes = _array(replace(info, dtype=_width(info)), found)
        return renamed[info.name][1].values(codes, small, info)

    positions = {
        next((new for new, (old, _) in renamed.items() if old == key), key): why
        for key, why in find_positions(graph).items()
    }
    return Checkpoint(name, tensors, fetch, dequantise=dequantise, positions=positions)
