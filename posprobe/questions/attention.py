"""Questions about the attention budget: what decides where the heads of a model look."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posprobe.analyses.facts import MAX_YES_P, Answer, Test, Verdict
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.rotary_use import MIN_HEAD_CONTEXTS
from posprobe.questions.rank_tests import (
    MAX_OPEN_P,
    MIN_EFFECT_SHARE,
    value_property,
)

if TYPE_CHECKING:
    from posprobe.questions.models import ModelRun

#: Chance that reaches a larger share could hide a share that counts, which is then not denied.
MAX_DENYING_SHARE = 0.05
#: A head with a larger share of its attention at the first token has a sink there (Gu et al. 2025,
#: section 2, epsilon).
MIN_SINK_ATTENTION = 0.3


@dataclass(frozen=True)
class PositionShare:
    """What position decides of where heads look, mean over heads.

    Parameters
    ----------
    share
        Share of the variance of a query's logits.
    distance, place
        Its parts: distance, and place of the key with other position.
    most, heads
        Heads that position decides by more than half, and all heads.
    contexts, tokens
        Contexts, and tokens or patches of each.
    """

    share: float
    distance: float
    place: float
    most: int
    heads: int
    contexts: int
    tokens: int

    value = value_property("share", "distance", "most")


def _position_share(budget: AttentionBudget) -> PositionShare | None:
    if budget.distance is None or budget.key is None or budget.other is None:
        return None
    place = budget.key + budget.other
    return PositionShare(
        budget.distance + place,
        budget.distance,
        place,
        budget.most,
        len(budget.heads),
        budget.contexts,
        budget.tokens,
    )


def _attention_budget(run: ModelRun) -> AttentionBudget | None:
    budget: AttentionBudget | None = run.results.get("attention_budget")
    return budget


def _answer_share(
    question: str, run: ModelRun, part: str, measured: str, keys: tuple[str, ...]
) -> Answer | None:
    """Answer whether a share of position is more than chance, and more than little."""
    budget = _attention_budget(run)
    facts = None if budget is None else _position_share(budget)
    if budget is None or facts is None:
        return None
    if budget.by_chance is None:
        return Answer(question, "cannot tell", "few_contexts", facts, keys=keys)
    share = getattr(facts, measured)
    p, interval = (
        getattr(budget.by_chance, f"{part}_p"),
        getattr(budget.by_chance, part),
    )
    draws = budget.by_chance.draws
    test = Test(share, p, 0.0, interval, "signs", draws, 1 / (draws + 1))
    answer: Verdict = "no"
    reason = "chance"
    is_large = share >= MIN_EFFECT_SHARE
    if p <= MAX_YES_P:
        answer, reason = ("yes", "decides") if is_large else ("no", "small")
    elif is_large and (p <= MAX_OPEN_P or interval[1] > MAX_DENYING_SHARE):
        answer, reason = "cannot tell", "open"
    return Answer(question, answer, reason, facts, test, keys)


def ask_position(run: ModelRun) -> Answer | None:
    """Ask whether position decides where heads look."""
    keys = tuple(
        f"attention_budget.{key}" for key in ("distance", "key", "other", "most")
    )
    return _answer_share("position_decides", run, "position", "share", keys)


def ask_places(run: ModelRun) -> Answer | None:
    """Ask whether places count beyond distance."""
    keys = ("attention_budget.key", "attention_budget.other")
    return _answer_share("own_places", run, "place", "place", keys)


@dataclass(frozen=True)
class PreferredDistances:
    """Heads that prefer a distance.

    Parameters
    ----------
    yes, no, open
        Heads that prefer one, that prefer none, and of which it cannot be told.
    preferred
        Displacement that most of them prefer, query minus key; None where none does.
    agreeing
        Heads that prefer it.
    two_sided
        Whether keys on both sides are looked at.
    contexts, tokens
        Contexts, and tokens or patches of each.
    """

    yes: int
    no: int
    open: int
    preferred: int | tuple[int, ...] | None
    agreeing: int
    two_sided: bool
    contexts: int
    tokens: int

    @property
    def heads(self) -> int:
        """Number of all heads."""
        return self.yes + self.no + self.open

    @property
    def value(self) -> dict[str, Any]:
        """Numbers of heads."""
        return {"heads": self.yes, "of": self.heads}


def ask_distance(run: ModelRun) -> Answer | None:
    """Ask whether any head prefers a distance."""
    budget = _attention_budget(run)
    if budget is None:
        return None
    verdicts = [head.prefers for head in budget.heads]
    preferred, agreeing = next(iter(budget.preferred_counts), (None, 0))
    facts = PreferredDistances(
        verdicts.count("yes"),
        verdicts.count("no"),
        verdicts.count("cannot tell"),
        preferred,
        agreeing,
        budget.both_sides,
        budget.contexts,
        budget.tokens,
    )
    answer: Verdict = "cannot tell"
    if budget.contexts < MIN_HEAD_CONTEXTS:
        reason = "few_contexts"
    elif facts.yes:
        answer, reason = "yes", "some"
    elif facts.open:
        reason = "open"
    else:
        answer, reason = "no", "no_head"
    return Answer("distance", answer, reason, facts, keys=("attention_budget.heads",))


@dataclass(frozen=True)
class FirstPosition:
    """Attention of heads to the first token.

    Parameters
    ----------
    sinks, heads
        Heads that pay it more than `MIN_SINK_ATTENTION` of their attention, and all whose queries
        see it.
    attention
        Largest share of a head's attention, mean over the queries of its window.
    layer, head
        That head, from 0.
    uniform
        Share under uniform attention, mean over layers.
    """

    sinks: int
    heads: int
    attention: float
    layer: int
    head: int
    uniform: float

    @property
    def value(self) -> dict[str, Any]:
        """Numbers of heads."""
        return {"heads": self.sinks, "of": self.heads}


def ask_first(run: ModelRun) -> Answer | None:
    """Ask whether heads take the first token as a sink, where their queries see it."""
    budget = _attention_budget(run)
    if budget is None or budget.uniform_first is None:
        return None
    shares = [
        (head.first, head.layer, head.head)
        for head in budget.heads
        if head.first is not None
    ]
    if not shares:
        return None
    sinks = sum(share > MIN_SINK_ATTENTION for share, _, _ in shares)
    facts = FirstPosition(sinks, len(shares), *max(shares), budget.uniform_first)
    test = Test(facts.attention, math.nan, facts.uniform, None, "uniform attention")
    keys = ("attention_budget.heads", "attention_budget.uniform_first")
    answer: Verdict = "yes" if sinks else "no"
    return Answer("first", answer, "sinks" if sinks else "none", facts, test, keys)
