"""Whether a table has fewer directions than its smoothness alone gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.analyses.facts import Answer
from posprobe.analyses.linear import half_length, offset_sums, root, toeplitz
from posprobe.analyses.processes import HALF, Kernel, covariances, fit_kernels
from posprobe.analyses.views import DRAWN_ROWS, DRAWS, LEVEL, View, units
from posprobe.questions.base import Question, against, rank, too_few, verdict_of
from posprobe.questions.waves import STRETCHES

#: Directions are fewer if they spread over at most this share of what smoothness gives.
FEWER = 0.75
#: Least p-value that is believed of a value below all that are drawn.
FARTHEST = 1e-3
#: Names of the nulls, in the order in which they are drawn.
NULLS = ("stationary", "smooth", "walk")
COMPONENT_KEYS = ("pca.participation_ratio", "pca.top3")


@dataclass(frozen=True)
class LowDimensional:
    """How many directions a table has.

    Parameters
    ----------
    rows
        Number of rows.
    directions
        How many principal directions hold nine tenths of the variance.
    columns
        How many directions so many rows can have at most.
    participation, expected
        Participation ratio of rows of equal length, and its median in random tables of independent
        columns that are as smooth.
    every
        Of every so many rows both are taken: a long table is thinned.
    """

    rows: int
    directions: int
    columns: int
    participation: float
    expected: float
    every: int

    @property
    def value(self) -> dict[str, float]:
        """The number of directions, the participation ratio, and the most that there could be."""
        return {
            "directions": self.directions,
            "participation_ratio": self.participation,
            "columns": self.columns,
        }


def ask_low_dimensional(seen: View) -> Answer:
    """Ask whether the table has fewer directions than its smoothness alone gives.

    The nulls have independent columns, as many as the table: of the fitted kernel, of the smoothest
    one that reaches as far, or of a walk.
    """
    if few := too_few("low_dimensional", seen, COMPONENT_KEYS):
        return few
    n, d = seen.points.shape
    every = _every(seen.points)
    rows = units(seen.points[::every])
    kernel = fit_kernels(_powers(rows - rows.mean(axis=0))[None])[0]
    facts = LowDimensional(
        n, directions(seen), min(n - 1, d), participation(rows),
        _expected(kernel.by_offset, d), every,
    )  # fmt: skip
    if d < 3:
        return Answer("low_dimensional", "cannot tell", "few_columns", facts, keys=COMPONENT_KEYS)
    if half_length(seen.points) > n / STRETCHES:
        # Few independent stretches: any slow curve has few directions.
        return Answer("low_dimensional", "cannot tell", "slow", facts, keys=COMPONENT_KEYS)
    # Of each draw, beside what its own kernel gives: so the tables' unit is that of the table.
    nulls = facts.expected * _drawn(seen, rows, kernel)
    p = max(_rank_of_fewer(facts.participation, null) for null in nulls)
    nearest = int(np.median(nulls, axis=1).argmin())
    test = replace(against(facts.participation, nulls[nearest], NULLS[nearest], p), least=FARTHEST)
    facts = replace(facts, expected=float(np.median(nulls[nearest])))
    answer = verdict_of(p)
    reason = {"yes": "fewer", "no": "not_fewer", "cannot tell": "open"}[answer]
    if facts.participation > FEWER * facts.expected:
        answer, reason = "no", "small" if p <= LEVEL else "not_fewer"
    return Answer("low_dimensional", answer, reason, facts, test, COMPONENT_KEYS)


def _drawn(seen: View, rows: Floats, kernel: Kernel) -> Floats:
    """Return participation ratios of draws of each null, beside what their kernels give."""
    n, columns = len(rows), min(seen.points.shape[1], DRAWN_ROWS)
    rng = seen.rng(3)
    factor = root(toeplitz(kernel.by_offset))
    # As smooth as can be: fewer directions than any other kernel of that length has.
    length = max(half_length(rows), 0.5) / HALF
    smoothest = root(toeplitz(np.exp(-0.5 * (np.arange(n) / length) ** 2)))
    spread = np.empty((len(NULLS), DRAWS))
    powers = np.empty((len(NULLS), DRAWS, n - 1))
    for k in range(DRAWS):
        white = rng.standard_normal((n, columns))
        nulls = factor @ white, smoothest @ white, np.cumsum(white, axis=0)
        for null, points in enumerate(nulls):
            points = units(points - points.mean(axis=0))
            spread[null, k] = participation(points)
            powers[null, k] = _powers(points)
    kernels = fit_kernels(powers.reshape(-1, n - 1))
    expected = np.array([_expected(each, columns) for each in covariances(kernels)])
    return np.asarray(spread / expected.reshape(spread.shape))


def _powers(points: Floats) -> Floats:
    """Return the power of centred rows ``[n, d]`` in each bin of the cosine transform."""
    from scipy.fft import dct

    return np.asarray(np.square(dct(points, axis=0, norm="ortho")[1:]).sum(axis=1))


def _every(points: Floats) -> int:
    """Return the distance of the rows that are kept, at most `DRAWN_ROWS`.

    Of rows that alternate every second one would show nothing: those at the distance chosen are no
    more alike than neighbours, where there is such a distance.
    """
    n = len(points)
    least = max(1, -(-n // DRAWN_ROWS))
    if least == 1:
        return 1
    alike = offset_sums(points) / np.arange(n, 0, -1)
    return min(range(least, least + 3), key=lambda step: max(alike[step], alike[1]))


def directions(seen: View) -> int:
    """Return how many directions hold nine tenths of the variance."""
    variances = np.square(seen.coordinates).sum(axis=0)
    if variances.sum() < 0.9 * len(seen):  # their mean squared norm is 1
        gram = _small_gram(seen.points.astype(np.float32))
        variances = np.linalg.eigvalsh(gram)[::-1].astype(np.float64)
    return int(np.searchsorted(np.cumsum(variances), 0.9 * len(seen) * (1 - 1e-6)) + 1)


def participation(points: Floats) -> float:
    """Return the participation ratio of centred points ``[n, d]``."""
    return _spread(_small_gram(points))


def _small_gram(points: Floats) -> Floats:
    return points @ points.T if len(points) <= points.shape[1] else points.T @ points


def _spread(gram: Floats) -> float:
    return float(np.trace(gram) ** 2 / max(np.square(gram).sum(), np.finfo(np.float64).tiny))


def _expected(values: Floats, d: int) -> float:
    """Return the participation ratio of independent columns of a kernel, of ratio of means.

    ``values`` are its covariances at every offset.
    """
    n = len(values)
    running = np.cumsum(values)
    row = (running + running[::-1] - values[0]) / n
    mean = row.mean()
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0) * np.arange(n, 0, -1)
    squared = np.square(values) @ pairs - 2 * n * np.square(row).sum() + (n * mean) ** 2
    trace = n * (values[0] - mean)
    if trace <= 0 or squared <= 0:
        return 1.0
    own = trace**2 / squared
    return float(1 / ((1 + 1 / d) / own + 1 / d))


def _rank_of_fewer(found: float, drawn: Floats) -> float:
    """Return the rank of a ratio, or where it is below all, how far: Student's t of logarithms."""
    from scipy.special import stdtr

    ordinary = rank(-found, -drawn)
    logs, spread = np.log(drawn), float(np.log(drawn).std(ddof=1))
    if found >= drawn.min() or spread == 0:
        return ordinary
    count = len(drawn)
    distance = (np.log(max(found, 1e-300)) - logs.mean()) / (spread * np.sqrt(1 + 1 / count))
    return min(ordinary, max(float(stdtr(count - 1, distance)), FARTHEST))


LOW_DIMENSIONAL = Question(
    "low_dimensional",
    ask_low_dimensional,
    ("fewer", "small", "not_fewer", "open", "slow", "few_columns"),
)
