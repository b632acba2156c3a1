"""What was measured inside a model, with what is needed to repeat it, and the page of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posprobe.analyses import Result
from posprobe.analyses.facts import Answer, decide
from posprobe.analyses.models.rotary_use import RotaryUse
from posprobe.analyses.models.states import MeanDecomposition
from posprobe.analyses.result import as_block, plain, stored
from posprobe.errors import UsageError
from posprobe.measurements.model import MODEL
from posprobe.questions.models import QUESTIONS as MODEL_QUESTIONS, Run
from posprobe.report.document import Finding, answer_block, findings_of
from posprobe.report.files import FORWARD
from posprobe.report.saved import Saved
from posprobe.words import PICTURES, models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.figures.styles import Span
    from posprobe.report.paper import PaperFigure


@dataclass(frozen=True, eq=False, repr=False)
class ForwardAnalysis(Saved):
    """Positions inside one model: in its hidden states, its weights and its attention.

    Parameters
    ----------
    name
        The reference as typed.
    model
        ``class``, ``parameters``, ``dtype`` and ``device``; ``missing_weights``, which are random,
        and ``unused_weights``, by name.
    contexts
        What the model was run on: ``kind`` in words, whether that is ``random``, ``length`` in
        tokens or ``shape`` of an image, and ``seed``, None where nothing was drawn.
    results
        Frozen results by name, any of `posprobe.measurements.model.MODEL`, in its order.
    missing
        By name, why something that was asked for was not measured.
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
        """What the numbers of layers are compared with; empty without ``states``."""
        states = self.results.get("states")
        return states.baselines if isinstance(states, MeanDecomposition) else {}

    @property
    def run(self) -> Run:
        """What the questions see."""
        return Run(
            self.results, self.model["dtype"], images="shape" in self.contexts,
            random=self.contexts.get("random", False),
        )  # fmt: skip

    @property
    def answers(self) -> Mapping[str, Answer]:
        """The answers to what can be asked of the results, by question."""
        found = [ask(self.run) for ask in MODEL_QUESTIONS.values()]
        return decide(filter(None, found), (), self.run)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is so: the sentence of each yes, with the keys of the numbers that it rests on."""
        return findings_of(self.answers.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.forward/2`)."""
        answers, run = self.answers, self.run
        return {
            "schema": FORWARD,
            "name": self.name,
            "model": dict(self.model),
            "contexts": {**self.contexts, "used": run.contexts},
            "beside": dict(self.baselines) or None,
            **dict.fromkeys(MODEL),
            **{name: as_block(result) for name, result in self.results.items()},
            "missing": dict(self.missing),
            "notes": list(self.notes),
            "environment": dict(self.environment),
            "verdict": {
                "summary": models.summary(answers, run),
                "answers": [answer_block(answer) for answer in answers.values()],
            },
            "findings": plain(self.findings),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: a layer's arrays under its number.

        ``N_pos`` ``[t, d]`` and ``N_mean`` ``[d]`` in float32, ``N_error`` ``[t]``, the norm of a
        position's standard error; curves by offset as ``N_logits``, ``N_attention``, ``N_words``.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for name, result in self.results.items():
            arrays |= stored(result, name)
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        figures: dict[str, Callable[[], Figure]] = {}
        for name, result in self.results.items():
            figures |= MODEL[name].figures({self.name: result})
        return figures

    def paper_figure(self, kind: str, *, venue: str = "acl", span: Span = "column") -> PaperFigure:
        """Draw one figure of this run for a paper, with its caption.

        Parameters
        ----------
        kind
            Its name, as in `figures`.
        venue, span
            As for `posprobe.paper_figure`.

        Raises
        ------
        UsageError
            If this run has no such figure, or the venue or span is unknown.
        """
        from posprobe.figures import builder
        from posprobe.report.paper import at_venue

        if kind not in (known := self.figures()):
            lacking = "; ".join(self.missing.values()) or ", ".join(known)
            raise UsageError(f"{self.name}: no figure {kind} can be drawn ({lacking}).")
        result = next(
            result
            for name, result in self.results.items()
            if kind in {each.name for each in MODEL[name].drawings}
        )
        said = models.on(result) if isinstance(result, RotaryUse) else models.run_of(self.to_dict())
        told = PICTURES["model"][kind], f"{self.name}, {said}."
        return at_venue(
            lambda sheet: (builder(result, kind)(sheet, {self.name: result}, {}), told), venue, span
        )

    def _of(self) -> str:
        return repr(self.name)
