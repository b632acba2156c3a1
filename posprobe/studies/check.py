"""Check whether two copies of a model encode position alike: verdict and findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from posprobe.analyses.facts import Answer, Answers, Verdict
from posprobe.analyses.models.positions import PositionIds
from posprobe.analyses.result import as_block
from posprobe.arrays import Floats
from posprobe.blocks import EnvironmentBlock, describe_environment
from posprobe.checks.compare import compare
from posprobe.checks.live import Rotate, compare_positions, compare_with_callable
from posprobe.checks.orders import Comparison, ExpectedWeights, ProjectionState
from posprobe.checks.running import RunningModel, compare_with_model, plan_run
from posprobe.checks.sides import Side, open_positions, open_side
from posprobe.encodings.tables import check_integer
from posprobe.errors import UsageError
from posprobe.progress import stage
from posprobe.relations import RULES, Finding, NotCompared
from posprobe.report.files import CHECK_SCHEMA
from posprobe.report.saved import Saveable
from posprobe.schemes import Encoding
from posprobe.words import relations

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from posprobe.figures.copies import ProjectionCell

#: Tokens of the context in which the rows of a table are seen, at most; this bounds the time.
MAX_TABLE_CONTEXT = 1100


@dataclass(frozen=True)
class CheckAnswer(Answer):
    """Whether two copies are the same in one thing, with the sentences of all its findings.

    Parameters
    ----------
    sentences
        Sentence of each finding.
    """

    sentences: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The findings in words, as the page and ``analysis.json`` have them."""
        return " ".join(self.sentences)


