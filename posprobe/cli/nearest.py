"""``posprobe nearest``: which known tables a table comes from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out, say
from posprobe.foreign import plain

if TYPE_CHECKING:
    from posprobe.sweeps.search import Match, Nearest


@options.says_where
def nearest(
    ref: options.Ref,
    sweep: Annotated[
        Path | None,
        typer.Option(
            "--in",
            metavar="SWEEP",
            help="Search the folder of a sweep [default: the tables posprobe knows].",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Show the N nearest tables.")
    ] = 5,
    rows: options.Rows = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    *,
    where: options.Where,
) -> None:
    """Find the model that a position table was copied from.

    The table is identical, rounded, moved (fine-tuned), shifted by rows, resized, or unrelated.
    Fine-tuning hardly changes position embeddings; tables trained separately are far apart.
    """
    options.set_up_logging(quiet=quiet)
    table = options.load_table(ref, rows=rows, where=where)
    from posprobe.report.narrator import nearest as narrator
    from posprobe.sweeps.search import nearest_to

    found = nearest_to(table, sweep, limit)
    if as_json:
        typer.echo(json_out(found.to_dict()), nl=False)
        return
    if not found.matches:
        typer.echo(plain(_nothing(found)))
        return
    for match in found.matches:
        typer.echo(plain(_line(match, narrator.relation(match.likeness))))
        typer.echo(plain(f"  {narrator.evidence(match.likeness)}"))
        if source := match.about.get("source"):
            typer.echo(plain(f"  {match.about['title']}; {source}; {match.about['licence']}"))
    if not quiet:
        say(plain(_compared(found)))


def _line(match: "Match", relation: str) -> str:
    called = match.name or match.reference
    where = f" ({match.reference})" if match.reference not in ("", called) else ""
    return f"{relation} {called}{where}"


def _nothing(found: "Nearest") -> str:
    whose = "that posprobe knows" if found.among is None else f"of {found.among}"
    return (
        f"{found.name}: none of the {found.compared} tables {whose} has its width. Search a sweep "
        "with --in FOLDER."
    )


def _compared(found: "Nearest") -> str:
    place = "tables that posprobe knows" if found.among is None else f"tables of {found.among}"
    others = found.other_width
    but = f", {others} of them of another width" if others else ""
    return f"{found.name}: compared with {found.compared} {place}{but}"
