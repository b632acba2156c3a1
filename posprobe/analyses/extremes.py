"""The law of the largest score of noise (Gumbel 1935), fitted by its mean and deviation."""

from __future__ import annotations

import numpy as np

from posprobe.arrays import Floats


def gumbel_quantile(null_scores: Floats, p: float) -> float:
    """Return the score that the largest of noise exceeds with a probability, by Gumbel's law.

    Some fifty draws do not reach the tail themselves.
    """
    scale = np.sqrt(6) / np.pi * null_scores.std()
    location = null_scores.mean() - np.euler_gamma * scale
    return float(location - scale * np.log(-np.log1p(-p)))


def gumbel_p(score: float, null_scores: Floats) -> float:
    """Return the probability that the largest score of noise reaches one, by the same law."""
    scale = np.sqrt(6) / np.pi * float(null_scores.std())
    if not scale > 0:
        return float(score <= null_scores.mean())
    deviation = (score - null_scores.mean()) / scale + np.euler_gamma
    return float(-np.expm1(-np.exp(-deviation)))
