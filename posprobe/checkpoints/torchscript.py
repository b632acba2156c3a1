"""TorchScript archives (``torch.jit.save``): tensors by their records, without running the code.

Such an archive holds a pickle of the module's attributes, the tensors' bytes, and code. The pickle
is read with stand-ins for every class and function, so nothing but its own structure comes of it,
and a tensor is a call of ``_rebuild_tensor_v2`` that was never made.
"""

from __future__ import annotations

import math
import pickle
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from posprobe.checkpoints.checkpoint import (
    Checkpoint,
    TensorInfo,
    check_unpacked,
    damaged_error,
)
from posprobe.checkpoints.pickles import StandIn, make_stand_in
from posprobe.errors import InvalidCheckpoint

#: Number formats of safetensors and bytes per number, by the name of PyTorch's storage.
_STORAGES: Mapping[str, tuple[str, int]] = {
    "torch.DoubleStorage": ("F64", 8),
    "torch.FloatStorage": ("F32", 4),
    "torch.HalfStorage": ("F16", 2),
    "torch.BFloat16Storage": ("BF16", 2),
    "torch.LongStorage": ("I64", 8),
    "torch.IntStorage": ("I32", 4),
    "torch.ShortStorage": ("I16", 2),
    "torch.CharStorage": ("I8", 1),
    "torch.ByteStorage": ("U8", 1),
    "torch.BoolStorage": ("BOOL", 1),
}
#: Name of the function whose calls stand for tensors.
_TENSOR_FUNCTION = "torch._utils._rebuild_tensor_v2"
#: Instructions that TorchScript writes. Python follows others as well, by which tuples can be
#: shared and hashed where `check_pickle_cost` does not count them.
_SCRIPT_OPCODES = frozenset({
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPERSID",
    "BINPUT", "BINUNICODE", "BUILD", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "GLOBAL", "LONG1",
    "LONG_BINGET", "LONG_BINPUT", "MARK", "NEWFALSE", "NEWOBJ", "NEWTRUE", "NONE", "PROTO",
    "REDUCE", "SETITEM", "SETITEMS", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
})  # fmt: skip
#: Largest number of axes of a tensor, as in NumPy.
_MAX_TENSOR_AXES = 64
#: How a TorchScript archive is converted to a file that is read.
_CONVERT_COMMAND = "torch.save(torch.jit.load(FILE).state_dict(), NEW_FILE)"


@dataclass(frozen=True)
class _Record:
    """Where the numbers of a tensor are: the archive's member, and numbers from its start."""

    member: str
    itemsize: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """Number of bytes of the member that the tensor needs."""
        if 0 in self.shape:
            return 0
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (self.offset + reach + 1) * self.itemsize


class _ScriptUnpickler(pickle.Unpickler):
    """Builds the structure of a pickle of stand-ins; nothing is imported or called."""

    def find_class(self, module: str, name: str) -> type[StandIn]:
        """Return a stand-in, whatever is named."""
        kind = "mapping" if name == "OrderedDict" else "object"
        return make_stand_in(f"{module}.{name}", kind)

    def persistent_load(self, pid: Any) -> Any:
        """Return the description of a storage as it stands."""
        return pid


def is_script(members: list[zipfile.ZipInfo]) -> bool:
    """Tell whether the members of an archive are those of TorchScript."""
    names = [member.filename for member in members]
    return any(
        name.endswith("/constants.pkl") or "/code/__torch__" in name for name in names
    ) or any(name.endswith("/model.json") for name in names)


