"""Unbiased shares of a variance that the mean over contexts explains, with errors and chance.

The squared norm of a mean over contexts is too large by sampling noise. Products of different
contexts are free of it: for vectors ``x_c`` its unbiased estimate is the mean of ``x_c · x_d`` over
all pairs of two contexts, so that everything below needs the products ``[c, c]`` alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.resampling import count_p_value, jackknife_error
from posprobe.arrays import Floats


def mean_power(products: Floats) -> float:
    """Return the unbiased estimate of the squared norm of a mean over contexts.

    Parameters
    ----------
    products
        ``[c, c]``: products of the vectors of two contexts.
    """
    n = len(products)
    return float((products.sum() - np.trace(products)) / (n * (n - 1)))


def leave_one_out_powers(products: Floats) -> Floats:
    """Return the estimates of `mean_power` without one context each, ``[c]``."""
    n = len(products)
    squares, rows = np.diag(products), products.sum(axis=1)
    # Without a context, its row and its column go, and its own product is added back once.
    pairs = rows.sum() - 2 * rows + squares - (squares.sum() - squares)
    powers: Floats = pairs / ((n - 1) * (n - 2))
    return powers


def jackknife_share_error(products: Floats, variances: Floats) -> float:
    """Return the jackknife standard error of a share over contexts.

    Parameters
    ----------
    products
        ``[c, c]``: products of the parts that are explained.
    variances
        ``[c]``: the whole variance in each context.
    """
    left_out_variances = (variances.sum() - variances) / (len(products) - 1)
    return float(jackknife_error(leave_one_out_powers(products) / left_out_variances))


def interval_factor(n_contexts: int) -> float:
    """Return half a 95 % interval over its standard error: Student's t over contexts."""
    from scipy.stats import t

    return float(t.ppf(0.975, n_contexts - 1))


def draw_signs(n_contexts: int, n_draws: int) -> NDArray[np.float64]:
    """Draw random signs of contexts, the same for every head and every run, ``[draws, c]``."""
    return np.random.default_rng(0).choice([-1.0, 1.0], (n_draws, n_contexts))


def signed_powers(products: Floats, signs: Floats) -> Floats:
    """Return `mean_power` after random signs of contexts, ``[draws]``: what chance gives."""
    n = len(products)
    sums = np.einsum("dc,ce,de->d", signs, products, signs, optimize=True)
    powers: Floats = (sums - np.trace(products)) / (n * (n - 1))
    return powers


def sign_p(products: Floats, signs: Floats) -> float:
    """Return the p-value of a mean: how often random signs give one that is as large."""
    # Equal up to rounding.
    margin = 1e-9 * abs(products.sum()) / (len(products) * (len(products) - 1))
    n_reached = np.sum(signed_powers(products, signs) >= mean_power(products) - margin)
    return count_p_value(int(n_reached), len(signs))
