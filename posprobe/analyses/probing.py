"""What all probes share: the tables they take, their draws, and fits that did not converge."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.rounding import centred
from posprobe.arrays import Array, Positions, positions, to_numpy
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid
from posprobe.tables import PositionTable

#: Fewer rows leave folds of a handful, whose errors mean nothing.
MIN_ROWS = 32
FOLDS = 5
#: Steps that the published code grants the optimiser.
MAX_ITERATIONS = 1000
#: Magnitudes between which the single precision of the published code neither over- nor underflows.
RANGE = (1e-12, 1e12)

Floats: TypeAlias = NDArray[np.float64]


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


def generators(seed: int, seeds: int) -> list[np.random.Generator]:
    """Return independent generators; the first ones are the same for any number of them."""
    return np.random.default_rng(seed).spawn(seeds)


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
