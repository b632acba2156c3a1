"""Texts beside figures of a run of a model, and parts of them that tables share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.analyses.substitution import SubstitutionEffect
from posprobe.number_format import Block, between, lookup, show
from posprobe.report.narrator.captions import filled

_WORTH = {"table": "the table is", "rotary": "rotations are", "relative": "biases are"}


def _none_receives(result: AttentionByOffset) -> str:
    from posprobe.figures.model_attention import receivers

    return "" if receivers(result) else "there is no first position and no special token"


def _effective_alt(block: Block) -> str:
    key = "similarity.raw.neighbour_mean"
    before, after = show(block["raw"].get(key)), show(block["effective"].get(key))
    return (
        "Cosine matrix of the rows that attention sees, and numbers before and after: neighbour "
        f"cosine {before} and {after}."
    )


def _no_peaks(result: HeadsByLayer) -> str:
    found = any(layer.has_peak.any() for layer in result.layers.values())
    return "" if found else "no head prefers an offset"


def _shift_alt(block: Block) -> str:
    loss = block["loss"]
    also = f", and loss from {show(loss[0])} to {show(loss[-1])} nats" if loss else ""
    most, last = show(max(block["change"])), block["shifts"][-1]
    return f"Relative change by shift, up to {most} at {last} positions{also}."


def _still(result: MeanDecomposition) -> str:
    moves = any(layer.stable_rank is not None for layer in result.layers.values())
    return "" if moves else "positions add nothing at any layer"


def _no_plane(result: MeanDecomposition) -> str:
    width = next(iter(result.layers.values())).pos.shape[1]
    few = result.layout.size < 3 or width < 2
    return _still(result) or ("a path needs three positions and two dimensions" if few else "")


def _no_positions(found: SubstitutionEffect) -> str:
    return "" if found.by_position is not None else "the outputs have no positions"


def by_layer(text: str, *keys: str) -> Callable[[Block], str]:
    """Make a sentence of a block: ranges over layers, and heads, fill the braces of the text."""

    def write(block: Block) -> str:
        found = ([lookup(layer, key) for layer in block["layers"]] for key in keys)
        return text.format(*(between(v for value in one for v in _flat(value)) for one in found))

    return write


def _flat(value: float | list[float | None] | None) -> Sequence[float | None]:
    return value if isinstance(value, list) else [value]


def worth(scheme: str, measure: str, task: str | None) -> str:
    """Say what is worth something to what, in a run with other positions.

    Parameters
    ----------
    scheme, measure, task
        As of `posprobe.analyses.substitution.SubstitutionEffect`.
    """
    to = {
        "loss": f"the {str(task).replace(' ', '-')} loss",
        "divergence": "the outputs",
        "answers": "the top answers",
        "states": "the last hidden states",
    }[measure]
    return f"what {_WORTH[scheme]} worth to {to}"


def worth_of(block: Block) -> str:
    """Say what is worth something to what, of the block of a run with other positions."""
    return worth(block["scheme"], block["measure"], block["task"])


def cells(block: Block) -> str:
    """Return what a distance is counted in."""
    return "patches" if block["layout"]["type"] == "grid" else "positions"


#: From the block, the text that stands for a figure on a page, by the figure's name.
ALTS: Mapping[str, Callable[[Block], str]] = {
    "attention": lambda _: "Mean attention of every head by offset.",
    "blank": by_layer(
        "Norms of patches at some layers, and by layer the cosine with the table: {} for grey, "
        "{} for noise.",
        "constant.alignment", "noise.alignment",
    ),
    "cosines": by_layer(
        "Cosine matrices of what positions add at some layers, on one range from -1 to 1; the "
        "part of it that is sampling noise {}.",
        "noise_share",
    ),
    "effective": _effective_alt,
    "first": by_layer(
        "What each head pays the first position ({}) and tokens that are no positions ({}), by "
        "layer.",
        "first", "special",
    ),
    "heads": lambda _: "Logits of every head by offset.",
    "layers": by_layer(
        "Share of variance by position ({}), relative norm ({}) and stable rank ({}) by layer.",
        "shares.position", "relative_norm", "stable_rank",
    ),
    "overlap": filled(
        "Overlap of each token direction with the {} leading position directions; a random "
        "subspace has {}.",
        "rank", "chance.expected",
    ),
    "paths": by_layer(
        "Paths of positions in the first two principal components at some layers; stable rank {}.",
        "stable_rank",
    ),
    "peaks": lambda _: "How many heads prefer each offset.",
    "permutation": filled(
        "Relative change of the last hidden states: {} with positions, {} with the table set to "
        "0.",
        "with_positions.tokens", "without_positions.tokens",
    ),
    "shift": _shift_alt,
    "substitution": lambda block: f"Share kept by each table in its place, of {worth_of(block)}.",
    "substitution_attention": lambda block: (
        f"Share of attention by distance in {cells(block)}, as it is and with tables in place of "
        "the model's."
    ),
    "substitution_positions": lambda block: (
        f"Cost by position: of {worth_of(block)}, what is lost with some of them."
    ),
    "words": lambda _: "Mean attention of each head by offset.",
}  # fmt: skip
#: From a result, why a figure cannot be drawn; empty where it can.
LACKS: Mapping[str, Callable[[Any], str]] = {
    "cosines": _still,
    "first": _none_receives,
    "paths": _no_plane,
    "peaks": _no_peaks,
    "substitution_positions": _no_positions,
}
