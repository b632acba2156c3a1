"""Recognition of stored tables that follow a published formula, by their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.encodings.tables import COLUMN_ORDERS, frequencies, pair_columns
from posprobe.layouts import Grid, Layout

#: Twice the largest error of computing in float32 and rounding to a format.
_FORMAT_ROUNDING = {"F16": 2e-3, "BF16": 8e-3}
#: First positions that are tried. In fairseq it is the one after the padding index.
_FIRST_POSITIONS = range(5)
#: Number of rows that are compared first; they exclude most candidates.
_N_PROBE_ROWS = 8
#: Number of rows that are then compared at a time, to save a copy of the table in float64.
_N_BLOCK_ROWS = 512


#: Base of the frequencies of every published variant.
PUBLISHED_BASE = 1e4
#: Largest root mean squared error of a near formula, relative to the size of the waves.
_MAX_FORMULA_ERROR = 0.02
#: Largest relative distance at which a fitted base is rounded to one digit.
_MAX_BASE_ROUNDING = 0.005


@dataclass(frozen=True)
class Formula:
    """A formula that a table follows, maybe up to a factor and a little noise.

    Parameters
    ----------
    name
        Name of the layout.
    base
        Base of its frequencies.
    scale
        Factor of the waves; None of a table that follows a published formula as it is.
    error
        Root mean squared error, relative to the size of the waves; None of such a table.
    frequencies
        ``[d/2]``, in radians per position, fastest first; None of a formula of patches.
    """

    name: str
    base: float
    scale: float | None = None
    error: float | None = None
    frequencies: Floats | None = None


@dataclass(frozen=True)
class _Order:
    """A published order of columns: the columns of the sine and cosine of every pair.

    Parameters
    ----------
    name
        Name in words.
    sine, cosine
        ``[d/2]``, columns of each pair, along an axis in the order of frequencies.
    axis
        ``[d/2]``, 0 for pairs of a patch's row, or of a position in a sequence, 1 for its column.
    width
        Patches in a row; a sequence is a grid of width 1.
    suffix
        End of the description.
    """

    name: str
    sine: NDArray[np.integer[Any]]
    cosine: NDArray[np.integer[Any]]
    axis: NDArray[np.integer[Any]]
    width: int = 1
    suffix: str = ""

    @property
    def is_grid(self) -> bool:
        """Whether there are pairs of both axes."""
        return bool(self.axis.any())

    @property
    def ladder_index(self) -> NDArray[np.integer[Any]]:
        """``[d/2]``, index of each pair in the ladder of its axis."""
        return np.arange(len(self.axis)) % (len(self.axis) // (2 if self.is_grid else 1))

    def compute_rows(self, positions: NDArray[np.integer[Any]], omega: Floats) -> Floats:
        """Return the rows of some positions for the frequencies of the pairs."""
        axis_positions = np.stack(np.divmod(positions, self.width))
        angles = axis_positions[self.axis].T * omega
        table_rows = np.empty((len(positions), 2 * len(omega)))
        table_rows[:, self.sine], table_rows[:, self.cosine] = (
            np.sin(angles),
            np.cos(angles),
        )
        return table_rows

    def describe(self, *, endpoint: bool, start: int = 0) -> str:
        """Return the name with the exponents of the ladder and the first position."""
        exponents_text = f", exponents over {'d/2 - 1' if endpoint else 'd/2'}"
        exponents_text = "" if self.is_grid and not endpoint else exponents_text
        start_text = f", from position {start}" if start else ""
        return f"{self.name}{self.suffix}{exponents_text}{start_text}"


def _iter_orders(n: int, d: int, layout: Layout) -> Iterator[_Order]:
    """Yield the published orders of sequences, and of grids, also for square sequences."""
    for order, cosine_first in product(COLUMN_ORDERS, (False, True)):
        sine, cosine = pair_columns(d, order, cosine_first=cosine_first)
        name = f"sinusoid, {order}{', cosines first' if cosine_first else ''}"
        yield _Order(name, sine, cosine, np.zeros(d // 2, dtype=int))
    width = layout.width if isinstance(layout, Grid) else isqrt(n)
    if d % 4 or not (isinstance(layout, Grid) or width * width == n):
        return
    suffix = "" if isinstance(layout, Grid) else f", on a grid of {width} x {width}"
    quarters = np.arange(d).reshape(4, -1)
    row, column = 0, 1
    for name, axes, sines, cosines in (
        ("columns first", (column, row), (0, 2), (1, 3)),
        ("rows first", (row, column), (0, 2), (1, 3)),
        ("rows first, sines before cosines", (row, column), (0, 1), (2, 3)),
    ):
        sine, cosine = (
            np.concatenate([quarters[q] for q in quarter_names])
            for quarter_names in (sines, cosines)
        )
        axis = np.repeat(axes, d // 4)
        yield _Order(f"2-D sin-cos, {name}", sine, cosine, axis, width, suffix)


def fixed_formula(
    values: NDArray[np.floating[Any]],
    layout: Layout,
    dtype: str,
    step: float = 0.0,
    begin: int = 0,
) -> str | None:
    """Name the formula that a stored table follows, or None for a learned one.

    Known are the sinusoid (interleaved or in halves, sines or cosines first, exponents over ``d/2``
    or ``d/2 - 1``, beginning at position 0 to 4), and 2-D sin-cos tables (MAE's, the same with the
    axes exchanged, timm's). The tolerance is the error of computing the formula and storing it in
    the given format. The first column excludes learned tables: in every published variant it is a
    wave of frequency 1.

    Parameters
    ----------
    values
        ``[n, d]``, the rows that are positions, in order.
    layout
        Layout of the rows; a sequence of ``k * k`` rows is tried as a square grid too. Some rows of
        a grid may be missing.
    dtype
        Format in which the table is stored, such as ``F16``.
    step
        Distance between neighbouring values of a quantised table.
    begin
        Position of the first row, if rows before it were not read.
    """
    formula = _find_published(values, layout, dtype, step, begin)
    return None if formula is None else formula.name


def find_formula(
    values: NDArray[np.floating[Any]], layout: Layout, dtype: str
) -> Formula | None:
    """Find the formula that a table follows as it is, or up to a base, a factor and noise.

    Parameters
    ----------
    values, layout, dtype
        Same as for `fixed_formula`.
    """
    return _find_published(values, layout, dtype) or nearly_formula(values, layout)


def _find_published(
    values: NDArray[np.floating[Any]],
    layout: Layout,
    dtype: str,
    step: float = 0.0,
    begin: int = 0,
) -> Formula | None:
    """Find the published formula that a stored table follows; see `fixed_formula`."""
    n, d = values.shape
    if not n or not d or d % 2:
        return None
    if not (np.abs(values[:, 0]) <= 2).all():  # neither a wave nor NaN
        return None
    first_values = values[:, 0].astype(np.float64)
    # The last term is the rounding error of a float32 angle of n.
    tolerance = max(_FORMAT_ROUNDING.get(dtype, 1e-3), step) + (begin + n) * 2.0**-23
    for order in _iter_orders(n, d, layout):
        if order.is_grid and begin and not isinstance(layout, Grid):
            continue
        wave = np.cos if order.cosine[0] == 0 else np.sin
        for start in (0,) if order.is_grid else _FIRST_POSITIONS:
            positions = np.arange(begin + start, begin + start + n)
            axis_position = np.divmod(positions, order.width)[order.axis[0]]
            if not _is_close(first_values, wave(axis_position), tolerance):
                continue
            for endpoint in (False,) if order.is_grid else (False, True):
                pairs = 2 * (int(order.ladder_index.max()) + 1)
                omega = frequencies(pairs, endpoint=endpoint)[order.ladder_index]
                if _follows_formula(values, order, positions, omega, tolerance):
                    name = order.describe(endpoint=endpoint, start=start)
                    line_frequencies = None if order.is_grid else omega
                    return Formula(name, PUBLISHED_BASE, frequencies=line_frequencies)
    return None


def nearly_formula(values: NDArray[np.floating[Any]], layout: Layout) -> Formula | None:
    """Recognise a published layout of sines and cosines of any base, up to a factor and noise.

    In each layout, the frequency of a pair of columns is the mean angle by which it turns from one
    position to the next; all must be powers of the first, which is 1.

    Parameters
    ----------
    values
        ``[n, d]``, the rows that are positions, in order.
    layout
        Layout of the rows; a sequence of ``k * k`` rows is tried as a square grid too.
    """
    n, d = values.shape
    if n < 4 or d < 4 or d % 2 or not np.isfinite(values).all():
        return None
    table: Floats = np.asarray(values, dtype=np.float64)
    for order in _iter_orders(n, d, layout):
        is_too_small = d % 8 or n % order.width or min(order.width, n // order.width) < 2
        if is_too_small if order.is_grid else isinstance(layout, Grid):
            continue
        fastest = table[:, order.cosine[0]] + 1j * table[:, order.sine[0]]
        patch_rows = fastest.reshape(-1, order.width)
        patch_rows = patch_rows.T if order.axis[0] else patch_rows
        if not _has_unit_turns(patch_rows[1:] * patch_rows[:-1].conj()):
            continue
        pairs = table[:, order.cosine] + 1j * table[:, order.sine]
        patches = pairs.reshape(-1, order.width, d // 2)
        row_turns, column_turns = (
            patches[1:] * patches[:-1].conj(),
            patches[:, 1:] * patches[:, :-1].conj(),
        )
        mean_turns = [
            turns.reshape(-1, d // 2).sum(axis=0) for turns in (row_turns, column_turns)
        ]
        omega = np.angle(np.where(order.axis, mean_turns[1], mean_turns[0]))
        if formula := _fit_formula(table, order, omega):
            return formula
    return None


def _has_unit_turns(turns: NDArray[np.complex128]) -> bool:
    """Return whether neighbours turn by an angle of about 1, as the fastest pair does."""
    mean_turn = turns.mean()
    mean_size = np.abs(turns).mean()
    return bool(
        abs(mean_turn) > 0.9 * mean_size > 0 and abs(np.angle(mean_turn) - 1) < 0.05
    )


def _fit_formula(values: Floats, order: _Order, omega: Floats) -> Formula | None:
    """Fit base, factor and first position of one layout; None if the error is too large."""
    ladder_index = order.ladder_index
    is_fast = (omega > 20 / len(values)) & (ladder_index > 0)  # noise hides the slow ones
    if not is_fast.any() or not values.any():
        return None
    weights = omega[is_fast] ** 2
    slope = -float(
        (weights * ladder_index[is_fast])
        @ np.log(omega[is_fast])
        / (weights @ ladder_index[is_fast] ** 2)
    )
    max_index = int(ladder_index.max())
    best: Formula | None = None
    min_error = np.inf
    for n_steps in (max_index + 1, max_index):
        if n_steps < 1 or slope <= 0 or slope * n_steps > 30:
            continue
        fitted = float(np.exp(slope * n_steps))
        rounded = float(f"{fitted:.1g}")
        is_near = abs(fitted / rounded - 1) < 30 * _MAX_BASE_ROUNDING
        bases = {fitted, rounded} if is_near else {fitted}
        for base, start in product(bases, (0,) if order.is_grid else _FIRST_POSITIONS):
            positions = np.arange(start, start + len(values))
            ladder = np.exp(-np.log(base) / n_steps * ladder_index)
            expected = order.compute_rows(positions, ladder)
            sum_of_squares = float(np.square(expected).sum())
            factor = float((expected * values).sum()) / sum_of_squares
            if factor <= 0:
                continue
            error = float(
                np.sqrt(np.square(values / factor - expected).sum() / sum_of_squares)
            )
            # A round base is preferred unless another fits clearly better.
            penalised_error = error if base == rounded else 1.2 * error + 1e-6
            if error <= _MAX_FORMULA_ERROR and penalised_error < min_error:
                description = order.describe(endpoint=n_steps == max_index, start=start)
                line_frequencies = None if order.is_grid else ladder
                best = Formula(description, base, factor, error, line_frequencies)
                min_error = penalised_error
    return best


def _follows_formula(
    values: NDArray[np.floating[Any]],
    order: _Order,
    positions: NDArray[np.integer[Any]],
    omega: Floats,
    tolerance: float,
) -> bool:
    n = len(values)
    blocks = (slice(begin, begin + _N_BLOCK_ROWS) for begin in range(0, n, _N_BLOCK_ROWS))
    return all(
        _is_close(values[rows], order.compute_rows(positions[rows], omega), tolerance)
        for rows in (slice(_N_PROBE_ROWS), slice(n - 1, n), *blocks)
    )


def _is_close(
    values: NDArray[np.floating[Any]],
    expected: NDArray[np.floating[Any]],
    tolerance: float,
) -> bool:
    return bool((np.abs(values - expected) <= tolerance).all())
