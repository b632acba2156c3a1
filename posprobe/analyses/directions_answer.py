"""Whether a table has fewer directions than its smoothness alone gives."""

from __future__ import annotations

import numpy as np

from posprobe.analyses.answer import Answer, rank, too_few, verdict_of
from posprobe.analyses.closeness import Floats
from posprobe.analyses.stationary import (
    Kernel,
    fit_kernel,
    fit_offsets,
    half_length,
    offset_sums,
    root,
    toeplitz,
)
from posprobe.analyses.views import DRAWN_ROWS, DRAWS, View, units

#: Directions are fewer if they spread over at most this share of what smoothness gives.
FEWER = 0.75
#: A squared exponential kernel halves at so many of its lengths.
HALF = 1.18
#: The table must be so many times as long as its rows' likeness reaches.
STRETCHES = 8
#: Least p-value that is believed of a value below all that are drawn.
FARTHEST = 1e-3


def low_dimensional(shared: View) -> Answer:
    """Ask whether the table has fewer directions than its smoothness alone gives.

    The null has independent columns of the fitted kernel, or of a walk, as many as the table.
    """
    keys = ("pca.participation_ratio", "pca.top3")
    if few := too_few("low_dimensional", shared, keys):
        return few
    n, d = shared.points.shape
    if d < 3:
        return Answer(
            "low_dimensional",
            "cannot tell",
            f"Cannot be told of {d} column{'s' if d > 1 else ''}.",
            keys=keys,
        )
    unit_rows = units(shared.points)
    spread, expected = participation(unit_rows), _expected(fit_kernel(unit_rows), n, d)
    told, value = told_directions(shared, spread, expected, "rows")
    if half_length(shared.points) > n / STRETCHES:
        # Few independent stretches: any slow curve has few directions.
        text = f"Cannot be told from {n} rows that change so slowly: {told}."
        return Answer("low_dimensional", "cannot tell", text, value, expected, keys=keys)
    p, ratio = _fewer(shared)
    # Evidence for hardly fewer is no yes.
    answer = verdict_of(p if ratio <= FEWER else 1.0)
    sentence = {
        "yes": f"Yes: {told}, so they are unusually few.",
        "no": f"No, not clearly fewer than its smoothness gives: {told}.",
        "cannot tell": f"Cannot be told from {n} rows: {told}.",
    }[answer]
    return Answer("low_dimensional", answer, sentence, value, expected, p, ratio, keys)


def told_directions(
    shared: View, spread: float, expected: float, rows: str
) -> tuple[str, dict[str, float]]:
    """Say how many directions a table has, as a part of a sentence; and the numbers in it.

    Parameters
    ----------
    shared
        The table.
    spread, expected
        `participation` of its rows (or patches: ``rows``) of equal length, and of the null.
    """
    n, d = shared.points.shape
    count = _directions(shared)
    are = "1 direction holds" if count == 1 else f"{count} directions hold"
    told = (
        f"{are} nine tenths of the variance; with all {rows} given the same length, the effective "
        f"number of directions (participation ratio) is {spread:.3g}, that of independent columns "
        f"as smooth {expected:.3g}"
    )
    value = {"directions": count, "participation_ratio": spread, "columns": min(n - 1, d)}
    return told, value


def _fewer(shared: View) -> tuple[float, float]:
    """Return the rank among the nulls of how few directions rows take, and the ratio to them."""
    d = shared.points.shape[1]
    thinned = units(_thinned(shared.points))
    rows, columns = len(thinned), min(d, DRAWN_ROWS)
    kernel = fit_kernel(thinned)
    found = participation(thinned) / _expected(kernel, rows, d)
    distance = (np.arange(rows) - np.arange(rows)[:, None]).ravel() + rows - 1
    rng = shared.rng(3)
    factor = root(toeplitz(kernel.by_offset(rows)))
    # As smooth as can be: fewer directions than any other kernel of that length has.
    length = max(half_length(thinned), 0.5) / HALF
    smoothest = root(toeplitz(np.exp(-0.5 * (np.arange(rows) / length) ** 2)))
    drawn = np.empty((3, DRAWS))
    for k in range(DRAWS):
        white = rng.standard_normal((rows, columns))
        nulls = factor @ white, smoothest @ white, np.cumsum(white, axis=0)
        for null, points in enumerate(nulls):
            points = units(points - points.mean(axis=0))
            gram = points @ points.T
            sums = np.bincount(distance, gram.ravel())[rows - 1 :].astype(np.float64)
            drawn[null, k] = _spread(gram) / _expected(fit_offsets(sums), rows, columns)
    return (
        max(_rank_of_fewer(found, null) for null in drawn),
        max(found / float(np.median(null)) for null in drawn),
    )


def _thinned(points: Floats) -> Floats:
    """Return at most `DRAWN_ROWS` rows, evenly spaced.

    Of rows that alternate every second one would show nothing: those at the distance chosen are no
    more alike than neighbours, where there is such a distance.
    """
    n = len(points)
    least = max(1, -(-n // DRAWN_ROWS))
    if least == 1:
        return points
    alike = offset_sums(points) / np.arange(n, 0, -1)
    distance = min(range(least, least + 3), key=lambda step: max(alike[step], alike[1]))
    return points[::distance]


def _directions(shared: View) -> int:
    """Return how many directions hold nine tenths of the variance."""
    variances = np.square(shared.coordinates).sum(axis=0)
    if variances.sum() < 0.9 * len(shared):  # their mean squared norm is 1
        gram = _small_gram(shared.points.astype(np.float32))
        variances = np.linalg.eigvalsh(gram)[::-1].astype(np.float64)
    return int(np.searchsorted(np.cumsum(variances), 0.9 * len(shared) * (1 - 1e-6)) + 1)


def _small_gram(points: Floats) -> Floats:
    return points @ points.T if len(points) <= points.shape[1] else points.T @ points


def participation(points: Floats) -> float:
    """Return the participation ratio of centred points ``[n, d]``."""
    return _spread(_small_gram(points))


def _spread(gram: Floats) -> float:
    return float(np.trace(gram) ** 2 / max(np.square(gram).sum(), np.finfo(np.float64).tiny))


def _expected(kernel: Kernel, n: int, d: int) -> float:
    """Return the participation ratio of independent columns of a kernel, of ratio of means."""
    values = kernel.by_offset(n)
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
