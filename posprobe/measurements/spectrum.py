"""Frequencies along positions."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Spectrum
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.number_format import Block, show
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import ALTS, CAPTIONS


def _lines(document: Block) -> tuple[Table, ...]:
    rows = tuple(
        (show(line["period"]), show(line["frequency"]), show(line["ratio"]))
        for line in document["spectrum"]["lines"] or ()
    )
    headings = columns("=period", "=frequency", "=times the noise")
    return (Table("Lines above red noise", headings, rows),) if rows else ()


SPECTRUM = Measurement[TableInputs, Spectrum](
    name="spectrum",
    compute=lambda given: analyses.spectrum(given.positions),
    record=Spectrum,
    drawings=(
        Drawing(
            "spectrum",
            ALTS["spectrum"],
            CAPTIONS["spectrum"],
            lacks=undefined,
            several=True,
            band="spectrum",
        ),
    ),
    tables=_lines,
)
