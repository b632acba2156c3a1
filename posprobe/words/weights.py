"""What is said of a rotary model by its weights alone, and of how far arithmetic carries angles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posprobe.page import NO_VALUE, AnswerLine
from posprobe.text import Block
from posprobe.words import TEXTS
from posprobe.words.formats import percent, rounded, some, two_figures

#: Why weights say nothing, and how rows make pairs.
MISSING: Mapping[str, str] = TEXTS["weights"]["missing"]
READINGS: Mapping[str, str] = TEXTS["weights"]["pairs"]


def reading(size: int) -> str:
    """Say how many bytes will be read."""
    return f"Reading {_bytes(size)} of query and key weights."


def _bytes(size: int) -> str:
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= unit_bytes:
            return f"{two_figures(size / unit_bytes)} {unit}"
    return some(size, "byte")


def line(block: Block) -> AnswerLine:
    """Return what the weights of one encoding say as a line of the overview."""
    idle_share = block["never"]
    value = NO_VALUE if idle_share is None else percent(idle_share)
    return AnswerLine(
        "weights", "", "Strength of pairs, from weights", "in pairs that never turn", value
    )


def sentences(block: Block) -> Iterator[str]:
    """Say what the weights of one encoding are."""
    if block["missing"] in MISSING:
        yield MISSING[block["missing"]]
        return
    if block["never"] is not None:
        yield (
            f"In the query and key weights of {some(block['head_count'], 'head')} "
            f"({some(len(block['layers']), 'layer')}), {percent(block['never'])} of the strength "
            f"lies in pairs that never turn within {block['positions']:,} positions. "
            "In a run the order of pairs is much the same; their sizes are not."
        )
    elif block["normed"]:
        yield (
            "Queries and keys are normalised, so that weights do not say how strong a pair is: "
            "`posprobe forward` measures it."
        )
    spreads = [
        layer["bias_spread"] for layer in block["layers"] if layer["bias_spread"] is not None
    ]
    if spreads:
        yield (
            "Biases alone, of queries, keys and the norm before them, move every logit by up to "
            f"{two_figures(max(spreads))} nats (standard deviation over distance)."
        )
    if block["layout"] is not None:
        yield _layout(block)
    if block["skipped"]:
        yield _skipped(block)


def _layout(block: Block) -> str:
    layout, heads = block["layout"], some(block["layout"]["heads"], "head")
    margin = f"(margin {two_figures(layout['margin'])}, {heads} of queries and keys)"
    if layout["answer"] is None:
        return f"The weights alone do not tell which rows make pairs {margin}."
    sentence = f"By the weights, rows of a pair are {READINGS[layout['answer']]} {margin}"
    if not block["declared"]:
        return f"{sentence}: no architecture is named."
    if layout["answer"] == block["pairs"]:
        return f"{sentence}, as the architecture has them."
    return (
        f"{sentence}, and the architecture has them {READINGS[block['pairs']]}: "
        "the rows may have been "
        "put in another order."
    )


def _skipped(block: Block) -> str:
    layers = block["skipped"]
    layers_text = f"{'Layer' if len(layers) == 1 else 'Layers'} {', '.join(map(str, layers))}"
    verb = "was" if len(layers) == 1 else "were"
    problem = block["problem"] or "the weights hold NaN or infinity."
    return f"{layers_text} {verb} left out: {problem}"


def axes_line(ladders: Sequence[Block]) -> AnswerLine:
    """Return how many pairs of the axes are dead as a line of the overview."""
    dead, pairs = (sum(ladder[key] for ladder in ladders) for key in ("dead", "pairs"))
    return AnswerLine("axes", "", "Pairs of each axis", "that hardly turn", f"{dead} of {pairs}")


def axis(ladder: Block) -> str:
    """Say which wavelengths one axis has, and how many of its pairs turn."""
    span = f"{two_figures(ladder['shortest'])} to {two_figures(ladder['longest'])} steps"
    dead = f"{ladder['dead'] or 'none'} {'turns' if ladder['dead'] == 1 else 'turn'}"
    return (
        f"{ladder['axis'].capitalize()}: {some(ladder['pairs'], 'pair')} of wavelength {span}; "
        f"within {ladder['extent']} steps {ladder['turning'] or 'none'} "
        f"{'makes' if ladder['turning'] == 1 else 'make'} a full turn and {dead} by less than "
        "0.1 rad, which hardly tells places apart."
    )


def horizon_line(horizons: Sequence[Block]) -> AnswerLine:
    """Return the first position at which half precision is off as a line of the overview."""
    first_positions = [
        horizon_block["bfloat16"]
        for horizon_block in horizons
        if horizon_block["bfloat16"] is not None
    ]
    value = f"{min(first_positions):,}" if first_positions else NO_VALUE
    return AnswerLine("precision", "", "Precision of angles", "bfloat16 off from position", value)


def horizon(block: Block) -> str:
    """Say from which position on angles are off, by the type of the numbers."""
    limits = [
        f"in {name} from position {rounded(position)}"
        for name, position in block.items()
        if position is not None
    ]
    clause_text = (
        f"angles are off by 0.1 rad {', '.join(limits)}" if limits else "no angle is off by 0.1 rad"
    )
    return (
        f"Where all arithmetic is in one type, {clause_text}. "
        "The checkpoint does not say how it is run."
    )
