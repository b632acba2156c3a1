"""Row norms: how long each position's vector is, and which rows stand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import Result
from posprobe.arrays import Array, Positions, positions, to_numpy
from posprobe.layouts import Layout
from posprobe.schema import Row
from posprobe.tables import PositionTable

#: Robust standard deviations from the median beyond which a row's norm stands out.
OUTLIER = 6.0


class OutlierRow(TypedDict):
    """A row whose norm stands out."""

    row: Row
    norm: float


class NormsBlock(TypedDict):
    """Euclidean norms of the rows."""

    mean: float
    median: float
    min: float
    max: float
    mean_row_norm: Annotated[float, "Norm of the mean row: what all positions share."]
    outlier_threshold: Annotated[float, "In robust standard deviations from the median."]
    outlier_rows: list[OutlierRow]
    zero_rows: list[Row]


@dataclass(frozen=True, eq=False, repr=False)
class Norms(Result):
    """Euclidean norms of the rows.

    Parameters
    ----------
    norms
        ``[n]``, in the table's units.
    mean_row_norm
        Norm of the mean row: what all positions share.
    outliers
        Rows whose norm is more than `OUTLIER` robust standard deviations (1.4826 times the median
        absolute deviation) from the median.
    zero_rows
        Rows that are exactly zero.
    layout
        How the positions are arranged.
    start
        Position of the first row.
    """

    figures: ClassVar[str] = "norms"

    norms: NDArray[np.float64]
    mean_row_norm: float
    outliers: tuple[int, ...]
    zero_rows: tuple[int, ...]
    layout: Layout
    start: int

    def summary(self) -> NormsBlock:
        """Return mean, extremes and the rows that stand out, counted as positions."""
        return {
            "mean": float(self.norms.mean()),
            "median": float(np.median(self.norms)),
            "min": float(self.norms.min()),
            "max": float(self.norms.max()),
            "mean_row_norm": self.mean_row_norm,
            "outlier_threshold": OUTLIER,
            "outlier_rows": [
                {"row": row + self.start, "norm": float(self.norms[row])} for row in self.outliers
            ],
            "zero_rows": [row + self.start for row in self.zero_rows],
        }


def norms(table: PositionTable | Positions | Array) -> Norms:
    """Compute the norm of every row.

    Parameters
    ----------
    table
        ``[n, d]``.

    Returns
    -------
    Norms
        Rows are counted from the table's first.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> norms = pp.norms(pp.sinusoidal(64, 8))
    >>> norms.norms[:3].round(6).tolist()
    [2.0, 2.0, 2.0]
    """
    given = positions(table)
    values, xp = given.values, given.xp
    lengths = to_numpy(xp.linalg.vector_norm(values, axis=1)).astype(np.float64)
    median = np.median(lengths)
    spread = 1.4826 * np.median(np.abs(lengths - median))
    # Where rows are equally long by construction, rounding is the only spread there is.
    limit = OUTLIER * max(spread, 1e-6 * median)
    return Norms(
        norms=lengths,
        mean_row_norm=float(xp.linalg.vector_norm(xp.mean(values, axis=0))),
        outliers=tuple(np.flatnonzero(np.abs(lengths - median) > limit).tolist()),
        zero_rows=tuple(np.flatnonzero(lengths == 0).tolist()),
        layout=given.layout,
        start=given.start,
    )
