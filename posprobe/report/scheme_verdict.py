"""What encodings without a table tell attention, as answers and in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from posprobe.analyses.answer import Answer
from posprobe.measurements import Finding
from posprobe.report.numbered import Numbered
from posprobe.report.questions import SCHEME_QUESTIONS
from posprobe.report.relative_answers import learned, limited, near_keys, sides, structured
from posprobe.report.stated_answers import (
    linear,
    linear_near,
    linear_reach,
    positive,
    rotary,
    stretched,
    turns,
)
from posprobe.report.verdict import affirmed, answer_block, capital
from posprobe.text import Block

if TYPE_CHECKING:
    from posprobe.documents import ToldBlock


def scheme_verdict(schemes: Sequence[Block]) -> ToldBlock:
    """Answer what can be asked of encodings without a table.

    Parameters
    ----------
    schemes
        The blocks of ``analysis.json``.

    Returns
    -------
    dict
        ``summary`` and ``answers``.
    """
    kinds: dict[str, list[tuple[int, Block]]] = {}
    for number, scheme in enumerate(schemes):
        kind = scheme["quantity"] if scheme["scheme"] == "relative" else scheme["scheme"]
        kinds.setdefault(kind, []).append((number, scheme))
    parts, answers = [], []
    for kind, found in kinds.items():
        summarise, questions = _KINDS[kind]
        asked = [answer for ask in questions for answer in ask(found)]
        parts.append(summarise(found, {answer.question: answer for answer in asked}))
        answers += asked
    text = ". ".join(capital(part) for part in parts)
    order = list(SCHEME_QUESTIONS)
    answers.sort(key=lambda answer: order.index(answer.question))
    return {"summary": f"{text}.", "answers": [answer_block(answer) for answer in answers]}


def told_findings(told: ToldBlock) -> tuple[Finding, ...]:
    """Return the answers of a verdict that are known, as findings."""
    return tuple(
        Finding(affirmed(answer["sentence"]), tuple(answer["keys"]))
        for answer in told["answers"]
        if answer["answer"] != "cannot tell"
    )


_KINDS: Mapping[
    str,
    tuple[
        Callable[[Numbered, Mapping[str, Answer]], str],
        tuple[Callable[[Numbered], Iterator[Answer]], ...],
    ],
] = {
    "rotary": (rotary, (turns, positive, stretched)),
    "alibi": (linear, (linear_near, linear_reach)),
    "bias": (
        learned("bias"),
        (structured("bias"), near_keys("bias"), sides, limited("bias")),
    ),
    "cosine": (
        learned("cosine"),
        (structured("cosine"), near_keys("cosine"), limited("cosine")),
    ),
}
