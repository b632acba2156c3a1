"""Bytes of the files of one checkpoint, on disk or elsewhere, by name and place.

Formats that need only some bytes of their files read them through `Files`, so that one reader
serves a folder, mapped into memory, and a repository of the Hub, read by range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from posprobe.checkpoints.safetensors import map_file
from posprobe.errors import InvalidCheckpoint


class Files(Protocol):
    """The files of one folder."""

    def has(self, file: str) -> bool:
        """Tell whether there is such a file."""

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""

    def read(self, file: str, start: int, stop: int) -> bytes | memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""


@dataclass(frozen=True)
class LocalFiles:
    """The files of a folder on disk, mapped into memory when they are first asked for.

    Parameters
    ----------
    path
        The file that was named; the others lie beside it, or, where that is a link, beside the file
        that it leads to, as in the Hub's local cache.
    """

    path: Path
    maps: dict[str, memoryview[int]] = field(default_factory=dict)

    def has(self, file: str) -> bool:
        """Tell whether there is such a file."""
        return (self.path.parent / file).is_file()

    def size(self, file: str) -> int:
        """Return a file's length in bytes."""
        return len(self._map(file))

    def read(self, file: str, start: int, stop: int) -> memoryview[int]:
        """Return the bytes ``start`` to ``stop`` of a file, fewer where it ends before."""
        return self._map(file)[start:stop]

    def _map(self, file: str) -> memoryview[int]:
        if file not in self.maps:
            path = self.path.parent / file
            if not path.is_file():
                raise InvalidCheckpoint(
                    f"{path}: the checkpoint needs it, and it is no regular file or not there. "
                    "Download the whole checkpoint."
                )
            folders = (self.path.parent.resolve(), self.path.resolve().parent)
            if not any(path.resolve().is_relative_to(folder) for folder in folders):
                raise InvalidCheckpoint(
                    f"{path}: the checkpoint names it, and it is a link that leads out of its "
                    "folder. It was not opened; put the file itself there."
                )
            self.maps[file] = map_file(path)
        return self.maps[file]
