"""``posprobe analyze``: from a reference to a bundle."""

from __future__ import annotations

import shlex
import sys

import typer

from posprobe.cli.options import (
    DEFAULT_NULLS,
    AsJson,
    DeviceName,
    GridSize,
    Nulls,
    Offline,
    OnDevice,
    Only,
    Out,
    Quiet,
    Ref,
    Revision,
    Rows,
    Seed,
    Tensor,
    load_table,
    talk,
)
from posprobe.cli.show import found, summary, written


def analyze(
    ref: Ref,
    out: Out = None,
    rows: Rows = None,
    only: Only = None,
    nulls: Nulls = DEFAULT_NULLS,
    seed: Seed = 0,
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
        typer.echo(found(table), err=True)
    analysis = run(
        table,
        only=[name.strip() for name in only.split(",")] if only is not None else None,
        nulls=nulls,
        device=device.value,
        seed=seed,
        command=shlex.join(["posprobe", *sys.argv[1:]]),
    )
    folder = analysis.save(out or Path("reports") / bundle_name(table))
    typer.echo(
        to_json(analysis.to_dict()) if as_json else summary(analysis.to_dict()), nl=not as_json
    )
    if not quiet:
        typer.echo(written(folder), err=True)
