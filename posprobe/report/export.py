"""A table alone, as a file that other tools read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posprobe.errors import OutputError, UsageError
from posprobe.report.analysis import describe
from posprobe.report.files import expanded, folder_there, whole_files

if TYPE_CHECKING:
    from posprobe.tables import PositionTable


#: What a table is written as.
SUFFIXES = (".npy", ".npz", ".safetensors", ".csv")


def write_table(table: PositionTable, path: Path) -> None:
    """Write a table's positions as ``.npy``, ``.npz``, ``.safetensors`` or ``.csv``.

    ``.npz`` also holds the rows of special tokens (``prefix``), ``.safetensors`` the provenance, as
    JSON under ``posprobe.table`` in its metadata.

    Raises
    ------
    UsageError
        If the suffix is none of these.
    OutputError
        If the file cannot be written; an older one is then left as it was.
    """
    path = table_path(path)
    with written(path) as place:
        _write(table, place / path.name)


def table_path(path: Path) -> Path:
    """Return where a table goes; errors are those of `file_path`."""
    return file_path(path, SUFFIXES)


def file_path(path: Path, suffixes: Sequence[str], *, any_case: bool = False) -> Path:
    """Return where a file goes.

    Raises
    ------
    UsageError
        If the suffix is none of these.
    OutputError
        If there is no such folder, or a folder of that name.
    """
    path = expanded(path)
    if (path.suffix.lower() if any_case else path.suffix) not in suffixes:
        *others, last = suffixes
        raise UsageError(f"{path}: the suffix must be {', '.join(others)} or {last}.")
    if not folder_there(path.parent):
        raise OutputError(f"{path}: no folder {path.parent}. Create it first.")
    if folder_there(path):
        raise OutputError(f"{path}: it is a folder. Choose another name.")
    return path


@contextmanager
def written(*targets: Path) -> Iterator[Path]:
    """Give a folder to write files in that go to ``targets``, all of them or none.

    Raises
    ------
    OutputError
        If one cannot be written.
    """
    try:
        with whole_files(*targets) as place:
            yield place
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{targets[0]}: it cannot be written ({getattr(error, 'strerror', None) or error}). "
            "Choose another place."
        ) from error


def _write(table: PositionTable, path: Path) -> None:
    values = np.ascontiguousarray(table.values)
    match path.suffix:
        case ".npy":
            np.save(path, values)
        case ".npz":
            prefix = table.prefix if table.prefix is not None else values[:0]
            np.savez(path, values=values, prefix=prefix)
        case ".safetensors":
            from safetensors.numpy import save

            # The package's own writer maps the file, which a full disk turns into a signal.
            content = save({"values": values}, {"posprobe.table": json.dumps(describe(table))})
            path.write_bytes(content)
        case _:
            digits = 17 if values.dtype == np.float64 else 9
            np.savetxt(path, values.astype(np.float64), delimiter=",", fmt=f"%.{digits}g")
