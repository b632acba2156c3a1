"""Tokens that change places, with and without the position table."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.experiments import PermutationEffect
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import WHOLE, LabelledRow, ModelMeasurement
from posprobe.text import Block, cell

#: Numbers of a model, and what they are called.
CHANGES = {
    "tokens": "change of the last states when permuted",
    "special": "the same of tokens that stay",
    "accuracy": "right answers",
    "scrambled_accuracy": "right answers when permuted",
}


def _permutation_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["permutation"]
    kinds = {"with_positions": "as it is", "without_positions": "table set to 0"}
    for key, label in CHANGES.items():
        if any(block[kind][key] is not None for kind in kinds):
            for kind, what in kinds.items():
                yield f"{label}, {what}", {WHOLE: cell(block[kind][key])}


PERMUTATION = ModelMeasurement[PermutationEffect](
    name="permutation",
    title="Permuted tokens",
    compute=lambda given: forward.permutation_effect(
        given.model, given.batches("permutations", given.few), seed=given.seed,
        name=given.reference,
    ),
    record=PermutationEffect,
    drawings=(Drawing("permutation"),),
    rows=_permutation_rows,
)  # fmt: skip
