"""``posprobe table``: the table of a paper."""

from typing import Literal

import typer

from posprobe.cli import options
from posprobe.progress import stage


def table(
    refs: list[str],
    numbers: str | None = None,
    form: Literal["markdown", "latex", "csv", "html"] = "markdown",
    beside: str | None = None,
    unique: bool = False,
    rows: str | None = None,
    band: str = "walk",
    nulls: int = options.BANDS,
    seed: int = 0,
    offline: bool = False,
) -> None:
    """Print a table of numbers for a paper.

    It has a row for each position table and a column for each number. Checkpoints are analysed
    first; --rows, --nulls and --seed apply to that. The caption says where each number comes from.
    """
    with stage("Starting"):
        from posprobe.sweeps import research_table
    made = research_table(
        refs,
        numbers=options.names_of(numbers),
        format=form,
        band=None if band == "none" else band,
        beside=options.names_of(beside) or (),
        unique=unique,
        rows=options.parse_rows(rows),
        nulls=nulls,
        seed=seed,
        offline=offline,
    )
    typer.echo(made, nl=False)
