"""The safetensors format: a JSON header that gives every tensor's place, then raw bytes.

The safetensors package checks the header. It maps whole files alone, and its NumPy side cannot hold
bfloat16: so the places are taken from the header here, for files on disk and on the Hub.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import safetensors

from posprobe.checkpoints.checkpoint import Checkpoint, TensorInfo, damaged
from posprobe.checkpoints.files import Files
from posprobe.errors import InvalidCheckpoint, explain_errors

#: How a ZIP archive begins. Its first two bytes are also those of a header of 19,280 bytes.
ZIP = b"PK\x03\x04"
#: The safetensors package refuses longer headers as well.
MAX_HEADER = 100_000_000
#: Bytes that are copied at a time.
_PIECE = 2**23
#: A header with which nothing is wrong but that its data are missing.
_SOUND = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'


def read_safetensors(files: Files, file: str) -> Checkpoint:
    """Read the header of a safetensors file; ``files`` gives its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the header is damaged or claims what the file cannot hold.
    """
    size = files.size(file)
    if size < 8:
        raise damaged(f"{file}: {size} bytes are not a safetensors file")
    begun = bytes(files.read(file, 0, 8))
    length = int.from_bytes(begun, "little")
    if length > min(size - 8, MAX_HEADER):
        if begun.startswith(ZIP):
            raise InvalidCheckpoint(
                f"{file}: not a safetensors file but begins as a ZIP archive, as PyTorch's "
                "files do. Rename it to what it is: .bin or .pt, .npz or .keras."
            )
        raise InvalidCheckpoint(
            f"{file}: the header claims {length} bytes of {size}: truncated or no safetensors file."
        )
    begin = 8 + length
    tensors = {
        name: TensorInfo(
            name, tuple(entry["shape"]), entry["dtype"], file,
            *(begin + place for place in entry["data_offsets"]),
        )
        for name, entry in _entries(bytes(files.read(file, 8, begin)), file).items()
        if name != "__metadata__"
    }  # fmt: skip
    end = begin
    for info in tensors.values():
        end = max(end, info.stop)
        if info.stop > size:
            raise damaged(f"{file}: tensor {info.name!r} ends at byte {info.stop} of {size}")
    if end < size:
        raise damaged(f"{file}: its tensors end at byte {end} of a file of {size}")
    return Checkpoint(file, tensors, lambda info: files.exactly(file, info.start, info.stop))


def replace_tensor(
    source: Path, target: Path, name: str, shape: tuple[int, ...], content: bytes
) -> None:
    """Copy a file with one tensor of another shape; every other byte of its data is as it was.

    The file is read in pieces, so that its size does not matter.

    Parameters
    ----------
    source
        A sound file.
    target
        Written over.
    name, shape, content
        Of the tensor, whose format stays.

    Raises
    ------
    OSError
        If a file cannot be read or written.
    """
    with source.open("rb") as old, target.open("wb") as new:
        length = int.from_bytes(old.read(8), "little")
        header = _entries(old.read(length), source.name)
        start, stop = header[name]["data_offsets"]
        shift = len(content) - (stop - start)
        for other_name, entry in header.items():
            if other_name not in (name, "__metadata__") and entry["data_offsets"][0] >= stop:
                entry["data_offsets"] = [place + shift for place in entry["data_offsets"]]
        header[name] |= {"shape": list(shape), "data_offsets": [start, start + len(content)]}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        new.write(len(text).to_bytes(8, "little") + text)
        _copy(old, new, start)
        new.write(content)
        old.seek(8 + length + stop)
        _copy(old, new, source.stat().st_size - 8 - length - stop)


def _copy(old: BinaryIO, new: BinaryIO, count: int) -> None:
    while count > 0:
        piece = old.read(min(count, _PIECE))
        if not piece:
            raise OSError(f"{count} bytes are missing at its end")
        new.write(piece)
        count -= len(piece)


def _entries(header: bytes, file: str) -> dict[str, Any]:
    """Parse a header.

    Raises
    ------
    InvalidCheckpoint
        If the safetensors package refuses it, or a name is in it twice, of which the package takes
        one.
    """
    refusal = _refusal(header)
    subject = f"{file}: the safetensors package refuses its header"
    advice = "The file is damaged, or of a newer version of the format: download it again."
    with explain_errors(InvalidCheckpoint, subject, advice, ValueError):
        if refusal:
            raise ValueError(refusal)
        entries: dict[str, Any] = json.loads(header, object_pairs_hook=_no_duplicates)
    return entries


def _refusal(header: bytes) -> str:
    """Return what the safetensors package says against a header.

    It is given no data, which it says last, and in other words in each of its versions.
    """
    answers = []
    for candidate in (header, _SOUND):
        try:
            safetensors.deserialize(len(candidate).to_bytes(8, "little") + candidate)  # type: ignore[no-untyped-call]
            answers.append("")
        except safetensors.SafetensorError as error:
            answers.append(str(error).removeprefix("Error while deserializing").lstrip(": "))
    return "" if answers[0] == answers[1] else answers[0]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"it has {twice[:80]!r} twice")
    return entries
