"""``posprobe extract``: the table alone, as a file."""

from pathlib import Path
from typing import Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import say
from posprobe.cli.show import as_typed
from posprobe.foreign import plain
from posprobe.progress import stage


@options.says_where
def extract(
    ref: options.Ref,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File to write: .npy, .npz, .safetensors or .csv."),
    ],
    rows: options.Rows = None,
    quiet: options.Quiet = False,
    *,
    where: options.Where,
) -> None:
    """Write a position table to a file.

    Only rows that are positions are written, in order.
    """
    options.set_up_logging(quiet=quiet)
    with stage("Starting"):
        from posprobe.report import table_path, write_table

        table_path(output)
    table = options.load_table(ref, rows=rows, where=where)
    write_table(table, output)
    if not quiet:
        say(f"{len(table)} x {table.dim} {table.values.dtype}")
    typer.echo(as_typed(plain(str(output))))
