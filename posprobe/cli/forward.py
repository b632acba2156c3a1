"""``posprobe forward``: positions inside a running model."""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out, received, say
from posprobe.cli.show import summary, written
from posprobe.errors import UsageError
from posprobe.progress import stage


class PrecisionName(StrEnum):
    """Number formats of a model's weights and activations."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float64 = "float64"


def forward(
    ref: options.Ref,
    out: options.Out = None,
    text: Annotated[
        Path | None,
        typer.Option("--text", metavar="FILE", help="Text to run the model on, cut into windows."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option("--images", metavar="DIR", help="Folder of pictures to run the model on."),
    ] = None,
    contexts: Annotated[
        int,
        typer.Option("--contexts", metavar="N", min=1, help="Largest number of contexts to run."),
    ] = 64,
    length: Annotated[
        int | None,
        typer.Option("--length", metavar="N", min=2, help="Tokens of each context [default: 128]."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="LIST",
            help="Measurements to run, such as states,heads; an unknown name lists all.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows",
            metavar="A:B",
            help="Keep positions A to B - 1 of hidden states and heads; whole contexts are run.",
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="LIST",
            help="Layers of hidden states, such as 0,6,12; 0 is what enters the first.",
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", metavar="N", min=1, help="Contexts in one batch."),
    ] = 8,
    dtype: Annotated[
        PrecisionName,
        typer.Option("--dtype", help="Number format of the model's weights and activations."),
    ] = PrecisionName.float32,
    nulls: options.Nulls = options.BANDS,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            min=0,
            help="Seed of the random contexts, the permutations and the random walks.",
        ),
    ] = 0,
    device: options.OnDevice = options.DeviceName.auto,
    device_map: Annotated[
        str | None,
        typer.Option(
            "--device-map",
            metavar="MAP",
            help="How transformers spreads a model over several devices: auto.",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run Python code that comes with the checkpoint."),
    ] = False,
    revision: options.Revision = None,
    offline: options.Offline = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Run a model and measure what position does inside it; write data, figures and a report.

    Hidden states, attention and heads layer by layer, and experiments: tokens permuted with and
    without positions, positions shifted, images without content. --only substitution, which runs
    on request alone, puts explanations of the position table in its place and measures what the
    model loses. Without --text or --images it runs on seeded random tokens or pixels, and says so.
    Ctrl-C keeps what was measured until then.
    """
    options.set_up_logging(quiet=quiet)
    with stage("Starting"):
        from posprobe.measure import analyze_model
        from posprobe.measurements.model import Contexts
        from posprobe.report import check_place, default_place, forward_name

        folder = out or default_place(forward_name(ref), {(ref, None)})
        check_place(folder)
    analysis = analyze_model(
        ref,
        Contexts(text, images, contexts, length, batch_size, seed),
        only=options.names_of(only),
        positions=None if rows is None else options.parse_rows(rows),
        layers=None if layers is None else _layers(layers),
        nulls=nulls,
        device=device.value,
        device_map=device_map,
        dtype=dtype.value,
        trust_remote_code=trust_remote_code,
        revision=revision,
        offline=offline,
        command=shlex.join(["posprobe", *sys.argv[1:]]),
    )
    if analysis.stopped:
        received.clear()  # what was measured is kept, and says so
    analysis.save(folder)
    document = analysis.to_dict()
    said = json_out(document) if as_json else summary(document, verbose=verbose)
    typer.echo(said, nl=not as_json)
    if not quiet:
        say(written(folder))


def _layers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--layers {text}: layers read N,N,..., such as 0,6,12.") from None
