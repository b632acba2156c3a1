"""Sentences of answers, from the facts that they follow from.

A template belongs to a question and a reason. All templates are in ``answers.toml``, with the parts
of sentences that several share. Parts that depend on conditions are functions of the facts, in the
modules of this package. All text for readers comes from here, and no rule depends on it.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from posprobe.analyses.facts import Answer, Cause
from posprobe.data import read_data
from posprobe.page import Picture
from posprobe.text import Block
from posprobe.words.formats import (
    Template,
    TemplateFormatter,
    capitalise,
    write_minus_signs,
)

#: Templates of each question, cause and null model.
ANSWER_TEXTS = read_data("words/answers.toml")
#: Questions in at most five words, by name, in the order of a page.
QUESTION_TEXTS: Mapping[str, str] = {
    name: texts["ask"] for name, texts in ANSWER_TEXTS.items() if "ask" in texts
}
#: Questions for lines of 80 letters, by their text, where it is too long for them.
SHORT_QUESTION_TEXTS: Mapping[str, str] = {
    texts["ask"]: texts["ask_in_short"]
    for texts in ANSWER_TEXTS.values()
    if "ask_in_short" in texts
}
#: Descriptions of drawings, by their subject and name.
PICTURE_TEXTS: Mapping[str, Mapping[str, str]] = read_data("words/pictures.toml")
#: Note on the answers about a grid with outlier patches.
REPLACED_PATCHES_NOTE = (
    "Outlier patches are replaced by the mean of their neighbours in the "
    "answers and in the row and column codes. All other numbers and figures "
    "are of the table as it is."
)
#: One sentence on each question, and on each line without a question by the start of its name.
DEFINITIONS: Mapping[str, Mapping[str, str]] = read_data("words/definitions.toml")
#: Phrases for the null models, by name.
NULL_TEXTS: Mapping[str, str] = ANSWER_TEXTS["nulls"]
#: Sentence added to a yes that is not significant given the number of questions.
MANY_QUESTIONS_NOTE = "Given the number of questions asked, this is not significant."


@cache
def templates() -> Mapping[tuple[str, str], str]:
    """Return the templates by question and reason, except those that all questions share."""
    return {
        (name, reason): text
        for name in QUESTION_TEXTS
        for reason, text in ANSWER_TEXTS[name].items()
        if reason not in {"ask", "ask_in_short", "parts", "summary"}
    }


@cache
def function_parts() -> tuple[Mapping[str, Mapping[str, Template]], ...]:
    """Return the parts that functions make, by question, for each kind of subject."""
    from posprobe.words import models, schemes, tables

    return models.MODEL_PARTS, schemes.SCHEME_PARTS, tables.TABLE_PARTS


@cache
def _question_parts(question: str) -> Mapping[str, Template]:
    texts, shared_texts = (
        ANSWER_TEXTS[question].get("parts", {}),
        ANSWER_TEXTS["shared"]["parts"],
    )
    function_texts = (parts.get(question, {}) for parts in function_parts())
    return dict(ChainMap(*map(dict, function_texts), texts, shared_texts))


def answer_sentence(answer: Answer) -> str:
    """Return an answer as a sentence.

    Raises
    ------
    KeyError
        If there is no template for its question and reason.
    """
    if answer.reason == "among_many" and answer.change is not None:
        return f"{_reason_sentence(answer, answer.change.reason)} {MANY_QUESTIONS_NOTE}"
    return _reason_sentence(answer, answer.reason)


def summary_sentence(answer: Answer) -> str:
    """Return an answer as a sentence of a run's summary; empty where the summary omits it."""
    text: str = ANSWER_TEXTS[answer.question].get("summary", {}).get(answer.reason, "")
    return _fill_template(answer, text)


def summarise_result(name: str, result: Any) -> str:
    """Return what a result of a running model shows, by the answers that it allows."""
    from posprobe.words import models

    return models.summarise_result(name, result)


def _reason_sentence(answer: Answer, reason: str) -> str:
    shared_text: str | None = ANSWER_TEXTS["shared"].get(reason)
    return _fill_template(answer, shared_text or templates()[answer.question, reason])


def _fill_template(answer: Answer, template: str) -> str:
    formatter = TemplateFormatter(_question_parts(answer.question), f=answer.facts)
    return write_minus_signs(formatter.format(template))


def cause_clause(cause: Cause) -> str:
    """Return a clause on why a row is an outlier, or what changes at a seam."""
    causes = "; ".join(map(cause_clause, cause.causes))
    text: str = ANSWER_TEXTS["causes"][cause.kind]
    return write_minus_signs(text.format(*cause.numbers, f=cause, causes=causes))


def define_line(name: str) -> str:
    """Return the sentence that defines a question or measure, by the name of its line.

    Questions of a check of two copies end with what they are about: ``check-3-ladder``.
    """
    kind = name.partition("-")[0]
    if kind == "check":
        return DEFINITIONS["check"].get(name.rpartition("-")[2], "")
    return DEFINITIONS["questions"].get(name) or DEFINITIONS["lines"].get(kind, "")


def define_number(label: str, meaning: str) -> str:
    """Return the sentence that defines a number."""
    return f"{capitalise(label)}: {meaning}."


def describe_pictures(
    subject: str, names: Iterable[str], alternative: str = ""
) -> tuple[Picture, ...]:
    """Return drawings with their descriptions, or ``alternative`` where there is none."""
    return tuple(
        Picture(name, PICTURE_TEXTS[subject].get(name, alternative)) for name in names
    )


def claim_sentence(answer: Block) -> str:
    """Return the sentence of an answer's block, in version 1 without the verdict before it.

    It is empty for questions that version 1 answers about grids but that concern sequences alone.
    """
    text: str = answer["sentence"]
    if "reason" in answer:
        return text
    if text.startswith("Cannot be told: this is asked of positions on a line"):
        return ""
    claim = re.sub(r"^(Yes|No|Cannot be told|No sign of it): ", "", text)
    return capitalise(claim)
