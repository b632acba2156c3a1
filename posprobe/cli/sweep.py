"""``posprobe sweep`` and ``table``: one table of many references, as data or for a paper."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

import typer

from posprobe.cli import options
from posprobe.cli.process import print_message, print_note, stop_on_signals, typed_command
from posprobe.cli.show import print_json
from posprobe.errors import UsageError
from posprobe.progress import stage
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from posprobe.sweeps.many import Sweep
    from posprobe.sweeps.references import Entry


#: Number of failures that are printed at the end; ``failures.csv`` has all.
MAX_PRINTED_FAILURES = 5


def sweep(
    refs: list[str] | None = None,
    source: Path | None = None,
    out_folder: Path = Path("reports/sweep"),
    jobs: int | None = None,
    measurement_list: str | None = None,
    rows: str | None = None,
    revisions: str | None = None,
    nulls: int = 0,
    all_columns: bool = False,
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
        _read_references(refs or [], source),
        out=out_folder,
        revisions=revisions,
        jobs=jobs,
        scheduler=scheduler,
        only=options.split_names(measurement_list),
        nulls=nulls,
        rows=options.parse_rows(rows),
        bundles=bundles,
        all_columns=all_columns,
        retry_failed=retry_failed,
        revision=revision,
        offline=offline,
        command=typed_command(),
    )
    _print_plan(prepared, jobs)
    if nulls and not bundles:
        print_note(
            "note: --nulls counts for the reports of --bundles alone, and nothing is drawn"
        )
    with (
        stop_on_signals(_stop_handler(out_folder)),
        stage("Sweeping", len(prepared.entries)) as advance,
    ):
        prepared.run(advance)
    _print_outcome(prepared, as_json=as_json)
    if strict and (failures := prepared.failures()):
        raise typer.Exit(failures[0]["exit_code"])


def _print_outcome(prepared: Sweep, *, as_json: bool) -> None:
    """Print the counts, the first failures and the files of a sweep."""
    summary = prepared.about or {}
    failures = prepared.failures()
    if as_json:
        print_json(summary)
    else:
        counts = summary["counts"]
        references = _format_count(counts["references"], "reference")
        rows = _format_count(counts["rows"], "row")
        typer.echo(
            f"{references}: {rows}, {_format_count(counts['failures'], 'failure')}"
        )
    for failure in failures[:MAX_PRINTED_FAILURES]:
        reference, message = (
            escape_invisible(failure["reference"]),
            escape_invisible(failure["message"]),
        )
        line = message if message.startswith(reference) else f"{reference}: {message}"
        print_note(f"failed ({failure['exit_code']}): {line}")
    if len(failures) > MAX_PRINTED_FAILURES:
        print_note(f"... and {len(failures) - MAX_PRINTED_FAILURES} more in failures.csv")
    folder = escape_invisible(str(prepared.folder))
    print_note(f"Table    {folder}/sweep.parquet, {folder}/sweep.csv")
    print_note(f"Failures {folder}/failures.csv")
    print_note(f"Atlas    {folder}/atlas.html")


def _read_references(refs: list[str], source: Path | None) -> list[str | Entry]:
    """Return the references of the arguments, followed by those of the list, if there is one."""
    from posprobe.sweeps.references import MAX_LIST_BYTES, read_file, read_list

    if source is None:
        return list(refs)
    if str(source) != "-":
        entries = read_file(source)
    elif sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--from -: nothing is piped in. Pipe a list of references in.")
    else:
        entries = read_list(sys.stdin.buffer.read(MAX_LIST_BYTES + 1), "standard input")
    return [*refs, *entries]


def _format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _print_plan(sweep: Sweep, jobs: int | None) -> None:
    """Print the number of references, and where the sweep differs from the request."""
    engine = sweep.engine
    if sweep.repeated:
        print_note(
            f"note: {_format_count(sweep.repeated, 'repeated reference')} left out"
        )
    if jobs is not None and engine.jobs < jobs:
        print_note(
            f"note: {_format_count(engine.jobs, 'worker')}: this machine has no more cores"
        )
    print_note(
        f"{_format_count(len(sweep.entries), 'reference')}, results in "
        f"{escape_invisible(str(sweep.folder))}"
    )


def _stop_handler(folder: Path) -> Callable[[int, FrameType | None], None]:
    """Return a signal handler that ends a sweep at once, as recorded results are always whole."""
    from multiprocessing import active_children

    def stop(signal_number: int, _frame: FrameType | None) -> None:
        # The progress bar hides the cursor.
        cursor_reset = "\x1b[?25h\n" if sys.stderr.isatty() else ""
        print_message(
            f"{cursor_reset}stopped. Results so far are in "
            f"{escape_invisible(str(folder))}. Run the same command again "
            "to resume."
        )
        # Busy workers end with their parent; idle ones would stay for a while.
        try:
            for worker in active_children():
                worker.terminate()
        finally:
            os._exit(128 + signal_number)

    return stop


def table(
    refs: list[str],
    numbers: str | None = None,
    form: Literal["markdown", "latex"] = "markdown",
    rows: str | None = None,
    band: str = "walk",
    nulls: int = 0,
    seed: int = 0,
    offline: bool = False,
) -> None:
    """Print a table of numbers for a paper.

    It has a row for each position table and a column for each number. Checkpoints are analysed
    first; --rows, --nulls and --seed apply to that. The caption says where each number comes from.
    """
    with stage("Starting"):
        from posprobe.sweeps import research_table
    text = research_table(
        refs,
        numbers=options.split_names(numbers),
        format=form,
        band=None if band == "none" else band,
        rows=options.parse_rows(rows),
        nulls=nulls,
        seed=seed,
        offline=offline,
    )
    typer.echo(text, nl=False)
