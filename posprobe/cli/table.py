"""``posprobe table``: the table of a paper."""

from enum import StrEnum
from typing import Annotated

import typer

from posprobe.cli import options
from posprobe.progress import stage


class FormatName(StrEnum):
    """How a table is written."""

    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    html = "html"


def table(
    refs: Annotated[
        list[str],
        typer.Argument(metavar="SWEEP|REF...", help="Folder of a sweep, or references."),
    ],
    numbers: Annotated[
        str | None,
        typer.Option(
            "--numbers",
            metavar="LIST",
            help="Key paths of analysis.json or columns of a sweep, such as "
            "dim,pca.participation_ratio,answers.order.",
        ),
    ] = None,
    form: Annotated[
        FormatName, typer.Option("--format", help="How it is written; LaTeX is for booktabs.")
    ] = FormatName.markdown,
    band: Annotated[
        str,
        typer.Option(
            "--band", metavar="MODEL", help="Null model whose band stands by each number, or none."
        ),
    ] = "walk",
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside",
            metavar="LIST",
            help="Rows below each table: sinusoid and null models, such as sinusoid,walk.",
        ),
    ] = None,
    unique: Annotated[
        bool,
        typer.Option("--unique", help="Of a sweep: leave out what comes from a table before it."),
    ] = False,
    rows: options.Rows = None,
    nulls: options.Nulls = options.BANDS,
    seed: options.Seed = 0,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
) -> None:
    """Print the table of a paper: a row for each position table, a column for each number.

    Of references, what the numbers need is measured; --rows, --nulls and --seed are for them. The
    caption says where each comes from.
    """
    options.set_up_logging(quiet=quiet)
    with stage("Starting"):
        from posprobe.sweeps import research_table
    made = research_table(
        refs,
        numbers=options.names_of(numbers),
        format=form.value,
        band=None if band == "none" else band,
        beside=options.names_of(beside) or (),
        unique=unique,
        rows=None if rows is None else options.parse_rows(rows),
        nulls=nulls,
        seed=seed,
        offline=offline,
    )
    typer.echo(made, nl=False)
