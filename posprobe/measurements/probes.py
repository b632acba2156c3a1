"""Linear probes of position and order."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Probes
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined

PROBES = Measurement[TableInputs, Probes](
    name="probes",
    title="Probes",
    compute=lambda given: analyses.probes(given.positions, seed=given.seed),
    record=Probes,
    drawings=(Drawing("probes", lacks=undefined),),
    slow=True,
)
