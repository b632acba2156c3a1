"""ONNX models: the tensors of a graph by name, inline or in files beside it, and how they are used.

The onnx package parses a copy of the model from which the tensors' numbers were left out, so that a
model of any size costs what its graph does. The numbers are then read from where they stand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.base import (
    AGAIN,
    FLOATS,
    MAX_UNPACKED,
    Checkpoint,
    TensorInfo,
    damaged,
    widen_bfloat16,
)
from posprobe.checkpoints.files import Files
from posprobe.checkpoints.onnx_graph import (
    Graph,
    Quantised,
    find_positions,
    find_quantised,
    two_in_a_byte,
)
from posprobe.checkpoints.protobuf import Damaged, places
from posprobe.errors import InvalidCheckpoint, InvalidTable, explained
from posprobe.progress import importing
from posprobe.sources import Quantisation

if TYPE_CHECKING:
    import onnx

#: Numbers of a tensor of at most so many bytes stay in the copy: indices, scales and the like.
_KEPT = 2**14
#: Bytes of a graph without its tensors, messages in it, and levels of graphs within it, at most.
_MOST, _MESSAGES, _DEPTH = 2**26, 2**20, 40
#: Which fields of a message are messages to look into, by what it is; ``onnx.proto``.
_WITHIN: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
}
#: Fields of a tensor that hold its numbers, and the one of them that holds them as they are.
_NUMBERS, _RAW = (4, 5, 7, 9, 10, 11), 9
#: The field of a tensor for documentation; in the copy it says which tensor this stands for.
_NOTE = 12
#: The field of a model for the versions of its operators.
_OPSET = 8
_EXTERNAL = 1
_DTYPES = {
    1: "F32", 11: "F64", 10: "F16", 16: "BF16", 7: "I64", 6: "I32", 5: "I16", 3: "I8", 2: "U8",
    4: "U16", 12: "U32", 13: "U64", 9: "BOOL", 21: "U4", 22: "I4",
}  # fmt: skip
_NUMPY = {**FLOATS, "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "U16": "<u2"}
#: Types of which a byte holds two numbers, the first in its lower half.
_HALVES = ("U4", "I4")
#: What quantisers append to the names of tensors.
_QUANTISED = re.compile(r"_(?:quantized|quant|Q\d+(?:G\d+)?)$")
_MOST_DIMENSIONS = 32


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
    copy = _Copy(data)
    what, again = f"{name}: not a valid ONNX model", "Download it again."
    with explained(InvalidCheckpoint, what, again, Damaged, DecodeError):
        model = onnx.ModelProto.FromString(copy.of("model", 0, len(data)))
        if not model.HasField("graph"):  # as an empty file, which is a sound message of no fields
            raise Damaged("it contains no graph")
        graph = Graph.of(model.graph)
    found = {key: _info(key, tensor, copy, name) for key, tensor in graph.tensors.items()}

    def content(info: TensorInfo) -> bytes | memoryview[int]:
        if info.file == name and not info.stop:
            return _typed(copy.tensor(graph.tensors[info.name]), info)
        return files.exactly(info.file, info.start, info.stop or info.start + _size(info))

    def values(key: str) -> NDArray[Any] | None:
        known = key in found and (found[key].dtype in _NUMPY or found[key].dtype in _HALVES)
        return _array(found[key], content(found[key])) if known else None

    quantised = find_quantised(graph, found)
    bare = {key: _QUANTISED.sub("", key) for key in quantised}
    stored = {key if bare.get(key, key) in found else bare[key]: found[key] for key in found}

    def dequantise(
        info: TensorInfo, data: bytes | memoryview[int]
    ) -> tuple[NDArray[np.floating[Any]], float]:
        codes = stored[info.name]
        how = quantised[codes.name]
        zero = found.get(how.zero or "")
        if zero is not None and zero.dtype != codes.dtype:
            raise InvalidTable(
                f"{info.where}, is stored as {codes.dtype} and its zero point as {zero.dtype}: the "
                "operator wants one type. Use the model before it was quantised."
            )
        return how.values(_array(codes, data), values, info)

    def rows_of(info: TensorInfo) -> NDArray[Any] | None:
        width, stop = _size(info) // info.shape[-2], min(info.shape[-2], 3)
        if not width or not info.stop or info.dtype in _HALVES:
            return None
        part = replace(info, shape=(stop, info.shape[-1]), stop=info.start + stop * width)
        return _array(part, content(part))

    numbers = {k: info for k, info in found.items() if info.dtype in FLOATS or k in quantised}
    uses = find_positions(graph, numbers, rows_of)
    return Checkpoint(
        name,
        {key: _shown(key, info, quantised.get(info.name)) for key, info in stored.items()},
        lambda info: content(stored.get(info.name, info)),  # some rows have a name of their own
        dequantise=dequantise,
        uses={key: uses[info.name] for key, info in stored.items() if info.name in uses},
    )


def _shown(name: str, info: TensorInfo, how: Quantised | None) -> TensorInfo:
    """Describe a tensor as what it stands for, under the name that it is shown by."""
    if how is None:
        return info
    shape, kind = how.shape_of(info.shape), Quantisation(how.name)
    return replace(info, name=name, dtype="F32", shape=shape, quantisation=kind)


@dataclass
class _Copy:
    """A model's bytes without the numbers of its tensors, and where those are.

    Parameters
    ----------
    data
        The model.
    """

    data: memoryview[int]
    #: First and last byte of each tensor, and of its numbers where they stand as they are.
    tensors: list[tuple[int, int]] = field(default_factory=list)
    raw: list[tuple[int, int] | None] = field(default_factory=list)
    size: int = 0
    messages: int = 0

    def tensor(self, copied: onnx.TensorProto) -> memoryview[int]:
        """Return the bytes of the whole tensor that a copied one stands for."""
        start, stop = self.tensors[int(copied.doc_string)]
        return self.data[start:stop]

    def of(self, kind: str, start: int, stop: int, depth: int = 0) -> bytes:
        """Copy a message.

        Raises
        ------
        Damaged
            If it is not a message, or too large or too deeply nested.
        """
        self.messages += 1
        if depth > _DEPTH or self.messages > _MESSAGES:
            raise Damaged(f"it is nested deeper than {_DEPTH} levels, or has too many parts")
        if kind == "tensor":
            return self._tensor(start, stop)
        parts = []
        within = _WITHIN[kind]
        last = start
        for number, wire, begin, end in places(self.data, start, stop):
            if wire == 2 and number in within:
                content = self.of(within[number], begin, end, depth + 1)
                parts += [_tag(number, wire), _number(len(content)), content]
            elif kind != "model" or number == _OPSET:  # functions and metadata are not needed
                parts.append(self._kept(last, end))
            last = end
        return b"".join(parts)

    def _tensor(self, start: int, stop: int) -> bytes:
        note = str(len(self.tensors)).encode()
        self.tensors.append((start, stop))
        parts, raw = [], []
        last = start
        for number, _, begin, end in places(self.data, start, stop):
            raw += [(begin, end)] if number == _RAW else []
            if number != _NOTE and (number not in _NUMBERS or end - begin <= _KEPT):
                parts.append(self._kept(last, end))
            last = end
        self.raw.append(raw[0] if len(raw) == 1 else None)
        return b"".join([*parts, _tag(_NOTE, 2), _number(len(note)), note])

    def _kept(self, start: int, stop: int) -> bytes:
        self.size += stop - start
        if self.size > _MOST:
            raise Damaged(f"its graph without the tensors is longer than {_MOST} bytes")
        return bytes(self.data[start:stop])


def _tag(number: int, wire: int) -> bytes:
    return _number(number << 3 | wire)


def _number(value: int) -> bytes:
    """Write a number of seven bits a byte."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def _info(key: str, tensor: onnx.TensorProto, copy: _Copy, file: str) -> TensorInfo:
    shape = tuple(tensor.dims)
    if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise damaged(f"{file}: tensor {key[:80]!r} has the impossible shape {list(shape)[:8]}")
    if tensor.HasField("segment"):
        raise InvalidCheckpoint(
            f"{file}: tensor {key[:80]!r} is a piece of a larger one, which neither this nor the "
            "onnx package reads. Export the model again."
        )
    dtype = _DTYPES.get(tensor.data_type, f"ONNX's type {tensor.data_type}")
    info = TensorInfo(key, shape, dtype, file)
    if tensor.data_location != _EXTERNAL:
        start, stop = copy.raw[int(tensor.doc_string)] or (0, 0)
        return replace(info, start=start, stop=stop)
    stated = {entry.key: entry.value for entry in tensor.external_data}
    location = stated.get("location", "")
    path = PurePosixPath(location)
    outside = path.is_absolute() or ".." in path.parts or "\\" in location or ":" in location
    if outside or not location.isprintable() or not path.parts:
        raise InvalidCheckpoint(
            f"{file}: tensor {key[:80]!r} says that its data are in {location[:80]!r}, which is no "
            "file in the model's folder. It was not opened."
        )
    try:
        start, length = int(stated.get("offset", "0")), int(stated.get("length", "0"))
    except ValueError:
        start = length = -1
    expected = _size(info)
    if not 0 <= start < 2**62 or (expected and length not in (0, expected)):
        raise damaged(
            f"{file}: tensor {key[:80]!r}, shape {list(shape)} {dtype}, says that its data are "
            f"{length} bytes from byte {start} of {location[:80]!r}"
        )
    beside = str(PurePosixPath(file).parent / path)
    return replace(info, file=beside, start=start, stop=start + expected)


