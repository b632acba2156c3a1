"""Relate two copies of query and key projections, each on its own: where its rows went.

One mechanism names every order of rows: each row of B is assigned a row of A, so that the sum of
squared distances is smallest (`scipy.optimize.linear_sum_assignment`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.relations.damage import find_damage, join_damage
from posprobe.relations.rules import RULES, Finding
from posprobe.relations.turns import (
    PAIR_ORDERS,
    PairOrders,
    PairTurn,
    find_pair_turn,
    read_pairs,
)
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
#: A known order is named if its squared distance is at most this many times that of the best
#: assignment: noise moves some rows of the best assignment, and no wrong order comes so near.
MAX_ORDER_COST_RATIO = 1.1
#: Squared distances below this share of the squared norm are rounding of float64.
_MIN_COST_SHARE = 1e-12
#: Fewer rows of a head have one order of pairs alone.
_MIN_ORDERED_ROWS = 4
#: Rows are matched by about this many columns, evenly spaced: they tell a thousand rows apart, and
#: more of them take time alone.
MAX_MATCHED_COLUMNS = 512
#: Column gains are fitted to at least this many rows.
_MIN_GAIN_ROWS = 8
#: Of a head that was permuted together with other heads, at least this share of the rows is found
#: in the same head of A; of unrelated weights none is.
MIN_FOUND_ROW_SHARE = 0.1
#: At least this share of the rows must be near to one of A for their order to be that of all.
MIN_NEAR_ROW_SHARE = 0.5
#: Weights that moved further are compared by the strengths of their pairs as well: training rarely
#: moves them so far, and noise of this size changes the loss.
MAX_MOVED_UNSEEN = 0.1

#: The gain of a norm is folded into queries and keys alike: its columns differ by no more than
#: rounding to bfloat16, or three times what is left of the projections, whose columns are a sample.
MIN_GAIN_TOLERANCE = 0.01
GAIN_TOLERANCE_RATIO = 3.0

#: Relations of the rows of pairs that were turned: they stand in place and have other values.
_MAYBE_TURNED_CAUSES = {"moved", "replaced", "other_weights"}
#: Side of attention that a projection makes.
SideName: TypeAlias = Literal["queries", "keys"]
SIDE_NAMES: tuple[SideName, SideName] = ("queries", "keys")


@dataclass(frozen=True, eq=False)
class Projections:
    """The matrices that compute queries and keys of one layer.

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


@dataclass(frozen=True, eq=False)
class RowMatch:
    """Which row of A each row of B is.

    Parameters
    ----------
    rows
        ``[rows]``: index in A of each row of B.
    order
        One of `ROW_ORDERS`, ``other_heads`` for such an order of heads of another size, or
        ``other``.
    distance
        Relative distance that is left.
    found_share
        Share of the rows that are nearer to their row of A than half its length.
    heads_ratio
        For ``other_heads``: heads of that order over those of the projection.
    """

    rows: NDArray[np.intp] = field(repr=False)
    order: str
    distance: float
    found_share: float = 1.0
    heads_ratio: float = 1.0

    def head_order(self, head_dim: int) -> NDArray[np.intp] | None:
        """``[heads]``: head of A that each head of B is; None if rows cross heads."""
        heads = self.rows.reshape(-1, head_dim) // head_dim
        is_whole = (heads == heads[:, :1]).all()
        return heads[:, 0] if is_whole else None

    def head_rows(self, head_dim: int) -> NDArray[np.intp] | None:
        """``[head_dim]``: row of A's head for each row of B's head; None if heads differ."""
        rows = self.rows.reshape(-1, head_dim) % head_dim
        return rows[0] if (rows == rows[0]).all() else None


@dataclass(frozen=True, eq=False)
class ProjectionRelation:
    """What one projection of B is to that of A.

    Parameters
    ----------
    match
        New place of the rows; None if the projections are unrelated.
    finding
        Finding on the values.
    gains
        ``[width]``, gain of each column that was folded in; None without one.
    """

    match: RowMatch | None
    finding: Finding
    gains: Floats | None = field(repr=False, default=None)

    @property
    def is_reordered(self) -> bool:
        """Whether rows of B stand elsewhere than in A."""
        match = self.match
        return match is not None and bool((np.diff(match.rows) != 1).any())

    @property
    def is_related(self) -> bool:
        """Whether the values of B come from those of A."""
        is_other = self.finding.cause in ("other_weights", "weights_transposed")
        return self.match is not None and not is_other

    @property
    def needs_other_heads(self) -> bool:
        """Whether rows of one head are damaged, or may be those of heads that were not seen."""
        is_found = self.match is not None
        return is_found and (
            not self.is_related or self.finding.more.get("axis") == "rows"
        )


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
    return np.asarray(weight[list_order_rows(order, len(weight), head_dim, rotated)])


