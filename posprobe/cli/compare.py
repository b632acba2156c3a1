"""``posprobe compare``: several tables side by side."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from posprobe.cli.options import (
    DEFAULT_NULLS,
    AsJson,
    DeviceName,
    Nulls,
    Offline,
    OnDevice,
    Out,
    Quiet,
    Rows,
    Seed,
    load_table,
    talk,
)
from posprobe.cli.show import comparison, found, written

if TYPE_CHECKING:
    from posprobe.table import PositionTable


def compare(
    refs: Annotated[
        list[str],
        typer.Argument(
            metavar="REF REF...",
            help="Tables; `sinusoidal` and `sincos2d` alone take the first one's shape.",
        ),
    ],
    out: Out = None,
    rows: Rows = None,
    nulls: Nulls = DEFAULT_NULLS,
    seed: Seed = 0,
    device: OnDevice = DeviceName.auto,
    offline: Offline = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare position tables over the positions that all of them have; write a bundle."""
    from pathlib import Path

    from posprobe.encodings import FORMULAS, of_shape
    from posprobe.errors import UsageError
    from posprobe.report import bundle_name, to_json
    from posprobe.report import compare as run

    talk(quiet=quiet)
    if refs[0] in FORMULAS:
        raise UsageError(
            f"{refs[0]}: alone it takes the first table's shape, so it cannot be the first. Put it "
            f"after a table, or name its sizes: {refs[0]}:{'x'.join(FORMULAS[refs[0]][1])}."
        )
    tables: list[PositionTable] = []
    for ref in refs:
        table = of_shape(ref, tables[0]) if tables else None
        tables.append(table or load_table(ref, rows=rows, offline=offline))
        if not quiet:
            typer.echo(found(tables[-1]), err=True)
    result = run(
        *tables,
        nulls=nulls,
        device=device.value,
        seed=seed,
        command=shlex.join(["posprobe", *sys.argv[1:]]),
    )
    name = "-vs-".join(bundle_name(table) for table in tables)
    folder = result.save(out or Path("reports") / name[:200])
    document = result.to_dict()
    typer.echo(to_json(document) if as_json else comparison(document), nl=not as_json)
    if not quiet:
        typer.echo(written(folder), err=True)
