"""GGUF: counts, sizes, places and types of tensors that lie.

The gguf package reads the same bytes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuzz import build
from fuzz.build import HUGE
from fuzz.case import Case

GGUF_NAME, WHISPER_NAME = "position_embd.weight", "decoder.positional_embedding"


@dataclass
class _Tensor:
    """An entry of a header, and its bytes."""

    name: bytes
    shape: Sequence[int]
    kind: int
    data: bytes
    offset: int | None = None


def _text(content: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(content) if length is None else length) + content


def _string(key: bytes, value: bytes) -> bytes:
    return _text(key) + struct.pack("<I", 8) + _text(value)


def _number(key: bytes, value: int) -> bytes:
    return _text(key) + struct.pack("<II", 4, value)


def _gguf(
    tensors: Sequence[_Tensor],
    settings: Sequence[bytes] = (),
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    align: int = 32,
    ranks: int | None = None,
    arch: bytes = b"gpt2",
) -> bytes:
    settings = [_string(b"general.architecture", arch), *settings]
    counted = counts or (len(tensors), len(settings))
    head = b"GGUF" + struct.pack("<IQQ", version, *counted) + b"".join(settings)
    data = b""
    for tensor in tensors:
        rank = len(tensor.shape) if ranks is None else ranks
        head += _text(tensor.name) + struct.pack("<I", rank)
        head += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape[::-1])
        offset = len(data) if tensor.offset is None else tensor.offset
        head += struct.pack("<IQ", tensor.kind, offset)
        data += tensor.data + bytes(-len(tensor.data) % align)
    return head + bytes(-len(head) % align) + data


def _stored(rng: random.Random, name: bytes, kind: int | None = None) -> tuple[_Tensor, Any]:
    """Draw a tensor, and return it with its numbers."""
    import gguf

    chosen = rng.choice((0, 0, 1, 28, 30, 2, 3, 6, 7, 8)) if kind is None else kind
    values = build.table(rng, 8, 32)
    if chosen == 28:
        return _Tensor(name, (8, 32), chosen, values.astype("<f8").tobytes()), values
    sort = gguf.GGMLQuantizationType(chosen)
    blocks = gguf.quants.quantize(values, sort)
    numbers = gguf.quants.dequantize(blocks, sort)
    return _Tensor(name, (8, 32), chosen, blocks.tobytes()), numbers


def _tensors(rng: random.Random) -> list[_Tensor]:
    found = [_stored(rng, GGUF_NAME.encode())[0], _stored(rng, b"token_embd.weight")[0]]
    rng.shuffle(found)
    return found


def _case(content: bytes, what: str, expected: Any = "any", **more: Any) -> Case:
    return build.extract(what, {"a.gguf": content}, GGUF_NAME, expected=expected, **more)


def _sound(rng: random.Random) -> Case:
    settings = [_number(b"gpt2.context_length", 8), _number(b"gpt2.embedding_length", 32)]
    align = rng.choice((32, 64, 8))
    if align != 32 or rng.random() < 0.2:
        settings.append(_number(b"general.alignment", align))
    content = _gguf(_tensors(rng), settings, version=rng.choice((2, 3)), align=align)
    return _case(content, "sound", "accepted")


def _damaged(rng: random.Random) -> Case:
    what, content = build.damage(rng, _gguf(_tensors(rng)))
    return _case(content, what, look=rng.random() < 0.3)


def _header(rng: random.Random) -> Case:
    """Change the header's numbers, or those of one of its tensors."""
    tensors = _tensors(rng)
    chosen = rng.choice(tensors)
    count = rng.choice((*HUGE, 3))
    counts = rng.choice(((count, 1), (2, count), (2, 0), (2, 2)))
    given: dict[str, Any] = {
        "counts": counts, "ranks": rng.choice((0, 1, 3, 5, 2**16, 2**32 - 1)),
        "version": rng.choice((0, 1, 4, 3 << 24, 2**32 - 1)),
    }  # fmt: skip
    fields: dict[str, tuple[Any, ...]] = {
        "offset": (*HUGE, 10**5),
        "kind": (4, 5, 31, 38, 42, 99, 2**31, 2**32 - 1, 9, 24, 16),
        "shape": ((0, 32), (8, 0), (2**40, 32), (2**32, 2**32), (2**63, 2), (8, 31), (8, 33),
                  (9, 32), (1,) * 5, (1, 1, 8, 32), (256,)),
        "name": tuple(text.encode("utf-8", "surrogatepass") * 2 for text in build.HOSTILE),
    }  # fmt: skip
    kind = rng.choice((*given, *fields, "twice", "unaligned", "magic", "none"))
    if kind in fields:
        setattr(chosen, kind, rng.choice(fields[kind]))
    elif kind == "twice":
        tensors[0].name = tensors[1].name = GGUF_NAME.encode()
    elif kind == "unaligned":
        tensors[1].offset = rng.choice((1, 33, len(tensors[0].data) + 1))
    elif kind == "none":
        tensors = []
    content = _gguf(tensors, **{kind: given[kind]} if kind in given else {})
    content = b"FUGG" + content[4:] if kind == "magic" else content
    open_ended = kind in ("kind", "shape", "name", "unaligned")
    expected = "any" if open_ended else "error"
    return _case(content, f"header: {kind}", expected, look=kind == "name")


