"""Slow changes along a table: of a series of lengths, by their slowest four cosines."""

from __future__ import annotations

import numpy as np

from posprobe.analyses.closeness import Floats

#: Least change of norms or speed along the table that counts: a tenth, which is what a reader of
#: their curve sees as a change.
SLIGHT = 0.1
#: Times as long as the distance at which similarity halves a table must be: of fewer independent
#: stretches, any curve changes slowly.
STRETCHES = 8


def ranks(values: Floats) -> Floats:
    """Return ranks ``[..., n]`` less their mean; equal values rank in order."""
    count = values.shape[-1]
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / count
    return np.asarray((ranks - (count - 1) / (2 * count)) / count)


def slow_waves(count: int) -> Floats:
    """Return the four slowest waves of a sequence of so many values: ``[4, count]``."""
    return np.asarray(np.cos(np.pi * np.outer(np.arange(1, 5), np.arange(count) + 0.5) / count))


def variation(values: Floats) -> float:
    """Return how much the slowest four waves change the logarithm of lengths: 0.1 is a tenth."""
    count = len(values)
    logs = np.log(np.maximum(values, 1e-9 * max(float(values.max()), 1e-300)))
    return float(np.sqrt(2 * np.square(slow_waves(count) @ (logs - logs.mean())).sum()) / count)
