"""PyTorch checkpoints (``.bin``, ``.pt``, ``.pth``): pickles, read without running them.

PyTorch's ``weights_only`` keeps a pickle from running code, not from taking all time or memory: a
key of nested tuples that share their parts takes 2^40 steps to hash, and ``bytearray(n)`` takes n
bytes. So the instructions are followed first, without making what they describe.
"""

from __future__ import annotations

import argparse
import importlib
import mmap
import os
import pickle
import pickletools
import warnings
import zipfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from posprobe.checkpoints.checkpoint import (
    DTYPE_NAMES,
    MAX_UNPACKED_BYTES,
    Checkpoint,
    TensorInfo,
    check_unpacked,
    damaged_error,
)
from posprobe.checkpoints.files import Files
from posprobe.errors import InvalidCheckpoint, explain_errors, first_line
from posprobe.progress import import_stage

if TYPE_CHECKING:
    import torch


#: First bytes of an archive of PyTorch.
_ARCHIVE_MAGIC = b"PK\x03\x04"
#: Number of pickles at the beginning of PyTorch's legacy files.
_N_LEGACY_PICKLES = 5
#: Largest number of values that a pickle may hash, copy or compare; a state dict of 100,000 tensors
#: needs a million.
_MAX_PICKLE_STEPS = 50_000_000
#: Largest number of nested tuples.
_MAX_TUPLE_DEPTH = 100
#: Encodings whose output is not much longer than the text.
_PLAIN_ENCODINGS = {"latin1", "latin-1", "ascii", "utf-8", "utf8"}
#: Instructions that store a value in the memo, and that read one.
_PUT_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}
_GET_OPCODES = {"GET", "BINGET", "LONG_BINGET"}
#: Stands for lists, mappings and results of calls, whose content is not followed.
_OTHER_OBJECT = object()


@dataclass(frozen=True)
class _PickledTuple:
    """A tuple; ``leaves`` counts the values in it as if none were shared."""

    items: tuple[Any, ...]
    leaves: int
    depth: int


def check_pickle_cost(path: Path) -> None:
    """Refuse a PyTorch file whose pickle would take all time or memory.

    A damaged pickle is ignored here: PyTorch refuses it at the same instruction.

    Raises
    ------
    InvalidCheckpoint
        If it hashes, copies or allocates more than any checkpoint does.
    """
    for content in _iter_pickles(path):
        try:
            excess = _find_excess(content)
        except (ValueError, LookupError):
            return
        if excess:
            raise InvalidCheckpoint(
                f"{path.name}: its pickle {excess}, which could take all "
                "time or memory. It was not loaded: use the checkpoint in "
                "safetensors, or from elsewhere."
            )


def _iter_pickles(path: Path) -> Iterator[IO[bytes]]:
    """Yield the pickles of a file, by PyTorch's own rules to recognise its formats."""
    with path.open("rb") as stream:
        is_archive = stream.read(4) == _ARCHIVE_MAGIC
        if is_archive and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    # PyTorch ignores the case of this name.
                    if member.filename.lower().endswith("data.pkl"):
                        with archive.open(member) as content:
                            yield BytesIO(content.read(MAX_UNPACKED_BYTES))
        elif not is_archive and path.stat().st_size:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped_file:
                for _ in range(_N_LEGACY_PICKLES):
                    yield cast("IO[bytes]", mapped_file)


