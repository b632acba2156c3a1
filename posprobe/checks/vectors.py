"""Compare biases and norms of queries and keys, which must go where their rows went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.checks.layers import RelatedLayer
from posprobe.errors import PosprobeError
from posprobe.families.projections import RotaryWeights, VectorName
from posprobe.progress import stage
from posprobe.relations import RULES, Finding, NotCompared
from posprobe.relations.values import find_same_values, moved_finding, relative_distance
from posprobe.relations.weights import (
    ROW_ORDERS,
    SIDE_NAMES,
    ProjectionRelation,
    SideName,
    list_order_rows,
)

#: A vector stands in another order than its rows if that leaves less than this share of the
#: difference: training and rounding of the right order are not halved by a wrong one.
MAX_VECTOR_DISTANCE_RATIO = 0.5
#: Rounding to bfloat16 changes gains by less than this share of their size. Where a gain adds 1 to
#: what is stored, it is no rounded number itself.
MAX_GAIN_ROUNDING = 2**-8
#: Relations of rows with which their vectors are as near.
_NEAR_CAUSES = ("identical", "rounded", "quantised")

_VectorFinding = Finding | NotCompared


def relate_vectors(
    a: RotaryWeights, b: RotaryWeights, layers: Sequence[RelatedLayer]
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the biases and norms of all layers whose rows were related.

    Parameters
    ----------
    a, b
        Weights of both copies.
    layers
        Relations of their projections.
    """
    members: dict[tuple[str, str, SideName], dict[int, _VectorFinding]] = {}
    with stage("Comparing biases and norms", len(layers)) as advance:
        for layer in layers:
            for side, finding in _relate_layer_vectors(a, b, layer):
                reason = finding.cause if isinstance(finding, Finding) else finding.reason
                key = finding.what, reason, side
                members.setdefault(key, {})[layer.layer] = finding
            advance(1)
    groups: dict[tuple[str, str, tuple[int, ...]], _VectorGroup] = {}
    for (vector, reason, side), by_layer in members.items():
        group = groups.setdefault(
            (vector, reason, tuple(by_layer)), _VectorGroup([*by_layer], [], [])
        )
        group.sides.append(side)
        group.findings.extend(by_layer.values())
    findings, not_compared = [], []
    for group in groups.values():
        joined = group.join()
        if isinstance(joined, Finding):
            findings.append(joined)
        else:
            not_compared.append(joined)
    return findings, not_compared


@dataclass(frozen=True)
class _VectorGroup:
    """Findings of one kind in the same layers, of one side or both."""

    layers: list[int]
    sides: list[SideName]
    findings: list[_VectorFinding]

    def join(self) -> _VectorFinding:
        """Return the worst finding, with all layers and sides."""
        worst = max(
            self.findings,
            key=lambda f: (f.value or 0.0) if isinstance(f, Finding) else 0.0,
        )
        side_names = " and ".join(self.sides)
        if isinstance(worst, NotCompared):
            return replace(worst, about=f"{side_names} | {self.layers[0]}")
        more = {**worst.more, "layers": self.layers}
        if not worst.alike or len(self.sides) < len(SIDE_NAMES):
            more["projection"] = side_names
        return replace(worst, more=more)


def _relate_layer_vectors(
    a: RotaryWeights, b: RotaryWeights, layer: RelatedLayer
) -> Iterator[tuple[SideName, _VectorFinding]]:
    try:
        sides_a, sides_b = (weights.read_vectors(layer.layer) for weights in (a, b))
    except PosprobeError:
        for side in SIDE_NAMES:
            yield side, NotCompared("biases", "vectors_unread")
        return
    if layer.relation.turn is not None:
        for side, vectors in zip(SIDE_NAMES, sides_a, strict=True):
            for name in vectors:
                yield side, NotCompared(name, "rows_unknown", decides=False)
        return
    head_sizes = a.head_dim, a.rotated
    for (side, relation), vectors_a, partners_a, vectors_b in zip(
        layer.relation.sides.items(), sides_a, sides_a[::-1], sides_b, strict=True
    ):
        for name in dict.fromkeys((*vectors_a, *vectors_b)):
            vector_b = vectors_b.get(name)
            finding, partner_finding = (
                _relate_vector(name, vectors.get(name), vector_b, relation, head_sizes)
                for vectors in (vectors_a, partners_a)
            )
            if finding is not None:
                is_swapped = _is_much_nearer(partner_finding, finding)
                yield side, Finding(name, "vector_swapped") if is_swapped else finding


