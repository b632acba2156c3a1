"""What rounding leaves of numbers that are equal: one rule for every analysis."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from posprobe.arrays import Array

#: Spacing of double precision numbers at 1.
EPS = float(np.finfo(np.float64).eps)
#: How many times the expected error still counts as rounding.
UNITS = 16


def centring_error(largest: Any, count: int, eps: float = EPS) -> Any:
    """Return the size up to which what centring leaves of equal numbers is rounding.

    A mean summed in double precision is off by up to ``count`` units in the last place (Higham
    2002, Accuracy and Stability of Numerical Algorithms, section 4.2), and what is subtracted from
    it carries the error of its own type: ``16 max(eps, count 2⁻⁵²) largest``.

    Parameters
    ----------
    largest
        Largest magnitude of the numbers, or an array of such.
    count
        How many numbers each mean is of.
    eps
        Relative error of the numbers themselves: the spacing of their type, or more.
    """
    return UNITS * max(eps, count * EPS) * largest


def quantisation_floor(step: float, n: int, d: int) -> float:
    """Return the singular value up to which components of a quantised table may be rounding.

    Rounding to steps of ``step`` adds an error that is uniform in between, of variance
    ``step² / 12`` (Bennett 1948, Bell System Technical Journal 27). The largest singular value of
    ``[n, d]`` such errors is about ``(√n + √d) step / √12`` (Vershynin 2012, section 5.3).

    Parameters
    ----------
    step
        Distance between neighbouring values, in units of the table.
    n, d
        Its shape.
    """
    return float((np.sqrt(n) + np.sqrt(d)) * step / np.sqrt(12))


def centred(values: Array, xp: ModuleType = np) -> tuple[Array, float]:
    """Subtract the mean row from a table; of equal rows nothing is left.

    Parameters
    ----------
    values
        ``[n, d]``.

    Returns
    -------
    tuple
        ``[n, d]`` in the precision of the table, all 0 where it is rounding throughout; and up to
        which size single entries are rounding. A row is where its length is below that times
        ``sqrt(d)``.
    """
    if xp is np:  # single precision would lose a mean of many rows
        rest = values - values.mean(axis=0, dtype=np.float64).astype(values.dtype)
    else:
        rest = values - xp.mean(values, axis=0)
    error = centring_error(_largest(values, xp), len(values), float(xp.finfo(values.dtype).eps))
    return (rest if _largest(rest, xp) > error else xp.zeros_like(rest)), error


def _largest(values: Array, xp: ModuleType) -> float:
    # Without an array of magnitudes, which takes as much memory as the table.
    return max(float(xp.max(values)), -float(xp.min(values)))
