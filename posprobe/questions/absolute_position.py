"""Whether similarity depends on absolute position, not on distance alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.copies import Copies
from posprobe.analyses.composition.processes import HALF_WIDTH_RATIO
from posprobe.analyses.descriptive.similarity import (
    sum_by_displacement,
    sum_cosines,
    unit_rows,
)
from posprobe.analyses.facts import MAX_YES_P, Answer, Test, Verdict
from posprobe.analyses.linear import covariance_root, leading_coordinates, toeplitz
from posprobe.analyses.resampling import rank_p_value
from posprobe.analyses.view import MAX_DRAW_ROWS, N_NULL_DRAWS, View, sum_signed_steps
from posprobe.arrays import Floats
from posprobe.questions.rank_tests import (
    MAX_OPEN_P,
    MIN_EFFECT_SHARE,
    MIN_HALF_LENGTHS,
    MIN_VISIBLE_CHANGE,
    centred_ranks,
    null_test,
    slow_variation,
    slow_waves,
    small_table_answer,
    value_property,
)

#: Draws of the stationary process in any case.
N_FIRST_STATIONARY_DRAWS = 5 * N_NULL_DRAWS + 4
#: Draws of the stationary process where the first ones leave a yes possible: the smallest p-value
#: of four statistics, 4 / 560, is significant alone among the questions about a table.
N_STATIONARY_DRAWS = 559
#: Draws measured at a time: their arrays stay in the cache.
DRAWS_PER_BATCH = 16
#: Largest share of kernels as long as half the table at which it can be told to stay in bounds.
MAX_LONG_KERNEL_SHARE = 0.25
#: Largest squared deviation of distances from their means by offset that rounding to 16 bits
#: explains, as a share of the squares of the Gram matrix.
MAX_ROUNDING_MISFIT = 1e-4
#: The same limit as a share of the squares at one offset.
MAX_LOCAL_ROUNDING_MISFIT = 1e-3
#: Rows whose distances are compared: the first ones, and as many spread over the whole table.
MAX_DISTANCE_ROWS = 512
#: Lengths of the steps whose relation is looked at, in positions.
STRIDES = (1, 2, 4, 8, 16, 32)
#: Fewest rows of a table that is said to stay in bounds.
MIN_BOUNDED_ROWS = 16
#: Largest variance of a table that stays in bounds, over that of random walks with its steps.
MAX_BOUNDED_VARIANCE_RATIO = 0.67
#: Fewest blocks of related movements in a table that is said to wander.
MIN_UNRELATED_BLOCKS = 16
#: Names of the null models, in the order in which they are drawn.
STATIONARY_NULL_NAMES = ("stationary", "smooth", "columns")
#: Keys of the numbers in ``analysis.json`` that belong to the question.
CLOCK_KEYS = ("clock.shared", "clock.variation")
ABSOLUTE_POSITION_KEYS = ("similarity.centered.translation_invariance",)

PathBehaviour: TypeAlias = Literal[
    "exact", "equally_far", "bounded", "wanders", "unknown"
]
SignName: TypeAlias = Literal["products", "norms", "speed", "mirrored", "opposed"]
_SIGNS: tuple[SignName, ...] = ("products", "norms", "speed", "mirrored")


@dataclass(frozen=True)
class PositionSign:
    """The strongest sign that absolute position matters.

    Parameters
    ----------
    sign
        Quantity that differs by position. ``products``: inner products of centred rows at one
        distance. ``norms``: distances from the mean row. ``speed``: sizes of steps. ``mirrored``,
        ``opposed``: rows at equal distances before and after a centre are similar, or opposed.
    share, typical
        Share that position explains, and its median in random stationary tables: a share of the
        squares of inner products, or of the variance of the ranks of norms or of steps.
    large
        Whether the share is significant and no small effect.
    """

    sign: SignName
    share: float
    typical: float
    large: bool


@dataclass(frozen=True)
class AbsolutePosition:
    """Evidence that similarity depends on absolute position, or does not.

    Parameters
    ----------
    rows
        Number of rows.
    path
        Behaviour of the rows. ``exact``: up to rounding, distances follow from the offset.
        ``equally_far``: all distances are equal. ``bounded``: the table stays in bounds.
        ``wanders``: it moves as far as its steps with random signs do. ``unknown``: neither shows.
    place
        Strongest sign that absolute position matters.
    invariance
        Share of the variance of centred cosines that distance explains; None where they do not
        vary.
    variance_ratio
        Variance over the median of random walks with the same steps.
    misfit
        Share of the squares of inner products that distance leaves unexplained.
    p_walk, p_shift
        Rank p-values of staying in bounds, among those walks, and of the strongest sign, among
        random stationary tables.
    copies
        Rows that are copies of others, from another answer.
    variation
        Half the difference of the largest and the smallest speed of the clock that all rotations
        read, on average 1; None where they read none.
    """

    rows: int
    path: PathBehaviour
    place: PositionSign
    invariance: float | None
    variance_ratio: float
    misfit: float
    p_walk: float
    p_shift: float
    copies: Copies | None = None
    variation: float | None = None

    @property
    def exact(self) -> bool:
        """Whether distances follow from the offset up to rounding."""
        return self.path in {"exact", "equally_far"}

    @property
    def equally_far(self) -> bool:
        """Whether any two rows are equally far apart."""
        return self.path == "equally_far"

    value = value_property("variance_ratio", "misfit", "p_walk", "p_shift")


def ask_absolute_position(view: View) -> Answer:
    """Ask whether similarity depends on absolute position, not on distance alone.

    Four statistics are tested against stationary processes: the differences of inner products at
    one distance, slow changes of norms, slow changes of speed, and mirrored rows. If none is
    unusual, the table must also stay in bounds, unlike its own steps with random signs, before
    distance alone is said to count.
    """
    if refusal := small_table_answer("absolute_position", view, ABSOLUTE_POSITION_KEYS):
        return refusal
    n = len(view)
    block_steps = _independent_steps(view)
    walks = (
        sum_signed_steps(view.steps, block_steps, view.rng(7))
        if block_steps > 1
        else view.signed_walks
    )
    variances = walks.var(axis=1).sum(axis=1).astype(np.float64)
    p_walk = rank_p_value(-variances[0], -variances[1:])
    variance_ratio = float(
        variances[0] / max(np.median(variances[1:]), np.finfo(np.float64).tiny)
    )
    strongest_sign, misfit, test = _strongest_sign(view)
    row_norms = np.linalg.norm(view.coordinates, axis=1)  # distances from the mean row
    has_equal_norms = slow_variation(row_norms) <= MIN_VISIBLE_CHANGE
    path: PathBehaviour = "unknown"
    if (p_walk <= MAX_YES_P or has_equal_norms) and _has_exact_distances(view.points):
        path = "equally_far" if _is_equidistant(view.points) else "exact"
    elif (
        p_walk <= MAX_YES_P
        and n >= MIN_BOUNDED_ROWS
        and variance_ratio <= MAX_BOUNDED_VARIANCE_RATIO
    ):
        path = "bounded"
    elif p_walk > MAX_OPEN_P and n >= max(
        MIN_UNRELATED_BLOCKS * block_steps, MIN_BOUNDED_ROWS
    ):
        path = "wanders"
    invariance = _translation_invariance(view.points)
    facts = AbsolutePosition(
        n, path, strongest_sign, invariance, variance_ratio, misfit, p_walk, test.p
    )
    if facts.exact:
        return Answer("absolute_position", "no", path, facts, keys=ABSOLUTE_POSITION_KEYS)
    clock = view.rotation_fit.clock
    if clock is not None and clock.is_shared:
        facts = replace(facts, variation=float(np.ptp(clock.speed)) / 2)
        return Answer("absolute_position", "yes", "clock", facts, keys=CLOCK_KEYS)
    answer: Verdict = "cannot tell"
    reason = {"bounded": "maybe_place", "wanders": "wanders"}.get(path, "few_steps")
    if test.p <= MAX_YES_P and strongest_sign.large:
        answer, reason = "yes", f"place_{strongest_sign.sign}"
    elif (
        p_walk <= MAX_YES_P
        and test.p > MAX_OPEN_P
        and view.kernel.long_share > MAX_LONG_KERNEL_SHARE
    ):
        reason = "slow"
    elif path == "bounded" and not MAX_YES_P < test.p <= MAX_OPEN_P:
        answer, reason = "no", "bounded" if test.p > MAX_OPEN_P else "small"
    return Answer(
        "absolute_position", answer, reason, facts, test, ABSOLUTE_POSITION_KEYS
    )


def _strongest_sign(view: View) -> tuple[PositionSign, float, Test]:
    """Return the strongest sign that position matters, the misfit, and the test of that sign.

    A significant and large sign comes before a significant and small one.
    """
    stride = -(-len(view) // MAX_DRAW_ROWS)
    # All directions are kept: the few leading ones of many columns are the slowest waves of any
    # stationary table, each with its own phase, and such waves mirror rows and change norms.
    rows = leading_coordinates(view.points[::stride], MAX_DRAW_ROWS)
    statistics, is_mirrored = _position_statistics(rows)
    # Norms and speeds count only if they change visibly, and only if the curve has enough bends:
    # with few bends they change slowly by themselves.
    has_bends = len(view) >= MIN_HALF_LENGTHS * view.half_length
    is_slow = (
        has_bends and slow_variation(lengths) > MIN_VISIBLE_CHANGE
        for lengths in _norms_and_steps(rows)
    )
    is_counted = np.array([True, *is_slow, True])
    null_draws = _draw_statistics(view, rows, stride, statistics, is_counted)
    medians = np.median(null_draws, axis=1)
    # Each statistic is compared with the null model that gives it the larger p-value.
    null_p_values = np.array(
        [
            [rank_p_value(statistics[k], draws[:, k]) for k in range(4)]
            for draws in null_draws
        ]
    )
    nearest_nulls = [
        int(np.lexsort((medians[:, k], null_p_values[:, k]))[-1]) for k in range(4)
    ]
    p_values = np.where(is_counted, null_p_values.max(axis=0), 1.0)
    is_large = statistics - medians.max(axis=0) >= MIN_EFFECT_SHARE
    is_effect = (4 * p_values <= MAX_YES_P) & is_large
    sign_index = int((p_values + ~is_effect).argmin())
    statistic, nearest_null = float(statistics[sign_index]), nearest_nulls[sign_index]
    nearest_draws = null_draws[nearest_null, :, sign_index]
    p = min(1.0, 4 * float(p_values[sign_index]))
    test = null_test(
        statistic,
        nearest_draws,
        STATIONARY_NULL_NAMES[nearest_null],
        p,
        n_statistics=4,
        smallest_effect=float(np.median(nearest_draws)) + MIN_EFFECT_SHARE,
    )
    # Wherever a yes is possible, all are drawn.
    test = replace(test, least=4 / (1 + N_STATIONARY_DRAWS))
    sign: SignName = _SIGNS[sign_index] if sign_index < 3 or is_mirrored else "opposed"
    typical_share = float(np.median(nearest_draws))
    position_sign = PositionSign(sign, statistic, typical_share, bool(is_effect.any()))
    return position_sign, float(statistics[0]), test


def _draw_statistics(
    view: View,
    rows: Floats,
    stride: int,
    statistics: Floats,
    is_counted: NDArray[np.bool_],
) -> Floats:
    """Return the four statistics of draws of three null models: ``[nulls, draws, 4]``.

    One null model is the fitted process. Another, for norms and speed alone, is the smoothest
    process of the same half-length: a curve with few bends changes them slowly though no position
    is special. In the third each column has a spectrum of its own: noise that prefers a period in
    two or three directions changes norms and mirrors rows as one spectrum for all columns does not.
    The remaining draws are made only where the first ones leave a p-value of `MAX_YES_P` possible.
    """
    from scipy.fft import idct

    n = len(view)
    kernel_length = max(view.half_length, 0.5) / HALF_WIDTH_RATIO
    smoothest = np.exp(-0.5 * np.square(np.arange(0, n, stride) / kernel_length))
    factors = [
        covariance_root(toeplitz(correlations))
        for correlations in (view.null_offsets[::stride], smoothest)
    ]
    column_norms = np.sqrt(np.square(rows).sum(axis=0))
    amplitudes = _column_amplitudes(rows)
    rng = view.rng(2)
    null_draws = np.full((3, N_STATIONARY_DRAWS, 4), -np.inf)
    for first_draw, n_drawn in pairwise(
        (0, N_FIRST_STATIONARY_DRAWS, N_STATIONARY_DRAWS)
    ):
        for draw in range(first_draw, n_drawn, DRAWS_PER_BATCH):
            batch = slice(draw, min(draw + DRAWS_PER_BATCH, n_drawn))
            white = rng.standard_normal((batch.stop - draw, *rows.shape))
            stationary_rows = factors[0] @ white * column_norms
            null_draws[0, batch] = _position_statistics(stationary_rows)[0]
            if is_counted[1:3].any():
                smooth_rows = factors[1] @ white * column_norms
                null_draws[1, batch, 1:3] = _slow_shares(smooth_rows)
            column_rows = idct(amplitudes * white, axis=-2, norm="ortho")
            null_draws[2, batch] = _position_statistics(column_rows)[0]
        is_reached = null_draws[:, :n_drawn] >= statistics - 1e-9 * np.abs(statistics)
        n_reached = is_reached.sum(axis=1).max(axis=0)
        if 4 * (1 + n_reached[is_counted].min()) > MAX_YES_P * (1 + N_STATIONARY_DRAWS):
            break
    return null_draws[:, :n_drawn]


def _column_amplitudes(rows: Floats) -> Floats:
    """Return the amplitude of each frequency of each column ``[n, r]``, a mean over neighbours.

    Frequencies are those of the cosine transform; the mean of a column has none.
    """
    from scipy.fft import dct

    n = len(rows)
    power = np.square(dct(rows, axis=0, norm="ortho"))
    sums = np.cumsum(np.concatenate([np.zeros((1, rows.shape[1])), power]), axis=0)
    frequency = np.arange(n)
    reach = np.maximum(3, frequency // 8)
    low = np.maximum(frequency - reach, 1)
    high = np.minimum(frequency + reach + 1, n)
    return np.asarray(np.sqrt((sums[high] - sums[low]) / (high - low)[:, None]))


def _translation_invariance(points: Floats) -> float | None:
    """Return the share of the variance of centred cosines that distance explains."""
    rows, is_defined = unit_rows(points, np, centered=True)
    return sum_cosines(rows, is_defined, 1, len(points), np).numbers()[
        "translation_invariance"
    ]


def _independent_steps(view: View) -> int:
    """Return the number of steps after which movements of the table are unrelated.

    Displacements that are shorter than those over fewer steps do not count: a rotation comes back,
    and over nearly a whole turn its displacements resemble each other again.
    """
    path, block_steps, largest_mean_square = view.signed_walks[0], 1, 0.0
    for stride in (*STRIDES, 64, 128, 256, 512):
        displacement = path[stride:] - path[:-stride]
        if len(displacement) <= 2 * stride:
            break
        overlap = float(np.vdot(displacement[stride:], displacement[:-stride]))
        squares = float(np.square(displacement).sum())
        if overlap > 0.15 * squares and squares >= largest_mean_square * len(
            displacement
        ):
            block_steps = 2 * stride
        largest_mean_square = max(largest_mean_square, squares / len(displacement))
    return block_steps


def _position_statistics(rows: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return four measures of how positions differ, and whether mirrored rows are similar.

    The measures are ``[..., 4]`` for rows ``[..., n, r]`` of any number of tables: by inner
    products, by norms, by speed and by mirrored rows. The boolean is that of the strongest centre.

    The measure by inner products is the share of the Gram matrix's squares that its diagonal means
    leave. The measure by mirrored rows is the share that the means over pairs with one centre
    hold. Pairs with one centre all have an even offset, or all an odd one, which distance explains
    where rows alternate. So neighbouring centres are pooled: each with that on either side, and
    therefore twice.
    """
    n = rows.shape[-2]
    points = rows - rows.mean(axis=-2, keepdims=True)
    gram = points @ points.swapaxes(-1, -2)
    total_power = np.maximum(
        np.square(gram).sum(axis=(-1, -2)), np.finfo(np.float64).tiny
    )
    lag_sums, centre_sums = (
        sum_by_displacement(products, n, 1, np)[..., 0].astype(gram.dtype)
        for products in (gram, gram[..., ::-1])
    )
    n_pairs = np.minimum(np.arange(1, 2 * n), np.arange(2 * n - 1, 0, -1))
    misfit = 1 - (np.square(lag_sums) / n_pairs).sum(axis=-1) / total_power
    pooled_sums = centre_sums[..., 1:] + centre_sums[..., :-1]
    mirrored_power = np.square(pooled_sums) / (n_pairs[1:] + n_pairs[:-1])
    mirrored_share = mirrored_power.sum(axis=-1) / (2 * total_power)
    strongest_sum = np.take_along_axis(
        pooled_sums, mirrored_power.argmax(axis=-1)[..., None], axis=-1
    )[..., 0]
    statistics = np.concatenate(
        [misfit[..., None], _slow_shares(rows), mirrored_share[..., None]], axis=-1
    )
    return statistics, strongest_sum > 0


