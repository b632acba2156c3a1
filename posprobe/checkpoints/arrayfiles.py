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
    DTYPE_NAMES,
    FLOAT_DTYPES,
    MAX_UNPACKED_BYTES,
    Checkpoint,
    TensorInfo,
    check_unpacked,
    view_stored_bytes,
)
from posprobe.checkpoints.files import Files, Stream, member_range
from posprobe.errors import InvalidCheckpoint, explain_errors

_SAVE_ARRAY_ADVICE = (
    "It may be cut off, or hold Python objects. Save the array again with numpy.save."
)


def read_npy(files: Files, name: str) -> Checkpoint:
    """Read the header of a ``.npy`` file; the tensor is named after the file.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds Python objects.
    """
    with explain_errors(
        InvalidCheckpoint, f"{name}: NumPy cannot read it", _SAVE_ARRAY_ADVICE
    ):
        stream = Stream(files, name)
        header = _ArrayHeader.read(stream)
        if header.dtype.hasobject or header.content_bytes > stream.size - header.n_bytes:
            raise ValueError(f"{stream.size} bytes for an array of {header}")
    info = header.tensor_info(Path(name).stem, name)
    if header.is_row_major:  # single rows can then be read from the file
        info = replace(
            info, start=header.n_bytes, stop=header.n_bytes + header.content_bytes
        )

    def fetch(rows_info: TensorInfo) -> bytes | memoryview[int]:
        if header.is_row_major:
            return files.exactly(name, rows_info.start, rows_info.stop)
        return view_stored_bytes(
            npy.read_array(Stream(files, name), allow_pickle=False), info.dtype
        )

    return Checkpoint(name, {info.name: info}, fetch)


@dataclass(frozen=True)
class _ArrayHeader:
    """Header of a ``.npy`` array and its length in bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_column_major: bool
    n_bytes: int

    @classmethod
    def read(cls, stream: Any) -> _ArrayHeader:
        """Read the header of an open file.

        Raises
        ------
        ValueError
            If the stream does not hold a ``.npy`` array.
        """
        version = npy.read_magic(stream)
        read_header = (
            npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        )
        shape, is_column_major, dtype = read_header(stream)
        if version > (3, 0) or min(shape, default=0) < 0:
            raise ValueError(f"version {version}, shape {list(shape)}")
        return cls(shape, dtype, is_column_major, stream.tell())

    def __str__(self) -> str:
        return f"shape {list(self.shape)}, {self.dtype}"

    @property
    def content_bytes(self) -> int:
        """Length of the array's numbers in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_row_major(self) -> bool:
        """Whether the stored bytes are those of the array in memory, row by row."""
        rows = not self.is_column_major or len(self.shape) < 2
        return rows and self.dtype == self.dtype.newbyteorder("<")

    def tensor_info(self, name: str, file: str) -> TensorInfo:
        """Return the array's name, shape and dtype as those of a tensor."""
        return TensorInfo(
            name, self.shape, DTYPE_NAMES.get(self.dtype.name, str(self.dtype)), file
        )


def read_npz(files: Files, name: str) -> Checkpoint:
    """Read the names in a ``.npz`` archive; an uncompressed array is later read by its byte range.

    Raises
    ------
    InvalidCheckpoint
        If the archive is damaged or holds Python objects.
    """
    with (
        explain_errors(
            InvalidCheckpoint, f"{name}: NumPy cannot read it", _SAVE_ARRAY_ADVICE
        ),
        zipfile.ZipFile(Stream(files, name)) as archive,
    ):
        members = [
            member for member in archive.infolist() if member.filename.endswith(".npy")
        ]
        counts = Counter(member.filename for member in members)
        if len(counts) < len(members):
            raise ValueError(
                f"{counts.most_common(1)[0][0][:80]!r} is in the archive twice"
            )
        described = [_describe_member(archive, member, files, name) for member in members]
        tensors = {info.name: info for info, _ in described}
        checksums = {
            info.name: (header_bytes, member.CRC)
            for (info, header_bytes), member in zip(described, members, strict=True)
        }
    if not tensors:
        raise InvalidCheckpoint(f"{name}: the archive holds no arrays.")

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        with explain_errors(
            InvalidCheckpoint, f"{name}: NumPy cannot read it", _SAVE_ARRAY_ADVICE
        ):
            if not info.stop:
                return _unpack_member(files, name, info)
            content = files.exactly(name, info.start, info.stop)
            # A slice of rows has no checksum.
            header_size, checksum = checksums.get(info.name, (0, None))
            header_content = files.read(name, info.start - header_size, info.start)
            if (
                checksum is not None
                and zlib.crc32(content, zlib.crc32(header_content)) != checksum
            ):
                raise ValueError(f"{info.name} is not what its checksum says")
            return content

    return Checkpoint(name, tensors, fetch)


