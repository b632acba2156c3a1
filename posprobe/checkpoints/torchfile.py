"""PyTorch checkpoints: pickles in an archive or alone, read without running them.

The pickle is followed first (`posprobe.checkpoints.pickles`). Then PyTorch reads it with
``weights_only``, and with stand-ins for the classes that this refuses.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import re
import warnings
import zipfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posprobe.checkpoints.checkpoint import (
    DTYPE_NAMES,
    Checkpoint,
    TensorInfo,
    check_unpacked,
    damaged_error,
)
from posprobe.checkpoints.files import Files
from posprobe.checkpoints.pickles import (
    ARCHIVE_MAGIC,
    PickledNames,
    StandIn,
    check_pickle_cost,
)
from posprobe.checkpoints.torchscript import is_script, read_script
from posprobe.errors import InvalidCheckpoint, PosprobeError
from posprobe.progress import import_stage

if TYPE_CHECKING:
    import torch


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
    path = files.path(file)
    with _explain_reading(path):
        members = _list_members(path)
        names = check_pickle_cost(path)
        if is_script(members):
            return read_script(path, file, members)
        _check_format(path, members)
        with import_stage("torch"):
            __import__("torch")
        content = _load_pickle(path, members, names)
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
        try:
            dense = tensor.to_dense().contiguous()
            return memoryview(dense.view(-1).view(torch.uint8).numpy().data)
        except (RuntimeError, TypeError) as error:
            raise InvalidCheckpoint(f"{subject}. Save it again.") from error

    notes = _skipped_notes(names)
    options = _training_options(content)
    return Checkpoint(str(path), tensors, fetch, options, notes=notes)


#: First bytes of PyTorch's legacy files: a number of theirs, pickled.
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: How the weights of a file are saved so that they can be read, from a variable ``model``.
_SAVE_COMMAND = "torch.save(model.state_dict(), FILE)"
#: Largest number of skipped classes that a note or message names.
_MAX_NAMED_CLASSES = 4


@contextmanager
def _explain_reading(path: Path) -> Iterator[None]:
    """Explain what PyTorch and the archive raise, without their own text."""
    try:
        yield
    except PosprobeError:
        raise
    except Exception as error:
        raise damaged_error(f"{path.name}: PyTorch cannot read it") from error


def _check_format(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Refuse files that `torch.save` did not write, by what they are.

    Raises
    ------
    InvalidCheckpoint
        With what the file is and how it is converted.
    """
    with path.open("rb") as stream:
        first_bytes = stream.read(len(LEGACY_MAGIC))
    if members:
        if not any(member.filename.lower().endswith("data.pkl") for member in members):
            raise InvalidCheckpoint(
                f"{path.name}: an archive without the weights that torch.save writes "
                f"(it begins with {members[0].filename[:80]!r}). Save the weights alone: "
                f"{_SAVE_COMMAND}."
            )
    elif first_bytes.startswith(b"version https:/"):
        raise InvalidCheckpoint(
            f"{path.name}: a pointer of Git LFS, and not the weights. Run `git lfs pull`."
        )
    elif not (
        first_bytes.startswith(ARCHIVE_MAGIC) or first_bytes[2:] == LEGACY_MAGIC[2:]
    ):  # the second byte is the protocol of the pickle
        kind = "a pickle" if first_bytes.startswith(b"\x80") else "of another format"
        raise InvalidCheckpoint(
            f"{path.name}: PyTorch cannot read it: it is {kind}, and torch.save did not "
            f"write it. Save the weights with PyTorch: {_SAVE_COMMAND}."
        )


def _skipped_notes(names: PickledNames) -> tuple[str, ...]:
    """Return a note that names the classes whose objects were skipped."""
    if not names.called:
        return ()
    return (f"not read from the file, beside the weights: {_list_names(names.called)}",)


def _list_names(names: Mapping[str, Any]) -> str:
    listed = [name[:80] for name in names]
    more = len(listed) - _MAX_NAMED_CLASSES
    text = ", ".join(listed[:_MAX_NAMED_CLASSES])
    return f"{text} and {more} more" if more > 0 else text


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


def _load_pickle(
    path: Path, members: list[zipfile.ZipInfo], names: PickledNames
) -> object:
    """Load a file; an uncompressed archive is mapped.

    Raises
    ------
    InvalidCheckpoint
        If the pickle names what acts, or is none that PyTorch reads.
    """
    import torch

    if names.acting:
        raise unsafe_pickle_error(path.name, f"it calls {_list_names(names.acting)}")
    if names.saved_module:
        raise _hidden_tensors_error(path, names.saved_module)
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
    safe_globals: list[Any] = [argparse.Namespace, *names.stand_ins()]
    with torch.serialization.safe_globals(safe_globals), warnings.catch_warnings():
        # PyTorch warns that its own check of sparse tensors may take a while.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_mapped)
        except pickle.UnpicklingError as error:
            raise unsafe_pickle_error(path.name, _refused_class(error)) from error


def _refused_class(error: Exception) -> str:
    """Name the class that PyTorch refuses."""
    match = re.search(r"GLOBAL ([\w.]{1,80})", str(error))
    return f"PyTorch does not read {match[1]}" if match else "PyTorch does not read it"


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
    storages = [
        member.untyped_storage() for member in dense_tensors if not member.is_meta
    ]
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


def unsafe_pickle_error(subject: str, reason: str) -> InvalidCheckpoint:
    """Return the error for a pickle that holds more than tensors."""
    return InvalidCheckpoint(
        f"{subject}: not a plain state dict. Loading it fully could run "
        f"code hidden in it, so it was not loaded ({reason}). Save the state dict "
        f"alone: {_SAVE_COMMAND}, or convert it to safetensors."
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
    _check_hidden_tensors(content, path)
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


def _hidden_tensors_error(path: Path, name: str) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{path.name}: its tensors are inside an object of the class {name[:80]}, whose "
        "code is not run. Save its weights alone, where the class is installed: "
        f"{_SAVE_COMMAND}."
    )


def _check_hidden_tensors(content: object, path: Path) -> None:
    """Refuse tensors inside objects of other classes, such as a whole model.

    Raises
    ------
    InvalidCheckpoint
        With the class and how the weights are saved alone.
    """
    import torch

    visited: set[int] = set()
    queue: deque[tuple[str, Any]] = deque([("", content)])
    while queue:
        name, value = queue.popleft()
        if isinstance(value, torch.Tensor) and name:
            raise _hidden_tensors_error(path, name)
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, StandIn):
            queue += [(name or value.name, part) for part in value.content]
        elif isinstance(value, Mapping):
            queue += [(name, part) for part in value.values()]
        elif isinstance(value, list | tuple) and name:
            queue += [(name, part) for part in value]


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
        if isinstance(options, Mapping) and all(
            isinstance(name, str) for name in options
        ):
            return dict(options)
    return {}
