"""Relate two copies of query and key projections: row order, folded factors, moved heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.relations.rules import RULES, Finding
from posprobe.relations.values import find_same_values, moved_finding, relative_distance

#: The rows of a head in B may stand as in A; their pairs may have changed from half a head apart to
#: neighbours, or back; or a converter may have made that change twice.
ROW_ORDERS = (
    "same",
    "to_neighbours",
    "to_halves",
    "to_neighbours_twice",
    "to_halves_twice",
)


@dataclass(frozen=True, eq=False)
class Projections:
    """The matrices that compute queries and keys of one layer, or their products with inputs.

    Parameters
    ----------
    query, key
        ``[heads * head_dim, width]``, some or all heads.
    head_dim, rotated
        Number of rows of a head, and number of those that rotate.
    """

    query: Floats = field(repr=False)
    key: Floats = field(repr=False)
    head_dim: int
    rotated: int


def reorder_rows(weight: Floats, order: str, head_dim: int, rotated: int) -> Floats:
    """Put the rotated rows of each head into another order of pairs.

    Parameters
    ----------
    weight
        ``[heads * head_dim, width]``.
    order
        One of `ROW_ORDERS`.
    head_dim, rotated
        Number of rows of a head, and of those that rotate.
    """
    heads = weight.reshape(-1, head_dim, weight.shape[1])
    row_order = np.concatenate([_row_order(order, rotated), np.arange(rotated, head_dim)])
    return heads[:, row_order].reshape(weight.shape)


def _row_order(order: str, rotated: int) -> NDArray[np.intp]:
    """Return the index in A of each rotated row of B, ``[rotated]``."""
    rows = np.arange(rotated)
    shape = (2, -1) if "neighbours" in order else (-1, 2)
    reordered = rows.reshape(*shape).T.ravel()
    if order == "same":
        return rows
    return reordered[reordered] if order.endswith("twice") else reordered


def relate_projections(a: Projections, b: Projections) -> tuple[str | None, Finding]:
    """Find the order of the rows of B, and any other change of their values.

    Returns
    -------
    tuple
        One of `ROW_ORDERS`, None if no order is recognised; and the finding on the values.
    """
    if a.query.shape != b.query.shape or a.key.shape != b.key.shape:
        shapes = (list(a.query.shape), list(b.query.shape))
        return None, Finding("weights", "other_weights", *shapes)
    weights_a, weights_b = (
        np.concatenate([projections.query, projections.key]) for projections in (a, b)
    )
    if np.array_equal(weights_a, weights_b):
        return "same", Finding("weights", "identical", value=0.0)
    # In narrow heads several names mean the same order, and the first name is kept.
    order_by_rows = {
        _row_order(order, a.rotated).tobytes(): order for order in reversed(ROW_ORDERS)
    }
    orders = [*order_by_rows.values()][::-1]
    # Rows that do not rotate never change their order, and would hide a change of the others.
    rotating_a, rotating_b = (
        _rotating_rows(weight, a) for weight in (weights_a, weights_b)
    )
    distances_by_order = {
        order: relative_distance(
            reorder_rows(rotating_a, order, a.rotated, a.rotated), rotating_b
        )
        for order in orders
    }
    best_order = min(orders, key=lambda order: distances_by_order[order])
    if distances_by_order[best_order] < RULES["same_pairs"].tolerance:
        reordered_a = reorder_rows(weights_a, best_order, a.head_dim, a.rotated)
        same_finding = find_same_values(reordered_a, weights_b, "weights")
        value_finding = moved_finding(reordered_a, weights_b, "weights")
        if (value_finding.value or 0.0) >= RULES["moved"].tolerance:
            value_finding = Finding("weights", "other_weights", value=value_finding.value)
        changes = _find_changes(a, b, [(best_order, reordered_a)])
        return best_order, same_finding or next(changes, value_finding)
    reordered_weights = (
        (order, reorder_rows(weights_a, order, a.head_dim, a.rotated)) for order in orders
    )
    change = next(_find_changes(a, b, reordered_weights), None)
    if change is not None:
        return change.more.get("order"), change
    return None, Finding("weights", "other_weights", value=distances_by_order[best_order])


def relate_sketches(
    a: Projections, b: Projections, transposed_product: Floats | None
) -> tuple[str | None, Finding]:
    """Relate whole layers by the products of their weights with a few random inputs.

    Parameters
    ----------
    a, b
        Weights times the same inputs, ``[heads * head_dim, inputs]``.
    transposed_product
        Transposed weights of A's queries times inputs ``[width, inputs]``; None for weights that
        are not square.
    """
    weights_a, weights_b = (
        np.concatenate([projections.query, projections.key]) for projections in (a, b)
    )
    tolerance = RULES["weights_transposed"].tolerance
    if (
        transposed_product is not None
        and relative_distance(transposed_product, b.query) < tolerance
    ):
        return None, Finding("weights", "weights_transposed")
    for order in ROW_ORDERS:
        reordered_a = reorder_rows(weights_a, order, a.head_dim, a.rotated)
        if n_moved_heads := _count_moved_heads(reordered_a, weights_b, a):
            details = {"order": order}
            return order, Finding(
                "weights", "heads_order", value=n_moved_heads, more=details
            )
    return None, Finding(
        "weights", "other_weights", value=relative_distance(weights_a, weights_b)
    )


def _rotating_rows(weight: Floats, layout: Projections) -> Floats:
    """Return the rows that rotate."""
    heads = weight.reshape(-1, layout.head_dim, weight.shape[1])[:, : layout.rotated]
    return heads.reshape(-1, weight.shape[1])


def _find_changes(
    a: Projections, b: Projections, orders: Iterable[tuple[str, Floats]]
) -> Iterator[Finding]:
    """Yield the changes that explain B by A, given A's rows in each possible order."""
    n_query_rows = len(a.query)
    weights_b = np.concatenate([b.query, b.key])
    limit = RULES["gain_folded"].tolerance
    for order, weights_a in orders:
        details = {"order": order}
        direct_distance = relative_distance(weights_a, weights_b)
        query_a, key_a = weights_a[:n_query_rows], weights_a[n_query_rows:]
        query_scale, key_scale = (
            float((x * y).sum() / ((x * x).sum() or 1.0))
            for x, y in ((query_a, b.query), (key_a, b.key))
        )
        scaled = np.concatenate([query_a * query_scale, key_a * key_scale])
        if _explains_difference(
            relative_distance(weights_b, scaled), direct_distance, limit
        ):
            yield Finding("weights", "scale_folded", query_scale, key_scale, more=details)
        column_powers = np.maximum((weights_a * weights_a).sum(axis=0), 1e-300)
        column_gains = (weights_a * weights_b).sum(axis=0) / column_powers
        gain_misfit = relative_distance(weights_b, weights_a * column_gains)
        if len(weights_a) >= 8 and _explains_difference(
            gain_misfit, direct_distance, limit
        ):
            min_gain, max_gain = float(column_gains.min()), float(column_gains.max())
            yield Finding("weights", "gain_folded", min_gain, max_gain, more=details)
        if n_moved_heads := _count_moved_heads(weights_a, weights_b, a):
            yield Finding("weights", "heads_order", value=n_moved_heads, more=details)
    for projection_a, projection_b in ((a.query, b.query), (a.key, b.key)):
        is_square = projection_a.shape[0] == projection_a.shape[1]
        if is_square and relative_distance(projection_a.T, projection_b) < limit:
            yield Finding("weights", "weights_transposed")
    if gauge_order := _find_gauge_order(a, b):
        yield Finding("weights", "gauge", more={"order": gauge_order})


