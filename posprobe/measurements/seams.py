"""Seams and special rows."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Seams
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined

#: Special rows that the page lists.
LISTED = 24


SEAMS = Measurement[TableInputs, Seams](
    name="seams",
    title="Breaks and outliers",
    compute=lambda given: analyses.seams(given.positions),
    record=Seams,
    drawings=(Drawing("seams", lacks=undefined),),
)
