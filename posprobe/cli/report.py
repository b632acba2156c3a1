"""``posprobe report``: render a saved bundle again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A bundle that analyze wrote.")],
) -> None:
    """Render the page of a saved bundle again, without the model."""
    from posprobe.report import render_bundle

    typer.echo(os.fsencode(render_bundle(folder)))
