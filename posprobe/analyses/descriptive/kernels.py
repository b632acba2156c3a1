"""Similarity by distance of two encodings: centred curves, products of kernels, random walks."""

from __future__ import annotations

from typing import Any

import numpy as np

from posprobe.arrays import Floats

#: Pairs of random walks that the 95 % quantiles come from.
N_WALK_PAIRS = 999


def draw_walk_correlations(n: int, seed: int) -> dict[str, Any]:
    """Return 95 % quantiles of the similarity of two random walks over ``n`` distances.

    Both measures compare smooth curves, and smooth curves correlate by chance (Yule 1926).
    """
    rng = np.random.default_rng(seed)
    x, y = np.cumsum(rng.standard_normal((2, N_WALK_PAIRS, n)), axis=2)
    a, b = (walk[:, 1:] - walk[:, 1:].mean(axis=1, keepdims=True) for walk in (x, y))
    correlation = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    alignment = centred_kernel_products(x, y) / np.sqrt(
        centred_kernel_products(x, x) * centred_kernel_products(y, y)
    )
    return {
        "draws": N_WALK_PAIRS,
        "seed": seed,
        "correlation": float(np.quantile(np.abs(correlation), 0.95)),
        "alignment": float(np.quantile(np.abs(alignment), 0.95)),
    }


def centred_kernel_products(x: Floats, y: Floats) -> Floats:
    """Return the inner products of centred symmetric kernels, from their curves alone.

    Parameters
    ----------
    x, y
        ``[draws, n]`` by distance from 0.

    Returns
    -------
    NDArray
        ``[draws]``: the sums of the products of the kernels' entries, rows and columns centred.
    """
    n = x.shape[1]
    pairs = np.append(n, 2 * np.arange(n - 1, 0, -1))
    rows = [(np.cumsum(c, 1) + np.cumsum(c, 1)[:, ::-1] - c[:, :1]) / n for c in (x, y)]
    products = (pairs * x * y).sum(axis=1) - 2 * n * (rows[0] * rows[1]).sum(axis=1)
    return np.asarray(products + n**2 * rows[0].mean(axis=1) * rows[1].mean(axis=1))


def standardise(values: Floats, excluded: int | slice) -> Floats:
    """Subtract the mean and divide by the standard deviation, both without the flat index given."""
    remaining = np.delete(values, excluded)
    spread = remaining.std()
    flat = spread <= 1e-12 * float(np.abs(remaining).max(initial=0.0))
    return np.asarray((values - remaining.mean()) / (1.0 if flat else spread))
