"""What is asked of a table on a line: whether order matters, it is smooth, of few components."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.copies import Copies
from posprobe.analyses.facts import Answer
from posprobe.analyses.linear import leading
from posprobe.analyses.views import DRAWS, LEVEL, View, chance_cosine, units
from posprobe.questions.base import LEAST_SHARE, Question, against, rank, too_few, verdict_of
from posprobe.questions.waves import SLIGHT, ranks, slow_waves, variation

#: Permutations of the rows: so many that the least p-value of three numbers, 3 / 491, stands alone
#: among the questions of a table.
ORDER_DRAWS = 10 * DRAWS
#: Error of a mean of cosines in single precision.
ROUNDING = 1e-6
ORDER_KEYS = ("similarity.centered.neighbour_mean", "spectrum.entropy")


@dataclass(frozen=True)
class Order:
    """What tells that order matters.

    Parameters
    ----------
    rows
        Number of rows.
    cosine, chance
        Mean cosine of neighbouring rows as seen from the middle, and of any two rows.
    period, share, typical
        Of the strongest wave: its period in positions, its share of the variance of the rows'
        directions, and the median of that share in random order.
    farther
        Ratio of the median distances from the middle, of the quarter of the table where it is
        largest to the one where it is smallest.
    turns, copies
        What another answer shows: turns of what winds, and rows that are copies of others.
    """

    rows: int
    cosine: float
    chance: float
    period: float
    share: float
    typical: float
    farther: float
    turns: float | None = None
    copies: Copies | None = None

    @property
    def value(self) -> float:
        """The mean cosine of neighbours."""
        return self.cosine


def ask_order(seen: View) -> Answer:
    """Ask whether the order of the rows matters.

    Three numbers: the mean cosine of neighbouring rows; the greatest share of the spectrum in one
    frequency, which finds rotations whose neighbours are orthogonal; and how much of the distances
    from the middle, as ranks, is in their slowest four waves.
    """
    if few := too_few("order", seen, ORDER_KEYS):
        return few
    unit_rows = units(seen.points)
    # Of the Gram matrix, a permutation needs the entries of neighbours alone.
    single = unit_rows.astype(np.float32)
    gram = single @ single.T
    short = leading(unit_rows, 8).astype(np.float32)
    away = np.linalg.norm(seen.points, axis=1)
    by_rank, waves = ranks(away), slow_waves(len(away))
    rng = seen.rng(0)
    found = np.empty((3, ORDER_DRAWS + 1))
    for k in range(ORDER_DRAWS + 1):
        places = np.arange(len(short)) if k == 0 else rng.permutation(len(short))
        found[0, k] = gram[places[1:], places[:-1]].mean(dtype=np.float64)
        found[1, k] = _waves(short[places]).max()
        found[2, k] = np.square(waves @ by_rank[places]).sum()
    cosine = float(np.einsum("ij,ij->i", unit_rows[1:], unit_rows[:-1]).mean())
    chance = chance_cosine(unit_rows)
    # Single precision: what it rounds is no difference.
    apart = np.maximum(np.abs(found[0] - chance) - ROUNDING, 0.0)
    ahead, turning, far = (rank(each[0], each[1:]) for each in (apart, *found[1:]))
    if variation(away) <= SLIGHT:
        far = 1.0
    p = min(1.0, 3 * min(ahead, turning, far))
    power = _waves(short)
    whole = float(power.sum())
    quarters = [float(np.median(part)) for part in np.array_split(away, 4)]
    facts = Order(
        rows=len(seen), cosine=cosine, chance=chance,
        period=len(short) / (int(power.argmax()) + 1), share=float(found[1, 0]) / whole,
        typical=float(np.median(found[1, 1:])) / whole,
        farther=max(quarters) / max(min(quarters), 1e-9 * max(quarters), 1e-300),
    )  # fmt: skip
    answer = verdict_of(p, enough=len(seen) >= 16)
    reason = {"no": "none", "cannot tell": "open"}.get(answer, "neighbours")
    # Which of the three is told: the cosine where it is evidence by itself, else what is.
    if answer == "yes" and 3 * ahead > LEVEL:
        wave = 3 * turning <= LEVEL
        reason = "wave" if 3 * far > LEVEL else "norms_and_wave" if wave else "norms"
    small = abs(cosine - chance) if reason == "neighbours" else facts.share - facts.typical
    if reason in {"neighbours", "wave"} and small < LEAST_SHARE:
        answer, reason = "no", "small"
    test = replace(against(cosine, found[0, 1:], "permuted", p, times=3), null=chance)
    return Answer("order", answer, reason, facts, test, ORDER_KEYS)


def _waves(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the power of rows at each frequency but 0, as it adds up to their variance."""
    power = np.square(np.abs(np.fft.rfft(rows, axis=0)[1:])).sum(axis=1)
    # All but the fastest of an even number of rows stand for two frequencies of the transform.
    power[: (len(rows) - 1) // 2] *= 2
    return np.asarray(power)


ORDER = Question(
    "order",
    ask_order,
    ("neighbours", "wave", "norms", "norms_and_wave", "none", "open", "small", "winding", "copies"),
)
