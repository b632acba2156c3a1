"""The ladder of guesses that leads to the sinusoid (Kernes 2021, Master Positional Encoding, I).

Each is a table like any other, so that what it lacks can be measured: `counting` is unbounded,
`normalised_counting` means something else at every length, `binary` is bounded but jagged and comes
round again, `continuous_binary` is smooth and comes round again, `sine_ladder` comes round no more
but has no linear shift. The `sinusoidal` table has all of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from posprobe.encodings.build import canonical, check_base, check_sizes, formula_table
from posprobe.encodings.sinusoidal import frequencies
from posprobe.layouts import Sequence
from posprobe.tables import PositionTable


def counting(length: int, dim: int) -> PositionTable:
    """Count: every column of row ``i`` holds ``i``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed; of rank 1.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.encodings.counting(4, 1).values.tolist()
    [[0.0], [1.0], [2.0], [3.0]]
    """
    reference = canonical("counting", length, dim)
    check_sizes(reference, length, dim)
    values = np.repeat(np.arange(float(length))[:, None], dim, axis=1)
    return formula_table(reference, values, Sequence(length))


def normalised_counting(length: int, dim: int) -> PositionTable:
    """Count from 0 to 1: every column of row ``i`` holds ``i / (n - 1)``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed; a single position is 0.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.encodings.normalised_counting(5, 1).values.tolist()
    [[0.0], [0.25], [0.5], [0.75], [1.0]]
    """
    reference = canonical("normalised-counting", length, dim)
    check_sizes(reference, length, dim)
    values = np.repeat(np.linspace(0, 1, length)[:, None], dim, axis=1)
    return formula_table(reference, values, Sequence(length))


def binary(length: int, dim: int, *, signed: bool = False) -> PositionTable:
    """Write the positions in binary: column ``j`` of row ``i`` holds digit ``j`` of ``i``.

    The digit of ones comes first, so that columns run from fast to slow as in the sinusoid. Column
    ``j`` has period ``2 ** (j + 1)``; rows repeat after ``2 ** d``.

    Parameters
    ----------
    length, dim
        Number of positions ``n`` and of digits ``d``.
    signed
        Write -1 for the digit 0, which centres the digits.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    The numbers 0 to 3, the digit of ones first:

    >>> import posprobe as pp
    >>> pp.encodings.binary(4, 2).values.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    reference = canonical("binary", length, dim, signed=signed)
    check_sizes(reference, length, dim)
    # No position has a digit beyond the 62nd, and a shift by more than 63 is undefined.
    digits = np.arange(length)[:, None] >> np.minimum(np.arange(dim), 62) & 1
    values = (2 * digits - 1 if signed else digits).astype(np.float64)
    table = formula_table(reference, values, Sequence(length))
    if dim >= 63 or length <= 2**dim:
        return table
    note = f"{dim} digits tell {2**dim} positions apart: from there on rows repeat"
    return replace(table, notes=(note,))


def continuous_binary(length: int, dim: int) -> PositionTable:
    """Turn each binary digit into a dial: column ``j`` is a sine of period ``2 ** (j + 1)``.

    Column ``j`` of row ``i`` is ``-sin(2 pi (i + 1/2) / 2 ** (j + 1))``. The half step and the sign
    are chosen so that every number has the sign of ``binary(..., signed=True)``: a sine of period 2
    that begins at 0 would be sampled at its zeros alone. The curve through the rows is smooth, and
    it closes: rows repeat after ``2 ** d``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> table = pp.encodings.continuous_binary(8, 2).values
    >>> bool(np.allclose(table[4:], table[:4]))
    True
    """
    reference = canonical("continuous-binary", length, dim)
    check_sizes(reference, length, dim)
    # Halving is exact, so that the dials close exactly; far beyond any length they stand still.
    turns = np.ldexp(np.arange(length)[:, None] + 0.5, -np.minimum(np.arange(1, dim + 1), 1000))
    values = -np.sin(2 * np.pi * (turns % 1))
    return formula_table(reference, values, Sequence(length))


def sine_ladder(length: int, dim: int, *, base: float = 10_000.0) -> PositionTable:
    """Lower the frequencies to a geometric ladder, sines only.

    Column ``j`` of row ``i`` is ``sin(i * base ** (-j / d))``: one frequency per column, from 1 to
    about ``1 / base``. For the usual base no period is a whole number of steps, so rows do not
    repeat; without the cosines, a shift is not a linear map.

    Parameters
    ----------
    length, dim
        Number of positions ``n`` and width ``d``.
    base
        The slowest frequency is about ``1 / base``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, the base is not above 1, or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> table = pp.encodings.sine_ladder(64, 8)
    >>> bool(np.allclose(table.values[:, 0], np.sin(np.arange(64))))
    True
    """
    reference = canonical("sine-ladder", length, dim, base=None if base == 10_000 else base)
    check_sizes(reference, length, dim)
    check_base(reference, base)
    values = np.sin(np.arange(length)[:, None] * frequencies(2 * dim, base=base))
    return formula_table(reference, values, Sequence(length))
