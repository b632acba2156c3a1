"""Figures for papers of runs of models: what is run or read for them, and their captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from posprobe.analyses.models.places import Places
from posprobe.analyses.models.rotary_use import RotaryUse
from posprobe.arrays import Device
from posprobe.errors import UsageError
from posprobe.studies.comparison import apply_labels, make_names_unique
from posprobe.studies.saved_runs import read_run
from posprobe.text import shorten_reference
from posprobe.words import captions, models

if TYPE_CHECKING:
    from posprobe.figures.common import FigureFormat
    from posprobe.studies.figure import CaptionedFigure
    from posprobe.studies.model import ForwardAnalysis

#: Measurement and title of the kinds of figures that show a run of a model.
RUN_FIGURES: Mapping[str, tuple[str, str]] = {
    "attention-budget": (
        "attention_budget",
        "what decides where each head of a model looks",
    ),
    "rotary-curves": ("rotary_use", "what each head of a rotary model makes of distance"),
    "rotary-usage": (
        "rotary_use",
        "pairs that each head uses, and those that make its curve",
    ),
    "places": ("places", "places of an input that reach the output"),
}
#: The kind of figure that shows several runs.
RUNS_KIND = "attention-budget"
#: Number of bars under each other that fit into a figure.
MAX_PAPER_RUNS = 24


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """What a figure shows of one run.

    Parameters
    ----------
    name
        Name in figure and caption.
    result
        Result that is drawn.
    contexts
        Model and contexts of the run, in words.
    source
        Reference of the run where its name is shorter, else empty.
    """

    name: str
    result: Any
    contexts: str
    source: str = ""


def measure_runs(
    kind: str,
    records: Sequence[Any],
    labels: Sequence[str] | None = None,
    seed: int = 0,
    device: Device = "auto",
) -> list[MeasuredRun]:
    """Return what a kind of figure shows of results, analyses, folders of saved runs, and models.

    Models are run, on contexts that are drawn with the seed.

    Raises
    ------
    UsageError
        If there are too many records or none, not as many labels, or one of them lacks what the
        figure shows.
    InvalidCheckpoint
        If a bundle is damaged.
    """
    max_runs = MAX_PAPER_RUNS if kind == RUNS_KIND else 1
    if not 1 <= len(records) <= max_runs:
        raise UsageError(
            f"{kind} draws {f'1 to {max_runs} runs' if max_runs > 1 else 'one run'}, and "
            f"{len(records)} are given."
        )
    runs = [_measure_run(kind, record, seed, device) for record in records]
    labelled_runs = apply_labels(runs, labels)
    names = make_names_unique([run.name for run in labelled_runs])
    return [
        replace(run, name=name) for run, name in zip(labelled_runs, names, strict=True)
    ]


def _measure_run(kind: str, record: Any, seed: int, device: Device) -> MeasuredRun:
    from posprobe.measurements.model import MODEL_MEASUREMENTS
    from posprobe.studies.model import ForwardAnalysis

    if isinstance(record, MeasuredRun):
        return record
    measurement = MODEL_MEASUREMENTS[RUN_FIGURES[kind][0]]
    if isinstance(record, str | PathLike):
        reference = fspath(record)
        saved_run = read_run(reference) if kind == RUNS_KIND else None
        if saved_run is not None:
            budget, contexts_kind = saved_run.budget, saved_run.contexts_kind
            contexts = captions.describe_contexts(budget, contexts_kind)
            return MeasuredRun(budget.name, budget, contexts)
        record = run_model(kind, reference, seed, device)
    if isinstance(record, ForwardAnalysis):
        return measured_run(record, kind.replace("-", "_"))
    if isinstance(record, measurement.record):
        name = shorten_reference(record.name)
        return MeasuredRun(name, record, captions.describe_contexts(record))
    raise UsageError(
        f"{kind} draws a {measurement.record.__name__}, a run of a model or a reference, and no "
        f"{type(record).__name__}."
    )


def run_model(
    kind: str, reference: str, seed: int, device: Device, **location: Any
) -> ForwardAnalysis:
    """Run a model for the measurement that a kind of figure shows."""
    from posprobe.measurements.model.contexts import Contexts
    from posprobe.studies.model import analyze_model

    measurement, _ = RUN_FIGURES[kind]
    return analyze_model(
        reference,
        Contexts(seed=seed),
        only=[measurement],
        nulls=0,
        device=device,
        **location,
    )


def measured_run(analysis: ForwardAnalysis, drawing: str) -> MeasuredRun:
    """Return what a drawing shows of an analysis.

    Raises
    ------
    UsageError
        If the run has no such figure.
    """
    from posprobe.measurements.model import MODEL_MEASUREMENTS

    if drawing not in (figures := analysis.figures()):
        reasons = "; ".join(analysis.missing.values()) or ", ".join(figures)
        raise UsageError(
            f"{analysis.name}: no figure {drawing} can be drawn ({reasons})."
        )
    result = next(
        result
        for name, result in analysis.results.items()
        if drawing in {drawn.name for drawn in MODEL_MEASUREMENTS[name].drawings}
    )
    contexts = (
        captions.describe_contexts(result)
        if isinstance(result, RotaryUse | Places)
        else models.describe_run(analysis.to_dict()).replace(" · ", ", ")
    )
    name = shorten_reference(analysis.name)
    source = f"{analysis.name}." if name != analysis.name else ""
    return MeasuredRun(name, result, contexts, source)


def draw_runs(
    drawing: str, runs: Sequence[MeasuredRun], figure_format: FigureFormat
) -> CaptionedFigure:
    """Draw a run, or what decides where the heads of several look."""
    from posprobe.figures import find_builder
    from posprobe.figures.attention_budget import attention_budgets_figure
    from posprobe.figures.styles import make_labels_printable

    results = {run.name: run.result for run in runs}
    build = (
        attention_budgets_figure
        if len(runs) > 1
        else find_builder(runs[0].result, drawing)
    )
    figure = build(figure_format, make_labels_printable(results), {})
    contexts = " ".join(f"{run.name}: {run.contexts}." for run in runs)
    sources = " ".join(run.source for run in runs)
    return figure, (captions.run_caption(drawing, results), contexts), sources
