"""P-values by rank among random draws, and standard errors by the jackknife."""

from __future__ import annotations

import numpy as np

from posprobe.arrays import Floats


def count_p_value(n_reached: int, n_draws: int) -> float:
    """Return the p-value of a statistic that some of the draws reach.

    The statistic counts as a draw, so that p is never 0 (Phipson & Smyth 2010).
    """
    return float((1 + n_reached) / (1 + n_draws))


def rank_p_value(statistic: float, null_draws: Floats) -> float:
    """Return the rank p-value of a statistic that is large if there is an effect.

    Draws that are equal up to rounding reach it.
    """
    margin = 1e-9 * max(abs(statistic), 1e-300)
    return count_p_value(int(np.sum(null_draws >= statistic - margin)), len(null_draws))


def jackknife_error(left_out: Floats) -> Floats:
    """Return the standard errors ``[...]`` of numbers by the jackknife.

    Efron & Stein 1981 (Annals of Statistics 9).

    Parameters
    ----------
    left_out
        ``[n, ...]``: the numbers without one unit each.
    """
    n = len(left_out)
    deviations = np.square(left_out - left_out.mean(axis=0)).sum(axis=0)
    return np.asarray(np.sqrt((n - 1) / n * deviations))
