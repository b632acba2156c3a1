"""Pickles with more than tensors: stand-ins for what lies beside the weights, and TorchScript.

A file with a canary is refused or leaves no canary; a sound one has the numbers of a safetensors
file beside it. Programs of pickle instructions at random may end in anything but a broken promise.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np

from fuzz import build
from fuzz.archives import TENSOR, zipped
from fuzz.case import Case

#: Names of classes and functions: harmless, unknown, PyTorch's own, and such that act.
_HARMLESS = (
    "numpy.core.multiarray scalar", "numpy dtype", "numpy ndarray", "pathlib PosixPath",
    "datetime datetime", "collections defaultdict", "collections deque", "copyreg _reconstructor",
    "pytorch_lightning.utilities.parsing AttributeDict", "my.script Meter", "__main__ Options",
    "functools partial", "enum Enum", "omegaconf.dictconfig DictConfig", "builtins list",
    "argparse Namespace", "collections Counter", "collections OrderedDict", "decimal Decimal",
    "torch.optim.adam Adam", "torch.nn.modules.linear Linear", "uuid UUID", "x" * 400 + " y",
)  # fmt: skip
_ACTING = (
    "posix system", "posix mkdir", "os mkdir", "os system", "nt system", "builtins eval",
    "builtins exec", "builtins getattr", "__builtin__ eval", "subprocess Popen", "runpy run_path",
    "importlib import_module", "shutil rmtree", "sys exit", "pty spawn", "torch load",
    "torch.hub load", "torch.serialization load", "ctypes CDLL", "pickle loads", "_pickle loads",
)  # fmt: skip


def _global(name: str) -> bytes:
    module, _, function = name.partition(" ")
    return f"c{module}\n{function}\n".encode()


def _text(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(content)) + content


def _integer(number: int) -> bytes:
    if -(2**31) <= number < 2**31:
        return b"J" + struct.pack("<i", number)
    content = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def _group(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def _tensor(
    key: str,
    count: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int = 0,
) -> bytes:
    """Write a tensor as `torch.save` and TorchScript do."""
    storage = _group(
        _text("storage"),
        b"ctorch\nFloatStorage\n",
        _text(key),
        _text("cpu"),
        _integer(count),
    )
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n"
        + _group(
            storage + b"Q", _integer(offset), _group(*map(_integer, shape)),
            _group(*map(_integer, strides)), b"\x89", b"ccollections\nOrderedDict\n)R",
        )
        + b"R"
    )  # fmt: skip


def _value(rng: random.Random, names: tuple[str, ...], depth: int = 0) -> bytes:
    """Draw a value: plain, nested, or an object of one of the names."""
    kind = rng.randrange(9 if depth < 4 else 4)
    inner = [_value(rng, names, depth + 1) for _ in range(rng.randrange(3) * (kind > 3))]
    name = rng.choice(names)
    keys = [
        _text(rng.choice(("a", "state", "é", rng.choice(build.HOSTILE)))) for _ in inner
    ]
    items = b"(" + b"".join(k + v for k, v in zip(keys, inner, strict=True)) + b"u"
    return rng.choice(
        (
            (b"N",),
            (b"\x88",),
            (_integer(rng.choice((0, 1, -1, 2**31, 2**62, 10**30))),),
            (_text(rng.choice(("text", "latin1", rng.choice(build.HOSTILE)))),),
            (b"](" + b"".join(inner) + b"e", _group(*inner)),
            (b"}" + items,),
            (_global(name) + _group(*inner) + rng.choice((b"R", b"\x81")),),
            (
                _global(name) + b")\x81}" + items + b"b",
                _global(name) + b")\x81" + _group(*inner) + b"b",
            ),
            (
                _global(name) + rng.choice((b")R", b")\x81")) + items,
                _global(name) + b")R(" + b"".join(inner) + b"e",
            ),
        )[kind]
    )


def _weights(rng: random.Random) -> tuple[bytes, bytes, bytes]:
    """Draw a table: its pickled call, its bytes, and a safetensors file with it."""
    values = build.table(rng, 8, 4)
    code = _tensor("0", values.size, (8, 4), (4, 1))
    return code, values.tobytes(), build.safetensors({TENSOR: values})


def _packed(pickled: bytes, data: bytes) -> bytes:
    return build.archive(
        ("archive/data.pkl", pickled),
        ("archive/version", b"3\n"),
        ("archive/byteorder", b"little"),
        ("archive/data/0", data),
    )


def _case(
    content: bytes,
    plain: bytes,
    subject: str,
    expected: Any = "any",
    *,
    read: bool = True,
) -> Case:
    files = {"t.bin": content, "plain.safetensors": plain}
    options: dict[str, Any] = {"read": ("plain.safetensors", TENSOR) if read else None}
    return build.extract(subject, files, TENSOR, expected=expected, **options)


def _saved(rng: random.Random, names: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Save a state dict with extras of some names beside it."""
    code, data, plain = _weights(rng)
    weights = b"}(" + _text(TENSOR) + code + b"u"
    extras = b"".join(
        _text(f"x{number}") + _value(rng, names) for number in range(rng.randrange(1, 4))
    )
    before, after = rng.choice(((extras, b""), (b"", extras)))
    content = b"}(" + before + _text("state_dict") + weights + after + b"u."
    return _packed(b"\x80\x02" + content, data), plain


def _harmless(rng: random.Random) -> Case:
    content, plain = _saved(rng, _HARMLESS)
    return _case(content, plain, "harmless extras")


