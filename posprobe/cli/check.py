"""``posprobe check``: whether two copies of a model encode position alike."""

from typing import Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import json_out
from posprobe.foreign import plain
from posprobe.progress import stage


def check(
    a: Annotated[str, typer.Argument(metavar="A", help="The copy that is trusted.")],
    b: Annotated[
        str, typer.Argument(metavar="B", help="The other copy, or a dump of an engine (.npz).")
    ],
    same_weights: Annotated[
        bool, typer.Option("--same-weights", help="Count other weights as a difference.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Compare queries and keys of every layer.")
    ] = False,
    as_json: options.AsJson = False,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
) -> None:
    """Check whether two copies of a model encode position alike.

    Copies are checkpoints in any format, or what an engine computes, dumped to a file. Exit codes:
    0 alike, 6 different, 7 cannot tell.
    """
    options.set_up_logging(quiet=quiet)
    with stage("Starting"):
        from posprobe.checks import check as run

    found = run(a, b, same_weights=same_weights, all_layers=every, offline=offline)
    if as_json:
        typer.echo(json_out(found.to_dict()), nl=False)
    else:
        for line in str(found).split("\n"):
            typer.echo(plain(line))
    raise typer.Exit(found.exit_code)
