"""Patches on a grid: the mosaic of Dosovitskiy et al. (2021, figure 7), codes of rows and columns.

Most learned tables of patches are nearly a code for the row plus a code for the column. Each of the
two is a short sequence, and winds, where it does, like one: close to a two-dimensional sinusoid
with a few frequencies per axis. A dozen points are few: hardly a turn or two can be told from a
smooth curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.descriptive.pca import PCA, pca as principal_components
from posprobe.analyses.descriptive.similarity import Similarity, similarity, unit_rows
from posprobe.analyses.descriptive.spectrum import detrend_columns, measure_grid_power
from posprobe.analyses.descriptive.winding import Winding, winding
from posprobe.analyses.facts import Number
from posprobe.analyses.result import (
    HIDDEN,
    JsonType,
    NumberSuffixes,
    Result,
    StoredArray,
    centre_rows,
)
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Layout, Sequence, Video, layout_sides
from posprobe.number_types import Cosine, Natural, Reasons
from posprobe.tables import PositionTable

#: Most tiles along a side of a mosaic; with more, each is a few millimetres wide on a page.
MAX_MOSAIC_TILES = 16


@dataclass(frozen=True, eq=False, repr=False)
class Patches(Result):
    """What a table of patches knows about rows and columns.

    Parameters
    ----------
    mosaic
        ``[h, w, h, w]``: ``mosaic[r, c]`` is the map of raw cosines of patch ``(r, c)`` with every
        patch. Rows of special tokens take no part. Of more than `similarity.MAX_MATRIX_ROWS`
        patches only every ``every``-th along both sides has a map.
    neighbour_right, neighbour_below
        Mean centred cosine with the patch to the right, and with the one below.
    own_row, own_column
        Mean centred cosine with the other patches of the own row, and of the own column.
    elsewhere
        Mean centred cosine with patches of other rows and columns.
    row_share, column_share, interaction_share
        Two-way decomposition ``P[r, c] = mean + row_r + column_c + interaction``: shares of the
        variance. A separable table, such as the 2-D sin-cos, has no interaction.
    power
        ``[h, w]``: two-dimensional spectrum summed over dimensions, zero frequency in the middle,
        in squared table units.
    axis_power_share
        Share of the power on the two axes, that is in waves along rows or columns only.
    layout
        The grid.
    undefined
        Reason for each number that is None.
    every
        Patches from one that has a map to the next, 1 where all have one.
    """

    figures: ClassVar[str] = "grid.plot_patches"

    mosaic: Floats
    power: Annotated[Floats, StoredArray("grid_power")]
    layout: Annotated[Grid, HIDDEN]
    neighbour_right: Annotated[
        Cosine | None, Number("right neighbour", "mean centred cosine")
    ]
    neighbour_below: Annotated[
        Cosine | None, Number("neighbour below", "mean centred cosine")
    ]
    own_row: Annotated[
        Cosine | None, Number("own row", "mean centred cosine with its rest")
    ]
    own_column: Annotated[
        Cosine | None, Number("own column", "mean centred cosine in it")
    ]
    elsewhere: Annotated[
        Cosine | None, Number("elsewhere", "mean centred cosine with others")
    ]
    row_share: Annotated[
        float | None, Number("rows", "share of the variance", compared=True)
    ]
    column_share: Annotated[
        float | None, Number("columns", "share of the variance", compared=True)
    ]
    interaction_share: Annotated[
        float | None, Number("interaction", "share of the variance", compared=True)
    ]
    axis_power_share: Annotated[
        float | None,
        Number("power on the axes", "share in waves along one", compared=True),
    ]
    undefined: Reasons
    every: Annotated[int, HIDDEN] = 1

    @property
    def height(self) -> Annotated[Natural, ""]:
        """Rows of the grid."""
        return self.layout.height

    @property
    def width(self) -> Annotated[Natural, ""]:
        """Its columns."""
        return self.layout.width


def grid(
    table: PositionTable | Positions, *, cosines: Similarity | None = None
) -> Patches:
    """Measure a table of patches.

    Parameters
    ----------
    table
        ``[h * w, d]`` with a `Grid` layout.
    cosines
        Its similarity, where that has been computed already.

    Raises
    ------
    InvalidTable
        If the positions do not lie on a grid.

    Examples
    --------
    In a sum of a part per row and a part per column nothing interacts:

    >>> import posprobe as pp
    >>> patches = pp.grid(pp.sincos2d(8, 8, 16))
    >>> print(f"{patches.row_share:.2f} {patches.column_share:.2f}")
    0.50 0.50
    >>> print(f"{patches.interaction_share:.2f}")
    0.00
    """
    inputs = positions(table)
    values, layout, xp = inputs.values, inputs.layout, inputs.xp
    if not isinstance(layout, Grid):
        raise InvalidTable(f"a {layout} has no patches: a table on a grid is needed.")
    cosines = cosines or similarity(table)
    height, width = layout.height, layout.width
    mean, count = cosines.centered.offset_mean, cosines.centered.offset_count
    total = np.where(count > 0, np.nan_to_num(mean) * count, 0.0)
    row_offset, column_offset = np.mgrid[1 - height : height, 1 - width : width]

    def over(is_selected: NDArray[np.bool_]) -> float | None:
        pairs = count[is_selected].sum()
        return float(total[is_selected].sum() / pairs) if pairs else None

    power = measure_grid_power(
        detrend_columns(values, xp, linear=False), layout, xp
    ).astype(np.float64)
    power = power.sum(axis=1).reshape(height, width)
    numbers = {
        "neighbour_right": over((row_offset == 0) & (column_offset == 1)),
        "neighbour_below": over((row_offset == 1) & (column_offset == 0)),
        "own_row": over((row_offset == 0) & (column_offset != 0)),
        "own_column": over((row_offset != 0) & (column_offset == 0)),
        "elsewhere": over((row_offset != 0) & (column_offset != 0)),
    } | _variance_shares(to_numpy(centre_rows(values, xp)[0]), power)
    missing = [name for name, value in numbers.items() if value is None]
    stride = 1
    if cosines.raw.pooled == 1:
        mosaic = cosines.raw.matrix.reshape(height, width, height, width)
    else:
        stride = math.ceil(max(height, width) / MAX_MOSAIC_TILES)
        mosaic = _cosine_maps(values, layout, stride, xp)
    return Patches(
        mosaic,
        np.fft.fftshift(power),
        layout,
        **numbers,
        undefined=dict.fromkeys(missing, "no such pair of patches, or no variance"),
        every=stride,
    )


def _cosine_maps(values: Array, layout: Grid, stride: int, xp: ModuleType) -> Floats:
    """Return the maps of cosines of every so many-th patch: ``[h / every, w / every, h, w]``."""
    units, is_defined = unit_rows(values, xp, centered=False)
    units = xp.where(is_defined[:, None], units, xp.nan)
    cells = xp.reshape(units, (layout.height, layout.width, -1))
    anchors = cells[::stride, ::stride]
    maps = xp.clip(
        xp.matmul(xp.reshape(anchors, (-1, anchors.shape[-1])), units.T), -1.0, 1.0
    )
    shape = (*anchors.shape[:2], layout.height, layout.width)
    return to_numpy(maps).astype(np.float64, copy=False).reshape(shape)


def _variance_shares(
    centered: NDArray[np.floating[Any]], power: Floats
) -> dict[str, float | None]:
    """Return the shares of the variance of a centred table, and of its power, zero frequency first.

    None where nothing varies.
    """
    cells = centered.reshape(*power.shape, -1)
    by_row, by_column = (
        cells.mean(axis=1, keepdims=True),
        cells.mean(axis=0, keepdims=True),
    )
    sizes = {
        "row_share": _sum_squares(by_row) * power.shape[1],
        "column_share": _sum_squares(by_column) * power.shape[0],
        "interaction_share": _sum_squares(cells - by_row - by_column),
    }
    total_power, waves = _sum_squares(cells), float(power.sum())
    shares = {
        name: size / total_power if total_power else None for name, size in sizes.items()
    }
    axes = float(power[0].sum() + power[1:, 0].sum())
    return shares | {"axis_power_share": axes / waves if waves else None}


def _sum_squares(values: NDArray[np.floating[Any]]) -> float:
    return float((values**2).sum(dtype=np.float64))


#: Components of a code whose variance is summed up: two waves, each with a sine and a cosine.
N_CODE_COMPONENTS = 4


@dataclass(frozen=True, eq=False)
class AxisCode:
    """The mean of each row of patches, or of each column, less the mean of all.

    Parameters
    ----------
    code
        ``[length, d]``.
    share
        Share of the table's variance.
    components
        Principal components of the code; None where it is constant or of one position.
    winding
        Pairs of its components that go round.
    undefined
        Reason why there are no components, or empty.
    """

    code: Floats
    share: Annotated[
        float, Number("variance", "share of the table's variance it explains")
    ]
    components: Annotated[PCA | None, HIDDEN]
    winding: Winding
    undefined: Annotated[str, JsonType(Reasons)] = ""

    @property
    def length(self) -> Annotated[int, ""]:
        """Positions along the axis."""
        return len(self.code)

    @property
    def explained_variance_ratio(
        self,
    ) -> Annotated[Floats | None, ""]:
        """Shares of the code's variance, by component."""
        return (
            None if self.components is None else self.components.explained_variance_ratio
        )

    @property
    def top4(
        self,
    ) -> Annotated[
        float | None, Number("four components", "share of the code's variance")
    ]:
        """Share of the code's variance in its first components."""
        ratio = self.explained_variance_ratio
        return None if ratio is None else float(ratio[:N_CODE_COMPONENTS].sum())


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
        Layout of the positions.
    undefined
        Reason why there are no codes, or empty.
    """

    figures: ClassVar[str] = "grid.plot_axis_codes"

    interaction_share: Annotated[float, JsonType(float | None)]
    layout: Annotated[Layout, HIDDEN]
    rows: Annotated[AxisCode | None, NumberSuffixes(" of the row code")] = None
    columns: Annotated[AxisCode | None, NumberSuffixes(" of the column code")] = None
    undefined: Annotated[str, JsonType(Reasons)] = ""

    @property
    def additive_share(
        self,
    ) -> Annotated[
        float,
        JsonType(float | None),
        Number("row code plus column code", "share of the variance they explain"),
    ]:
        """Share of the variance that the two codes hold."""
        return 1 - self.interaction_share

    @property
    def axes(self) -> dict[str, AxisCode]:
        """``"rows"`` and ``"columns"``; empty where undefined."""
        codes = {"rows": self.rows, "columns": self.columns}
        return {name: code for name, code in codes.items() if code is not None}


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
    inputs = positions(table)
    layout = inputs.layout
    if not isinstance(layout, Grid):
        return AxisCodes(
            np.nan, layout, undefined="the positions are a sequence, without axes"
        )
    cells = to_numpy(inputs.values).astype(np.float64)
    cells = cells.reshape(layout.height, layout.width, -1)
    centred_cells = cells - cells.mean(axis=(0, 1))
    largest = float(np.abs(centred_cells).max())
    if largest <= 1e-13 * layout.size * float(np.abs(cells).max()):
        return AxisCodes(
            np.nan, layout, undefined="all patches are equal: there is no variance"
        )
    centred_cells = (
        centred_cells / largest
    )  # so that no square leaves the range of the numbers
    rows, columns = centred_cells.mean(axis=1), centred_cells.mean(axis=0)
    total_variance = float((centred_cells**2).mean(axis=(0, 1)).sum())
    residual_variance = float(
        ((centred_cells - rows[:, None] - columns) ** 2).mean(axis=(0, 1)).sum()
    )
    return AxisCodes(
        residual_variance / total_variance,
        layout,
        _describe_code(
            largest * rows, float((rows**2).mean(axis=0).sum()) / total_variance
        ),
        _describe_code(
            largest * columns, float((columns**2).mean(axis=0).sum()) / total_variance
        ),
    )


@dataclass(frozen=True, eq=False, repr=False)
class VideoCodes(Result):
    """Time code, row code and column code of the patches of a video.

    Parameters
    ----------
    frames, rows, columns
        The three codes; None where undefined.
    interaction_share
        Share of the variance that no code holds.
    layout
        Layout of the positions.
    undefined
        Reason why there are no codes, or empty.
    """

    figures: ClassVar[str] = "grid.plot_axis_codes"

    interaction_share: Annotated[float, JsonType(float | None)]
    layout: Annotated[Layout, HIDDEN]
    frames: Annotated[AxisCode | None, NumberSuffixes(" of the time code")] = None
    rows: Annotated[AxisCode | None, NumberSuffixes(" of a video's row code")] = None
    columns: Annotated[AxisCode | None, NumberSuffixes(" of a video's column code")] = (
        None
    )
    undefined: Annotated[str, JsonType(Reasons)] = ""

    @property
    def additive_share(
        self,
    ) -> Annotated[
        float,
        JsonType(float | None),
        Number(
            "time code, row code and column code", "share of the variance they explain"
        ),
    ]:
        """Share of the variance that the three codes hold."""
        return 1 - self.interaction_share

    @property
    def axes(self) -> dict[str, AxisCode]:
        """``"frames"``, ``"rows"`` and ``"columns"``; empty where undefined."""
        codes = {"frames": self.frames, "rows": self.rows, "columns": self.columns}
        return {name: code for name, code in codes.items() if code is not None}


def video_codes(table: PositionTable) -> VideoCodes:
    """Decompose a table of a video's patches into mean, three codes and interaction.

    The codes are the means over each frame, over each row and over each column of the centred
    table, so that the parts are orthogonal and their shares of the variance add up to 1.

    Parameters
    ----------
    table
        ``[frames * h * w, d]`` with a `Video` layout; undefined for others.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import numpy as np
    >>> import posprobe as pp
    >>> frames, rows, columns = (np.random.default_rng(k).normal(size=(3, 4)) for k in range(3))
    >>> values = frames[:, None, None] + rows[:, None] + columns
    >>> table = pp.table(values.reshape(27, 4), grid=(3, 3, 3))
    >>> bool(pp.analyses.video_codes(table).interaction_share < 1e-12)
    True
    """
    layout = table.layout
    if not isinstance(layout, Video):
        return VideoCodes(np.nan, layout, undefined=f"it is a {layout}, and no video")
    as_line = replace(table, layout=Sequence(layout.size))
    cells = to_numpy(positions(as_line).values).astype(np.float64)
    cells = cells.reshape(*layout_sides(layout), -1)
    centred_cells = cells - cells.mean(axis=(0, 1, 2))
    largest = float(np.abs(centred_cells).max())
    if largest <= 1e-13 * layout.size * float(np.abs(cells).max()):
        return VideoCodes(
            np.nan, layout, undefined="all patches are equal: there is no variance"
        )
    centred_cells = centred_cells / largest
    total_variance = float((centred_cells**2).mean(axis=(0, 1, 2)).sum())
    residual, codes = centred_cells, list[AxisCode]()
    for axis in range(3):
        other_axes = tuple(other_axis for other_axis in range(3) if other_axis != axis)
        code = centred_cells.mean(axis=other_axes)
        residual = residual - np.expand_dims(code, other_axes)
        share = float((code**2).mean(axis=0).sum()) / total_variance
        codes.append(_describe_code(largest * code, share))
    residual_variance = float((residual**2).mean(axis=(0, 1, 2)).sum())
    frames, rows, columns = codes
    return VideoCodes(residual_variance / total_variance, layout, frames, rows, columns)


def _describe_code(code: Floats, share: float) -> AxisCode:
    if len(code) < 2:
        return AxisCode(
            code, share, None, winding(code), "a single position has no components"
        )
    # What averaging leaves of a code that is not there is rounding.
    components = principal_components(code) if share > 1e-24 else None
    if components is None or components.undefined:
        constant_winding = winding(np.zeros_like(code))
        return AxisCode(
            code, share, None, constant_winding, "the code is the same everywhere"
        )
    return AxisCode(code, share, components, winding(code, pca=components))