def _explains_difference(misfit: float, direct_distance: float, limit: float) -> bool:
    """Tell whether a change leaves no more than the limit and a third of the difference."""
    return misfit < min(limit, direct_distance / 3)


def _count_moved_heads(weights_a: Floats, weights_b: Floats, a: Projections) -> int:
    """Return the number of heads that changed their index, 0 unless all are found in B."""
    heads_a, heads_b = (
        weights.reshape(-1, a.head_dim * weights.shape[1])
        for weights in (weights_a, weights_b)
    )
    if len(heads_a) < 3:
        return 0
    squared_distances = (heads_a * heads_a).sum(1)[None] - 2 * heads_b @ heads_a.T
    nearest = squared_distances.argmin(axis=1)
    n_query_heads = len(a.query) // a.head_dim
    is_permutation = len(set(nearest.tolist())) == len(heads_a)
    if not is_permutation or (nearest[:n_query_heads] >= n_query_heads).any():
        return 0
    if relative_distance(heads_a[nearest], heads_b) >= RULES["heads_order"].tolerance:
        return 0
    return int((nearest != np.arange(len(nearest))).sum())


def _find_gauge_order(a: Projections, b: Projections) -> str | None:
    """Return the change of the pair order that makes all products of pairs equal.

    Grouped keys are matched with the first query head of their group, which rotates with them.
    """
    for order_a, order_b in product(("halves", "neighbours"), repeat=2):
        products_a, products_b = pair_products(a, order_a), pair_products(b, order_b)
        largest = max(float(np.abs(products_a).max()), 1e-300)
        if products_a.shape != products_b.shape:
            continue
        if np.abs(products_a - products_b).max() / largest < RULES["gauge"].tolerance:
            return "same" if order_a == order_b else f"to_{order_b}"
    return None


