"""The records of statements: numbers, tests, causes and answers.

An answer follows from the numbers in its facts alone. `posprobe.words` makes the sentences that a
user reads from its facts.

`decide` applies one false discovery rate to the answers of one subject, and then the corrections in
order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Literal, SupportsIndex, TypeAlias, TypeVar, overload

from posprobe.drawable import Card, Displayable, to_pandas
from posprobe.errors import UsageError
from posprobe.number_types import Text

Verdict: TypeAlias = Literal["yes", "no", "cannot tell"]
#: A yes needs a p-value of at most this. With a false discovery rate of 0.05 over some seven
#: questions, a single yes needs 0.007, and three need 0.02.
MAX_YES_P = 0.02


@dataclass(frozen=True)
class Number:
    """The metadata of a field that is a number.

    Parameters
    ----------
    label
        Label that every output uses.
    meaning
        Meaning in a few words.
    unit
        Unit of the number, or empty.
    form
        Format of the number, or separator of the numbers of a list.
    compared
        Whether the number is compared with the sinusoid and the null models.
    """

    label: str
    meaning: str = ""
    unit: str = ""
    form: str = ".3g"
    compared: bool = False


@dataclass(frozen=True)
class Test:
    """A statistic compared with draws of null models, which lack the tested property.

    Parameters
    ----------
    value
        Statistic that was tested, in the unit that its sentence names.
    p
        Rank p-value, the largest over the null models that apply; NaN if the value is compared with
        an interval alone.
    null
        Median of the draws of the null model with the largest p-value.
    interval
        Range of values that are no evidence. A tested value lies outside of it only if p is at most
        .02, and an effect that is too small to matter lies inside.
    of
        Name of that null model.
    draws
        Number of null draws.
    least
        Smallest p-value that as many draws allow; 0 if p is no rank.
    """

    __test__ = False  # pytest would collect a class named Test

    value: float
    p: float
    null: float | None = None
    interval: tuple[float, float] | None = None
    of: str = ""
    draws: int = 0
    least: float = 0.0


@dataclass(frozen=True)
class Cause:
    """The reason why a row is an outlier, or the change at a seam.

    Parameters
    ----------
    kind
        Key of the cause.
    numbers
        Numbers that its words name, in their order.
    subject
        Noun that the words name beside the numbers, or empty.
    causes
        Causes of the row or seam that this cause names, if its words state them.
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
        Question whose answer corrects this one, or name of another correction.
    was, reason
        Answer and reason before the correction.
    """

    by: str
    was: Verdict
    reason: str


@dataclass(frozen=True)
class Answer(Displayable):
    """One question and its answer.

    Parameters
    ----------
    question
        Key of the question.
    answer
        Yes, no, or cannot tell.
    reason
        Key of the branch that was taken; there is one template for each.
    facts
        Frozen record of the numbers that the sentence names. Its property ``value`` is shown in
        ``analysis.json``.
    test
        Statistic with its null draws; None if the answer is exact, or follows from another answer.
    keys
        Keys of the numbers of ``analysis.json`` that belong to the answer.
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
        """The p-value; None if nothing was tested."""
        return self.test.p if self.test and not math.isnan(self.test.p) else None

    @property
    def value(self) -> Any:
        """The value of the facts that ``analysis.json`` shows; None if they have none."""
        return getattr(self.facts, "value", None)

    @property
    def sentence(self) -> str:
        """The answer in words, which are looked up only here: answers follow from numbers alone."""
        text: str = import_module("posprobe.words").answer_sentence(self)
        return text

    def _card(self) -> Card:
        return Card(
            self.question, {"answer": self.answer, **self._tested()}, self.sentence
        )

    def _tested(self) -> dict[str, float | None]:
        """Return the tested number, the range of what is no evidence, and the p-value."""
        interval = self.test.interval if self.test else None
        low, high = interval or (None, None)
        value = self.test.value if self.test and interval else None
        return {"value": value, "low": low, "high": high, "p": self.p}

    def with_correction(
        self, answer: Verdict, reason: str, correction_question: str, **changes: Any
    ) -> Answer:
        """Return another answer to the same question that records this one.

        Parameters
        ----------
        answer, reason, correction_question
            New answer, its reason, and the question that it follows from.
        changes
            Other fields to replace.
        """
        change = Change(correction_question, self.answer, self.reason)
        return replace(self, answer=answer, reason=reason, change=change, **changes)


def summarise_result(name: str, result: Any) -> str:
    """Return what a result of a running model shows, in words.

    The words are looked up only here: numbers need none.

    Parameters
    ----------
    name
        Name of the measurement.
    result
        Its result.
    """
    text: str = import_module("posprobe.words").summarise_result(name, result)
    return text


