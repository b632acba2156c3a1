"""Hold the layers that a configuration says rotate against what their weights show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from posprobe.analyses.models.rotating_layers import (
    LayerRotation,
    MissingTest,
    RotationTest,
    rotation_test,
)
from posprobe.arrays import Floats
from posprobe.errors import PosprobeError
from posprobe.families.projections import RotaryWeights, count_heads, open_rotary_weights
from posprobe.progress import stage

#: At most this many numbers of the queries of a layer are read at once, which bounds the memory.
MAX_NORM_BLOCK_NUMBERS = 2**20


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
        As for `posprobe.load_schemes`.
    """
    rotations: dict[int, LayerRotation] = {}
    for weights in open_rotary_weights(reference, revision=revision, offline=offline):
        # Layers that no encoding rotates are listed with each.
        unread = {
            k: names for k, names in weights.unrotated.items() if k not in rotations
        }
        for rotation in weights_rotations(replace(weights, unrotated=unread)):
            rotations[rotation.layer] = rotation
    return [rotations[layer] for layer in sorted(rotations)]


def weights_rotations(
    weights: RotaryWeights, row_norms: Mapping[int, Floats] | None = None
) -> list[LayerRotation]:
    """Test the layers of one rotary encoding, and those that are not to rotate.

    Parameters
    ----------
    weights
        Access to the weights.
    row_norms
        `Projections.row_norms` of layers that were read before.
    """
    every_layer = replace(weights, layers={**weights.unrotated, **weights.layers})
    return [
        LayerRotation(
            layer,
            layer in weights.layers,
            *_test_layer(every_layer, layer, (row_norms or {}).get(layer)),
        )
        for layer in sorted(every_layer.layers)
    ]


def _test_layer(
    weights: RotaryWeights, layer: int, norms: Floats | None
) -> tuple[RotationTest | None, MissingTest | None]:
    names = weights.layers[layer]
    try:
        n_heads, _ = count_heads(
            weights.checkpoint, names, weights.head_dim, weights.config
        )
        if norms is None:
            with stage(f"Reading queries and keys of layer {layer}"):
                norms = weights.row_norms(layer, MAX_NORM_BLOCK_NUMBERS)
    except PosprobeError:
        return None, "unreadable"
    test = rotation_test(
        norms[:n_heads],
        norms[n_heads:],
        rotated=weights.rotated,
        has_shared_norm=weights.normed,
    )
    return test, None if test else "undefined"
