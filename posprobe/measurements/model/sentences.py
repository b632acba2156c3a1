"""Parts of sentences, and a table, that measurements inside a model share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from posprobe.analyses.answer import at_least, verdict_of
from posprobe.analyses.head_logits import NO_PEAK
from posprobe.page import Table, columns
from posprobe.text import Block, between, lookup, show

#: What holds of every mean over contexts.
FOLLOWS = "Means over contexts: they say what goes along with position, not what it causes. "
#: Relative change up to which a model's own rounding can account for it, by number format.
_ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2}
#: What random contexts are not, by the words that their description begins with.
_NOT = {"random tokens": "no text", "random pixels": "no pictures"}


def percent(value: float, digits: int = 1) -> str:
    """Write a share for reading."""
    return f"{100 * value:.{digits}f} %"


def counted(contexts: int) -> str:
    """Write how many contexts there are."""
    return "1 context" if contexts == 1 else f"{contexts} contexts"


def random_contexts(document: Block) -> str:
    """Say what random contexts are not; empty where contexts are real."""
    kind = str(document["contexts"]["kind"])
    return next((f"{word} are {it}" for word, it in _NOT.items() if kind.startswith(word)), "")


def rounding(document: Block) -> float:
    """Return the relative change up to which the model's own rounding can account for it."""
    return _ROUNDING.get(str(document["model"]["dtype"]), 1e-3)


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


def frequent_offsets(block: Block) -> str:
    """Say which offsets the heads of all layers prefer most often."""
    names = Counter(name for layer in block["layers"] for name in layer["peak_name"])
    without = names.pop(NO_PEAK, 0)
    if not names:
        return "No head prefers an offset."
    common = ", ".join(f"{name} ({count})" for name, count in names.most_common(5))
    also = f"; no offset ({without})" if without else ""
    return f"Most frequent preferred offsets, with the number of heads: {common}{also}."


def preferred(block: Block, where: Block) -> str:
    """Say which offsets more heads prefer than an even choice would make, and what that gives.

    Parameters
    ----------
    block
        With ``layers``.
    where
        With the ``layout`` and whether heads are ``causal``.
    """
    every = [name for layer in block["layers"] for name in layer["peak_name"]]
    names = [name for name in every if name != NO_PEAK]
    if not names:
        return f"no head of {len(every)} prefers an offset"
    without = len(every) - len(names)
    prefer = "prefers" if without == 1 else "prefer"
    tail = f"; {without} of {len(every)} {prefer} no offset" if without else ""
    counted_names = Counter(names).most_common()
    name, most = counted_names[0]
    if len(names) == most:
        all_ = "" if without else "all "
        heads = "1 head prefers" if most == 1 else f"{all_}{most} heads prefer"
        return f"{heads} {name}{tail}"
    if most == 1:
        return f"{len(names)} heads prefer as many different offsets{tail}"
    even = even_choice(where)
    # Of many offsets some is preferred most often, whatever heads do.
    often = [
        f"{name} ({count})"
        for name, count in counted_names
        if verdict_of(min(1.0, at_least(count, len(names), even) / even)) == "yes"
    ]
    chance = f"where an even choice would give each {show(len(names) * even, '.2g')}"
    if not often:
        return (
            f"{len(names)} heads prefer various offsets, none more often than chance makes: {name} "
            f"most often ({most}), {chance}{tail}"
        )
    return (
        f"the offset{'s' if len(often) > 1 else ''} that {len(names)} heads prefer most often "
        f"{'are' if len(often) > 1 else 'is'} {'; '.join(often[:3])}, {chance}{tail}"
    )


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


def preferred_table(block: Block, where: str) -> Table:
    """Count the heads of each layer by the offset that they prefer."""
    rows = []
    for layer in block["layers"]:
        common = Counter(layer["peak_name"]).most_common(3)
        rows.append((str(layer["layer"]), "; ".join(f"{name} ({n})" for name, n in common)))
    caption = f"What most heads prefer {where}, with the number of heads"
    return Table(caption, columns("layer", "offsets"), tuple(rows), brief=True)


#: Share of what a table is worth from which an explanation is said to be enough.
ENOUGH = 0.9


def with_error(value: float | None, error: float | None) -> str:
    """Write a number with its standard error, where it has one, and as many decimals as that."""
    if value is None:
        return "–"
    if error is None:
        return show(value)
    # Of a smaller one the last decimals would not be exact in single precision.
    if not 1e-6 <= error < 100 or (abs(value) < 5e-4 and error < 5e-4):
        return f"{show(value)} ± {show(error, '.2g')}"
    decimals = max(0, 1 - math.floor(math.log10(float(f"{error:.1e}"))))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def percent_with_error(value: float | None, error: float | None) -> str:
    """Write a share with its standard error: both with as many decimals as the error has."""
    if value is None:
        return "–"
    if error is None:
        return percent(value)
    digits = 0 if error == 0 else sum(error < least for least in (0.0095, 0.00095, 0.000095))
    return f"{100 * value:.{digits}f} ± {100 * error:.{digits}f} %"


def kept(cost: Block) -> str:
    """Write how much of what a table is worth something keeps, with its standard error."""
    return percent_with_error(cost["kept"], cost["kept_error"])


def below(values: Iterable[float]) -> str:
    """Say what a share of what positions are worth means that is below 0, where one is."""
    return " (below 0: worse than taking them away)" if any(v < 0 for v in values) else ""


#: What counts as taking positions away, and what is worth something, by what is replaced.
_TAKEN_AWAY = {
    "table": "with the mean row in place of every row of the table",
    "rotary": "without any rotation",
    "relative": "with the biases of every head at their mean",
}
_WORTH = {"table": "the table is", "rotary": "rotations are", "relative": "biases are"}


def worth(block: Block) -> str:
    """Say what is worth something to what, in a run with other positions."""
    to = {
        "loss": f"the {str(block['task']).replace(' ', '-')} loss",
        "divergence": "the outputs",
        "answers": "the top answers",
        "states": "the last hidden states",
    }[block["measure"]]
    return f"what {_WORTH[block['scheme']]} worth to {to}"


def removal(block: Block) -> str:
    """Say what taking positions away costs, without a full stop and a capital."""
    found = next(each for each in block["substitutes"] if each["name"] == block["removed"])
    cost = with_error(found[block["measure"]]["value"], found[block["measure"]]["error"])
    begin = f"{_TAKEN_AWAY[block['scheme']]} ({block['table']})"
    if block["measure"] == "loss":
        own = with_error(block["loss"], block["loss_error"])
        task = str(block["task"]).replace(" ", "-")
        return f"{begin} the {task} loss changes by {cost} nats ({own} as it is)"
    if block["measure"] == "divergence":
        others = percent_with_error(found["answers"]["value"], found["answers"]["error"])
        return (
            f"{begin} the outputs diverge by {cost} nats from the unchanged model's, and {others} "
            "of the top answers are others"
        )
    return f"{begin} the last hidden states change by {cost} times their norm"


def smallest(block: Block, kind: str, *, largest: bool = False) -> Any:
    """Return the smallest explanation of a kind that is enough, else the best; None of none.

    Of tables that are smoothed, the longest smoothing is the largest and keeps least.
    """
    main = block["measure"]
    known = [
        each
        for each in block["substitutes"]
        if each["kind"] == kind and each[main]["kept"] is not None
    ]
    enough = [each for each in known if each[main]["kept"] >= ENOUGH]
    if enough:
        return (max if largest else min)(enough, key=lambda each: each["size"])
    return max(known, key=lambda each: each[main]["kept"], default=None)
