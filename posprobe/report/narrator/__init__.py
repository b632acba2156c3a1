"""The one place that speaks: sentences of answers, from the facts that they follow from.

A template belongs to a question and a reason. It is a format string, with ``f`` for the facts, or a
function of them. What is written here, and only here, is what a reader reads; no rule reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from posprobe.analyses.facts import Answer, Cause
from posprobe.number_format import Block
from posprobe.report.narrator.words import capital, signed

#: A format string for ``f``, or a function of the facts.
Template: TypeAlias = str | Callable[[Any], str]
#: Modules with ``TEMPLATES``, by subject.
SUBJECTS = ("models", "schemes", "tables", "rotations", "breaks", "grids")
#: What any question may have to say.
_SHARED: Mapping[str, Template] = {
    "too_few": "There are too few rows or columns to tell ({f.rows} × {f.columns}).",
    "all_equal": "All rows are equal.",
}
#: Beside answers about a grid with outlier patches.
REPLACED = (
    "Outlier patches are replaced by the mean of their neighbours in the answers and in the row "
    "and column codes. All other numbers and figures are of the table as it is."
)
#: Null tables, by name.
NULLS: Mapping[str, str] = {
    "permuted": "random order",
    "walk": "random walk",
    "stationary": "stationary process",
    "smooth": "smooth curve",
    "surface": "no codes",
}
#: After a sentence whose yes does not stand among the other questions.
AMONG_MANY = "Given the number of questions asked, this is not significant."


@cache
def templates() -> dict[tuple[str, str], Template]:
    """Return every template by question and reason, but for those that all questions share."""
    return {key: text for subject in SUBJECTS for key, text in _module(subject).TEMPLATES.items()}


def _module(subject: str) -> Any:
    return import_module(f"{__name__}.{subject}")


def sentence(answer: Answer) -> str:
    """Say an answer in words.

    Raises
    ------
    KeyError
        If there is no template for its question and reason.
    """
    if answer.reason == "among_many" and answer.change is not None:
        return f"{_told(answer, answer.change.reason)} {AMONG_MANY}"
    return _told(answer, answer.reason)


def _told(answer: Answer, reason: str) -> str:
    template = _SHARED.get(reason) or templates()[answer.question, reason]
    facts = answer.facts
    return signed(template.format(f=facts) if isinstance(template, str) else template(facts))


def cause(found: Cause) -> str:
    """Say in a clause why a row is special, or what changes at a seam."""
    words: str | Callable[[Cause], str] = _module("causes").CAUSES[found.kind]
    if callable(words):
        return words(found)
    causes = "; ".join(map(cause, found.causes))
    return signed(words.format(*found.numbers, of=found.of, causes=causes))


def claim(told: Block) -> str:
    """Return the sentence of an answer's block; that of version 1 without the answer before it.

    Empty for what version 1 says of grids that is asked of lines alone.
    """
    text: str = told["sentence"]
    if "reason" in told:
        return text
    if text.startswith("Cannot be told: this is asked of positions on a line"):
        return ""
    begun = re.sub(r"^(Yes|No|Cannot be told|No sign of it): ", "", text)
    return capital(begun)
