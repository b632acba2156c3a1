"""ONNX models: quantised tables whose scales do not fit, data elsewhere, graphs that lie.

The onnx package reads the same bytes and dequantises with its own operator: numbers are its.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case

ROWS, WIDTH = 8, 6
#: Sizes that no attribute, offset or shape of a small table has.
_WRONG = (0, -1, -4, 3, 7, 64, 2**31, 2**40, 2**62, -(2**62))
#: Data that lie outside the model's folder, or nowhere.
_OUTSIDE = (
    "/etc/passwd",
    "../secret",
    "a/../../secret",
    "..\\secret",
    "C:\\x",
    "file:///etc/passwd",
    "",
    ".",
    "./",
    "weights/..",
    "a\x1b[2J",
    "\u202ecod",
    "x" * 5000,
)


def make(rng: random.Random) -> Case:
    """Make one model and read its table."""
    return build.pick(
        rng,
        (3, _sound),
        (3, _damaged),
        (6, _scales),
        (3, _numbers),
        (3, _blocks),
        (4, _external),
        (3, _graph),
    )(rng)


def _case(
    model: Any,
    what: str,
    expected: Any = "any",
    *,
    files: Mapping[str, bytes] | None = None,
    special: Mapping[str, str] | None = None,
    look: bool = False,
) -> Case:
    content = model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    argv = ("extract", "m/a.onnx", "--tensor", "wpe", "-o", "out.npy")
    return Case(
        what,
        ("inspect", "m/a.onnx") if look else argv,
        {"m/a.onnx": content, **(files or {})},
        special or {},
        read=None if look else ("m/a.onnx", "wpe"),
        outputs=("out.npy",),
        expected=expected,
    )


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
    width = rng.choice((WIDTH, WIDTH - 1))  # of 4 bits an odd number leaves half a byte
    shape: tuple[int, ...] = ()
    if axis is not None:
        shape = (ROWS, width)[axis : axis + 1 or None]
        if block:
            sizes = [ROWS, width]
            sizes[axis] = -(-sizes[axis] // block)
            shape = tuple(sizes)
    scale = np.random.default_rng(rng.getrandbits(32)).uniform(0.01, 0.1, shape)
    found = {
        "codes": _codes(rng, dtype, ROWS, width),
        "scale": scale.astype(rng.choice(("f4", "f4", "f2"))),
    }
    if rng.random() < 0.6:
        found["zero"] = _codes(rng, dtype, *shape)
    return found


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
    kind = rng.choice(
        ("block_size", "axis", "scale", "zero", "no scale", "typed", "numbers", "twice", "dtype")
    )
    shape = rng.choice(
        ((0,), (1,), (2,), (7,), (ROWS + 1,), (1, 1), (ROWS, 1), (1, ROWS), (ROWS, 3, 1), (0, 0))
    )
    match kind:
        case "block_size" | "axis":
            attributes[kind] = rng.choice(_WRONG)
        case "scale":
            parts["scale"] = np.ones(shape, "f4")
        case "zero":
            parts["zero"] = np.zeros(shape, parts["codes"].dtype)
        case "no scale":
            del parts["scale"]
            parts.pop("zero", None)
        case "typed":
            parts["scale"] = np.ones(parts["scale"].shape, rng.choice(("i4", "f8", "?", "c8")))
        case "numbers":
            bad = rng.choice((float("nan"), float("inf"), 0.0, -1.0, 6e4))
            parts["scale"] = np.full_like(parts["scale"], bad)
        case "dtype":
            parts["zero"] = np.zeros(parts["scale"].shape, rng.choice(("i4", "f4", "u1", "i2")))
    tensors = _tensors(parts)
    if kind == "twice":
        tensors.append(_tensor("s", np.full(parts["scale"].shape, 9, "f4")))
    return _case(_model(tensors, **attributes), f"scales: {kind}")


def _numbers(rng: random.Random) -> Case:
    """Let the stored numbers not fill the shape, or the shape be none."""
    model = _model(_tensors(_quantised(rng))) if rng.random() < 0.6 else _any_model(rng)
    tensor = next(t for t in model.graph.initializer if t.name.startswith("wpe"))
    kind = rng.choice(("short", "long", "typed", "both", "none", "dims", "type", "segment"))
    expected = "error"
    match kind:
        case "short":
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data))]
        case "long":
            tensor.raw_data += bytes(rng.choice((1, 4, 1000)))
        case "typed":
            tensor.ClearField("raw_data")
            getattr(tensor, rng.choice(("int32_data", "float_data", "int64_data"))).extend([1, 2])
        case "both":
            tensor.int32_data.extend([1, 2, 3])
            expected = "any"
        case "none":
            tensor.ClearField("raw_data")
        case "dims":
            del tensor.dims[:]
            tensor.dims.extend(
                rng.choice(
                    ((-1, 6), (-8, -6), (2**40, 2**40), (2**62, 4), (2**63 - 1,) * 3, (2,) * 60)
                )
            )
        case "type":
            tensor.data_type = rng.choice((0, 8, 14, 15, 17, 23, 24, 99, 2**30))
        case _:
            tensor.segment.begin, tensor.segment.end = 0, rng.choice((1, 2**62))
            expected = "any"
    return _case(model, f"numbers: {kind}", expected)


def _blocks(rng: random.Random) -> Case:
    """Gather rows of blocks as onnxruntime does, with attributes and shapes that do not fit."""
    from onnx import helper

    width = 32
    data = _codes(rng, "uint8", ROWS, width // 2)
    attributes: dict[str, Any] = {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    changed = rng.choice((*attributes, "scale", "zero", "indices"))
    scale: Any = np.full((ROWS, 2), 0.1, "f4")
    zero: Any = _codes(rng, "uint8", ROWS, 1)
    if changed in attributes:
        values = [value for value in (*_WRONG, 8) if changed != "gather_axis" or value not in (0,)]
        attributes[changed] = rng.choice(values)
    elif changed == "scale":
        scale = np.ones(rng.choice(((ROWS,), (ROWS, 3), (2, ROWS), (0, 2), (1, 1, 2))), "f4")
    elif changed == "zero":
        zero = np.zeros(rng.choice(((3,), (ROWS, 2, 1), (2, 1), (0, 1))), "u1")
    tensors = [_tensor("wpe_Q4", data), _tensor("s", scale), _tensor("z", zero)]
    names = ["wpe_Q4", "i", "s", "z"]
    if changed == "indices":
        names = names[: rng.choice((0, 1, 2, 3))]
    node = helper.make_node(
        "GatherBlockQuantized", names, ["rows"], domain="com.microsoft", **attributes
    )
    graph = helper.make_graph([node], "graph", [], [], tensors)
    case = _case(helper.make_model(graph), f"gathered blocks: {changed}")
    # No package but onnxruntime knows the operator: what is left is to refuse or read it.
    harmless = changed in ("gather_axis", "zero", "indices") or attributes["quantize_axis"] == -1
    return Case(
        case.what,
        case.argv,
        case.files,
        outputs=case.outputs,
        expected="any" if harmless or attributes["bits"] == 0 else "error",
    )


def _external(rng: random.Random) -> Case:
    """Keep the numbers in a file beside the model, or say that they are elsewhere."""
    model = _any_model(rng)
    tensor = next(t for t in model.graph.initializer if t.name.startswith("wpe"))
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    start = rng.choice((0, 64))
    stated: dict[str, Any] = {"location": "a.data", "offset": start, "length": len(raw)}
    files: dict[str, bytes] = {"m/a.data": bytes(start) + raw, "secret": bytes(start) + raw}
    special: dict[str, str] = {}
    expected = "error"
    kind = rng.choice(("sound", "outside", "offset", "length", "key", "short", "special", "twice"))
    match kind:
        case "sound":
            expected = "accepted"
        case "outside":
            stated["location"] = rng.choice(_OUTSIDE)
        case "offset" | "length":
            text = rng.choice((*_WRONG[1:], 10**400 - 1, "x", "", "0x40", "1e3", "\u0663", " 8"))
            stated[kind] = text
            expected = "any"
        case "key":
            stated[rng.choice(("location", "offset", "length", "checksum", "x" * 3000))] = "\x1b[2J"
            expected = "any"
        case "short":
            files["m/a.data"] = files["m/a.data"][:-1]
        case "special":
            del files["m/a.data"]
            special["m/a.data"] = rng.choice(
                ("fifo", "folder", "absent", "link ../secret", "link a.data", "link /dev/zero")
            )
        case _:
            expected = "any"
    for key, value in stated.items():
        text = value if isinstance(value, str) else "9" * 400 if value > 2**70 else str(value)
        tensor.external_data.add(key=key, value=text)
    if kind == "twice":
        tensor.external_data.add(key="location", value="../secret")
    return _case(
        model,
        f"external data: {kind}",
        expected,
        files=files,
        special=special,
        look=kind != "sound" and expected == "any" and rng.random() < 0.2,
    )


def _graph(rng: random.Random) -> Case:
    """Let names, nodes and graphs within graphs be what no exporter writes."""
    from onnx import helper

    model = _any_model(rng)
    kind = rng.choice(("name", "again", "deep", "cycle", "many", "empty", "operator", "constant"))
    look = True
    match kind:
        case "name":
            bad = rng.choice(build.HOSTILE).encode("utf-8", "replace").decode()
            model.graph.initializer.append(_tensor(bad, build.table(rng, ROWS, WIDTH)))
            model.graph.node.append(helper.make_node("Add", ["x", bad], [bad + "y"], name=bad))
        case "again":
            name = rng.choice([tensor.name for tensor in model.graph.initializer])
            model.graph.initializer.append(_tensor(name, build.table(rng, ROWS, WIDTH)))
        case "deep":
            content = model.graph.SerializeToString(deterministic=True)
            for _ in range(rng.choice((5, 20, 45, 500))):
                for number in (6, 5, 1):  # of an attribute, of a node, of a graph
                    content = _message(number, content)
            return _case(_message(7, content), f"graph: {kind}", look=True)
        case "cycle":
            for number in range(200):
                names = [f"v{number}"], [f"v{(number + 1) % 200}"]
                model.graph.node.append(helper.make_node("Identity", *names))
            model.graph.node.append(helper.make_node("Gather", ["wpe", "v0"], ["rows"]))
        case "many":
            for number in range(3000):
                model.graph.node.append(helper.make_node("Identity", ["wpe"], [f"v{number}"]))
        case "empty":
            model.graph.node.append(helper.make_node("DequantizeLinear", [], []))
            model.graph.node.append(helper.make_node("Gather", ["wpe"], [""]))
            model.graph.node.append(helper.make_node("Gather", ["wpe_quantized"], []))
            model.graph.node.append(helper.make_node("Constant", [], [], value=_tensor("", [1])))
        case "operator":
            for node in model.graph.node:
                node.op_type = rng.choice(("Gather", "Slice", "EmbedLayerNormalization", "\x1b"))
        case _:
            tensor = model.graph.initializer[0]
            node = helper.make_node("Constant", [], [tensor.name], value=tensor)
            del model.graph.initializer[0]
            model.graph.node.insert(0, node)
            look = rng.random() < 0.5
    return _case(model, f"graph: {kind}", look=look)


def _message(number: int, content: bytes) -> bytes:
    """Put a message into a field of another, as protobuf writes it."""
    length, rest = b"", len(content)
    while rest > 127:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + content


WARM: tuple[tuple[str, ...], ...] = ()


def prepare() -> None:
    """Import what every case needs."""
    import onnx.reference

    import posprobe.checkpoints.onnx

    assert callable(onnx.reference.ReferenceEvaluator)
    assert callable(posprobe.checkpoints.onnx.read_onnx)
