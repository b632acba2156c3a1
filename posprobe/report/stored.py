"""What a bundle holds, read back: it may be damaged, or somebody else's."""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from posprobe.errors import InvalidCheckpoint, UnknownReference
from posprobe.report.files import LARGEST, expanded, read_regular

#: Of the six kinds of bundle.
ANALYSIS: Final = "posprobe.analysis/2"
COMPARISON: Final = "posprobe.comparison/2"
KERNELS: Final = "posprobe.kernels/2"
FORWARD: Final = "posprobe.forward/2"
RESIZING: Final = "posprobe.resizing/1"
CHECK: Final = "posprobe.check/1"
SCHEMAS = (ANALYSIS, COMPARISON, KERNELS, FORWARD, RESIZING, CHECK)
#: Of version 1, which still become pages.
EARLIER = (
    "posprobe.analysis/1",
    "posprobe.comparison/1",
    "posprobe.kernels/1",
    "posprobe.forward/1",
)
#: What helps where a bundle is damaged.
AGAIN = "Analyse the table again."
#: Arrays of which the page of a table is drawn.
_SHOWN = (
    "similarity_centered", "norms", "pca_scores", "rotation_paths", "budget_spectrum",
)  # fmt: skip
#: Bytes that one of them may have.
_LARGEST_ARRAY = 2**30


def read_bundle(folder: Path) -> dict[str, Any]:
    """Read a bundle's ``analysis.json``.

    Raises
    ------
    UnknownReference
        If the folder is not a bundle.
    InvalidCheckpoint
        If the file is damaged or of another version.
    """
    path = expanded(folder) / "analysis.json"
    with _sound(path, AGAIN):
        try:
            document = json.loads(read_regular(path))
        except FileNotFoundError as error:
            raise UnknownReference(
                f"{folder}: not a report: it has no analysis.json. "
                "`posprobe analyze REF --out DIR` makes one."
            ) from error
    found = document.get("schema") if isinstance(document, dict) else None
    if found not in (*SCHEMAS, *EARLIER):
        raise InvalidCheckpoint(
            f"{path}: its schema is {found!r:.80} and one of {', '.join(SCHEMAS)} is needed. "
            f"{AGAIN}"
        )
    return dict(document)


def stored_drawings(folder: Path, again: str, *, least: int = 1) -> dict[str, str]:
    """Read a bundle's drawings, by name.

    Parameters
    ----------
    folder
        ``figures`` of a bundle.
    again
        What helps where it is damaged.
    least
        How many there must be.

    Raises
    ------
    InvalidCheckpoint
        If one is not a drawing, if together they are too large, or if there are too few.
    """
    drawings: dict[str, str] = {}
    room = LARGEST
    for path in sorted(folder.glob("*.svg")):
        with _sound(path, again):
            drawings[path.stem] = read_regular(path, room).decode("utf-8")
            room -= len(drawings[path.stem])
            if "<svg" not in drawings[path.stem]:
                raise InvalidCheckpoint(f"{path}: not a drawing.")
    if len(drawings) < least:
        raise InvalidCheckpoint(
            f"{folder}: the bundle has lost its figures, which the page shows. {again}"
        )
    return drawings


@contextmanager
def _sound(path: Path, again: str) -> Iterator[None]:
    """Say of what is damaged what helps."""
    try:
        yield
    except (InvalidCheckpoint, FileNotFoundError) as error:
        raise InvalidCheckpoint(f"{error} {again}") from error
    except (
        OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        raise InvalidCheckpoint(f"{path}: it cannot be read ({error}). {again}") from error


def stored_arrays(path: Path, again: str, names: Sequence[str] = _SHOWN) -> dict[str, NDArray[Any]]:
    """Read arrays of a bundle, those of which the page of a table is drawn where none are named.

    Raises
    ------
    InvalidCheckpoint
        If the archive is gone or damaged, or holds something else under their names.
    """
    with _sound(path, again):
        if not path.is_file():
            what = "it is not a file" if path.exists() else "the bundle has lost its arrays"
            raise InvalidCheckpoint(f"{path}: {what}.")
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            arrays = {
                name: _floats(archive, members[f"{name}.npy"])
                for name in names
                if f"{name}.npy" in members
            }
        if "similarity_centered" in arrays:
            _check_cosines("similarity_centered", arrays["similarity_centered"])
    return arrays


def _floats(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array of floats, after its size was held against what is stored."""
    if member.file_size > _LARGEST_ARRAY:
        raise ValueError(f"{member.filename} has {member.file_size} bytes")
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind != "f" or stream.tell() + size != member.file_size:
            raise ValueError(f"{member.filename} is not an array of numbers")
        order: Literal["F", "C"] = "F" if by_columns else "C"
        whole = np.frombuffer(stream.read(size), dtype) if size else np.zeros(0)
        return whole.reshape(shape, order=order)


def _check_cosines(name: str, matrix: NDArray[Any]) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name}.npy is not a matrix of cosines")
    if (np.abs(matrix) > 1.001).any():
        raise ValueError(f"{name}.npy holds what is not a cosine")
