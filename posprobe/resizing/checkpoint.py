"""A copy of a checkpoint in which one table has another size, and nothing else changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from posprobe.errors import OutputError
from posprobe.report.files import expanded, there

if TYPE_CHECKING:
    from posprobe.tables import PositionTable


def refuse_source(table: PositionTable, path: Path) -> None:
    """Refuse to write a table to the file that it was read from.

    Raises
    ------
    OutputError
        If it is that file, by whatever name.
    """
    place, source = expanded(path), Path(table.source.resolved)
    read = source / table.source.file if source.is_dir() and table.source.file else source
    if there(place) and read.is_file() and place.samefile(read):
        raise OutputError(f"{path}: the table was read from this file. Choose another name.")
