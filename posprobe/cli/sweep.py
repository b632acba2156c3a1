"""``posprobe sweep``: many references into one table."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out, say
from posprobe.errors import UsageError
from posprobe.foreign import plain

if TYPE_CHECKING:
    from posprobe.sweeps.many import Step, Sweep
    from posprobe.sweeps.references import Entry

#: Failures that are told at the end; the file has all.
TOLD = 5


class EngineName(StrEnum):
    """Where tasks are run."""

    processes = "processes"
    threads = "threads"
    dask = "dask"


def sweep(
    refs: Annotated[
        list[str] | None,
        typer.Argument(metavar="REF...", help="References, or folders of checkpoints."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read references from this file: text, CSV with a column `reference`, or JSON "
            "lines; - is standard input. Other columns are kept.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Output folder. An existing sweep there is resumed."
        ),
    ] = Path("reports/sweep"),
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", help="Number of workers [default: one per core]."),
    ] = None,
    only: options.Only = None,
    rows: options.Rows = None,
    revisions: Annotated[
        str | None,
        typer.Option(
            "--revisions",
            metavar="PATTERN",
            help="Analyse the revisions of one Hub repository that match, such as 'step*'.",
        ),
    ] = None,
    nulls: options.Nulls = 0,
    all_columns: Annotated[
        bool, typer.Option("--all-columns", help="Write all columns to sweep.csv, not just 40.")
    ] = False,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="Run workers as processes, threads or with Dask.")
    ] = EngineName.processes,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Use this Dask scheduler, such as tcp://host:8786.",
        ),
    ] = None,
    bundles: Annotated[
        bool, typer.Option("--bundles", help="Also write a report for each table.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try failed references again.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Analyse the first N references only."),
    ] = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with the code of the first failure."),
    ] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Analyse many checkpoints into one table.

    The table has a row for each position table or encoding. Run the same command again to resume.
    A reference that fails becomes a line in failures.csv; the others go on.
    """
    from posprobe import sweeps

    options.set_up_logging(quiet=quiet)
    prepared = sweeps.sweep(
        _given(refs or [], source),
        out=out,
        revisions=revisions,
        jobs=jobs,
        engine=engine.value,
        scheduler=scheduler,
        only=options.names_of(only),
        nulls=nulls,
        rows=None if rows is None else options.parse_rows(rows),
        bundles=bundles,
        all_columns=all_columns,
        retry_failed=retry_failed,
        limit=limit,
        revision=revision,
        offline=offline,
        command=shlex.join(["posprobe", *sys.argv[1:]]),
    )
    if not quiet:
        _announce(prepared, jobs)
        if nulls and not bundles:
            say("note: --nulls counts for the reports of --bundles alone, and nothing is drawn")
    with _interruptible(out), _progress(quiet=quiet) as told:
        prepared.run(told)
    about = prepared.about or {}
    failures = prepared.failures()
    if as_json:
        typer.echo(json_out(about), nl=False)
    else:
        counts = about["counts"]
        typer.echo(
            f"{_some(counts['references'], 'reference')}: {_some(counts['rows'], 'row')}, "
            f"{_some(counts['failures'], 'failure')}"
        )
    if not quiet:
        for failure in failures[:TOLD]:
            whose, message = plain(failure["reference"]), plain(failure["message"])
            said = message if message.startswith(whose) else f"{whose}: {message}"
            say(f"failed ({failure['exit_code']}): {said}")
        if len(failures) > TOLD:
            say(f"... and {len(failures) - TOLD} more in failures.csv")
        place = plain(str(prepared.folder))
        say(f"Table    {place}/sweep.parquet, {place}/sweep.csv")
        say(f"Failures {place}/failures.csv")
        say(f"Atlas    {place}/atlas.html")
    if strict and failures:
        raise typer.Exit(failures[0]["exit_code"])


def _given(refs: list[str], source: Path | None) -> "list[str | Entry]":
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


def _announce(sweep: "Sweep", jobs: int | None) -> None:
    """Say what is about to be done, where it differs from what was typed."""
    engine = sweep.engine
    if sweep.repeated:
        say(f"note: {_some(sweep.repeated, 'repeated reference')} left out")
    if jobs is not None and engine.jobs < jobs:
        say(f"note: {_some(engine.jobs, 'worker')}: this machine has no more cores")
    say(f"{_some(len(sweep.entries), 'reference')}, results in {plain(str(sweep.folder))}")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[["Step"], None]]:
    """Show rate, failures and the time left where somebody looks at stderr."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("sweep"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[failed]}"), TimeRemainingColumn(),
        console=Console(stderr=True, highlight=False), transient=True,
    ) as shown:  # fmt: skip
        bar = shown.add_task("sweep", total=None, rate="", failed="")

        def told(step: "Step") -> None:
            # What was recorded before says nothing about how long the rest takes.
            elapsed, made = shown.tasks[bar].elapsed or 0.0, step.done - step.skipped
            rate = f"{made / elapsed:.1f}/s" if elapsed > 1 and made else ""
            failed = f"{step.failed} failed" if step.failed else ""
            shown.update(bar, completed=step.done, total=step.total, rate=rate, failed=failed)

        yield told


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the sweep at once: what is recorded is whole at any time."""
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

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, stop)
    # Helpers of the workers, which outlive us, would tell of what we left.
    warned = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore"
    try:
        yield
    finally:
        if warned is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = warned
        for number, handler in before.items():
            signal.signal(number, handler)
