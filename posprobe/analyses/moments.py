"""Sums of hidden states over contexts, added up as they come in."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Array, namespace
from posprobe.errors import InvalidTable

#: Hidden states of a layer whose products ``[d, d]`` are added up: enough to know the largest
#: variance to a percent or so, and few beside those of a long run, in which they would cost more
#: than all other sums.
PRODUCTS = 2**15
#: Columns whose products are formed at a time: half of a large matrix is saved, as it is symmetric.
BLOCK = 256
#: Means with flipped signs that stand for the sampling noise.
FLIPS = 4


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over contexts of one layer's hidden states; ``+`` joins those of different contexts.

    Their size does not depend on the number of contexts. Every state is taken relative to a fixed
    ``origin``, so that a large common mean costs no digits.

    Parameters
    ----------
    contexts
        How many there are.
    origin
        ``[d]``.
    within, within_squares
        ``[t, d]``: of each state less the mean of its context, and of the square of that.
    context, context_squares
        ``[d]`` and a number: of the means of contexts less the origin, and of their squared norm.
    flipped
        ``[FLIPS, t, d]``: of each state less the mean of its context, with the signs of `flips`.
    first
        How many contexts, the first ones, have their products in ``gram``.
    first_context, gram
        Of these: ``[d]``, as ``context``, and ``[d, d]``, of the products of a state, less the
        origin, with itself: on the diagonal and above, since the rest is the same again.
    eps
        Of the floats in which a batch is added up.
    """

    contexts: int
    origin: Array
    within: Array
    within_squares: Array
    context: Array
    context_squares: Array
    flipped: Array
    first: int
    first_context: Array
    gram: Array
    eps: float

    def __add__(self, other: Moments) -> Moments:
        more = other.first > 0  # adding zeros to a [d, d] matrix takes time, too
        return Moments(
            self.contexts + other.contexts,
            self.origin,
            self.within + other.within,
            self.within_squares + other.within_squares,
            self.context + other.context,
            self.context_squares + other.context_squares,
            self.flipped + other.flipped,
            self.first + other.first,
            self.first_context + other.first_context if more else self.first_context,
            self.gram + other.gram if more else self.gram,
            self.eps,
        )


def moments(states: Array, before: Moments | None = None) -> Moments:
    """Add up the hidden states of one layer over some contexts.

    Each batch is added up in float32, or in float64 where states are that, and batches in float64
    (on MPS in float32).

    Parameters
    ----------
    states
        ``[c, t, d]``: contexts, positions, width; NumPy or torch, of any float type.
    before
        What these will be added to, whose origin they share; None for the first.

    Raises
    ------
    InvalidTable
        If the shape is another.
    """
    if states.ndim != 3 or 0 in states.shape:
        raise InvalidTable(
            f"hidden states of shape {list(states.shape)}: [contexts, positions, width] are needed."
        )
    xp = namespace(states)
    count, t, d = states.shape
    wide = xp.float32 if getattr(states.device, "type", "") == "mps" else xp.float64
    if states.dtype != wide:
        states = xp.astype(states, xp.float32)
    origin = xp.mean(states, axis=(0, 1)) if before is None else before.origin
    states = states - xp.astype(origin, states.dtype)
    means = xp.mean(states, axis=1)
    within = states - means[:, None, :]
    signs = flips(0 if before is None else before.contexts, count)
    flipped = xp.matmul(
        xp.asarray(signs, dtype=states.dtype, device=states.device),
        xp.reshape(within, (count, t * d)),
    )
    # As many contexts as hold the states wanted, however contexts are grouped.
    needed = -(-PRODUCTS // t)
    first = max(0, min(count, needed - (0 if before is None else before.first)))
    if first:
        gram = _products(xp.reshape(states[:first], (-1, d)), xp)
        if before is None:  # whatever is added to these sums becomes as wide
            gram = xp.astype(gram, wide)
    else:
        gram = xp.empty((0, 0), dtype=wide, device=states.device)
    return Moments(
        contexts=count,
        origin=xp.astype(origin, wide),
        within=xp.astype(xp.sum(within, axis=0), wide),
        within_squares=xp.astype(xp.sum(within * within, axis=0), wide),
        context=xp.astype(xp.sum(means, axis=0), wide),
        context_squares=xp.astype(xp.sum(means**2), wide),
        flipped=xp.reshape(flipped, (FLIPS, t, d)),
        first=first,
        first_context=xp.astype(xp.sum(means[:first], axis=0), wide),
        gram=gram,
        eps=float(xp.finfo(states.dtype).eps),
    )


def _products(rows: Array, xp: ModuleType) -> Array:
    """Multiply ``[n, d]`` with itself: ``[d, d]``, of which blocks below the diagonal stay 0."""
    d = rows.shape[1]
    found = xp.zeros((d, d), dtype=rows.dtype, device=rows.device)
    for begin in range(0, d, BLOCK):
        block = slice(begin, begin + BLOCK)
        found[block, begin:] = xp.matmul(rows[:, block].T, rows[:, begin:])
    return found


def flips(start: int, count: int) -> NDArray[np.float64]:
    """Return the signs of contexts by their number: ``[FLIPS, count]``, Walsh functions.

    They change after every context, every second, every fourth … from ``start`` on, so that a
    context has the same signs however it is grouped.
    """
    number = np.arange(start, start + count)
    odd = (number >> np.arange(FLIPS)[:, None] & 1).astype(np.float64)
    signs: NDArray[np.float64] = 1.0 - 2.0 * odd
    return signs


def is_finite(sums: Moments) -> Array:
    """Tell, as an array of no dimensions, whether all states that were added up are finite."""
    xp = namespace(sums.within_squares)
    return xp.isfinite(xp.sum(sums.within_squares) + sums.context_squares)
