"""``posprobe compare``: several tables side by side."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out, say
from posprobe.cli.show import written
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.report import Comparison
    from posprobe.report.kernels import KernelComparison


def compare(
    refs: Annotated[
        list[str],
        typer.Argument(
            metavar="REF REF...",
            help="Encodings to compare. `sinusoidal` and `sincos2d` take the shape of the first.",
        ),
    ],
    out: options.Out = None,
    label: options.Labels = None,
    rows: options.Rows = None,
    only: options.Only = None,
    as_json: options.AsJson = False,
    nulls: options.Nulls = 0,
    seed: options.Seed = 0,
    device: options.OnDevice = options.DeviceName.auto,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Compare several encodings side by side.

    Numbers and answers are given for each table as a whole, distances over the positions that two
    tables share. With a rotary, relative or ALiBi encoding among them, all are compared by how
    similarity depends on distance.
    """
    options.set_up_logging(quiet=quiet)
    names = options.names_of(only)
    with stage("Starting"):
        from posprobe.report import (
            bundle_name,
            check_place,
            check_request,
            compare as run,
            compare_kernels,
            default_place,
            sources_of,
        )
        from posprobe.report.screen import text
        from posprobe.tables import PositionTable

        if out is not None:
            check_place(out)
        check_request(names, nulls, device.value)
    records = options.load_records(
        refs, rows=rows, quiet=quiet, where=options.Where(offline=offline), labels=label
    )
    if out is None:
        name = "-vs-".join(bundle_name(record) for record in records)
        out = default_place(name[:200], sources_of(records))
        check_place(out)
    command = shlex.join(["posprobe", *sys.argv[1:]])
    tables = [record for record in records if isinstance(record, PositionTable)]
    result: Comparison | KernelComparison
    if len(tables) < len(records):
        length = options.scheme_length(rows)
        if only is not None:
            raise UsageError("--only chooses analyses of tables, and not all of these are tables.")
        result = compare_kernels(*records, length=length, seed=seed, command=command)
    else:
        result = run(
            *tables, only=names, nulls=nulls, device=device.value, seed=seed, command=command
        )
    folder = result.save(out)
    document = result.to_dict()
    said = json_out(document) if as_json else text(document, verbose=verbose)
    typer.echo(said, nl=not as_json)
    if not quiet:
        say(written(folder))
