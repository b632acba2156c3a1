"""Analysis of a running model: it is loaded, and the requested measurements are taken in turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posprobe import forward
from posprobe.analyses.facts import Answers, decide
from posprobe.analyses.models.places import Pooling
from posprobe.analyses.models.states import MeanDecomposition
from posprobe.analyses.result import Result, as_block, collect_arrays, to_json
from posprobe.arrays import Device, device_name
from posprobe.blocks import describe_environment
from posprobe.encodings.tables import check_integer
from posprobe.errors import PosprobeError, UnknownReference, UsageError
from posprobe.families.read import find_model_source
from posprobe.forward.files import check_tokenizer_files
from posprobe.forward.models import first_device, is_timm_source
from posprobe.forward.running import has_finite_weights
from posprobe.measurements.model import MODEL_MEASUREMENTS, Contexts, ModelInputs
from posprobe.measurements.model.contexts import (
    IMAGES_MESSAGE,
    ContextSource,
    read_context_source,
    without_sampling,
)
from posprobe.nulls import DEFAULT_DRAWS, MAX_DRAWS
from posprobe.progress import stage
from posprobe.questions.models import RUN_QUESTIONS, ModelRun
from posprobe.reference import parse_reference
from posprobe.report.document import FindingBlock, answer_block, list_findings
from posprobe.report.files import FORWARD_SCHEMA, folder_exists, path_exists
from posprobe.report.saved import Saveable
from posprobe.words import models
from posprobe.words.models import INTERRUPTED_REASON, interrupted_notes, unmeasured_notes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.figures.styles import Span
    from posprobe.forward.models import Precision
    from posprobe.studies.figure import PaperFigure

logger = logging.getLogger("posprobe")

#: The main measurement of a run, which fails if this one does.
_MAIN_MEASUREMENT = "states"


@dataclass(frozen=True, eq=False, repr=False)
class ForwardAnalysis(Saveable):
    """Measurements of position inside a model: hidden states, weights and attention.

    Parameters
    ----------
    name
        Reference as the user typed it.
    model
        ``class``, ``parameters``, ``dtype`` and ``device``; ``missing_weights``, which are random,
        and ``unused_weights``, by name.
    contexts
        Description of the contexts: ``kind`` in words, whether they are ``random``, ``length`` in
        tokens or ``shape`` of an image, and ``seed``, None where nothing was drawn.
    results
        Frozen results by name, any of `posprobe.measurements.model.MODEL_MEASUREMENTS`, in its
        order.
    missing
        Reasons by name for requested measurements that were not taken.
    environment
        Versions, device, seed, command and time.
    notes
        Remarks for the reader.
    stopped
        Whether the run was interrupted.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> contexts = pp.Contexts(count=4)
    >>> analysis = pp.analyze_model("sample:digits-vit", contexts, only=("blank",), nulls=0)
    >>> sorted(analysis.results), analysis.missing
    (['blank'], {})
    """

    name: str
    model: Mapping[str, Any]
    contexts: Mapping[str, Any]
    results: Mapping[str, Result]
    missing: Mapping[str, str]
    environment: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    stopped: bool = False

    @property
    def baselines(self) -> Mapping[str, Any]:
        """Baselines of the numbers of layers; empty without ``states``."""
        states = self.results.get("states")
        return states.baselines if isinstance(states, MeanDecomposition) else {}

    @property
    def run(self) -> ModelRun:
        """The run as the questions take it."""
        return ModelRun(
            self.results,
            self.model["dtype"],
            images="shape" in self.contexts,
            random=self.contexts.get("random", False),
        )

    @property
    def answers(self) -> Answers:
        """The answers that the results allow."""
        answers = [ask(self.run) for ask in RUN_QUESTIONS.values()]
        return Answers(decide(filter(None, answers), (), self.run).values())

    @property
    def findings(self) -> tuple[FindingBlock, ...]:
        """The sentence of each yes, with the keys of the numbers that support it."""
        return list_findings(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.forward/3`)."""
        run = self.run
        answers = {answer.question: answer for answer in self.answers}
        return {
            "schema": FORWARD_SCHEMA,
            "name": self.name,
            "model": dict(self.model),
            "contexts": {**self.contexts, "used": run.contexts},
            "beside": dict(self.baselines) or None,
            **dict.fromkeys(MODEL_MEASUREMENTS),
            **{name: as_block(result) for name, result in self.results.items()},
            "missing": dict(self.missing),
            "notes": list(self.notes),
            "environment": dict(self.environment),
            "verdict": {
                "summary": models.summarise_run(answers, run),
                "answers": [answer_block(answer) for answer in answers.values()],
            },
            "findings": to_json(self.findings),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: a layer's arrays under its number.

        ``N_pos`` ``[t, d]`` and ``N_mean`` ``[d]`` in float32, ``N_error`` ``[t]``, the norm of a
        position's standard error; curves by offset as ``N_logits``, ``N_attention``, ``N_words``.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for name, result in self.results.items():
            arrays |= collect_arrays(result, name)
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the bundle's figures by name."""
        figures: dict[str, Callable[[], Figure]] = {}
        for name, result in self.results.items():
            figures |= MODEL_MEASUREMENTS[name].prepare_figures({self.name: result})
        return figures

    def paper_figure(
        self, kind: str, *, venue: str = "acl", span: Span = "column"
    ) -> PaperFigure:
        """Draw one figure of this run for a paper, with its caption.

        Parameters
        ----------
        kind
            Name of the figure, as in `figures`.
        venue, span
            Venue and width as for `posprobe.paper_figure`.

        Raises
        ------
        UsageError
            If this run has no such figure, or the venue or span is unknown.
        """
        from posprobe.studies.figure import lay_out_figure
        from posprobe.studies.run_figures import draw_runs, measured_run

        run = measured_run(self, kind)
        return lay_out_figure(partial(draw_runs, kind, [run]), venue, span)


def analyze_model(
    reference: str,
    contexts: Contexts | None = None,
    *,
    only: Iterable[str] | None = None,
    positions: slice | None = None,
    layers: Sequence[int] | None = None,
    nulls: int = DEFAULT_DRAWS,
    pooling: Pooling | None = None,
    device: Device = "auto",
    device_map: str | None = None,
    dtype: Precision = "float32",
    trust_remote_code: bool = False,
    allow_missing: bool = False,
    revision: str | None = None,
    offline: bool = False,
    command: str | None = None,
) -> ForwardAnalysis:
    """Run a model and measure position inside it.

    Ctrl-C returns what has been measured so far, and the result says so.

    Parameters
    ----------
    reference
        Reference of the model, as for `posprobe.load_model`.
    contexts
        Inputs; None for random tokens or pixels. The experiments, which
        run each context several times, take the first 16.
    only
        Names from `posprobe.measurements.model.MODEL_MEASUREMENTS`; None for all that apply,
        without slow ones. The result says why something was not measured.
    positions, layers
        Positions and hidden states to look at, as for `posprobe.decompose`.
    nulls
        Random walks drawn as a baseline for the numbers of a layer.
    pooling
        How token states become an embedding, for ``places``; None as the model's folder says.
    device, device_map, dtype, trust_remote_code, allow_missing, revision, offline
        Same as for `posprobe.load_model`.
    command
        Command line to record.

    Raises
    ------
    PosprobeError
        As `posprobe.load_model` and `posprobe.decompose`, and if the only requested measurement
        cannot be taken.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> contexts = pp.Contexts(count=4)
    >>> analysis = pp.analyze_model("sample:digits-vit", contexts, only=("states",), nulls=0)
    >>> sorted(analysis.results)
    ['states']
    """
    used_contexts = contexts or Contexts()
    requested = _requested_measurements(only)
    _check_options(requested, positions, layers, pooling)
    check_contexts(used_contexts, nulls)
    if used_contexts.text:
        _check_takes_text(reference)
    location: dict[str, Any] = {"revision": revision, "offline": offline}
    selection = (positions, layers, nulls)
    request = _Request(
        reference,
        used_contexts,
        requested,
        selection,
        location,
        trust_remote_code,
        pooling,
    )
    weight_notes: dict[str, list[str]] = {}
    model = forward.load_model(
        reference,
        device=device,
        device_map=device_map,
        dtype=dtype,
        allow_missing=allow_missing,
        trust_remote_code=trust_remote_code,
        head=request.needs_head,
        check=request.check,
        noted=weight_notes.update,
        **location,
    )
    block = _describe_model(model) | weight_notes
    return _analyze_loaded(request, model, block, command, has_selection=bool(only))


def _check_takes_text(reference: str) -> None:
    """Refuse a model of images, or without a tokenizer, before it is built."""
    if is_timm_source(find_model_source(parse_reference(reference))):
        raise UsageError(f"{reference}: {IMAGES_MESSAGE}")
    check_tokenizer_files(reference)


@dataclass
class _Request:
    """The requested measurements of a model, with what is needed to read its inputs."""

    reference: str
    contexts: Contexts
    measurements: Sequence[str]
    #: Positions, layers and number of null draws, as for `ModelInputs`.
    selection: tuple[slice | None, Sequence[int] | None, int]
    location: dict[str, Any]
    trust_remote_code: bool
    pooling: Pooling | None = None
    context_source: ContextSource | None = None

    def inputs(self, model: Any) -> ModelInputs:
        """Return the inputs of a model; the source of the contexts is read once."""
        if self.context_source is None:
            self.context_source = read_context_source(
                self.reference,
                model,
                self.contexts,
                trust_remote_code=self.trust_remote_code,
                **self.location,
            )
        return ModelInputs(
            self.reference,
            model,
            self.contexts,
            self.context_source,
            *self.selection,
            self.measurements,
            **self.location,
            pooling=self.pooling,
        )

    def needs_head(self, empty_model: Any) -> bool:
        """Tell whether the head is needed: a model without it is smaller."""
        # A loss on random tokens is meaningless; a model that predicts tokens may be sampled.
        return (
            self.contexts.is_text
            or forward.generates(empty_model)
            or any(
                MODEL_MEASUREMENTS[name].needs_head(empty_model)
                for name in self.measurements
            )
        )

    def check(self, model: Any) -> None:
        """Refuse inputs that do not fit the model, or with which nothing can be measured."""
        inputs = self.inputs(model)
        inputs.check()
        unmet_needs = [
            MODEL_MEASUREMENTS[name].needs(inputs) for name in self.measurements
        ]
        if all(unmet_needs):
            raise UsageError(
                f"{self.reference}: {self.measurements[0]} needs {unmet_needs[0]}."
            )


def _analyze_loaded(
    request: _Request,
    model: Any,
    model_block: Mapping[str, Any],
    command: str | None,
    *,
    has_selection: bool,
) -> ForwardAnalysis:
    """Take the measurements of a loaded model; where none are selected, those that apply."""
    if request.context_source is not None and not has_finite_weights(model):
        request.context_source = without_sampling(request.context_source)
    inputs = request.inputs(model)
    contexts_block = inputs.describe()
    requested = [
        name
        for name in request.measurements
        if has_selection or not MODEL_MEASUREMENTS[name].needs(inputs)
    ]
    results, missing, interrupted = _measure_all(requested, inputs)
    if not results:
        reasons = " ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise UsageError(f"{request.reference}: nothing could be measured. {reasons}")
    device = device_name(first_device(model))
    return ForwardAnalysis(
        name=request.reference,
        model=model_block,
        contexts=contexts_block,
        results={name: results[name] for name in MODEL_MEASUREMENTS if name in results},
        missing=missing,
        environment=describe_environment(device, request.contexts.seed, command),
        notes=_notes(results),
        stopped=interrupted,
    )


def _describe_model(model: Any) -> dict[str, Any]:
    return {
        "class": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "device": first_device(model).type,
    }


def _notes(results: Mapping[str, Result]) -> tuple[str, ...]:
    """Return the remarks of all results, each once."""
    notes: list[str] = []
    for name, result in results.items():
        notes += [
            *interrupted_notes(MODEL_MEASUREMENTS[name].title, result),
            *unmeasured_notes(result),
        ]
        notes += getattr(result, "notes", ())
    return tuple(dict.fromkeys(notes))


#: Measurements that take a parameter which not all take.
OPTION_MEASUREMENTS: Mapping[str, tuple[str, ...]] = {
    "positions": ("states", "substitution"),
    "layers": ("states",),
    "pooling": ("places",),
}


def _check_options(measurements: Sequence[str], *values: object) -> None:
    """Refuse an option of `OPTION_MEASUREMENTS` that no requested measurement takes."""
    for (option, takers), value in zip(OPTION_MEASUREMENTS.items(), values, strict=True):
        if value is not None and not set(takers) & set(measurements):
            raise UsageError(
                f"`{option}` is for {' and '.join(takers)}, and {', '.join(measurements)} "
                f"{'does' if len(measurements) == 1 else 'do'} not take it. Leave it out."
            )


def _requested_measurements(only: Iterable[str] | None) -> list[str]:
    if only is None:
        return [
            name for name in MODEL_MEASUREMENTS if MODEL_MEASUREMENTS[name].is_default
        ]
    names = (only,) if isinstance(only, str) else tuple(only)
    for name in names:
        if name not in MODEL_MEASUREMENTS:
            raise UsageError(
                f"unknown measurement {name!r}. Choose from {', '.join(MODEL_MEASUREMENTS)}."
            )
    if not names:
        raise UsageError(
            f"no measurement is chosen. Choose from {', '.join(MODEL_MEASUREMENTS)}."
        )
    return [name for name in MODEL_MEASUREMENTS if name in names]


def check_contexts(contexts: Contexts, nulls: int = 0) -> None:
    """Check contexts and the number of random walks before anything is read.

    Raises
    ------
    UsageError
        If a number is out of range, or both a text and images are given.
    UnknownReference
        If the text or the folder does not exist.
    """
    if not 0 <= check_integer("nulls", nulls) <= MAX_DRAWS:
        raise UsageError(
            f"`nulls={nulls}`: the number of random walks must be between 0 and {MAX_DRAWS}."
        )
    stated_inputs = [
        f"`{kind}`"
        for kind in ("text", "images", "tokens")
        if getattr(contexts, kind) is not None
    ]
    if len(stated_inputs) > 1:
        raise UsageError(
            f"{' and '.join(stated_inputs)}: a model takes one of them. Leave the others out."
        )
    if isinstance(contexts.tokens, Path) and not path_exists(contexts.tokens):
        raise UnknownReference(
            f"{contexts.tokens}: no such file. Check the path (`tokens`)."
        )
    if contexts.text and not path_exists(contexts.text):
        raise UnknownReference(f"{contexts.text}: no such file. Check the path (`text`).")
    if contexts.images and not folder_exists(contexts.images):
        raise UnknownReference(f"{contexts.images}: no such folder. Check the path.")
    minimum_by_field = {"count": 1, "batch_size": 1, "length": 1, "seed": 0}
    for name, number in minimum_by_field.items():
        value = getattr(contexts, name)
        if value is not None and (not isinstance(value, int) or value < number):
            raise UsageError(
                f"Contexts({name}={value!r}): it is a whole number of {number} or more."
            )


def _measure_all(
    names: Sequence[str], inputs: ModelInputs
) -> tuple[dict[str, Result], dict[str, str], bool]:
    """Take the measurements in turn, weights first, until all are done or one is interrupted.

    Return the results, the reasons for missing ones, and whether the run was interrupted.
    """
    results: dict[str, Result] = {}
    missing: dict[str, str] = {}
    interrupted = False
    for name in sorted(
        names, key=lambda name: not MODEL_MEASUREMENTS[name].is_from_weights
    ):
        if interrupted:
            missing[name] = INTERRUPTED_REASON
            continue
        if unmet_need := MODEL_MEASUREMENTS[name].needs(inputs):
            missing[name] = f"it needs {unmet_need}"
            continue
        try:
            with stage(MODEL_MEASUREMENTS[name].title):
                results[name] = MODEL_MEASUREMENTS[name].compute(inputs)
            interrupted = getattr(results[name], "stopped", False)
        except Exception as error:
            if name == _MAIN_MEASUREMENT or len(names) == 1:
                raise
            missing[name] = str(error)
            if not isinstance(error, PosprobeError):
                missing[name] = f"a bug: {type(error).__name__}: {error}"
                logger.warning("%s: %s. Please report it.", name, missing[name])
        except KeyboardInterrupt:
            if not results:
                raise
            missing[name] = INTERRUPTED_REASON
            interrupted = True
    return results, missing, interrupted
