"""What the formats of ggml share: types of tensors, and whisper.cpp's older files (``.bin``)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.base import MAX_UNPACKED, Checkpoint, TensorInfo
from posprobe.checkpoints.files import Content, Files, View
from posprobe.errors import InvalidCheckpoint, InvalidTable, MissingExtra
from posprobe.quantisation import Quantisation

#: Types of tensors by their number: name, numbers in a block, bytes of a block.
TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 28: ("F64", 1, 8), 30: ("BF16", 1, 2),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}  # fmt: skip
_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}
#: Types whose values are evenly spaced: where in a block their codes stand, or the low bits of
#: them, and a byte in which every code is 1. The other bytes are scales and offsets.
_CODES: Mapping[str, tuple[slice, int]] = {
    "Q4_0": (slice(2, 18), 0x11), "Q4_1": (slice(4, 20), 0x11), "Q5_0": (slice(6, 22), 0x11),
    "Q5_1": (slice(8, 24), 0x11), "Q8_0": (slice(2, 34), 0x01), "Q2_K": (slice(16, 80), 0x55),
    "Q3_K": (slice(32, 96), 0x55), "Q4_K": (slice(16, 144), 0x11),
    "Q5_K": (slice(48, 176), 0x11), "Q6_K": (slice(128), 0x11),
}  # fmt: skip
_SIZES = (
    "n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx",
    "n_text_state", "n_text_head", "n_text_layer", "n_mels", "ftype",
)  # fmt: skip
_MOST_WORDS, _MOST_TENSORS, _MOST_DIMENSIONS, _LONGEST_NAME = 2**20, 100_000, 4, 300


def place_tensor(name: str, shape: tuple[int, ...], kind: int, file: str, start: int) -> TensorInfo:
    """Describe a tensor of one of ggml's types that begins at byte ``start``.

    Raises
    ------
    InvalidCheckpoint
        If there is no such type, or the last axis is not a whole number of blocks.
    """
    if kind not in TYPES:
        raise InvalidCheckpoint(
            f"{file}: tensor {name[:80]!r} is of ggml's type {kind}, which is not known here. "
            "Convert the model to another type, such as F16."
        )
    dtype, block, width = TYPES[kind]
    if (shape[-1] if shape else 1) % block:
        raise InvalidCheckpoint(
            f"{file}: tensor {name[:80]!r}, shape {list(shape)}, is of the type {dtype}, which has "
            f"{block} numbers in a block. The file is damaged: download it again."
        )
    stop = start + math.prod(shape) // block * width
    if block == 1:
        return TensorInfo(name, shape, dtype, file, start, stop)
    return TensorInfo(name, shape, "F32", file, start, stop, Quantisation(dtype))


def dequantise(
    info: TensorInfo, data: bytes | memoryview[int]
) -> tuple[NDArray[np.floating[Any]], float | None]:
    """Turn a tensor's blocks into numbers with the gguf package.

    Returns
    -------
    tuple
        The values in the tensor's shape, and the distance between neighbouring values that they
        can take, the median over the blocks; None for types whose values are not evenly spaced.

    Raises
    ------
    MissingExtra
        If the gguf package is not installed.
    InvalidTable
        If it cannot turn this type into numbers.
    """
    kind = info.quantisation.name if info.quantisation else ""
    if find_spec("gguf") is None:
        raise MissingExtra(
            f"{info.file}: tensor {info.name} is quantised ({kind}), and is turned into numbers "
            "with gguf, which is not installed. Run `uv sync --extra gguf`."
        )
    if 4 * math.prod(info.shape) > MAX_UNPACKED:
        raise InvalidTable(
            f"{info.file}: tensor {info.name}, shape {list(info.shape)}, unpacks to more than "
            f"{MAX_UNPACKED} bytes, and is not a table of positions."
        )
    import gguf

    blocks = np.frombuffer(data, np.uint8).reshape(-1, TYPES[_NUMBERS[kind]][2])
    kind_there = gguf.GGMLQuantizationType(_NUMBERS[kind])
    try:
        values = gguf.quants.dequantize(blocks, kind_there).reshape(info.shape)
    except NotImplementedError as error:
        raise InvalidTable(
            f"{info.file}: tensor {info.name} is quantised ({kind}), which the gguf package cannot "
            "turn into numbers. Convert the model to another type, such as F16."
        ) from error
    if kind not in _CODES:
        return values, None
    where, ones = _CODES[kind]
    low, high = blocks.copy(), blocks.copy()
    low[:, where], high[:, where] = 0, ones
    steps = gguf.quants.dequantize(high, kind_there) - gguf.quants.dequantize(low, kind_there)
    return values, float(np.median(np.abs(steps)))


def read_ggml(files: Files, name: str) -> Checkpoint:
    """Read the tensors' names of a model of whisper.cpp in the format that came before GGUF.

    It is the magic number, eleven sizes, the filters of mel bins, the vocabulary, and the tensors
    one after the other, each behind its own sizes.

    Raises
    ------
    InvalidCheckpoint
        If it is damaged, or another model's.
    """
    tensors, config = parse_whisper(View.of(files, name), name)
    return Checkpoint(
        name,
        tensors,
        lambda info: files.exactly(info.file, info.start, info.stop),
        config,
        dequantise=dequantise,
    )


def parse_whisper(data: Content, file: str) -> tuple[dict[str, TensorInfo], dict[str, Any]]:
    """Find the tensors of a whisper.cpp file.

    Returns
    -------
    tuple
        The tensors by name, and the sizes as whisper.cpp calls them.

    Raises
    ------
    InvalidCheckpoint
        If it is damaged, or another model's.
    """
    place = 4

    def numbers(count: int) -> tuple[int, ...]:
        nonlocal place
        skip(4 * count)
        return struct.unpack(f"<{count}i", data[place - 4 * count : place])

    def skip(count: int) -> None:
        nonlocal place
        if not 0 <= count <= len(data) - place:
            raise InvalidCheckpoint(
                f"{file}: it needs {count} bytes from byte {place} on and has {len(data)}. It is "
                "truncated, or no model of whisper.cpp, the only one that is read of this older "
                "format: download it again, or convert it to GGUF."
            )
        place += count

    sizes = numbers(len(_SIZES))
    mels, bins = numbers(2)
    skip(4 * mels * bins if min(mels, bins) > 0 else -1)
    (words,) = numbers(1)
    skip(0 if words <= _MOST_WORDS else -1)
    for _ in range(words):
        skip(numbers(1)[0])
    tensors: dict[str, TensorInfo] = {}
    while place < len(data):
        dimensions, length, kind = numbers(3)
        sound = 0 < dimensions <= _MOST_DIMENSIONS and 0 < length <= _LONGEST_NAME
        shape = numbers(dimensions)[::-1] if sound else (-1,)
        skip(length if sound else -1)
        try:
            name = bytes(data[place - length : place]).decode()
        except UnicodeDecodeError:
            name = ""
        if min(shape) < 0 or not name or name in tensors or len(tensors) == _MOST_TENSORS:
            raise InvalidCheckpoint(
                f"{file}: the tensor that begins before byte {place} has no sound name and shape. "
                "The file is damaged: download it again."
            )
        tensors[name] = place_tensor(name, shape, kind, file, place)
        skip(tensors[name].stop - place)
    return tensors, dict(zip(_SIZES, sizes, strict=True))