def _unpack_member(files: Files, name: str, info: TensorInfo) -> memoryview[int]:
    # NumPy's own reader prefers a member of the bare name, which is not an array.
    with zipfile.ZipFile(Stream(files, name)) as archive:
        member = archive.getinfo(f"{info.name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            check_unpacked(f"{name}: {info.name}", member.file_size)
        with archive.open(member) as stream:
            return view_stored_bytes(
                npy.read_array(stream, allow_pickle=False), info.dtype
            )


def _describe_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, files: Files, name: str
) -> tuple[TensorInfo, int]:
    """Describe an array, with its byte range if the file holds it as it is in memory.

    Returns
    -------
    tuple
        The description, and the length of the header before the array in bytes.
    """
    with archive.open(member) as stream:
        header = _ArrayHeader.read(stream)
    n_bytes = member.file_size - header.n_bytes
    if not header.dtype.hasobject and header.content_bytes != n_bytes:
        raise ValueError(f"{member.filename}: {n_bytes} bytes for an array of {header}")
    info = header.tensor_info(member.filename.removesuffix(".npy"), name)
    is_uncompressed = member.compress_type == zipfile.ZIP_STORED
    if not (
        is_uncompressed and header.is_row_major and n_bytes and info.dtype in FLOAT_DTYPES
    ):
        return info, 0
    start, stop = member_range(files, name, member)
    return replace(info, start=start + header.n_bytes, stop=stop), header.n_bytes


#: Longest text that is read, in bytes: two bytes of text can become a number of eight bytes.
MAX_TEXT_BYTES = MAX_UNPACKED_BYTES // 4
#: Largest relative distance between a float32 and the 9 digits that are written for it.
_MAX_DIGIT_ROUNDING = 5.001e-9
_CSV_ADVICE = (
    "Each line holds the numbers of one position, separated by commas, as "
    "many in each, and nothing else: no heading and no names. pandas writes "
    "them so with to_csv(FILE, header=False, index=False)."
)


def read_csv(files: Files, name: str) -> Checkpoint:
    """Read a ``.csv`` file of numbers, separated by commas and without a heading.

    The file states no number format: numbers that are float32 to 9 digits are read as float32, all
    others as float64.

    Raises
    ------
    InvalidCheckpoint
        If it holds anything but lines of as many numbers each, numbers its columns or rows, or is
        too long.
    """
    size = files.size(name)
    if size > MAX_TEXT_BYTES:
        raise InvalidCheckpoint(
            f"{name}: {size} bytes of text; up to {MAX_TEXT_BYTES} are "
            "read. Save the table as .npy."
        )
    subject = f"{name}: not a table of numbers"
    with (
        explain_errors(InvalidCheckpoint, subject, _CSV_ADVICE, ValueError, UserWarning),
        warnings.catch_warnings(),
        TextIOWrapper(BufferedReader(Stream(files, name)), encoding="utf-8-sig") as lines,
    ):
        warnings.filterwarnings("error", message=".*input contained no data")
        numbers = np.loadtxt(lines, delimiter=",", comments=None, ndmin=2)
        _check_no_labels(numbers)
    stored = _narrow_floats(numbers)
    info = TensorInfo("values", stored.shape, f"F{8 * stored.itemsize}", name)
    return Checkpoint(
        name, {"values": info}, lambda _: view_stored_bytes(stored, info.dtype)
    )


def _check_no_labels(numbers: NDArray[np.float64]) -> None:
    """Refuse the column or row numbers that data frames write: they would pass for values.

    With two columns a heading cannot be told: the first row of a sinusoid of width 2 is 0, 1 too.
    """
    n, d = numbers.shape
    if d > 2 and np.array_equal(numbers[0], np.arange(d)):
        raise ValueError(
            f"its first line counts the columns, 0 to {d - 1}, as a heading does"
        )
    first_column, other_columns = numbers[:, 0], numbers[:, 1:]
    is_counting = (
        n > 2
        and d > 1
        and first_column[0] % 1 == 0
        and (np.diff(first_column) == 1).all()
    )
    if (
        is_counting and not (other_columns == numbers[:, :1]).all(axis=0).any()
    ):  # as a counting table's are
        counts = f"{first_column[0]:g} to {first_column[-1]:g}"
        raise ValueError(f"its first column counts the lines, {counts}, as an index does")


def _narrow_floats(
    values: NDArray[np.float64],
) -> NDArray[np.float32] | NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = values.astype("<f4")
        is_same = np.abs(values - rounded) <= _MAX_DIGIT_ROUNDING * np.abs(values)
    return rounded if is_same.all() else values.astype("<f8")