def _acting(rng: random.Random) -> Case:
    """Call what would leave a canary, with a canary for it."""
    code, data, plain = _weights(rng)
    words = _text(
        rng.choice(("canary", "mkdir canary", "__import__('os').mkdir('canary')"))
    )
    act = (
        _global(rng.choice(_ACTING)) + rng.choice((_group(words), words + b"\x85")) + b"R"
    )
    wrapped = rng.choice(
        (
            act,
            b"]" + act + b"a",
            _global(rng.choice(_HARMLESS)) + _group(act) + b"R",
            _global("my.script Meter") + b")\x81" + act + b"b",
        )
    )
    content = b"\x80\x02}(" + _text(TENSOR) + code + _text("x") + wrapped + b"u."
    return _case(_packed(content, data), plain, "an extra that acts")


def _hidden(rng: random.Random) -> Case:
    """Put the weights inside an object."""
    code, data, plain = _weights(rng)
    state = rng.choice((b"}(" + _text("w") + code + b"u", code, code + b"\x85"))
    name = rng.choice(("my.script Net", "torch.nn.modules.linear Linear"))
    content = b"\x80\x02}(" + _text("model") + _global(name) + b")\x81" + state + b"bu."
    return _case(_packed(content, data), plain, "hidden weights", "error", read=False)


def _program(rng: random.Random) -> Case:
    """Follow instructions in an order that no writer has."""
    pieces = [
        b"}", b"]", b")", b"(", b"N", b"\x88", b"R", b"\x81", b"b", b"u", b"s", b"e", b"a", b"t",
        b"\x85", b"\x86", b"Q", b"q\0", b"h\0", b"q\1", b"h\1", b"0", b"2", b"o",
        b"\x8a\1\5", b"r" + struct.pack("<I", rng.choice((7, 2**20, 2**31, 2**32 - 1))),
        _text(TENSOR), _tensor("0", 32, (8, 4), (4, 1)),
        *(_global(rng.choice(_HARMLESS)) for _ in range(4)), _global(rng.choice(_ACTING)),
        b"imy.script\nMeter\n", b"\x8c\1a", b"\x93", b"\x94", b"\x92", b"\x82\1",
    ]  # fmt: skip
    body = b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 60)))
    code, data, plain = _weights(rng)
    content = b"\x80\x02}(" + _text(TENSOR) + code + _text("x") + body + b"u."
    if rng.random() < 0.3:
        return _case(zipped(b"\x80\x02" + body + b"."), plain, "a program", read=False)
    return _case(_packed(content, data), plain, "a program beside weights", read=False)


def _script_members(
    rng: random.Random, code: bytes, data: bytes, extra: bytes = b""
) -> list[tuple[str, bytes]]:
    attributes = b"}(" + _text("training") + b"\x88" + _text("pos") + b"N" + extra
    inner = (
        _global("__torch__.torch.nn Embedding")
        if rng.random() < 0.5
        else b"c__torch__\nE\n"
    )
    part = inner + b")\x81}(" + _text("weight") + code + b"ub"
    module = b"c__torch__\nM\n)\x81" + attributes + _text("wpe") + part + b"ub"
    return [
        ("m/data/0", data),
        ("m/data.pkl", b"\x80\x02" + module + b"."),
        ("m/code/__torch__.py", b"import os\nos.mkdir('canary')\n"),
        ("m/constants.pkl", b"\x80\x02cposix\nmkdir\n(S'canary'\ntR."),
        ("m/version", b"3\n"),
    ]


def _script(rng: random.Random) -> Case:
    code, data, plain = _weights(rng)
    return _case(
        build.archive(*_script_members(rng, code, data)), plain, "TorchScript", "accepted"
    )


def _script_records(rng: random.Random) -> Case:
    """Let a tensor of TorchScript ask for numbers that its record does not have."""
    numbers = (0, 1, 4, 8, 31, 32, 33, -1, 2**31, 2**40, 2**63)
    shape = tuple(rng.choice(numbers) for _ in range(rng.choice((0, 1, 2, 2, 3, 70))))
    strides = tuple(rng.choice(numbers) for _ in range(len(shape) - (rng.random() < 0.1)))
    key = rng.choice(("0", "0", "1", "../data.pkl", "", "0\0"))
    code = _tensor(key, rng.choice(numbers), shape, strides, rng.choice(numbers))
    _, data, plain = _weights(rng)
    content = build.archive(*_script_members(rng, code, data))
    return _case(content, plain, f"a record of shape {shape[:4]}", read=False)


def _script_damaged(rng: random.Random) -> Case:
    code, data, plain = _weights(rng)
    extra = _text("x") + _value(rng, _HARMLESS + _ACTING)
    content = build.archive(*_script_members(rng, code, data, extra))
    kind = rng.randrange(3)
    if kind == 0:
        subject, content = build.damage(rng, content)
    elif kind == 1:
        evil = ("m/data/../data.pkl", b"\x80\x02cposix\nmkdir\n(S'canary'\ntR.")
        subject, content = build.repacked(rng, content, evil)
    else:
        subject = "extras"
    return _case(content, plain, f"TorchScript: {subject}", read=False)


def _any_name(rng: random.Random) -> Case:
    """Give a sound file of one format a name of another."""
    import io

    values = build.table(rng, 8, 4)
    stream = io.BytesIO()
    np.save(stream, values)
    content, plain = _saved(rng, ("pathlib PosixPath",))
    content = rng.choice(
        (content, plain, stream.getvalue(), b"GGUF" + bytes(12), b"{}", b"")
    )
    name = rng.choice(
        ("t.ckpt", "t.pth.tar", "t.th", "t.model", "t", "t.bin", "t.safetensors")
    )
    return Case(
        "a name of any format", ("inspect", f"./{name}", "--json"), {name: content}
    )


make = build.one_of(
    (3, _harmless),
    (3, _acting),
    (1, _hidden),
    (4, _program),
    (1, _script),
    (3, _script_records),
    (3, _script_damaged),
    (2, _any_name),
)
NEEDS = ("torch",)
