"""``posprobe compare``: several tables side by side."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
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
    load_any,
    scheme_length,
    talk,
)
from posprobe.cli.show import comparison, found, written

if TYPE_CHECKING:
    from posprobe.report import Comparison
    from posprobe.report.kernels import KernelComparison
    from posprobe.schemes import Scheme


def named(schemes: tuple[Scheme, ...], ref: str) -> tuple[Scheme, ...]:
    """Put the checkpoint's name before those of its encodings, where it has several."""
    if len(schemes) == 1:
        return schemes
    checkpoint = Path(ref).name
    return tuple(replace(scheme, name=f"{checkpoint}#{scheme.name}") for scheme in schemes)


def compare(
    refs: Annotated[
        list[str],
        typer.Argument(
            metavar="REF REF...",
            help="Encodings; `sinusoidal` and `sincos2d` alone take the first one's shape.",
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
    """Compare encodings over the positions that all of them have; write a bundle.

    Tables are compared number by number and against null models. Where one of the encodings has no
    table (rotary, relative, ALiBi), all are compared by the similarity of positions they induce.
    """
    from posprobe.encodings import FORMULAS, of_shape
    from posprobe.errors import UsageError
    from posprobe.report import bundle_name, compare_kernels, to_json
    from posprobe.report import compare as run
    from posprobe.table import PositionTable

    talk(quiet=quiet)
    formula = refs[0].partition(",")[0]
    if formula in FORMULAS and not Path(refs[0]).exists():
        raise UsageError(
            f"{refs[0]}: alone it takes the first table's shape, so it cannot be the first. Put it "
            f"after a table, or name its sizes: {formula}:{'x'.join(FORMULAS[formula].sizes)}."
        )
    records: list[PositionTable | Scheme] = []
    for ref in refs:
        first = records[0] if records else None
        table = of_shape(ref, first) if isinstance(first, PositionTable) else None
        loaded = table or load_any(ref, rows=rows, offline=offline)
        records += named(loaded, ref) if isinstance(loaded, tuple) else (loaded,)
        if not quiet:
            typer.echo(found(loaded), err=True)
    command = shlex.join(["posprobe", *sys.argv[1:]])
    tables = [record for record in records if isinstance(record, PositionTable)]
    result: Comparison | KernelComparison
    if len(tables) < len(records):
        length = scheme_length(rows)
        result = compare_kernels(*records, length=length, seed=seed, command=command)
    else:
        result = run(*tables, nulls=nulls, device=device.value, seed=seed, command=command)
    name = "-vs-".join(bundle_name(record) for record in records)
    folder = result.save(out or Path("reports") / name[:200])
    document = result.to_dict()
    typer.echo(to_json(document) if as_json else comparison(document), nl=not as_json)
    if not quiet:
        typer.echo(written(folder), err=True)
