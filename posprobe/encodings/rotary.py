"""Rotary positions: rules for their frequencies, and what follows from these alone.

A pair of columns ``k`` of queries and keys is turned by the angle ``m * inv_freq[k]`` at position
``m`` (Su et al. 2021), so that a logit depends on content and distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from posprobe.encodings.rope_rules import RULES, Floats, Head, Keys, proportional
from posprobe.errors import InvalidCheckpoint, UsageError

#: Numbers held at a time where distances and pairs are combined: 32 MiB.
_BLOCK = 2**22


def rotary_frequencies(
    head_dim: int,
    *,
    base: float = 10_000.0,
    partial: float = 1.0,
    scaling: Mapping[str, Any] | None = None,
    max_positions: int | None = None,
    length: int | None = None,
) -> tuple[Floats, float]:
    """Inverse frequencies of a head, and the factor on its cosines and sines.

    The rules and their keys are those of transformers 5.23 (``modeling_rope_utils.py``): default,
    linear (Chen et al. 2023), dynamic NTK, yarn (Peng et al. 2023), longrope (Ding et al. 2024),
    llama3 and proportional (Gemma). Older names are read as well: ``su`` for longrope, ``mrope``
    for default, and Hunyuan's ``dynamic`` with ``alpha``.

    Parameters
    ----------
    head_dim
        Width of a head.
    base
        ``rope_theta``, where the mapping has none.
    partial
        ``partial_rotary_factor``, the share of the head that is rotated, where the mapping has
        none.
    scaling
        ``rope_parameters`` or the older ``rope_scaling`` of a configuration; the rule stands under
        ``rope_type`` or ``type``. Where kinds of layers differ, the mapping of one kind.
    max_positions
        ``max_position_embeddings``, which dynamic needs and which stands in for
        ``original_max_position_embeddings`` where that is missing.
    length
        Positions of the current input, on which dynamic and longrope depend; without it, at most
        as many as at first in training.

    Returns
    -------
    inv_freq : NDArray
        ``[pairs]``, radians per position, as many pairs as are rotated (proportional: of the whole
        head, 0 for those that are not).
    attention_factor : float
        Multiplies cosines and sines, so logits by its square.

    Raises
    ------
    InvalidCheckpoint
        If the rule is unknown, a key it needs is missing, or a value cannot be.
    UsageError
        If another argument cannot be.

    Examples
    --------
    >>> import posprobe as pp
    >>> frequencies, factor = pp.encodings.rotary_frequencies(8)
    >>> frequencies.round(6).tolist(), factor
    ([1.0, 0.1, 0.01, 0.001], 1.0)
    """
    given = dict(scaling or {})
    nested = [key for key, value in given.items() if isinstance(value, Mapping)]
    if nested:
        raise InvalidCheckpoint(
            f"rope_parameters: it differs by kind of layer ({', '.join(nested)}). Pass the mapping "
            "of one kind."
        )
    name = given.get("rope_type") or given.get("type") or "default"
    rule = RULES.get({"su": "longrope", "mrope": "default"}.get(str(name), str(name)))
    if rule is None:
        raise InvalidCheckpoint(
            f"rope_parameters: no scaling rule is called {name!r}. Known are {', '.join(RULES)}."
        )
    keys = Keys(str(name), given)
    base = keys.number("rope_theta", base)
    partial = keys.number("partial_rotary_factor", partial, least=0)
    if (
        head_dim < 2
        or head_dim % 2
        or not (math.isfinite(base) and base > 1)
        or not 0 <= partial <= 1
    ):
        raise UsageError(
            f"rotary: head width {head_dim}, base {base}, rotated share {partial}: the width must "
            "be positive and even, the base a number above 1, the share between 0 and 1."
        )
    for what, value in (("max_positions", max_positions), ("length", length)):
        if value is not None and value < 1:
            raise UsageError(f"rotary: {what} is {value}; it counts positions, so at least 1.")
    head = Head(head_dim, partial, base, max_positions, length)
    if head.dim < 1 and rule is not proportional:
        raise UsageError(f"rotary: a share of {partial} of {head_dim} columns rotates none.")
    return rule(head, keys)


def wavelengths(inv_freq: ArrayLike) -> Floats:
    """Positions that each pair needs for a full turn (Peng et al. 2023, eq. 13).

    Returns
    -------
    NDArray
        ``[pairs]``; infinite for a pair that is never turned.
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    never = np.full_like(omega, np.inf)
    return np.divide(2 * np.pi, omega, out=never, where=omega != 0)


