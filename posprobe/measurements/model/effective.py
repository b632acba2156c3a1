"""The position table as the first layer's attention receives it."""

from __future__ import annotations

from posprobe import families
from posprobe.analyses.effective import EffectiveTable
from posprobe.measurements import compared_numbers
from posprobe.measurements.base import Drawing
from posprobe.measurements.baselines import numbers_of_table
from posprobe.measurements.model.base import ModelInputs, ModelMeasurement
from posprobe.measurements.model.states import cosines_of
from posprobe.number_format import Block, cell
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, TABLES, lacking, note_sentences


def _compute(given: ModelInputs) -> EffectiveTable:
    table = families.effective_table(
        given.reference, rows=given.positions, revision=given.revision, offline=given.offline
    )
    before, after = (numbers_of_table(one) for one in (given.table, table))
    return EffectiveTable(before, after, table.notes, table)


def _facts(block: Block) -> tuple[str, ...]:
    """Say what was added, and why numbers that the table of one side shows are undefined."""
    known = block["undefined"]
    shown = [
        (number.label, known[key])
        for key, number in compared_numbers().items()
        if key in known and block["raw"].get(key) is not None
    ]
    return (*note_sentences(block), *lacking(shown))


def _before_and_after(document: Block) -> tuple[Table, ...]:
    block = document["effective"]
    rows = tuple(
        (number.label, cell(block["raw"][key]), cell(block["effective"][key]), number.meaning)
        for key, number in compared_numbers().items()
        if block["raw"].get(key) is not None
    )
    headings = columns("number", "=as stored", "=as attention sees it", "meaning")
    return (Table(TABLES["effective"](block), headings, rows),)


EFFECTIVE = ModelMeasurement[EffectiveTable](
    name="effective",
    compute=_compute,
    record=EffectiveTable,
    drawings=(Drawing("effective", ALTS["effective"]),),
    facts=_facts,
    tables=_before_and_after,
    from_weights=True,
    drawn_with=lambda result: {"effective": cosines_of(result.table)},
)
