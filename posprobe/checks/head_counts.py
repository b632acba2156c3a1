"""Compare how many heads and layers configurations state with the stored projections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posprobe.checks.layers import RelatedLayer
from posprobe.families.configurations import ConfigSection
from posprobe.families.projections import RotaryWeights
from posprobe.families.rotary import read_head_count
from posprobe.relations import Finding
from posprobe.relations.weights import SIDE_NAMES, SideName

#: Architectures that have a head of keys for each of queries unless they state another number. Of
#: others the library has a number of its own, such as 8 for Mistral.
GROUPLESS_TYPES = frozenset({"llama"})


def compare_head_counts(
    a: RotaryWeights, b: RotaryWeights, layers: Sequence[RelatedLayer]
) -> Iterator[Finding]:
    """Yield the projections whose heads one copy states wrongly.

    Where both copies store one number of heads, and only one of them states it, a library splits
    the rows of the other into wrong heads, or refuses them.

    Parameters
    ----------
    a, b
        Weights of both copies.
    layers
        Relations of their projections.
    """
    declared_a, declared_b = _read_head_counts(a), _read_head_counts(b)
    for index, side in enumerate(SIDE_NAMES):
        stored_counts = {
            layer.head_counts[index]
            for layer in layers
            if layer.relation.sides[side].match is not None
            and not a.layers[layer.layer].fused
            and not b.layers[layer.layer].fused
        }
        declared = declared_a[side], declared_b[side]
        if len(stored_counts) != 1 or None in declared or declared[0] == declared[1]:
            continue
        (stored,) = stored_counts
        if stored in declared:
            wrong_side = "b" if declared[0] == stored else "a"
            more = {"projection": side, "stored": stored, "side": wrong_side}
            yield Finding("heads", "head_count", *declared, more=more)


def compare_layer_counts(a: RotaryWeights, b: RotaryWeights) -> Iterator[Finding]:
    """Yield that one copy states another number of layers than both of them store."""
    stored_counts = {len({*x.layers, *x.unrotated}) for x in (a, b)}
    count_a, count_b = (x.config.get("num_hidden_layers") for x in (a, b))
    if len(stored_counts) != 1 or count_a == count_b:
        return
    (stored,) = stored_counts
    are_counts = type(count_a) is int and type(count_b) is int
    if are_counts and stored in (count_a, count_b):
        more = {"stored": stored, "side": "b" if count_a == stored else "a"}
        yield Finding("layers", "layer_count", count_a, count_b, more=more)


def _read_head_counts(weights: RotaryWeights) -> dict[SideName, int | None]:
    """Return the heads that a configuration states; None where it does not."""
    config = weights.config
    n_heads = read_head_count(ConfigSection("", config))
    n_key_heads = config.get("num_key_value_heads")
    is_groupless = config.get("model_type") in GROUPLESS_TYPES
    # GGUF states them by another name, from which this configuration is not made.
    if n_key_heads is None and is_groupless and weights.checkpoint.format != "GGUF":
        n_key_heads = n_heads
    is_count = type(n_key_heads) is int
    return {"queries": n_heads, "keys": n_key_heads if is_count else None}
