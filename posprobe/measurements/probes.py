"""Linear probes of position and order."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Probes
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.report.narrator.captions import ALTS

PROBES = Measurement[TableInputs, Probes](
    name="probes",
    compute=lambda given: analyses.probes(given.positions, seed=given.seed),
    record=Probes,
    drawings=(Drawing("probes", ALTS["probes"], lacks=undefined),),
    slow=True,
)
