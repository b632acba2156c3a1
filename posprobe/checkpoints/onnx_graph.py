"""What the nodes of an ONNX graph do with its tensors: which are quantised, which are positions.

An exporter folds constants and renames what it computed, so that names alone do not tell: the table
of Whisper's encoder is called ``onnx::Add_375``. How a tensor is used does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.base import NO_TABLE, TensorInfo, check_unpacked
from posprobe.checkpoints.protobuf import Damaged
from posprobe.errors import InvalidTable

if TYPE_CHECKING:
    import onnx

#: Nodes that are looked at on the way from one tensor to its users, and back from indices.
_MOST_STEPS = 1000
#: Nodes that are looked at on all such ways of a model together: one of a thousand layers takes a
#: tenth of them.
_ALL_STEPS = 1_000_000
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


@dataclass(frozen=True)
class Graph:
    """The nodes and tensors of a graph and of the graphs within it.

    Parameters
    ----------
    tensors
        Initialisers and constants by name.
    users, makers
        The nodes that take a value, and the one that gives it, by the value's name.
    steps
        One for each node that may still be looked at.
    """

    tensors: Mapping[str, onnx.TensorProto]
    users: Mapping[str, list[onnx.NodeProto]]
    makers: Mapping[str, onnx.NodeProto]
    steps: Iterator[int] = field(default_factory=lambda: iter(range(_ALL_STEPS)))

    @classmethod
    def of(cls, graph: onnx.GraphProto) -> Graph:
        """Gather them; where graphs within use a name again, the first counts."""
        tensors: dict[str, onnx.TensorProto] = {}
        users: dict[str, list[onnx.NodeProto]] = {}
        makers: dict[str, onnx.NodeProto] = {}
        waiting = [graph]
        for part in waiting:  # it grows
            _refuse_bytes(part)
            for tensor in part.initializer:
                tensors.setdefault(tensor.name, tensor)
            for node in part.node:
                for name in node.input:
                    users.setdefault(name, []).append(node)
                for name in node.output:
                    makers.setdefault(name, node)
                for attribute in node.attribute:
                    if node.op_type == "Constant" and attribute.name == "value":
                        tensors.setdefault(node.output[0] if node.output else "", attribute.t)
                    waiting += [attribute.g] if attribute.HasField("g") else []
                    waiting += attribute.graphs
        tensors.pop("", None)
        return cls(tensors, users, makers)


def _refuse_bytes(graph: onnx.GraphProto) -> None:
    """Refuse names that are not text: protobuf gives their bytes instead.

    Raises
    ------
    Damaged
        If there is one.
    """
    entries = [entry for tensor in graph.initializer for entry in tensor.external_data]
    names = [
        *(tensor.name for tensor in graph.initializer),
        *(text for entry in entries for text in (entry.key, entry.value)),
    ]
    for node in graph.node:
        names += [*node.input, *node.output, node.op_type, node.name]
        names += [attribute.name for attribute in node.attribute]
    if not all(isinstance(name, str) for name in names):
        raise Damaged("a name is not text")


@dataclass(frozen=True)
class Quantised:
    """How a tensor of integers becomes numbers: ``(code - zero point) * scale``.

    Parameters
    ----------
    scale, zero
        Names of those tensors; without ``zero`` it is 0.
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
    zero: str | None
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

    def shape_of(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the numbers from that of the tensor."""
        return (*stored[:-1], 2 * stored[-1]) if self.packed else stored

    def values(
        self, codes: NDArray[Any], read: Callable[[str], NDArray[Any] | None], info: TensorInfo
    ) -> tuple[NDArray[np.floating[Any]], float]:
        """Dequantise as the operator ``DequantizeLinear`` does; return the median scale as well.

        Parameters
        ----------
        codes
            In the tensor's shape.
        read
            Returns the values of a tensor.
        info
            The tensor, for messages.

        Raises
        ------
        InvalidTable
            If the scales are none of the tensor's, or computed when the model runs, or if it is too
            large for a table.
        """
        scale = read(self.scale)
        zero = read(self.zero) if self.zero else np.asarray(self.middle)
        if scale is None or zero is None:
            raise InvalidTable(
                f"{info.where}: its scale or zero point is computed when the model runs, or of a "
                "type that is not read. Use the model before it was quantised."
            )
        check_unpacked(f"{info.where},", 8 * codes.size, NO_TABLE)
        if self.packed:
            codes = two_in_a_byte(codes)
            zero = two_in_a_byte(zero)[..., : scale.shape[-1]] if zero.ndim and scale.ndim else zero
        try:
            scales = self._spread(scale, codes.shape).astype(np.float32)
            offsets = self._spread(zero, codes.shape).astype(np.int64)
        except ValueError as error:
            raise InvalidTable(
                f"{info.where}: its scale of shape {list(scale.shape)} and zero point of shape "
                f"{list(zero.shape)} do not fit it along axis {self.axis} ({error}). Use the model "
                "before it was quantised."
            ) from error
        # One rounding of the product, as the operator has it.
        numbers = (codes.astype(np.int64) - offsets).astype(np.float32) * scales
        if scale.dtype == np.float16:  # its type is that of the result
            with np.errstate(over="ignore"):
                numbers = numbers.astype(np.float16).astype(np.float32)
        return numbers, float(np.median(np.abs(scale.astype(np.float64))))

    def _spread(self, given: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Lay scales along the axis that they are for."""
        if self.block < 0:
            raise ValueError("no block has so few entries")
        if given.size == 1:
            return given.reshape(())
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        if not 0 <= axis < len(shape):
            raise ValueError("no such axis")
        if self.block:
            blocks = -(-shape[axis] // self.block)
            if given.shape != (*shape[:axis], blocks, *shape[axis + 1 :]):
                raise ValueError("another number of blocks")
            each = np.repeat(given, min(self.block, shape[axis]), axis)
            return each[tuple(slice(size) for size in shape)]
        if given.shape != (shape[axis],):
            raise ValueError("another number of scales")
        return given.reshape([-1 if place == axis else 1 for place in range(len(shape))])


def two_in_a_byte(pairs: NDArray[Any]) -> NDArray[Any]:
    """Take apart bytes that hold two numbers from 0 to 15, the first in the lower half.

    Parameters
    ----------
    pairs
        ``[..., m]``.

    Returns
    -------
    NDArray
        ``[..., 2 m]``.
    """
    return np.stack([pairs & 15, pairs >> 4], -1).reshape(*pairs.shape[:-1], 2 * pairs.shape[-1])


#: Types of tensors that may be codes.
_CODES = {"I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I4": "int4", "U4": "uint4"}


def find_quantised(graph: Graph, tensors: Mapping[str, TensorInfo]) -> dict[str, Quantised]:
    """Find the tensors of integers that are dequantised, themselves or as rows are gathered.

    What is gathered may change the order of its axes first, as T5's bias of heads does, where all
    numbers have one scale.
    """
    found: dict[str, Quantised] = {}
    for name, info in tensors.items():
        if info.dtype not in _CODES or len(info.shape) < 2:
            continue
        for node in graph.users.get(name, ())[:_MOST_STEPS]:
            if node.op_type == "GatherBlockQuantized" and len(node.input) > 2:
                if node.input[0] == name:
                    found.setdefault(name, _gathered_blocks(node, info.dtype))
                continue
            gathered = node.op_type == "Gather" and node.input[0] == name and node.output
            takers = graph.users.get(node.output[0], ())[:_MOST_STEPS] if gathered else [node]
            moved = [
                later
                for taker in takers
                if gathered and taker.op_type == "Transpose"
                for later in graph.users.get(taker.output[0], ())[:_MOST_STEPS]
            ]
            for taker in [*takers, *moved]:
                if taker.op_type == "DequantizeLinear" and len(taker.input) > 1:
                    if not gathered and taker.input[0] != name:
                        continue
                    scale = tensors.get(taker.input[1])
                    if taker in moved and (scale is None or math.prod(scale.shape) != 1):
                        continue  # its axis is one of the moved axes
                    numbers = {a.name: a.i for a in taker.attribute}
                    axis = numbers.get("axis", 1)
                    if gathered and axis > 0:
                        axis = -1  # indices of several axes stand before the width
                    zero = taker.input[2] if len(taker.input) > 2 and taker.input[2] else None
                    block = numbers.get("block_size", 0)
                    found.setdefault(
                        name, Quantised(taker.input[1], zero, axis, block, _CODES[info.dtype])
                    )
    return found


def _gathered_blocks(node: onnx.NodeProto, dtype: str) -> Quantised:
    """Read how onnxruntime's operator ``com.microsoft.GatherBlockQuantized`` dequantises.

    Bytes hold codes of 4 or 8 bits whose zero point is the middle where none is given; types of 4
    bits have 0.
    """
    numbers = {a.name: a.i for a in node.attribute}
    bits = numbers.get("bits", 4) if dtype == "U8" else 0
    zero = node.input[3] if len(node.input) > 3 and node.input[3] else None
    return Quantised(
        node.input[2] if bits in (0, 4, 8) else "",  # of other widths no scale is looked for
        zero,
        numbers.get("quantize_axis", 1),
        numbers.get("block_size", 128),
        f"uint{bits}" if bits else _CODES[dtype],
        packed=bits == 4,
        middle=1 << bits - 1 if bits in (4, 8) else 0,
    )


def find_positions(
    graph: Graph,
    tensors: Mapping[str, TensorInfo],
    rows_of: Callable[[TensorInfo], NDArray[Any] | None],
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
    rows_of
        Returns a few rows of a tensor, or None where they cannot be read alone.

    Returns
    -------
    dict
        Name of the tensor to a few words about its use, with the node's name.
    """
    found = {}
    for name, info in tensors.items():
        rows = info.shape[-2] if len(info.shape) in (2, 3) else 0
        if rows < 2 or info.shape[-1] < 2 or (len(info.shape) == 3 and info.shape[0] != 1):
            continue
        why = next(_uses(graph, name), None)
        if why is None:
            continue
        few = rows_of(info) if why.startswith("it is added") else None
        if few is None or (few != few[0]).any():
            found[name] = why
    return found


def _uses(graph: Graph, name: str) -> Iterator[str]:
    """Yield how a tensor is used, where that is a use of positions."""
    waiting = [name]
    for value in waiting:  # it grows
        for node, _ in zip(graph.users.get(value, ())[:_MOST_STEPS], graph.steps, strict=False):
            if value not in (inputs := list(node.input[:_MOST_INPUTS])):
                continue
            place = inputs.index(value)
            label = node.name or f"{node.op_type} that gives {next(iter(node.output), '')}"
            if node.op_type in _PASSING and place == 0 and len(waiting) < _MOST_STEPS:
                waiting += node.output
            elif node.op_type in _GATHERING and place == 0 and _axis(node) == 0:
                if len(node.input) > 1 and _is_counted(graph, node.input[1]):
                    yield f"its rows are gathered by counted positions in {label}"
            elif node.op_type == "EmbedLayerNormalization" and place == 3:
                yield f"it is the position embedding of {label}"
            elif node.op_type == "Add" and len(node.input) == 2:
                other = node.input[1 - place]
                if other not in graph.tensors and _is_state(graph, other):
                    yield f"it is added to the hidden states in {label}"


def _axis(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name in ("axis", "gather_axis")), 0)


def _back(graph: Graph, value: str, stop: set[str], moving: Container[str] = ()) -> Iterator[str]:
    """Yield the values that one was made from, nearest first.

    Nothing is looked for behind the nodes ``stop``; behind the nodes ``moving`` only the numbers
    that they move.
    """
    waiting, seen = [value], {value}  # they grow
    for name, _ in zip(islice(iter(waiting), _MOST_STEPS), graph.steps, strict=False):
        yield name
        node = graph.makers.get(name)
        if node is not None and node.op_type not in stop:
            inputs = node.input[: 1 if node.op_type in moving else _MOST_INPUTS]
            new = [other for other in inputs if other and other not in seen]
            seen.update(new)
            waiting += new


def _is_counted(graph: Graph, indices: str) -> bool:
    """Tell whether indices were counted, not read from an input that numbers tokens."""
    counted = False
    for name in _back(graph, indices, {"Shape", "Size", *_COUNTING}, _MOVING):
        node = graph.makers.get(name)
        if node is not None and node.op_type in _COUNTING:
            return True
        if node is None and name not in graph.tensors:
            return "position" in name  # an input of the model
        # Numbers that were folded: those of positions differ, those of token types do not.
        counted |= name in graph.tensors and _differ(graph.tensors[name])
    return counted


def _differ(tensor: onnx.TensorProto) -> bool:
    from onnx import numpy_helper

    if tensor.data_location or len(tensor.dims) == 0 or np.prod(tensor.dims, dtype=object) < 2:
        return False
    try:
        values = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):  # its numbers were left out of the copy, so they are many
        return True
    return values.dtype.kind in "iu" and values.min() != values.max()


def _is_state(graph: Graph, value: str) -> bool:
    """Tell whether a value depends on an input of the model, other than by its shape alone."""
    return any(
        name not in graph.makers and name not in graph.tensors
        for name in _back(graph, value, {"Shape", "Size"})
    )
