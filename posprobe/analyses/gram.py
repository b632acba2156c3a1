"""Gram matrices, cosines and directions in the precision of the table: for surrogates."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]

#: Power of the mean row over that of the rest from which subtraction would leave too few digits.
LARGE_MEAN = 100


def centre(values: Floats) -> Floats:
    """Subtract the mean row; what is then rounding becomes 0."""
    mean = values.mean(axis=0, dtype=np.float64).astype(values.dtype)
    table: Floats = values - mean
    # What centring leaves of equal rows is rounding.
    if np.abs(table).max() <= 32 * np.finfo(values.dtype).eps * np.abs(mean).max():
        table = np.zeros_like(table)
    return table


def grams(values: Floats, table: Floats) -> tuple[Floats, Floats]:
    """Return the Gram matrices ``[n, n]`` of the rows as they are, and centred (``table``)."""
    gram = values @ values.T
    mean = values.mean(axis=0, dtype=np.float64)
    if len(values) * np.dot(mean, mean) > LARGE_MEAN * np.vdot(table, table):
        return gram, table @ table.T
    along = gram.mean(axis=1)
    centered: Floats = gram - along[:, None] - along[None, :] + along.mean()
    return gram, centered


def sum_of_squared_entries(gram: Floats) -> float:
    """Return the squared Frobenius norm."""
    flat = gram.ravel()
    return float(np.dot(flat, flat))


def _there(length: Floats) -> NDArray[np.bool_]:
    """Tell which rows have a direction."""
    return np.asarray(length > 8 * np.finfo(length.dtype).eps * length.max())


def directions(rows: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return rows of length 1, zeros where there is no direction, and which rows have one."""
    length = lengths(rows)
    there = _there(length)
    return rows / np.where(there, length, np.inf)[:, None], there


def lengths(rows: Floats) -> Floats:
    """Return the rows' norms ``[n]``."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def cosines(gram: Floats, length: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return cosines, and which rows have a direction; the others' entries are 0."""
    eps = np.finfo(gram.dtype).eps
    there = _there(length)
    inverse = np.divide(1, length, out=np.zeros_like(length), where=there)
    cosine: Floats = gram * inverse[:, None]
    cosine *= inverse[None, :]
    np.fill_diagonal(cosine, there)
    # Rounding must not order cosines that are equal to 1.
    np.clip(cosine, 32 * eps - 1, 1 - 32 * eps, out=cosine)
    return cosine, there
