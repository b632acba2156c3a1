"""GGUF, the format of llama.cpp.

Headers are parsed here rather than by the gguf package, which maps whole files. Vocabularies are
skipped, and sizes that a file cannot hold are refused at once. The package turns quantised blocks
into numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.checkpoint import (
    TOO_LARGE_ADVICE,
    Checkpoint,
    TensorInfo,
    check_unpacked,
)
from posprobe.checkpoints.files import Files, Stream
from posprobe.data import read_data
from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    check_installed,
    explain_errors,
)
from posprobe.sources import Quantisation

#: First bytes of a GGUF file.
GGUF_MAGIC = b"GGUF"
#: Longest header in bytes: the largest vocabularies, with their merges, take a tenth of it.
MAX_GGUF_HEADER_BYTES = 100_000_000
#: Longest list of numbers in a setting that is kept; a vocabulary's scores are longer.
_MAX_SETTING_NUMBERS = 4096
#: Largest number of dimensions of a tensor.
_MAX_GGUF_DIMENSIONS = 8
#: Largest number of tensors or settings.
_MAX_GGUF_ENTRIES = 100_000
#: Codes of Python's struct by the type number of a setting.
_STRUCT_CODES = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
#: Type numbers of settings that are texts or arrays.
_TEXT_TYPE = 8
_ARRAY_TYPE = 9
_GGML_TYPE_INFO = {
    int(k): type_info for k, type_info in read_data("checkpoints/ggml_types.toml").items()
}
#: Types of tensors by their number: name, numbers per block, bytes per block.
GGML_TYPES: Mapping[int, tuple[str, int, int]] = {
    k: type_info[:3] for k, type_info in _GGML_TYPE_INFO.items()
}
_GGML_TYPE_NUMBERS = {name: number for number, (name, _, _) in GGML_TYPES.items()}
_GGUF_ADVICE = "It is truncated, damaged, or of another version: download it again."


def read_gguf(files: Files, file: str) -> Checkpoint:
    """Read the header of a GGUF file; ``files`` gives its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """
    size = files.size(file)
    with explain_errors(
        InvalidCheckpoint, f"{file}: not a sound GGUF file", _GGUF_ADVICE, ValueError
    ):
        header = _Header(files, file, 0, min(size, MAX_GGUF_HEADER_BYTES))
        if header.take(4) != GGUF_MAGIC:
            raise ValueError("it does not begin as one")
        version = header.read_number("I")
        if version not in (2, 3):
            raise ValueError(
                f"version {version}; versions 2 and 3 are read, of little-endian ones"
            )
        tensor_count, setting_count = header.read_numbers("2Q")
        # A setting takes at least 13 bytes (an empty name, a type, one byte), a tensor at least 24.
        too_many = max(tensor_count, setting_count) > _MAX_GGUF_ENTRIES
        if too_many or 13 * setting_count + 24 * tensor_count > size:
            raise ValueError(
                f"{setting_count} settings and {tensor_count} tensors are announced"
            )
        settings: dict[str, Any] = {}
        for _ in range(setting_count):
            key = header.read_text()
            if key in settings:
                raise ValueError(f"the setting {key[:80]!r} stands there twice")
            settings[key] = header.read_setting(header.read_number("I"))
        infos = [header.read_tensor_info(file) for _ in range(tensor_count)]
        alignment = settings.get("general.alignment", 32)
        if (
            type(alignment) is not int
            or not 0 < alignment <= 2**20
            or alignment & (alignment - 1)
        ):
            raise ValueError(f"the alignment {alignment} is not a power of two")
        tensors = _place_tensors(infos, -(-header.tell() // alignment) * alignment, size)
    factors = {
        name: np.frombuffer(files.exactly(file, info.start, info.stop), "<f4").tolist()
        for name, info in tensors.items()
        if name
        in ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
        and info.dtype == "F32"
        and math.prod(info.shape) <= _MAX_SETTING_NUMBERS
    }
    return Checkpoint(
        file,
        tensors,
        lambda info: files.exactly(file, info.start, info.stop),
        # The divisors of rotary frequencies are settings that are stored as tensors.
        {**settings, **factors},
        dequantise=dequantise,
    )


def _place_tensors(
    infos: list[TensorInfo], data_start: int, file_bytes: int
) -> dict[str, TensorInfo]:
    """Give every tensor its byte range; none may overlap another or reach beyond the file."""
    tensors: dict[str, TensorInfo] = {}
    end = data_start
    for info in sorted(infos, key=attrgetter("start")):
        if info.name in tensors:
            raise ValueError(f"the tensor {info.name[:80]!r} stands there twice")
        placed_info = replace(
            info, start=data_start + info.start, stop=data_start + info.stop
        )
        if placed_info.start < end or placed_info.stop > file_bytes:
            raise ValueError(
                f"tensor {placed_info.name[:80]!r}, shape "
                f"{list(placed_info.shape)}, would be the bytes "
                f"{placed_info.start} to {placed_info.stop} of "
                f"{file_bytes}, and the one before it ends at {end}"
            )
        end = placed_info.stop
        tensors[placed_info.name] = placed_info
    return {info.name: tensors[info.name] for info in infos}


class _Header(Stream):
    """A header, read from its beginning."""

    def read_numbers(self, code: str) -> tuple[Any, ...]:
        """Read numbers by their codes of `struct`."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))

    def read_number(self, code: str) -> Any:
        return self.read_numbers(code)[0]

    def read_text(self) -> str:
        """Read a text with its length before it."""
        return self.take(self.read_number("Q")).decode()

    def read_setting(self, type_number: int) -> Any:
        """Read a setting; None for a long array or an array of texts."""
        if type_number in _STRUCT_CODES:
            return self.read_number(_STRUCT_CODES[type_number])
        if type_number == _TEXT_TYPE:
            return self.read_text()
        if type_number != _ARRAY_TYPE:
            raise ValueError(
                f"a setting is of the kind {type_number}, which does not exist"
            )
        item_type, count = self.read_numbers("IQ")
        if item_type == _TEXT_TYPE:
            if 8 * count > self.size:
                raise ValueError(f"{count} texts are announced")
            for _ in range(count):
                self.skip(self.read_number("Q"))
            return None
        if item_type not in _STRUCT_CODES:
            raise ValueError(f"an array is of the kind {item_type}, which is not read")
        code = _STRUCT_CODES[item_type]
        if count > _MAX_SETTING_NUMBERS:
            self.skip(count * struct.calcsize(f"<{code}"))
            return None
        return list(self.read_numbers(f"{count}{code}"))

    def read_tensor_info(self, file: str) -> TensorInfo:
        """Read a tensor's description, with byte offsets relative to the first tensor."""
        name, n_dimensions = self.read_text(), self.read_number("I")
        if n_dimensions > _MAX_GGUF_DIMENSIONS:
            raise ValueError(f"tensor {name[:80]!r} has {n_dimensions} dimensions")
        shape = self.read_numbers(f"{n_dimensions}Q")[
            ::-1
        ]  # the file has the fastest axis first
        type_number, start = self.read_numbers("IQ")
        if type_number not in GGML_TYPES:
            raise ValueError(
                f"tensor {name[:80]!r} is of ggml's type {type_number}, which is not known here"
            )
        dtype, block_size, block_bytes = GGML_TYPES[type_number]
        if (shape[-1] if shape else 1) % block_size:
            raise ValueError(
                f"{name[:80]!r}, shape {list(shape)}, is no whole number of {dtype} blocks"
            )
        stop = start + math.prod(shape) // block_size * block_bytes
        if block_size == 1:
            return TensorInfo(name, shape, dtype, file, start, stop)
        return TensorInfo(name, shape, "F32", file, start, stop, Quantisation(dtype))


