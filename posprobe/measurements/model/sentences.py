"""Parts of sentences, and a table, that measurements inside a model share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from posprobe.page import Table, columns
from posprobe.text import Block, between, lookup, show


def by_layer(text: str, *keys: str) -> Callable[[Block], str]:
    """Make a sentence of a block: ranges over layers, and heads, fill the braces of the text."""

    def write(block: Block) -> str:
        found = ([lookup(layer, key) for layer in block["layers"]] for key in keys)
        return text.format(*(between(v for value in one for v in _flat(value)) for one in found))

    return write


def _flat(value: float | list[float | None] | None) -> Sequence[float | None]:
    return value if isinstance(value, list) else [value]


def note_sentences(block: Block) -> tuple[str, ...]:
    """Make sentences of the notes on a result."""
    return tuple(f"{note[0].upper()}{note[1:]}." for note in block["notes"] if note)


def even_choice(block: Block) -> float:
    """Return one over the number of offsets that at least half of the positions have."""
    layout = block["layout"]
    if layout["type"] == "sequence":
        half = int(layout["length"]) // 2
        # Of measured attention the first position is left out as a key.
        before = half - 1 if "uniform_first" in block else half
        return 1 / max(1, before + 1 if block["causal"] else before + 1 + half)
    height, width = int(layout["height"]), int(layout["width"])
    count = sum(
        2 * (height - abs(down)) * (width - abs(right)) >= height * width
        for down in range(1 - height, height)
        for right in range(1 - width, width)
    )
    return 1 / count


def preferred_table(block: Block, where: str, positions: Block) -> Table:
    """Count the heads of each layer by the offset that they prefer.

    Parameters
    ----------
    block
        With ``layers``.
    where
        In what they prefer it.
    positions
        With the ``layout`` and whether heads are ``causal``: what an even choice is among.
    """
    rows = []
    for layer in block["layers"]:
        common = Counter(layer["peak_name"]).most_common(3)
        rows.append((str(layer["layer"]), "; ".join(f"{name} ({n})" for name, n in common)))
    chance = show(len(block["layers"][0]["peak_name"]) * even_choice(positions), ".2g")
    caption = (
        f"Offsets that most heads of a layer prefer {where}, with the number of heads. An even "
        f"choice would give each offset {chance}."
    )
    return Table(caption, columns("layer", "offsets"), tuple(rows))


_WORTH = {"table": "the table is", "rotary": "rotations are", "relative": "biases are"}


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
