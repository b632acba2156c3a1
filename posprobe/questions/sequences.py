"""Questions about sequences: whether order matters, smoothness, few components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.copies import Copies
from posprobe.analyses.composition.waves import MIN_FAMILY_SHARE, NEEDED_FAMILY_P
from posprobe.analyses.facts import MAX_YES_P, Answer, Test, TooFew, Verdict
from posprobe.analyses.linear import (
    covariance_root,
    leading_coordinates,
    offset_sums,
    participation_ratio,
    small_gram,
    toeplitz,
)
from posprobe.analyses.resampling import rank_p_value
from posprobe.analyses.view import (
    MAX_DRAW_ROWS,
    N_NULL_DRAWS,
    View,
    chance_cosine,
    normalise_rows,
)
from posprobe.arrays import Floats
from posprobe.questions.rank_tests import (
    MIN_EFFECT_SHARE,
    MIN_HALF_LENGTHS,
    MIN_VISIBLE_CHANGE,
    AskTable,
    centred_ranks,
    judge_p_value,
    null_test,
    slow_variation,
    slow_waves,
    small_table_answer,
    value_property,
)

#: Permutations of the rows: the smallest p-value of three statistics, 3 / 491, is significant alone
#: among the questions about a table.
N_ORDER_PERMUTATIONS = 10 * N_NULL_DRAWS
#: Rounding error of a mean of cosines in single precision.
COSINE_ROUNDING = 1e-6
ORDER_KEYS = ("similarity.centered.neighbour_mean", "spectrum.entropy")


@dataclass(frozen=True)
class Order:
    """Evidence that order matters.

    Parameters
    ----------
    rows
        Number of rows.
    cosine, chance
        Mean cosine of neighbouring centred rows, and of any two centred rows.
    period, share, typical
        Strongest wave: its period in positions, its share of the variance of the rows' directions,
        and the median of that share in random order.
    farther
        Median distance from the mean row in the quarter of the table where it is largest, over
        that in the quarter where it is smallest.
    turns, copies
        Turns of winding components, and rows that are copies of others, as other answers show.
    tested
        Statistic that the test of the answer states: the mean cosine of neighbours, the share of
        the strongest wave, or the share of the variance of the norms' ranks in slow waves.
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
    tested: Literal["cosine", "wave", "norms"] = "cosine"

    value = value_property("cosine")


def ask_order(view: View) -> Answer:
    """Ask whether the order of the rows matters.

    Three statistics are compared with permuted rows: the mean cosine of neighbouring rows; the
    largest share of the spectrum in one frequency, which finds rotations whose neighbours are
    orthogonal; and the power of the slowest four waves of the ranks of the norms.
    """
    if refusal := small_table_answer("order", view, ORDER_KEYS):
        return refusal
    unit_rows = normalise_rows(view.points)
    leading_rows = leading_coordinates(unit_rows, 8).astype(np.float32)
    norms = np.linalg.norm(view.points, axis=1)
    statistics = _order_statistics(unit_rows, leading_rows, norms, view.rng(0))
    cosine = float(np.einsum("ij,ij->i", unit_rows[1:], unit_rows[:-1]).mean())
    chance_mean = chance_cosine(unit_rows)
    # Differences within the rounding of single precision do not count.
    cosine_excess = np.maximum(np.abs(statistics[0] - chance_mean) - COSINE_ROUNDING, 0.0)
    cosine_p, wave_p, norm_p = (
        rank_p_value(draws[0], draws[1:]) for draws in (cosine_excess, *statistics[1:])
    )
    if slow_variation(norms) <= MIN_VISIBLE_CHANGE:
        norm_p = 1.0
    p = min(1.0, 3 * min(cosine_p, wave_p, norm_p))
    power = _spectrum_power(leading_rows)
    total_power = float(power.sum())
    quarters = [float(np.median(quarter)) for quarter in np.array_split(norms, 4)]
    facts = Order(
        rows=len(view),
        cosine=cosine,
        chance=chance_mean,
        period=len(leading_rows) / (int(power.argmax()) + 1),
        share=float(statistics[1, 0]) / total_power,
        typical=float(np.median(statistics[1, 1:])) / total_power,
        farther=max(quarters) / max(min(quarters), 1e-9 * max(quarters), 1e-300),
    )
    answer, reason = judge_p_value(
        p, "neighbours", "none", "open", has_enough=len(view) >= 16
    )
    # The reason names the cosine where it is evidence by itself, else the others that are.
    if answer == "yes" and 3 * cosine_p > MAX_YES_P:
        has_wave = 3 * wave_p <= MAX_YES_P
        reason = (
            "wave"
            if 3 * norm_p > MAX_YES_P
            else "norms_and_wave"
            if has_wave
            else "norms"
        )
    effect = (
        abs(cosine - chance_mean)
        if reason == "neighbours"
        else facts.share - facts.typical
    )
    if reason in {"neighbours", "wave"} and effect < MIN_EFFECT_SHARE:
        answer, reason = "no", "small"
    test = null_test(
        cosine,
        statistics[0, 1:],
        "permuted",
        p,
        expected=chance_mean,
        n_statistics=3,
        smallest_effect=MIN_EFFECT_SHARE,
    )
    if reason in {"wave", "norms_and_wave"}:
        wave_draws = statistics[1, 1:] / total_power
        test = null_test(facts.share, wave_draws, "permuted", p, n_statistics=3)
        facts = replace(facts, tested="wave")
    elif reason == "norms":
        ranks = centred_ranks(norms)
        shares = statistics[2] * 2 / (len(ranks) * np.square(ranks).sum())
        test = null_test(float(shares[0]), shares[1:], "permuted", p, n_statistics=3)
        facts = replace(facts, tested="norms")
    return Answer("order", answer, reason, facts, test, ORDER_KEYS)


