"""Queries and keys on a line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from posprobe.arrays import Array
from posprobe.attention.checks import (
    constant,
    covers,
    floating,
    joined,
    on_device_of,
    product,
    unfit,
)
from posprobe.errors import UsageError

if TYPE_CHECKING:
    pass


def attend(q: Array, k: Array, v: Array, bias: Array | None = None) -> Array:
    """Attend with the softmax of ``q kᵀ / sqrt(d_h) + bias`` (Vaswani et al. 2017, equation 1).

    Parameters
    ----------
    q, k, v
        ``[..., n, d_h]``, ``[..., m, d_h]`` and ``[..., m, d_v]`` with equal leading axes; floats.
    bias
        Added to the scaled logits; broadcasts to ``[..., n, m]``. Minus infinity hides a key.

    Returns
    -------
    Array
        ``[..., n, d_v]``.

    Raises
    ------
    UsageError
        If the shapes do not fit, or a query has no finite logit to attend by.
    """
    xp = joined("attend", q=q, k=k, v=v, **({} if bias is None else {"bias": bias}))
    floating("attend", q, xp)
    if min(q.ndim, k.ndim, v.ndim) < 2 or not (
        q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        and q.shape[-1] == k.shape[-1]
        and k.shape[-2] == v.shape[-2]
    ):
        raise unfit(
            "attend", "[..., n, d_h], [..., m, d_h], [..., m, d_v] belong together.", q=q, k=k, v=v
        )
    logits = xp.matmul(q, k.mT) / math.sqrt(q.shape[-1])
    if bias is not None:
        if not _broadcasts(bias.shape, logits.shape):
            raise unfit(
                "attend", "the bias must broadcast to the logits.", bias=bias, logits=logits
            )
        logits = logits + bias
    largest = xp.max(logits, axis=-1, keepdims=True)
    if not bool(xp.all(xp.isfinite(largest))):
        raise UsageError(
            "attend: the largest logit of a query is not finite: a mask hides all of its keys, or "
            "NaN or infinity came in. Leave at least one key to every query."
        )
    weights = xp.exp(logits - largest)
    return xp.matmul(weights / xp.sum(weights, axis=-1, keepdims=True), v)


def shift_relative(logits: Array) -> Array:
    """Turn logits by offset into logits by key.

    The pad-and-reshape shift of Transformer-XL (Dai et al. 2019, appendix B) and Music Transformer
    (Huang et al. 2018, section 3.4), for offsets in both directions.

    Parameters
    ----------
    logits
        ``[..., n, 2n - 1]``: column ``c`` belongs to the offset ``c - (n - 1)``.

    Returns
    -------
    Array
        ``[..., n, n]``: entry ``(i, j)`` is ``logits[..., i, j - i + n - 1]``.

    Raises
    ------
    UsageError
        If the last axes are not ``[n, 2n - 1]``.
    """
    xp = joined("shift_relative", logits=logits)
    if logits.ndim < 2 or logits.shape[-1] != 2 * logits.shape[-2] - 1:
        raise unfit("shift_relative", "[..., n, 2n - 1] is expected.", logits=logits)
    *batch, n, offsets = logits.shape
    padded = xp.concat([logits, xp.zeros_like(logits[..., :1])], axis=-1)
    # Rows of 2n numbers read as rows of 2n - 1: each starts one offset earlier than the one above.
    flat = xp.reshape(padded, (*batch, n * 2 * n))[..., : n * offsets]
    return xp.reshape(flat, (*batch, n, offsets))[..., n - 1 :]


def relative_logits(q: Array, table: Array) -> Array:
    """Multiply queries with one vector for each offset (Shaw et al. 2018, equation 5).

    Shaw et al. add them to ``q kᵀ`` and divide the sum by ``sqrt(d_h)``. They clip offsets: repeat
    the outer rows of their table for that. The causal form of Huang et al. 2018 has the rows up to
    ``n - 1`` alone.

    Parameters
    ----------
    q
        ``[..., n, d_h]``.
    table
        ``R``: ``[2n - 1, d_h]``, or ``[heads, 2n - 1, d_h]``; row ``r`` belongs to the offset
        ``r - (n - 1)``. For ``n = 4``, row 0 is offset -3, row 3 is 0, row 6 is +3.

    Returns
    -------
    Array
        ``[..., n, n]``: entry ``(i, j)`` is ``q_i · R[j - i + n - 1]``.

    Raises
    ------
    UsageError
        If the shapes do not fit.
    """
    logits = product("relative_logits", q=q, table=table)
    covers("relative_logits", "tokens", q.shape[-2], q=q, table=table)
    return shift_relative(logits)


def rotate(x: Array, angles: Array, *, interleaved: bool = False) -> Array:
    """Turn pairs of dimensions of queries or keys by an angle (RoFormer, Su et al. 2021, eq. 34).

    With angles of position times frequency, the product of a turned query and a turned key depends
    on their offset alone. Models turn both, then multiply and divide by ``sqrt(d_h)`` as always.

    Parameters
    ----------
    x
        ``[..., n, d_h]``, floats.
    angles
        ``[n, pairs]`` in radians, NumPy or the library of ``x``. Where ``2 * pairs < d_h`` the
        dimensions from ``2 * pairs`` on stay as they are (partial rotary: GPT-J, GPT-NeoX).
    interleaved
        Pair ``p`` is made of the dimensions ``2p`` and ``2p + 1`` (the paper, GPT-J) rather than
        ``p`` and ``p + pairs`` (GPT-NeoX, Llama).

    Returns
    -------
    Array
        ``[..., n, d_h]``.

    Raises
    ------
    UsageError
        If the shapes do not fit.
    """
    xp = joined("rotate", x=x)
    host = constant("rotate", angles=angles)
    floating("rotate", x, xp)
    if x.ndim < 2 or angles.ndim != 2 or x.shape[-2] != angles.shape[0]:
        raise unfit("rotate", "[..., n, d_h] and [n, pairs] are expected.", x=x, angles=angles)
    pairs = angles.shape[1]
    if 2 * pairs > x.shape[-1]:
        raise unfit("rotate", f"{pairs} pairs need a width of {2 * pairs}.", x=x, angles=angles)
    # Far positions make large angles: what is rounded to the type of x is their sine, not they.
    cos, sin = on_device_of(np.cos(host), x, xp), on_device_of(np.sin(host), x, xp)
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., :pairs], turned[..., pairs:]
    parts = [first * cos - second * sin, first * sin + second * cos]
    if interleaved:
        turned = xp.reshape(xp.stack(parts, axis=-1), turned.shape)
    else:
        turned = xp.concat(parts, axis=-1)
    return xp.concat([turned, rest], axis=-1)


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))
