"""What a model's positions are worth to it, and whether less than all of them is enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from posprobe.analyses.facts import Answer, Test, Verdict
from posprobe.analyses.models.experiments import (
    Cost,
    Scheme,
    Substitute,
    SubstitutionEffect,
    is_gain,
)
from posprobe.questions.models import SMALL, Run, RunQuestion

#: Share of what a table is worth from which an explanation is said to be enough.
ENOUGH = 0.9
#: Most components that are few, and standard errors by which a share must be above, or below, what
#: is enough.
FEW, SURE = 10, 2.0
#: Standard errors from the mean of a normal distribution to 5 and to 95 % of it.
BAND = 1.645


@dataclass(frozen=True)
class Worth:
    """What positions are worth to what: the words of a cost.

    Parameters
    ----------
    scheme
        What is replaced: the rows of a table, rotations, or biases.
    table
        Name of the model's parameter or buffer.
    measure
        The cost: loss, divergence, answers or states.
    task
        What the model predicts.
    """

    scheme: Scheme
    table: str
    measure: str
    task: str


@dataclass(frozen=True)
class Removal:
    """What removing positions costs.

    Parameters
    ----------
    worth
        Of what, to what.
    cost, error
        Mean over contexts and its standard error: nats, or for states a share of their norm; None
        where outputs are not finite, and of one context.
    loss, loss_error
        Of the unchanged model, in nats; None without one.
    answers, answers_error
        Share of the top answers that change; None where there are none.
    small
        Cost up to which nothing is lost to speak of.
    """

    worth: Worth
    cost: float | None
    error: float | None
    loss: float | None
    loss_error: float | None
    answers: float | None
    answers_error: float | None
    small: float = SMALL

    @property
    def most(self) -> float | None:
        """The cost and `SURE` standard errors more."""
        if self.cost is None or self.error is None:
            return None
        return self.cost + SURE * self.error

    @property
    def value(self) -> float | None:
        """The cost."""
        return self.cost


@dataclass(frozen=True)
class Enough:
    """How much of what positions are worth one substitute keeps: the first that is enough, or best.

    Parameters
    ----------
    label
        Its name in the table of costs.
    size
        How many components it has; None of random tables.
    kept, error
        Share that is kept, and its standard error.
    of
        How many substitutes were tried.
    worth
        Of what, to what.
    """

    label: str
    size: int | None
    kept: float
    error: float
    of: int
    worth: Worth

    @property
    def value(self) -> float:
        """The share."""
        return self.kept


def _worth(found: SubstitutionEffect) -> Worth:
    return Worth(found.scheme, found.table, found.measure, found.task)


def _key(found: SubstitutionEffect, each: Substitute) -> str:
    return f"substitution.substitutes.{found.substitutes.index(each)}.{found.measure}"


def needed(run: Run) -> Answer:
    """Ask whether the model loses something when its positions are taken away."""
    found: SubstitutionEffect = run.results["substitution"]
    removed = found[found.removed]
    cost, changed = removed.costs[found.measure], removed.costs.get("answers")
    facts = Removal(
        _worth(found), cost.value, cost.error, found.loss, found.loss_error,
        changed.value if changed else None, changed.error if changed else None,
    )  # fmt: skip
    test = None
    if cost.value is not None:
        band = None if cost.error is None else (-BAND * cost.error, BAND * cost.error)
        test = Test(cost.value, math.nan, 0.0, band, "no cost")
    answer, reason = _loses(cost, facts.most)
    return Answer("needed", answer, reason, facts, test, (_key(found, removed),))


def _loses(cost: Cost, most: float | None) -> tuple[Verdict, str]:
    if cost.value is None:
        return "cannot tell", "not_finite"
    if most is None:
        return "cannot tell", "one_context"
    if is_gain(cost.value, cost.error) and cost.value < -SMALL:
        return "no", "gain"
    # A divergence is above 0 by any change: what is next to nothing is no loss, however certain.
    if most < SMALL:
        return "no", "little"
    # That no loss was seen is no evidence that there is none: few contexts see nothing.
    if cost.kept is None:
        return "cannot tell", "open"
    return ("yes", "loses") if cost.value >= SMALL else ("cannot tell", "small")


def _components(each: Substitute) -> bool:
    return each.kind == "components" and (each.size or 0) <= FEW


def _random(each: Substitute) -> bool:
    return each.kind == "null"


def _known(run: Run, kind: Callable[[Substitute], bool]) -> list[tuple[Substitute, float, float]]:
    """Return the substitutes of a kind of which it is known how much they keep, and the error."""
    found: SubstitutionEffect | None = run.results.get("substitution")
    costs = [
        (each, each.costs[found.measure])
        for each in (found.substitutes if found else ())
        if found and kind(each)
    ]
    return [
        (each, cost.kept, cost.kept_error)
        for each, cost in costs
        if cost.kept is not None and cost.kept_error is not None
    ]


def _enough(question: str, kind: Callable[[Substitute], bool]) -> RunQuestion:
    """Make the question whether one of some substitutes keeps `ENOUGH`."""

    def ask(run: Run) -> Answer:
        found: SubstitutionEffect = run.results["substitution"]
        known = _known(run, kind)
        sure = [one for one in known if one[1] - SURE * one[2] >= ENOUGH]
        best, kept, error = sure[0] if sure else max(known, key=lambda one: one[1])
        facts = Enough(best.label, best.size, kept, error, len(known), _worth(found))
        band = (ENOUGH - BAND * error, ENOUGH + BAND * error)
        test = Test(kept, math.nan, ENOUGH, band, "90 % kept")
        keys = tuple(_key(found, one[0]) for one in known)
        if sure:
            return Answer(question, "yes", "enough", facts, test, keys)
        maybe = any(share + SURE * spread >= ENOUGH for _, share, spread in known)
        answer: Verdict = "cannot tell" if maybe else "no"
        return Answer(question, answer, "open" if maybe else "less", facts, test, keys)

    reasons = ("enough", "less", "open")
    return RunQuestion(question, ask, reasons, applies=lambda run: bool(_known(run, kind)))


NEEDED = RunQuestion(
    "needed", needed,
    ("loses", "gain", "little", "small", "open", "one_context", "not_finite"),
    applies=lambda run: "substitution" in run.results,
)  # fmt: skip
FEW_COMPONENTS = _enough("few", _components)
RANDOM = _enough("random", _random)
#: In the order of the page.
QUESTIONS = (NEEDED, FEW_COMPONENTS, RANDOM)


def where_needed(answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """Leave out what substitutes keep of the positions' worth where they are worth nothing."""
    lost = "needed" in answers and answers["needed"].yes
    return {
        name: answer for name, answer in answers.items() if lost or name not in ("few", "random")
    }
