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

    def told(self, file: str) -> str:
        """Return what messages call a file."""

    def has(self, file: str) -> bool:
        """Tell whether there is anything of this name."""

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before.

        What follows may be asked for with them.
        """

    def exactly(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, and ask for no others."""

    def path(self, file: str) -> Path:
        """Return where a file lies on this disk, downloaded whole if it has to be."""


class Stream(io.RawIOBase):
    """A file, or some bytes of it, as the open file that libraries want.

    Nothing is read but what is asked for.
    """

    def __init__(self, files: Files, file: str, start: int = 0, stop: int | None = None) -> None:
        super().__init__()
        self._files, self._file, self._start, self._at = files, file, start, 0
        self.size = (files.size(file) if stop is None else stop) - start

    def seekable(self) -> bool:
        """Tell that any place can be read."""
        return True

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def tell(self) -> int:
        """Return the place that is read next."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there are bytes."""
        start, stop = min(self._at, self.size), min(self._at + len(buffer), self.size)
        piece = self._files.read(self._file, self._start + start, self._start + stop)
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def skip(self, count: int) -> int:
        """Move on, and return where that was from.

        Raises
        ------
        ValueError
            If it ends before.
        """
        start, remaining = self._at, self.size - self._at
        if not 0 <= count <= remaining:
            raise ValueError(
                f"{count} bytes are announced at byte {start} and {remaining} are left"
            )
        self._at += count
        return start

    def take(self, count: int) -> bytes:
        """Read so many bytes.

        Raises
        ------
        ValueError
            If it ends before.
        """
        start = self._start + self.skip(count)
        return bytes(self._files.read(self._file, start, start + count))


def member_place(files: Files, archive: str, member: zipfile.ZipInfo) -> tuple[int, int]:
    """Return where in an archive the bytes of a member that is not compressed lie.

    Raises
    ------
    ValueError
        If they reach beyond the archive.
    """
    stream = Stream(files, archive)
    stream.seek(member.header_offset + 26)  # lengths of the name and of what follows it
    begin = sum(struct.unpack("<2H", stream.take(4))) + stream.tell()
    if begin + member.file_size > stream.size:
        raise ValueError(f"{member.filename[:80]!r} ends behind the archive")
    return begin, begin + member.file_size


@dataclass(frozen=True)
class LocalFiles:
    """The files of a folder on disk, mapped into memory when they are first asked for.

    Parameters
    ----------
    root
        The folder.
    named
        The file in it that the user named, which may be a link to anywhere.
    """

    root: Path
    named: str = ""
    maps: dict[str, memoryview[int]] = field(default_factory=dict)

    def names(self, folder: str) -> list[str]:
        """Name the files in a folder, which ends in a slash or is empty."""
        place = self.root / folder
        return (
            [entry.name for entry in place.iterdir() if not entry.is_dir()]
            if place.is_dir()
            else []
        )

    def told(self, file: str) -> str:
        """Return what messages call a file."""
        return str(self.root / file)

    def has(self, file: str) -> bool:
        """Tell whether there is anything of this name."""
        return os.path.lexists(self.root / file)

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        return len(self._mapped(file))

    def read(self, file: str, start: int, stop: int) -> memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        return self._mapped(file)[start:stop]

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
        if file != self.named:
            refuse_link_out(path, self.root)
        return path

    def _mapped(self, file: str) -> memoryview[int]:
        if file not in self.maps:
            with readable(self.told(file)):
                self.maps[file] = map_file(self.path(file))
        return self.maps[file]


@contextmanager
def readable(subject: Path | str) -> Iterator[None]:
    """Say which file cannot be read.

    Raises
    ------
    UnknownReference, InvalidCheckpoint
        In place of an `OSError`.
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


def refuse_link_out(path: Path, folder: Path) -> None:
    """Refuse a file of a checkpoint that a link leads to from elsewhere.

    The Hub's local cache is made of links, to the folder ``blobs`` of each repository.

    Raises
    ------
    InvalidCheckpoint
        If it lies neither in the checkpoint's folder nor there.
    """
    real = path.resolve()
    in_cache = real.parent.name == "blobs" and real.parent.parent.name.startswith("models--")
    if not in_cache and not real.is_relative_to(folder.resolve()):
        raise InvalidCheckpoint(
            f"{path}: a link that leads out of its folder. Put the file itself there."
        )


class Damaged(ValueError):
    """Bytes that are no message."""


def varint(data: bytes | memoryview[int], place: int) -> tuple[int, int]:
    """Read a number of seven bits a byte; return it and the place behind it.

    Raises
    ------
    Damaged
        If the data end before it does, or it has more than 64 bits.
    """
    number = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise Damaged(f"there is no number at byte {place}")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7


def places(
    data: bytes | memoryview[int], start: int, stop: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type and place (first byte, end) of each field of a message.

    Of numbers of a variable length the place is that of their bytes.

    Raises
    ------
    Damaged
        If the fields do not end where the message does.
    """
    place = start
    while place < stop:
        tag, place = varint(data, place)
        number, kind = tag >> 3, tag & 7
        begin = place
        if kind == 0:
            _, place = varint(data, place)
        elif kind == 2:
            length, begin = varint(data, place)
            place = begin + length
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise Damaged(f"a field at byte {begin} is of the kind {kind}")
        if place > stop:
            raise Damaged(f"a field at byte {begin} reaches beyond its message")
        yield number, kind, begin, place
