"""The safetensors format: a JSON header with every tensor's byte range, then raw bytes.

The safetensors package checks the header. It maps whole files only, and NumPy has no bfloat16, so
the byte ranges are taken from the header here, for files on disk and on the Hub.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import safetensors

from posprobe.checkpoints.checkpoint import Checkpoint, TensorInfo, damaged_error
from posprobe.checkpoints.files import Files
from posprobe.errors import InvalidCheckpoint, explain_errors

#: First bytes of a ZIP archive. Its first two bytes are also those of a header of 19,280 bytes.
ZIP_MAGIC = b"PK\x03\x04"
#: Longest header in bytes; the safetensors package refuses longer ones as well.
MAX_SAFETENSORS_HEADER_BYTES = 100_000_000
#: Number of bytes that are copied at a time.
_COPY_BYTES = 2**23
#: A valid header, which the safetensors package refuses only because its data are missing.
_VALID_HEADER = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'


def read_safetensors(files: Files, file: str) -> Checkpoint:
    """Read the header of a safetensors file; ``files`` gives its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """
    size = files.size(file)
    if size < 8:
        raise damaged_error(f"{file}: {size} bytes are not a safetensors file")
    length_field = bytes(files.read(file, 0, 8))
    length = int.from_bytes(length_field, "little")
    if length > min(size - 8, MAX_SAFETENSORS_HEADER_BYTES):
        if length_field.startswith(ZIP_MAGIC):
            raise InvalidCheckpoint(
                f"{file}: not a safetensors file but begins as a ZIP "
                "archive, as PyTorch's files do. Rename it to what it is: "
                ".bin or .pt, .npz or .keras."
            )
        raise InvalidCheckpoint(
            f"{file}: the header claims {length} bytes of {size}: truncated or no safetensors file."
        )
    data_start = 8 + length
    tensors = {
        name: TensorInfo(
            name,
            tuple(entry["shape"]),
            entry["dtype"],
            file,
            *(data_start + offset for offset in entry["data_offsets"]),
        )
        for name, entry in _parse_header(
            bytes(files.read(file, 8, data_start)), file
        ).items()
        if name != "__metadata__"
    }
    data_stop = data_start
    for info in tensors.values():
        data_stop = max(data_stop, info.stop)
        if info.stop > size:
            raise damaged_error(
                f"{file}: tensor {info.name!r} ends at byte {info.stop} of {size}"
            )
    if data_stop < size:
        raise damaged_error(
            f"{file}: its tensors end at byte {data_stop} of a file of {size}"
        )
    return Checkpoint(
        file, tensors, lambda info: files.exactly(file, info.start, info.stop)
    )


def replace_tensor(
    source: Path, target: Path, name: str, shape: tuple[int, ...], content: bytes
) -> None:
    """Copy a file with one tensor of another shape; all other tensors keep their bytes.

    The file is copied in blocks, so that its size does not matter.

    Parameters
    ----------
    source
        Path of a valid file.
    target
        Path of the copy, which is overwritten.
    name, shape, content
        Name, shape and content of the tensor, whose format stays.

    Raises
    ------
    OSError
        If a file cannot be read or written.
    """
    with source.open("rb") as old, target.open("wb") as new:
        length = int.from_bytes(old.read(8), "little")
        header = _parse_header(old.read(length), source.name)
        start, stop = header[name]["data_offsets"]
        shift = len(content) - (stop - start)
        for other_name, entry in header.items():
            if (
                other_name not in (name, "__metadata__")
                and entry["data_offsets"][0] >= stop
            ):
                entry["data_offsets"] = [place + shift for place in entry["data_offsets"]]
        header[name] |= {
            "shape": list(shape),
            "data_offsets": [start, start + len(content)],
        }
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        new.write(len(text).to_bytes(8, "little") + text)
        _copy(old, new, start)
        new.write(content)
        old.seek(8 + length + stop)
        _copy(old, new, source.stat().st_size - 8 - length - stop)


def _copy(old: BinaryIO, new: BinaryIO, n_bytes: int) -> None:
    while n_bytes > 0:
        chunk = old.read(min(n_bytes, _COPY_BYTES))
        if not chunk:
            raise OSError(f"{n_bytes} bytes are missing at its end")
        new.write(chunk)
        n_bytes -= len(chunk)


def _parse_header(header: bytes, file: str) -> dict[str, Any]:
    """Parse a header.

    Raises
    ------
    InvalidCheckpoint
        If the safetensors package refuses it, or a name occurs twice, which the package accepts.
    """
    refusal = _header_error(header)
    subject = f"{file}: the safetensors package refuses its header"
    advice = (
        "The file is damaged, or of a newer version of the format: download it again."
    )
    with explain_errors(InvalidCheckpoint, subject, advice, ValueError):
        if refusal:
            raise ValueError(refusal)
        entries: dict[str, Any] = json.loads(header, object_pairs_hook=_check_unique)
    return entries


def _header_error(header: bytes) -> str:
    """Return the objection of the safetensors package to a header, or an empty text.

    The package gets no data, and its last check complains about that in words that change with its
    version: a header with the same message as a valid one has no fault.
    """
    messages = []
    for candidate in (header, _VALID_HEADER):
        try:
            safetensors.deserialize(len(candidate).to_bytes(8, "little") + candidate)  # type: ignore[no-untyped-call]
            messages.append("")
        except safetensors.SafetensorError as error:
            messages.append(
                str(error).removeprefix("Error while deserializing").lstrip(": ")
            )
    return "" if messages[0] == messages[1] else messages[0]


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        duplicate = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"it has {duplicate[:80]!r} twice")
    return entries
