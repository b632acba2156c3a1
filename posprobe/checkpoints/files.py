"""Bytes of the files of one checkpoint, on disk or elsewhere, by name and place.

Formats that need only some bytes of their files read them through `Files`, so that one reader
serves a folder, mapped into memory, and a repository of the Hub, read by range.
"""

from __future__ import annotations

import io
import mmap
import os
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, overload

import numpy as np

from posprobe.errors import InvalidCheckpoint
from posprobe.opening import open_regular


class Files(Protocol):
    """The files of one folder."""

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


@dataclass(frozen=True)
class View:
    """Some bytes of a file that are read as they are asked for, by slices as of a `memoryview`."""

    files: Files
    file: str
    start: int
    stop: int

    @classmethod
    def of(cls, files: Files, file: str) -> View:
        """Give a whole file to readers that look at some of its bytes."""
        return cls(files, file, 0, files.size(file))

    def __len__(self) -> int:
        return self.stop - self.start

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> bytes | memoryview[int]: ...

    def __getitem__(self, place: int | slice) -> int | bytes | memoryview[int]:
        if isinstance(place, int):
            if not 0 <= place < len(self):
                raise IndexError("it ends too early")
            return self[place : place + 1][0]
        begin, end, _ = place.indices(len(self))
        return self.files.read(self.file, self.start + begin, self.start + max(begin, end))


#: A file, or what was unpacked from one.
Content: TypeAlias = "memoryview[int] | View"


class Stream(io.RawIOBase):
    """Bytes as the open file that libraries want; nothing is read but what is asked for."""

    def __init__(self, content: Content) -> None:
        super().__init__()
        self._content, self._at = content, 0

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
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._content)}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there are bytes."""
        piece = self._content[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def member_place(content: Content, member: zipfile.ZipInfo) -> tuple[int, int]:
    """Return where in an archive the bytes of a member that is not compressed lie.

    Raises
    ------
    ValueError
        If they reach beyond the archive.
    """
    head = content[member.header_offset : member.header_offset + 30]
    begin = member.header_offset + 30 + sum(np.frombuffer(head[26:30], "<u2").tolist())
    if begin + member.file_size > len(content):
        raise ValueError(f"{member.filename[:80]!r} ends behind the archive")
    return begin, begin + member.file_size


def let_go(data: bytes | memoryview[int]) -> None:
    """Give back what was read of a mapped file and copied: it counts as memory of this process."""
    if isinstance(data, memoryview) and isinstance(data.obj, mmap.mmap):
        with suppress(AttributeError):  # of systems that know no such advice
            data.obj.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class LocalFiles:
    """The files of a folder on disk, mapped into memory when they are first asked for.

    Parameters
    ----------
    path
        The file that was named; the others lie beside it.
    """

    path: Path
    maps: dict[str, memoryview[int]] = field(default_factory=dict)

    def has(self, file: str) -> bool:
        """Tell whether there is anything of this name."""
        return os.path.lexists(self.path.parent / file)

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        return len(self._mapped(file))

    def read(self, file: str, start: int, stop: int) -> memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        return self._mapped(file)[start:stop]

    def exactly(self, file: str, start: int, stop: int) -> memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file."""
        return self.read(file, start, stop)

    def _mapped(self, file: str) -> memoryview[int]:
        if file not in self.maps:
            path = self.path.parent / file
            if not path.is_file():
                raise InvalidCheckpoint(
                    f"{path}: not a regular file, or not there. Download the whole checkpoint."
                )
            if path != self.path:
                refuse_link_out(path, self.path.parent)
            self.maps[file] = map_file(path)
        return self.maps[file]


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
