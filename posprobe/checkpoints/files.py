"""Bytes of the files of one checkpoint, on disk or elsewhere, by name and place.

Formats that need only some bytes of their files read them through `Files`, so that one reader
serves a folder, mapped into memory, and a repository of the Hub, read by range. Two of them are
made of protocol buffers, whose fields are found here by number, without what they mean.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from posprobe.errors import InvalidCheckpoint, UnknownReference, first_line
from posprobe.opening import open_regular


class Files(Protocol):
    """The files of one folder and those below it."""

    def names(self, folder: str) -> list[str]:
        """Name the files in a folder, which ends in a slash or is empty."""

    def display_name(self, file: str) -> str:
        """Return the name of a file in messages."""

    def has(self, file: str) -> bool:
        """Tell whether there is anything of this name."""

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before.

        The implementation may read ahead.
        """

    def exactly(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, without reading ahead."""

    def path(self, file: str) -> Path:
        """Return where a file lies on this disk, downloaded whole if it has to be."""


class FormerNames:
    """Former names of the methods of `Files`, which version 0.3 drops."""

    def told(self: Files, file: str) -> str:
        """Former name of `display_name`."""
        warnings.warn(
            "Files.told is now Files.display_name; the old name leaves with version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.display_name(file)


class Stream(io.RawIOBase):
    """A range of a file as the open file that libraries expect, read on demand."""

    def __init__(
        self, files: Files, file: str, start: int = 0, stop: int | None = None
    ) -> None:
        super().__init__()
        self._files, self._file, self._start, self._offset = files, file, start, 0
        self.size = (files.size(file) if stop is None else stop) - start

    def seekable(self) -> bool:
        """Return True: any offset can be read."""
        return True

    def readable(self) -> bool:
        """Return True: a file can be read."""
        return True

    def tell(self) -> int:
        """Return the offset that is read next."""
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self.size}[
            whence
        ]
        self._offset = start + offset
        return self._offset

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or less of it at the end of the file."""
        start, stop = (
            min(self._offset, self.size),
            min(self._offset + len(buffer), self.size),
        )
        content = self._files.read(self._file, self._start + start, self._start + stop)
        buffer[: len(content)] = content
        self._offset += len(content)
        return len(content)

    def skip(self, count: int) -> int:
        """Move on by ``count`` bytes, and return the offset before that.

        Raises
        ------
        ValueError
            If the file ends before.
        """
        start, remaining = self._offset, self.size - self._offset
        if not 0 <= count <= remaining:
            raise ValueError(
                f"{count} bytes are announced at byte {start} and {remaining} are left"
            )
        self._offset += count
        return start

    def take(self, count: int) -> bytes:
        """Read exactly ``count`` bytes.

        Raises
        ------
        ValueError
            If the file ends before.
        """
        start = self._start + self.skip(count)
        return bytes(self._files.read(self._file, start, start + count))


def member_range(files: Files, archive: str, member: zipfile.ZipInfo) -> tuple[int, int]:
    """Return the byte range of an uncompressed member in an archive.

    Raises
    ------
    ValueError
        If it reaches beyond the archive.
    """
    stream = Stream(files, archive)
    stream.seek(member.header_offset + 26)  # lengths of the name and of the extra field
    start = sum(struct.unpack("<2H", stream.take(4))) + stream.tell()
    if start + member.file_size > stream.size:
        raise ValueError(f"{member.filename[:80]!r} ends behind the archive")
    return start, start + member.file_size


@dataclass(frozen=True)
class LocalFiles(FormerNames):
    """The files of a folder on disk, mapped into memory when they are first read.

    Parameters
    ----------
    root
        Path of the folder.
    named_file
        File in the folder that the user named; it may be a link to anywhere.
    """

    root: Path
    named_file: str = ""
    maps: dict[str, memoryview[int]] = field(default_factory=dict)

    def names(self, folder: str) -> list[str]:
        """Name the files in a folder, which ends in a slash or is empty."""
        path = self.root / folder
        return (
            [entry.name for entry in path.iterdir() if not entry.is_dir()]
            if path.is_dir()
            else []
        )

    def display_name(self, file: str) -> str:
        """Return the name of a file in messages."""
        return str(self.root / file)

    def has(self, file: str) -> bool:
        """Tell whether there is anything of this name."""
        return os.path.lexists(self.root / file)

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        return len(self._map(file))

    def read(self, file: str, start: int, stop: int) -> memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        return self._map(file)[start:stop]

    def exactly(self, file: str, start: int, stop: int) -> memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file."""
        return self.read(file, start, stop)

    def path(self, file: str) -> Path:
        """Return where a file lies; it is regular, and no link leads to it out of the folder."""
        path = self.root / file
        if not path.is_file():
            raise InvalidCheckpoint(
                f"{path}: not a regular file, or not there. Download the whole checkpoint."
            )
        if file != self.named_file:
            check_link_inside(path, self.root)
        return path

    def _map(self, file: str) -> memoryview[int]:
        if file not in self.maps:
            with explain_read_errors(self.display_name(file)):
                self.maps[file] = map_file(self.path(file))
        return self.maps[file]


@contextmanager
def explain_read_errors(subject: Path | str) -> Iterator[None]:
    """Turn errors of the file system into errors that name the file.

    Raises
    ------
    UnknownReference, InvalidCheckpoint
        If an `OSError` is raised inside.
    """
    try:
        yield
    except PermissionError as error:
        advice = "permission denied. Check that you may read it."
        raise UnknownReference(f"{error.filename or subject}: {advice}") from error
    except FileNotFoundError as error:
        raise UnknownReference(
            f"{error.filename or subject}: no such file. Check the path."
        ) from error
    except OSError as error:
        message = f"{error.filename or subject}: it cannot be read ({first_line(error)})"
        raise InvalidCheckpoint(f"{message}. Download it again.") from error


def map_file(path: Path) -> memoryview[int]:
    """Map a file into memory; an empty file gives an empty view."""
    with open_regular(path) as stream:
        if path.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def check_link_inside(path: Path, folder: Path) -> None:
    """Refuse a link from a checkpoint's folder to a file outside it.

    The Hub's local cache consists of links to the folder ``blobs`` of each repository.

    Raises
    ------
    InvalidCheckpoint
        If the file lies neither in the checkpoint's folder nor in such a folder.
    """
    real_path = path.resolve()
    is_in_cache = (
        real_path.parent.name == "blobs"
        and real_path.parent.parent.name.startswith("models--")
    )
    if not is_in_cache and not real_path.is_relative_to(folder.resolve()):
        raise InvalidCheckpoint(
            f"{path}: a link that leads out of its folder. Put the file itself there."
        )


class MalformedMessage(ValueError):
    """Bytes that are not a protocol buffer message."""


def read_varint(content: bytes | memoryview[int], offset: int) -> tuple[int, int]:
    """Read a variable-length number, seven bits a byte; return it and the offset behind it.

    Raises
    ------
    MalformedMessage
        If the content ends within the number, or it has more than 64 bits.
    """
    value = shift = 0
    while True:
        if offset >= len(content) or shift > 63:
            raise MalformedMessage(f"there is no number at byte {offset}")
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7


def iter_fields(
    content: bytes | memoryview[int], start: int, stop: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, first byte and end of every field of a message.

    Raises
    ------
    MalformedMessage
        If the fields do not end where the message does.
    """
    offset = start
    while offset < stop:
        tag, offset = read_varint(content, offset)
        number, wire_type = tag >> 3, tag & 7
        first_byte = offset
        if wire_type == 0:
            _, offset = read_varint(content, offset)
        elif wire_type == 2:
            length, first_byte = read_varint(content, offset)
            offset = first_byte + length
        elif wire_type in (1, 5):
            offset += 8 if wire_type == 1 else 4
        else:
            raise MalformedMessage(
                f"a field at byte {first_byte} is of the kind {wire_type}"
            )
        if offset > stop:
            raise MalformedMessage(
                f"a field at byte {first_byte} reaches beyond its message"
            )
        yield number, wire_type, first_byte, offset