def read_script(path: Path, file: str, members: list[zipfile.ZipInfo]) -> Checkpoint:
    """Open a TorchScript archive; its code is not run.

    Parameters
    ----------
    path, file
        Path of the archive, and its name in the checkpoint.
    members
        Members of the archive.

    Raises
    ------
    InvalidCheckpoint
        If it holds no tensors that can be read without its code, or is damaged.
    """
    sizes = {member.filename: member.file_size for member in members}
    pickle_name = next(
        (n for n in sizes if n.count("/") == 1 and n.endswith("/data.pkl")), ""
    )
    if not pickle_name:
        raise _unread_error(path)
    content = _Archive(path).read(pickle_name)
    if any(
        code.name not in _SCRIPT_OPCODES for code, _, _ in pickletools.genops(content)
    ):
        raise _unread_error(path)
    # These instructions were followed before (`check_pickle_cost`): their cost is bounded.
    module = _ScriptUnpickler(BytesIO(content)).load()
    folder = pickle_name.removesuffix("data.pkl")
    records: dict[str, _Record] = {}
    tensors: dict[str, TensorInfo] = {}
    for name, arguments in _iter_tensors(module):
        record, dtype = _read_record(
            arguments, folder, f"{path.name}: tensor {name[:80]}"
        )
        if sizes.get(record.member, -1) < record.end:
            raise damaged_error(
                f"{path.name}: tensor {name[:80]} needs {record.end} bytes of {record.member}"
            )
        records[name], tensors[name] = record, TensorInfo(name, record.shape, dtype, file)
    if not tensors:
        raise _unread_error(path)

    def fetch(info: TensorInfo) -> memoryview[int]:
        return _read_tensor(path, records[info.name], info)

    note = "a TorchScript archive: its tensors were read, its code was not run"
    return Checkpoint(str(path), tensors, fetch, notes=(note,))


@dataclass(frozen=True)
class _Archive:
    """The archive's members, each read whole."""

    path: Path

    def read(self, member: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            info = archive.getinfo(member)
            if info.compress_type != zipfile.ZIP_STORED:
                check_unpacked(f"{self.path.name}: {member[:80]}", info.file_size)
            elif info.file_size > self.path.stat().st_size:
                raise damaged_error(
                    f"{self.path.name}: {member[:80]} is longer than the file"
                )
            return archive.read(info)


def _unread_error(path: Path) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{path.name}: a TorchScript archive whose tensors cannot be read without running "
        f"its code, which is not done. Convert it where you trust it: {_CONVERT_COMMAND}."
    )


def _iter_tensors(module: object) -> Iterator[tuple[str, list[Any]]]:
    """Yield the attributes that are tensors by their path, with the arguments of their call."""
    visited: set[int] = set()
    queue: list[tuple[str, Any]] = [("", module)]
    for prefix, value in queue:
        if isinstance(value, StandIn):
            if value.name == _TENSOR_FUNCTION:
                if prefix and isinstance(value.content[0:1], list):
                    yield prefix.removesuffix("."), value.content
                continue
            parts: list[tuple[str, Any]] = [(prefix, part) for part in value.content]
        elif isinstance(value, Mapping):
            parts = [(f"{prefix}{key}.", part) for key, part in value.items()]
        else:
            continue
        if id(value) not in visited:
            visited.add(id(value))
            queue += parts


def _read_record(arguments: list[Any], folder: str, subject: str) -> tuple[_Record, str]:
    """Read the arguments of a tensor's call: its storage, offset, shape and strides."""
    match arguments:
        case [
            ("storage", storage, str(key), *_),
            int(offset),
            tuple(shape),
            tuple(strides),
            *_,
        ]:
            dtype, itemsize = _STORAGES.get(getattr(storage, "name", ""), ("", 0))
            numbers = (offset, *shape, *strides)
            if (
                dtype
                and len(shape) == len(strides) <= _MAX_TENSOR_AXES
                and all(type(number) is int and number >= 0 for number in numbers)
            ):
                member = f"{folder}data/{key}"
                return _Record(member, itemsize, offset, shape, strides), dtype
    raise InvalidCheckpoint(
        f"{subject}: stored in a form that is not read. Convert the archive where you "
        f"trust it: {_CONVERT_COMMAND}."
    )


def _read_tensor(path: Path, record: _Record, info: TensorInfo) -> memoryview[int]:
    """Read the bytes of a tensor, row-major."""
    n_bytes = math.prod(record.shape) * record.itemsize
    if n_bytes > record.end:
        check_unpacked(f"{info.subject},", n_bytes, "Save it again, dense.")
    if not n_bytes:
        return memoryview(b"")
    try:
        content = _Archive(path).read(record.member)
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError) as error:
        raise damaged_error(f"{info.subject}, cannot be read") from error
    if len(content) < record.end:
        raise damaged_error(f"{info.subject}, needs {record.end} bytes")
    numbers = np.frombuffer(
        content, f"V{record.itemsize}", (len(content) - record.offset * record.itemsize)
        // record.itemsize, record.offset * record.itemsize,
    )  # fmt: skip
    byte_strides = [stride * record.itemsize for stride in record.strides]
    tensor = np.lib.stride_tricks.as_strided(numbers, record.shape, byte_strides)
    return memoryview(np.ascontiguousarray(tensor).tobytes())
