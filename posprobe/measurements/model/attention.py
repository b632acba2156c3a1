"""Attention by offset, measured over contexts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from posprobe import forward
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.measurements.base import Drawing, Finding
from posprobe.measurements.model.base import ModelMeasurement
from posprobe.measurements.model.sentences import (
    FOLLOWS,
    by_layer,
    frequent_offsets,
    percent,
    preferred,
    preferred_table,
    random_contexts,
)
from posprobe.page import Table, columns
from posprobe.text import Block, cell

#: Numbers of a head that the table averages, and what their columns are called.
COLUMNS = {
    "first": "to the first",
    "special": "to no position",
    "locality": "locality",
    "symmetry": "symmetry",
}


def _means(block: Block) -> Table:
    # Where there are no such tokens, and no line, there is no such column.
    shown = {
        key: label
        for key, label in COLUMNS.items()
        if any(value for layer in block["layers"] for value in layer[key])
    }
    rows = tuple(
        (
            str(layer["layer"]), _common(layer["peak_name"]),
            *(_mean(layer[key]) for key in shown), cell(layer["translation_invariance"]),
        )
        for layer in block["layers"]
    )  # fmt: skip
    uniform = block["uniform_first"]
    even = "" if uniform is None else f" Uniform attention pays the first {percent(uniform)}."
    headings = ("layer", "most heads prefer", *(f"={label}" for label in shown.values()))
    return Table(f"Means over heads.{even}", columns(*headings, "=invariance"), rows)


def _common(names: Sequence[str]) -> str:
    name, count = Counter(names).most_common(1)[0]
    return f"{name} ({count} of {len(names)})"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return cell(sum(known) / len(known) if known else None)


def _findings(document: Block) -> Iterator[Finding]:
    block = document["attention"]
    note = random_contexts(document)
    yield Finding(
        f"In attention measured on contexts{f' ({note})' if note else ''}, "
        f"{preferred(block, block)}.",
        tuple(f"attention.layers.{place}.peak" for place in range(len(block["layers"]))),
    )
    if block["uniform_first"] is not None:
        means = [
            (sum(layer["first"]) / len(layer["first"]), place)
            for place, layer in enumerate(block["layers"])
            if None not in layer["first"]
        ]
        if means:
            most, place = max(means)
            yield Finding(
                f"The first position receives {percent(most, 0)} of the others' attention at layer "
                f"{block['layers'][place]['layer']}, the most of all layers, on average over its "
                f"heads; uniform attention would give it {percent(block['uniform_first'])}.",
                (f"attention.layers.{place}.first", "attention.uniform_first"),
            )
    special = [
        (sum(layer["special"]) / len(layer["special"]), place)
        for place, layer in enumerate(block["layers"])
        if None not in layer["special"] and any(layer["special"])
    ]
    if special:
        most, place = max(special)
        yield Finding(
            f"Tokens that are no positions receive {percent(most, 0)} of the attention at layer "
            f"{block['layers'][place]['layer']}, the most of all layers.",
            (f"attention.layers.{place}.special",),
        )


def _none_receives(result: AttentionByOffset) -> str:
    from posprobe.figures.model_attention import receivers

    return "" if receivers(result) else "there is no first position and no special token"


ATTENTION = ModelMeasurement[AttentionByOffset](
    name="attention",
    title="Attention as measured",
    shows="The mean attention that each head pays at each offset, over the contexts.",
    reading="One row, or one tile, per head, on one logarithmic range that begins at a tenth of "
    "uniform attention; grey is never met. Of text the first token is left out as a key, since "
    "many heads pay it much wherever they are: see the second figure. Locality is 1 for attention "
    "to oneself, and weighs a key by 2 to the minus distance. Symmetry is 1 where either side gets "
    "the same. Invariance is the share of variance that the offset explains. A head prefers no "
    "offset where none gets more than uniform attention would give it. Heads count from 0.",
    limits=FOLLOWS + "A head that follows content can look local where content repeats; a mean "
    "hides heads that attend to different offsets in turn. Attention is not the flow of "
    "information: much of it goes to tokens where it does nothing.",
    source="Offset means as in Wennberg & Henter 2021; locality and symmetry: Chen et al. 2023, "
    "the latter without their scaling, by which a constant row is symmetric.",
    compute=lambda given: forward.attend(
        given.model, given.batches("attention"), name=given.reference
    ),
    record=AttentionByOffset,
    drawings=(
        Drawing(
            "attention", lambda b: f"Mean attention of every head by offset. {frequent_offsets(b)}"
        ),
        Drawing(
            "first",
            by_layer(
                "What each head pays the first position ({}) and tokens that are no positions "
                "({}), by layer.",
                "first", "special",
            ),
            lacks=_none_receives,
        ),
    ),
    tables=lambda document: (
        preferred_table(document["attention"], "in measured attention"),
        _means(document["attention"]),
    ),
    findings=_findings,
)  # fmt: skip
