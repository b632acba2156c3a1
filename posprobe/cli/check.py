"""``posprobe check``: whether two copies of a model encode position alike."""

import typer

from posprobe.cli.show import print_json
from posprobe.foreign import plain
from posprobe.progress import stage


def check(
    a: str,
    b: str,
    same_weights: bool = False,
    every: bool = False,
    as_json: bool = False,
    offline: bool = False,
) -> None:
    """Check whether two copies of a model encode position alike.

    Copies are checkpoints in any format, or what an engine computes, dumped to a file. Exit codes:
    0 alike, 6 different, 7 cannot tell.
    """
    with stage("Starting"):
        from posprobe.checks import check as run

    found = run(a, b, same_weights=same_weights, all_layers=every, offline=offline)
    if as_json:
        print_json(found.to_dict())
    else:
        for line in str(found).split("\n"):
            typer.echo(plain(line))
    raise typer.Exit(found.exit_code)
