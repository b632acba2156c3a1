"""What old answers need until all are moved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from posprobe.analyses.answer import Answer, Verdict
from posprobe.report.questions import QUESTIONS
from posprobe.text import Block, listed

if TYPE_CHECKING:
    from posprobe.documents import AnswerBlock, SharedAnswerBlock, SharedVerdictBlock


def answer_block(answer: Answer) -> AnswerBlock:
    """Return an answer as ``analysis.json`` has it."""
    return cast("AnswerBlock", asdict(answer) | {"keys": list(answer.keys)})


def affirmed(sentence: str) -> str:
    """Return an answer without the word that it begins with."""
    return capital(re.sub(r"^(Yes|No|Cannot be told|No sign of it): ", "", sentence))


def capital(text: str) -> str:
    """Begin a sentence with a capital, but leave a name before a colon as it is."""
    first = text.partition(" ")[0]
    return text if first.endswith(":") else text[0].upper() + text[1:]


def shared(
    labels: Sequence[str],
    verdicts: Sequence[Block],
    questions: Mapping[str, str] = QUESTIONS,
) -> SharedVerdictBlock:
    """Compare the answers about several tables or encodings.

    Parameters
    ----------
    labels, verdicts
        Of each, its name and a block with its ``answers``.
    questions
        That are compared, in this order.

    Returns
    -------
    dict
        ``summary`` and ``answers``: for each question the answers by label, whether none of them
        is yes where another is no, and a sentence.
    """
    answers: list[SharedAnswerBlock] = []
    for name, question in questions.items():
        found: list[Verdict] = [
            next((a["answer"] for a in block["answers"] if a["question"] == name), "cannot tell")
            for block in verdicts
        ]
        kinds = set(found)
        if kinds == {"cannot tell"}:
            continue
        if len(kinds) == 1:
            told = f"{question} {found[0].capitalize()}, for all."
        else:
            parts = []
            for kind in ("yes", "no", "cannot tell"):
                whose = [label for label, one in zip(labels, found, strict=True) if one == kind]
                if whose:
                    parts.append(f"{kind} for {listed(whose)}")
            text = listed(parts)
            told = f"{question} {text[0].upper()}{text[1:]}."
        answers.append(
            {
                "question": name,
                "answers": dict(zip(labels, found, strict=True)),
                "same": not {"yes", "no"} <= kinds,
                "sentence": told,
            }
        )
    alike = [a["sentence"] for a in answers if len(set(a["answers"].values())) == 1]
    differ = [questions[a["question"]] for a in answers if not a["same"]]
    text = " ".join(alike) or "No question has the same answer for all."
    text += (
        f" They differ on: {' '.join(differ)}" if differ else " No answers contradict each other."
    )
    return {"summary": text, "answers": answers}
