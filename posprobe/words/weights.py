"""Sentences about the weights of a rotary model, and about the precision of its angles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posprobe.analyses.models.rotating_layers import (
    MAX_ROTATING_P,
    LayerRotation,
    find_contradictions,
)
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.text import Block
from posprobe.words import ANSWER_TEXTS
from posprobe.words.formats import (
    format_count,
    format_rounded,
    format_two_figures,
    format_whole_percent,
    layer_numbers,
)

#: Sentences on why weights show nothing, by reason.
MISSING_WEIGHTS: Mapping[str, str] = ANSWER_TEXTS["weights"]["missing"]
#: Phrases on why a layer has no test of its rotation, by reason.
MISSING_ROTATION: Mapping[str, str] = ANSWER_TEXTS["weights"]["no_test"]
#: Names of what a test of rotation compares.
ROTATION_EVIDENCE: Mapping[str, str] = ANSWER_TEXTS["weights"]["evidence"]
#: Phrases on the rows of a pair, by pair order.
PAIR_ORDER_PHRASES: Mapping[str, str] = ANSWER_TEXTS["weights"]["pairs"]


def reading_message(size: int) -> str:
    """Return the message on the number of bytes that will be read."""
    return f"Reading {_format_bytes(size)} of query and key weights."


def _format_bytes(size: int) -> str:
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= unit_bytes:
            return f"{format_two_figures(size / unit_bytes)} {unit}"
    return format_count(size, "byte")


def rotation_lines(rotations: Sequence[LayerRotation]) -> Iterator[str]:
    """Yield a line on each layer: whether it rotates, as declared and by its weights.

    Parameters
    ----------
    rotations
        Layers with their tests.
    """
    if not rotations:
        yield "No query and key weights of a rotary model were found under names known here."
        return
    yield "layer  declared       by weights"
    contradictions = find_contradictions(rotations)
    for rotation in rotations:
        declared = "rotates" if rotation.declared else "does not"
        is_contradiction = rotation.layer in contradictions
        note = ": the configuration says otherwise" if is_contradiction else ""
        yield f"{rotation.layer:>5}  {declared:<13}  {_rotation_phrase(rotation)}{note}"


def _rotation_phrase(rotation: LayerRotation) -> str:
    """Return what the weights of one layer say."""
    test = rotation.test
    if test is None:
        return f"cannot tell ({MISSING_ROTATION[rotation.missing or 'undefined']})"
    verdict = "rotates" if test.rotates else "cannot tell"
    measure = ROTATION_EVIDENCE[test.evidence]
    return f"{verdict} ({measure} {test.ratio:.2g} times chance, p = {test.p:.2g})"


def weights_line(block: Block) -> AnswerLine:
    """Return the line of the overview on the weights of one encoding."""
    idle_share = block["never"]
    value = NO_VALUE if idle_share is None else format_whole_percent(idle_share)
    return AnswerLine(
        "weights",
        "",
        "Strength of pairs, from weights",
        "in pairs that never turn",
        value,
    )


def usage_headline(block: Block) -> str:
    """Return the sentence of a headline on the strength of pairs; empty where it is not known."""
    if block["never"] is None:
        return ""
    heads = format_count(block["head_count"], "head")
    return (
        f"By its weights, {format_whole_percent(block['never'])} of the strength of {heads} "
        "lies in pairs that never turn."
    )


def weights_sentences(block: Block) -> Iterator[str]:
    """Yield sentences on the weights of one encoding."""
    if block["missing"] in MISSING_WEIGHTS:
        yield MISSING_WEIGHTS[block["missing"]]
        return
    if block["never"] is not None:
        heads = format_count(block["head_count"], "head")
        layers = format_count(len(block["layers"]), "layer")
        yield (
            f"In the query and key weights of {heads} ({layers}), "
            f"{format_whole_percent(block['never'])} of the strength lies "
            f"in pairs that never turn within {block['positions']:,} "
            "positions. In a run the order of pairs is much the same; "
            "their sizes are not."
        )
    elif block["normed"]:
        yield (
            "Queries and keys are normalised, so that weights do not say "
            "how strong a pair is: `posprobe forward` measures it."
        )
    spreads = [
        layer["bias_spread"]
        for layer in block["layers"]
        if layer["bias_spread"] is not None
    ]
    if spreads:
        yield (
            "Biases alone, of queries, keys and the norm before them, move "
            f"every logit by up to {format_two_figures(max(spreads))} nats "
            "(standard deviation over distance)."
        )
    if block["layout"] is not None:
        yield _pair_order_sentence(block)
    if block["skipped"]:
        yield _skipped_sentence(block)


def rotating_line(blocks: Sequence[Block]) -> AnswerLine:
    """Return the line of the overview on the layers that rotate by the weights."""
    rotations = [rotation for block in blocks for rotation in block["rotations"]]
    declared = [rotation for rotation in rotations if rotation["declared"]]
    n_shown = sum(map(_is_shown, declared))
    return AnswerLine(
        "rotating_layers",
        "",
        "Rotating layers, from weights",
        "declared layers that rotate",
        f"{n_shown} of {len(declared)}",
    )


def _is_shown(rotation: Block) -> bool:
    """Tell whether the weights show that a layer rotates."""
    return rotation["test"] is not None and rotation["test"]["p"] <= MAX_ROTATING_P


def rotation_sentences(block: Block) -> Iterator[str]:
    """Yield which layers rotate by the weights, beside what the configuration says."""
    rotations = block["rotations"]
    declared = [rotation for rotation in rotations if rotation["declared"]]
    n_shown = sum(map(_is_shown, declared))
    layers = format_count(len(declared), "layer")
    rest = "" if n_shown == len(declared) else "; of the rest they do not tell"
    yield (
        f"The weights show rotation in {n_shown} of {layers} that should rotate "
        f"(p ≤ {MAX_ROTATING_P:g} each){rest}."
    )
    undeclared = [rotation["layer"] for rotation in rotations if not rotation["declared"]]
    if undeclared:
        named = layer_numbers(undeclared)
        contradictions = block["contradictions"]
        if contradictions:
            yield (
                f"The configuration leaves rotation out of {named}, but the weights of "
                f"{layer_numbers(contradictions)} rotate: its list may be inverted."
            )
        else:
            yield (
                f"The configuration leaves rotation out of {named}, "
                "and the weights do not contradict it."
            )
    for reason, text in MISSING_ROTATION.items():
        untested = [x["layer"] for x in rotations if x["missing"] == reason]
        if untested:
            yield f"No test of rotation in {layer_numbers(untested)}: {text}."


def _pair_order_sentence(block: Block) -> str:
    layout, heads = block["layout"], format_count(block["layout"]["heads"], "head")
    margin = (
        f"(margin {format_two_figures(layout['margin'])}, {heads} of queries and keys)"
    )
    if layout["answer"] is None:
        return f"The weights alone do not tell which rows make pairs {margin}."
    sentence = f"By the weights, rows of a pair are {PAIR_ORDER_PHRASES[layout['answer']]} {margin}"
    if not block["declared"]:
        return f"{sentence}: no architecture is named."
    if layout["answer"] == block["pairs"]:
        return f"{sentence}, as the architecture has them."
    return (
        f"{sentence}, and the architecture has them "
        f"{PAIR_ORDER_PHRASES[block['pairs']]}: the rows may have been put in "
        "another order."
    )


def _skipped_sentence(block: Block) -> str:
    layers = block["skipped"]
    layers_text = (
        f"{'Layer' if len(layers) == 1 else 'Layers'} {', '.join(map(str, layers))}"
    )
    verb = "was" if len(layers) == 1 else "were"
    problem = block["problem"] or "the weights hold NaN or infinity."
    return f"{layers_text} {verb} left out: {problem}"


def axes_line(ladders: Sequence[Block]) -> AnswerLine:
    """Return the line of the overview on the dead pairs of all axes."""
    dead, pairs = (sum(ladder[key] for ladder in ladders) for key in ("dead", "pairs"))
    return AnswerLine(
        "axes", "", "Pairs of each axis", "that hardly turn", f"{dead} of {pairs}"
    )


def axis_sentence(ladder: Block) -> str:
    """Return a sentence on the wavelengths of one axis, and on its pairs that turn."""
    shortest_wavelength, longest_wavelength = (
        format_two_figures(ladder[key]) for key in ("shortest", "longest")
    )
    pairs = format_count(ladder["pairs"], "pair")
    dead = f"{ladder['dead'] or 'none'} {'turns' if ladder['dead'] == 1 else 'turn'}"
    return (
        f"{ladder['axis'].capitalize()}: {pairs} of wavelength {shortest_wavelength} "
        f"to {longest_wavelength} steps; within {ladder['extent']} steps "
        f"{ladder['turning'] or 'none'} "
        f"{'makes' if ladder['turning'] == 1 else 'make'} a full turn and "
        f"{dead} by less than 0.1 rad, which hardly tells places apart."
    )


def precision_line(horizons: Sequence[Block]) -> AnswerLine:
    """Return the line of the overview on the first position at which half precision is off."""
    first_positions = [
        horizon_block["bfloat16"]
        for horizon_block in horizons
        if horizon_block["bfloat16"] is not None
    ]
    value = f"{min(first_positions):,}" if first_positions else NO_VALUE
    return AnswerLine(
        "precision", "", "Precision of angles", "bfloat16 off from position", value
    )


def precision_sentence(block: Block) -> str:
    """Return a sentence on the positions from which angles are off, by number format."""
    limits = [
        f"in {name} from position {format_rounded(position)}"
        for name, position in block.items()
        if position is not None
    ]
    clause_text = (
        f"angles are off by 0.1 rad {', '.join(limits)}"
        if limits
        else "no angle is off by 0.1 rad"
    )
    return (
        f"Where all arithmetic is in one type, {clause_text}. The "
        "checkpoint does not say how it is run."
    )
