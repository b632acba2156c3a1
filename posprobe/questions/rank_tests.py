"""What every question shares: levels, the rank p-value, nulls, and slow changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from posprobe.analyses.facts import Answer, Test, TooFew, Verdict
from posprobe.analyses.view import LEVEL, View
from posprobe.arrays import Floats

#: Between the level of a yes and this, the answer is left open.
OPEN = 0.10
#: The least share of the variance, or of a mean cosine, that an answer calls something: what is
#: significant and smaller is said to be small.
LEAST_SHARE = 0.02
#: Fewest rows that any question is asked of.
MIN_ROWS = 8
#: Answers a question by what is seen of a table alone; None where it is not asked.
Ask: TypeAlias = Callable[[View], Answer | None]


def shown(*names: str) -> Any:
    """Return the property ``value`` of facts: of one of their fields, or of several by name."""
    if len(names) == 1:
        return property(lambda facts: getattr(facts, names[0]))
    return property(lambda facts: {name: getattr(facts, name) for name in names})


def judged(
    p: float, yes: str, no: str, undecided_reason: str, *, has_enough: bool = True
) -> tuple[Verdict, str]:
    """Answer by a p-value, with the reason of each answer; no needs ``has_enough`` rows."""
    if p <= LEVEL:
        return "yes", yes
    return ("no", no) if p > OPEN and has_enough else ("cannot tell", undecided_reason)


def too_few(question: str, view: View, keys: tuple[str, ...]) -> Answer | None:
    """Answer a question about a table too small for any."""
    facts = TooFew(*view.points.shape)
    if view.constant:
        return Answer(question, "cannot tell", "all_equal", facts, keys=keys)
    if len(view) < MIN_ROWS:
        return Answer(question, "cannot tell", "too_few", facts, keys=keys)
    return None


def rank(value: float, null_draws: Floats) -> float:
    """Return the rank p-value of a value that is large if there is something to find.

    ``(1 + number of draws that reach it) / (draws + 1)`` (Phipson & Smyth 2010).
    """
    reached = np.sum(null_draws >= value - 1e-9 * max(abs(value), 1e-300))
    return float((1 + reached) / (len(null_draws) + 1))


def against(
    value: float,
    null_draws: Floats,
    null_model: str,
    p: float,
    *,
    null: float | None = None,
    times: int = 1,
) -> Test:
    """Return the record of a test.

    Parameters
    ----------
    value
        The number that was tested.
    null_draws
        ``[draws]``: the same number of the nearest null, in the same unit.
    null_model
        Name of that null.
    p
        The p-value.
    null
        What is expected of it; where None, the median of what was drawn.
    times
        Numbers among which the strongest was taken, with a p-value so many times as large.
    """
    low, middle, high = (float(q) for q in np.quantile(null_draws, (0.05, 0.5, 0.95)))
    expected = middle if null is None else null
    return Test(
        value,
        p,
        expected,
        (low, high),
        null_model,
        len(null_draws),
        min(1.0, times / (len(null_draws) + 1)),
    )


def draw_until(
    draw: Callable[[], Any], p_of: Callable[[Floats], float], n_first_draws: int, max_draws: int
) -> tuple[Floats, float]:
    """Return draws of a null and the p-value: the first ones alone where they exclude a yes.

    Parameters
    ----------
    draw
        Makes one draw.
    p_of
        The p-value beside some draws.
    n_first_draws, max_draws
        How many are drawn in any case, and at most.
    """
    null_draws = np.array([draw() for _ in range(n_first_draws)])
    if p_of(null_draws) <= LEVEL:
        null_draws = np.concatenate(
            [null_draws, [draw() for _ in range(max_draws - n_first_draws)]]
        )
    return null_draws, p_of(null_draws)


def at_least(count: int, total: int, share: float) -> float:
    """Return how likely ``count`` or more of ``total`` are where each is with a share of cases."""
    return math.fsum(
        math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count, total + 1)
    )


#: Least change of norms or speed along the table that counts: a tenth, which is what a reader of
#: their curve sees as a change.
SLIGHT = 0.1
#: Times as long as the distance at which similarity halves a table must be: of fewer independent
#: stretches, any curve changes slowly.
STRETCHES = 8


def ranks(values: Floats) -> Floats:
    """Return ranks ``[..., n]`` less their mean; equal values rank in order."""
    count = values.shape[-1]
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / count
    return np.asarray((ranks - (count - 1) / (2 * count)) / count)


def slow_waves(count: int) -> Floats:
    """Return the four slowest waves of a sequence of so many values: ``[4, count]``."""
    return np.asarray(np.cos(np.pi * np.outer(np.arange(1, 5), np.arange(count) + 0.5) / count))


def variation(values: Floats) -> float:
    """Return how much the slowest four waves change the logarithm of lengths: 0.1 is a tenth."""
    count = len(values)
    logs = np.log(np.maximum(values, 1e-9 * max(float(values.max()), 1e-300)))
    return float(np.sqrt(2 * np.square(slow_waves(count) @ (logs - logs.mean())).sum()) / count)
