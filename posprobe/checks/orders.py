"""Judge what became of queries and keys: orders of rows, and layers unlike the rest."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from posprobe.analyses.models.rotary_weights import pair_layout
from posprobe.arrays import Floats
from posprobe.checks.head_counts import compare_head_counts, compare_layer_counts
from posprobe.checks.input_gains import compare_input_gains
from posprobe.checks.layers import MAX_BLOCK_NUMBERS, RelatedLayer, relate_layers
from posprobe.checks.sides import Side
from posprobe.checks.vectors import relate_vectors
from posprobe.errors import PosprobeError
from posprobe.relations import RULES, Finding, NotCompared, relate_layouts
from posprobe.relations.weights import (
    SIDE_NAMES,
    SideName,
    expected_order,
)

#: Whether weights are to be the same, or may be another model's.
ExpectedWeights: TypeAlias = Literal["same", "other"]
#: Weights that moved by more than a tenth still encode position alike if the mean rotation of heads
#: changed by no more. White noise of 20 % of the weights changes it by 0.034 in a small model,
#: rounding to 4 bits by 0.006.
MAX_ROTATION_CHANGE = 0.02
#: Name of a weight of a numbered layer.
_LAYER_WEIGHT_NAME = re.compile(r"(?:.*\.)?\d+\..*")


@dataclass(frozen=True)
class ProjectionState:
    """What one projection of one layer of B is to that of A.

    Parameters
    ----------
    layer
        Number of the layer.
    side
        ``queries`` or ``keys``.
    relation
        Name of a relation in `RULES`.
    order
        New place of its rows: ``same``, ``to_neighbours``, ``to_halves``, either of them twice,
        ``other_heads``, ``other``; None if the weights are unrelated.
    heads
        Number of heads that ``other_heads`` supposes.
    distance
        Relative distance that is left once the rows are put back.
    read
        Part that was read: ``all``, ``first head``, or ``rows`` of the first head.
    """

    layer: int
    side: SideName
    relation: str
    order: str | None
    heads: int | None
    distance: float | None
    read: str


@dataclass(frozen=True)
class Comparison:
    """What was compared of two copies.

    Parameters
    ----------
    findings
        Relation of B to A, in each thing that was compared.
    not_compared
        Reasons of what could not be compared.
    projections
        Relation of each projection of each layer of B to that of A.
    """

    findings: list[Finding]
    not_compared: list[NotCompared]
    projections: list[ProjectionState] = field(default_factory=list)


def relate_weights(
    a: Side, b: Side, *, all_layers: bool, expected_weights: ExpectedWeights | None
) -> Comparison:
    """Compare pairs as declared, and where the rows of queries and keys went.

    Parameters
    ----------
    a, b, all_layers, expected_weights
        Same as for `posprobe.checks.compare.compare`.
    """
    has_weights = a.checkpoint is not None and b.checkpoint is not None
    not_compared = []
    layers: list[RelatedLayer] | None = None
    try:
        layers = relate_layers(a, b, all_layers=all_layers) if has_weights else None
    except PosprobeError as error:
        not_compared.append(NotCompared("weights", str(error)))
    are_neighbours = _are_pairs_neighbours(a), _are_pairs_neighbours(b)
    if layers_finding := _compare_rotating_layers(a, b):
        return Comparison([layers_finding], not_compared)
    if not layers:
        if not not_compared:
            not_compared.append(_missing_weights(a, b))
        pairs_finding = relate_layouts(are_neighbours, None)
        if pairs_finding is None:
            not_compared.append(NotCompared("pairs", "pairs_unknown"))
        return Comparison([pairs_finding] if pairs_finding else [], not_compared)
    findings = value_findings(layers)
    if a.weights is not None and not a.weights.normed:
        findings = _name_unlike_scales(findings, [*_scale_findings(layers)])
    row_findings = order_findings(layers, are_neighbours)
    findings += row_findings
    if not row_findings:
        pairs_finding = relate_layouts(are_neighbours, None)
        findings += [pairs_finding] if pairs_finding else []
        if pairs_finding is None:
            not_compared.append(NotCompared("pairs", "pairs_unknown"))
    if a.weights is not None and b.weights is not None:
        vector_findings, unknown_vectors = relate_vectors(a.weights, b.weights, layers)
        findings += vector_findings
        findings += compare_head_counts(a.weights, b.weights, layers)
        findings += compare_layer_counts(a.weights, b.weights)
        gain_result = compare_input_gains(a.weights, b.weights, layers)
        if isinstance(gain_result, Finding):
            findings.append(gain_result)
        elif gain_result is not None:
            not_compared.append(gain_result)
        not_compared += unknown_vectors
    if expected_weights is None:
        not_compared += _undecided_weights(layers)
        findings = [finding for finding in findings if finding.cause != "other_weights"]
    states = [state for layer in layers for state in _projection_states(layer)]
    return Comparison(findings, not_compared, states)


def _compare_rotating_layers(a: Side, b: Side) -> Finding | None:
    """Compare which layers rotate as declared, if both copies have the same layers."""
    if a.weights is None or b.weights is None:
        return None
    layers_a, layers_b = (sorted(side.weights.layers) for side in (a, b) if side.weights)
    every_layer = [
        sorted({*weights.layers, *weights.unrotated})
        for weights in (a.weights, b.weights)
    ]
    if layers_a == layers_b or every_layer[0] != every_layer[1]:
        return None
    differing = sorted(set(layers_a) ^ set(layers_b))
    return Finding(
        "layers", "rotating_layers", layers_a, layers_b, more={"layers": differing}
    )


def _missing_weights(a: Side, b: Side) -> NotCompared:
    """Say why no weights were compared, and whether the verdict hangs on them."""
    if a.checkpoint is None or b.checkpoint is None:
        return NotCompared("weights", "no_weights", decides=False)
    layer_counts = [len(side.weights.layers) if side.weights else 0 for side in (a, b)]
    if min(layer_counts) == 0 < max(layer_counts):
        sides = "A | B" if layer_counts[0] else "B | A"
        return NotCompared("weights", "lacks_projections", sides)
    if min(layer_counts) != max(layer_counts):
        counts = f"{layer_counts[0]} | {layer_counts[1]}"
        return NotCompared("weights", "other_layers", counts)
    has_layers = any(
        _LAYER_WEIGHT_NAME.fullmatch(name)
        for side in (a, b)
        if side.checkpoint is not None
        for name in side.checkpoint.tensors
    )
    return NotCompared("weights", "no_projections", decides=has_layers)


def value_findings(layers: Sequence[RelatedLayer]) -> list[Finding]:
    """Return the findings on values, those of several layers joined, the worst of each cause."""
    groups: dict[
        tuple[str, SideName | None, bool], list[tuple[RelatedLayer, Finding]]
    ] = {}
    unlike = _unlike_sides(layers)
    for layer in layers:
        sides = unlike.get(layer.layer, ())
        for side, finding in layer.relation.findings():
            is_unlike = finding.cause == "other_weights" and bool(sides)
            cause = "unlike_rest" if is_unlike else finding.cause
            key = cause, side, "reordered" in finding.more
            groups.setdefault(key, []).append((layer, finding))
    findings = []
    for (cause, side, _), members in groups.items():
        worst = max(
            (finding for _, finding in members),
            key=lambda f: (f.more.get("count", 0), f.value or 0.0),
        )
        more = {**worst.more, "layers": [layer.layer for layer, _ in members]}
        if side or not RULES[cause].alike:
            more["projection"] = side or " and ".join(SIDE_NAMES)
        reads = {layer.read for layer, _ in members} - {"all"}
        if reads:
            more["read"] = "first head" if "first head" in reads else "rows"
        findings.append(replace(worst, cause=cause, more=more))
    return findings


def _name_unlike_scales(
    findings: Sequence[Finding], unlike: Sequence[Finding]
) -> list[Finding]:
    """Put the findings on layers that are scaled unlike the rest in place of those on scales."""
    unlike_layers = {layer for finding in unlike for layer in finding.more["layers"]}
    others = [
        finding
        for finding in findings
        if finding.cause != "scale_folded"
        or not unlike_layers.issuperset(finding.more["layers"])
    ]
    return [*others, *unlike]


def _scale_findings(layers: Sequence[RelatedLayer]) -> Iterator[Finding]:
    """Yield the layers whose logits are scaled otherwise than those of the rest."""
    factors = {
        layer.layer: (finding.a or 1.0, finding.b or 1.0)
        if finding.cause == "scale_folded"
        else (1.0, 1.0)
        for layer in layers
        for _, finding in layer.relation.findings()
        if finding.alike
    }
    if not factors:
        return
    products = {layer: math.prod(pair) for layer, pair in factors.items()}
    usual = sorted(products.values())[(len(products) - 1) // 2]
    tolerance = RULES["scale_folded"].tolerance
    unlike = [
        k for k, product in products.items() if abs(product / usual - 1) > tolerance
    ]
    if unlike:
        more = {"layers": unlike}
        yield Finding("weights", "scale_unlike", *factors[unlike[0]], more=more)


def _unlike_sides(layers: Sequence[RelatedLayer]) -> dict[int, list[SideName]]:
    """Return the sides that are unrelated by layer, if other projections are related."""
    unrelated = {
        layer.layer: [
            side
            for side, relation in layer.relation.sides.items()
            if not relation.is_related and layer.relation.turn is None
        ]
        for layer in layers
    }
    n_unrelated = sum(map(len, unrelated.values()))
    if n_unrelated == len(SIDE_NAMES) * len(layers):
        return {}
    return {layer: sides for layer, sides in unrelated.items() if sides}


def order_findings(
    layers: Sequence[RelatedLayer], are_neighbours: tuple[bool | None, bool | None]
) -> list[Finding]:
    """Return the findings on where rows went: pairs, and projections unlike their partner."""
    orders = Counter(layer.relation.order for layer in layers if layer.relation.order)
    usual_order = orders.most_common(1)[0][0] if orders else "same"
    expected = expected_order(are_neighbours) or usual_order
    findings: dict[str, Finding] = {}
    layers_by_order: dict[str, list[int]] = {}
    for layer in layers:
        if layer.relation.order is not None:
            layers_by_order.setdefault(layer.relation.order, []).append(layer.layer)
    for order, layer_numbers in layers_by_order.items():
        finding = relate_layouts(are_neighbours, order)
        if order != expected and len(layers_by_order) > 1:
            finding = Finding("pairs", "layers_reordered", more={"order": order})
        if finding is None:
            continue
        if not finding.alike:
            curve = _row_map(layers, layer_numbers[0])
            more = {**finding.more, "layers": layer_numbers}
            finding = replace(finding, more=more, curve=curve)
        findings.setdefault(finding.cause, finding)
    return [*findings.values(), *_half_permuted_findings(layers, expected)]


def _half_permuted_findings(
    layers: Sequence[RelatedLayer], expected: str
) -> Iterator[Finding]:
    """Yield projections whose rows went another way than those of their partner."""
    groups: dict[tuple[str, str, int | None, bool], list[RelatedLayer]] = {}
    for layer in layers:
        relation = layer.relation
        if relation.turn is not None or relation.has_same_order:
            continue
        if not (relation.query.is_related and relation.key.is_related):
            continue
        states = [*_projection_states(layer)]
        wrong = [state for state in states if state.order != expected] or states
        key = (
            " and ".join(state.side for state in wrong),
            wrong[0].order or "other",
            wrong[0].heads,
            wrong == states,
        )
        groups.setdefault(key, []).append(layer)
    for (sides, order, heads, is_both), group in groups.items():
        relation = group[0].relation
        query_order, key_order = (
            side.match.order if side.match else None for side in relation.sides.values()
        )
        count = group[0].head_counts[0 if sides.startswith("queries") else 1]
        cause = (
            "heads_separated" if is_both and query_order == key_order else "half_permuted"
        )
        more = {
            "layers": [layer.layer for layer in group],
            "projection": sides,
            "order": order,
            "heads": heads,
            "of_heads": count,
        }
        curve = _row_map(layers, group[0].layer)
        yield Finding("pairs", cause, query_order, key_order, more=more, curve=curve)


def _row_map(layers: Sequence[RelatedLayer], number: int) -> Floats:
    """Return the row in A of each row of queries and of keys of B, ``[2, rows]``, NaN without."""
    (layer,) = (layer for layer in layers if layer.layer == number)
    matches = [relation.match for relation in layer.relation.sides.values()]
    row_counts = [len(match.rows) if match else 0 for match in matches]
    row_map = np.full((len(matches), max(row_counts)), np.nan)
    for values, match in zip(row_map, matches, strict=True):
        if match is not None:
            values[: len(match.rows)] = match.rows
    return row_map


def _undecided_weights(layers: Sequence[RelatedLayer]) -> Iterator[NotCompared]:
    """Yield why equal ladders are not enough: other weights, or weights that moved far."""
    relations = [
        relation for layer in layers for relation in layer.relation.sides.values()
    ]
    have_turned = any(layer.relation.turn is not None for layer in layers)
    causes = {relation.finding.cause for relation in relations}
    if causes == {"other_weights"} and not have_turned:
        shapes = next((x.finding for x in relations if x.finding.a is not None), None)
        is_part = any(layer.read != "all" for layer in layers)
        if shapes is not None:
            yield NotCompared("weights", "other_shapes", f"{shapes.a} | {shapes.b}")
        else:
            yield NotCompared(
                "weights", "unrelated_heads" if is_part else "unrelated_weights"
            )
    changes = {
        layer.layer: layer.rotation_change
        for layer in layers
        if layer.rotation_change is not None
    }
    worst_layer = max(changes, key=lambda layer: changes[layer], default=0)
    if changes and changes[worst_layer] > MAX_ROTATION_CHANGE:
        details = f"{worst_layer} | {changes[worst_layer]:.2g} | {MAX_ROTATION_CHANGE:g}"
        yield NotCompared("weights", "moved_far", details)


def _projection_states(layer: RelatedLayer) -> Iterator[ProjectionState]:
    counts = dict(zip(SIDE_NAMES, layer.head_counts, strict=True))
    for side, relation in layer.relation.sides.items():
        match = relation.match
        heads = None
        cause = layer.relation.turn_cause or relation.finding.cause
        if match is not None and match.order == "other_heads":
            heads = round(match.heads_ratio * counts[side])
        yield ProjectionState(
            layer.layer,
            side,
            cause,
            match.order if match is not None and relation.is_related else None,
            heads,
            relation.finding.value,
            layer.read,
        )


def _are_pairs_neighbours(side: Side) -> bool | None:
    """Tell whether pairs are neighbours: as declared, else by the sizes of all rows on disk."""
    rotary, weights = side.rotary_schemes[0], side.weights
    if side.declares_pairs:
        return rotary.interleaved
    if weights is None or weights.checkpoint.revision is not None:
        return None
    row_sizes = [
        weights.row_norms(layer, MAX_BLOCK_NUMBERS)[:, : rotary.rotated]
        for layer in weights.layers
    ]
    layout = pair_layout(np.concatenate(row_sizes)) if row_sizes else None
    pair_order = layout.answer if layout else None
    return {"halves": False, "neighbours": True}.get(pair_order or "")
