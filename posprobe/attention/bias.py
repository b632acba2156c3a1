"""Biases that depend on no query: one number for each query, key and head."""

from __future__ import annotations

from posprobe.arrays import Array
from posprobe.attention.checks import constant, entries, floating, joined, on_device_of, unfit


def look_up(table: Array, index: Array) -> Array:
    """Read a bias for each query and key out of a table.

    T5 (Raffel et al. 2020, section 2.1), MPNet, Swin (Liu et al. 2021, equation 4), BEiT and LeViT
    differ in the index alone; `posprobe.encodings` has theirs. All add the bias to logits that are
    already divided by ``sqrt(d_h)``, but for T5, which never divides.

    Parameters
    ----------
    table
        ``[entries, heads]``. LeViT stores the transpose.
    index
        ``[n, m]`` integers, NumPy or the library of the table: the entry for query ``i`` and key
        ``j``.

    Returns
    -------
    Array
        ``[heads, n, m]``.

    Raises
    ------
    UsageError
        If the table has no such shape, or the index points outside it.
    """
    xp = joined("look_up", table=table)
    if table.ndim != 2:
        raise unfit("look_up", "a table of [entries, heads] is expected.", table=table)
    flat = entries("look_up", index, table.shape[0], table, xp)
    return xp.reshape(xp.take(table.mT, flat, axis=-1), (table.shape[1], *index.shape))


def continuous_bias(offsets: Array, w1: Array, b1: Array, w2: Array, index: Array) -> Array:
    """Compute the bias of Swin v2 out of log-spaced offsets (Liu et al. 2022, section 3.3).

    A network with one hidden layer of rectified units gives a number for each offset and head;
    ``16 * sigmoid`` bounds it, which is in the releases and not in the paper. Swin v2 adds it to
    cosines of queries and keys, multiplied by a learned scale for each head.

    Parameters
    ----------
    offsets
        ``[2 h - 1, 2 w - 1, 2]`` log-spaced offsets of a window, vertical and horizontal, or any
        ``[..., 2]``; NumPy or the library of ``w1``.
    w1, b1, w2
        ``[hidden, 2]``, ``[hidden]`` and ``[heads, hidden]``, as linear layers store them.
    index
        ``[n, m]`` integers: which offset, counted row by row, lies between query and key.

    Returns
    -------
    Array
        ``[heads, n, m]``, between 0 and 16.

    Raises
    ------
    UsageError
        If the shapes do not fit, or the index points outside the offsets.
    """
    where = "continuous_bias"
    xp = joined(where, w1=w1, b1=b1, w2=w2)
    host = constant(where, offsets=offsets)
    floating(where, w1, xp)
    if (
        (w1.ndim, b1.ndim, w2.ndim) != (2, 1, 2)
        or host.shape[-1:] != tuple(w1.shape[1:])
        or not w1.shape[0] == b1.shape[0] == w2.shape[1]
    ):
        raise unfit(
            where,
            "[..., 2], [hidden, 2], [hidden], [heads, hidden] are expected.",
            offsets=offsets, w1=w1, b1=b1, w2=w2,
        )  # fmt: skip
    hidden = xp.matmul(on_device_of(host.reshape(-1, w1.shape[1]), w1, xp), w1.mT) + b1
    table = xp.matmul(xp.where(hidden > 0, hidden, xp.zeros_like(hidden)), w2.mT)
    # 16 * sigmoid(t), in a form that cannot overflow.
    return look_up(8 * (1 + xp.tanh(table / 2)), index)
