"""Row norms: how long each position's vector is, and which rows stand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, Result, Stored
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Layout
from posprobe.schema import Row
from posprobe.tables import PositionTable

#: Robust standard deviations from the median beyond which a row's norm stands out.
OUTLIER = 6.0


@dataclass(frozen=True)
class OutlierRow:
    """A position whose norm stands out."""

    row: Row
    norm: float


@dataclass(frozen=True, eq=False, repr=False)
class Norms(Result):
    """Euclidean norms of the rows.

    Parameters
    ----------
    norms
        ``[n]``, in the table's units.
    mean_row_norm
        Norm of the mean row: what all positions share.
    outlier_rows
        Positions whose norm is more than `OUTLIER` robust standard deviations (1.4826 times the
        median absolute deviation) from the median.
    zero_rows
        Positions that are exactly zero.
    layout
        How the positions are arranged.
    start
        Position of the first row.
    outlier_threshold
        Robust standard deviations from the median beyond which a norm stands out.
    """

    figures: ClassVar[str] = "rows.plot_norms"

    norms: Annotated[Floats, Stored("norms")]
    mean_row_norm: Annotated[
        float,
        "Norm of the mean row: what all positions share.",
        Number("norm of the mean row", "what all positions share"),
    ]
    outlier_rows: tuple[OutlierRow, ...]
    zero_rows: tuple[Row, ...]
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    outlier_threshold: Annotated[float, "In robust standard deviations from the median."] = OUTLIER

    @property
    def mean(self) -> Annotated[float, Number("mean norm", "in the table's units")]:
        """Mean over the rows."""
        return float(self.norms.mean())

    @property
    def median(self) -> Annotated[float, ""]:
        """Median over the rows."""
        return float(np.median(self.norms))

    @property
    def min(self) -> Annotated[float, Number("smallest norm", "in the table's units")]:
        """The smallest."""
        return float(self.norms.min())

    @property
    def max(self) -> Annotated[float, Number("largest norm", "in the table's units")]:
        """The largest."""
        return float(self.norms.max())


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
    given = positions(table, squares=True)
    values, xp = given.values, given.xp
    lengths = to_numpy(xp.linalg.vector_norm(values, axis=1)).astype(np.float64)
    median = np.median(lengths)
    spread = 1.4826 * np.median(np.abs(lengths - median))
    # Where rows are equally long by construction, rounding is the only spread there is.
    limit = OUTLIER * max(spread, 1e-6 * median)
    odd = np.flatnonzero(np.abs(lengths - median) > limit).tolist()
    return Norms(
        norms=lengths,
        mean_row_norm=float(xp.linalg.vector_norm(xp.mean(values, axis=0))),
        outlier_rows=tuple(OutlierRow(row + given.start, float(lengths[row])) for row in odd),
        zero_rows=tuple((np.flatnonzero(lengths == 0) + given.start).tolist()),
        layout=given.layout,
        start=given.start,
    )
