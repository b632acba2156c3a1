"""The registry: every measurement, in the order of the page."""

from __future__ import annotations

from typing import Any, TypeAlias

from posprobe.analyses.facts import Number
from posprobe.measurements.axis_codes import AXIS_CODES
from posprobe.measurements.base import (
    Drawing as Drawing,
    Measurement as Measurement,
    TableInputs as TableInputs,
    Tokens as Tokens,
)
from posprobe.measurements.bridging import BRIDGING
from posprobe.measurements.budget import BUDGET, CLOCK
from posprobe.measurements.dct import DCT
from posprobe.measurements.grid import GRID
from posprobe.measurements.norms import NORMS
from posprobe.measurements.pca import PRINCIPAL
from posprobe.measurements.probes import PROBES
from posprobe.measurements.scale import SCALE
from posprobe.measurements.seams import SEAMS
from posprobe.measurements.shift import SHIFT
from posprobe.measurements.similarity import SIMILARITY
from posprobe.measurements.sinusoid import SINUSOID
from posprobe.measurements.spectrogram import SPECTROGRAM
from posprobe.measurements.spectrum import SPECTRUM
from posprobe.measurements.winding import WINDING

TableMeasurement: TypeAlias = Measurement[TableInputs, Any]

#: Measurements of a table by name. Adding one is adding it here.
TABLE: dict[str, TableMeasurement] = {
    measurement.name: measurement
    for measurement in (
        BUDGET,
        CLOCK,
        GRID,
        SIMILARITY,
        AXIS_CODES,
        WINDING,
        BRIDGING,
        PRINCIPAL,
        SPECTRUM,
        SPECTROGRAM,
        DCT,
        SHIFT,
        SEAMS,
        SINUSOID,
        PROBES,
        SCALE,
        NORMS,
    )
}


def compared_numbers() -> dict[str, Number]:
    """Return the numbers that stand beside the sinusoid and null models, by key path."""
    return {
        f"{name}.{key}": number
        for name, measurement in TABLE.items()
        for key, number in measurement.numbers.items()
        if number.compared
    }
