"""``posprobe compare``, ``check`` and ``nearest``: tables and copies of models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from posprobe.cli import options
from posprobe.cli.process import tell, typed
from posprobe.cli.show import print_analysis, print_json, tell_saved
from posprobe.errors import UsageError
from posprobe.progress import stage
from posprobe.text import plain

if TYPE_CHECKING:
    from posprobe.studies.comparison import Comparison
    from posprobe.studies.kernels import KernelComparison
    from posprobe.sweeps.search import Match, Nearest


def compare(
    refs: list[str],
    out: Path | None = None,
    label: list[str] | None = None,
    rows: str | None = None,
    only: str | None = None,
    as_json: bool = False,
    nulls: int = 0,
    seed: int = 0,
    device: options.Device = "auto",
    offline: bool = False,
    verbose: bool = False,
) -> None:
    """Compare several encodings side by side.

    Numbers and answers are given for each table as a whole, distances over the positions that two
    tables share. With a rotary, relative or ALiBi encoding among them, all are compared by how
    similarity depends on distance.
    """
    names = options.names_of(only)
    options.check_asked(out, names, nulls, device)
    from posprobe.studies import compare as run, compare_kernels
    from posprobe.tables import PositionTable

    records = options.load_records(
        refs,
        rows=rows,
        where=options.Where(offline=offline),
        labels=label,
        runs=True,
        seed=seed,
    )
    out = options.place_of(out, *records)
    tables = [record for record in records if isinstance(record, PositionTable)]
    result: Comparison | KernelComparison
    if len(tables) < len(records):
        length = options.scheme_length(rows)
        if only is not None:
            raise UsageError("--only chooses analyses of tables, and not all of these are tables.")
        result = compare_kernels(*records, length=length, seed=seed, command=typed())
    else:
        result = run(*tables, only=names, nulls=nulls, device=device, seed=seed, command=typed())
    print_analysis(result.to_dict(), result.save(out), as_json=as_json, verbose=verbose)


def check(
    a: str,
    b: str,
    out: Path | None = None,
    same_weights: bool = False,
    every: bool = False,
    as_json: bool = False,
    offline: bool = False,
) -> None:
    """Check whether two copies of a model encode position alike.

    Copies are checkpoints in any format, or what an engine computes, dumped to a file. Exit codes:
    0 alike, 6 different, 7 cannot tell.
    """
    with stage("Starting"):
        from posprobe.report import check_place
        from posprobe.studies.check import check as run

        if out is not None:
            check_place(out)
    found = run(a, b, same_weights=same_weights, all_layers=every, offline=offline, command=typed())
    if out is not None:
        found.save(out)
    if as_json:
        print_json(found.to_dict())
    else:
        for line in str(found).split("\n"):
            typer.echo(plain(line))
    if out is not None:
        tell_saved(out)
    raise typer.Exit(found.exit_code)


def nearest(
    ref: str,
    sweep: Path | None = None,
    limit: int = 5,
    rows: str | None = None,
    as_json: bool = False,
    *,
    where: options.Where,
) -> None:
    """Find the model that a position table was copied from.

    The table is identical, rounded, moved (fine-tuned), shifted by rows, resized, or unrelated.
    Fine-tuning hardly changes position embeddings; tables trained separately are far apart.
    """
    table = options.load_table(ref, rows=rows, where=where)
    from posprobe.sweeps.search import nearest_to
    from posprobe.words import relations

    found = nearest_to(table, sweep, limit)
    if as_json:
        print_json(found.to_dict())
        return
    if not found.matches:
        typer.echo(plain(_nothing(found)))
        return
    for match in found.matches:
        typer.echo(plain(_line(match, relations.relation(match.likeness))))
        typer.echo(plain(f"  {relations.evidence(match.likeness)}"))
        if source := match.about.get("source"):
            typer.echo(plain(f"  {match.about['title']}; {source}; {match.about['licence']}"))
    tell(_compared(found))


def _line(match: Match, relation: str) -> str:
    called = match.name or match.reference
    where = f" ({match.reference})" if match.reference not in ("", called) else ""
    return f"{relation} {called}{where}"


def _nothing(found: Nearest) -> str:
    whose = "that posprobe knows" if found.among is None else f"of {found.among}"
    return (
        f"{found.name}: none of the {found.compared} tables {whose} has its width. Search a sweep "
        "with --in FOLDER."
    )


def _compared(found: Nearest) -> str:
    place = "tables that posprobe knows" if found.among is None else f"tables of {found.among}"
    others = found.other_width
    but = f", {others} of them of another width" if others else ""
    return f"{found.name}: compared with {found.compared} {place}{but}"
