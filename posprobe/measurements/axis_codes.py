"""Row code and column code of patches."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.measurements.grid import needs_grid
from posprobe.report.narrator.captions import CAPTIONS

AXIS_CODES = Measurement[TableInputs, AxisCodes](
    name="axis_codes",
    title="Row code and column code",
    compute=lambda given: analyses.axis_codes(given.kept),
    record=AxisCodes,
    drawings=(
        Drawing(
            "axis_codes",
            draws="components of the row code and the column code",
            caption=CAPTIONS["axis_codes"],
            lacks=undefined,
        ),
    ),
    needs=needs_grid,
)
