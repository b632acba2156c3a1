"""``posprobe figure``: one figure for a paper, with its caption."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import typer

from posprobe.cli import options
from posprobe.cli.process import print_note
from posprobe.errors import UsageError
from posprobe.progress import stage

if TYPE_CHECKING:
    from posprobe.arrays import Device
    from posprobe.studies import PaperFigure
    from posprobe.studies.model import ForwardAnalysis
    from posprobe.studies.run_figures import MeasuredRun
    from posprobe.studies.series import Series

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
    load_options: options.LoadOptions,
) -> None:
    """Draw one figure for a paper, with its caption.

    The kinds similarity, profile, variance, spectrum, budget and comparison take several tables.
    The kind heads draws relative, rotary and ALiBi encodings. The kind attention-budget runs a
    model, or draws the folders of several saved runs; rotary-curves and rotary-usage run a
    rotary model on contexts that it samples itself.
    """
    source = (load_options.tensor, load_options.grid, load_options.revision)
    has_run_options = (seed, device) != (0, "auto")
    has_table_options = has_run_options or _any_set(centred, columns, rows, *source)
    if kind == "series" and (has_table_options or label is not None):
        raise UsageError(
            "series takes --venue and --span only: the sweep has the numbers."
        )
    saved = kind == "attention-budget" and any(map(_is_run, refs))
    if saved and has_table_options:
        raise UsageError(f"{kind} of runs takes --venue, --span and --label only.")
    with stage("Starting"):
        from posprobe.studies import figure as figures
        from posprobe.studies.run_figures import RUN_FIGURES
    if kind in RUN_FIGURES and not saved and _any_set(label, centred, columns, rows):
        raise UsageError(f"{kind} takes --venue, --span, --seed and --device only.")
    figure_options: dict[str, Any] = {"centred": centred, "columns": columns}
    # Options are checked before anything is downloaded.
    figures.check_figure_request(kind, venue, output, **figure_options)
    records: list[Any]
    if kind == figures.SERIES_KIND:
        records = [_read_series(refs)]
    elif saved:
        records = _read_saved_runs(kind, refs, label)
    elif kind in RUN_FIGURES:
        records = [_run_model(kind, refs, seed, device, load_options)]
    else:
        options.check_arguments(None, None, 0, device)
        _check_sources(refs, source)
        records = options.load_records(
            refs, rows=rows, load_options=load_options, labels=label, seed=seed
        )
    if kind == "heads":
        figure_options["length"] = options.scheme_length(rows)
    figure_options |= {"venue": venue, "span": span, "seed": seed, "device": device}
    _write(figures.paper_figure(kind, *records, **figure_options), output)


def _check_sources(refs: list[str], source: tuple[object, ...]) -> None:
    """Refuse options that choose within one reference where several are given."""
    if len(refs) > 1 and any(source):
        raise UsageError(
            "--tensor, --grid and --revision apply to one reference. Write REF@REVISION "
            "for a revision, or make files with `posprobe extract` and draw those."
        )


def _any_set(*values: object) -> bool:
    return any(value is not None for value in values)


def _is_run(reference: str) -> bool:
    from posprobe.studies.saved_runs import run_document

    return run_document(reference) is not None


def _read_saved_runs(
    kind: str, refs: list[str], label: list[str] | None
) -> "list[MeasuredRun]":
    """Read what decides where the heads of saved runs look, named by their labels."""
    from posprobe.studies.run_figures import measure_runs

    for reference in refs:
        if not _is_run(reference):
            raise UsageError(
                f"{reference}: not the folder of a saved run. "
                "`posprobe forward REF --out DIR` makes one."
            )
    labels = options.parse_labels(refs, label or ())
    runs = measure_runs(kind, refs)
    return [
        replace(run, name=labels.get(reference, run.name))
        for reference, run in zip(refs, runs, strict=True)
    ]


def _run_model(
    kind: str,
    refs: list[str],
    seed: int,
    device: "Device",
    load_options: options.LoadOptions,
) -> "ForwardAnalysis":
    """Run a model for the measurement that a kind of figure shows."""
    from posprobe.studies.run_figures import run_model

    if len(refs) != 1:
        advice = (
            " Save a run of each with `posprobe forward REF --out DIR`, and name the folders."
            if kind == "attention-budget"
            else ""
        )
        raise UsageError(f"{kind} runs one model, and {len(refs)} are given.{advice}")
    if _is_run(refs[0]):
        raise UsageError(
            f"{refs[0]}: it is a saved run, and {kind} runs a model. Name the model, or "
            "take the figure that `posprobe forward` wrote into the folder."
        )
    location = {"revision": load_options.revision, "offline": load_options.offline}
    return run_model(kind, refs[0], seed, device, **location)


def _read_series(refs: list[str]) -> "Series":
    """Read the only training run in a sweep, or the one that ``SWEEP#RUN`` names."""
    from posprobe.sweeps import series

    if len(refs) != 1:
        raise UsageError(f"series draws one training run, and {len(refs)} are given.")
    folder, _, name = refs[0].partition("#")
    runs = {run.name: run for run in series(folder)}
    selected = runs.get(name) if name else next(iter(runs.values()), None)
    if not runs:
        raise UsageError(
            f"{folder}: fewer than three rows are steps of one training "
            "run. Name steps in a column `step`, or in references such as "
            "run/checkpoint-400."
        )
    if selected is None or (len(runs) > 1 and not name):
        names = ", ".join(f"{folder}#{run_name}" for run_name in runs)
        raise UsageError(f"{refs[0]}: choose one of its training runs: {names}.")
    return selected


def _write(drawing: "PaperFigure", output: Path) -> None:
    with stage("Writing the figure"):
        caption = drawing.save(output)
    typer.echo(drawing.caption_text, nl=False)
    width, height = drawing.figure.get_size_inches()
    print_note(f"Figure  {output} ({width:.2f} x {height:.2f} in)")
    print_note(f"Caption {caption}")
