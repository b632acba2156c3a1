"""ONNX models: the tensors of a graph by name, inline or in files beside it, and their use.

The onnx package parses the nodes, and each tensor without its numbers. The numbers are read from
their byte ranges, so that opening a large model costs no more than its graph. The package also
turns stored numbers into arrays, and codes into numbers.

An exporter folds constants and renames the results, so that names alone do not identify a table:
that of Whisper's encoder is called ``onnx::Add_375``. The use of a tensor does.
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
    DTYPE_NAMES,
    FLOAT_DTYPES,
    TOO_LARGE_ADVICE,
    Checkpoint,
    TensorInfo,
    check_unpacked,
    damaged_error,
)
from posprobe.checkpoints.files import Files, MalformedMessage, iter_fields
from posprobe.errors import InvalidCheckpoint, InvalidTable, explain_errors
from posprobe.progress import import_stage
from posprobe.sources import Quantisation

if TYPE_CHECKING:
    import onnx

#: Largest tensor in bytes whose numbers are parsed with it: indices, scales and the like.
_MAX_INLINE_BYTES = 2**14
#: Largest graph in bytes, without the numbers of its tensors.
_MAX_GRAPH_BYTES = 2**26
#: Bytes that every message counts in addition to its fields.
_MESSAGE_BYTES = 2**6
#: Largest number of nested messages.
_MAX_GRAPH_DEPTH = 40
#: Fields that hold messages to be checked, by type of message and number of field; ``onnx.proto``.
_NESTED_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
#: Fields that hold text; protobuf returns bytes if these are not valid text.
_TEXT_FIELDS: Mapping[str, Container[int]] = {
    "node": range(1, 5),
    "attribute": [1],
    "tensor": [8],
}
#: Fields of a tensor that hold its numbers.
_NUMBER_FIELDS = (4, 5, 7, 9, 10, 11)
#: The one of them that holds raw bytes.
_RAW_FIELD = 9
#: Field of a model for the versions of its operators.
_OPSET_FIELD = 8
#: ``data_location`` of a tensor whose numbers are in another file.
_EXTERNAL_DATA = 1
#: Location that stands for the model's own file; no file can have this name.
_SAME_FILE = "/"
#: Suffixes that quantisers append to the names of tensors.
_QUANTISED_SUFFIX = re.compile(r"_(?:quantized|quant|Q\d+(?:G\d+)?)$")
#: Types with two codes in a byte, the first in its lower half.
_FOUR_BIT_TYPES = {"int4", "uint4"}
#: Types of tensors that may be codes.
_CODE_TYPES = {"I8", "U8", "I16", "uint16"} | _FOUR_BIT_TYPES
#: Largest number of dimensions of a tensor.
_MAX_ONNX_DIMENSIONS = 32

#: Largest number of nodes with one input that are examined.
_MAX_USERS = 1000
#: Largest number of inputs of one node that are examined.
_MAX_NODE_INPUTS = 64
#: Operators that keep the rows of a table.
_ROW_KEEPING = {"Cast", "DequantizeLinear", "Identity", "Slice", "Squeeze", "Unsqueeze"}
#: Operators that take numbers from their first input, and indices or sizes from the others.
_REARRANGING = _ROW_KEEPING | {
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Pad",
    "Reshape",
    "Tile",
    "Transpose",
}
#: Operators that take rows of their first input by the indices in their second.
_GATHERING = {"Gather", "GatherBlockQuantized"}
#: Operators whose results are counts.
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

    content = memoryview(files.read(name, 0, files.size(name)))
    subject, advice = f"{name}: not a valid ONNX model", "Download it again."
    with explain_errors(InvalidCheckpoint, subject, advice, ValueError, DecodeError):
        graph = _parse_graph(content)
    tensors = {
        key: _OnnxTensor.of(key, tensor, name, files)
        for key, tensor in graph.tensors.items()
    }
    dequantisers = _find_dequantisers(graph, tensors)
    bare_names = {key: _QUANTISED_SUFFIX.sub("", key) for key in dequantisers}
    by_name = {
        key if bare_names.get(key, key) in tensors else bare_names[key]: tensors[key]
        for key in tensors
    }
    uses = find_positions(graph, tensors, dequantisers)

    def dequantise(
        info: TensorInfo, content: bytes | memoryview[int]
    ) -> tuple[NDArray[np.floating[Any]], float]:
        code_tensor = by_name[info.name]
        dequantiser = dequantisers[code_tensor.info.name]
        return dequantiser.dequantise(
            code_tensor.array(content),
            tensors.get(dequantiser.scale),
            tensors.get(dequantiser.zero),
            info,
        )

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            return files.exactly(info.file, info.start, info.stop)
        return by_name[info.name].content()

    return Checkpoint(
        name,
        {
            key: _describe_tensor(key, tensor.info, dequantisers.get(tensor.info.name))
            for key, tensor in by_name.items()
        },
        fetch,
        dequantise=dequantise,
        uses={
            key: uses[tensor.info.name]
            for key, tensor in by_name.items()
            if tensor.info.name in uses
        },
    )


def _describe_tensor(
    name: str, info: TensorInfo, dequantiser: Dequantiser | None
) -> TensorInfo:
    """Describe a tensor under its listed name, with the dtype and shape after dequantisation."""
    if dequantiser is None:
        return info
    shape = (
        (*info.shape[:-1], 2 * info.shape[-1]) if dequantiser.is_packed else info.shape
    )
    quantisation = Quantisation(dequantiser.name)
    return replace(info, name=name, dtype="F32", shape=shape, quantisation=quantisation)


def _parse_graph(content: memoryview[int]) -> Graph:
    """Parse the graph of a model.

    Raises
    ------
    ValueError, DecodeError
        If the bytes are not a graph, or have too many or too deeply nested messages.
    """
    import onnx

    _check_graph_size(content, "model", 0, len(content))
    graphs, last_stop = [], 0
    for field_number, wire_type, first_byte, end in iter_fields(content, 0, len(content)):
        if (field_number, wire_type) == (7, 2):
            graphs.append((first_byte, end))
        elif field_number == _OPSET_FIELD:  # functions and metadata are not needed
            onnx.ModelProto.FromString(bytes(content[last_stop:end]))
        last_stop = end
    if not graphs:  # an empty file is a valid message without fields
        raise MalformedMessage("it contains no graph")
    graph = onnx.GraphProto()
    for start, stop in graphs:  # protobuf merges several into one
        last_stop = start
        for field_number, wire_type, first_byte, end in iter_fields(content, start, stop):
            if (field_number, wire_type) == (1, 2):
                graph.node.append(
                    onnx.NodeProto.FromString(bytes(content[first_byte:end]))
                )
            elif (field_number, wire_type) == (5, 2):
                graph.initializer.append(_parse_tensor(content, first_byte, end))
            else:
                graph.MergeFromString(bytes(content[last_stop:end]))
            last_stop = end
    return Graph().add(graph)


def _check_graph_size(
    content: memoryview[int], message_type: str, start: int, stop: int, depth: int = 0
) -> int:
    """Count the bytes of a message without the numbers of its tensors, and refuse too many."""
    if depth > _MAX_GRAPH_DEPTH:
        raise MalformedMessage(f"it is nested deeper than {_MAX_GRAPH_DEPTH} levels")
    n_bytes = _MESSAGE_BYTES
    for field_number, wire_type, first_byte, end in iter_fields(content, start, stop):
        if wire_type == 2 and field_number in _NESTED_FIELDS[message_type]:
            n_bytes += _check_graph_size(
                content,
                _NESTED_FIELDS[message_type][field_number],
                first_byte,
                end,
                depth + 1,
            )
        elif message_type != "model" and (
            message_type != "tensor" or field_number not in _NUMBER_FIELDS
        ):
            n_bytes += end - first_byte
        if field_number in _TEXT_FIELDS.get(message_type, ()):
            bytes(content[first_byte:end]).decode()
        if n_bytes > _MAX_GRAPH_BYTES:
            raise MalformedMessage(
                f"its graph without the tensors is longer than {_MAX_GRAPH_BYTES} bytes"
            )
    return n_bytes


def _parse_tensor(content: memoryview[int], start: int, stop: int) -> onnx.TensorProto:
    """Parse a tensor; many raw numbers are replaced by a reference to their bytes in this file."""
    import onnx

    fields, raw_ranges, last_stop = [], [], start
    for field_number, _, first_byte, end in iter_fields(content, start, stop):
        if field_number == _RAW_FIELD and end - first_byte > _MAX_INLINE_BYTES:
            raw_ranges.append((first_byte, end))
        else:
            fields.append(bytes(content[last_stop:end]))
        last_stop = end
    tensor: onnx.TensorProto = onnx.TensorProto.FromString(b"".join(fields))
    if len(raw_ranges) == 1:
        first_byte, end = raw_ranges[0]
        external_data = {
            "location": _SAME_FILE,
            "offset": first_byte,
            "length": end - first_byte,
        }
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.ClearField("external_data")
        for key, value in external_data.items():
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def _is_inside_folder(location: str) -> bool:
    """Tell whether a location names a file in the model's folder, on any system."""
    path = PurePosixPath(location)
    is_outside = path.is_absolute() or bool({"..", "\\", ":"} & {*path.parts, *location})
    return bool(path.parts) and location.isprintable() and not is_outside


