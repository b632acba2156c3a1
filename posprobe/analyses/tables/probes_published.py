"""The probes as Wang & Chen published them (EMNLP 2020, tables 1 and 2), and what all probes share.

Repeated as their released code has it, so that its numbers can be set beside theirs. They measure
how well rows can be interpolated from their neighbours: folds are drawn at random, so that nearly
every held-out row has both neighbours in training, and a random walk does as well as a sinusoid.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Number
from posprobe.analyses.result import As, Result, centred
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid
from posprobe.schema import Count, Natural, Reasons, Share, Size
from posprobe.tables import PositionTable

#: Fewer rows leave folds of a handful, whose errors mean nothing.
MIN_ROWS = 32


FOLDS = 5


#: Steps that the published code grants the optimiser.
MAX_ITERATIONS = 1000


#: Magnitudes between which the single precision of the published code neither over- nor underflows.
RANGE = (1e-12, 1e12)


def why_not_probed(given: Positions) -> str:
    """Return why a table cannot be probed, or nothing."""
    n = given.values.shape[0]
    if isinstance(given.layout, Grid):
        return "positions lie on a grid: their number in raster order is no place on a line"
    if n < MIN_ROWS:
        return f"fewer than {MIN_ROWS} positions"
    values = to_numpy(given.values)
    largest = np.abs(values).max()
    if not centred(values)[0].any():
        return "all rows are equal"
    if not RANGE[0] <= largest <= RANGE[1]:
        return f"the largest value is {largest:.1e}, beyond what single precision can work with"
    return ""


def checked(table: PositionTable | Positions | Array) -> Positions:
    """Return a table as positions, or raise `InvalidTable` where it cannot be probed."""
    given = positions(table)
    why = why_not_probed(given)
    if why:
        raise InvalidTable(
            f"this table of {given.values.shape[0]} rows cannot be probed for position: {why}."
        )
    return given


def check_seeds(seeds: int) -> None:
    """Raise ValueError unless there is a seed."""
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: at least one is needed")


@contextmanager
def counted_failures() -> Iterator[list[str]]:
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


def spread(values: Floats) -> float | None:
    """Return the standard deviation over seeds; None for a single one."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


#: Rows that Wang & Chen's code keeps of a longer table (they cut GPT-2's 1024).
PUBLISHED_ROWS = 512


#: Seeds for which the chance level of the published order probe is measured.
CHANCE_SEEDS = 3


@dataclass(frozen=True, eq=False, repr=False)
class PublishedProbe(Result):
    """A probe of Wang & Chen 2020 as coded, over several seeds: theirs is one unseeded run.

    Parameters
    ----------
    errors
        ``[seeds]``: mean absolute error in positions, or share of pairs put in the wrong order;
        each the mean over five folds.
    chance
        Of a position, what always answering the mean training position gives, in positions. Of the
        order, what the same probe gives on the same rows in random order, mean over the first
        `CHANCE_SEEDS`. It lies below one half, since positions recur in training and test pairs.
    rows
        How many rows took part, counted from the table's first.
    """

    why: ClassVar[str] = "a single seed"

    errors: Floats
    chance: Size
    rows: Natural
    folds: Literal["random"] = "random"
    undefined: Annotated[str, As(Reasons)] = ""

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(self.errors.mean())

    @property
    def sd(self) -> Annotated[Size | None, "Over seeds."]:
        """Standard deviation over seeds; None for a single one."""
        return spread(self.errors)

    @property
    def min(self) -> Annotated[Size, ""]:
        """Of all seeds."""
        return float(self.errors.min())

    @property
    def max(self) -> Annotated[Size, ""]:
        """Of all seeds."""
        return float(self.errors.max())

    @property
    def seeds(self) -> Annotated[Natural, ""]:
        """How many there were."""
        return len(self.errors)


