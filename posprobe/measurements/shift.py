"""The linear map from each position to the next."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Shift
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.report.narrator.captions import CAPTIONS

SHIFT = Measurement[TableInputs, Shift](
    name="shift",
    title="The step from one position to the next",
    compute=lambda given: analyses.shift(given.positions, pca=given.result("pca")),
    record=Shift,
    whole=True,
    drawings=(
        Drawing(
            "shift",
            draws="eigenvalues of the map to the next position",
            caption=CAPTIONS["shift"],
            lacks=undefined,
        ),
    ),
)
