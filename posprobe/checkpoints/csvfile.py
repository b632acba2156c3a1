"""A table of numbers as text, ``.csv``: a position in each line, as ``posprobe extract`` writes."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints.base import MAX_UNPACKED, Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint

#: Longest text that is read, in bytes: two of them can stand for a number of eight bytes.
MAX_TEXT = MAX_UNPACKED // 4
#: How far 9 digits lie from the float32 that they were written for, as a share of it.
_ROUNDING = 5.001e-9
#: How data frames write the numbers alone.
_PANDAS = "pandas writes them so with to_csv(FILE, header=False, index=False)."


def open_csv(path: Path) -> Checkpoint:
    """Read a ``.csv`` file of numbers, separated by commas and without a heading.

    It says nothing of a number format: what 9 digits of float32 stand for is float32, anything
    else float64.

    Raises
    ------
    InvalidCheckpoint
        If it holds anything but lines of as many numbers each, numbers its columns or rows, or is
        too long.
    """
    size = path.stat().st_size
    if size > MAX_TEXT:
        raise InvalidCheckpoint(
            f"{path.name}: {size} bytes of text; up to {MAX_TEXT} are read. Save the table as .npy."
        )
    try:
        with warnings.catch_warnings(), path.open(encoding="utf-8-sig") as lines:
            warnings.filterwarnings("error", message=".*input contained no data")
            numbers = np.loadtxt(lines, delimiter=",", comments=None, ndmin=2)
    except (ValueError, UserWarning) as error:
        raise InvalidCheckpoint(
            f"{path.name}: not a table of numbers ({_reason(error)}). Each line holds the "
            "numbers of one position, separated by commas, as many in each, and nothing else: no "
            f"heading and no names. {_PANDAS}"
        ) from error
    _refuse_labels(numbers, path.name)
    stored = _narrowed(numbers)
    info = TensorInfo("values", stored.shape, f"F{8 * stored.itemsize}", path.name)
    data = memoryview(np.ascontiguousarray(stored).reshape(-1).view(np.uint8).data)
    return Checkpoint(str(path), {"values": info}, lambda _: data)


def _refuse_labels(numbers: NDArray[np.float64], name: str) -> None:
    """Refuse the numbers of columns or rows that data frames write: they would pass for values.

    Of two columns a heading is not known: the first row of a sinusoid of width 2 is 0, 1 as well.
    """
    n, d = numbers.shape
    if d > 2 and np.array_equal(numbers[0], np.arange(d)):
        raise InvalidCheckpoint(
            f"{name}: its first line counts the columns, 0 to {d - 1}, as a heading does. Leave it "
            f"out. {_PANDAS} A table that begins like this is read from .npy."
        )
    first, others = numbers[:, 0], numbers[:, 1:]
    counted = n > 2 and d > 1 and first[0] % 1 == 0 and (np.diff(first) == 1).all()
    if counted and not (others == numbers[:, :1]).all(axis=0).any():  # as a counting table's are
        raise InvalidCheckpoint(
            f"{name}: its first column counts the lines, {first[0]:g} to {first[-1]:g}, as an "
            f"index does. Leave it out. {_PANDAS} A table that begins like this is read from .npy."
        )


def _reason(error: Exception) -> str:
    """Return what NumPy says, which counts rows from 0 where it names a column."""
    said = re.split(r';|: "', str(error).removeprefix("loadtxt: "))[0].rstrip(".")
    return re.sub(
        r"at row (\d+), column", lambda found: f"at row {int(found[1]) + 1}, column", said
    )


def _narrowed(values: NDArray[np.float64]) -> NDArray[np.float32] | NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = values.astype("<f4")
        same = np.abs(values - narrow) <= _ROUNDING * np.abs(values)
    return narrow if same.all() else values.astype("<f8")
