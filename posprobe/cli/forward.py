"""``posprobe forward``: positions inside a running model."""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out, received, say
from posprobe.cli.show import written
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
        typer.Option(
            "--text", metavar="FILE", help="Run the model on this text, cut into windows."
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option("--images", metavar="DIR", help="Run the model on the images in this folder."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="LIST",
            help="Run these measurements, such as states,heads. An unknown name lists all.",
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option("--length", metavar="N", min=2, help="Tokens per window [default: 128]."),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="Run the model on the token ids [contexts, tokens] in this .npy file, or on "
            "random ones: random.",
        ),
    ] = None,
    contexts: Annotated[
        int,
        typer.Option("--contexts", metavar="N", min=1, help="Run at most N windows or images."),
    ] = 64,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows",
            metavar="A:B",
            help="Measure positions A to B-1 only. The model still runs on whole windows.",
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="LIST",
            help="Measure these layers, such as 0,6,12; 0 is the input of the first.",
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", metavar="N", min=1, help="Windows or images per batch."),
    ] = 8,
    dtype: Annotated[
        PrecisionName,
        typer.Option("--dtype", help="Precision of weights and activations."),
    ] = PrecisionName.float32,
    nulls: options.Nulls = options.BANDS,
    seed: options.Seed = 0,
    device: options.OnDevice = options.DeviceName.auto,
    device_map: Annotated[
        str | None,
        typer.Option(
            "--device-map",
            metavar="MAP",
            help="Spread the model over several devices (auto).",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run Python code from the checkpoint."),
    ] = False,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="Run a model that lacks weights: they are random, and named."
        ),
    ] = False,
    revision: options.Revision = None,
    offline: options.Offline = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Run a model and measure position inside it.

    Measure hidden states, attention and heads layer by layer; then permute tokens, shift positions
    and show images without content. `--only substitution` replaces the position table by its
    explanations and measures what the model loses. Without --text, --images or --tokens the
    inputs are random tokens or pixels; rotary use is measured on 16 contexts that a causal language
    model samples itself. Ctrl-C keeps what has been measured so far.
    """
    options.set_up_logging(quiet=quiet)
    with stage("Starting"):
        from posprobe.measure import analyze_model
        from posprobe.measurements.model import Contexts
        from posprobe.report import check_place, default_place, forward_name
        from posprobe.report.screen import text as printed

        folder = out or default_place(forward_name(ref), {(ref, None)})
        check_place(folder)
    analysis = analyze_model(
        ref,
        Contexts(text, images, contexts, length, batch_size, seed, _token_ids(tokens)),
        only=options.names_of(only),
        positions=None if rows is None else options.parse_rows(rows),
        layers=options.parse_layers(layers),
        nulls=nulls,
        device=device.value,
        device_map=device_map,
        dtype=dtype.value,
        trust_remote_code=trust_remote_code,
        allow_missing=allow_missing,
        revision=revision,
        offline=offline,
        command=shlex.join(["posprobe", *sys.argv[1:]]),
    )
    if analysis.stopped:
        received.clear()  # what was measured is kept, and says so
    analysis.save(folder)
    document = analysis.to_dict()
    said = json_out(document) if as_json else printed(document, verbose=verbose)
    typer.echo(said, nl=not as_json)
    if not quiet:
        say(written(folder))


def _token_ids(text: str | None) -> Path | Literal["random"] | None:
    if text is None:
        return None
    return "random" if text == "random" else Path(text)
