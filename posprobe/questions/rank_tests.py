"""Levels, rank p-values, null draws and measures of slow changes that all questions share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from posprobe.analyses.facts import MAX_YES_P, Answer, Test, TooFew, Verdict
from posprobe.analyses.view import View
from posprobe.arrays import Floats

#: Largest p-value that leaves an answer open; above it the answer may be no.
MAX_OPEN_P = 0.10
#: Smallest share of the variance, or mean cosine, that counts as an effect: a significant effect
#: below it is called small.
MIN_EFFECT_SHARE = 0.02
#: No question is asked of a table with fewer rows.
MIN_QUESTION_ROWS = 8
#: Function that answers a question about the view of a table; None where it is not asked.
AskTable: TypeAlias = Callable[[View], Answer | None]


def value_property(*names: str) -> Any:
    """Return the property ``value`` of facts: one of their fields, or several fields by name."""
    if len(names) == 1:
        return property(lambda facts: getattr(facts, names[0]))
    return property(lambda facts: {name: getattr(facts, name) for name in names})


def judge_p_value(
    p: float, yes: str, no: str, undecided_reason: str, *, has_enough: bool = True
) -> tuple[Verdict, str]:
    """Return the verdict by a p-value and its reason; no needs ``has_enough`` rows."""
    if p <= MAX_YES_P:
        return "yes", yes
    return (
        ("no", no) if p > MAX_OPEN_P and has_enough else ("cannot tell", undecided_reason)
    )


def small_table_answer(question: str, view: View, keys: tuple[str, ...]) -> Answer | None:
    """Answer cannot tell for a table that is constant or too small; else return None."""
    facts = TooFew(*view.points.shape)
    if view.is_constant:
        return Answer(question, "cannot tell", "all_equal", facts, keys=keys)
    if len(view) < MIN_QUESTION_ROWS:
        return Answer(question, "cannot tell", "too_few", facts, keys=keys)
    return None


def null_test(
    statistic: float,
    null_draws: Floats,
    null_model: str,
    p: float,
    *,
    expected: float | None = None,
    n_statistics: int = 1,
    bound: float = 0.0,
    smallest_effect: float | None = None,
) -> Test:
    """Return the record of a test, whose interval excludes the statistic only for p <= `MAX_YES_P`.

    Parameters
    ----------
    statistic
        Number that was tested.
    null_draws
        ``[draws]``, the same number of tables drawn from the nearest null model, in the same unit.
    null_model
        Name of that null model.
    p
        p-value of the statistic.
    expected
        Number expected under the null model, where values on both sides of it are evidence; None
        for the median of the draws, where those on one side are.
    n_statistics
        Number of statistics of which the strongest was taken; ``p`` is that many times as large.
    bound
        Value on the side of the draws where nothing is evidence: the smallest that the statistic
        may have, or the largest where small values are evidence. It ends the interval.
    smallest_effect
        Value that the statistic must pass, whatever the draws are, to be an effect.
    """
    if expected is None:
        expected = float(np.median(null_draws))
        sign = -1.0 if bound > expected else 1.0
        limit = sign * _critical_value(sign * null_draws, sign * statistic, n_statistics)
        limits = [limit, bound, *([] if smallest_effect is None else [smallest_effect])]
        interval = min(limits), max(limits)
    else:
        distances = np.abs(null_draws - expected)
        distance = _critical_value(distances, abs(statistic - expected), n_statistics)
        distance = max(distance, smallest_effect or 0.0)
        interval = expected - distance, expected + distance
    n_draws, least_p = len(null_draws), min(1.0, n_statistics / (len(null_draws) + 1))
    return Test(statistic, p, expected, interval, null_model, n_draws, least_p)


def _critical_value(null_draws: Floats, statistic: float, n_statistics: int) -> float:
    """Return the value above which a rank p-value is at most `MAX_YES_P`.

    With too few draws for any such value, it is the statistic itself, if that exceeds all draws.
    """
    n_above = int(MAX_YES_P * (len(null_draws) + 1) / n_statistics + 1e-9)
    if n_above < 1:
        return max(float(null_draws.max()), statistic)
    return float(np.sort(null_draws)[-n_above])


def draw_null(
    draw: Callable[[], Any],
    compute_p: Callable[[Floats], float],
    n_first_draws: int,
    max_draws: int,
) -> tuple[Floats, float]:
    """Return draws of a null model and the p-value; only the first draws if they exclude a yes.

    Parameters
    ----------
    draw
        Function that makes one draw.
    compute_p
        Function that returns the p-value against an array of draws.
    n_first_draws, max_draws
        Number of draws in any case, and at most.
    """
    null_draws = np.array([draw() for _ in range(n_first_draws)])
    if compute_p(null_draws) <= MAX_YES_P:
        null_draws = np.concatenate(
            [null_draws, [draw() for _ in range(max_draws - n_first_draws)]]
        )
    return null_draws, compute_p(null_draws)


def binomial_tail(count: int, n_trials: int, probability: float) -> float:
    """Return the probability of ``count`` or more successes in ``n_trials`` trials."""
    return math.fsum(
        math.comb(n_trials, k) * probability**k * (1 - probability) ** (n_trials - k)
        for k in range(count, n_trials + 1)
    )


#: Smallest relative change of norms or speed along the table that counts: a tenth, which a reader
#: of their curve sees as a change.
MIN_VISIBLE_CHANGE = 0.1
#: Fewest half-lengths (distances at which similarity halves) in a table: with fewer independent
#: stretches, any curve changes slowly.
MIN_HALF_LENGTHS = 8


def centred_ranks(values: Floats) -> Floats:
    """Return the centred ranks ``[..., n]`` of values, over ``n``; ties rank in order."""
    n = values.shape[-1]
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / n
    return np.asarray((ranks - (n - 1) / (2 * n)) / n)


def slow_waves(n: int) -> Floats:
    """Return the four slowest cosine waves over ``n`` values: ``[4, n]``."""
    return np.asarray(np.cos(np.pi * np.outer(np.arange(1, 5), np.arange(n) + 0.5) / n))


def slow_variation(lengths: Floats) -> float:
    """Return the RMS change of log lengths by their slowest four waves; 0.1 is a tenth."""
    n = len(lengths)
    logs = np.log(np.maximum(lengths, 1e-9 * max(float(lengths.max()), 1e-300)))
    return float(np.sqrt(2 * np.square(slow_waves(n) @ (logs - logs.mean())).sum()) / n)
