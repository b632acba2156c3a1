"""``posprobe figure``: one figure for a paper, with its caption."""

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
    if kind == "series":
        if has_table_options or label is not None:
            raise UsageError(
                "series takes --venue and --span only: the sweep has the numbers."
            )
        _write(_draw_series(refs, output, venue, span), output)
        return
    if kind == "attention-budget" and any(map(_is_run, refs)):
        if has_table_options:
            raise UsageError(f"{kind} of runs takes --venue, --span and --label only.")
        _write(_draw_saved_runs(refs, output, venue, span, label), output)
        return
    with stage("Starting"):
        from posprobe.studies import figure as figures
    if kind in figures.RUN_FIGURES:
        if _any_set(label, centred, columns, rows):
            raise UsageError(f"{kind} takes --venue, --span, --seed and --device only.")
        run = _run_model(kind, refs, output, seed, device, load_options)
        _write(run.paper_figure(kind.replace("-", "_"), venue=venue, span=span), output)
        return
    figure_options: dict[str, Any] = {"centred": centred, "columns": columns}
    # Options are checked before anything is downloaded.
    figures.check_figure_request(kind, venue, output, **figure_options)
    options.check_arguments(None, None, 0, device)
    _check_sources(refs, source)
    records = options.load_records(
        refs, rows=rows, load_options=load_options, labels=label, seed=seed
    )
    length = options.scheme_length(rows) if kind == "heads" else None
    figure_options |= {"venue": venue, "span": span, "seed": seed, "device": device}
    _write(figures.paper_figure(kind, *records, length=length, **figure_options), output)


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


def _draw_saved_runs(
    refs: list[str], output: Path, venue: str, span: Span, label: list[str] | None
) -> "PaperFigure":
    """Draw what decides where the heads of saved runs look."""
    from posprobe.studies.figure import draw_runs, figure_paths

    figure_paths(output)
    labels = options.parse_labels(refs, label or ())
    return draw_runs(refs, venue=venue, span=span, labels=labels)


def _run_model(
    kind: str,
    refs: list[str],
    output: Path,
    seed: int,
    device: "Device",
    load_options: options.LoadOptions,
) -> "ForwardAnalysis":
    """Run a model for the measurement that a kind of figure shows."""
    with stage("Starting"):
        from posprobe.measurements.model.contexts import Contexts
        from posprobe.studies.figure import RUN_FIGURES, figure_paths
        from posprobe.studies.model import analyze_model

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
    figure_paths(output)
    return analyze_model(
        refs[0],
        Contexts(seed=seed),
        only=[RUN_FIGURES[kind][0]],
        nulls=0,
        device=device,
        revision=load_options.revision,
        offline=load_options.offline,
    )


def _draw_series(refs: list[str], output: Path, venue: str, span: Span) -> "PaperFigure":
    """Draw the only training run in a sweep, or the one that ``SWEEP#RUN`` names."""
    with stage("Starting"):
        from posprobe.studies.figure import figure_paths
        from posprobe.sweeps import series

    figure_paths(output)
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
    return selected.figure(venue, span)


def _write(drawing: "PaperFigure", output: Path) -> None:
    with stage("Writing the figure"):
        caption = drawing.save(output)
    typer.echo(drawing.caption_text, nl=False)
    width, height = drawing.figure.get_size_inches()
    print_note(f"Figure  {output} ({width:.2f} x {height:.2f} in)")
    print_note(f"Caption {caption}")
