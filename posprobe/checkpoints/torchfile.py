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
    DTYPES,
    MAX_UNPACKED,
    Checkpoint,
    TensorInfo,
    check_unpacked,
    damaged,
)
from posprobe.checkpoints.files import Files
from posprobe.errors import InvalidCheckpoint, explain_errors, first_line
from posprobe.progress import import_stage

if TYPE_CHECKING:
    import torch


#: How an archive of PyTorch begins, and how many pickles stand at the beginning of older files.
_ZIP, _OLD_PICKLES = b"PK\x03\x04", 5
#: Values that are hashed, copied or compared in all, and levels of tuples, at most; a state dict
#: of 100,000 tensors needs a million.
_MOST_STEPS, _DEPTH = 50_000_000, 100
#: Encodings that make no more of a text than it is.
_ENCODINGS = {"latin1", "latin-1", "ascii", "utf-8", "utf8"}
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
#: What else pickles can hold: lists, mappings and whatever calls return.
_OTHER_OBJECT = object()


@dataclass(frozen=True)
class _Tuple:
    """A tuple; ``leaves`` counts what is in it as if nothing were shared."""

    items: tuple[Any, ...]
    leaves: int
    depth: int


def refuse_costly(path: Path) -> None:
    """Refuse a PyTorch file whose pickle would take all time or memory.

    What is no sound pickle is passed over: PyTorch refuses it where this stops.

    Raises
    ------
    InvalidCheckpoint
        If it hashes, copies or asks for more than any checkpoint does.
    """
    for content in _pickles(path):
        try:
            excess = _excess(content)
        except (ValueError, LookupError):
            return
        if excess:
            raise InvalidCheckpoint(
                f"{path.name}: its pickle {excess}, which could take all time or memory. It was "
                "not "
                "loaded: use the checkpoint in safetensors, or from elsewhere."
            )


def _pickles(path: Path) -> Iterator[IO[bytes]]:
    """Yield the pickles of a file, told from other formats as PyTorch does."""
    with path.open("rb") as stream:
        archive = stream.read(4) == _ZIP
        if archive and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as members:
                for member in members.infolist():
                    # PyTorch looks for this name whatever its case.
                    if member.filename.lower().endswith("data.pkl"):
                        with members.open(member) as content:
                            yield BytesIO(content.read(MAX_UNPACKED))
        elif not archive and path.stat().st_size:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                for _ in range(_OLD_PICKLES):
                    yield cast("IO[bytes]", mapped)


def _excess(pickle: IO[bytes]) -> str:
    """Follow the instructions of a pickle; say what it does in excess, or nothing."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    steps = n_stored = n_requested = 0
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name in _PUT:
            memo[argument] = stack[-1]
            continue
        if opcode.name == "MARK":
            marks.append(len(stack))
            continue
        operands = _take(opcode, stack, marks)
        value = argument if opcode.arg else _OTHER_OBJECT
        match opcode.name:
            case name if name in _GET:
                value = memo[argument]
            case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                value = _tuple(operands)
                if value.depth > _DEPTH:
                    return f"nests tuples deeper than {_DEPTH} levels"
            case "APPEND" | "APPENDS" | "SETITEM" | "SETITEMS":
                n_stored += sum(map(_leaves, operands))
                steps += sum(map(_leaves, operands))
            case "BINPERSID":
                steps += _leaves(operands[0])
            case "BUILD":
                steps += n_stored if operands[1] is _OTHER_OBJECT else 0
            case "REDUCE" | "NEWOBJ":
                callable_name, value = operands
                if not isinstance(callable_name, str) or not isinstance(value, _Tuple):
                    return "calls what has no name"
                function = callable_name.rpartition(" ")[2]
                steps += value.leaves
                if function == "encode" and not _ENCODINGS.issuperset(value.items[1:]):
                    return "encodes text in an unusual way"
                if not function.startswith("_rebuild"):  # of which each tensor needs some
                    n_requested += sum(
                        item for item in value.items if type(item) is int and item > 0
                    )
                    if any(
                        item is _OTHER_OBJECT or isinstance(item, _Tuple) for item in value.items
                    ):
                        steps += n_stored
        if steps > _MOST_STEPS:
            return "hashes or copies too much"
        if n_requested > MAX_UNPACKED:
            return f"asks for {n_requested} bytes by their number alone"
        stack += [value] * len(opcode.stack_after)
    return ""


def _take(opcode: pickletools.OpcodeInfo, stack: list[Any], marks: list[int]) -> list[Any]:
    """Take what an instruction consumes off the stack."""
    needed = opcode.stack_before
    if pickletools.markobject in needed:  # and what lies on it
        start = marks.pop() - needed.index(pickletools.markobject)
    else:
        start = len(stack) - len(needed)
    if start < 0:
        raise IndexError
    operands = stack[start:]
    del stack[start:]
    return operands


def _tuple(items: list[Any]) -> _Tuple:
    leaves = sum(map(_leaves, items))
    depth = max((item.depth for item in items if isinstance(item, _Tuple)), default=0)
    return _Tuple(tuple(items), leaves, depth + 1)


def _leaves(item: Any) -> int:
    return item.leaves + 1 if isinstance(item, _Tuple) else 1


#: Keys under which training frameworks nest the state dict.
NESTS = ("model", "state_dict", "model_state_dict", "module", "network", "net", "ema", "params")


def read_torch(files: Files, file: str) -> Checkpoint:
    """Open a PyTorch file that holds one state dict, or a part of one; from the Hub it comes whole.

    Zip-format files are memory-mapped, so only the tensor that is read costs memory; the legacy
    format and archives that somebody compressed cannot be mapped and are read whole.

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
        members = _members(path)
        refuse_costly(path)
        content = _load(path, members)
    values = _state_dict(content, path)
    if members:
        _check_records(values, members, path)
    tensors = {name: _info(name, tensor, file) for name, tensor in values.items()}

    def fetch(info: TensorInfo) -> memoryview[int]:
        import torch

        tensor = values[info.name]
        _refuse_repetition(tensor, info)
        subject = f"{info.where}, has no values that can be read"
        with explain_errors(InvalidCheckpoint, subject, "Save it again.", RuntimeError, TypeError):
            dense = tensor.to_dense().contiguous()
            return memoryview(dense.view(-1).view(torch.uint8).numpy().data)

    return Checkpoint(str(path), tensors, fetch, _settings(content))


