"""One answer, and what every question shares: the levels, and the rank p-value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.analyses.views import LEVEL, View

Verdict: TypeAlias = Literal["yes", "no", "cannot tell"]

#: Between the level of a yes and this, the answer is left open.
OPEN = 0.10
#: Fewest rows that any question is asked of.
MIN_ROWS = 8


@dataclass(frozen=True)
class Answer:
    """One question about a table and its answer.

    Parameters
    ----------
    question
        Its name.
    answer
        Yes, no, or cannot tell.
    sentence
        The answer in words.
    value
        The number or numbers it rests on; JSON.
    null
        What the null tables have in its place, in the median.
    p
        Evidence for a yes.
    effect
        How much the table differs from the nulls, in the words of the sentence.
    keys
        Numbers of ``analysis.json`` that belong to it.
    """

    question: str
    answer: Verdict
    sentence: str
    value: Any = None
    null: float | None = None
    p: float | None = None
    effect: float | None = None
    keys: tuple[str, ...] = ()


def verdict_of(p: float, *, enough: bool = True) -> Verdict:
    """Answer by a p-value; no needs ``enough`` rows."""
    if p <= LEVEL:
        return "yes"
    return "no" if p > OPEN and enough else "cannot tell"


def too_few(question: str, shared: View, keys: tuple[str, ...]) -> Answer | None:
    """Answer a question about a table too small for any."""
    if shared.constant:
        return Answer(question, "cannot tell", "Cannot be told: all rows are equal.", keys=keys)
    if len(shared) < MIN_ROWS:
        text = f"Cannot be told from {len(shared)} rows."
        return Answer(question, "cannot tell", text, keys=keys)
    return None


def rank(value: float, drawn: Floats) -> float:
    """Return the rank p-value of a value that is large if there is something to find."""
    reached = np.sum(drawn >= value - 1e-9 * max(abs(value), 1e-300))
    return float((1 + reached) / (len(drawn) + 1))


def at_least(count: int, total: int, share: float) -> float:
    """Return how likely ``count`` or more of ``total`` are where each is with a share of cases."""
    return math.fsum(
        math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count, total + 1)
    )