class Answers(Displayable, tuple[Answer, ...]):
    """Answers in the order of the document, which their questions name too.

    ``answers[0]`` is the first, and ``answers["order"]`` the one to that question.
    """

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> Answer: ...
    @overload
    def __getitem__(self, key: slice, /) -> Answers: ...
    def __getitem__(self, key: SupportsIndex | str | slice, /) -> Answer | Answers:
        """Return an answer by its question or index, or several by a slice.

        Raises
        ------
        UsageError
            If no answer has that question; the message names the nearest ones.
        """
        if isinstance(key, slice):
            return Answers(super().__getitem__(key))
        if not isinstance(key, str):
            return super().__getitem__(key)
        by_question = {answer.question: answer for answer in self}
        if key in by_question:
            return by_question[key]
        near = get_close_matches(key, by_question, 2)
        names = ", ".join(by_question) or "none"
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There is {names}."
        raise UsageError(f"no answer to a question {key!r}. {hint}")

    def __contains__(self, key: object, /) -> bool:
        """Tell whether a question, or an answer, is among them."""
        if isinstance(key, str):
            return any(answer.question == key for answer in self)
        return super().__contains__(key)

    def _locations(self) -> Mapping[str, str]:
        by_question = {
            answer.question: f'answers["{answer.question}"]' for answer in self
        }
        return {**super()._locations(), **by_question}

    def to_pandas(self) -> Any:
        """Return a data frame of pandas with a row per question.

        Its columns are ``question``, ``answer``, ``value`` (the number that was tested), ``low``
        and ``high`` (the range of values that are no evidence), ``p`` and ``sentence``. Where
        nothing was tested, numbers are NaN.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        lines = [
            {"question": answer.question, "answer": answer.answer}
            | {key: math.nan if x is None else x for key, x in answer._tested().items()}
            | {"sentence": answer.sentence}
            for answer in self
        ]
        names = ("question", "answer", "value", "low", "high", "p", "sentence")
        return to_pandas({name: [line[name] for line in lines] for name in names})

    def _card(self) -> Card:
        lines = [
            {
                "question": answer.question,
                "answer": answer.answer,
                "sentence": answer.sentence,
            }
            for answer in self
        ]
        return Card(f"{len(self)} answers", {}, lines=lines)


@dataclass(frozen=True)
class TooFew:
    """Facts of a table that is too small for a question.

    Parameters
    ----------
    rows, columns
        Shape of the table.
    """

    rows: int
    columns: int


@dataclass(frozen=True)
class StretchAnswers:
    """Another long stretch of a table, with answers of its own.

    Parameters
    ----------
    first, stop
        First position of the stretch, and one past the last.
    answers
        Answers by question.
    parts
        Shares of the variance of the stretch around its mean row.
    """

    first: int
    stop: int
    answers: Mapping[str, Answer]
    parts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Verdicts:
    """The answers to all questions about a table.

    Parameters
    ----------
    answers
        Answers by question, in the order of the page.
    first, stop
        First position and one past the last of the stretch that most questions refer to.
    is_whole
        Whether that is the whole table.
    used_stop
        One past the last position that questions use of a longer stretch; None if they use all.
    end_causes
        Causes that end the stretch on either side, or why it is the whole table.
    other_stretches
        Other long stretches, in order.
    replaced_patches
        Patches that are replaced by the mean of their neighbours before the questions are asked.
    copies
        Rows that are copies of others.
    equal
        First and last position of each stretch of equal rows.
    parts
        Shares of the variance of the whole table around its mean row.
    untrained, untrained_interval
        First position from which on rows look untrained, and its 95 % interval.
    """

    answers: Mapping[str, Answer]
    first: int
    stop: int
    is_whole: bool = True
    used_stop: int | None = None
    end_causes: tuple[Cause, ...] = ()
    other_stretches: tuple[StretchAnswers, ...] = ()
    replaced_patches: tuple[int, ...] = ()
    copies: Any = None
    equal: tuple[tuple[int, int], ...] = ()
    parts: tuple[Any, ...] = ()
    untrained: int | None = None
    untrained_interval: tuple[int, int] | None = None


@dataclass(frozen=True)
class Shared:
    """One question asked of several subjects.

    Parameters
    ----------
    question
        Key of the question.
    answers
        Answers by label of the tables to which the question applies.
    """

    question: Text
    answers: Mapping[str, Verdict]

    @property
    def same(self) -> Annotated[bool, "Whether no answer is yes where another is no."]:
        """Whether the answers do not contradict each other with a yes and a no."""
        return not {"yes", "no"} <= set(self.answers.values())


#: The false discovery rate over the questions of one subject (Benjamini & Hochberg 1995).
MAX_FALSE_DISCOVERY_RATE = 0.05

S = TypeVar("S")
#: A function of all answers and their subject that returns a corrected answer, or None.
Correction: TypeAlias = Callable[[Mapping[str, Answer], S], Answer | None]


def decide(
    uncorrected_answers: Iterable[Answer],
    corrections: Sequence[Correction[S]],
    subject: S,
) -> dict[str, Answer]:
    """Correct answers that were each found from their own numbers alone.

    Parameters
    ----------
    uncorrected_answers
        Answers before any correction.
    corrections
        Functions that return a corrected answer, or None. Each receives the answers as the
        corrections before it left them.
    subject
        Subject of the questions.
    """
    limited_answers = limit_false_discoveries(uncorrected_answers)
    answers = {answer.question: answer for answer in limited_answers}
    for correct in corrections:
        if (corrected := correct(answers, subject)) is not None:
            answers[corrected.question] = corrected
    return answers


def max_discovery_p(ps: Iterable[float | None]) -> float:
    """Return the largest p-value that the false discovery rate allows; 0 if it allows none."""
    p_values = sorted(p for p in ps if p is not None)
    n_tests = len(p_values)
    allowed = [
        p
        for rank, p in enumerate(p_values, 1)
        if p <= MAX_FALSE_DISCOVERY_RATE * rank / n_tests
    ]
    return max(allowed, default=0.0)


def limit_false_discoveries(uncorrected_answers: Iterable[Answer]) -> list[Answer]:
    """Change each yes beyond the false discovery rate over all p-values to "cannot tell"."""
    uncorrected_answers = list(uncorrected_answers)
    max_p = max_discovery_p(answer.p for answer in uncorrected_answers)
    return [
        answer.with_correction("cannot tell", "among_many", "number of questions")
        if answer.yes and answer.p is not None and answer.p > max_p
        else answer
        for answer in uncorrected_answers
    ]
