"""``posprobe compare``: several tables side by side."""

from __future__ import annotations

import shlex
import sys
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
    Verbose,
    load_records,
    scheme_length,
    set_up_logging,
)
from posprobe.cli.show import summary, written

if TYPE_CHECKING:
    from posprobe.report import Comparison
    from posprobe.report.kernels import KernelComparison


def compare(
    refs: Annotated[
        list[str],
        typer.Argument(
            metavar="REF REF...",
            help="Encodings to compare; `sinusoidal` and `sincos2d` take the first one's shape.",
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
    verbose: Verbose = False,
) -> None:
    """Compare encodings over the positions that all of them have; write a bundle.

    Tables are compared number by number and against null models. Where one of the encodings has no
    table (rotary, relative, ALiBi), all are compared by the similarity of positions they induce.
    """
    from posprobe.report import bundle_name, compare_kernels, to_json
    from posprobe.report import compare as run
    from posprobe.table import PositionTable

    set_up_logging(quiet=quiet)
    records = load_records(refs, rows=rows, offline=offline, quiet=quiet)
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
    said = to_json(document) if as_json else summary(document, verbose=verbose)
    typer.echo(said, nl=not as_json)
    if not quiet:
        typer.echo(written(folder), err=True)