def _info(name: str, tensor: torch.Tensor, file: str) -> TensorInfo:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorInfo(name, tuple(tensor.shape), DTYPES.get(dtype, dtype), file)


def _refuse_repetition(tensor: torch.Tensor, info: TensorInfo) -> None:
    """Refuse a few stored numbers that stand for more than fit: strides of 0, or sparse tensors."""
    import torch

    size = tensor.numel() * tensor.element_size()
    stored = tensor.untyped_storage().nbytes() if tensor.layout == torch.strided else 0
    if size > stored:
        check_unpacked(f"{info.where},", size, "Save it again, dense.")


def _members(path: Path) -> list[zipfile.ZipInfo]:
    """List the members of an archive; none of another file.

    Raises
    ------
    InvalidCheckpoint
        If a member is there twice, so that readers differ in which they take.
    """
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            archive.open(member).close()  # what stands before each says the same as the directory
    name, count = Counter(member.filename for member in members).most_common(1)[0]
    if count > 1:
        raise damaged(f"{path.name}: the archive holds {name[:80]!r} twice")
    return members


def _load(path: Path, members: list[zipfile.ZipInfo]) -> object:
    """Load a file, mapped where it is an archive in which numbers lie as they are in memory."""
    import torch

    packed = [member for member in members if member.compress_type != zipfile.ZIP_STORED]
    if packed:
        check_unpacked(
            f"{path.name}: the archive is compressed and",
            sum(member.file_size for member in members),
            "Save it again with torch.save, which does not compress.",
        )
    mapped = bool(members) and not packed
    # fairseq stores its options as an argparse.Namespace: plain attributes, nothing that runs.
    with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
        # PyTorch says that checking sparse tensors, which it does unasked, may take a while.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        except pickle.UnpicklingError as error:
            raise unsafe_pickle(path.name, error) from error


def _check_records(
    tensors: Mapping[str, torch.Tensor], members: list[zipfile.ZipInfo], path: Path
) -> None:
    """Refuse an archive whose members are not as long as the numbers that they hold.

    PyTorch checks that as it reads, and not where it maps: numbers would be what lies beside them.
    """
    import torch

    lengths = Counter(member.file_size for member in members if "/data/" in member.filename)
    dense = (member for member in tensors.values() if member.layout == torch.strided)
    storages = [member.untyped_storage() for member in dense if not member.is_meta]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages if storage.data_ptr()}
    if missing_lengths := Counter(sizes.values()) - lengths:
        raise damaged(
            f"{path.name}: a tensor needs {min(missing_lengths)} bytes, which no member has"
        )


@contextmanager
def looking_first() -> Iterator[None]:
    """Have PyTorch's reader look at what a pickle would cost, whoever calls it.

    Libraries that build models call it themselves, of files that they download themselves.

    Raises
    ------
    InvalidCheckpoint
        As `refuse_costly`, out of the library's call.
    """
    torch: Any = importlib.import_module("torch")
    load = torch.load

    def look(file: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str | os.PathLike):
            refuse_costly(Path(file))
        return load(file, *arguments, **options)

    torch.load = look
    try:
        yield
    finally:
        torch.load = load


def unsafe_pickle(subject: str, error: Exception) -> InvalidCheckpoint:
    """Say that a pickle holds more than tensors."""
    return InvalidCheckpoint(
        f"{subject}: not a plain state dict. Loading it fully could run code hidden in it, so it "
        f"was not loaded ({first_line(error).split('. ')[0][:160]}). Save the state dict alone: "
        "torch.save(model.state_dict(), FILE), or convert it to safetensors."
    )


def _state_dict(content: object, path: Path) -> dict[str, torch.Tensor]:
    import torch

    if isinstance(content, torch.Tensor):
        return {path.stem: content.detach()}
    for _ in NESTS:  # a state dict is not nested deeper than there are names for it
        if not isinstance(content, Mapping):
            break
        nested = next(
            (content[k] for k in NESTS if isinstance(content.get(k), Mapping) and content[k]), None
        )
        if nested is None or any(isinstance(value, torch.Tensor) for value in content.values()):
            break
        content = nested
    tensors = dict(_nested_tensors(content))
    if not tensors:
        raise InvalidCheckpoint(
            f"{path.name}: contains no tensors. Pass the file with the model's weights."
        )
    for name in tensors:
        if not name.isascii() and name.encode(errors="replace").decode() != name:
            raise InvalidCheckpoint(f"{path.name}: the name {name!r} holds half a character.")
    if all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def _nested_tensors(content: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor in nested mappings with its path.

    A mapping that is met again, such as in a cycle, is passed over.
    """
    import torch

    visited: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", content)])
    while waiting:
        prefix, part = waiting.popleft()
        if not isinstance(part, Mapping) or id(part) in visited:
            continue
        visited.add(id(part))
        for key, value in part.items():
            if isinstance(value, torch.Tensor):
                yield f"{prefix}{key}", value.detach()
            else:
                waiting.append((f"{prefix}{key}.", value))


def _settings(content: object) -> dict[str, Any]:
    """Return what a training framework stored of its options beside the weights."""
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