def _settings(rng: random.Random) -> Case:
    """Let settings be of other kinds, lengths and sizes than they are."""
    arch = rng.choice((b"gpt2", b"llama"))
    ending = rng.choice(
        (b"context_length", b"embedding_length", b"attention.head_count", b"rope.freq_base",
         b"attention.max_alibi_bias", b"attention.kv_lora_rank", b"rope.dimension_count",
         b"rope.dimension_sections", b"rope.freq_base_swa", b"rope.scaling.type",
         b"rope.scaling.factor", b"rope.scaling.attn_factor",
         b"rope.scaling.original_context_length")
    )  # fmt: skip
    others = (b"general.alignment", b"general.architecture", b"x")
    key = rng.choice((*4 * (arch + b"." + ending,), *others))
    hostile = rng.choice(build.HOSTILE).encode("utf-8", "surrogatepass")
    value = rng.choice(
        (
            struct.pack("<IQ", 10, rng.choice((0, *HUGE))),
            struct.pack("<Iq", 11, rng.choice((-1, -(2**63)))),
            struct.pack("<If", 6, rng.choice((float("nan"), float("inf"), -1.0, 0.0, 3e38))),
            struct.pack("<Id", 12, rng.choice((float("nan"), 1e308, 5e-324))),
            struct.pack("<IB", 7, rng.choice((0, 1, 7))),
            struct.pack("<I", 8) + _text(hostile),
            struct.pack("<I", 8) + _text(b"x", rng.choice(HUGE)),
            struct.pack("<I", rng.choice((13, 99, 2**32 - 1))) + bytes(8),
            struct.pack("<IIQ", 9, rng.choice((4, 8, 9, 99)), rng.choice(HUGE)) + bytes(8),
            struct.pack("<IIQ", 9, 9, 1) * 500,
            struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3),
            struct.pack("<IIQ", 9, 8, 2) + _text(hostile) + _text(b""),
            struct.pack("<IIQ", 9, 4, 0),
        )
    )
    if rng.random() < 0.1:
        key = rng.choice((hostile, b"", b"x" * 70_000))
    settings = [_text(key) + value]
    if rng.random() < 0.1:
        settings *= 2
    look = rng.random() < 0.6
    what = f"setting {key[:40].decode('ascii', 'replace')}"
    if arch == b"llama":  # whose other settings are sound
        for name in (b"context_length", b"embedding_length", b"attention.head_count"):
            settings += [_number(b"llama." + name, 32)] * (name != ending)
    return _case(_gguf(_tensors(rng), settings, arch=arch), what, look=look)


make = build.one_of((2, _sound), (3, _damaged), (5, _header), (4, _settings))
NEEDS = ("gguf",)
