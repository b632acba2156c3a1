"""Probes: whether a linear model can read a row's position, or which of two rows comes first.

Two pairs stand side by side. The published pair (Wang & Chen, EMNLP 2020, tables 1 and 2) is
repeated as their released code has it, so that its numbers can be set beside theirs. It measures
how well rows can be interpolated from their neighbours: folds are drawn at random, so that nearly
every held-out row has both neighbours in training, and a random walk does as well as a sinusoid.
The sound pair holds out whole blocks of positions, or positions that no training pair contains, and
states the chance level that was measured rather than assumed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, JsonType, NumberSuffixes, Result, centre_rows
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid
from posprobe.number_types import Count, Natural, NonNegative, Reasons, Share
from posprobe.tables import PositionTable

#: Fewest rows of a probe: folds of a handful have errors that mean nothing.
MIN_PROBE_ROWS = 32


#: Folds of every probe, as published.
N_FOLDS = 5


#: Steps of the optimiser at most, as in the published code.
MAX_OPTIMISER_ITERATIONS = 1000


#: Largest magnitudes with which the single precision of the published code neither over- nor
#: underflows.
SINGLE_PRECISION_RANGE = (1e-12, 1e12)


def probe_obstacle(inputs: Positions) -> str:
    """Return why a table cannot be probed, or nothing."""
    n = inputs.values.shape[0]
    if isinstance(inputs.layout, Grid):
        return (
            "positions lie on a grid: their number in raster order is no place on a line"
        )
    if n < MIN_PROBE_ROWS:
        return f"fewer than {MIN_PROBE_ROWS} positions"
    values = to_numpy(inputs.values)
    largest = np.abs(values).max()
    if not centre_rows(values)[0].any():
        return "all rows are equal"
    if not SINGLE_PRECISION_RANGE[0] <= largest <= SINGLE_PRECISION_RANGE[1]:
        return f"the largest value is {largest:.1e}, beyond what single precision can work with"
    return ""


def probed_positions(table: PositionTable | Positions | Array) -> Positions:
    """Return a table as positions, or raise `InvalidTable` where it cannot be probed."""
    inputs = positions(table)
    reason = probe_obstacle(inputs)
    if reason:
        raise InvalidTable(
            f"this table of {inputs.values.shape[0]} rows cannot be probed for position: {reason}."
        )
    return inputs


def check_seeds(seeds: int) -> None:
    """Raise ValueError unless there is a seed."""
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: at least one is needed")


@contextmanager
def collect_failures() -> Iterator[list[str]]:
    """Collect the optimiser's convergence warnings, so that the result can state them."""
    from sklearn.exceptions import ConvergenceWarning

    failures: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield failures
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            failures.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def seed_deviation(values: Floats) -> float | None:
    """Return the standard deviation over seeds; None for a single one."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


#: Rows that Wang & Chen's code keeps of a longer table (they cut GPT-2's 1024).
N_PUBLISHED_ROWS = 512


#: Seeds for which the chance level of the published order probe is measured: 512 pairs leave it a
#: scatter of 2 % each.
N_CHANCE_SEEDS = 3


@dataclass(frozen=True, eq=False, repr=False)
class PublishedProbe(Result):
    """A probe of Wang & Chen 2020 as coded, over several seeds: theirs is one unseeded run.

    Parameters
    ----------
    errors
        ``[seeds]``: mean absolute error in positions, or share of pairs put in the wrong order;
        each the mean over five folds.
    chance
        Error of a position when always answering the mean training position, in positions. For the
        order, accuracy of the same probe on the same rows in random order, mean over the first
        `N_CHANCE_SEEDS`; it lies below one half, because positions recur in training and test
        pairs.
    rows
        Number of rows that took part, counted from the table's first.
    """

    missing_reason: ClassVar[str] = "a single seed"

    errors: Floats
    chance: NonNegative
    rows: Natural
    folds: Literal["random"] = "random"
    undefined: Annotated[str, JsonType(Reasons)] = ""

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(self.errors.mean())

    @property
    def sd(self) -> Annotated[NonNegative | None, "Over seeds."]:
        """Standard deviation over seeds; None for a single one."""
        return seed_deviation(self.errors)

    @property
    def min(self) -> Annotated[NonNegative, ""]:
        """Of all seeds."""
        return float(self.errors.min())

    @property
    def max(self) -> Annotated[NonNegative, ""]:
        """Of all seeds."""
        return float(self.errors.max())

    @property
    def seeds(self) -> Annotated[Natural, ""]:
        """How many there were."""
        return len(self.errors)


class PublishedAbsolute(PublishedProbe):
    """Of position."""

    @property
    def mae(
        self,
    ) -> Annotated[
        NonNegative, Number("absolute, as Wang & Chen", "mean error in positions")
    ]:
        """Mean over seeds."""
        return self.mean


@dataclass(frozen=True, eq=False, repr=False)
class PublishedOrder(PublishedProbe):
    """Of the order of two rows.

    Parameters
    ----------
    not_converged
        Fits out of ``5 * seeds`` that the optimiser ended before it converged.
    """

    not_converged: Annotated[
        Count, "Fits that the optimiser ended before they converged."
    ] = 0

    @property
    def error(
        self,
    ) -> Annotated[
        Share, Number("order, as Wang & Chen", "share of pairs in the wrong order")
    ]:
        """Mean over seeds."""
        return self.mean

    @property
    def pairs(self) -> Annotated[Natural, ""]:
        """The code draws as many as there are rows."""
        return self.rows


def absolute_probe_published(
    table: PositionTable | Positions | Array,
    *,
    rows: int | None = N_PUBLISHED_ROWS,
    seeds: int = 10,
    seed: int = 0,
) -> PublishedAbsolute:
    """Regress position on rows exactly as Wang & Chen 2020 did for their table 1.

    Rows in random order, five folds, least squares without penalty in single precision, rounded
    predictions, mean absolute error averaged over folds. Where a row is wider than the training
    rows are many, the fit is a minimum-norm interpolator. Not a measure of positional encoding: it
    is near zero for any smooth table, a random walk included; see
    `posprobe.analyses.descriptive.probes.absolute_probe`.

    Parameters
    ----------
    table
        ``[n, d]``. A `PositionTable` holds positions only, while the published number for RoBERTa
        comes from all 514 stored rows, both padding rows included. To repeat that, load the tensor
        by name, which keeps every row, and say how many:
        ``absolute_probe_published(load(reference, tensor=name), rows=514)``.
    rows
        Keep only so many rows from the first; None keeps all.
    seeds
        Repetitions with another random order.
    seed
        Seed of the sequence of random orders; the first ones are the same for any ``seeds``.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or the probe is undefined.
    ValueError
        If ``seeds`` is not positive.

    References
    ----------
    Wang & Chen 2020, table 1, and the released ``absolute.py``.
    """
    values = _single_precision_rows(table, rows, seeds)
    runs = [
        _run_published_absolute(values, rng)
        for rng in np.random.default_rng(seed).spawn(seeds)
    ]
    return PublishedAbsolute(
        errors=np.array([error for error, _ in runs]),
        chance=float(np.mean([chance for _, chance in runs])),
        rows=len(values),
    )


def order_probe_published(
    table: PositionTable | Positions | Array, *, seeds: int = 10, seed: int = 0
) -> PublishedOrder:
    """Classify which row comes first exactly as Wang & Chen 2020 did for their table 2.

    As many ordered pairs as rows, drawn out of all, a row paired with itself included; the
    feature is both rows side by side as stored, the label whether the second comes later; logistic
    regression with its default penalty, five stratified folds. Positions recur in training and
    test pairs, so that chance is measured; the penalty depends on the scale of the table; and so
    few pairs make the number swing with the seed.

    Parameters
    ----------
    table
        ``[n, d]``, cut to the first `N_PUBLISHED_ROWS` rows. The published number for RoBERTa comes
        from rows 0 to 511 as stored, both padding rows included: load the tensor by name, which
        keeps every row, to repeat that.
    seeds, seed
        Same as for `absolute_probe_published`.

    Raises
    ------
    InvalidTable, ValueError
        As in `absolute_probe_published`.

    References
    ----------
    Wang & Chen 2020, table 2, and the released ``relative.py``.
    """
    values = _single_precision_rows(table, N_PUBLISHED_ROWS, seeds)
    rngs = np.random.default_rng(seed).spawn(seeds)
    runs = [_run_published_order(values, rng) for rng in rngs]
    chances = [
        _run_published_order(values[rng.permutation(len(values))], rng)[0]
        for rng in rngs[:N_CHANCE_SEEDS]
    ]
    return PublishedOrder(
        errors=np.array([error for error, _ in runs]),
        chance=float(np.mean(chances)),
        rows=len(values),
        not_converged=sum(failed for _, failed in runs),
    )


def _single_precision_rows(
    table: PositionTable | Positions | Array, rows: int | None, seeds: int
) -> NDArray[np.float32]:
    """Return the first rows in the precision in which the published code had them."""
    check_seeds(seeds)
    inputs = positions(table)
    cut = inputs if isinstance(inputs.layout, Grid) else positions(inputs.values[:rows])
    return to_numpy(probed_positions(cut).values).astype(np.float32)


def _run_published_absolute(
    values: NDArray[np.float32], rng: np.random.Generator
) -> tuple[float, float]:
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import KFold

    target = rng.permutation(len(values))
    rows = values[target]
    errors, chances = [], []
    for train, test in KFold(N_FOLDS).split(rows):
        model = LinearRegression().fit(rows[train], target[train])
        errors.append(np.abs(np.round(model.predict(rows[test])) - target[test]).mean())
        chances.append(np.abs(target[train].mean() - target[test]).mean())
    return float(np.mean(errors)), float(np.mean(chances))


def _run_published_order(
    values: NDArray[np.float32], rng: np.random.Generator
) -> tuple[float, int]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    n = len(values)
    first, second = np.divmod(rng.permutation(n * n)[:n], n)
    rows = np.hstack((values[first], values[second]))
    is_later = second > first
    errors = []
    with collect_failures() as failures:
        for train, test in StratifiedKFold(N_FOLDS).split(rows, is_later):
            model = LogisticRegression(max_iter=MAX_OPTIMISER_ITERATIONS).fit(
                rows[train], is_later[train]
            )
            errors.append((model.predict(rows[test]) != is_later[test]).mean())
    return float(np.mean(errors)), len(failures)


#: Ridge penalty of the sound absolute probe, for rows whose mean square norm is 1: from 1e-5 to 0.1
#: the error on the sinusoid is 61 to 66 positions of 512.
RIDGE_PENALTY = 1e-3
#: Inverse penalty of the sound order probe, for the same rows: between 1 and 100 a walk's error is
#: 1.1 to 1.2 %, and on blocks 30 to 35 %.
INVERSE_PENALTY = 10.0
#: Training pairs that the sound order probe draws per fold where there are more: four times the
#: published ones, and more columns than tables have.
MAX_TRAINING_PAIRS = 2048

_Rows: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class AbsoluteProbe(Result):
    """Ridge regression of position on rows, whole blocks of neighbouring positions held out.

    Parameters
    ----------
    predicted
        ``[n]``: each position as predicted by a probe that never saw its block, counted from the
        table's first row.
    shuffled
        ``[n]``: the same probe with folds drawn at random, which is what the published folds
        measure.
    mae
        Mean absolute error of ``predicted``, in positions.
    interpolation
        The same over the inner blocks, which have training rows on both sides.
    extrapolation
        The same over the first and the last block.
    mae_shuffled
        Mean absolute error of ``shuffled``.
    chance, chance_interpolation, chance_extrapolation, chance_shuffled
        Error of always answering the mean training position on the same folds.
    standardize
        Scaling of the rows: all columns by one number.
    start
        Position of the first row.
    """

    predicted: Floats
    shuffled: Annotated[
        Floats,
        JsonType(NonNegative, lambda probe: probe.mae_shuffled),
        "With folds drawn at random.",
    ]
    mae: Annotated[
        NonNegative, Number("absolute, blocks held out", "mean error in positions")
    ]
    interpolation: Annotated[NonNegative, "Over the inner blocks."]
    extrapolation: Annotated[NonNegative, "Over the first and the last block."]
    mae_shuffled: Annotated[float, HIDDEN]
    chance: Annotated[
        NonNegative, Number("its chance level", "of answering the mean training position")
    ]
    chance_interpolation: NonNegative
    chance_extrapolation: NonNegative
    chance_shuffled: NonNegative
    standardize: Literal["table"] = "table"
    start: Annotated[int, HIDDEN] = 0
    folds: str = f"{N_FOLDS} contiguous blocks"
    alpha: float = RIDGE_PENALTY

    @property
    def rows(self) -> Annotated[Natural, ""]:
        """How many rows took part."""
        return len(self.predicted)


@dataclass(frozen=True, eq=False, repr=False)
class OrderProbe(Result):
    """Logistic regression of order on two rows, no position of a test pair seen in training.

    Parameters
    ----------
    errors
        ``[seeds]``: share of all pairs of held-out positions put in the wrong order, the held-out
        positions being scattered over the table; equal scores count as half wrong.
    blocked
        ``[seeds]``: the same where each fold holds out a block of neighbouring positions.
    chance
        ``[seeds]``: ``errors`` of the same rows in random order.
    rows
        Number of rows that took part.
    training_pairs
        Per fold, the fewest of any fold: all there are, or `MAX_TRAINING_PAIRS`.
    not_converged
        Fits out of ``5 * seeds`` each that the optimiser ended before it converged; those on rows
        in random order do not count.
    standardize
        Scaling of the rows: all columns by one number.
    """

    missing_reason: ClassVar[str] = "a single seed"

    errors: Floats
    blocked: Annotated[
        Floats,
        JsonType(Share, lambda probe: probe.blocked.mean()),
        "With blocks of neighbouring positions held out.",
    ]
    chance: Annotated[
        Floats,
        JsonType(Share, lambda probe: probe.chance.mean()),
        Number("order, chance level", "of the same rows in random order"),
    ]
    rows: Natural
    training_pairs: Annotated[Natural, "Per fold."]
    not_converged: Annotated[
        Count, "Fits that the optimiser ended before they converged."
    ]
    standardize: Literal["table"] = "table"
    folds: str = f"{N_FOLDS} sets of positions"
    inverse_penalty: float = INVERSE_PENALTY
    undefined: Annotated[str, JsonType(Reasons)] = ""

    @property
    def error(
        self,
    ) -> Annotated[
        Share, Number("order, positions held out", "share of pairs in the wrong order")
    ]:
        """Mean over seeds."""
        return float(self.errors.mean())

    @property
    def sd(self) -> Annotated[NonNegative | None, ""]:
        """Of ``errors``."""
        return seed_deviation(self.errors)

    @property
    def blocked_sd(self) -> Annotated[NonNegative | None, ""]:
        """Of ``blocked``."""
        return seed_deviation(self.blocked)

    @property
    def chance_sd(self) -> Annotated[NonNegative | None, ""]:
        """Of ``chance``."""
        return seed_deviation(self.chance)

    @property
    def seeds(self) -> Annotated[Natural, ""]:
        """How many there were."""
        return len(self.errors)


def absolute_probe(
    table: PositionTable | Positions | Array, *, seed: int = 0
) -> AbsoluteProbe:
    """Regress position on rows with whole blocks of positions held out.

    Ridge regression with the declared penalty `RIDGE_PENALTY`, five contiguous blocks. The inner
    blocks show whether a linear map bridges a gap in the table, the outer ones whether it carries
    on past the end; random folds show neither. A small error says that *some* direction of the
    table grows with position, not that the model uses it.

    Parameters
    ----------
    table
        ``[n, d]``, all rows.
    seed
        Seed of the random folds that are shown for comparison.

    Raises
    ------
    InvalidTable
        As in `absolute_probe_published`.
    """
    values, start = _double_precision_rows(table)
    n = len(values)
    blocks = np.array_split(np.arange(n), N_FOLDS)
    scattered = np.array_split(np.random.default_rng(seed).permutation(n), N_FOLDS)
    predicted, mean = _predict_positions(values, blocks)
    shuffled, mean_shuffled = _predict_positions(values, scattered)
    inner, outer = np.concatenate(blocks[1:-1]), np.concatenate([blocks[0], blocks[-1]])
    return AbsoluteProbe(
        predicted=predicted,
        shuffled=shuffled,
        mae=_mean_error(predicted),
        interpolation=_mean_error(predicted, inner),
        extrapolation=_mean_error(predicted, outer),
        mae_shuffled=_mean_error(shuffled),
        chance=_mean_error(mean),
        chance_interpolation=_mean_error(mean, inner),
        chance_extrapolation=_mean_error(mean, outer),
        chance_shuffled=_mean_error(mean_shuffled),
        start=start,
    )


def order_probe(
    table: PositionTable | Positions | Array,
    *,
    seeds: int = 3,
    seed: int = 0,
) -> OrderProbe:
    """Classify which of two rows comes first, for positions that training never saw.

    Positions, not pairs, are divided into five folds. Training takes all pairs of the other
    positions, or `MAX_TRAINING_PAIRS` drawn at random; every pair of held-out positions is a test.
    Trained on the difference of two rows without intercept, which is what both rows side by side
    come to when each pair is there in both orders. Held-out positions scattered over the table
    still have neighbours in training, so a random walk does well; blocks have none.

    Parameters
    ----------
    table
        ``[n, d]``, all rows.
    seeds
        Repetitions with other folds and pairs, and another random order for the chance level.
    seed
        Seed of all random draws.

    Raises
    ------
    InvalidTable, ValueError
        As in `absolute_probe`, and if ``seeds`` is not positive.
    """
    check_seeds(seeds)
    values, _ = _double_precision_rows(table)
    n = len(values)
    errors, blocked, chance = np.empty(seeds), np.empty(seeds), np.empty(seeds)
    failures = 0
    for run, rng in enumerate(np.random.default_rng(seed).spawn(seeds)):
        scattered = np.array_split(rng.permutation(n), N_FOLDS)
        errors[run], failed = _run_disjoint_order(values, scattered, rng)
        failures += failed
        blocks = np.array_split(np.arange(n), N_FOLDS)
        blocked[run], failed = _run_disjoint_order(values, blocks, rng)
        failures += failed
        mixed = values[rng.permutation(n)]
        chance[run], _ = _run_disjoint_order(mixed, scattered, rng)
    fewest = n - -(-n // N_FOLDS)
    pairs = min(MAX_TRAINING_PAIRS, fewest * (fewest - 1) // 2)
    return OrderProbe(errors, blocked, chance, n, pairs, failures)


def _double_precision_rows(
    table: PositionTable | Positions | Array,
) -> tuple[Floats, int]:
    inputs = probed_positions(table)
    return to_numpy(inputs.values).astype(np.float64), inputs.start


def _predict_positions(values: Floats, folds: Sequence[_Rows]) -> tuple[Floats, Floats]:
    """Predict every position from the other folds: by ridge regression, and by their mean."""
    from sklearn.linear_model import Ridge

    n = len(values)
    predicted, mean = np.empty(n), np.empty(n)
    for test_rows, train in _split_folds(n, folds):
        rows = _standardise_rows(values, train)
        model = Ridge(alpha=RIDGE_PENALTY).fit(rows[train], train)
        predicted[test_rows] = model.predict(rows[test_rows])
        mean[test_rows] = train.mean()
    return predicted, mean


def _run_disjoint_order(
    values: Floats, folds: Sequence[_Rows], rng: np.random.Generator
) -> tuple[float, int]:
    from sklearn.linear_model import LogisticRegression

    errors = []
    with collect_failures() as failures:
        for test_rows, train in _split_folds(len(values), folds):
            # Single precision halves the cost and is far finer than the optimiser's tolerance.
            rows = _standardise_rows(values, train).astype(np.float32)
            first, second = _draw_training_pairs(train, rng)
            model = LogisticRegression(
                C=INVERSE_PENALTY, fit_intercept=False, max_iter=MAX_OPTIMISER_ITERATIONS
            )
            model.fit(rows[second] - rows[first], second > first)
            errors.append(_misordered_share(rows[test_rows] @ model.coef_[0]))
    return float(np.mean(errors)), len(failures)


def _split_folds(n: int, folds: Iterable[_Rows]) -> Iterator[tuple[_Rows, _Rows]]:
    """Yield the held-out and the training rows of each fold, both in order."""
    for fold in folds:
        yield np.sort(fold), np.setdiff1d(np.arange(n), fold)


def _standardise_rows(values: Floats, train: _Rows) -> Floats:
    """Centre on the training rows and scale so that their mean square norm is 1.

    All columns by one number: numbers do not change when a table is rotated, scaled or widened with
    empty columns.
    """
    scaled: Floats = values / np.abs(values).max()
    scaled -= scaled[train].mean(axis=0)
    norm = np.sqrt((scaled[train] ** 2).sum(axis=1).mean())
    return scaled / norm if norm > 1e-12 else np.zeros_like(scaled)


def _draw_training_pairs(train: _Rows, rng: np.random.Generator) -> tuple[_Rows, _Rows]:
    m = len(train)
    if m * (m - 1) // 2 <= MAX_TRAINING_PAIRS:
        first, second = np.triu_indices(m, 1)
    else:
        first = rng.integers(m, size=MAX_TRAINING_PAIRS)
        # Never the same row twice.
        second = (first + rng.integers(1, m, size=MAX_TRAINING_PAIRS)) % m
    # Which of the two stands first decides the label, so both labels must occur.
    is_swapped = rng.random(len(first)) < 0.5
    return train[np.where(is_swapped, second, first)], train[
        np.where(is_swapped, first, second)
    ]


def _misordered_share(scores: NDArray[np.floating[Any]]) -> float:
    """Share of pairs whose later row has the lower score; equal scores count half."""
    first_index, second_index = np.triu_indices(len(scores), 1)
    rise = scores[second_index] - scores[first_index]
    return float((rise < 0).mean() + 0.5 * (rise == 0).mean())


def _mean_error(predicted: Floats, rows: _Rows | slice = slice(None)) -> float:
    return float(np.abs(predicted - np.arange(len(predicted)))[rows].mean())


@dataclass(frozen=True, eq=False, repr=False)
class Probes(Result):
    """Both probes, as published and sound.

    Parameters
    ----------
    absolute_published, order_published
        Probes as Wang & Chen 2020 coded them; None where undefined.
    absolute_blocked, order_disjoint
        With positions held out that training never saw; None where undefined.
    undefined
        Reason why there are no probes, or empty.
    """

    figures: ClassVar[str] = "fits.plot_probes"

    absolute_published: Annotated[PublishedAbsolute | None, NumberSuffixes()] = None
    absolute_blocked: Annotated[AbsoluteProbe | None, NumberSuffixes()] = None
    order_published: Annotated[PublishedOrder | None, NumberSuffixes()] = None
    order_disjoint: Annotated[OrderProbe | None, NumberSuffixes()] = None
    undefined: Annotated[str, JsonType(Reasons)] = ""


def probes(
    table: PositionTable | Positions | Array, *, seed: int = 0, seeds: int = 10
) -> Probes:
    """Run both probes, as published and sound.

    A published number close to zero shows that rows can be interpolated, not that the table encodes
    position: read it beside the sound one and its chance level.

    Parameters
    ----------
    table
        ``[n, d]``. The published pair takes its first `N_PUBLISHED_ROWS` rows, the sound pair all.
    seed
        Seed of every random draw.
    seeds
        Repetitions of the published pair; the sound order probe takes a third as many.

    Returns
    -------
    Probes
        Undefined, with the reason, for a grid, for fewer than `MIN_PROBE_ROWS` rows and for a table
        whose rows are all equal or too large or small for single precision.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.
    ValueError
        If ``seeds`` is not positive.

    Examples
    --------
    A table that is too short for held-out positions says so:

    >>> import posprobe as pp
    >>> pp.analyses.probes(pp.sinusoidal(8, 4)).undefined
    'fewer than 32 positions'
    """
    inputs = positions(table)
    check_seeds(seeds)
    reason = probe_obstacle(inputs)
    if reason:
        return Probes(undefined=reason)
    # Many small fits lose up to a factor of ten to threads that wait for each other.
    with threadpool_limits(1, "blas"):
        return Probes(
            absolute_published=absolute_probe_published(inputs, seeds=seeds, seed=seed),
            absolute_blocked=absolute_probe(inputs, seed=seed),
            order_published=order_probe_published(inputs, seeds=seeds, seed=seed),
            order_disjoint=order_probe(inputs, seeds=max(1, seeds // 3), seed=seed),
        )
