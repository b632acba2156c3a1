"""GGUF: counts, sizes, places and types of tensors that lie.

The gguf package reads the same bytes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from fuzz import build
from fuzz.build import HUGE
from fuzz.case import Case

GGUF_NAME = "position_embd.weight"


def _text(content: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(content) if length is None else length) + content


def _number(key: bytes, value: int) -> bytes:
    return _text(key) + struct.pack("<II", 4, value)


def _gguf(
    rng: random.Random,
    settings: Sequence[bytes] = (),
    align: int = 32,
    arch: bytes = b"gpt2",
) -> bytes:
    """Write two tensors of types that are drawn."""
    import gguf

    settings = [
        _text(b"general.architecture") + struct.pack("<I", 8) + _text(arch),
        *settings,
    ]
    head = (
        b"GGUF"
        + struct.pack("<IQQ", rng.choice((2, 3)), 2, len(settings))
        + b"".join(settings)
    )
    data = b""
    for name in rng.sample((GGUF_NAME.encode(), b"token_embd.weight"), 2):
        kind, values = (
            rng.choice((0, 0, 1, 28, 30, 2, 3, 6, 7, 8)),
            build.table(rng, 8, 32),
        )
        head += _text(name) + struct.pack("<I2QIQ", 2, 32, 8, kind, len(data))
        sort = gguf.GGMLQuantizationType(kind)
        blocks = (
            values.astype("<f8") if kind == 28 else gguf.quants.quantize(values, sort)
        )
        data += blocks.tobytes() + bytes(-blocks.nbytes % align)
    return head + bytes(-len(head) % align) + data


def _case(content: bytes, subject: str, expected: Any = "any", **options: Any) -> Case:
    return build.extract(
        subject, {"a.gguf": content}, GGUF_NAME, expected=expected, **options
    )


def _sound(rng: random.Random) -> Case:
    settings = [_number(b"gpt2.context_length", 8), _number(b"gpt2.embedding_length", 32)]
    align = rng.choice((32, 64, 8))
    if align != 32 or rng.random() < 0.2:
        settings.append(_number(b"general.alignment", align))
    return _case(_gguf(rng, settings, align), "sound", "accepted")


def _damaged(rng: random.Random) -> Case:
    subject, content = build.damage(rng, _gguf(rng))
    return _case(content, subject, look=rng.random() < 0.3)


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
    other_keys = (b"general.alignment", b"general.architecture", b"x")
    key = rng.choice((*4 * (arch + b"." + ending,), *other_keys))
    hostile = rng.choice(build.HOSTILE).encode("utf-8", "surrogatepass")
    value = rng.choice(
        (
            struct.pack("<IQ", 10, rng.choice((0, *HUGE))),
            struct.pack("<Iq", 11, rng.choice((-1, -(2**63)))),
            struct.pack(
                "<If", 6, rng.choice((float("nan"), float("inf"), -1.0, 0.0, 3e38))
            ),
            struct.pack("<Id", 12, rng.choice((float("nan"), 1e308, 5e-324))),
            struct.pack("<IB", 7, rng.choice((0, 1, 7))),
            struct.pack("<I", 8) + _text(hostile),
            struct.pack("<I", 8) + _text(b"x", rng.choice(HUGE)),
            struct.pack("<I", rng.choice((13, 99, 2**32 - 1))) + bytes(8),
            struct.pack("<IIQ", 9, rng.choice((4, 8, 9, 99)), rng.choice(HUGE))
            + bytes(8),
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
    subject = f"setting {key[:40].decode('ascii', 'replace')}"
    if arch == b"llama":  # whose other settings are sound
        for name in (b"context_length", b"embedding_length", b"attention.head_count"):
            settings += [_number(b"llama." + name, 32)] * (name != ending)
    return _case(_gguf(rng, settings, arch=arch), subject, look=look)


make = build.one_of((2, _sound), (8, _damaged), (4, _settings))
NEEDS = ("gguf",)
