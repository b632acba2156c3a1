"""What is said of several tables, or encodings, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posprobe.analyses.facts import Shared, Verdict
from posprobe.report.narrator import asks
from posprobe.text import capital, listed

#: Answers in the order in which they are told.
_ORDER: tuple[Verdict, ...] = ("yes", "no", "cannot tell")


def shared(found: Shared) -> str:
    """Say how several subjects answer one question."""
    kinds = set(found.answers.values())
    question = asks()[found.question]
    if len(kinds) == 1:
        return f"{question} {capital(kinds.pop())}, for all."
    parts = [
        f"{kind} for {listed([label for label, one in found.answers.items() if one == kind])}"
        for kind in _ORDER
        if kind in kinds
    ]
    return f"{question} {capital(listed(parts))}."


def agreement(found: Sequence[Shared]) -> str:
    """Say which answers are the same for all subjects, and which contradict each other."""
    alike: Mapping[str, list[str]] = {kind: [] for kind in _ORDER}
    for each in found:
        kinds = list(set(each.answers.values()))
        if len(kinds) == 1:
            alike[kinds[0]].append(asks()[each.question])
    told = [f"{' '.join(names)} {capital(kind)}." for kind, names in alike.items() if names]
    if not told:
        told = ["No question has the same answer for all."]
    differ = sum(not each.same for each in found)
    few = {0: "No answers contradict each other.", 1: "One answer differs."}
    told.append(few.get(differ, f"{differ} answers differ."))
    return " ".join(told)
