"""Frequencies along positions."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Spectrum
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.report.narrator.captions import CAPTIONS

SPECTRUM = Measurement[TableInputs, Spectrum](
    name="spectrum",
    title="Frequencies",
    compute=lambda given: analyses.spectrum(given.positions),
    record=Spectrum,
    whole=True,
    drawings=(
        Drawing(
            "spectrum",
            draws="power by frequency",
            caption=CAPTIONS["spectrum"],
            lacks=undefined,
            several=True,
        ),
    ),
)
