"""Answers as ``analysis.json`` has them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from posprobe.analyses.facts import Answer
from posprobe.report.narrator import sentence

if TYPE_CHECKING:
    from posprobe.documents import AnswerBlock


def answer_block(answer: Answer) -> AnswerBlock:
    """Return an answer with its sentence, what it was held against, and the facts behind it."""
    test = answer.test
    return {
        "question": answer.question,
        "answer": answer.answer,
        "reason": answer.reason,
        "sentence": sentence(answer),
        "value": answer.value,
        "null": test.null if test else None,
        "interval": list(test.interval) if test and test.interval else None,
        "p": answer.p,
        "least": (test and test.least) or None,
        "of": (test and test.of) or None,
        "draws": (test and test.draws) or None,
        "facts": _plain(answer.facts),
        "keys": list(answer.keys),
        "change": _plain(answer.change),
    }


def _plain(value: Any) -> Any:
    """Return a record as JSON has it, in which a tuple is a list."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
