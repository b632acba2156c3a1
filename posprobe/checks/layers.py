"""Read queries and keys of two copies of a model, and relate them layer by layer.

Large layers are read head by head, which bounds the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats
from posprobe.checkpoints import TensorInfo
from posprobe.checks.sides import Side
from posprobe.checks.storage import name_declared_type, quantised_type
from posprobe.errors import InvalidTable
from posprobe.families.projections import HeadRanges, RotaryWeights, count_heads
from posprobe.progress import stage
from posprobe.relations import Finding
from posprobe.relations.turns import PAIR_ORDERS, PairOrders, PairTurn
from posprobe.relations.values import relative_distance
from posprobe.relations.weights import (
    MAX_MOVED_UNSEEN,
    LayerRelation,
    ProjectionRelation,
    Projections,
    join_relations,
    match_sketched_rows,
    mean_rotation_change,
    relate_layer,
)
from posprobe.schemes import Rotary

#: A projection with more numbers is read whole only if all layers are requested; this bounds the
#: time.
MAX_WHOLE_LAYER_NUMBERS = 2**20
#: At most this many numbers of the queries of a larger layer are read at once: a head of a model
#: of 7B. The intermediate arrays of a comparison take 20 times their memory.
MAX_BLOCK_NUMBERS = 2**19
#: At most this many numbers of the queries are requested from the Hub at once: 8 MB in half
#: precision.
MAX_BATCH_NUMBERS = 2**22
#: The query heads and the key heads that are read where one head is enough.
FIRST_HEADS: HeadRanges = (range(1), range(1))
#: Rows of whole layers are compared by their products with this many random inputs.
N_SKETCH_INPUTS = 16
#: Layers are read whole by default if all of them have no more numbers than so many of the largest
#: that are read whole.
N_WHOLE_LAYERS = 3
#: Rows of the first head that are read of layers that are not read otherwise. Every change of the
#: order of pairs moves them.
PROBE_ROWS = (1, 2)
#: Such rows are as expected up to this distance, which is rounding to 8 bits.
MAX_PROBE_DISTANCE = 0.02
#: If other layers moved, they may be further off: so many times as far as those.
MAX_PROBE_RATIO = 3.0
#: Relations of heads beside turned ones that stayed as they were.
UNTURNED_CAUSES = frozenset({"identical", "rounded", "quantised"})
#: The mean rotation is compared at no more distances, which bounds the time.
MAX_ROTATION_DISTANCES = 2048


@dataclass(frozen=True, eq=False)
class RelatedLayer:
    """One layer of both copies.

    Parameters
    ----------
    layer
        Number of the layer.
    relation
        Relations of the queries and keys of B to those of A.
    read
        Part of the layer that was read: ``all``, ``first head`` or ``rows`` of it.
    rotation_change
        Change of the mean rotation of heads; None unless weights moved far.
    head_counts
        Number of heads of queries and of keys.
    """

    layer: int
    relation: LayerRelation
    read: str
    rotation_change: float | None
    head_counts: tuple[int, int]

    @property
    def has_known_order(self) -> bool:
        """Whether the rows of further layers can be foretold from this one."""
        relations = (self.relation.query, self.relation.key)
        return all(
            relation.match is not None
            and relation.finding.cause in ("identical", "rounded", "quantised", "moved")
            for relation in relations
        )


@dataclass(frozen=True, eq=False)
class _Layer:
    """Queries and keys of one layer of one copy."""

    weights: RotaryWeights
    rotary: Rotary
    layer: int

    @property
    def query_info(self) -> TensorInfo:
        """Name, shape and dtype of the tensor that holds the query projection."""
        return self.weights.checkpoint.tensors[self.tensor_names[0]]

    @property
    def is_remote(self) -> bool:
        """Whether the checkpoint is stored on the Hub."""
        return self.weights.checkpoint.revision is not None

    @property
    def tensor_names(self) -> tuple[str, str]:
        """Names of the tensors that hold the query and the key projection."""
        names = self.weights.layers[self.layer]
        return f"{names.query}.weight", f"{names.key}.weight"

    @property
    def shapes_text(self) -> str:
        """Shapes of the tensors that hold queries and keys, such as ``[64, 64] and [32, 64]``."""
        tensors = self.weights.checkpoint.tensors
        shapes = dict.fromkeys(str(list(tensors[x].shape)) for x in self.tensor_names)
        return " and ".join(shapes)

    @property
    def head_counts(self) -> tuple[int, int]:
        """Number of heads of queries and of keys."""
        names = self.weights.layers[self.layer]
        weights = self.weights
        return count_heads(weights.checkpoint, names, weights.head_dim, weights.config)

    def read_rows(
        self, rows: tuple[Sequence[int], Sequence[int]]
    ) -> tuple[Floats, Floats]:
        """Read rows of the first head of queries and of keys, ``[rows, width]`` each."""
        query_rows, key_rows = map(sorted, rows)  # files are read from start to end
        projections = self.weights.read(self.layer, FIRST_HEADS, (query_rows, key_rows))
        query, key = (
            weight[0, np.searchsorted(sorted_rows, side_rows)].astype(np.float64)
            for weight, sorted_rows, side_rows in zip(
                (projections.query, projections.key),
                (query_rows, key_rows),
                rows,
                strict=True,
            )
        )
        self._check_finite(query, key)
        return query, key

    def read(self, blocks: Sequence[HeadRanges]) -> Iterator[Projections]:
        """Read blocks of heads, in their order; adjacent blocks on the Hub in one request."""
        block_numbers = (
            len(blocks[0][0]) * self.rotary.head_dim * self.query_info.shape[1]
        )
        batch_blocks = max(MAX_BATCH_NUMBERS // block_numbers, 1) if self.is_remote else 1
        for begin in range(0, len(blocks), batch_blocks):
            batch = blocks[begin : begin + batch_blocks]
            queries, keys = (range(batch[0][k].start, batch[-1][k].stop) for k in (0, 1))
            projections = self.weights.read(self.layer, (queries, keys))
            for block_queries, block_keys in batch:
                query_slice, key_slice = (
                    slice(block_heads.start - heads.start, block_heads.stop - heads.start)
                    for block_heads, heads in (
                        (block_queries, queries),
                        (block_keys, keys),
                    )
                )
                yield self._build_projections(
                    projections.query[query_slice], projections.key[key_slice]
                )

    def _build_projections(self, *heads: NDArray[Any]) -> Projections:
        query, key = (
            weight.reshape(-1, weight.shape[-1]).astype(np.float64) for weight in heads
        )
        self._check_finite(query, key)
        return Projections(query, key, self.rotary.head_dim, self.rotary.rotated)

    def _check_finite(self, query: Floats, key: Floats) -> None:
        checkpoint = self.weights.checkpoint
        for name, values in zip(self.tensor_names, (query, key), strict=True):
            if not np.isfinite(values).all():
                raise InvalidTable(
                    f"{checkpoint.location}: {name} contains NaN or infinity. The "
                    "checkpoint is damaged: use a sound copy"
                )


def relate_layers(a: Side, b: Side, *, all_layers: bool) -> list[RelatedLayer] | None:
    """Relate queries and keys of the layers of both copies; None if layers do not match.

    Parameters
    ----------
    a, b
        Copies of a rotary model.
    all_layers
        Whether all heads of all layers are read. Otherwise the first, middle and last layer are, of
        large layers the first head; and of other layers a few rows, which must stand as in those.
    """
    rotary_a, rotary_b = a.rotary_schemes[0], b.rotary_schemes[0]
    if a.weights is None or b.weights is None or rotary_a.head_dim != rotary_b.head_dim:
        return None
    layers = sorted(a.weights.layers)
    if not layers or layers != sorted(b.weights.layers):
        return None
    layer_pairs = {
        layer: _LayerPair(
            _Layer(a.weights, rotary_a, layer), _Layer(b.weights, rotary_b, layer)
        )
        for layer in layers
    }
    n_numbers = sum(layer_pair.n_numbers for layer_pair in layer_pairs.values())
    is_remote = any(layer_pair.is_remote for layer_pair in layer_pairs.values())
    is_small = not is_remote and n_numbers <= N_WHOLE_LAYERS * MAX_WHOLE_LAYER_NUMBERS
    if all_layers or is_small:
        return [layer_pair.relate(is_whole=True) for layer_pair in layer_pairs.values()]
    chosen_layers = {layers[0], layers[len(layers) // 2], layers[-1]}
    related = [layer_pairs[layer].relate() for layer in sorted(chosen_layers)]
    # Other weights in all three are another model's, whatever further layers hold.
    is_other_model = not any(
        relation.is_related
        for layer in related
        for relation in layer.relation.sides.values()
    )
    for layer in layers:
        if layer not in chosen_layers and not is_other_model:
            related.append(layer_pairs[layer].relate_probe(related[: len(chosen_layers)]))
    return sorted(related, key=lambda related_layer: related_layer.layer)


@dataclass(frozen=True, eq=False)
class _LayerPair:
    """One layer of both copies."""

    a: _Layer
    b: _Layer

    @property
    def n_numbers(self) -> int:
        """Numbers of the larger query projection."""
        return max(math.prod(layer.query_info.shape) for layer in (self.a, self.b))

    @property
    def pair_orders(self) -> PairOrders:
        """Orders that the pairs of both copies may have; one where it is declared."""
        order_a, order_b = (
            (PAIR_ORDERS[layer.rotary.interleaved],)
            if layer.weights.declared
            else PAIR_ORDERS
            for layer in (self.a, self.b)
        )
        return order_a, order_b

    @property
    def is_remote(self) -> bool:
        """Whether one of them is stored on the Hub."""
        return self.a.is_remote or self.b.is_remote

    def relate(self, *, is_whole: bool = False) -> RelatedLayer:
        """Relate the layer: of large or remote layers the first head, unless all are requested."""
        is_large = self.n_numbers > MAX_WHOLE_LAYER_NUMBERS
        with stage(f"Comparing queries and keys of layer {self.a.layer}"):
            if not is_whole and (is_large or self.is_remote):
                head_a, head_b = (
                    next(layer.read([FIRST_HEADS])) for layer in (self.a, self.b)
                )
                related = self._build(
                    relate_layer(head_a, head_b, self.pair_orders),
                    "first head",
                    [(head_a, head_b)],
                )
                # Rows of other heads among those of the first: all heads must be seen.
                if not any(
                    relation.needs_other_heads
                    for relation in (related.relation.query, related.relation.key)
                ):
                    return related
            max_numbers = MAX_BLOCK_NUMBERS if is_large else MAX_WHOLE_LAYER_NUMBERS
            blocks, blocks_b = (
                [*layer.weights.iter_blocks(layer.layer, max_numbers)]
                for layer in (self.a, self.b)
            )
            if blocks != blocks_b:
                shapes = [layer.shapes_text for layer in (self.a, self.b)]
                finding = Finding("weights", "other_weights", shapes[0], shapes[1])
                unrelated = ProjectionRelation(None, finding)
                head_dim = self.a.rotary.head_dim
                return self._build(
                    LayerRelation(unrelated, unrelated, head_dim), "all", []
                )
            if len(blocks) == 1:
                (projections,) = zip(
                    self.a.read(blocks), self.b.read(blocks), strict=True
                )
                relation = relate_layer(*projections, self.pair_orders)
                return self._build(relation, "all", [projections])
            return self._relate_blocks(blocks)

    def relate_probe(self, related: Sequence[RelatedLayer]) -> RelatedLayer:
        """Compare a few rows with what other layers foretell, and read more if they differ."""
        first = related[0]
        relations = (first.relation.query, first.relation.key)
        matches = [relation.match for relation in relations]
        orders = {layer.relation.order for layer in related}
        if len(orders) > 1 or None in matches or not first.has_known_order:
            return self.relate()
        head_dim = self.a.rotary.head_dim
        # Heads that moved, or rows that cross heads, are not foretold.
        head_rows = [match.rows[:head_dim] for match in matches if match is not None]
        if any(rows.max() >= head_dim for rows in head_rows):
            return self.relate()
        probes = [[int(rows[row]) for row in PROBE_ROWS] for rows in head_rows]
        layer_a, layer_b = self.a, self.b
        sides_a = layer_a.read_rows((probes[0], probes[1]))
        sides_b = layer_b.read_rows((PROBE_ROWS, PROBE_ROWS))
        distances = [*map(relative_distance, sides_a, sides_b)]
        worst = max(
            relation.finding.value or 0.0
            for layer in related
            for relation in (layer.relation.query, layer.relation.key)
        )
        if max(distances) > max(MAX_PROBE_DISTANCE, MAX_PROBE_RATIO * worst):
            return self.relate()
        return RelatedLayer(
            self.a.layer, first.relation, "rows", None, self.a.head_counts
        )

    def _build(
        self,
        relation: LayerRelation,
        read: str,
        blocks: Sequence[tuple[Projections, Projections]],
    ) -> RelatedLayer:
        """Add to a relation what the files declare, and what moved weights do to the rotation."""
        types = [
            [quantised_type(layer.weights.checkpoint.tensors[name]) for name in names]
            for layer in (self.a, self.b)
            for names in [layer.tensor_names]
        ]
        query, key = (
            replace(side, finding=name_declared_type(side.finding, side_types))
            for side, side_types in zip(
                (relation.query, relation.key), zip(*types, strict=True), strict=True
            )
        )
        relation = replace(relation, query=query, key=key)
        changes = [self._rotation_change(relation, *block) for block in blocks]
        known_changes = [change for change in changes if change is not None]
        return RelatedLayer(
            self.a.layer,
            relation,
            read,
            float(np.mean(known_changes)) if known_changes else None,
            self.a.head_counts,
        )

    def _rotation_change(
        self, relation: LayerRelation, a: Projections, b: Projections
    ) -> float | None:
        """Return the change of the mean rotation if queries or keys moved far, else None."""
        findings = (relation.query.finding, relation.key.finding)
        has_moved = any(
            finding.cause == "moved" and (finding.value or 0.0) > MAX_MOVED_UNSEEN
            for finding in findings
        )
        matches = (relation.query.match, relation.key.match)
        if not has_moved or matches[0] is None or matches[1] is None:
            return None
        in_order = Projections(
            b.query[np.argsort(matches[0].rows[: len(b.query)])],
            b.key[np.argsort(matches[1].rows[: len(b.key)])],
            b.head_dim,
            b.rotated,
        )
        rotary = self.a.rotary
        return mean_rotation_change(
            a,
            in_order,
            "neighbours" if rotary.interleaved else "halves",
            rotary.frequencies(),
            min(rotary.max_positions or MAX_ROTATION_DISTANCES, MAX_ROTATION_DISTANCES),
        )

    def _relate_blocks(self, blocks: Sequence[HeadRanges]) -> RelatedLayer:
        """Relate a large layer head by head, and its rows as a whole if heads do not match."""
        head_dim, rotated = self.a.rotary.head_dim, self.a.rotary.rotated
        sides: list[dict[int, ProjectionRelation]] = [{}, {}]
        sketches: list[tuple[list[Floats], list[Floats]]] = [([], []), ([], [])]
        changes: list[float | None] = []
        block_relations: list[LayerRelation] = []
        for ranges, a, b in zip(
            blocks, self.a.read(blocks), self.b.read(blocks), strict=True
        ):
            inputs = np.random.default_rng(0).normal(
                size=(a.query.shape[1], N_SKETCH_INPUTS)
            )
            weights = ((a.query, b.query), (a.key, b.key))
            relation = relate_layer(a, b, self.pair_orders)
            changes.append(self._rotation_change(relation, a, b))
            block_relations.append(relation)
            for side, heads, (weight_a, weight_b) in zip(
                (0, 1), ranges, weights, strict=True
            ):
                # The keys of a group come with each block of its queries, and are seen once.
                if heads.start in sides[side]:
                    continue
                sides[side][heads.start] = (relation.query, relation.key)[side]
                for sketch, weight in zip(
                    sketches[side], (weight_a, weight_b), strict=True
                ):
                    sketch.append(weight @ inputs)
        query, key = (
            _join_heads([*relations.values()], side_sketches, (head_dim, rotated))
            for relations, side_sketches in zip(sides, sketches, strict=True)
        )
        relation = LayerRelation(query, key, head_dim, _join_turns(block_relations))
        built = self._build(relation, "all", [])
        known_changes = [change for change in changes if change is not None]
        if not known_changes:
            return built
        return replace(built, rotation_change=float(np.mean(known_changes)))


def _join_heads(
    relations: Sequence[ProjectionRelation],
    sketches: tuple[list[Floats], list[Floats]],
    head_sizes: tuple[int, int],
) -> ProjectionRelation:
    """Join relations of the heads of a projection, whose rows may be those of other heads.

    Parameters
    ----------
    relations
        Relations of the heads.
    sketches
        Products of the rows of A and of B with random inputs, ``[rows, inputs]`` for each head.
    head_sizes
        Rows of a head, and those of them that rotate.
    """
    related = join_relations(relations)
    if related.is_related and not related.needs_other_heads:
        return related
    sketch_a, sketch_b = map(np.concatenate, sketches)
    match = match_sketched_rows(sketch_a, sketch_b, *head_sizes)
    if match is None:
        return related
    # Rows that no other head has are damaged.
    is_in_place = bool((match.rows == np.arange(len(match.rows))).all())
    if related.is_related and is_in_place:
        return related
    cause = "moved" if match.distance > 1e-6 else "identical"
    return ProjectionRelation(match, Finding("weights", cause, value=match.distance))


def _join_turns(relations: Sequence[LayerRelation]) -> PairTurn | None:
    """Join the turns of blocks of heads, of which those that were not turned are as they were."""
    turns = [relation.turn for relation in relations if relation.turn is not None]
    unturned_causes = {
        side.finding.cause
        for relation in relations
        if relation.turn is None
        for side in relation.sides.values()
    }
    orders = {turn.order for turn in turns} | ({"same"} if unturned_causes else set())
    if not turns or len(orders) > 1 or not unturned_causes <= UNTURNED_CAUSES:
        return None
    return max(turns, key=lambda turn: (turn.is_reflected, turn.angle))
