"""What models are run on: pictures, texts and files of token ids, of any kind and size."""

from __future__ import annotations

import base64
import functools
import io
import json
import random
import struct
import zlib
from typing import Any

import numpy as np

from fuzz import build, models
from fuzz.arrays import saved
from fuzz.case import Case

#: Sizes that a header may state of a picture.
_SIDES = (0, 1, 8, 4096, 16_383, 65_535, 2**31 - 1, 2**32 - 1)
_FORMATS = (
    "PNG",
    "JPEG",
    "WEBP",
    "TIFF",
    "BMP",
    "GIF",
    "PPM",
    "ICO",
    "TGA",
    "PDF",
    "EPS",
)
_WORDS = ("[UNK]", "a", "word", "to", "run", "on")


# --- pictures ----------------------------------------------------------------------------------


@functools.cache
def _vit() -> dict[str, bytes]:
    """A model of two patches by two, of numbers drawn here."""
    layer = "encoder.layer.0"
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.cls_token": (1, 1, 4), "embeddings.position_embeddings": (1, 5, 4),
        "embeddings.patch_embeddings.projection.weight": (4, 3, 4, 4),
        "embeddings.patch_embeddings.projection.bias": (4,),
        f"{layer}.intermediate.dense.weight": (8, 4), f"{layer}.intermediate.dense.bias": (8,),
        f"{layer}.output.dense.weight": (4, 8), f"{layer}.output.dense.bias": (4,),
        "layernorm.weight": (4,), "layernorm.bias": (4,),
    }  # fmt: skip
    for part in ("attention.query", "attention.key", "attention.value", "output.dense"):
        shapes[f"{layer}.attention.{part}.weight"] = (4, 4)
        shapes[f"{layer}.attention.{part}.bias"] = (4,)
    for part in ("before", "after"):
        shapes |= {f"{layer}.layernorm_{part}.{end}": (4,) for end in ("weight", "bias")}
    config = {
        "model_type": "vit", "architectures": ["ViTModel"], "hidden_size": 4, "patch_size": 4,
        "image_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8,
    }  # fmt: skip
    prepares = {
        "image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8},
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    return {
        "m/config.json": build.dumps(config), "m/preprocessor_config.json": build.dumps(prepares),
        "m/model.safetensors": models.drawn(shapes),
    }  # fmt: skip


def _encoded(rng: random.Random, form: str) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(rng.getrandbits(32)).integers(
        0, 256, (9, 7, 3), np.uint8
    )
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


def _chunk(kind: bytes, content: bytes) -> bytes:
    sum_ = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", sum_)


@functools.cache
def _zeros(size: int) -> bytes:
    """Pack zeros; to pack 64 MB of them takes longer than most cases."""
    return zlib.compress(bytes(size), 9)


def _png(rng: random.Random) -> bytes:
    """A PNG whose sizes, frames, texts or colour profile are not what they should be."""
    wide, high = rng.choice(_SIDES), rng.choice(_SIDES)
    bits, colour = rng.choice(((1, 0), (8, 2), (16, 6), (8, 3), (7, 9)))
    bomb = _zeros(rng.choice((10, 2**20, 2**26)))
    chunks = [
        rng.choice(
            (
                (b"zTXt", b"k\0\0" + bomb), (b"iCCP", b"k\0\0" + bomb),
                (b"iTXt", b"k\0\1\0\0\0" + bomb), (b"acTL", struct.pack(">II", 2**31 - 1, 0)),
                (b"tEXt", b"k\0" + rng.choice(build.HOSTILE).encode("utf-8", "replace")),
                (b"PLTE", bytes(rng.choice((0, 3, 7, 768)))), (b"eXIf", rng.randbytes(64)),
            )
        )
        for _ in range(rng.choice((0, 1, 3, 200)))
    ]  # fmt: skip
    pixels = _zeros(rng.choice((0, 100, 2**24)))
    head = struct.pack(">IIBBBBB", wide, high, bits, colour, 0, 0, rng.choice((0, 1)))
    parts = [(b"IHDR", head), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _picture(rng: random.Random) -> Case:
    form = rng.choice(_FORMATS)
    files = {**_vit(), "pictures/a.png": _encoded(rng, form)}
    if rng.random() < 0.5:
        files["pictures/b.png"] = _encoded(rng, "PNG")
    special: dict[str, str] = {}
    kind = rng.choice(("sound", "spoiled", "spoiled", "spoiled", "png", "png"))
    if kind == "spoiled":
        kind, files, special = build.spoiled(rng, files, "pictures/a.png")
    elif kind == "png":
        files["pictures/a.png"] = _png(rng)
    return _case(f"a picture: {kind} {form}", files, "--images", "pictures", special)


def _case(
    subject: str, files: dict[str, bytes], word: str, place: str, special: dict[str, str]
) -> Case:
    argv = [*models.ARGV, "--only", "states", word, place]
    if word == "--images":
        index = argv.index("--length")
        del argv[index : index + 2]
    return Case(subject, tuple(argv), files, special, outputs=("bundle",))


# --- texts and token ids -----------------------------------------------------------------------


def _gpt2() -> dict[str, bytes]:
    tokenizer = {
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel", "unk_token": "[UNK]",
            "vocab": {word: number for number, word in enumerate(_WORDS)},
        },
    }  # fmt: skip
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "[UNK]",
    }
    sound = models.case("", models.CONFIG).files
    return {
        **sound, "m/tokenizer.json": build.dumps(tokenizer),
        "m/tokenizer_config.json": build.dumps(tokenizer_config),
    }  # fmt: skip


