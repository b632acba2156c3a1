"""Axis codes: what a table of patches says of rows alone, and of columns alone.

Most learned tables of patches are nearly a code for the row plus a code for the column. Each of the
two is a short sequence, and winds, where it does, like one: close to a two-dimensional sinusoid
with a few frequencies per axis. A dozen points are few: hardly a turn or two can be told from a
smooth curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, As, Part, Result
from posprobe.analyses.sequences.winding import Winding, winding
from posprobe.analyses.tables.pca import PCA, pca as principal_components
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.schema import Reasons
from posprobe.tables import PositionTable

#: Components whose variance is summed up.
LEADING = 4


@dataclass(frozen=True, eq=False)
class AxisCode:
    """The mean of each row of patches, or of each column, less the mean of all.

    Parameters
    ----------
    code
        ``[length, d]``.
    share
        Of the table's variance.
    components
        Principal components of the code; None where it is constant or of one position.
    winding
        Pairs of its components that go round.
    undefined
        Reason why there are no components, or empty.
    """

    code: Floats
    share: Annotated[float, Number("variance", "share of the table's variance it explains")]
    components: Annotated[PCA | None, HIDDEN]
    winding: Winding
    undefined: Annotated[str, As(Reasons)] = ""

    @property
    def length(self) -> Annotated[int, ""]:
        """Positions along the axis."""
        return len(self.code)

    @property
    def explained_variance_ratio(
        self,
    ) -> Annotated[Floats | None, ""]:
        """Shares of the code's variance, by component."""
        return None if self.components is None else self.components.explained_variance_ratio

    @property
    def top4(
        self,
    ) -> Annotated[float | None, Number("four components", "share of the code's variance")]:
        """Share of the code's variance in its first components."""
        ratio = self.explained_variance_ratio
        return None if ratio is None else float(ratio[:LEADING].sum())


@dataclass(frozen=True, eq=False, repr=False)
class AxisCodes(Result):
    """Row code and column code of a table of patches.

    Parameters
    ----------
    rows, columns
        The two codes; None where undefined.
    interaction_share
        Share of the variance that neither code holds.
    layout
        Of the positions.
    undefined
        Reason why there are no codes, or empty.
    """

    figures: ClassVar[str] = "grid.plot_axis_codes"

    interaction_share: Annotated[float, As(float | None)]
    layout: Annotated[Layout, HIDDEN]
    rows: Annotated[AxisCode | None, Part(" of the row code")] = None
    columns: Annotated[AxisCode | None, Part(" of the column code")] = None
    undefined: Annotated[str, As(Reasons)] = ""

    @property
    def additive_share(
        self,
    ) -> Annotated[
        float,
        As(float | None),
        Number("row code plus column code", "share of the variance they explain"),
    ]:
        """Share of the variance that the two codes hold."""
        return 1 - self.interaction_share

    @property
    def axes(self) -> dict[str, AxisCode]:
        """``"rows"`` and ``"columns"``; empty where undefined."""
        found = {"rows": self.rows, "columns": self.columns}
        return {name: code for name, code in found.items() if code is not None}


def axis_codes(table: PositionTable | Positions | Array) -> AxisCodes:
    """Split a table of patches into ``mean + row code + column code + interaction``.

    The codes are the means over each row and over each column of the centred table, so that the
    four parts are orthogonal and their shares of the variance add up to 1.

    Parameters
    ----------
    table
        ``[h * w, d]`` with a `Grid` layout; undefined for a sequence.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> bool(pp.axis_codes(pp.sincos2d(6, 7, 16)).interaction_share < 1e-12)
    True
    """
    given = positions(table)
    layout = given.layout
    if not isinstance(layout, Grid):
        return AxisCodes(np.nan, layout, undefined="the positions are a sequence, without axes")
    cells = to_numpy(given.values).astype(np.float64)
    cells = cells.reshape(layout.height, layout.width, -1)
    rest = cells - cells.mean(axis=(0, 1))
    largest = float(np.abs(rest).max())
    if largest <= 1e-13 * layout.size * float(np.abs(cells).max()):
        return AxisCodes(np.nan, layout, undefined="all patches are equal: there is no variance")
    rest = rest / largest  # so that no square leaves the range of the numbers
    rows, columns = rest.mean(axis=1), rest.mean(axis=0)
    whole = float((rest**2).mean(axis=(0, 1)).sum())
    inside = float(((rest - rows[:, None] - columns) ** 2).mean(axis=(0, 1)).sum())
    return AxisCodes(
        inside / whole,
        layout,
        _axis(largest * rows, float((rows**2).mean(axis=0).sum()) / whole),
        _axis(largest * columns, float((columns**2).mean(axis=0).sum()) / whole),
    )


def _axis(code: Floats, share: float) -> AxisCode:
    if len(code) < 2:
        return AxisCode(code, share, None, winding(code), "a single position has no components")
    # What averaging leaves of a code that is not there is rounding.
    components = principal_components(code) if share > 1e-24 else None
    if components is None or components.undefined:
        still = winding(np.zeros_like(code))
        return AxisCode(code, share, None, still, "the code is the same everywhere")
    return AxisCode(code, share, components, winding(code, pca=components))