@dataclass(frozen=True)
class Check(Saveable):
    """Comparison of how two copies of a model encode position.

    Parameters
    ----------
    a, b
        Names of the copies.
    alike
        Whether they encode position alike; None if that cannot be told.
    causes
        Differences, the most important first.
    compared
        Findings about everything that is alike.
    not_compared
        Components that could not be compared, with the reason.
    context
        Shorter context length of both, in positions; None if none is stated.
    projections
        Relations of the queries and keys of each layer of B to those of A.
    environment
        Versions, command and time.

    Examples
    --------
    >>> import posprobe as pp
    >>> found = pp.check("rotary:4096x128,base=500000", "rotary:4096x128")
    >>> found.alike, found.causes[0].cause, round(found.causes[0].first_distance, 2)
    (False, 'base', 0.77)
    """

    a: str
    b: str
    alike: bool | None
    causes: tuple[Finding, ...]
    compared: tuple[Finding, ...]
    not_compared: tuple[NotCompared, ...] = ()
    context: int | None = None
    projections: tuple[ProjectionState, ...] = ()
    environment: EnvironmentBlock = field(
        default_factory=lambda: describe_environment("cpu", 0, None),
        repr=False,
        compare=False,
    )

    @property
    def exit_code(self) -> int:
        """0 alike, 6 different, 7 cannot tell."""
        return {True: 0, False: 6, None: 7}[self.alike]

    def __str__(self) -> str:
        """Return the verdict and what it rests on, at most 12 lines."""
        return "\n".join(
            relations.check_lines(
                self.alike,
                self.causes,
                self.compared,
                map(_not_compared_sentence, self.not_compared),
                self.context,
            )
        )

    @property
    def answers(self) -> Answers:
        """An answer to each question "Same ...?", by what is compared; differences come first.

        Where there are several encodings, the name of the encoding follows.

        Examples
        --------
        >>> import posprobe as pp
        >>> found = pp.check("rotary:4096x128,base=500000", "rotary:4096x128")
        >>> found.answers["ladder"].answer
        'no'
        >>> found.answers["ladder"].sentence.partition(".")[0]
        'Rotary ladder: base 500,000 in A, 10,000 in B'
        """
        causes, compared = (
            _group_findings(findings) for findings in (self.causes, self.compared)
        )
        skipped: dict[str, list[NotCompared]] = {}
        for subject in self.not_compared:
            skipped.setdefault(subject.what, []).append(subject)
        return Answers(
            _answer_question(
                question,
                causes.get(question, []),
                compared.get(question, []),
                skipped.get(question, []),
            )
            for question in dict.fromkeys((*causes, *compared, *skipped))
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.check/1`)."""
        return {
            "schema": CHECK_SCHEMA,
            "a": self.a,
            "b": self.b,
            "alike": self.alike,
            "context": self.context,
            "causes": [_finding_block(finding) for finding in self.causes],
            "compared": [_finding_block(finding) for finding in self.compared],
            "not_compared": [
                {"what": skipped.what, "reason": _not_compared_sentence(skipped)}
                for skipped in self.not_compared
            ],
            "projections": [as_block(state) for state in self.projections],
            "environment": dict(self.environment),
        }

    def arrays(self) -> dict[str, Floats]:
        """Return the content of ``arrays.npz``: ladders, rows and maps of rows by encoding."""
        return {
            f"{part}_{name}" if part else name: curve
            for name, curves in self._curves().items()
            for part, curve in curves.items()
        }

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the bundle's figures by name; empty if there are none."""
        from posprobe.figures.common import REPORT
        from posprobe.figures.comparison import CHECK_FIGURES
        from posprobe.figures.copies import projections_figure, row_maps_figure

        builders: dict[str, Callable[[], Figure]] = {}
        if self.projections:
            cells = self._cells()
            builders["projections"] = partial(projections_figure, cells)
            for finding in self.causes:
                if finding.what == "pairs" and finding.curve is not None:
                    layer = finding.more["layers"][0]
                    builders["row_maps"] = partial(
                        row_maps_figure, cells, layer, finding.curve
                    )
                    break
        # Equal ladders are a flat line, which shows nothing beside a difference of rows.
        is_cause = {finding.what for finding in self.causes}
        for name, curves in self._curves().items():
            if name in CHECK_FIGURES and not (
                name == "ladder" and is_cause and "ladder" not in is_cause
            ):
                builders[name] = partial(CHECK_FIGURES[name], REPORT, curves, {})
        return builders

    def _cells(self) -> list[ProjectionCell]:
        """Return each projection as it is drawn."""
        from posprobe.figures.copies import ProjectionCell

        faults = {
            (layer, side)
            for finding in self.causes
            for layer in finding.more.get("layers", ())
            for side in ("queries", "keys")
            if side in finding.more.get("projection", side)
        }
        return [
            ProjectionCell(
                state.layer,
                state.side,
                relations.projection_label(state.relation, state.order, state.read),
                (state.layer, state.side) in faults,
            )
            for state in self.projections
        ]

    def _curves(self) -> dict[str, dict[str, Floats]]:
        """Return the curves of the findings, by figure and by encoding."""
        curves: dict[str, dict[str, Floats]] = {}
        for finding in (*self.causes, *self.compared):
            if finding.curve is not None:
                name = {"ladder": "ladder", "pairs": "row_map"}.get(finding.what, "rows")
                curves.setdefault(name, {}).setdefault(finding.part, finding.curve)
        return curves


def _group_findings(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Return findings by the question that they answer."""
    findings_by_question: dict[str, list[Finding]] = {}
    for finding in findings:
        question = f"{finding.what} {finding.part}".rstrip()
        findings_by_question.setdefault(question, []).append(finding)
    return findings_by_question


def _answer_question(
    question: str,
    causes: Sequence[Finding],
    compared: Sequence[Finding],
    skipped: Sequence[NotCompared],
) -> CheckAnswer:
    """Return the answer to one question; a known difference decides it."""
    findings = (*causes, *compared)
    is_open = any(subject.decides for subject in skipped) or not findings
    verdict: Verdict = "no" if causes else "cannot tell" if is_open else "yes"
    return CheckAnswer(
        question,
        verdict,
        findings[0].cause if findings else skipped[0].reason,
        findings,
        sentences=(
            *map(relations.finding_sentence, findings),
            *(
                relations.not_compared_sentence(_not_compared_sentence(subject))
                for subject in skipped
            ),
        ),
    )


def _not_compared_sentence(skipped: NotCompared) -> str:
    return relations.not_compared_reason(skipped.reason, skipped.about)


def _finding_block(finding: Finding) -> dict[str, Any]:
    return {
        **as_block(finding),
        "tolerance": RULES[finding.cause].tolerance,
        "sentence": relations.finding_sentence(finding),
    }


def check(
    a: str | PathLike[str] | Encoding | PositionIds,
    b: str | PathLike[str] | Encoding | PositionIds | Rotate | nn.Module,
    *,
    same_weights: bool = False,
    other_weights: bool = False,
    all_layers: bool = False,
    positions: int | None = None,
    offline: bool = False,
    command: str | None = None,
) -> Check:
    """Check whether two copies of a model encode position alike, and if not, why.

    Position tables and the projections of queries and keys are read. From the Hub and from large
    models one head of the first, middle and last layer is read, and two rows of each other layer,
    which must have gone where those went. What runs is held against what a file states.

    Parameters
    ----------
    a, b
        References as for `posprobe.load`, records that were loaded, or an engine's dump: an
        ``.npz`` with ``inv_freq`` ``[pairs]``, or ``cos`` and ``sin`` ``[positions, pairs]``, and
        a query ``q`` with ``q_rotated``. B may also be what runs: a callable
        ``rotate(x, positions)`` that turns ``x`` ``[tokens, heads, width]``, a NumPy array, and
        returns an array of any library. Records of `posprobe.positions_of`, or dumps with
        ``positions``, are compared with each other.
    same_weights
        Whether other weights count as a difference.
    other_weights
        Whether unrelated weights are expected, so that the encoding alone decides.
    all_layers
        Whether to compare the projections of every layer completely.
    positions
        Number of positions at which a callable is probed; the file's context for None.
    offline
        Whether to use local files only.
    command
        Command line to record.

    Raises
    ------
    NoPositionTable
        If neither has a position.
    PosprobeError
        As for `posprobe.load`; InvalidCheckpoint also if a dump cannot be one, UsageError also if
        a callable fails.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.load("sample:digits-vit")
    >>> print(pp.check(table, pp.table(table.values[::-1], grid=(8, 8))).causes[0].cause)
    reversed
    """
    if same_weights and other_weights:
        raise ValueError("same_weights and other_weights exclude each other: give one.")
    if positions is not None and check_integer("positions", positions) < 2:
        raise UsageError(
            f"positions: {positions} tell no distances apart. Use 2 or more."
        )
    ids_a, ids_b = open_positions(a), open_positions(b)
    if ids_a is not None and ids_b is not None:
        comparison = compare_positions(ids_a, ids_b)
        return _build_check((ids_a.name, ids_b.name), comparison, [], command)
    if isinstance(a, PositionIds) or isinstance(b, PositionIds):
        raise UsageError(
            "check: position ids are compared with position ids. Give two records."
        )
    side_a = open_side(a, offline=offline)
    expected_weights: ExpectedWeights | None = None
    if same_weights or other_weights:
        expected_weights = "same" if same_weights else "other"
    different_causes = {"moved", "other_weights"} if same_weights else set()
    if hasattr(b, "named_modules"):
        running = _run_model(side_a, b, positions)
        comparison = compare_with_model(
            side_a, running, all_layers=all_layers, expected_weights=expected_weights
        )
        names = side_a.name, running.name
        return _build_check(names, comparison, [side_a], command, different_causes)
    if callable(b):
        rotate_name = getattr(b, "__name__", type(b).__name__)
        comparison = compare_with_callable(side_a, b, positions)
        return _build_check((side_a.name, rotate_name), comparison, [side_a], command)
    side_b = open_side(b, offline=offline)
    comparison = compare(
        side_a, side_b, all_layers=all_layers, expected_weights=expected_weights
    )
    names = side_a.name, side_b.name
    return _build_check(names, comparison, [side_a, side_b], command, different_causes)


def _run_model(a: Side, model: Any, positions: int | None) -> RunningModel:
    """Run a model as far as its file states positions."""
    from posprobe.forward import live
    from posprobe.forward.models import unwrap_model

    model = unwrap_model(model)
    name = type(model).__name__
    if not hasattr(model, "config"):
        raise UsageError(f"{name}: check runs models of transformers, and no others.")
    plan = plan_run(a, positions, live.N_LIVE_TOKENS)
    refusal, layers = "", {}
    if plan is not None:
        with stage(f"Running {name}"):
            try:
                layers = live.observe_model(model, plan, name)
            except UsageError as error:
                refusal = str(error)
    rows = {}
    if "table" in a.encodings:
        rows = live.record_added_rows(model, MAX_TABLE_CONTEXT, name)
    return RunningModel(name, layers, live.view_weights(model, name), rows, refusal)


def _build_check(
    names: tuple[str, str],
    comparison: Comparison,
    sides: Sequence[Side],
    command: str | None,
    different_causes: Collection[str] = (),
) -> Check:
    """Judge what was compared.

    Parameters
    ----------
    names
        Names of both copies.
    comparison
        Findings, and what was not compared.
    sides
        Copies that state a context.
    command
        Command line to record.
    different_causes
        Causes that count as differences although they are alike.
    """
    findings, missing = comparison.findings, comparison.not_compared
    contexts = [
        record.max_positions
        for side in sides
        for record in side.rotary_schemes
        if record.max_positions
    ]
    order = relations.compared_subjects()
    findings.sort(key=lambda finding: (order.index(finding.what), finding.part))
    causes = tuple(
        finding
        for finding in findings
        if not finding.alike or finding.cause in different_causes
    )
    compared = tuple(finding for finding in findings if finding not in causes)
    unsure = any(finding.decides for finding in missing) or not findings
    is_alike = False if causes else (None if unsure else True)
    return Check(
        *names,
        is_alike,
        causes,
        compared,
        tuple(missing),
        min(contexts, default=None),
        tuple(comparison.projections),
        describe_environment("cpu", 0, command),
    )