def _size(info: TensorInfo) -> int:
    """Count the bytes of a tensor; of types without a name here, 0."""
    if info.dtype in _HALVES:
        return -(-math.prod(info.shape) // 2)
    return math.prod(info.shape) * np.dtype(_NUMPY.get(info.dtype, "V0")).itemsize


def _typed(tensor: memoryview[int], info: TensorInfo) -> bytes:
    """Read numbers that are stored one by one and not as bytes.

    Raises
    ------
    InvalidCheckpoint
        If they do not fill the shape.
    """
    import onnx
    from google.protobuf.message import DecodeError

    what = f"{info.where} {info.dtype}, has no numbers that fit it"
    with explained(InvalidCheckpoint, what, AGAIN, ValueError, TypeError, DecodeError):
        array = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(bytes(tensor)))
        if info.dtype in _HALVES:
            codes = np.append(array.reshape(-1).astype(np.int8).view(np.uint8) & 15, np.uint8(0))
            pairs = codes[: len(codes) // 2 * 2]
            return bytes((pairs[::2] | pairs[1::2] << 4).tobytes())
        return np.ascontiguousarray(array).tobytes()


def _array(info: TensorInfo, data: bytes | memoryview[int]) -> NDArray[Any]:
    if len(data) != _size(info) or len(data) > MAX_UNPACKED:
        raise damaged(f"{info.where} {info.dtype}, has {len(data)} bytes")
    if info.dtype in _HALVES:
        codes = two_in_a_byte(np.frombuffer(data, np.uint8))[: math.prod(info.shape)]
        signed = codes.astype(np.int8) - np.where(codes > 7, np.int8(16), np.int8(0))
        return (signed if info.dtype == "I4" else codes).reshape(info.shape)
    array = np.frombuffer(data, _NUMPY[info.dtype]).reshape(info.shape)
    return widen_bfloat16(array) if info.dtype == "BF16" else array
