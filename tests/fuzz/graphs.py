"""ONNX models: quantised tables whose scales do not fit, data elsewhere, graphs that lie.

The onnx package reads the same bytes and dequantises with its own operator: numbers are its.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import build
from fuzz.case import Case

ROWS = 8
WIDTH = 6
GATHERED = Path(__file__).parents[1] / "data" / "formats" / "int4_zero.onnx"
#: Data that lie outside the model's folder, or nowhere.
_OUTSIDE = (
    "/etc/passwd", "../secret", "a/../../secret", "..\\secret", "C:\\x", "file:///etc/passwd", "",
    ".", "./", "weights/..", "a\x1b[2J", "\u202ecod", "x" * 5000,
)  # fmt: skip


def _case(model: Any, subject: str, expected: Any = "any", **options: Any) -> Case:
    content = (
        model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    )
    files = {"m/a.onnx": content, **options.pop("files", {})}
    return build.extract(subject, files, "wpe", expected=expected, **options)


def _tensor(name: str, values: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(values), name)


def _model(tensors: list[Any], **attributes: Any) -> Any:
    """Write a model whose table is dequantised, where it is, and added to an input."""
    from onnx import TensorProto, helper

    names = [tensor.name for tensor in tensors]
    nodes = []
    if "wpe_quantized" in names:
        inputs = ["wpe_quantized", *(name for name in ("s", "z") if name in names)]
        nodes = [helper.make_node("DequantizeLinear", inputs, ["table"], **attributes)]
    nodes.append(
        helper.make_node("Add", ["x", "table" if nodes else "wpe"], ["y"], name="/Add")
    )
    given_x, given_y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", ROWS, WIDTH])
        for name in "xy"
    )
    graph = helper.make_graph(nodes, "graph", [given_x], [given_y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def _codes(rng: random.Random, dtype: str, *shape: int) -> Any:
    import ml_dtypes

    low, high = {
        "int4": (-8, 7),
        "uint4": (0, 15),
        "int8": (-128, 127),
        "uint8": (0, 255),
    }[dtype]
    codes = np.random.default_rng(rng.getrandbits(32)).integers(low, high + 1, shape)
    return codes.astype(getattr(ml_dtypes, dtype) if dtype.endswith("4") else dtype)


def _quantised(
    rng: random.Random, *, axis: int | None = None, block: int = 0
) -> dict[str, Any]:
    """Draw codes, scales and zero points that fit: of one scale, of one a channel, or of blocks."""
    dtype = rng.choice(("int4", "uint4", "int8", "uint8"))
    sizes = [
        ROWS,
        rng.choice((WIDTH, WIDTH - 1)),
    ]  # of 4 bits an odd number leaves half a byte
    shape: tuple[int, ...] = ()
    if axis is not None:
        blocks = [*sizes]
        blocks[axis] = -(-sizes[axis] // (block or 1))
        shape = tuple(blocks) if block else (sizes[axis],)
    scale = np.random.default_rng(rng.getrandbits(32)).uniform(0.01, 0.1, shape)
    tensors = {
        "codes": _codes(rng, dtype, *sizes),
        "scale": scale.astype(rng.choice(("f4", "f2"))),
    }
    return tensors | ({"zero": _codes(rng, dtype, *shape)} if rng.random() < 0.6 else {})


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
    subject, content = build.damage(
        rng, _any_model(rng).SerializeToString(deterministic=True)
    )
    return _case(content, subject, look=rng.random() < 0.3)


def _altered(rng: random.Random, message: Any) -> str:
    """Change a field of a message or of one within it, and return the field's name."""
    skipped_fields = ("domain", "type")  # which posprobe need not look at
    fields = [
        (field, value)
        for field, value in message.ListFields()
        if field.name not in skipped_fields
    ]
    if not fields:
        return "nothing"
    field, value = rng.choice(fields)
    is_repeated = field.is_repeated
    if field.type == field.TYPE_MESSAGE:
        inner = rng.choice(list(value)) if is_repeated else value
        if not is_repeated or rng.random() < 0.85:
            return _altered(rng, inner)
        if rng.random() < 0.5:
            value.append(inner)
        else:
            value.remove(inner)
        return str(field.name)
    if rng.random() < 0.15:
        message.ClearField(field.name)
        return str(field.name)
    old = rng.choice(list(value)) if is_repeated else value
    if isinstance(old, bytes):
        new: Any = rng.choice(
            (old[:-1], old + bytes(rng.choice((1, 4, 1000))), old[:3], b"")
        )
    elif isinstance(old, str):
        new = rng.choice(
            (rng.choice(build.HOSTILE).encode("utf-8", "replace").decode(), "", "wpe")
        )
    elif isinstance(old, float):
        new = rng.choice((float("nan"), float("inf"), 0.0, -1.0, 6e4))
    elif field.enum_type:
        new = rng.choice([value.number for value in field.enum_type.values])
    else:
        new = rng.choice(
            (0, 1, -1, -4, 3, 7, 8, 16, 64, 2**31 - 1, -(2**31), 2**40, -(2**62))
        )
    with suppress(ValueError):  # of 32 bits
        if is_repeated:
            place = list(value).index(old)
            value[place] = new
            if rng.random() < 0.2:
                value.append(new)
        else:
            setattr(message, field.name, new)
    return str(field.name)


