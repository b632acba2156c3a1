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
    both_a, both_b = (np.concatenate([each.query, each.key]) for each in (a, b))
    if np.array_equal(both_a, both_b):
        return "same", Finding("weights", "identical", value=0.0)
    # In narrow heads several are one order: the first name stays.
    names = [*{_rows(name, a.rotated).tobytes(): name for name in ORDERS[::-1]}.values()][::-1]
    # Rows that do not rotate stand where they stood, and would hide an order.
    turning, others = (_turning(each, a) for each in (both_a, both_b))
    apart = {
        name: distance(reordered(turning, name, a.rotated, a.rotated), others) for name in names
    }
    best = min(names, key=lambda name: apart[name])
    if apart[best] < RULES["same_pairs"].tolerance:
        one = reordered(both_a, best, a.head_dim, a.rotated)
        exact = stored_again(one, both_b, "weights")
        rest = moved(one, both_b, "weights")
        if (rest.value or 0.0) >= RULES["moved"].tolerance:
            rest = Finding("weights", "other_weights", value=rest.value)
        return best, exact or next(_changes(a, b, [(best, one)]), rest)
    orders = ((name, reordered(both_a, name, a.head_dim, a.rotated)) for name in names)
    found = next(_changes(a, b, orders), None)
    if found is not None:
        return found.more.get("order"), found
    return None, Finding("weights", "other_weights", value=apart[best])


def relate_sketches(
    a: Projections, b: Projections, turned: Floats | None
) -> tuple[str | None, Finding]:
    """Say what became of a layer as a whole, by what its weights make of a few random inputs.

    Parameters
    ----------
    a, b
        Weights times inputs, the same for both: ``[heads * head_dim, inputs]``.
    turned
        Of A's queries, transposed weights times inputs ``[width, inputs]``; None of those that are
        not square.
    """
    one, other = (np.concatenate([each.query, each.key]) for each in (a, b))
    if turned is not None and distance(turned, b.query) < RULES["weights_transposed"].tolerance:
        return None, Finding("weights", "weights_transposed")
    for name in ORDERS:
        if count := _heads_order(reordered(one, name, a.head_dim, a.rotated), other, a):
            return name, Finding("weights", "heads_order", value=count, more={"order": name})
    return None, Finding("weights", "other_weights", value=distance(one, other))


def _turning(weight: Floats, about: Projections) -> Floats:
    """Return the rows that rotate."""
    heads = weight.reshape(-1, about.head_dim, weight.shape[1])[:, : about.rotated]
    return heads.reshape(-1, weight.shape[1])


def _changes(
    a: Projections, b: Projections, orders: Iterable[tuple[str, Floats]]
) -> Iterator[Finding]:
    queries = len(a.query)
    other = np.concatenate([b.query, b.key])
    limit = RULES["gain_folded"].tolerance
    for name, one in orders:
        more = {"order": name}
        apart = distance(one, other)
        scales = [
            float((x * y).sum() / ((x * x).sum() or 1.0))
            for x, y in ((one[:queries], b.query), (one[queries:], b.key))
        ]
        scaled = np.concatenate([one[:queries] * scales[0], one[queries:] * scales[1]])
        if _better(distance(other, scaled), apart, limit):
            yield Finding("weights", "scale_folded", scales[0], scales[1], more=more)
        gain = (one * other).sum(axis=0) / np.maximum((one * one).sum(axis=0), 1e-300)
        if len(one) >= 8 and _better(distance(other, one * gain), apart, limit):
            ends = float(gain.min()), float(gain.max())
            yield Finding("weights", "gain_folded", ends[0], ends[1], more=more)
        if found := _heads_order(one, other, a):
            yield Finding("weights", "heads_order", value=found, more=more)
    for one, theirs in ((a.query, b.query), (a.key, b.key)):
        if one.shape[0] == one.shape[1] and distance(one.T, theirs) < limit:
            yield Finding("weights", "weights_transposed")
    if turned := _same_products(a, b):
        yield Finding("weights", "gauge", more={"order": turned})


def _better(rest: float, apart: float, limit: float) -> bool:
    return rest < min(limit, apart / 3)


def _heads_order(one: Floats, other: Floats, a: Projections) -> int:
    """Return how many heads stand elsewhere, 0 where not all are found again."""
    heads, theirs = (each.reshape(-1, a.head_dim * each.shape[1]) for each in (one, other))
    if len(heads) < 3:
        return 0
    apart = (heads * heads).sum(1)[None] - 2 * theirs @ heads.T
    found = apart.argmin(axis=1)
    queries = len(a.query) // a.head_dim
    sound = len(set(found.tolist())) == len(heads) and (found[:queries] < queries).all()
    if not sound or distance(heads[found], theirs) >= RULES["heads_order"].tolerance:
        return 0
    return int((found != np.arange(len(found))).sum())


def _same_products(a: Projections, b: Projections) -> str | None:
    """Tell by which order of pairs all strengths and self-matches of pairs are equal.

    Grouped keys are matched with the first query head of their group, which rotates with them.
    """
    for mine, theirs in product(("halves", "neighbours"), repeat=2):
        one, other = pair_products(a, mine), pair_products(b, theirs)
        size = max(float(np.abs(one).max()), 1e-300)
        if one.shape == other.shape and np.abs(one - other).max() / size < RULES["gauge"].tolerance:
            return "same" if mine == theirs else f"to_{theirs}"
    return None


def pair_products(given: Projections, layout: str) -> Floats:
    """Return strengths of pairs and their self-matches, ``[heads, pairs, 3]``.

    The strength is the product of the Frobenius norms of a pair's rows in query and key; the
    self-match is the sum of the query's rows, read as complex, times the conjugate of the key's.
    """
    half = given.rotated // 2

    def pairs(weight: Floats) -> np.ndarray:
        heads = weight.reshape(-1, given.head_dim, weight.shape[1])[:, : given.rotated]
        first, second = (
            (heads[:, :half], heads[:, half:])
            if layout == "halves"
            else (heads[:, 0::2], heads[:, 1::2])
        )
        return first + 1j * second

    query, key = pairs(given.query), pairs(given.key)
    query = query[:: len(query) // len(key)]
    norms = np.linalg.norm(query, axis=2) * np.linalg.norm(key, axis=2)
    match = (query * key.conj()).sum(axis=2)
    return np.stack([norms, match.real, match.imag], axis=2)


def relate_layouts(declared: tuple[bool | None, bool | None], order: str | None) -> Finding | None:
    """Hold the order of rows against the pairs that both say they rotate.

    Parameters
    ----------
    declared
        Of A and B, whether pairs are neighbours; None where it is not known.
    order
        Of `ORDERS`: what was done to A's rows; None where that is not known.

    Returns
    -------
    Finding
        None where nothing can be told.
    """
    a, b = (None if each is None else ("neighbours" if each else "halves") for each in declared)
    known = a is not None and b is not None
    if order is None or not known:
        same = (known and a == b) if order is None else order == "same"
        return Finding("pairs", "same_pairs", a, b) if same else None
    if order != ("same" if a == b else f"to_{b}"):
        return Finding("pairs", "pairs_mixed_up", a, b, more={"order": order})
    return Finding("pairs", "same_pairs" if order == "same" else "pairs_reordered", a, b)