@dataclass(frozen=True)
class _OnnxTensor:
    """A tensor with the byte range of its numbers; without one, ``tensor`` holds the numbers."""

    tensor: onnx.TensorProto
    info: TensorInfo
    files: Files

    @classmethod
    def of(
        cls, key: str, tensor: onnx.TensorProto, file: str, files: Files
    ) -> _OnnxTensor:
        """Describe a tensor of a file.

        Raises
        ------
        InvalidCheckpoint
            If its shape is impossible, or the location of its numbers is not allowed.
        """
        shape = tuple(tensor.dims)
        if len(shape) > _MAX_ONNX_DIMENSIONS or min(shape, default=0) < 0:
            raise damaged_error(
                f"{file}: tensor {key[:80]!r} has the impossible shape {list(shape)[:8]}"
            )
        dtype = _dtype_name(tensor)
        info = TensorInfo(key, shape, DTYPE_NAMES.get(dtype, dtype), file)
        if tensor.data_location != _EXTERNAL_DATA:
            return cls(tensor, info, files)
        external_entries = {
            str(entry.key): str(entry.value) for entry in tensor.external_data
        }
        location = external_entries.get("location", "")
        if location != _SAME_FILE and not _is_inside_folder(location):
            raise InvalidCheckpoint(
                f"{file}: tensor {key[:80]!r} says that its data are in "
                f"{location[:80]!r}, which is no file in the model's "
                "folder. It was not opened."
            )
        try:
            start, length = (
                int(external_entries.get("offset", "0")),
                int(external_entries.get("length", "0")),
            )
        except ValueError:
            start = length = -1
        n_bytes = _count_bytes(tensor)
        if not 0 <= start < 2**62 or (n_bytes and length not in (0, n_bytes)):
            raise damaged_error(
                f"{file}: tensor {key[:80]!r}, shape {list(shape)} {dtype}, "
                f"says that its data are {length} bytes from byte {start} "
                f"of {location[:80]!r}"
            )
        data_file = (
            file if location == _SAME_FILE else str(PurePosixPath(file).parent / location)
        )
        return cls(
            tensor,
            replace(info, file=data_file, start=start, stop=start + n_bytes),
            files,
        )

    def content(self) -> bytes:
        """Return the bytes of numbers that the message itself holds."""
        if self.tensor.HasField("raw_data"):
            return bytes(self.tensor.raw_data)
        return np.ascontiguousarray(self.array()).tobytes()

    def array(self, content: bytes | memoryview[int] | None = None) -> NDArray[Any]:
        """Return the numbers as an array, from ``content`` if these bytes were read before.

        Raises
        ------
        InvalidCheckpoint
            If they do not fill the shape.
        """
        import onnx

        tensor, info = self.tensor, self.info
        subject = f"{info.subject} {info.dtype}, has no numbers that fit it"
        with explain_errors(InvalidCheckpoint, subject, DAMAGED_ADVICE):
            # The package would look for the file in the working directory.
            if tensor.data_location == _EXTERNAL_DATA:
                check_unpacked(f"{info.subject},", _count_bytes(tensor), TOO_LARGE_ADVICE)
                if content is None:
                    content = self.files.exactly(info.file, info.start, info.stop)
                tensor = onnx.TensorProto(
                    data_type=tensor.data_type, dims=tensor.dims, raw_data=bytes(content)
                )
            return onnx.numpy_helper.to_array(tensor)


