"""Seams and special rows."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Seams
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.number_format import Block
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import ALTS, place

#: Special rows that the page lists.
LISTED = 24


def _found(document: Block) -> tuple[Table, ...]:
    block = document["seams"]
    seams = [
        (f"between {first} and {second}", reason)
        for (first, second), reason in zip(
            block["between"] or (), block["reasons"] or (), strict=False
        )
    ]
    layout = document["table"]["layout"]
    special = [(place(row["row"], layout), row["reason"]) for row in (block["special"] or ())]
    rows = (*seams, *special[:LISTED])
    return (Table("Breaks and outliers", columns("where", "what"), rows),) if rows else ()


SEAMS = Measurement[TableInputs, Seams](
    name="seams",
    compute=lambda given: analyses.seams(given.positions),
    record=Seams,
    drawings=(Drawing("seams", ALTS["seams"], lacks=undefined),),
    tables=_found,
)
