"""The inverse of a symmetric Toeplitz matrix: of a kernel that depends on the offset alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def toeplitz_inverse(first: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert a symmetric, positive definite Toeplitz matrix.

    Its inverse's first column follows from the Levinson-Durbin recursion (Golub & Van Loan 2013,
    section 4.7), and the rest from that column (Gohberg & Semencul 1972). SciPy has the recursion
    too, but importing that takes longer than the recursion does.

    Parameters
    ----------
    first
        ``[n]``: the matrix's first column.

    Returns
    -------
    ndarray
        ``[n, n]``.
    """
    n = len(first)
    column, error = np.zeros(n), float(first[0])
    column[0] = 1.0
    for k in range(1, n):
        reflection = -float(first[k:0:-1] @ column[:k]) / error
        column[1 : k + 1] += reflection * column[:k][::-1]
        error *= 1 - reflection**2
    ahead = column / np.sqrt(error)
    behind = np.concatenate([[0.0], ahead[:0:-1]])
    inverse = np.outer(ahead, ahead) - np.outer(behind, behind)
    for row in range(1, n):
        inverse[row, 1:] += inverse[row - 1, :-1]
    return inverse
