"""What was measured inside a model, with what is needed to repeat it, and the page of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from posprobe.measurements.model.contexts import SINUSOID, WALKS, WHOLE, LabelledRow
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, columns
from posprobe.questions.models import QUESTIONS as MODEL_QUESTIONS, Run
from posprobe.report.document import Finding, answer_block, findings_of
from posprobe.report.files import FORWARD
from posprobe.report.render import headline, versions
from posprobe.report.saved import Saved
from posprobe.text import Block, lookup, show
from posprobe.words import PICTURES, claim, models, pictures

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


#: Figures that stand on the first screen, by what they are of: the first two that there are.
LEADING = {
    "rotary_curves": "rotary_use", "rotary_usage": "rotary_use", "layers": "states",
    "substitution": "substitution", "heads": "heads", "cosines": "states",
}  # fmt: skip
SHOWN = 2


def forward_page(document: Block) -> Page:
    """Lay out the page of a run of a model: the answers, and what was measured."""
    made = [name for name in MODEL if document.get(name) is not None]
    leading = [name for name, of in LEADING.items() if of in made][:SHOWN]
    drawings = {
        name: pictures(
            "model", (each.name for each in MODEL[name].drawings), f"{MODEL[name].title}."
        )
        for name in made
    }
    every = [picture for found in drawings.values() for picture in found]
    return Page(
        title=models.title(document["name"]),
        subject="what position does inside it",
        lead=models.run_of(document),
        headline=headline(document),
        notes=tuple(models.notes(document)),
        pictures=tuple(picture for picture in every if picture.name in leading),
        evidence=tuple(_evidence(document, drawings, leading)),
        key=models.KEY if document.get("verdict") else "",
        numbers=_numbers(document, made),
        provenance=(Fact("reference", document["name"]), *versions(document["environment"])),
    )


def _evidence(
    document: Block, drawings: dict[str, tuple[Picture, ...]], leading: list[str]
) -> Iterator[Evidence]:
    """Yield the answers with the figures of what they are of, and what answers nothing."""
    left = {
        name: tuple(each for each in found if each.name not in leading)
        for name, found in drawings.items()
    }
    for answer in document.get("verdict", {}).get("answers", ()):
        # A figure stands beside the first answer that it shows.
        of = next((key.partition(".")[0] for key in answer["keys"]), "")
        yield Evidence(
            (models.line(answer),), sentences=(claim(answer),), pictures=left.pop(of, ())
        )
    for name, found in left.items():
        if found:
            yield Evidence(title=MODEL[name].title, pictures=found)


def _numbers(document: Block, made: list[str]) -> Table:
    """Tabulate all numbers: what is of the whole model, of its layers, and stands beside them."""
    rows: list[LabelledRow] = [row for name in made for row in _rows(document, name)]
    found = list(dict.fromkeys(column for _, texts in rows for column in texts))
    layers = sorted(column for column in found if isinstance(column, int))
    beside = [column for column in (SINUSOID, WALKS) if column in found]
    names = [column for column in found if isinstance(column, str) and column not in beside]
    order: list[int | str] = [*names, *layers, *beside]
    heads = [f"layer {column}" if isinstance(column, int) else column for column in order]
    filled: tuple[Row, ...] = tuple(
        (label, *(texts.get(column, "–") for column in order)) for label, texts in rows
    )
    return Table("All numbers", columns("number", *(f"={head}" for head in heads)), filled)


def _rows(document: Block, name: str) -> Iterator[LabelledRow]:
    measurement = MODEL[name]
    for key, number in measurement.numbers.items():
        yield number.label, {WHOLE: show(lookup(document[name], key), number.form)}
    yield from measurement.rows(document)
