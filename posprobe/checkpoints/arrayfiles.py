"""Arrays as files: ``.npy`` holds one, ``.npz`` several by name, ``.csv`` one as text."""

from __future__ import annotations

import math
import warnings
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from posprobe.checkpoints.checkpoint import (
    DTYPES,
    FLOATS,
    MAX_UNPACKED,
    Checkpoint,
    TensorInfo,
    bytes_of,
    check_unpacked,
)
from posprobe.checkpoints.files import Files, Stream, member_place
from posprobe.errors import InvalidCheckpoint, explain_errors

_ADVICE = "Save the array again with numpy.save, without Python objects."


def read_npy(files: Files, name: str) -> Checkpoint:
    """Read the header of a ``.npy`` file; the tensor is named after the file.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds Python objects.
    """
    with explain_errors(InvalidCheckpoint, f"{name}: NumPy cannot read it", _ADVICE):
        stream = Stream(files, name)
        array = _Array.read(stream)
        if array.dtype.hasobject or array.size > stream.size - array.head:
            raise ValueError(f"{stream.size} bytes for an array of {array}")
    info = array.info(Path(name).stem, name)
    if array.as_it_is:  # rows lie in the file as they are read, so that some can be had alone
        info = replace(info, start=array.head, stop=array.head + array.size)

    def fetch(part: TensorInfo) -> bytes | memoryview[int]:
        if array.as_it_is:
            return files.exactly(name, part.start, part.stop)
        return bytes_of(npy.read_array(Stream(files, name), allow_pickle=False), info.dtype)

    return Checkpoint(name, {info.name: info}, fetch)