class PublishedAbsolute(PublishedProbe):
    """Of position."""

    @property
    def mae(self) -> Annotated[Size, Number("absolute, as Wang & Chen", "mean error in positions")]:
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

    not_converged: Annotated[Count, "Fits that the optimiser ended before they converged."] = 0

    @property
    def error(
        self,
    ) -> Annotated[Share, Number("order, as Wang & Chen", "share of pairs in the wrong order")]:
        """Mean over seeds."""
        return self.mean

    @property
    def pairs(self) -> Annotated[Natural, ""]:
        """The code draws as many as there are rows."""
        return self.rows


def absolute_probe_published(
    table: PositionTable | Positions | Array,
    *,
    rows: int | None = PUBLISHED_ROWS,
    seeds: int = 10,
    seed: int = 0,
) -> PublishedAbsolute:
    """Regress position on rows exactly as Wang & Chen 2020 did for their table 1.

    Rows in random order, five folds, least squares without penalty in single precision, rounded
    predictions, mean absolute error averaged over folds. Where a row is wider than the training
    rows are many, the fit is a minimum-norm interpolator. Not a measure of positional encoding: it
    is near zero for any smooth table, a random walk included; see
    `posprobe.analyses.tables.probes.absolute_probe`.

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
        Of the sequence of random orders; the first ones are the same for any ``seeds``.

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
    values = _single(table, rows, seeds)
    runs = [_published_absolute(values, rng) for rng in np.random.default_rng(seed).spawn(seeds)]
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
        ``[n, d]``, cut to the first `PUBLISHED_ROWS` rows. The published number for RoBERTa comes
        from rows 0 to 511 as stored, both padding rows included: load the tensor by name, which
        keeps every row, to repeat that.
    seeds, seed
        As in `absolute_probe_published`.

    Raises
    ------
    InvalidTable, ValueError
        As in `absolute_probe_published`.

    References
    ----------
    Wang & Chen 2020, table 2, and the released ``relative.py``.
    """
    values = _single(table, PUBLISHED_ROWS, seeds)
    rngs = np.random.default_rng(seed).spawn(seeds)
    runs = [_published_order(values, rng) for rng in rngs]
    chances = [
        _published_order(values[rng.permutation(len(values))], rng)[0]
        for rng in rngs[:CHANCE_SEEDS]
    ]
    return PublishedOrder(
        errors=np.array([error for error, _ in runs]),
        chance=float(np.mean(chances)),
        rows=len(values),
        not_converged=sum(failed for _, failed in runs),
    )


def _single(
    table: PositionTable | Positions | Array, rows: int | None, seeds: int
) -> NDArray[np.float32]:
    """Return the first rows in the precision in which the published code had them."""
    check_seeds(seeds)
    given = positions(table)
    cut = given if isinstance(given.layout, Grid) else positions(given.values[:rows])
    return to_numpy(checked(cut).values).astype(np.float32)


def _published_absolute(
    values: NDArray[np.float32], rng: np.random.Generator
) -> tuple[float, float]:
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import KFold

    target = rng.permutation(len(values))
    rows = values[target]
    errors, chances = [], []
    for train, test in KFold(FOLDS).split(rows):
        model = LinearRegression().fit(rows[train], target[train])
        errors.append(np.abs(np.round(model.predict(rows[test])) - target[test]).mean())
        chances.append(np.abs(target[train].mean() - target[test]).mean())
    return float(np.mean(errors)), float(np.mean(chances))


def _published_order(values: NDArray[np.float32], rng: np.random.Generator) -> tuple[float, int]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    n = len(values)
    first, second = np.divmod(rng.permutation(n * n)[:n], n)
    rows = np.hstack((values[first], values[second]))
    later = second > first
    errors = []
    with counted_failures() as failures:
        for train, test in StratifiedKFold(FOLDS).split(rows, later):
            model = LogisticRegression(max_iter=MAX_ITERATIONS).fit(rows[train], later[train])
            errors.append((model.predict(rows[test]) != later[test]).mean())
    return float(np.mean(errors)), len(failures)