def _norms_and_steps(rows: Floats) -> tuple[Floats, Floats]:
    """Return the norms of rows ``[..., n, r]``, and of the steps between them."""
    return np.linalg.norm(rows, axis=-1), np.linalg.norm(np.diff(rows, axis=-2), axis=-1)


def _slow_shares(rows: Floats) -> Floats:
    """Return the variance shares of the slowest four waves of norms and steps: ``[..., 2]``.

    Ranks of the norms and steps of rows ``[..., n, r]`` are used, so that single rows do not count.
    """
    shares = []
    for length_ranks in map(centred_ranks, _norms_and_steps(rows)):
        n = length_ranks.shape[-1]
        power = np.square(length_ranks @ slow_waves(n).T).sum(axis=-1)
        shares.append(2 * power / (n * np.square(length_ranks).sum(axis=-1)))
    return np.stack(shares, axis=-1)


def _has_exact_distances(points: Floats) -> bool:
    """Return whether offsets decide all distances, of neighbours and along the whole table."""
    sampled_rows = points[:: -(-len(points) // MAX_DISTANCE_ROWS)]
    misfits = (
        _distance_misfits(points[:MAX_DISTANCE_ROWS]),
        _distance_misfits(sampled_rows),
    )
    return all(
        misfit <= MAX_ROUNDING_MISFIT and local_misfit <= MAX_LOCAL_ROUNDING_MISFIT
        for misfit, local_misfit in misfits
    )


def _is_equidistant(points: Floats) -> bool:
    """Return whether all pairs of rows have one distance, like rows of one-hot codes."""
    rows = points[:: -(-len(points) // MAX_DISTANCE_ROWS)]
    squared_distances = _squared_distances(rows)[~np.eye(len(rows), dtype=bool)]
    max_range = 4 * np.sqrt(MAX_ROUNDING_MISFIT) * squared_distances.mean()
    return bool(np.ptp(squared_distances) <= max_range)


def _distance_misfits(rows: Floats) -> tuple[float, float]:
    """Return the squared deviations of squared distances from their means by offset.

    The first number is relative to the squares of the Gram matrix. The second is the largest
    relative to the squared mean at the same offset: distant rows of a line are so far apart that
    any noise is small beside them. Unlike inner products of centred rows, distances between rows
    of a sinusoid follow from the offset whatever the mean row is.
    """
    squared_distances = _squared_distances(rows).ravel()
    positions = np.arange(len(rows))
    distances = np.abs(positions - positions[:, None]).ravel()
    n_pairs = np.bincount(distances)
    mean_by_distance = np.bincount(distances, squared_distances) / n_pairs
    deviations_by_distance = np.bincount(
        distances, np.square(squared_distances - mean_by_distance[distances])
    )
    tiny = np.finfo(np.float64).tiny
    squares_by_distance = np.maximum(n_pairs * np.square(mean_by_distance), tiny)
    local_misfits = deviations_by_distance[1:] / squares_by_distance[1:]
    total_squares = max(4 * float(np.square(rows @ rows.T).sum()), tiny)
    misfit = float(deviations_by_distance.sum()) / total_squares
    return misfit, float(local_misfits.max(initial=0.0))


def _squared_distances(rows: Floats) -> Floats:
    gram = rows @ rows.T
    norms = np.diag(gram)
    return np.asarray(norms[:, None] + norms - 2 * gram)
