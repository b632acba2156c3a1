"""``posprobe extract`` and ``report``: a table as a file, a saved report rendered again."""

from __future__ import annotations

from pathlib import Path

from posprobe.cli import options
from posprobe.cli.process import tell
from posprobe.cli.show import print_path
from posprobe.progress import stage


def extract(ref: str, output: Path, rows: str | None = None, *, where: options.Where) -> None:
    """Write a position table to a file.

    Only rows that are positions are written, in order.
    """
    with stage("Starting"):
        from posprobe.report import table_path, write_table

        table_path(output)
    table = options.load_table(ref, rows=rows, where=where)
    write_table(table, output)
    tell(f"{len(table)} x {table.dim} {table.values.dtype}")
    print_path(output)


def report(folder: Path) -> None:
    """Render a saved report again, without the model."""
    with stage("Rendering"):
        from posprobe.report import render_bundle

        page = render_bundle(folder)
    print_path(page)
