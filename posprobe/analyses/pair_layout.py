"""Which rows of query and key weights are the two members of a pair: read from the weights alone.

Members of a pair have sizes of their own within a head, since the mean of a pair has a phase. Over
heads phases average out, and the size that belongs to a pair's frequency stays. Both together are
this project's own test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import As, Result
from posprobe.schema import Natural, Share, Size, limits

#: How rows of a head can make pairs: row i with i + P, 2 i with 2 i + 1, and either once more
#: reordered, as by a converter that is run twice.
Reading: TypeAlias = Literal["halves", "neighbours", "halves_again", "neighbours_again"]
#: Least margin of an answer, and how many standard deviations of it under chance it has to be: of
#: random weights 1 in 100 is called by mistake at most, where 5 alone calls 3 of heads 8 wide.
MARGIN, DEVIATIONS = 5.0, 3.0
#: Draws of heads, and the share of them in which the same reading has to win.
DRAWS, WINS = 300, 0.95


@dataclass(frozen=True)
class ReadingScore:
    """How well one reading fits.

    Parameters
    ----------
    reading
        Which one.
    apart
        Squared mean difference of log sizes of a pair's members over its squared error, mean over
        pairs: about 1 where they are members of one pair.
    correlation
        Of both sizes over heads, mean over pairs: negative for members of one pair alone.
    score
        Lowest where a reading fits: ``(apart - 1) / 2 + heads * correlation / 2``.
    """

    reading: Reading
    apart: Size
    correlation: float
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class PairLayout(Result):
    """How rows of queries and keys make pairs, as far as the weights tell.

    Parameters
    ----------
    answer
        The reading that fits, None where it cannot be told.
    heads
        Of queries and of keys, in all layers that were read.
    margin
        Score of the second best reading less that of the best.
    wins
        Share of draws of heads in which the best reading is the best.
    readings
        All that were tried, best first.
    """

    answer: Reading | None
    heads: Natural
    margin: Size
    wins: Share
    readings: Annotated[tuple[ReadingScore, ...], As(list[ReadingScore]), limits(minItems=1)]


def pairs_of(reading: Reading, rotated: int) -> NDArray[np.intp]:
    """Return the rows of each pair, ``[pairs, 2]``, of ``rotated`` rows of a head."""
    rows = np.arange(rotated)
    halves, neighbours = rows.reshape(2, -1).T, rows.reshape(-1, 2)
    if reading == "halves":
        return halves
    if reading == "neighbours":
        return neighbours
    # What makes halves of neighbours takes row order[i] to place i; so stood row r at argsort[r].
    order = neighbours.T.ravel()
    return np.argsort(order)[halves] if reading == "halves_again" else order[neighbours]


def pair_layout(sizes: NDArray[np.float64], *, seed: int = 0) -> PairLayout | None:
    """Tell from sizes of rows which of them make pairs.

    Parameters
    ----------
    sizes
        ``[heads, rotated]``: norms of the rows of W_Q and W_K times the gain before them, heads of
        queries and of keys of all layers.
    seed
        Of the draws of heads.

    Returns
    -------
    PairLayout
        None where fewer than two pairs or four heads leave nothing to compare, or a row is 0.

    Examples
    --------
    Pairs whose members, half a head apart, share a size of their own:

    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> angle = draw.uniform(0, np.pi / 2, (40, 8))
    >>> sizes = np.concatenate([np.cos(angle), np.sin(angle)], axis=1) * np.tile(range(1, 9), 2)
    >>> pair_layout(sizes).answer
    'halves'
    """
    heads, rotated = sizes.shape
    if heads < 4 or rotated < 4 or not (np.isfinite(sizes).all() and sizes.min() > 0):
        return None
    logs = np.log(sizes)
    logs = logs - logs.mean(axis=1, keepdims=True)
    drawn = np.random.default_rng(seed).multinomial(heads, np.full(heads, 1 / heads), DRAWS)
    once = np.ones((1, heads))
    found: dict[Reading, tuple[NDArray[np.float64], float, float]] = {}
    seen = set()
    tried: tuple[Reading, ...] = ("halves", "neighbours", "halves_again", "neighbours_again")
    for reading in tried:
        pairs = pairs_of(reading, rotated)
        # Of 8 rows, reordering them once more or back again is the same.
        if (same := frozenset(map(frozenset, pairs.tolist()))) in seen:
            continue
        seen.add(same)
        apart, correlation = _fit(logs[:, pairs], once)
        drawn_apart, drawn_correlation = _fit(logs[:, pairs], drawn)
        scores = (drawn_apart - 1) / 2 + heads * drawn_correlation / 2
        found[reading] = scores, float(apart[0]), float(correlation[0])
    table = [
        ReadingScore(reading, apart, correlation, (apart - 1) / 2 + heads * correlation / 2)
        for reading, (_, apart, correlation) in found.items()
    ]
    table.sort(key=lambda each: each.score)
    margin = table[1].score - table[0].score
    scores = np.stack([found[each.reading][0] for each in table])
    wins = float(np.mean(scores.argmin(axis=0) == 0))
    # Without pairs (chi2 - 1) / 2 has variance 1 / (2 P) and heads * correlation / 2 heads / (4 P);
    # a margin is a difference of two such scores.
    chance = math.sqrt((heads + 2) / rotated)
    sure = margin >= max(MARGIN, DEVIATIONS * chance) and wins >= WINS
    return PairLayout(table[0].reading if sure else None, heads, margin, wins, tuple(table))


def _fit(
    members: NDArray[np.float64], counts: NDArray[np.float64] | NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both parts of the score for heads counted so often: ``[draws]`` each.

    Parameters
    ----------
    members
        ``[heads, pairs, 2]``: log sizes.
    counts
        ``[draws, heads]``.
    """
    heads = len(members)
    first, second = members[:, :, 0], members[:, :, 1]

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return counts @ values / heads

    means = mean(first), mean(second)
    spread = [mean(each**2) - own**2 for each, own in zip((first, second), means, strict=True)]
    common = mean(first * second) - means[0] * means[1]
    difference = spread[0] + spread[1] - 2 * common
    tiny = np.finfo(np.float64).tiny
    apart = heads * (means[0] - means[1]) ** 2 / np.maximum(difference, tiny)
    correlation = common / np.sqrt(np.maximum(spread[0] * spread[1], tiny))
    unbiased = (heads - 1) / heads
    return unbiased * apart.mean(axis=1), unbiased * correlation.mean(axis=1)
