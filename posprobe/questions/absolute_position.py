"""Whether similarity depends on where positions are, beside how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.copies import Copies
from posprobe.analyses.composition.processes import HALF_WIDTH_RATIO
from posprobe.analyses.descriptive.similarity import by_displacement, sums_of_rows, unit_rows
from posprobe.analyses.facts import Answer, Test, Verdict
from posprobe.analyses.linear import leading, root, toeplitz
from posprobe.analyses.view import DRAWN_ROWS, DRAWS, LEVEL, View, signed
from posprobe.arrays import Floats
from posprobe.questions.rank_tests import (
    LEAST_SHARE,
    OPEN,
    SLIGHT,
    STRETCHES,
    against,
    rank,
    ranks,
    shown,
    slow_waves,
    too_few,
    variation,
)
from posprobe.questions.sequences import STRIDES

#: Draws of the stationary process, and how many where the first leave a yes possible: so many that
#: the least p-value of four numbers, 4 / 560, stands alone among the questions of a table.
FIRST_DRAWS, ALL_DRAWS = 5 * DRAWS + 4, 559
#: Draws that are measured at a time, which stay in the cache.
DRAWS_PER_BATCH = 16
#: Share of kernels as long as half the table above which nobody knows whether it stays in bounds.
LONG_SHARE = 0.25
#: Squares by which distances may differ where the offset decides them, as a share of the table's
#: and of those at the offset: what rounding to 16 bits does; and rows that are looked at, the first
#: and as many along the whole table.
EXACT, EXACT_HERE, EXACT_ROWS = 1e-4, 1e-3, 512
#: Fewest rows, and largest variance beside that of random walks with its steps, of a table that is
#: said to stay in bounds.
ENOUGH, BOUNDED = 16, 0.67
#: Times as long as its movements are related a table must be before it is said to wander.
LONG = 16
#: Names of the nulls, in the order in which they are drawn.
NULLS = ("stationary", "smooth")
KEYS = ("similarity.centered.translation_invariance",)

Path: TypeAlias = Literal["exact", "equally_far", "bounded", "wanders", "unknown"]
Sign: TypeAlias = Literal["products", "norms", "speed", "mirrored", "opposed"]
_SIGNS: tuple[Sign, ...] = ("products", "norms", "speed", "mirrored")


@dataclass(frozen=True)
class Place:
    """The strongest sign that places matter.

    Parameters
    ----------
    sign
        What differs by place. ``products``: inner products of centred rows at one distance.
        ``norms``: distances from the mean row. ``speed``: sizes of steps. ``mirrored``,
        ``opposed``: rows equally far before and after some place are similar, or opposed.
    share, typical
        Share that places explain, and its median in random stationary tables: of the squares of
        inner products, or of the variance of the ranks of norms or of steps.
    large
        Whether that is significant and more than a little.
    """

    sign: Sign
    share: float
    typical: float
    large: bool


@dataclass(frozen=True)
class AbsolutePosition:
    """What tells that similarity depends on absolute position, or does not.

    Parameters
    ----------
    rows
        Number of rows.
    path
        Whether distances follow from the offset but for rounding (``exact``; all of them equal:
        ``equally_far``), the table stays in bounds, wanders as far as its steps with random signs
        do, or neither shows.
    place
        The strongest sign that places matter.
    invariance
        Share of the variance of centred cosines that distance explains; None where they do not
        vary.
    variance_ratio
        Variance, beside the median of random walks with the same steps.
    misfit
        Share of the squares of inner products that distance leaves unexplained.
    p_walk, p_shift
        Rank p-values: of staying in bounds, among those walks; and of the strongest sign, among
        random stationary tables.
    copies
        What another answer shows: rows that are copies of others.
    """

    rows: int
    path: Path
    place: Place
    invariance: float | None
    variance_ratio: float
    misfit: float
    p_walk: float
    p_shift: float
    copies: Copies | None = None

    @property
    def exact(self) -> bool:
        """Whether distances follow from the offset but for rounding."""
        return self.path in {"exact", "equally_far"}

    @property
    def equally_far(self) -> bool:
        """Whether any two rows are equally far apart."""
        return self.path == "equally_far"

    value = shown("variance_ratio", "misfit", "p_walk", "p_shift")


def ask_absolute_position(view: View) -> Answer:
    """Ask whether similarity depends on where positions are, beside their distance.

    Four numbers are held against stationary processes: how much inner products at one distance
    differ, slow changes of norms and of speed, and mirrored places. A table in which none is
    unusual must stay in bounds, unlike its own steps with random signs, before distance alone is
    said to count.
    """
    if too_few_answer := too_few("absolute_position", view, KEYS):
        return too_few_answer
    n = len(view)
    block = _independent(view)
    walks = signed(view.steps, block, view.rng(7)) if block > 1 else view.signed_walks
    variance = walks.var(axis=1).sum(axis=1).astype(np.float64)
    p_walk = rank(-variance[0], -variance[1:])
    ratio = float(variance[0] / max(np.median(variance[1:]), np.finfo(np.float64).tiny))
    place, misfit, test = _strongest(view)
    all_as_far = variation(np.linalg.norm(view.coordinates, axis=1)) <= SLIGHT  # from the mean row
    path: Path = "unknown"
    if (p_walk <= LEVEL or all_as_far) and _exact(view.points):
        path = "equally_far" if _equally_far(view.points) else "exact"
    elif p_walk <= LEVEL and n >= ENOUGH and ratio <= BOUNDED:
        path = "bounded"
    elif p_walk > OPEN and n >= max(LONG * block, ENOUGH):
        path = "wanders"
    invariance = _invariance(view.points)
    facts = AbsolutePosition(n, path, place, invariance, ratio, misfit, p_walk, test.p)
    if facts.exact:
        return Answer("absolute_position", "no", path, facts, keys=KEYS)
    answer: Verdict = "cannot tell"
    reason = {"bounded": "maybe_place", "wanders": "wanders"}.get(path, "few_steps")
    if test.p <= LEVEL and place.large:
        answer, reason = "yes", f"place_{place.sign}"
    elif p_walk <= LEVEL and test.p > OPEN and view.kernel.long > LONG_SHARE:
        reason = "slow"
    elif path == "bounded" and not LEVEL < test.p <= OPEN:
        answer, reason = "no", "bounded" if test.p > OPEN else "small"
    return Answer("absolute_position", answer, reason, facts, test, KEYS)


def _strongest(view: View) -> tuple[Place, float, Test]:
    """Return the strongest sign that places matter, the misfit, and the test of that sign.

    A sign that is significant and large comes before one that is significant and small.
    """
    stride = -(-len(view) // DRAWN_ROWS)
    # All directions: a few leading ones of many columns are the slowest waves of any stationary
    # table, each with a phase of its own, and such waves mirror places and change norms.
    rows = leading(view.points[::stride], DRAWN_ROWS)
    statistics, mirrored = _unequal(rows)
    # Norms or speeds that hardly change leave the distance in charge; and those of a curve with few
    # bends change slowly by themselves.
    bends = len(view) >= STRETCHES * view.half_length
    slow = (bends and variation(lengths) > SLIGHT for lengths in _lengths(rows))
    counts = np.array([True, *slow, True])
    null_draws = _draws(view, rows, stride, statistics, counts)
    medians = np.median(null_draws, axis=1)
    # By number, the p-value of the nearest null, which of the two it is, and whether it shows.
    null_ranks = np.array(
        [[rank(statistics[k], null[:, k]) for k in range(4)] for null in null_draws]
    )
    nearest = [int(np.lexsort((medians[:, k], null_ranks[:, k]))[-1]) for k in range(4)]
    ps = np.where(counts, null_ranks.max(axis=0), 1.0)
    large = statistics - medians.max(axis=0) >= LEAST_SHARE
    showing = (4 * ps <= LEVEL) & large
    weakest = int((ps + ~showing).argmin())
    null = null_draws[nearest[weakest], :, weakest]
    test = against(
        float(statistics[weakest]), null, NULLS[nearest[weakest]], min(1.0, 4 * float(ps[weakest]))
    )
    # Wherever a yes is possible, all are drawn.
    test = replace(test, least=4 / (1 + ALL_DRAWS))
    sign: Sign = _SIGNS[weakest] if weakest < 3 or mirrored else "opposed"
    place = Place(sign, float(statistics[weakest]), float(np.median(null)), bool(showing.any()))
    return place, float(statistics[0]), test


def _draws(
    view: View, rows: Floats, stride: int, statistics: Floats, counts: NDArray[np.bool_]
) -> Floats:
    """Return the four numbers of draws of both nulls: ``[nulls, draws, 4]``.

    The fitted process and, for norms and speed alone, the smoothest one that reaches as far: a
    curve with few bends changes them slowly though no place is special. The rest is drawn only
    where the first leave a p-value of `LEVEL` possible.
    """
    n = len(view)
    length = max(view.half_length, 0.5) / HALF_WIDTH_RATIO
    smoothest = np.exp(-0.5 * np.square(np.arange(0, n, stride) / length))
    factors = [
        root(toeplitz(correlations))
        for correlations in (view.kernel.by_offset[::stride], smoothest)
    ]
    columns = np.sqrt(np.square(rows).sum(axis=0))
    rng = view.rng(2)
    null_draws = np.full((2, ALL_DRAWS, 4), -np.inf)
    for first_draw, stop in pairwise((0, FIRST_DRAWS, ALL_DRAWS)):
        for draw in range(first_draw, stop, DRAWS_PER_BATCH):
            count = min(DRAWS_PER_BATCH, stop - draw)
            white = rng.standard_normal((count, *rows.shape))
            null_draws[0, draw : draw + count] = _unequal(factors[0] @ white * columns)[0]
            if counts[1:3].any():
                slow = _slow_lengths(factors[1] @ white * columns)
                null_draws[1, draw : draw + count, 1:3] = slow
        reached = (
            (null_draws[:, :stop] >= statistics - 1e-9 * np.abs(statistics)).sum(axis=1).max(axis=0)
        )
        if 4 * (1 + reached[counts].min()) > LEVEL * (1 + ALL_DRAWS):
            break
    return null_draws[:, :stop]


def _invariance(points: Floats) -> float | None:
    """Return the share of the variance of centred cosines that distance explains."""
    rows, is_defined = unit_rows(points, np, centered=True)
    return sums_of_rows(rows, is_defined, 1, len(points), np).numbers()["translation_invariance"]


def _independent(view: View) -> int:
    """Return over how many steps the table must move for its movements to be unrelated.

    Movements that are shorter than those over fewer steps do not count: what goes round comes back,
    and over nearly a whole turn its movements are alike again.
    """
    path, n_independent, farthest = view.signed_walks[0], 1, 0.0
    for stride in (*STRIDES, 64, 128, 256, 512):
        displacement = path[stride:] - path[:-stride]
        if len(displacement) <= 2 * stride:
            break
        overlap = float(np.vdot(displacement[stride:], displacement[:-stride]))
        squares = float(np.square(displacement).sum())
        if overlap > 0.15 * squares and squares >= farthest * len(displacement):
            n_independent = 2 * stride
        farthest = max(farthest, squares / len(displacement))
    return n_independent


def _unequal(rows: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return how unequal places are: by inner products, by norms, by speed, by mirrored places.

    For rows ``[..., n, r]`` of any number of tables these four, ``[..., 4]``, and whether the
    mirrored places are alike where they matter most.

    By inner products: the share of the Gram matrix's squares, all distances apart, that its
    diagonal means leave. By mirrored places: the share that their means hold. Places that mirror
    each other at one place are all an even number of positions apart, or all an odd one, which
    distance explains where rows alternate: neighbouring centres are taken together, each with that
    on either side, and so twice.
    """
    n = rows.shape[-2]
    points = rows - rows.mean(axis=-2, keepdims=True)
    gram = points @ points.swapaxes(-1, -2)
    total_power = np.maximum(np.square(gram).sum(axis=(-1, -2)), np.finfo(np.float64).tiny)
    lag_variance, cyclic_variance = (
        by_displacement(products, n, 1, np)[..., 0].astype(gram.dtype)
        for products in (gram, gram[..., ::-1])
    )
    count = np.minimum(np.arange(1, 2 * n), np.arange(2 * n - 1, 0, -1))
    misfit = 1 - (np.square(lag_variance) / count).sum(axis=-1) / total_power
    neighbour_sums = cyclic_variance[..., 1:] + cyclic_variance[..., :-1]
    squares = np.square(neighbour_sums) / (count[1:] + count[:-1])
    mirrored = squares.sum(axis=-1) / (2 * total_power)
    largest_share = np.take_along_axis(neighbour_sums, squares.argmax(axis=-1)[..., None], axis=-1)[
        ..., 0
    ]
    numbers = np.concatenate([misfit[..., None], _slow_lengths(rows), mirrored[..., None]], axis=-1)
    return numbers, largest_share > 0


