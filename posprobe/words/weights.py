"""What is said of a rotary model by its weights alone, and of how far arithmetic carries angles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posprobe.page import NONE, Line
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
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{two_figures(size / least)} {unit}"
    return some(size, "byte")


def line(block: Block) -> Line:
    """Return what the weights of one encoding say as a line of the overview."""
    never = block["never"]
    value = NONE if never is None else percent(never)
    return Line("weights", "", "Strength of pairs, from weights", "in pairs that never turn", value)


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
    spreads = [each["bias_spread"] for each in block["layers"] if each["bias_spread"] is not None]
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
    found, heads = block["layout"], some(block["layout"]["heads"], "head")
    margin = f"(margin {two_figures(found['margin'])}, {heads} of queries and keys)"
    if found["answer"] is None:
        return f"The weights alone do not tell which rows make pairs {margin}."
    said = f"By the weights, rows of a pair are {READINGS[found['answer']]} {margin}"
    if not block["declared"]:
        return f"{said}: no architecture is named."
    if found["answer"] == block["pairs"]:
        return f"{said}, as the architecture has them."
    return (
        f"{said}, and the architecture has them {READINGS[block['pairs']]}: the rows may have been "
        "put in another order."
    )


def _skipped(block: Block) -> str:
    layers = block["skipped"]
    which = f"{'Layer' if len(layers) == 1 else 'Layers'} {', '.join(map(str, layers))}"
    verb = "was" if len(layers) == 1 else "were"
    why = block["problem"] or "the weights hold NaN or infinity."
    return f"{which} {verb} left out: {why}"


def axes_line(ladders: Sequence[Block]) -> Line:
    """Return how many pairs of the axes are dead as a line of the overview."""
    dead, pairs = (sum(each[key] for each in ladders) for key in ("dead", "pairs"))
    return Line("axes", "", "Pairs of each axis", "that hardly turn", f"{dead} of {pairs}")


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


def horizon_line(found: Sequence[Block]) -> Line:
    """Return the first position at which half precision is off as a line of the overview."""
    first = [each["bfloat16"] for each in found if each["bfloat16"] is not None]
    value = f"{min(first):,}" if first else NONE
    return Line("precision", "", "Precision of angles", "bfloat16 off from position", value)


def horizon(found: Block) -> str:
    """Say from which position on angles are off, by the type of the numbers."""
    told = [
        f"in {name} from position {rounded(first)}"
        for name, first in found.items()
        if first is not None
    ]
    off = f"angles are off by 0.1 rad {', '.join(told)}" if told else "no angle is off by 0.1 rad"
    return f"Where all arithmetic is in one type, {off}. The checkpoint does not say how it is run."
