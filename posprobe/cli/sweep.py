"""``posprobe sweep`` and ``table``: many references into one table, of numbers or of a paper."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

import typer

from posprobe.cli import options
from posprobe.cli.process import say, signals, tell, typed
from posprobe.cli.show import print_json
from posprobe.errors import UsageError
from posprobe.progress import stage
from posprobe.text import plain

if TYPE_CHECKING:
    from posprobe.sweeps.many import Sweep
    from posprobe.sweeps.references import Entry


#: Failures that are told at the end; the file has all.
TOLD = 5


def sweep(
    refs: list[str] | None = None,
    source: Path | None = None,
    out: Path = Path("reports/sweep"),
    jobs: int | None = None,
    only: str | None = None,
    rows: str | None = None,
    revisions: str | None = None,
    nulls: int = 0,
    all_columns: bool = False,
    engine: Literal["processes", "threads"] = "processes",
    scheduler: str | None = None,
    bundles: bool = False,
    retry_failed: bool = False,
    revision: str | None = None,
    offline: bool = False,
    strict: bool = False,
    as_json: bool = False,
) -> None:
    """Analyse many checkpoints into one table.

    The table has a row for each position table or encoding. Run the same command again to resume.
    A reference that fails becomes a line in failures.csv; the others go on.
    """
    from posprobe import sweeps

    prepared = sweeps.sweep(
        _given(refs or [], source),
        out=out,
        revisions=revisions,
        jobs=jobs,
        engine=engine,
        scheduler=scheduler,
        only=options.names_of(only),
        nulls=nulls,
        rows=options.parse_rows(rows),
        bundles=bundles,
        all_columns=all_columns,
        retry_failed=retry_failed,
        revision=revision,
        offline=offline,
        command=typed(),
    )
    _announce(prepared, jobs)
    if nulls and not bundles:
        tell("note: --nulls counts for the reports of --bundles alone, and nothing is drawn")
    with signals(_at_once(out)), stage("Sweeping", len(prepared.entries)) as more:
        prepared.run(more)
    _tell_end(prepared, as_json=as_json)
    if strict and (failures := prepared.failures()):
        raise typer.Exit(failures[0]["exit_code"])


def _tell_end(prepared: Sweep, *, as_json: bool) -> None:
    """Say what came of a sweep, and where it is."""
    about = prepared.about or {}
    failures = prepared.failures()
    if as_json:
        print_json(about)
    else:
        counts = about["counts"]
        typer.echo(
            f"{_some(counts['references'], 'reference')}: {_some(counts['rows'], 'row')}, "
            f"{_some(counts['failures'], 'failure')}"
        )
    for failure in failures[:TOLD]:
        whose, message = plain(failure["reference"]), plain(failure["message"])
        said = message if message.startswith(whose) else f"{whose}: {message}"
        tell(f"failed ({failure['exit_code']}): {said}")
    if len(failures) > TOLD:
        tell(f"... and {len(failures) - TOLD} more in failures.csv")
    place = plain(str(prepared.folder))
    tell(f"Table    {place}/sweep.parquet, {place}/sweep.csv")
    tell(f"Failures {place}/failures.csv")
    tell(f"Atlas    {place}/atlas.html")


def _given(refs: list[str], source: Path | None) -> list[str | Entry]:
    """Read the list, if there is one, and join it with the arguments."""
    from posprobe.sweeps.references import LONGEST_LIST, read_file, read_list

    if source is None:
        return list(refs)
    if str(source) != "-":
        entries = read_file(source)
    elif sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--from -: nothing is piped in. Pipe a list of references in.")
    else:
        entries = read_list(sys.stdin.buffer.read(LONGEST_LIST + 1), "standard input")
    return [*refs, *entries]


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _announce(sweep: Sweep, jobs: int | None) -> None:
    """Say what is about to be done, where it differs from what was typed."""
    engine = sweep.engine
    if sweep.repeated:
        tell(f"note: {_some(sweep.repeated, 'repeated reference')} left out")
    if jobs is not None and engine.jobs < jobs:
        tell(f"note: {_some(engine.jobs, 'worker')}: this machine has no more cores")
    tell(f"{_some(len(sweep.entries), 'reference')}, results in {plain(str(sweep.folder))}")


def _at_once(folder: Path) -> Callable[[int, FrameType | None], None]:
    """Return what ends a sweep at a signal: what is recorded is whole at any time."""
    from multiprocessing import active_children

    def stop(number: int, _frame: FrameType | None) -> None:
        # The bar hides the cursor.
        shown = "\x1b[?25h\n" if sys.stderr.isatty() else ""
        say(
            f"{shown}stopped. Results so far are in {plain(str(folder))}. Run the same command "
            "again to resume."
        )
        # Those that work end with their parent, those that wait for work would stay a while.
        try:
            for worker in active_children():
                worker.terminate()
        finally:
            os._exit(128 + number)

    return stop


def table(
    refs: list[str],
    numbers: str | None = None,
    form: Literal["markdown", "latex"] = "markdown",
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
        rows=options.parse_rows(rows),
        nulls=nulls,
        seed=seed,
        offline=offline,
    )
    typer.echo(made, nl=False)
