"""``posprobe extract``: the table alone, as a file."""

from pathlib import Path
from typing import Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import say
from posprobe.cli.show import as_typed
from posprobe.foreign import plain
from posprobe.progress import stage


def extract(
    ref: options.Ref,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File to write: .npy, .npz, .safetensors or .csv."),
    ],
    rows: options.Rows = None,
    tensor: options.Tensor = None,
    grid: options.GridSize = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a position table to a file: only the rows that are positions, in order."""
    options.set_up_logging(quiet=quiet)
    with stage("Starting"):
        from posprobe.report import table_path, write_table

        table_path(output)
    table = options.load_table(
        ref, rows=rows, tensor=tensor, grid=grid, revision=revision, offline=offline
    )
    write_table(table, output)
    if not quiet:
        say(f"{len(table)} x {table.dim} {table.values.dtype}")
    typer.echo(as_typed(plain(str(output))))
