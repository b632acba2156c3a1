"""Pairs of rows of queries and keys that were turned, scaled or reflected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.relations.values import relative_distance

#: Orders in which the rows of a head make pairs.
PAIR_ORDERS = ("halves", "neighbours")
#: Orders that the pairs of two copies may have.
PairOrders: TypeAlias = tuple[Sequence[str], Sequence[str]]
#: Relative distance up to which rows are turned ones: 8 bits leave 0.005.
MAX_TURN_MISFIT = 0.02
#: A factor nearer to 1 than this turns nothing beyond that distance.
MIN_TURN = 0.03
#: The factors of queries and keys cancel up to this share.
MAX_SCALE_MISFIT = 0.05
#: Pairs weaker than this share of the strongest have no angle that counts.
MIN_PAIR_STRENGTH_SHARE = 1e-3

_Complex: TypeAlias = NDArray[np.complex128]


@dataclass(frozen=True)
class PairTurn:
    """How the pairs of B's queries and keys were turned.

    Parameters
    ----------
    order
        Change of the pair order: ``same``, ``to_neighbours`` or ``to_halves``.
    angle
        Largest angle by which the queries of a pair were turned against its keys, in radians.
    is_reflected
        Whether one row of each pair was negated as well, so that pairs turn backwards.
    """

    order: str
    angle: float
    is_reflected: bool


def find_pair_turn(
    queries: tuple[Floats, Floats],
    keys: tuple[Floats, Floats],
    head_sizes: tuple[int, int],
    pair_orders: PairOrders,
) -> PairTurn | None:
    """Find whether each pair of rows of B is that of A times a complex number.

    No logit changes if the numbers of a pair's queries and keys have the product 1, the second one
    conjugated. Keys of a group are those of all its queries.

    Parameters
    ----------
    queries, keys
        ``[heads * head_dim, width]`` of A and of B.
    head_sizes
        Rows of a head, and those of them that rotate.
    pair_orders
        Orders that the pairs of A and of B may have.

    Returns
    -------
    PairTurn or None
        None if they are not, or if no pair was turned.
    """
    if any(a.shape != b.shape for a, b in (queries, keys)):
        return None
    head_dim, rotated = head_sizes
    for a, b in (queries, keys):
        fixed_rows = [x.reshape(-1, head_dim, x.shape[1])[:, rotated:] for x in (a, b)]
        if fixed_rows[0].any() and relative_distance(*fixed_rows) > MAX_TURN_MISFIT:
            return None
    for order_a, order_b in product(*pair_orders):
        for is_reflected in (False, True):
            factors = [
                _fit_factors(
                    read_pairs(a, head_sizes, order_a),
                    read_pairs(b, head_sizes, order_b),
                    is_reflected=is_reflected,
                )
                for a, b in (queries, keys)
            ]
            if factors[0] is None or factors[1] is None:
                continue
            is_turned = is_reflected or _are_turned(factors[0], factors[1])
            angle = _angle_between(factors[0], factors[1]) if is_turned else None
            if angle is not None:
                order = "same" if order_a == order_b else f"to_{order_b}"
                return PairTurn(order, angle, is_reflected)
    return None


@dataclass(frozen=True, eq=False)
class _Factors:
    """Complex number of each pair, ``[heads, pairs]``, and the size of the pair in A."""

    values: _Complex
    sizes: Floats


def read_pairs(weight: Floats, head_sizes: tuple[int, int], pair_order: str) -> _Complex:
    """Return the rotated rows as complex ones, ``[heads, pairs, width]``."""
    head_dim, rotated = head_sizes
    heads = weight.reshape(-1, head_dim, weight.shape[1])[:, :rotated]
    half = rotated // 2
    first, second = (
        (heads[:, :half], heads[:, half:])
        if pair_order == "halves"
        else (heads[:, 0::2], heads[:, 1::2])
    )
    return np.asarray(first + 1j * second)


def _fit_factors(a: _Complex, b: _Complex, *, is_reflected: bool) -> _Factors | None:
    """Fit the factor of each pair; None if some of B's rows are not those of A times it."""
    a = a.conj() if is_reflected else a
    powers = np.square(np.abs(a)).sum(axis=2)
    products = (b * a.conj()).sum(axis=2)
    values = np.divide(products, powers, out=np.ones_like(products), where=powers > 0)
    misfit = np.linalg.norm(b - values[..., None] * a)
    if misfit > MAX_TURN_MISFIT * np.linalg.norm(b):
        return None
    return _Factors(values, np.sqrt(powers))


def _are_turned(query: _Factors, key: _Factors) -> bool:
    """Tell whether some pair was turned or scaled."""
    return any(np.abs(factors.values - 1).max() >= MIN_TURN for factors in (query, key))


def _angle_between(query: _Factors, key: _Factors) -> float | None:
    """Return the largest angle between the turns of queries and keys.

    None if pairs are scaled so that their logits are.
    """
    group_size = len(query.values) // len(key.values)
    key_values, key_sizes = (
        np.repeat(x, group_size, axis=0) for x in (key.values, key.sizes)
    )
    strengths = query.sizes * key_sizes
    is_strong = strengths > MIN_PAIR_STRENGTH_SHARE * strengths.max()
    logit_factors = (query.values * key_values.conj())[is_strong]
    if not np.allclose(np.abs(logit_factors), 1.0, atol=MAX_SCALE_MISFIT):
        return None
    return float(np.abs(np.angle(logit_factors)).max(initial=0.0))