def along_axis(inv_freq: ArrayLike, axes: int) -> Floats:
    """Frequencies of all pairs of a head for an offset along one of its axes.

    Parameters
    ----------
    inv_freq
        ``[pairs]`` of an axis, radians per position.
    axes
        How many axes share the head, each with as many pairs.

    Returns
    -------
    NDArray
        ``[axes * pairs]``: the pairs of the other axes stand still.
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    return np.concatenate([omega, np.zeros((axes - 1) * omega.size)])


def rotary_kernel(inv_freq: ArrayLike, distance: ArrayLike) -> Floats:
    """Mean of ``cos(m * inv_freq)`` over pairs: the logit of equal unit pairs at distance ``m``.

    Parameters
    ----------
    inv_freq
        ``[pairs]``.
    distance
        Distances ``m`` of any shape.

    Returns
    -------
    NDArray
        In the shape of ``distance``; 1 at distance 0.
    """
    return _over_distances(distance, inv_freq, lambda angles: np.cos(angles).mean(axis=1))


def rotary_bound(inv_freq: ArrayLike, distance: ArrayLike) -> Floats:
    """RoFormer's bound on the logit over distance (Su et al. 2021, section 3.4.3).

    The mean over ``j`` of ``|S_j|``, where ``S_j`` is the sum of ``exp(i m inv_freq)`` over the
    first ``j`` pairs.

    Parameters
    ----------
    inv_freq, distance
        As for `rotary_kernel`.

    Returns
    -------
    NDArray
        In the shape of ``distance``; ``(pairs + 1) / 2`` at distance 0.
    """
    return _over_distances(
        distance,
        inv_freq,
        lambda angles: np.abs(np.cumsum(np.exp(1j * angles), axis=1)).mean(axis=1),
    )


def first_negative(inv_freq: ArrayLike, limit: int) -> int | None:
    """Smallest distance at which `rotary_kernel` is negative, None if there is none up to a limit.

    From there on a token like the query may get a lower logit than an arbitrary one; Men et al.
    (2024) require it not to happen within the context.

    Parameters
    ----------
    inv_freq
        ``[pairs]``.
    limit
        Largest distance to try.
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    if 2 * np.count_nonzero(omega) <= omega.size:
        return None  # the half that stands still outweighs the others wherever they point
    begin, step = 1, 64
    while begin <= limit:
        distances = np.arange(begin, min(begin + step, limit + 1))
        negative = np.flatnonzero(rotary_kernel(inv_freq, distances) < 0)
        if negative.size:
            return begin + int(negative[0])
        begin, step = begin + step, min(2 * step, 4096)  # most bases of a scan fail early
    return None


def _over_distances(
    distance: ArrayLike, inv_freq: ArrayLike, mean: Callable[[Floats], Floats]
) -> Floats:
    """Apply ``mean`` to the angles ``[m, pairs]`` of all distances, a block at a time."""
    distances = np.asarray(distance, dtype=np.float64)
    omega = np.asarray(inv_freq, dtype=np.float64)
    flat = distances.ravel()
    done = np.empty(flat.size)
    step = max(_BLOCK // max(omega.size, 1), 1)
    for begin in range(0, flat.size, step):
        block = slice(begin, begin + step)
        done[block] = mean(np.outer(flat[block], omega))
    return done.reshape(distances.shape)
