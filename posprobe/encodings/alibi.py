"""ALiBi: a penalty linear in distance, with one slope per head (Press et al. 2022)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from posprobe.encodings.build import check_sizes
from posprobe.errors import UsageError


def alibi_slopes(heads: int, *, bias_max: float = 8.0) -> NDArray[np.float64]:
    """Slope of each head, by the algorithm of the release.

    For a power of two the slopes are ``2 ** (-bias_max * h / heads)``, ``h`` from 1. Otherwise the
    slopes for the next lower power of two come first, and then every other one of those for the
    next higher power, from its steepest (released code, ``get_slopes``). BLOOM and Falcon compute
    the same; so does MPT, which selects them from the next higher power alone.

    Parameters
    ----------
    heads
        Number of heads.
    bias_max
        The gentlest slope of a power of two is ``2 ** -bias_max``: MPT's ``alibi_bias_max``. The
        paper has 8.

    Returns
    -------
    NDArray
        ``[heads]``, positive; the bias is minus the slope times the distance.

    Raises
    ------
    UsageError
        If there is no head or ``bias_max`` is no positive finite number.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.alibi_slopes(8).tolist()
    [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    """
    if heads < 1 or not (math.isfinite(bias_max) and bias_max > 0):
        raise UsageError(
            f"alibi: {heads} heads, greatest exponent {bias_max}: both must be positive. "
            "The paper's exponent is 8."
        )
    lower = 1 << (heads.bit_length() - 1)
    exact = np.arange(1, lower + 1) / lower
    between = np.arange(1, 2 * lower, 2) / (2 * lower)
    return np.asarray(2.0 ** (-bias_max * np.concatenate([exact, between])[:heads]))


def alibi_bias(heads: int, length: int, *, bias_max: float = 8.0) -> NDArray[np.float64]:
    """Bias that each head adds to its logits.

    Parameters
    ----------
    heads, bias_max
        As for `alibi_slopes`.
    length
        Number of positions ``n``.

    Returns
    -------
    NDArray
        ``[heads, n, n]``: ``-slope * |i - j|`` for query ``i`` and key ``j``. A causal model uses
        ``j <= i`` alone, an encoder (Jina BERT) all of it. BLOOM and MPT store a row per head,
        ``slope * j`` and ``slope * (j - n + 1)``: under softmax the same, as each query's logits
        differ by a constant.

    Raises
    ------
    UsageError
        As for `alibi_slopes`, or if there is no position or too many of them.
    """
    slopes = alibi_slopes(heads, bias_max=bias_max)
    check_sizes(f"alibi:{length}x{heads}", heads * length, length)
    positions = np.arange(length)
    distance = np.abs(positions[:, None] - positions)
    return np.asarray(-slopes[:, None, None] * distance)


def falcon_bias(heads: int, length: int, head_dim: int) -> NDArray[np.float64]:
    """Bias that Falcon's released code adds for each key, after rounding and scaling.

    Three things differ from `alibi_bias`. Slopes, positions and their products are rounded to
    bfloat16, so beyond 256 positions some share a bias and the step from key to key is no longer
    constant. The bias is added before logits are divided by the root of the head's width, so its
    effect is smaller by that factor. And it is given per key, for whatever query (transformers 5,
    ``FalconModel``).

    Parameters
    ----------
    heads, length
        Number of heads and of positions ``n``.
    head_dim
        Width of a head.

    Returns
    -------
    NDArray
        ``[heads, n]``, as it stands in the exponent of the softmax for key ``j``.

    Raises
    ------
    UsageError
        If a size is not positive.
    """
    check_sizes(f"alibi:{length}x{heads}", length, head_dim)
    slopes = _bfloat16(alibi_slopes(heads))
    products = _bfloat16(slopes[:, None] * _bfloat16(np.arange(length)))
    return np.asarray(products / math.sqrt(head_dim))


def _bfloat16(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Round positive numbers to the nearest bfloat16, ties to even."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.asarray(rounded.astype(np.uint32).view(np.float32), dtype=np.float64)
