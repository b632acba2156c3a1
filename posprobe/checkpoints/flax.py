"""Flax's ``.msgpack`` files.

MessagePack is a dozen kinds of values, each with its length before it. They are walked here, since
readers of the format unpack a whole file: of an array only shape and format are looked at, and the
numbers are mapped. Nothing of it can name code.
"""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath

from posprobe.checkpoints.checkpoint import DTYPES, FLOATS, Checkpoint, TensorInfo
from posprobe.checkpoints.files import Files, Stream
from posprobe.errors import InvalidCheckpoint, explain_errors

#: Levels of names, values, and characters of a name that a file of weights has at most.
MAX_FLAX_DEPTH, MAX_FLAX_NODES, MAX_FLAX_NAME_LETTERS = 64, 2_000_000, 1000
#: Flax's number for an array among MessagePack's extensions.
_ARRAY = 1
#: What training keeps beside the weights.
TRAINING = re.compile(r"^(?:opt_state|optimizer/state|state/param_states)/")


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
        walk = _Walk(files, file)
        walk.value("")
        if walk.tell() != walk.size:
            raise ValueError(f"{walk.size - walk.tell()} bytes follow its end")
    tensors = {name: info for name, info in walk.found.items() if not TRAINING.match(name)}
    if not tensors:
        raise InvalidCheckpoint(f"{file}: contains no arrays. Pass the model's weights.")
    return Checkpoint(file, tensors, lambda info: files.exactly(file, info.start, info.stop))


#: The kind that a first byte stands for, and how many bytes of a number or length follow; of what
#: is passed over and of some extensions how many bytes they have.
_HEADS = {
    0xC0: ("passed over", 0), 0xC2: ("passed over", 0), 0xC3: ("passed over", 0),
    0xC4: ("text", 1), 0xC5: ("text", 2), 0xC6: ("text", 4),
    0xC7: ("extension", 1), 0xC8: ("extension", 2), 0xC9: ("extension", 4),
    0xCA: ("passed over", 4), 0xCB: ("passed over", 8),
    0xCC: ("int", 1), 0xCD: ("int", 2), 0xCE: ("int", 4), 0xCF: ("int", 8),
    0xD0: ("signed", 1), 0xD1: ("signed", 2), 0xD2: ("signed", 4), 0xD3: ("signed", 8),
    0xD4: ("extension of", 1), 0xD5: ("extension of", 2), 0xD6: ("extension of", 4),
    0xD7: ("extension of", 8), 0xD8: ("extension of", 16),
    0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip


class _Walk(Stream):
    """A file, and every array before the place that is read next, by the path of its names."""

    def __init__(self, files: Files, file: str) -> None:
        super().__init__(files, file)
        self.file, self.seen = file, 0
        self.found: dict[str, TensorInfo] = {}

    def value(self, place: str, depth: int = 0) -> None:
        """Read a value and those within it.

        Raises
        ------
        ValueError
            If something is not what its length says, or there is more of it than in weights.
        """
        self.seen += 1
        if depth > MAX_FLAX_DEPTH or self.seen > MAX_FLAX_NODES:
            raise ValueError(f"more than {MAX_FLAX_DEPTH} levels or {MAX_FLAX_NODES} values")
        if len(place) > MAX_FLAX_NAME_LETTERS:
            raise ValueError(f"a name of more than {MAX_FLAX_NAME_LETTERS} characters")
        kind, size = self.head()
        if kind in ("map", "list"):
            if size > self.size - self.tell():
                raise ValueError(f"{size} values in {self.size - self.tell()} bytes")
            for number in range(size):
                name = self.name() if kind == "map" else str(number)
                self.value(f"{place}/{name}" if place else name, depth + 1)
        elif kind == f"extension {_ARRAY}":
            name = place or PurePosixPath(self.file).stem
            self.found[name] = self.array(name, size)
        elif kind != "int":
            self.skip(size)

    def name(self) -> str:
        kind, size = self.head()
        if kind == "int":
            return str(size)
        if kind != "text" or size > MAX_FLAX_NAME_LETTERS:
            raise ValueError(f"a name of {size} bytes" if kind == "text" else "a name is none")
        return self.take(size).decode()

    def array(self, name: str, size: int) -> TensorInfo:
        """Read an array: a list of its shape, the name of its format, and its bytes."""
        stop = self.tell() + size
        kind, count = self.head()
        kinds, rank = self.head()
        if (kind, count, kinds) != ("list", 3, "list") or rank > 64:
            raise ValueError("an array has no shape")
        sizes = [self.head() for _ in range(rank)]
        if any(kind != "int" or extent < 0 for kind, extent in sizes):
            raise ValueError("an array has no shape")
        shape = tuple(extent for _, extent in sizes)
        kind, length = self.head()
        if kind != "text" or length > 40:
            raise ValueError("an array has no format")
        dtype = self.take(length).decode("ascii")
        kind, length = self.head()
        start = self.skip(length)
        if kind != "text" or self.tell() != stop:
            raise ValueError(f"an array of shape {list(shape)} has no bytes")
        dtype_name = DTYPES.get(dtype, dtype)
        if dtype_name in FLOATS and length != math.prod(shape) * int(FLOATS[dtype_name][-1]):
            raise ValueError(f"{length} bytes for an array of shape {list(shape)}, {dtype}")
        return TensorInfo(name, shape, dtype_name, self.file, start, stop)

    def head(self) -> tuple[str, int]:
        """Read a value's kind, and its number or its length."""
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return "int", code if code < 0x80 else code - 256
        if code < 0xC0:
            if code < 0x90:
                return "map", code & 15
            return ("list", code & 15) if code < 0xA0 else ("text", code & 31)
        if code not in _HEADS:
            raise ValueError(f"byte {code} begins no value")
        kind, width = _HEADS[code]
        if kind in ("passed over", "extension of"):
            number = width
        else:
            number = int.from_bytes(self.take(width), "big", signed=kind == "signed")
        if kind.startswith("extension"):
            return f"extension {self.take(1)[0]}", number
        return ("int" if kind == "signed" else kind), number