def _order_statistics(
    unit_rows: Floats,
    leading_rows: NDArray[np.float32],
    norms: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Return the three statistics of the rows as they stand and permuted: ``[3, 1 + draws]``."""
    # A permutation needs only the entries of neighbours in the Gram matrix.
    float32_rows = unit_rows.astype(np.float32)
    gram = float32_rows @ float32_rows.T
    norm_ranks, waves = centred_ranks(norms), slow_waves(len(norms))
    statistics = np.empty((3, N_ORDER_PERMUTATIONS + 1))
    for k in range(N_ORDER_PERMUTATIONS + 1):
        order = (
            np.arange(len(leading_rows)) if k == 0 else rng.permutation(len(leading_rows))
        )
        statistics[0, k] = gram[order[1:], order[:-1]].mean(dtype=np.float64)
        statistics[1, k] = _spectrum_power(leading_rows[order]).max()
        statistics[2, k] = np.square(waves @ norm_ranks[order]).sum()
    return statistics


def _spectrum_power(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the power of rows at each frequency above 0; it adds up to their variance."""
    power = np.square(np.abs(np.fft.rfft(rows, axis=0)[1:])).sum(axis=1)
    # All frequencies except the fastest one of an even number of rows stand for two of the full
    # transform.
    power[: (len(rows) - 1) // 2] *= 2
    return np.asarray(power)


#: A smooth part is not denied where one up to this share of the variance could be missed.
MAX_DENIAL_SMOOTH_SHARE = 0.25
#: Share of the slow parts in a straight line from which on they are called one.
MIN_LINE_SHARE = 0.5
SMOOTH_KEYS = ("budget.smooth", "budget.line", "similarity.centered.offset_profile")


@dataclass(frozen=True)
class Smooth:
    """The smooth part of a table: a smooth curve, and a straight line.

    Parameters
    ----------
    rows
        Number of rows.
    share
        Share of the variance that both hold.
    straight
        Share that the straight line holds.
    limit
        Share of the variance from which on a smooth part would be found.
    length
        Distance in positions at which the mean inner product of centred rows is half of that of
        neighbours.
    least
        Smallest share of a smooth curve where it cannot be told from a random walk or a rough part;
        ``share`` is then that of both, and None where it can.
    own_share
        Share of the variance of the stretch that was tested; None where that is the whole table.
    """

    rows: int
    share: float
    straight: float
    limit: float
    length: float
    least: float | None = None
    own_share: float | None = None

    value = value_property("share", "straight", "length")

    @property
    def is_line(self) -> bool:
        """Whether it is a straight line for the most part."""
        return self.straight > MIN_LINE_SHARE * self.share


def ask_smooth(view: View) -> Answer:
    """Ask whether the additive model of the table has a smooth part, or a straight line."""
    if refusal := small_table_answer("smooth", view, SMOOTH_KEYS):
        return refusal
    n, d = view.points.shape
    rotation_fit = view.rotation_fit
    if not rotation_fit.family_tests:
        return Answer("smooth", "cannot tell", "too_few", TooFew(n, d), keys=SMOOTH_KEYS)
    families, ranges = rotation_fit.families, rotation_fit.slow_ranges
    if rotation_fit.formula is not None:
        return _smooth_by_formula(view, families.get("smooth", 0.0))
    smooth_share, line_share = families.get("smooth", 0.0), families.get("line", 0.0)
    limit, least = (
        max(rotation_fit.smooth_limit, ranges.get("smooth", (0.0, 0.0))[1]),
        None,
    )
    if ranges.get("smooth", (0.0, 0.0))[0] > 0:
        smooth_share, least = families["slow"], ranges["smooth"][0]
    family_test = rotation_fit.family_tests[
        "line" if line_share > smooth_share else "smooth"
    ]
    share = max(line_share, smooth_share)
    if share > 0:
        # Near its maximum, a log likelihood falls with the square of a share.
        limit = share * float(np.sqrt(family_test.min_gain / family_test.gain))
    length = view.half_length
    facts = Smooth(n, smooth_share + line_share, line_share, limit, length, least)
    interval, least_p = (0.0, max(limit, MIN_FAMILY_SHARE)), NEEDED_FAMILY_P
    test = Test(share, family_test.p, 0.0, interval, of="family", least=least_p)
    can_deny = limit <= MAX_DENIAL_SMOOTH_SHARE and "smooth" not in ranges
    answer: Verdict = "no" if can_deny else "cannot tell"
    reason = "none" if answer == "no" else "hidden"
    if share > 0:
        answer, reason = "yes", "line" if facts.is_line else "curve"
        reason = reason if least is None else "slow"
    return Answer("smooth", answer, reason, facts, test, SMOOTH_KEYS)


def _smooth_by_formula(view: View, share: float) -> Answer:
    """State what the waves of a formula hold that make too few turns to be rotations."""
    facts = Smooth(len(view), share, 0.0, MIN_EFFECT_SHARE, view.half_length)
    is_part = share >= MIN_EFFECT_SHARE
    return Answer(
        "smooth",
        "yes" if is_part else "no",
        "formula" if is_part else "none",
        facts,
        keys=SMOOTH_KEYS,
    )


#: Largest participation ratio of a table with fewer directions, over that of tables as smooth.
MAX_FEWER_RATIO = 0.75
#: Smallest p-value that is extrapolated for a ratio below all draws.
MIN_EXTRAPOLATED_P = 1e-3
COMPONENT_KEYS = ("pca.participation_ratio", "pca.top3")


@dataclass(frozen=True)
class LowDimensional:
    """Number of directions of a table.

    Parameters
    ----------
    rows
        Number of rows.
    directions
        Number of principal directions that hold nine tenths of the variance.
    columns
        Largest number of directions that so many rows can have.
    participation, expected
        Participation ratio of rows of equal length, and its median in random tables of independent
        columns that are as smooth.
    every
        Stride of the rows of which both are taken: a long table is thinned.
    """

    rows: int
    directions: int
    columns: int
    participation: float
    expected: float
    every: int

    @property
    def value(self) -> dict[str, float]:
        """Number of directions, participation ratio and largest possible number."""
        return {
            "directions": self.directions,
            "participation_ratio": self.participation,
            "columns": self.columns,
        }


def ask_low_dimensional(view: View) -> Answer:
    """Ask whether the table has fewer directions than its smoothness alone gives.

    The null model has as many independent columns as the table, each made of all that the table is
    made of, but of its rotations.
    """
    if refusal := small_table_answer("low_dimensional", view, COMPONENT_KEYS):
        return refusal
    n, d = view.points.shape
    stride = _thinning_stride(view.points)
    rows = normalise_rows(view.points[::stride])
    null_draws = _draw_dimensions(view, len(rows), stride)
    facts = LowDimensional(
        rows=n,
        directions=count_directions(view),
        columns=min(n - 1, d),
        participation=participation_ratio(rows),
        expected=float(np.median(null_draws)),
        every=stride,
    )
    if d < 3:
        return Answer(
            "low_dimensional", "cannot tell", "few_columns", facts, keys=COMPONENT_KEYS
        )
    if view.half_length > n / MIN_HALF_LENGTHS:
        # With few independent stretches, any slow curve has few directions.
        return Answer(
            "low_dimensional", "cannot tell", "slow", facts, keys=COMPONENT_KEYS
        )
    p = _small_dimension_p(facts.participation, null_draws)
    test = null_test(
        facts.participation,
        null_draws,
        "composition",
        p,
        bound=float(facts.columns),
        smallest_effect=MAX_FEWER_RATIO * facts.expected,
    )
    test = replace(test, least=MIN_EXTRAPOLATED_P)
    answer, reason = judge_p_value(p, "fewer", "not_fewer", "open")
    if facts.participation > MAX_FEWER_RATIO * facts.expected:
        answer, reason = "no", "small" if p <= MAX_YES_P else "not_fewer"
    return Answer("low_dimensional", answer, reason, facts, test, COMPONENT_KEYS)


def _draw_dimensions(view: View, n_rows: int, stride: int) -> Floats:
    """Return participation ratios of random tables with independent columns: ``[draws]``."""
    factor = covariance_root(toeplitz(view.null_offsets[::stride][:n_rows]))
    shape, rng = (n_rows, view.points.shape[1]), view.rng(3)
    tables = (factor @ rng.standard_normal(shape) for _ in range(N_NULL_DRAWS))
    return np.array(
        [
            participation_ratio(normalise_rows(table - table.mean(axis=0)))
            for table in tables
        ]
    )


def _thinning_stride(points: Floats) -> int:
    """Return the stride of the rows that are kept, at most `MAX_DRAW_ROWS`.

    Every second row of alternating rows would show nothing. So rows at the chosen stride are no
    more similar than neighbours, where there is such a stride.
    """
    n = len(points)
    min_stride = max(1, -(-n // MAX_DRAW_ROWS))
    if min_stride == 1:
        return 1
    correlation = offset_sums(points) / np.arange(n, 0, -1)
    return min(
        range(min_stride, min_stride + 3),
        key=lambda stride: max(correlation[stride], correlation[1]),
    )


def count_directions(view: View) -> int:
    """Return the number of principal directions that hold nine tenths of the variance."""
    variances = np.square(view.coordinates).sum(axis=0)
    if variances.sum() < 0.9 * len(view):  # their mean squared norm is 1
        gram = small_gram(view.points.astype(np.float32))
        variances = np.linalg.eigvalsh(gram)[::-1].astype(np.float64)
    return int(np.searchsorted(np.cumsum(variances), 0.9 * len(view) * (1 - 1e-6)) + 1)


def _small_dimension_p(dimension: float, null_draws: Floats) -> float:
    """Return the rank p-value of a small ratio; below all draws, Student's t of logarithms."""
    from scipy.special import stdtr

    rank_p = rank_p_value(-dimension, -null_draws)
    logs, deviation = np.log(null_draws), float(np.log(null_draws).std(ddof=1))
    if dimension >= null_draws.min() or deviation == 0:
        return rank_p
    n = len(null_draws)
    t_statistic = (np.log(max(dimension, 1e-300)) - logs.mean()) / (
        deviation * np.sqrt(1 + 1 / n)
    )
    return min(rank_p, max(float(stdtr(n - 1, t_statistic)), MIN_EXTRAPOLATED_P))


#: Questions by name, in the order of the page.
SEQUENCE_TABLE_QUESTIONS: Mapping[str, AskTable] = {
    "order": ask_order,
    "smooth": ask_smooth,
    "low_dimensional": ask_low_dimensional,
}