def _dtype_name(tensor: onnx.TensorProto) -> str:
    from onnx import helper

    try:
        return str(helper.tensor_dtype_to_np_dtype(tensor.data_type).name)
    except (KeyError, TypeError):
        return f"ONNX's type {tensor.data_type}"


def _count_bytes(tensor: onnx.TensorProto) -> int:
    """Count the bytes of a tensor's numbers; 0 for types that NumPy does not have."""
    from onnx import helper

    dtype, count = _dtype_name(tensor), int(math.prod(tensor.dims))
    if dtype in _FOUR_BIT_TYPES:
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
        Initialisers and constants by name; the first counts if a nested graph repeats a name.
    nodes
        Nodes in the order of computation; those of a nested graph come before its node.
    users
        Nodes by the names of their inputs.
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
                if (
                    node.op_type == "Constant"
                    and attribute.name == "value"
                    and node.output
                ):
                    self.tensors.setdefault(node.output[0], attribute.t)
                if attribute.HasField("g"):
                    self.add(attribute.g)
                for subgraph in attribute.graphs:
                    self.add(subgraph)
            self.nodes.append(node)
            for name in node.input:
                self.users.setdefault(name, []).append(node)
        self.tensors.pop("", None)
        return self

    def find_users(self, value: str) -> list[onnx.NodeProto]:
        """Return the first nodes whose first input is a value."""
        nodes = self.users.get(value, ())[:_MAX_USERS]
        return [node for node in nodes if node.input[0] == value]


