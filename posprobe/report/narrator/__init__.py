"""The one place that speaks: sentences of answers, from the facts that they follow from.

A template belongs to a question and a reason. It is a format string, with ``f`` for the facts, or a
function of them. What is written here, and only here, is what a reader reads; no rule reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, Context
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from posprobe.analyses.facts import Answer, Cause
from posprobe.number_format import Block
from posprobe.report.narrator.words import capital, signed, two_figures

#: A format string for ``f``, or a function of the facts.
Template: TypeAlias = str | Callable[[Any], str]
#: Modules with questions in words (``ASKS``) and ``TEMPLATES``, by subject.
SUBJECTS = ("models", "schemes", "tables", "rotations", "breaks", "grids")
#: What any question may have to say.
_SHARED: Mapping[str, Template] = {
    "too_few": "There are too few rows or columns to tell ({f.rows} × {f.columns}).",
    "all_equal": "All rows are equal.",
}
#: What an answer means, above a table of them.
LEVELS = "Each tested yes is significant at the 2 % level. By chance: 5 to 95 % of random tables."
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
def asks() -> dict[str, str]:
    """Return every question in words, by its name."""
    return {name: text for subject in SUBJECTS for name, text in _module(subject).ASKS.items()}


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


def chance(told: Block) -> str:
    """Say what chance gives in place of an answer's number, from the answer's block."""
    said = []
    if told.get("interval") is not None:
        low, high = map(two_figures, told["interval"])
        said.append(f"{low} to {high} ({NULLS.get(told['baseline'], told['baseline'])})")
    if told["p"] is not None and told.get("draws", True):
        if told["p"] <= (told.get("least") or 0.0):
            # A bound is rounded up: p ≤ 0.0068 is false of 1/146.
            up = Context(prec=2, rounding=ROUND_CEILING).create_decimal(str(float(told["p"])))
            said.append(f"p ≤ {float(up):.2g}")
        else:
            said.append(f"p = {told['p']:.2g}")
    return ", ".join(said) or "–"
