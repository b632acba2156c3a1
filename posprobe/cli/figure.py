"""``posprobe figure``: one figure for a paper, with its caption."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posprobe.cli import options
from posprobe.cli.process import say
from posprobe.errors import UsageError
from posprobe.foreign import plain
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.report import PaperFigure

#: `posprobe.report.paper_kinds.kinds`, `posprobe.figures.styles.SIGNED` and
#: `posprobe.figures.venues.venues`, repeated so that help starts without NumPy; a test holds them.
KINDS = (
    "mosaic, similarity, profile, axis_codes, winding, bridging, variance, components, trajectory, "
    "spectrum, spectrogram, shift, norms, table, nulls, heads or comparison"
)
MAPS = (
    "RdBu, PuOr, PRGn, BrBG, PiYG or coolwarm, with _r reversed, or grey, which keeps the sign in "
    "black and white"
)
VENUES = "acl, neurips, iclr, icml, cvpr, aaai, jmlr, tmlr, slides or web"


class Span(StrEnum):
    """How wide."""

    column = "column"
    page = "page"


def figure(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"What to draw: {KINDS}; or series, a training run in the folder of a sweep.",
        ),
    ],
    refs: Annotated[
        list[str],
        typer.Argument(
            metavar="REF...",
            help="Encodings to draw; `sinusoidal` and `sincos2d` alone take the first one's shape.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="FILE.pdf, .svg or .png; the caption goes to FILE.caption.txt."
        ),
    ],
    venue: Annotated[
        str,
        typer.Option(
            "--venue", metavar="V", help=f"Venue whose widths and fonts are used: {VENUES}."
        ),
    ] = "acl",
    span: Annotated[
        Span, typer.Option("--span", help="Width of one column of text, or of the whole page.")
    ] = Span.column,
    label: options.Labels = None,
    centred: Annotated[
        bool | None,
        typer.Option(
            "--centred/--raw",
            help="Cosines after subtracting the mean row, or of rows as stored: similarity, "
            "profile, comparison.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        int | None,
        typer.Option(
            "--columns",
            metavar="N",
            help="Most panels side by side: similarity, components, comparison.",
        ),
    ] = None,
    cmap: Annotated[
        str | None,
        typer.Option("--cmap", metavar="NAME", help=f"Colours of what has a sign: {MAPS}."),
    ] = None,
    rows: options.Rows = None,
    nulls: options.Nulls = options.BANDS,
    seed: options.Seed = 0,
    device: options.OnDevice = options.DeviceName.auto,
    tensor: options.Tensor = None,
    grid: options.GridSize = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a figure for a paper, at its final width, and print a caption for it.

    similarity, profile, variance, spectrum and comparison take several tables; heads draws
    relative, rotary and linear encodings.
    """
    options.set_up_logging(quiet=quiet)
    if kind == "series":
        asked = (label, centred, columns, cmap, rows, tensor, grid, revision)
        computed = (nulls, seed, device) != (options.BANDS, 0, options.DeviceName.auto)
        if computed or any(option is not None for option in asked):
            raise UsageError("series draws what a sweep measured: it has --venue and --span only.")
        _write(_series(refs, output, venue, span), output, quiet=quiet)
        return
    with stage("Starting"):
        from posprobe.report import analysis, paper

        # What was asked for is checked before anything is fetched.
        paper.check_request(kind, venue, output, cmap=cmap, centred=centred, columns=columns)
        analysis.check_request(None, nulls, device.value)
    if len(refs) > 1 and (tensor or grid or revision):
        raise UsageError(
            "--tensor, --grid and --revision are those of one reference. Write REF@REVISION for a "
            "revision, or make files with `posprobe extract` and draw those."
        )
    records = options.load_records(
        refs,
        rows=rows,
        tensor=tensor,
        grid=grid,
        revision=revision,
        offline=offline,
        quiet=quiet,
        labels=label,
    )
    made = paper.paper_figure(
        kind,
        *records,
        venue=venue,
        span=span.value,
        centred=centred,
        columns=columns,
        cmap=cmap,
        nulls=nulls,
        seed=seed,
        device=device.value,
        length=options.scheme_length(rows) if kind == "heads" else None,
    )
    _write(made, output, quiet=quiet)


def _series(refs: list[str], output: Path, venue: str, span: Span) -> "PaperFigure":
    """Draw the one training run in a sweep, or the one that is named: SWEEP#RUN."""
    with stage("Starting"):
        from posprobe.report.paper import figure_paths
        from posprobe.sweeps import series

    figure_paths(output)
    if len(refs) != 1:
        raise UsageError(f"series draws one training run, and {len(refs)} are given.")
    folder, _, name = refs[0].partition("#")
    found = {run.name: run for run in series(folder)}
    chosen = found.get(name) if name else next(iter(found.values()), None)
    if not found:
        raise UsageError(
            f"{folder}: no three rows of this sweep are steps of one training. Name steps in a "
            "column `step`, or in references such as run/checkpoint-400."
        )
    if chosen is None or (len(found) > 1 and not name):
        names = ", ".join(f"{folder}#{each}" for each in found)
        raise UsageError(f"{refs[0]}: choose one of its training runs: {names}.")
    return chosen.figure(venue, span.value)


def _write(made: "PaperFigure", output: Path, *, quiet: bool) -> None:
    with stage("Writing the figure"):
        caption = made.save(output)
    typer.echo(made.caption, nl=False)
    if not quiet:
        width, height = made.figure.get_size_inches()
        size = f"{width:.2f} x {height:.2f} in"
        for line in (f"Figure  {output} ({size})", f"Caption {caption}"):
            say(plain(line))
