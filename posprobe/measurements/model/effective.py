"""The position table as the first layer's attention receives it."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import families
from posprobe.analyses.effective import EffectiveTable
from posprobe.measurements import compared_numbers
from posprobe.measurements.base import Drawing
from posprobe.measurements.baselines import numbers_of_table
from posprobe.measurements.model.base import (
    SEEN,
    STORED,
    LabelledRow,
    ModelInputs,
    ModelMeasurement,
)
from posprobe.measurements.model.states import cosines_of
from posprobe.text import Block, cell


def _effective(given: ModelInputs) -> EffectiveTable:
    table = families.effective_table(
        given.reference, rows=given.positions, revision=given.revision, offline=given.offline
    )
    before, after = (numbers_of_table(one) for one in (given.table, table))
    return EffectiveTable(before, after, table.notes, table)


def _effective_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["effective"]
    for key, number in compared_numbers().items():
        if block["raw"].get(key) is not None:
            yield (
                f"{number.label} of the table",
                {STORED: cell(block["raw"][key]), SEEN: cell(block["effective"][key])},
            )


EFFECTIVE = ModelMeasurement[EffectiveTable](
    name="effective",
    title="The table as attention sees it",
    compute=_effective,
    record=EffectiveTable,
    drawings=(Drawing("effective"),),
    rows=_effective_rows,
    from_weights=True,
    drawn_with=lambda result: {"effective": cosines_of(result.table)},
)
