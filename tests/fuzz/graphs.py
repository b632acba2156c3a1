"""ONNX models: quantised tables whose scales do not fit, data elsewhere, graphs that lie.

The onnx package reads the same bytes and dequantises with its own operator: numbers are its.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case

ROWS, WIDTH = 8, 6
#: Sizes that no attribute, offset or shape of a small table has.
_WRONG = (0, -1, -4, 3, 7, 64, 2**31, 2**40, 2**62, -(2**62))
#: Data that lie outside the model's folder, or nowhere.
_OUTSIDE = (
    "/etc/passwd", "../secret", "a/../../secret", "..\\secret", "C:\\x", "file:///etc/passwd", "",
    ".", "./", "weights/..", "a\x1b[2J", "\u202ecod", "x" * 5000,
)  # fmt: skip


def _case(model: Any, what: str, expected: Any = "any", **more: Any) -> Case:
    content = model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    files = {"m/a.onnx": content, **more.pop("files", {})}
    return build.extract(what, files, "wpe", expected=expected, **more)


def _tensor(name: str, values: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(values), name)


def _model(tensors: list[Any], **attributes: Any) -> Any:
    """Write a model whose table is dequantised, where it is, and added to an input."""
    from onnx import TensorProto, helper

    names = [tensor.name for tensor in tensors]
    nodes = []
    if "wpe_quantized" in names:
        given = ["wpe_quantized", *(name for name in ("s", "z") if name in names)]
        nodes = [helper.make_node("DequantizeLinear", given, ["table"], **attributes)]
    nodes.append(helper.make_node("Add", ["x", "table" if nodes else "wpe"], ["y"], name="/Add"))
    given_x, given_y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", ROWS, WIDTH]) for name in "xy"
    )
    graph = helper.make_graph(nodes, "graph", [given_x], [given_y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def _codes(rng: random.Random, dtype: str, *shape: int) -> Any:
    import ml_dtypes

    low, high = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255)}[dtype]
    drawn = np.random.default_rng(rng.getrandbits(32)).integers(low, high + 1, shape)
    return drawn.astype(getattr(ml_dtypes, dtype) if dtype.endswith("4") else dtype)


def _quantised(rng: random.Random, *, axis: int | None = None, block: int = 0) -> dict[str, Any]:
    """Draw codes, scales and zero points that fit: of one scale, of one a channel, or of blocks."""
    dtype = rng.choice(("int4", "uint4", "int8", "uint8"))
    sizes = [ROWS, rng.choice((WIDTH, WIDTH - 1))]  # of 4 bits an odd number leaves half a byte
    shape: tuple[int, ...] = ()
    if axis is not None:
        blocks = [*sizes]
        blocks[axis] = -(-sizes[axis] // (block or 1))
        shape = tuple(blocks) if block else (sizes[axis],)
    scale = np.random.default_rng(rng.getrandbits(32)).uniform(0.01, 0.1, shape)
    found = {"codes": _codes(rng, dtype, *sizes), "scale": scale.astype(rng.choice(("f4", "f2")))}
    return found | ({"zero": _codes(rng, dtype, *shape)} if rng.random() < 0.6 else {})


def _tensors(parts: Mapping[str, Any]) -> list[Any]:
    names = {"codes": "wpe_quantized", "scale": "s", "zero": "z"}
    return [_tensor(names[key], value) for key, value in parts.items()]


def _any_model(rng: random.Random) -> Any:
    kind = rng.choice(("plain", "one", "channel", "block"))
    if kind == "plain":
        values = build.table(rng, ROWS, WIDTH).astype(rng.choice(("f4", "f8", "f2")))
        return _model([_tensor("wpe", values)])
    if kind == "one":
        return _model(_tensors(_quantised(rng)))
    axis, block = rng.choice((0, 1, -1)), rng.choice((2, 3)) if kind == "block" else 0
    attributes = {"axis": axis, **({"block_size": block} if block else {})}
    return _model(_tensors(_quantised(rng, axis=axis, block=block)), **attributes)


def _sound(rng: random.Random) -> Case:
    return _case(_any_model(rng), "sound", "accepted")


def _damaged(rng: random.Random) -> Case:
    what, content = build.damage(rng, _any_model(rng).SerializeToString(deterministic=True))
    return _case(content, what, look=rng.random() < 0.3)


def _scales(rng: random.Random) -> Case:
    """Let scales, zero points and attributes not fit the codes."""
    axis, block = rng.choice(((0, 0), (1, 0), (1, 2), (0, 3)))
    parts = _quantised(rng, axis=axis, block=block)
    attributes: dict[str, Any] = {"axis": axis, **({"block_size": block} if block else {})}
    scale, codes = parts["scale"], parts["codes"].dtype
    shape = rng.choice(
        ((0,), (1,), (2,), (7,), (ROWS + 1,), (1, 1), (ROWS, 1), (1, ROWS), (ROWS, 3, 1), (0, 0))
    )
    number = rng.choice((float("nan"), float("inf"), 0.0, -1.0, 6e4))
    changes: dict[str, dict[str, Any]] = {
        "scale": {"scale": np.ones(shape, "f4")},
        "zero": {"zero": np.zeros(shape, codes)},
        "typed": {"scale": np.ones(scale.shape, rng.choice(("i4", "f8", "?", "c8")))},
        "numbers": {"scale": np.full_like(scale, number)},
        "dtype": {"zero": np.zeros(scale.shape, rng.choice(("i4", "f4", "u1", "i2")))},
    }
    kind = rng.choice((*changes, "block_size", "axis", "no scale", "twice"))
    parts |= changes.get(kind, {})
    if kind in ("block_size", "axis"):
        attributes[kind] = rng.choice(_WRONG)
    if kind == "no scale":
        parts = {"codes": parts["codes"]}
    again = [_tensor("s", np.full(scale.shape, 9, "f4"))] if kind == "twice" else []
    return _case(_model(_tensors(parts) + again, **attributes), f"scales: {kind}")


def _numbers(rng: random.Random) -> Case:
    """Let the stored numbers not fill the shape, or the shape be none."""
    import onnx

    model = _model(_tensors(_quantised(rng))) if rng.random() < 0.6 else _any_model(rng)
    tensor = next(t for t in model.graph.initializer if t.name.startswith("wpe"))
    raw = tensor.raw_data
    shapes = ((-1, 6), (-8, -6), (2**40, 2**40), (2**62, 4), (2**63 - 1,) * 3, (2,) * 60)
    typed = rng.choice(("int32_data", "float_data", "int64_data"))
    changes: dict[str, dict[str, Any]] = {
        "short": {"raw_data": raw[: rng.randrange(len(raw))]},
        "long": {"raw_data": raw + bytes(rng.choice((1, 4, 1000)))},
        "typed": {"raw_data": None, typed: [1, 2]},
        "none": {"raw_data": None},
        "dims": {"dims": rng.choice(shapes)},
        "type": {"data_type": rng.choice((0, 8, 14, 15, 17, 23, 24, 99, 2**30))},
        "both": {"int32_data": [1, 2, 3]},
        "segment": {"segment": onnx.TensorProto.Segment(begin=0, end=rng.choice((1, 2**62)))},
    }
    kind = rng.choice(list(changes))
    for field in changes[kind]:
        tensor.ClearField(field)
    tensor.MergeFrom(onnx.TensorProto(**changes[kind]))
    return _case(model, f"numbers: {kind}", "any" if kind in ("both", "segment") else "error")


def _blocks(rng: random.Random) -> Case:
    """Gather rows of blocks as onnxruntime does, with attributes and shapes that do not fit."""
    from onnx import helper

    attributes: dict[str, Any] = {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    changed = rng.choice((*attributes, "scale", "zero", "indices"))
    scale: Any = np.full((ROWS, 2), 0.1, "f4")
    zero: Any = _codes(rng, "uint8", ROWS, 1)
    names = ["wpe_Q4", "i", "s", "z"]
    if changed in attributes:
        attributes[changed] = rng.choice((*_WRONG[changed == "gather_axis" :], 8))
    elif changed == "scale":
        scale = np.ones(rng.choice(((ROWS,), (ROWS, 3), (2, ROWS), (0, 2), (1, 1, 2))), "f4")
    elif changed == "zero":
        zero = np.zeros(rng.choice(((3,), (ROWS, 2, 1), (2, 1), (0, 1))), "u1")
    else:
        names = names[: rng.choice((0, 1, 2, 3))]
    data = _codes(rng, "uint8", ROWS, 16)
    tensors = [_tensor("wpe_Q4", data), _tensor("s", scale), _tensor("z", zero)]
    node = helper.make_node(
        "GatherBlockQuantized", names, ["rows"], domain="com.microsoft", **attributes
    )
    model = helper.make_model(helper.make_graph([node], "graph", [], [], tensors))
    # No package but onnxruntime knows the operator: what is left is to refuse or read it.
    harmless = changed in ("gather_axis", "zero", "indices") or attributes["quantize_axis"] == -1
    expected = "any" if harmless or attributes["bits"] == 0 else "error"
    return _case(model, f"gathered blocks: {changed}", expected, read=None)


def _external(rng: random.Random) -> Case:
    """Keep the numbers in a file beside the model, or say that they are elsewhere."""
    model = _any_model(rng)
    tensor = next(t for t in model.graph.initializer if t.name.startswith("wpe"))
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    start = rng.choice((0, 64))
    stated: dict[str, Any] = {"location": "a.data", "offset": start, "length": len(raw)}
    files = {name: bytes(start) + raw for name in ("m/a.data", "secret")}
    number = rng.choice((*_WRONG[1:], "9" * 400, "x", "", "0x40", "1e3", "\u0663", " 8"))
    key = rng.choice(("location", "offset", "length", "checksum", "x" * 3000))
    kind, expected, change = rng.choice(
        (
            ("sound", "accepted", {}),
            ("outside", "error", {"location": rng.choice(_OUTSIDE)}),
            ("offset", "any", {"offset": number}),
            ("length", "any", {"length": number}),
            ("key", "any", {key: "\x1b[2J"}),
            ("short", "error", {}),
            ("special", "error", {}),
            ("twice", "any", {}),
        )
    )
    special = {}
    if kind == "short":
        files["m/a.data"] = files["m/a.data"][:-1]
    elif kind == "special":
        del files["m/a.data"]
        special["m/a.data"] = rng.choice((*build.SPECIAL, "link ../secret", "link a.data"))
    told = [*(stated | change).items(), *([("location", "../secret")] if kind == "twice" else [])]
    for name, value in told:
        tensor.external_data.add(key=name, value=str(value))
    look = expected == "any" and rng.random() < 0.2
    what = f"external data: {kind}"
    return _case(model, what, expected, files=files, special=special, look=look)


def _graph(rng: random.Random) -> Case:
    """Let names, nodes and graphs within graphs be what no exporter writes."""
    from onnx import helper

    model = _any_model(rng)
    graph, again = model.graph, build.table(rng, ROWS, WIDTH)

    def node(kind: str, *names: Any, **attributes: Any) -> None:
        graph.node.append(helper.make_node(kind, *names, **attributes))

    def name() -> None:
        bad = rng.choice(build.HOSTILE).encode("utf-8", "replace").decode()
        graph.initializer.append(_tensor(bad, again))
        node("Add", ["x", bad], [bad + "y"], name=bad)

    def twice() -> None:
        graph.initializer.append(_tensor(graph.initializer[0].name, again))

    def cycle() -> None:
        for number in range(200):
            node("Identity", [f"v{number}"], [f"v{(number + 1) % 200}"])
        node("Gather", ["wpe", "v0"], ["rows"])

    def many() -> None:
        for number in range(3000):
            node("Identity", ["wpe"], [f"v{number}"])

    def empty() -> None:
        node("DequantizeLinear", [], [])
        node("Gather", ["wpe"], [""])
        node("Gather", ["wpe_quantized"], [])
        node("Constant", [], [], value=_tensor("", [1]))

    def operator() -> None:
        for each in graph.node:
            each.op_type = rng.choice(("Gather", "Slice", "EmbedLayerNormalization", "\x1b"))

    def constant() -> None:
        tensor = graph.initializer.pop(0)
        graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))

    changes: tuple[Callable[[], None], ...] = (name, twice, cycle, many, empty, operator, constant)
    change = rng.choice(changes)
    change()
    look = change is not constant or rng.random() < 0.5
    return _case(model, f"graph: {change.__name__}", look=look)


def _deep(rng: random.Random) -> Case:
    """Nest graphs in attributes of nodes of graphs."""
    content = _any_model(rng).graph.SerializeToString(deterministic=True)
    for _ in range(rng.choice((5, 20, 45, 500))):
        for number in (6, 5, 1):  # of an attribute, of a node, of a graph
            content = _message(number, content)
    return _case(_message(7, content), "graph: deep", look=True)


def _message(number: int, content: bytes) -> bytes:
    """Put a message into a field of another, as protobuf writes it."""
    length, rest = b"", len(content)
    while rest > 127:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + content


make = build.one_of(
    (3, _sound), (3, _damaged), (6, _scales), (3, _numbers), (3, _blocks), (4, _external),
    (3, _graph), (1, _deep),
)  # fmt: skip
NEEDS = ("onnx.reference", "posprobe.checkpoints.onnx")
