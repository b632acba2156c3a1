"""``posprobe nearest``: which known tables a table comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from posprobe.cli import options
from posprobe.cli.messages import tell
from posprobe.cli.show import print_json
from posprobe.foreign import plain

if TYPE_CHECKING:
    from posprobe.sweeps.search import Match, Nearest


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
    from posprobe.report.narrator import nearest as narrator
    from posprobe.sweeps.search import nearest_to

    found = nearest_to(table, sweep, limit)
    if as_json:
        print_json(found.to_dict())
        return
    if not found.matches:
        typer.echo(plain(_nothing(found)))
        return
    for match in found.matches:
        typer.echo(plain(_line(match, narrator.relation(match.likeness))))
        typer.echo(plain(f"  {narrator.evidence(match.likeness)}"))
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
