"""Hold the layers that a configuration says rotate against what their weights show."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posprobe.analyses.models.rotating_layers import RotationTest, rotation_test
from posprobe.errors import PosprobeError
from posprobe.families.projections import RotaryWeights, count_heads, open_rotary_weights
from posprobe.progress import stage

#: At most this many numbers of the queries of a layer are read at once, which bounds the memory.
MAX_NORM_BLOCK_NUMBERS = 2**20


@dataclass(frozen=True)
class LayerRotation:
    """Whether one layer rotates, as declared and as its weights show.

    Parameters
    ----------
    layer
        Number of the layer.
    declared
        Whether the configuration says that it rotates.
    test
        Evidence from the norms of its rows; None where there is none: few heads, or norms of
        queries and keys that heads share.
    """

    layer: int
    declared: bool
    test: RotationTest | None


def layer_rotations(
    reference: str, *, revision: str | None = None, offline: bool = False
) -> list[LayerRotation]:
    """Test each layer of a rotary model for rotation, from its query and key weights.

    Parameters
    ----------
    reference, revision, offline
        Same as for `posprobe.load_schemes`.

    Raises
    ------
    PosprobeError
        As for `posprobe.load_schemes`; also if weights cannot be read.
    """
    rotations: dict[int, LayerRotation] = {}
    for weights in open_rotary_weights(reference, revision=revision, offline=offline):
        every_layer = replace(weights, layers={**weights.unrotated, **weights.layers})
        for layer in every_layer.layers:
            is_declared = layer in weights.layers
            if layer in rotations and not is_declared:
                continue
            with stage(f"Reading queries and keys of layer {layer}"):
                test = None if weights.normed else _test_layer(every_layer, layer)
            rotations[layer] = LayerRotation(layer, is_declared, test)
    return [rotations[layer] for layer in sorted(rotations)]


def _test_layer(weights: RotaryWeights, layer: int) -> RotationTest | None:
    names = weights.layers[layer]
    n_heads, _ = count_heads(weights.checkpoint, names, weights.head_dim, weights.config)
    try:
        norms = weights.row_norms(layer, MAX_NORM_BLOCK_NUMBERS)
    except PosprobeError:
        return None
    return rotation_test(norms[:n_heads], norms[n_heads:])
