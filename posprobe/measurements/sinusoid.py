"""Closeness to the sinusoid of the table's shape."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import SinusoidFit
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.report.narrator.captions import LACKS

SINUSOID = Measurement[TableInputs, SinusoidFit](
    name="sinusoid",
    title="Compared with the sinusoid",
    compute=lambda given: analyses.against_sinusoid(
        given.positions, decomposition=given.result("pca")
    ),
    record=SinusoidFit,
    whole=True,
    drawings=(Drawing("sinusoid", lacks=LACKS["sinusoid"]),),
)
