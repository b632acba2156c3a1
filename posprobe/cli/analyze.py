"""``posprobe analyze``: from a reference to a bundle."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

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
    Verbose,
    load_any,
    load_sample,
    names_of,
    scheme_length,
    set_up_logging,
)
from posprobe.cli.process import json_out, say
from posprobe.cli.show import found, summary, written
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.report import Analysis, SchemeAnalysis


def analyze(
    ref: Ref,
    out: Out = None,
    rows: Rows = None,
    all_rows: Annotated[
        bool,
        typer.Option("--all-rows", help="Ask the questions of all rows, special ones included."),
    ] = False,
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
    verbose: Verbose = False,
) -> None:
    """Analyse how a checkpoint encodes position and write a bundle: data, figures and a report.

    A table of positions is analysed where there is one, else the scheme that the model uses
    instead: rotary, relative or ALiBi.
    """
    set_up_logging(quiet=quiet)
    names = names_of(only)
    with stage("Starting"):
        from posprobe.report import (
            bundle_name,
            check_place,
            check_request,
            default_place,
            sources_of,
        )

        if out is not None:
            check_place(out)
        check_request(names, nulls, device.value)
    loaded = load_any(ref, rows=rows, tensor=tensor, grid=grid, revision=revision, offline=offline)
    if not quiet:
        say(found(loaded))
    if out is None:
        records = loaded if isinstance(loaded, tuple) else (loaded,)
        out = default_place(bundle_name(loaded), sources_of(records))
        check_place(out)
    command = shlex.join(["posprobe", *sys.argv[1:]])
    analysis: Analysis | SchemeAnalysis
    if isinstance(loaded, tuple):
        from posprobe.report import analyze_schemes

        if only is not None:
            raise UsageError(f"{ref}: --only picks among the analyses of tables; it has no table.")
        analysis = analyze_schemes(*loaded, length=scheme_length(rows), seed=seed, command=command)
    else:
        from posprobe.report import analyze as run

        analysis = run(
            loaded,
            only=names,
            nulls=nulls,
            device=device.value,
            seed=seed,
            command=command,
            tokens=load_sample(loaded, names, seed=seed, offline=offline),
            all_rows=all_rows,
        )
    folder = analysis.save(out)
    document = analysis.to_dict()
    said = json_out(document) if as_json else summary(document, verbose=verbose)
    typer.echo(said, nl=not as_json)
    if not quiet:
        say(written(folder))
