"""Shares of the whole table in the answers about its parts.

Most questions are asked of the longest stretch of a table. The shares of parts that a reader
compares are those of the whole table, as the variance budget has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from posprobe.analyses.composition.budget import Budget
from posprobe.analyses.composition.ledger import Share
from posprobe.analyses.facts import Answer, Test
from posprobe.layouts import Grid
from posprobe.questions.rank_tests import MIN_EFFECT_SHARE, value_property
from posprobe.questions.sequences import Smooth

#: Parts of the budget by the question whose answer says whether they are there.
PARTS_BY_QUESTION: Mapping[str, tuple[str, ...]] = {
    "smooth": ("smooth", "line", "slow"),
    "rotations": ("rotation", "sway"),
}


@dataclass(frozen=True)
class PartElsewhere:
    """A part of stretches that were not tested.

    Parameters
    ----------
    share
        Share of the variance of the whole table.
    """

    share: float

    value = value_property("share")


def state_table_shares(
    answers: Mapping[str, Answer], own_parts: Iterable[Share], budget: Budget | None
) -> dict[str, Answer]:
    """Return the answers about a sequence with shares of the whole table.

    Parameters
    ----------
    answers
        Answers about the longest stretch, by question.
    own_parts
        Parts of that stretch.
    budget
        Variance budget of the whole table.
    """
    stated_answers = dict(answers)
    if budget is None or budget.undefined or isinstance(budget.layout, Grid):
        return stated_answers
    shares: dict[str, float] = {}
    for part in budget.around_mean():
        shares[part.part] = shares.get(part.part, 0.0) + part.share
    own_names = {part.part for part in own_parts}
    for question, parts in PARTS_BY_QUESTION.items():
        answer = answers[question]
        share = sum(shares.get(part, 0.0) for part in parts)
        own_share = getattr(answer.facts, "share", 0.0)
        if answer.yes and share > 0 and own_share > 0:
            # Of several rotations, the strongest was tested.
            largest = max(
                part.share for part in budget.around_mean() if part.part in parts
            )
            tested_share = largest if question == "rotations" else share
            scaled_answer = _scale_answer(answer, share, own_share, tested_share)
            if question == "smooth" and answer.reason != "line" and "slow" in shares:
                scaled_answer = _state_least_share(scaled_answer, budget)
            stated_answers[question] = scaled_answer
        elif own_names & set(parts):
            continue  # the answer is about this part
        elif not answer.yes and share - shares.get("slow", 0.0) >= MIN_EFFECT_SHARE:
            stated_answers[question] = answer.with_correction(
                "yes", "elsewhere", "budget", facts=PartElsewhere(share), test=None
            )
        elif answer.answer == "no" and share >= MIN_EFFECT_SHARE:
            stated_answers[question] = answer.with_correction(
                "cannot tell",
                "slow_elsewhere",
                "budget",
                facts=PartElsewhere(share),
                test=None,
            )
    return stated_answers


def _scale_answer(
    answer: Answer, share: float, own_share: float, tested_share: float
) -> Answer:
    """Replace the share of a stretch and its test by those of the table.

    Parameters
    ----------
    answer
        Answer about the stretch.
    share, own_share
        Share of the variance of the table, and of that of the stretch.
    tested_share
        Share of the variance of the table that was tested, where there is a test.
    """
    ratio = share / own_share
    changes: dict[str, float | None] = {"share": share}
    if abs(share - own_share) > 1e-9:
        changes["own_share"] = own_share
    if isinstance(answer.facts, Smooth):
        changes["straight"] = answer.facts.straight * ratio
    facts = replace(answer.facts, **changes)
    test = answer.test
    if test is not None and test.value > 0:
        test = _scale_test(test, tested_share / test.value)
    return replace(answer, facts=facts, test=test)


def _state_least_share(answer: Answer, budget: Budget) -> Answer:
    """State what of all slow changes is surely smooth, where some of them may not be."""
    least = sum(
        part.ranges.get("smooth", (0.0, 0.0))[0] if part.ranges else part.share
        for part in budget.around_mean()
        if part.part in {"smooth", "line", "slow"}
    )
    return replace(answer, reason="slow", facts=replace(answer.facts, least=least))


def _scale_test(test: Test, ratio: float) -> Test:
    interval = test.interval and (test.interval[0] * ratio, test.interval[1] * ratio)
    null = None if test.null is None else test.null * ratio
    return replace(test, value=test.value * ratio, null=null, interval=interval)