@dataclass(frozen=True)
class Dequantiser:
    """A rule that turns codes into numbers: ``(code - zero point) * scale``.

    Parameters
    ----------
    scale, zero
        Names of those tensors; where ``zero`` is empty it is ``middle``.
    axis, block
        The axis along which there are several scales, and how many entries share one; 0 for one
        scale each.
    dtype
        Type of the codes, as the format calls it.
    is_packed
        Whether a byte of the tensor holds two codes, the first in its lower half.
    middle
        Zero point where none is stored.
    """

    scale: str
    zero: str
    axis: int
    block: int
    dtype: str
    is_packed: bool = False
    middle: int = 0

    @property
    def name(self) -> str:
        """Name of the quantisation."""
        blocks = f" in blocks of {self.block}" if self.block > 0 else ""
        return f"{self.dtype}{blocks} with scale and zero point"

    def dequantise(
        self,
        codes: NDArray[Any],
        scale: _OnnxTensor | None,
        zero: _OnnxTensor | None,
        info: TensorInfo,
    ) -> tuple[NDArray[np.floating[Any]], float]:
        """Dequantise as the operator ``DequantizeLinear`` does; return the median scale as well.

        Raises
        ------
        InvalidTable
            If the scales do not fit the tensor or are computed when the model runs, or if it is too
            large for a table.
        """
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        if scale is None or (zero is None and self.zero):
            raise InvalidTable(
                f"{info.subject}: its scale or zero point is computed when "
                "the model runs. Use the model before it was quantised."
            )
        check_unpacked(f"{info.subject},", 8 * math.prod(info.shape), TOO_LARGE_ADVICE)
        subject = f"{info.subject}: its scale and zero point do not fit it along axis {self.axis}"
        with (
            explain_errors(
                InvalidTable, subject, "Use the model before it was quantised."
            ),
            np.errstate(over="ignore"),
        ):
            scales = scale.array()
            if self.is_packed:
                codes = _unpack_halves(codes)
            zeros = np.array(self.middle, codes.dtype) if zero is None else zero.array()
            if self.is_packed and zeros.ndim:
                zeros = _unpack_halves(zeros)[..., : scales.shape[-1]]
            for parameter in (scales, zeros):
                self._check_shape(parameter.shape, info.shape)
            block = min(self.block, info.shape[self.axis])
            node = helper.make_node(
                "DequantizeLinear",
                ["x", "scale", "zero"],
                ["y"],
                axis=self.axis,
                block_size=block,
            )
            inputs = {"x": codes, "scale": scales, "zero": zeros}
            (values,) = ReferenceEvaluator(node).run(None, inputs)
            step = float(np.median(np.abs(scales.astype(np.float64))))
            return np.asarray(values).astype(np.float32), step

    def _check_shape(
        self, parameter_shape: tuple[int, ...], shape: tuple[int, ...]
    ) -> None:
        """Refuse scales of another shape: the package would use the first of too many."""
        if self.block < 0:
            raise ValueError("no block has so few entries")
        blocks = [*shape]
        blocks[self.axis] = -(-blocks[self.axis] // max(self.block, 1))
        expected = tuple(blocks) if self.block else (shape[self.axis],)
        if math.prod(parameter_shape) > 1 and parameter_shape != expected:
            raise ValueError(f"shape {list(parameter_shape)} is not {list(expected)}")


def _unpack_halves(pairs: NDArray[Any]) -> NDArray[Any]:
    """Unpack bytes ``[..., m]`` that hold two numbers each; the result is ``[..., 2 m]``."""
    import ml_dtypes

    numbers = np.stack([pairs & 15, pairs >> 4], -1).astype(ml_dtypes.uint4)
    return numbers.reshape(*pairs.shape[:-1], 2 * pairs.shape[-1])


def _find_dequantisers(
    graph: Graph, tensors: Mapping[str, _OnnxTensor]
) -> dict[str, Dequantiser]:
    """Find the tensors of integers that are dequantised, whole or after their rows are gathered."""
    dequantisers = {}
    for name, tensor in tensors.items():
        if tensor.info.dtype in _CODE_TYPES and len(tensor.info.shape) > 1:
            candidates = (
                _find_dequantiser(graph, tensors, node, _dtype_name(tensor.tensor))
                for node in graph.find_users(name)
            )
            if (dequantiser := next(filter(None, candidates), None)) is not None:
                dequantisers[name] = dequantiser
    return dequantisers


def _find_dequantiser(
    graph: Graph, tensors: Mapping[str, _OnnxTensor], node: onnx.NodeProto, dtype: str
) -> Dequantiser | None:
    """Read how a node dequantises its first input, or how the users of its gathered rows do.

    Gathered rows may be transposed first, as T5's bias of heads is, if all numbers have one scale.
    """
    if node.op_type == "GatherBlockQuantized" and len(node.input) > 2:
        return _read_blocks(node, dtype)
    if node.op_type != "Gather" or not node.output:
        return _read_linear(node, dtype)
    for user in graph.find_users(node.output[0]):
        if (dequantiser := _read_linear(user, dtype, gathered=True)) is not None:
            return dequantiser
        if user.op_type == "Transpose" and user.output:
            for next_node in graph.find_users(user.output[0]):
                dequantiser = _read_linear(next_node, dtype, gathered=True)
                scale = None if dequantiser is None else tensors.get(dequantiser.scale)
                if scale is not None and math.prod(scale.info.shape) == 1:
                    return dequantiser
    return None


def _read_linear(
    node: onnx.NodeProto, dtype: str, *, gathered: bool = False
) -> Dequantiser | None:
    if node.op_type != "DequantizeLinear" or len(node.input) < 2:
        return None
    attributes = {a.name: a.i for a in node.attribute}
    axis = attributes.get("axis", 1)
    if gathered and axis > 0:
        axis = -1  # indices may have several axes before the width
    zero = node.input[2] if len(node.input) > 2 else ""
    return Dequantiser(node.input[1], zero, axis, attributes.get("block_size", 0), dtype)


def _read_blocks(node: onnx.NodeProto, dtype: str) -> Dequantiser:
    """Read how onnxruntime's operator ``com.microsoft.GatherBlockQuantized`` dequantises.

    Bytes hold codes of 4 or 8 bits, whose default zero point is the middle of their range; the
    default of 4-bit types is 0.
    """
    attributes = {a.name: a.i for a in node.attribute}
    bits = attributes.get("bits", 4) if dtype == "uint8" else 0
    return Dequantiser(
        node.input[2] if bits in (0, 4, 8) else "",  # other widths are not supported
        node.input[3] if len(node.input) > 3 else "",
        attributes.get("quantize_axis", 1),
        attributes.get("block_size", 128),
        f"uint{bits}" if bits else dtype,
        is_packed=bits == 4,
        middle=1 << bits - 1 if bits in (4, 8) else 0,
    )


def find_positions(
    graph: Graph, tensors: Mapping[str, _OnnxTensor], quantised_names: Container[str]
) -> dict[str, str]:
    """Find the tables that are used like positions, and describe their use.

    A table of positions is added to the hidden states whole, or its rows are gathered by indices
    that are counted rather than read; indices of tokens come from an input of the model. A table
    that is added must differ from row to row: the embedding of the single token type, which an
    exporter folds as well, does not.

    Parameters
    ----------
    graph
        Nodes and tensors.
    tensors
        Stored tensors, by the same names.
    quantised_names
        The names of those tensors that are dequantised.

    Returns
    -------
    dict
        Phrase about the use, which ends with the node's name, by name of the tensor.
    """
    flow = _Flow(graph)
    for name, tensor in tensors.items():
        shape = tensor.info.shape
        is_table_shaped = len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)
        is_readable = tensor.info.dtype in FLOAT_DTYPES or name in quantised_names
        if is_table_shaped and is_readable and min(shape[-2:]) > 1:
            flow.tables[name] = name
    for node in graph.nodes:
        flow.follow(node)
    return {
        name: use
        for name, use in flow.uses.items()
        if not (use.startswith("it is added") and _has_equal_rows(tensors[name]))
    }


