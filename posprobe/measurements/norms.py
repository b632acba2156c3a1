"""Row norms."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Norms
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.report.narrator.captions import CAPTIONS

#: Rows that stand out which the page lists.
LISTED = 12


NORMS = Measurement[TableInputs, Norms](
    name="norms",
    title="Norms",
    compute=lambda given: analyses.norms(given.positions),
    record=Norms,
    whole=True,
    drawings=(Drawing("norms", draws="the norm of every row", caption=CAPTIONS["norms"]),),
)
