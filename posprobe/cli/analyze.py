"""``posprobe analyze``: from a reference to a bundle."""

import shlex
import sys
from typing import Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import give_memory_back, json_out, say
from posprobe.cli.show import found, written
from posprobe.progress import stage


@options.says_where
def analyze(
    ref: options.Ref,
    out: options.Out = None,
    rows: options.Rows = None,
    all_rows: Annotated[
        bool,
        typer.Option("--all-rows", help="Answer for all positions, outliers and breaks included."),
    ] = False,
    only: options.Only = None,
    as_json: options.AsJson = False,
    figures: options.Figures = options.WhichFigures.first,
    formats: options.Formats = "svg",
    nulls: options.Nulls = 0,
    weights: Annotated[
        bool,
        typer.Option(
            "--weights",
            help="Read query and key weights of a rotary model from the Hub as well; those on "
            "this machine are read anyway. How many bytes is said first.",
        ),
    ] = False,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers", metavar="LIST", help="Read those of these layers only, such as 0,16,31."
        ),
    ] = None,
    seed: options.Seed = 0,
    device: options.OnDevice = options.DeviceName.auto,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    *,
    where: options.Where,
) -> None:
    """Analyse how one checkpoint encodes position.

    Write a folder with a report, figures and data. A checkpoint without a position table is
    analysed by what it uses instead: rotary, relative or ALiBi positions.
    """
    options.set_up_logging(quiet=quiet)
    names, kinds = options.names_of(only), options.parse_formats(formats)
    wanted = options.parse_layers(layers)
    give_memory_back()
    with stage("Starting"):
        from posprobe.checkpoint_analysis import analyze_any, open_weights
        from posprobe.report import (
            bundle_name,
            check_place,
            check_request,
            default_place,
            sources_of,
        )
        from posprobe.report.narrator.weights import reading
        from posprobe.report.screen import text

        if out is not None:
            check_place(out)
        check_request(names, nulls, device.value)
    loaded = options.load_any(ref, rows=rows, where=where)
    if not quiet and isinstance(loaded, tuple):
        say(found(loaded))
    if out is None:
        records = loaded if isinstance(loaded, tuple) else (loaded,)
        out = default_place(bundle_name(loaded), sources_of(records))
        check_place(out)
    opened = open_weights(loaded, everywhere=weights, layers=wanted, offline=where.offline)
    size = sum(each.bytes for each in opened.values() if not isinstance(each, str))
    if size and not quiet:
        say(reading(size))
    analysis = analyze_any(
        loaded,
        only=names,
        nulls=nulls,
        rows=None if rows is None else options.parse_rows(rows),
        device=device.value,
        seed=seed,
        offline=where.offline,
        command=shlex.join(["posprobe", *sys.argv[1:]]),
        all_rows=all_rows,
        weights=opened,
    )
    folder = analysis.save(out, every=figures == "all", formats=kinds)
    document = analysis.to_dict()
    said = json_out(document) if as_json else text(document, verbose=verbose)
    typer.echo(said, nl=not as_json)
    if not quiet:
        say(written(folder))
