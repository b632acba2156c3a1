"""Compare how many heads configurations state with the rows of the stored projections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posprobe.checks.layers import RelatedLayer
from posprobe.families.configurations import ConfigSection
from posprobe.families.projections import RotaryWeights
from posprobe.families.rotary import read_head_count
from posprobe.relations import Finding
from posprobe.relations.weights import SIDE_NAMES, SideName


def compare_head_counts(
    a: RotaryWeights, b: RotaryWeights, layers: Sequence[RelatedLayer]
) -> Iterator[Finding]:
    """Yield the sides of which one copy states other heads than both of them store.

    Where both copies store one number of heads, and only one of them states it, a library splits
    the rows of the other into wrong heads, or refuses them.

    Parameters
    ----------
    a, b
        Weights of both copies.
    layers
        Relations of their projections.
    """
    # Other architectures state heads of keys by other names.
    is_same_type = a.config.get("model_type") == b.config.get("model_type")
    stated_a, stated_b = (
        _state_head_counts(weights, has_default=is_same_type) for weights in (a, b)
    )
    for index, side in enumerate(SIDE_NAMES):
        stored_counts = {
            layer.head_counts[index]
            for layer in layers
            if layer.relation.sides[side].match is not None
            and not a.layers[layer.layer].fused
            and not b.layers[layer.layer].fused
        }
        stated = stated_a.get(side), stated_b.get(side)
        if len(stored_counts) != 1 or None in stated or stated[0] == stated[1]:
            continue
        (stored,) = stored_counts
        if stored in stated:
            wrong_side = "b" if stated[0] == stored else "a"
            more = {"projection": side, "stored": stored, "side": wrong_side}
            yield Finding("heads", "head_count", *stated, more=more)


def _state_head_counts(
    weights: RotaryWeights, *, has_default: bool
) -> dict[SideName, int | None]:
    """Return the heads that a configuration states.

    By default there are as many of keys as of queries.
    """
    config = weights.config
    n_heads = read_head_count(ConfigSection("", config))
    n_key_heads = config.get("num_key_value_heads")
    if n_key_heads is None and has_default and weights.checkpoint.format != "GGUF":
        n_key_heads = n_heads
    is_count = type(n_key_heads) is int
    return {"queries": n_heads, "keys": n_key_heads if is_count else None}