def _normaliser(rng: random.Random) -> dict[str, Any]:
    """A step that makes a text long, tries without end, or has a table that is no table."""
    pattern = rng.choice(
        ({"String": "a"}, {"String": ""}, {"Regex": "(a|aa)+$"}, {"Regex": "("})
    )
    content = rng.choice(("", "a", "a" * 60, "a" * 100_000))
    announced = struct.pack("<I", rng.choice((0, 3, 8, 2**31, 2**32 - 1))) + bytes(12)
    step: dict[str, Any] = rng.choice(
        (
            {"type": "Replace", "pattern": pattern, "content": content},
            {"type": "Prepend", "prepend": content},
            {
                "type": "Precompiled",
                "precompiled_charsmap": base64.b64encode(announced).decode(),
            },
        )
    )
    return {"type": "Sequence", "normalizers": [step] * rng.choice((1, 1, 2, 5))}


def _text(rng: random.Random) -> Case:
    sound = " ".join(rng.choices(_WORDS, k=200)).encode()
    hostile = "\n".join(rng.choices(build.HOSTILE, k=20)).encode("utf-8", "surrogatepass")
    long_text = rng.choice((b"a", b" ", b"\n", b"a ", "字".encode())) * 2**20
    kind, content = rng.choice(
        (
            *4 * (("spoiled", sound),),
            ("sound", sound),
            ("hostile", hostile),
            ("long", long_text),
            *2 * (("normaliser", sound),),
        )
    )
    files, special = {**_gpt2(), "text.txt": content}, dict[str, str]()
    tokenizer = "m/tokenizer.json"
    if kind == "spoiled":
        place = rng.choice(("text.txt", tokenizer, tokenizer, "m/tokenizer_config.json"))
        kind, files, special = build.spoiled(rng, files, place)
    elif kind == "normaliser":
        tokenizer_json = json.loads(files[tokenizer]) | {"normalizer": _normaliser(rng)}
        files[tokenizer] = build.dumps(tokenizer_json)
    return _case(f"a text: {kind}", files, "--text", "text.txt", special)


def _tokens(rng: random.Random) -> Case:
    ids: Any = np.random.default_rng(rng.getrandbits(32)).integers(1, 7, (3, 8))
    odd = ids.copy()
    odd[1, 2] = rng.choice((-1, 8, 2**31, 2**62, -(2**63)))
    dtype = rng.choice(("f4", "?", "u1", "c8", "U3", ">i8", "M8[s]", "O"))
    shape = rng.choice(((), (0, 8), (3, 0), (2, 3, 4), (24,), (3, 2)))
    kind, content = rng.choice(
        (
            *3 * (("spoiled", saved(ids)),),
            ("sound", saved(ids)),
            ("values", saved(odd)),
            ("shape", saved(np.zeros(shape, np.int64))),
            ("dtype", saved(ids.astype(dtype))),
            ("npz", build.archive(("ids.npy", saved(ids)))),
        )
    )
    files, special = {**_gpt2(), "ids.npy": content}, dict[str, str]()
    if kind == "spoiled":
        kind, files, special = build.spoiled(rng, files, "ids.npy")
    return _case(f"token ids: {kind}", files, "--tokens", "ids.npy", special)


make = build.one_of((6, _picture), (4, _text), (4, _tokens))
WARM = models.WARM
NEEDS = (
    *models.NEEDS,
    *(f"transformers.models.vit.{part}_vit" for part in (
        "configuration", "modeling", "image_processing")),
)  # fmt: skip


def prepare() -> None:
    """Import what opens pictures, and tokenizers."""
    import transformers
    from PIL import Image

    Image.init()
    getattr(transformers, "PreTrainedTokenizerFast")  # noqa: B009 - it is imported by this
