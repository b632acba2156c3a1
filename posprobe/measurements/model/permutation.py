"""Tokens that change places, with and without the position table."""

from __future__ import annotations

from posprobe import forward
from posprobe.analyses.experiments import PermutationEffect
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelMeasurement
from posprobe.number_format import Block, cell
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, TABLES

#: Numbers of a model, and what their columns are called.
COLUMNS = {
    "tokens": "tokens",
    "special": "tokens that stay",
    "accuracy": "right as they are",
    "scrambled_accuracy": "right permuted",
}


def _changes(document: Block) -> tuple[Table, ...]:
    block = document["permutation"]
    kinds = (("with positions", "with_positions"), ("table set to 0", "without_positions"))
    shown = {
        key: label
        for key, label in COLUMNS.items()
        if any(block[kind][key] is not None for _, kind in kinds)
    }
    return (
        Table(
            TABLES["permutation"](block),
            columns("model", *(f"={label}" for label in shown.values())),
            tuple((label, *(cell(block[kind][key]) for key in shown)) for label, kind in kinds),
        ),
    )


PERMUTATION = ModelMeasurement[PermutationEffect](
    name="permutation",
    compute=lambda given: forward.permutation_effect(
        given.model, given.batches("permutations", given.few), seed=given.seed,
        name=given.reference,
    ),
    record=PermutationEffect,
    drawings=(Drawing("permutation", ALTS["permutation"]),),
    tables=_changes,
)  # fmt: skip
