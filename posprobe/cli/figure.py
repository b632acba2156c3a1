"""``posprobe figure``: one figure for a paper, with its caption."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import typer

from posprobe.cli import options
from posprobe.cli.process import tell
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.arrays import Device
    from posprobe.studies import PaperFigure
    from posprobe.studies.model import ForwardAnalysis

Span: TypeAlias = Literal["column", "page"]


def figure(
    kind: str,
    refs: list[str],
    output: Path,
    venue: str = "acl",
    span: Span = "column",
    label: list[str] | None = None,
    rows: str | None = None,
    centred: bool | None = None,
    columns: int | None = None,
    seed: int = 0,
    device: options.Device = "auto",
    *,
    where: options.Where,
) -> None:
    """Draw one figure for a paper, with its caption.

    The kinds similarity, profile, variance, spectrum, budget and comparison take several tables.
    The kind heads draws relative, rotary and ALiBi encodings; rotary-curves and rotary-usage run a
    rotary model on contexts that it samples itself.
    """
    if kind == "series":
        asked = (label, centred, columns, rows, where.tensor, where.grid, where.revision)
        computed = (seed, device) != (0, "auto")
        if computed or any(option is not None for option in asked):
            raise UsageError("series takes --venue and --span only: the sweep has the numbers.")
        _write(_series(refs, output, venue, span), output)
        return
    with stage("Starting"):
        from posprobe.studies.figure import OF_RUNS, check_request, paper_figure
    if kind in OF_RUNS:
        if any(option is not None for option in (label, centred, columns, rows)):
            raise UsageError(f"{kind} takes --venue, --span, --seed and --device only.")
        if len(refs) != 1:
            raise UsageError(f"{kind} draws one model, and {len(refs)} are given.")
        run = _run(OF_RUNS[kind][0], refs[0], output, seed, device, where)
        _write(run.paper_figure(kind.replace("-", "_"), venue=venue, span=span), output)
        return
    look: dict[str, Any] = {"centred": centred, "columns": columns}
    # What was asked for is checked before anything is fetched.
    check_request(kind, venue, output, **look)
    options.check_asked(None, None, 0, device)
    if len(refs) > 1 and (where.tensor or where.grid or where.revision):
        raise UsageError(
            "--tensor, --grid and --revision apply to one reference. Write REF@REVISION for a "
            "revision, or make files with `posprobe extract` and draw those."
        )
    records = options.load_records(refs, rows=rows, where=where, labels=label, seed=seed)
    length = options.scheme_length(rows) if kind == "heads" else None
    made = paper_figure(
        kind, *records, venue=venue, span=span, seed=seed, device=device, length=length, **look
    )
    _write(made, output)


def _run(
    measurement: str, ref: str, output: Path, seed: int, device: "Device", where: options.Where
) -> "ForwardAnalysis":
    """Run a model for one measurement."""
    with stage("Starting"):
        from posprobe.measurements.model.contexts import Contexts
        from posprobe.studies.figure import figure_paths
        from posprobe.studies.model import analyze_model

    figure_paths(output)
    return analyze_model(
        ref,
        Contexts(seed=seed),
        only=[measurement],
        nulls=0,
        device=device,
        revision=where.revision,
        offline=where.offline,
    )


def _series(refs: list[str], output: Path, venue: str, span: Span) -> "PaperFigure":
    """Draw the one training run in a sweep, or the one that is named: SWEEP#RUN."""
    with stage("Starting"):
        from posprobe.studies.figure import figure_paths
        from posprobe.sweeps import series

    figure_paths(output)
    if len(refs) != 1:
        raise UsageError(f"series draws one training run, and {len(refs)} are given.")
    folder, _, name = refs[0].partition("#")
    found = {run.name: run for run in series(folder)}
    chosen = found.get(name) if name else next(iter(found.values()), None)
    if not found:
        raise UsageError(
            f"{folder}: fewer than three rows are steps of one training run. Name steps in a "
            "column `step`, or in references such as run/checkpoint-400."
        )
    if chosen is None or (len(found) > 1 and not name):
        names = ", ".join(f"{folder}#{each}" for each in found)
        raise UsageError(f"{refs[0]}: choose one of its training runs: {names}.")
    return chosen.figure(venue, span)


def _write(made: "PaperFigure", output: Path) -> None:
    with stage("Writing the figure"):
        caption = made.save(output)
    typer.echo(made.caption, nl=False)
    width, height = made.figure.get_size_inches()
    tell(f"Figure  {output} ({width:.2f} x {height:.2f} in)")
    tell(f"Caption {caption}")