def list_order_rows(
    order: str, n_rows: int, head_dim: int, rotated: int
) -> NDArray[np.intp]:
    """Return the index in A of each row of B for one of `ROW_ORDERS`, ``[n_rows]``."""
    head_rows = np.concatenate([_row_order(order, rotated), np.arange(rotated, head_dim)])
    return np.asarray((np.arange(0, n_rows, head_dim)[:, None] + head_rows).ravel())


def _row_order(order: str, rotated: int) -> NDArray[np.intp]:
    """Return the index in A of each rotated row of a head of B, ``[rotated]``."""
    rows = np.arange(rotated)
    shape = (2, -1) if "neighbours" in order else (-1, 2)
    reordered = rows.reshape(*shape).T.ravel()
    if order == "same":
        return rows
    return reordered[reordered] if order.endswith("twice") else reordered


# --- one projection


def relate_projection(
    a: Floats, b: Floats, head_dim: int, rotated: int
) -> ProjectionRelation:
    """Find where the rows of A's projection went in B, and what else was done to its values.

    Parameters
    ----------
    a, b
        ``[heads * head_dim, width]``.
    head_dim, rotated
        Number of rows of a head, and of those that rotate.
    """
    if a.shape != b.shape:
        finding = Finding("weights", "other_weights", list(a.shape), list(b.shape))
        return ProjectionRelation(None, finding)
    if np.array_equal(a, b):
        match = RowMatch(np.arange(len(a)), "same", 0.0)
        return ProjectionRelation(match, Finding("weights", "identical", value=0.0))
    match = match_rows(a, b, head_dim, rotated)
    limit = RULES["gain_folded"].tolerance
    if match.distance >= limit:
        for cause, scales in _list_scales(a, b):
            scaled_match = match_rows(a * scales, b, head_dim, rotated)
            # The change must leave no more than the limit, and a third of the difference.
            if scaled_match.distance < min(limit, match.distance / 3):
                finding = Finding(
                    "weights", cause, float(scales.min()), float(scales.max())
                )
                gains = scales if cause == "gain_folded" else None
                return ProjectionRelation(scaled_match, finding, gains)
    reordered_a = a[match.rows]
    if match.distance < RULES["moved"].tolerance:
        value_finding = find_damage(reordered_a, b, "weights") or find_same_values(
            reordered_a, b, "weights"
        )
        return ProjectionRelation(
            match, value_finding or moved_finding(reordered_a, b, "weights")
        )
    if (
        match.order != "other"
        and (damage := find_damage(reordered_a, b, "weights")) is not None
    ):
        return ProjectionRelation(match, damage)
    is_square = a.shape[0] == a.shape[1]
    if is_square and relative_distance(a.T, b) < RULES["weights_transposed"].tolerance:
        return ProjectionRelation(None, Finding("weights", "weights_transposed"))
    has_found_rows = match.found_share >= MIN_FOUND_ROW_SHARE
    finding = Finding("weights", "other_weights", value=match.distance)
    return ProjectionRelation(match if has_found_rows else None, finding)


def _list_scales(a: Floats, b: Floats) -> Iterator[tuple[str, Floats]]:
    """Yield one factor, and a gain of each column, that give A the norms of B.

    No order of rows changes these norms.
    """
    norm_a, norm_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if norm_a and norm_b:
        for sign in (1, -1):
            yield "scale_folded", np.full(1, sign * norm_b / norm_a)
    column_norms_a, column_norms_b = (np.linalg.norm(x, axis=0) for x in (a, b))
    if len(a) >= _MIN_GAIN_ROWS and column_norms_a.all() and column_norms_b.all():
        yield "gain_folded", column_norms_b / column_norms_a


