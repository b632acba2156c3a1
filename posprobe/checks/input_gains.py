"""Hold the gains of the norms before attention against what was folded into queries and keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posprobe.checks.layers import RelatedLayer
from posprobe.families.projections import RotaryWeights
from posprobe.relations import RULES, Finding, NotCompared
from posprobe.relations.values import relative_distance
from posprobe.relations.weights import LayerRelation

#: Gains may have moved by this multiple of what the projections did: both were trained.
MAX_GAIN_MOVE_RATIO = 3.0


def compare_input_gains(
    a: RotaryWeights, b: RotaryWeights, layers: Sequence[RelatedLayer]
) -> Finding | NotCompared | None:
    """Find the layers whose gains and projections together are not those of A.

    The gain of B times what was folded into its projections must be the gain of A. Where one copy
    has a gain under no known name, that is said.

    Parameters
    ----------
    a, b
        Weights of both copies.
    layers
        Relations of their projections.
    """
    distances: dict[int, float] = {}
    for layer in layers:
        relation = layer.relation
        if layer.read == "rows" or not _has_known_gain(relation):
            continue
        gain_a, gain_b = (weights.read_gain(layer.layer) for weights in (a, b))
        if gain_a is None and gain_b is None:
            continue
        if gain_a is None or gain_b is None or gain_a.shape != gain_b.shape:
            return NotCompared("norms", "gain_unknown", str(layer.layer), decides=False)
        folded = 1.0 if relation.query.gains is None else relation.query.gains
        expected, product = gain_a.astype(np.float64), folded * gain_b.astype(np.float64)
        if np.array_equal(expected, product):
            continue
        distance = relative_distance(expected, product)
        moved = max(side.finding.value or 0.0 for side in relation.sides.values())
        if distance > max(RULES["input_gain"].tolerance, MAX_GAIN_MOVE_RATIO * moved):
            distances[layer.layer] = distance
    if not distances:
        return None
    more = {"layers": [*distances]}
    return Finding("norms", "input_gain", value=max(distances.values()), more=more)


def _has_known_gain(relation: LayerRelation) -> bool:
    """Tell whether the values of both projections are those of A up to a gain and training."""
    causes = {side.finding.cause for side in relation.sides.values()}
    known_causes = {"identical", "rounded", "quantised", "moved", "gain_folded"}
    has_rows = relation.turn is None and causes <= known_causes
    return has_rows and relation.has_same_gains
