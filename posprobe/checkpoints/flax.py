"""Flax's ``.msgpack`` files.

MessagePack has a dozen types of values, each with its length before it. They are parsed here, since
readers of the format unpack a whole file. Of an array only shape and format are read; its numbers
are mapped. Nothing in the format can name code.
"""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath

from posprobe.checkpoints.checkpoint import (
    DTYPE_NAMES,
    FLOAT_DTYPES,
    Checkpoint,
    TensorInfo,
)
from posprobe.checkpoints.files import Files, Stream
from posprobe.errors import InvalidCheckpoint, explain_errors

#: Largest number of nested levels in a file of weights.
MAX_FLAX_DEPTH = 64
#: Largest number of values in a file of weights.
MAX_FLAX_NODES = 2_000_000
#: Largest number of characters in a path of names.
MAX_FLAX_NAME_LETTERS = 1000
#: Flax's number for an array among MessagePack's extensions.
_ARRAY_EXTENSION = 1
#: Names of the state that training stores beside the weights.
TRAINING_STATE = re.compile(r"^(?:opt_state|optimizer/state|state/param_states)/")


def read_flax(files: Files, file: str) -> Checkpoint:
    """Read the names in what ``flax.serialization`` wrote, joined by slashes.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds no arrays.
    """
    subject = f"{file}: not a valid Flax file"
    with explain_errors(
        InvalidCheckpoint, subject, "Download it again.", ValueError, OverflowError
    ):
        reader = _FlaxReader(files, file)
        reader.read_value("")
        if reader.tell() != reader.size:
            raise ValueError(f"{reader.size - reader.tell()} bytes follow its end")
    tensors = {
        name: info
        for name, info in reader.tensors.items()
        if not TRAINING_STATE.match(name)
    }
    if not tensors:
        raise InvalidCheckpoint(f"{file}: contains no arrays. Pass the model's weights.")
    return Checkpoint(
        file, tensors, lambda info: files.exactly(file, info.start, info.stop)
    )


#: Type of a value by its first byte, and the bytes of the number or length that follows; for values
#: that are skipped and for fixed extensions, the length of the value itself.
_VALUE_HEADS = {
    0xC0: ("passed over", 0),
    0xC2: ("passed over", 0),
    0xC3: ("passed over", 0),
    0xC4: ("text", 1),
    0xC5: ("text", 2),
    0xC6: ("text", 4),
    0xC7: ("extension", 1),
    0xC8: ("extension", 2),
    0xC9: ("extension", 4),
    0xCA: ("passed over", 4),
    0xCB: ("passed over", 8),
    0xCC: ("int", 1),
    0xCD: ("int", 2),
    0xCE: ("int", 4),
    0xCF: ("int", 8),
    0xD0: ("signed", 1),
    0xD1: ("signed", 2),
    0xD2: ("signed", 4),
    0xD3: ("signed", 8),
    0xD4: ("extension of", 1),
    0xD5: ("extension of", 2),
    0xD6: ("extension of", 4),
    0xD7: ("extension of", 8),
    0xD8: ("extension of", 16),
    0xD9: ("text", 1),
    0xDA: ("text", 2),
    0xDB: ("text", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}


class _FlaxReader(Stream):
    """A parser of MessagePack that collects arrays by the path of their names."""

    def __init__(self, files: Files, file: str) -> None:
        super().__init__(files, file)
        self.file, self.n_values = file, 0
        self.tensors: dict[str, TensorInfo] = {}

    def read_value(self, path: str, depth: int = 0) -> None:
        """Read a value and those nested in it.

        Raises
        ------
        ValueError
            If a length does not fit, or the file has more levels or values than weights have.
        """
        self.n_values += 1
        if depth > MAX_FLAX_DEPTH or self.n_values > MAX_FLAX_NODES:
            raise ValueError(
                f"more than {MAX_FLAX_DEPTH} levels or {MAX_FLAX_NODES} values"
            )
        if len(path) > MAX_FLAX_NAME_LETTERS:
            raise ValueError(f"a name of more than {MAX_FLAX_NAME_LETTERS} characters")
        kind, size = self.read_head()
        if kind in ("map", "list"):
            if size > self.size - self.tell():
                raise ValueError(f"{size} values in {self.size - self.tell()} bytes")
            for index in range(size):
                name = self.read_name() if kind == "map" else str(index)
                self.read_value(f"{path}/{name}" if path else name, depth + 1)
        elif kind == f"extension {_ARRAY_EXTENSION}":
            name = path or PurePosixPath(self.file).stem
            self.tensors[name] = self.read_array(name, size)
        elif kind != "int":
            self.skip(size)

    def read_name(self) -> str:
        kind, size = self.read_head()
        if kind == "int":
            return str(size)
        if kind != "text" or size > MAX_FLAX_NAME_LETTERS:
            raise ValueError(
                f"a name of {size} bytes" if kind == "text" else "a name is none"
            )
        return self.take(size).decode()

    def read_array(self, name: str, n_bytes: int) -> TensorInfo:
        """Read an array: a list of its shape, the name of its format, and its bytes."""
        stop = self.tell() + n_bytes
        kind, count = self.read_head()
        shape_kind, n_axes = self.read_head()
        if (kind, count, shape_kind) != ("list", 3, "list") or n_axes > 64:
            raise ValueError("an array has no shape")
        axes = [self.read_head() for _ in range(n_axes)]
        if any(kind != "int" or size < 0 for kind, size in axes):
            raise ValueError("an array has no shape")
        shape = tuple(size for _, size in axes)
        kind, length = self.read_head()
        if kind != "text" or length > 40:
            raise ValueError("an array has no format")
        dtype = self.take(length).decode("ascii")
        kind, length = self.read_head()
        start = self.skip(length)
        if kind != "text" or self.tell() != stop:
            raise ValueError(f"an array of shape {list(shape)} has no bytes")
        dtype_name = DTYPE_NAMES.get(dtype, dtype)
        if dtype_name in FLOAT_DTYPES and length != math.prod(shape) * int(
            FLOAT_DTYPES[dtype_name][-1]
        ):
            raise ValueError(
                f"{length} bytes for an array of shape {list(shape)}, {dtype}"
            )
        return TensorInfo(name, shape, dtype_name, self.file, start, stop)

    def read_head(self) -> tuple[str, int]:
        """Read a value's kind, and its number or its length."""
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return "int", code if code < 0x80 else code - 256
        if code < 0xC0:
            if code < 0x90:
                return "map", code & 15
            return ("list", code & 15) if code < 0xA0 else ("text", code & 31)
        if code not in _VALUE_HEADS:
            raise ValueError(f"byte {code} begins no value")
        kind, width = _VALUE_HEADS[code]
        if kind in ("passed over", "extension of"):
            number = width
        else:
            number = int.from_bytes(self.take(width), "big", signed=kind == "signed")
        if kind.startswith("extension"):
            return f"extension {self.take(1)[0]}", number
        return ("int" if kind == "signed" else kind), number
