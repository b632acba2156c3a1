"""How the answers of one subject are settled: one rate of false yes, then corrections in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from posprobe.analyses.facts import Answer

#: False discovery rate over the questions of one subject (Benjamini & Hochberg 1995).
RATE = 0.05

S = TypeVar("S")
Correction: TypeAlias = Callable[[Mapping[str, Answer], S], Answer | None]


def decide(
    own: Iterable[Answer], corrections: Sequence[Correction[S]], seen: S
) -> dict[str, Answer]:
    """Settle answers that were each given by their own numbers.

    Parameters
    ----------
    own
        The answers.
    corrections
        Each returns the answer that others show to be otherwise, or None. It sees the final answers
        of the corrections before it, and the own answers of those after it.
    seen
        What the questions were asked of.
    """
    answers = {answer.question: answer for answer in hold_rate(own)}
    for correct in corrections:
        if (new := correct(answers, seen)) is not None:
            answers[new.question] = new
    return answers


def discovery_bar(ps: Iterable[float | None]) -> float:
    """Return the largest p-value at which the false discovery rate holds; 0 where none does."""
    known = sorted(p for p in ps if p is not None)
    return max((p for k, p in enumerate(known, 1) if p <= RATE * k / len(known)), default=0.0)


def hold_rate(own: Iterable[Answer]) -> list[Answer]:
    """Leave open each yes that fails the false discovery rate over all p-values."""
    own = list(own)
    bar = discovery_bar(answer.p for answer in own)
    return [
        answer.corrected("cannot tell", "among_many", "number of questions")
        if answer.yes and answer.p is not None and answer.p > bar
        else answer
        for answer in own
    ]
