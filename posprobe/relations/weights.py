"""Projections to queries and keys stored twice: order of their rows, and what was folded in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.relations.rules import RULES, Finding
from posprobe.relations.values import distance, moved, stored_again

#: How rows of a head can stand: as in A; pairs that were half a head apart now neighbours, or back;
#: and what a converter makes that is run twice.
ORDERS = ("same", "to_neighbours", "to_halves", "to_neighbours_twice", "to_halves_twice")


@dataclass(frozen=True, eq=False)
class Projections:
    """What makes queries and keys of one layer.

    Parameters
    ----------
    query, key
        ``[heads * head_dim, width]``, some or all heads.
    head_dim, rotated
        Rows of a head, and how many of them rotate.
    """

    query: Floats = field(repr=False)
    key: Floats = field(repr=False)
    head_dim: int
    rotated: int


def reordered(weight: Floats, order: str, head_dim: int, rotated: int) -> Floats:
    """Put the rotated rows of each head into another order of pairs.

    Parameters
    ----------
    weight
        ``[heads * head_dim, width]``.
    order
        One of `ORDERS`.
    """
    heads = weight.reshape(-1, head_dim, weight.shape[1])
    rows = np.concatenate([_rows(order, rotated), np.arange(rotated, head_dim)])
    return heads[:, rows].reshape(weight.shape)


def _rows(order: str, rotated: int) -> NDArray[np.intp]:
    """Return which of the rotated rows stands where."""
    rows = np.arange(rotated)
    once = rows.reshape(*((2, -1) if "neighbours" in order else (-1, 2))).T.ravel()
    if order == "same":
        return rows
    return once[once] if order.endswith("twice") else once


def relate_projections(a: Projections, b: Projections) -> tuple[str | None, Finding]:
    """Say in which order rows of B stand, and what else became of them.

    Returns
    -------
    tuple
        One of `ORDERS`, None where none is recognised; and the finding on the values.
    """
    if a.query.shape != b.query.shape or a.key.shape != b.key.shape:
        shapes = (list(a.query.shape), list(b.query.shape))
        return None, Finding("weights", "other_weights", *shapes)
    both_a, both_b = (
        np.concatenate([projections.query, projections.key]) for projections in (a, b)
    )
    if np.array_equal(both_a, both_b):
        return "same", Finding("weights", "identical", value=0.0)
    # In narrow heads several are one order: the first name stays.
    names = [*{_rows(name, a.rotated).tobytes(): name for name in ORDERS[::-1]}.values()][::-1]
    # Rows that do not rotate stand where they stood, and would hide an order.
    rotating, other_weights = (_turning(projections, a) for projections in (both_a, both_b))
    distances_by_order = {
        name: distance(reordered(rotating, name, a.rotated, a.rotated), other_weights)
        for name in names
    }
    best = min(names, key=lambda name: distances_by_order[name])
    if distances_by_order[best] < RULES["same_pairs"].tolerance:
        reordered_a = reordered(both_a, best, a.head_dim, a.rotated)
        exact = stored_again(reordered_a, both_b, "weights")
        finding_moved = moved(reordered_a, both_b, "weights")
        if (finding_moved.value or 0.0) >= RULES["moved"].tolerance:
            finding_moved = Finding("weights", "other_weights", value=finding_moved.value)
        return best, exact or next(_changes(a, b, [(best, reordered_a)]), finding_moved)
    orders = ((name, reordered(both_a, name, a.head_dim, a.rotated)) for name in names)
    change = next(_changes(a, b, orders), None)
    if change is not None:
        return change.more.get("order"), change
    return None, Finding("weights", "other_weights", value=distances_by_order[best])


def relate_sketches(
    a: Projections, b: Projections, rotated: Floats | None
) -> tuple[str | None, Finding]:
    """Say what became of a layer as a whole, by what its weights make of a few random inputs.

    Parameters
    ----------
    a, b
        Weights times inputs, the same for both: ``[heads * head_dim, inputs]``.
    rotated
        Transposed weights of A's queries times inputs ``[width, inputs]``; None for weights that
        are not square.
    """
    weights_a, weights_b = (
        np.concatenate([projections.query, projections.key]) for projections in (a, b)
    )
    if rotated is not None and distance(rotated, b.query) < RULES["weights_transposed"].tolerance:
        return None, Finding("weights", "weights_transposed")
    for name in ORDERS:
        if count := _heads_order(reordered(weights_a, name, a.head_dim, a.rotated), weights_b, a):
            return name, Finding("weights", "heads_order", value=count, more={"order": name})
    return None, Finding("weights", "other_weights", value=distance(weights_a, weights_b))


def _turning(weight: Floats, projections: Projections) -> Floats:
    """Return the rows that rotate."""
    heads = weight.reshape(-1, projections.head_dim, weight.shape[1])[:, : projections.rotated]
    return heads.reshape(-1, weight.shape[1])


def _changes(
    a: Projections, b: Projections, orders: Iterable[tuple[str, Floats]]
) -> Iterator[Finding]:
    queries = len(a.query)
    weights_b = np.concatenate([b.query, b.key])
    limit = RULES["gain_folded"].tolerance
    for name, weights_a in orders:
        details = {"order": name}
        relative_distance = distance(weights_a, weights_b)
        scales = [
            float((x * y).sum() / ((x * x).sum() or 1.0))
            for x, y in ((weights_a[:queries], b.query), (weights_a[queries:], b.key))
        ]
        scaled = np.concatenate([weights_a[:queries] * scales[0], weights_a[queries:] * scales[1]])
        if _better(distance(weights_b, scaled), relative_distance, limit):
            yield Finding("weights", "scale_folded", scales[0], scales[1], more=details)
        gain = (weights_a * weights_b).sum(axis=0) / np.maximum(
            (weights_a * weights_a).sum(axis=0), 1e-300
        )
        if len(weights_a) >= 8 and _better(
            distance(weights_b, weights_a * gain), relative_distance, limit
        ):
            ends = float(gain.min()), float(gain.max())
            yield Finding("weights", "gain_folded", ends[0], ends[1], more=details)
        if n_moved_heads := _heads_order(weights_a, weights_b, a):
            yield Finding("weights", "heads_order", value=n_moved_heads, more=details)
    for weights_a, projection_b in ((a.query, b.query), (a.key, b.key)):
        if weights_a.shape[0] == weights_a.shape[1] and distance(weights_a.T, projection_b) < limit:
            yield Finding("weights", "weights_transposed")
    if product_misfit := _same_products(a, b):
        yield Finding("weights", "gauge", more={"order": product_misfit})


def _better(misfit: float, relative_distance: float, limit: float) -> bool:
    return misfit < min(limit, relative_distance / 3)


def _heads_order(weights_a: Floats, weights_b: Floats, a: Projections) -> int:
    """Return how many heads stand elsewhere, 0 where not all are found again."""
    heads_a, heads_b = (
        weights.reshape(-1, a.head_dim * weights.shape[1]) for weights in (weights_a, weights_b)
    )
    if len(heads_a) < 3:
        return 0
    distances = (heads_a * heads_a).sum(1)[None] - 2 * heads_b @ heads_a.T
    nearest = distances.argmin(axis=1)
    queries = len(a.query) // a.head_dim
    sound = len(set(nearest.tolist())) == len(heads_a) and (nearest[:queries] < queries).all()
    if not sound or distance(heads_a[nearest], heads_b) >= RULES["heads_order"].tolerance:
        return 0
    return int((nearest != np.arange(len(nearest))).sum())


def _same_products(a: Projections, b: Projections) -> str | None:
    """Tell by which order of pairs all strengths and self-matches of pairs are equal.

    Grouped keys are matched with the first query head of their group, which rotates with them.
    """
    for order_a, order_b in product(("halves", "neighbours"), repeat=2):
        products_a, products_b = pair_products(a, order_a), pair_products(b, order_b)
        size = max(float(np.abs(products_a).max()), 1e-300)
        if (
            products_a.shape == products_b.shape
            and np.abs(products_a - products_b).max() / size < RULES["gauge"].tolerance
        ):
            return "same" if order_a == order_b else f"to_{order_b}"
    return None


def pair_products(projections: Projections, layout: str) -> Floats:
    """Return strengths of pairs and their self-matches, ``[heads, pairs, 3]``.

    The strength is the product of the Frobenius norms of a pair's rows in query and key; the
    self-match is the sum of the query's rows, read as complex, times the conjugate of the key's.
    """
    half = projections.rotated // 2

    def pairs(weight: Floats) -> np.ndarray:
        heads = weight.reshape(-1, projections.head_dim, weight.shape[1])[:, : projections.rotated]
        first, second = (
            (heads[:, :half], heads[:, half:])
            if layout == "halves"
            else (heads[:, 0::2], heads[:, 1::2])
        )
        return first + 1j * second

    query, key = pairs(projections.query), pairs(projections.key)
    query = query[:: len(query) // len(key)]
    norms = np.linalg.norm(query, axis=2) * np.linalg.norm(key, axis=2)
    match = (query * key.conj()).sum(axis=2)
    return np.stack([norms, match.real, match.imag], axis=2)


def relate_layouts(declared: tuple[bool | None, bool | None], order: str | None) -> Finding | None:
    """Hold the order of rows against the pairs that both say they rotate.

    Parameters
    ----------
    declared
        Whether pairs of A and B are neighbours; None where it is not known.
    order
        Key of `ORDERS`: the change of A's rows; None where it is not known.

    Returns
    -------
    Finding
        None where nothing can be told.
    """
    a, b = (
        None if is_neighbouring is None else ("neighbours" if is_neighbouring else "halves")
        for is_neighbouring in declared
    )
    both_known = a is not None and b is not None
    if order is None or not both_known:
        same_order = (both_known and a == b) if order is None else order == "same"
        return Finding("pairs", "same_pairs", a, b) if same_order else None
    if order != ("same" if a == b else f"to_{b}"):
        return Finding("pairs", "pairs_mixed_up", a, b, more={"order": order})
    return Finding("pairs", "same_pairs" if order == "same" else "pairs_reordered", a, b)