def _find_excess(content: IO[bytes]) -> str:
    """Follow the instructions of a pickle; return a phrase for its excess, or an empty text."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    n_steps = n_stored = n_requested = 0
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in _PUT_OPCODES:
            memo[argument] = stack[-1]
            continue
        if opcode.name == "MARK":
            marks.append(len(stack))
            continue
        operands = _pop_operands(opcode, stack, marks)
        value = argument if opcode.arg else _OTHER_OBJECT
        match opcode.name:
            case name if name in _GET_OPCODES:
                value = memo[argument]
            case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                value = _make_tuple(operands)
                if value.depth > _MAX_TUPLE_DEPTH:
                    return f"nests tuples deeper than {_MAX_TUPLE_DEPTH} levels"
            case "APPEND" | "APPENDS" | "SETITEM" | "SETITEMS":
                n_stored += sum(map(_count_leaves, operands))
                n_steps += sum(map(_count_leaves, operands))
            case "BINPERSID":
                n_steps += _count_leaves(operands[0])
            case "BUILD":
                n_steps += n_stored if operands[1] is _OTHER_OBJECT else 0
            case "REDUCE" | "NEWOBJ":
                callable_name, value = operands
                if not isinstance(callable_name, str) or not isinstance(
                    value, _PickledTuple
                ):
                    return "calls what has no name"
                function = callable_name.rpartition(" ")[2]
                n_steps += value.leaves
                if function == "encode" and not _PLAIN_ENCODINGS.issuperset(
                    value.items[1:]
                ):
                    return "encodes text in an unusual way"
                if not function.startswith(
                    "_rebuild"
                ):  # every tensor needs calls of these
                    n_requested += _sum_integers(value)
                    n_steps += n_stored if _has_containers(value) else 0
        if n_steps > _MAX_PICKLE_STEPS:
            return "hashes or copies too much"
        if n_requested > MAX_UNPACKED_BYTES:
            return f"asks for {n_requested} bytes by their number alone"
        stack += [value] * len(opcode.stack_after)
    return ""


def _sum_integers(arguments: _PickledTuple) -> int:
    """Add up the positive integers among the arguments of a call: it may allocate as many bytes."""
    return sum(item for item in arguments.items if type(item) is int and item > 0)


def _has_containers(arguments: _PickledTuple) -> bool:
    """Tell whether a call may copy a list, mapping or tuple among its arguments."""
    return any(
        item is _OTHER_OBJECT or isinstance(item, _PickledTuple)
        for item in arguments.items
    )


def _pop_operands(
    opcode: pickletools.OpcodeInfo, stack: list[Any], marks: list[int]
) -> list[Any]:
    """Remove the operands of an instruction from the stack."""
    needed = opcode.stack_before
    if pickletools.markobject in needed:  # all values above the mark
        start = marks.pop() - needed.index(pickletools.markobject)
    else:
        start = len(stack) - len(needed)
    if start < 0:
        raise IndexError
    operands = stack[start:]
    del stack[start:]
    return operands


def _make_tuple(items: list[Any]) -> _PickledTuple:
    leaves = sum(map(_count_leaves, items))
    depth = max(
        (item.depth for item in items if isinstance(item, _PickledTuple)), default=0
    )
    return _PickledTuple(tuple(items), leaves, depth + 1)


def _count_leaves(item: Any) -> int:
    return item.leaves + 1 if isinstance(item, _PickledTuple) else 1


#: Keys under which training frameworks nest the state dict.
STATE_DICT_KEYS = (
    "model",
    "state_dict",
    "model_state_dict",
    "module",
    "network",
    "net",
    "ema",
    "params",
)


def read_torch(files: Files, file: str) -> Checkpoint:
    """Open a PyTorch file with one state dict or a shard of one; on the Hub it is downloaded.

    Zip-format files are memory-mapped, so only the tensor that is read costs memory; the legacy
    format and compressed archives cannot be mapped and are read whole.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged, holds no tensors, or holds anything but plain data.
    """
    with import_stage("torch"):
        __import__("torch")
    path = files.path(file)
    advice = "The file is damaged or of another format: download it again."
    with explain_errors(InvalidCheckpoint, f"{path.name}: PyTorch cannot read it", advice):
        members = _list_members(path)
        check_pickle_cost(path)
        content = _load_pickle(path, members)
    values = _find_state_dict(content, path)
    if members:
        _check_records(values, members, path)
    tensors = {
        name: _describe_tensor(name, tensor, file) for name, tensor in values.items()
    }

    def fetch(info: TensorInfo) -> memoryview[int]:
        import torch

        tensor = values[info.name]
        _check_storage(tensor, info)
        subject = f"{info.subject}, has no values that can be read"
        with explain_errors(
            InvalidCheckpoint, subject, "Save it again.", RuntimeError, TypeError
        ):
            dense = tensor.to_dense().contiguous()
            return memoryview(dense.view(-1).view(torch.uint8).numpy().data)

    return Checkpoint(str(path), tensors, fetch, _training_options(content))


def _describe_tensor(name: str, tensor: torch.Tensor, file: str) -> TensorInfo:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorInfo(name, tuple(tensor.shape), DTYPE_NAMES.get(dtype, dtype), file)


def _check_storage(tensor: torch.Tensor, info: TensorInfo) -> None:
    """Refuse few stored numbers that expand to too many: strides of 0, or sparse tensors."""
    import torch

    n_bytes = tensor.numel() * tensor.element_size()
    stored_bytes = (
        tensor.untyped_storage().nbytes() if tensor.layout == torch.strided else 0
    )
    if n_bytes > stored_bytes:
        check_unpacked(f"{info.subject},", n_bytes, "Save it again, dense.")


def _list_members(path: Path) -> list[zipfile.ZipInfo]:
    """List the members of an archive; empty for other files.

    Raises
    ------
    InvalidCheckpoint
        If two members have one name, since readers differ in which they take.
    """
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            archive.open(member).close()  # checks the local header against the directory
    name, count = Counter(member.filename for member in members).most_common(1)[0]
    if count > 1:
        raise damaged_error(f"{path.name}: the archive holds {name[:80]!r} twice")
    return members


def _load_pickle(path: Path, members: list[zipfile.ZipInfo]) -> object:
    """Load a file; an uncompressed archive is mapped."""
    import torch

    compressed = [
        member for member in members if member.compress_type != zipfile.ZIP_STORED
    ]
    if compressed:
        check_unpacked(
            f"{path.name}: the archive is compressed and",
            sum(member.file_size for member in members),
            "Save it again with torch.save, which does not compress.",
        )
    is_mapped = bool(members) and not compressed
    # fairseq stores its options as an argparse.Namespace: plain attributes, nothing that runs.
    with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
        # PyTorch warns that its own check of sparse tensors may take a while.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_mapped)
        except pickle.UnpicklingError as error:
            raise unsafe_pickle_error(path.name, error) from error


def _check_records(
    tensors: Mapping[str, torch.Tensor], members: list[zipfile.ZipInfo], path: Path
) -> None:
    """Refuse an archive whose members are shorter or longer than their tensors.

    PyTorch checks lengths when it reads but not when it maps: the numbers would be the bytes of the
    next member.
    """
    import torch

    member_lengths = Counter(
        member.file_size for member in members if "/data/" in member.filename
    )
    dense_tensors = (
        member for member in tensors.values() if member.layout == torch.strided
    )
    storages = [member.untyped_storage() for member in dense_tensors if not member.is_meta]
    storage_lengths = {
        storage.data_ptr(): storage.nbytes() for storage in storages if storage.data_ptr()
    }
    if missing_lengths := Counter(storage_lengths.values()) - member_lengths:
        raise damaged_error(
            f"{path.name}: a tensor needs {min(missing_lengths)} bytes, which no member has"
        )


@contextmanager
def checked_loading() -> Iterator[None]:
    """Check the cost of every pickle that ``torch.load`` reads, whichever library calls it.

    Libraries that build models call it for files that they download themselves.

    Raises
    ------
    InvalidCheckpoint
        As `check_pickle_cost`, from within the library's call.
    """
    torch: Any = importlib.import_module("torch")
    load = torch.load

    def load_checked(file: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str | os.PathLike):
            check_pickle_cost(Path(file))
        return load(file, *arguments, **options)

    torch.load = load_checked
    try:
        yield
    finally:
        torch.load = load


def unsafe_pickle_error(subject: str, error: Exception) -> InvalidCheckpoint:
    """Return the error for a pickle that holds more than tensors."""
    return InvalidCheckpoint(
        f"{subject}: not a plain state dict. Loading it fully could run "
        "code hidden in it, so it was not loaded "
        f"({first_line(error).split('. ')[0][:160]}). Save the state dict "
        "alone: torch.save(model.state_dict(), FILE), or convert it to "
        "safetensors."
    )


def _find_state_dict(content: object, path: Path) -> dict[str, torch.Tensor]:
    import torch

    if isinstance(content, torch.Tensor):
        return {path.stem: content.detach()}
    for _ in (
        STATE_DICT_KEYS
    ):  # a state dict is at most as deeply nested as there are keys for it
        if not isinstance(content, Mapping):
            break
        nested = next(
            (
                content[k]
                for k in STATE_DICT_KEYS
                if isinstance(content.get(k), Mapping) and content[k]
            ),
            None,
        )
        if nested is None or any(
            isinstance(value, torch.Tensor) for value in content.values()
        ):
            break
        content = nested
    tensors = dict(_nested_tensors(content))
    if not tensors:
        raise InvalidCheckpoint(
            f"{path.name}: contains no tensors. Pass the file with the model's weights."
        )
    for name in tensors:
        if not name.isascii() and name.encode(errors="replace").decode() != name:
            raise InvalidCheckpoint(
                f"{path.name}: the name {name!r} holds half a character."
            )
    if all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def _nested_tensors(content: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor in nested mappings with its path.

    A mapping that was visited before, such as in a cycle, is skipped.
    """
    import torch

    visited: set[int] = set()
    queue: deque[tuple[str, Any]] = deque([("", content)])
    while queue:
        prefix, nested = queue.popleft()
        if not isinstance(nested, Mapping) or id(nested) in visited:
            continue
        visited.add(id(nested))
        for key, value in nested.items():
            if isinstance(value, torch.Tensor):
                yield f"{prefix}{key}", value.detach()
            else:
                queue.append((f"{prefix}{key}.", value))


def _training_options(content: object) -> dict[str, Any]:
    """Return the options that a training framework stored beside the weights."""
    if not isinstance(content, Mapping):
        return {}
    for key in ("args", "cfg", "config"):
        options = content.get(key)
        if key == "cfg" and isinstance(options, Mapping):  # fairseq since 0.10.2
            options = options.get("model", options)
        if isinstance(options, argparse.Namespace):
            options = vars(options)
        if isinstance(options, Mapping) and all(isinstance(name, str) for name in options):
            return dict(options)
    return {}
