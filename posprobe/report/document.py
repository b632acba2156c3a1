"""Answers to every question, and their blocks in ``analysis.json`` with sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from posprobe.analyses.composition.ledger import stretch_parts
from posprobe.analyses.facts import (
    Answer,
    Shared,
    StretchAnswers,
    Verdict,
    Verdicts,
    decide,
)
from posprobe.analyses.result import as_block, to_json
from posprobe.analyses.view import View
from posprobe.layouts import Grid
from posprobe.measurements import TableInputs
from posprobe.number_types import Text
from posprobe.questions import GRID_QUESTIONS, SEQUENCE_QUESTIONS, corrections
from posprobe.questions.parts import state_table_shares
from posprobe.words import answer_sentence, cause_clause
from posprobe.words.comparisons import agreement_sentence, shared_sentence
from posprobe.words.summary import composition_clause, table_headline
from posprobe.words.tables import basis_sentences


def answer_block(answer: Answer) -> dict[str, Any]:
    """Return the block of an answer: its sentence, its test and the facts behind it."""
    test = answer.test
    return {
        "question": answer.question,
        "answer": answer.answer,
        "reason": answer.reason,
        "sentence": answer_sentence(answer),
        "value": to_json(answer.value),
        "tested": test.value if test and test.interval else None,
        "null": test.null if test else None,
        "interval": list(test.interval) if test and test.interval else None,
        "p": answer.p,
        "least": test.least if test and test.least else None,
        "baseline": test.of if test and test.of else None,
        "draws": test.draws if test and test.draws else None,
        "facts": None if answer.facts is None else as_block(answer.facts, cause_clause),
        "keys": list(answer.keys),
        "change": None if answer.change is None else as_block(answer.change),
    }


def verdict_block(verdicts: Verdicts) -> dict[str, Any]:
    """Return the block ``verdict`` of a table."""
    return {
        "summary": table_headline(verdicts),
        "based_on": basis_sentences(verdicts),
        "rows": [verdicts.first, verdicts.used_stop or verdicts.stop],
        "reasons": [cause_clause(cause_of_end) for cause_of_end in verdicts.end_causes],
        "replaced": list(verdicts.replaced_patches),
        "parts": [
            {
                "rows": [stretch.first, stretch.stop],
                "summary": composition_clause(stretch.answers, stretch.parts),
            }
            for stretch in verdicts.other_stretches
        ],
        "answers": [answer_block(answer) for answer in verdicts.answers.values()],
    }


@dataclass(frozen=True)
class FindingBlock:
    """A sentence with the keys of the numbers that it rests on."""

    text: Text
    keys: tuple[str, ...]


def list_findings(answers: Iterable[Answer]) -> tuple[FindingBlock, ...]:
    """Return a finding for each answer that is yes."""
    return tuple(
        FindingBlock(answer_sentence(answer), answer.keys)
        for answer in answers
        if answer.yes
    )


@dataclass(frozen=True)
class SharedAnswerBlock(Shared):
    """One question asked of several tables."""

    @property
    def sentence(self) -> Annotated[Text, ""]:
        """The answers of all subjects in one sentence."""
        return shared_sentence(self)


@dataclass(frozen=True)
class SharedVerdictBlock:
    """What tables share and where they differ."""

    summary: Text
    answers: tuple[SharedAnswerBlock, ...]


def shared_block(answers: Mapping[str, Iterable[Answer]]) -> dict[str, Any]:
    """Return the block ``verdict`` of several subjects.

    Parameters
    ----------
    answers
        Answers of each subject, by its label. A question that no subject answers is left out.
    """
    by_question: dict[str, dict[str, Verdict]] = {}
    for label, label_answers in answers.items():
        for answer in label_answers:
            by_question.setdefault(answer.question, {})[label] = answer.answer
    shared_answers = [
        SharedAnswerBlock(name, answers_by_label)
        for name, answers_by_label in by_question.items()
        if set(answers_by_label.values()) != {"cannot tell"}
    ]
    return as_block(
        SharedVerdictBlock(agreement_sentence(shared_answers), tuple(shared_answers))
    )


def answer_table_questions(inputs: TableInputs) -> Verdicts:
    """Answer every question about a table from its measurements."""
    is_grid = isinstance(inputs.table.layout, Grid)
    stretch, start, view = inputs.stretch, inputs.table.start, inputs.view
    budget, seams = inputs.result("budget"), inputs.seams
    stretch_answers = _answer_questions(view)
    own_parts = () if is_grid else stretch_parts(view.rotation_fit)
    answers = state_table_shares(stretch_answers, own_parts, budget)
    untrained = seams.untrained_interval
    return Verdicts(
        answers,
        start + stretch.first,
        start + stretch.stop,
        stretch.is_whole,
        # Longer stretches are cut at `MAX_VIEW_ROWS`; patches of a grid are not.
        None
        if is_grid or len(view) == len(view.values)
        else start + stretch.first + len(view),
        stretch.reasons,
        other_stretches=tuple(
            StretchAnswers(
                start + first,
                start + stop,
                _answer_questions(view_of_stretch),
                stretch_parts(view_of_stretch.rotation_fit),
            )
            for first, stop, view_of_stretch in inputs.further_views
        ),
        replaced_patches=tuple(start + row for row in inputs.replaced_patches),
        copies=None if is_grid else corrections.find_copied_rows(stretch_answers, view),
        equal=tuple((first + start, last + start) for first, last in seams.equal),
        parts=() if budget is None else budget.around_mean(),
        untrained=None if seams.untrained is None else start + seams.untrained,
        untrained_interval=untrained and (start + untrained[0], start + untrained[1]),
    )


def _answer_questions(view: View) -> dict[str, Answer]:
    """Answer the questions about a view of rows, and apply the corrections."""
    is_grid = isinstance(view.layout, Grid)
    answers = [
        answer_question(view)
        for answer_question in (
            GRID_QUESTIONS if is_grid else SEQUENCE_QUESTIONS
        ).values()
    ]
    rules = corrections.GRID_CORRECTIONS if is_grid else corrections.SEQUENCE_CORRECTIONS
    return decide(filter(None, answers), rules, view)