def _lengths(rows: Floats) -> tuple[Floats, Floats]:
    """Return the norms of rows ``[..., n, r]``, and of the steps between them."""
    return np.linalg.norm(rows, axis=-1), np.linalg.norm(np.diff(rows, axis=-2), axis=-1)


def _slow_lengths(rows: Floats) -> Floats:
    """Return the shares of the variance of `_lengths` that their slowest four waves explain.

    As ranks: single rows do not count. Of rows ``[..., n, r]``: ``[..., 2]``.
    """
    slow = []
    for length_ranks in map(ranks, _lengths(rows)):
        count = length_ranks.shape[-1]
        power = np.square(length_ranks @ slow_waves(count).T).sum(axis=-1)
        slow.append(2 * power / (count * np.square(length_ranks).sum(axis=-1)))
    return np.stack(slow, axis=-1)


def _exact(points: Floats) -> bool:
    """Say whether offsets decide all distances, of neighbours and along the whole table."""
    sampled = points[:: -(-len(points) // EXACT_ROWS)]
    parts = _unlike_by_place(points[:EXACT_ROWS]), _unlike_by_place(sampled)
    return all(misfit <= EXACT and local_misfit <= EXACT_HERE for misfit, local_misfit in parts)


def _equally_far(points: Floats) -> bool:
    """Say whether rows are as far from each other as all others are, as those of one-hot codes."""
    rows = points[:: -(-len(points) // EXACT_ROWS)]
    squared = _squared_distances(rows)[~np.eye(len(rows), dtype=bool)]
    return bool(np.ptp(squared) <= 4 * np.sqrt(EXACT) * squared.mean())


def _unlike_by_place(rows: Floats) -> tuple[float, float]:
    """Return the squares by which squared distances differ from their mean at each offset.

    Relative to those of the Gram matrix, and, where that is most, to those of the mean at the same
    offset: far rows of a line are so far apart that any noise is small beside them. Unlike inner
    products of centred rows, distances between rows of a sinusoid follow from the offset whatever
    the mean row is.
    """
    squared = _squared_distances(rows).ravel()
    places = np.arange(len(rows))
    offset = np.abs(places - places[:, None]).ravel()
    pairs = np.bincount(offset)
    mean = np.bincount(offset, squared) / pairs
    squared_deviations = np.bincount(offset, np.square(squared - mean[offset]))
    tiny = np.finfo(np.float64).tiny
    largest_deviation = float(
        (squared_deviations[1:] / np.maximum(pairs * np.square(mean), tiny)[1:]).max(initial=0.0)
    )
    return float(squared_deviations.sum()) / max(
        4 * float(np.square(rows @ rows.T).sum()), tiny
    ), largest_deviation


def _squared_distances(rows: Floats) -> Floats:
    gram = rows @ rows.T
    norms = np.diag(gram)
    return np.asarray(norms[:, None] + norms - 2 * gram)