@dataclass(frozen=True)
class _Array:
    """What stands before an array's bytes, and how many bytes that takes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns_first: bool
    head: int

    @classmethod
    def read(cls, stream: Any) -> _Array:
        """Read it off an open file.

        Raises
        ------
        ValueError
            If it is none.
        """
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, columns_first, dtype = read(stream)
        if version > (3, 0) or min(shape, default=0) < 0:
            raise ValueError(f"version {version}, shape {list(shape)}")
        return cls(shape, dtype, columns_first, stream.tell())

    def __str__(self) -> str:
        return f"shape {list(self.shape)}, {self.dtype}"

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def as_it_is(self) -> bool:
        """Whether its bytes are those of the array in memory, row by row."""
        rows = not self.columns_first or len(self.shape) < 2
        return rows and self.dtype == self.dtype.newbyteorder("<")

    def info(self, name: str, file: str) -> TensorInfo:
        """Describe it."""
        return TensorInfo(name, self.shape, DTYPES.get(self.dtype.name, str(self.dtype)), file)


def read_npz(files: Files, name: str) -> Checkpoint:
    """Read the names in a ``.npz`` archive; of an array that is not compressed only its bytes.

    Raises
    ------
    InvalidCheckpoint
        If the archive is damaged or holds Python objects.
    """
    with (
        explain_errors(InvalidCheckpoint, f"{name}: NumPy cannot read it", _ADVICE),
        zipfile.ZipFile(Stream(files, name)) as archive,
    ):
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        counts = Counter(member.filename for member in members)
        if len(counts) < len(members):
            raise ValueError(f"{counts.most_common(1)[0][0][:80]!r} is in the archive twice")
        members_found = [_member(archive, member, files, name) for member in members]
        tensors = {info.name: info for info, _ in members_found}
        sums = {
            info.name: (head, member.CRC)
            for (info, head), member in zip(members_found, members, strict=True)
        }
    if not tensors:
        raise InvalidCheckpoint(f"{name}: the archive holds no arrays.")

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        with explain_errors(InvalidCheckpoint, f"{name}: NumPy cannot read it", _ADVICE):
            if not info.stop:
                return _unpacked(files, name, info)
            piece = files.exactly(name, info.start, info.stop)
            head, checksum = sums.get(info.name, (0, None))  # some rows have no checksum
            head_bytes = files.read(name, info.start - head, info.start)
            if checksum is not None and zlib.crc32(piece, zlib.crc32(head_bytes)) != checksum:
                raise ValueError(f"{info.name} is not what its checksum says")
            return piece

    return Checkpoint(name, tensors, fetch)


def _unpacked(files: Files, name: str, info: TensorInfo) -> memoryview[int]:
    # NumPy's own reader prefers a member of the bare name, which is not an array.
    with zipfile.ZipFile(Stream(files, name)) as archive:
        member = archive.getinfo(f"{info.name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            check_unpacked(f"{name}: {info.name}", member.file_size)
        with archive.open(member) as stream:
            return bytes_of(npy.read_array(stream, allow_pickle=False), info.dtype)


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, files: Files, name: str
) -> tuple[TensorInfo, int]:
    """Describe an array, with its bytes where they lie in the file as they are in memory.

    Returns
    -------
    tuple
        That, and how many bytes stand before them.
    """
    with archive.open(member) as stream:
        array = _Array.read(stream)
    size = member.file_size - array.head
    if not array.dtype.hasobject and array.size != size:
        raise ValueError(f"{member.filename}: {size} bytes for an array of {array}")
    info = array.info(member.filename.removesuffix(".npy"), name)
    stored = member.compress_type == zipfile.ZIP_STORED
    if not (stored and array.as_it_is and size and info.dtype in FLOATS):
        return info, 0
    begin, stop = member_place(files, name, member)
    return replace(info, start=begin + array.head, stop=stop), array.head


#: Longest text that is read, in bytes: two of them can stand for a number of eight bytes.
MAX_TEXT = MAX_UNPACKED // 4
#: How far 9 digits lie from the float32 that they were written for, as a share of it.
_ROUNDING = 5.001e-9
_NOTHING_ELSE = (
    "Each line holds the numbers of one position, separated by commas, as many in each, and "
    "nothing else: no heading and no names. pandas writes them so with to_csv(FILE, header=False, "
    "index=False)."
)


def read_csv(files: Files, name: str) -> Checkpoint:
    """Read a ``.csv`` file of numbers, separated by commas and without a heading.

    It says nothing of a number format: what 9 digits of float32 stand for is float32, anything
    else float64.

    Raises
    ------
    InvalidCheckpoint
        If it holds anything but lines of as many numbers each, numbers its columns or rows, or is
        too long.
    """
    size = files.size(name)
    if size > MAX_TEXT:
        raise InvalidCheckpoint(
            f"{name}: {size} bytes of text; up to {MAX_TEXT} are read. Save the table as .npy."
        )
    subject = f"{name}: not a table of numbers"
    with (
        explain_errors(InvalidCheckpoint, subject, _NOTHING_ELSE, ValueError, UserWarning),
        warnings.catch_warnings(),
        TextIOWrapper(BufferedReader(Stream(files, name)), encoding="utf-8-sig") as lines,
    ):
        warnings.filterwarnings("error", message=".*input contained no data")
        numbers = np.loadtxt(lines, delimiter=",", comments=None, ndmin=2)
        _refuse_labels(numbers)
    stored = _narrowed(numbers)
    info = TensorInfo("values", stored.shape, f"F{8 * stored.itemsize}", name)
    return Checkpoint(name, {"values": info}, lambda _: bytes_of(stored, info.dtype))


def _refuse_labels(numbers: NDArray[np.float64]) -> None:
    """Refuse the numbers of columns or rows that data frames write: they would pass for values.

    Of two columns a heading is not known: the first row of a sinusoid of width 2 is 0, 1 as well.
    """
    n, d = numbers.shape
    if d > 2 and np.array_equal(numbers[0], np.arange(d)):
        raise ValueError(f"its first line counts the columns, 0 to {d - 1}, as a heading does")
    first_column, other_columns = numbers[:, 0], numbers[:, 1:]
    is_counting = (
        n > 2 and d > 1 and first_column[0] % 1 == 0 and (np.diff(first_column) == 1).all()
    )
    if (
        is_counting and not (other_columns == numbers[:, :1]).all(axis=0).any()
    ):  # as a counting table's are
        counts = f"{first_column[0]:g} to {first_column[-1]:g}"
        raise ValueError(f"its first column counts the lines, {counts}, as an index does")


def _narrowed(values: NDArray[np.float64]) -> NDArray[np.float32] | NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = values.astype("<f4")
        is_same = np.abs(values - narrow) <= _ROUNDING * np.abs(values)
    return narrow if is_same.all() else values.astype("<f8")
