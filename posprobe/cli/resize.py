"""``posprobe resize``: a table of another size, as a file."""

from __future__ import annotations

import re
from enum import StrEnum
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
from posprobe.cli.show import as_typed, found
from posprobe.errors import UsageError
from posprobe.foreign import plain
from posprobe.progress import stage


class Way(StrEnum):
    """How a table gets another size."""

    bicubic = "bicubic"
    bilinear = "bilinear"
    transformers = "transformers"
    linear = "linear"
    cubic = "cubic"
    fourier = "fourier"
    tile = "tile"
    sinusoids = "sinusoids"
    repeat_last = "repeat-last"


def resize(
    ref: Ref,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="SIZE",
            help="Positions of a sequence, such as 1024, or rows and columns of a grid: 24x24.",
        ),
    ],
    how: Annotated[
        Way,
        typer.Option(
            "--how",
            help="Grids: bicubic, bilinear (timm's), transformers (the model's own). Sequences: "
            "linear, cubic. Both: fourier, tile, sinusoids, repeat-last.",
        ),
    ],
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
    """Write a position table at another size.

    Rows of special tokens such as CLS are kept as they are.
    """
    set_up_logging(quiet=quiet)
    size = parse_size(to)
    with stage("Starting"):
        from posprobe.report import table_path, write_table
        from posprobe.resizing import refuse_source
        from posprobe.resizing import resize as resized

        table_path(output)
    table = load_table(ref, rows=rows, tensor=tensor, grid=grid, revision=revision, offline=offline)
    if not quiet:
        say(found(table))
    new = resized(table, to=size, how=how.value)
    refuse_source(table, output)
    write_table(new, output)
    if not quiet:
        say(f"{table.layout} -> {new.layout}, {new.dim} wide, {new.values.dtype}")
    typer.echo(as_typed(plain(str(output))))


def parse_size(text: str) -> int | tuple[int, int]:
    """Parse ``N`` or ``HxW``.

    Raises
    ------
    UsageError
        If the text is anything else.
    """
    sizes = re.fullmatch(r"(\d{1,18})(?:x(\d{1,18}))?", text.strip())
    if not sizes:
        raise UsageError(
            f"--to {text}: a size reads N for positions of a sequence, such as 1024, or "
            "ROWSxCOLUMNS for patches, such as 24x24."
        )
    return (int(sizes[1]), int(sizes[2])) if sizes[2] else int(sizes[1])
