"""``posprobe extract``: the table alone, as a file."""

from pathlib import Path
from typing import Annotated

import typer

from posprobe.cli.options import (
    GridSize,
    Offline,
    Quiet,
    Ref,
    Revision,
    Rows,
    Tensor,
    load_table,
    set_up_logging,
)
from posprobe.cli.process import say
from posprobe.cli.show import as_typed
from posprobe.foreign import plain
from posprobe.progress import stage


def extract(
    ref: Ref,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File to write: .npy, .npz, .safetensors or .csv."),
    ],
    rows: Rows = None,
    tensor: Tensor = None,
    grid: GridSize = None,
    revision: Revision = None,
    offline: Offline = False,
    quiet: Quiet = False,
) -> None:
    """Write a position table to a file: only the rows that are positions, in order."""
    set_up_logging(quiet=quiet)
    with stage("Starting"):
        from posprobe.report import table_path, write_table

        table_path(output)
    table = load_table(ref, rows=rows, tensor=tensor, grid=grid, revision=revision, offline=offline)
    write_table(table, output)
    if not quiet:
        say(f"{len(table)} x {table.dim} {table.values.dtype}")
    typer.echo(as_typed(plain(str(output))))