def dequantise(
    info: TensorInfo, content: bytes | memoryview[int]
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
    dtype = info.quantisation.name if info.quantisation else ""
    check_installed("gguf", "gguf", f"{info.subject}: its quantisation ({dtype})")
    check_unpacked(f"{info.subject},", 4 * math.prod(info.shape), TOO_LARGE_ADVICE)
    import gguf

    _, _, block_bytes, *scale_bytes = _GGML_TYPE_INFO[_GGML_TYPE_NUMBERS[dtype]]
    blocks = np.frombuffer(content, np.uint8).reshape(-1, block_bytes)
    ggml_type = gguf.GGMLQuantizationType(_GGML_TYPE_NUMBERS[dtype])
    try:
        values = gguf.quants.dequantize(blocks, ggml_type).reshape(info.shape)
    except NotImplementedError as error:
        raise InvalidTable(
            f"{info.file}: tensor {info.name} is quantised ({dtype}), which "
            "the gguf package cannot turn into numbers. Convert the model "
            "to another type, such as F16."
        ) from error
    if not scale_bytes:
        return values, None
    start, stop, unit_scale = scale_bytes
    low, high = blocks.copy(), blocks.copy()
    low[:, start:stop], high[:, start:stop] = 0, unit_scale
    steps = gguf.quants.dequantize(high, ggml_type) - gguf.quants.dequantize(
        low, ggml_type
    )
    return values, float(np.median(np.abs(steps)))
