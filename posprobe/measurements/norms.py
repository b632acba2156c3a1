"""Row norms."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Norms
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.number_format import Block, show
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import ALTS, CAPTIONS

#: Rows that stand out which the page lists.
LISTED = 12


def _outliers(document: Block) -> tuple[Table, ...]:
    block = document["norms"]
    rows = sorted(block["outlier_rows"] or (), key=lambda row: -abs(row["norm"] - block["median"]))
    if not rows:
        return ()
    which = f" (the {LISTED} farthest of {len(rows)})" if len(rows) > LISTED else ""
    shown = tuple((str(row["row"]), show(row["norm"])) for row in rows[:LISTED])
    return (Table(f"Rows that stand out{which}", columns("=position", "=norm"), shown),)


NORMS = Measurement[TableInputs, Norms](
    name="norms",
    compute=lambda given: analyses.norms(given.positions),
    record=Norms,
    drawings=(Drawing("norms", ALTS["norms"], CAPTIONS["norms"]),),
    tables=_outliers,
)
