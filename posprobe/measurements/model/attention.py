"""Attention by offset, measured over contexts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from posprobe import forward
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelMeasurement
from posprobe.number_format import Block, cell
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, LACKS, TABLES, preferred

#: Numbers of a head that the table averages, and what their columns are called.
COLUMNS = {
    "first": "to the first",
    "special": "to no position",
    "locality": "locality",
    "symmetry": "symmetry",
}


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
    chance = len(block["layers"][0]["peak_name"]) * even_choice(positions)
    return Table(preferred(where, chance), columns("layer", "offsets"), tuple(rows))


def _means(block: Block) -> Table:
    # Where there are no such tokens, and no line, there is no such column.
    shown = {
        key: label
        for key, label in COLUMNS.items()
        if any(value for layer in block["layers"] for value in layer[key])
    }
    rows = tuple(
        (
            str(layer["layer"]),
            *(_mean(layer[key]) for key in shown), cell(layer["translation_invariance"]),
        )
        for layer in block["layers"]
    )  # fmt: skip
    headings = ("layer", *(f"={label}" for label in shown.values()))
    return Table(TABLES["attention"](block), columns(*headings, "=invariance"), rows)


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return cell(sum(known) / len(known) if known else None)


ATTENTION = ModelMeasurement[AttentionByOffset](
    name="attention",
    compute=lambda given: forward.attend(
        given.model, given.batches("attention"), name=given.reference
    ),
    record=AttentionByOffset,
    drawings=(
        Drawing("attention", ALTS["attention"]),
        Drawing("first", ALTS["first"], lacks=LACKS["first"]),
    ),
    tables=lambda document: (
        preferred_table(
            document["attention"], "in measured attention", document["attention"]
        ),
        _means(document["attention"]),
    ),
)  # fmt: skip
