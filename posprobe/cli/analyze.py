"""``posprobe analyze``: from a reference to a bundle."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from posprobe.cli.options import (
    AsJson,
    DeviceName,
    GridSize,
    Offline,
    OnDevice,
    Only,
    Out,
    Quiet,
    Ref,
    Revision,
    Rows,
    Tensor,
    load_table,
    talk,
)

if TYPE_CHECKING:
    from posprobe.report import Analysis


def analyze(
    ref: Ref,
    out: Out = None,
    rows: Rows = None,
    only: Only = None,
    device: OnDevice = DeviceName.auto,
    tensor: Tensor = None,
    grid: GridSize = None,
    revision: Revision = None,
    offline: Offline = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Analyse a checkpoint's position table and write a bundle: data, figures and a report."""
    from pathlib import Path

    from posprobe.report import analyze as run
    from posprobe.report import bundle_name, to_json

    talk(quiet=quiet)
    table = load_table(ref, rows=rows, tensor=tensor, grid=grid, revision=revision, offline=offline)
    if not quiet:
        typer.echo(_found(table), err=True)
    analysis = run(
        table,
        only=[name.strip() for name in only.split(",")] if only is not None else None,
        device=device.value,
        command=shlex.join(["posprobe", *sys.argv[1:]]),
    )
    folder = analysis.save(out or Path("reports") / bundle_name(table))
    typer.echo(to_json(analysis.to_dict()) if as_json else _summary(analysis), nl=not as_json)
    if not quiet:
        typer.echo(f"Data    {folder / 'analysis.json'}, {folder / 'arrays.npz'}", err=True)
        typer.echo(f"Figures {folder / 'figures'}", err=True)
        typer.echo(f"Report  {folder / 'report.html'}", err=True)


def _found(table: Any) -> str:
    source = table.source
    lines = [f"{table.name}: {table.kind} table, {table.layout}, width {table.dim}"]
    if source.tensor:
        lines.append(f"  {source.tensor} ({source.dtype}) in {source.file}")
    if table.dropped:
        lines.append(f"  left out: rows {_span(table.dropped)}: {table.dropped[0].reason}")
    if table.prefix_rows:
        tokens = ", ".join(row.token for row in table.prefix_rows)
        lines.append(f"  kept apart: rows {_span(table.prefix_rows)}: {tokens}")
    return "\n".join([*lines, *(f"  note: {note}" for note in table.notes)])


def _span(rows: Any) -> str:
    return str(rows[0].row) if len(rows) == 1 else f"{rows[0].row} to {rows[-1].row}"


def _summary(analysis: Analysis) -> str:
    from posprobe.report.page import SECTIONS, rows_of

    document = analysis.to_dict()
    lines = []
    for section in SECTIONS:
        if section.key in document:
            lines.append(section.title)
            lines += [
                f"  {row['label']:<32}{row['value']:>10}   {row['meaning']}"
                for row in rows_of(document[section.key], section.numbers)
            ]
    return "\n".join(lines)
