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
        typer.Argument(metavar="REF...", help="References, or the folder of a sweep."),
    ],
    numbers: Annotated[
        str | None,
        typer.Option(
            "--numbers",
            metavar="LIST",
            help="Show these numbers, such as dim,pca.participation_ratio,answers.order; see "
            "`posprobe list numbers`.",
        ),
    ] = None,
    form: Annotated[
        FormatName, typer.Option("--format", help="Format; LaTeX needs booktabs.")
    ] = FormatName.markdown,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside",
            metavar="LIST",
            help="Add baselines as extra rows, such as sinusoid,walk; of a sweep sinusoid.",
        ),
    ] = None,
    unique: Annotated[
        bool,
        typer.Option("--unique", help="Skip duplicates and fine-tunes of earlier rows."),
    ] = False,
    rows: options.Rows = None,
    band: Annotated[
        str,
        typer.Option(
            "--band",
            metavar="MODEL",
            help="Baseline whose 5-95 % range is shown with each number of a reference, or none.",
        ),
    ] = "walk",
    nulls: options.Nulls = options.BANDS,
    seed: options.Seed = 0,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
) -> None:
    """Print a table of numbers for a paper.

    It has a row for each position table and a column for each number. Checkpoints are analysed
    first; --rows, --nulls and --seed apply to that. The caption says where each number comes from.
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