def _fields(rng: random.Random) -> Case:
    """Let names, shapes, types, numbers and attributes be what no exporter writes."""
    import onnx

    gathered = rng.random() < 0.2  # blocks, as onnxruntime gathers rows of them
    model = onnx.load(GATHERED) if gathered else _any_model(rng)
    names_before, graph = _names(model), model.graph
    part = rng.choice(
        (*graph.initializer, *graph.node, *graph.initializer, *graph.node, graph)
    )
    changed_fields = {_altered(rng, part) for _ in range(rng.choice((1, 1, 1, 2)))}
    # Where the table is called otherwise, posprobe and the package may take another one for it.
    options: dict[str, Any] = (
        {} if _names(model) == names_before and not gathered else {"read": None}
    )
    return _case(
        model,
        f"fields: {', '.join(sorted(changed_fields))}",
        look=rng.random() < 0.2,
        **options,
    )


def _names(model: Any) -> list[Any]:
    """What says which tensor is the table."""
    graph = model.graph
    nodes = [
        (
            node.op_type,
            *node.input,
            *node.output,
            *(attribute.name for attribute in node.attribute),
        )
        for node in graph.node
    ]
    return [*nodes, *(tensor.name for tensor in graph.initializer)]


def _scales(rng: random.Random) -> Case:
    """Let scales and zero points not fit the codes."""
    axis, block = rng.choice(((0, 0), (1, 0), (1, 2), (0, 3)))
    parts = _quantised(rng, axis=axis, block=block)
    attributes: dict[str, Any] = {
        "axis": axis,
        **({"block_size": block} if block else {}),
    }
    scale, codes = parts["scale"], parts["codes"].dtype
    shape = rng.choice(
        (
            (0,),
            (1,),
            (2,),
            (7,),
            (ROWS + 1,),
            (1, 1),
            (ROWS, 1),
            (1, ROWS),
            (ROWS, 3, 1),
            (0, 0),
        )
    )
    kind, replacement = rng.choice(
        (
            ("scale", {"scale": np.ones(shape, "f4")}),
            ("zero", {"zero": np.zeros(shape, codes)}),
            (
                "typed",
                {"scale": np.ones(scale.shape, rng.choice(("i4", "f8", "?", "c8")))},
            ),
            (
                "dtype",
                {"zero": np.zeros(scale.shape, rng.choice(("i4", "f4", "u1", "i2")))},
            ),
        )
    )
    return _case(_model(_tensors(parts | replacement), **attributes), f"scales: {kind}")


def _external(rng: random.Random) -> Case:
    """Keep the numbers in a file beside the model, or say that they are elsewhere."""
    model = _any_model(rng)
    tensor = next(t for t in model.graph.initializer if t.name.startswith("wpe"))
    raw, start = tensor.raw_data, rng.choice((0, 64))
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    location: dict[str, Any] = {"location": "a.data", "offset": start, "length": len(raw)}
    files = {name: bytes(start) + raw for name in ("m/a.data", "secret")}
    special: dict[str, str] = {}
    number = rng.choice(
        (-1, 3, 2**40, -(2**62), "9" * 400, "x", "", "0x40", "1e3", "\u0663", " 8")
    )
    key, kind = (
        rng.choice(("offset", "length")),
        rng.choice(("sound", "outside", "key", "special")),
    )
    if kind == "key":
        location[key] = number
    elif kind == "outside":
        location["location"] = rng.choice(_OUTSIDE)
    elif kind == "special":
        del files["m/a.data"]
        special["m/a.data"] = rng.choice(
            (*build.SPECIAL, "link ../secret", "link a.data")
        )
    for name, value in location.items():
        tensor.external_data.add(key=name, value=str(value))
    readable = kind == "key" or any(
        special_kind.startswith("sparse") for special_kind in special.values()
    )
    expected = "accepted" if kind == "sound" else "any" if readable else "error"
    return _case(model, f"external data: {kind}", expected, files=files, special=special)


make = build.one_of(
    (3, _sound), (3, _damaged), (9, _fields), (4, _scales), (3, _external)
)
NEEDS = ("onnx.reference",)
