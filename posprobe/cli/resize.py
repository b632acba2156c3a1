"""``posprobe resize``: a table of another size, as a file or in a copy of its checkpoint."""

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out, say
from posprobe.cli.show import as_typed, found, written
from posprobe.errors import UsageError
from posprobe.foreign import plain
from posprobe.progress import stage
from posprobe.resizing.names import GRID_WAYS, SEQUENCE_WAYS, WAYS, Way

if TYPE_CHECKING:
    from posprobe.measurements.model import Contexts


@options.says_where
def resize(
    ref: options.Ref,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="SIZE",
            help="New size: positions, such as 1024, or grid rows and columns, such as 24x24.",
        ),
    ],
    how: Annotated[
        Way | None,
        typer.Option(
            "--how",
            help=f"Method. Grids: {', '.join(GRID_WAYS)}. Sequences: {', '.join(SEQUENCE_WAYS)}.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write: .npy, .npz, .safetensors or .csv."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="FOLDER",
            help="Write a resized copy of the checkpoint to this new folder.",
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="Measure the loss on this text at the new length.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="REF",
            help="Compare with this table, trained at the new size.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="DIR",
            help="Run the model on the images in this folder at the new size.",
        ),
    ] = None,
    contexts: Annotated[
        int,
        typer.Option("--contexts", metavar="N", min=1, help="Run at most N windows or images."),
    ] = 64,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write a report of the comparison to this folder."
        ),
    ] = None,
    rows: options.Rows = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    *,
    where: options.Where,
) -> None:
    """Resize a position table, or compare ways to do so.

    Without -o and --into all methods are compared: what happens to periods, neighbours and breaks,
    and with --text or --images to the model's loss. For rotary positions the scaling rules are
    compared. With -o or --into the resized table or checkpoint is written. Rows of special tokens
    such as CLS stay as they are.
    """
    options.set_up_logging(quiet=quiet)
    size = parse_size(to)
    _check(how, output, into, rows)
    if output is None and into is None:
        _compare(
            ref, size, how, against, out, text, images, contexts, rows=rows, where=where,
            as_json=as_json, quiet=quiet,
        )  # fmt: skip
        return
    if any(option is not None for option in (against, out, text, images)) or as_json:
        raise UsageError(
            "--against, --text, --images, --out and --json apply to the comparison. Leave them "
            "out, or leave out -o and --into."
        )
    with stage("Starting"):
        from posprobe.report import table_path, write_table
        from posprobe.report.narrator.resizing import copied
        from posprobe.resizing.checkpoint import copy_place, refuse_source, write_checkpoint
        from posprobe.resizing.tables import resize as resized

        if output is not None:
            table_path(output)
        if into is not None:
            copy_place(ref, into)
    table = options.load_table(ref, rows=rows, where=where)
    if not quiet:
        say(found(table))
    assert how is not None  # noqa: S101 - as checked above
    new = resized(table, to=size, how=how.value)
    if not quiet:
        say(f"a {table.layout} becomes a {new.layout}, by {how.value}")
    if output is not None:
        refuse_source(table, output)
        write_table(new, output)
        typer.echo(as_typed(plain(str(output))))
    if into is not None:
        copy = write_checkpoint(
            ref,
            new,
            into,
            **where.parsed(),
        )
        if not quiet:
            say("\n".join(map(plain, copied(copy))))
        typer.echo(as_typed(plain(str(into))))


def _compare(
    ref: str,
    size: int | tuple[int, int],
    how: Way | None,
    against: str | None,
    out: Path | None,
    text: Path | None,
    images: Path | None,
    contexts: int,
    *,
    rows: str | None,
    where: options.Where,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what each way does to a table, or each rule of scaling to rotary positions."""
    if out is not None:
        from posprobe.report import check_place

        check_place(out)
    given = None
    if text is not None or images is not None:
        given = _contexts(text, images, contexts, rows)
    loaded = options.load_any(ref, rows=rows, where=where)
    if not quiet:
        say(found(loaded))
    other = (
        None
        if against is None
        else options.load_table(against, rows=None, where=options.Where(offline=where.offline))
    )
    with stage("Starting"):
        from posprobe.report.screen import text as printed
        from posprobe.resizing.comparison import compare
    compared = compare(
        loaded,
        to=size,
        how=None if how is None else how.value,
        against=other,
        contexts=given,
        reference=ref,
        **where.parsed(),
        command=shlex.join(["posprobe", *sys.argv[1:]]),
    )
    folder = None if out is None else compared.save(out)
    document = compared.to_dict()
    typer.echo(json_out(document) if as_json else printed(document, verbose=True), nl=not as_json)
    if folder is not None and not quiet:
        say(written(folder))


def _contexts(text: Path | None, images: Path | None, count: int, rows: str | None) -> "Contexts":
    """Return what the model is run on, checked before anything is read."""
    from posprobe.measure import check_contexts
    from posprobe.measurements.model import Contexts

    if rows:
        raise UsageError("--text and --images run the model with a whole table. Leave out --rows.")
    given = Contexts(text, images, count)
    check_contexts(given)
    return given


def _check(how: Way | None, output: Path | None, into: Path | None, rows: str | None) -> None:
    """Refuse options that contradict each other.

    Raises
    ------
    UsageError
        If something is written and no way is named, or some rows of a table into a checkpoint.
    """
    if (output or into) and how is None:
        raise UsageError(
            f"--how is missing. Choose one of {', '.join(WAYS)}; without -o and --into all are "
            "compared."
        )
    if into and rows:
        raise UsageError("--into resizes the whole table. Leave out --rows.")


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
            f"--to {text}: expected N for a sequence, such as 1024, or "
            "ROWSxCOLUMNS for patches, such as 24x24."
        )
    return (int(sizes[1]), int(sizes[2])) if sizes[2] else int(sizes[1])