def match_rows(a: Floats, b: Floats, head_dim: int, rotated: int) -> RowMatch:
    """Assign a row of A to each row of B, and name the order that they make.

    Parameters
    ----------
    a, b, head_dim, rotated
        Same as for `relate_projection`; both of one shape.
    """
    # SciPy's optimisation is imported where rows differ, which spares most checks 0.2 s.
    from scipy.optimize import linear_sum_assignment

    step = max(a.shape[1] // MAX_MATCHED_COLUMNS, 1)
    a, b = a[:, ::step], b[:, ::step]
    powers_a, powers_b = ((rows * rows).sum(axis=1) for rows in (a, b))
    distances = np.maximum(powers_b[:, None] + powers_a - 2 * b @ a.T, 0.0)
    row_index, rows = linear_sum_assignment(distances)

    def cost(order: NDArray[np.intp]) -> float:
        return float(distances[row_index, order].sum())

    max_distances = RULES["moved"].tolerance ** 2 * powers_a
    found = distances[row_index, rows] < max_distances[rows]
    nearest_rows = distances.argmin(axis=1)
    is_near = distances[row_index, nearest_rows] < max_distances[nearest_rows]
    match = _name_match(
        rows, cost, float(powers_a.sum()), head_dim, rotated, float(found.mean())
    )
    if match.order != "other" or is_near.mean() < MIN_NEAR_ROW_SHARE:
        return match
    # Rows without a near one go anywhere in the best assignment: the others have an order.
    for order, heads_ratio, order_rows in _list_orders(rows, head_dim, rotated):
        if np.array_equal(order_rows[is_near], nearest_rows[is_near]):
            distance = float(np.sqrt(cost(order_rows) / powers_a.sum()))
            return replace(
                match,
                rows=order_rows,
                order=order,
                distance=distance,
                heads_ratio=heads_ratio,
            )
    return match


def match_sketched_rows(
    a: Floats, b: Floats, head_dim: int, rotated: int
) -> RowMatch | None:
    """Assign rows of whole layers by their products with random inputs.

    An assignment of thousands of rows takes memory and seconds: the nearest row is taken, and must
    be another for each row.

    Parameters
    ----------
    a, b
        ``[heads * head_dim, inputs]``.
    head_dim, rotated
        Same as for `relate_projection`.
    """
    from scipy.spatial import cKDTree

    rows = np.asarray(cKDTree(a).query(b)[1], dtype=np.intp)
    if len(np.unique(rows)) < len(rows):
        return None

    def cost(order: NDArray[np.intp]) -> float:
        return float(((b - a[order]) ** 2).sum())

    match = _name_match(rows, cost, float((a * a).sum()), head_dim, rotated, 1.0)
    return match if match.distance < RULES["moved"].tolerance else None


def _name_match(
    rows: NDArray[np.intp],
    cost: Callable[[NDArray[np.intp]], float],
    power: float,
    head_dim: int,
    rotated: int,
    found_share: float,
) -> RowMatch:
    """Name the first known order that is as near as the best assignment."""
    best_cost = cost(rows)
    max_cost = MAX_ORDER_COST_RATIO * best_cost + _MIN_COST_SHARE * power
    for order, heads_ratio, order_rows in _list_orders(rows, head_dim, rotated):
        order_cost = cost(order_rows)
        if order_cost <= max_cost:
            distance = np.sqrt(order_cost / power) if power else np.inf
            return RowMatch(order_rows, order, float(distance), found_share, heads_ratio)
    distance = np.sqrt(best_cost / power) if power else np.inf
    return RowMatch(rows, "other", float(distance), found_share)


def _list_orders(
    rows: NDArray[np.intp], head_dim: int, rotated: int
) -> Iterator[tuple[str, float, NDArray[np.intp]]]:
    """Yield known orders of rows: name, heads over those of the projection, and index in A.

    Whole heads may have moved as well: they are taken from where most of their rows came.
    """
    n_rows = len(rows)
    source_heads = np.array(
        [np.bincount(head // head_dim).argmax() for head in rows.reshape(-1, head_dim)]
    )
    head_orders = [np.arange(n_rows // head_dim)]
    if len(np.unique(source_heads)) == len(source_heads):
        head_orders.append(source_heads)
    for head_order in head_orders:
        for order in ROW_ORDERS:
            order_rows = list_order_rows(order, n_rows, head_dim, rotated)
            heads = order_rows.reshape(-1, head_dim)[head_order]
            yield order, 1.0, heads.ravel()
    if rotated < head_dim:
        return
    steps = ("same", "to_neighbours", "to_halves")
    for heads_count in range(1, n_rows // _MIN_ORDERED_ROWS + 1):
        size, remainder = divmod(n_rows, heads_count)
        if remainder or size % 2 or size == head_dim:
            continue
        # One of two changes may have taken the right number of heads.
        for right_order, wrong_order in product(steps, steps[1:]):
            right_rows = list_order_rows(right_order, n_rows, head_dim, head_dim)
            wrong_rows = list_order_rows(wrong_order, n_rows, size, size)
            ratio = head_dim / size
            yield "other_heads", ratio, right_rows[wrong_rows]
            yield "other_heads", ratio, wrong_rows[right_rows]


# --- one layer


@dataclass(frozen=True, eq=False)
class LayerRelation:
    """What queries and keys of one layer of B are to those of A.

    Parameters
    ----------
    query, key
        Relation of each projection.
    head_dim
        Number of rows of a head.
    turn
        Turn of the pairs of both; None if there is none.
    """

    query: ProjectionRelation
    key: ProjectionRelation
    head_dim: int
    turn: PairTurn | None = None

    @property
    def turn_cause(self) -> str | None:
        """Name of what the turn of pairs did to logits; None without a turn."""
        if self.turn is None:
            return None
        if self.turn.angle > RULES["turned_apart"].tolerance:
            return "turned_apart"
        return "reflected" if self.turn.is_reflected else "gauge"

    @property
    def gauge_order(self) -> str | None:
        """Change of the pair order if pairs turned together, so that logits stay."""
        is_gauge = self.turn is not None and self.turn_cause == "gauge"
        return self.turn.order if self.turn is not None and is_gauge else None

    @property
    def sides(self) -> dict[SideName, ProjectionRelation]:
        """Relation of both projections by the name of their side."""
        return dict(zip(SIDE_NAMES, (self.query, self.key), strict=True))

    @property
    def order(self) -> str | None:
        """Order of the rows of both; None if they are unrelated or have different orders."""
        if self.turn is not None:
            return self.gauge_order
        return (
            self.query.match.order if self.query.match and self.has_same_order else None
        )

    @property
    def has_same_order(self) -> bool:
        """Whether both are related, and rows of queries and keys went the same way."""
        query, key = self.query.match, self.key.match
        if query is None or key is None:
            return False
        rows = [match.head_rows(self.head_dim) for match in (query, key)]
        if rows[0] is None or rows[1] is None or not np.array_equal(rows[0], rows[1]):
            return False
        heads = [match.head_order(self.head_dim) for match in (query, key)]
        if heads[0] is None or heads[1] is None:
            return False
        # Queries of a group must have gone with their key.
        group_size = max(len(heads[0]) // max(len(heads[1]), 1), 1)
        groups = np.arange(len(heads[0])) // group_size
        is_grouped = len(heads[0]) == group_size * len(heads[1])
        return is_grouped and np.array_equal(heads[0] // group_size, heads[1][groups])

    @property
    def moved_heads(self) -> int:
        """Number of heads that changed their index."""
        moved = 0
        for relation in (self.query, self.key):
            if relation.match is None:
                continue
            heads = relation.match.head_order(self.head_dim)
            if heads is not None:
                moved += int((heads != np.arange(len(heads))).sum())
        return moved

    @property
    def has_same_gains(self) -> bool:
        """Whether queries and keys had one gain folded in, or none."""
        sides = (self.query, self.key)
        query_gains, key_gains = (
            1.0 if side.gains is None else side.gains for side in sides
        )
        misfits = [side.match.distance for side in sides if side.match is not None]
        tolerance = max(
            MIN_GAIN_TOLERANCE, GAIN_TOLERANCE_RATIO * max(misfits, default=0.0)
        )
        return np.allclose(query_gains, key_gains, rtol=tolerance, atol=0.0)

    def findings(self) -> Iterator[tuple[SideName | None, Finding]]:
        """Yield the findings on values, with their side where both sides differ."""
        query, key = map(_finding_up_to_order, (self.query, self.key))
        if self.turn is not None and self.turn_cause is not None:
            more = {"order": self.turn.order}
            yield (
                None,
                Finding("weights", self.turn_cause, value=self.turn.angle, more=more),
            )
            return
        if not self.has_same_gains:
            for side, finding in zip(SIDE_NAMES, (query, key), strict=True):
                is_gain = finding.cause == "gain_folded"
                yield side, replace(finding, cause="gain_unlike") if is_gain else finding
        elif "scale_folded" in (query.cause, key.cause) and {query.cause, key.cause} <= {
            "scale_folded",
            "identical",
        }:
            query_factor, key_factor = (
                finding.a if finding.cause == "scale_folded" else 1.0
                for finding in (query, key)
            )
            yield None, Finding("weights", "scale_folded", query_factor, key_factor)
        elif (query.cause, self.query.is_reordered) == (
            key.cause,
            self.key.is_reordered,
        ):
            yield None, max(query, key, key=lambda finding: finding.value or 0.0)
        else:
            yield "queries", query
            yield "keys", key
        if n_moved := self.moved_heads:
            yield None, Finding("weights", "heads_order", value=n_moved)


def _finding_up_to_order(relation: ProjectionRelation) -> Finding:
    """Return the finding on values, marked where rows had to be put back for it."""
    if not (relation.is_related and relation.is_reordered):
        return relation.finding
    more = {**relation.finding.more, "reordered": True}
    return replace(relation.finding, more=more)


def relate_layer(
    a: Projections, b: Projections, pair_orders: PairOrders = (PAIR_ORDERS, PAIR_ORDERS)
) -> LayerRelation:
    """Relate queries and keys of a layer, each on its own, and then both together.

    Parameters
    ----------
    a, b
        Projections of the layer.
    pair_orders
        Orders that the pairs of A and of B may have; one where it is declared.
    """
    query, key = (
        relate_projection(*pair, a.head_dim, a.rotated)
        for pair in ((a.query, b.query), (a.key, b.key))
    )
    relation = LayerRelation(query, key, a.head_dim)
    if not {query.finding.cause, key.finding.cause} & _MAYBE_TURNED_CAUSES:
        return relation
    turn = find_pair_turn(
        (a.query, b.query), (a.key, b.key), (a.head_dim, a.rotated), pair_orders
    )
    return relation if turn is None else replace(relation, turn=turn)


def join_relations(relations: Sequence[ProjectionRelation]) -> ProjectionRelation:
    """Join relations of the heads of a projection, in their order.

    A joint order has a name only if it is that of every head.
    """
    if len(relations) == 1:
        return relations[0]
    findings = [relation.finding for relation in relations]
    unrelated = [finding for finding in findings if finding.cause == "other_weights"]
    worst = max(
        unrelated, key=lambda finding: finding.value or 0.0, default=join_damage(findings)
    )
    rows: list[NDArray[np.intp]] = []
    orders: set[tuple[str, float]] = set()
    distances = []
    for relation in relations:
        match = relation.match
        if match is None:
            return ProjectionRelation(None, worst)
        rows.append(match.rows + sum(map(len, rows)))
        orders.add((match.order, match.heads_ratio))
        distances.append(match.distance)
    order, ratio = orders.pop() if len(orders) == 1 else ("other", 1.0)
    joined = RowMatch(np.concatenate(rows), order, max(distances), 1.0, ratio)
    return ProjectionRelation(joined, worst, relations[0].gains)


# --- pairs


def pair_strengths(projections: Projections, pair_order: str) -> Floats:
    """Return the product of the norms of a pair's rows in query and key, ``[heads, pairs]``.

    Grouped keys are taken with the first query head of their group.
    """
    head_sizes = projections.head_dim, projections.rotated
    query, key = (
        np.linalg.norm(read_pairs(weight, head_sizes, pair_order), axis=2)
        for weight in (projections.query, projections.key)
    )
    return np.asarray(query[:: len(query) // len(key)] * key)


def mean_rotation_change(
    a: Projections, b: Projections, pair_order: str, frequencies: Floats, n_distances: int
) -> float:
    """Return how far the mean rotation of heads changed, the mean of their largest differences.

    The mean rotation of a head is the mean over its pairs of the cosine of their angle at a
    distance, each pair counted with its share of the head's strength.

    Parameters
    ----------
    a, b
        Weights whose rows stand in one order.
    pair_order
        ``halves`` or ``neighbours``.
    frequencies
        ``[pairs]``, radians per position.
    n_distances
        Distances that are compared, from 0.
    """
    shares = []
    for projections in (a, b):
        strengths = pair_strengths(projections, pair_order)
        totals = np.maximum(strengths.sum(axis=1, keepdims=True), 1e-300)
        shares.append(strengths / totals)
    cosines = np.cos(np.outer(frequencies, np.arange(n_distances)))
    return float(np.abs((shares[1] - shares[0]) @ cosines).max(axis=1).mean())


def relate_layouts(
    are_neighbours: tuple[bool | None, bool | None], order: str | None
) -> Finding | None:
    """Compare the order of rows with the pairs that both copies declare.

    Parameters
    ----------
    are_neighbours
        Whether pairs of A and B are neighbours; None where it is not known.
    order
        Order of a `RowMatch`: the change of A's rows; None where it is not known.

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
    if order != expected_order(are_neighbours):
        return Finding("pairs", "pairs_mixed_up", a, b, more={"order": order})
    return Finding("pairs", "same_pairs" if order == "same" else "pairs_reordered", a, b)


def expected_order(are_neighbours: tuple[bool | None, bool | None]) -> str | None:
    """Return the order of rows that the pairs of both copies call for; None if not known."""
    a, b = are_neighbours
    if a is None or b is None:
        return None
    return "same" if a == b else f"to_{'neighbours' if b else 'halves'}"
