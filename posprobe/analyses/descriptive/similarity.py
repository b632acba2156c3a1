"""Position-wise cosine similarity and what depends on the offset alone.

The matrix is figure 1 of Wang & Chen (EMNLP 2020); the three properties read off it are those of
Wang et al. (ICLR 2021). A sequence is treated as a grid of height 1, so that both layouts share one
definition: the offset of two positions is their displacement ``(rows, columns)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Number
from posprobe.analyses.linear import total_power
from posprobe.analyses.result import (
    HIDDEN,
    NumberSuffixes,
    Result,
    StoredArray,
    centre_rows,
    centring_error,
)
from posprobe.arrays import (
    Array,
    Floats,
    Positions,
    map_in_parallel,
    positions,
    quotient,
    to_numpy,
)
from posprobe.errors import InvalidTable
from posprobe.layouts import Layout, Sequence
from posprobe.number_types import (
    Cosine as CosineNumber,
    Natural,
    Reasons,
    Row,
    Share,
    limits,
)
from posprobe.tables import PositionTable

#: Offsets of the monotone fraction: cosines of trained tables hardly fall further away.
MONOTONE_WINDOW_OFFSETS = 64
#: Most blocks along a side of a pooled matrix: as many as a figure has pixels.
MAX_POOLED_BLOCKS = 1024
#: Positions of a line whose neighbourhoods are multiplied at a time: twice the number of offsets,
#: so that a third of the products is of use.
POSITIONS_PER_PROFILE_BATCH = 128
#: Columns of a line that are transformed at a time, which keeps the padded copy small.
COLUMNS_PER_LINE_TRANSFORM = 16
#: Numbers of a grid that are transformed at a time: 2 MiB.
NUMBERS_PER_GRID_TRANSFORM = 2**18
#: Rows whose lengths are measured at a time, so that no copy of a long table is made.
ROWS_PER_NORM_BATCH = 4096


def unit_rows(values: Array, xp: ModuleType, *, centered: bool) -> tuple[Array, Array]:
    """Scale rows to length 1.

    Parameters
    ----------
    values
        ``[n, d]``.
    xp
        Array namespace of the values.
    centered
        Whether the mean row is subtracted first.

    Returns
    -------
    tuple
        ``[n, d]``, zeros for a row without direction, and ``[n]``: which rows have one.
    """
    units, error = (
        centre_rows(values, xp) if centered else (xp.asarray(values, copy=True), 0.0)
    )
    return units, scale_rows(units, error, xp)


def scale_rows(rows: Array, error: float, xp: ModuleType) -> Array:
    """Scale rows to length 1 in place, or to 0 where entries below ``error`` leave no direction.

    A second array of this size would be a quarter of all memory that is needed.

    Returns
    -------
    Array
        ``[n]``: which rows have a direction.
    """
    blocks = range(0, len(rows), ROWS_PER_NORM_BATCH)
    length = xp.concat(
        [xp.linalg.vector_norm(rows[i : i + ROWS_PER_NORM_BATCH], axis=1) for i in blocks]
    )
    is_defined = length > error * rows.shape[1] ** 0.5
    rows /= xp.where(is_defined, length, 1.0)[:, None]
    rows *= xp.astype(is_defined, rows.dtype)[:, None]
    return is_defined


def autocorrelation(rows: Array, height: int, width: int, xp: ModuleType) -> Floats:
    """Sum the inner products of rows over the pairs at each displacement.

    Parameters
    ----------
    rows
        ``[n, c]``, row by row of a grid.
    height, width
        Height and width of the grid; a sequence has height 1.
    xp
        Array namespace of the values.

    Returns
    -------
    NDArray
        ``[2h - 1, 2w - 1]``, no displacement in the middle.
    """
    import scipy.fft

    # Twice the size, so that nothing wraps around.
    sizes = tuple(
        scipy.fft.next_fast_len(2 * side - 1, real=True) for side in (height, width)
    )
    on_line = xp is np and min(height, width) == 1
    columns = (
        COLUMNS_PER_LINE_TRANSFORM
        if on_line
        else max(1, NUMBERS_PER_GRID_TRANSFORM // len(rows))
    )
    fft = scipy.fft if xp is np else xp.fft

    def power(start: int) -> Array:
        if on_line:
            block_power = total_power(
                np.ascontiguousarray(rows[:, start : start + columns]), max(sizes)
            )
            return (
                block_power[: sizes[1] // 2 + 1] if height == 1 else block_power[:, None]
            )
        maps = xp.reshape(rows[:, start : start + columns], (height, width, -1))
        waves = fft.rfftn(maps, s=sizes, axes=(0, 1))
        real, imag = xp.real(waves), xp.imag(waves)
        return xp.sum(real * real + imag * imag, axis=-1)

    total = np.zeros((sizes[0], sizes[1] // 2 + 1))
    for part in map_in_parallel(power, range(0, rows.shape[1], columns), xp):
        total += to_numpy(part)
    cyclic = np.fft.irfftn(total, s=sizes, axes=(0, 1))
    row_offset, column_offset = (np.arange(1 - side, side) for side in (height, width))
    return np.asarray(cyclic[np.ix_(row_offset, column_offset)])


def sum_of_squares(rows: Array) -> float:
    """Return the sum of the squared inner products of all pairs of rows, each with itself too."""
    thin = rows if rows.shape[1] <= rows.shape[0] else rows.T
    gram = to_numpy(thin.T @ thin).astype(np.float64, copy=False)
    return float(np.vdot(gram, gram))


def measure_falling_share(
    units: Array, is_defined: Array, layout: Layout, xp: ModuleType
) -> float | None:
    """Return the share of falling steps of the cosine, to the right and, on a grid, downwards.

    Parameters
    ----------
    units, is_defined
        Results of `unit_rows`.
    layout
        Layout of the positions.
    xp
        Array namespace of the values.
    """
    height, width = layout.height, layout.width
    cells, is_defined_cell = (
        xp.reshape(units, (height, width, -1)),
        xp.reshape(is_defined, (height, width)),
    )
    lines = [(cells[row], is_defined_cell[row]) for row in range(height)]
    if height > 1:
        lines += [
            (cells[:, column], is_defined_cell[:, column]) for column in range(width)
        ]

    def count(part: tuple[int, int]) -> tuple[int, int]:
        return _count_falling_steps(_forward_profiles(*lines[part[0]], part[1], xp), xp)

    parts = [
        (number, start)
        for number, (line, _) in enumerate(lines)
        for start in range(
            0,
            len(line) - _window(line) if _window(line) else 0,
            POSITIONS_PER_PROFILE_BATCH,
        )
    ]
    counts = list(map_in_parallel(count, parts, xp))
    return _ratio(*(sum(counted[index] for counted in counts) for index in (0, 1)))


def _count_falling_steps(profiles: Array, xp: ModuleType) -> tuple[int, int]:
    """Count the falling steps of profiles ``[k, window + 1]``, and all that are defined."""
    # Rounding must not order cosines that are equal to 1.
    edge = 1 - 32 * float(xp.finfo(profiles.dtype).eps)
    profiles = xp.clip(profiles, -edge, edge)
    change = profiles[:, 1:] - profiles[:, :-1]
    # Rounding can order equal cosines either way; a fall must exceed it.
    masks = change < -1e-12, ~xp.isnan(change)
    falling, steps = (int(xp.sum(xp.astype(mask, xp.int64))) for mask in masks)
    return falling, steps


def _window(line: Array) -> int:
    return min(MONOTONE_WINDOW_OFFSETS, len(line) // 2)


def _forward_profiles(line: Array, defined: Array, start: int, xp: ModuleType) -> Array:
    """Return cosines of positions from ``start`` on with those after them: ``[k, window + 1]``.

    Every position that has the whole window takes part. Undefined cosines are NaN.
    """
    window = _window(line)
    count = min(POSITIONS_PER_PROFILE_BATCH, len(line) - window - start)
    window_slice = slice(start, start + count + window)
    rows = xp.where(defined[window_slice][:, None], line[window_slice], xp.nan)
    product = xp.matmul(rows[:count], rows.T)
    # Read with rows one element longer, each begins at its own position.
    empty = xp.zeros((count,), dtype=product.dtype, device=product.device)
    flat = xp.concat([xp.reshape(product, (-1,)), empty])
    return xp.reshape(flat, (count, count + window + 1))[:, : window + 1]


def pool_cosines(units: Array, is_defined: Array, xp: ModuleType) -> tuple[Floats, int]:
    """Average the cosines in blocks so that at most `MAX_POOLED_BLOCKS` are left along a side.

    Parameters
    ----------
    units, is_defined
        Results of `unit_rows`.
    xp
        Array namespace of the values.

    Returns
    -------
    tuple
        ``[m, m]``, NaN where no pair of a block has directions, and the side of a block in
        positions; the last block of a side may be shorter.
    """
    n = len(units)
    block = -(-n // MAX_POOLED_BLOCKS)
    begins = range(0, n, block)
    sums = xp.stack([xp.sum(units[start : start + block], axis=0) for start in begins])
    count = np.add.reduceat(to_numpy(is_defined).astype(np.float64), list(begins))
    pairs = np.outer(count, count)
    return np.clip(quotient(to_numpy(sums @ sums.T), pairs), -1.0, 1.0), block


#: Rows of a matrix whose diagonals are summed at a time, so that the padding stays small.
ROWS_PER_DIAGONAL_BLOCK = 64


def _diagonal_sums(matrices: Array, xp: ModuleType) -> Array:
    """Sum matrices ``[..., m, n]`` along diagonals: ``[..., m + n - 1]``, from the lower left.

    Read with rows one element shorter, a block of rows that is padded by its height is sheared by
    one column per row, so that its diagonals stand upright. Blocks keep the padding small.
    """
    *batch, m, n = matrices.shape
    sums = xp.zeros((*batch, m + n - 1), dtype=matrices.dtype, device=matrices.device)
    for start in range(0, m, ROWS_PER_DIAGONAL_BLOCK):
        rows = xp.flip(matrices[..., start : start + ROWS_PER_DIAGONAL_BLOCK, :], axis=-2)
        height = rows.shape[-2]
        empty = xp.zeros((*batch, height, height), dtype=rows.dtype, device=rows.device)
        padded = xp.concat([rows, empty], axis=-1)
        sheared = xp.reshape(padded, (*batch, height * (n + height)))[..., :-height]
        upright = xp.reshape(sheared, (*batch, height, n + height - 1))
        begin = m - start - height
        sums[..., begin : begin + n + height - 1] += xp.sum(upright, axis=-2)
    return sums


#: Largest table whose n x n matrices are formed: each of the two takes half a gigabyte.
MAX_MATRIX_ROWS = 8192
#: Largest table whose cosines are computed at all: float64 rows of 1,024 columns take a gibibyte.
MAX_COSINE_ROWS = 131_072


@dataclass(frozen=True, eq=False)
class Cosine:
    """Cosines of all pairs of rows, and their dependence on the offset.

    Parameters
    ----------
    matrix
        ``[n, n]``; NaN in the row and column of a zero row. Of more than `MAX_MATRIX_ROWS` rows
        ``[m, m]``, means over blocks of ``pooled x pooled`` pairs; NaN where none is defined.
    offset_mean, offset_std, offset_count
        Mean, standard deviation and number of pairs by displacement: ``[n]`` for the offsets 0 to
        n - 1 of a sequence, ``[2h - 1, 2w - 1]`` for a grid, no displacement in the middle. NaN
        where no pair is defined; deviations also where the matrix is pooled.
    neighbour_mean
        Mean over neighbouring positions (right and lower neighbours on a grid).
    far_mean
        Mean over pairs more than a quarter of the table (of the grid's diagonal) apart.
    minimum
        Smallest cosine; None where the matrix is pooled.
    translation_invariance
        Share of the variance of the off-diagonal cosines that their offset explains (Toeplitz
        R², block Toeplitz on a grid). Smoothness alone scores high: a random walk reaches 0.9.
    monotone_fraction
        Share of steps along an axis, from offset m to m + 1 within the window, at which the cosine
        falls.
    undefined
        Reason for each number that is None.
    pooled
        Positions along a side of the matrix's cells: 1 where it is whole.
    """

    matrix: Annotated[Floats, StoredArray("similarity")]
    offset_mean: Annotated[Floats, StoredArray("offset_profile")]
    offset_std: Floats
    offset_count: NDArray[np.int64]
    neighbour_mean: Annotated[
        CosineNumber | None,
        Number("neighbour cosine", "mean of neighbours", compared=True),
    ]
    far_mean: Annotated[
        CosineNumber | None,
        Number("far cosine", "mean beyond a quarter of the table", compared=True),
    ]
    minimum: Annotated[
        CosineNumber | None, Number("smallest cosine", "of any pair of rows")
    ]
    translation_invariance: Annotated[
        float | None,
        "Share of the variance off the diagonal that the offset explains.",
        limits(maximum=1),
        Number(
            "translation invariance", "variance that the offset explains", compared=True
        ),
    ]
    monotone_fraction: Annotated[
        Share | None,
        Number(
            "monotone fraction", "how often the cosine falls a position on", compared=True
        ),
    ]
    undefined: Reasons
    pooled: Annotated[Natural, "Positions along a side of a cell of the matrix."] = 1

    @property
    def offset_profile(
        self,
    ) -> Annotated[
        list[CosineNumber | list[CosineNumber | None] | None] | None,
        "Mean cosine by offset; by displacement, rows of columns, on a "
        "grid. Null where `pooled` is above 1: arrays.npz has it.",
    ]:
        """The mean cosines by offset, of a table whose matrix is whole."""
        return self.offset_mean.tolist() if self.pooled == 1 else None

    @property
    def positions(self) -> int:
        """Number of positions n, however coarse the matrix is."""
        offsets = self.offset_mean.shape
        return (
            math.prod((extent + 1) // 2 for extent in offsets)
            if len(offsets) > 1
            else offsets[0]
        )


@dataclass(frozen=True, eq=False, repr=False)
class Similarity(Result):
    """Cosine similarity of the rows as stored, and after subtracting the mean row.

    A shared mean row inflates every raw cosine; centring removes it, but forces the mean
    off-diagonal cosine to about -1/(n - 1) and breaks the exact invariance of a sinusoid.

    Parameters
    ----------
    raw, centered
        Cosines of the rows, and of the rows less their mean.
    layout
        Layout of the positions.
    start
        Position of row 0.
    zero_rows
        Positions without a direction; their cosines are NaN.
    window
        Offsets that the monotone fraction looks at.
    """

    figures: ClassVar[str] = "similarity.plot_similarity"

    raw: Annotated[
        Cosine, "Of the rows as stored.", NumberSuffixes(", raw", ", as stored")
    ]
    centered: Annotated[
        Cosine,
        "Of the rows less their mean.",
        NumberSuffixes(
            "", ", mean row subtracted", "_centered", not_compared=("monotone_fraction",)
        ),
    ]
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    zero_rows: Annotated[
        tuple[Row, ...], "Positions without a direction; their cosines are undefined."
    ]
    window: Annotated[Natural, "Offsets that the monotone fraction looks at."] = (
        MONOTONE_WINDOW_OFFSETS
    )


def similarity(table: PositionTable | Positions | Array) -> Similarity:
    """Compute the cosine similarity of every pair of positions.

    Up to `MAX_MATRIX_ROWS` rows the matrices are formed. Above, the smallest cosine and the
    standard deviations are not known; all other numbers follow from the rows, as exactly as for a
    small table.

    Parameters
    ----------
    table
        ``[n, d]``.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite, or has more than `MAX_COSINE_ROWS` rows.

    Examples
    --------
    Cosines of the sinusoid depend on the distance alone:

    >>> import posprobe as pp
    >>> similarity = pp.similarity(pp.sinusoidal(64, 16))
    >>> print(f"{similarity.raw.neighbour_mean:.3f}")
    0.936
    >>> print(f"{similarity.raw.translation_invariance:.3f}")
    1.000
    """
    inputs = positions(table, sums_squares=True)
    check_row_count(inputs.values.shape[0])
    raw, is_defined = _measure_cosines(inputs, centered=False)
    centered, _ = _measure_cosines(inputs, centered=True)
    zero = np.flatnonzero(~is_defined) + inputs.start
    return Similarity(raw, centered, inputs.layout, inputs.start, tuple(zero.tolist()))


def check_row_count(n: int) -> None:
    """Refuse a table of more than `MAX_COSINE_ROWS` rows, whose pairs would take hours.

    Raises
    ------
    InvalidTable
        If it has more.
    """
    if n > MAX_COSINE_ROWS:
        raise InvalidTable(
            f"{n} positions: cosines are computed of up to "
            f"{MAX_COSINE_ROWS}. Choose that many with `table[A:B]`, or "
            "analyses that need none with `only`."
        )


@dataclass(frozen=True, eq=False)
class OffsetSums:
    """Sums over all pairs of rows, from which the numbers follow.

    Parameters
    ----------
    total, count
        ``[2h - 1, 2w - 1]``: sum of the cosines and number of pairs at each displacement, none in
        the middle; a sequence has height 1.
    sum_of_squares
        Sum of squares of all cosines of two rows.
    eps
        Relative error of the cosines.
    """

    total: Floats
    count: Floats
    sum_of_squares: float
    eps: float

    def numbers(self) -> dict[str, float | None]:
        """Return the headline numbers; None where there is no pair, or nothing to explain."""
        height, width = ((side + 1) // 2 for side in self.count.shape)
        total, count = self.total, self.count
        row_offset, column_offset = np.mgrid[1 - height : height, 1 - width : width]
        distance = np.hypot(row_offset, column_offset)
        quarter = np.hypot(height if height > 1 else 0, width if width > 1 else 0) / 4
        is_pair = (distance > 0) & (count > 0)
        neighbours = is_pair & (distance == 1)
        is_far = is_pair & (distance > quarter) & ~neighbours
        invariance = None
        if np.count_nonzero(is_pair) > 2:
            spread = (
                self.sum_of_squares - total[is_pair].sum() ** 2 / count[is_pair].sum()
            )
            offset_variance = (
                self.sum_of_squares - (total[is_pair] ** 2 / count[is_pair]).sum()
            )
            # Equal cosines differ by rounding only, and then nothing is there to explain. What is
            # rounded are sums with the cosines of rows with themselves.
            largest = self.sum_of_squares + float(count[height - 1, width - 1])
            if spread > centring_error(largest, height * width, self.eps):
                invariance = float(1 - max(offset_variance, 0.0) / spread)
        return {
            "neighbour_mean": _ratio(total[neighbours].sum(), count[neighbours].sum()),
            "far_mean": _ratio(total[is_far].sum(), count[is_far].sum()),
            "translation_invariance": invariance,
        }


def sum_cosines(
    units: Array, is_defined: Array, height: int, width: int, xp: ModuleType
) -> OffsetSums:
    """Sum the cosines of `unit_rows` over the pairs at each displacement.

    Parameters
    ----------
    units, is_defined
        Results of `unit_rows`.
    height, width
        Height and width of the grid; a sequence has height 1.
    xp
        Array namespace of the values.
    """
    count = _count_pairs(is_defined, height, width)
    return OffsetSums(
        np.clip(autocorrelation(units, height, width, xp), -count, count),
        count,
        sum_of_squares(units) - float(xp.sum(xp.astype(is_defined, units.dtype))),
        float(xp.finfo(units.dtype).eps),
    )


def _count_pairs(is_defined: Array, height: int, width: int) -> Floats:
    """Count the pairs at each displacement of which both rows have a direction."""
    defined_rows = to_numpy(is_defined)
    if not defined_rows.all():
        return np.rint(
            autocorrelation(defined_rows.astype(np.float64)[:, None], height, width, np)
        )
    row_offset, column_offset = np.mgrid[1 - height : height, 1 - width : width]
    return np.asarray(
        (height - np.abs(row_offset)) * (width - np.abs(column_offset)), dtype=np.float64
    )


def _measure_cosines(
    inputs: Positions, *, centered: bool
) -> tuple[Cosine, NDArray[np.bool_]]:
    """Return the cosines of one variant, and which rows have a direction."""
    layout, xp = inputs.layout, inputs.xp
    units, is_defined = unit_rows(inputs.values, xp, centered=centered)
    height, width = layout.height, layout.width
    sums = sum_cosines(units, is_defined, height, width, xp)
    total, count = sums.total, sums.count
    defined_rows = to_numpy(is_defined)
    numbers = sums.numbers() | {
        "monotone_fraction": measure_falling_share(units, is_defined, layout, xp)
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
    spread, smallest, pooled = np.full_like(mean, np.nan), None, 1
    if len(units) > MAX_MATRIX_ROWS:
        matrix, pooled = pool_cosines(units, is_defined, xp)
    else:
        matrix, squares = _all_cosines(units, is_defined, height, width, xp)
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.maximum(squares / count - mean**2, 0.0)
            spread = np.where(count > 0, np.sqrt(variance), np.nan)
        if np.count_nonzero(defined_rows) > 1:
            # No cosine with itself is smaller than one with another row.
            smallest = float(np.fmin.reduce(matrix, axis=None, initial=1.0))
    numbers["minimum"] = smallest
    reason = "no pair of rows with a direction is that far apart"
    undefined = {name: reason for name, value in numbers.items() if value is None}
    if "translation_invariance" in undefined and np.count_nonzero(defined_rows) > 1:
        undefined["translation_invariance"] = "the cosines do not vary"
    if isinstance(layout, Sequence):
        mean, spread, count = (
            statistic[0, width - 1 :] for statistic in (mean, spread, count)
        )
    if pooled > 1:
        undefined["minimum"] = (
            f"of more than {MAX_MATRIX_ROWS} positions not every pair is looked at"
        )
        undefined["offset_profile"] = "too long for this file: arrays.npz has all numbers"
    elif not sums.count.all():
        undefined["offset_profile"] = reason
    counts = np.rint(count).astype(np.int64)
    record = Cosine(
        matrix, mean, spread, counts, **numbers, undefined=undefined, pooled=pooled
    )
    return record, defined_rows


def _all_cosines(
    units: Array, is_defined: Array, height: int, width: int, xp: ModuleType
) -> tuple[Floats, Floats]:
    """Return all cosines ``[n, n]``, and the sums of their squares at each displacement."""
    cosines = xp.matmul(units, units.T)
    # Rounding must not leave the domain of the arc cosine; in place, without another matrix.
    cosines[cosines > 1.0] = 1.0
    cosines[cosines < -1.0] = -1.0
    squares = sum_by_displacement(cosines**2, height, width, xp)
    matrix = to_numpy(cosines).astype(
        np.float64, copy=False
    )  # nothing else needs it any more
    missing = to_numpy(~is_defined)
    matrix[missing, :] = np.nan
    matrix[:, missing] = np.nan
    return matrix, squares


def sum_by_displacement(
    matrices: Array, height: int, width: int, xp: ModuleType
) -> Floats:
    """Sum matrices over the pairs of positions at each displacement.

    Parameters
    ----------
    matrices
        ``[..., n, n]``.
    height, width
        Height and width of the grid; a sequence has height 1.
    xp
        Array namespace of the values.

    Returns
    -------
    NDArray
        ``[..., 2h - 1, 2w - 1]``, no displacement in the middle.
    """
    cells = xp.reshape(matrices, (-1, height, width, height, width))
    # The longer side first: it leaves least to the second pass.
    if width > height:
        row_sums = _diagonal_sums(xp.permute_dims(cells, (0, 1, 3, 2, 4)), xp)
        sums = _diagonal_sums(xp.permute_dims(row_sums, (0, 3, 1, 2)), xp)
        sums = xp.permute_dims(sums, (0, 2, 1))
    else:
        down = _diagonal_sums(xp.permute_dims(cells, (0, 2, 4, 1, 3)), xp)
        sums = _diagonal_sums(xp.permute_dims(down, (0, 3, 1, 2)), xp)
    shape = (*matrices.shape[:-2], 2 * height - 1, 2 * width - 1)
    return to_numpy(xp.reshape(sums, shape)).astype(np.float64)


def _ratio(total: float, count: float) -> float | None:
    return float(total / count) if count else None
