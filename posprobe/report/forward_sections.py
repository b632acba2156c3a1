"""What the page about a run of a model says of each result: how to read it, what it leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from posprobe.formatting import Block, lookup, show
from posprobe.measurements import Number


@dataclass(frozen=True)
class ModelSection:
    """A measurement inside a model on the page."""

    key: str
    title: str
    shows: str
    reading: str
    limits: str
    source: str
    figures: Mapping[str, Callable[[Block], str]]
    numbers: tuple[Number, ...]
    facts: Callable[[Block], list[str]] = lambda _: []


_FOLLOWS = "Means over contexts: they say what goes along with position, not what it causes. "


def _between(blocks: Sequence[Block], key: str) -> str:
    """Return the smallest and the largest of a number over layers, and heads."""
    found = [lookup(block, key) for block in blocks]
    values = [v for value in found for v in (value if isinstance(value, list) else [value])]
    known = [value for value in values if value is not None]
    if not known:
        return "undefined"
    low, high = show(min(known)), show(max(known))
    return low if low == high else f"{low} to {high}"


def _by_layer(text: str, *keys: str) -> Callable[[Block], str]:
    return lambda block: text.format(*(_between(block["layers"], key) for key in keys))


def _peaks(block: Block) -> str:
    names = Counter(name for layer in block["layers"] for name in layer["peak_name"])
    common = ", ".join(f"{name} ({count})" for name, count in names.most_common(5))
    return f"Most frequent preferred offsets, with the number of heads: {common}."


def _pair(text: str, key: str) -> Callable[[Block], str]:
    return lambda block: text.format(
        *(show(block[kind][key]) for kind in ("with_positions", "without_positions"))
    )


SECTIONS: tuple[ModelSection, ...] = (
    ModelSection(
        key="states",
        title="Through the layers",
        shows="What positions add to the hidden states: the mean over contexts at each position, "
        "less the mean over positions. Layer 0 is what enters the first.",
        reading="Shares of variance: position, context (the mean of a context) and the rest add up "
        "to one. Noise is what sampling alone puts into the share of position; marks are hollow, "
        "and panels mostly noise, where that is more than half. The relative norm is the largest "
        "singular value of what positions add over that of all hidden states. In the table, rank "
        "counts the directions that stand above what noise can reach, as with more contexts weaker "
        "ones can; neighbours is the mean cosine of positions next to each other, invariance the "
        "share of the cosines' variance that the offset explains, CKA is debiased and with the "
        "sinusoid. Walks have steps of equal length: beside them a smooth curve is no finding. In "
        "the paths, a dot is the first position and a square the last.",
        limits=_FOLLOWS + "A token that stands at one place, such as CLS, counts as position. "
        "Whether later layers use what is there is not shown.",
        source="Song & Zhong 2023, sections 2 and 3, whose relative norm is that of their code; "
        "noise, walks and the table beside them are ours.",
        figures={
            "layers": _by_layer(
                "Share of variance by position ({}), relative norm ({}) and stable rank ({}) by "
                "layer.",
                "shares.position", "relative_norm", "stable_rank",
            ),
            "cosines": _by_layer(
                "Cosine matrices of what positions add at some layers, on one range from -1 to 1; "
                "share of noise {}.",
                "noise_share",
            ),
            "paths": _by_layer(
                "Paths of positions in the first two principal components at some layers; stable "
                "rank {}.",
                "stable_rank",
            ),
        },
        numbers=(),
    ),
    ModelSection(
        key="effective",
        title="The table as attention sees it",
        shows="The table after what stands between it and the first layer's queries and keys: the "
        "same content added to every position, and LayerNorm.",
        reading="Where two dots lie apart, LayerNorm or the added content changes what can be said "
        "of the table as stored.",
        limits="One content for all positions. Real content differs from token to token, and "
        "LayerNorm mixes it with the position.",
        source="The rows are those that the model's own first layer receives; the comparison is "
        "ours.",
        figures={
            "effective": lambda block: (
                "Cosine matrix of the rows that attention sees, and numbers before and after: "
                f"neighbour cosine {show(block['raw'].get('similarity.raw.neighbour_mean'))} and "
                f"{show(block['effective'].get('similarity.raw.neighbour_mean'))}."
            )
        },
        numbers=(),
        facts=lambda block: [f"{note[0].upper()}{note[1:]}." for note in block["notes"] if note],
    ),
    ModelSection(
        key="heads",
        title="Heads by their weights",
        shows="What each head's queries and keys make of two positions, before any content: the "
        "position-to-position part of its logits.",
        reading="One row, or one tile, per head: red is preferred. Offsets run from the query to "
        "the key, so that -1 is the previous token. Rows are centred and scaled one by one. The "
        "attention of a head is what the softmax of these logits alone would pay at the offset "
        "that it prefers; equal logits would pay what stands beside it. Offset share says how much "
        "of the interaction depends on the offset alone, key share how much of the logits is the "
        "same for every query. Heads count from 0.",
        limits="Attention to content. Above layer 0 positions reach a head through the layers "
        "below as well, which are left out here.",
        source="Wennberg & Henter 2021 (TISA); Ke et al. 2021 (TUPE), equation 6.",
        figures={
            "heads": lambda block: f"Logits of every head by offset. {_peaks(block)}",
            "peaks": lambda block: f"How many heads prefer each offset. {_peaks(block)}",
        },
        numbers=(),
        facts=lambda block: [f"{note[0].upper()}{note[1:]}." for note in block["notes"] if note],
    ),
    ModelSection(
        key="subspaces",
        title="Position and token directions",
        shows="Whether the directions in which positions vary are those in which tokens vary.",
        reading="Tokens are the vectors that positions are added to: a sample of the embeddings, "
        "or patches of noise. For each of their directions, strongest first, how much of it lies "
        "in the subspace of the leading position directions, beside what a random subspace of that "
        "rank holds. Less than that in the directions that tokens use most means that the two are "
        "kept apart.",
        limits="Directions alone: how large positions are beside tokens is another number "
        "(posprobe analyze, section Scale). Only the table as stored is looked at.",
        source="Simon 2024 (GPT-2's positional encodings, blog); outlier dimensions: Luo et al. "
        "2021.",
        figures={
            "overlap": lambda block: (
                f"Overlap of each token direction with the {block['rank']} leading position "
                f"directions; a random subspace has {show(block['chance']['expected'])}."
            )
        },
        numbers=(
            Number("variance", "variance", "of the tokens, within the position subspace"),
            Number("top", "top tenth", "of the subspace, within what tokens use most"),
            Number("bottom", "bottom tenth", "of the subspace, within what tokens use least"),
        ),
        facts=lambda block: _sampled(block),
    ),
    ModelSection(
        key="attention",
        title="Attention as measured",
        shows="The mean attention that each head pays at each offset, over the contexts.",
        reading="One row, or one tile, per head, on one logarithmic range that begins at a tenth "
        "of uniform attention; grey is never met. Of text the first token is left out as a key, "
        "since many heads pay it much wherever they are: see the second figure. Locality is 1 for "
        "attention to oneself, and weighs a key by 2 to the minus distance. Symmetry is 1 where "
        "either side gets the same. "
        "Invariance is the share of variance that the offset explains. Heads count from 0.",
        limits=_FOLLOWS + "A head that follows content can look local where content repeats; a "
        "mean hides heads that attend to different offsets in turn. Attention is not the flow of "
        "information: much of it goes to tokens where it does nothing.",
        source="Offset means as in Wennberg & Henter 2021; locality and symmetry: Chen et al. "
        "2023, the latter without their scaling, by which a constant row is symmetric.",
        figures={
            "attention": lambda block: f"Mean attention of every head by offset. {_peaks(block)}",
            "first": _by_layer(
                "What each head pays the first position ({}) and tokens that are no positions "
                "({}), by layer.",
                "first", "special",
            ),
        },
        numbers=(),
    ),
    ModelSection(
        key="words",
        title="One word repeated",
        shows="The first layer's attention where every token is the same, so that positions alone "
        "tell keys apart.",
        reading="As above. What remains of a head's pattern here is its own, whatever the tokens.",
        limits="Repeated tokens are unlike any text. Above the first layer the model has made "
        "positions into content, so nothing is shown there.",
        source="Identical-word probing: Wang et al. 2021 (On position embeddings in BERT, ICLR).",
        figures={"words": lambda block: f"Mean attention of each head by offset. {_peaks(block)}"},
        numbers=(),
    ),
    ModelSection(
        key="permutation",
        title="Permuted tokens",
        shows="How much outputs change when tokens change places, with the position table and with "
        "zeros in its place.",
        reading="Each token's last hidden state is compared with that of the same token at its new "
        "place: 0 means that order makes no difference. A causal mask, another encoding or mixing "
        "that is no attention tells order without positions, too.",
        limits="A model was not trained with zeros for positions: what it does then is no measure "
        "of what positions are worth to it.",
        source="Vaswani et al. 2017, section 3.5, name the reason for positions; the measure is "
        "ours.",
        figures={
            "permutation": _pair(
                "Relative change of the last hidden states: {} with positions, {} with the table "
                "set to 0.", "tokens",
            )
        },
        numbers=(),
    ),
    ModelSection(
        key="shift",
        title="Shifted positions",
        shows="The same contexts with all positions counted from a later one.",
        reading="A model that knew distances alone would not change. The relative change is that "
        "of the last hidden states; the perplexity is the exponential of the loss.",
        limits="Late positions have met fewer and longer contexts in training, so a rise can be "
        "rarity as well as position.",
        source="Sinha et al. 2022 (The curious case of absolute position embeddings).",
        figures={
            "shift": lambda block: (
                f"Relative change by shift, up to {show(max(block['change']))} at "
                f"{block['shifts'][-1]} positions"
                + (
                    f", and loss from {show(block['loss'][0])} to {show(block['loss'][-1])} nats."
                    if block["loss"]
                    else "."
                )
            )
        },
        numbers=(),
    ),
    ModelSection(
        key="blank",
        title="Images without content",
        shows="What tells patches apart where pixels do not: an image of one grey, and one of "
        "noise.",
        reading="Maps: how far each patch's state lies from the mean of all, over the largest of "
        "the map. Cosine: mean over patches of the state with the row of its position in the "
        "table, both centred; 0 is unrelated. Share: how much of the states' squared norm differs "
        "between patches.",
        limits="One image of each kind. States can hold position in directions of their own: then "
        "CKA, which a rotation leaves as it is, stays high while the cosine falls.",
        source="The pattern was shown by Yang et al. 2024 (Denoising Vision Transformers); the "
        "numbers are ours.",
        figures={
            "blank": _by_layer(
                "Norms of patches at some layers, and by layer the cosine with the table: {} for "
                "grey, {} for noise.",
                "constant.alignment", "noise.alignment",
            )
        },
        numbers=(),
    ),
)  # fmt: skip


def _sampled(block: Block) -> list[str]:
    """Say what was laid beside positions, and which single coordinates stand out."""
    few = ", ".join(
        f"{row['dimension']} ({row['change']:+.2g})" for row in block["outlier_dimensions"]
    )
    said = (
        f"{block['tokens']} tokens of width {block['width']} span "
        f"{block['token_directions']} directions; of the positions the {block['rank']} strongest "
        "are taken."
    )
    if not few:
        return [said]
    mean = show(block["mean_cosine"])
    changes = f"leaving out one coordinate changes it most at {few}"
    return [said, f"The mean cosine of two positions is {mean}; {changes}."]