def _has_equal_rows(stored: _OnnxTensor) -> bool:
    if _count_bytes(stored.tensor) > _MAX_GRAPH_BYTES:
        return False
    values = stored.array()
    return bool((values == values[..., :1, :]).all())


@dataclass
class _Flow:
    """The flow of positions through a graph, collected in the order of computation.

    Parameters
    ----------
    graph
        The graph.
    tables
        The table whose rows a value has.
    depends_on_input
        Whether a value depends on an input of the model, other than by its shape alone.
    origins
        Origins of indices: ``counted``; ``read`` from an input; of stored ones ``differing``, or
        empty.
    uses
        First use of each table, where that is a use of positions.
    """

    graph: Graph
    tables: dict[str, str] = field(default_factory=dict)
    depends_on_input: dict[str, bool] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)

    def follow(self, node: onnx.NodeProto) -> None:
        """Add a node: the use of its inputs and the origin of its outputs."""
        inputs = list(node.input[:_MAX_NODE_INPUTS])
        input_positions = {
            name: input_position
            for input_position, name in enumerate(inputs)
            if name in self.tables
        }
        for name, input_position in input_positions.items():
            if use := self._describe_use(node, inputs, input_position):
                label = (
                    node.name
                    or f"{node.op_type} that gives {next(iter(node.output), '')}"
                )
                self.uses.setdefault(self.tables[name], f"{use} {label}")
        data_inputs = (
            [name for name in inputs if name]
            if node.op_type not in ("Shape", "Size")
            else []
        )
        depends_on_input = any(map(self._depends_on_input, data_inputs))
        origin = self._combine_origins(node.op_type, data_inputs)
        for name in node.output:
            if name not in self.graph.tensors:  # constants are among the tensors
                self.depends_on_input[name], self.origins[name] = depends_on_input, origin
            if node.op_type in _ROW_KEEPING and inputs and inputs[0] in self.tables:
                self.tables[name] = self.tables[inputs[0]]

    def _describe_use(
        self, node: onnx.NodeProto, inputs: list[str], input_position: int
    ) -> str:
        if (
            node.op_type in _GATHERING
            and input_position == 0
            and len(inputs) > 1
            and _gather_axis(node) == 0
        ):
            if self._find_origin(inputs[1]) in ("counted", "differing"):
                return "its rows are gathered by counted positions in"
        elif node.op_type == "EmbedLayerNormalization" and input_position == 3:
            return "it is the position embedding of"
        elif (
            node.op_type == "Add"
            and len(inputs) == 2
            and self._depends_on_input(inputs[1 - input_position])
        ):
            return "it is added to the hidden states in"
        return ""

    def _depends_on_input(self, name: str) -> bool:
        return self.depends_on_input.get(name, name not in self.graph.tensors)

    def _combine_origins(self, op_type: str, inputs: list[str]) -> str:
        if op_type in _COUNTING:
            return "counted"
        origins = {
            self._find_origin(name)
            for name in inputs[: 1 if op_type in _REARRANGING else None]
        }
        return next(
            (origin for origin in ("counted", "read", "differing") if origin in origins),
            "",
        )

    def _find_origin(self, name: str) -> str:
        if name not in self.origins:
            if name in self.graph.tensors:
                # Indices of positions differ, those of token types do not.
                origin = "differing" if _numbers_differ(self.graph.tensors[name]) else ""
            else:
                origin = "counted" if "position" in name else "read"
            self.origins[name] = origin
        return self.origins[name]


def _gather_axis(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name in ("axis", "gather_axis")), 0)


def _numbers_differ(tensor: onnx.TensorProto) -> bool:
    from onnx import numpy_helper

    if len(tensor.dims) == 0 or math.prod(tensor.dims) < 2:
        return False
    if tensor.data_location == _EXTERNAL_DATA:  # only long tensors have external data
        return True
    try:
        values = numpy_helper.to_array(tensor)
    except (
        ValueError,
        TypeError,
        LookupError,
    ):  # unknown type, or wrong number of values
        return False
    return bool(values.dtype.kind in "iu" and values.min() != values.max())
