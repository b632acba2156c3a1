"""Seams and special rows."""

from __future__ import annotations

from collections.abc import Sequence

from posprobe import analyses
from posprobe.analyses import Seams
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import ALTS
from posprobe.text import Block, patches, positions

#: Special rows that the page lists.
LISTED = 24


def _named(rows: Sequence[int], layout: Block) -> str:
    return patches(rows, layout["width"]) if layout["type"] == "grid" else positions(rows)


def _found(document: Block) -> tuple[Table, ...]:
    block = document["seams"]
    seams = [
        (f"between {first} and {second}", reason)
        for (first, second), reason in zip(
            block["between"] or (), block["reasons"] or (), strict=False
        )
    ]
    layout = document["table"]["layout"]
    special = [(_named([row["row"]], layout), row["reason"]) for row in (block["special"] or ())]
    rows = (*seams, *special[:LISTED])
    return (Table("Seams and special rows", columns("where", "what"), rows),) if rows else ()


SEAMS = Measurement[TableInputs, Seams](
    name="seams",
    compute=lambda given: analyses.seams(given.positions),
    record=Seams,
    drawings=(Drawing("seams", ALTS["seams"], lacks=undefined),),
    tables=_found,
)
