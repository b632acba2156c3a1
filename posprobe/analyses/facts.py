"""The records that everything else is read from: numbers, tests, causes and answers.

An answer follows from the numbers in its facts alone and holds no word that a user reads: sentences
are made of its facts, at the very end, by `posprobe.words`.

`decide` settles the answers of one subject: one rate of false yes, then corrections in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

Verdict: TypeAlias = Literal["yes", "no", "cannot tell"]


@dataclass(frozen=True)
class Number:
    """What is known of a number beside its value: the metadata of a field.

    Parameters
    ----------
    label
        Label that every output uses.
    meaning
        Meaning in a few words.
    unit
        Its unit, empty where it has none.
    form
        Format of the number, or separator of the numbers of a list.
    compared
        Whether it stands beside the sinusoid and the null models.
    """

    label: str
    meaning: str = ""
    unit: str = ""
    form: str = ".3g"
    compared: bool = False


@dataclass(frozen=True)
class Test:
    """A number held against tables that lack what is asked for.

    Parameters
    ----------
    value
        The number that was tested, in the unit that its sentence names.
    p
        Rank p-value, the greatest over the nulls that apply; NaN where the value is held against
        an interval alone.
    null
        Median of the nearest null.
    interval
        5 and 95 % of its draws.
    of
        Name of that null.
    draws
        Number of null draws.
    least
        The least p-value that so many draws allow; 0 where it is not a rank.
    """

    __test__ = False  # no test of pytest's

    value: float
    p: float
    null: float | None = None
    interval: tuple[float, float] | None = None
    of: str = ""
    draws: int = 0
    least: float = 0.0


@dataclass(frozen=True)
class Cause:
    """Why a row is special, or what changes at a seam.

    Parameters
    ----------
    kind
        Key of the cause.
    numbers
        Numbers that its words name, in their order.
    subject
        Subject of the numbers, where it differs.
    causes
        Those of what it names, where they are told with it.
    """

    kind: str
    numbers: tuple[float, ...] = ()
    subject: str = ""
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class Change:
    """What an answer was before it was corrected.

    Parameters
    ----------
    by
        The question whose answer corrects it, or what else does.
    was, reason
        The answer and its reason before.
    """

    by: str
    was: Verdict
    reason: str


@dataclass(frozen=True)
class Answer:
    """One question and its answer.

    Parameters
    ----------
    question
        Its name.
    answer
        Yes, no, or cannot tell.
    reason
        Key of the branch that was taken; there is one template for each.
    facts
        A frozen record of the numbers that its sentence names. Its property ``value`` is what
        ``analysis.json`` shows.
    test
        Statistic with its null; None where the answer is exact, or taken over from another
        question.
    keys
        Numbers of ``analysis.json`` that belong to it.
    change
        Answer before another answer corrected it.
    """

    question: str
    answer: Verdict
    reason: str
    facts: Any = None
    test: Test | None = None
    keys: tuple[str, ...] = ()
    change: Change | None = None

    @property
    def yes(self) -> bool:
        """Whether the answer is yes."""
        return self.answer == "yes"

    @property
    def p(self) -> float | None:
        """The p-value, None where nothing was tested."""
        return self.test.p if self.test and not math.isnan(self.test.p) else None

    @property
    def value(self) -> Any:
        """What the answer names."""
        return getattr(self.facts, "value", None)

    def with_correction(
        self, answer: Verdict, reason: str, correction_question: str, **changes: Any
    ) -> Answer:
        """Return another answer to the same question, with what this one was.

        Parameters
        ----------
        answer, reason, correction_question
            The new answer, its reason, and the question that it follows from.
        changes
            Other fields to replace.
        """
        change = Change(correction_question, self.answer, self.reason)
        return replace(self, answer=answer, reason=reason, change=change, **changes)


@dataclass(frozen=True)
class TooFew:
    """Facts of a table that is too small for a question.

    Parameters
    ----------
    rows, columns
        Its shape.
    """

    rows: int
    columns: int


@dataclass(frozen=True)
class StretchAnswers:
    """Another long stretch of a table, with answers of its own.

    Parameters
    ----------
    first, stop
        Its first position and one past the last.
    answers
        Answers by question.
    """

    first: int
    stop: int
    answers: Mapping[str, Answer]


@dataclass(frozen=True)
class Verdicts:
    """Every question about a table with its answer.

    Parameters
    ----------
    answers
        Answers by question, in the order of the page.
    first, stop
        First position and one past the last of the stretch that most questions are asked of.
    is_whole
        Whether that is the whole table.
    end_causes
        Causes that end the stretch on either side, or why it is the whole table.
    other_stretches
        Other long stretches, in order.
    replaced_patches
        Patches in whose place the questions see the mean of their neighbours.
    copies
        Rows that are copies of others.
    equal
        First and last position of each stretch of equal rows.
    budget
        Budget of the whole table.
    untrained, untrained_interval
        First position from which on rows look untrained, and its 95 % interval.
    """

    answers: Mapping[str, Answer]
    first: int
    stop: int
    is_whole: bool = True
    end_causes: tuple[Cause, ...] = ()
    other_stretches: tuple[StretchAnswers, ...] = ()
    replaced_patches: tuple[int, ...] = ()
    copies: Any = None
    equal: tuple[tuple[int, int], ...] = ()
    budget: Any = None
    untrained: int | None = None
    untrained_interval: tuple[int, int] | None = None


@dataclass(frozen=True)
class Shared:
    """One question asked of several subjects.

    Parameters
    ----------
    question
        Its name.
    answers
        Answers by label of the tables to which the question applies.
    """

    question: str
    answers: Mapping[str, Verdict]

    @property
    def same(self) -> Annotated[bool, ""]:
        """Whether none of them is yes where another is no."""
        return not {"yes", "no"} <= set(self.answers.values())


#: False discovery rate over the questions of one subject (Benjamini & Hochberg 1995).
MAX_FALSE_DISCOVERY_RATE = 0.05

S = TypeVar("S")
Correction: TypeAlias = Callable[[Mapping[str, Answer], S], Answer | None]


def decide(
    uncorrected_answers: Iterable[Answer], corrections: Sequence[Correction[S]], subject: S
) -> dict[str, Answer]:
    """Settle answers that were each given by their own numbers.

    Parameters
    ----------
    uncorrected_answers
        The answers.
    corrections
        Each returns the answer that others show to be otherwise, or None. It sees the final answers
        of the corrections before it, and the own answers of those after it.
    subject
        Subject of the questions.
    """
    answers = {
        answer.question: answer for answer in limit_false_discoveries(uncorrected_answers)
    }
    for correct in corrections:
        if (corrected := correct(answers, subject)) is not None:
            answers[corrected.question] = corrected
    return answers


def max_discovery_p(ps: Iterable[float | None]) -> float:
    """Return the largest p-value at which the false discovery rate holds; 0 where none does."""
    p_values = sorted(p for p in ps if p is not None)
    return max(
        (
            p
            for rank, p in enumerate(p_values, 1)
            if p <= MAX_FALSE_DISCOVERY_RATE * rank / len(p_values)
        ),
        default=0.0,
    )


def limit_false_discoveries(uncorrected_answers: Iterable[Answer]) -> list[Answer]:
    """Leave open each yes that fails the false discovery rate over all p-values."""
    uncorrected_answers = list(uncorrected_answers)
    max_p = max_discovery_p(answer.p for answer in uncorrected_answers)
    return [
        answer.with_correction("cannot tell", "among_many", "number of questions")
        if answer.yes and answer.p is not None and answer.p > max_p
        else answer
        for answer in uncorrected_answers
    ]
