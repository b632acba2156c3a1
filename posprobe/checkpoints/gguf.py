"""GGUF, the format of llama.cpp.

Headers are parsed here rather than by the gguf package, which maps whole files: so vocabularies are
stepped over, and sizes that a file cannot hold end it at once. The package turns quantised blocks
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

from posprobe.checkpoints.checkpoint import NO_TABLE, Checkpoint, TensorInfo, check_unpacked
from posprobe.checkpoints.files import Files, Stream
from posprobe.data import read_data
from posprobe.errors import InvalidCheckpoint, InvalidTable, check_installed, explain_errors
from posprobe.sources import Quantisation

MAGIC = b"GGUF"
#: No header is longer: the largest vocabularies, with their merges, take a tenth of it.
MAX_HEADER = 100_000_000
#: Longest list of numbers that is kept of the settings; a vocabulary's scores are longer.
_MOST_KEPT = 4096
_MOST_DIMENSIONS, _MOST_ENTRIES = 8, 100_000
#: Kinds of settings by their number: how Python's struct calls them. 8 is text, 9 an array.
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_GGML_TYPE_INFO = {
    int(k): type_info for k, type_info in read_data("checkpoints/ggml_types.toml").items()
}
#: Types of tensors by their number: name, numbers in a block, bytes of a block.
TYPES: Mapping[int, tuple[str, int, int]] = {
    k: type_info[:3] for k, type_info in _GGML_TYPE_INFO.items()
}
_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}
_ADVICE = "It is truncated, damaged, or of another version: download it again."


def read_gguf(files: Files, file: str) -> Checkpoint:
    """Read the header of a GGUF file; ``files`` gives its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """
    size = files.size(file)
    with explain_errors(InvalidCheckpoint, f"{file}: not a sound GGUF file", _ADVICE, ValueError):
        header = _Header(files, file, 0, min(size, MAX_HEADER))
        if header.take(4) != MAGIC:
            raise ValueError("it does not begin as one")
        version = header.number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}; versions 2 and 3 are read, of little-endian ones")
        tensor_count, setting_count = header.numbers("2Q")
        # The shortest entries: an empty name, a kind and one byte; an empty name and no sizes.
        too_many = max(tensor_count, setting_count) > _MOST_ENTRIES
        if too_many or 13 * setting_count + 24 * tensor_count > size:
            raise ValueError(f"{setting_count} settings and {tensor_count} tensors are announced")
        settings: dict[str, Any] = {}
        for _ in range(setting_count):
            key = header.text()
            if key in settings:
                raise ValueError(f"the setting {key[:80]!r} stands there twice")
            settings[key] = header.value(header.number("I"))
        entries = [header.entry(file) for _ in range(tensor_count)]
        alignment = settings.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
            raise ValueError(f"the alignment {alignment} is not a power of two")
        tensors = _placed(entries, -(-header.tell() // alignment) * alignment, size)
    factors = {
        name: np.frombuffer(files.exactly(file, info.start, info.stop), "<f4").tolist()
        for name, info in tensors.items()
        if name in ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
        and info.dtype == "F32"
        and math.prod(info.shape) <= _MOST_KEPT
    }
    return Checkpoint(
        file,
        tensors,
        lambda info: files.exactly(file, info.start, info.stop),
        # What divides frequencies is a setting that is stored as a tensor.
        {**settings, **factors},
        dequantise=dequantise,
    )


def _placed(entries: list[TensorInfo], begin: int, size: int) -> dict[str, TensorInfo]:
    """Give every tensor its place; none may reach into another or beyond the file."""
    tensors: dict[str, TensorInfo] = {}
    end = begin
    for entry in sorted(entries, key=attrgetter("start")):
        if entry.name in tensors:
            raise ValueError(f"the tensor {entry.name[:80]!r} stands there twice")
        info = replace(entry, start=begin + entry.start, stop=begin + entry.stop)
        if info.start < end or info.stop > size:
            raise ValueError(
                f"tensor {info.name[:80]!r}, shape {list(info.shape)}, would be the bytes "
                f"{info.start} to {info.stop} of {size}, and the one before it ends at {end}"
            )
        end = info.stop
        tensors[info.name] = info
    return {entry.name: tensors[entry.name] for entry in entries}


class _Header(Stream):
    """A header, read from its beginning."""

    def numbers(self, code: str) -> tuple[Any, ...]:
        """Read numbers of kinds as `struct` calls them."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))

    def number(self, code: str) -> Any:
        return self.numbers(code)[0]

    def text(self) -> str:
        """Read a text, whose length stands before it."""
        return self.take(self.number("Q")).decode()

    def value(self, kind: int) -> Any:
        """Read a setting; of long arrays and of arrays of texts nothing is kept."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            raise ValueError(f"a setting is of the kind {kind}, which does not exist")
        item, count = self.numbers("IQ")
        if item == _TEXT:
            if 8 * count > self.size:
                raise ValueError(f"{count} texts are announced")
            for _ in range(count):
                self.skip(self.number("Q"))
            return None
        if item not in _SCALARS:
            raise ValueError(f"an array is of the kind {item}, which is not read")
        code = _SCALARS[item]
        if count > _MOST_KEPT:
            self.skip(count * struct.calcsize(f"<{code}"))
            return None
        return list(self.numbers(f"{count}{code}"))

    def entry(self, file: str) -> TensorInfo:
        """Read a tensor's description, placed as if the first one began at byte 0."""
        name, dimensions = self.text(), self.number("I")
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name[:80]!r} has {dimensions} dimensions")
        shape = self.numbers(f"{dimensions}Q")[::-1]  # the fastest axis is first
        kind, start = self.numbers("IQ")
        if kind not in TYPES:
            raise ValueError(
                f"tensor {name[:80]!r} is of ggml's type {kind}, which is not known here"
            )
        dtype, block, width = TYPES[kind]
        if (shape[-1] if shape else 1) % block:
            raise ValueError(
                f"{name[:80]!r}, shape {list(shape)}, is no whole number of {dtype} blocks"
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
    check_installed("gguf", "gguf", f"{info.where}: its quantisation ({kind})")
    check_unpacked(f"{info.where},", 4 * math.prod(info.shape), NO_TABLE)
    import gguf

    _, _, width, *codes = _GGML_TYPE_INFO[_NUMBERS[kind]]
    blocks = np.frombuffer(data, np.uint8).reshape(-1, width)
    kind_there = gguf.GGMLQuantizationType(_NUMBERS[kind])
    try:
        values = gguf.quants.dequantize(blocks, kind_there).reshape(info.shape)
    except NotImplementedError as error:
        raise InvalidTable(
            f"{info.file}: tensor {info.name} is quantised ({kind}), which the gguf package cannot "
            "turn into numbers. Convert the model to another type, such as F16."
        ) from error
    if not codes:
        return values, None
    start, stop, ones = codes
    low, high = blocks.copy(), blocks.copy()
    low[:, start:stop], high[:, start:stop] = 0, ones
    steps = gguf.quants.dequantize(high, kind_there) - gguf.quants.dequantize(low, kind_there)
    return values, float(np.median(np.abs(steps)))