def _is_much_nearer(other: _VectorFinding | None, finding: _VectorFinding) -> bool:
    """Tell whether a vector is much nearer to another than to that of its own rows."""
    if not isinstance(other, Finding) or other.cause not in (*_NEAR_CAUSES, "moved"):
        return False
    if isinstance(finding, NotCompared):
        return finding.reason == "vector_moved"
    if finding.cause in _NEAR_CAUSES or finding.value is None:
        return False
    return (other.value or 0.0) < MAX_VECTOR_DISTANCE_RATIO * finding.value


def _relate_vector(
    name: VectorName,
    a: Floats | None,
    b: Floats | None,
    relation: ProjectionRelation,
    head_sizes: tuple[int, int],
) -> _VectorFinding | None:
    """Relate one vector, where it has anything to say."""
    if a is None or b is None:
        lone = b if a is None else a
        if lone is None or not lone.any():
            return None
        has_vector = (name, None) if b is None else (None, name)
        return Finding(name, "vector_missing", *has_vector)
    if not relation.is_related:  # another model's rows say nothing of these
        return None
    rows = _vector_rows(relation, len(a), head_sizes[0])
    if rows is None:
        return NotCompared(name, "rows_unknown", decides=False)
    if len(a) != len(b):
        return Finding(name, "vector_length", len(a), len(b))
    a, b = a[: len(rows)], b[: len(rows)]
    if relation.finding.cause == "scale_folded" and name == "biases":
        a = a * relation.finding.a
    return _compare_vector(name, a, b, rows, relation, head_sizes)


def _compare_vector(
    name: VectorName,
    a: Floats,
    b: Floats,
    rows: NDArray[np.intp],
    relation: ProjectionRelation,
    head_sizes: tuple[int, int],
) -> _VectorFinding:
    in_order = a[rows]
    same = find_same_values(in_order, b, name)
    if same is not None and same.cause in ("identical", "rounded"):
        return same
    distance = relative_distance(in_order, b)
    if not np.isfinite(distance):
        distance = 1.0
    orders = {
        order: list_order_rows(order, len(rows), *head_sizes) for order in ROW_ORDERS
    }
    distances = {
        order: relative_distance(a[order_rows], b) for order, order_rows in orders.items()
    }
    order = min(distances, key=lambda key: distances[key])
    if distances[order] < MAX_VECTOR_DISTANCE_RATIO * distance:
        return Finding(
            name, "vector_order", value=distances[order], more={"order": order}
        )
    if same is not None:
        return same
    is_near = relation.finding.cause in _NEAR_CAUSES
    # Biases are trained alone in practice, gains of queries and keys with their weights.
    is_moved_alone = is_near and name != "biases" and distance > MAX_GAIN_ROUNDING
    if distance < RULES["moved"].tolerance and not is_moved_alone:
        return moved_finding(in_order, b, name)
    if is_near:
        return Finding(name, "vector_unlike", value=distance)
    return NotCompared(name, "vector_moved", decides=False)


def _vector_rows(
    relation: ProjectionRelation, length: int, head_dim: int
) -> NDArray[np.intp] | None:
    """Return the index in A of each number of B's vector; None if that is not known.

    A vector has a number for each row, or for each row of a head. Of large layers the rows of the
    first head are known.
    """
    if relation.match is None:
        return None
    rows = relation.match.rows
    if length == head_dim:
        return relation.match.head_rows(head_dim)
    if length < len(rows) or rows.max() >= len(rows):
        return None
    return rows
