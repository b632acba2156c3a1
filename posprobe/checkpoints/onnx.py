"""ONNX models: the tensors of a graph by name, inline or in files beside it, and how they are used.

The onnx package parses the nodes, and each tensor without its numbers: these are read from where
they stand, so that a model of any size costs what its graph does. The package also turns them into
arrays, and codes into what they stand for.

An exporter folds constants and renames what it computed, so that names alone do not tell: the table
of Whisper's encoder is called ``onnx::Add_375``. How a tensor is used does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.checkpoint import (
    DAMAGED_ADVICE,
    DTYPES,
    FLOATS,
    NO_TABLE,
    Checkpoint,
    TensorInfo,
    check_unpacked,
    damaged,
)
from posprobe.checkpoints.files import Damaged, Files, places
from posprobe.errors import InvalidCheckpoint, InvalidTable, explain_errors
from posprobe.progress import import_stage
from posprobe.sources import Quantisation

if TYPE_CHECKING:
    import onnx

#: Numbers of a tensor of at most so many bytes are parsed with it: indices, scales and the like.
_MAX_KEPT_BYTES = 2**14
#: Bytes of a graph without the numbers of its tensors, what each message in it counts as, and
#: levels of graphs within it, at most.
_MAX_ONNX_NUMBERS, _MESSAGE, _DEPTH = 2**26, 2**6, 40
#: Which fields of a message are messages to look into, by what it is; ``onnx.proto``.
_NESTED_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
#: Fields of a message that are text; protobuf gives bytes where they are none.
_TEXTS: Mapping[str, Container[int]] = {"node": range(1, 5), "attribute": [1], "tensor": [8]}
#: Fields of a tensor that hold its numbers, and the one of them that holds them as they are.
_NUMBERS, _RAW = (4, 5, 7, 9, 10, 11), 9
#: The field of a model for the versions of its operators.
_OPSET = 8
#: What a tensor says whose numbers are in files beside the model, and of this file itself.
_EXTERNAL, _SAME_FILE = 1, "/"
#: What quantisers append to the names of tensors.
_QUANTISED = re.compile(r"_(?:quantized|quant|Q\d+(?:G\d+)?)$")
#: Types of tensors that may be codes; of some a byte holds two, the first in its lower half.
_HALVES = {"int4", "uint4"}
_CODES = {"I8", "U8", "I16", "uint16"} | _HALVES
_MOST_DIMENSIONS = 32

#: Nodes that take one value, of which each is looked at.
_MOST_USERS = 1000
#: Inputs of one node that are looked at.
_MOST_INPUTS = 64
#: What leaves the rows of a table as they are.
_PASSING = {"Cast", "DequantizeLinear", "Identity", "Slice", "Squeeze", "Unsqueeze"}
#: What takes its numbers from its first input, and places or sizes from the others.
_MOVING = _PASSING | {
    "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Pad", "Reshape", "Tile",
    "Transpose",
}  # fmt: skip
#: What takes rows of its first input by the numbers in its second.
_GATHERING = {"Gather", "GatherBlockQuantized"}
#: What counts.
_COUNTING = {"Range", "CumSum", "NonZero"}


def read_onnx(files: Files, name: str) -> Checkpoint:
    """Read the graph of a model; ``files`` gives its bytes and those of its external data.

    Raises
    ------
    InvalidCheckpoint
        If the model is damaged, or its data lie outside its folder.
    """
    with import_stage("onnx"):
        __import__("onnx")
    from google.protobuf.message import DecodeError

    data = memoryview(files.read(name, 0, files.size(name)))
    subject, advice = f"{name}: not a valid ONNX model", "Download it again."
    with explain_errors(InvalidCheckpoint, subject, advice, ValueError, DecodeError):
        graph = _parsed(data)
    tensors = {key: _Stored.of(key, tensor, name, files) for key, tensor in graph.tensors.items()}
    quantised = _quantised(graph, tensors)
    bare = {key: _QUANTISED.sub("", key) for key in quantised}
    stored = {key if bare.get(key, key) in tensors else bare[key]: tensors[key] for key in tensors}
    uses = find_positions(graph, tensors, quantised)

    def dequantise(
        info: TensorInfo, data: bytes | memoryview[int]
    ) -> tuple[NDArray[np.floating[Any]], float]:
        codes = stored[info.name]
        quantised_by = quantised[codes.info.name]
        return quantised_by.values(
            codes.array(data), tensors.get(quantised_by.scale), tensors.get(quantised_by.zero), info
        )

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            return files.exactly(info.file, info.start, info.stop)
        return stored[info.name].content()

    return Checkpoint(
        name,
        {
            key: _shown(key, stored_tensor.info, quantised.get(stored_tensor.info.name))
            for key, stored_tensor in stored.items()
        },
        fetch,
        dequantise=dequantise,
        uses={
            key: uses[stored_tensor.info.name]
            for key, stored_tensor in stored.items()
            if stored_tensor.info.name in uses
        },
    )


def _shown(name: str, info: TensorInfo, quantised_by: Quantised | None) -> TensorInfo:
    """Describe a tensor as what it stands for, under the name that it is shown by."""
    if quantised_by is None:
        return info
    shape = (*info.shape[:-1], 2 * info.shape[-1]) if quantised_by.packed else info.shape
    kind = Quantisation(quantised_by.name)
    return replace(info, name=name, dtype="F32", shape=shape, quantisation=kind)


def _parsed(data: memoryview[int]) -> Graph:
    """Parse the graph of a model.

    Raises
    ------
    ValueError, DecodeError
        If it is none, or its parts are too many or too deeply nested.
    """
    import onnx

    _weigh(data, "model", 0, len(data))
    graphs, last_stop = [], 0
    for number, kind, begin, end in places(data, 0, len(data)):
        if (number, kind) == (7, 2):
            graphs.append((begin, end))
        elif number == _OPSET:  # functions and metadata are not needed
            onnx.ModelProto.FromString(bytes(data[last_stop:end]))
        last_stop = end
    if not graphs:  # as an empty file, which is a sound message of no fields
        raise Damaged("it contains no graph")
    graph = onnx.GraphProto()
    for start, stop in graphs:  # of several, protobuf makes one
        last_stop = start
        for number, kind, begin, end in places(data, start, stop):
            if (number, kind) == (1, 2):
                graph.node.append(onnx.NodeProto.FromString(bytes(data[begin:end])))
            elif (number, kind) == (5, 2):
                graph.initializer.append(_tensor(data, begin, end))
            else:
                graph.MergeFromString(bytes(data[last_stop:end]))
            last_stop = end
    return Graph().add(graph)


def _weigh(data: memoryview[int], kind: str, start: int, stop: int, depth: int = 0) -> int:
    """Count the bytes of a message that are no numbers of tensors, and refuse too many of them."""
    if depth > _DEPTH:
        raise Damaged(f"it is nested deeper than {_DEPTH} levels")
    weight = _MESSAGE
    for number, wire, begin, end in places(data, start, stop):
        if wire == 2 and number in _NESTED_FIELDS[kind]:
            weight += _weigh(data, _NESTED_FIELDS[kind][number], begin, end, depth + 1)
        elif kind != "model" and (kind != "tensor" or number not in _NUMBERS):
            weight += end - begin
        if number in _TEXTS.get(kind, ()):
            bytes(data[begin:end]).decode()
        if weight > _MAX_ONNX_NUMBERS:
            raise Damaged(f"its graph without the tensors is longer than {_MAX_ONNX_NUMBERS} bytes")
    return weight


def _tensor(data: memoryview[int], start: int, stop: int) -> onnx.TensorProto:
    """Parse a tensor; if it has many numbers, as one that has them elsewhere: in this file."""
    import onnx

    parts, raw, last_stop = [], [], start
    for number, _, begin, end in places(data, start, stop):
        if number == _RAW and end - begin > _MAX_KEPT_BYTES:
            raw.append((begin, end))
        else:
            parts.append(bytes(data[last_stop:end]))
        last_stop = end
    tensor: onnx.TensorProto = onnx.TensorProto.FromString(b"".join(parts))
    if len(raw) == 1:
        begin, end = raw[0]
        location = {"location": _SAME_FILE, "offset": begin, "length": end - begin}
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.ClearField("external_data")
        for key, value in location.items():
            tensor.external_data.add(key=key, value=str(value))
    return tensor


@dataclass(frozen=True)
class _Stored:
    """A tensor and where its numbers are: within it where ``info`` has no place."""

    tensor: onnx.TensorProto
    info: TensorInfo
    files: Files

    @classmethod
    def of(cls, key: str, tensor: onnx.TensorProto, file: str, files: Files) -> _Stored:
        """Describe a tensor of a file.

        Raises
        ------
        InvalidCheckpoint
            If its shape is impossible, or it says that its numbers are where they cannot be.
        """
        shape = tuple(tensor.dims)
        if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
            raise damaged(f"{file}: tensor {key[:80]!r} has the impossible shape {list(shape)[:8]}")
        dtype = _dtype(tensor)
        info = TensorInfo(key, shape, DTYPES.get(dtype, dtype), file)
        if tensor.data_location != _EXTERNAL:
            return cls(tensor, info, files)
        external_entries = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        location = external_entries.get("location", "")
        path = PurePosixPath(location)
        outside = path.is_absolute() or ".." in path.parts or "\\" in location or ":" in location
        if location != _SAME_FILE and (outside or not location.isprintable() or not path.parts):
            raise InvalidCheckpoint(
                f"{file}: tensor {key[:80]!r} says that its data are in {location[:80]!r}, which "
                "is no file in the model's folder. It was not opened."
            )
        try:
            start, length = (
                int(external_entries.get("offset", "0")),
                int(external_entries.get("length", "0")),
            )
        except ValueError:
            start = length = -1
        size = _size(tensor)
        if not 0 <= start < 2**62 or (size and length not in (0, size)):
            raise damaged(
                f"{file}: tensor {key[:80]!r}, shape {list(shape)} {dtype}, says that its data are "
                f"{length} bytes from byte {start} of {location[:80]!r}"
            )
        place = file if location == _SAME_FILE else str(PurePosixPath(file).parent / path)
        return cls(tensor, replace(info, file=place, start=start, stop=start + size), files)

    def content(self) -> bytes:
        """Return the bytes of numbers that are within it."""
        if self.tensor.HasField("raw_data"):
            return bytes(self.tensor.raw_data)
        return np.ascontiguousarray(self.array()).tobytes()

    def array(self, data: bytes | memoryview[int] | None = None) -> NDArray[Any]:
        """Return its numbers, of its bytes where these were read.

        Raises
        ------
        InvalidCheckpoint
            If they do not fill the shape.
        """
        import onnx

        tensor, info = self.tensor, self.info
        subject = f"{info.where} {info.dtype}, has no numbers that fit it"
        with explain_errors(InvalidCheckpoint, subject, DAMAGED_ADVICE):
            if tensor.data_location == _EXTERNAL:  # the package would look where we run
                check_unpacked(f"{info.where},", _size(tensor), NO_TABLE)
                if data is None:
                    data = self.files.exactly(info.file, info.start, info.stop)
                tensor = onnx.TensorProto(
                    data_type=tensor.data_type, dims=tensor.dims, raw_data=bytes(data)
                )
            return onnx.numpy_helper.to_array(tensor)


def _dtype(tensor: onnx.TensorProto) -> str:
    from onnx import helper

    try:
        return str(helper.tensor_dtype_to_np_dtype(tensor.data_type).name)
    except (KeyError, TypeError):
        return f"ONNX's type {tensor.data_type}"


def _size(tensor: onnx.TensorProto) -> int:
    """Count the bytes of a tensor's numbers; of types that NumPy does not know, 0."""
    from onnx import helper

    dtype, count = _dtype(tensor), int(math.prod(tensor.dims))
    if dtype in _HALVES:
        return -(-count // 2)
    if dtype.startswith("ONNX"):
        return 0
    itemsize: int = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return count * itemsize


@dataclass(frozen=True)
class Graph:
    """The nodes and tensors of a graph and of the graphs within it.

    Parameters
    ----------
    tensors
        Initialisers and constants by name; where graphs within use a name again, the first counts.
    nodes
        In the order in which they are computed, those within a node before it.
    users
        The nodes that take a value, by its name.
    """

    tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    users: dict[str, list[onnx.NodeProto]] = field(default_factory=dict)

    def add(self, graph: onnx.GraphProto) -> Graph:
        """Add what is in a graph."""
        for tensor in graph.initializer:
            self.tensors.setdefault(tensor.name, tensor)
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value" and node.output:
                    self.tensors.setdefault(node.output[0], attribute.t)
                if attribute.HasField("g"):
                    self.add(attribute.g)
                for part in attribute.graphs:
                    self.add(part)
            self.nodes.append(node)
            for name in node.input:
                self.users.setdefault(name, []).append(node)
        self.tensors.pop("", None)
        return self

    def taking(self, value: str) -> list[onnx.NodeProto]:
        """Return the first nodes whose first input is a value."""
        nodes = self.users.get(value, ())[:_MOST_USERS]
        return [node for node in nodes if node.input[0] == value]


@dataclass(frozen=True)
class Quantised:
    """How a tensor of integers becomes numbers: ``(code - zero point) * scale``.

    Parameters
    ----------
    scale, zero
        Names of those tensors; where ``zero`` is empty it is ``middle``.
    axis, block
        The axis along which there are several scales, and how many entries share one; 0 for one
        scale each.
    dtype
        Of the codes, as the format calls it.
    packed
        Whether a byte of the tensor holds two codes, the first in its lower half.
    middle
        What the zero point is where none is stored.
    """

    scale: str
    zero: str
    axis: int
    block: int
    dtype: str
    packed: bool = False
    middle: int = 0

    @property
    def name(self) -> str:
        """What to call the quantisation."""
        blocks = f" in blocks of {self.block}" if self.block > 0 else ""
        return f"{self.dtype}{blocks} with scale and zero point"

    def values(
        self, codes: NDArray[Any], scale: _Stored | None, zero: _Stored | None, info: TensorInfo
    ) -> tuple[NDArray[np.floating[Any]], float]:
        """Dequantise as the operator ``DequantizeLinear`` does; return the median scale as well.

        Raises
        ------
        InvalidTable
            If the scales are none of the tensor's, or computed when the model runs, or if it is too
            large for a table.
        """
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        if scale is None or (zero is None and self.zero):
            raise InvalidTable(
                f"{info.where}: its scale or zero point is computed when the model runs. Use the "
                "model before it was quantised."
            )
        check_unpacked(f"{info.where},", 8 * math.prod(info.shape), NO_TABLE)
        subject = f"{info.where}: its scale and zero point do not fit it along axis {self.axis}"
        with (
            explain_errors(InvalidTable, subject, "Use the model before it was quantised."),
            np.errstate(over="ignore"),
        ):
            scales = scale.array()
            if self.packed:
                codes = _halves(codes)
            zeros = np.array(self.middle, codes.dtype) if zero is None else zero.array()
            if self.packed and zeros.ndim:
                zeros = _halves(zeros)[..., : scales.shape[-1]]
            for parameter in (scales, zeros):
                self._refuse_misfit(parameter.shape, info.shape)
            block = min(self.block, info.shape[self.axis])
            node = helper.make_node(
                "DequantizeLinear", ["x", "scale", "zero"], ["y"], axis=self.axis, block_size=block
            )
            feed = {"x": codes, "scale": scales, "zero": zeros}
            (values,) = ReferenceEvaluator(node).run(None, feed)
            step = float(np.median(np.abs(scales.astype(np.float64))))
            return np.asarray(values).astype(np.float32), step

    def _refuse_misfit(self, parameter_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
        """Refuse scales of another shape: of too many the package takes the first."""
        if self.block < 0:
            raise ValueError("no block has so few entries")
        blocks = [*shape]
        blocks[self.axis] = -(-blocks[self.axis] // max(self.block, 1))
        expected = tuple(blocks) if self.block else (shape[self.axis],)
        if math.prod(parameter_shape) > 1 and parameter_shape != expected:
            raise ValueError(f"shape {list(parameter_shape)} is not {list(expected)}")


def _halves(pairs: NDArray[Any]) -> NDArray[Any]:
    """Take apart bytes ``[..., m]`` that hold two numbers each; the result is ``[..., 2 m]``."""
    import ml_dtypes

    numbers = np.stack([pairs & 15, pairs >> 4], -1).astype(ml_dtypes.uint4)
    return numbers.reshape(*pairs.shape[:-1], 2 * pairs.shape[-1])


def _quantised(graph: Graph, tensors: Mapping[str, _Stored]) -> dict[str, Quantised]:
    """Find the tensors of integers that are dequantised, themselves or as rows are gathered."""
    quantised = {}
    for name, stored_tensor in tensors.items():
        if stored_tensor.info.dtype in _CODES and len(stored_tensor.info.shape) > 1:
            ways = (
                _way(graph, tensors, node, _dtype(stored_tensor.tensor))
                for node in graph.taking(name)
            )
            if (quantised_by := next(filter(None, ways), None)) is not None:
                quantised[name] = quantised_by
    return quantised


def _way(
    graph: Graph, tensors: Mapping[str, _Stored], node: onnx.NodeProto, dtype: str
) -> Quantised | None:
    """Read how a node dequantises what it takes first, or those behind it that gather its rows.

    What is gathered may change the order of its axes first, as T5's bias of heads does, where all
    numbers have one scale.
    """
    if node.op_type == "GatherBlockQuantized" and len(node.input) > 2:
        return _gathered_blocks(node, dtype)
    if node.op_type != "Gather" or not node.output:
        return _linear(node, dtype)
    for taker in graph.taking(node.output[0]):
        if (quantised_by := _linear(taker, dtype, gathered=True)) is not None:
            return quantised_by
        if taker.op_type == "Transpose" and taker.output:
            for next_node in graph.taking(taker.output[0]):
                quantised_by = _linear(next_node, dtype, gathered=True)
                scale = None if quantised_by is None else tensors.get(quantised_by.scale)
                if scale is not None and math.prod(scale.info.shape) == 1:
                    return quantised_by
    return None


def _linear(node: onnx.NodeProto, dtype: str, *, gathered: bool = False) -> Quantised | None:
    if node.op_type != "DequantizeLinear" or len(node.input) < 2:
        return None
    numbers = {a.name: a.i for a in node.attribute}
    axis = numbers.get("axis", 1)
    if gathered and axis > 0:
        axis = -1  # indices of several axes stand before the width
    zero = node.input[2] if len(node.input) > 2 else ""
    return Quantised(node.input[1], zero, axis, numbers.get("block_size", 0), dtype)


def _gathered_blocks(node: onnx.NodeProto, dtype: str) -> Quantised:
    """Read how onnxruntime's operator ``com.microsoft.GatherBlockQuantized`` dequantises.

    Bytes hold codes of 4 or 8 bits whose zero point is the middle where none is given; types of 4
    bits have 0.
    """
    numbers = {a.name: a.i for a in node.attribute}
    bits = numbers.get("bits", 4) if dtype == "uint8" else 0
    return Quantised(
        node.input[2] if bits in (0, 4, 8) else "",  # of other widths no scale is looked for
        node.input[3] if len(node.input) > 3 else "",
        numbers.get("quantize_axis", 1),
        numbers.get("block_size", 128),
        f"uint{bits}" if bits else dtype,
        packed=bits == 4,
        middle=1 << bits - 1 if bits in (4, 8) else 0,
    )


def find_positions(
    graph: Graph, tensors: Mapping[str, _Stored], quantised: Container[str]
) -> dict[str, str]:
    """Find the tables that are used as positions are, and say how.

    A table of positions is added to the hidden states as it is, or its rows are gathered by numbers
    that were counted rather than read: those of tokens lead back to an input of the model. Where it
    is added, its values must differ from row to row: the embedding of the one type that all tokens
    have, which an exporter folds as well, does not.

    Parameters
    ----------
    graph
        The graph.
    tensors
        What is stored, by the same names.
    quantised
        The names of those tensors that are dequantised.

    Returns
    -------
    dict
        Name of the tensor to a few words about its use, with the node's name.
    """
    flow = _Flow(graph)
    for name, stored_tensor in tensors.items():
        shape = stored_tensor.info.shape
        table = len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)
        is_readable = stored_tensor.info.dtype in FLOATS or name in quantised
        if table and is_readable and min(shape[-2:]) > 1:
            flow.rows[name] = name
    for node in graph.nodes:
        flow.follow(node)
    return {
        name: reason
        for name, reason in flow.uses.items()
        if not (reason.startswith("it is added") and _equal_rows(tensors[name]))
    }


def _equal_rows(stored: _Stored) -> bool:
    if _size(stored.tensor) > _MAX_ONNX_NUMBERS:
        return False
    values = stored.array()
    return bool((values == values[..., :1, :]).all())


@dataclass
class _Flow:
    """What is known of a graph's values, filled in the order in which they are computed.

    Parameters
    ----------
    graph
        The graph.
    rows
        The table whose rows a value has.
    states
        Whether a value depends on an input of the model, other than by its shape alone.
    origins
        Of indices: ``counted``; ``read`` from an input; of stored ones ``differing``, or empty.
    uses
        How a table is used first, where that is a use of positions.
    """

    graph: Graph
    rows: dict[str, str] = field(default_factory=dict)
    states: dict[str, bool] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)

    def follow(self, node: onnx.NodeProto) -> None:
        """Learn from a node."""
        inputs = list(node.input[:_MOST_INPUTS])
        places = {name: place for place, name in enumerate(inputs) if name in self.rows}
        for name, place in places.items():
            if reason := self._use(node, inputs, place):
                label = node.name or f"{node.op_type} that gives {next(iter(node.output), '')}"
                self.uses.setdefault(self.rows[name], f"{reason} {label}")
        data_inputs = (
            [name for name in inputs if name] if node.op_type not in ("Shape", "Size") else []
        )
        state = any(map(self._is_state, data_inputs))
        origin = self._origin_of(node.op_type, data_inputs)
        for name in node.output:
            if name not in self.graph.tensors:  # as a constant is
                self.states[name], self.origins[name] = state, origin
            if node.op_type in _PASSING and inputs and inputs[0] in self.rows:
                self.rows[name] = self.rows[inputs[0]]

    def _use(self, node: onnx.NodeProto, inputs: list[str], place: int) -> str:
        if node.op_type in _GATHERING and place == 0 and len(inputs) > 1 and _axis(node) == 0:
            if self._origin(inputs[1]) in ("counted", "differing"):
                return "its rows are gathered by counted positions in"
        elif node.op_type == "EmbedLayerNormalization" and place == 3:
            return "it is the position embedding of"
        elif node.op_type == "Add" and len(inputs) == 2 and self._is_state(inputs[1 - place]):
            return "it is added to the hidden states in"
        return ""

    def _is_state(self, name: str) -> bool:
        return self.states.get(name, name not in self.graph.tensors)

    def _origin_of(self, kind: str, inputs: list[str]) -> str:
        if kind in _COUNTING:
            return "counted"
        origins = {self._origin(name) for name in inputs[: 1 if kind in _MOVING else None]}
        return next(
            (origin for origin in ("counted", "read", "differing") if origin in origins), ""
        )

    def _origin(self, name: str) -> str:
        if name not in self.origins:
            if name in self.graph.tensors:
                # Those of positions differ, those of token types do not.
                origin = "differing" if _differ(self.graph.tensors[name]) else ""
            else:
                origin = "counted" if "position" in name else "read"
            self.origins[name] = origin
        return self.origins[name]


def _axis(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name in ("axis", "gather_axis")), 0)


def _differ(tensor: onnx.TensorProto) -> bool:
    from onnx import numpy_helper

    if len(tensor.dims) == 0 or math.prod(tensor.dims) < 2:
        return False
    if tensor.data_location == _EXTERNAL:  # they are many
        return True
    try:
        values = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, LookupError):  # of another type, or not as many
        return False
    return bool(values.dtype.kind in "iu" and values.min() != values.max())