def pair_products(projections: Projections, pair_order: str) -> Floats:
    """Return strengths of pairs and their self-matches, ``[heads, pairs, 3]``.

    The strength is the product of the Frobenius norms of a pair's rows in query and key; the
    self-match is the sum of the query's rows, read as complex, times the conjugate of the key's.
    """
    n_pairs = projections.rotated // 2

    def pairs(weight: Floats) -> np.ndarray:
        heads = weight.reshape(-1, projections.head_dim, weight.shape[1])[
            :, : projections.rotated
        ]
        first, second = (
            (heads[:, :n_pairs], heads[:, n_pairs:])
            if pair_order == "halves"
            else (heads[:, 0::2], heads[:, 1::2])
        )
        return first + 1j * second

    query, key = pairs(projections.query), pairs(projections.key)
    query = query[:: len(query) // len(key)]
    norms = np.linalg.norm(query, axis=2) * np.linalg.norm(key, axis=2)
    self_match = (query * key.conj()).sum(axis=2)
    return np.stack([norms, self_match.real, self_match.imag], axis=2)


def relate_layouts(
    are_neighbours: tuple[bool | None, bool | None], order: str | None
) -> Finding | None:
    """Compare the order of rows with the pairs that both copies declare.

    Parameters
    ----------
    are_neighbours
        Whether pairs of A and B are neighbours; None where it is not known.
    order
        Key of `ROW_ORDERS`: the change of A's rows; None where it is not known.

    Returns
    -------
    Finding
        None if the pairs cannot be compared.
    """
    pair_orders: dict[bool | None, str | None] = {
        None: None,
        True: "neighbours",
        False: "halves",
    }
    a, b = (pair_orders[is_neighbouring] for is_neighbouring in are_neighbours)
    both_declared = a is not None and b is not None
    if order is None or not both_declared:
        is_same_order = (both_declared and a == b) if order is None else order == "same"
        return Finding("pairs", "same_pairs", a, b) if is_same_order else None
    if order != ("same" if a == b else f"to_{b}"):
        return Finding("pairs", "pairs_mixed_up", a, b, more={"order": order})
    return Finding("pairs", "same_pairs" if order == "same" else "pairs_reordered", a, b)
