"""Frequencies along the table."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Spectrogram
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.report.narrator.captions import CAPTIONS

SPECTROGRAM = Measurement[TableInputs, Spectrogram](
    name="spectrogram",
    title="Frequencies along the table",
    compute=lambda given: analyses.spectrogram(given.positions),
    record=Spectrogram,
    whole=True,
    drawings=(
        Drawing(
            "spectrogram",
            draws="power by position and frequency",
            caption=CAPTIONS["spectrogram"],
            lacks=undefined,
        ),
    ),
)
